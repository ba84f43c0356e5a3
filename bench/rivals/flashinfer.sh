#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# flashinfer.sh INCLUDE OUT: FlashInfer's fused add + rmsnorm, without and with its e4m3 output (one scale for all, given beforehand), for
# `card_small --flashinfer OUT`. INCLUDE: the include folder of a checkout of github.com/flashinfer-ai/flashinfer. Needs nvcc 13, no card.
set -euo pipefail
include=$1 out=$2
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
mkdir -p "$out"
build() { # NAME KERNEL ARGUMENTS
    printf '#include <flashinfer/norm.cuh>\ntemplate __global__ void flashinfer::norm::%s(%s);\n' "$2" "$3" > "$out/$1.cu"
    "$nvcc" "$out/$1.cu" -cubin -o "$out/$1.cubin" -std=c++17 -O3 --use_fast_math --gpu-architecture=sm_90a "-I$include" \
        -DFLASHINFER_ENABLE_F16 -DFLASHINFER_ENABLE_BF16 -DFLASHINFER_ENABLE_FP8_E4M3 --expt-relaxed-constexpr -diag-suppress=177
}
build add_rmsnorm 'FusedAddRMSNormKernel<8, __nv_bfloat16>' \
    '__nv_bfloat16 *, __nv_bfloat16 *, __nv_bfloat16 *, const uint32_t, const uint32_t, const uint32_t, float, float'
build add_rmsnorm_quant 'FusedAddRMSNormQuantKernel<8, __nv_bfloat16, __nv_fp8_e4m3>' \
    '__nv_bfloat16 *, __nv_bfloat16 *, __nv_bfloat16 *, __nv_fp8_e4m3 *, const uint32_t, const uint32_t, const uint32_t, const uint32_t, float, float *, float'
ls -la "$out"/*.cubin
