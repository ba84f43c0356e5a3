#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# deepgemm.sh DEEPGEMM CUTLASS_INCLUDE PYTHON OUT: the kernels that DeepGEMM takes for the shapes and row counts of card_gemm, for
# `card_gemm --deepgemm OUT`. DEEPGEMM: a checkout of github.com/deepseek-ai/DeepGEMM (2.6.1); CUTLASS_INCLUDE: of the wheel nvidia-cutlass
# (cutlass_library/source/include) or a checkout of CUTLASS 4.2; PYTHON: one that has torch with its headers (any build). Needs nvcc 13
# and g++, no card. The choice of kernel and its source are DeepGEMM's own (deepgemm_plan.cpp calls its headers), the flags of nvcc
# those of its compiler.hpp. SHAPES, ROWS and SMS name others, NVCC another compiler.
set -euo pipefail
dg=$1 cutlass=$2 python=$3 out=$4
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
here=$(cd "$(dirname "$0")" && pwd)
sms=${SMS:-132}
shapes=${SHAPES:-14336x5120 5120x6144 34816x5120 5120x17408}
rows=${ROWS:-1 8 16 32 64 96 128 192 256 512 1024 8192}
mkdir -p "$out"
torch=$("$python" -c 'import os, torch; print(os.path.dirname(torch.__file__))')
cuda=$(dirname "$(dirname "$nvcc")")
site=$(dirname "$torch")
# The driver's and cuBLAS's headers come with torch's wheels where the toolkit has none.
extra=()
for folder in "$site"/nvidia/*/include; do extra+=("-I$folder"); done
links=()
for folder in "$site"/nvidia/*/lib; do links+=("-Wl,-rpath-link,$folder" "-Wl,-rpath,$folder"); done
cudart=("$site"/nvidia/*/lib/libcudart.so.* "$site"/nvidia/*/lib/libcublas*.so.* "$site"/nvidia/*/lib/libnvrtc.so.*)
g++ -std=c++20 -O1 -ffunction-sections -w -DTORCH_API_INCLUDE_EXTENSION_H "-I$dg" "-I$dg/deep_gemm/include" "-I$cutlass" "-I$torch/include" \
    "-I$torch/include/torch/csrc/api/include" "-I$cuda/include" "-I$cuda/include/cccl" "${extra[@]}" \
    "-I$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')" \
    "$here/deepgemm_plan.cpp" -o "$out/deepgemm_plan" "-L$torch/lib" "-Wl,-rpath,$torch/lib" "${links[@]}" \
    -Wl,--gc-sections -Wl,--allow-shlib-undefined -ltorch -ltorch_cpu -lc10 -ltorch_cuda -lc10_cuda -ltorch_python "${cudart[@]}"
questions=()
for shape in $shapes; do for m in $rows; do questions+=("$m" "${shape%x*}" "${shape#*x}"); done; done
"$out/deepgemm_plan" "$out" "$sms" "${questions[@]}" > "$out/kernels.txt"
for source in "$out"/*.cu; do
    [ "${source%.cu}.cubin" -nt "$source" ] && continue
    "$nvcc" "$source" -cubin -o "${source%.cu}.cubin" -std=c++20 --diag-suppress=39,161,174,177,186,940 \
        --ptxas-options=--register-usage-level=10 "-I$dg/deep_gemm/include" "-I$cutlass" --gpu-architecture=sm_90a \
        --compiler-options=-fPIC,-O3,-fconcepts,-Wno-deprecated-declarations,-Wno-abi -O3 --expt-relaxed-constexpr \
        --expt-extended-lambda
done
echo "$(wc -l < "$out/kernels.txt") cells, $(find "$out" -name '*.cubin' | wc -l) kernels in $out"
