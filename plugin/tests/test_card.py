# SPDX-License-Identifier: Apache-2.0
"""The gfx1201 route of the plugin, end to end in the simulator: layers of the shapes of Qwen3.6-27B come in as vLLM hands them
over (row-major on the card, rows padded by 256 bytes as vLLM does on ROCm), are reordered at load, run, and come out equal to the
formula. Activations are chosen so that their quantisation is exact. RADIANCE_TEST_FULL=1 takes whole shapes: many minutes."""

import contextlib
import importlib
import io
import math
import os
import pathlib
import random
import struct
import sys
import types
import unittest
import unittest.mock

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import standins  # noqa: E402
from standins import DTYPES, Device, Tensor  # noqa: E402
from test_contract import E4M3, F32, BF16, bf16_bytes, bf16_values, e4m3, plugin, run_install  # noqa: E402

SEED = int(os.environ.get("RADIANCE_TEST_SEED", random.randrange(2**31)))
FULL = os.environ.get("RADIANCE_TEST_FULL") == "1"
CARD = Device("cuda", 0)
VALUES = [e4m3(code) for code in range(256)]
FINITE = bytes(code for code in range(256) if code & 0x7F != 0x7F)
# (N, K) of the linear layers, at tensor parallel 1 and 2: gate_up, down, attention and its output, of hidden size 5120.
SHAPES = {1: ((34816, 5120), (5120, 17408), (14336, 5120), (5120, 6144)),
          2: ((17408, 5120), (5120, 8704), (7168, 5120), (5120, 3072))}


class Layer:
    def __init__(self, n, k, m, padding, rng):
        self.n, self.k, self.m = n, k, m
        self.codes = [bytes(rng.choices(FINITE, k=k)) for _ in range(n)]
        self.exponents = [[rng.randrange(-12, -8) for _ in range(k // 128)] for _ in range(n // 128)]
        # 448 * 2^-6 in every group makes the scale 2^-6 and every other value a code of its own.
        self.x = [bytes(0x7E if i % 128 == 5 else c for i, c in enumerate(rng.choices(FINITE, k=k))) for _ in range(m)]
        wide = Tensor((n, k + padding), E4M3).fill(b"".join(row + b"\x7f" * padding for row in self.codes)).to(CARD)
        weight = wide._like(shape=(n, k))
        flat = [2.0**e for row in self.exponents for e in row]
        scale = Tensor((n // 128, k // 128), F32).fill(struct.pack(f"<{len(flat)}f", *flat)).to(CARD)
        self.module = types.SimpleNamespace(prefix="model.layers.0.mlp.down_proj", weight=weight, weight_scale_inv=scale)
        pack = lambda **named: types.SimpleNamespace(scale=types.SimpleNamespace(**named))
        self.config = types.SimpleNamespace(
            activation_quant_key=pack(static=False), weight_shape=(n, k), input_dtype=BF16, out_dtype=BF16,
            weight_quant_key=pack(group_shape=types.SimpleNamespace(row=128, col=128)))

    def input(self):
        return Tensor((self.m, self.k), BF16).fill(bf16_bytes(VALUES[c] * 2.0**-6 for row in self.x for c in row)).to(CARD)

    def check(self, test, out):
        got = bf16_values(out.bytes())
        for row in range(self.m):
            for column in range(3, self.n, 41):
                total = magnitude = 0.0
                for i, (a, w) in enumerate(zip(self.x[row], self.codes[column])):
                    term = VALUES[a] * 2.0**-6 * VALUES[w] * 2.0 ** self.exponents[column // 128][i // 128]
                    total, magnitude = total + term, magnitude + abs(term)
                bound = 2.0**-8 * abs(total) + magnitude * 2.0**-16
                test.assertLessEqual(abs(got[row * self.n + column] - total), bound, (self.n, self.k, row, column, SEED))


class Batch:
    """A paged cache as Triton's backend keeps it, [blocks, kv heads, tokens, K then V], and sequences over it."""

    heads, kv_heads, dim, block, blocks = 4, 2, 64, 16, 9

    def __init__(self, q_lens, kv_lens, rng):
        value = lambda: rng.randrange(-8, 9) / 8
        self.q_lens, self.kv_lens = q_lens, kv_lens
        self.cache = [value() for _ in range(self.blocks * self.kv_heads * self.block * 2 * self.dim)]
        self.q = [value() for _ in range(sum(q_lens) * self.heads * self.dim)]
        order = rng.sample(range(self.blocks), self.blocks)
        most = max(-(-n // self.block) for n in kv_lens)
        self.table = [[order.pop() if i < -(-n // self.block) else 0 for i in range(most)] for n in kv_lens]
        starts = [sum(q_lens[:i]) for i in range(len(q_lens) + 1)]
        ints = lambda values, *shape: Tensor(shape, DTYPES["int32"]).fill(struct.pack(f"<{len(values)}i", *values)).to(CARD)
        self.metadata = types.SimpleNamespace(
            num_actual_tokens=sum(q_lens), causal=True, max_query_len=max(q_lens), max_seq_len=max(kv_lens),
            block_table=ints([b for row in self.table for b in row], len(kv_lens), most),
            seq_lens=ints(kv_lens, len(kv_lens)), query_start_loc=ints(starts, len(starts)))

    def tensors(self):
        rows = (sum(self.q_lens), self.heads, self.dim)
        cache = Tensor((self.blocks, self.kv_heads, self.block, 2 * self.dim), BF16).fill(bf16_bytes(self.cache)).to(CARD)
        return Tensor(rows, BF16).fill(bf16_bytes(self.q)).to(CARD), cache, Tensor(rows, BF16).to(CARD)

    def key(self, seq, position, head, part):
        row = (self.table[seq][position // self.block] * self.kv_heads + head) * self.block + position % self.block
        return self.cache[(row * 2 + part) * self.dim : (row * 2 + part + 1) * self.dim]

    def expected(self, seq, token, head):
        at = (sum(self.q_lens[:seq]) + token) * self.heads + head
        q, kv_head = self.q[at * self.dim : (at + 1) * self.dim], head // (self.heads // self.kv_heads)
        seen = self.kv_lens[seq] - self.q_lens[seq] + token + 1
        scores = [sum(a * b for a, b in zip(q, self.key(seq, p, kv_head, 0))) * 0.125 for p in range(seen)]
        weights = [math.exp(s - max(scores)) for s in scores]
        values = [self.key(seq, p, kv_head, 1) for p in range(seen)]
        return [sum(w * v[d] for w, v in zip(weights, values)) / sum(weights) for d in range(self.dim)]


def simulator():
    """The plugin on a simulated card, or why not."""
    plugin("rocm", device="sim:gfx1201")
    from vllm_radiance.library import RadianceError, library

    try:
        library().device("sim:gfx1201")
    except RadianceError as error:
        return str(error)
    answers = library().explain("sim:gfx1201", "gemm_fp8block", m=1, n=128, k=128, a_dtype="fp8_e4m3", w_scale_dtype="fp32",
                                c_dtype="bf16", layout="shuffle16", bias=0)
    if not any(a.ok and not a.reference for a in answers):
        return "this build has no gfx1201 kernels"
    library().binding.rdt_device_configure(1, b"sim:gfx1201", 0, None)
    return None


WHY_NOT = simulator()


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Card(unittest.TestCase):
    def setUp(self):
        plugin("rocm", device="sim:gfx1201")
        sys.modules["torch"].version.hip = "7"

    def run_layer(self, n, k, m, padding):
        layer = Layer(n, k, m, padding, random.Random(SEED))
        linear = sys.modules["vllm.model_executor.kernels.linear"]
        with contextlib.redirect_stderr(io.StringIO()):
            kernel = linear.init_fp8_linear_kernel(layer.config)
            kernel.process_weights_after_loading(layer.module)
        self.assertEqual(type(kernel).__name__, "RadianceFp8Block")
        self.assertEqual(layer.module.weight.shape, (n // 16, 16 * k))
        layer.check(self, kernel.apply_weights(layer.module, layer.input()))

    def test_layers_of_qwen(self):
        for shapes in SHAPES.values():
            for n, k in shapes:
                self.run_layer(n if FULL else 128, k, 1, 256)
        from vllm_radiance import report

        text = report.text()
        self.assertIn("gemm_fp8block_step_preshuffle_gfx1201", text)
        self.assertIn("layout=shuffle16", text)
        self.assertIn("quant_fp8", text)

    def test_verify_width_and_chunk(self):
        self.run_layer(128, 512, 9, 256)
        self.run_layer(128, 512, 130, 0)
        from vllm_radiance import report

        self.assertIn("gemm_fp8block_chunk_preshuffle_gfx1201", report.text())

    def implementation(self, **named):
        _, statuses = run_install(RADIANCE_ATTENTION="1")
        self.assertIn("choose it by --attention-backend CUSTOM", statuses["attention"].text)
        path = sys.modules["vllm.v1.attention.backends.registry"].backends["CUSTOM"]
        module, _, name = path.rpartition(".")
        backend = getattr(importlib.import_module(module), name)
        self.assertEqual(backend.get_name(), "CUSTOM")
        with contextlib.redirect_stderr(io.StringIO()):
            return backend.get_impl_cls()(Batch.heads, Batch.dim, 0.125, Batch.kv_heads, **named)

    def test_attention(self):
        sys.modules["vllm_radiance.installer"]._statuses = None
        impl = self.implementation()
        self.assertFalse(impl.supports_quant_query_input)
        for q_lens, kv_lens in (([1, 1], [37, 16]), ([9, 3], [40, 9]), ([20, 5], [20, 33])):
            batch = Batch(q_lens, kv_lens, random.Random(SEED))
            q, cache, out = batch.tensors()
            impl.forward(types.SimpleNamespace(), q, None, None, cache, batch.metadata, out)
            got = bf16_values(out.bytes())
            for seq in range(len(q_lens)):
                for token in (0, q_lens[seq] - 1):
                    for head in range(batch.heads):
                        at = ((sum(q_lens[:seq]) + token) * batch.heads + head) * batch.dim
                        for d, value in enumerate(batch.expected(seq, token, head)):
                            self.assertLess(abs(got[at + d] - value), 1e-2, (q_lens, seq, token, head, d, SEED))

    def test_attention_that_stays_with_triton(self):
        sys.modules["vllm_radiance.installer"]._statuses = None
        impl = self.implementation(attn_type="encoder")
        self.assertEqual(impl.forward(None, None, None, None, None, None, None), "triton")
        impl = self.implementation(kv_cache_dtype="fp8_e5m2")
        self.assertFalse(impl.radiance)

    def test_attention_is_on_after_the_check_at_first_use_alone(self):
        """A kernel that failed its check on this card has left the context, whatever the device in general could do."""
        sys.modules["vllm_radiance.installer"]._statuses = None
        from vllm_radiance.library import Library, RadianceError

        asked = []

        def ready(library, device, op, most, **question):
            asked.append((device, op, most))
            if op in failed:
                raise RadianceError(f"{op}: the check left no kernel")

        for failed, radiance, longest in (((), True, 1 << 24), (("attn_prefill",), True, 17), (("attn_decode",), False, None)):
            with unittest.mock.patch.object(Library, "ready", ready):
                impl = self.implementation()
            self.assertEqual((impl.radiance, getattr(impl, "_longest", None)), (radiance, longest), failed)
        self.assertEqual(asked, [(1, "attn_decode", 17), (1, "attn_prefill", 1 << 24)] * 2 + [(1, "attn_decode", 17)])

    def test_decode_alone_leaves_chunks_to_triton(self):
        sys.modules["vllm_radiance.installer"]._statuses = None
        impl = self.implementation()
        impl._longest = 17  # as on a card whose build has no prefill kernel
        batch = Batch([20], [20], random.Random(SEED))
        q, cache, out = batch.tensors()
        self.assertEqual(impl.forward(types.SimpleNamespace(), q, None, None, cache, batch.metadata, out), "triton")
        batch = Batch([9], [20], random.Random(SEED))
        q, cache, out = batch.tensors()
        self.assertIs(impl.forward(types.SimpleNamespace(), q, None, None, cache, batch.metadata, out), out)

    def test_a_reordered_weight_without_kernel_is_an_error_at_load(self):
        from vllm_radiance import linear
        from vllm_radiance.library import RadianceError

        layer = Layer(128, 256, 1, 0, random.Random(SEED))
        place = linear.Place("rocm", "h200-sm90a")  # a device that reads no reordered weight
        with self.assertRaisesRegex(RadianceError, "layout shuffle16 has no kernel"):
            linear.load_layer(place, layer.module, 128, 256, setattr)

    def test_contract_refuses(self):
        from vllm_radiance import linear

        layer = Layer(128, 256, 1, 0, random.Random(SEED))
        place = linear.Place("rocm", "sim:gfx1201")
        scale = layer.module.weight_scale_inv
        self.assertEqual(linear.shuffle_verdict(place, layer.module, layer.module.weight, scale, 100, 256),
                         "N is not a multiple of 128")


if __name__ == "__main__":
    print(f"seed {SEED}", file=sys.stderr)
    unittest.main()
