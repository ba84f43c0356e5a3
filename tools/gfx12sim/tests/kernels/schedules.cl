// SPDX-License-Identifier: Apache-2.0
// Race-free kernels whose waves and groups meet in different ways; the schedule test runs each under many seeds.
typedef int v2i __attribute__((ext_vector_type(2)));
typedef int v8i __attribute__((ext_vector_type(8)));
#define ID     ((int)__builtin_amdgcn_workitem_id_x())
#define GROUP  ((int)__builtin_amdgcn_workgroup_id_x())
#define SPLIT  ((int)__builtin_amdgcn_workgroup_id_y())
#define BARRIER                                                                                                \
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");                                            \
    __builtin_amdgcn_s_barrier();                                                                              \
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");

// C[16][n] += A[16][k of this split] * B[n][k of this split], 8-bit integers by WMMA, sums by atomics: groups of
// different splits add to the same elements.
__attribute__((reqd_work_group_size(32, 1, 1))) kernel void split_atomic(global const char *a, global const char *b,
                                                                         global int *c, int n, int k, int span) {
    int row = ID & 15, upper = ID >> 4;
    v8i acc = 0;
    for (int k0 = SPLIT * span; k0 < (SPLIT + 1) * span; k0 += 16) {
        v2i fa = *(global const v2i *)(a + row * k + k0 + upper * 8);
        v2i fb = *(global const v2i *)(b + (GROUP * 16 + row) * k + k0 + upper * 8);
        acc = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(true, fa, true, fb, acc, false);
    }
    for (int i = 0; i < 8; i++)
        __opencl_atomic_fetch_add((global atomic_int *)&c[(upper * 8 + i) * n + GROUP * 16 + row], acc[i],
                                  __ATOMIC_RELAXED, __OPENCL_MEMORY_SCOPE_DEVICE);
}

// Split-K in two launches: float partial sums of one dot product a work-item, then their sum in a fixed order.
__attribute__((reqd_work_group_size(64, 1, 1))) kernel void split_partial(global const float *a, global const float *b,
                                                                          global float *partial, int n, int k, int span) {
    int at = GROUP * 64 + ID;
    float sum = 0;
    for (int i = SPLIT * span; i < (SPLIT + 1) * span; i++) sum = __builtin_fmaf(a[i], b[at * k + i], sum);
    partial[SPLIT * n + at] = sum;
}
__attribute__((reqd_work_group_size(64, 1, 1))) kernel void split_sum(global const float *partial, global float *c, int n,
                                                                      int splits) {
    int at = GROUP * 64 + ID;
    float sum = 0;
    for (int s = 0; s < splits; s++) sum += partial[s * n + at];
    c[at] = sum;
}

static float wave_sum(float x) {
    int lane = ID & 31;
    for (int step = 16; step; step >>= 1)
        x += __builtin_astype(__builtin_amdgcn_ds_bpermute((lane ^ step) * 4, __builtin_astype(x, int)), float);
    return x;
}

// One query against n keys of 64 floats: four waves take every fourth key with a running softmax, then meet in LDS.
__attribute__((reqd_work_group_size(128, 1, 1))) kernel void attention(global const float *q, global const float *keys,
                                                                       global const float *values, global float *out, int n) {
    local float top[4], total[4], sums[4][64];
    int lane = ID & 31, wave = ID >> 5;
    float q0 = q[GROUP * 64 + lane], q1 = q[GROUP * 64 + 32 + lane], m = -1e30f, l = 0, s0 = 0, s1 = 0;
    for (int j = wave; j < n; j += 4) {
        float score = wave_sum(q0 * keys[j * 64 + lane] + q1 * keys[j * 64 + 32 + lane]);
        float high = __builtin_fmaxf(m, score), keep = __builtin_amdgcn_exp2f(m - high), p = __builtin_amdgcn_exp2f(score - high);
        l = l * keep + p;
        s0 = s0 * keep + p * values[j * 64 + lane];
        s1 = s1 * keep + p * values[j * 64 + 32 + lane];
        m = high;
    }
    if (lane == 0) top[wave] = m, total[wave] = l;
    sums[wave][lane] = s0;
    sums[wave][32 + lane] = s1;
    BARRIER
    if (ID >= 64) return;
    float high = __builtin_fmaxf(__builtin_fmaxf(top[0], top[1]), __builtin_fmaxf(top[2], top[3])), num = 0, den = 0;
    for (int w = 0; w < 4; w++) {
        float scale = __builtin_amdgcn_exp2f(top[w] - high);
        num += scale * sums[w][ID];
        den += scale * total[w];
    }
    out[GROUP * 64 + ID] = num / den;
}
