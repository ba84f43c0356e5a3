// SPDX-License-Identifier: Apache-2.0
// Block-FP8 GEMM of order class "chunk": prefill, bound by the tensor cores. One block a multiprocessor walks tiles of 128 tokens
// by 64 to 192 weight rows, of which what does not fill a whole round of blocks is cut along K, or of 256 tokens by 128.
#include "kernels/gemm_fp8block/sm90a_tall.cuh"

#define CHUNK_KERNEL(columns_)                                                                                           \
    extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(RDK_PAIRS_THREADS, 1)                         \
        rdk_gemm_fp8block_chunk_sm90a_128x##columns_(const __grid_constant__ rdk_gemm_pairs_args args) {                \
        pairs::pairs_block<pairs::shape<RDK_CHUNK_TOKENS, columns_, false>>(args);                                       \
    }
CHUNK_KERNEL(64)
CHUNK_KERNEL(96)
CHUNK_KERNEL(128)

#define WIDE_KERNEL(columns_)                                                                                            \
    extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(RDK_PAIRS_THREADS, 1)                         \
        rdk_gemm_fp8block_chunk_sm90a_128x##columns_(const __grid_constant__ rdk_gemm_pairs_args args) {                \
        using tile = chunk::shape<columns_>;                                                                             \
        pairs::pairs_block<tile, chunk::groups<tile>>(args);                                                             \
    }
WIDE_KERNEL(160)
WIDE_KERNEL(192)

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(RDK_PAIRS_THREADS, 1)
    rdk_gemm_fp8block_chunk_sm90a_256x128(const __grid_constant__ rdk_gemm_pairs_args args) {
    tall::block(args);
}

// Rows of any stride and any alignment to rows on 16 bytes; a word of output a thread and turn.
extern "C" __global__ void __launch_bounds__(256) rdk_gemm_fp8block_chunk_sm90a_repack(const __grid_constant__ rdk_gemm_repack_args args) {
    launch_dependents();
    wait_dependencies();
    const int32_t words = (args.bytes + 3) / 4;
    for (int64_t row = blockIdx.y; row < args.rows; row += gridDim.y)
        for (int32_t at = blockIdx.x * 256 + threadIdx.x; at < words; at += gridDim.x * 256) {
            const unsigned char *from = args.from + row * args.from_stride + at * 4;
            uint32_t word = 0;
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (at * 4 + i < args.bytes) word |= (uint32_t)__ldcg(from + i) << 8 * i;
            *reinterpret_cast<uint32_t *>(args.to + row * args.to_stride + at * 4) = word;
        }
}
