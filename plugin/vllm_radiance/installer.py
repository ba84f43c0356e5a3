# SPDX-License-Identifier: Apache-2.0
"""install_all: every hook in its order, each step alone, so that one that fails costs one line. Touches no device."""

import os

from . import __version__, adapters, gates, steps
from .hook import FAILED, MISSING, OFF, Status
from .library import RadianceError, library
from .log import say

_statuses = None


def _vllm_version():
    try:
        import vllm

        return getattr(vllm, "__version__", "unknown")
    except Exception as error:
        return f"not importable ({type(error).__name__}: {error})"


def run_steps():
    """Statuses of all steps, in order."""
    gates.check_all()
    if not gates.flag("RADIANCE_PLUGIN"):
        return [Status("plugin", "RADIANCE_PLUGIN", OFF, "RADIANCE_PLUGIN=0")]
    try:
        library()
    except RadianceError as error:
        return [Status("libradiance", None, FAILED, str(error))]
    adapter, reasons = adapters.choose()
    if adapter is None:
        return [Status("vLLM", None, MISSING, "no adapter fits: " + "; ".join(reasons))]
    statuses = []
    for name, gate, step in steps.ORDER:
        try:
            statuses.append(step(adapter))
        except Exception as error:
            statuses.append(Status(name, gate, FAILED, f"{type(error).__name__}: {error}"))
    return statuses


def announce(statuses):
    if os.environ.get(gates.ANNOUNCED):
        return
    os.environ[gates.ANNOUNCED] = "1"
    try:
        build = f"libradiance {library().version} ({library().build_id})"
    except RadianceError:
        build = f"vllm-radiance {__version__}"
    hooked = [s.name for s in statuses if s.state == "on"]
    say(f"{build}, vLLM {_vllm_version()}: hooked {', '.join(hooked) or 'nothing'}; `radiance vllm doctor` says more")
    for status in statuses:
        if status.state == FAILED or (status.state == MISSING and status.name in ("vLLM", "preshuffle")):
            say(status.line())


def install_all():
    """Once a process; spawned and forked children run it again and find the hooks in place or put them there."""
    global _statuses
    if _statuses is None:
        _statuses = run_steps()
        announce(_statuses)
    return _statuses
