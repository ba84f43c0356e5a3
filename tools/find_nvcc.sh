#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prints the path of an nvcc >= 13, or nothing: PATH, CUDA's usual place, then the compiler that tools/get_nvcc.sh unpacked.
set -u
cache="${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/radiance/nvcc"
for nvcc in "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc "$cache"/nvidia/cu13/bin/nvcc; do
    [ -x "$nvcc" ] || continue
    release=$("$nvcc" --version 2>/dev/null | sed -n 's/.*release \([0-9]*\)\..*/\1/p')
    if [ "${release:-0}" -ge 13 ]; then
        echo "$nvcc"
        exit 0
    fi
done
