// SPDX-License-Identifier: Apache-2.0
// attn_decode over an fp8 cache on gfx1201: the body for each head and tile height, and the merge of the chunks.
#include "kernels/attn/gfx1201_device.h"

#define KV_FP8  1
#define PREFILL 0
#define ROW     rdk_attn_decode_fp8kv_gfx1201
#include "kernels/attn/gfx1201_decode.h"
