#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ncu_device.py BIN OUT.csv [NAME ...]: one launch of each fast sm_90a kernel under Nsight Compute, one CSV line each: duration, cycles, how
busy the tensor cores, issue slots, memory, second-level cache and shared memory were, and what the warps waited for. BIN: the folder
of card_gemm, card_attn and card_small; NAME: of CELLS below (all of them without). Caches are flushed before the launch, clocks are left
as they are, the library's first-use checks are off (RADIANCE_TRUST=1)."""
import csv
import os
import shutil
import subprocess
import sys

SHAPES = {"gate": "14336x5120", "o": "5120x6144", "gate_up": "34816x5120", "down": "5120x17408"}
METRICS = {
    "us": "gpu__time_duration.sum",
    "cycles": "sm__cycles_elapsed.max",
    "tensor_percent": "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "issue_percent": "sm__inst_issued.avg.pct_of_peak_sustained_elapsed",
    "dram_percent": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "l2_percent": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "shared_percent": "l1tex__data_pipe_lsu_wavefronts_mem_shared.avg.pct_of_peak_sustained_elapsed",
    "dram_read_bytes": "dram__bytes_read.sum",
    "l2_read_sectors": "lts__t_sectors_op_read.sum",
    "registers": "launch__registers_per_thread",
    "blocks": "launch__grid_size",
    "threads": "launch__block_size",
    "warps_percent": "sm__warps_active.avg.pct_of_peak_sustained_active",
}
STALLS = ("barrier branch_resolve dispatch_stall drain gmma imc_miss lg_throttle long_scoreboard math_pipe_throttle membar "
          "mio_throttle no_instruction not_selected short_scoreboard sleeping tex_throttle wait").split()
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"


def gemm(shape, rows, kernel, extra=()):
    return (f"rdk_{kernel}", ["card_gemm", "--shapes", SHAPES.get(shape, shape), "--rows", str(rows), "--cublaslt", "none", *extra])


def attn(op, heads, kv, keys, widths=(), batch=1):
    return (f"rdk_attn_{op}_sm90a_[bf]", ["card_attn", op, "--heads", heads, "--kv", kv, "--keys", str(keys), "--batch", str(batch),
                                       *(("--widths", str(widths)) if widths else ())])


def cells():
    out = {}
    for shape in SHAPES:
        for rows in (1, 16, 64, 128):
            out[f"step_{shape}_{rows}"] = gemm(shape, rows, "gemm_fp8block_step_sm90a")
        for rows in (512, 8192):
            out[f"chunk_{shape}_{rows}"] = gemm(shape, rows, "gemm_fp8block_chunk_sm90a_[0-9]")
    rival = os.environ.get("DEEPGEMM")  # what bench/rivals/deepgemm.sh made
    for shape in SHAPES if rival else ():
        for rows in (64, 128, 512, 8192):
            out[f"deepgemm_{shape}_{rows}"] = ("sm90_fp8_gemm", gemm(shape, rows, "", ("--deepgemm", rival))[1])
    for rows in (1, 64, 128):
        out[f"bf16_head_{rows}"] = gemm("151936x5120", rows, "gemm_bf16_step_sm90a", ("--op", "gemm_bf16"))
    out["w8a16_gate_1"] = gemm("gate", 1, "gemm_fp8block_w8a16_step_sm90a", ("--op", "gemm_fp8block_w8a16"))
    for heads in ("24/4x256", "32/8x128"):
        name = heads.split("x")[1]
        for width in (1, 4, 9):
            out[f"decode_{name}_e4m3_128k_{width}"] = attn("decode", heads, "e4m3", 131072, width)
            out[f"decode_{name}_e4m3_32k_{width}"] = attn("decode", heads, "e4m3", 32768, width)
        out[f"decode_{name}_bf16_128k_1"] = attn("decode", heads, "bf16", 131072, 1)
        for kv in ("bf16", "e4m3"):
            out[f"prefill_{name}_{kv}_8k"] = attn("prefill", heads, kv, 8192)
    for rows in (1, 16, 8192):
        for op in ("quant", "add_rmsnorm", "add_rmsnorm_quant"):
            out[f"{op}_{rows}"] = ("rdk_(quant|rmsnorm)", ["card_small", "--ops", op, "--rows", str(rows), "--edges", "plain"])
    return out


def value(text):
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return 0.0


def profile(folder, name, kernel, command):
    """The second launch of `command` that matches: the first one may bring code and tables."""
    metrics = ",".join([*METRICS.values(), *(STALL.format(s) for s in STALLS)])
    ncu = ["ncu", "--clock-control", "none", "--csv", "--print-units", "base", "--metrics", metrics, "-k", f"regex:{kernel}",
           "--launch-skip", "1", "--launch-count", "1", "--kill", "yes"]
    run = subprocess.run([*ncu, os.path.join(folder, command[0]), *command[1:]], capture_output=True, text=True, check=False)
    lines = [line for line in run.stdout.splitlines() if line.startswith('"')]
    if len(lines) < 2:
        print(f"{name}: nothing measured: {(run.stdout + run.stderr)[-400:]}", file=sys.stderr)
        return None
    found = {}
    for row in csv.DictReader(lines):
        found[row["Metric Name"]] = value(row["Metric Value"])
        found["kernel"] = row["Kernel Name"].split("(")[0]
    out = {"cell": name, "kernel": found.get("kernel", "")}
    for key, metric in METRICS.items():
        out[key] = f"{found.get(metric, 0) / (1e3 if key == 'us' else 1):.6g}"
    waits = sorted(((found.get(STALL.format(s), 0), s) for s in STALLS), reverse=True)
    total = sum(size for size, _ in waits) + 1  # one warp issues in each of these cycles
    out["waits_percent"] = " ".join(f"{s}:{100 * size / total:.0f}" for size, s in waits[:5])
    out["command"] = " ".join(command)
    return out


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    folder, target, wanted = sys.argv[1], sys.argv[2], sys.argv[3:]
    known = cells()
    unknown = [name for name in wanted if name not in known]
    if unknown:
        sys.exit(f"no cell {unknown[0]}; there are: {' '.join(known)}")
    if not shutil.which("ncu"):
        sys.exit("ncu_device.py: no ncu on the PATH: NVIDIA's Nsight Compute brings it")
    os.environ["RADIANCE_TRUST"] = "1"
    with open(target, "w", newline="", encoding="utf-8") as file:
        writer = None
        for name in wanted or known:
            row = profile(folder, name, *known[name])
            if not row:
                continue
            if writer is None:
                writer = csv.DictWriter(file, row.keys(), lineterminator="\n")
                writer.writeheader()
            writer.writerow(row)
            file.flush()
            print(" ".join(str(row[k]) for k in list(row)[:8]), row["waits_percent"], flush=True)


if __name__ == "__main__":
    main()
