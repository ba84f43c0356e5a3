#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Unpacks NVIDIA's compiler wheels (nvidia-cuda-nvcc and what it needs to make cubins) into the cache folder where
# tools/find_nvcc.sh looks: about 300 MB, no root, no CUDA installation.
set -euo pipefail
cache="${XDG_CACHE_HOME:-$HOME/.cache}/radiance/nvcc"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m pip download --quiet --no-deps --only-binary :all: --dest "$work" \
    'nvidia-cuda-nvcc>=13,<14' 'nvidia-nvvm>=13,<14' 'nvidia-cuda-crt>=13,<14' 'nvidia-cuda-runtime>=13,<14' 'nvidia-cuda-cccl>=13,<14'
mkdir -p "$cache"
for wheel in "$work"/*.whl; do python3 -m zipfile -e "$wheel" "$cache"; done
chmod +x "$cache"/nvidia/cu13/bin/* "$cache"/nvidia/cu13/nvvm/bin/* 2>/dev/null || true
"$(dirname "$0")"/find_nvcc.sh
