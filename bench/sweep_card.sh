#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# sweep_card.sh BIN OUT [PART ...]: what the policy of a card rests on, as raw CSV. Every row of an op that takes the question is timed, so
# that lines of one shape and row count compare kernels. BIN: the folder of card_gemm, card_attn and card_small; parts:
#   fp8     block-FP8 GEMM, class step against chunk, up to 128 rows
#   w8a16   the same with 16-bit activations
#   bf16    GEMM with bf16 weights
#   quant   the quantiser alone: W8A8 of 16-bit activations costs its time besides
#   attn    the decode kernel against the prefill kernel for chunks of 1 to 64 new tokens
# bench/results/h200/2026-11-30-sweep-*.csv are its files.
set -euo pipefail
bin=${1:?"usage: sweep_card.sh BIN OUT [PART ...]"} out=${2:?"usage: sweep_card.sh BIN OUT [PART ...]"}
shift 2
parts=${*:-fp8 w8a16 bf16 quant attn}
shapes=1024x5120,2048x7168,4096x4096,5120x5120,7168x2048,7168x5120,5120x6144,14336x5120,24576x1536,5120x17408,7168x16384,34816x5120
mkdir -p "$out"
for part in $parts; do
    case $part in
    fp8) "$bin/card_gemm" --cublaslt none --shapes $shapes --rows 16,64,96,128 > "$out/sweep-fp8.csv" ;;
    w8a16) "$bin/card_gemm" --op gemm_fp8block_w8a16 --cublaslt none --shapes 2048x7168,7168x2048,5120x6144,14336x5120,24576x1536,34816x5120 \
        --rows 16,64,96,128 > "$out/sweep-w8a16.csv" ;;
    bf16) "$bin/card_gemm" --op gemm_bf16 --cublaslt none --shapes 128x5120,512x2048,5120x5120,16384x5120,49152x2048 \
        --rows 1,16,64,96,128 > "$out/sweep-bf16.csv" ;;
    quant) "$bin/card_small" --ops quant --rows 1,16,64,128 --edges dependent > "$out/sweep-quant.csv" ;;
    attn) for op in decode prefill; do
        "$bin/card_attn" $op --heads 24/4x256,32/8x128 --kv e4m3,bf16 --keys 16384 --batch 1 --widths 1,4,8,16,32,64 \
            > "$out/sweep-attn-$op.csv"
    done ;;
    *) echo "sweep_card.sh: no part $part" >&2; exit 1 ;;
    esac
done
