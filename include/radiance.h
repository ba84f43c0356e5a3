// SPDX-License-Identifier: Apache-2.0
// radiance.h: the C11 ABI of libradiance. It chooses, explains and runs kernels for block-FP8 language models.
//
// Order of use: rd_ctx_create -> rd_plan_create (selects a kernel row, may allocate and log) -> rd_<op>_run (no
// allocation, no environment, no log, no sync). Every fallible call returns rd_status; rd_error_text() then names the
// field, the value seen and what is needed. Nothing here exits, aborts or prints.
//
// Structs that begin with struct_size: the caller stores sizeof of it there. One of fewer bytes than the library knows is
// refused (RD_E_INVALID names both), so a caller is built with the header of the library, or a newer one.
//
// Threads: an rd_ctx may be shared. Plans are immutable and may be run from several threads, each with its own
// workspace; runs that share one context's thread pool take turns.
#ifndef RADIANCE_H
#define RADIANCE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define RD_API __attribute__((visibility("default")))
#else
#define RD_API
#endif

#define RD_VERSION_STRING "0.1.0"
#define RD_ABI_VERSION    1u

// ---- status ---------------------------------------------------------------------------------------------------
typedef enum rd_status {
    RD_OK = 0,
    RD_E_INVALID = 1,     // the caller broke the contract: bad field, value or stride
    RD_E_UNSUPPORTED = 2, // legal, but no kernel takes it: ask rd_kernel_explain
    RD_E_NO_DEVICE = 3,   // no such device, or its driver is missing
    RD_E_NOMEM = 4,       // allocation failed
    RD_E_IO = 5,          // read, write or rename failed
    RD_E_FORMAT = 6,      // a file is malformed
    RD_E_DEVICE = 7,      // driver or launch failure
    RD_E_STATE = 8,       // calls in the wrong order
    RD_E_LIMIT = 9,       // context or pages exhausted
    RD_E_INTERNAL = 10,   // a bug of ours
    RD_E_CANCELLED = 11   // the caller's callback asked to stop
} rd_status;

RD_API const char *rd_status_name(rd_status status);
// Text of the last failed call on this thread ("gemm: K=2000, needs a multiple of 128"); "" before any failure.
// Valid until the next failing call on the same thread.
RD_API const char *rd_error_text(void);
RD_API const char *rd_version(void);  // "0.1.0"
RD_API const char *rd_build_id(void); // short commit id of the build, "unknown" outside a checkout
RD_API uint32_t rd_abi_version(void); // compare with RD_ABI_VERSION at load

// The environment variables that the library reads (once, at first need). False past the end.
typedef struct rd_env_info {
    const char *name, *value, *default_value, *meaning;
} rd_env_info;
RD_API int32_t rd_env_at(int32_t index, rd_env_info *out);

// ---- tensors --------------------------------------------------------------------------------------------------
typedef enum rd_dtype {
    RD_DTYPE_NONE = 0,
    RD_DTYPE_F32,
    RD_DTYPE_BF16,
    RD_DTYPE_F16,
    RD_DTYPE_E4M3, // OCP e4m3fn: bias 7, no infinity, NaN = 0x7f/0xff. Not e4m3fnuz.
    RD_DTYPE_E5M2,
    RD_DTYPE_E8M0, // power-of-two scale, 2^(code-127), NaN = 0xff
    RD_DTYPE_I32,
    RD_DTYPE_I64,
    RD_DTYPE_U8
} rd_dtype;

RD_API size_t rd_dtype_bytes(rd_dtype dtype); // bytes of one element; 0 for RD_DTYPE_NONE
RD_API const char *
rd_dtype_name(rd_dtype dtype); // canonical: "fp32" "bf16" "fp16" "fp8_e4m3" "fp8_e5m2" "e8m0" "i32" ...

#define RD_MAX_RANK 5
// One descriptor for every operand. Strides are in ELEMENTS. data == NULL means "not given" for optional operands.
typedef struct rd_tensor {
    void *data;
    rd_dtype dtype;
    int32_t rank;
    int32_t device;   // 0 = host memory; 1 + N = memory of the card gpu:N (1 for sim:gfx1201)
    int32_t reserved; // zero
    int64_t shape[RD_MAX_RANK];
    int64_t stride[RD_MAX_RANK];
} rd_tensor;

// Dense row-major tensors of rank 1..4 (strides filled in).
RD_API rd_tensor rd_tensor_1d(void *data, rd_dtype dtype, int64_t n0);
RD_API rd_tensor rd_tensor_2d(void *data, rd_dtype dtype, int64_t n0, int64_t n1);
RD_API rd_tensor rd_tensor_3d(void *data, rd_dtype dtype, int64_t n0, int64_t n1, int64_t n2);
RD_API rd_tensor rd_tensor_4d(void *data, rd_dtype dtype, int64_t n0, int64_t n1, int64_t n2, int64_t n3);

// ---- log ------------------------------------------------------------------------------------------------------
typedef enum rd_log_level { RD_LOG_ERROR = 0, RD_LOG_WARN, RD_LOG_INFO, RD_LOG_DEBUG } rd_log_level;
typedef void (*rd_log_fn)(void *state, rd_log_level level, const char *text);

// ---- devices --------------------------------------------------------------------------------------------------
typedef struct rd_device rd_device;
typedef struct rd_device_info {
    uint32_t struct_size;
    const char *name;          // "cpu", "r9700-gfx1201", "h200-sm90a", ...
    const char *backend;       // "cpu", "amd", "nvidia"
    const char *arch;          // "x86-64", "gfx1201", "sm_90a"
    const char *isa;           // space separated feature words: "avx2 avx512 avx512vbmi avx512bf16"
    const char *model;         // the vendor's name of the chip
    int32_t is_fixture;        // 1: canned, for questions only; kernels cannot run on it
    int32_t compute_units;     // physical cores, CUs or SMs
    int32_t performance_cores; // hybrid CPUs: cores of the fastest kind; else = compute_units
    int64_t l1_bytes, l2_bytes, l3_bytes, lds_bytes, memory_bytes;
    double
        read_gbs; // read bandwidth, GB/s (1e9): measured on a host, the source's figure on a fixture; 0 unknown
    const char *driver; // a card's: "HIP 7.2.1, amdgpu 6.14.14", "CUDA driver 13.0"; "" elsewhere
} rd_device_info;

// name: "cpu" (probe this machine), "cpu:avx2" / "cpu:ref" (this machine, ISA capped), "cpu:double" (its reference rows
// alone: double accumulation, very slow), "gpu:N" (card N of all vendors),
// "sim:gfx1201" (a simulated R9700: gfx1201 machine code on the CPU), or a fixture name (rd_device_fixture_at).
// RD_E_NO_DEVICE names the known ones, or says in words why there is no card.
RD_API rd_status rd_device_open(const char *name, rd_device **out);
RD_API void rd_device_close(rd_device *device);
RD_API rd_status rd_device_get_info(const rd_device *device, rd_device_info *info);
// Where the device's own lines go (a cache folder that cannot be written); a context's device has the context's log.
RD_API void rd_device_set_log(rd_device *device, rd_log_fn log, void *log_state);
// Measures (or reads from the cache file) the read bandwidth with `threads` threads; use_cache = 0 measures anew.
RD_API rd_status rd_device_measure(rd_device *device, int32_t threads, int32_t use_cache, double *read_gbs);
// Reads `bytes` of host memory once with `threads` threads (small buffers in rounds, from the caches): the ceiling that a
// bench measures between its samples.
RD_API rd_status rd_memory_measure(int32_t threads, const void *data, int64_t bytes, double *read_gbs);
RD_API const char *rd_device_fixture_at(int32_t index); // NULL past the end
// How many cards "gpu:N" can name. text: a line for each vendor whose cards cannot be used, with the reason. *bytes in:
// capacity of text, out: length needed with the final NUL; both may be NULL.
RD_API int32_t rd_device_cards(char *text, size_t *bytes);

// ---- context --------------------------------------------------------------------------------------------------
typedef struct rd_ctx rd_ctx;
// Runs body(arg, i) for every i in [0, n), in any order, possibly at once; returns when all are done.
typedef void (*rd_parallel_for_fn)(void *state, int64_t n, void (*body)(void *arg, int64_t i), void *arg);

typedef struct rd_ctx_options {
    uint32_t struct_size;
    const char *device;              // NULL = "cpu"
    int32_t threads;                 // 0 = RADIANCE_THREADS or all performance cores; negative is refused
    rd_parallel_for_fn parallel_for; // NULL = our own pool
    void *parallel_for_state;
    rd_log_fn log; // NULL = silent
    void *log_state;
    int32_t trust_card; // 1: its kernels are not checked at first use, as with RADIANCE_TRUST=1
} rd_ctx_options;

RD_API rd_status rd_ctx_create(const rd_ctx_options *options, rd_ctx **out); // options may be NULL
RD_API void rd_ctx_free(rd_ctx *ctx);
RD_API const rd_device *rd_ctx_device(const rd_ctx *ctx);
RD_API int32_t rd_ctx_threads(const rd_ctx *ctx);

// ---- memory, streams and graphs of a context's device ----------------------------------------------------------------
// On the CPU: host memory, calls at once, streams NULL, no graphs (RD_E_UNSUPPORTED). On a card: its memory, calls in
// stream order; a stream of NULL is the vendor's default stream. A failing call names the vendor's call and reason.
typedef void *rd_stream; // the caller's own (hipStream_t, CUstream) or one made here
RD_API int32_t rd_ctx_device_number(const rd_ctx *ctx);                  // for rd_tensor.device: 0 on the CPU
RD_API rd_status rd_memory_alloc(rd_ctx *ctx, size_t bytes, void **out); // 64-byte aligned at least
RD_API rd_status rd_memory_free(rd_ctx *ctx, void *pointer);             // NULL is nothing
// Host memory that a card copies without staging (page-locked); plain memory on the CPU.
RD_API rd_status rd_memory_alloc_host(rd_ctx *ctx, size_t bytes, void **out);
RD_API rd_status rd_memory_free_host(rd_ctx *ctx, void *pointer);
RD_API rd_status rd_memory_info(rd_ctx *ctx, size_t *free_bytes, size_t *total_bytes);
typedef enum rd_copy { RD_COPY_TO_DEVICE = 0, RD_COPY_TO_HOST, RD_COPY_ON_DEVICE } rd_copy;
// Host memory must stay as it is until the stream has come past the copy (rd_stream_sync).
RD_API rd_status rd_memory_copy(rd_ctx *ctx, void *to, const void *from, size_t bytes, rd_copy direction,
                                rd_stream stream);
RD_API rd_status rd_memory_set(rd_ctx *ctx, void *to, int32_t byte, size_t bytes, rd_stream stream);
RD_API rd_status rd_stream_create(rd_ctx *ctx, rd_stream *out);
RD_API rd_status rd_stream_free(rd_ctx *ctx, rd_stream stream);
RD_API rd_status rd_stream_sync(rd_ctx *ctx, rd_stream stream); // the host waits
// Reads `bytes` of the context's own memory, random ones beyond its caches: the ceiling of what only reads. On a card by a
// kernel of ours and the device's clock, best of five; on the CPU with the context's threads. RD_E_INVALID below 64 KiB,
// RD_E_NO_DEVICE on a fixture.
RD_API rd_status rd_ctx_measure_read(rd_ctx *ctx, int64_t bytes, double *read_gbs);
// What runs and copies on `stream` between begin and end is recorded, not executed, and replayed by each launch with the
// same operands. A call that fails in between ends the recording.
typedef struct rd_graph rd_graph;
RD_API rd_status rd_graph_begin(rd_ctx *ctx, rd_stream stream);
RD_API rd_status rd_graph_end(rd_ctx *ctx, rd_stream stream, rd_graph **out);
RD_API rd_status rd_graph_launch(rd_graph *graph, rd_stream stream);
RD_API void rd_graph_free(rd_graph *graph);
// Microseconds on the device between two points of a stream.
typedef struct rd_timer rd_timer;
RD_API rd_status rd_timer_create(rd_ctx *ctx, rd_timer **out);
RD_API void rd_timer_free(rd_timer *timer);
RD_API rd_status rd_timer_start(rd_timer *timer, rd_stream stream);
RD_API rd_status rd_timer_stop(rd_timer *timer, rd_stream stream);
RD_API rd_status rd_timer_read(rd_timer *timer, double *microseconds); // waits for the stop

// ---- registry: rows as data, select, explain, selections, report -----------------------------------------------
typedef enum rd_param_kind { RD_PARAM_INT = 0, RD_PARAM_WORD = 1 } rd_param_kind;
// One key=value of a question. Numbers must be RD_PARAM_INT: a number given as a word is refused.
typedef struct rd_param {
    const char *key;
    rd_param_kind kind;
    int64_t i;
    const char *word;
} rd_param;
#define RD_INT(key_, value_)                                                                                 \
    { (key_), RD_PARAM_INT, (int64_t)(value_), NULL }
#define RD_WORD(key_, value_)                                                                                \
    { (key_), RD_PARAM_WORD, 0, (value_) }

typedef enum rd_constraint_op { RD_EQ = 0, RD_LE, RD_GE, RD_MULTIPLE_OF, RD_ONE_OF } rd_constraint_op;
typedef struct rd_constraint {
    const char *key;
    rd_constraint_op op;
    int64_t value;     // RD_EQ, RD_LE, RD_GE, RD_MULTIPLE_OF
    const char *words; // RD_ONE_OF: space separated
    const char *text;  // why, in the hardware's or the format's terms; under 60 characters
} rd_constraint;

typedef struct rd_kernel_info {
    const char *name, *op, *backend, *isa, *computes;
    // Order class: rows of one class on one device give the same bits for the same inputs. "any": one order serves every
    // pass, steps and prompts alike.
    const char *order;
    int32_t is_reference;
    int32_t constraint_count;
    const rd_constraint *constraints;
} rd_kernel_info;

// What a GPU row's kernels take of the hardware, from the built code object: a row is one kernel or a few. RD_E_LIMIT past
// the last (CPU rows have none).
typedef struct rd_kernel_resources {
    uint32_t struct_size;
    const char *symbol;
    int32_t vector_registers; // VGPRs; registers of a thread on NVIDIA
    int32_t scalar_registers; // SGPRs; 0 on NVIDIA
    int32_t shared_bytes;     // static LDS or shared memory of a work-group
    int32_t scratch_bytes;    // of a lane
    int32_t spills;           // registers on gfx1201, bytes on NVIDIA
    int32_t code_bytes;       // 0 unknown
    int32_t waves_per_simd;   // occupancy that registers and static LDS leave; 0 unknown
} rd_kernel_resources;
RD_API rd_status rd_kernel_resources_at(const rd_kernel_info *kernel, int32_t index,
                                        rd_kernel_resources *out);

typedef struct rd_op_info {
    const char *name, *computes;
    const char *interval_key; // the key that a plan covers an interval of ("m", "rows"), or NULL
    int32_t key_count;        // keys that a question may give
    const char *const *keys;
    int32_t derived_count; // keys computed from those
    const char *const *derived;
} rd_op_info;

RD_API const rd_op_info *rd_op_at(int32_t index);         // NULL past the end
RD_API const rd_op_info *rd_op_find(const char *name);    // NULL when unknown
RD_API const rd_kernel_info *rd_kernel_at(int32_t index); // NULL past the end
RD_API const rd_kernel_info *rd_kernel_find(const char *name);

// Select: the row that policy puts first among those whose constraints all hold. *out = NULL and RD_OK when none does
// (rd_error_text then holds the reasons). Recorded in the context's selections.
RD_API rd_status rd_kernel_select(rd_ctx *ctx, const char *op, const rd_param *params, int32_t count,
                                  const rd_kernel_info **out);

typedef struct rd_verdict {
    const rd_kernel_info *kernel;
    int32_t ok, chosen;
    char reason[160]; // "ok", "ok, not chosen: <rule>", or the first failing constraint: "gqa=8, needs == 6"
} rd_verdict;
// Explain: every candidate row of `op` on `device` in policy order. Not recorded. *count in: capacity of verdicts;
// out: rows. verdicts = NULL asks for the count alone.
RD_API rd_status rd_kernel_explain(const rd_device *device, const char *op, const rd_param *params,
                                   int32_t count, rd_verdict *verdicts, int32_t *verdict_count);

typedef struct rd_selection {
    const char *op;
    const char *query;  // "m=1 n=7168 k=2048", keys in asked order, values normalised
    const char *kernel; // NULL: none
    const char *reason;
    int64_t asked;
} rd_selection;
// Entry `index` in first-asked order; RD_E_LIMIT past the end. Pointers live as long as the context.
RD_API rd_status rd_selection_at(rd_ctx *ctx, int32_t index, rd_selection *out);
// The report (empty when nothing was asked). *bytes in: capacity of text, out: length needed with the final NUL.
RD_API rd_status rd_report_text(rd_ctx *ctx, char *text, size_t *bytes);

// ---- policy rules ----------------------------------------------------------------------------------------------
typedef struct rd_policy_info {
    const char *name, *computes;
    int32_t input_count, output_count;
    const char *const *inputs;
    const char *const *outputs;
} rd_policy_info;
RD_API const rd_policy_info *rd_policy_at(int32_t index);
RD_API const rd_policy_info *rd_policy_find(const char *name);
// Evaluates one rule. outputs: one string for each of info->outputs ("" = keeps what the caller had); rule: which
// clause fired. Buffers of 64 and 128 bytes a string.
RD_API rd_status rd_policy_eval(const rd_device *device, const char *rule, const rd_param *params,
                                int32_t count, char (*outputs)[64], char rule_fired[128]);

// ---- plans ------------------------------------------------------------------------------------------------------
typedef struct rd_plan rd_plan;

// A plan answers `op` with `params` for every value lo..hi of the op's interval key (0, 0 when it has none; the key
// itself must not be among params). It holds one row per sub-interval and is recorded as one question per sub-interval.
// Keys that a row constrains must all be given ("layout not given"). The context must outlive its plans.
RD_API rd_status rd_plan_create(rd_ctx *ctx, const char *op, const rd_param *params, int32_t count,
                                int64_t lo, int64_t hi, rd_plan **out);
// The same with the kernel named by the caller, for checks and benches: nothing else is considered, and the kernel must
// still hold its constraints over the whole interval (RD_E_UNSUPPORTED names the one that fails). Not recorded.
RD_API rd_status rd_plan_create_kernel(rd_ctx *ctx, const char *kernel, const rd_param *params, int32_t count,
                                       int64_t lo, int64_t hi, rd_plan **out);
RD_API void rd_plan_free(rd_plan *plan);
RD_API const rd_kernel_info *rd_plan_kernel(const rd_plan *plan,
                                            int64_t at); // row used at interval value `at`
RD_API rd_status rd_plan_text(const rd_plan *plan, char *text, size_t *bytes);

// On a card every operand, table and workspace lies in its memory (rd_tensor.device) and calls are in stream order. Contents
// that a CPU run checks (token ids, slots, positions, block tables, lengths) cannot be read there: kernels never leave the
// operands' bounds because of them, results of such rows are unspecified.
//
// Every run: ws = NULL stores the bytes needed in *ws_bytes and does nothing else; otherwise *ws_bytes is the size of
// ws (64-byte aligned). ws_bytes may be NULL when the plan needs none.

// gemm_fp8block, gemm_fp8block_w8a16, gemm_bf16: C[m,n] = bias[n] + sum_k A[m,k] As[m,k/128] W[n,k] Ws[n/128,k/128]
typedef struct rd_gemm_args {
    uint32_t struct_size;
    rd_tensor a;       // [m, k] e4m3 (fp8block) or bf16/f16/f32; any row stride
    rd_tensor a_scale; // [m, ceil(k/128)] f32, any strides; fp8block only
    rd_tensor w;       // [n, k] e4m3 or bf16 row-major (row stride >= k), or what rd_weight_pack makes of it
    rd_tensor w_scale; // [ceil(n/128), ceil(k/128)] f32 or e8m0
    rd_tensor bias;    // [n] f32 or bf16, optional
    rd_tensor c;       // [m, n] bf16, f16 or f32; any row stride
} rd_gemm_args;
RD_API rd_status rd_gemm_run(const rd_plan *plan, const rd_gemm_args *args, void *ws, size_t *ws_bytes,
                             rd_stream stream);

// Weight layouts, named by the query key `layout`: "row" (as loaded), "shuffle16" (the (16,16) contract: byte (n,k) at
// (n/16)*16K + (k/32)*512 + ((k%32)/16)*256 + (n%16)*16 + k%16), "panel16" (the CPU's own K-major panels of 16 rows),
// "tile64" (for sm_90a, read on a CPU too: panels of 64 rows, tiles of 64 rows x 128 k one after the other in each: byte (n,k) at
// (n/64)*64*ceil(K/128)*128 + (k/128)*8192 + (n%64)*128 + k%128).
// rd_weight_pack writes `packed` (ws protocol: packed->data = NULL fills in dtype, shape and strides for allocation).
RD_API rd_status rd_weight_pack(rd_ctx *ctx, const rd_tensor *w, const char *layout, rd_tensor *packed);

// quant_fp8: q = e4m3(x / s), s = max(amax/448, 1/(448*512)) for each 1x128 group of a row.
// fuse (query key `fuse`): "none"; "rmsnorm": x = norm(x)*weight; "add_rmsnorm": residual += x, then rmsnorm(residual);
// "silu_mul": x = silu(x)*up; "gelu_mul": x = gelu(x)*up, tanh form.
typedef struct rd_quant_args {
    uint32_t struct_size;
    rd_tensor x;           // [m, k] bf16 or f32
    rd_tensor up;          // silu_mul, gelu_mul: [m, k]
    rd_tensor residual;    // add_rmsnorm: [m, k], read and written
    rd_tensor norm_weight; // [k] bf16 or f32
    rd_tensor q;           // [m, k] e4m3
    rd_tensor q_scale;     // [m, ceil(k/128)] f32, any strides
    float eps;
    int32_t unit_offset; // 1: weight is stored minus one (Gemma)
} rd_quant_args;
RD_API rd_status rd_quant_run(const rd_plan *plan, const rd_quant_args *args, void *ws, size_t *ws_bytes,
                              rd_stream stream);

// attn_prefill, attn_decode: causal attention over a paged cache. Query token i of sequence s sits at absolute
// position kv_lens[s] - q_len(s) + i. out = softmax(softcap(scale * q.k)) v, with window, sinks.
typedef struct rd_attn_args {
    uint32_t struct_size;
    rd_tensor q;                // [tokens, q_heads, head_dim] bf16 or f32
    rd_tensor k_cache;          // [blocks, block_tokens, kv_heads, head_dim] e4m3 or bf16, any strides
    rd_tensor v_cache;          // the same shape, its own strides
    rd_tensor k_scale, v_scale; // [kv_heads] f32, e4m3 only
    rd_tensor block_table;      // [seqs, max_blocks] i32
    rd_tensor kv_lens;          // [seqs] i32: keys visible to the last query token, itself included
    rd_tensor q_starts;         // [seqs + 1] i32: first query token of each sequence
    rd_tensor sinks;            // [q_heads] f32, optional: a logit that only joins the denominator
    rd_tensor out;              // [tokens, q_heads, head_dim] bf16 or f32, or e4m3 with out_scale
    float scale;                // usually 1/sqrt(head_dim)
    float softcap;              // 0 = off: cap * tanh(x / cap)
    int32_t window;             // 0 = off; else keys in (pos - window, pos]
    // On a card the host reads neither q_starts nor kv_lens. Bounds of the call, so that a captured graph serves every
    // length up to them: longest q_len (needed on a card; 0 elsewhere = read from q_starts) and longest kv_len
    // (0 = max_blocks * block_tokens).
    int32_t max_q_len, max_kv_len;
    // Of an e4m3 output (attn_decode), not read otherwise: [tokens, q_heads * head_dim / 128] f32, any strides; head_dim a multiple of
    // 128, so that a group lies in one head. Codes and scales are those that quant_fp8 makes of the f32 output: value = code * scale.
    rd_tensor out_scale;
    // On a card, 1: kv_lens, q_starts and block_table stand since before the launch ahead of this one in the stream began, so
    // they may be read before it ends. 0: they may be what it writes.
    int32_t tables_settled;
} rd_attn_args;
RD_API rd_status rd_attn_run(const rd_plan *plan, const rd_attn_args *args, void *ws, size_t *ws_bytes,
                             rd_stream stream);

// rmsnorm: y = x / sqrt(mean(x^2) + eps) * (weight + unit_offset); with residual: residual += x first, y of that sum.
typedef struct rd_rmsnorm_args {
    uint32_t struct_size;
    rd_tensor x, residual, weight, y; // [m, k]; weight [k]
    float eps;
    int32_t unit_offset;
} rd_rmsnorm_args;
RD_API rd_status rd_rmsnorm_run(const rd_plan *plan, const rd_rmsnorm_args *args, rd_stream stream);

// rope: rotates q and k in place; style "neox" (halves) or "interleaved" (pairs); with q_norm/k_norm given, each head
// is rms-normalised first (qk-norm).
typedef struct rd_rope_args {
    uint32_t struct_size;
    rd_tensor q, k;           // [tokens, heads, head_dim] bf16 or f32; k optional
    rd_tensor positions;      // [tokens] i32
    rd_tensor inv_freq;       // [rotary_dim/2] f32 (rd_rope_frequencies)
    rd_tensor q_norm, k_norm; // [head_dim], optional
    float eps;
    int32_t unit_offset;
    int32_t tables_settled; // as in rd_attn_args: positions, and the slots of rope_kv_write
} rd_rope_args;
RD_API rd_status rd_rope_run(const rd_plan *plan, const rd_rope_args *args, rd_stream stream);
typedef struct rd_rope_scaling {
    const char *type; // "none", "linear", "llama3"
    double theta, factor, low_freq_factor, high_freq_factor, original_context;
} rd_rope_scaling;
RD_API rd_status rd_rope_frequencies(const rd_rope_scaling *scaling, int32_t rotary_dim, float *inv_freq);

// act_mul: y = act(gate) * up; act "silu" or "gelu_tanh".
typedef struct rd_act_mul_args {
    uint32_t struct_size;
    rd_tensor gate, up, y; // [m, k]
} rd_act_mul_args;
RD_API rd_status rd_act_mul_run(const rd_plan *plan, const rd_act_mul_args *args, rd_stream stream);

// kv_write: scatters k and v of each token into the paged cache (quantising for e4m3: code = e4m3(x / scale[head])).
typedef struct rd_kv_write_args {
    uint32_t struct_size;
    rd_tensor k, v;             // [tokens, kv_heads, head_dim] bf16 or f32
    rd_tensor k_cache, v_cache; // as in rd_attn_args
    rd_tensor k_scale, v_scale; // [kv_heads] f32, e4m3 only
    rd_tensor slots;            // [tokens] i64: block * block_tokens + offset; negative = skip
} rd_kv_write_args;
RD_API rd_status rd_kv_write_run(const rd_plan *plan, const rd_kv_write_args *args, rd_stream stream);

// rope_kv_write: rope of q and k (with qk-norm when planned), then kv_write of the rotated k and of v, in one launch. Same bits
// of q and of the caches as the two ops in sequence: the rotated k is rounded to its type before it is written.
//   rope->q [tokens, q_heads, head_dim] is rotated in place; rope->k [tokens, kv_heads, head_dim] is consumed: what it holds
//   afterwards is unspecified (a card rotates it on its way to the cache). kv->k is left out (data NULL) or the same tensor
//   as rope->k; kv->v has its shape and type. The other operands are those of rd_rope_args and rd_kv_write_args.
RD_API rd_status rd_rope_kv_write_run(const rd_plan *plan, const rd_rope_args *rope,
                                      const rd_kv_write_args *kv, rd_stream stream);

// embed: y[t] = table[ids[t]] * scale. An id outside the table is RD_E_INVALID.
typedef struct rd_embed_args {
    uint32_t struct_size;
    rd_tensor table; // [vocab, k] bf16, f16, f32
    rd_tensor ids;   // [tokens] i32
    rd_tensor y;     // [tokens, k]
    float scale;
} rd_embed_args;
RD_API rd_status rd_embed_run(const rd_plan *plan, const rd_embed_args *args, rd_stream stream);

// sample: one token per row. temperature 0 = greedy (lowest id wins ties). top_k 0 = off; ties at the boundary kept.
// The draw is a function of (seed, counter) alone.
typedef struct rd_sample_row {
    float temperature, top_p, min_p; // top_p 1 = off, min_p 0 = off
    int32_t top_k;                   // 0 or >= vocab = off
    uint64_t seed, counter;
} rd_sample_row;
typedef struct rd_sample_args {
    uint32_t struct_size;
    rd_tensor logits;          // [rows, vocab] f32
    const rd_sample_row *rows; // [rows]; in the card's memory when logits are
    rd_tensor ids;             // [rows] i32 out
} rd_sample_args;
RD_API rd_status rd_sample_run(const rd_plan *plan, const rd_sample_args *args, void *ws, size_t *ws_bytes,
                               rd_stream stream);

#ifdef __cplusplus
}
#endif
#endif // RADIANCE_H
