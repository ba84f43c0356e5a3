// SPDX-License-Identifier: Apache-2.0
// Contexts, kept plans, scratch, and the block-FP8 linear call. M is not part of a plan's key: the plan holds a row for
// every M, so the choice is made when the op runs and no traced graph can freeze it.
#include "layer.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICES = 17, PLANS = 4096, TEXT = 240, CALL_ROWS = 1 << 24 };
const char *const rdt_layouts[3] = {"row", "shuffle16", "panel16"};

typedef struct device_slot {
    char name[32];
    int32_t threads;
    rd_parallel_for_fn parallel_for;
    _Atomic(rd_ctx *) ctx;
} device_slot;
static device_slot devices[DEVICES];

typedef struct kept_plan {
    uint64_t hash;
    char question[TEXT]; // op and parameters as text: what two equal questions share
    rd_plan *plan;
} kept_plan;
static _Atomic(kept_plan *) plans[PLANS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

rd_status rdt_device_configure(int32_t device, const char *name, int32_t threads,
                               rd_parallel_for_fn parallel_for) {
    if (device < 0 || device >= DEVICES || !name || strlen(name) >= sizeof devices[0].name)
        return RD_E_INVALID;
    pthread_mutex_lock(&lock);
    device_slot *slot = &devices[device];
    bool used = atomic_load(&slot->ctx) != NULL;
    if (!used) {
        snprintf(slot->name, sizeof slot->name, "%s", name);
        slot->threads = threads;
        slot->parallel_for = parallel_for;
    }
    pthread_mutex_unlock(&lock);
    return used ? RD_E_STATE : RD_OK;
}

static rd_status make_context(int32_t device, rd_ctx **out) {
    device_slot *slot = &devices[device];
    char fallback[32];
    snprintf(fallback, sizeof fallback, "gpu:%d", device - 1);
    rd_ctx_options options = {.struct_size = sizeof options,
                              .device = slot->name[0] ? slot->name
                                        : device      ? fallback
                                                      : "cpu",
                              .threads = slot->threads,
                              .parallel_for = slot->parallel_for};
    return rd_ctx_create(&options, out);
}

rd_status rdt_context(int32_t device, rd_ctx **out) {
    if (device < 0 || device >= DEVICES) return RD_E_INVALID;
    *out = atomic_load_explicit(&devices[device].ctx, memory_order_acquire);
    if (*out) return RD_OK;
    pthread_mutex_lock(&lock);
    *out = atomic_load(&devices[device].ctx);
    rd_status status = *out ? RD_OK : make_context(device, out);
    if (status == RD_OK) atomic_store_explicit(&devices[device].ctx, *out, memory_order_release);
    pthread_mutex_unlock(&lock);
    return status;
}

int32_t rdt_context_made(int32_t device) {
    return device >= 0 && device < DEVICES && atomic_load(&devices[device].ctx) != NULL;
}

// FNV-1a over the words, a multiplication for each number. An op's questions always give the same keys in the same order.
static uint64_t mix(uint64_t hash, const void *data, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ ((const unsigned char *)data)[i]) * 0x100000001b3u;
    return hash;
}

static uint64_t hash_of(int32_t device, const char *op, const rd_param *params, int32_t count,
                        int64_t limit) {
    uint64_t hash = mix(0xcbf29ce484222325u, op, strlen(op)) ^ (uint64_t)device ^ (uint64_t)limit << 8;
    for (int32_t i = 0; i < count; i++)
        hash = params[i].word ? mix(hash, params[i].word, strlen(params[i].word))
                              : (hash ^ (uint64_t)params[i].i) * 0x9e3779b97f4a7c15u;
    return hash;
}

static void question_text(int32_t device, const char *op, const rd_param *params, int32_t count,
                          int64_t limit, char *text) {
    int at = snprintf(text, TEXT, "%d %s %lld", device, op, (long long)limit);
    for (int32_t i = 0; i < count && at < TEXT; i++)
        at += params[i].word ? snprintf(text + at, (size_t)(TEXT - at), " %s", params[i].word)
                             : snprintf(text + at, (size_t)(TEXT - at), " %lld", (long long)params[i].i);
}

static bool reference_only;

void rdt_use_reference(int32_t on) {
    reference_only = on != 0;
}

// The plan that the library's policy makes, or, to tell a kernel's fault from a model's, the plain-C reference of the op.
static rd_status make_plan(rd_ctx *ctx, const char *op, const rd_param *params, int32_t count, int64_t limit,
                           rd_plan **out) {
    int64_t lo = limit ? 1 : 0;
    const rd_kernel_info *info;
    for (int32_t i = 0; reference_only && (info = rd_kernel_at(i)); i++)
        if (info->is_reference && !strcmp(info->op, op))
            return rd_plan_create_kernel(ctx, info->name, params, count, lo, limit, out);
    return rd_plan_create(ctx, op, params, count, lo, limit, out);
}

static rd_status keep_plan(int32_t device, const char *op, const rd_param *params, int32_t count,
                           int64_t limit, uint64_t hash, const rd_plan **out) {
    rd_ctx *ctx;
    rd_status status = rdt_context(device, &ctx);
    if (status != RD_OK) return status;
    char question[TEXT];
    question_text(device, op, params, count, limit, question);
    pthread_mutex_lock(&lock);
    status = RD_E_LIMIT;
    for (uint64_t i = 0; i < PLANS; i++) {
        _Atomic(kept_plan *) *slot = &plans[(hash + i) % PLANS];
        kept_plan *kept = atomic_load(slot);
        if (kept && (kept->hash != hash || strcmp(kept->question, question))) continue;
        if (!kept) {
            kept = calloc(1, sizeof *kept);
            status = kept ? make_plan(ctx, op, params, count, limit, &kept->plan) : RD_E_NOMEM;
            if (status != RD_OK) {
                free(kept);
                break;
            }
            kept->hash = hash;
            memcpy(kept->question, question, TEXT);
            atomic_store_explicit(slot, kept, memory_order_release);
        }
        *out = kept->plan;
        status = RD_OK;
        break;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

rd_status rdt_plan(int32_t device, const char *op, const rd_param *params, int32_t count, int64_t limit,
                   const rd_plan **out) {
    uint64_t hash = hash_of(device, op, params, count, limit);
    for (uint64_t i = 0; i < PLANS; i++) {
        kept_plan *kept = atomic_load_explicit(&plans[(hash + i) % PLANS], memory_order_acquire);
        if (!kept) break;
        // Two questions with one 64-bit hash: one in 2^50 at a thousand plans, and run entries check every size anyway.
        if (kept->hash != hash) continue;
        *out = kept->plan;
        return RD_OK;
    }
    return keep_plan(device, op, params, count, limit, hash, out);
}

rd_status rdt_plan_ready(int32_t device, const char *op, const rd_param *params, int32_t count,
                         int64_t limit) {
    const rd_plan *plan;
    return rdt_plan(device, op, params, count, limit, &plan);
}

// ---- scratch -------------------------------------------------------------------------------------------------------
typedef struct thread_memory {
    void *data;
    size_t bytes;
} thread_memory;
static pthread_key_t memory_key;
static pthread_once_t memory_once = PTHREAD_ONCE_INIT;

static void free_memory(void *state) {
    thread_memory *memory = state;
    free(memory->data);
    free(memory);
}

static void make_key(void) {
    pthread_key_create(&memory_key, free_memory);
}

void *rdt_scratch_get(const rdt_scratch *scratch, size_t bytes) {
    if (scratch->get) return scratch->get(scratch->state, bytes);
    pthread_once(&memory_once, make_key);
    thread_memory *memory = pthread_getspecific(memory_key);
    if (!memory) {
        memory = calloc(1, sizeof *memory);
        if (!memory || pthread_setspecific(memory_key, memory)) {
            free(memory);
            return NULL;
        }
    }
    if (memory->bytes >= bytes) return memory->data;
    size_t wanted = (bytes + 4095) / 4096 * 4096; // whole pages
    void *data = aligned_alloc(64, wanted);
    if (!data) return NULL;
    free(memory->data);
    *memory = (thread_memory){data, wanted};
    return data;
}

// ---- block-FP8 linear ----------------------------------------------------------------------------------------------
static size_t align64(size_t bytes) {
    return (bytes + 63) / 64 * 64;
}

// vLLM promises no bits across batch sizes, so rows of any order of sums may run.
static rd_status gemm_plan(const rdt_linear_call *call, rd_dtype a_dtype, const rd_plan **out) {
    const rd_param question[] = {RD_INT("n", call->c.shape[1]),
                                 RD_INT("k", call->x.shape[1]),
                                 RD_WORD("a_dtype", rd_dtype_name(a_dtype)),
                                 RD_WORD("w_scale_dtype", rd_dtype_name(call->w_scale.dtype)),
                                 RD_WORD("c_dtype", rd_dtype_name(call->c.dtype)),
                                 RD_WORD("layout", rdt_layouts[call->layout]),
                                 RD_INT("bias", call->bias.data != NULL),
                                 RD_WORD("order", "any")};
    const char *op = call->quantise ? "gemm_fp8block" : "gemm_fp8block_w8a16";
    return rdt_plan(call->x.device, op, question, 8, call->rows ? call->rows : CALL_ROWS, out);
}

static rd_status quant_plan(const rdt_linear_call *call, const rd_plan **out) {
    const rd_param question[] = {RD_INT("k", call->x.shape[1]),
                                 RD_WORD("x_dtype", rd_dtype_name(call->x.dtype)), RD_WORD("fuse", "none")};
    return rdt_plan(call->x.device, "quant_fp8", question, 3, CALL_ROWS, out);
}

// Scratch of the call: workspace | codes | scales; the sizes are asked first, so one piece serves all.
rd_status rdt_linear_run(const rdt_linear_call *call) {
    if (call->layout < 0 || call->layout > 2) return RD_E_INVALID;
    int64_t m = call->x.shape[0], k = call->x.shape[1], blocks = (k + 127) / 128;
    const rd_plan *gemm, *quant = NULL;
    rd_status status = gemm_plan(call, call->quantise ? RD_DTYPE_E4M3 : call->x.dtype, &gemm);
    if (status == RD_OK && call->quantise) status = quant_plan(call, &quant);
    if (status != RD_OK || m == 0)
        return status; // no rows: the plans are made, which is what loading a layer wants
    rd_gemm_args args = {.struct_size = sizeof args,
                         .a = call->x,
                         .w = call->w,
                         .w_scale = call->w_scale,
                         .bias = call->bias,
                         .c = call->c};
    // Sizes are asked with a stand-in address, which the entries do not read then.
    static _Alignas(64) char nowhere[64];
    rd_quant_args q = {.struct_size = sizeof q, .x = call->x};
    size_t gemm_bytes = 0, quant_bytes = 0, codes = 0, scales = 0;
    if (quant) {
        args.a = q.q = rd_tensor_2d(nowhere, RD_DTYPE_E4M3, m, k);
        args.a_scale = q.q_scale = rd_tensor_2d(nowhere, RD_DTYPE_F32, m, blocks);
        args.a.device = q.q.device = args.a_scale.device = q.q_scale.device = call->x.device;
        codes = align64((size_t)(m * k));
        scales = align64((size_t)(m * blocks) * sizeof(float));
        status = rd_quant_run(quant, &q, NULL, &quant_bytes, call->stream);
    }
    if (status == RD_OK) status = rd_gemm_run(gemm, &args, NULL, &gemm_bytes, call->stream);
    if (status != RD_OK) return status;
    size_t work = align64(gemm_bytes > quant_bytes ? gemm_bytes : quant_bytes);
    char *memory = work + codes + scales ? rdt_scratch_get(&call->scratch, work + codes + scales) : NULL;
    if (work + codes + scales && !memory) return RD_E_NOMEM;
    if (quant) {
        args.a.data = q.q.data = memory + work;
        args.a_scale.data = q.q_scale.data = memory + work + codes;
        status = rd_quant_run(quant, &q, memory, quant_bytes ? &quant_bytes : NULL, call->stream);
        if (status != RD_OK) return status;
    }
    return rd_gemm_run(gemm, &args, memory, gemm_bytes ? &gemm_bytes : NULL, call->stream);
}
