# SPDX-License-Identifier: Apache-2.0
"""The steps of the installation, in their order: packing to 4 bits comes before reordering, because both act after loading
and the packer must see the plain weight."""

from . import gates, report
from .hook import ABSENT, MISSING, OFF, ON, Status
from .library import library


def _platform():
    from vllm.platforms import current_platform

    return current_platform


def _gated(name, gate):
    return Status(name, gate, OFF, f"{gate}=0") if not gates.flag(gate) else None


def place_of(platform):
    """Where block-FP8 layers of this platform run, or None with the reason."""
    from .linear import Place

    if platform.is_cpu():
        return Place("cpu", "cpu"), None
    if platform.is_rocm():
        return Place("rocm", getattr(platform, "radiance_device", "gpu:0")), None
    if platform.is_cuda():
        return Place("cuda", getattr(platform, "radiance_device", "gpu:0")), None
    return None, f"platform {getattr(platform, '_enum', platform)} has no kernels of ours"


def _needs_op(name, gate, op, found):
    """Status of a hook whose kernel may not be in the library yet. found: where it would hook in, or None."""
    if not found:
        return Status(name, gate, MISSING, f"vLLM has no {found_name(op)}")
    return Status(name, gate, ABSENT, f"op {op}; vLLM's own runs")


def found_name(op):
    return {"gemm_w4a16": "LinearBase.prefix", "allreduce": "CudaCommunicator.ca_comm",
            "head_int2": "LogitsProcessor.get_top_tokens", "attn_vit": "MMEncoderAttention.register_oot"}[op]


def _attribute(module_name, *path):
    """The attribute, importing its module; None when any part is missing."""
    try:
        value = __import__(module_name, fromlist=["_"])
        for name in path:
            value = getattr(value, name)
        return value
    except (ImportError, AttributeError):
        return None


def draft_linears(adapter):
    name, gate = "4-bit draft linears", "RADIANCE_FAST_DRAFT"
    return _gated(name, gate) or _needs_op(
        name, gate, "gemm_w4a16", _attribute("vllm.model_executor.layers.linear", "LinearBase"))


def linears(adapter):
    from . import linear, ragged

    name, gate = "preshuffle", "RADIANCE_PRESHUFFLE"
    platform = _platform()
    place, why = place_of(platform)
    if place is None:
        return Status(name, gate, MISSING, why)
    kernel = linear.make_kernel(adapter.block_kernel_base(), adapter, place, platform._enum, report.wrap_loaded_workers)
    adapter.put_first(kernel, platform._enum)
    merged = ragged.install(adapter, place)
    text = f"block-FP8 linears through {place.op} on {place.device}, adapter {adapter.NAME}"
    if not gates.flag(gate):
        text += ", weights stay row-major"
    return Status(name, gate, ON, f"{text}; {merged}")


def attention(adapter):
    from . import attention as backend

    return backend.install(adapter, _platform())


def aiter(adapter):
    name, gate = "AITER attention", "RADIANCE_AITER"
    if not _platform().is_rocm():
        return Status(name, gate, OFF, "ROCm only")
    from . import aiter as hook

    return _gated(name, gate) or hook.install()


def all_reduce(adapter):
    name, gate = "all-reduce", "RADIANCE_USE_R4D_AR"
    if _platform().is_cpu():
        return Status(name, gate, OFF, "cards only")
    return _gated(name, gate) or _needs_op(
        name, gate, "allreduce",
        _attribute("vllm.distributed.device_communicators.cuda_communicator", "CudaCommunicator"))


def draft_depth(adapter):
    from . import draft

    name, gate = "draft depth", "RADIANCE_DYNAMIC_DRAFT"
    return _gated(name, gate) or draft.install()


def draft_head(adapter):
    name, gate = "draft head", "RADIANCE_FAST_DRAFT"
    return _gated(name, gate) or _needs_op(
        name, gate, "head_int2",
        _attribute("vllm.model_executor.layers.logits_processor", "LogitsProcessor", "get_top_tokens"))


def vision(adapter):
    name, gate = "vision attention", "RADIANCE_VIT"
    module = "vllm.model_executor.layers.attention.mm_encoder_attention"
    return _gated(name, gate) or _needs_op(
        name, gate, "attn_vit", _attribute(module, "MMEncoderAttention", "register_oot"))


def selection_report(adapter):
    name, gate = "report", "RADIANCE_REPORT"
    off = _gated(name, gate)
    if off:
        return off
    wrapped = report.wrap_loaded_workers()
    return Status(name, gate, ON, "after warm-up" + (f" of {', '.join(wrapped)}" if wrapped else ""))


ORDER = (
    ("4-bit draft linears", "RADIANCE_FAST_DRAFT", draft_linears),
    ("preshuffle", "RADIANCE_PRESHUFFLE", linears),
    ("attention", "RADIANCE_ATTENTION", attention),
    ("AITER attention", "RADIANCE_AITER", aiter),
    ("all-reduce", "RADIANCE_USE_R4D_AR", all_reduce),
    ("draft depth", "RADIANCE_DYNAMIC_DRAFT", draft_depth),
    ("draft head", "RADIANCE_FAST_DRAFT", draft_head),
    ("vision attention", "RADIANCE_VIT", vision),
    ("report", "RADIANCE_REPORT", selection_report),
)
