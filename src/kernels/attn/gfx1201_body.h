// SPDX-License-Identifier: Apache-2.0
// The attention body of gfx1201: one work-group, one tile of ROW_TILES * 16 query rows of one KV head, a range of keys. No
// include guard: a kernel file defines KV_FP8, PREFILL and, for each kernel,
// HEAD, ROW_TILES, WAVES, ROW_SPLIT, LOADS_MOST and BODY (its name).
//
// A step takes 16 * WAVES keys, at absolute positions that are multiples of that. WAVES * ROW_SPLIT waves: wave w scores keys
// 16k..16k+15 of it, k = w % WAVES, against its share of the row tiles (no wave repeats another's scores), then all waves know
// the step's maximum of each row, then each adds weights times values for its own dims over all the step's keys. V is read
// once by a work-group, K ROW_SPLIT times. Neither ROW_TILES nor ROW_SPLIT decides a bit.
//
// Layouts (gfx12 matrix instructions: an operand's lane l holds index l % 16, eight k values by half-wave h = l / 16; a result's
// lane l holds column l % 16, rows 8h .. 8h+7):
//   scores  S^T = K Q^T   a lane owns query l % 16 and keys 8h + j: maximum and sum need one exchange, with lane l ^ 16
//   output  O^T = V^T P^T the score registers, narrowed, ARE the operand P^T; a lane's sums all belong to its query
//   K       a lane reads 16 neighbouring bytes of key l % 16: two fp8 operands or one bf16 operand
//   V       must come transposed: global_load_tr_b128 transposes 16-bit elements, so bf16 arrives ready; for fp8 an element is a
//           pair of neighbouring dims, and the conversion to f16 takes the pair apart. Sum f then holds dims 2i + f.
//   Q       bf16 for a bf16 cache; for fp8 two e4m3 terms, which are a bf16 number exactly down to 2^-17 of its row's largest
#define GROUP_WAVES (WAVES * ROW_SPLIT)
#define DIMS_WAVE   (HEAD / GROUP_WAVES) // of the output, a wave
#define ROWS        (16 * ROW_TILES)
#define OWN_TILES   (ROW_TILES / ROW_SPLIT) // row tiles that a wave scores; its arrays hold these first
#define STEP        (16 * WAVES)
#if KV_FP8
#define KEY_BYTES  1
#define K_LOADS    (HEAD / 32) // 16-byte loads a lane, of a 16-key tile
#define V_LOADS    (DIMS_WAVE / 32)
#define SUMS       2 // sums of 16 dims for each V load
#define Q_TERMS    2
#define WEIGHT_LOG 7 // with the slack weights reach 2^15 in f16; those down to 2^-21 keep all their bits
#else
#define KEY_BYTES  2
#define K_LOADS    (HEAD / 16)
#define V_LOADS    (DIMS_WAVE / 16)
#define SUMS       1
#define Q_TERMS    1
#define WEIGHT_LOG 0
#endif
#define V_DIMS (DIMS_WAVE / V_LOADS) // dims of a V load: 32 or 16
// Loads in flight at once, 4 registers each: K of a tile, V of some tiles. No bit depends on them.
#define K_BATCH (K_LOADS < LOADS_MOST ? K_LOADS : LOADS_MOST)
#define V_BATCH                                                                                              \
    (V_LOADS * WAVES <= LOADS_MOST / 2 ? WAVES : V_LOADS <= LOADS_MOST / 2 ? LOADS_MOST / 2 / V_LOADS : 1)
#define SLACK_LOG     8
#define V_LATE        (ROW_SPLIT == 1 && ROW_TILES * DIMS_WAVE >= 128) // sums fill the registers: no V beside K
#define NAME_(a_, b_) a_##_##b_
#define NAME(a_, b_)  NAME_(a_, b_)
#define FN(name_)     NAME(BODY, name_)

typedef struct FN(shared) {
    v4i q[ROW_TILES][K_LOADS][Q_TERMS][32]; // operands, as the lanes read them
    v4i weights[ROW_TILES][WAVES][32];
    float row[ROW_TILES][16][WAVES]; // one value of each wave for each row
} FN(shared);

// Where a wave stands in its work-group: its key tile of a step, its first row tile.
typedef struct FN(place) {
    int wave, key_tile, own;
} FN(place);
INLINE FN(place) FN(place_of)(void) {
    int wave = wave_id(), share = ROW_SPLIT > 1 ? wave / WAVES : 0;
    return (FN(place)){wave, wave - share * WAVES, share * OWN_TILES};
}
// Row tile of the work-group at place `tile` of the wave's arrays: first the wave's own, then the others.
INLINE int FN(row_tile)(FN(place) at, int tile) {
    return tile < OWN_TILES ? tile + at.own : tile - at.own;
}

#include "kernels/attn/gfx1201_queries.inc"

INLINE v8f FN(multiply)(v4i a, v4i b, v8f sum) {
#if KV_FP8
    return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(__builtin_bit_cast(v8h, a),
                                                            __builtin_bit_cast(v8h, b), sum);
#else
    return __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(__builtin_bit_cast(v8s, a),
                                                             __builtin_bit_cast(v8s, b), sum);
#endif
}

// Queries of the wave's row tiles for one step of the products: load `i` of K, term of Q.
typedef struct FN(queries) {
    v4i tile[OWN_TILES];
} FN(queries);
INLINE FN(queries) FN(queries_of)(local const FN(shared) * s, FN(place) at, int product) {
    FN(queries) q;
    for (int r = 0; r < OWN_TILES; r++)
        q.tile[r] = s->q[FN(row_tile)(at, r)][product / Q_TERMS][product % Q_TERMS][lane_id()];
    return q;
}

// Scores of one 16-key tile against the wave's rows. Row tiles take turns, so that a product does not wait for the one before; the
// next queries are on their way meanwhile, and no more than those: the scheduler would fetch all at once.
INLINE void FN(scores)(global const char *tile, uint lane_offset, local const FN(shared) * s, FN(place) at,
                       v8f sum[OWN_TILES]) {
    v4i key[K_BATCH];
    for (int r = 0; r < OWN_TILES; r++) sum[r] = 0;
    for (int first = 0; first < K_LOADS; first += K_BATCH) {
        for (int i = 0; i < K_BATCH; i++)
            key[i] = *(global const v4i *)(tile + lane_offset + (first + i) * 32);
        FN(queries) q = FN(queries_of)(s, at, first * Q_TERMS), next;
        for (int p = 0; p < K_BATCH * Q_TERMS; p++) {
            if (p + 1 < K_BATCH * Q_TERMS) next = FN(queries_of)(s, at, first * Q_TERMS + p + 1);
            if (OWN_TILES > 1) __builtin_amdgcn_sched_barrier(0);
            v4i k = key[p / Q_TERMS];
#if KV_FP8
            for (int half_load = 0; half_load < 2; half_load++)
                for (int r = 0; r < OWN_TILES; r++)
                    sum[r] = __builtin_amdgcn_wmma_f32_16x16x16_fp8_fp8_w32_gfx12(
                        half_load ? k.hi : k.lo, half_load ? q.tile[r].hi : q.tile[r].lo, sum[r]);
#else
            for (int r = 0; r < OWN_TILES; r++) sum[r] = FN(multiply)(k, q.tile[r], sum[r]);
#endif
            q = next;
        }
        if (K_BATCH < K_LOADS) __builtin_amdgcn_sched_barrier(0); // one batch in flight
    }
}

// The lane's share of a V load, for each tile of a step. Keys that nobody sees may hold NaN, which a weight of 0 does not
// silence: at the ends of the range a neighbour is read instead.
INLINE void FN(value_offsets)(const rdk_attn_gfx1201_args *a, int step, int begin, int end, bool masked,
                              uint inside, uint offset[WAVES]) {
    int lane = lane_id();
    for (int w = 0; w < WAVES; w++) offset[w] = inside;
    if (!masked) return;
    for (int w = 0; w < WAVES; w++) {
        int key = clamp_int(step + w * 16 + (lane >> 4) * 8 + (lane & 7), begin, end - 1) & 15;
        offset[w] = (uint)((lane >> 3 & 1) * 16 + key * a->v_stride_token);
    }
}

// Values of one tile, dims of this wave. global_load_tr_b128: lane 16h + 8c + r fetches 16 bytes c of key 8h + r.
typedef struct FN(values) {
    v4i word[V_LOADS];
} FN(values);
INLINE FN(values) FN(values_of)(global const char *v_head, const pages *p, int paged, int w,
                                const uint lane_offset[WAVES]) {
    v_head = in_scalars(v_head + read_lane(p->v, paged + w));
    FN(values) v;
    for (int i = 0; i < V_LOADS; i++) {
        global v8s *from = (global v8s *)(v_head + lane_offset[w] + i * V_DIMS * KEY_BYTES);
        v.word[i] = __builtin_bit_cast(v4i, __builtin_amdgcn_global_load_tr_b128_v8i16(from));
    }
    return v;
}

#if KV_FP8
// Pairs of dims taken apart, e4m3 to f16: exact.
INLINE void FN(widen)(v4i word, v4i out[2]) {
    for (int j = 0; j < 4; j++) {
        v2f even = __builtin_amdgcn_cvt_pk_f32_fp8(word[j], false),
            odd = __builtin_amdgcn_cvt_pk_f32_fp8(word[j], true);
        for (int f = 0; f < 2; f++)
            out[f][j] = __builtin_bit_cast(int, __builtin_amdgcn_cvt_pkrtz(even[f], odd[f]));
    }
}
#endif

INLINE v4i FN(narrow_weights)(v8f p) {
#if KV_FP8
    v4i code;
    for (int i = 0; i < 4; i++)
        code[i] = __builtin_bit_cast(int, __builtin_amdgcn_cvt_pkrtz(p[2 * i], p[2 * i + 1]));
    return code;
#else
    return FN(narrow)(p);
#endif
}

INLINE float FN(add_pair)(int code, float sum) { // of weights as they were narrowed
#if KV_FP8
    return __builtin_amdgcn_fdot2(__builtin_bit_cast(v2h, code), (v2h)1.0h, sum, false);
#else
    return __builtin_amdgcn_fdot2_f32_bf16(__builtin_bit_cast(v2s, code), (v2s)0x3f80, sum, false);
#endif
}

typedef struct FN(state) {
    v8f out[ROW_TILES][V_LOADS][SUMS]; // unnormalised sums
    float total[OWN_TILES];            // of this lane's weights: its keys of this wave's tiles
    float top[ROW_TILES]; // what weights of the lane's row are relative to: its maximum, or up to 2^8 less
} FN(state);

// cap * tanh(x / cap) by 1 - 2 / (e^2y + 1), times log2 e.
INLINE float FN(cap)(const rdk_attn_gfx1201_args *a, float x) {
    float e = exp2_32(2.0f * a->softcap_inverse * x);
    return a->softcap * LOG2E * (1.0f - 2.0f * __builtin_amdgcn_rcpf(e + 1.0f));
}

// One step's scores of this wave: capped, masked, their maximum shared. The lane's row sees keys below `high`, from
// high - window on (its range was cut at the work-group's end, never at its beginning, which is a whole step).
INLINE void FN(share_maximum)(const rdk_attn_gfx1201_args *a, local FN(shared) * s, FN(place) at, int tile,
                              v8f *score, float *unit, int first_key, int high, bool masked) {
    int lane = lane_id();
    if (a->softcap > 0) {
        for (int j = 0; j < 8; j++) (*score)[j] = FN(cap)(a, (*score)[j] * *unit);
        *unit = 1.0f;
    }
    if (masked) {
        uint span = a->window > 0 ? (uint)a->window : (uint)a->max_keys + 1;
        for (int j = 0; j < 8; j++) {
            int from_end = high - 1 - (first_key + (lane >> 4) * 8 + j); // negative: a later key
            if ((uint)from_end >= span) (*score)[j] = MINUS_INF;
        }
    }
    float top = (*score)[0];
    for (int j = 1; j < 8; j++) top = maximum32(top, (*score)[j]);
    s->row[FN(row_tile)(at, tile)][lane & 15][at.key_tile] = maximum32(top, other_half(top)) * *unit;
}

// Follows the step's maximum of a row. The reference is raised only when that has grown by 2^SLACK_LOG, which hardly happens
// after a few steps; the choice is the row's own, and a factor of 1 changes no bit.
INLINE void FN(follow_maximum)(local const FN(shared) * s, FN(place) at, int tile, FN(state) * state) {
    local const float *row = s->row[FN(row_tile)(at, tile)][lane_id() & 15];
    float top = row[0], old = state->top[tile];
    for (int w = 1; w < WAVES; w++) top = maximum32(top, row[w]);
    bool raise = top > old + (float)SLACK_LOG;
    if (__builtin_amdgcn_ballot_w32(raise && old != MINUS_INF)) { // sums of a row that saw no key yet are 0
        float factor = raise ? exp2_32(old - top) : 1.0f;
        for (int i = 0; i < V_LOADS; i++)
            for (int f = 0; f < SUMS; f++) state->out[tile][i][f] *= factor;
        if (tile < OWN_TILES) state->total[tile] *= factor;
    }
    state->top[tile] = raise ? top : old;
}

// Turns the wave's scores into weights for all waves.
INLINE void FN(share_weights)(local FN(shared) * s, FN(place) at, int tile, v8f score, float unit,
                              FN(state) * state) {
    // At least a finite number: a row that saw no key has scores of -inf alone.
    float reference = maximum32(state->top[tile], -MOST_FLOAT);
    v8f p;
    for (int j = 0; j < 8; j++) p[j] = exp2_32(fma32(score[j], unit, (float)WEIGHT_LOG - reference));
    v4i code = FN(narrow_weights)(p);
    s->weights[FN(row_tile)(at, tile)][at.key_tile][lane_id()] = code;
    for (int i = 0; i < 4; i++) state->total[tile] = FN(add_pair)(code[i], state->total[tile]);
}

// Weights times values of one tile of the step.
INLINE void FN(add_values)(local const FN(shared) * s, FN(place) at, int w, const FN(values) * v,
                           FN(state) * state) {
    for (int i = 0; i < V_LOADS; i++) {
#if KV_FP8
        v4i value[2];
        FN(widen)(v->word[i], value);
#else
        v4i value[1] = {v->word[i]};
#endif
        for (int tile = 0; tile < ROW_TILES; tile++)
            for (int f = 0; f < SUMS; f++)
                state->out[tile][i][f] = FN(multiply)(
                    value[f], s->weights[FN(row_tile)(at, tile)][w][lane_id()], state->out[tile][i][f]);
    }
}

// Keys [begin, end) of the sequence against the tile's rows; begin >= 0, begin < end. low and high: of each row.
INLINE void FN(attend)(const rdk_attn_gfx1201_args *a, const tile_rows *t, int kv_head, FN(place) at,
                       int begin, int end, const int high[OWN_TILES], int all_low, int all_high,
                       local FN(shared) * s, FN(state) * state, const float row_unit[OWN_TILES]) {
    int lane = lane_id();
    global const char *k_head = a->k_cache + (long)kv_head * a->k_stride_head;
    global const char *v_head =
        a->v_cache + (long)kv_head * a->v_stride_head + at.wave * DIMS_WAVE * KEY_BYTES;
    uint k_lane = (uint)((lane & 15) * a->k_stride_token + (lane >> 4) * 16);
    uint v_lane = (uint)((lane >> 3 & 1) * 16 + ((lane >> 4) * 8 + (lane & 7)) * a->v_stride_token);
    global const char *table =
        in_scalars((global const char *)(a->block_table + t->seq * a->block_table_stride));
    int step = begin / STEP * STEP;
    int paged_key = step & -PAGED_KEYS;
    pages p = pages_at(a, block_of(a, table, paged_key, begin, end), paged_key, begin, end);
    uint next_block = block_of(a, table, paged_key + PAGED_KEYS, begin, end); // ahead
    // Steps at all_low and up to all_high - STEP are seen by every row, key for key.
    uint whole_steps = (uint)max_int(all_high - STEP - all_low + 1, 0);
    do { // at least once: begin < end
        int paged = step >> 4 & 31;
        bool masked = (uint)(step - all_low) >= whole_steps;
        FN(values) v[V_BATCH];
        uint v_lanes[WAVES];
        FN(value_offsets)(a, step, begin, end, masked, v_lane, v_lanes);
        for (int w = 0; w < V_BATCH && !V_LATE; w++) v[w] = FN(values_of)(v_head, &p, paged, w, v_lanes);
        v8f score[OWN_TILES];
        FN(scores)(in_scalars(k_head + read_lane(p.k, paged + at.key_tile)), k_lane, s, at, score);
        float unit[OWN_TILES];
        for (int tile = 0; tile < OWN_TILES; tile++) {
            unit[tile] = row_unit[tile];
            FN(share_maximum)
            (a, s, at, tile, &score[tile], &unit[tile], step + 16 * at.key_tile, high[tile], masked);
        }
        group_barrier();
        for (int tile = 0; tile < ROW_TILES; tile++) {
            FN(follow_maximum)(s, at, tile, state);
            if (tile < OWN_TILES) FN(share_weights)(s, at, tile, score[tile], unit[tile], state);
        }
        for (int w = 0; w < V_BATCH && V_LATE; w++) v[w] = FN(values_of)(v_head, &p, paged, w, v_lanes);
        group_barrier();
        for (int batch = 0; batch < WAVES; batch += V_BATCH) {
            for (int w = 0; w < V_BATCH && batch > 0; w++)
                v[w] = FN(values_of)(v_head, &p, paged, batch + w, v_lanes);
            if (V_LATE || V_BATCH < WAVES) __builtin_amdgcn_sched_barrier(0);
            for (int w = 0; w < V_BATCH; w++) FN(add_values)(s, at, batch + w, &v[w], state);
        }
        step += STEP;
        if ((step & (PAGED_KEYS - 1)) == 0) {
            p = pages_at(a, next_block, step, begin, end);
            next_block = block_of(a, table, step + PAGED_KEYS, begin, end);
        }
    } while (step < end);
}

// The sum of a row's weights over all waves, in the order of their keys.
INLINE void FN(totals)(local FN(shared) * s, FN(place) at, const FN(state) * state, float total[ROW_TILES]) {
    int lane = lane_id();
    group_barrier(); // the rows' maxima have been read
    for (int tile = 0; tile < OWN_TILES; tile++)
        s->row[FN(row_tile)(at, tile)][lane & 15][at.key_tile] =
            state->total[tile] + other_half(state->total[tile]);
    group_barrier();
    for (int tile = 0; tile < ROW_TILES && (PREFILL || at.wave == 0); tile++) { // who writes them
        total[tile] = 0;
        for (int w = 0; w < WAVES; w++) total[tile] += s->row[FN(row_tile)(at, tile)][lane & 15][w];
    }
}

#include "kernels/attn/gfx1201_write.inc"

// Keys [begin, end), none of them or more, against the tile's rows.
INLINE void FN(sum_keys)(const rdk_attn_gfx1201_args *a, const tile_rows *t, int kv_head, FN(place) at,
                         int begin, int end, const int high[OWN_TILES], const float unit[OWN_TILES],
                         int low_last, int high_first, local FN(shared) * s, FN(state) * state,
                         float total[ROW_TILES]) {
    for (int tile = 0; tile < ROW_TILES; tile++) {
        for (int i = 0; i < V_LOADS; i++)
            for (int f = 0; f < SUMS; f++) state->out[tile][i][f] = 0;
        if (tile < OWN_TILES) state->total[tile] = 0;
        state->top[tile] = MINUS_INF;
    }
#if PREFILL
    if (begin < end) // rows before the first key see none; in decode such chunks are passed over
#endif
    {
        FN(attend)
        (a, t, kv_head, at, begin, end, high, max_int(low_last, begin), min_int(high_first, end), s, state,
         unit);
    }
    FN(totals)(s, at, state, total);
}

kernel GROUP_SIZE(32 * GROUP_WAVES) void BODY(const rdk_attn_gfx1201_args a) {
    local FN(shared) shared;
    FN(place) at = FN(place_of)();
    tile_rows t;
    int kv_head = (int)__builtin_amdgcn_workgroup_id_y(), low_first, high_first, low_last, high_last;
    if (!tile_find(&a, (int)__builtin_amdgcn_workgroup_id_x(), ROWS, &t)) return;
    visible_keys(&a, &t, t.first, &low_first, &high_first);
    visible_keys(&a, &t, (int)divide_by((uint)min_int(t.row0 + ROWS, t.rows) - 1, a.gqa_magic), &low_last,
                 &high_last);
#if !PREFILL
    int chunk = (int)__builtin_amdgcn_workgroup_id_z() * a.group_chunks, last = chunk + a.group_chunks;
    if (low_first >= (int)rdi_attn_chunk_begin(last) || high_last <= (int)rdi_attn_chunk_begin(chunk))
        return; // the merge does not look here
#endif
    int high[OWN_TILES];
    for (int tile = 0; tile < OWN_TILES; tile++) {
        int row = min_int(t.row0 + FN(row_tile)(at, tile) * 16 + (lane_id() & 15), t.rows - 1), low;
        visible_keys(&a, &t, (int)divide_by((uint)row, a.gqa_magic), &low, &high[tile]);
    }
    float unit[OWN_TILES], total[ROW_TILES];
    FN(state) state;
    FN(stage_queries)(&a, &t, kv_head, at, &shared, unit);
#if PREFILL
    FN(sum_keys)
    (&a, &t, kv_head, at, low_first, high_last, high, unit, low_last, high_first, &shared, &state, total);
    FN(write)(&a, &t, kv_head, at, &state, total);
#else
    for (; chunk < last; chunk++) { // each as if it were alone: how many a work-group takes decides no bit
        int begin = max_int(low_first, (int)rdi_attn_chunk_begin(chunk)),
            end = min_int(high_last, (int)rdi_attn_chunk_begin(chunk + 1));
        if (begin >= end) continue;
        FN(sum_keys)
        (&a, &t, kv_head, at, begin, end, high, unit, low_last, high_first, &shared, &state, total);
        FN(write)(&a, &t, kv_head, at, chunk, &state, total);
        group_barrier(); // the totals have been read
    }
#endif
}

#undef GROUP_WAVES
#undef DIMS_WAVE
#undef OWN_TILES
#undef ROWS
#undef STEP
#undef KEY_BYTES
#undef K_LOADS
#undef V_LOADS
#undef SUMS
#undef Q_TERMS
#undef WEIGHT_LOG
#undef K_BATCH
#undef V_DIMS
#undef V_BATCH
#undef LOADS_MOST
#undef V_LATE
#undef SLACK_LOG
#undef NAME_
#undef NAME
#undef FN
#undef RUN
#undef Q_PARTS
#undef HEAD
#undef ROW_TILES
#undef WAVES
#undef ROW_SPLIT
#undef BODY
