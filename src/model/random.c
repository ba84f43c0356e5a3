// SPDX-License-Identifier: Apache-2.0
// Random weights for a configuration, so that a step of any shape can be timed without its checkpoint.
//
// All layers are views of one layer's bytes: host memory holds a layer, an engine's card still holds every one of them. The
// bytes are shared anonymous memory, because an engine gives pages back once it has packed them (MADV_DONTNEED): these come back
// as they were, private ones would come back as zeros.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // MAP_ANONYMOUS
#endif
#include "model/random.h"

#include "base/convert.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { PERIOD = 16777213, ALIGN_BYTES = 64 }; // a prime: no two rows of a table are the same ones

// Regions of the mapping, by their first byte.
typedef struct region {
    int64_t codes, bf16, norm, scales, bytes;
    int64_t code_count, bf16_count, norm_count, scale_count;
} region;

typedef struct maker {
    rdi_arena *arena;
    const rdi_model_config *config;
    region at;
    const uint8_t *data;
    rdi_entries *entries;
    int64_t next_scale; // of the layer that is listed
} maker;

static int64_t count_of(const int64_t shape[2]) {
    return rdi_max(shape[0], 1) * shape[1];
}
static int64_t scales_of(const int64_t shape[2]) {
    return rdi_ceil_div(shape[0], 128) * rdi_ceil_div(shape[1], 128);
}

static region lay_out(const rdi_model_config *config) {
    region at = {.norm_count = rdi_max(config->hidden, config->head_dim)};
    int64_t shape[2];
    for (int slot = 0; slot < RDI_LAYER_SLOTS; slot++) {
        rdi_slot_shape(config, (rdi_layer_slot)slot, shape);
        if (!shape[0]) continue;
        int64_t *most = config->fp8_block ? &at.code_count : &at.bf16_count;
        *most = rdi_max(*most, count_of(shape));
        if (config->fp8_block) at.scale_count += scales_of(shape);
    }
    rdi_model_slot_shape(config, RDI_EMBED, shape);
    at.bf16_count = rdi_max(at.bf16_count, count_of(shape));
    at.bf16 = rdi_round_up(at.code_count, ALIGN_BYTES);
    at.norm = rdi_round_up(at.bf16 + 2 * at.bf16_count, ALIGN_BYTES);
    at.scales = rdi_round_up(at.norm + 2 * at.norm_count, ALIGN_BYTES);
    at.bytes = at.scales + rdi_max(at.scale_count, 1) * (int64_t)sizeof(float);
    return at;
}

// ---- values ------------------------------------------------------------------------------------------------------------
// Bell-shaped, standard deviation 1: the sum of the four 16-bit parts of a splitmix64 number.
static float next_value(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    int32_t sum = (int32_t)(z & 0xffff) + (int32_t)(z >> 16 & 0xffff) + (int32_t)(z >> 32 & 0xffff) +
                  (int32_t)(z >> 48);
    return (float)(sum - 131070) * (1.0f / 37837.2f); // sqrt(4/12) * 65536
}

// What stands in the first `filled` bytes, again and again.
static void repeat(uint8_t *data, int64_t filled, int64_t bytes) {
    while (filled < bytes) {
        int64_t more = rdi_min(filled, bytes - filled);
        memcpy(data + filled, data, (size_t)more);
        filled += more;
    }
}

// A weight's standard deviation is 1 / sqrt(its inputs): what a layer gives is of the size of what it takes.
static void fill_matrices(const maker *m, uint8_t *data, uint64_t *state) {
    const region *at = &m->at;
    const float size = 1.0f / sqrtf((float)m->config->hidden);
    int64_t codes = rdi_min(at->code_count, PERIOD), values = rdi_min(at->bf16_count, PERIOD);
    for (int64_t i = 0; i < codes; i++)
        data[at->codes + i] = rdi_e4m3_from_f32(RDI_RANDOM_CODE_SIZE * next_value(state));
    repeat(data + at->codes, codes, at->code_count);
    uint16_t *bf16 = (uint16_t *)(void *)(data + at->bf16);
    for (int64_t i = 0; i < values; i++) bf16[i] = rdi_bf16_from_f32(size * next_value(state));
    repeat(data + at->bf16, 2 * values, 2 * at->bf16_count);
}

static void fill_norms(const maker *m, uint8_t *data, uint64_t *state) {
    uint16_t *norm = (uint16_t *)(void *)(data + m->at.norm);
    for (int64_t i = 0; i < m->at.norm_count; i++)
        norm[i] = rdi_bf16_from_f32(1.0f - m->config->norm_offset + 0.1f * next_value(state));
}

static void fill_scales(const maker *m, uint8_t *data, uint64_t *state) {
    float *scale = (float *)(void *)(data + m->at.scales);
    int64_t shape[2];
    for (int slot = 0; slot < RDI_LAYER_SLOTS && m->at.scale_count; slot++) {
        rdi_slot_shape(m->config, (rdi_layer_slot)slot, shape);
        if (!shape[0]) continue;
        const float size = 1.0f / (RDI_RANDOM_CODE_SIZE * sqrtf((float)shape[1]));
        for (int64_t i = scales_of(shape); i > 0; i--)
            *scale++ = size * (1.0f + 0.05f * next_value(state)); // 3.5 deviations at most: positive
    }
}

// ---- the table -----------------------------------------------------------------------------------------------------------
static rd_status add(maker *m, const char *name, rdi_wtype type, int32_t rank, const int64_t *shape,
                     int64_t begin) {
    rdi_entry *entry = &m->entries->entry[m->entries->count++];
    *entry = (rdi_entry){.type = type, .rank = rank, .begin = begin, .data = m->data + begin};
    entry->name = rdi_arena_strndup(m->arena, name, strlen(name));
    if (!entry->name) return RD_E_NOMEM;
    memcpy(entry->shape, shape, (size_t)rank * sizeof *shape);
    if (rdi_entry_bytes(type, shape, rank, &entry->bytes)) return RD_OK;
    return rdi_fail(RD_E_FORMAT, "tensor %s: its size overflows 64 bits", name);
}

static rd_status add_matrix(maker *m, const char *name, const int64_t shape[2], bool fp8) {
    if (!shape[0]) return add(m, name, RDI_W_BF16, 1, shape + 1, m->at.norm);
    if (!fp8) return add(m, name, RDI_W_BF16, 2, shape, m->at.bf16);
    char scale[RDI_TENSOR_MAX_NAME + 16];
    const int64_t blocks[2] = {rdi_ceil_div(shape[0], 128), rdi_ceil_div(shape[1], 128)};
    snprintf(scale, sizeof scale, "%s_scale_inv", name);
    RDI_TRY(add(m, scale, RDI_W_F32, 2, blocks, m->at.scales + m->next_scale * (int64_t)sizeof(float)));
    m->next_scale += scales_of(shape);
    return add(m, name, RDI_W_E4M3, 2, shape, m->at.codes);
}

static rd_status list_tensors(maker *m) {
    const rdi_model_config *c = m->config;
    int64_t shape[2];
    for (int slot = 0; slot < RDI_MODEL_SLOTS; slot++) {
        if (slot == RDI_HEAD && c->tied_head) continue;
        rdi_model_slot_shape(c, (rdi_model_slot)slot, shape);
        RDI_TRY(add_matrix(m, rdi_model_slot_name((rdi_model_slot)slot, false), shape, false));
    }
    for (int32_t layer = 0; layer < c->layers; layer++) {
        m->next_scale = 0;
        for (int slot = 0; slot < RDI_LAYER_SLOTS; slot++) {
            char name[RDI_TENSOR_MAX_NAME];
            if (!rdi_slot_exists(c, (rdi_layer_slot)slot)) continue;
            rdi_slot_name(c, (rdi_layer_slot)slot, layer, false, name);
            rdi_slot_shape(c, (rdi_layer_slot)slot, shape);
            RDI_TRY(add_matrix(m, name, shape, c->fp8_block));
        }
    }
    return RD_OK;
}

rd_status rdi_random_weights(rdi_arena *arena, const char *what, const rdi_model_config *config,
                             uint64_t seed, rdi_mapping *out, rdi_entries *entries) {
    rdi_entries listed = {0};
    maker m = {.arena = arena, .config = config, .at = lay_out(config), .entries = &listed};
    listed.entry = rdi_arena_alloc(arena, (size_t)(config->layers * 2 * RDI_LAYER_SLOTS + RDI_MODEL_SLOTS) *
                                              sizeof *listed.entry);
    if (!listed.entry) return RD_E_NOMEM;
    uint8_t *data = mmap(NULL, (size_t)m.at.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED)
        return rdi_fail(RD_E_NOMEM, "%s: %lld bytes of random weights: %s", what, (long long)m.at.bytes,
                        strerror(errno));
    *out = (rdi_mapping){data, (size_t)m.at.bytes}; // the caller's to unmap from here on
    m.data = data;
    uint64_t state = seed;
    fill_matrices(&m, data, &state);
    fill_norms(&m, data, &state);
    fill_scales(&m, data, &state);
    RDI_TRY(list_tensors(&m));
    entries->count = listed.count;
    return rdi_entries_merge(arena, what, &listed, 1, entries);
}
