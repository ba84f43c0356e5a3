// SPDX-License-Identifier: Apache-2.0
// Sixteen f32 lanes in plain C, for machines without AVX2: correct and slow. See lanes.h.
#ifndef RDI_LANES_PORTABLE_H
#define RDI_LANES_PORTABLE_H

typedef struct v16 {
    float f[16];
} v16;
typedef struct i16 {
    uint32_t u[16]; // unsigned: lanes wrap
} i16;
typedef struct m16 {
    uint32_t bits;
} m16;
typedef struct d16 { // sixteen f64 lanes
    double d[16];
} d16;

// Checked builds keep the operations out of line: inlined with their checks, one body took minutes to compile.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RDI_LANE_FN static __attribute__((noinline, unused))
#else
#define RDI_LANE_FN static inline
#endif
#define RDI_EACH_LANE for (int i = 0; i < 16; i++)
// One lane operation: `expression_` over lane i of a and b (and c).
#define RDI_LANE_OP2(type_, name_, field_, expression_)                                                               \
    RDI_LANE_FN type_ name_(type_ a, type_ b) {                                                                     \
        type_ r;                                                                                                      \
        RDI_EACH_LANE r.field_[i] = (expression_);                                                                    \
        return r;                                                                                                     \
    }
#define RDI_LANE_TEST(type_, name_, condition_)                                                                       \
    RDI_LANE_FN m16 name_(type_ a, type_ b) {                                                                       \
        m16 r = {0};                                                                                                  \
        RDI_EACH_LANE r.bits |= (uint32_t)(condition_) << i;                                                          \
        return r;                                                                                                     \
    }

RDI_LANE_OP2(v16, v16_add, f, a.f[i] + b.f[i])
RDI_LANE_OP2(v16, v16_sub, f, a.f[i] - b.f[i])
RDI_LANE_OP2(v16, v16_mul, f, a.f[i] * b.f[i])
RDI_LANE_OP2(v16, v16_div, f, a.f[i] / b.f[i])
RDI_LANE_OP2(v16, v16_max, f, a.f[i] > b.f[i] ? a.f[i] : b.f[i])
RDI_LANE_OP2(v16, v16_min, f, a.f[i] < b.f[i] ? a.f[i] : b.f[i])
RDI_LANE_OP2(i16, i16_add, u, a.u[i] + b.u[i])
RDI_LANE_OP2(i16, i16_sub, u, a.u[i] - b.u[i])
RDI_LANE_OP2(i16, i16_and, u, a.u[i] & b.u[i])
RDI_LANE_OP2(i16, i16_or, u, a.u[i] | b.u[i])
RDI_LANE_OP2(i16, i16_xor, u, a.u[i] ^ b.u[i])
RDI_LANE_OP2(d16, d16_add, d, a.d[i] + b.d[i])
RDI_LANE_TEST(v16, v16_ge, a.f[i] >= b.f[i])
RDI_LANE_TEST(v16, v16_eq, a.f[i] == b.f[i])
RDI_LANE_TEST(i16, i16_gt, (int32_t)a.u[i] > (int32_t)b.u[i])

RDI_LANE_FN v16 v16_set(float x) {
    v16 r;
    RDI_EACH_LANE r.f[i] = x;
    return r;
}
RDI_LANE_FN v16 v16_load(const float *p) {
    v16 r;
    memcpy(r.f, p, sizeof r.f);
    return r;
}
RDI_LANE_FN void v16_store(float *p, v16 a) { memcpy(p, a.f, sizeof a.f); }
RDI_LANE_FN v16 v16_fma(v16 a, v16 b, v16 c) {
    v16 r;
    RDI_EACH_LANE r.f[i] = fmaf(a.f[i], b.f[i], c.f[i]);
    return r;
}

RDI_LANE_FN i16 i16_set(int32_t x) {
    i16 r;
    RDI_EACH_LANE r.u[i] = (uint32_t)x;
    return r;
}
RDI_LANE_FN i16 i16_bits(v16 a) {
    i16 r;
    memcpy(&r, &a, sizeof r);
    return r;
}
RDI_LANE_FN v16 v16_bits(i16 a) {
    v16 r;
    memcpy(&r, &a, sizeof r);
    return r;
}
RDI_LANE_FN i16 i16_shl(i16 a, int n) {
    RDI_EACH_LANE a.u[i] <<= n;
    return a;
}
RDI_LANE_FN i16 i16_shr(i16 a, int n) {
    RDI_EACH_LANE a.u[i] >>= n;
    return a;
}
RDI_LANE_FN i16 i16_sra(i16 a, int n) {
    RDI_EACH_LANE a.u[i] = a.u[i] >> n | (a.u[i] >> 31 ? ~(0xffffffffu >> n) : 0);
    return a;
}

RDI_LANE_FN v16 v16_select(m16 m, v16 a, v16 b) {
    RDI_EACH_LANE b.f[i] = m.bits >> i & 1 ? a.f[i] : b.f[i];
    return b;
}
RDI_LANE_FN i16 i16_select(m16 m, i16 a, i16 b) {
    RDI_EACH_LANE b.u[i] = m.bits >> i & 1 ? a.u[i] : b.u[i];
    return b;
}
RDI_LANE_FN uint32_t m16_bits(m16 m) { return m.bits; }

RDI_LANE_FN v16 v16_from_bf16(const uint16_t *p) {
    v16 r;
    RDI_EACH_LANE r.f[i] = rdi_f32_from_bf16(p[i]);
    return r;
}
RDI_LANE_FN v16 v16_from_f16(const uint16_t *p) {
    v16 r;
    RDI_EACH_LANE r.f[i] = rdi_f32_from_f16(p[i]);
    return r;
}
RDI_LANE_FN void v16_to_f16(uint16_t *p, v16 a) { RDI_EACH_LANE p[i] = rdi_f16_from_f32(a.f[i]); }
RDI_LANE_FN void i16_store_u16(uint16_t *p, i16 a) { RDI_EACH_LANE p[i] = (uint16_t)a.u[i]; }
RDI_LANE_FN void i16_store_u8(uint8_t *p, i16 a) { RDI_EACH_LANE p[i] = (uint8_t)a.u[i]; }

RDI_LANE_FN d16 d16_zero(void) { return (d16){{0}}; }
RDI_LANE_FN d16 d16_add1(d16 a, double b) {
    RDI_EACH_LANE a.d[i] += b;
    return a;
}
RDI_LANE_FN d16 d16_from_v16(v16 a) {
    d16 r;
    RDI_EACH_LANE r.d[i] = (double)a.f[i];
    return r;
}
RDI_LANE_FN void d16_store(double *p, d16 a) { memcpy(p, a.d, sizeof a.d); }

#endif // RDI_LANES_PORTABLE_H
