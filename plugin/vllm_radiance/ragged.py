# SPDX-License-Identifier: Apache-2.0
"""Merged layers whose inner shards end inside a scale block (q of 576 rows is 4.5 blocks): vLLM refuses them, because one
merged matrix has one grid of blocks. Each shard has its own grid in the checkpoint, so here each keeps its own scales and is
multiplied alone. Through the registered name "fp8", with vLLM's own config and method as bases; every other layer goes to them."""

import torch

from . import linear, torch_ops
from .library import LAYOUTS, RadianceError

QKV = {"q": 0, "k": 1, "v": 2}


def is_ragged(sizes):
    return len(sizes) > 1 and any(size % linear.BLOCK for size in sizes[:-1])


def block_rows(sizes):
    return [-(-size // linear.BLOCK) for size in sizes]


def shard_scale_class(base):
    """BlockQuantScaleParameter whose shards stand one after another, whatever offset the caller computed."""

    class ShardScale(base):
        def _put(self, loaded, shard):
            first = sum(self.radiance_rows[:shard])
            self.data[first : first + self.radiance_rows[shard]].copy_(loaded)

        def load_qkv_weight(self, loaded_weight, **named):
            self._put(loaded_weight, QKV[named["shard_id"]])

        def load_merged_column_weight(self, loaded_weight, **named):
            self._put(loaded_weight, named["shard_id"])

    return ShardScale


def split(layer, place):
    """Per shard: packed weight and scales, as parameters of the layer so that they move and show up with it."""
    sizes, scale = layer.radiance_sizes, layer.weight_scale_inv
    at, block = 0, 0
    for index, (rows, blocks) in enumerate(zip(sizes, block_rows(sizes))):
        shard = layer.weight.detach()[at : at + rows]
        packed = linear.pack(place, shard, place.packed_layout())
        grid = scale.detach()[block : block + blocks].clone()
        for name, value in (("weight", packed), ("scale", grid)):
            layer.register_parameter(f"radiance_{name}_{index}", torch.nn.Parameter(value, requires_grad=False))
        at, block = at + rows, block + blocks
    layer.weight = layer.radiance_weight_0  # for readers of its type and device; the whole matrix is gone
    layer.weight_scale_inv = layer.radiance_scale_0


SHARDS = 3  # of one op: q, k, v, or gate and up


def apply(layer, place, x, bias):
    layout, sizes = LAYOUTS.index(place.packed_layout()), layer.radiance_sizes
    outs = []
    for first in range(0, len(sizes), SHARDS):
        rows = [*sizes[first : first + SHARDS], 0, 0][:SHARDS]
        at = [first + i if n else first for i, n in enumerate(rows)]  # no rows: any weight stands there
        operands = [getattr(layer, f"radiance_{name}_{i}") for i in at for name in ("weight", "scale")]
        outs.append(torch.ops.radiance.fp8_linear_shards(x, *operands, *rows, layout, place.quantise))
    out = outs[0] if len(outs) == 1 else torch.cat(outs, dim=-1)
    return out if bias is None else out + bias


def method_class(base, parameters, place, on_first_layer):
    scale_class = shard_scale_class(parameters.BlockQuantScaleParameter)

    class RadianceFp8LinearMethod(base):
        def create_weights(self, layer, input_size_per_partition, output_partition_sizes, input_size, output_size,
                           params_dtype, **named):
            alone = getattr(layer, "tp_size", 1) == 1
            if not (self.block_quant and alone and is_ragged(output_partition_sizes)):
                return super().create_weights(layer, input_size_per_partition, output_partition_sizes, input_size,
                                              output_size, params_dtype, **named)
            self._create_ragged(layer, input_size_per_partition, list(output_partition_sizes), params_dtype,
                                named.get("weight_loader"))

        def _create_ragged(self, layer, k, sizes, params_dtype, loader):
            for rows in sizes:
                why = linear.refusal(place, rows, k, params_dtype, layout=place.packed_layout())
                if why:
                    raise RadianceError(why)
            torch_ops.register()
            on_first_layer()
            layer.logical_widths, layer.orig_dtype = sizes, params_dtype
            layer.input_size_per_partition, layer.output_size_per_partition = k, sum(sizes)
            layer.weight_block_size = self.weight_block_size
            layer.radiance_sizes, layer.input_scale = sizes, None
            weight = torch.empty(sum(sizes), k, dtype=torch.float8_e4m3fn)
            layer.register_parameter("weight", parameters.ModelWeightParameter(
                data=weight, input_dim=1, output_dim=0, weight_loader=loader))
            grid = torch.empty(sum(block_rows(sizes)), -(-k // linear.BLOCK), dtype=torch.float32)
            scale = scale_class(data=grid, input_dim=1, output_dim=0, weight_loader=loader)
            scale.radiance_rows = block_rows(sizes)
            layer.register_parameter("weight_scale_inv", scale)

        def process_weights_after_loading(self, layer):
            if not hasattr(layer, "radiance_sizes"):
                return super().process_weights_after_loading(layer)
            if not hasattr(layer, "radiance_weight_0"):
                torch_ops.use_torch_threads()
                split(layer, place)
                apply(layer, place, torch.empty((0, layer.input_size_per_partition), dtype=layer.orig_dtype), None)

        def apply(self, layer, x, bias=None):
            if not hasattr(layer, "radiance_sizes"):
                return super().apply(layer, x, bias)
            return apply(layer, place, x, bias)

    return RadianceFp8LinearMethod


def install(adapter, place):
    """What came of it, for the status line. Only where our kernels read shards in a layout of their own."""
    if place.kind != "cpu":
        return "merged shards that end inside a scale block are vLLM's to refuse"
    try:
        from vllm.model_executor import parameter as parameters
        from vllm.model_executor.layers import linear as layers
        from vllm.model_executor.layers.quantization import fp8, register_quantization_config

        add_loader = layers.register_weight_loader_v2_supported_method
    except (ImportError, AttributeError) as error:
        return f"merged shards that end inside a scale block stay refused: {error}"
    from . import report

    method = method_class(fp8.Fp8LinearMethod, parameters, place, report.wrap_loaded_workers)
    if method.__name__ not in layers.WEIGHT_LOADER_V2_SUPPORTED:
        add_loader(method)

    config = config_class(fp8, method)
    register_quantization_config("fp8")(config)
    globals()[config.__name__] = config
    return "merged shards may end inside a scale block"


def config_class(fp8, method):
    class RadianceFp8Config(fp8.Fp8Config):
        def get_quant_method(self, layer, prefix):
            stock = super().get_quant_method(layer, prefix)
            if type(stock) is not fp8.Fp8LinearMethod or not stock.block_quant:
                return stock
            ours = method(self)
            ours.marlin_input_dtype = stock.marlin_input_dtype
            return ours

    RadianceFp8Config.__qualname__ = RadianceFp8Config.__name__  # vLLM pickles configurations for its workers
    return RadianceFp8Config


def __getattr__(name):
    """A worker unpickles its configuration before it loads plugins: the class is made then."""
    if name == "RadianceFp8Config":
        from .installer import install_all

        install_all()
        if name in globals():
            return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
