# SPDX-License-Identifier: Apache-2.0
"""Contract of vllm-radiance with vLLM 0.32 and 0.33 on three platforms, against stand-ins: seconds, no torch, no vLLM."""

import contextlib
import io
import math
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import types
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import standins  # noqa: E402
from standins import DTYPES, Tensor  # noqa: E402

BUILD = os.environ["RADIANCE_LIBRARY"]
SEED = int(os.environ.get("RADIANCE_TEST_SEED", random.randrange(2**31)))
BF16, F32, E4M3, E8M0 = (DTYPES[n] for n in ("bfloat16", "float32", "float8_e4m3fn", "float8_e8m0fnu"))


@contextlib.contextmanager
def environment(**values):
    kept = {name: os.environ.get(name) for name in values}
    os.environ.update({n: v for n, v in values.items() if v is not None})
    for name in (n for n, v in values.items() if v is None):
        os.environ.pop(name, None)
    try:
        yield
    finally:
        for name, value in kept.items():
            os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)


def plugin(kind="cpu", minor="0.32", device=None, **gates):
    """(what install wrote to stderr, the statuses)."""
    standins.install(kind, minor, device)
    return run_install(**gates)


def run_install(**gates):
    err = io.StringIO()
    with environment(RADIANCE_ANNOUNCED=None, **gates), contextlib.redirect_stderr(err):
        import vllm_radiance

        vllm_radiance.install()
        statuses = sys.modules["vllm_radiance.installer"]._statuses if "vllm_radiance.installer" in sys.modules else None
    return err.getvalue(), {s.name: s for s in statuses or []}


def kernels(kind):
    return sys.modules["vllm.model_executor.kernels.linear"]._POSSIBLE_FP8_BLOCK_KERNELS[standins.PlatformEnum[kind.upper()]]


# ---- values derived here, not by the library ------------------------------------------------------------------------
def e4m3(code):
    sign, exponent, mantissa = code >> 7, code >> 3 & 15, code & 7
    value = mantissa / 8 * 2.0**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)
    return -value if sign else value


def bf16_bytes(values):
    return b"".join(struct.pack("<f", v)[2:] for v in values)  # values are chosen exact in bf16


def bf16_values(raw):
    return [struct.unpack("<f", b"\0\0" + raw[i : i + 2])[0] for i in range(0, len(raw), 2)]


class Case:
    """A layer as vLLM hands it over, and its product in double."""

    def __init__(self, n, k, m=3, padding=0, scale_dtype=F32, scale_name="weight_scale_inv", seed=SEED):
        rng = random.Random(seed)
        self.n, self.k, self.m = n, k, m
        self.codes = [[rng.choice((rng.randrange(0x7F), 0x80 + rng.randrange(0x7F))) for _ in range(k)] for _ in range(n)]
        blocks = (math.ceil(n / 128), math.ceil(k / 128))
        self.exponents = [[rng.randrange(-12, -8) for _ in range(blocks[1])] for _ in range(blocks[0])]
        self.x = [[rng.randrange(-16, 17) / 8 for _ in range(k)] for _ in range(m)]
        self.layer = types.SimpleNamespace(prefix="model.layers.0.mlp.down_proj")
        wide = Tensor((n, k + padding), E4M3).fill(b"".join(bytes(row) + b"\x7f" * padding for row in self.codes))
        self.layer.weight = Tensor((n, k), E4M3, stride=(k + padding, 1), memory=wide.memory)
        flat = [e for row in self.exponents for e in row]
        raw = bytes(127 + e for e in flat) if scale_dtype is E8M0 else struct.pack(f"<{len(flat)}f", *(2.0**e for e in flat))
        setattr(self.layer, scale_name, Tensor(blocks, scale_dtype).fill(raw))

    def config(self, block=128, static=False, out=BF16):
        scale = lambda **named: types.SimpleNamespace(scale=types.SimpleNamespace(**named))
        return types.SimpleNamespace(
            activation_quant_key=scale(static=static), weight_shape=(self.n, self.k), input_dtype=BF16, out_dtype=out,
            weight_quant_key=scale(group_shape=types.SimpleNamespace(row=block, col=block)))

    def input(self):
        return Tensor((self.m, self.k), BF16).fill(bf16_bytes(v for row in self.x for v in row))

    def expected(self, row, column):
        total = magnitude = 0.0
        for i in range(self.k):
            term = self.x[row][i] * e4m3(self.codes[column][i]) * 2.0 ** self.exponents[column // 128][i // 128]
            total, magnitude = total + term, magnitude + abs(term)
        return total, magnitude

    def check(self, test, out, bias=None, relative=2.0**-8):
        """Rounding to bf16 plus k roundings of f32 sums; `relative` widens for quantised activations."""
        test.assertEqual(out.shape, (self.m, self.n))
        got = bf16_values(out.bytes())
        for row in range(self.m):
            for column in range(0, self.n, 7):
                value, magnitude = self.expected(row, column)
                value += bias[column] if bias else 0
                bound = relative * abs(value) + magnitude * self.k * 2.0**-23 + (relative > 0.01) * magnitude * 2.0**-4
                test.assertLessEqual(abs(got[row * self.n + column] - value), bound, (row, column, f"seed {SEED}"))


def build_kernel(case, **config):
    return sys.modules["vllm.model_executor.kernels.linear"].init_fp8_linear_kernel(case.config(**config))


class Order(unittest.TestCase):
    def test_first_and_once(self):
        for kind in ("cpu", "rocm", "cuda"):
            for minor in ("0.32", "0.33"):
                plugin(kind, minor)
                run_install()  # a second call in the same process
                sys.modules["vllm_radiance.installer"]._statuses = None
                run_install()  # and as a child process would make it
                names = [k.__name__ for k in kernels(kind)]
                self.assertEqual(names[0], "RadianceFp8Block", (kind, minor))
                self.assertEqual(names.count("RadianceFp8Block"), 1, (kind, minor))

    def test_adapter_by_interface(self):
        for minor in ("0.32", "0.33"):
            standins.install("cpu", minor)
            sys.modules["vllm"].__version__ = "9.9"  # decides nothing
            _, statuses = run_install()
            self.assertIn(f"adapter {minor}", statuses["preshuffle"].text)

    def test_one_line_a_run(self):
        text, _ = plugin()
        self.assertEqual(text.count("[radiance] libradiance"), 1)
        self.assertIn("hooked preshuffle", text)
        sys.modules["vllm_radiance.installer"]._statuses = None
        err = io.StringIO()
        with environment(RADIANCE_ANNOUNCED="1"), contextlib.redirect_stderr(err):
            sys.modules["vllm_radiance"].install()
        self.assertEqual(err.getvalue(), "")


class Refusals(unittest.TestCase):
    def setUp(self):
        plugin()

    def reasons(self, **config):
        with self.assertRaises(ValueError) as raised:
            build_kernel(Case(128, 128), **config)
        return str(raised.exception)

    def test_reasons_reach_vllms_error(self):
        self.assertIn("RadianceFp8Block scale blocks of 64x64, needs 128x128", self.reasons(block=64))
        self.assertIn("activation scales are static", self.reasons(static=True))
        self.assertIn("out_dtype=torch.float32", self.reasons(out=F32))

    def test_library_reasons(self):
        from vllm_radiance import linear

        place = linear.Place("cpu", "cpu")
        text = linear.refusal(place, 128, 128, DTYPES["float8_e5m2"])
        self.assertIn("a_dtype=fp8_e5m2, needs one of: bf16 fp16 fp32", text)

    def test_disabled_by_name(self):
        with environment(VLLM_DISABLED_KERNELS="RadianceFp8Block"):
            self.assertIn("RadianceFp8Block is disabled", self.reasons())

    def test_card_without_driver(self):
        for kind in ("rocm", "cuda"):
            text, statuses = plugin(kind)
            self.assertEqual(statuses["preshuffle"].state, "on")
            ok, why = kernels(kind)[0].is_supported()
            self.assertFalse(ok)
            self.assertIn("gpu:0", why)


class Layers(unittest.TestCase):
    def setUp(self):
        plugin()

    def run_case(self, case, relative=2.0**-8, bias=None):
        kernel = build_kernel(case)
        kernel.process_weights_after_loading(case.layer)
        packed = case.layer.weight
        kernel.process_weights_after_loading(case.layer)
        self.assertIs(case.layer.weight, packed)  # once
        case.check(self, kernel.apply_weights(case.layer, case.input(), bias and bias[0]), bias and bias[1], relative)
        return kernel

    def test_panels(self):
        case = Case(256, 384)
        self.run_case(case)
        self.assertEqual(case.layer.weight.shape[0], 16)

    def test_ragged(self):
        self.run_case(Case(200, 300))

    def test_padded_rows(self):
        self.run_case(Case(128, 512, padding=256))

    def test_e8m0_scales(self):
        self.run_case(Case(256, 256, scale_dtype=E8M0))

    def test_compressed_tensors_name(self):
        self.run_case(Case(128, 256, scale_name="weight_scale"))

    def test_bias(self):
        values = [i / 4 for i in range(128)]
        self.run_case(Case(128, 128), bias=(Tensor((128,), BF16).fill(bf16_bytes(values)), values))

    def test_leading_axes(self):
        case = Case(128, 128, m=4)
        kernel = self.run_case(case)
        out = kernel.apply_weights(case.layer, case.input().reshape(2, 2, 128))
        self.assertEqual(out.shape, (2, 2, 128))

    def test_no_rows(self):
        case = Case(128, 128)
        kernel = self.run_case(case)
        self.assertEqual(kernel.apply_weights(case.layer, Tensor((0, 128), BF16)).shape, (0, 128))

    def test_matrices_of_later_code_stay(self):
        for mark in ("prefix", "attribute"):
            case = Case(128, 256, padding=256)
            if mark == "prefix":
                case.layer.prefix = "model.layers.3.self_attn.kv_b_proj"
            else:
                case.layer._cpu_skip_gemm_dispatch = True
            kernel = build_kernel(case)
            kernel.process_weights_after_loading(case.layer)
            self.assertEqual(case.layer.weight.shape, (128, 256))
            case.check(self, kernel.apply_weights(case.layer, case.input()))

    def test_gate_keeps_rows(self):
        with environment(RADIANCE_PRESHUFFLE="0"):
            case = Case(128, 256)
            self.run_case(case)
            self.assertEqual(case.layer.weight.shape, (128, 256))

    def test_w8a8(self):
        with environment(RADIANCE_CPU_W8A8="1"):
            case = Case(128, 256)
            self.run_case(case, relative=2.0**-3)
            from vllm_radiance import report

            self.assertIn("quant_fp8", report.text())

    def test_merged_shards_that_end_inside_a_block(self):
        config = sys.modules["vllm.model_executor.layers.quantization"].registered["fp8"]()
        method = config.get_quant_method(None, "")
        sizes, k = [192, 64, 64], 256
        shards = [Case(rows, k, seed=SEED + i) for i, rows in enumerate(sizes)]
        layer = types.SimpleNamespace(tp_size=1)
        layer.register_parameter = lambda name, value: setattr(layer, name, value)
        method.create_weights(layer, k, sizes, k, sum(sizes), BF16)
        self.assertEqual(layer.weight_scale_inv.shape, (4, 2))
        layer.weight.fill(b"".join(bytes(row) for case in shards for row in case.codes))
        for name, case in zip("qkv", shards):
            layer.weight_scale_inv.load_qkv_weight(case.layer.weight_scale_inv, shard_id=name, shard_offset=99)
        method.process_weights_after_loading(layer)
        method.process_weights_after_loading(layer)
        for case in shards:
            case.x = shards[0].x
        got, at, width = bf16_values(method.apply(layer, shards[0].input()).bytes()), 0, sum(sizes)
        for case in shards:
            part = [v for row in range(case.m) for v in got[row * width + at : row * width + at + case.n]]
            case.check(self, Tensor((case.m, case.n), BF16).fill(bf16_bytes(part)))
            at += case.n

    def test_configuration_pickles_for_workers(self):
        import pickle

        config = sys.modules["vllm.model_executor.layers.quantization"].registered["fp8"]()
        raw = pickle.dumps(config)
        standins.install()  # as in a child process: no plugin loaded yet
        with environment(RADIANCE_ANNOUNCED="1"):
            self.assertEqual(type(pickle.loads(raw)).__name__, "RadianceFp8Config")

    def test_reference(self):
        plugin(RADIANCE_REFERENCE="1")
        with environment(RADIANCE_REFERENCE="1"):
            self.run_case(Case(128, 256))
        sys.modules["vllm_radiance.library"].library().binding.rdt_use_reference(0)

    def test_whole_blocks_stay_with_vllm(self):
        method = sys.modules["vllm.model_executor.layers.quantization"].registered["fp8"]().get_quant_method(None, "")
        layer = types.SimpleNamespace(tp_size=1)
        method.create_weights(layer, 256, [256, 64], 256, 320, BF16)
        self.assertEqual(layer.stock, "created")
        self.assertEqual(method.apply(layer, None), "stock")


class Failures(unittest.TestCase):
    def test_each_step_alone(self):
        standins.install()
        import vllm_radiance.steps as steps

        names = [name for name, _, _ in steps.ORDER]
        self.assertLess(names.index("4-bit draft linears"), names.index("preshuffle"))
        self.assertEqual(names[-1], "report")
        for index, (name, gate, _) in enumerate(steps.ORDER):
            standins.install()
            import vllm_radiance.steps as steps

            def boom(adapter):
                raise KeyError("boom")

            order = list(steps.ORDER)
            order[index] = (name, gate, boom)
            steps.ORDER = tuple(order)
            text, statuses = run_install()
            self.assertEqual(statuses[name].state, "failed")
            self.assertIn(f"[radiance] {name}: failed (KeyError: 'boom')", text)
            others = [s for n, s in statuses.items() if n != name]
            self.assertTrue(all(s.state != "failed" for s in others), [s.line() for s in others])

    def test_missing_symbols(self):
        for name in ("_POSSIBLE_FP8_BLOCK_KERNELS", "Fp8BlockScaledMMLinearKernel", "init_fp8_linear_kernel"):
            standins.install()
            delattr(sys.modules["vllm.model_executor.kernels.linear"], name)
            text, statuses = run_install()
            self.assertIn("no adapter fits", statuses["vLLM"].text)
            self.assertIn(name, text)

    def test_missing_hooks_are_lines(self):
        standins.install("rocm")
        sys.modules["vllm.distributed.device_communicators.cuda_communicator"].__dict__.pop("CudaCommunicator")
        _, statuses = run_install()
        self.assertEqual(statuses["all-reduce"].state, "not found")
        self.assertIn("CudaCommunicator", statuses["all-reduce"].text)

    def test_missing_library(self):
        with tempfile.TemporaryDirectory() as folder:
            text, _ = plugin(RADIANCE_LIBRARY=folder)
            self.assertRegex(text, r"libradiance: failed \(.*libradiance.so is missing\)")
            self.assertEqual([k.__name__ for k in kernels("cpu")], ["Stock"])

    def test_library_of_another_version(self):
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder) / "other.c"
            source.write_text('const char *rd_version(void) { return "9.9.9"; }\nconst char *rd_build_id(void) { return "x"; }\n'
                              'const char *rd_error_text(void) { return ""; }\nunsigned rd_abi_version(void) { return 1; }\n')
            subprocess.run(["cc", "-shared", "-fPIC", source, "-o", f"{folder}/libradiance.so"], check=True)
            os.symlink(f"{BUILD}/libradiance_torch.so", f"{folder}/libradiance_torch.so")
            text, _ = plugin(RADIANCE_LIBRARY=folder)
            self.assertRegex(text, r"is version 9.9.9 \(ABI 1\), the package needs 0.1.0")
            self.assertEqual([k.__name__ for k in kernels("cpu")], ["Stock"])

    def test_library_that_is_no_library(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "libradiance.so").write_text("no")
            text, _ = plugin(RADIANCE_LIBRARY=folder)
            self.assertIn("cannot be loaded", text)

    def test_bad_value_of_every_gate(self):
        """One line each, the default holds, and the hooks are those of a run without it."""
        _, plain = plugin()
        gates = sys.modules["vllm_radiance.gates"]
        for name, default, _ in gates.GATES:
            if not default:
                continue  # RADIANCE_LIBRARY, a folder
            text, statuses = plugin(**{name: "maybe"})
            asked = f"[radiance] {name}=maybe, needs one of:"
            self.assertEqual(text.count(asked), 1, (name, text))
            self.assertEqual({n: s.state for n, s in statuses.items()}, {n: s.state for n, s in plain.items()}, name)

    def test_bad_value_of_the_librarys_own(self):
        """The library reads its variables once a process; the reason stands where vLLM lists why a kernel takes no layer."""
        script = ("import sys; sys.path[:0] = sys.argv[1:]\n"
                  "from test_contract import Case, build_kernel, plugin\n"
                  "plugin()\n"
                  "try: build_kernel(Case(128, 128))\n"
                  "except ValueError as error: print(error)\n")
        for name, value, text in (("RADIANCE_ISA", "avx9", "RADIANCE_ISA=avx9, needs one of: ref avx2 avx512"),
                                  ("RADIANCE_THREADS", "abc", "RADIANCE_THREADS=abc, needs a whole number from 0 to 4096")):
            done = subprocess.run([sys.executable, "-B", "-c", script, str(HERE), str(HERE.parent)], capture_output=True,
                                  text=True, env={**os.environ, name: value}, check=True)
            self.assertIn(f"RadianceFp8Block {text}", done.stdout)

    def test_cache_folder_that_cannot_be_written(self):
        """The library keeps verdicts and measurements there; without it everything runs."""
        with tempfile.TemporaryDirectory() as folder:
            blocked = pathlib.Path(folder) / "file"  # root writes anywhere, but not below a file
            blocked.write_text("")
            _, statuses = plugin(XDG_CACHE_HOME=str(blocked), HOME=str(blocked))
            self.assertEqual(statuses["preshuffle"].state, "on")
            with environment(XDG_CACHE_HOME=str(blocked), HOME=str(blocked)):
                case = Case(128, 256)
                kernel = build_kernel(case)
                kernel.process_weights_after_loading(case.layer)
                case.check(self, kernel.apply_weights(case.layer, case.input()))

    def test_bad_gate_value(self):
        text, statuses = plugin(RADIANCE_PRESHUFFLE="yes")
        self.assertIn("[radiance] RADIANCE_PRESHUFFLE=yes, needs one of: 0 1; using 1", text)
        self.assertEqual(statuses["preshuffle"].state, "on")

    def test_off(self):
        plugin(RADIANCE_PLUGIN="0")
        self.assertEqual([k.__name__ for k in kernels("cpu")], ["Stock"])


class Hooks(unittest.TestCase):
    def test_gates(self):
        _, statuses = plugin("rocm", RADIANCE_USE_R4D_AR="0")
        self.assertEqual(statuses["all-reduce"].line(), "all-reduce: off (RADIANCE_USE_R4D_AR=0)")
        self.assertEqual(statuses["draft head"].line(), "draft head: off (RADIANCE_FAST_DRAFT=0)")
        self.assertEqual(statuses["draft depth"].line(), "draft depth: off (RADIANCE_DYNAMIC_DRAFT=0)")

    def test_not_in_this_build(self):
        _, statuses = plugin("rocm", RADIANCE_FAST_DRAFT="1")
        for name in ("4-bit draft linears", "draft head", "all-reduce", "vision attention"):
            self.assertEqual(statuses[name].state, "not in this build", name)

    def test_draft_depth(self):
        plugin(RADIANCE_DYNAMIC_DRAFT="1")
        scheduler = sys.modules["vllm.v1.core.sched.scheduler"].Scheduler([8] * 20)
        # 1:8 2:7 4:6 8:5 16:4, carried forward
        self.assertEqual([scheduler.dynamic_sd_lookup[n] for n in (1, 2, 3, 4, 7, 8, 15, 16, 19)], [8, 7, 7, 6, 6, 5, 5, 4, 4])
        scheduler = sys.modules["vllm.v1.core.sched.scheduler"].Scheduler([3] * 20)
        self.assertEqual(scheduler.dynamic_sd_lookup[1], 3)  # never above what was configured
        self.assertIsNone(sys.modules["vllm.v1.core.sched.scheduler"].Scheduler(None).dynamic_sd_lookup)

    def test_attention_gate(self):
        for value, path in (("1", "vllm_radiance.cpu_attention.RadianceCPUAttentionBackend"), ("0", None)):
            plugin(RADIANCE_ATTENTION=value)
            self.assertEqual(sys.modules["vllm.v1.attention.backends.registry"].backends.get("CPU_ATTN"), path)

    def test_report(self):
        plugin()
        worker = sys.modules["vllm.v1.worker.cpu_worker"].CPUWorker
        case = Case(384, 128)
        kernel = build_kernel(case)  # the first layer wraps the worker
        kernel.process_weights_after_loading(case.layer)
        err = io.StringIO()
        with contextlib.redirect_stderr(err):
            self.assertEqual(worker(1).compile_or_warm_up_model(), "warm")
            self.assertEqual(err.getvalue(), "")
            worker(0).compile_or_warm_up_model()
            worker(0).compile_or_warm_up_model()
        text = err.getvalue()
        self.assertEqual(text.count("Radiance kernel selection"), 1)
        self.assertIn("n=384 k=128", text)
        self.assertTrue(all(line.startswith("[radiance] ") for line in text.splitlines()))

    def test_doctor(self):
        standins.install("rocm")
        from vllm_radiance import doctor

        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            self.assertEqual(doctor.main(["doctor"]), 0)
        text = out.getvalue()
        self.assertIn("preshuffle: on", text)
        self.assertIn("all-reduce: not in this build (op allreduce; vLLM's own runs): the vendor's library reduces", text)
        self.assertIn("RADIANCE_FAST_DRAFT=0: ", text)
        with contextlib.redirect_stderr(io.StringIO()):
            self.assertEqual(doctor.main(["doktor"]), 1)

    def test_version_is_the_headers(self):
        plugin()
        header = (HERE.parent.parent / "include" / "radiance.h").read_text()
        self.assertIn(f'RD_VERSION_STRING "{sys.modules["vllm_radiance"].__version__}"', header)


if __name__ == "__main__":
    print(f"seed {SEED}", file=sys.stderr)
    unittest.main()
