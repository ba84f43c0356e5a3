#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles every ```c block of the documents against the public headers: a snippet that does not compile rots. A block
with a main() or functions is compiled as it stands; bare statements are wrapped into a function."""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PRELUDE = '#include "radiance.h"\n#include "radiance_run.h"\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n'


def main():
    bad = count = 0
    documents = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    for name in documents:
        text = (ROOT / name).read_text()
        for match in re.finditer(r"^```c\n(.*?)^```", text, re.M | re.S):
            body = match.group(1)
            line = text[: match.start()].count("\n") + 2
            if not re.search(r"^[a-z_].*\)\s*\{\s*$", body, re.M) or re.match(r"\s", body):
                body = "void snippet(void);\nvoid snippet(void) {\n" + body + "}\n"
            count += 1
            result = subprocess.run(["cc", "-std=c11", "-fsyntax-only", "-Wall", "-Werror", "-Wno-unused-variable",
                                     "-I", ROOT / "include", "-x", "c", "-"], input=PRELUDE + f'#line {line} "{name}"\n' + body,
                                    text=True, capture_output=True)
            if result.returncode:
                bad += 1
                print(result.stderr.strip())
    print(f"check_snippets: {count} snippets, {bad} do not compile")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
