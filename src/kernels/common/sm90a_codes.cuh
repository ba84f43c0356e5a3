// SPDX-License-Identifier: Apache-2.0
// Codes of 1x128 groups, sixteen lanes a group and eight elements each: the largest finite magnitude is four shuffles away.
#ifndef RDK_SM90A_CODES_CUH
#define RDK_SM90A_CODES_CUH

#include "kernels/common/sm90a_rows.cuh"

// Scale and codes of one piece of eight. The quotients are the correctly rounded ones, so every kernel gives these bits.
__device__ __forceinline__ float quantise_eight(eight &e, uint2 &codes) {
    float top = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; i++) top = fmaxf(top, fabsf(e.v[i])); // NaN counts as nothing
    const bool infinite = top == INFINITY;
    if (infinite) {
        top = 0.0f;
#pragma unroll
        for (int i = 0; i < 8; i++) top = fmaxf(top, isfinite(e.v[i]) ? fabsf(e.v[i]) : 0.0f);
    }
#pragma unroll
    for (int step = 8; step; step /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
    const float scale = fmaxf(divide_by(top, 448.0f, 1.0f / 448.0f), 1.0f / (448.0f * 512.0f)), inverse = __frcp_rn(scale);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float q = e.v[i] * inverse, exact = fmaf(fmaf(-q, scale, e.v[i]), inverse, q); // as divide_by
        e.v[i] = infinite && !isfinite(q) ? q : exact;
    }
    codes = pack_e4m3(e);
    return scale;
}

#endif // RDK_SM90A_CODES_CUH
