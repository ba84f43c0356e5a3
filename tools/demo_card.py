#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""demo_card.py RADIANCE MODEL [TOKENS] [DEVICE]: greedy answers of a block-FP8 model from a card (sim:gfx1201, or gpu:0 and the
like), beside the CPU's W8A8 path. Where they part, the CPU's logits tell by how little: the gap between the two tokens must be
smaller than the error of e4m3 activations at that very position, which is the largest difference between the CPU's
W8A8 and W8A16 logits. Exit 1 where it is not."""
import json
import subprocess
import sys
import time

PROMPTS = ("The capital of France is", "Water boils at a temperature of", "The largest planet of the solar system is",
           "Once upon a time, a little girl", "To make bread you need flour,")
ALL = 1 << 24


def generate(device, prompt, tokens, w8a8=True, logits=0):
    command = [sys.argv[1], "generate", sys.argv[2], "--device", device, "--context", "256", "--raw", "--prompt", prompt,
               "--max-tokens", str(tokens), "--ignore-end", "--json"]
    command += ["--w8a8"] if w8a8 else []
    command += ["--top-logits", str(logits)] if logits else []
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"{device}: {run.stderr.strip()}")
    return json.loads(run.stdout)


def logits_at(device, ids, prompt, w8a8):
    out = generate(device, prompt, 1, w8a8, ALL)
    if out["prompt_ids"] != ids:
        return None  # the text splits into other tokens than the answer did
    return dict(out["top_logits"])


def explain(prompt, host, card):
    """Words for the first difference, and whether the gap is below the error of W8A8 itself."""
    at = next(i for i, (a, b) in enumerate(zip(host["ids"], card["ids"])) if a != b)
    ids = host["prompt_ids"] + host["ids"][:at]
    text = prompt + (generate("cpu", prompt, at)["text"] if at else "")
    eight, sixteen = (logits_at("cpu", ids, text, w8a8) for w8a8 in (True, False))
    if eight is None or sixteen is None:
        return f"token {at} differs; its prefix cannot be asked for by text", False
    a, b = host["ids"][at], card["ids"][at]
    gap, error = eight[a] - eight[b], max(abs(eight[i] - sixteen[i]) for i in eight)
    return (f"the same {at} tokens, then a gap of {gap:.3f} between the two choices where W8A8 itself is up to {error:.3f} off",
            gap <= error)


def main():
    tokens = int(sys.argv[3]) if len(sys.argv) > 3 else 32
    device = sys.argv[4] if len(sys.argv) > 4 else "sim:gfx1201"
    checks = " with every check of the simulator" if device.startswith("sim:") else ""
    failed = False
    for prompt in PROMPTS:
        start = time.monotonic()
        card = generate(device, prompt, tokens)
        seconds = time.monotonic() - start
        host = generate("cpu", prompt, tokens)
        print(f"{prompt}|{card['text']!r}\n  {tokens / seconds:.2f} tokens/s{checks}, model load included",
              flush=True)
        if card["ids"] == host["ids"]:
            print(f"  equal to the CPU's W8A8 path: {tokens} of {tokens} tokens", flush=True)
            continue
        words, good = explain(prompt, host, card)
        failed |= not good
        print(f"  CPU: {host['text']!r}\n  {words}{'' if good else ': NOT EXPLAINED'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
