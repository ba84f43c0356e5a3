# SPDX-License-Identifier: Apache-2.0
"""The block-FP8 linear kernel of vLLM's registry. What it can do comes from rd_kernel_explain, what it does to a weight at
load from the preshuffle contract of the library's policy; which kernel runs is decided inside the op, where M is known."""

import torch

from . import gates, pair, torch_ops
from .library import LAYOUTS, RadianceError, library
from .log import say_once

BLOCK = 128  # the format's scale block, both ways


class Place:
    """Where a layer runs: the device that questions are asked about, and how weights are laid out there."""

    def __init__(self, kind, device):
        self.kind, self.device = kind, device

    @property
    def quantise(self):
        return self.kind != "cpu" or gates.flag("RADIANCE_CPU_W8A8")

    @property
    def op(self):
        return "gemm_fp8block" if self.quantise else "gemm_fp8block_w8a16"

    def packed_layout(self):
        return {"cpu": "panel16", "rocm": "shuffle16"}.get(self.kind, "row")


def dtype_name(dtype):
    return torch_ops.dtype_names().get(dtype, str(dtype).replace("torch.", ""))


def refusal(place, n, k, x_dtype, scale_dtype="fp32", layout="row", most=4096):
    """None when a kernel takes the layer at one row and at many, else the library's reasons in one line."""
    a_dtype = "fp8_e4m3" if place.quantise else dtype_name(x_dtype)
    for m in (1, most):
        question = dict(m=m, n=n, k=k, a_dtype=a_dtype, w_scale_dtype=scale_dtype, c_dtype=dtype_name(x_dtype),
                        layout=layout, bias=0, order="any")
        try:
            answers = library().explain(place.device, place.op, **question)
        except RadianceError as error:
            return str(error)
        if not any(answer.ok for answer in answers):
            reasons = dict.fromkeys(answer.reason for answer in answers)  # each once, in the library's order
            return f"{place.op} m={m} n={n} k={k}: " + ("; ".join(reasons) or "no kernel of this build")
    return None


def scale_of(layer):
    """(attribute, tensor) of the block scales: Fp8LinearMethod's name, else that of compressed-tensors."""
    for name in ("weight_scale_inv", "weight_scale"):
        scale = getattr(layer, name, None)
        if scale is not None:
            return name, scale
    raise RadianceError("the layer has neither weight_scale_inv nor weight_scale")


def shuffle_verdict(place, layer, weight, scale, n, k):
    """None when the weight may be reordered at load, else why not."""
    if not gates.flag("RADIANCE_PRESHUFFLE"):
        return "RADIANCE_PRESHUFFLE=0"
    if place.packed_layout() == "row":
        return "no kernel of this device reads a reordered weight"
    if getattr(layer, "_cpu_skip_gemm_dispatch", False) or "kv_b_proj" in getattr(layer, "prefix", ""):
        return "later code reads this weight as a matrix"
    packed_4bit = int(getattr(layer, "radiance_packed_4bit", False))
    if place.kind == "cpu":  # panels take any N and K: only the layer's own state can forbid them
        return "already packed to 4 bits" if packed_4bit else None
    outputs, rule = library().policy(
        "preshuffle_contract", block_quant=1, dtype=dtype_name(weight.dtype), rank=weight.dim(), N=n, K=k,
        scale_rows=scale.shape[0], scale_cols=scale.shape[1], packed_4bit=packed_4bit)
    return None if outputs["shuffled"] == "1" else rule


def pack(place, weight, layout):
    """The weight in the layout's order. The library does it on the host, where the layout is defined once; padded rows are
    read through their stride."""
    if place.kind == "cpu":
        return torch_ops.cpu_weight_pack(weight, layout)
    return torch_ops.cpu_weight_pack(weight.cpu(), layout).to(weight.device)


def load_layer(place, layer, n, k, replace):
    """Once, after the weights are there: un-pad, reorder where the contract holds, make scales dense."""
    weight = layer.weight
    if tuple(weight.shape) != (n, k):
        return  # reordered already: a reload of processed weights, or a second call
    name, scale = scale_of(layer)
    why = shuffle_verdict(place, layer, weight, scale, n, k)
    layout = place.packed_layout() if why is None else "row"
    missing = refusal(place, n, k, torch.bfloat16, dtype_name(scale.dtype), layout)
    if missing:
        raise RadianceError(f"layer {getattr(layer, 'prefix', '?')}: layout {layout} has no kernel: {missing}")
    if why is None:
        replace(layer, "weight", pack(place, weight.detach(), layout))
    else:
        say_once(("row", why), f"weights stay row-major ({getattr(layer, 'prefix', '?')} n={n} k={k}): {why}")
        if not weight.is_contiguous():
            replace(layer, "weight", weight.detach().contiguous())
    if not scale.is_contiguous():
        replace(layer, name, scale.detach().contiguous())


def layout_of(place, weight, n, k):
    """Index of the layout that the tensor's own shape shows, so that processed weights need no note beside them."""
    return 0 if tuple(weight.shape) == (n, k) else LAYOUTS.index(place.packed_layout())


def apply_layer(place, layer, x, bias, n, k):
    weight, scale = layer.weight, scale_of(layer)[1]
    layout, quantise = layout_of(place, weight, n, k), place.quantise
    if bias is None:
        return torch.ops.radiance.fp8_linear(x, weight, scale, n, layout, quantise)
    if bias.dtype not in (torch.float32, torch.bfloat16):
        return torch.ops.radiance.fp8_linear(x, weight, scale, n, layout, quantise) + bias
    return torch.ops.radiance.fp8_linear_bias(x, weight, scale, bias, n, layout, quantise)


def ask_plans(layer, place, x_dtype, n, k):
    """The op on no rows: its plans are made and reported now, so that no later call (under a graph capture, say) makes one."""
    apply_layer(place, layer, torch.empty((0, k), dtype=x_dtype, device=layer.weight.device), None, n, k)


def config_refusal(config):
    """What the format itself rules out, or None."""
    if config.activation_quant_key.scale.static:
        return "activation scales are static, needs dynamic ones per group"
    shape = config.weight_quant_key.scale.group_shape
    if (shape.row, shape.col) != (BLOCK, BLOCK):
        return f"scale blocks of {shape.row}x{shape.col}, needs {BLOCK}x{BLOCK}"
    if config.out_dtype not in (None, config.input_dtype):
        return f"out_dtype={config.out_dtype}, needs the input's {config.input_dtype}"
    return None


def make_kernel(base, adapter, place, platform, on_first_layer):
    """The class for vLLM's list. Its name is what VLLM_DISABLED_KERNELS takes. A layer that is better shared with vLLM's own
    kernel becomes an object of a pair class instead."""

    class RadianceFp8Block(base):
        apply_input_quant = False  # the op quantises, where its kernel wants that

        def __new__(cls, config, *arguments, **named):
            stock, rows = cls.shared_with(config)
            if stock is None:
                return super().__new__(cls)
            return pair.make_pair(stock, rows, scale_of, on_first_layer)(config, *arguments, **named)

        @classmethod
        def shared_with(cls, config):
            """(vLLM's class that the layer is shared with, rows of our calls), or (None, None): all ours."""
            n, k = config.weight_shape
            rows = pair.rows_of(place, n, k)
            if rows is None:
                return None, None
            stock = pair.choose(adapter, cls, platform, base, config, refusal(place, n, k, config.input_dtype))
            return (stock, rows) if stock else (None, None)

        @classmethod
        def is_supported(cls, compute_capability=None):
            try:
                library().device(place.device)
                library().check_host()  # weights are packed there, on every platform
            except RadianceError as error:
                return False, str(error)
            return True, None

        @classmethod
        def can_implement(cls, config):
            n, k = config.weight_shape
            try:
                why = config_refusal(config)
                why = why or refusal(place, n, k, config.input_dtype, most=pair.rows_of(place, n, k) or 4096)
                if why is None:
                    cls.shared_with(config)
            except RadianceError as error:
                why = str(error)
            return why is None, why

        def __init__(self, config, *arguments, **named):
            super().__init__(config, *arguments, **named)
            torch_ops.register()
            on_first_layer()

        def process_weights_after_loading(self, layer):
            if place.kind == "cpu":
                torch_ops.use_torch_threads()
            n, k = self.config.weight_shape
            load_layer(place, layer, n, k, adapter.replace_parameter)
            ask_plans(layer, place, self.config.input_dtype, n, k)

        def apply_weights(self, layer, x, bias=None, **named):
            n, k = self.config.weight_shape
            return apply_layer(place, layer, x, bias, n, k)

        def apply_block_scaled_mm(self, A, B, As, Bs):
            n, k = self.config.weight_shape
            return torch.ops.radiance.fp8_linear(A, B, Bs, n, layout_of(place, B, n, k), place.quantise)

    return RadianceFp8Block
