#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run_bench.sh BUILD: every bench of this machine, one thread and all cores, CSV under bench/results/<processor>/. Nothing
# else should be running: figures are ratios to ceilings of the same run, but a neighbour disturbs both.
set -eu
build=$1
name=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1 | tr 'A-Z' 'a-z' | tr -cs 'a-z0-9' '-' | sed 's/^-//; s/-$//')
folder=bench/results/${name:-unknown}-$(nproc)c
stamp=$(date +%Y-%m-%d)
mkdir -p "$folder"
"$build/radiance" bench ceilings
for op in gemm_fp8block gemm_fp8block_w8a16 gemm_bf16 attn_decode attn_prefill; do
    "$build/radiance" bench $op --csv "$folder/$stamp-$op.csv"
done
for op in quant_fp8 rmsnorm act_mul embed rope kv_write rope_kv_write sample; do
    "$build/radiance" bench $op --csv "$folder/$stamp-small-ops.csv"
done
if [ -d models/SmolLM2-135M-Instruct-FP8 ]; then
    python3 bench/bench_generate.py models/SmolLM2-135M-Instruct-FP8 --csv "$folder/$stamp-generate.csv"
else
    echo "generate: left out, models/SmolLM2-135M-Instruct-FP8 is made by make demo"
fi
echo "figures: $folder/"
