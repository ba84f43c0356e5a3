// SPDX-License-Identifier: Apache-2.0
// radiance::* as boxed torch ops. A boxed kernel owns its tensor arguments (each is deleted here) and leaves its results in
// stack[0..]; a double travels as its bits. Errors become a C++ exception of torch's through aoti_torch_check.
#include "layer.h"
#include "torch_shim.h"

#include <stdio.h>
#include <string.h>

static struct {
    int32_t f32, bf16, f16, e4m3, u8, i32, i64, e8m0, cpu;
} codes; // torch's numbers of types and of the host device

static void fail(const char *op, const char *text) {
    char message[512];
    snprintf(message, sizeof message, "radiance::%s: %s", op, text && text[0] ? text : "failed");
    rdt_torch.aoti_torch_check(false, op, "radiance", 0, message);
}

static void fail_status(const char *op, rd_status status) {
    const char *text = rd_error_text();
    fail(op, text[0] ? text : rd_status_name(status));
}

static rd_dtype dtype_of(int32_t code) {
    if (code == codes.bf16) return RD_DTYPE_BF16;
    if (code == codes.f32) return RD_DTYPE_F32;
    if (code == codes.f16) return RD_DTYPE_F16;
    if (code == codes.e4m3) return RD_DTYPE_E4M3;
    if (code == codes.i32) return RD_DTYPE_I32;
    if (code == codes.i64) return RD_DTYPE_I64;
    if (code == codes.u8) return RD_DTYPE_U8;
    return code == codes.e8m0 ? RD_DTYPE_E8M0 : RD_DTYPE_NONE;
}

// A torch tensor as ours. A rank past RD_MAX_RANK comes out as rank 0 and is refused by the entry's own check.
typedef struct view {
    rd_tensor tensor;
    int32_t dtype_code, device_type, device_index;
} view;

static view view_of(rdt_tensor handle) {
    view v = {.tensor = {.rank = 0}};
    int64_t rank = 0, *sizes = NULL, *strides = NULL;
    rdt_torch.aoti_torch_get_dim(handle, &rank);
    rdt_torch.aoti_torch_get_sizes(handle, &sizes);
    rdt_torch.aoti_torch_get_strides(handle, &strides);
    rdt_torch.aoti_torch_get_data_ptr(handle, &v.tensor.data);
    rdt_torch.aoti_torch_get_dtype(handle, &v.dtype_code);
    rdt_torch.aoti_torch_get_device_type(handle, &v.device_type);
    if (v.device_type != codes.cpu) {
        rdt_torch.aoti_torch_get_device_index(handle, &v.device_index);
        v.tensor.device = 1 + v.device_index;
    }
    v.tensor.dtype = dtype_of(v.dtype_code);
    if (rank > RD_MAX_RANK) return v;
    v.tensor.rank = (int32_t)rank;
    for (int64_t i = 0; i < rank; i++) {
        v.tensor.shape[i] = sizes[i];
        v.tensor.stride[i] = strides[i];
    }
    return v;
}

// The stream that torch is on; false when this torch does not tell: on another stream a call would race with it.
static bool stream_of(const view *v, void **stream) {
    *stream = NULL;
    return !v->tensor.device || (rdt_torch.aoti_torch_get_current_cuda_stream &&
                                 !rdt_torch.aoti_torch_get_current_cuda_stream(v->device_index, stream));
}
static const char no_stream[] = "torch does not name its current stream: aoti_torch_get_current_cuda_stream";

static void drop(rdt_tensor *handles, int count) {
    for (int i = 0; i < count; i++)
        if (handles[i]) rdt_torch.aoti_torch_delete_tensor_object(handles[i]);
}

// ---- scratch of a card: a torch tensor that lives as long as the call; the allocator orders its reuse on the stream -----
typedef struct card_scratch {
    int32_t device_type, device_index;
    rdt_tensor held;
} card_scratch;

static void *get_card_scratch(void *state, size_t bytes) {
    card_scratch *scratch = state;
    const int64_t size = (int64_t)bytes, stride = 1;
    void *data = NULL;
    if (rdt_torch.aoti_torch_empty_strided(1, &size, &stride, codes.u8, scratch->device_type,
                                           scratch->device_index, &scratch->held))
        return NULL;
    rdt_torch.aoti_torch_get_data_ptr(scratch->held, &data);
    return data;
}

static rdt_scratch scratch_for(const view *v, card_scratch *card) {
    *card = (card_scratch){v->device_type, v->device_index, NULL};
    return v->tensor.device ? (rdt_scratch){get_card_scratch, card} : (rdt_scratch){NULL, NULL};
}

// ---- fp8_linear ----------------------------------------------------------------------------------------------------
// [.., k] as [rows, k]: leading axes must be one run of equally spaced rows.
static bool as_matrix(rd_tensor *tensor) {
    int32_t rank = tensor->rank;
    if (rank < 1) return false;
    int64_t k = tensor->shape[rank - 1], rows = 1;
    if (k > 1 && tensor->stride[rank - 1] != 1) return false;
    int64_t step = k; // of the innermost axis that has more than one row
    for (int32_t i = rank - 2; i >= 0; i--) {
        if (tensor->shape[i] == 1) continue; // its stride may be anything
        if (rows == 1) step = tensor->stride[i];
        if (rows > 0 && tensor->stride[i] != step * rows) return false;
        rows *= tensor->shape[i];
    }
    tensor->rank = 2;
    tensor->shape[0] = rows;
    tensor->shape[1] = k;
    tensor->stride[0] = step;
    tensor->stride[1] = 1;
    return true;
}

// c = x W^T with x's leading axes; 0 or the new tensor.
static rdt_tensor make_output(const view *x, int64_t n, rd_tensor *c) {
    int64_t sizes[RD_MAX_RANK], strides[RD_MAX_RANK];
    int32_t rank = x->tensor.rank;
    for (int32_t i = rank - 1; i >= 0; i--) {
        sizes[i] = i == rank - 1 ? n : x->tensor.shape[i];
        strides[i] = i == rank - 1 ? 1 : strides[i + 1] * sizes[i + 1];
    }
    rdt_tensor out = NULL;
    if (rdt_torch.aoti_torch_empty_strided(rank, sizes, strides, x->dtype_code, x->device_type,
                                           x->device_index, &out))
        return NULL;
    int64_t rows = 1;
    for (int32_t i = 0; i < rank - 1; i++) rows *= sizes[i];
    *c = rd_tensor_2d(NULL, x->tensor.dtype, rows, n);
    c->device = x->tensor.device;
    rdt_torch.aoti_torch_get_data_ptr(out, &c->data);
    return out;
}

// call: layout, quantise and rows are set.
static void linear(uint64_t *stack, bool with_bias, int64_t n, rdt_linear_call call) {
    static const char op[] = "fp8_linear";
    rdt_tensor in[4] = {(void *)stack[0], (void *)stack[1], (void *)stack[2],
                        with_bias ? (void *)stack[3] : NULL};
    view x = view_of(in[0]);
    call.w = view_of(in[1]).tensor;
    call.w_scale = view_of(in[2]).tensor;
    card_scratch card;
    call.scratch = scratch_for(&x, &card);
    if (with_bias) call.bias = view_of(in[3]).tensor;
    rdt_tensor out = NULL;
    rd_status status = RD_OK;
    const char *text = NULL;
    call.x = x.tensor;
    if (!stream_of(&x, &call.stream))
        text = no_stream;
    else if (!as_matrix(&call.x))
        text = "x: rows are not evenly spaced, needs a contiguous tensor";
    else if (!(out = make_output(&x, n, &call.c)))
        text = "no memory for the output";
    else
        status = rdt_linear_run(&call);
    if (card.held) rdt_torch.aoti_torch_delete_tensor_object(card.held);
    drop(in, 4);
    if (text || status != RD_OK) {
        drop(&out, 1);
        if (text) fail(op, text);
        fail_status(op, status);
    }
    stack[0] = (uint64_t)out;
}

static void fp8_linear(uint64_t *stack, uint64_t inputs, uint64_t outputs) {
    (void)inputs;
    (void)outputs;
    linear(stack, false, (int64_t)stack[3],
           (rdt_linear_call){.layout = (int32_t)stack[4], .quantise = (int32_t)(stack[5] & 1)});
}

static void fp8_linear_bias(uint64_t *stack, uint64_t inputs, uint64_t outputs) {
    (void)inputs;
    (void)outputs;
    linear(stack, true, (int64_t)stack[4],
           (rdt_linear_call){.layout = (int32_t)stack[5], .quantise = (int32_t)(stack[6] & 1)});
}

// A quantised call of at most so many rows over a row-major weight: what our kernel takes of a layer that it shares.
static void fp8_linear_upto(uint64_t *stack, uint64_t inputs, uint64_t outputs) {
    (void)inputs;
    (void)outputs;
    linear(stack, false, (int64_t)stack[3], (rdt_linear_call){.quantise = 1, .rows = (int64_t)stack[4]});
}

// (x, w0, w_scale0, w1, w_scale1, w2, w_scale2, n0, n1, n2, layout, quantise): shards that keep scale blocks of their own, side by
// side in one output. A shard of no rows is left out. On the host, where such layers are.
static void fp8_linear_shards(uint64_t *stack, uint64_t inputs, uint64_t outputs) {
    (void)inputs;
    (void)outputs;
    static const char op[] = "fp8_linear_shards";
    enum { SHARDS = 3, TENSORS = 1 + 2 * SHARDS };
    rdt_tensor in[TENSORS];
    for (int i = 0; i < TENSORS; i++) in[i] = (void *)stack[i];
    const int64_t *n = (const int64_t *)stack + TENSORS;
    view x = view_of(in[0]);
    rdt_linear_call call = {
        .x = x.tensor, .layout = (int32_t)n[SHARDS], .quantise = (int32_t)(n[SHARDS + 1] & 1)};
    rdt_tensor out = NULL;
    rd_status status = RD_OK;
    rd_tensor c;
    const char *text = NULL;
    if (x.tensor.device)
        text = "x: on a card, needs the host";
    else if (!as_matrix(&call.x))
        text = "x: rows are not evenly spaced, needs a contiguous tensor";
    else if (!(out = make_output(&x, n[0] + n[1] + n[2], &c)))
        text = "no memory for the output";
    size_t done = 0;
    for (int i = 0; i < SHARDS && !text && status == RD_OK; done += (size_t)n[i++]) {
        if (!n[i]) continue;
        call.w = view_of(in[1 + 2 * i]).tensor;
        call.w_scale = view_of(in[2 + 2 * i]).tensor;
        call.c = c;
        call.c.shape[1] = n[i];
        call.c.data = (char *)c.data + done * rd_dtype_bytes(c.dtype);
        status = rdt_linear_run(&call);
    }
    drop(in, TENSORS);
    if (text || status != RD_OK) {
        drop(&out, 1);
        if (text) fail(op, text);
        fail_status(op, status);
    }
    stack[0] = (uint64_t)out;
}

// ---- attention -----------------------------------------------------------------------------------------------------
static float real_of(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return (float)value;
}

// Tensors without elements stand for operands that are not given.
static rd_tensor optional(rdt_tensor handle) {
    rd_tensor tensor = view_of(handle).tensor;
    if (tensor.rank == 1 && tensor.shape[0] == 0) tensor.data = NULL;
    return tensor;
}

// (q, k_cache, v_cache, k_scale, v_scale, block_table, kv_lens, q_starts, sinks, out, scale, softcap, window, longest, longest_kv,
// token_order)
static void attn(uint64_t *stack, uint64_t inputs, uint64_t outputs) {
    (void)inputs;
    (void)outputs;
    enum { TENSORS = 10 };
    rdt_tensor in[TENSORS];
    for (int i = 0; i < TENSORS; i++) in[i] = (void *)stack[i];
    view q = view_of(in[0]);
    card_scratch card;
    rdt_scratch scratch = scratch_for(&q, &card);
    rd_attn_args args = {.struct_size = sizeof args,
                         .q = q.tensor,
                         .k_cache = view_of(in[1]).tensor,
                         .v_cache = view_of(in[2]).tensor,
                         .k_scale = optional(in[3]),
                         .v_scale = optional(in[4]),
                         .block_table = view_of(in[5]).tensor,
                         .kv_lens = view_of(in[6]).tensor,
                         .q_starts = view_of(in[7]).tensor,
                         .sinks = optional(in[8]),
                         .out = view_of(in[9]).tensor,
                         .scale = real_of(stack[10]),
                         .softcap = real_of(stack[11]),
                         .window = (int32_t)(int64_t)stack[12],
                         .max_q_len = (int32_t)(int64_t)stack[13],
                         .max_kv_len = (int32_t)(int64_t)stack[14]};
    void *stream;
    bool shaped = args.q.rank == 3 && args.k_cache.rank == 4 && args.k_cache.shape[2] > 0,
         known = stream_of(&q, &stream);
    rd_status status =
        shaped && known ? rdt_attn_run(&args, (int64_t)stack[13], (int32_t)(stack[15] & 1), &scratch, stream)
                        : RD_E_INVALID;
    if (card.held) rdt_torch.aoti_torch_delete_tensor_object(card.held);
    drop(in, TENSORS);
    if (!known) fail("attn", no_stream);
    if (!shaped) fail("attn", "needs q of rank 3 and caches of rank 4");
    if (status != RD_OK) fail_status("attn", status);
}

// (k, v, k_cache, v_cache, k_scale, v_scale, slots, token_order)
static void kv_write(uint64_t *stack, uint64_t inputs, uint64_t outputs) {
    (void)inputs;
    (void)outputs;
    enum { TENSORS = 7 };
    rdt_tensor in[TENSORS];
    for (int i = 0; i < TENSORS; i++) in[i] = (void *)stack[i];
    view k = view_of(in[0]);
    rd_kv_write_args args = {.struct_size = sizeof args,
                             .k = k.tensor,
                             .v = view_of(in[1]).tensor,
                             .k_cache = view_of(in[2]).tensor,
                             .v_cache = view_of(in[3]).tensor,
                             .k_scale = optional(in[4]),
                             .v_scale = optional(in[5]),
                             .slots = view_of(in[6]).tensor};
    void *stream;
    bool shaped = args.k.rank == 3 && args.k_cache.rank == 4, known = stream_of(&k, &stream);
    rd_status status =
        shaped && known ? rdt_kv_write_run(&args, (int32_t)(stack[7] & 1), stream) : RD_E_INVALID;
    drop(in, TENSORS);
    if (!known) fail("kv_write", no_stream);
    if (!shaped) fail("kv_write", "needs k of rank 3 and caches of rank 4");
    if (status != RD_OK) fail_status("kv_write", status);
}

// ---- registration --------------------------------------------------------------------------------------------------
static const struct {
    const char *name, *schema;
    rdt_boxed kernel;
} ops[] = {
    {"fp8_linear",
     "fp8_linear(Tensor x, Tensor w, Tensor w_scale, int n, int layout, bool quantise) -> Tensor",
     fp8_linear},
    {"fp8_linear_bias",
     "fp8_linear_bias(Tensor x, Tensor w, Tensor w_scale, Tensor bias, int n, int layout, bool quantise) -> "
     "Tensor",
     fp8_linear_bias},
    {"fp8_linear_upto", "fp8_linear_upto(Tensor x, Tensor w, Tensor w_scale, int n, int rows) -> Tensor",
     fp8_linear_upto},
    {"fp8_linear_shards",
     "fp8_linear_shards(Tensor x, Tensor w0, Tensor w_scale0, Tensor w1, Tensor w_scale1, Tensor w2, Tensor "
     "w_scale2, "
     "int n0, int n1, int n2, int layout, bool quantise) -> Tensor",
     fp8_linear_shards},
    {"attn",
     "attn(Tensor q, Tensor k_cache, Tensor v_cache, Tensor k_scale, Tensor v_scale, Tensor block_table, "
     "Tensor kv_lens, "
     "Tensor q_starts, Tensor sinks, Tensor(a!) out, float scale, float softcap, int window, int longest, "
     "int longest_kv, "
     "bool token_order) -> ()",
     attn},
    {"kv_write",
     "kv_write(Tensor k, Tensor v, Tensor(a!) k_cache, Tensor(b!) v_cache, Tensor k_scale, Tensor v_scale, "
     "Tensor slots, bool token_order) -> ()",
     kv_write},
};
enum { OPS = sizeof ops / sizeof ops[0] };

static void torch_pool(void *state, int64_t n, void (*body)(void *arg, int64_t i), void *arg);

// Schemas as text for the fallback that registers from Python; NULL past the end.
RDT_API const char *rdt_schema_at(int32_t index);
RDT_API const char *rdt_schema_at(int32_t index) {
    return index >= 0 && index < OPS ? ops[index].schema : NULL;
}

static void read_codes(void) {
    codes.f32 = rdt_torch.aoti_torch_dtype_float32();
    codes.bf16 = rdt_torch.aoti_torch_dtype_bfloat16();
    codes.f16 = rdt_torch.aoti_torch_dtype_float16();
    codes.e4m3 = rdt_torch.aoti_torch_dtype_float8_e4m3fn();
    codes.u8 = rdt_torch.aoti_torch_dtype_uint8();
    codes.i32 = rdt_torch.aoti_torch_dtype_int32();
    codes.i64 = rdt_torch.aoti_torch_dtype_int64();
    // torch 2.11 has the type and not the function; numbers of types are those of c10::ScalarType, which only grows.
    enum { SCALAR_TYPE_FLOAT8_E8M0FNU = 44 };
    codes.e8m0 = rdt_torch.aoti_torch_dtype_float8_e8m0fnu ? rdt_torch.aoti_torch_dtype_float8_e8m0fnu()
                                                           : SCALAR_TYPE_FLOAT8_E8M0FNU;
    codes.cpu = rdt_torch.aoti_torch_device_type_cpu();
}

// Binds torch (the folder of its libraries) and registers every op for the host and, where torch has it, for cards. Once a
// process. NULL on success, else why not: the caller then registers from Python.
RDT_API const char *rdt_register(const char *torch_folder, int32_t with_cards);
RDT_API const char *rdt_register(const char *torch_folder, int32_t with_cards) {
    static char why[128];
    static rdt_library schemas, kernels[2]; // kept: deleting one would unregister its ops
    const char *missing;
    if (!rdt_shim_bind(torch_folder, &missing)) {
        snprintf(why, sizeof why, "torch's stable shim lacks %s (it comes with torch 2.10)", missing);
        return why;
    }
    read_codes();
    if (rdt_torch.aoti_torch_library_init_fragment("radiance", "radiance", 0, &schemas))
        return "torch refused a library fragment named radiance";
    for (int i = 0; i < OPS; i++)
        if (rdt_torch.aoti_torch_library_def(schemas, ops[i].schema)) {
            snprintf(why, sizeof why, "torch refused the schema of radiance::%s", ops[i].name);
            return why;
        }
    for (int key = 0; key < (with_cards ? 2 : 1); key++) {
        if (rdt_torch.aoti_torch_library_init_impl("radiance", key ? "CUDA" : "CPU", "radiance", 0,
                                                   &kernels[key]))
            return "torch refused an implementation library";
        for (int i = 0; i < OPS; i++)
            if (rdt_torch.aoti_torch_library_impl(kernels[key], ops[i].name, ops[i].kernel)) {
                snprintf(why, sizeof why, "torch refused the kernel of radiance::%s", ops[i].name);
                return why;
            }
    }
    return NULL;
}

// ---- threads: torch's own pool, so that no second one spins on the same cores ---------------------------------------
typedef struct pool_job {
    void (*body)(void *arg, int64_t i);
    void *arg;
} pool_job;

static void pool_range(int64_t begin, int64_t end, void *state) {
    const pool_job *job = state;
    for (int64_t i = begin; i < end; i++) job->body(job->arg, i);
}

static void torch_pool(void *state, int64_t n, void (*body)(void *arg, int64_t i), void *arg) {
    (void)state;
    pool_job job = {body, arg};
    if (rdt_torch.torch_parallel_for(0, n, 1, pool_range, &job)) pool_range(0, n, &job);
}

// The host's context runs on torch's threads from here on; how many they are, 0 when they are not to be had.
RDT_API int32_t rdt_use_torch_threads(const char *device_name);
RDT_API int32_t rdt_use_torch_threads(const char *device_name) {
    uint32_t threads = 0;
    if (!rdt_torch.torch_parallel_for || rdt_torch.torch_get_num_threads(&threads) || threads < 1) return 0;
    return rdt_device_configure(0, device_name, (int32_t)threads, torch_pool) == RD_OK ? (int32_t)threads : 0;
}
