// SPDX-License-Identifier: Apache-2.0
// See deepgemm.h.
#include "deepgemm.h"

#include "cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAP_U8 = 0, MAP_F32 = 7, MAP_BF16 = 9, PROMOTE_256 = 3, MOST_DYNAMIC_SHARED = 8, MOST_CELLS = 256 };

typedef struct cell { // a line of kernels.txt
    int m, n, k;
    char name[40];
    int sms, threads, shared_bytes, cluster, block_m, block_k, load_m, load_n, store_m, store_n, swizzle_a,
        swizzle_w, swizzle_c;
    void *kernel;
} cell;

struct deepgemm {
    char folder[400];
    cell cells[MOST_CELLS];
    int count;
    cell *now;
    deepgemm_gemm gemm;
    cuda_tensor_map a_map, a_scale_map;
    cuda_driver cuda;
};

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
    const bool there = file && dg;
    if (!there) snprintf(why, why_bytes, "cannot read %s", path);
    if (there && cuda_open(&dg->cuda, why, why_bytes)) {
        snprintf(dg->folder, sizeof dg->folder, "%s", folder);
        read_cells(dg, file);
    } else {
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
static int encode(deepgemm *dg, cuda_tensor_map *map, int type, int elem, void *base, int64_t inner,
                  int64_t outer, int box_inner, int box_outer, int swizzle) {
    const uint64_t dim[2] = {(uint64_t)inner, (uint64_t)outer}, stride[1] = {(uint64_t)(inner * elem)};
    const uint32_t box[2] = {(uint32_t)(swizzle ? swizzle / elem : box_inner), (uint32_t)box_outer},
                   step[2] = {1, 1};
    return dg->cuda.cuTensorMapEncodeTiled(map, type, 2, base, dim, stride, box, step, 0,
                                           swizzle_word(swizzle), PROMOTE_256, 0);
}

static int load(deepgemm *dg, cell *c) {
    char path[512];
    void *library = NULL, *kernel = NULL;
    snprintf(path, sizeof path, "%s/%s.cubin", dg->folder, c->name);
    int error = dg->cuda.cuLibraryLoadFromFile(&library, path, NULL, NULL, 0, NULL, NULL, 0);
    if (!error) error = dg->cuda.cuLibraryEnumerateKernels(&kernel, 1, library);
    if (!error) error = dg->cuda.cuKernelGetFunction(&c->kernel, kernel);
    if (!error) error = dg->cuda.cuFuncSetAttribute(c->kernel, MOST_DYNAMIC_SHARED, c->shared_bytes);
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
    cuda_tensor_map w_map, c_map;
    int error = encode(dg, &w_map, MAP_U8, 1, w, g->k, g->n, c->block_k, c->load_n, c->swizzle_w);
    if (!error)
        error = encode(dg, &c_map, MAP_BF16, 2, out, g->n, g->m, c->store_n, c->store_m, c->swizzle_c);
    if (error) return error;
    void *w_scale = g->w_scale, *grouped = NULL;
    uint32_t m = (uint32_t)g->m, n = (uint32_t)g->n, k = (uint32_t)g->k;
    void *args[] = {&w_scale, &grouped, &m, &n, &k, &dg->a_map, &w_map, &c_map, &dg->a_scale_map};
    return cuda_start(&dg->cuda, c->kernel, (unsigned)c->sms, (const unsigned[2]){(unsigned)c->threads, 1},
                      (unsigned)c->shared_bytes, c->cluster, dependent, args, stream);
}
