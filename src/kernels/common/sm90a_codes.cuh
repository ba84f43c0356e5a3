// SPDX-License-Identifier: Apache-2.0
// e4m3 codes and the scale of 1x128 groups, as quant_fp8 states them, for every kernel that leaves codes: sixteen lanes hold a
// group, eight elements each, and its largest magnitude is two reductions of the warp away.
#ifndef RDK_SM90A_CODES_CUH
#define RDK_SM90A_CODES_CUH

#include "kernels/common/sm90a_rows.cuh"

// The largest of these sixteen lanes, of floats that are not negative: their bits order as they do.
__device__ __forceinline__ float top_of_group(float v) {
    uint32_t bits = __float_as_uint(v);
    bool low = threadIdx.x % 32 < 16;
    uint32_t first = __reduce_max_sync(0xffffffffu, low ? bits : 0), second = __reduce_max_sync(0xffffffffu, low ? 0 : bits);
    return __uint_as_float(low ? first : second);
}

struct quant_place { // of eight codes and of their group's scale
    unsigned char *q;
    float *scale;
};
// Scale and codes of the groups that these sixteen lanes hold, one of each piece. The scale comes from the finite values.
template <int PIECES> __device__ __forceinline__ void quantise(row_pieces<PIECES> &p, const quant_place (&to)[PIECES]) {
    float top[PIECES];
    bool infinite = false;
#pragma unroll
    for (int t = 0; t < PIECES; t++) {
        const float(&v)[8] = p.e[t].v; // fmaxf: NaN counts as nothing
        top[t] = fmaxf(fmaxf(fmaxf(fabsf(v[0]), fabsf(v[1])), fmaxf(fabsf(v[2]), fabsf(v[3]))),
                       fmaxf(fmaxf(fabsf(v[4]), fabsf(v[5])), fmaxf(fabsf(v[6]), fabsf(v[7]))));
        infinite = infinite || top[t] == INFINITY;
    }
    if (infinite)
#pragma unroll
        for (int t = 0; t < PIECES; t++) {
            top[t] = 0.0f;
#pragma unroll
            for (int i = 0; i < 8; i++) top[t] = fmaxf(top[t], isfinite(p.e[t].v[i]) ? fabsf(p.e[t].v[i]) : 0.0f);
        }
#pragma unroll
    for (int t = 0; t < PIECES; t++) top[t] = top_of_group(top[t]);
#pragma unroll
    for (int t = 0; t < PIECES; t++) {
        if (p.count[t] <= 0) continue;
        float scale = fmaxf(divide_finite(top[t], 448.0f, 1.0f / 448.0f), 1.0f / (448.0f * 512.0f)), inverse = reciprocal(scale);
        eight codes_of;
#pragma unroll
        for (int i = 0; i < 8; i++) codes_of.v[i] = divide_finite(p.e[t].v[i], scale, inverse);
        if (infinite)
#pragma unroll
            for (int i = 0; i < 8; i++)
                if (!isfinite(p.e[t].v[i])) codes_of.v[i] = p.e[t].v[i];
        uint2 codes = pack_e4m3(codes_of);
        if (p.count[t] >= 8 && (uint64_t)to[t].q % 8 == 0)
            *reinterpret_cast<uint2 *>(to[t].q) = codes;
        else
#pragma unroll
            for (int i = 0; i < 8; i++)
                if (i < p.count[t]) to[t].q[i] = (unsigned char)((i < 4 ? codes.x : codes.y) >> i % 4 * 8);
        if (threadIdx.x % 16 == 0) *to[t].scale = scale;
    }
}

#endif // RDK_SM90A_CODES_CUH
