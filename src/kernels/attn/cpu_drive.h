// SPDX-License-Identifier: Apache-2.0
// What the CPU rows of attn share: the work list, the scratch of a worker, and the table through which the driver calls
// the code of one instruction set. Order class "cpu_attn": cpu_body.inc defines it.
#ifndef RDI_ATTN_CPU_DRIVE_H
#define RDI_ATTN_CPU_DRIVE_H

#include "kernels/attn/args.h"
#include "kernels/attn/partition.h"
#include "kernels/rows.h"

enum {
    RDI_ATTN_BLOCK = 128,   // keys between two looks at the running maximum
    RDI_ATTN_ROWS_MAX = 96, // query rows of an item: they share each widened block of keys
    RDI_ATTN_DIMS_MAX = 512 // attn.def says so too
};

// Some consecutive rows of one sequence and KV head. Row r is query token r / gqa, query head kv_head * gqa + r % gqa.
typedef struct rdi_attn_item {
    int64_t task0;          // first task of this item; it has `tasks` of them: one, or one for each chunk
    int64_t partial0;       // first partial of this item, when split
    int64_t chunk0, chunks; // chunks that some row of it sees
    int32_t seq, kv_head, row0, rows;
    int32_t tasks;
    _Atomic int32_t left; // tasks not done; whoever brings it to 0 merges
} rdi_attn_item;

typedef struct rdi_attn_scratch {
    float *q, *p;                   // [rows, dims] scaled queries; [rows, BLOCK] scores, then weights
    float *m, *l, *lanes;           // state of a chunk: maximum, sum, the sum's 16 lanes
    float *acc;                     // [rows, dims]
    float *all_m, *all_l, *all_acc; // merged so far
    float *k_tile, *v_tile;         // widened block: [dims, BLOCK] and [BLOCK, dims]
    void *k_pack, *v_pack;          // the block in token order / with dims contiguous, when the cache is not
    int64_t *row_lo, *row_hi;       // keys that each row of the loaded item sees: [lo, hi)
    const rdi_attn_item *loaded;    // item whose queries are in q
} rdi_attn_scratch;

typedef struct rdi_attn_job rdi_attn_job;
typedef struct rdi_attn_isa {
    void (*load)(const rdi_attn_job *job, const rdi_attn_item *item, rdi_attn_scratch *scratch);
    void (*attend)(const rdi_attn_job *job, const rdi_attn_item *item, int64_t chunk,
                   rdi_attn_scratch *scratch);
    // all = all (+) (m, l, acc), in place
    void (*merge)(int64_t dims, float *all_m, float *all_l, float *all_acc, float m, float l,
                  const float *acc);
    void (*finish)(const rdi_attn_job *job, const rdi_attn_item *item, rdi_attn_scratch *scratch);
} rdi_attn_isa;

struct rdi_attn_job {
    const rdi_attn_args *args;
    const rdi_attn_isa *isa;
    rdi_attn_item *items;
    float *partials;        // slots of dims + 16 floats: acc, m, l
    unsigned char *scratch; // one for each worker
    size_t scratch_bytes;
    int64_t item_count, task_count, gqa, dims, partial_slots;
    rdi_tiles tiles;
};

// Keys that a row sees: [*lo, *hi), empty for a row before position 0.
static inline void rdi_attn_row_range(const rdi_attn_args *args, int64_t seq, int64_t token_in_seq,
                                      int64_t *lo, int64_t *hi) {
    int64_t q_len = (int64_t)args->q_starts[seq + 1] - args->q_starts[seq];
    *hi = rdi_max(0, args->kv_lens[seq] - q_len + token_in_seq + 1);
    *lo = args->window > 0 ? rdi_max(0, *hi - args->window) : 0;
}

// dst[d][t] = src[t * stride_token + d * stride_dim] for t < tokens, d < dims; elements of 1 or 2 bytes.
void rdi_attn_pack(int64_t elem_bytes, const void *src, int64_t stride_token, int64_t stride_dim,
                   int64_t tokens, int64_t dims, void *dst);

void rdi_attn_cpu_run(const rdi_attn_args *args, void *ws, rdi_par *par, const rdi_attn_isa *isa);

#endif // RDI_ATTN_CPU_DRIVE_H
