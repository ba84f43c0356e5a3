# SPDX-License-Identifier: Apache-2.0
"""radiance::* ops in torch: boxed C kernels through torch's stable shim, or the same calls over ctypes where the shim is
older. The fakes tell torch.compile shapes without running anything."""

import ctypes
import functools
import pathlib

import torch

from . import gates
from . import library as lib
from .log import say_once

_kept = []  # a torch.library.Library unregisters its ops when it dies


class AttnArgs(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        *((name, lib.Tensor) for name in ("q", "k_cache", "v_cache", "k_scale", "v_scale", "block_table", "kv_lens",
                                          "q_starts", "sinks", "out")),
        ("scale", ctypes.c_float),
        ("softcap", ctypes.c_float),
        *((name, ctypes.c_int32) for name in ("window", "max_q_len", "max_kv_len")),
        ("out_scale", lib.Tensor),
        ("tables_settled", ctypes.c_int32),
    ]


class Scratch(ctypes.Structure):
    _fields_ = [("get", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)), ("state", ctypes.c_void_p)]


class LinearCall(ctypes.Structure):
    _fields_ = [
        *((name, lib.Tensor) for name in ("x", "w", "w_scale", "bias", "c")),
        ("layout", ctypes.c_int32),
        ("quantise", ctypes.c_int32),
        ("rows", ctypes.c_int64),
        ("stream", ctypes.c_void_p),
        ("scratch", Scratch),
    ]


@functools.cache
def dtype_names():
    names = {
        torch.float32: "fp32",
        torch.bfloat16: "bf16",
        torch.float16: "fp16",
        torch.float8_e4m3fn: "fp8_e4m3",
        torch.float8_e5m2: "fp8_e5m2",
        torch.int32: "i32",
        torch.int64: "i64",
        torch.uint8: "u8",
    }
    if hasattr(torch, "float8_e8m0fnu"):
        names[torch.float8_e8m0fnu] = "e8m0"
    return names


def tensor_of(t):
    device = 0 if t.device.type == "cpu" else 1 + (t.device.index or 0)
    return lib.tensor(t.data_ptr(), dtype_names()[t.dtype], tuple(t.shape), t.stride(), device)


def _fake_linear(x, w, w_scale, n, layout, quantise):
    return x.new_empty((*x.shape[:-1], n))


def _fake_linear_bias(x, w, w_scale, bias, n, layout, quantise):
    return x.new_empty((*x.shape[:-1], n))


def _fake_linear_upto(x, w, w_scale, n, rows):
    return x.new_empty((*x.shape[:-1], n))


def _fake_linear_shards(x, w0, s0, w1, s1, w2, s2, n0, n1, n2, layout, quantise):
    return x.new_empty((*x.shape[:-1], n0 + n1 + n2))


def _fake_nothing(*arguments):
    return None


def _card_scratch(x):
    """(scratch, stream, what must live as long as the call): a card's scratch is a tensor of torch's, ordered on the stream."""
    if x.device.type == "cpu":
        return Scratch(), None, None
    held = []

    def get(state, size):
        held.append(torch.empty((size,), dtype=torch.uint8, device=x.device))
        return held[-1].data_ptr()

    scratch = Scratch(get=Scratch._fields_[0][1](get))
    return scratch, torch.cuda.current_stream().cuda_stream, (held, scratch)


def _linear_by_ctypes(library):
    run = library.binding.rdt_linear_run

    def linear(x, w, w_scale, bias, n, layout, quantise, rows=0):
        flat = x.reshape(-1, x.shape[-1])
        c = torch.empty((flat.shape[0], n), dtype=x.dtype, device=x.device)
        call = LinearCall(x=tensor_of(flat), w=tensor_of(w), w_scale=tensor_of(w_scale), c=tensor_of(c),
                          layout=layout, quantise=int(quantise), rows=rows)
        if bias is not None:
            call.bias = tensor_of(bias)
        call.scratch, call.stream, held = _card_scratch(x)
        library.check(run(ctypes.byref(call)))
        return c.view(*x.shape[:-1], n)

    return linear


def _shards_by_ctypes(linear):
    def shards(x, w0, s0, w1, s1, w2, s2, n0, n1, n2, layout, quantise):
        parts = [linear(x, w, s, None, n, layout, quantise) for w, s, n in ((w0, s0, n0), (w1, s1, n1), (w2, s2, n2)) if n]
        return torch.cat(parts, dim=-1)

    return shards


def _attn_by_ctypes(library):
    run = library.binding.rdt_attn_run
    run.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p]

    def attn(q, k_cache, v_cache, k_scale, v_scale, block_table, kv_lens, q_starts, sinks, out, scale, softcap, window, longest,
             longest_kv, token_order):
        args = AttnArgs(struct_size=ctypes.sizeof(AttnArgs), scale=scale, softcap=softcap, window=window, max_q_len=longest,
                        max_kv_len=longest_kv)
        given = dict(q=q, k_cache=k_cache, v_cache=v_cache, k_scale=k_scale, v_scale=v_scale, block_table=block_table,
                     kv_lens=kv_lens, q_starts=q_starts, sinks=sinks, out=out)
        for name, t in given.items():
            if t.numel():  # a tensor without elements stands for an operand that is not given
                setattr(args, name, tensor_of(t))
        scratch, stream, held = _card_scratch(q)
        library.check(run(ctypes.byref(args), longest, int(token_order), ctypes.byref(scratch), stream))

    return attn


def _register_by_ctypes(library):
    """The linears and attention; writing the cache stays with vLLM."""
    fragment = torch.library.Library("radiance", "FRAGMENT")
    linear = _linear_by_ctypes(library)
    for index in range(5):
        fragment.define(library.binding.rdt_schema_at(index).decode())
    for key in ("CPU", "CUDA") if torch.version.cuda or torch.version.hip else ("CPU",):
        fragment.impl("fp8_linear", lambda x, w, s, n, layout, q: linear(x, w, s, None, n, layout, q), key)
        fragment.impl("fp8_linear_bias", linear, key)
        fragment.impl("fp8_linear_upto", lambda x, w, s, n, rows: linear(x, w, s, None, n, 0, True, rows), key)
        fragment.impl("fp8_linear_shards", _shards_by_ctypes(linear), key)
        fragment.impl("attn", _attn_by_ctypes(library), key)
    _kept.append(fragment)


@functools.cache
def register(force_ctypes=False):
    """Registers the ops once a process. Returns how: "boxed" or "ctypes"."""
    library = lib.library()
    if gates.flag("RADIANCE_REFERENCE"):
        library.binding.rdt_use_reference(1)
        say_once("reference", "RADIANCE_REFERENCE=1: every op runs its plain-C reference")
    how = "boxed"
    why = b"asked for" if force_ctypes else None
    if not force_ctypes:
        folder = pathlib.Path(torch.__file__).parent / "lib"
        cards = torch.version.cuda is not None or torch.version.hip is not None
        why = library.binding.rdt_register(str(folder).encode(), int(cards))
    if why:
        how = "ctypes"
        say_once("ctypes", f"ops go through ctypes, a few microseconds slower a call: {why.decode()}")
        _register_by_ctypes(library)
    torch.library.register_fake("radiance::fp8_linear", _fake_linear)
    torch.library.register_fake("radiance::fp8_linear_bias", _fake_linear_bias)
    torch.library.register_fake("radiance::fp8_linear_upto", _fake_linear_upto)
    torch.library.register_fake("radiance::fp8_linear_shards", _fake_linear_shards)
    torch.library.register_fake("radiance::attn", _fake_nothing)
    if how == "boxed":
        torch.library.register_fake("radiance::kv_write", _fake_nothing)
    return how


@functools.cache
def use_torch_threads():
    """The host's context runs on torch's pool. Called when a layer is loaded: vLLM has set the thread count by then."""
    if register() != "boxed":
        return 0
    return lib.library().binding.rdt_use_torch_threads(b"cpu")


def cpu_weight_pack(weight, layout):
    """The host weight [n, k] in another byte order, as a tensor of its own."""
    made = []

    def allocate(shape):
        made.append(torch.empty(shape, dtype=weight.dtype))
        return made[0].data_ptr()

    lib.library().weight_pack(tensor_of(weight), layout, allocate)
    return made[0]
