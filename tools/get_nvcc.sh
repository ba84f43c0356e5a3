#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# get_nvcc.sh: brings NVIDIA's compiler out of its PyPI wheels into build-tools/nvcc of this checkout (git-ignored), where
# tools/find_nvcc.sh looks: 104 MB to fetch, 205 MB kept, no root, no CUDA installation. Pinned to 13.0, whose cubins were
# measured. Built in a folder beside its place and renamed, so that a broken download never looks like a compiler.
set -euo pipefail
tools=$(cd "$(dirname "$0")" && pwd)
target=${1:-$tools/../build-tools/nvcc}
wheels=(nvidia-cuda-nvcc nvidia-nvvm nvidia-cuda-crt nvidia-cuda-runtime nvidia-cuda-cccl)
fail() {
    echo "get_nvcc.sh: $1" >&2
    exit 1
}

[ "$(uname -sm)" = "Linux x86_64" ] || fail "$(uname -sm), these wheels are for Linux on x86-64"
python3 -m pip --version >/dev/null 2>&1 || fail "python3 has no pip, which fetches the wheels"
mkdir -p "$(dirname "$target")"
work=$(mktemp -d "$(dirname "$target")/.get.XXXXXX")
trap 'rm -rf "$work"' EXIT INT TERM
echo "+ python3 -m pip download --no-deps --only-binary=:all: ${wheels[*]/%/==13.0.*}"
timeout 600 python3 -m pip download --quiet --disable-pip-version-check --retries 1 --timeout 20 --no-deps --only-binary=:all: \
    -d "$work/wheels" "${wheels[@]/%/==13.0.*}" 2>"$work/log" || {
    tail -2 "$work/log" >&2
    fail "the wheels could not be fetched (no network?)"
}
for wheel in "$work"/wheels/*.whl; do python3 -m zipfile -e "$wheel" "$work/nvcc"; done
found=$work/nvcc/nvidia/cu13
chmod +x "$found"/bin/* "$found"/nvvm/bin/*
rm -f "$found"/lib/libnvvm.so* "$found"/lib/*.a # for linking programs; cubins need neither
"$found/bin/nvcc" --version >/dev/null || fail "the compiler that was fetched does not start"
rm -rf "$target"
mv "$work/nvcc" "$target"
