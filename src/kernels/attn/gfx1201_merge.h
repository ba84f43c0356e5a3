// SPDX-License-Identifier: Apache-2.0
// The merge of a row's chunks on gfx1201: a wave a row, chunks in order, so that a row's bits are a function of its keys'
// positions. No include guard: a kernel file defines HEAD and MERGE (a name), includes this, and undefines.
#define LANE_DIMS (HEAD / 32)
// Where dim LANE_DIMS * lane + d lies among a chunk's partials (gfx1201_write.inc): as it is, or even and odd dims apart.
#if KV_FP8
#define PARTIAL(d_) (lane * LANE_DIMS / 16 * 16 + lane * LANE_DIMS % 16 / 2 + ((d_)&1) * 8 + ((d_) >> 1))
#else
#define PARTIAL(d_) (lane * LANE_DIMS + (d_))
#endif

#ifndef RDK_ATTN_MERGE_ONCE
#define RDK_ATTN_MERGE_ONCE
// Reference exponent and sum of a chunk; nothing for chunks that the row does not see.
INLINE v2f chunk_state(global const v2f *states, int chunk, int first, int last) {
    return chunk < first || chunk > last ? (v2f){MINUS_INF, 0} : states[chunk];
}
INLINE float lane_value(float x, int lane) {
    return as_float(__builtin_amdgcn_readlane(as_int(x), lane));
}
#endif

kernel GROUP_SIZE(32 * RDK_MERGE_WAVES) void MERGE(const rdk_attn_gfx1201_args a) {
    int token = (int)__builtin_amdgcn_workgroup_id_x(), lane = lane_id(), low_seq = 0, high_seq = a.seqs;
    int head = (int)__builtin_amdgcn_workgroup_id_y() * RDK_MERGE_WAVES + wave_id();
    if (head >= a.q_heads || token < starts_at(&a, 0) || token >= starts_at(&a, a.seqs)) return;
    while (high_seq - low_seq > 1) { // starts(low_seq) <= token < starts(high_seq)
        int middle = (low_seq + high_seq) >> 1;
        if (starts_at(&a, middle) <= token)
            low_seq = middle;
        else
            high_seq = middle;
    }
    tile_rows t = {.token0 = starts_at(&a, low_seq), .kv_len = clamp_int(a.kv_lens[low_seq], 0, a.max_keys)};
    t.q_len = starts_at(&a, low_seq + 1) - t.token0;
    int low, high;
    visible_keys(&a, &t, token - t.token0, &low, &high);
    float sum[LANE_DIMS], factor = 0;
    for (int d = 0; d < LANE_DIMS; d++) sum[d] = 0;
    if (low < high) {
        int first = (int)rdi_attn_chunk_of(low), last = (int)rdi_attn_chunk_of(high - 1);
        long slot = ((long)token * a.q_heads + head) * a.chunks;
        global const v2f *states = (global const v2f *)a.state + slot;
        // A lane a chunk, 32 at a time from a multiple of 32 on: what a lane holds follows from the chunk's number alone.
        float top = MINUS_INF, sink = a.sinks ? a.sinks[head] * LOG2E : MINUS_INF;
        for (int base = first & ~31; base <= last; base += 32)
            top = max32(top, chunk_state(states, base + lane, first, last).x);
        top = max32(wave_max(top), sink);
        float reference = top == MINUS_INF ? 0.0f : top, total = 0;
        for (int base = first & ~31; base <= last; base += 32) {
            v2f state = chunk_state(states, base + lane, first, last);
            float weight = exp2_32(state.x - reference);
            total = fma32(state.y, weight, total);
            int begin = max_int(first, base), end = min_int(last, base + 31);
            global const float *acc = a.acc + (slot + begin) * HEAD;
            int chunk = begin;
            for (; chunk + 3 <= end; chunk += 4, acc += 4 * HEAD) // four chunks' loads in flight
                for (int i = 0; i < 4; i++)
                    for (int d = 0; d < LANE_DIMS; d++)
                        sum[d] =
                            fma32(acc[i * HEAD + PARTIAL(d)], lane_value(weight, chunk + i - base), sum[d]);
            for (; chunk <= end; chunk++, acc += HEAD)
                for (int d = 0; d < LANE_DIMS; d++)
                    sum[d] = fma32(acc[PARTIAL(d)], lane_value(weight, chunk - base), sum[d]);
        }
        total = wave_sum(total) + exp2_32(sink - reference);
        int kv_head = (int)divide_by((uint)head, a.gqa_magic);
        factor = total == 0.0f ? 0.0f : (a.v_scale ? a.v_scale[kv_head] : 1.0f) / total;
    }
    long at = token * a.out_stride_token + head * a.out_stride_head + lane * LANE_DIMS;
    for (int d = 0; d < LANE_DIMS; d++) {
        if (a.out_f32)
            ((global float *)a.out)[at + d] = sum[d] * factor;
        else
            ((global ushort *)a.out)[at + d] = bf16_code(sum[d] * factor);
    }
}

#undef LANE_DIMS
#undef PARTIAL
#undef HEAD
#undef MERGE
