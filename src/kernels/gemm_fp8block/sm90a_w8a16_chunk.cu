// SPDX-License-Identifier: Apache-2.0
// gemm_fp8block_w8a16 of order class "chunk" on sm_90a: any number of rows. A block takes a tile of 128 weight rows by 128 tokens
// over all of K. Weights stay e4m3 until a warp takes its 16 rows of a block into registers, where they are widened, exactly, to
// the fragments that wgmma reads as A. Each block's sum is scaled by Ws and added up in f32.
#include "kernels/common/sm90a_skinny.cuh"
#include "kernels/gemm_fp8block/sm90a_w8a16.cuh"

enum { STEPS = 8 }; // of 16 k in a block of 128

struct fragments {
    uint32_t a[STEPS][4];
};

// Four 8 x 16-byte matrices: rows 0-7 and 8-15 of two neighbouring 16-byte chunks. A lane gets bytes 4 c .. 4 c + 3 of a chunk
// (c = lane % 4) and needs 2 c, 2 c + 1, 2 c + 8, 2 c + 9: they come from lanes c / 2 and 2 + c / 2 of its four.
template <bool F16> __device__ __forceinline__ void load_fragments(const unsigned char *rows, fragments &f) {
    int lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane % 16, low = (lane & ~3) | lane % 4 / 2;
    uint32_t select = lane % 2 ? 0x7632 : 0x5410, base = smem_address(rows) + row * RDK_SKINNY_ROW_BYTES;
#pragma unroll
    for (int s = 0; s < STEPS; s += 2) {
        uint32_t word[4], from = base + ((s + lane / 16) ^ row % 8) * 16;
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
                     : "r"(from)
                     : "memory");
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t codes = __byte_perm(__shfl_sync(0xffffffffu, word[i], low), __shfl_sync(0xffffffffu, word[i], low + 2), select);
            widen<F16>(codes, f.a[s + i / 2][i % 2], f.a[s + i / 2][i % 2 + 2]);
        }
    }
}

__device__ __forceinline__ void pin(fragments &f) { // wgmma reads them until it is waited for
#pragma unroll
    for (int s = 0; s < STEPS; s++) asm volatile("" : "+r"(f.a[s][0]), "+r"(f.a[s][1]), "+r"(f.a[s][2]), "+r"(f.a[s][3])::"memory");
}

template <class R> struct flight { // one block on its way through the tensor core
    float acc[R::columns / 2], scale;
    fragments f;
};

template <class R> struct segment {
    const rdk_skinny_args &args;
    R &r;
    skinny_cursor &head, &tail;
    int group;
    int64_t scale_at;
};

template <class R, bool F16> __device__ __forceinline__ void issue(segment<R> &at, flight<R> &block) {
    barrier_wait(&at.r.full[at.head.slot], at.head.parity);
    const unsigned char *tile = at.r.tiles[at.head.slot];
    load_fragments<F16>(tile + at.group * SKINNY_GROUP_BYTES, block.f);
    block.scale = load_scale(at.args.w_scale, at.scale_at, at.args.w_scale_e8m0 != 0);
    at.scale_at += at.args.w_scale_stride_k;
    wgmma_pin(block.acc);
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < STEPS; s++)
        wgmma_half<R::columns, F16>::run(block.acc, block.f.a[s],
                                         wgmma_descriptor(tile + R::weight_bytes + s / 4 * R::box_bytes) + s % 4 * 2, s != 0);
    wgmma_commit();
    at.head.template advance<R::stages>();
}

// sum = fma(block sum, Ws, sum), then the stage is free; the other group fills the gap.
template <class R>
__device__ __forceinline__ void promote(segment<R> &at, flight<R> &block, float (&sum)[R::columns / 2]) {
    wgmma_wait<0>();
    wgmma_pin(block.acc);
    pin(block.f);
#pragma unroll
    for (int i = 0; i < R::columns / 2; i++) sum[i] = fmaf(block.acc[i], block.scale, sum[i]);
    skinny_release(at.r, at.tail, skinny_lanes_arrive<R>(at.args));
}

template <class R, bool F16>
__device__ __forceinline__ void multiply_segment(segment<R> &at, int32_t count, float (&sum)[R::columns / 2]) {
#pragma unroll
    for (int i = 0; i < R::columns / 2; i++) sum[i] = 0.0f;
    flight<R> block;
    for (int32_t i = 0; i < count; i++) {
        issue<R, F16>(at, block);
        promote<R>(at, block, sum);
    }
}

template <class R, bool F16>
__device__ __forceinline__ void multiply(const rdk_skinny_args &args, R &r, const skinny_run &run) {
    int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0); // the same in all lanes, and the compiler sees it
    skinny_cursor head = {0, 0}, tail = {0, 0};
    for (int32_t unit = run.begin; unit < run.end;) {
        int32_t tile = unit / args.k_blocks; // ranges are whole tiles
        segment<R> at = {args, r, head, tail, group,
                         tile * args.w_scale_stride_n};
        float sum[R::columns / 2];
        multiply_segment<R, F16>(at, args.k_blocks, sum);
        unit += args.k_blocks;
        skinny_store(args, r, run, group, tile * R::rows + group * SKINNY_GROUP_ROWS, sum);
    }
}

template <class R, bool F16> __device__ __forceinline__ void w8a16_block(const rdk_skinny_args &args) {
    skinny_block<R>(args, [&](R &r, const skinny_run &run) { multiply<R, F16>(args, r, run); });
}

#define CHUNK_KERNEL(type_, f16_)                                                                                        \
    extern "C" __global__ void __launch_bounds__(skinny_ring<128, 2, 2>::threads, skinny_ring<128, 2, 2>::residents)     \
        rdk_gemm_fp8block_w8a16_chunk_sm90a_##type_##_c128_r128(const __grid_constant__ rdk_skinny_args args) {          \
        w8a16_block<skinny_ring<128, 2, 2>, f16_>(args);                                                                 \
    }
CHUNK_KERNEL(bf16, false)
CHUNK_KERNEL(f16, true)
SKINNY_SPLIT_KERNEL(rdk_gemm_fp8block_w8a16_chunk_sm90a_split)
