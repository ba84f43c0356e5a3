#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# figures_card.sh BIN OUT [PART ...]: every figure of docs/sm90a.md but the whole model's step, as CSV files named by the day. BIN: the folder of
# card_gemm, card_attn and card_small. CUBLASLT names that library where the system does not find it, DEEPGEMM the folder that
# bench/rivals/deepgemm.sh made, FLASHINFER that of flashinfer.sh ("" = without). About two minutes of an H200 in all.
set -euo pipefail
bin=${1:?"usage: figures_card.sh BIN OUT [PART ...]"} out=${2:?"usage: figures_card.sh BIN OUT [PART ...]"}
shift 2
parts=${*:-gemm chain tile64 bf16 w8a16 decode prefill small}
day=$(date -u +%Y-%m-%d)
blaslt=(${CUBLASLT:+--cublaslt "$CUBLASLT"})
deepgemm=(${DEEPGEMM:+--deepgemm "$DEEPGEMM"})
flashinfer=(${FLASHINFER:+--flashinfer "$FLASHINFER"})
export RADIANCE_TRUST=${RADIANCE_TRUST:-1}
mkdir -p "$out"
for part in $parts; do
    case $part in
    gemm)
        "$bin/card_gemm" "${blaslt[@]}" "${deepgemm[@]}" --rows 1,16,32,64,96,128,512,8192 > "$out/$day-card-gemm.csv"
        "$bin/card_gemm" --cublaslt none --rows 1,16 --edges plain > "$out/$day-card-gemm-plain.csv" ;;
    chain) "$bin/card_gemm" --cublaslt none --rows 1,16 --edges both --chain > "$out/$day-card-gemm-chain.csv" ;;
    tile64)
        "$bin/card_gemm" --layout tile64 --cublaslt none --rows 1,16,64,128,512,8192 > "$out/$day-card-gemm-tile64.csv"
        "$bin/card_gemm" --layout tile64 --cublaslt none --rows 1,16 --chain | tail -n +2 >> "$out/$day-card-gemm-tile64.csv" ;;
    bf16) "$bin/card_gemm" --op gemm_bf16 "${blaslt[@]}" --shapes 151936x5120,16384x5120,5120x5120,128x5120 --rows 1,16,64,128 \
        > "$out/$day-card-gemm-bf16.csv" ;;
    w8a16) "$bin/card_gemm" --op gemm_fp8block_w8a16 --cublaslt none --rows 1,16,32 > "$out/$day-card-gemm-w8a16.csv" ;;
    decode)
        "$bin/card_attn" decode --kv e4m3 > "$out/$day-card-attn-decode.csv"
        "$bin/card_attn" decode --kv bf16 --heads 24/4x256 --widths 1 | tail -n +2 >> "$out/$day-card-attn-decode.csv"
        "$bin/card_attn" decode --kv e4m3 --batch 1 --edges plain | tail -n +2 >> "$out/$day-card-attn-decode.csv" ;;
    prefill) "$bin/card_attn" prefill > "$out/$day-card-attn-prefill.csv" ;;
    small) "$bin/card_small" "${flashinfer[@]}" > "$out/$day-card-small.csv" ;;
    *) echo "figures_card.sh: no part $part" >&2; exit 1 ;;
    esac
done
