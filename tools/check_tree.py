#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks of the tree that a compiler does not make: include floors, vendor headers, getenv, SPDX lines, file and
function sizes, names, absolute paths, environment names in documents. Prints one line a finding; exit 1 on any."""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILE_LIMIT, FUNCTION_LIMIT, HEADER_LIMIT = 500, 80, 600
BYTES_LIMIT = 512 << 10  # of any file: what a test or a build writes is larger, what people write is not

# What each room may include of the others (docs: README, reading order). Own room and base headers are always allowed.
FLOORS = {
    "base": set(),
    "device": {"base"},
    "registry": {"base", "device"},
    "policy": {"base", "device"},
    "kernels": {"base", "registry"},
    "backend": {"base", "device", "registry", "kernels"},
    "ops": {"base", "device", "registry", "policy", "kernels", "backend"},
    "model": {"base", "ops"},
    "engine": {"base", "ops", "model"},
    "cli": set(),
}
VENDOR = re.compile(r"#\s*include\s*<(cuda|hip|hsa|nccl|rccl|cublas|level_zero|CL/)")
findings = []


def tracked():
    names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True,
                           check=True).stdout.split("\n")
    return [ROOT / n for n in names if n and (ROOT / n).is_file()]


def say(path, line, text):
    findings.append(f"{path.relative_to(ROOT)}:{line}: {text}")


def check_includes(path, lines):
    parts = path.relative_to(ROOT).parts
    if parts[0] != "src":
        return
    room = parts[1]
    for number, line in enumerate(lines, 1):
        if VENDOR.search(line) and room != "backend" and path.suffix not in (".cu", ".cl", ".cuh"):
            say(path, number, "vendor header outside src/backend")
        match = re.match(r'#\s*include\s*"([a-z_0-9]+)/([^"]+)"', line)
        if not match:
            continue
        target = match.group(1)
        if target in FLOORS and target != room and target not in FLOORS[room]:
            say(path, number, f"{room} may not include {target}/ (allowed: {' '.join(sorted(FLOORS[room])) or 'public headers'})")
        if room == "kernels" and target == "kernels" and len(parts) > 3:
            family = match.group(2).split("/")[0]
            if family != parts[2] and "/" in match.group(2) and family not in ("gemm_fp8block", "elementwise", "common"):
                say(path, number, f"kernel family {parts[2]} may not include family {family}")


def functions(lines):
    """(first line, length) of each top-level function body, by braces in column 0; the head may take a few lines."""
    start = head = None
    for number, line in enumerate(lines, 1):
        if re.match(r"^[A-Za-z_].*[,(]$", line):
            head = number
        elif not line.startswith(" "):
            head = None
        if start is None and re.match(r"^[A-Za-z_].*\)\s*\{\s*$", line):
            start = number
        elif start is None and head and re.match(r"^\s.*\)\s*\{\s*$", line):
            start = head
        elif start is None and line == "{":
            start = number
        elif start is not None and line.startswith("}"):
            yield start, number - start + 1
            start = None


def check_source(path, lines):
    relative = path.relative_to(ROOT)
    if not any("SPDX-License-Identifier: Apache-2.0" in line for line in lines[:3]):
        say(path, 1, "no SPDX-License-Identifier: Apache-2.0 in the first three lines")
    limit = HEADER_LIMIT if relative.parts[0] == "include" else FILE_LIMIT
    if len(lines) > limit:
        say(path, len(lines), f"{len(lines)} lines, the limit is {limit}")
    if path.suffix in (".c", ".h", ".inc", ".cl", ".cu", ".cuh"):
        for first, length in functions(lines):
            if length > FUNCTION_LIMIT and relative.parts[0] != "tests":
                say(path, first, f"function of {length} lines, the limit is {FUNCTION_LIMIT}")
    for number, line in enumerate(lines, 1):
        if re.search(r"\bgetenv\s*\(", line) and str(relative) != "src/base/env.c" and relative.parts[0] == "src":
            say(path, number, "getenv outside src/base/env.c")
        if re.match(r"\s*#\s*if\s+0\b", line):
            say(path, number, "#if 0")
        if relative.parts[0] == "src" and relative.parts[1] != "cli" and re.search(r"\b(abort|exit|_Exit)\s*\(", line):
            say(path, number, "the library may not exit")


def check_python(path, lines):
    if path.relative_to(ROOT).parts[0] == "plugin":
        return
    for number, line in enumerate(lines, 1):
        if re.match(r"\s*(import|from)\s+(torch|vllm)\b", line) and "rivals" not in str(path):
            say(path, number, "torch or vLLM import outside plugin/")


def check_environment(files):
    table = set()
    for source in ("src/base/env.c", "plugin/vllm_radiance/gates.py"):
        table |= set(re.findall(r'"((?:RADIANCE|XDG|HOME)[A-Z0-9_]*)"', (ROOT / source).read_text()))
    allowed = table | {"RADIANCE_TEST_FULL", "RADIANCE_TEST_SEED", "RADIANCE_TEST_AITER", "RADIANCE_TEST_VENV", "RADIANCE_FAULTS", "RADIANCE_SIM", "RADIANCE_FUZZ",
                       "RADIANCE_WHEEL", "RADIANCE_SANITIZE", "RADIANCE_CLANG", "RADIANCE_NVCC", "RADIANCE_AMD",
                       "RADIANCE_NVIDIA", "RADIANCE_BUILD_ID", "RADIANCE_PRIVATE", "RADIANCE_H", "RADIANCE_RUN_H"}
    for path in files:
        if path.suffix == ".md":
            for number, line in enumerate(path.read_text(errors="replace").split("\n"), 1):
                for name in re.findall(r"\bRADIANCE_[A-Z0-9_]+\b", line):
                    if name not in allowed:
                        say(path, number, f"{name} is not in the environment table")


def check_references():
    """Scripts and files that the front door and the documents name must exist."""
    for name in ("Makefile", "README.md", "CONTRIBUTING.md", "bench/rivals/README.md"):
        path = ROOT / name
        for number, line in enumerate(path.read_text().split("\n"), 1):
            for target in re.findall(r"\b(?:tools|examples|docs|src|include|bench)/[A-Za-z0-9_/.-]+\.(?:sh|py|c|h|md|def|inc)\b", line):
                if not (ROOT / target).exists():
                    say(path, number, f"{target} does not exist")


def check_symbols():
    library = ROOT / "build/libradiance.so"
    if not library.exists():
        return
    listing = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True).stdout
    for line in listing.split("\n"):
        name = line.split()[-1] if line else ""
        if name and not re.match(r"(rd_[a-z0-9_]+@@RADIANCE_\d+|rdi_[a-z0-9_]+@@RADIANCE_PRIVATE|RADIANCE_\w+)$", name):
            say(library, 0, f"exported symbol {name}: only rd_* is public")


def check_results(files):
    """A folder of figures with a README says there what made each file, by its name without day and suffix."""
    for path in files:
        readme = path.parent / "README.md"
        if path.suffix == ".csv" and path.is_relative_to(ROOT / "bench/results") and readme.is_file():
            name = re.sub(r"^\d{4}-\d\d-\d\d-", "", path.stem)
            if f"`{name}`" not in readme.read_text():
                say(path, 0, f"{readme.relative_to(ROOT)} does not say what made `{name}`")


def main():
    files = tracked()
    for path in files:
        if path.stat().st_size > BYTES_LIMIT:
            say(path, 0, f"{path.stat().st_size} bytes, the limit is {BYTES_LIMIT}: is it a test's output?")
        if path.suffix in (".c", ".h", ".inc", ".cl", ".cu", ".cuh", ".py", ".sh"):
            lines = path.read_text(errors="replace").split("\n")
            if lines and not lines[-1]:
                lines.pop()
            check_source(path, lines)
            if path.suffix == ".py":
                check_python(path, lines)
            else:
                check_includes(path, lines)
        if path.suffix in (".c", ".h", ".md", ".py", ".sh", ".txt", ".json", ".cl", ".cu", ".def", ".csv"):
            for number, line in enumerate(path.read_text(errors="replace").split("\n"), 1):
                if re.search(r"(^|[\s\"'(=])/(home|root|work|Users)/", line):
                    say(path, number, "absolute path of a machine")
    check_environment(files)
    check_symbols()
    check_references()
    check_results(files)
    print("\n".join(findings) if findings else f"check_tree: {len(files)} files, nothing found")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
