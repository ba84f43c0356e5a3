// SPDX-License-Identifier: Apache-2.0
// See deepgemm.h. What the driver takes (types and numbers of its reference) is declared here anew.
#include "deepgemm.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAP_U8 = 0, MAP_F32 = 7, MAP_BF16 = 9, PROMOTE_256 = 3, MOST_DYNAMIC_SHARED = 8, MOST_CELLS = 256 };
enum { ATTRIBUTE_CLUSTER = 4, ATTRIBUTE_DEPENDENT = 6 };

typedef struct tensor_map {
    _Alignas(64) uint64_t words[16];
} tensor_map;
typedef struct attribute {
    int id;
    char pad[4];
    union {
        char bytes[64];
        unsigned cluster[3];
        int dependent;
    } value;
} attribute;
typedef struct launch {
    unsigned grid[3], block[3], shared_bytes;
    void *stream;
    attribute *attributes;
    unsigned attribute_count;
} launch;

typedef struct cell { // a line of kernels.txt
    int m, n, k;
    char name[40];
    int sms, threads, shared_bytes, cluster, block_m, block_k, load_m, load_n, store_m, store_n, swizzle_a,
        swizzle_w, swizzle_c;
    void *kernel;
} cell;

#define FUNCTIONS(F)                                                                                         \
    F(cuInit, (unsigned))                                                                                    \
    F(cuDeviceGet, (int *device, int index))                                                                 \
    F(cuDevicePrimaryCtxRetain, (void **context, int device))                                                \
    F(cuCtxSetCurrent, (void *context))                                                                      \
    F(cuLibraryLoadFromFile,                                                                                 \
      (void **library, const char *path, void *a, void *b, unsigned c, void *d, void *e, unsigned f))        \
    F(cuLibraryEnumerateKernels, (void **kernels, unsigned count, void *library))                            \
    F(cuKernelGetFunction, (void **function, void *kernel))                                                  \
    F(cuFuncSetAttribute, (void *function, int which, int value))                                            \
    F(cuTensorMapEncodeTiled,                                                                                \
      (void *map, int type, uint32_t rank, void *base, const uint64_t *dim, const uint64_t *stride,          \
       const uint32_t *box, const uint32_t *step, int interleave, int swizzle, int promotion, int fill))     \
    F(cuLaunchKernelEx, (const launch *launch, void *function, void **args, void **extra))

struct deepgemm {
    char folder[400];
    cell cells[MOST_CELLS];
    int count;
    cell *now;
    deepgemm_gemm gemm;
    tensor_map a_map, a_scale_map;
#define MEMBER(name_, params_) int(*name_) params_;
    FUNCTIONS(MEMBER)
#undef MEMBER
};

static const char *bind(deepgemm *dg) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    const char *missing = library ? NULL : "libcuda.so.1";
#define BIND(name_, params_)                                                                                 \
    do {                                                                                                     \
        void *symbol = library ? dlsym(library, #name_) : NULL;                                              \
        memcpy(&dg->name_, &symbol, sizeof symbol);                                                          \
        if (!symbol && !missing) missing = #name_;                                                           \
    } while (0);
    FUNCTIONS(BIND)
#undef BIND
    return missing;
}

// The card's memory lies in the primary context, which the library made current for its own calls alone.
static int enter(deepgemm *dg) {
    int device = 0, error = dg->cuInit(0);
    void *context = NULL;
    if (!error) error = dg->cuDeviceGet(&device, 0);
    if (!error) error = dg->cuDevicePrimaryCtxRetain(&context, device);
    return error ? error : dg->cuCtxSetCurrent(context);
}

static void read_cells(deepgemm *dg, FILE *file) {
    cell c = {0};
    while (dg->count < MOST_CELLS &&
           fscanf(file, "%d %d %d %39s %d %d %d %d %d %d %d %d %d %d %d %d %d", &c.m, &c.n, &c.k, c.name,
                  &c.sms, &c.threads, &c.shared_bytes, &c.cluster, &c.block_m, &c.block_k, &c.load_m,
                  &c.load_n, &c.store_m, &c.store_n, &c.swizzle_a, &c.swizzle_w, &c.swizzle_c) == 17)
        dg->cells[dg->count++] = c;
}

deepgemm *deepgemm_open(const char *folder, char *why, size_t why_bytes) {
    char path[512];
    deepgemm *dg = calloc(1, sizeof *dg);
    snprintf(path, sizeof path, "%s/kernels.txt", folder);
    FILE *file = fopen(path, "r");
    const char *missing = !file || !dg ? path : bind(dg);
    int error = missing ? 0 : enter(dg);
    if (!missing && !error) {
        snprintf(dg->folder, sizeof dg->folder, "%s", folder);
        read_cells(dg, file);
    } else {
        snprintf(why, why_bytes, "%s %d", missing ? missing : "the primary context: error", error);
        free(dg);
        dg = NULL;
    }
    if (file) fclose(file);
    return dg;
}

void deepgemm_close(deepgemm *dg) {
    free(dg);
}

static int swizzle_word(int bytes) {
    return bytes == 128 ? 3 : bytes == 64 ? 2 : bytes == 32 ? 1 : 0;
}

// A row-major [outer, inner] matrix in boxes; a swizzle of s bytes makes them s bytes wide.
static int encode(deepgemm *dg, tensor_map *map, int type, int elem, void *base, int64_t inner, int64_t outer,
                  int box_inner, int box_outer, int swizzle) {
    const uint64_t dim[2] = {(uint64_t)inner, (uint64_t)outer}, stride[1] = {(uint64_t)(inner * elem)};
    const uint32_t box[2] = {(uint32_t)(swizzle ? swizzle / elem : box_inner), (uint32_t)box_outer},
                   step[2] = {1, 1};
    return dg->cuTensorMapEncodeTiled(map, type, 2, base, dim, stride, box, step, 0, swizzle_word(swizzle),
                                      PROMOTE_256, 0);
}

static int load(deepgemm *dg, cell *c) {
    char path[512];
    void *library = NULL, *kernel = NULL;
    snprintf(path, sizeof path, "%s/%s.cubin", dg->folder, c->name);
    int error = dg->cuLibraryLoadFromFile(&library, path, NULL, NULL, 0, NULL, NULL, 0);
    if (!error) error = dg->cuLibraryEnumerateKernels(&kernel, 1, library);
    if (!error) error = dg->cuKernelGetFunction(&c->kernel, kernel);
    if (!error) error = dg->cuFuncSetAttribute(c->kernel, MOST_DYNAMIC_SHARED, c->shared_bytes);
    return error;
}

bool deepgemm_plan(deepgemm *dg, const deepgemm_gemm *g, char *why, size_t why_bytes) {
    dg->now = NULL;
    dg->gemm = *g;
    for (int i = 0; i < dg->count; i++)
        if (dg->cells[i].m == g->m && dg->cells[i].n == g->n && dg->cells[i].k == g->k)
            dg->now = &dg->cells[i];
    cell *c = dg->now;
    int error = 0;
    if (!c) {
        snprintf(why, why_bytes, "no kernel of DeepGEMM for %lld x %lld x %lld in %.400s", (long long)g->m,
                 (long long)g->n, (long long)g->k, dg->folder);
        return false;
    }
    const int64_t aligned = (g->m + 3) / 4 * 4;
    if (!c->kernel) error = load(dg, c);
    if (!error)
        error = encode(dg, &dg->a_map, MAP_U8, 1, g->a, g->k, g->m, c->block_k, c->load_m, c->swizzle_a);
    if (!error)
        error = encode(dg, &dg->a_scale_map, MAP_F32, 4, g->a_scale, aligned, (g->k + 127) / 128, c->block_m,
                       1, 0);
    if (error) snprintf(why, why_bytes, "DeepGEMM's kernel %s: error %d", c->name, error);
    return !error;
}

int deepgemm_run(deepgemm *dg, void *w, void *out, void *stream, bool dependent) {
    const cell *c = dg->now;
    const deepgemm_gemm *g = &dg->gemm;
    tensor_map w_map, c_map;
    int error = encode(dg, &w_map, MAP_U8, 1, w, g->k, g->n, c->block_k, c->load_n, c->swizzle_w);
    if (!error)
        error = encode(dg, &c_map, MAP_BF16, 2, out, g->n, g->m, c->store_n, c->store_m, c->swizzle_c);
    if (error) return error;
    void *w_scale = g->w_scale, *grouped = NULL;
    uint32_t m = (uint32_t)g->m, n = (uint32_t)g->n, k = (uint32_t)g->k;
    void *args[] = {&w_scale, &grouped, &m, &n, &k, &dg->a_map, &w_map, &c_map, &dg->a_scale_map};
    attribute attributes[2];
    launch l = {.grid = {(unsigned)c->sms, 1, 1},
                .block = {(unsigned)c->threads, 1, 1},
                .shared_bytes = (unsigned)c->shared_bytes,
                .stream = stream,
                .attributes = attributes};
    memset(attributes, 0, sizeof attributes);
    if (c->cluster > 1) {
        attribute *cluster = &attributes[l.attribute_count++];
        cluster->id = ATTRIBUTE_CLUSTER;
        cluster->value.cluster[0] = (unsigned)c->cluster;
        cluster->value.cluster[1] = cluster->value.cluster[2] = 1;
    }
    if (dependent) {
        attribute *edge = &attributes[l.attribute_count++];
        edge->id = ATTRIBUTE_DEPENDENT;
        edge->value.dependent = 1;
    }
    return dg->cuLaunchKernelEx(&l, c->kernel, args, NULL);
}
