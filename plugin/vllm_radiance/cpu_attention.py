# SPDX-License-Identifier: Apache-2.0
"""Our attention in the place of vLLM's CPU_ATTN: causal decoders over a bf16 or e4m3 cache, any whole ratio of heads, window,
softcap, sinks. Imported by vLLM through the registered path. Whatever else a layer asks for goes to the stock backend."""

import torch
from vllm.config import get_layers_from_vllm_config
from vllm.model_executor.layers.attention import Attention
from vllm.v1.attention.backend import AttentionMetadataBuilder, AttentionType
from vllm.v1.attention.backends.cpu_attn import (
    CPUAttentionBackend,
    CPUAttentionBackendImpl,
    CPUAttentionMetadata,
    CPUAttentionMetadataBuilder,
)

from . import adapters, report, torch_ops
from .library import RadianceError, library
from .log import say_once

_TOKEN_GROUP = 16  # keys stand in groups of 16 tokens, a group's tokens adjacent for each dim (k_order=token)


def refusal(head_size, heads, kv_heads, q_dtype, kv_dtype, sinks, softcap, window):
    """None when a kernel takes the layer, else why not, in the library's words."""
    question = dict(q_len=1, head_dim=head_size, gqa=heads // kv_heads, block_tokens=_TOKEN_GROUP, q_dtype=q_dtype,
                    kv_dtype=kv_dtype, out_dtype=q_dtype, k_order="token", window=int(window > 0),
                    softcap=int(softcap > 0), sinks=int(sinks), causal=1)
    try:
        answers = library().explain("cpu", "attn_decode", **question)
    except RadianceError as error:
        return str(error)
    if any(a.ok and not a.reference for a in answers):
        return None
    return "; ".join(dict.fromkeys(a.reason for a in answers if not a.reference))


class RadianceCPUAttentionBackend(CPUAttentionBackend):
    @classmethod
    def get_supported_head_sizes(cls):
        ours = range(_TOKEN_GROUP, 513, _TOKEN_GROUP)
        return sorted({*ours, *super().get_supported_head_sizes()})

    @staticmethod
    def get_impl_cls():
        return RadianceCPUAttentionImpl

    @staticmethod
    def get_builder_cls():
        return RadianceCPUAttentionBuilder


class RadianceCPUAttentionBuilder(CPUAttentionMetadataBuilder):
    """The stock builder plans the stock kernel for every step; a group of our layers needs no such plan."""

    def __init__(self, kv_cache_spec, layer_names, vllm_config, device):
        layers = get_layers_from_vllm_config(vllm_config, Attention, layer_names)
        self.radiance = bool(layers) and all(getattr(layer.impl, "radiance", False) for layer in layers.values())
        if self.radiance:
            AttentionMetadataBuilder.__init__(self, kv_cache_spec, layer_names, vllm_config, device)
            for layer in layers.values():
                layer.impl.ask_plans(kv_cache_spec.block_size)
        else:
            super().__init__(kv_cache_spec, layer_names, vllm_config, device)

    def build(self, common_prefix_len, common_attn_metadata, fast_build=False):
        if not self.radiance:
            return super().build(common_prefix_len, common_attn_metadata, fast_build)
        common = common_attn_metadata
        if common.causal is not True:
            raise RadianceError("attention: causal is off for this batch, needs causal; RADIANCE_ATTENTION=0 avoids this")
        return CPUAttentionMetadata(
            num_actual_tokens=common.num_actual_tokens, max_query_len=common.max_query_len,
            query_start_loc=common.query_start_loc, max_seq_len=common.max_seq_len, seq_lens=common.seq_lens,
            block_table=common.block_table_tensor, slot_mapping=common.slot_mapping, scheduler_metadata=None)


class RadianceCPUAttentionImpl(CPUAttentionBackendImpl):
    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        for name, value in (adapters.choose()[0] or adapters.v0_32).attention_impl_extras().items():
            if not hasattr(type(self), name):
                setattr(type(self), name, value)
        why = self._refusal()
        self.radiance = why is None
        self._dtype = torch.get_default_dtype()  # the model's, while layers are built
        if why:
            say_once(("attention", why), f"attention: vLLM's own runs for head_dim={self.head_size}: {why}")
            return
        torch_ops.register()
        torch_ops.use_torch_threads()
        report.wrap_loaded_workers()
        self._nothing = torch.empty(0, dtype=torch.float32)
        self._sinks = self._nothing if self.sinks is None else self.sinks.to(torch.float32)
        self._scales = None
        self._views = None

    def _refusal(self):
        if self.attn_type != AttentionType.DECODER:
            return f"attn_type={self.attn_type}, needs {AttentionType.DECODER}"
        if self.alibi_slopes is not None:
            return "ALiBi slopes are given, needs none"
        if self.kv_cache_dtype not in ("auto", "bfloat16", "fp8", "fp8_e4m3"):
            return f"kv_cache_dtype={self.kv_cache_dtype}, needs one of: auto bfloat16 fp8 fp8_e4m3"
        model = torch_ops.dtype_names().get(torch.get_default_dtype(), "?")
        kv = "fp8_e4m3" if self.is_fp8_kv_cache else model
        return refusal(self.head_size, self.num_heads, self.num_kv_heads, model, kv, self.sinks is not None,
                       self.logits_soft_cap, self.sliding_window)

    def _caches(self, kv_cache):
        """Keys and values of [blocks, kv heads, tokens, 2 dims] as [blocks, tokens, kv heads, dim]: the first half of a
        head's block holds keys in token order, the second values row by row."""
        kept = self._views
        if kept is not None and kept[0] == (kv_cache.data_ptr(), kv_cache.shape):
            return kept[1], kept[2]
        if self.is_fp8_kv_cache and kv_cache.dtype != torch.float8_e4m3fn:
            cache = kv_cache.view(torch.float8_e4m3fn)
        else:
            cache = kv_cache
        blocks, heads, tokens, _ = cache.shape
        dim, (block, head) = self.head_size, cache.stride()[:2]
        if tokens % _TOKEN_GROUP:
            raise RadianceError(f"attention: blocks of {tokens} tokens, needs a multiple of {_TOKEN_GROUP}")
        shape, at = (blocks, tokens, heads, dim), cache.storage_offset()
        keys = cache.as_strided(shape, (block, 1, head, _TOKEN_GROUP), at)
        values = cache.as_strided(shape, (block, dim, head, 1), at + tokens * dim)
        self._views = ((kv_cache.data_ptr(), kv_cache.shape), keys, values)
        return keys, values

    def ask_plans(self, block_tokens):
        """The op on no sequence: its plans are made and reported before the first step."""
        dtype = torch.float8_e4m3fn if self.is_fp8_kv_cache else self._dtype
        cache = torch.empty((1, self.num_kv_heads, block_tokens, 2 * self.head_size), dtype=dtype)
        keys, values = self._caches(cache)
        self._views = None
        none = torch.zeros(1, dtype=torch.int32)  # one sequence without queries or keys: nothing is read or written
        rows = torch.empty((1, self.num_heads, self.head_size), dtype=self._dtype)
        for longest in (1, block_tokens + _TOKEN_GROUP):  # a decode step, a chunk of a prompt
            torch.ops.radiance.attn(rows, keys, values, self._nothing, self._nothing, none.view(1, 1), none,
                                    torch.zeros(2, dtype=torch.int32), self._sinks, rows, self.scale,
                                    float(self.logits_soft_cap), max(self.sliding_window, 0), longest, 0, True)

    def _cache_scales(self, layer):
        if not self.is_fp8_kv_cache:
            return self._nothing, self._nothing
        if self._scales is None:
            self._scales = tuple(torch.full((self.num_kv_heads,), s, dtype=torch.float32)
                                 for s in (layer._k_scale_float, layer._v_scale_float))
        return self._scales

    def do_kv_cache_update(self, layer, key, value, kv_cache, slot_mapping):
        if not self.radiance:
            return super().do_kv_cache_update(layer, key, value, kv_cache, slot_mapping)
        keys, values = self._caches(kv_cache)
        k_scale, v_scale = self._cache_scales(layer)
        count = slot_mapping.shape[0]
        torch.ops.radiance.kv_write(key[:count], value[:count], keys, values, k_scale, v_scale, slot_mapping, True)

    def forward(self, layer, query, key, value, kv_cache, attn_metadata, output, output_scale=None,
                output_block_scale=None):
        if not self.radiance or attn_metadata is None or output_scale is not None or output_block_scale is not None:
            return super().forward(layer, query, key, value, kv_cache, attn_metadata, output, output_scale,
                                   output_block_scale)
        tokens, heads, dim = attn_metadata.num_actual_tokens, self.num_heads, self.head_size
        keys, values = self._caches(kv_cache)
        k_scale, v_scale = self._cache_scales(layer)
        torch.ops.radiance.attn(
            query[:tokens].view(tokens, heads, dim), keys, values, k_scale, v_scale, attn_metadata.block_table,
            attn_metadata.seq_lens, attn_metadata.query_start_loc, self._sinks,
            output[:tokens].view(tokens, heads, dim), self.scale, float(self.logits_soft_cap),
            max(self.sliding_window, 0), attn_metadata.max_query_len, 0, True)
        return output
