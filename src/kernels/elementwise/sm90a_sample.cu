// SPDX-License-Identifier: Apache-2.0
// sample on Hopper, in two launches: the largest logit of each slice of a row; then masses and counts of each slice, added up in
// bins of the distance from the top, and the draw by the block of a row that ends last.
//
// A token's mass exp((l - max) / temperature) is rounded to a multiple of 2^-34 and summed as an integer, so that sums are exact
// and no order of threads can change the token. Tokens whose mass rounds to zero can neither be drawn nor move a bound and stay
// out. A row is never sorted: the bin in which a sum meets its target is found from the bins' running sums, and only the tokens of
// that bin and its neighbours are gathered and put in order.
#include "kernels/elementwise/sm90a_sample.cuh"

struct histogram { // of one slice: sums of 17 bits and of the 17 above, so that 32-bit atomics do
    uint32_t count[BINS], low[BINS], high[BINS];
};

extern "C" __global__ void __launch_bounds__(TOPS_THREADS)
    rdk_sample_sm90a_tops(const __grid_constant__ rdk_sample_sm90a_args args) {
    __shared__ unsigned long long scratch[32];
    launch_dependents();
    wait_dependencies();
    const row_words row = words_of(args, blockIdx.y);
    const float *logits = args.logits + blockIdx.y * args.logits_stride;
    int32_t begin = blockIdx.x * RDK_SAMPLE_SPLIT_ELEMS, end = min(begin + RDK_SAMPLE_SPLIT_ELEMS, args.vocab);
    unsigned long long top = 0;
#pragma unroll 16
    for (int32_t i = begin + threadIdx.x; i < end; i += TOPS_THREADS) {
        uint32_t key = key_of(__ldcg(logits + i));
        unsigned long long word = (unsigned long long)key << 32 | (0xffffffffu - (uint32_t)i); // the lower id wins a tie
        top = key && word > top ? word : top;
    }
    for (int32_t i = blockIdx.x * TOPS_THREADS + threadIdx.x; i < BINS; i += gridDim.x * TOPS_THREADS)
        row.mass[i] = row.count[i] = 0;
    if (blockIdx.x == 0 && threadIdx.x == 0) *row.done = 0;
    top = block_top(top, scratch);
    if (threadIdx.x == 0) row.tops[blockIdx.x] = top;
}

// One slice of a row. A warp whose tokens share a bin, as in a row of equal logits, adds them up first.
__device__ void add_slice(const rdk_sample_sm90a_args &args, const rule &rules, const float *logits, const row_words &row,
                          histogram &h) {
    for (int i = threadIdx.x; i < BINS; i += RDK_SAMPLE_THREADS) h.count[i] = h.low[i] = h.high[i] = 0;
    int32_t begin = blockIdx.x * RDK_SAMPLE_SPLIT_ELEMS;
    float logit[RDK_SAMPLE_SPLIT_ELEMS / RDK_SAMPLE_THREADS];
#pragma unroll
    for (int j = 0; j < RDK_SAMPLE_SPLIT_ELEMS / RDK_SAMPLE_THREADS; j++) {
        int32_t i = begin + j * RDK_SAMPLE_THREADS + threadIdx.x;
        logit[j] = i < args.vocab ? __ldcg(logits + i) : -INFINITY;
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < RDK_SAMPLE_SPLIT_ELEMS / RDK_SAMPLE_THREADS; j++) {
        uint32_t bin = 0;
        uint64_t mass = 0;
        bool counts = rules.measure(logit[j], bin, mass);
        uint32_t low = (uint32_t)mass & 0x1ffff, high = (uint32_t)(mass >> 17);
        uint32_t first = __shfl_sync(0xffffffffu, bin, 0); // all lanes take part, also those whose token does not count
        if (__all_sync(0xffffffffu, counts && bin == first)) {
            low = __reduce_add_sync(0xffffffffu, low);
            high = __reduce_add_sync(0xffffffffu, high);
            if (threadIdx.x % 32) continue;
            atomicAdd(&h.count[bin], 32u);
        } else if (counts) {
            atomicAdd(&h.count[bin], 1u);
        } else {
            continue;
        }
        if (low) atomicAdd(&h.low[bin], low);
        if (high) atomicAdd(&h.high[bin], high);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < BINS; i += RDK_SAMPLE_THREADS) {
        if (!h.count[i]) continue;
        atomicAdd(&row.count[i], h.count[i]);
        atomicAdd(&row.mass[i], ((unsigned long long)h.high[i] << 17) + h.low[i]);
    }
}

// True in all threads of the block that is the last of its row to come here: it sees what all of them added.
__device__ bool last_of_row(const row_words &row, int32_t blocks, uint32_t &ticket) {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) ticket = atomicAdd(row.done, 1u);
    __syncthreads();
    __threadfence();
    return ticket == (uint32_t)blocks - 1;
}

extern "C" __global__ void __launch_bounds__(RDK_SAMPLE_THREADS)
    rdk_sample_sm90a_draw(const __grid_constant__ rdk_sample_sm90a_args args) {
    __shared__ union {
        histogram slice;
        draw_state draw;
    } s;
    __shared__ uint32_t ticket;
    launch_dependents();
    wait_dependencies();
    const row_words row = words_of(args, blockIdx.y);
    const sample_row p = static_cast<const sample_row *>(args.params)[blockIdx.y];
    if (p.temperature == 0.0f && blockIdx.x != 0) return;
    unsigned long long top = 0;
    for (int32_t i = threadIdx.x; i < args.splits; i += RDK_SAMPLE_THREADS) {
        unsigned long long word = __ldcg(row.tops + i);
        top = word > top ? word : top;
    }
    top = block_top(top, s.draw.scratch);
    int32_t top_id = (int32_t)(0xffffffffu - (uint32_t)top);
    if (top == 0 || p.temperature == 0.0f) {
        if (blockIdx.x == 0 && threadIdx.x == 0) args.ids[blockIdx.y] = top ? top_id : -1;
        return;
    }
    const float *logits = args.logits + blockIdx.y * args.logits_stride;
    const rule rules = {__ldcg(logits + top_id), p.temperature, __frcp_rn(p.temperature), p.min_p,
                        (float)BINS / (24.5f * p.temperature)};
    __syncthreads();
    add_slice(args, rules, logits, row, s.slice);
    if (!last_of_row(row, gridDim.x, ticket)) return;
    const tokens all = {logits, args.vocab, rules};
    int32_t id = draw_token(all, row, s.draw, p);
    if (threadIdx.x == 0) args.ids[blockIdx.y] = id < 0 ? top_id : id;
}
