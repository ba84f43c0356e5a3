# SPDX-License-Identifier: Apache-2.0
"""Layers that we share with vLLM's own kernel: ours takes the calls of few rows, where it was measured faster, the stock kernel
the rest. Both read one weight, row-major as the checkpoint has it. The number of rows is looked at inside an opaque op, when it
runs: a branch in traced Python would be frozen to the side that the trace took."""

import copy

import torch

from . import torch_ops
from .library import RadianceError, library
from .log import say_once

NAME = "radiance::fp8_linear_shared"
SCHEMA = "fp8_linear_shared(Tensor x, Tensor w, Tensor w_scale, int n, int rows, int stock) -> Tensor"
_stock = []  # (key, run) by number: numbers follow the order of layers, the same in every process and run of a model
_library = []


class StandInLayer:
    """What a stock kernel reads off a layer. One kernel object serves all layers of its shape, so that their compiled graphs
    are equal and are compiled once."""

    input_scale = input_scale_ub = None

    def __init__(self, weight, name, scale, block):
        self.weight, self.weight_block_size = weight, block
        self.weight_scale_inv = self.weight_scale = None
        setattr(self, name, scale)


def _shared(x, w, w_scale, n, rows, stock):
    if x.numel() <= rows * x.shape[-1]:
        return torch.ops.radiance.fp8_linear_upto(x, w, w_scale, n, rows)
    return _stock[stock][1](x, w, w_scale)


def _fake_shared(x, w, w_scale, n, rows, stock):
    return x.new_empty((*x.shape[:-1], n))


def _register():
    if _library:
        return
    fragment = torch.library.Library("radiance", "FRAGMENT")
    fragment.define(SCHEMA)
    fragment.impl("fp8_linear_shared", _shared, "CUDA")
    torch.library.register_fake(NAME, _fake_shared)
    _library.append(fragment)


def _number(key, run):
    for index, (known, _) in enumerate(_stock):
        if known == key:
            return index
    _stock.append((key, run))
    return len(_stock) - 1


def misfit(layer, scale, n, k):
    """None when the weight that the stock kernel left can be read by ours, else why not."""
    weight = layer.weight
    if tuple(weight.shape) != (n, k) or weight.stride()[1] != 1 or torch_ops.dtype_names().get(weight.dtype) != "fp8_e4m3":
        return f"weight {tuple(weight.shape)} {weight.dtype}, needs row-major e4m3 of ({n}, {k})"
    grid = (-(-n // 128), -(-k // 128))
    if tuple(scale.shape) != grid or torch_ops.dtype_names().get(scale.dtype) not in ("fp32", "e8m0"):
        return f"scales {tuple(scale.shape)} {scale.dtype}, needs fp32 or e8m0 of {grid}"
    return None


def unfit_stock(stock, base):
    """Why a stock class cannot be half of a pair: it must take any weight and input through the base class's own way."""
    if not issubclass(stock, base):
        return f"{stock.__name__} is no {base.__name__}"
    if stock.apply_weights is not base.apply_weights:
        return f"{stock.__name__} has an apply_weights of its own"
    return None


def rows_of(place, n, k):
    """How many rows a call of ours may have, by the library's rule; None = all."""
    rows = library().policy("engine_share", device=place.device, N=n, K=k)[0]["rows"]
    return None if rows == "all" else int(rows)


def choose(adapter, ours, platform, base, config, alone):
    """The stock class to share a layer with, or None where ours runs `alone` for want of one; RadianceError with the reason when
    the layer is not ours at all. alone: why ours does not take every number of rows, None when it does."""
    from vllm import envs

    if getattr(envs, "VLLM_BATCH_INVARIANT", False):
        raise RadianceError("VLLM_BATCH_INVARIANT=1: sharing a layer would let its number of rows pick the order of sums")
    try:
        stock = adapter.next_kernel(ours, platform, config)
        why = unfit_stock(stock, base)
        if why:
            raise RadianceError(why)  # there is a kernel of vLLM's for the layer, and it is the faster one for many rows
        return stock
    except (ValueError, AttributeError) as error:
        if alone:
            raise RadianceError(f"no kernel of vLLM to share with: {error}; and alone: {alone}") from None
        return None


def as_called(kernel):
    """The kernel as an opaque op calls it: outside a compiled graph its quantiser must be the device's own, for the plain one
    is written for the compiler to fuse."""
    twin = copy.copy(kernel)
    twin.quant_fp8 = getattr(kernel.quant_fp8, "forward_cuda", kernel.quant_fp8)
    return twin


def make_pair(stock, rows, scale_of, on_first_layer):
    """A class of the stock kernel's own kind (vLLM's warm-up looks for that) whose short calls are ours."""

    class RadianceFp8BlockPair(stock):
        def __init__(self, config, *arguments, **named):
            super().__init__(config, *arguments, **named)
            self.radiance_rows = rows
            self._stock_number = None
            torch_ops.register()
            _register()
            on_first_layer()

        def process_weights_after_loading(self, layer):
            super().process_weights_after_loading(layer)
            n, k = self.config.weight_shape
            name, scale = scale_of(layer)
            why = misfit(layer, scale, n, k)
            if why:
                self.radiance_rows = 0
                say_once(("pair", why), f"{getattr(layer, 'prefix', '?')}: {stock.__name__} alone, which left the {why}")
                return
            # The op on no rows: its plans are made and reported now, and not under a graph capture.
            none = torch.empty((0, k), dtype=self.config.input_dtype, device=layer.weight.device)
            try:
                torch.ops.radiance.fp8_linear_upto(none, layer.weight, scale, n, rows)
            except RuntimeError as error:  # a row that failed its check on this card, say
                self.radiance_rows = 0
                say_once(("pair", str(error)), f"{getattr(layer, 'prefix', '?')}: {stock.__name__} alone: {error}")
                return
            block, twin = getattr(layer, "weight_block_size", None), as_called(self)

            def run(x, w, w_scale):
                return stock.apply_weights(twin, StandInLayer(w, name, w_scale, block), x)

            self._stock_number = _number((stock.__name__, n, k, self.config.input_dtype, name), run)

        def apply_weights(self, layer, x, bias=None, **named):
            if not self.radiance_rows:
                return super().apply_weights(layer, x, bias, **named)
            n, _ = self.config.weight_shape
            out = torch.ops.radiance.fp8_linear_shared(x, layer.weight, scale_of(layer)[1], n, self.radiance_rows,
                                                       self._stock_number)
            return out if bias is None else out + bias

    return RadianceFp8BlockPair
