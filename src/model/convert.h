// SPDX-License-Identifier: Apache-2.0
// The parts of rd_convert: block quantisation, the output folder, the files in it.
#ifndef RDI_MODEL_CONVERT_H
#define RDI_MODEL_CONVERT_H

#include "base/par.h"
#include "model/bind.h"
#include "model/tokenizer.h"

#include <stdio.h>

enum {
    RDI_FP8_BLOCK = 128,
    RDI_SLAB_BLOCKS = 16
}; // rows are handled in slabs of 16 blocks: bounded memory, prompt cancel

// ---- quantisation (convert_quant.c) ---------------------------------------------------------------------------------
typedef struct rdi_block_stats { // of one block of 128 rows
    double sum_error, max_error, sum_weight;
    int64_t bad_row, bad_col; // first NaN or infinity, -1: none
} rdi_block_stats;
typedef struct rdi_quant_slab {
    const rdi_weight *weight;
    int64_t row, rows; // row is a multiple of 128
    bool fp8;          // else bf16
    uint8_t *codes;    // [rows][cols] e4m3 or bf16
    float *scales;     // fp8: [ceil(rows/128)][ceil(cols/128)]
    float *scratch;    // [workers][128][cols]
    rdi_block_stats stats[RDI_SLAB_BLOCKS];
} rdi_quant_slab;
void rdi_quant_slab_run(rdi_par *par, rdi_quant_slab *slab);
uint8_t rdi_quant_e4m3(float value); // equals rdi_e4m3_from_f32 on finite values; branch-free

// ---- output folder (convert_folder.c) --------------------------------------------------------------------------------
typedef struct rdi_out_folder {
    char *final_path, *partial_path, *parent_path;
    bool overwrite;
} rdi_out_folder;
// Makes the partial sibling. Refuses an existing output unless overwrite, and then unless it is a model folder.
rd_status rdi_folder_begin(const char *path, bool overwrite, rdi_out_folder *out);
rd_status rdi_folder_commit(rdi_out_folder *folder); // fsync and rename: OUT appears whole
void rdi_folder_end(rdi_out_folder *folder);         // removes what was not committed; frees
rd_status rdi_folder_create_file(const rdi_out_folder *folder, const char *name, FILE **out);
rd_status rdi_folder_close_file(const rdi_out_folder *folder, const char *name, FILE *file,
                                rd_status status); // flush, fsync
rd_status rdi_folder_copy_file(const rdi_out_folder *folder, const char *from, const char *name);

// ---- JSON files (convert_json.c) -----------------------------------------------------------------------------------------
void rdi_json_put_string(FILE *file, const char *text, size_t bytes);
rd_status rdi_write_config(const rdi_out_folder *folder, const rdi_model_config *config,
                           const rd_tokenizer *tokenizer, bool head_fp8);
rd_status rdi_write_tokenizer(const rdi_out_folder *folder, const rd_tokenizer *tokenizer,
                              const rdi_model_config *config);

#endif // RDI_MODEL_CONVERT_H
