#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prints the path of an nvcc >= 13, or nothing: RADIANCE_NVCC (and then nothing else; "none" hides all), PATH, CUDA's usual place,
# then the one that tools/get_nvcc.sh brought into this checkout. Nothing too where gcc has no C++: nvcc preprocesses with it.
set -u
[ -x "$(gcc -print-prog-name=cc1plus 2>/dev/null)" ] || exit 0
here=$(cd "$(dirname "$0")/.." && pwd)
places=("$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc "$here/build-tools/nvcc/nvidia/cu13/bin/nvcc")
[ -z "${RADIANCE_NVCC:-}" ] || places=("$RADIANCE_NVCC")
for nvcc in "${places[@]}"; do
    [ -x "$nvcc" ] || continue
    release=$("$nvcc" --version 2>/dev/null | sed -n 's/.*release \([0-9]*\)\..*/\1/p')
    if [ "${release:-0}" -ge 13 ]; then
        echo "$nvcc"
        exit 0
    fi
done
