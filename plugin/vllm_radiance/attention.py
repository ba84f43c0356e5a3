# SPDX-License-Identifier: Apache-2.0
"""The attention hook: registers our backend where it is asked for, or where it was measured to beat the stock one."""

from . import gates
from .hook import MISSING, OFF, ON, Status

NAME, GATE = "attention", "RADIANCE_ATTENTION"
# What `auto` means on a CPU; docs/vllm.md has the figures.
CPU_AUTO = False


def install_card(wanted, platform):
    """On cards the class fills the name CUSTOM, for `--attention-backend CUSTOM`: no run on a card has shown it faster yet."""
    device = getattr(platform, "radiance_device", "gpu:0")
    if wanted == "auto":
        return Status(NAME, GATE, OFF, "not measured on a card yet; RADIANCE_ATTENTION=1 registers it as CUSTOM")
    try:
        from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend

        custom = AttentionBackendEnum.CUSTOM
    except (ImportError, AttributeError) as error:
        return Status(NAME, GATE, MISSING, str(error))
    register_backend(custom, "vllm_radiance.card_attention.RadianceCardAttentionBackend")
    return Status(NAME, GATE, ON, f"as CUSTOM on {device}: choose it by --attention-backend CUSTOM")


def install(adapter, platform):
    wanted = gates.choice(GATE, "0", "1", "auto")
    if wanted == "0":
        return Status(NAME, GATE, OFF, f"{GATE}=0")
    if not platform.is_cpu():
        return install_card(wanted, platform)
    if wanted == "auto" and not CPU_AUTO:
        return Status(NAME, GATE, OFF, "stock is as fast here; RADIANCE_ATTENTION=1 turns it on")
    try:
        from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend
    except ImportError as error:
        return Status(NAME, GATE, MISSING, str(error))
    if not hasattr(AttentionBackendEnum, "CPU_ATTN"):
        return Status(NAME, GATE, MISSING, "AttentionBackendEnum has no CPU_ATTN")
    register_backend(AttentionBackendEnum.CPU_ATTN, "vllm_radiance.cpu_attention.RadianceCPUAttentionBackend")
    return Status(NAME, GATE, ON, "in the place of CPU_ATTN; what it does not take goes to the stock one, layer by layer")
