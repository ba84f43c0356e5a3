# SPDX-License-Identifier: Apache-2.0
"""The AITER hook on AITER's real source, its kernels replaced by recorders. The source is AITER's own and stays outside this
repository: RADIANCE_TEST_AITER names a checkout (or any folder with aiter/ops/triton/attention/unified_attention.py)."""

import contextlib
import importlib.util
import io
import os
import pathlib
import sys
import types
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import standins  # noqa: E402

ROOT = os.environ.get("RADIANCE_TEST_AITER", "")
SOURCE = pathlib.Path(ROOT or "absent") / "aiter/ops/triton/attention/unified_attention.py"
FP8, BF16, FNUZ = "float8_e4m3fn", "bfloat16", "float8_e4m3fnuz"
NAMES = ("aiter.ops.triton.attention.unified_attention", "aiter.ops.triton.unified_attention")


class Recorder:
    """A Triton kernel that notes its launch."""

    def __init__(self, name, launches):
        self.name, self.launches, self.tag = name, launches, f"{name} attribute"

    def __getitem__(self, grid):
        return lambda **named: self.launches.append((self.name, grid, named))


class Array:
    def __init__(self, shape, dtype=None):
        self.shape, self.dtype, self.device = shape, dtype, "gpu"

    def stride(self, axis):
        return 1

    def __len__(self):
        return self.shape[0]


def power_of_2(value):
    return 1 << max(int(value) - 1, 0).bit_length()


def module(path, **content):
    parts = path.split(".")
    for depth in range(1, len(parts) + 1):
        name = ".".join(parts[:depth])
        if name not in sys.modules:
            sys.modules[name] = types.ModuleType(name)
            sys.modules[name].__path__ = []
    sys.modules[path].__dict__.update(content)


def load_aiter():
    """Both names of the module as AITER makes them: one file run twice, with globals of its own each. The launches."""
    launches = []
    torch = standins.install("rocm")
    torch.float8_e4m3fnuz = standins.DType(FNUZ, 1)
    torch.empty = lambda *shape, dtype, device: Array(shape, dtype)
    torch.dtype = standins.DType
    module("triton", next_power_of_2=power_of_2, cdiv=lambda a, b: -(-a // b))
    base = "aiter.ops.triton"
    kernels = ("kernel_unified_attention_2d", "kernel_unified_attention_3d", "reduce_segments")
    module(f"{base}._triton_kernels.attention.unified_attention", **{n: Recorder(n, launches) for n in kernels})
    module(f"{base}.utils.device_info", get_num_sms=lambda: 64)
    arch = types.SimpleNamespace(name="gfx1201", is_rdna=True)
    module(f"{base}._triton_kernels.flash_attn_triton_amd.utils", get_arch=lambda: arch)
    module(f"{base}.utils._triton", arch_info=types.SimpleNamespace(get_arch=lambda: "gfx1201"))
    module(f"{base}.utils.types", e4m3_dtype=torch.float8_e4m3fn)
    for name in NAMES:
        parent = name.rpartition(".")[0]
        module(parent)
        spec = importlib.util.spec_from_file_location(name, SOURCE)
        sys.modules[name] = loaded = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded)
    return launches


def attend(entry, tokens, seqs, kv, width=None, heads=12, kv_heads=2, head=256, q_dtype=FP8, kv_dtype=FP8, block=32):
    q = Array((tokens, heads, head), standins.DTYPES.get(q_dtype))
    cache = Array((1024, block, kv_heads, head), standins.DTYPES.get(kv_dtype) or sys.modules["torch"].float8_e4m3fnuz)
    entry(q, cache, cache, Array((tokens, heads, head)), Array((seqs + 1,)), width or tokens // seqs, Array((seqs,)), kv, 1.0,
          True, (-1, -1), Array((seqs, 64)), 0, None, None, None)


def install():
    err = io.StringIO()
    with contextlib.redirect_stderr(err):
        from vllm_radiance import aiter

        status = aiter.install()
    return status, err.getvalue()


@unittest.skipUnless(SOURCE.exists(), "AITER's source is not here: set RADIANCE_TEST_AITER to a checkout")
class RealSource(unittest.TestCase):
    def setUp(self):
        self.launches = load_aiter()
        self.kept = sys.modules[NAMES[0]].unified_attention  # imported before the hook, as vLLM may
        self.status, self.text = install()

    def launch(self, *arguments, entry=None, **named):
        """The attention launch and the reduction's of one call."""
        del self.launches[:]
        with contextlib.redirect_stderr(io.StringIO()) as err:
            attend(entry or self.kept, *arguments, **named)
        self.said = err.getvalue()
        by_name = {name: (grid, named) for name, grid, named in self.launches}
        attention = by_name.get("kernel_unified_attention_3d") or by_name["kernel_unified_attention_2d"]
        return (*attention, by_name.get("reduce_segments", (None, None))[1])

    def test_line(self):
        self.assertEqual(self.status.state, "on")
        self.assertIn("on 2 module aliases", self.text)
        self.assertTrue(self.text.startswith("[radiance] "))

    def check_wide(self, width, seqs, kv, q_blocks, splits):
        for entry in (self.kept, *(sys.modules[name].unified_attention for name in NAMES)):
            grid, named, reduction = self.launch(width * seqs, seqs, kv, entry=entry)
            self.assertEqual(grid, (q_blocks, 2, splits))
            self.assertEqual((named["BLOCK_M"], named["BLOCK_Q"], named["TILE_SIZE"], named["num_warps"]), (64, 10, 32, 4))
            self.assertEqual((named["num_stages"], named["waves_per_eu"]), (1, 6))
            self.assertEqual((reduction["TILE_SIZE"], reduction["NUM_SEGMENTS_PER_SEQ"], reduction["num_warps"]), (32, splits, 8))
            self.assertNotIn("RADIANCE_WIDE_BLOCK", named)

    def test_wide_verify(self):
        self.check_wide(9, 1, 32768, 1, 128)
        self.check_wide(9, 1, 4096, 1, 64)
        self.check_wide(9, 8, 65536, 15, 64)

    def test_narrow_verify(self):
        for kv, seqs, splits, blocks in ((32768, 1, 64, 4), (4096, 1, 32, 4), (65536, 8, 64, 32)):
            grid, named, reduction = self.launch(6 * seqs, seqs, kv)
            self.assertEqual((named["BLOCK_M"], named["TILE_SIZE"], named["num_warps"]), (16, 16, 2))
            self.assertEqual(grid, (blocks, 2, splits))
            self.assertEqual((reduction["TILE_SIZE"], reduction["num_warps"]), (16, 8))

    def test_a_wide_launch_leaves_nothing_behind(self):
        self.launch(9, 1, 32768)
        grid, named, _ = self.launch(6, 1, 32768)
        self.assertEqual((grid, named["BLOCK_M"]), ((4, 2, 64), 16))

    def test_single_token(self):
        stock = stock_launch(2, 2, 32768)
        grid, named, reduction = self.launch(2, 2, 32768)
        self.assertEqual((named["TILE_SIZE"], named["num_warps"], named["num_stages"], named["waves_per_eu"]), (16, 4, 1, 6))
        self.assertEqual(named["NUM_SEGMENTS_PER_SEQ"], stock["NUM_SEGMENTS_PER_SEQ"])
        self.assertEqual(grid[2], stock["NUM_SEGMENTS_PER_SEQ"])
        self.assertEqual((reduction["TILE_SIZE"], reduction["num_warps"], reduction["waves_per_eu"]), (16, 8, 2))

    def test_16_bit_keys(self):
        _, named, reduction = self.launch(2, 2, 32768, q_dtype=BF16, kv_dtype=BF16)
        self.assertEqual((named["TILE_SIZE"], named["num_warps"], named["num_stages"], named["waves_per_eu"]), (16, 4, 2, 2))
        self.assertEqual((reduction["TILE_SIZE"], reduction["num_warps"]), (16, 4))

    def test_mixed_types_stay(self):
        stock = stock_launch(9, 1, 32768, q_dtype=BF16)
        _, named, _ = self.launch(9, 1, 32768, q_dtype=BF16)
        for key in ("TILE_SIZE", "num_warps", "num_stages", "waves_per_eu", "NUM_SEGMENTS_PER_SEQ", "BLOCK_M", "BLOCK_Q"):
            self.assertEqual(named[key], stock[key], key)

    def test_prefill(self):
        _, named, _ = self.launch(512, 1, 32768, head=512)  # many programs: the 2D kernel
        self.assertEqual((named["BLOCK_M"], named["BLOCK_Q"], named["TILE_SIZE"], named["num_warps"], named["waves_per_eu"]),
                         (32, 5, 16, 4, 1))
        _, named, _ = self.launch(512, 1, 32768, head=512, heads=48, kv_heads=1)
        self.assertEqual((named["BLOCK_M"], named["BLOCK_Q"]), (32, 1))
        _, named, _ = self.launch(512, 1, 32768)
        self.assertEqual((named["BLOCK_M"], named["TILE_SIZE"], named["waves_per_eu"]), (64, 16, 1))
        _, named, _ = self.launch(512, 1, 32768, q_dtype=BF16, kv_dtype=BF16)
        self.assertEqual((named["TILE_SIZE"], named["num_warps"], named["num_stages"], named["waves_per_eu"]), (16, 4, 1, 1))

    def test_first_verify_line_once(self):
        self.launch(9, 1, 32768)
        self.assertEqual(self.said, "[radiance] AITER: first verify batch: BLOCK_M 64, tile 32, splits 128, warps 4, "
                         "sequences 1, tokens 9, kv 32768\n")
        self.launch(9, 1, 32768)
        self.assertEqual(self.said, "")

    def test_geometry_that_cannot_be_read(self):
        torch = sys.modules["torch"]
        attention, reduction = sys.modules[NAMES[0]].select_3d_config(256, 32, 32768, 256, 8, torch.float8_e4m3fn,
                                                                      torch.float8_e4m3fn)
        self.assertEqual((attention["TILE_SIZE"], attention["num_warps"], reduction["TILE_SIZE"]), (16, 4, 16))

    def test_twice(self):
        install()
        self.check_wide(9, 1, 32768, 1, 128)

    def test_the_kernel_behind_the_shim(self):
        self.assertEqual(sys.modules[NAMES[0]].kernel_unified_attention_3d.tag, "kernel_unified_attention_3d attribute")


def stock_launch(*arguments, **named):
    """What AITER launches with no hook."""
    kept = {name: sys.modules[name] for name in list(sys.modules)}
    launches = load_aiter()
    attend(sys.modules[NAMES[0]].unified_attention, *arguments, **named)
    for name in list(sys.modules):
        if name not in kept:
            del sys.modules[name]
    sys.modules.update(kept)
    return launches[0][2]


class Shapes(unittest.TestCase):
    """What needs no source of AITER's."""

    def test_lds_clamp(self):
        standins.install("rocm")
        from vllm_radiance import aiter

        config = dict(TILE_SIZE=64, num_stages=2)
        # head 256 of 2 bytes, tile 64, two stages: 64*256*2*2 + 256 = 65792 > 65536
        self.assertEqual(aiter._fit(config, 256, standins.DTYPES[BF16]), dict(TILE_SIZE=64, num_stages=1))

    def test_neither_interface(self):
        standins.install("rocm")
        module(NAMES[0])
        status, _ = install()
        self.assertEqual(status.state, "not found")
        self.assertIn("neither select_3d_config nor a JSON configuration", status.text)

    def test_not_there(self):
        standins.install("rocm")
        status, text = install()
        self.assertEqual((status.state, status.text, text), ("not found", "AITER is not loaded here", ""))

    def test_json_configuration(self):
        standins.install("rocm")
        fp8 = standins.DTYPES[FP8]
        sections = {"attn_3d": dict(TILE_SIZE=64, num_warps=2, num_stages=2, waves_per_eu=2, NUM_SEGMENTS_PER_SEQ=8),
                    "reduce": dict(TILE_SIZE=64, num_warps=2, num_stages=1, waves_per_eu=2),
                    "attn_2d": dict(BLOCK_M=64, BLOCK_Q=10, TILE_SIZE=64, num_warps=4, num_stages=1, waves_per_eu=2)}
        module("aiter.ops.triton.utils.unified_attention_utils", get_unified_attention_config=lambda op, key: sections[op])
        lookup = sys.modules["aiter.ops.triton.utils.unified_attention_utils"].get_unified_attention_config
        module(NAMES[0], get_unified_attention_config=lookup)
        status, text = install()
        self.assertEqual(status.line(), "AITER attention: on (JSON configuration on 2 module aliases)")
        holder = sys.modules[NAMES[0]]

        def entry(section, tokens, seqs, width, head_size=256):
            q, k, num_seqs, num_queries_per_kv, num_kv_heads = Array((tokens, 12, head_size), fp8), Array((1,), fp8), seqs, 6, 2
            ALL_DECODE, max_seqlen_k, max_seqlen_q, num_2d_prgms = width == 1, 32768, width, 8
            _ = (q, k, num_seqs, num_queries_per_kv, num_kv_heads, ALL_DECODE, max_seqlen_k, max_seqlen_q, num_2d_prgms)
            return holder.get_unified_attention_config(section, "key")

        with contextlib.redirect_stderr(io.StringIO()):
            tuned = entry("attn_3d", 6, 1, 6)
            self.assertEqual((tuned["TILE_SIZE"], tuned["num_warps"], tuned["NUM_SEGMENTS_PER_SEQ"]), (16, 2, 64))
            self.assertEqual(entry("reduce", 6, 1, 6)["num_warps"], 8)
            self.assertEqual(entry("attn_2d", 512, 1, 512, 512)["BLOCK_M"], 32)
        self.assertEqual(sections["attn_3d"]["TILE_SIZE"], 64)  # the table itself is AITER's


if __name__ == "__main__":
    unittest.main()
