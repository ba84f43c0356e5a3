# SPDX-License-Identifier: Apache-2.0
"""Cost of calling a radiance op from Python, in microseconds, apart from the kernel's own time: the op on no rows (everything
but the launch), against the same over ctypes and torch.add on one element, best of rounds, interleaved."""

import time

import torch

from vllm_radiance import linear, torch_ops


def best(calls, rounds=15, count=2000):
    least = {name: float("inf") for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(count):
                call()
            least[name] = min(least[name], (time.perf_counter() - start) / count)
    return {name: seconds * 1e6 for name, seconds in least.items()}


def main():
    torch.set_num_threads(1)
    print("binding", torch_ops.register())
    torch_ops.use_torch_threads()
    place = linear.Place("cpu", "cpu")
    n, k = 64, 128
    weight = torch.zeros(n, k).to(torch.float8_e4m3fn)
    scale, packed = torch.ones(1, 1), linear.pack(place, weight, "panel16")
    none, one = torch.empty((0, k), dtype=torch.bfloat16), torch.zeros((1, k), dtype=torch.bfloat16)
    by_ctypes = torch_ops._linear_by_ctypes(torch_ops.lib.library())
    op = torch.ops.radiance.fp8_linear
    scalar = torch.zeros(1)
    with torch.inference_mode():
        calls = {
            "boxed op, no rows": lambda: op(none, packed, scale, n, 2, False),
            "boxed op, 1x64x128": lambda: op(one, packed, scale, n, 2, False),
            "ctypes, no rows": lambda: by_ctypes(none, packed, scale, None, n, 2, False),
            "torch.add of one element": lambda: torch.add(scalar, scalar),
            "torch.mm 1x64x128": lambda m=torch.zeros(k, n, dtype=torch.bfloat16): torch.mm(one, m),
        }
        for name, cost in best(calls).items():
            print(f"{name:28s} {cost:7.2f} us")


if __name__ == "__main__":
    main()
