// SPDX-License-Identifier: Apache-2.0
// The merge of a row's chunks on gfx1201: a wave a row, chunks in order, so that a row's bits are a function of its keys'
// positions. No include guard: a kernel file defines HEAD and MERGE (a name), includes this, and undefines.
#define LANE_DIMS (HEAD / 32)

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
    float sum[LANE_DIMS], total = 0, top = MINUS_INF, factor = 0;
    for (int d = 0; d < LANE_DIMS; d++) sum[d] = 0;
    if (low < high) {
        int first = (int)rdi_attn_chunk_of(low), last = (int)rdi_attn_chunk_of(high - 1);
        long slot = ((long)token * a.q_heads + head) * a.chunks;
        for (int chunk = first; chunk <= last; chunk++) top = max32(top, a.state[(slot + chunk) * 2]);
        float sink = a.sinks ? a.sinks[head] * LOG2E : MINUS_INF;
        top = max32(top, sink);
        float reference = top == MINUS_INF ? 0.0f : top;
        for (int chunk = first; chunk <= last; chunk++) {
            v2f state = *(global const v2f *)(a.state + (slot + chunk) * 2);
            float weight = exp2_32(state.x - reference);
            total = fma32(state.y, weight, total);
            global const float *acc = a.acc + (slot + chunk) * HEAD + lane * LANE_DIMS;
            for (int d = 0; d < LANE_DIMS; d++) sum[d] = fma32(acc[d], weight, sum[d]);
        }
        total += exp2_32(sink - reference);
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
#undef HEAD
#undef MERGE
