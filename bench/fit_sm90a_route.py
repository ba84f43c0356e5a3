#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fit_sm90a_route.py SWEEP.csv [SMS CLOCK_MHZ MEMORY_GBS]: the numbers of src/policy/sm90a_route.c out of a sweep of card_gemm (bench/sweep_card.sh),
and what they cost: time lost against the faster row of every cell, by the rule, by class "step" alone and by class "chunk" alone. One
fit for each row count from 32 on; below, memory is the limit of both and class "step" has the shorter way. The rule is judged twice:
on the cells that it was fitted to, and held out, each shape by the rule that the other shapes give."""
import csv
import math
import sys

READ_SHARE, UNIT, WORTH = 0.89, 8192.0, 1.03  # of sm90a_route.c; UNIT: bytes of 64 weight rows by 128 k


def solve(rows):
    """Least squares of relative errors: rows of factors and the value that they and the unknowns should give."""
    size = len(rows[0]) - 1
    m = [[0.0] * (size + 1) for _ in range(size)]
    for *x, y in rows:
        for i in range(size):
            for j in range(size):
                m[i][j] += x[i] * x[j] / (y * y)
            m[i][size] += x[i] / y
    for i in range(size):
        pivot = m[i][i]
        m[i] = [v / pivot for v in m[i]]
        for j in range(size):
            if j != i:
                m[j] = [a - m[j][i] * b for a, b in zip(m[j], m[i])]
    return [m[i][size] for i in range(size)]


class Chip:
    def __init__(self, sms, clock, memory, tiles):
        self.sms, self.clock, self.read, self.tiles = sms, clock, READ_SHARE * memory * 1e3, tiles

    def run(self, n, k):
        return math.ceil(n / 64) * math.ceil(k / 128) / self.sms

    def step(self, model, n, k):
        fixed, cycles, part = model
        run, blocks = self.run(n, k), math.ceil(k / 128)
        return fixed + run * max(UNIT * self.sms / self.read, cycles / self.clock) + blocks / run * part

    def chunk(self, model, n, k):
        fixed, cycles, share = model
        best = math.inf
        for rows in self.tiles:
            tiles = math.ceil(n / rows)
            busy = min(tiles, self.sms)
            block = max(rows * 128 * busy / (share * self.read), cycles * rows / 64 / self.clock)
            best = min(best, fixed + math.ceil(tiles / self.sms) * math.ceil(k / 128) * block)
        return best


def fit_step(chip, cells):
    rows = [(1.0, chip.run(n, k), math.ceil(k / 128) / chip.run(n, k), t["step"]) for (n, k), t in cells.items()]
    several = len(rows) > 3 and len({n for n, _ in cells}) > 1  # of one n, the last factor is a multiple of the first
    fixed, unit, part = solve(rows) if several else (0.0, 0.0, -1.0)
    if part < 0:  # too few shapes to tell, and a merge gives no time back
        (fixed, unit), part = solve([(one, run, us) for one, run, _, us in rows]), 0.0
    memory = UNIT * chip.sms / chip.read
    return fixed, (unit * chip.clock if unit > 1.02 * memory else 0.0), part


def takes_chunk(chip, step, chunk, at):
    return chip.chunk(chunk, *at) * WORTH < chip.step(step, *at)


def lost(chip, step, chunk, cells):
    return sum(t["chunk" if takes_chunk(chip, step, chunk, at) else "step"] / min(t.values()) - 1 for at, t in cells.items())


def fit_chunk(chip, step, cells):
    """Least time lost, then least error of the cells that the class wins or nearly wins."""
    near = {at: t for at, t in cells.items() if t["chunk"] < 1.1 * t["step"]} or cells
    best = None
    for fixed in (x * 0.5 for x in range(2, 33)):
        for cycles in range(400, 2000, 20):
            for share in (0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 1.0):
                model = (fixed, float(cycles), share)
                error = sum(abs(math.log(chip.chunk(model, *at) / t["chunk"])) for at, t in near.items()) / len(near)
                score = (round(lost(chip, step, model, cells), 3) + error, error)
                if best is None or score < best[0]:
                    best = (score, model)
    return best[1]


def held_out(chip, cells):
    """Every shape by the rule of the others: how far the step's estimate was off, what the choice lost, and where it was another."""
    off, losses, other = 0.0, [], []
    for at, t in cells.items():
        rest = {a: b for a, b in cells.items() if a != at}
        step = fit_step(chip, rest)
        chunk = fit_chunk(chip, step, rest)
        off = max(off, abs(chip.step(step, *at) / t["step"] - 1))
        losses.append(lost(chip, step, chunk, {at: t}))
        if losses[-1] > 0:
            other.append(f"{at[0]}x{at[1]} ({100 * losses[-1]:.1f}%, {'chunk' if takes_chunk(chip, step, chunk, at) else 'step'} taken)")
    return off, losses, other


def read_sweep(path):
    """Row count -> (n, k) -> class -> least time, and the weight rows of a tile of class "chunk". Stops at what cannot be fitted."""
    cells, tiles = {}, range(64, 193, 32)
    with open(path, newline="") as file:
        reader = csv.DictReader(file)
        for row in reader:
            try:
                m, n, k, us = int(row["m"]), int(row["n"]), int(row["k"]), float(row["us"])
                word = "chunk" if "_chunk_" in row["kernel"] else "step"
            except (KeyError, TypeError, ValueError) as error:
                sys.exit(f"{path}: line {reader.line_num}: {error!r}, needs columns kernel, m, n, k and us of card_gemm")
            if min(m, n, k) < 1 or not 0 < us < math.inf:
                sys.exit(f"{path}: line {reader.line_num}: m={m} n={n} k={k} us={us}, needs numbers above 0")
            at = cells.setdefault(m, {}).setdefault((n, k), {})
            at[word] = min(us, at.get(word, math.inf))
            if "_w8a16_" in row["kernel"]:
                tiles = (128,)
    cells = {m: table for m, table in cells.items() if m >= 32}
    for m, table in cells.items():
        for (n, k), times in table.items():
            if len(times) < 2:
                sys.exit(f"{path}: m={m}, {n}x{k}: class {next(iter(times))} alone, needs step and chunk")
        # Held out, one is left away; two unknowns ask for shapes of two sizes.
        if len(table) < 3 or len({math.ceil(n / 64) * math.ceil(k / 128) for n, k in table}) < 3:
            sys.exit(f"{path}: m={m}: {len(table)} shapes, needs three of different sizes or more")
    if not cells:
        sys.exit(f"{path}: no row count from 32 on, nothing to fit")
    return cells, tiles


def main():
    if len(sys.argv) not in (2, 5):
        sys.exit("usage: fit_sm90a_route.py SWEEP.csv [SMS CLOCK_MHZ MEMORY_GBS]")
    try:
        rates = [float(x) for x in sys.argv[2:]] or [132, 1980.0, 4917.0]
    except ValueError as error:
        sys.exit(f"{error}, needs numbers: SMS CLOCK_MHZ MEMORY_GBS")
    if not all(0 < x < math.inf for x in rates):
        sys.exit(f"SMS CLOCK_MHZ MEMORY_GBS: {rates}, needs numbers above 0")
    cells, tiles = read_sweep(sys.argv[1])
    chip = Chip(*rates, tiles)
    for m, table in sorted(cells.items()):
        step = fit_step(chip, table)
        chunk = fit_chunk(chip, step, table)
        worst = max(abs(chip.step(step, *at) / t["step"] - 1) for at, t in table.items())
        print(f"    {{OP, {m}, {step[0]:.3f}, {step[1]:.1f}, {step[2]:.3f}, {chunk[0]:.1f}, {chunk[1]:.0f}, {chunk[2]:.2f}}},"
              f" // step within {100 * worst:.0f}%")
        only = {w: sum(t[w] / min(t.values()) - 1 for t in table.values()) / len(table) for w in ("step", "chunk")}
        off, losses, other = held_out(chip, table)
        print(f"// lost on average: rule {100 * lost(chip, step, chunk, table) / len(table):.1f}%, step {100 * only['step']:.1f}%, "
              f"chunk {100 * only['chunk']:.1f}%; chunk is ahead on",
              " ".join(f"{n}x{k}" for (n, k), t in table.items() if t["chunk"] < t["step"]) or "none",
              "; taken on", " ".join(f"{at[0]}x{at[1]}" for at in table if takes_chunk(chip, step, chunk, at)) or "none")
        print(f"// held out: rule {100 * sum(losses) / len(losses):.1f}% on average, {100 * max(losses):.1f}% at most, step within "
              f"{100 * off:.0f}%; slower row taken on", ", ".join(other) or "none")


if __name__ == "__main__":
    main()
