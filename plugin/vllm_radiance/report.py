# SPDX-License-Identifier: Apache-2.0
"""The kernel selection report, once, on rank 0, after warm-up: the workers' warm-up method is wrapped when the first layer of
ours is built, because by then the worker's module is loaded and the front end never loads it for us."""

import functools
import sys

from . import gates
from .library import RadianceError, library
from .log import say

WORKERS = (
    ("vllm.v1.worker.cpu_worker", "CPUWorker"),
    ("vllm.v1.worker.gpu_worker", "Worker"),
)
_METHOD = "compile_or_warm_up_model"
_printed = False




def text():
    """The reports of all contexts of this process, "" when nothing was asked."""
    reports = []
    for device in library().used_devices():
        report = library().report(device)
        if report:
            reports.append(report)
    return "\n".join(reports)


def print_once():
    global _printed
    if _printed:
        return
    _printed = True
    try:
        report = text()
    except RadianceError as error:
        report = f"no report: {error}"
    if report:
        say(report)


def _wrap(method):
    @functools.wraps(method)
    def warm_up(self, *arguments, **named):
        result = method(self, *arguments, **named)
        if getattr(self, "rank", 0) == 0:
            print_once()
        return result

    warm_up.radiance_wrapped = True
    return warm_up


def wrap_loaded_workers():
    """Names of the worker classes whose warm-up now ends with the report. A class is wrapped once."""
    if not gates.flag("RADIANCE_REPORT"):
        return []
    wrapped = []
    for module_name, class_name in WORKERS:
        worker = getattr(sys.modules.get(module_name), class_name, None)
        method = vars(worker).get(_METHOD) if worker else None
        if method is None:
            continue
        if not getattr(method, "radiance_wrapped", False):
            setattr(worker, _METHOD, _wrap(method))
        wrapped.append(class_name)
    return wrapped
