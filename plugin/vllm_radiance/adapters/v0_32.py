# SPDX-License-Identifier: Apache-2.0
"""vLLM 0.32: block-FP8 kernels are put into the private list; `register_linear_kernel` refuses the kind fp8_block."""

import inspect

NAME = "0.32"


def _linear():
    from vllm.model_executor.kernels import linear

    return linear


def probe():
    """None when this adapter fits, else what is missing."""
    linear = _linear()
    for name in ("_POSSIBLE_FP8_BLOCK_KERNELS", "Fp8BlockScaledMMLinearKernel", "init_fp8_linear_kernel"):
        if not hasattr(linear, name):
            return f"vllm.model_executor.kernels.linear has no {name}"
    base = linear.Fp8BlockScaledMMLinearKernel
    for name in ("is_supported", "can_implement", "process_weights_after_loading", "apply_weights"):
        if not hasattr(base, name):
            return f"Fp8BlockScaledMMLinearKernel has no {name}"
    if "x" not in inspect.signature(base.apply_weights).parameters:
        return "apply_weights takes no x"
    return None


def block_kernel_base():
    return _linear().Fp8BlockScaledMMLinearKernel


def put_first(kernel, platform):
    """The class at index 0 of the platform's list, once, however often this is called."""
    kernels = _linear()._POSSIBLE_FP8_BLOCK_KERNELS.setdefault(platform, [])
    kernels[:] = [kernel, *(k for k in kernels if k.__name__ != kernel.__name__)]


def next_kernel(kernel, platform, config):
    """The class that vLLM takes for this layer without `kernel`; ValueError with vLLM's reasons when there is none."""
    linear = _linear()
    others = [k for k in linear._POSSIBLE_FP8_BLOCK_KERNELS.get(platform, []) if k.__name__ != kernel.__name__]
    return linear.choose_scaled_mm_linear_kernel(config, {platform: others}, quantization="fp8_block_w8a8")


def replace_parameter(layer, name, tensor):
    from vllm.model_executor.utils import replace_parameter as replace

    replace(layer, name, tensor)


def attention_impl_extras():
    """Class attributes that newer vLLM reads off an attention implementation."""
    return {}
