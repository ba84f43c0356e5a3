# SPDX-License-Identifier: Apache-2.0
"""Draft depth by batch size: vLLM's scheduler reads the depth of a step from `dynamic_sd_lookup[requests]`; ours answers with
the library's rule draft_cap, never more than what was configured. Lossless: verification decides what is kept."""

import inspect

from .hook import MISSING, ON, Status
from .library import library

NAME, GATE = "draft depth", "RADIANCE_DYNAMIC_DRAFT"


class CapLookup:
    """Takes the place of the scheduler's table; what the table holds is the most that a step may draft."""

    def __init__(self, table):
        self.table, self._caps = table, {}

    def __getitem__(self, requests):
        if requests not in self._caps:
            outputs, _ = library().policy("draft_cap", batch=max(int(requests), 1))
            self._caps[requests] = int(outputs["cap"])
        return min(self.table[requests], self._caps[requests])

    def __len__(self):
        return len(self.table)


def wrap_scheduler(scheduler):
    """Every scheduler built from here on has its table replaced, when it has one. Idempotent."""
    original = scheduler.__init__
    if getattr(original, "radiance_wrapped", False):
        return

    def __init__(self, *arguments, **named):
        original(self, *arguments, **named)
        table = getattr(self, "dynamic_sd_lookup", None)
        if table is not None and not isinstance(table, CapLookup):
            self.dynamic_sd_lookup = CapLookup(table)

    __init__.radiance_wrapped = True
    scheduler.__init__ = __init__


def install():
    try:
        from vllm.v1.core.sched.scheduler import Scheduler
    except ImportError as error:
        return Status(NAME, GATE, MISSING, str(error))
    try:
        known = "dynamic_sd_lookup" in inspect.getsource(Scheduler)
    except (OSError, TypeError):
        known = hasattr(Scheduler, "dynamic_sd_lookup")
    if not known:
        return Status(NAME, GATE, MISSING, "Scheduler has no dynamic_sd_lookup")
    wrap_scheduler(Scheduler)
    return Status(NAME, GATE, ON, "needs num_speculative_tokens_per_batch_size in the speculative configuration")
