#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""plot_roofline.py GEMM.csv OUT.svg --read-gbs N --peak-tflops N [--attn ATTN.csv ...] [--title T]: the CSV of bench/card_gemm, and of
bench/card_attn, as a roofline: operations a byte across, TFLOP/s up, both in powers of ten. Bytes are those that a call must move: weights or
cache, activations and outputs once each. Of our rows the fastest one of a cell is drawn, of a cell timed cold and warm the cold time."""
import argparse
import csv
import math

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 860, 520, 70, 210, 40, 50
COLOURS = ("#1b6ca8", "#c8553d", "#3a7d44", "#7b5ea7", "#b8860b", "#444444", "#00838f", "#ad1457")


class Axes:
    def __init__(self, x, y):
        self.x, self.y = x, y

    def at(self, x, y):
        across = (math.log10(x) - math.log10(self.x[0])) / (math.log10(self.x[1]) - math.log10(self.x[0]))
        up = (math.log10(y) - math.log10(self.y[0])) / (math.log10(self.y[1]) - math.log10(self.y[0]))
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)


def text(x, y, words, size=12, anchor="start", colour="#222"):
    words = words.replace("&", "&amp;").replace("<", "&lt;")
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}">{words}</text>'


def line(a, b, colour="#222", width=1.0, dash=""):
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return (f'<line x1="{a[0]:.1f}" y1="{a[1]:.1f}" x2="{b[0]:.1f}" y2="{b[1]:.1f}" stroke="{colour}" '
            f'stroke-width="{width}"{dashes}/>')


def grid(axes):
    out = []
    for label, low, high, across in (("operations a byte", *axes.x, True), ("TFLOP/s", *axes.y, False)):
        for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1):
            value = 10.0 ** power
            if not low <= value <= high:
                continue
            if across:
                a, b = axes.at(value, axes.y[0]), axes.at(value, axes.y[1])
                out.append(text(a[0], a[1] + 18, f"{value:g}", anchor="middle"))
            else:
                a, b = axes.at(axes.x[0], value), axes.at(axes.x[1], value)
                out.append(text(a[0] - 8, a[1] + 4, f"{value:g}", anchor="end"))
            out.append(line(a, b, "#ddd"))
        if across:
            out.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, label, anchor="middle"))
        else:
            out.append(text(LEFT - 50, TOP - 14, label))
    return out


RIVALS = ("cublaslt", "deepgemm")


def gemm_series(rows):
    """{kernel: {shape: {rows: (operations a byte, us, operations)}}}; of ours only the fastest of a cell."""
    cells = {}
    for row in rows:
        if row.get("edges") == "plain" or row["kernel"] == "chain":
            continue
        m, n, k = (int(row[x]) for x in "mnk")
        name = row["kernel"] if row["kernel"] in RIVALS else "ours"
        us, kernel = float(row["us"]), row["kernel"]
        if us < cells.get((name, m, n, k), (math.inf,))[0]:
            cells[name, m, n, k] = us, kernel
    out = {}
    for (_, m, n, k), (us, kernel) in sorted(cells.items()):
        operations = 2 * m * n * k
        out.setdefault(kernel, {}).setdefault((n, k), {})[m] = operations / (n * k + m * k + 2 * m * n), us, operations
    return out


def attn_series(rows):
    cells = {}
    for row in rows:
        if row["edges"] == "plain":
            continue
        name = row["kernel"] + " " + row["kv"]
        batch, keys, width, heads, kv_heads, dim = (int(row[x]) for x in ("batch", "keys", "width", "q_heads", "kv_heads", "head_dim"))
        moved = 2 * batch * keys * kv_heads * dim * (1 if row["kv"] == "e4m3" else 2) + 4 * batch * width * heads * dim
        pairs = width * (keys - width) + width * (width + 1) / 2
        operations = 4 * pairs * batch * heads * dim
        shape = batch, keys if width < keys else 0, heads, dim
        at = cells.setdefault(name, {}).setdefault(shape, {})
        us = min(float(row["us"]), at.get(width, (0, math.inf))[1])
        at[width] = operations / moved, us, operations
    return cells


def points(series, axes):
    """Marks joined by kernel and shape; a rival's hollow."""
    out = []
    for index, (name, shapes) in enumerate(series.items()):
        colour = COLOURS[index % len(COLOURS)]
        fill = "none" if name in RIVALS else colour
        for cells in shapes.values():
            places = [axes.at(across, 1e-6 * operations / us) for _, (across, us, operations) in sorted(cells.items())]
            out += [line(a, b, colour, 0.8) for a, b in zip(places, places[1:])]
            out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{fill}" stroke="{colour}"/>' for x, y in places]
        y = TOP + 24 + 20 * index
        out.append(f'<circle cx="{WIDTH - RIGHT + 20}" cy="{y - 4}" r="4" fill="{fill}" stroke="{colour}"/>')
        out.append(text(WIDTH - RIGHT + 32, y, name, 11))
    return out


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("csv")
    parser.add_argument("svg")
    parser.add_argument("--read-gbs", type=float, required=True)
    parser.add_argument("--peak-tflops", type=float, required=True)
    parser.add_argument("--attn", nargs="*", default=[])
    parser.add_argument("--title", default="block-FP8 GEMM")
    o = parser.parse_args()
    series = gemm_series(read(o.csv))
    series.update(attn_series([row for path in o.attn for row in read(path)]))
    most = max(across for shapes in series.values() for cells in shapes.values() for across, _, _ in cells.values())
    axes = Axes((1.0, 1e4 if most <= 1e4 else 1e5), (1.0, 10 ** math.ceil(math.log10(o.peak_tflops))))
    ridge = o.peak_tflops * 1e3 / o.read_gbs
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>', text(LEFT, 20, o.title, 14)]
    out += grid(axes)
    low = max(axes.x[0], axes.y[0] * 1e3 / o.read_gbs)
    out.append(line(axes.at(low, low * o.read_gbs * 1e-3), axes.at(ridge, o.peak_tflops), "#222", 1.6))
    out.append(line(axes.at(ridge, o.peak_tflops), axes.at(axes.x[1], o.peak_tflops), "#222", 1.6))
    x, y = axes.at(ridge, o.peak_tflops)
    out.append(text(x - 8, y - 8, f"{o.peak_tflops:g} TFLOP/s, {o.read_gbs:g} GB/s", 11, "end"))
    out += points(series, axes)
    out.append("</svg>")
    with open(o.svg, "w", encoding="utf-8") as file:
        file.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
