// SPDX-License-Identifier: Apache-2.0
// Storage types and dequantisation of weight rows. Block layouts are the published ones of GGUF (ggml's block_q4_0,
// block_q4_1, block_q8_0: 32 elements a block, low nibbles first) and of block-FP8 checkpoints (128x128 scales).
#include "base/convert.h"
#include "model/model.h"

static const rdi_wtype_info types[RDI_W_COUNT] = {
    [RDI_W_NONE] = {"none", 1, 0, RD_DTYPE_NONE},    [RDI_W_F32] = {"F32", 1, 4, RD_DTYPE_F32},
    [RDI_W_F16] = {"F16", 1, 2, RD_DTYPE_F16},       [RDI_W_BF16] = {"BF16", 1, 2, RD_DTYPE_BF16},
    [RDI_W_E4M3] = {"F8_E4M3", 1, 1, RD_DTYPE_E4M3}, [RDI_W_E8M0] = {"F8_E8M0", 1, 1, RD_DTYPE_E8M0},
    [RDI_W_I32] = {"I32", 1, 4, RD_DTYPE_I32},       [RDI_W_I64] = {"I64", 1, 8, RD_DTYPE_I64},
    [RDI_W_U8] = {"U8", 1, 1, RD_DTYPE_U8},          [RDI_W_Q4_0] = {"Q4_0", 32, 18, RD_DTYPE_NONE},
    [RDI_W_Q4_1] = {"Q4_1", 32, 20, RD_DTYPE_NONE},  [RDI_W_Q8_0] = {"Q8_0", 32, 34, RD_DTYPE_NONE},
};

const rdi_wtype_info *rdi_wtype_get(rdi_wtype type) {
    return &types[(unsigned)type < RDI_W_COUNT ? type : RDI_W_NONE];
}

// Files align tensors as they like (safetensors not at all): every multi-byte load goes through memcpy.
static uint16_t load_u16(const uint8_t *from) {
    uint16_t value;
    memcpy(&value, from, sizeof value);
    return value;
}

static void row_q4(const uint8_t *from, int64_t cols, bool has_min, float *out) {
    for (int64_t i = 0; i < cols; i += 32, out += 32) {
        float d = rdi_f32_from_f16(load_u16(from)), m = has_min ? rdi_f32_from_f16(load_u16(from + 2)) : 0;
        const uint8_t *nibbles = from + (has_min ? 4 : 2);
        int32_t offset = has_min ? 0 : 8;
        for (int j = 0; j < 16; j++) {
            out[j] = d * (float)((nibbles[j] & 15) - offset) + m;
            out[j + 16] = d * (float)((nibbles[j] >> 4) - offset) + m;
        }
        from += has_min ? 20 : 18;
    }
}

static void row_q8(const uint8_t *from, int64_t cols, float *out) {
    for (int64_t i = 0; i < cols; i += 32, out += 32, from += 34) {
        float d = rdi_f32_from_f16(load_u16(from));
        for (int j = 0; j < 32; j++) out[j] = d * (float)(int8_t)from[2 + j];
    }
}

static float scale_at(const rdi_weight *weight, int64_t index) {
    switch (weight->scale_type) {
    case RDI_W_F32: {
        float value;
        memcpy(&value, (const uint8_t *)weight->scale + 4 * index, sizeof value);
        return value;
    }
    case RDI_W_BF16:
        return rdi_f32_from_bf16(load_u16((const uint8_t *)weight->scale + 2 * index));
    default:
        return rdi_f32_from_e8m0(((const uint8_t *)weight->scale)[index]);
    }
}

static void row_e4m3(const rdi_weight *weight, const uint8_t *from, int64_t row, float *out) {
    int64_t blocks = rdi_ceil_div(weight->cols, 128);
    for (int64_t block = 0; block < blocks; block++) {
        float scale = weight->scale ? scale_at(weight, row / 128 * blocks + block) : 1.0f;
        int64_t end = rdi_min(weight->cols, (block + 1) * 128);
        for (int64_t k = block * 128; k < end; k++) out[k] = rdi_e4m3_table[from[k]] * scale;
    }
}

void rdi_weight_rows_f32(const rdi_weight *weight, int64_t row, int64_t count, float *out) {
    int64_t cols = weight->cols;
    for (int64_t i = 0; i < count; i++, out += cols) {
        int64_t stored = rdi_weight_stored_row(weight, row + i);
        const uint8_t *from = (const uint8_t *)weight->data + stored * weight->row_bytes;
        switch (weight->type) {
        case RDI_W_F32:
            memcpy(out, from, (size_t)cols * 4);
            break;
        case RDI_W_F16:
            for (int64_t k = 0; k < cols; k++) out[k] = rdi_f32_from_f16(load_u16(from + 2 * k));
            break;
        case RDI_W_BF16:
            for (int64_t k = 0; k < cols; k++) out[k] = rdi_f32_from_bf16(load_u16(from + 2 * k));
            break;
        case RDI_W_E4M3:
            row_e4m3(weight, from, stored, out);
            break;
        case RDI_W_Q4_0:
            row_q4(from, cols, false, out);
            break;
        case RDI_W_Q4_1:
            row_q4(from, cols, true, out);
            break;
        case RDI_W_Q8_0:
            row_q8(from, cols, out);
            break;
        default: // integers are no weights: rd_model_open has refused them
            for (int64_t k = 0; k < cols; k++) out[k] = NAN;
        }
        for (int64_t k = 0; k < cols && weight->added != 0; k++) out[k] += weight->added;
    }
}

void rdi_weight_scales_f32(const rdi_weight *weight, float *out) {
    int64_t count = rdi_ceil_div(weight->rows, 128) * rdi_ceil_div(weight->cols, 128);
    for (int64_t i = 0; i < count; i++) out[i] = scale_at(weight, i);
}

rd_tensor rdi_weight_tensor(const rdi_weight *weight) {
    rd_dtype dtype = rdi_wtype_get(weight->type)->dtype;
    bool direct = dtype != RD_DTYPE_NONE && !weight->permuted_head_dim;
    // Kernels may load whole elements: a file may place them off their natural alignment.
    if ((uintptr_t)weight->data % rd_dtype_bytes(dtype ? dtype : RD_DTYPE_U8)) direct = false;
    void *data = direct ? (void *)(uintptr_t)weight->data : NULL;
    return weight->rank == 1 ? rd_tensor_1d(data, dtype, weight->cols)
                             : rd_tensor_2d(data, dtype, weight->rows, weight->cols);
}
