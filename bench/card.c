// SPDX-License-Identifier: Apache-2.0
// See card.h.
#include "card.h"

#include "ops/shared.h" // rdi_plan_start_in_turn

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WARM_UPS = 3, REPLAYS = 15, MOST_REPLAYS = 4096, MOST_ROWS = 64 };
static const int64_t READ_BYTES = (int64_t)2 << 30;
static const double REST_US = 80e3, HEAT_US = 200e3, STATE_US = 20e3;

rd_ctx *card_ctx;
rd_stream card_stream;
double card_read_gbs;
bool card_simulated;
char card_run[64];

void card_fail(const char *text, ...) {
    va_list more;
    va_start(more, text);
    vfprintf(stderr, text, more);
    va_end(more);
    fputc('\n', stderr);
    exit(1);
}

void card_need(rd_status status) {
    if (status != RD_OK) card_fail("%s", rd_error_text());
}

void card_open(const char *device) {
    const rd_ctx_options options = {.struct_size = sizeof options, .device = device ? device : "gpu:0"};
    card_need(rd_ctx_create(&options, &card_ctx));
    card_simulated = device && !strncmp(device, "sim:", 4);
    if (!card_simulated) card_need(rd_ctx_measure_read(card_ctx, READ_BYTES, &card_read_gbs));
    card_need(rd_stream_create(card_ctx, &card_stream));
    const time_t now = time(NULL);
    const size_t length = strftime(card_run, sizeof card_run, "%Y%m%dT%H%M%S-", gmtime(&now));
    snprintf(card_run + length, sizeof card_run - length, "%s", rd_build_id());
    rd_device_info info = {.struct_size = sizeof info};
    card_need(rd_device_get_info(rd_ctx_device(card_ctx), &info));
    fprintf(stderr, "%s (%s), %d multiprocessors, read ceiling %.0f GB/s, radiance %s (%s)\n", info.model,
            info.driver, info.compute_units, card_read_gbs, rd_version(), rd_build_id());
}

void card_close(void) {
    card_need(rd_stream_free(card_ctx, card_stream));
    rd_ctx_free(card_ctx);
}

void *card_alloc(size_t bytes) {
    void *out = NULL;
    card_need(rd_memory_alloc(card_ctx, bytes, &out));
    return out;
}

void card_free(void *pointer) {
    card_need(rd_memory_free(card_ctx, pointer));
}

void *card_host(size_t bytes) {
    void *out = calloc(bytes ? bytes : 1, 1);
    if (!out) card_fail("no memory for %zu bytes", bytes);
    return out;
}

void *card_put(const void *host, size_t bytes) {
    void *out = card_alloc(bytes);
    card_need(rd_memory_copy(card_ctx, out, host, bytes, RD_COPY_TO_DEVICE, card_stream));
    card_need(rd_stream_sync(card_ctx, card_stream));
    return out;
}

void card_get(void *host, const void *there, size_t bytes) {
    card_need(rd_memory_copy(card_ctx, host, there, bytes, RD_COPY_TO_HOST, card_stream));
    card_need(rd_stream_sync(card_ctx, card_stream));
}

void card_set(void *there, int byte, size_t bytes) {
    card_need(rd_memory_set(card_ctx, there, byte, bytes, card_stream));
}

// The pattern once, then copies of what is there, in whole patterns.
void card_tile(void *there, size_t bytes, const void *pattern, size_t pattern_bytes) {
    unsigned char *to = there;
    size_t filled = bytes < pattern_bytes ? bytes : pattern_bytes;
    card_need(rd_memory_copy(card_ctx, to, pattern, filled, RD_COPY_TO_DEVICE, card_stream));
    while (filled < bytes) {
        const size_t more = filled < bytes - filled ? filled : bytes - filled;
        card_need(rd_memory_copy(card_ctx, to + filled, to, more, RD_COPY_ON_DEVICE, card_stream));
        filled += more;
    }
    card_need(rd_stream_sync(card_ctx, card_stream));
}

int card_numbers(const char *text, int64_t to[CARD_LIST]) {
    int count = 0;
    const char *at = text;
    for (bool more = true; more; count++) {
        char *end;
        const int64_t number = strtoll(at, &end, 10);
        if (end == at || (*end && *end != ',') || number < 1 || number > 1 << 30 || count == CARD_LIST)
            card_fail("\"%s\", needs up to %d whole numbers from 1 to %d with commas between", text,
                      CARD_LIST, 1 << 30);
        to[count] = number;
        more = *end == ',';
        at = end + 1;
    }
    return count;
}

const char *card_value(int argc, char **argv, int at) {
    if (at + 1 >= argc || !*argv[at + 1]) card_fail("%s, needs a value", argv[at]);
    return argv[at + 1];
}

static bool is_word(const char *text, size_t length, const char *words) {
    for (const char *at = words; *at; at += strcspn(at, " "), at += strspn(at, " "))
        if (strcspn(at, " ") == length && !strncmp(at, text, length)) return true;
    return false;
}
const char *card_word(const char *name, const char *text, const char *words) {
    if (!is_word(text, strlen(text), words)) card_fail("%s %s, needs one of: %s", name, text, words);
    return text;
}
const char *card_words(const char *name, const char *text, const char *words) {
    for (const char *at = text;; at++) {
        const size_t length = strcspn(at, ",");
        if (!is_word(at, length, words))
            card_fail("%s %s, needs some of: %s, with commas between", name, text, words);
        at += length;
        if (!*at) return text;
    }
}

uint32_t card_random(void) {
    static uint64_t state = 0x9e3779b97f4a7c15u;
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (uint32_t)(state >> 32);
}

void card_fill_bf16(uint16_t *to, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        const uint32_t r = card_random();
        to[i] = (uint16_t)((r & 0x807f) | (124 + (r >> 16 & 3)) << 7);
    }
}

double card_e4m3(uint8_t code) {
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    const double size = exponent ? ldexp(8 + mantissa, exponent - 10) : ldexp(mantissa, -9);
    return code & 0x80 ? -size : size;
}

double card_bf16(uint16_t code) {
    const uint32_t word = (uint32_t)code << 16;
    float value;
    memcpy(&value, &word, sizeof value);
    return (double)value;
}

uint16_t card_to_bf16(double value) { // finite values
    const float narrow = (float)value;
    uint32_t word;
    memcpy(&word, &narrow, sizeof word);
    return (uint16_t)((word + 0x7fff + (word >> 16 & 1)) >> 16);
}

rd_plan *card_plan(const char *kernel, const rd_param *question, int32_t count, int64_t at, bool in_turn) {
    rd_plan *plan = NULL;
    card_need(rd_plan_create_kernel(card_ctx, kernel, question, count, at, at, &plan));
    if (in_turn) rdi_plan_start_in_turn(plan);
    return plan;
}

const char *card_kernel(const char *op, const rd_param *question, int32_t count) {
    rd_verdict verdicts[MOST_ROWS];
    int32_t rows = MOST_ROWS;
    card_need(rd_kernel_explain(rd_ctx_device(card_ctx), op, question, count, verdicts, &rows));
    for (int32_t i = 0; i < rows; i++)
        if (verdicts[i].chosen) return verdicts[i].kernel->name;
    return NULL;
}

const char *card_state_name(card_state state) {
    static const char *const names[] = {"ready", "cold", "warm"};
    return names[state];
}

rd_graph *card_record(card_call call, void *state, int64_t calls) {
    rd_graph *graph = NULL;
    card_need(rd_graph_begin(card_ctx, card_stream));
    for (int64_t i = 0; i < calls; i++) call(state, i);
    card_need(rd_graph_end(card_ctx, card_stream, &graph));
    return graph;
}

static int by_size(const void *x, const void *y) {
    const double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

static double replay_once(rd_graph *graph, rd_timer *timer) {
    double us = 0;
    card_need(rd_timer_start(timer, card_stream));
    card_need(rd_graph_launch(graph, card_stream));
    card_need(rd_timer_stop(timer, card_stream));
    card_need(rd_timer_read(timer, &us));
    return us;
}

static void rest(void) {
    const struct timespec pause = {.tv_nsec = (long)(REST_US * 1e3)};
    card_need(rd_stream_sync(card_ctx, card_stream));
    nanosleep(&pause, NULL);
}

card_time card_replay(rd_graph *graph, int64_t calls, card_state state) {
    static double us[MOST_REPLAYS];
    rd_timer *timer = NULL;
    int count = 0;
    double heated = 0, timed = 0;
    card_need(rd_timer_create(card_ctx, &timer));
    if (state == CARD_COLD && !card_simulated) rest();
    if (card_simulated) us[count++] = replay_once(graph, timer);
    for (int i = 0; state == CARD_READY && i < WARM_UPS && !card_simulated; i++)
        (void)replay_once(graph, timer);
    while (state == CARD_WARM && !card_simulated && heated < HEAT_US) heated += replay_once(graph, timer);
    while (!card_simulated && count < MOST_REPLAYS &&
           (state == CARD_READY ? count < REPLAYS : timed < STATE_US))
        timed += us[count++] = replay_once(graph, timer);
    rd_timer_free(timer);
    qsort(us, (size_t)count, sizeof *us, by_size);
    return (card_time){us[count / 2] / (double)calls, us[0] / (double)calls};
}
