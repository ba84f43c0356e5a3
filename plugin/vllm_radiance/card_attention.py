# SPDX-License-Identifier: Apache-2.0
"""Our attention on cards: vLLM's Triton backend with the forward pass of libradiance. Metadata, cache layout and the cache write
stay Triton's, so only causal decoders over a bf16 or e4m3 cache come to us; every other layer runs as before. A build that has
decode kernels alone for a card takes the decode and verify batches, and Triton's kernel the others over the same cache."""

import torch
from vllm.v1.attention.backend import AttentionType
from vllm.v1.attention.backends.triton_attn import TritonAttentionBackend, TritonAttentionImpl

from . import report, torch_ops
from .library import RadianceError, library
from .log import say_once


DECODE_WIDTH = 17  # most queries of a sequence in a call of attn_decode
CHUNK = 1 << 24


class RadianceCardAttentionBackend(TritonAttentionBackend):
    @staticmethod
    def get_name():
        return "CUSTOM"

    @staticmethod
    def get_impl_cls():
        return RadianceCardAttentionImpl


def device_of_platform():
    from vllm.platforms import current_platform

    return getattr(current_platform, "radiance_device", "gpu:0")


class RadianceCardAttentionImpl(TritonAttentionImpl):
    def __init__(self, num_heads, head_size, scale, num_kv_heads, alibi_slopes=None, sliding_window=None, kv_cache_dtype="auto",
                 logits_soft_cap=None, attn_type=AttentionType.DECODER, *rest, **named):
        super().__init__(num_heads, head_size, scale, num_kv_heads, alibi_slopes, sliding_window, kv_cache_dtype,
                         logits_soft_cap, attn_type, *rest, **named)
        self._window, self._softcap = sliding_window or 0, logits_soft_cap or 0.0
        self._fp8 = kv_cache_dtype in ("fp8", "fp8_e4m3")
        self._dtype = torch_ops.dtype_names().get(torch.get_default_dtype(), "?")
        sinks = getattr(self, "sinks", None)
        why = self._layer_refusal(alibi_slopes, kv_cache_dtype, attn_type) or self._kernel_refusal("attn_decode", sinks)
        self.radiance = why is None
        if why:
            say_once(("attention", why), f"attention: Triton's runs for head_dim={head_size}: {why}")
            return
        why = self._kernel_refusal("attn_prefill", sinks)
        self._longest = DECODE_WIDTH if why else CHUNK
        if why:
            say_once(("prefill", why), f"attention: Triton's runs for more than {DECODE_WIDTH} queries a sequence: {why}")
        torch_ops.register()
        report.wrap_loaded_workers()
        self.supports_quant_query_input = False  # queries come 16-bit: quantising them costs ten times the error
        self._sinks, self._scales = sinks, None

    @staticmethod
    def _layer_refusal(alibi_slopes, kv_cache_dtype, attn_type):
        if attn_type != AttentionType.DECODER:
            return f"attn_type={attn_type}, needs {AttentionType.DECODER}"
        if alibi_slopes is not None:
            return "ALiBi slopes are given, needs none"
        if kv_cache_dtype not in ("auto", "bfloat16", "fp8", "fp8_e4m3"):
            return f"kv_cache_dtype={kv_cache_dtype}, needs one of: auto bfloat16 fp8 fp8_e4m3"
        return None

    def _kernel_refusal(self, op, sinks):
        """None when a kernel takes the layer and has passed its check on this very card, else why not."""
        question = dict(head_dim=self.head_size, gqa=self.num_heads // self.num_kv_heads, block_tokens=16, q_dtype=self._dtype,
                        kv_dtype="fp8_e4m3" if self._fp8 else self._dtype, out_dtype=self._dtype, k_order="dim",
                        window=int(self._window > 0), softcap=int(self._softcap > 0), sinks=int(sinks is not None), causal=1)
        most = DECODE_WIDTH if op == "attn_decode" else CHUNK
        try:
            answers = library().explain(device_of_platform(), op, q_len=min(most, 4096), **question)
            if not any(a.ok and not a.reference for a in answers):
                return f"{op}: " + ("; ".join(dict.fromkeys(a.reason for a in answers)) or "no kernel of this build")
            # The context's own answer: at its first use a card checks each kernel, and one that fails is left out.
            library().ready(1 + torch.cuda.current_device(), op, most, **question)
        except RadianceError as error:
            return str(error)
        return None

    def _operands(self, layer, device):
        """(k scale, v scale, sinks), one per head, made once; without elements where not given."""
        if self._scales is None:
            none = torch.empty((0,), dtype=torch.float32, device=device)
            scales = [none, none]
            if self._fp8:
                scales = [s.reshape(1).expand(self.num_kv_heads).contiguous() for s in (layer._k_scale, layer._v_scale)]
            self._scales = (*scales, none if self._sinks is None else self._sinks.to(torch.float32))
        return self._scales

    def forward(self, layer, query, key, value, kv_cache, attn_metadata, output, output_scale=None, output_block_scale=None):
        plain = output_scale is None and output_block_scale is None
        ours = self.radiance and plain and attn_metadata is not None and attn_metadata.causal is True
        if not ours or attn_metadata.max_query_len > self._longest:
            return super().forward(layer, query, key, value, kv_cache, attn_metadata, output, output_scale, output_block_scale)
        tokens, heads, dim = attn_metadata.num_actual_tokens, self.num_heads, self.head_size
        if self._fp8 and kv_cache.dtype != torch.float8_e4m3fn:
            kv_cache = kv_cache.view(torch.float8_e4m3fn)
        keys, values = kv_cache.transpose(1, 2).split(dim, -1)  # [blocks, kv heads, tokens, 2 dims] as two caches
        k_scale, v_scale, sinks = self._operands(layer, query.device)
        torch.ops.radiance.attn(
            query[:tokens].view(tokens, heads, dim), keys, values, k_scale, v_scale, attn_metadata.block_table,
            attn_metadata.seq_lens, attn_metadata.query_start_loc, sinks, output[:tokens].view(tokens, heads, dim), self.scale,
            float(self._softcap), self._window, attn_metadata.max_query_len, attn_metadata.max_seq_len, False)
        return output
