// SPDX-License-Identifier: Apache-2.0
// attn_prefill over an fp8 cache on gfx1201: the body over all keys of a tile of rows, for each head.
#include "kernels/attn/gfx1201_device.h"

#define KV_FP8  1
#define PREFILL 1
#define ROW     rdk_attn_prefill_fp8kv_gfx1201
#include "kernels/attn/gfx1201_prefill.h"
