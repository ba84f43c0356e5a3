# SPDX-License-Identifier: Apache-2.0
"""Every word of the plugin goes to stderr with one prefix."""

import sys


def say(text):
    for line in str(text).rstrip("\n").split("\n"):
        print(f"[radiance] {line}", file=sys.stderr, flush=True)


_said = set()


def say_once(key, text):
    if key not in _said:
        _said.add(key)
        say(text)
