#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""demo_card.py RADIANCE MODEL [--device D] [--tokens N] [--ids FILE] [--csv FILE]: greedy answers of a block-FP8 model from a card (gfx1201
machine code on the simulated one, unless another is named), beside the CPU's W8A8 path.

Two orders of summation cannot give the same logits here: what differs in the last bit of an f32 moves some activation over an
e4m3 boundary, and every later layer sees that. So the error is measured, by `radiance compare` on the same tokens (prompt and the
CPU's answer), as root mean square over positions and tokens:
  own    the CPU's W8A8 logits, summed in f32 and in double (`cpu:double`), on the first prompt
  error  the card's from the CPU's W8A8 logits: may be twice `own`
  card, cpu   each one's W8A8 logits from the CPU's W8A16 logits: what e4m3 activations cost; card may be 1.5 times cpu
Prompts are texts, or the token ids of FILE (a line each: "2,818,5279 | The capital of"), for a model without a tokenizer of ours.
Where the answers part, the gap between the two tokens in the CPU's logits must be below twice `error` and below the largest
difference. Exit 1 where one of these fails."""
import argparse
import csv
import datetime
import json
import resource
import subprocess
import sys
import tempfile
import time

PROMPTS = ("The capital of France is", "Water boils at a temperature of", "The largest planet of the solar system is",
           "Once upon a time, a little girl", "To make bread you need flour,")
ALL = 1 << 24
CPU, DOUBLE = "cpu", "cpu:double"


def radiance(o, *arguments):
    run = subprocess.run([o.radiance, *arguments], capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"{' '.join(arguments[:1])}: {run.stderr.strip()}")
    return run.stdout


def generate(o, device, prompt, tokens, logits=0, ids=False):
    command = ["generate", o.model, "--device", device, "--context", "256", "--ids" if ids or o.ids else "--raw", "--prompt", prompt,
               "--max-tokens", str(tokens), "--ignore-end", "--w8a8", "--json"]
    return json.loads(radiance(o, *command, *(["--top-logits", str(logits)] if logits else [])))


def joined(ids):
    return ",".join(str(i) for i in ids)


def compare(o, prompt, host, device, w8a8=True):
    """Differences of `device` (W8A8) from the CPU (W8A8 or W8A16) over the positions of one answer: (rms, largest, positions)."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(joined(host["prompt_ids"] + host["ids"]) if o.ids else prompt + host["text"])
        file.flush()
        out = json.loads(radiance(o, "compare", o.model, o.model, "--text", file.name, *(["--ids"] if o.ids else []),
                                  *(["--w8a8-a"] if w8a8 else []), "--w8a8-b", "--device", CPU, "--device-b", device, "--json"))
    return out["rms_logit_difference"], out["max_logit_difference"], out["positions"]


def gap_at(o, host, card):
    """First token that differs, and how far apart the two choices lie in the CPU's logits there."""
    at = next(i for i, (a, b) in enumerate(zip(host["ids"], card["ids"])) if a != b)
    logits = dict(generate(o, CPU, joined(host["prompt_ids"] + host["ids"][:at]), 1, ALL, True)["top_logits"])
    return at, logits[host["ids"][at]] - logits[card["ids"][at]]


def processor_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def answer(o, prompt, words, own_rms):
    start, used = time.monotonic(), processor_seconds()
    card = generate(o, o.device, prompt, o.tokens)
    seconds, used = time.monotonic() - start, processor_seconds() - used
    host = generate(o, CPU, prompt, o.tokens)
    rms, most, positions = compare(o, prompt, host, o.device)
    card_noise, cpu_noise = (compare(o, prompt, host, device, False)[0] for device in (o.device, CPU))
    same, gap, why = o.tokens, 0.0, []
    if rms > 2 * own_rms:
        why.append(f"logits {rms:.3f} apart, the CPU's own {own_rms:.3f}")
    if card_noise > 1.5 * cpu_noise:
        why.append(f"{card_noise:.3f} from the W8A16 logits, the CPU's W8A8 {cpu_noise:.3f}")
    if card["ids"] != host["ids"]:
        same, gap = gap_at(o, host, card)
        if gap > most or gap > 2 * rms:
            why.append("a gap that the error does not explain")
    spoken = [joined(a["ids"]) if o.ids else repr(a["text"]) for a in (card, host)]
    print(f"{words}|{spoken[0]}\n  decode {card['decode_tok_s']:.2f} tokens/s{' with every check of the simulator' if o.device.startswith('sim:') else ''} "
          f"({o.tokens / seconds:.2f} with loading and prefill, {used / o.tokens:.2f} processor seconds a token)")
    print(f"  card and CPU on the same {positions} tokens: logits {rms:.3f} apart (root mean square), {most:.3f} at most; from the "
          f"CPU's W8A16 logits the card's are {card_noise:.3f}, the CPU's W8A8 {cpu_noise:.3f}")
    if same == o.tokens:
        print(f"  equal to the CPU's W8A8 path: {same} of {same} tokens", flush=True)
    else:
        print(f"  CPU: {spoken[1]}\n  the same {same} tokens, then a gap of {gap:.3f} between the two choices")
    for reason in why:
        print(f"  NOT EXPLAINED: {reason}", flush=True)
    return [words, same, gap, f"{rms:.4f}", f"{most:.4f}", f"{card_noise:.4f}", f"{cpu_noise:.4f}", positions, f"{card['decode_tok_s']:.2f}",
            f"{o.tokens / seconds:.2f}", f"{used / o.tokens:.3f}", "no" if why else "yes"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("radiance")
    parser.add_argument("model")
    parser.add_argument("--device", default="sim:gfx1201")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--ids", metavar="FILE")
    parser.add_argument("--csv")
    o = parser.parse_args()
    prompts = [(text, text) for text in PROMPTS]
    if o.ids:
        with open(o.ids) as file:
            prompts = [[part.strip() for part in line.split("|")] for line in file if line[:1].isdigit()]
    own_rms, own_most, positions = compare(o, prompts[0][0], generate(o, CPU, prompts[0][0], o.tokens), DOUBLE)
    print(f"The CPU's W8A8 logits summed in f32 and in double: {own_rms:.3f} apart (root mean square), {own_most:.3f} at most, "
          f"over {positions} tokens", flush=True)
    rows = [answer(o, prompt, words, own_rms) for prompt, words in prompts]
    if o.csv:
        with open(o.csv, "w", newline="") as file:
            out = csv.writer(file, lineterminator="\n")
            out.writerow(["prompt", "same_tokens", "gap", "error_rms", "error_max", "card_from_w8a16", "cpu_from_w8a16", "positions", "decode_tok_s",
                          "tok_s_with_loading", "processor_seconds_a_token", "explained", "cpu_own_rms", "cpu_own_max", "tokens", "version", "date"])
            stamp = datetime.date.today().isoformat()
            for row in rows:
                out.writerow(row + [f"{own_rms:.4f}", f"{own_most:.4f}", o.tokens, radiance(o, "version").split("\n")[0], stamp])
    return 0 if all(row[-1] == "yes" for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
