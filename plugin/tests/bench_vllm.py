# SPDX-License-Identifier: Apache-2.0
"""Tokens a second of vLLM on a block-FP8 folder with the plugin against stock vLLM on its bf16 twin, in turns, one engine a
process, one thread. Prints and appends rows of CSV: model, engine, prefill tok/s, decode tok/s. Best of the turns."""

import argparse
import csv
import json
import os
import pathlib
import subprocess
import sys

RUN = pathlib.Path(__file__).resolve().parent / "run_vllm.py"
SETTINGS = dict(VLLM_CPU_KVCACHE_SPACE="1", HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1", VLLM_ENABLE_V1_MULTIPROCESSING="0",
                VLLM_NO_USAGE_STATS="1")


def measure(model, options, changes):
    done = subprocess.run([sys.executable, str(RUN), model, *options], env={**os.environ, **SETTINGS, **changes},
                          capture_output=True, text=True, check=True)
    return json.loads(next(line[7:] for line in done.stdout.splitlines() if line.startswith("RESULT ")))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("bf16")
    parser.add_argument("fp8")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--csv")
    parser.add_argument("--attention", action="store_true", help="a third engine: the plugin with its attention")
    a, options = parser.parse_known_args()
    engines = {"stock bf16": (a.bf16, dict(VLLM_PLUGINS="")), "plugin fp8": (a.fp8, {})}
    if a.attention:
        engines["plugin fp8, our attention"] = (a.fp8, dict(RADIANCE_ATTENTION="1"))
    best = {name: dict(prefill=0.0, decode=0.0) for name in engines}
    for _ in range(a.turns):
        for name, (model, changes) in engines.items():
            for key, value in measure(model, options, changes).items():
                best[name][key] = max(best[name][key], value)
    rows = [(a.name, name, f"{r['prefill']:.1f}", f"{r['decode']:.2f}") for name, r in best.items()]
    for row in rows:
        print(*row, sep=", ", flush=True)
    if a.csv:
        fresh = not os.path.exists(a.csv)
        with open(a.csv, "a", newline="") as out:
            writer = csv.writer(out)
            if fresh:
                writer.writerow(("model", "engine", "prefill tok/s", "decode tok/s"))
            writer.writerows(rows)


if __name__ == "__main__":
    main()
