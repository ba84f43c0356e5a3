# SPDX-License-Identifier: Apache-2.0
"""vllm-radiance: stock vLLM picks libradiance's kernels, says which and why. Importing this imports neither torch nor vLLM."""

__version__ = "0.1.0"


def install():
    """The entry point of group vllm.general_plugins: called in every process of vLLM. It never raises."""
    try:
        from .installer import install_all

        install_all()
    except Exception as error:  # whatever it is, stock vLLM must go on
        from .log import say

        say(f"plugin not installed: {type(error).__name__}: {error}")
