#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# make_wheel.sh FOLDER: builds the wheel of vllm-radiance into FOLDER and checks it: its name, its size, no glibc symbol above
# 2.34, no symlink, and that a fresh virtual environment can install and run it.
set -eu
folder=$1
rm -rf "$folder"
mkdir -p "$folder"
# The platform tag is ours to state: the checks below hold us to it.
_PYTHON_HOST_PLATFORM=manylinux_2_34_x86_64 python3 -m pip wheel ./plugin --no-deps -w "$folder" >"$folder/build.log" 2>&1 || {
    tail -40 "$folder/build.log" >&2
    exit 1
}
rm -f "$folder/build.log"
wheel=$(ls "$folder"/vllm_radiance-*-py3-none-manylinux_2_34_x86_64.whl)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT INT TERM
size=$(stat -c %s "$wheel")
[ "$size" -lt 10485760 ] || { echo "make_wheel.sh: $size bytes, needs < 10 MiB" >&2; exit 1; }
python3 -m zipfile -e "$wheel" "$scratch/files"
for file in "$scratch"/files/vllm_radiance/lib/*.so* "$scratch"/files/vllm_radiance/bin/radiance; do
    above=$(objdump -T "$file" | grep -o 'GLIBC_2\.[0-9]*' | sort -Vu | awk -F. '$2 > 34')
    [ -z "$above" ] || { echo "make_wheel.sh: $(basename "$file") needs $above, allowed up to GLIBC_2.34" >&2; exit 1; }
done
python3 -m venv "$scratch/venv"
"$scratch/venv/bin/pip" install --quiet --no-index --no-deps "$wheel"
"$scratch/venv/bin/radiance" version
"$scratch/venv/bin/radiance" explain quant_fp8 m=1 k=576 x_dtype=bf16 fuse=none --device x86-avx2 >/dev/null
"$scratch/venv/bin/radiance" vllm doctor >"$scratch/doctor"
grep -q '^libradiance    [0-9]' "$scratch/doctor" || { echo "make_wheel.sh: the doctor finds no library" >&2; exit 1; }
echo "$wheel: $size bytes"
