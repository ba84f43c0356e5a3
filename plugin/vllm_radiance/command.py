# SPDX-License-Identifier: Apache-2.0
"""The `radiance` command of the wheel: `radiance vllm ...` is ours, every other command is the C program's."""

import os
import pathlib
import sys


def main():
    arguments = sys.argv[1:]
    if arguments[:1] == ["vllm"]:
        from .doctor import main as vllm

        sys.exit(vllm(arguments[1:]))
    program = pathlib.Path(__file__).parent / "bin" / "radiance"
    try:
        os.execv(program, [str(program), *arguments])
    except OSError as error:
        sys.exit(f"radiance: {program} cannot be run: {error.strerror}")
