// SPDX-License-Identifier: Apache-2.0
// GEMM with bf16 weights on sm_90a, the body of its step and chunk kernels: one running sum in the tensor core over a tile's k
// blocks, the next block's products issued while the last one's finish.
#ifndef RDK_SM90A_GEMM_BF16_CUH
#define RDK_SM90A_GEMM_BF16_CUH

#include "kernels/common/sm90a_skinny.cuh"

template <class R>
__device__ __forceinline__ void multiply_segment(R &r, skinny_cursor &head, skinny_cursor &tail, int group, int32_t count,
                                                 float (&sum)[R::columns / 2]) {
#pragma unroll
    for (int i = 0; i < R::columns / 2; i++) sum[i] = 0.0f;
    wgmma_pin(sum);
    for (int32_t i = 0; i < count; i++) {
        barrier_wait(&r.full[head.slot], head.parity);
        uint32_t weights = wgmma_descriptor(r.tiles[head.slot] + group * SKINNY_GROUP_BYTES);
        uint32_t columns = wgmma_descriptor(R::held ? r.held_columns() + i * R::box_bytes : r.tiles[head.slot] + R::weight_bytes);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < R::k_block / 16; step++)
            wgmma_half<R::columns, false>::run(sum, weights + step * 2, columns + step * 2, 1);
        wgmma_commit();
        head.advance<R::stages>();
        if (i) {
            wgmma_wait<1>();
            skinny_release(r, tail);
        }
    }
    wgmma_wait<0>();
    wgmma_pin(sum);
    skinny_release(r, tail);
}

// WHOLE: a range is a tile, no sums travel.
template <class R, bool WHOLE> __device__ __forceinline__ void multiply(const rdk_skinny_args &args, R &r, const skinny_run &run) {
    int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0); // the same in all lanes, and the compiler sees it
    skinny_cursor head = {0, 0}, tail = {0, 0};
    if (R::held) barrier_wait(r.held_full(), 0); // then every tile is whole
    for (int32_t unit = run.begin; unit < run.end;) {
        int32_t tile = unit / args.k_blocks, kb = unit - tile * args.k_blocks, tile_end = (tile + 1) * args.k_blocks;
        int32_t count = min(run.end, tile_end) - unit;
        float sum[R::columns / 2];
        multiply_segment(r, head, tail, group, count, sum);
        unit += count;
        if (!WHOLE && kb) {
            skinny_leave<R>(skinny_words<R>(args, run, run.range, group), sum);
            continue;
        }
        if (!WHOLE) skinny_gather<R>(args, run, group, tile_end, sum);
        skinny_store(args, r, run, group, tile * R::rows + group * SKINNY_GROUP_ROWS, sum);
    }
}

template <class R, bool WHOLE> __device__ __forceinline__ void gemm_bf16_block(const rdk_skinny_args &args) {
    skinny_block<R>(args, [&](R &r, const skinny_run &run) { multiply<R, WHOLE>(args, r, run); });
}

#define GEMM_BF16_RING_KERNEL(name_, whole_, ...)                                                                        \
    extern "C" __global__ void __launch_bounds__(skinny_ring<__VA_ARGS__>::threads, skinny_ring<__VA_ARGS__>::residents) \
        name_(const __grid_constant__ rdk_skinny_args args) {                                                            \
        gemm_bf16_block<skinny_ring<__VA_ARGS__>, whole_>(args);                                                         \
    }
#define GEMM_BF16_KERNEL(prefix_, columns_, groups_, rows_, whole_)                                                      \
    GEMM_BF16_RING_KERNEL(prefix_##_c##columns_##_r##rows_, whole_, columns_, groups_, 1)

#endif // RDK_SM90A_GEMM_BF16_CUH
