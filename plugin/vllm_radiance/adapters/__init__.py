# SPDX-License-Identifier: Apache-2.0
"""What differs between vLLM minors, one small module each. Chosen by looking at the interface, newest first: the version
string decides nothing, so an unknown newer vLLM gets the newest adapter whose probe passes."""

from . import v0_32, v0_33

ADAPTERS = (v0_33, v0_32)


def choose():
    """(adapter or None, why each that does not fit does not)."""
    reasons = []
    for adapter in ADAPTERS:
        try:
            missing = adapter.probe()
        except Exception as error:
            missing = f"{type(error).__name__}: {error}"
        if missing is None:
            return adapter, reasons
        reasons.append(f"{adapter.NAME}: {missing}")
    return None, reasons
