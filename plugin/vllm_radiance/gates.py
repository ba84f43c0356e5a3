# SPDX-License-Identifier: Apache-2.0
"""The plugin's switches: one table, read from the environment, printed by `radiance vllm doctor`."""

import os

from .log import say_once

# name, default, meaning; a value is 0 or 1 unless the default is neither
GATES = (
    ("RADIANCE_PLUGIN", "1", "0: install nothing, vLLM runs as published"),
    ("RADIANCE_PRESHUFFLE", "1", "reorder block-FP8 weights once at load for the kernels that read them so"),
    ("RADIANCE_CPU_W8A8", "0", "on a CPU, quantise activations too, as GPUs do; 0 keeps them 16-bit, which is nearer bf16"),
    ("RADIANCE_ATTENTION", "auto", "our attention backend: 1 on, 0 off, auto as measured (docs/vllm.md)"),
    ("RADIANCE_AITER", "1", "tune AITER's unified attention where it is loaded"),
    ("RADIANCE_FAST_DRAFT", "0", "4-bit linears and the 2-bit head for draft layers"),
    ("RADIANCE_USE_R4D_AR", "1", "our all-reduce between cards"),
    ("RADIANCE_DYNAMIC_DRAFT", "0", "choose the draft depth at run time"),
    ("RADIANCE_VIT", "1", "our attention for vision encoders"),
    ("RADIANCE_REFERENCE", "0", "1: the plain-C reference of every op, very slow: tells a kernel's fault from a model's"),
    ("RADIANCE_REPORT", "1", "print the kernel selection report after warm-up"),
    ("RADIANCE_LIBRARY", "", "folder of libradiance.so and libradiance_torch.so; empty = the package's own"),
)
_DEFAULTS = {name: default for name, default, _ in GATES}


def text(name):
    return os.environ.get(name, _DEFAULTS[name])


ANNOUNCED = "RADIANCE_ANNOUNCED"  # set for the child processes: one line a run, not one a process


def words_of(name):
    """The values that a gate takes; () = any text."""
    return {"": (), "auto": ("0", "1", "auto")}.get(_DEFAULTS[name], ("0", "1"))


def choice(name, *words):
    value = text(name)
    if value in words:
        return value
    if not os.environ.get(ANNOUNCED):
        say_once(name, f"{name}={value[:40]}, needs one of: {' '.join(words)}; using {_DEFAULTS[name]}")
    return _DEFAULTS[name]


def check_all():
    """A line for each gate whose value is none of its words, whether this platform asks it or not."""
    for name, _, _ in GATES:
        if words_of(name):
            choice(name, *words_of(name))


def flag(name):
    return choice(name, "0", "1") == "1"
