# SPDX-License-Identifier: Apache-2.0
"""vllm-radiance inside stock vLLM on this machine's CPU. Run by `make test-vllm` with the Python of the environment that it
made. Every engine runs in a process of its own."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
RUN = str(HERE / "run_vllm.py")
MODEL = os.environ.get("RADIANCE_TEST_MODEL", "")
SCRATCH = tempfile.TemporaryDirectory()
BIN = pathlib.Path(sys.executable).parent
SETTINGS = dict(VLLM_CPU_KVCACHE_SPACE="1", HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1", VLLM_ENABLE_V1_MULTIPROCESSING="0",
                VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1", VLLM_CACHE_ROOT=f"{SCRATCH.name}/cache",
                PATH=f"{BIN}:{os.environ['PATH']}")


def environment(changes):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RADIANCE_")}
    return {**clean, **SETTINGS, **changes}


def engine(model, *options, fails=False, **changes):
    """(result, everything printed) of one run of run_vllm.py."""
    done = subprocess.run([sys.executable, RUN, str(model), *options], env=environment(changes), capture_output=True,
                          text=True, timeout=300)
    text = done.stdout + done.stderr
    results = [line[7:] for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if fails:
        assert done.returncode != 0, text[-3000:]
        return None, text
    assert done.returncode == 0 and results, text[-6000:]
    return json.loads(results[-1]), text


class Tiny(unittest.TestCase):
    """A random Qwen3 of two layers in block-FP8 and its bf16 twin."""

    @classmethod
    def setUpClass(cls):
        import checkpoints

        cls.folder = pathlib.Path(SCRATCH.name) / "tiny"
        checkpoints.write(cls.folder, checkpoints.SHAPES["tiny"])
        cls.fp8, cls.bf16 = cls.folder / "fp8", cls.folder / "bf16"
        cls.twin = engine(cls.bf16)[0]["tokens"]

    def same(self, *options, twin=None, **changes):
        result, text = engine(self.fp8, *options, **changes)
        self.assertEqual([len(t) for t in result["tokens"]], [32] * 8)
        self.assertEqual(result["tokens"], twin or self.twin)
        return text

    def test_stock_refuses(self):
        _, text = engine(self.fp8, fails=True, VLLM_PLUGINS="")
        self.assertIn("Failed to find a kernel that can implement the ScaledMM linear layer", text)

    def test_disabled_by_name(self):
        _, text = engine(self.fp8, fails=True, VLLM_DISABLED_KERNELS="RadianceFp8Block")
        self.assertIn("RadianceFp8Block", text)
        self.assertIn("Failed to find a kernel", text)

    def test_eager(self):
        text = self.same()
        self.assertEqual(text.count("[radiance] libradiance"), 1)
        self.assertIn("Selected RadianceFp8Block", text)
        self.assertEqual(text.count("Radiance kernel selection"), 1)
        self.assertIn("n=512 k=256 a_dtype=bf16", text)

    def test_compiled(self):
        twin = engine(self.bf16, "--compiled")[0]["tokens"]  # fused ops round in other places than eager ones
        self.same("--compiled", twin=twin)

    def test_multiprocessing(self):
        text = self.same(VLLM_ENABLE_V1_MULTIPROCESSING="1")
        self.assertEqual(text.count("[radiance] libradiance"), 1)
        self.assertEqual(text.count("Radiance kernel selection"), 1)

    def test_ngram_speculation(self):
        self.same("--ngram")

    def test_attention(self):
        text = self.same(RADIANCE_ATTENTION="1")
        self.assertIn("attn_decode", text)
        self.assertIn("attn_prefill", text)
        self.same("--ngram", RADIANCE_ATTENTION="1")

    def scores(self, *options, model=None, **changes):
        lists = pathlib.Path(SCRATCH.name) / "lists.json"
        from run_vllm import prompts

        lists.write_text(json.dumps([p + t for p, t in zip(prompts(8, 512), self.twin)]))
        return engine(model or self.fp8, "--logprobs", str(lists), *options, **changes)

    def compare(self, got, want, most):
        differences = [abs(a - b) for x, y in zip(got["logprobs"], want["logprobs"]) for a, b in zip(x, y)]
        self.assertGreater(len(differences), 300)
        self.assertLess(sum(differences) / len(differences), most)

    def test_w8a16_scores_are_the_twins(self):
        ours, _ = self.scores()
        self.compare(ours, self.scores(model=self.bf16)[0], 0.02)

    def test_w8a8_against_the_reference(self):
        """Teacher-forced: the same tokens scored by the fast rows and by ref.c, and not far from W8A16."""
        fast, text = self.scores(RADIANCE_CPU_W8A8="1")
        self.assertIn("quant_fp8", text)
        reference, text = self.scores(RADIANCE_CPU_W8A8="1", RADIANCE_REFERENCE="1")
        self.assertIn("every op runs its plain-C reference", text)
        self.compare(fast, reference, 0.05)
        self.compare(fast, self.scores()[0], 0.5)

    def test_fp8_cache(self):
        plain, _ = self.scores()
        ours, text = self.scores("--kv-dtype", "fp8", RADIANCE_ATTENTION="1")
        self.assertIn("kv_dtype=fp8_e4m3", text)
        self.compare(ours, plain, 0.5)

    def test_missing_library(self):
        _, text = engine(self.fp8, fails=True, RADIANCE_LIBRARY=SCRATCH.name)
        self.assertRegex(text, r"\[radiance\] libradiance: failed \(.*libradiance.so is missing\)")
        result, _ = engine(self.bf16, RADIANCE_LIBRARY=SCRATCH.name)  # stock vLLM goes on
        self.assertEqual(result["tokens"], self.twin)

    def test_doctor(self):
        text = subprocess.run(["radiance", "vllm", "doctor"], env=environment({}), capture_output=True, text=True,
                              check=True).stdout
        self.assertIn("preshuffle: on", text)
        self.assertRegex(text, r"vLLM +0\.\d+\.\d+ \(vllm-cpu\)")


class Binding(unittest.TestCase):
    def test_compiled_op(self):
        import torch

        from vllm_radiance import linear, torch_ops

        self.assertEqual(torch_ops.register(), "boxed")
        place = linear.Place("cpu", "cpu")
        weight = torch.randn(256, 512).to(torch.float8_e4m3fn)
        scale = torch.rand(2, 4) + 0.5
        packed = linear.pack(place, weight, "panel16")
        full = weight.float() * scale.repeat_interleave(128, 0).repeat_interleave(128, 1)
        op = torch.ops.radiance.fp8_linear
        compiled = torch.compile(lambda x: op(x, packed, scale, 256, 2, False) + 1, fullgraph=True, dynamic=True)
        for rows in (1, 8, 33):
            x = torch.randn(rows, 512, dtype=torch.bfloat16)
            got, want = compiled(x).float(), x.float() @ full.t() + 1
            self.assertLess(((got - want).abs().mean() / want.abs().mean()).item(), 4e-3)
        with self.assertRaisesRegex(RuntimeError, "radiance::fp8_linear: .*w: shape"):
            op(torch.zeros(1, 100, dtype=torch.bfloat16), packed, scale, 256, 2, False)

    def test_shards_side_by_side(self):
        """One op, one output: each shard as alone, bit for bit, under torch.compile too."""
        import torch

        from vllm_radiance import linear, torch_ops

        torch_ops.register()
        place, sizes, operands = linear.Place("cpu", "cpu"), (576, 192, 192), []
        for rows in sizes:
            weight = torch.randn(rows, 576).to(torch.float8_e4m3fn)
            operands += [linear.pack(place, weight, "panel16"), torch.rand(-(-rows // 128), 5) + 0.5]
        shards, alone = torch.ops.radiance.fp8_linear_shards, torch.ops.radiance.fp8_linear
        compiled = torch.compile(lambda x: shards(x, *operands, *sizes, 2, False), fullgraph=True, dynamic=True)
        for rows in (1, 9, 40):
            x = torch.randn(rows, 576, dtype=torch.bfloat16)
            want = torch.cat([alone(x, *operands[2 * i : 2 * i + 2], n, 2, False) for i, n in enumerate(sizes)], -1)
            self.assertTrue(torch.equal(shards(x, *operands, *sizes, 2, False), want))
            self.assertTrue(torch.equal(compiled(x), want))
            two = shards(x, *operands[:4], *operands[:2], 576, 192, 0, 2, False)
            self.assertTrue(torch.equal(two, want[:, :768]))


@unittest.skipUnless(MODEL and os.path.exists(MODEL), "the demo model is not here")
class Served(unittest.TestCase):
    """SmolLM2 as `radiance convert` writes it, behind vLLM's own server. Its merged q, k, v end inside scale blocks."""

    @classmethod
    def setUpClass(cls):
        cls.folder = f"{SCRATCH.name}/smollm2"
        subprocess.run(["radiance", "convert", MODEL, cls.folder], env=environment({}), check=True, capture_output=True)

    def test_chat(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        # The published command asks for the version of a package named vllm; vllm-cpu installs none.
        note = pathlib.Path(SCRATCH.name) / "named" / "vllm-0.32.0+cpu.dist-info"
        note.mkdir(parents=True)
        (note / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n")
        log = open(f"{SCRATCH.name}/serve.log", "w+")
        self.addCleanup(log.close)
        server = subprocess.Popen(
            ["vllm", "serve", self.folder, "--host", "127.0.0.1", "--port", str(port), "--max-model-len", "1024",
             "--gpu-memory-utilization", "0.2", "--enforce-eager", "--served-model-name", "smol"],
            env=environment(dict(VLLM_ENABLE_V1_MULTIPROCESSING="1", PYTHONPATH=str(note.parent))), stdout=log, stderr=subprocess.STDOUT,
            start_new_session=True)
        try:
            self.wait(server, port, log)
            request = dict(model="smol", temperature=0, max_tokens=24, messages=[
                dict(role="user", content="What is the capital of France?")])
            answer = subprocess.run(
                ["curl", "-sS", "--noproxy", "*", f"http://127.0.0.1:{port}/v1/chat/completions", "-H",
                 "Content-Type: application/json", "-d", json.dumps(request)], capture_output=True, text=True, check=True)
            self.assertIn("Paris", json.loads(answer.stdout)["choices"][0]["message"]["content"])
        finally:
            if server.poll() is None:
                os.killpg(server.pid, signal.SIGTERM)
                server.wait(60)
        log.seek(0)
        text = log.read()
        self.assertIn("Selected RadianceFp8Block", text)
        self.assertEqual(text.count("Radiance kernel selection"), 1)

    def wait(self, server, port, log):
        for _ in range(240):
            self.assertIsNone(server.poll(), f"the server stopped: {pathlib.Path(log.name).read_text()[-3000:]}")
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(1)
        self.fail("the server does not listen after 240 s")


if __name__ == "__main__":
    unittest.main(verbosity=2)
