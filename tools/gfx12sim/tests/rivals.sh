#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# rivals.sh DRIVER LIBRARY: runs the compiled Triton programs below the folder $GFX12SIM_RIVALS (one folder for each
# version of Triton) and compares them with their formulas. Exit 77: there is nothing to run.
set -u
driver=$1 library=$2
if [ ! -d "${GFX12SIM_RIVALS:-}" ]; then
    echo "skipped: GFX12SIM_RIVALS names no folder of compiled Triton programs (see bench/rivals/triton_gfx1201.py)"
    exit 77
fi
python3 -c 'import numpy' 2>/dev/null || { echo "skipped: python3 has no numpy"; exit 77; }
ran=0
for objects in "$GFX12SIM_RIVALS"/*/; do
    python3 "$driver" run --library "$library" --objects "$objects"
    status=$?
    [ $status -eq 0 ] && ran=1
    [ $status -eq 0 ] || [ $status -eq 77 ] || exit 1
done
[ $ran -eq 1 ] || exit 77
