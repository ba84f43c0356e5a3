// SPDX-License-Identifier: Apache-2.0
// By-value arguments of the sm_90a step GEMM that quantises its own tokens, and what host and kernel know of its shared memory.
#ifndef RDI_SM90A_QUANT_GEMM_H
#define RDI_SM90A_QUANT_GEMM_H

#include "kernels/gemm_fp8block/sm90a_args.h"

enum { RDK_QUANT_GEMM_NONE = 0, RDK_QUANT_GEMM_NORM, RDK_QUANT_GEMM_SILU };
typedef struct rdk_quant_gemm_sm90a_args {
    RDK_ALIGN64 unsigned char w_map[128]; // box: 128 bytes of K x 64 or 128 weight rows
    RDK_PTR(const void) x;
    RDK_PTR(const void) up;          // silu: x becomes silu(x) * up
    RDK_PTR(const void) norm_weight; // norm
    RDK_PTR(const void) w_scale;
    RDK_PTR(const void) bias;
    RDK_PTR(void) c;
    RDK_PTR(void) partials;
    RDK_PTR(const unsigned char) soon; // what the launches behind this one read: brought into the second-level cache
    int64_t x_stride, up_stride, w_scale_stride_n, w_scale_stride_k, c_stride, soon_bytes;
    int32_t m, n, k, k_blocks;
    int32_t ranges, range_units, range_rest; // as rdk_gemm_step_args
    int32_t slots;                           // k blocks of tokens in shared memory: all of K, or those of a run
    int32_t stages, ahead;                   // of the ring; units asked for beyond it
    int32_t trigger; // the next kernel may start when this many units are left to ask for
    int32_t x_type, up_type, norm_type, w_scale_e8m0, bias_type, c_type;
    int32_t accumulate; // onto what c holds
    float eps, weight_offset;
} rdk_quant_gemm_sm90a_args;

// Tokens lie in pieces of 16 bytes of k, those of one piece side by side: no byte for tokens that are not there. The tensor
// core reads eight rows; what it finds behind the last token goes into columns that nobody looks at.
enum { RDK_QUANT_GEMM_PAD_BYTES = 128 };
RDK_HOST_DEVICE int rdk_quant_gemm_fixed_bytes(int tokens, int rows, int slots, int run_units) {
    return 1024 + RDK_QUANT_GEMM_PAD_BYTES + slots * tokens * (RDK_K_BLOCK + 4) + (run_units + 3) / 4 * 16 +
           rows / 64 * tokens * RDK_STEP_TURN_PITCH * 4 + 16 * 4;
}
RDK_HOST_DEVICE int rdk_quant_gemm_stage_bytes(int rows) {
    return rows * RDK_K_BLOCK + 16;
}

#endif // RDI_SM90A_QUANT_GEMM_H
