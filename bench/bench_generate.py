#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tokens per second of `radiance generate`: prefill of 512 tokens and decode of 32 tokens at given depths, best of several
runs, one CSV row a measurement. With --rival-python, bench/rivals/run_llama_cpp.py runs before and after on the same threads
and its better figure stands beside ours: same machine, same minutes."""
import argparse
import csv
import datetime
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def generate(args, prompt, threads, max_tokens):
    command = [args.radiance, "generate", args.model, "--raw", "--prompt-file", prompt, "--max-tokens", str(max_tokens),
               "--ignore-end", "--temperature", "0", "--threads", str(threads), "--kv", args.kv, "--json"]
    if args.w8a8:
        command.append("--w8a8")
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def write_prompt(folder, tokens):
    path = pathlib.Path(folder) / f"{tokens}.txt"
    path.write_text(" the" * tokens)  # one token each in the demo model; checked below
    return str(path)


def ours(args, threads):
    best = {}
    with tempfile.TemporaryDirectory() as folder:
        for what, tokens, steps in [("prefill", 512, 1)] + [("decode", depth, 32) for depth in args.depths]:
            prompt = write_prompt(folder, tokens)
            for _ in range(args.repeats):
                out = generate(args, prompt, threads, steps)
                if len(out["prompt_ids"]) != tokens:
                    sys.exit(f"the prompt has {len(out['prompt_ids'])} tokens, needs {tokens}")
                speed = out["prefill_tok_s" if what == "prefill" else "decode_tok_s"]
                best[what, tokens] = max(best.get((what, tokens), 0), speed)
    return best


def rival(args, threads, best):
    command = [args.rival_python, ROOT / "bench/rivals/run_llama_cpp.py", args.gguf, "--threads", str(threads),
               "--depths", ",".join(map(str, args.depths)), "--repeats", str(args.repeats)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for row in csv.DictReader(text.splitlines()):
        key = row["what"], int(row["tokens"])
        best[key] = max(best.get(key, 0), float(row["tok_s"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--radiance", default=str(ROOT / "build/radiance"))
    parser.add_argument("--threads", type=lambda s: [int(x) for x in s.split(",")], default=[1, 2])
    parser.add_argument("--depths", type=lambda s: [int(x) for x in s.split(",")], default=[64, 2048])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--kv", default="bf16")
    parser.add_argument("--w8a8", action="store_true")
    parser.add_argument("--rival-python")
    parser.add_argument("--gguf", help="the model for the rival")
    parser.add_argument("--csv")
    args = parser.parse_args()
    version = subprocess.run([args.radiance, "version"], capture_output=True, text=True, check=True).stdout.strip()
    lines = ["date,version,threads,kv,activations,what,tokens,tok_s,llama_cpp_q8_0_tok_s,ratio"]
    print(lines[0])
    for threads in args.threads:
        theirs = {}
        if args.rival_python:
            rival(args, threads, theirs)
        best = ours(args, threads)
        if args.rival_python:
            rival(args, threads, theirs)
        for (what, tokens), speed in best.items():
            other = theirs.get((what, tokens), 0)
            lines.append(f"{datetime.date.today()},{version},{threads},{args.kv},{'w8a8' if args.w8a8 else 'w8a16'},{what},"
                         f"{tokens},{speed:.1f},{other or ''},{speed / other if other else 0:.2f}")
            print(lines[-1], flush=True)
    if args.csv:
        pathlib.Path(args.csv).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
