// SPDX-License-Identifier: Apache-2.0
// oneDNN's bf16 matmul as a rival of the GEMM benches: C (f32) = A (bf16) W (bf16)^T, weights in the layout that oneDNN asks
// for, packed before timing. README.md says how to build it.
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_COPIES = 4096 };
static struct {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_t matmul;
    dnnl_memory_t a, c, w[MOST_COPIES];
    int copies;
} g;

#define TRY(call_)                                                                                           \
    do {                                                                                                     \
        dnnl_status_t status_ = (call_);                                                                     \
        if (status_ != dnnl_success) {                                                                       \
            fprintf(stderr, "onednn: %s: status %d\n", #call_, (int)status_);                                \
            return 1;                                                                                        \
        }                                                                                                    \
    } while (0)

const char *rival_version(void) {
    static char text[64];
    const dnnl_version_t *v = dnnl_version();
    snprintf(text, sizeof text, "oneDNN %d.%d.%d bf16 matmul", v->major, v->minor, v->patch);
    return text;
}

static int make_memory(dnnl_memory_t *memory, const dnnl_memory_desc_t *desc) {
    TRY(dnnl_memory_create(memory, desc, g.engine, DNNL_MEMORY_ALLOCATE));
    void *data;
    TRY(dnnl_memory_get_data_handle(*memory, &data));
    memset(data, 0x3c, dnnl_memory_desc_get_size(desc)); // 0x3c3c: a small bf16
    return 0;
}

int rival_gemm_open(int64_t m, int64_t n, int64_t k, int copies, int threads) {
    omp_set_num_threads(threads);
    dnnl_memory_desc_t a, w, c;
    dnnl_dims_t a_dims = {m, k}, w_dims = {k, n}, c_dims = {m, n};
    TRY(dnnl_engine_create(&g.engine, dnnl_cpu, 0));
    TRY(dnnl_stream_create(&g.stream, g.engine, dnnl_stream_default_flags));
    TRY(dnnl_memory_desc_init_by_tag(&a, 2, a_dims, dnnl_bf16, dnnl_ab));
    TRY(dnnl_memory_desc_init_by_tag(&w, 2, w_dims, dnnl_bf16, dnnl_format_tag_any));
    TRY(dnnl_memory_desc_init_by_tag(&c, 2, c_dims, dnnl_f32, dnnl_ab));
    dnnl_matmul_desc_t desc;
    dnnl_primitive_desc_t pd;
    TRY(dnnl_matmul_desc_init(&desc, &a, &w, NULL, &c));
    TRY(dnnl_primitive_desc_create(&pd, &desc, NULL, g.engine, NULL));
    const char *name;
    if (dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name) == dnnl_success)
        fprintf(stderr, "onednn: %s, %d threads\n", name, threads);
    const dnnl_memory_desc_t *packed = dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
    TRY(dnnl_primitive_create(&g.matmul, pd));
    if (make_memory(&g.a, &a) || make_memory(&g.c, &c)) return 1;
    g.copies = copies < MOST_COPIES ? copies : MOST_COPIES;
    for (int i = 0; i < g.copies; i++)
        if (make_memory(&g.w[i], packed)) return 1;
    dnnl_primitive_desc_destroy(pd);
    return 0;
}

int rival_gemm_run(int copy) {
    dnnl_exec_arg_t args[] = {
        {DNNL_ARG_SRC, g.a}, {DNNL_ARG_WEIGHTS, g.w[copy % g.copies]}, {DNNL_ARG_DST, g.c}};
    TRY(dnnl_primitive_execute(g.matmul, g.stream, 3, args));
    TRY(dnnl_stream_wait(g.stream));
    return 0;
}

void rival_gemm_close(void) {
    dnnl_memory_destroy(g.a);
    dnnl_memory_destroy(g.c);
    for (int i = 0; i < g.copies; i++) dnnl_memory_destroy(g.w[i]);
    dnnl_primitive_destroy(g.matmul);
    dnnl_stream_destroy(g.stream);
    dnnl_engine_destroy(g.engine);
    memset(&g, 0, sizeof g);
}
