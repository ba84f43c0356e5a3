# SPDX-License-Identifier: Apache-2.0
"""The boxed radiance ops on a CUDA card: torch's streams, torch.compile and CUDA graphs, against the formulas in double. Needs
torch with a Hopper card, and RADIANCE_LIBRARY or an installed wheel; no vLLM. Skips by name where there is none.
`--host` runs the tests that a CPU can run, on the CPU: it tests this file."""

import pathlib
import sys
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
try:
    import torch

    from vllm_radiance import library, pair, torch_ops
except ImportError as error:
    torch, WHY_NOT = None, f"{error}"
else:
    HOST = "--host" in sys.argv
    if not HOST and not torch.cuda.is_available():
        WHY_NOT = "no CUDA card"
    elif not HOST and torch.cuda.get_device_capability() != (9, 0):
        WHY_NOT = f"compute capability {torch.cuda.get_device_capability()}, needs (9, 0)"
    else:
        WHY_NOT = None
        DEVICE = torch.device("cpu") if HOST else torch.device("cuda", torch.cuda.current_device())
if "--host" in sys.argv:
    sys.argv.remove("--host")
ROWS = 32


def needs_card(test):
    return unittest.skipIf(torch is not None and WHY_NOT is None and HOST, "needs a card")(test)


class Linear:
    """Operands whose quantisation is exact: each group of 128 activations holds 448/64, and all are e4m3 codes / 64."""

    def __init__(self, n, k, seed, dtype=None):
        self.n, self.k, self.dtype = n, k, dtype or torch.bfloat16
        self.random = torch.Generator().manual_seed(seed)
        self.w = self.codes(n, k).to(DEVICE)
        blocks = (-(-n // 128), -(-k // 128))
        self.scale = torch.exp2(torch.randint(-12, -8, blocks, generator=self.random).float()).to(DEVICE)
        grid = self.scale.double().repeat_interleave(128, 0)[:n].repeat_interleave(128, 1)[:, :k]
        self.full = self.w.double() * grid

    def codes(self, rows, columns):
        code = torch.randint(0, 0x7F, (rows, columns), generator=self.random, dtype=torch.uint8)
        sign = torch.randint(0, 2, (rows, columns), generator=self.random, dtype=torch.uint8) * 128
        return (code | sign).view(torch.float8_e4m3fn)

    def x(self, rows):
        values = self.codes(rows, self.k).float()
        values[:, 5::128] = 448
        return (values / 64).to(self.dtype).to(DEVICE)

    def check(self, test, got, x, note=""):
        """One rounding to the output type, and the sums': k roundings of f32 on a host; a Hopper tensor core cuts each product at
        13 bits below the largest of its 32, which 2^-11 of the magnitude covers. The mean over all elements is stricter."""
        x = x.double().reshape(-1, self.k)
        want, magnitude = x @ self.full.t(), x.abs() @ self.full.abs().t()
        unit = 2.0**-8 if self.dtype is torch.bfloat16 else 2.0**-11
        bound = unit * want.abs() + magnitude * (self.k * 2.0**-23 if HOST else 2.0**-11)
        error = (got.double().reshape(want.shape) - want).abs()
        test.assertLessEqual((error - bound).max().item(), 0, (self.n, self.k, x.shape[0], note))
        test.assertLessEqual((error.mean() / want.abs().mean()).item(), 3e-3, (self.n, self.k, x.shape[0], note))

    def upto(self, x):
        return torch.ops.radiance.fp8_linear_upto(x, self.w, self.scale, self.n, 512)


class Cache:
    """A paged cache as vLLM's Triton backend keeps it, [blocks, kv heads, tokens, K then V], and queries over it."""

    heads, kv_heads, dim, block = 12, 2, 128, 16

    def __init__(self, sequences, most, fp8, seed):
        random = torch.Generator().manual_seed(seed)
        self.per_seq = -(-most // self.block)
        blocks = sequences * self.per_seq + 1
        normal = lambda *shape: torch.randn(*shape, generator=random)
        self.dtype = torch.float8_e4m3fn if fp8 else torch.bfloat16
        self.packed = normal(blocks, self.kv_heads, self.block, 2 * self.dim).to(self.dtype).to(DEVICE)
        self.keys, self.values = self.packed.transpose(1, 2).split(self.dim, -1)
        self.table = torch.randperm(blocks, generator=random)[: sequences * self.per_seq].view(sequences, -1).int().to(DEVICE)
        scale = torch.full((self.kv_heads,), 0.5, device=DEVICE) if fp8 else torch.empty(0, device=DEVICE)
        self.scale, self.unit = scale, 0.5 if fp8 else 1.0
        self.none = torch.empty(0, device=DEVICE)
        self.random = random

    def queries(self, rows):
        return torch.randn(rows, self.heads, self.dim, generator=self.random).bfloat16().to(DEVICE)

    def run(self, q, lens, starts, out, longest, longest_kv):
        torch.ops.radiance.attn(q, self.keys, self.values, self.scale, self.scale, self.table, lens, starts, self.none, out,
                                self.dim**-0.5, 0.0, 0, longest, longest_kv, False)

    def check(self, test, got, q, lens, starts):
        lens, starts = lens.tolist(), starts.tolist()
        for seq, length in enumerate(lens):
            blocks = self.table[seq].long()
            flat = lambda part: (part[blocks].double() * self.unit).reshape(-1, self.kv_heads, self.dim)[:length]
            keys, values = (flat(p).repeat_interleave(self.heads // self.kv_heads, 1) for p in (self.keys, self.values))
            for row in range(starts[seq], starts[seq + 1]):
                seen = length - (starts[seq + 1] - 1 - row)
                scores = torch.einsum("hd,khd->hk", q[row].double(), keys[:seen]) * self.dim**-0.5
                want = torch.einsum("hk,khd->hd", scores.softmax(-1), values[:seen])
                error = ((got[row].double() - want).abs().mean() / want.abs().mean()).item()
                test.assertLess(error, 4e-3, (seq, row, length))


def ints(*values, dtype=None):
    return torch.tensor(values, dtype=dtype or torch.int32, device=DEVICE)


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Device(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.how = torch_ops.register()
        pair._register()

    def test_boxed(self):
        self.assertEqual(self.how, "boxed")

    def test_linear_values(self):
        shapes = ((128, 128), (576, 576), (200, 300), (1536, 4096)) if HOST else (
            (128, 128), (576, 576), (200, 304), (5120, 6144), (14336, 5120), (5120, 17408))
        for index, (n, k) in enumerate(shapes):
            case = Linear(n, k, index)
            for rows in (1, 8, 17, 64) if HOST else (1, 2, 8, 9, 17, 32, 64, 100, 128, 300):
                x = case.x(rows)
                case.check(self, case.upto(x), x)

    def test_linear_types_and_strides(self):
        case = Linear(256, 384, 7, torch.float16)
        x = case.x(9)
        case.check(self, case.upto(x), x, "fp16")
        case = Linear(256, 384, 8)
        wide = torch.zeros(9, 512, dtype=torch.bfloat16, device=DEVICE)
        wide[:, :384] = case.x(9)
        case.check(self, case.upto(wide[:, :384]), wide[:, :384], "padded rows")
        x = case.x(6).view(2, 3, 384)
        self.assertEqual(case.upto(x).shape, (2, 3, 256))
        case.check(self, case.upto(x), x, "leading axes")
        weight = torch.zeros(256, 384 + 256, dtype=torch.uint8, device=DEVICE).view(torch.float8_e4m3fn)
        weight[:, :384] = case.w
        got = torch.ops.radiance.fp8_linear_upto(x, weight[:, :384], case.scale, 256, 512)
        case.check(self, got, x, "padded weight")
        if hasattr(torch, "float8_e8m0fnu"):
            e8m0 = (case.scale.log2() + 127).to(torch.uint8).view(torch.float8_e8m0fnu)
            case.check(self, torch.ops.radiance.fp8_linear_upto(x, case.w, e8m0, 256, 512), x, "e8m0 scales")
        self.assertEqual(case.upto(case.x(1)[:0]).shape, (0, 256))

    def test_errors_are_sentences(self):
        case = Linear(256, 384, 9)
        with self.assertRaisesRegex(RuntimeError, "radiance::fp8_linear: .*w: shape"):
            case.upto(torch.zeros(1, 100, dtype=torch.bfloat16, device=DEVICE))
        with self.assertRaisesRegex(RuntimeError, "radiance::fp8_linear: .*the plan covers 1..4"):
            torch.ops.radiance.fp8_linear_upto(case.x(5), case.w, case.scale, 256, 4)
        if not HOST:
            with self.assertRaisesRegex(RuntimeError, "radiance::fp8_linear: .*(device|w: )"):
                torch.ops.radiance.fp8_linear_upto(case.x(1), case.w.cpu(), case.scale, 256, 4)

    def test_any_rows_or_the_reason(self):
        """The op without a limit: right where this build has a kernel for every number of rows, else it says which it lacks."""
        case = Linear(256, 384, 10)
        x, bias = case.x(9), torch.arange(256, device=DEVICE).bfloat16()
        try:
            got = torch.ops.radiance.fp8_linear_bias(x, case.w, case.scale, torch.zeros_like(bias), 256, 0, True)
        except RuntimeError as error:
            self.assertRegex(str(error), r"m=\d+, needs <= \d+")
        else:
            case.check(self, got, x, "bias")
            with_bias = torch.ops.radiance.fp8_linear_bias(x, case.w, case.scale, bias, 256, 0, True)
            self.assertLess((with_bias.float() - got.float() - bias.float()).abs().max().item(), 4.0)

    def test_attention(self):
        for fp8 in (False, True):
            cache = Cache(3, 700, fp8, 11)
            for width in (1, 9):
                lens, starts = ints(17, 700, 256), ints(0, width, 2 * width, 3 * width)
                q = cache.queries(3 * width)
                out = torch.full_like(q, float("nan"))
                cache.run(q, lens, starts, out, width, 700)
                cache.check(self, out, q, lens, starts)

    def test_cache_write(self):
        for fp8 in (False, True):
            cache = Cache(1, 64, fp8, 12)
            before = cache.packed.clone()
            k, v = (torch.randn(3, 2, 128, generator=cache.random).bfloat16().to(DEVICE) for _ in range(2))
            slots = ints(5, -1, 33, dtype=torch.int64)
            torch.ops.radiance.kv_write(k, v, cache.keys, cache.values, cache.scale, cache.scale, slots, False)
            for row, slot in ((0, 5), (2, 33)):
                for part, source in ((cache.keys, k), (cache.values, v)):
                    want = (source[row].float() / cache.unit).to(cache.dtype)
                    before_view = part[slot // 16, slot % 16]
                    self.assertTrue(torch.equal(before_view.float(), want.float()), (fp8, row))
            changed = (cache.packed.view(torch.uint8) != before.view(torch.uint8)).view(*before.shape[:3], -1).any(-1)
            self.assertEqual(changed.sum().item(), 4)  # two slots of two heads

    @needs_card
    def test_streams(self):
        """The input is written late on a stream of its own: a call on any other stream would read what stood there before."""
        case, stream = Linear(5120, 6144, 13), torch.cuda.Stream()
        fresh, x = case.x(8), case.x(8)
        cache = Cache(2, 300, True, 14)
        q, fresh_q = cache.queries(2), cache.queries(2)
        out, lens, starts = torch.empty_like(q), ints(300, 40), ints(0, 1, 2)
        case.upto(x)
        cache.run(q, lens, starts, out, 1, 300)
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(100_000_000)
            x.copy_(fresh)
            q.copy_(fresh_q)
            got = case.upto(x)
            cache.run(q, lens, starts, out, 1, 300)
            doubled = got * 2
            x.zero_()  # and a call that waited for another stream would read this
            q.zero_()
        self.assertFalse(stream.query())  # nothing has waited: no call synchronises
        stream.synchronize()
        case.check(self, got, fresh, "stream")
        self.assertTrue(torch.equal(doubled, got * 2))
        cache.check(self, out, fresh_q, lens, starts)

    def shared(self, case):
        """The op of a shared layer, whose other half is the product in double; and how often that ran."""
        runs = []

        def stock(x, w, w_scale):
            runs.append(x.shape[0])
            return (x.double() @ case.full.t()).to(x.dtype)

        number = pair._number((id(case),), stock)
        return (lambda x: torch.ops.radiance.fp8_linear_shared(x, case.w, case.scale, case.n, ROWS, number)), runs

    @needs_card
    def test_shared_layers(self):
        case = Linear(1536, 2048, 15)
        run, stock = self.shared(case)
        for rows in (1, 32, 33, 500):
            x = case.x(rows)
            case.check(self, run(x), x, "shared")
        self.assertEqual(stock, [33, 500])

    @needs_card
    def test_compiled(self):
        """One graph for every number of rows; the choice is made when the op runs."""
        case = Linear(1536, 2048, 16)
        run, stock = self.shared(case)
        compiled = torch.compile(lambda x: (case.upto(x) + 1, run(x * 2) * 0.5), fullgraph=True, dynamic=True)
        for rows in (64, 2, 7, 32, 33):
            x = case.x(rows)
            one, two = compiled(x)
            case.check(self, two, x, "compiled, shared")
            plain = case.upto(x)
            self.assertTrue(torch.equal(one, plain + 1))
        self.assertEqual(stock, [64, 33])

    @needs_card
    def test_graphs(self):
        """Captured once, replayed on other inputs: linears of both halves, the cache write, and attention whose lengths change."""
        case, cache = Linear(5120, 6144, 17), Cache(2, 400, True, 18)
        run, _ = self.shared(case)
        x, long = case.x(8), case.x(40)
        q = cache.queries(4)
        k, v = torch.randn(2, 2, 128, device=DEVICE).bfloat16(), torch.randn(2, 2, 128, device=DEVICE).bfloat16()
        slots, lens, starts = ints(0, 0, dtype=torch.int64), ints(2, 2), ints(0, 2, 4)
        out = torch.empty_like(q)

        def step():
            torch.ops.radiance.kv_write(k, v, cache.keys, cache.values, cache.scale, cache.scale, slots, False)
            cache.run(q, lens, starts, out, 2, 400)
            return case.upto(x), run(x), run(long)

        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            step()  # plans, modules
        side.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            results = step()
        for turn in range(3):
            x.copy_(case.x(8))
            long.copy_(case.x(40))
            q.copy_(cache.queries(4))
            lengths = (3 + 100 * turn, 400 - turn)
            lens.copy_(ints(*lengths))
            slots.copy_(ints(*(int(cache.table[s, (n - 1) // 16]) * 16 + (n - 1) % 16 for s, n in enumerate(lengths)),
                             dtype=torch.int64))
            k.normal_()
            graph.replay()
            for result, source in zip(results, (x, x, long)):
                case.check(self, result, source, f"replay {turn}")
            cache.check(self, out, q, lens, starts)
            last = (lengths[0] - 1) % 16
            written = cache.keys[cache.table[0, (lengths[0] - 1) // 16].long(), last].float()
            self.assertTrue(torch.equal(written, (k[0].float() / 0.5).to(cache.dtype).float()))

    @needs_card
    def test_attention_backend(self):
        """The backend class that vLLM gets, over small stand-ins of the Triton backend that it builds on."""
        class Triton:
            def __init__(self, heads, dim, scale, kv_heads, *rest, **named):
                self.num_heads, self.head_size, self.scale, self.num_kv_heads = heads, dim, scale, kv_heads

            def forward(self, *arguments):
                return "triton"

        modules = {"vllm.platforms": dict(current_platform=types.SimpleNamespace()),
                   "vllm.v1.attention.backend": dict(AttentionType=types.SimpleNamespace(DECODER="decoder")),
                   "vllm.v1.attention.backends.triton_attn": dict(TritonAttentionBackend=object, TritonAttentionImpl=Triton)}
        for name, content in modules.items():
            for depth in range(1, name.count(".") + 2):
                sys.modules.setdefault(".".join(name.split(".")[:depth]), types.ModuleType("standin"))
            sys.modules[name].__dict__.update(content)
        from vllm_radiance.card_attention import RadianceCardAttentionImpl

        torch.set_default_dtype(torch.bfloat16)
        self.addCleanup(torch.set_default_dtype, torch.float32)
        impl = RadianceCardAttentionImpl(12, 128, 128**-0.5, 2, kv_cache_dtype="fp8")
        torch.set_default_dtype(torch.float32)
        self.assertTrue(impl.radiance)
        one = torch.tensor(0.5, device=DEVICE)
        layer = types.SimpleNamespace(_k_scale=one, _v_scale=one)
        for width in (1, 9, 40):
            cache = Cache(2, 300, True, 20)
            q, lens, starts = cache.queries(2 * width), ints(300, 41), ints(0, width, 2 * width)
            out = torch.empty_like(q)
            metadata = types.SimpleNamespace(num_actual_tokens=2 * width, causal=True, max_query_len=width, max_seq_len=300,
                                             block_table=cache.table, seq_lens=lens, query_start_loc=starts)
            result = impl.forward(layer, q, None, None, cache.packed.view(torch.uint8), metadata, out)
            if width > impl._longest:
                self.assertEqual(result, "triton")
            else:
                cache.check(self, out, q, lens, starts)

    @needs_card
    def test_graph_bits_are_the_eager_ones(self):
        case = Linear(14336, 5120, 19)
        x = case.x(5)
        eager = case.upto(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = case.upto(x)
        graph.replay()
        self.assertTrue(torch.equal(result, eager))
        self.assertTrue(torch.equal(case.upto(x[:1]), eager[:1]))  # a row's bits do not depend on the others


def tearDownModule():
    if not WHY_NOT:
        print(library.library().report(0 if HOST else 1 + DEVICE.index))


if __name__ == "__main__":
    unittest.main(verbosity=2)
