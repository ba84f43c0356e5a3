// SPDX-License-Identifier: Apache-2.0
// The kernels of a decode row: for each head, tiles of 16, 32 and (to head 256) 64 rows, one wave count a head, because the
// keys of a step are part of the order of sums. The kernel file defines KV_FP8, PREFILL 0 and ROW.
#define SYMBOL_(row_, suffix_) row_##suffix_
#define SYMBOL(row_, suffix_)  SYMBOL_(row_, suffix_)

#define HEAD       64
#define WAVES      RDK_WAVES_64
#define ROW_TILES  1
#define ROW_SPLIT  1
#define LOADS_MOST 16
#define BODY       SYMBOL(ROW, _h64_r16)
#include "kernels/attn/gfx1201_body.h"

#define HEAD       64
#define WAVES      RDK_WAVES_64
#define ROW_TILES  2
#define ROW_SPLIT  1
#define LOADS_MOST 16
#define BODY       SYMBOL(ROW, _h64_r32)
#include "kernels/attn/gfx1201_body.h"

#define HEAD       64
#define WAVES      RDK_WAVES_64
#define ROW_TILES  4
#define ROW_SPLIT  1
#define LOADS_MOST 8
#define BODY       SYMBOL(ROW, _h64_r64)
#include "kernels/attn/gfx1201_body.h"

#define HEAD       128
#define WAVES      RDK_WAVES_128
#define ROW_TILES  1
#define ROW_SPLIT  1
#define LOADS_MOST 16
#define BODY       SYMBOL(ROW, _h128_r16)
#include "kernels/attn/gfx1201_body.h"

#define HEAD       128
#define WAVES      RDK_WAVES_128
#define ROW_TILES  2
#define ROW_SPLIT  1
#define LOADS_MOST 16
#define BODY       SYMBOL(ROW, _h128_r32)
#include "kernels/attn/gfx1201_body.h"

#define HEAD       128
#define WAVES      RDK_WAVES_128
#define ROW_TILES  4
#define ROW_SPLIT  1
#define LOADS_MOST 8
#define BODY       SYMBOL(ROW, _h128_r64)
#include "kernels/attn/gfx1201_body.h"

#define HEAD       256
#define WAVES      RDK_WAVES_256
#define ROW_TILES  1
#define ROW_SPLIT  1
#define LOADS_MOST 16
#define BODY       SYMBOL(ROW, _h256_r16)
#include "kernels/attn/gfx1201_body.h"

#define HEAD       256
#define WAVES      RDK_WAVES_256
#define ROW_TILES  2
#define ROW_SPLIT  RDK_SPLIT_256_R32
#define LOADS_MOST 16
#define BODY       SYMBOL(ROW, _h256_r32)
#include "kernels/attn/gfx1201_body.h"

#define HEAD       256
#define WAVES      RDK_WAVES_256
#define ROW_TILES  4
#define ROW_SPLIT  RDK_SPLIT_256_R64
#define LOADS_MOST 8
#define BODY       SYMBOL(ROW, _h256_r64)
#include "kernels/attn/gfx1201_body.h"

#define HEAD       512
#define WAVES      RDK_WAVES_512
#define ROW_TILES  1
#define ROW_SPLIT  1
#define LOADS_MOST 8
#define BODY       SYMBOL(ROW, _h512_r16)
#include "kernels/attn/gfx1201_body.h"

#define HEAD       512
#define WAVES      RDK_WAVES_512
#define ROW_TILES  2
#define ROW_SPLIT  1
#define LOADS_MOST 8
#define BODY       SYMBOL(ROW, _h512_r32)
#include "kernels/attn/gfx1201_body.h"

#define HEAD  64
#define MERGE SYMBOL(ROW, _merge_h64)
#include "kernels/attn/gfx1201_merge.h"

#define HEAD  128
#define MERGE SYMBOL(ROW, _merge_h128)
#include "kernels/attn/gfx1201_merge.h"

#define HEAD  256
#define MERGE SYMBOL(ROW, _merge_h256)
#include "kernels/attn/gfx1201_merge.h"

#define HEAD  512
#define MERGE SYMBOL(ROW, _merge_h512)
#include "kernels/attn/gfx1201_merge.h"
