// SPDX-License-Identifier: Apache-2.0
// The random numbers of radiance check's cases: splitmix64 (Steele, Lea, Flood, OOPSLA 2014). A weight of 226 million numbers is
// drawn by all threads: the n-th number follows from the state alone, so that a seed gives the same ones whatever draws them.
#include "check.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const uint64_t step_of_state = 0x9e3779b97f4a7c15u;
enum { MOST_THREADS = 64, NORMAL_DRAWS = 3, CODES_A_DRAW = 8 };
static const int64_t least_elems_of_a_thread = 1 << 18; // some milliseconds of work

uint64_t check_random(uint64_t *state) {
    uint64_t z = *state += step_of_state;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static uint64_t sum_of_uniforms(uint64_t z) { // four of 16 bits
    return (z & 0xffff) + (z >> 16 & 0xffff) + (z >> 32 & 0xffff) + (z >> 48);
}
// Sum of twelve uniforms: near enough to a normal for test data, and cheap.
float check_normal(uint64_t *state) {
    uint64_t sum = sum_of_uniforms(check_random(state));
    sum += sum_of_uniforms(check_random(state));
    sum += sum_of_uniforms(check_random(state));
    return (float)((double)sum / 65536 - 6);
}

// ---- slices --------------------------------------------------------------------------------------------------------------
typedef struct slice {
    uint64_t state;
    void *values;
    rd_dtype dtype; // E4M3: codes
    float size;
    int64_t begin, end;
} slice;

static uint16_t bf16_of(float value) { // no NaN here
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static uint16_t f16_of(float value) { // of finite values inside the type
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint32_t sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    if (size < 0x38800000) return (uint16_t)(sign | (uint32_t)lrintf(fabsf(value) * 0x1p24f)); // below 2^-14
    return (uint16_t)(sign | (((size + 0xfff + (size >> 13 & 1)) >> 13) - (112 << 10)));
}

static void fill_values(const slice *s) {
    uint64_t state = s->state + (uint64_t)(NORMAL_DRAWS * s->begin) * step_of_state;
    for (int64_t i = s->begin; i < s->end; i++) {
        float value = s->size * check_normal(&state);
        if (s->dtype == RD_DTYPE_BF16)
            ((uint16_t *)s->values)[i] = bf16_of(value);
        else if (s->dtype == RD_DTYPE_F16)
            ((uint16_t *)s->values)[i] = f16_of(value);
        else
            ((float *)s->values)[i] = value;
    }
}

// Whole draws: the buffer has room for those of the last one.
static void fill_codes(const slice *s) {
    uint64_t state = s->state + (uint64_t)(s->begin / CODES_A_DRAW) * step_of_state;
    uint8_t *codes = s->values;
    for (int64_t i = s->begin; i < s->end; i += CODES_A_DRAW) {
        uint64_t eight = check_random(&state);
        memcpy(codes + i, &eight, CODES_A_DRAW);
        for (int64_t c = i; c < i + CODES_A_DRAW; c++) // NaN becomes the largest value
            codes[c] = (uint8_t)(codes[c] - ((codes[c] & 0x7f) == 0x7f));
    }
}

static void *fill(void *argument) {
    const slice *s = argument;
    if (s->dtype == RD_DTYPE_E4M3)
        fill_codes(s);
    else
        fill_values(s);
    return NULL;
}

// A thread that cannot be started leaves its slice to this one.
static void fill_all(const slice *whole) {
    slice slices[MOST_THREADS];
    pthread_t threads[MOST_THREADS];
    bool started[MOST_THREADS] = {false};
    int64_t online = sysconf(_SC_NPROCESSORS_ONLN), count = whole->end / least_elems_of_a_thread + 1;
    if (count > online) count = online < 1 ? 1 : online;
    if (count > MOST_THREADS) count = MOST_THREADS;
    const int64_t each = (whole->end / count / CODES_A_DRAW + 1) * CODES_A_DRAW;
    for (int64_t t = 0; t < count; t++) {
        slices[t] = *whole;
        slices[t].begin = t * each < whole->end ? t * each : whole->end;
        slices[t].end = slices[t].begin + each < whole->end ? slices[t].begin + each : whole->end;
        started[t] = t && !pthread_create(&threads[t], NULL, fill, &slices[t]);
    }
    for (int64_t t = 0; t < count; t++)
        if (!started[t]) fill(&slices[t]);
    for (int64_t t = 0; t < count; t++)
        if (started[t]) pthread_join(threads[t], NULL);
}

void *check_values(uint64_t *state, rd_dtype dtype, int64_t count, float size) {
    const slice whole = {.state = *state,
                         .values = malloc((size_t)count * rd_dtype_bytes(dtype) + 1),
                         .dtype = dtype,
                         .size = size,
                         .end = count};
    if (whole.values) fill_all(&whole);
    *state += (uint64_t)(NORMAL_DRAWS * count) * step_of_state;
    return whole.values;
}

uint8_t *check_codes(uint64_t *state, int64_t count) {
    const slice whole = {.state = *state,
                         .values = malloc((size_t)count + CODES_A_DRAW),
                         .dtype = RD_DTYPE_E4M3,
                         .end = count};
    if (whole.values) fill_all(&whole);
    *state += (uint64_t)((count + CODES_A_DRAW - 1) / CODES_A_DRAW) * step_of_state;
    return whole.values;
}

// ---- reading -------------------------------------------------------------------------------------------------------------
static float e4m3_value(uint8_t code) {
    int exponent = code >> 3 & 15, mantissa = code & 7;
    float magnitude = exponent ? ldexpf((float)(8 + mantissa), exponent - 10) : ldexpf((float)mantissa, -9);
    if ((code & 0x7f) == 0x7f) magnitude = NAN;
    return code & 0x80 ? -magnitude : magnitude;
}

static float f16_value(uint16_t code) {
    int exponent = code >> 10 & 31, mantissa = code & 1023;
    float magnitude =
        exponent ? ldexpf((float)(1024 + mantissa), exponent - 25) : ldexpf((float)mantissa, -24);
    if (exponent == 31) magnitude = mantissa ? NAN : INFINITY;
    return code & 0x8000 ? -magnitude : magnitude;
}

float check_read(const void *data, rd_dtype dtype, int64_t at) {
    if (dtype == RD_DTYPE_F32) return ((const float *)data)[at];
    if (dtype == RD_DTYPE_E4M3) return e4m3_value(((const uint8_t *)data)[at]);
    if (dtype == RD_DTYPE_F16) return f16_value(((const uint16_t *)data)[at]);
    uint32_t bits = (uint32_t)((const uint16_t *)data)[at] << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
