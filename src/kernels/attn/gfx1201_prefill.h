// SPDX-License-Identifier: Apache-2.0
// The kernels of a prefill row, one for each head. The kernel file defines KV_FP8, PREFILL 1 and ROW.
#define SYMBOL_(row_, suffix_) row_##suffix_
#define SYMBOL(row_, suffix_)  SYMBOL_(row_, suffix_)

#define HEAD       64
#define WAVES      RDK_PREFILL_WAVES_64
#define ROW_TILES  (RDK_PREFILL_ROWS_64 / 16)
#define ROW_SPLIT  1
#define LOADS_MOST 8
#define BODY       SYMBOL(ROW, _h64)
#include "kernels/attn/gfx1201_body.h"

#define HEAD       128
#define WAVES      RDK_PREFILL_WAVES_128
#define ROW_TILES  (RDK_PREFILL_ROWS_128 / 16)
#define ROW_SPLIT  1
#define LOADS_MOST 8
#define BODY       SYMBOL(ROW, _h128)
#include "kernels/attn/gfx1201_body.h"

#define HEAD       256
#define WAVES      RDK_PREFILL_WAVES_256
#define ROW_TILES  (RDK_PREFILL_ROWS_256 / 16)
#define ROW_SPLIT  1
#define LOADS_MOST 8
#define BODY       SYMBOL(ROW, _h256)
#include "kernels/attn/gfx1201_body.h"

#define HEAD       512
#define WAVES      RDK_PREFILL_WAVES_512
#define ROW_TILES  (RDK_PREFILL_ROWS_512 / 16)
#define ROW_SPLIT  1
#define LOADS_MOST 8
#define BODY       SYMBOL(ROW, _h512)
#include "kernels/attn/gfx1201_body.h"
