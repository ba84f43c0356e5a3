# SPDX-License-Identifier: Apache-2.0
"""vLLM 0.33: `register_linear_kernel` knows fp8_block but appends, so the class is moved to index 0 afterwards; attention
implementations say whether the cache write may be bypassed and reserve their workspace."""

import inspect

from . import v0_32
from .v0_32 import block_kernel_base, next_kernel, replace_parameter  # noqa: F401  (the same there)

NAME = "0.33"
_KIND = "fp8_block"


def probe():
    missing = v0_32.probe()
    if missing:
        return missing
    register = getattr(v0_32._linear(), "register_linear_kernel", None)
    if register is None:
        return "no register_linear_kernel"
    # Both minors have the function; only the newer one's source names the kind.
    if _KIND not in inspect.getsource(register):
        return f"register_linear_kernel does not know {_KIND}"
    return None


def put_first(kernel, platform):
    linear = v0_32._linear()
    kernels = linear._POSSIBLE_FP8_BLOCK_KERNELS.setdefault(platform, [])
    if all(k.__name__ != kernel.__name__ for k in kernels):
        linear.register_linear_kernel(kernel, platform, _KIND)
    v0_32.put_first(kernel, platform)


def attention_impl_extras():
    return {"supports_kv_cache_update_bypass": False, "reserve_workspace": lambda self, *a, **k: None}
