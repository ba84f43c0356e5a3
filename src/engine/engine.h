// SPDX-License-Identifier: Apache-2.0
// The engine's own types: geometry, bound weights, plans, scratch, sessions.
//
// Reading order: engine.c (what is made, and how large), weights.c (what a layer is), forward.c (one pass), session.c and
// step.c (timelines on top), generate.c (text on top of those).
#ifndef RDI_ENGINE_H
#define RDI_ENGINE_H

#include "engine/memory.h"
#include "engine/pool.h"
#include "model/model.h"

#include <pthread.h>

enum {
    RDI_BLOCK_TOKENS =
        64, // of the KV cache: 4 KiB of fp8 keys for a head of 64; other sizes have not been timed
    RDI_DEFAULT_BATCH_ROWS = 512,
    RDI_MAX_LINEAR_PLANS = 16, // distinct (op, n, k) of one model: 4 to 8 in practice
    RDI_MAX_PARTS = 3
};

// Rows of order class "step" take 128 rows a call; a larger pass would fall to class "chunk", and a session's bits would
// depend on how many others step with it.
enum { RDI_CARD_STEP_ROWS = 128 };

// Everything that follows from the model's configuration and the engine's options.
typedef struct rdi_geometry {
    int32_t layers, hidden, intermediate, q_heads, kv_heads, head_dim, vocab;
    int32_t q_dim, kv_dim, qkv_dim;
    int32_t context_tokens, max_blocks; // per session
    int32_t max_sessions, pool_blocks;
    int32_t chunk_rows;   // most rows of a prefill chunk
    int32_t row_capacity; // most rows of any pass
    int32_t step_rows;    // most rows of a decode or verify pass
    int32_t logit_rows;   // rows of the shared logits buffer (0: rows go straight to the session)
    rd_dtype kv_dtype;
    rd_dtype act_dtype;    // of q, k, v, attention and MLP inside a layer; residual and sums are f32
    rd_dtype normed_dtype; // of a norm's output that is not codes
    bool w8a8;
    bool on_card;
    bool k_token_order; // of the key cache ("token"), else head_dim contiguous ("dim")
    bool decode_codes;  // decode attention leaves codes and scales, and no quantiser stands behind it
} rdi_geometry;

// By the caller's doing (sync or step), never by a row count: a prompt's last single token is still prefill. On a card the
// GEMMs of the two are of two order classes, "chunk" and "step", where its rows have both.
typedef enum rdi_pass_class { RDI_PASS_PREFILL = 0, RDI_PASS_STEP, RDI_PASS_CLASSES } rdi_pass_class;

// One packed matrix.
typedef struct rdi_linear {
    int64_t n, k;
    int64_t column; // of its first output in the projection's output
    rd_tensor w, scale;
    rd_dtype a_dtype, c_dtype;
    const char *layout, *left_alone; // of w
    const rd_plan *plan[RDI_PASS_CLASSES];
} rdi_linear;

// Matrices that read the same input and write side by side: one when their rows can share a packed weight (block-FP8: all
// but the last a multiple of 128 rows, so that no 128-row scale block spans two), else up to three.
typedef struct rdi_projection {
    int64_t n, k;
    int32_t count;
    bool fp8_input; // takes e4m3 codes and scales (W8A8)
    rdi_linear part[RDI_MAX_PARTS];
} rdi_projection;

typedef struct rdi_layer {
    rd_tensor attn_norm, mlp_norm, q_norm, k_norm; // norms of q and k: data NULL without qk-norm
    rd_tensor attn_post_norm, mlp_post_norm;       // data NULL without them
    bool local;                                    // sees a window of keys, with frequencies of its own
    rdi_projection qkv, o, gate_up, down;
    rd_tensor k_cache, v_cache, k_scale, v_scale;
} rdi_layer;

typedef enum rdi_plan_slot {
    RDI_PLAN_EMBED = 0,
    RDI_PLAN_NORM,
    RDI_PLAN_ADD_NORM,
    RDI_PLAN_POST_NORM,     // of what attention or MLP gives; NULL without
    RDI_PLAN_ROPE_KV_WRITE, // NULL where no row of the device takes it: then the next two
    RDI_PLAN_ROPE,
    RDI_PLAN_KV_WRITE,
    RDI_PLAN_PREFILL,
    RDI_PLAN_DECODE,
    RDI_PLAN_LOCAL_PREFILL, // of layers with a window; NULL without
    RDI_PLAN_LOCAL_DECODE,
    RDI_PLAN_ACT_MUL,
    RDI_PLAN_QUANT_NORM, // the quantising ones only for W8A8
    RDI_PLAN_QUANT_ADD_NORM,
    RDI_PLAN_QUANT_ATTN,
    RDI_PLAN_QUANT_ACT,
    RDI_PLAN_SAMPLE,
    RDI_PLAN_SLOTS
} rdi_plan_slot;

// One question for all matrices of a shape and form, and the packed weight's descriptor (data NULL).
typedef struct rdi_linear_plan {
    bool fp8, fp8_input, one_class;
    rd_dtype a_dtype, c_dtype;
    int64_t n, k, rows;
    const char *layout;
    char left_alone[128]; // why a weight stays row-major on a card; "" = it does not, or was not asked
    rd_tensor w, scale;
    rd_plan *plan[RDI_PASS_CLASSES]; // may be one and the same
} rdi_linear_plan;

// Buffers of one pass, in the memory that kernels read. Rows are tokens.
typedef struct rdi_scratch {
    float *residual, *delta; // [rows, hidden]
    float *branch;           // [rows, hidden], with norms behind attention and MLP: what they normalise
    void *normed;            // [rows, hidden] of normed_dtype
    void *wide;              // [rows, qkv_dim] or [rows, 2 * intermediate] of act_dtype
    void *narrow;            // [rows, q_dim] or [rows, intermediate] of act_dtype
    float *logits;           // [logit_rows, vocab]
    uint8_t *codes;          // W8A8: [rows, the widest input]
    float *code_scales;
    float *inv_freq, *local_inv_freq; // of layers with a window; NULL without
    int32_t *ids, *positions, *kv_lens, *q_starts, *tail_starts, *block_table;
    int64_t *slots;
    rd_sample_row *sampling; // one row, and its token
    int32_t *sampled;
} rdi_scratch;

// One pass, staged on the host.
typedef struct rdi_batch {
    rdi_pass_class pass;
    int32_t rows, seqs;
    int32_t first_out; // rows [first_out, rows) are needed after the last layer; rows = none
    int32_t longest;   // most rows of one sequence
    int32_t keys;      // a bound of every kv_len
    int32_t *ids, *positions, *kv_lens, *q_starts, *block_table;
    int32_t *tail_starts; // q_starts of the rows that the last layer's attention is asked for
    int64_t *slots;
    rd_sample_row *sampling;
    int32_t *sampled;
} rdi_batch;

struct rd_session {
    rd_engine *engine;
    int32_t tokens, blocks;
    bool open, has_logits;
    int32_t *ids;         // [context_tokens]
    int32_t *block_table; // [max_blocks]
    float *logits;        // [vocab], where kernels write
    float *host_logits;   // a card's: a copy, made when somebody looks
    bool host_fresh;
};

// ---- what a pass consists of, for profile.c ----------------------------------------------------------------------------
typedef enum rdi_part {
    RDI_PART_UPLOAD = 0,
    RDI_PART_EMBED,
    RDI_PART_NORM, // with the quantiser behind it under W8A8
    RDI_PART_QKV,
    RDI_PART_ROPE, // with the cache write, where a row does both
    RDI_PART_KV_WRITE,
    RDI_PART_ATTENTION,
    RDI_PART_QUANT_ATTENTION,
    RDI_PART_O,
    RDI_PART_GATE_UP,
    RDI_PART_ACT, // with the quantiser under W8A8
    RDI_PART_DOWN,
    RDI_PART_HEAD,
    RDI_PARTS
} rdi_part;
// While an engine has one, passes count their parts and run those of `only`.
typedef struct rdi_tally {
    uint32_t only; // bits by part
    int32_t calls[RDI_PARTS];
    double bytes[RDI_PARTS]; // weights, scales, cached keys and values: what a pass must read from memory
    double flops[RDI_PARTS]; // of products
    const char *kernel[RDI_PARTS];
} rdi_tally;

// A decode or verify pass recorded on a card: one for each bucket of sequences, rows of each and bound of their lengths.
enum { RDI_MAX_GRAPHS = 64 };
typedef struct rdi_step_graph {
    int32_t seqs, width, keys;
    rd_graph *graph; // NULL: recorded at the second use
    int64_t used;    // step of the last use: the oldest makes room
} rdi_step_graph;

struct rd_engine {
    rd_ctx *ctx;
    const rd_model *model;
    rdi_geometry geometry;
    rdi_memory memory, host_memory;
    rdi_slab weights, cache, scratch_slab, host_slab, workspace;
    rdi_layer *layer;
    rd_tensor embed, final_norm;
    rdi_projection head;
    rd_plan *plan[RDI_PLAN_SLOTS];
    rdi_linear_plan linear_plan[RDI_MAX_LINEAR_PLANS];
    int32_t linear_plan_count;
    pthread_mutex_t lock; // sessions of several threads take turns, a pass each; guards all below
    rdi_pool pool;
    rdi_scratch scratch;
    rdi_batch batch;
    rd_session *session; // [max_sessions]
    int64_t passes[RDI_PASS_CLASSES];
    rdi_step_graph graph[RDI_MAX_GRAPHS];
    int32_t graph_count;
    int64_t replayed; // passes that a graph ran
    rdi_tally *tally; // of a profile that is being made; else NULL
};

// ---- plans.c
void rdi_engine_pick_types(rd_engine *engine); // on a card: what its rows take; before anything is carved
rd_status rdi_engine_make_plans(rd_engine *engine);
// Finds or makes the plan of a shape.
typedef struct rdi_linear_question {
    bool fp8, fp8_input;
    bool one_class;            // prefill calls it as a step does: the head, which is asked for few rows
    rd_dtype a_dtype, c_dtype; // a_dtype: of an input that is not codes
    int64_t n, k, rows;        // rows: most rows of a call
} rdi_linear_question;
rd_status rdi_engine_linear_plan(rd_engine *engine, const rdi_linear_question *question,
                                 const rdi_linear_plan **out);
void rdi_engine_free_plans(rd_engine *engine);
rd_status rdi_engine_measure_workspace(rd_engine *engine,
                                       int64_t *bytes); // once everything is carved or counted

// ---- weights.c: carves the slab; while it counts, only shapes and plans are made. Load fills what was carved.
bool rdi_weight_is_fp8(const rdi_weight *weight);
rd_status rdi_engine_bind_weights(rd_engine *engine, rdi_slab *slab);
rd_status rdi_engine_load_weights(rd_engine *engine, rd_progress_fn progress, void *progress_state);
// ---- kv_scale.c: per-head scales of an fp8 cache, from the weights alone.
rd_status rdi_engine_kv_scales(const rd_engine *engine, int32_t layer, float *k_scale, float *v_scale);

// ---- forward.c: runs engine->batch; afterwards rdi_forward_head gives logits of rows within [first_out, rows).
rd_status rdi_forward(rd_engine *engine);
rd_status rdi_forward_head(rd_engine *engine, int32_t row, int32_t count, float *logits);
// ---- graphs.c: steps on a card as graphs.
// Rows that each sequence gets in the batch of a step, so that one graph serves every such step; 0 = as many as its tokens.
int32_t rdi_step_width(const rd_engine *engine, const rd_step_item *items, int32_t count);
// Fills the batch of a step of that width up: no row of it changes what another gives.
void rdi_step_fill(rd_engine *engine, int32_t width);
// Runs it, logits of all rows in scratch.logits: replayed, or run and recorded.
rd_status rdi_step_replay(rd_engine *engine);
int32_t rdi_step_keys(const rd_engine *engine); // the bound of its lengths that a graph is made for
rd_status rdi_pass_record(rd_engine *engine, rd_status (*run)(rd_engine *engine), rd_graph **out);
void rdi_step_graphs_free(rd_engine *engine);
// Arguments shared by a run and by the size query for its workspace.
rd_gemm_args rdi_linear_args(const rd_engine *engine, const rdi_linear *linear, bool fp8_input, void *input,
                             int32_t rows, void *output, int64_t output_stride);
// The tensor, on the engine's device.
static inline rd_tensor rdi_here(const rd_engine *engine, rd_tensor tensor) {
    tensor.device = engine->memory.device;
    return tensor;
}
rd_attn_args rdi_attention_args(const rd_engine *engine, const rdi_layer *layer, int32_t rows, int32_t seqs,
                                int32_t first);
void rdi_attention_leaves_codes(const rd_engine *engine, rd_attn_args *args);

// ---- session.c
rd_status rdi_check_ids(const char *what, const rd_engine *engine, const int32_t *ids, int64_t count);
// Tokens of ids[0..count) that a sync would not run again.
int64_t rdi_session_reusable(const rd_session *session, const int32_t *ids, int64_t count);
void rdi_batch_begin(rd_engine *engine, rdi_pass_class pass);
// Appends a sequence: `count` tokens from the session's position on; blocks must be held already.
void rdi_batch_append(rd_engine *engine, const rd_session *session, const int32_t *ids, int32_t count);
// Appends rows to the last sequence that nobody asks for: they read the cache and write nothing to it.
void rdi_batch_pad(rd_engine *engine, int32_t count);
rd_status rdi_session_hold(rd_session *session, int64_t tokens); // blocks for that many tokens

#endif // RDI_ENGINE_H
