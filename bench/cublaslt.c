// SPDX-License-Identifier: Apache-2.0
// The calls of cuBLASLt that a block-FP8 product takes, or a bf16 one: weights are its A (transposed), activations its B, all columns of memory.
#include "cublaslt.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COMPUTE_F32 = 68, R_F32 = 0, R_BF16 = 14, R_E4M3 = 28, TRANSPOSED = 1 };
enum {
    DESC_TRANSA = 3,
    DESC_A_SCALE = 17,
    DESC_B_SCALE = 18,
    DESC_A_SCALE_MODE = 31,
    DESC_B_SCALE_MODE = 32
};
enum { SCALE_VEC128 = 4, SCALE_BLOCK128 = 5, PREFERENCE_WORKSPACE = 1 };

typedef struct algorithm {
    uint64_t data[8];
} algorithm;
typedef struct heuristic {
    algorithm choice;
    size_t workspace_bytes;
    int state;
    float waves;
    int reserved[4];
} heuristic;

// F(name, parameters): each returns a status, 0 = success.
#define FUNCTIONS(F)                                                                                         \
    F(cublasLtCreate, (void **handle))                                                                       \
    F(cublasLtMatmulDescCreate, (void **desc, int compute, int scale))                                       \
    F(cublasLtMatmulDescDestroy, (void *desc))                                                               \
    F(cublasLtMatmulDescSetAttribute, (void *desc, int which, const void *value, size_t bytes))              \
    F(cublasLtMatrixLayoutCreate,                                                                            \
      (void **layout, int type, uint64_t rows, uint64_t columns, int64_t stride))                            \
    F(cublasLtMatrixLayoutDestroy, (void *layout))                                                           \
    F(cublasLtMatmulPreferenceCreate, (void **preference))                                                   \
    F(cublasLtMatmulPreferenceDestroy, (void *preference))                                                   \
    F(cublasLtMatmulPreferenceSetAttribute, (void *preference, int which, const void *value, size_t bytes))  \
    F(cublasLtMatmulAlgoGetHeuristic, (void *handle, void *desc, void *a, void *b, void *c, void *d,         \
                                       void *preference, int asked, heuristic *found, int *count))           \
    F(cublasLtMatmul,                                                                                        \
      (void *handle, void *desc, const void *alpha, const void *a, void *a_layout, const void *b,            \
       void *b_layout, const void *beta, const void *c, void *c_layout, void *d, void *d_layout,             \
       const algorithm *choice, void *ws, size_t ws_bytes, void *stream))

struct cublaslt {
    void *handle, *desc, *a, *b, *d;
    heuristic found[CUBLASLT_CHOICES];
    cublaslt_gemm gemm;
#define MEMBER(name_, params_) int(*name_) params_;
    FUNCTIONS(MEMBER)
#undef MEMBER
};

cublaslt *cublaslt_open(const char *path, char *why, size_t why_bytes) {
    static const char *const usual[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"};
    void *library = path ? dlopen(path, RTLD_NOW) : NULL;
    for (size_t i = 0; !path && !library && i < sizeof usual / sizeof *usual; i++)
        library = dlopen(usual[i], RTLD_NOW);
    cublaslt *lt = library ? calloc(1, sizeof *lt) : NULL;
    if (!lt) {
        snprintf(why, why_bytes, "%s", library ? "out of memory" : dlerror());
        return NULL;
    }
    const char *missing = NULL;
#define BIND(name_, params_)                                                                                 \
    do {                                                                                                     \
        void *symbol = dlsym(library, #name_);                                                               \
        memcpy(&lt->name_, &symbol, sizeof symbol);                                                          \
        if (!symbol) missing = #name_;                                                                       \
    } while (0);
    FUNCTIONS(BIND)
#undef BIND
    int error = missing ? 0 : lt->cublasLtCreate(&lt->handle);
    if (!missing && !error) return lt;
    snprintf(why, why_bytes, missing ? "no %s" : "%s%d", missing ? missing : "cublasLtCreate: ", error);
    free(lt);
    return NULL;
}

static void forget(cublaslt *lt) {
    if (lt->desc) lt->cublasLtMatmulDescDestroy(lt->desc);
    if (lt->a) lt->cublasLtMatrixLayoutDestroy(lt->a);
    if (lt->b) lt->cublasLtMatrixLayoutDestroy(lt->b);
    if (lt->d) lt->cublasLtMatrixLayoutDestroy(lt->d);
    lt->desc = lt->a = lt->b = lt->d = NULL;
}

int cublaslt_plan(cublaslt *lt, const cublaslt_gemm *g, char *why, size_t why_bytes) {
    const int transposed = TRANSPOSED, blocks = SCALE_BLOCK128, vectors = SCALE_VEC128,
              type = g->bf16 ? R_BF16 : R_E4M3;
    void *preference = NULL;
    int count = 0, error = 0;
    forget(lt);
    lt->gemm = *g;
    error |= lt->cublasLtMatmulDescCreate(&lt->desc, COMPUTE_F32, R_F32);
    error |= lt->cublasLtMatmulDescSetAttribute(lt->desc, DESC_TRANSA, &transposed, sizeof transposed);
    if (!g->bf16) {
        error |= lt->cublasLtMatmulDescSetAttribute(lt->desc, DESC_A_SCALE_MODE, &blocks, sizeof blocks);
        error |= lt->cublasLtMatmulDescSetAttribute(lt->desc, DESC_B_SCALE_MODE, &vectors, sizeof vectors);
        error |= lt->cublasLtMatmulDescSetAttribute(lt->desc, DESC_A_SCALE, &g->w_scale, sizeof g->w_scale);
        error |= lt->cublasLtMatmulDescSetAttribute(lt->desc, DESC_B_SCALE, &g->a_scale, sizeof g->a_scale);
    }
    error |= lt->cublasLtMatrixLayoutCreate(&lt->a, type, (uint64_t)g->k, (uint64_t)g->n, g->k);
    error |= lt->cublasLtMatrixLayoutCreate(&lt->b, type, (uint64_t)g->k, (uint64_t)g->m, g->k);
    error |= lt->cublasLtMatrixLayoutCreate(&lt->d, R_BF16, (uint64_t)g->n, (uint64_t)g->m, g->n);
    error |= lt->cublasLtMatmulPreferenceCreate(&preference);
    error |= lt->cublasLtMatmulPreferenceSetAttribute(preference, PREFERENCE_WORKSPACE, &g->ws_bytes,
                                                      sizeof g->ws_bytes);
    if (!error)
        error = lt->cublasLtMatmulAlgoGetHeuristic(lt->handle, lt->desc, lt->a, lt->b, lt->d, lt->d,
                                                   preference, CUBLASLT_CHOICES, lt->found, &count);
    if (preference) lt->cublasLtMatmulPreferenceDestroy(preference);
    if (error || !count)
        snprintf(why, why_bytes, "cuBLASLt takes no %lld x %lld x %lld: status %d", (long long)g->m,
                 (long long)g->n, (long long)g->k, error);
    return error ? 0 : count;
}

int cublaslt_run(cublaslt *lt, int choice, const void *a, const void *w, void *c, void *stream) {
    static const float one = 1, zero = 0;
    return lt->cublasLtMatmul(lt->handle, lt->desc, &one, w, lt->a, a, lt->b, &zero, c, lt->d, c, lt->d,
                              &lt->found[choice].choice, lt->gemm.ws, lt->gemm.ws_bytes, stream);
}
