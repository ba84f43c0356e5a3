// SPDX-License-Identifier: Apache-2.0
// gemm_fp8block_w8a16 of order class "step" on sm_90a: 1..128 tokens, bound by the read of the weights. The ring and the cut of K
// are those of gemm_bf16 (sm90a_skinny.cuh); weights stay e4m3 until a warp takes 16 rows of a block into registers and widens
// them, exactly. mma.sync, not wgmma: its operands' k may be in any order that both share, so a lane takes 32 neighbouring k of a
// row with two 16-byte loads and nothing is shuffled, and warps do not wait for each other.
#include "kernels/common/sm90a_skinny.cuh"
#include "kernels/gemm_fp8block/sm90a_w8a16.cuh"

template <bool F16>
__device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    if constexpr (F16)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ uint4 shared_vector(uint32_t address) {
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(address) : "memory");
    return v;
}

// One block of 128 k: sum += Ws * (16 weight rows of this warp) x columns. Lane (g, c) of the fragments (g = lane / 4, c = lane % 4)
// takes k = 32 c .. 32 c + 31 of weight rows g and g + 8 and of column g, 16 at a time; lanes with c >= 2 take their later half
// first, which keeps all eight lanes of a shared-memory pass on different banks under the 128-byte swizzle. Even and odd steps
// have their own sums: two chains of products instead of one.
template <class R, bool F16>
__device__ __forceinline__ void multiply_block(const R &r, uint32_t slot, float scale, float (&sum)[R::columns / 2]) {
    constexpr int tiles = R::columns / 8;
    int lane = threadIdx.x % 32, g = lane / 4, c = lane % 4;
    uint32_t tile = smem_address(r.tiles[slot]), rows = tile + (threadIdx.x / 32 * 16 + g) * RDK_SKINNY_ROW_BYTES;
    uint32_t columns = tile + R::weight_bytes + c / 2 * R::box_bytes + g * RDK_SKINNY_ROW_BYTES;
    float acc[2][tiles][4] = {};
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t h = half ^ c / 2, at = ((2 * c + h) ^ g) * 16;
        uint4 upper = shared_vector(rows + at), lower = shared_vector(rows + 8 * RDK_SKINNY_ROW_BYTES + at);
        const uint32_t code[2][4] = {{upper.x, upper.y, upper.z, upper.w}, {lower.x, lower.y, lower.z, lower.w}};
#pragma unroll
        for (int pair = 0; pair < 2; pair++) {
            uint32_t a[2][4], chunk = ((c % 2 * 4 + h * 2 + pair) ^ g) * 16;
#pragma unroll
            for (int odd = 0; odd < 2; odd++) {
                widen<F16>(code[0][pair * 2 + odd], a[odd][0], a[odd][2]);
                widen<F16>(code[1][pair * 2 + odd], a[odd][1], a[odd][3]);
            }
#pragma unroll
            for (int t = 0; t < tiles; t++) {
                uint4 b = shared_vector(columns + t * 8 * RDK_SKINNY_ROW_BYTES + chunk);
                mma<F16>(acc[0][t], a[0], b.x, b.y);
                mma<F16>(acc[1][t], a[1], b.z, b.w);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < R::columns / 2; i++) sum[i] = fmaf(acc[0][i / 4][i % 4] + acc[1][i / 4][i % 4], scale, sum[i]);
}

template <class R, bool F16>
__device__ __forceinline__ void multiply(const rdk_skinny_args &args, R &r, const skinny_run &run) {
    int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0); // the same in all lanes, and the compiler sees it
    skinny_cursor at = {0, 0};
    for (int32_t unit = run.begin; unit < run.end;) {
        int32_t tile = unit / args.k_blocks, kb = unit - tile * args.k_blocks, tile_end = (tile + 1) * args.k_blocks;
        int32_t end = min(run.end, tile_end);
        bool first = kb == 0;
        float sum[R::columns / 2] = {};
        for (; unit < end; unit++, kb++) {
            float scale = load_scale(args.w_scale, tile * args.w_scale_stride_n + kb * args.w_scale_stride_k,
                                     args.w_scale_e8m0 != 0);
            barrier_wait(&r.full[at.slot], at.parity);
            multiply_block<R, F16>(r, at.slot, scale, sum);
            skinny_release(r, at, skinny_lanes_arrive<R>(args));
        }
        if (!first) {
            skinny_leave<R>(skinny_words<R>(args, run, run.range, group), sum);
            continue;
        }
        skinny_gather<R>(args, run, group, tile_end, sum);
        skinny_store(args, r, run, group, tile * R::rows + group * SKINNY_GROUP_ROWS, sum);
    }
}

template <class R, bool F16> __device__ __forceinline__ void w8a16_block(const rdk_skinny_args &args) {
    skinny_block<R>(args, [&](R &r, const skinny_run &run) { multiply<R, F16>(args, r, run); });
}

#define STEP_KERNEL(type_, f16_, columns_)                                                                               \
    extern "C" __global__ void __launch_bounds__(skinny_ring<columns_, 2, 2>::threads,                                   \
                                                 skinny_ring<columns_, 2, 2>::residents)                                 \
        rdk_gemm_fp8block_w8a16_step_sm90a_##type_##_c##columns_(const __grid_constant__ rdk_skinny_args args) {         \
        w8a16_block<skinny_ring<columns_, 2, 2>, f16_>(args);                                                            \
    }
STEP_KERNEL(bf16, false, 8)
STEP_KERNEL(bf16, false, 16)
STEP_KERNEL(bf16, false, 32)
STEP_KERNEL(f16, true, 8)
STEP_KERNEL(f16, true, 16)
STEP_KERNEL(f16, true, 32)
SKINNY_SPLIT_KERNEL(rdk_gemm_fp8block_w8a16_step_sm90a_split)
