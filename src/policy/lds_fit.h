// SPDX-License-Identifier: Apache-2.0
// Does an attention tile fit the LDS of a work-group? Asked before the launch, not by it.
#ifndef RDI_LDS_FIT_H
#define RDI_LDS_FIT_H

#include "base/base.h"

typedef struct rdi_lds_question {
    int64_t head_size, elem_bytes, tile, stages, lds_bytes;
} rdi_lds_question;
typedef struct rdi_lds_fit {
    int64_t bytes;                           // of the tile and stages asked for
    int64_t fit_tile, fit_stages, fit_bytes; // what fits; 0 when nothing does
    const char *rule;
} rdi_lds_fit;

enum { RDI_LDS_GFX12_BYTES = 65536, RDI_LDS_TILE_MIN = 16 };
rdi_lds_fit rdi_lds_fit_decide(const rdi_lds_question *question);

#endif // RDI_LDS_FIT_H
