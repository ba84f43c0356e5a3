# SPDX-License-Identifier: Apache-2.0
"""Tunes AITER's unified attention on gfx1201 by the library's rules decode_geometry, prefill_config and lds_fit: whatever a rule
does not name stays as AITER chose it. The selectors are looked up in their module at every call, so replacing them there
reaches callers that imported the entry long ago; the file may be loaded under two names with globals of their own, so every
copy is treated. A wide block travels inside the configuration that AITER unpacks into the launch."""

import importlib
import sys

from .hook import MISSING, ON, Status
from .library import RadianceError, library
from .log import say, say_once

NAME, GATE = "AITER attention", "RADIANCE_AITER"
MODULES = ("aiter.ops.triton.attention.unified_attention", "aiter.ops.triton.unified_attention")
LOOKUP = "aiter.ops.triton.utils.unified_attention_utils"
DEVICE = "r9700-gfx1201"
WIDE = "RADIANCE_WIDE_BLOCK"  # rides in the 3D configuration: (rows of the block, programs of the launch)

# outputs of the rules -> keys of AITER's configurations
ATTENTION_KEYS = {"tile": "TILE_SIZE", "warps": "num_warps", "stages": "num_stages", "waves": "waves_per_eu",
                  "splits": "NUM_SEGMENTS_PER_SEQ"}
REDUCE_KEYS = {"reduce_tile": "TILE_SIZE", "reduce_warps": "num_warps", "reduce_stages": "num_stages",
               "reduce_waves": "waves_per_eu", "splits": "NUM_SEGMENTS_PER_SEQ"}
PREFILL_KEYS = {"tile": "TILE_SIZE", "block_m": "BLOCK_M", "warps": "num_warps", "stages": "num_stages",
                "waves": "waves_per_eu", "block_q": "BLOCK_Q"}


def _word(dtype):
    return str(dtype).replace("torch.", "")


def _is_fp8(dtype):
    return _word(dtype) == "float8_e4m3fn"  # fnuz is another type


def _is_16bit(dtype):
    return _word(dtype) in ("float16", "bfloat16")


def _apply(config, outputs, keys):
    """config with what the rule names; only keys that AITER's configuration has."""
    changed = dict(config)
    for name, key in keys.items():
        if outputs.get(name) and key in changed:
            changed[key] = int(outputs[name])
    return changed


def _fit(config, head_size, kv_dtype):
    """Stages, then the tile, lowered until the tile fits in LDS: before the launch, not by its failure."""
    outputs, _ = library().policy("lds_fit", device=DEVICE, head_size=head_size,
                                  elem_bytes=2 if _is_16bit(kv_dtype) else 1,
                                  tile=config["TILE_SIZE"], stages=max(config["num_stages"], 1))
    if not outputs["fit_tile"]:
        raise RadianceError(f"no tile of head {head_size} fits in LDS")
    if int(outputs["fit_stages"]) != max(config["num_stages"], 1):
        config["num_stages"] = int(outputs["fit_stages"])
    config["TILE_SIZE"] = int(outputs["fit_tile"])
    return config


def geometry_of(frame):
    """tokens, sequences, ... of the batch, from the entry that calls a selector; zeros when they cannot be read, for which
    the rule answers with its constants."""
    names = frame.f_locals if frame else {}
    try:
        return dict(tokens=int(names["q"].shape[0]), seqs=int(names["num_seqs"]),
                    queries_per_kv=int(names["num_queries_per_kv"]), kv_heads=int(names["num_kv_heads"]),
                    all_decode=int(bool(names["ALL_DECODE"])))
    except (KeyError, AttributeError, TypeError, ValueError, IndexError):
        return dict(tokens=0, seqs=0, queries_per_kv=0, kv_heads=0, all_decode=0)


def decode_outputs(geometry, head_size, max_seqlen_k, num_2d_programs, q_dtype, kv_dtype):
    return library().policy(
        "decode_geometry", head_size=head_size, max_seqlen_k=int(max_seqlen_k or 0),
        num_2d_programs=int(num_2d_programs or 0), q_fp8=int(_is_fp8(q_dtype)), kv_fp8=int(_is_fp8(kv_dtype)),
        kv_16bit=int(_is_16bit(kv_dtype)), **geometry)[0]


def tune_3d(attention, reduction, geometry, head_size, max_seqlen_k, num_2d_programs, q_dtype, kv_dtype, shim):
    """AITER's two configurations by the rule; the same objects when the rule leaves the batch alone."""
    outputs = decode_outputs(geometry, head_size, max_seqlen_k, num_2d_programs, q_dtype, kv_dtype)
    if not any(outputs.values()):
        return attention, reduction
    tuned = _fit(_apply(attention, outputs, ATTENTION_KEYS), head_size, kv_dtype)
    reduced = _apply(reduction, outputs, REDUCE_KEYS)
    # Both kernels count a segment's tiles: with two tile sizes the reduction would drop or invent segments.
    reduced["TILE_SIZE"] = tuned["TILE_SIZE"]
    wide = bool(outputs["block_m"]) and shim
    if wide:
        tuned[WIDE] = (int(outputs["block_m"]), int(outputs["programs"]))
    if geometry["tokens"] and not geometry["all_decode"] and _is_fp8(q_dtype) and _is_fp8(kv_dtype):
        say_once("verify", f"AITER: first verify batch: BLOCK_M {outputs['block_m'] if wide else 'as AITER chose'}, "
                 f"tile {tuned['TILE_SIZE']}, splits {tuned['NUM_SEGMENTS_PER_SEQ']}, warps {tuned['num_warps']}, "
                 f"sequences {geometry['seqs']}, tokens {geometry['tokens']}, kv {max_seqlen_k}")
    return tuned, reduced


def tune_2d(config, head_size, max_seqlen_q, queries_per_kv, kv_dtype):
    outputs = library().policy("prefill_config", head_size=head_size, max_seqlen_q=int(max_seqlen_q),
                               queries_per_kv=int(queries_per_kv), kv_dtype=_word(kv_dtype))[0]
    if not any(outputs.values()):
        return config
    tuned = _apply(config, outputs, PREFILL_KEYS)
    if outputs["block_m"] and not outputs["block_q"]:
        tuned["BLOCK_Q"] = max(1, tuned["BLOCK_M"] // queries_per_kv)
    return _fit(tuned, head_size, kv_dtype)


class LaunchShim:
    """Stands for the 3D kernel: a launch whose configuration carries a wide block gets its grid, BLOCK_M and BLOCK_Q."""

    radiance_wrapped = True

    def __init__(self, kernel):
        self._kernel = kernel

    def __getattr__(self, name):
        return getattr(self._kernel, name)

    def __getitem__(self, grid):
        def launch(*arguments, **named):
            wide = named.pop(WIDE, None)
            at = grid
            if wide:
                rows, programs = wide
                named["BLOCK_M"] = rows
                named["BLOCK_Q"] = max(1, rows // named["num_queries_per_kv"])
                at = (programs // grid[1], *grid[1:])
            return self._kernel[at](*arguments, **named)

        return launch


def _bind(function, arguments, named):
    """Values of a selector's parameters by name, however the caller passed them."""
    code = function.__code__
    values = dict(zip(code.co_varnames[: code.co_argcount], arguments))
    values.update(named)
    return values


def _guarded(what, original_result, tune):
    """AITER's own choice stands when a rule refuses its input."""
    try:
        return tune()
    except (RadianceError, KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        say_once(("aiter", what, str(error)), f"AITER: {what} left as it was: {type(error).__name__}: {error}")
        return original_result


def wrap_select_3d(module):
    original = module.select_3d_config

    def select_3d_config(*arguments, **named):
        chosen = original(*arguments, **named)
        frame = sys._getframe(1)

        def tune():
            v = _bind(original, arguments, named)
            return tune_3d(*chosen, geometry_of(frame), v["head_size"], v["max_seqlen_k"], v["num_2d_prgms"], v["q_dtype"],
                           v["kv_cache_dtype"], isinstance(module.kernel_unified_attention_3d, LaunchShim))

        return _guarded("select_3d_config", chosen, tune)

    select_3d_config.radiance_wrapped = True
    module.select_3d_config = select_3d_config


def wrap_select_2d(module):
    original = module.select_2d_config

    def select_2d_config(*arguments, **named):
        chosen = original(*arguments, **named)

        def tune():
            v = _bind(original, arguments, named)
            return tune_2d(chosen, v["head_size"], v["max_seqlen_q"], v["num_queries_per_kv"], v["kv_cache_dtype"])

        return _guarded("select_2d_config", chosen, tune)

    select_2d_config.radiance_wrapped = True
    module.select_2d_config = select_2d_config


def patch_selectors(module):
    if not getattr(module.select_3d_config, "radiance_wrapped", False):
        wrap_select_3d(module)
    if hasattr(module, "select_2d_config") and not getattr(module.select_2d_config, "radiance_wrapped", False):
        wrap_select_2d(module)
    kernel = getattr(module, "kernel_unified_attention_3d", None)
    if kernel is not None and not isinstance(kernel, LaunchShim):
        module.kernel_unified_attention_3d = LaunchShim(kernel)


def wrap_lookup(original):
    """The newer AITER asks one function for each section of its JSON configuration."""

    def get_unified_attention_config(op, *arguments, **named):
        chosen = original(op, *arguments, **named)
        frame, section = sys._getframe(1), str(op)

        def tune():
            names = frame.f_locals
            q, k, head_size = names["q"].dtype, names["k"].dtype, int(names["head_size"])
            if "2d" in section:
                return tune_2d(chosen, head_size, names["max_seqlen_q"], names["num_queries_per_kv"], k)
            outputs = decode_outputs(geometry_of(frame), head_size, names["max_seqlen_k"], names.get("num_2d_prgms"), q, k)
            if not any(outputs.values()):
                return chosen
            if "reduce" in section:
                return _apply(chosen, outputs, REDUCE_KEYS)
            tuned = _apply(chosen, outputs, ATTENTION_KEYS)
            return _fit(tuned, head_size, k) if "TILE_SIZE" in tuned and "num_stages" in tuned else tuned

        return _guarded(f"configuration {section}", chosen, tune)

    get_unified_attention_config.radiance_wrapped = True
    return get_unified_attention_config


def patch_lookup(module):
    """Modules that hold the lookup function, by whatever import, get the wrapped one."""
    original = module.get_unified_attention_config
    if getattr(original, "radiance_wrapped", False):
        return 0
    wrapped, count = wrap_lookup(original), 0
    for holder in list(sys.modules.values()):
        for name, value in list(getattr(holder, "__dict__", {}).items()):
            if value is original:
                setattr(holder, name, wrapped)
                count += 1
    return count


def _import(name):
    try:
        return importlib.import_module(name)
    except Exception:  # AITER raises what it likes at import; the status line says that it is not there
        return None


def install():
    for name in MODULES:
        _import(name)
    lookup = _import(LOOKUP)
    if lookup is not None and hasattr(lookup, "get_unified_attention_config"):
        count = patch_lookup(lookup)
        say(f"AITER attention: JSON configuration tuned on {count} module aliases")
        return Status(NAME, GATE, ON, f"JSON configuration on {count} module aliases")
    loaded = {name: module for name, module in list(sys.modules.items())
              if name.startswith("aiter.") and callable(vars(module).get("select_3d_config"))}
    if not loaded:
        known = [name for name in MODULES if name in sys.modules]
        why = f"{known[0]} has neither select_3d_config nor a JSON configuration" if known else "AITER is not loaded here"
        return Status(NAME, GATE, MISSING, why)
    for module in {id(m): m for m in loaded.values()}.values():
        patch_selectors(module)
    say(f"AITER attention: select_3d_config, select_2d_config and the 3D launch tuned on {len(loaded)} module aliases")
    return Status(NAME, GATE, ON, f"on {len(loaded)} module aliases")
