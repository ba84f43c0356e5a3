# SPDX-License-Identifier: Apache-2.0
"""Layers on Hopper that ours shares with vLLM's own kernel, against stand-ins: questions are asked of the fixture h200-sm90a, and
the op of ours is a recorder (plugin/tests/device_ops.py runs the real one on a card)."""

import contextlib
import io
import sys
import unittest
import unittest.mock

from test_contract import BF16, E4M3, E8M0, F32, Case, build_kernel, environment, kernels, plugin, run_install, standins
from standins import StockCuda, Tensor

DEVICE = "h200-sm90a"


def why_not():
    """Why no kernel of ours can be half of a pair, or None."""
    plugin("cuda", device=DEVICE)
    from vllm_radiance.library import library

    rows = library().explain(DEVICE, "gemm_fp8block", m=1, n=128, k=128)
    return None if any(row.kernel for row in rows) else "this build has no sm_90a kernels"


WHY_NOT = why_not()


def input_of(rows, k):
    return Tensor((rows, k), BF16)


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Pairs(unittest.TestCase):
    def setUp(self):
        plugin("cuda", device=DEVICE)
        self.calls = []
        kernels("cuda").append(StockCuda)

    def build(self, case=None, fails=None):
        """A kernel whose op of ours is a recorder, and its layer after loading."""
        case = case or Case(256, 384)
        case.layer.weight_scale = getattr(case.layer, "weight_scale", None)
        case.layer.weight_scale_inv = getattr(case.layer, "weight_scale_inv", None)
        kernel = build_kernel(case)

        def ours(x, w, w_scale, n, rows):
            if fails:
                raise RuntimeError(fails)
            self.calls.append((x.shape[0], w, w_scale, n, rows))
            return ("ours", x)

        sys.modules["torch"].ops.radiance.kernels["fp8_linear_upto"] = ours
        err = io.StringIO()
        with contextlib.redirect_stderr(err):
            kernel.process_weights_after_loading(case.layer)
        return kernel, case.layer, err.getvalue()

    def test_rows_pick_the_kernel_when_the_op_runs(self):
        kernel, layer, _ = self.build()
        self.assertTrue(layer.processed)
        self.assertEqual([(c[0], c[3], c[4]) for c in self.calls], [(0, 256, 32)])  # plans are made at load
        for rows, who in ((1, "ours"), (32, "ours"), (33, "stock"), (4096, "stock")):
            out = kernel.apply_weights(layer, input_of(rows, 384))
            self.assertEqual(out[0], who, rows)
        self.assertIs(self.calls[-1][1], layer.weight)
        self.assertIs(out[2], layer.weight)
        self.assertIs(out[3], layer.weight_scale_inv)
        self.assertEqual(kernel.apply_weights(layer, input_of(66, 384).reshape(2, 33, 384))[0], "stock")

    def test_the_stock_quantiser_runs_as_a_kernel(self):
        kernel, layer, _ = self.build()
        kernel.apply_weights(layer, input_of(100, 384))
        self.assertEqual(kernel.quant_fp8.calls, ["device"])

    def test_a_pair_is_of_the_stock_kind(self):
        kernel, _, _ = self.build()
        self.assertIsInstance(kernel, StockCuda)
        self.assertEqual(type(kernel).__name__, "RadianceFp8BlockPair")

    def test_the_graph_sees_one_op(self):
        self.build()
        ops = sys.modules["torch"].ops.radiance
        self.assertIn("fp8_linear_shared(Tensor x, Tensor w, Tensor w_scale, int n, int rows, int stock) -> Tensor", ops.schemas)
        made = ops.fakes["radiance::fp8_linear_shared"](input_of(5, 384), None, None, 256, 32, 0)
        self.assertEqual(made.shape, (5, 256))

    def test_equal_layers_share_a_number(self):
        first, _, _ = self.build()
        second, _, _ = self.build()
        other, _, _ = self.build(Case(128, 384))
        self.assertEqual((first._stock_number, second._stock_number, other._stock_number), (0, 0, 1))

    def test_bias_and_compressed_tensors(self):
        case = Case(128, 256, scale_name="weight_scale")
        kernel, layer, _ = self.build(case)
        out = kernel.apply_weights(layer, input_of(40, 256))
        self.assertIs(out[3], layer.weight_scale)
        self.assertEqual(kernel.apply_weights(layer, input_of(40, 256), bias=("b",))[-1], "b")

    def test_e8m0_scales(self):
        kernel, _, text = self.build(Case(128, 256, scale_dtype=E8M0))
        self.assertEqual((kernel.radiance_rows, text), (32, ""))

    def test_large_layers_keep_more_rows(self):
        from vllm_radiance import linear, pair

        place = linear.Place("cuda", DEVICE)
        self.assertEqual(pair.rows_of(place, 34816, 5120), 64)
        self.assertEqual(pair.rows_of(place, 5120, 6144), 64)
        self.assertEqual(pair.rows_of(place, 5120, 5120), 32)
        self.assertIsNone(pair.rows_of(linear.Place("rocm", "r9700-gfx1201"), 34816, 5120))
        self.assertIsNone(pair.rows_of(linear.Place("cpu", "cpu"), 34816, 5120))

    def test_a_weight_that_the_stock_kernel_changed_is_its_own(self):
        def transpose(kernel, layer):
            layer.weight = layer.weight.transpose(0, 1)

        with unittest.mock.patch.object(StockCuda, "process_weights_after_loading", transpose):
            kernel, layer, text = self.build()
        self.assertIn("StockCuda alone, which left the weight (384, 256)", text)
        self.assertEqual(self.calls, [])
        self.assertEqual(kernel.apply_weights(layer, input_of(1, 384))[0], "stock")

    def test_scales_that_the_stock_kernel_changed(self):
        def widen(kernel, layer):
            layer.weight_scale_inv = Tensor((256, 3), F32)

        with unittest.mock.patch.object(StockCuda, "process_weights_after_loading", widen):
            _, _, text = self.build()
        self.assertIn("which left the scales (256, 3) torch.float32, needs fp32 or e8m0 of (2, 3)", text)

    def test_a_kernel_that_fails_at_load_leaves_the_layer_to_stock(self):
        kernel, layer, text = self.build(fails="gemm_fp8block: no kernel")
        self.assertIn("model.layers.0.mlp.down_proj: StockCuda alone: gemm_fp8block: no kernel", text)
        self.assertEqual(kernel.apply_weights(layer, input_of(1, 384))[0], "stock")


@unittest.skipIf(WHY_NOT, WHY_NOT)
class WhoTakesTheLayer(unittest.TestCase):
    def chosen(self, stock, **gates):
        plugin("cuda", device=DEVICE)
        kernels("cuda").extend(stock)
        with environment(**gates):
            return build_kernel(Case(128, 256))

    def reason(self, stock=(StockCuda,), config=None):
        plugin("cuda", device=DEVICE)
        kernels("cuda").extend(stock)
        ok, why = kernels("cuda")[0].can_implement((config or Case(128, 256)).config())
        self.assertFalse(ok)
        return why

    def test_disabled_by_name(self):
        self.assertIs(type(self.chosen([StockCuda], VLLM_DISABLED_KERNELS="RadianceFp8Block")), StockCuda)

    def test_both_adapters(self):
        for minor in ("0.32", "0.33"):
            plugin("cuda", minor, DEVICE)
            kernels("cuda").append(StockCuda)
            self.assertEqual(type(build_kernel(Case(128, 256))).__name__, "RadianceFp8BlockPair", minor)

    def test_nothing_to_share_with(self):
        """Ours alone where it takes every number of rows; else both reasons."""
        refusing = type("Refusing", (StockCuda,), dict(can_implement=classmethod(lambda cls, config: (False, "wants N=7"))))
        self.assertEqual(type(self.chosen([refusing])).__name__, "RadianceFp8Block")
        plugin("cuda", device=DEVICE)
        kernels("cuda").append(refusing)
        linear = sys.modules["vllm_radiance.linear"]
        whole = linear.refusal
        with unittest.mock.patch.object(linear, "refusal", lambda *a, most=4096, **k: whole(*a, most=most, **k) if most < 4096
                                        else "m=4096, needs <= 512"):
            ok, why = kernels("cuda")[0].can_implement(Case(128, 256).config())
        self.assertFalse(ok)
        self.assertIn("no kernel of vLLM to share with: Failed to find a kernel", why)
        self.assertIn("Refusing wants N=7", why)
        self.assertIn("and alone: m=4096, needs <= 512", why)

    def test_stock_kernels_of_another_build(self):
        odd = type("Odd", (StockCuda,), dict(apply_weights=lambda self, layer, x, bias=None: None))
        self.assertEqual(self.reason([odd]), "Odd has an apply_weights of its own")
        alien = type("Alien", (), {name: vars(StockCuda)[name] for name in ("is_supported", "can_implement")})
        self.assertEqual(self.reason([alien]), "Alien is no Fp8BlockScaledMMLinearKernel")

    def test_batch_invariance_wants_one_kernel(self):
        plugin("cuda", device=DEVICE)
        kernels("cuda").append(StockCuda)
        sys.modules["vllm.envs"].VLLM_BATCH_INVARIANT = True
        self.assertIs(type(build_kernel(Case(128, 256))), StockCuda)

    def test_a_card_without_kernels_of_ours(self):
        plugin("cuda", device="x86-avx2")  # any device that is no Hopper: asked as such, it has no W8A8 row that is shared
        kernels("cuda").append(StockCuda)
        sys.modules["vllm_radiance.linear"].refusal = lambda *a, **k: "no kernel of this build"
        self.assertIs(type(build_kernel(Case(128, 256))), StockCuda)


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Attention(unittest.TestCase):
    def test_registered_as_custom_on_hopper(self):
        plugin("cuda", device=DEVICE)
        _, statuses = run_install()
        self.assertEqual(statuses["attention"].line(), "attention: off (not measured on a card yet; RADIANCE_ATTENTION=1 registers "
                         "it as CUSTOM)")
        plugin("cuda", device=DEVICE, RADIANCE_ATTENTION="1")
        backends = sys.modules["vllm.v1.attention.backends.registry"].backends
        self.assertEqual(backends, {"CUSTOM": "vllm_radiance.card_attention.RadianceCardAttentionBackend"})

    def test_kernels_are_asked_of_hopper(self):
        plugin("cuda", device=DEVICE, RADIANCE_ATTENTION="1")
        from vllm_radiance import card_attention
        from vllm_radiance.library import Library

        asked = []
        with unittest.mock.patch.object(Library, "ready", lambda self, device, op, most, **q: asked.append((op, q["head_dim"]))):
            for dim, gqa, given in ((128, 6, {}), (256, 6, dict(kv_cache_dtype="fp8")), (128, 1, dict(alibi_slopes=[1.0]))):
                with contextlib.redirect_stderr(io.StringIO()) as err:
                    impl = card_attention.RadianceCardAttentionImpl(gqa, dim, 0.1, 1, **given)
                self.assertEqual(impl.radiance, not given.get("alibi_slopes"), err.getvalue())
        self.assertEqual([a for a in asked if a[0] == "attn_decode"], [("attn_decode", 128), ("attn_decode", 256)])


if __name__ == "__main__":
    unittest.main()
