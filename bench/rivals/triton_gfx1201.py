#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles the Triton kernels of vLLM and AITER for gfx1201 without a GPU, and runs them in the simulator.

The kernels' sources stay outside this repository. To get them:

    python3 -m venv v39 && v39/bin/pip install triton==3.9.0 numpy      # and v36 with triton==3.6.0
    git clone --filter=blob:none https://github.com/ROCm/aiter          # commit e4048607a5 was used
    pip download --no-deps vllm==0.33.0 && unzip -d vllm vllm-*.whl 'vllm/*.py'

    v39/bin/python triton_gfx1201.py compile --vllm vllm --aiter aiter --out objects/3.9
    python3 triton_gfx1201.py run --library libamdhip64_gfx12sim.so --objects objects/3.9 --csv results.csv

`compile` needs Triton (no torch, no ROCm, no GPU); `run` needs numpy and the simulator's HIP library. Each result is
compared with its formula in float64; a program that misses its bound fails the command and gets no line in the CSV.
"""

import argparse
import csv
import ctypes
import hashlib
import importlib
import importlib.abc
import importlib.machinery
import json
import sys
import types
from pathlib import Path

import numpy as np

import triton_cases as cases


# ---- compile ------------------------------------------------------------------------------------------------------
class Anything:
    """Stands for whatever a kernel's file imports besides Triton: it can be called, subscripted and combined."""

    def __init__(self, *_, **__):
        pass

    def __getattr__(self, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Anything()

    def __call__(self, *_, **__):
        return Anything()

    def __getitem__(self, _):
        return Anything()

    def __or__(self, _):
        return self

    __ror__ = __or__

    def __mro_entries__(self, _):
        return ()


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Serves stand-in modules for torch and for those parts of vLLM and AITER that are no kernels."""

    def __init__(self, roots, real):
        self.roots, self.real = roots, real

    def find_spec(self, name, path=None, target=None):
        top = name.split(".")[0]
        if top not in ("torch", "vllm", "aiter"):
            return None
        file = Path(self.roots.get(top, ".")) / (name.replace(".", "/") + ".py")
        if any(name.startswith(prefix) for prefix in self.real) and file.is_file():
            return importlib.util.spec_from_file_location(name, file)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__path__ = []
        module.__getattr__ = lambda name: Anything() if not name.startswith("__") else (_ for _ in ()).throw(
            AttributeError(name))
        return module

    def exec_module(self, module):
        import triton
        import triton.language

        if module.__name__ == "vllm.triton_utils":
            module.triton, module.tl = triton, triton.language
        if module.__name__ == "torch":
            module.finfo = lambda _: types.SimpleNamespace(min=-cases.FP8_MAX, max=cases.FP8_MAX)
        if module.__name__.endswith("arch_info"):
            module.get_arch = lambda: "gfx1201"


def install_stand_ins(sources):
    real = [
        "vllm.v1.attention.ops.triton_", "vllm.model_executor.layers.quantization.utils.fp8_utils",
        "aiter.ops.triton._triton_kernels.", "aiter.ops.triton.utils._triton.kernel_repr",
        "aiter.ops.triton.utils._triton.pid_preprocessing",
    ]
    sys.meta_path.insert(0, StandIns(sources, real))


def kernel_of(launch):
    module = importlib.import_module(launch.path[: -len(".py")].replace("/", "."))
    function = getattr(module, launch.function)
    while not hasattr(function, "arg_names") or hasattr(function, "values"):  # below the heuristics
        function = function.fn
    return function


POINTERS = {"bf16": "*bf16", "fp8": "*fp8e4nv", "f32": "*fp32", "i32": "*i32"}


def signature_of(function, launch, buffers):
    """Types, constants and attributes as Triton's runtime would derive them from the arguments."""
    signature, constants, attributes, passed = {}, {}, {}, []
    for index, parameter in enumerate(function.params):
        value = launch.values[parameter.name]
        constant = parameter.is_constexpr or value is None or (type(value) is int and value == 1)
        if constant:
            signature[parameter.name] = "constexpr"
            constants[(index,)] = value
            continue
        if isinstance(value, tuple):
            signature[parameter.name] = POINTERS[buffers[value[1]][0]]
            attributes[(index,)] = [["tt.divisibility", 16], ["tt.pointer_range", 32]]
        elif isinstance(value, float):
            signature[parameter.name] = "fp32"
        else:
            annotated = parameter.annotation_type
            signature[parameter.name] = annotated if annotated in ("i32", "i64") else "i32"
            if value % 16 == 0:
                attributes[(index,)] = [["tt.divisibility", 16]]
        passed.append(parameter.name)
    return signature, constants, attributes, passed


def compile_launch(launch, buffers, out, stem):
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function = kernel_of(launch)
    signature, constants, attributes, passed = signature_of(function, launch, buffers)
    source = ASTSource(function, signature, constants, attributes)
    compiled = triton.compile(source, target=GPUTarget("hip", "gfx1201", 32), options=dict(launch.options))
    (out / f"{stem}.hsaco").write_bytes(compiled.asm["hsaco"])
    arguments = []
    for name in passed:
        value = launch.values[name]
        kind = "buffer" if isinstance(value, tuple) else signature[name]
        arguments.append([kind, value[1] if isinstance(value, tuple) else value])
    return {"object": f"{stem}.hsaco", "symbol": compiled.metadata.name, "grid": launch.grid, "arguments": arguments,
            "threads": 32 * compiled.metadata.num_warps, "shared": compiled.metadata.shared}


def command_compile(options):
    import triton

    sources = {"vllm": options.vllm, "aiter": options.aiter}
    install_stand_ins(sources)
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    failed = 0
    for program in cases.programs(sources):
        if options.only and options.only not in program.name:
            continue
        try:
            launches = [compile_launch(launch, program.buffers, out, f"{program.name}.{i}")
                        for i, launch in enumerate(program.launches)]
        except Exception as error:  # one kernel that this Triton refuses must not hide the others
            print(f"{program.name}: {type(error).__name__}: {str(error).splitlines()[-1][:200]}")
            failed += 1
            continue
        record = {"name": program.name, "kind": program.kind, "shape": program.shape, "launches": launches,
                  "buffers": program.buffers, "main_bytes": program.main_bytes, "triton": triton.__version__}
        (out / f"{program.name}.json").write_text(json.dumps(record, indent=1))
        print(f"{program.name}: {len(launches)} kernels")
    return 1 if failed else 0


# ---- run ----------------------------------------------------------------------------------------------------------
class Hip:
    """The few HIP functions that this needs."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.library.gfx12sim_hip_counter.restype = ctypes.c_double
        self.library.gfx12sim_hip_counter_name.restype = ctypes.c_char_p
        self.library.hipGetErrorName.restype = ctypes.c_char_p

    def __call__(self, name, *arguments):
        status = getattr(self.library, name)(*arguments)
        if status:
            text = ctypes.create_string_buffer(2048)
            self.library.gfx12sim_hip_fault_text(0, text, ctypes.c_size_t(len(text)))
            reason = text.value.decode(errors="replace")
            raise RuntimeError(f"{name}: {self.library.hipGetErrorName(status).decode()} {reason}")

    def upload(self, array):
        pointer = ctypes.c_void_p()
        self("hipMalloc", ctypes.byref(pointer), ctypes.c_size_t(array.nbytes))
        self("hipMemcpy", pointer, array.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(array.nbytes), 1)
        return pointer

    def download(self, pointer, array):
        self("hipMemcpy", array.ctypes.data_as(ctypes.c_void_p), pointer, ctypes.c_size_t(array.nbytes), 2)

    def function(self, path, symbol):
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self("hipModuleLoad", ctypes.byref(module), str(path).encode())
        self("hipModuleGetFunction", ctypes.byref(function), module, symbol.encode())
        return function

    def launch(self, function, grid, threads, shared, values):
        # Triton's kernels end in pointers for scratch memory, null here; spare entries cover them.
        values = values + [ctypes.c_void_p(0)] * 4
        params = (ctypes.c_void_p * len(values))(*(ctypes.cast(ctypes.byref(v), ctypes.c_void_p) for v in values))
        self("hipModuleLaunchKernel", function, *grid, threads, 1, 1, shared, None, params, None)
        self("hipDeviceSynchronize")

    def counters(self):
        names, index = [], 0
        while name := self.library.gfx12sim_hip_counter_name(ctypes.c_size_t(index)):
            names.append(name.decode())
            index += 1
        return {name: self.library.gfx12sim_hip_counter(0, name.encode()) for name in names}


SKIPPED = 77  # what test drivers take for "not run"
SCALARS = {"i32": ctypes.c_int32, "i64": ctypes.c_int64, "fp32": ctypes.c_float}


def run_program(hip, record, folder, seed):
    rng = np.random.default_rng(seed)
    buffers = record["buffers"]
    given = cases.data(record["kind"], record["shape"], buffers, rng)
    arrays, pointers = {}, {}
    for name, (dtype, dims) in buffers.items():
        # Outputs start poisoned: what a kernel leaves out does not pass for a zero.
        poison = np.full(int(np.prod(dims)) * np.dtype(cases.DTYPES[dtype]).itemsize, 0xCD, np.uint8)
        arrays[name] = given[name] if name in given else poison.view(cases.DTYPES[dtype]).reshape(dims)
        pointers[name] = hip.upload(np.ascontiguousarray(arrays[name]))
    functions = [hip.function(folder / l["object"], l["symbol"]) for l in record["launches"]]
    hip.library.gfx12sim_hip_counters_reset(0)
    per_launch = []
    for function, launch in zip(functions, record["launches"]):
        values = [pointers[value] if kind == "buffer" else SCALARS[kind](value) for kind, value in launch["arguments"]]
        hip.launch(function, launch["grid"], launch["threads"], launch["shared"], values)
        per_launch.append(hip.counters())
        hip.library.gfx12sim_hip_counters_reset(0)
    got = {}
    for name in buffers:
        got[name] = np.empty_like(np.ascontiguousarray(arrays[name]))
        hip.download(pointers[name], got[name])
        hip("hipFree", pointers[name])
    check, shape = cases.CHECKS[record["kind"]], record["shape"]
    if check(shape, given, cases.corrupted(record["kind"], got)) <= 1:
        raise RuntimeError("the check accepts a wrong result")
    digest = hashlib.sha256(got[cases.RESULTS[record["kind"]]].tobytes()).hexdigest()
    return check(shape, given, got), digest, per_launch


COLUMNS = ["instructions", "wmma", "valu", "salu", "vmem_load", "lds", "load_bytes", "load_lines", "lds_conflict_cycles",
           "barriers", "wait_loadcnt", "blocking_loadcnt", "wait_dscnt", "blocking_dscnt"]


def command_run(options):
    hip = Hip(options.library)
    folder = Path(options.objects)
    rows, failed = [], 0
    for path in sorted(folder.glob("*.json")):
        record = json.loads(path.read_text())
        if options.only and options.only not in record["name"]:
            continue
        try:
            worst, digest, per_launch = run_program(hip, record, folder, options.seed)
        except RuntimeError as error:
            print(f"{record['name']}: FAIL {error}", flush=True)
            hip.library.hipDeviceReset()
            failed += 1
            continue
        good = worst <= 1
        failed += not good
        for launch, counters in zip(record["launches"], per_launch):
            print(f"{record['name']} {launch['symbol'][:40]}: {'ok' if good else 'FAIL'}, error {worst:.3f} of bound, "
                  f"{counters['instructions']:.0f} wave-instructions in {counters['seconds']:.2f} s", flush=True)
            if good:
                row = {"program": record["name"], "triton": record["triton"], "kernel": launch["symbol"].split(".")[0],
                       "shape": json.dumps(record["shape"]).replace('"', ""), "error_of_bound": f"{worst:.4f}",
                       "result_sha256": digest[:16],
                       "instructions_per_kib": f"{counters['instructions'] * 1024 / record['main_bytes']:.1f}"}
                rows.append(row | {name: int(counters[name]) for name in COLUMNS})
    if options.csv and rows:
        with open(options.csv, "w", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows)
    if not rows and not failed:
        print(f"skipped: no compiled programs in {folder}")
        return SKIPPED
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(required=True)
    compile_ = commands.add_parser("compile", help="compile every program for gfx1201")
    compile_.add_argument("--vllm", required=True, help="folder that holds vllm/")
    compile_.add_argument("--aiter", required=True, help="folder that holds aiter/")
    compile_.add_argument("--out", required=True)
    compile_.set_defaults(command=command_compile)
    run = commands.add_parser("run", help="run what was compiled, compare, write counters")
    run.add_argument("--library", required=True, help="libamdhip64_gfx12sim.so")
    run.add_argument("--objects", required=True)
    run.add_argument("--csv")
    run.add_argument("--seed", type=int, default=20261130)
    run.set_defaults(command=command_run)
    for command in (compile_, run):
        command.add_argument("--only", help="programs whose name contains this")
    options = parser.parse_args()
    return options.command(options)


if __name__ == "__main__":
    sys.exit(main())
