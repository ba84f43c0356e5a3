// SPDX-License-Identifier: Apache-2.0
// Work list and threads of the CPU attention rows. An item (rows of one sequence and KV head) is one task that walks its
// chunks in order, or, when it alone is a large share of the work, one task for each chunk, whose last finisher merges in
// chunk order. Both run the same operations on a row in the same order: the choice moves no bit.
#include "kernels/attn/cpu_drive.h"

#include <string.h>

enum {
    SHARE = 4,                    // an item above 1/(SHARE * threads) of the work is split
    PARTIAL_BYTES_MAX = 64 << 20, // beyond this, items stay whole
    RUNS_PER_WORKER = 3,     // runs of chunks that a worker draws: few enough to stream, enough to balance
    WORK_PER_WORKER = 24576, // row-keys times 64 dims that pay for waking one more thread
};

static size_t align64(size_t bytes) {
    return (bytes + 63) / 64 * 64;
}

static int64_t items_max(const rdi_attn_args *a) {
    return a->kv_heads * (a->seqs + rdi_ceil_div(a->tokens * (a->q_heads / a->kv_heads), RDI_ATTN_ROWS_MAX));
}

// Slots for partials: only items above the share are split, so there are fewer than SHARE * threads of them.
static int64_t slots_max(const rdi_attn_args *a, int32_t threads) {
    if (threads == 1) return 0;
    int64_t items = rdi_min(items_max(a), (int64_t)SHARE * threads);
    int64_t rows = rdi_min(RDI_ATTN_ROWS_MAX, a->tokens * (a->q_heads / a->kv_heads));
    int64_t slot_bytes = (a->head_dim + 16) * (int64_t)sizeof(float);
    return rdi_min(items * rows * rdi_attn_chunk_count(a->max_blocks * a->block_tokens),
                   PARTIAL_BYTES_MAX / slot_bytes);
}

// Lays a worker's scratch out at base, or measures it when base is NULL.
static size_t carve_scratch(const rdi_attn_args *a, unsigned char *base, rdi_attn_scratch *s) {
    size_t rows = (size_t)rdi_min(RDI_ATTN_ROWS_MAX, a->tokens * (a->q_heads / a->kv_heads));
    size_t dims = (size_t)a->head_dim, block = RDI_ATTN_BLOCK, used = 0;
    struct {
        void *slot;
        size_t floats;
    } parts[] = {{&s->q, rows * dims},
                 {&s->p, rows * block},
                 {&s->m, rows},
                 {&s->l, rows},
                 {&s->lanes, rows * 16},
                 {&s->acc, rows * dims},
                 {&s->all_m, rows},
                 {&s->all_l, rows},
                 {&s->all_acc, rows * dims},
                 {&s->k_tile, dims * block},
                 {&s->v_tile, dims * block},
                 {&s->k_pack, dims * block / 2},
                 {&s->v_pack, dims * block / 2},
                 {&s->row_lo, rows * 2},
                 {&s->row_hi, rows * 2}};
    for (size_t i = 0; i < RDI_COUNT(parts); i++) {
        void *at = base ? base + used : NULL;
        memcpy(parts[i].slot, &at, sizeof at);
        used += align64(parts[i].floats * sizeof(float));
    }
    s->loaded = NULL;
    return used;
}

size_t rdi_attn_cpu_ws(const void *args, int32_t threads) {
    const rdi_attn_args *a = args;
    rdi_attn_scratch unused;
    return align64((size_t)items_max(a) * sizeof(rdi_attn_item)) +
           carve_scratch(a, NULL, &unused) * (size_t)threads +
           (size_t)(slots_max(a, threads) * (a->head_dim + 16)) * sizeof(float);
}

static int64_t item_cost(const rdi_attn_job *job, const rdi_attn_item *item, int64_t *keys) {
    int64_t lo, hi, unused;
    rdi_attn_row_range(job->args, item->seq, item->row0 / job->gqa, &lo, &unused);
    rdi_attn_row_range(job->args, item->seq, (item->row0 + item->rows - 1) / job->gqa, &unused, &hi);
    *keys = hi > lo ? hi : 0;
    return (hi - lo) * (item->rows + 2); // 2: reading and widening weigh about as much as two rows
}

// Later tokens see more keys, so items of a long chunk are listed from its end: the largest start first.
static int64_t list_items(rdi_attn_job *job) {
    const rdi_attn_args *a = job->args;
    int64_t cost = 0;
    for (int64_t seq = 0; seq < a->seqs; seq++) {
        int64_t rows = (int64_t)(a->q_starts[seq + 1] - a->q_starts[seq]) * job->gqa;
        for (int64_t piece = rdi_ceil_div(rows, RDI_ATTN_ROWS_MAX) - 1; piece >= 0; piece--)
            for (int64_t kv_head = 0; kv_head < a->kv_heads; kv_head++) {
                rdi_attn_item *item = &job->items[job->item_count++];
                int64_t row0 = piece * RDI_ATTN_ROWS_MAX, keys, lo, unused;
                item->seq = (int32_t)seq, item->kv_head = (int32_t)kv_head, item->row0 = (int32_t)row0;
                item->rows = (int32_t)rdi_min(RDI_ATTN_ROWS_MAX, rows - row0);
                cost += item_cost(job, item, &keys);
                rdi_attn_row_range(a, seq, row0 / job->gqa, &lo, &unused);
                item->chunk0 = keys ? rdi_attn_chunk_of(lo) : 0;
                item->chunks = rdi_attn_chunk_count(keys) - item->chunk0;
            }
    }
    return cost;
}

static void list_tasks(rdi_attn_job *job, int64_t cost, int32_t workers) {
    int64_t slots = 0;
    for (int64_t i = 0; i < job->item_count; i++) {
        rdi_attn_item *item = &job->items[i];
        int64_t keys, own = item_cost(job, item, &keys), needed = item->chunks * item->rows;
        bool split = workers > 1 && item->chunks > 1 && own * SHARE * workers > cost &&
                     slots + needed <= job->partial_slots;
        item->tasks = split ? (int32_t)item->chunks : 1;
        item->partial0 = slots;
        if (split) slots += needed;
        item->task0 = job->task_count;
        job->task_count += item->tasks;
        atomic_init(&item->left, item->tasks);
    }
}

static rdi_attn_item *item_of(const rdi_attn_job *job, int64_t task) {
    int64_t lo = 0, hi = job->item_count - 1;
    while (lo < hi) {
        int64_t middle = (lo + hi + 1) / 2;
        if (job->items[middle].task0 <= task)
            lo = middle;
        else
            hi = middle - 1;
    }
    return &job->items[lo];
}

// Merges one chunk's state into the rows that see that chunk. A row that does not is left alone: merging an empty state
// would change no value, but could turn -0 into +0.
static void merge_chunk(const rdi_attn_job *job, const rdi_attn_item *item, int64_t chunk,
                        rdi_attn_scratch *s, const float *m, const float *l, const float *acc,
                        int64_t state_stride, int64_t acc_stride) {
    int64_t begin = rdi_attn_chunk_begin(chunk), end = rdi_attn_chunk_begin(chunk + 1);
    for (int64_t r = 0; r < item->rows; r++)
        if (s->row_hi[r] > begin && s->row_lo[r] < end)
            job->isa->merge(job->dims, &s->all_m[r], &s->all_l[r], s->all_acc + r * job->dims,
                            m[r * state_stride], l[r * state_stride], acc + r * acc_stride);
}

static void start_merge(const rdi_attn_job *job, const rdi_attn_item *item, rdi_attn_scratch *s) {
    for (int64_t r = 0; r < item->rows; r++) s->all_m[r] = -__builtin_inff(), s->all_l[r] = 0;
    memset(s->all_acc, 0, (size_t)(item->rows * job->dims) * sizeof(float));
}

static void run_whole(const rdi_attn_job *job, rdi_attn_item *item, rdi_attn_scratch *s) {
    start_merge(job, item, s);
    for (int64_t chunk = item->chunk0; chunk < item->chunk0 + item->chunks; chunk++) {
        job->isa->attend(job, item, chunk, s);
        merge_chunk(job, item, chunk, s, s->m, s->l, s->acc, 1, job->dims);
    }
    job->isa->finish(job, item, s);
}

static void run_split(const rdi_attn_job *job, rdi_attn_item *item, int64_t index, rdi_attn_scratch *s) {
    int64_t slot_floats = job->dims + 16;
    float *mine = job->partials + (item->partial0 + index * item->rows) * slot_floats;
    job->isa->attend(job, item, item->chunk0 + index, s);
    for (int64_t r = 0; r < item->rows; r++) {
        memcpy(mine + r * slot_floats, s->acc + r * job->dims, (size_t)job->dims * sizeof(float));
        mine[r * slot_floats + job->dims] = s->m[r];
        mine[r * slot_floats + job->dims + 1] = s->l[r];
    }
    if (atomic_fetch_sub_explicit(&item->left, 1, memory_order_acq_rel) != 1) return;
    start_merge(job, item, s);
    for (int64_t i = 0; i < item->chunks; i++) {
        const float *slot = job->partials + (item->partial0 + i * item->rows) * slot_floats;
        merge_chunk(job, item, item->chunk0 + i, s, slot + job->dims, slot + job->dims + 1, slot, slot_floats,
                    slot_floats);
    }
    job->isa->finish(job, item, s);
}

static void load_item(const rdi_attn_job *job, const rdi_attn_item *item, rdi_attn_scratch *s) {
    int64_t token = item->row0 / job->gqa,
            head = item->row0 % job->gqa; // counted on: a division a row would show
    for (int64_t r = 0; r < item->rows; r++) {
        rdi_attn_row_range(job->args, item->seq, token, &s->row_lo[r], &s->row_hi[r]);
        if (++head == job->gqa) head = 0, token++;
    }
    job->isa->load(job, item, s);
}

static void attn_worker(void *arg, int32_t worker, int32_t workers) {
    (void)workers;
    rdi_attn_job *job = arg;
    rdi_attn_scratch scratch;
    carve_scratch(job->args, job->scratch + (size_t)worker * job->scratch_bytes, &scratch);
    for (int64_t task, end; rdi_tiles_next(&job->tiles, &task, &end);)
        for (; task < end; task++) {
            rdi_attn_item *item = item_of(job, task);
            if (scratch.loaded != item) load_item(job, item, &scratch);
            scratch.loaded = item;
            if (item->tasks == 1)
                run_whole(job, item, &scratch);
            else
                run_split(job, item, task - item->task0, &scratch);
        }
}

void rdi_attn_cpu_run(const rdi_attn_args *args, void *ws, rdi_par *par, const rdi_attn_isa *isa) {
    rdi_attn_scratch unused;
    int32_t threads = rdi_par_threads(par);
    rdi_attn_job job = {
        .args = args, .isa = isa, .gqa = args->q_heads / args->kv_heads, .dims = args->head_dim};
    unsigned char *base = ws;
    job.items = ws;
    job.scratch = base + align64((size_t)items_max(args) * sizeof(rdi_attn_item));
    job.scratch_bytes = carve_scratch(args, NULL, &unused);
    job.partials = (float *)(void *)(job.scratch + job.scratch_bytes * (size_t)threads);
    job.partial_slots = slots_max(args, threads);
    int64_t cost = list_items(&job);
    int32_t workers = (int32_t)rdi_min(threads, 1 + cost * job.dims / 64 / WORK_PER_WORKER);
    list_tasks(&job, cost, workers);
    if (job.task_count == 0) return;
    // Neighbouring chunks go to one worker, whose prefetches reach over a chunk's end; whole items go one by one.
    int64_t run = job.task_count > job.item_count ? job.task_count / ((int64_t)RUNS_PER_WORKER * workers) : 1;
    rdi_tiles_init(&job.tiles, job.task_count, run);
    rdi_par_run(par, workers, attn_worker, &job);
}
