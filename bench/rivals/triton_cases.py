# SPDX-License-Identifier: Apache-2.0
"""What the Triton rivals are asked to do: shapes, launches, data and the formulas that judge them.

A program is a chain of launches over named buffers. Its launches carry the values of the kernel's own parameters, so
that compiling them needs the kernels' sources (and Triton), while running them needs only numpy.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

GROUP = 128  # quantisation block along N and K
FP8_MAX = 448.0


# ---- number formats -----------------------------------------------------------------------------------------------
def fp8_table():
    """Value of each e4m3fn code: 1 sign, 4 exponent (bias 7), 3 mantissa bits; 0x7f and 0xff are NaN."""
    codes = np.arange(256)
    exponent, mantissa = codes >> 3 & 15, codes & 7
    value = np.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * np.exp2(exponent - 10.0))
    value[(codes & 127) == 127] = np.nan
    return np.where(codes & 128, -value, value)


FP8 = fp8_table()


def bf16_bits(x):
    """Nearest bf16, ties to even."""
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def bf16_value(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def ulp_fp8(x):
    """Distance of neighbouring e4m3 values at |x|."""
    magnitude = np.maximum(np.abs(x), 2.0**-6)
    return np.exp2(np.floor(np.log2(magnitude)) - 3)


# ---- programs -----------------------------------------------------------------------------------------------------
@dataclass
class Launch:
    source: str  # "vllm" or "aiter"
    path: str  # of the kernel's file below that source
    function: str
    values: dict  # parameter -> ("buffer", name) | int | float | bool | str | None
    grid: tuple
    options: dict  # num_warps, num_stages, waves_per_eu, matrix_instr_nonkdim, kpack


@dataclass
class Program:
    name: str
    kind: str  # chooses data() and check()
    shape: dict
    launches: list
    buffers: dict  # name -> (dtype, shape)
    main_bytes: int  # what the kernel has to read: weights, KV cache, or the tensor to quantise


DTYPES = {"bf16": np.uint16, "fp8": np.uint8, "f32": np.float32, "i32": np.int32}


def cdiv(a, b):
    return -(-a // b)


def buffer(name):
    return ("buffer", name)


VLLM_FP8 = "vllm/model_executor/layers/quantization/utils/fp8_utils.py"
VLLM_ATTENTION = "vllm/v1/attention/ops/triton_unified_attention.py"
AITER_GEMM = "aiter/ops/triton/_triton_kernels/gemm/basic/gemm_a8w8_blockscale.py"
AITER_REDUCE = "aiter/ops/triton/_triton_kernels/common/splitk_reduce.py"
AITER_ATTENTION = "aiter/ops/triton/_triton_kernels/attention/unified_attention.py"
AITER_CONFIGS = "aiter/ops/triton/configs/gemm/gfx1201-GEMM-A8W8_BLOCKSCALE%s.json"


def gemm_buffers(m, n, k):
    return {
        "a": ("fp8", (m, k)),
        "w": ("fp8", (n, k)),
        "c": ("bf16", (m, n)),
        "a_scale": ("f32", (m, k // GROUP)),
        "w_scale": ("f32", (n // GROUP, k // GROUP)),
    }


def vllm_gemm(m, n, k):
    """vLLM's default configuration: what a card without a tuned table gets at every M."""
    tile = {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 32}
    values = {
        "A": buffer("a"), "B": buffer("w"), "C": buffer("c"), "As": buffer("a_scale"), "Bs": buffer("w_scale"),
        "M": m, "N": n, "K": k, "group_n": GROUP, "group_k": GROUP,
        "stride_am": k, "stride_ak": 1, "stride_bk": 1, "stride_bn": k, "stride_cm": n, "stride_cn": 1,
        "stride_As_m": k // GROUP, "stride_As_k": 1, "stride_Bs_k": 1, "stride_Bs_n": k // GROUP, **tile,
    }
    grid = (cdiv(m, 64) * cdiv(n, 128), 1, 1)
    launch = Launch("vllm", VLLM_FP8, "_w8a8_triton_block_scaled_mm", values, grid, {"num_warps": 4, "num_stages": 2})
    return Program(f"vllm_gemm_m{m}", "gemm", {"m": m, "n": n, "k": k}, [launch], gemm_buffers(m, n, k), n * k)


def aiter_config(sources, m, preshuffled):
    table = json.loads((Path(sources["aiter"]) / (AITER_CONFIGS % ("_PRESHUFFLED" if preshuffled else ""))).read_text())
    limits = sorted(int(key[6:]) for key in table if key.startswith("M_LEQ_"))
    fitting = [limit for limit in limits if m <= limit]
    return dict(table[f"M_LEQ_{fitting[0]}"] if fitting else table["any"])


OPTIONS = ("num_warps", "num_stages", "waves_per_eu", "matrix_instr_nonkdim", "kpack")


def aiter_gemm(sources, m, n, k, preshuffled, config=None, name=None):
    config = config or aiter_config(sources, m, preshuffled)
    options = {key: config.pop(key) for key in OPTIONS if key in config}
    splits = config["NUM_KSPLIT"]
    assert k % (GROUP * splits) == 0
    config.setdefault("cache_modifier", None)
    blocks = cdiv(m, config["BLOCK_SIZE_M"]) * cdiv(n, config["BLOCK_SIZE_N"])
    out = "partial" if splits > 1 else "c"
    w_strides = {"stride_bn": 16 * k, "stride_bk": 1} if preshuffled else {"stride_bk": 1, "stride_bn": k}
    values = {
        "a_ptr": buffer("a"), "b_ptr": buffer("w"), "c_ptr": buffer(out), "a_scale_ptr": buffer("a_scale"),
        "b_scale_ptr": buffer("w_scale"), "M": m, "N": n, "K": k, "stride_am": k, "stride_ak": 1, **w_strides,
        "stride_ck": m * n if splits > 1 else 0, "stride_cm": n, "stride_cn": 1, "stride_ascale_m": k // GROUP,
        "stride_ascale_k": 1, "stride_bscale_k": 1, "stride_bscale_n": k // GROUP, "GROUP_K": GROUP,
        "GROUP_N": GROUP, "SPLITK_BLOCK_SIZE": k // splits, "EVEN_K": True, "GRID_MN": blocks, **config,
    }
    if not preshuffled:
        values["num_stages"] = options["num_stages"]
    function = "_gemm_a8w8_blockscale_preshuffle_kernel" if preshuffled else "_gemm_a8w8_blockscale_kernel"
    launches = [Launch("aiter", AITER_GEMM, function, values, (splits * blocks, 1, 1), options)]
    buffers = gemm_buffers(m, n, k)
    if splits > 1:
        buffers["partial"] = ("f32", (splits, m, n))
        reduce = {
            "c_in_ptr": buffer("partial"), "c_out_ptr": buffer("c"), "bias_ptr": None, "M": m, "N": n,
            "stride_c_in_k": m * n, "stride_c_in_m": n, "stride_c_in_n": 1, "stride_c_out_m": n, "stride_c_out_n": 1,
            "BLOCK_SIZE_M": 32, "BLOCK_SIZE_N": 32, "ACTUAL_KSPLIT": splits, "MAX_KSPLIT": splits, "ADD_BIAS": False,
            "activation": "", "use_activation": False, "KERNEL_NAME": "reduce",
        }
        launches.append(Launch("aiter", AITER_REDUCE, "_gemm_splitk_reduce_kernel", reduce,
                               (cdiv(m, 32), cdiv(n, 32), 1), {}))
    name = name or f"aiter_{'preshuffle' if preshuffled else 'gemm'}_m{m}"
    return Program(name, "gemm", {"m": m, "n": n, "k": k, "preshuffled": preshuffled}, launches, buffers, n * k)


# The configuration that the original dispatcher gives preshuffled decode: tile 16x128x128, M group 8, 4 warps, 1 stage.
TUNED_DECODE = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 8, "num_warps": 4,
                "num_stages": 1, "waves_per_eu": 2, "matrix_instr_nonkdim": 16, "cache_modifier": ".cg",
                "NUM_KSPLIT": 1}


def attention(source, head, gqa, kv_heads, lengths, segments, fp8_query, tile, options, name):
    """One query token a sequence, KV in e4m3 pages of 16 tokens, split over the sequence, then reduced."""
    page, queries, sequences = 16, gqa * kv_heads, len(lengths)
    pages = sum(cdiv(n, page) for n in lengths)
    table_width = max(cdiv(n, page) for n in lengths)
    block_m = 16 if gqa <= 16 else 1 << (gqa - 1).bit_length()
    kv_strides = (page * kv_heads * head, kv_heads * head, head, 1)
    values = {
        "segm_output_ptr": buffer("partial"), "segm_max_ptr": buffer("partial_max"),
        "segm_expsum_ptr": buffer("partial_sum"), "query_ptr": buffer("q"), "key_cache_ptr": buffer("k"),
        "value_cache_ptr": buffer("v"), "sink_ptr": None, "block_tables_ptr": buffer("table"),
        "seq_lens_ptr": buffer("lengths"), "alibi_slopes_ptr": None, "qq_bias_ptr": None, "softcap": 0.0,
        "scale": 1 / math.sqrt(head), "num_query_heads": queries, "num_queries_per_kv": gqa,
        "block_table_stride": table_width, "query_stride_0": queries * head, "query_stride_1": head,
        "qq_bias_stride_0": 0, "BLOCK_SIZE": page, "TILE_SIZE": tile, "HEAD_SIZE": head, "HEAD_SIZE_PADDED": head,
        "USE_ALIBI_SLOPES": False, "USE_QQ_BIAS": False, "USE_SOFTCAP": False, "USE_SINKS": False,
        "query_start_len_ptr": buffer("starts"), "BLOCK_Q": block_m // gqa, "num_seqs": sequences,
        "BLOCK_M": block_m, "NUM_SEGMENTS_PER_SEQ": segments, "SLIDING_WINDOW": 0,
        **{f"stride_{side}_cache_{i}": kv_strides[i] for side in "kv" for i in range(4)},
    }
    reduce = {
        "output_ptr": buffer("out"), "segm_output_ptr": buffer("partial"), "segm_max_ptr": buffer("partial_max"),
        "segm_expsum_ptr": buffer("partial_sum"), "seq_lens_ptr": buffer("lengths"), "num_seqs": sequences,
        "num_query_heads": queries, "output_stride_0": queries * head, "output_stride_1": head,
        "block_table_stride": table_width, "TILE_SIZE": tile, "HEAD_SIZE": head, "HEAD_SIZE_PADDED": head,
        "query_start_len_ptr": buffer("starts"), "BLOCK_Q": block_m // gqa, "NUM_SEGMENTS_PER_SEQ": segments,
        "FP8_MIN": -FP8_MAX, "FP8_MAX": FP8_MAX,
    }
    if source == "vllm":
        path, function = VLLM_ATTENTION, "kernel_unified_attention"
        values |= {
            "output_ptr": buffer("out"), "q_scale": None, "k_scale": buffer("k_scale"), "v_scale": buffer("v_scale"),
            "out_scale": 1.0, "output_stride_0": queries * head, "output_stride_1": head, "USE_ALIBI_SQRT": False,
            "USE_CAUSAL": True, "USE_PER_SEQ_CAUSAL": False, "per_seq_causal_ptr": None, "USE_MM_PREFIX": False,
            "MAX_MM_RANGES": 0, "mm_prefix_range_ptr": None, "rswa_prefix_lens_ptr": buffer("lengths"),
            "R_SWA_WINDOW": 0, "USE_R_SWA": False, "USE_FP8": False, "IS_3D": True, "k_scale_cache_ptr": None,
            "v_scale_cache_ptr": None, "KV_QUANT_MODE": 1, "FP8_MIN": -FP8_MAX, "FP8_MAX": FP8_MAX,
            "CHUNK_LOOKBACK": -1, "CHUNK_SIZE": -1, "USE_TD": False, "USE_TD_QO": False, "Q_IS_FP8": False,
            "MM_PREFIX_CLAMP_SW": False,
            **{f"stride_{side}s_{part}": None for side in "kv" for part in ("blk", "slot", "head")},
        }
        reduce |= {"out_scale_inv": 1.0, "USE_FP8": False}
        rows = sequences // (block_m // gqa) + sequences  # the wrapper's upper bound
    else:
        path, function = AITER_ATTENTION, "kernel_unified_attention_3d"
        values |= {
            "q_descale_ptr": buffer("q_scale") if fp8_query else None, "k_descale_ptr": buffer("k_scale"),
            "v_descale_ptr": buffer("v_scale"), "out_scale_ptr": None, "ALL_DECODE": True,
            "SHUFFLED_KV_CACHE": False, "K_WIDTH": 16, "IS_Q_FP8": fp8_query, "IS_KV_FP8": True,
            **{key: options[key] for key in ("num_warps", "waves_per_eu", "num_stages")},
        }
        reduce |= {"out_scale_ptr": None}
        rows = sequences
    launches = [
        Launch(source, path, function, values, (rows, kv_heads, segments), options),
        Launch(source, path, "reduce_segments", reduce, (sequences, queries, 1), {"num_warps": 4, "num_stages": 1}),
    ]
    buffers = {
        "q": ("fp8" if fp8_query else "bf16", (sequences, queries, head)), "k": ("fp8", (pages, page, kv_heads, head)),
        "v": ("fp8", (pages, page, kv_heads, head)), "table": ("i32", (sequences, table_width)),
        "lengths": ("i32", (sequences,)), "starts": ("i32", (sequences + 1,)), "q_scale": ("f32", (1,)),
        "k_scale": ("f32", (1,)), "v_scale": ("f32", (1,)), "out": ("bf16", (sequences, queries, head)),
        "partial": ("f32", (sequences, queries, segments, head)), "partial_max": ("f32", (sequences, queries, segments)),
        "partial_sum": ("f32", (sequences, queries, segments)),
    }
    shape = {"head": head, "gqa": gqa, "kv_heads": kv_heads, "lengths": list(lengths), "page": page,
             "fp8_query": fp8_query}
    return Program(name, "attention", shape, launches, buffers, 2 * sum(lengths) * kv_heads * head)


def group_quant(rows, columns):
    values = {
        "y_ptr": buffer("x"), "y_q_ptr": buffer("q"), "y_s_ptr": buffer("scale"), "group_size": GROUP,
        "y_num_columns": columns, "y_row_stride": columns, "eps": 1e-10, "fp8_min": -FP8_MAX, "fp8_max": FP8_MAX,
        "use_ue8m0": False, "BLOCK": GROUP,
    }
    launch = Launch("vllm", VLLM_FP8, "_per_token_group_quant_fp8", values, (rows * columns // GROUP, 1, 1),
                    {"num_warps": 1, "num_stages": 1})
    buffers = {"x": ("bf16", (rows, columns)), "q": ("fp8", (rows, columns)),
               "scale": ("f32", (rows, columns // GROUP))}
    return Program("vllm_group_quant", "quant", {"rows": rows, "columns": columns}, [launch], buffers,
                   2 * rows * columns)


def programs(sources):
    """Every rival. sources: {"vllm": folder, "aiter": folder}."""
    fp8_options = {"num_warps": 4, "num_stages": 1, "waves_per_eu": 6}
    wide_options = {"num_warps": 4, "num_stages": 2, "waves_per_eu": 2}
    lengths = (4096, 517, 33)
    return [
        vllm_gemm(1, 1024, 4096), vllm_gemm(8, 1024, 4096), vllm_gemm(16, 1024, 4096), vllm_gemm(4096, 256, 512),
        aiter_gemm(sources, 1, 1024, 4096, False), aiter_gemm(sources, 8, 1024, 4096, False),
        aiter_gemm(sources, 16, 1024, 4096, False), aiter_gemm(sources, 4096, 256, 512, False),
        aiter_gemm(sources, 1, 1024, 4096, True, dict(TUNED_DECODE)),
        aiter_gemm(sources, 8, 1024, 4096, True), aiter_gemm(sources, 16, 1024, 4096, True, dict(TUNED_DECODE)),
        aiter_gemm(sources, 4096, 256, 512, True),
        attention("vllm", 128, 6, 2, lengths, 8, False, 16, {"num_warps": 4, "num_stages": 2}, "vllm_attention_h128"),
        attention("vllm", 256, 6, 1, lengths, 8, False, 16, {"num_warps": 4, "num_stages": 2}, "vllm_attention_h256"),
        attention("aiter", 128, 6, 2, lengths, 8, False, 16, wide_options, "aiter_attention_h128"),
        attention("aiter", 128, 6, 2, lengths, 8, True, 16, fp8_options, "aiter_attention_h128_fp8q"),
        attention("aiter", 256, 6, 1, lengths, 8, True, 16, fp8_options, "aiter_attention_h256_fp8q"),
        group_quant(64, 1024),
    ]


# ---- data ---------------------------------------------------------------------------------------------------------
def fp8_random(rng, shape, most_exponent=14):
    """Codes of every sign and mantissa with exponents up to most_exponent; never NaN."""
    codes = rng.integers(0, 8 * (most_exponent + 1), shape, dtype=np.uint8)
    return codes | (rng.integers(0, 2, shape, dtype=np.uint8) << 7)


def preshuffle(w):
    """(16,16) layout: byte (n, k) goes to (n/16)*16K + (k/32)*512 + ((k%32)/16)*256 + (n%16)*16 + k%16."""
    n, k = w.shape
    return np.ascontiguousarray(w.reshape(n // 16, 16, k // 32, 2, 16).transpose(0, 2, 3, 1, 4)).reshape(n, k)


def data(kind, shape, buffers, rng):
    """Inputs by buffer name; what is missing is an output."""
    make = {name: (dtype, dims) for name, (dtype, dims) in buffers.items()}
    if kind == "gemm":
        w = fp8_random(rng, make["w"][1])
        given = {"a": fp8_random(rng, make["a"][1]), "w": w}
        for name in ("a_scale", "w_scale"):
            given[name] = rng.uniform(1e-4, 1e-2, make[name][1]).astype(np.float32)
        if shape.get("preshuffled"):
            given["w"] = preshuffle(w)
            given["_w"] = w  # for the formula
        return given
    if kind == "quant":
        x = rng.standard_normal(make["x"][1]) * np.exp2(rng.integers(-12, 12, (make["x"][1][0], 1)))
        x[3, :GROUP] = 0  # an empty group takes the floor eps
        return {"x": bf16_bits(x)}
    lengths = np.array(shape["lengths"], np.int32)
    pages = make["k"][1][0]
    table = np.zeros(make["table"][1], np.int32)
    order, at = rng.permutation(pages), 0
    for i, length in enumerate(lengths):
        count = cdiv(int(length), shape["page"])
        table[i, :count] = order[at : at + count]
        at += count
    q = rng.standard_normal(make["q"][1])
    return {
        "q": fp8_random(rng, make["q"][1], 8) if shape["fp8_query"] else bf16_bits(q),
        "k": fp8_random(rng, make["k"][1], 7), "v": fp8_random(rng, make["v"][1], 7), "table": table,
        "lengths": lengths, "starts": np.arange(len(lengths) + 1, dtype=np.int32),
        # Powers of two, so that scaling e4m3 in bf16 is exact and the formula needs no error term for it.
        "q_scale": np.array([0.5], np.float32), "k_scale": np.array([0.25], np.float32),
        "v_scale": np.array([2.0], np.float32),
    }


# ---- formulas in float64 ------------------------------------------------------------------------------------------
# Each returns the worst |error| / bound; 1 is the limit. Bounds follow from the formats, not from what was seen.
def check_gemm(shape, given, got):
    a, w = FP8[given["a"]], FP8[given.get("_w", given["w"])]
    m, k = a.shape
    scale_a = np.repeat(given["a_scale"].astype(np.float64), GROUP, 1)
    scale_w = np.repeat(np.repeat(given["w_scale"].astype(np.float64), GROUP, 0), GROUP, 1)
    wanted = (a * scale_a) @ (w * scale_w).T
    magnitude = (np.abs(a) * scale_a) @ (np.abs(w) * scale_w).T
    # Half a bf16 ulp of the result, and one f32 rounding per addition and scaling of each term.
    bound = np.abs(wanted) * 2.0**-8 + magnitude * 2.0**-24 * (GROUP + 4 * (k // GROUP) + 8)
    return float(np.max(np.abs(bf16_value(got["c"]) - wanted) / bound))


def check_attention(shape, given, got):
    head, gqa = shape["head"], shape["gqa"]
    q = FP8[given["q"]] * given["q_scale"][0] if shape["fp8_query"] else bf16_value(given["q"])
    k, v = FP8[given["k"]] * given["k_scale"][0], FP8[given["v"]] * given["v_scale"][0]
    out, worst = bf16_value(got["out"]), 0.0
    for s, length in enumerate(shape["lengths"]):
        rows = given["table"][s, : cdiv(length, shape["page"])]
        keys = k[rows].reshape(-1, shape["kv_heads"], head)[:length]
        values = v[rows].reshape(-1, shape["kv_heads"], head)[:length]
        for h in range(gqa * shape["kv_heads"]):
            scores = keys[:, h // gqa] @ q[s, h] / math.sqrt(head)
            p = np.exp(scores - scores.max())
            weights, magnitude = p / p.sum(), np.abs(values[:, h // gqa])
            wanted = weights @ values[:, h // gqa]
            # Weights are rounded to bf16 (2^-9) or, with an fp8 query, to e4m3 (2^-4, and 2^-10 below its normals,
            # relative to the running maximum's 1); scores carry f32 roundings of a sum over the head; result in bf16.
            relative = 2.0**-4 if shape["fp8_query"] else 2.0**-9
            score_error = 2.0**-23 * head * float(np.max(np.abs(keys[:, h // gqa]) @ np.abs(q[s, h]))) / math.sqrt(head)
            bound = (relative + 2 * score_error + 2.0**-16) * (weights @ magnitude) + 2.0**-8 * np.abs(wanted)
            if shape["fp8_query"]:
                bound += 2.0**-10 / p.sum() * magnitude.sum(0)
            worst = max(worst, float(np.max(np.abs(out[s, h] - wanted) / bound)))
    return worst


def check_quant(shape, given, got):
    x = bf16_value(given["x"]).reshape(shape["rows"], -1, GROUP)
    wanted = np.maximum(np.abs(x).max(2), 1e-10) / FP8_MAX
    scale = got["scale"].astype(np.float64)
    worst = float(np.max(np.abs(scale - wanted) / (wanted * 2.0**-22)))  # two f32 roundings
    q = FP8[got["q"]].reshape(x.shape)
    exact = x / scale[:, :, None]
    # Half an ulp of e4m3 at the exact quotient, which the kernel has rounded to f32 first.
    bound = ulp_fp8(np.minimum(np.abs(exact), FP8_MAX)) * 0.5 * (1 + 2.0**-16)
    return max(worst, float(np.max(np.abs(q - np.clip(exact, -FP8_MAX, FP8_MAX)) / bound)))


CHECKS = {"gemm": check_gemm, "attention": check_attention, "quant": check_quant}
RESULTS = {"gemm": "c", "attention": "out", "quant": "q"}


def corrupted(kind, got):
    """The same results with one exponent bit of the largest element changed: what a check must not accept."""
    name = RESULTS[kind]
    values = FP8[got[name]] if kind == "quant" else bf16_value(got[name])
    at = np.unravel_index(np.argmax(np.abs(values)), values.shape)
    wrong = got[name].copy()
    wrong[at] ^= 0x10 if kind == "quant" else 0x100
    return got | {name: wrong}
