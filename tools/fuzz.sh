#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fuzz.sh FOLDER SECONDS: runs every fuzz target from its kept corpus for SECONDS. New inputs go to a temporary folder:
# a finding is kept by copying it into tests/fuzz/corpus/<target>/ (of the simulator: tools/gfx12sim/tests/fuzz/...) by hand.
set -eu
folder=$1
seconds=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT INT TERM
found=0
for target in "$folder"/fuzz_*; do
    [ -x "$target" ] && [ -f "$target" ] || continue
    name=$(basename "$target")
    found=$((found + 1))
    mkdir -p "$scratch/$name"
    corpus=tests/fuzz/corpus/${name#fuzz_}
    [ -d "$corpus" ] || corpus=tools/gfx12sim/$corpus # the simulator keeps its own
    [ -d "$corpus" ] || corpus=
    if ! "$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -artifact_prefix="$scratch/" \
        "$scratch/$name" $corpus >"$scratch/$name.log" 2>&1; then
        tail -40 "$scratch/$name.log"
        echo "fuzz: $name failed; its input follows (base64)"
        for input in "$scratch"/crash-* "$scratch"/timeout-* "$scratch"/oom-* "$scratch"/leak-*; do
            [ -f "$input" ] && base64 "$input"
        done
        exit 1
    fi
    grep -E '^Done' "$scratch/$name.log" | sed "s/^/fuzz: $name: /"
done
[ "$found" -gt 0 ] || { echo "fuzz: no target was built" >&2; exit 1; }
