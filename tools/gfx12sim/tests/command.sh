#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# command.sh GFX12SIM HIP_KERNELS GEMM: every subcommand on real objects: exit codes, outputs, faults, JSON that parses.
set -eu
sim=$1
kernels=$2
gemm=$3
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT INT TERM
fail() { echo "command.sh: $1" >&2; exit 1; }
has() { grep -q -- "$2" "$1" || { cat "$1" >&2; fail "no '$2' in the output of $3"; }; }
json() { # file, python expression that must hold for the parsed document d
    command -v python3 >/dev/null || return 0
    python3 -c 'import json, sys
d = json.load(open(sys.argv[1]))
assert eval(sys.argv[2]), sys.argv[2]' "$1" "$2" || { cat "$1" >&2; fail "JSON: $2"; }
}
status() { # expected code, output file, command...
    want=$1; out=$2; shift 2
    code=0; "$@" >"$out" 2>"$out.err" || code=$?
    [ "$code" = "$want" ] || { cat "$out" "$out.err" >&2; fail "status $code, expected $want: $*"; }
}
# Four ints 1 2 3 4, little-endian.
printf '\001\000\000\000\002\000\000\000\003\000\000\000\004\000\000\000' >"$dir/a"
add="--kernel vector_add --grid 1 --block 64 --arg in:i32:@$dir/a --arg in:i32:@$dir/a"
status 0 "$dir/o" "$sim" run "$kernels" $add --arg "out:i32:4" --arg i32:4
has "$dir/o" "buffer 2 (i32, 16 bytes): 2 4 6 8" run
status 0 "$dir/o" "$sim" run "$kernels" $add --arg "out:i32:4:@$dir/c" --arg i32:4 --schedule-seed 5 --threads 2 --checks race_lds,wait
[ "$(od -An -tu4 "$dir/c" | tr -d ' \n')" = 2468 ] || fail "file output"
status 0 "$dir/o" "$sim" run "$kernels" $add --arg "out:i32:4" --arg i32:4 --json
json "$dir/o" 'd["status"] == "ok" and d["buffers"] == [{"buffer": 2, "type": "i32", "bytes": 16, "first": [2, 4, 6, 8]}]'
status 1 "$dir/o" "$sim" run "$kernels" --kernel overrun --grid 1 --block 64 --arg out:i32:4 --arg i32:4
has "$dir/o.err" "out_of_bounds: access of 4 bytes" run
has "$dir/o.err" "kernel overrun, group (0,0,0), wave 0, lane 0, address 0x" run
has "$dir/o.err" "global_store_b32" run
status 1 "$dir/o" "$sim" run "$kernels" --kernel overrun --grid 1 --block 64 --arg out:i32:4 --arg i32:4 --json
json "$dir/o" 'd["check"] == "out_of_bounds" and d["lane"] == 0 and d["group"] == [0, 0, 0] and "global_store" in d["line"]'
status 1 "$dir/o" "$sim" run "$kernels" --kernel never_ends --grid 1 --block 64 --arg in:i32:1 --max-steps 1000
has "$dir/o.err" "^hang" run
gemm_args="--kernel gemm_fp8 --grid 1 --block 128 --arg in:fp8:8192 --arg in:fp8:8192 --arg out:f32:4096 --arg i32:64 --arg i32:128"
status 0 "$dir/o" "$sim" stats "$gemm" $gemm_args --lines
has "$dir/o" "^wmma_macs  *524288$" stats # 64 x 64 x 128
has "$dir/o" "^stalls_on_vmem_load  *[1-9]" stats
has "$dir/o" "^stalls_on_lds  *[1-9]" stats
has "$dir/o" "v_wmma_f32_16x16x16_fp8_fp8" stats
status 0 "$dir/o" "$sim" stats "$gemm" $gemm_args --json
json "$dir/o" 'd["groups"] == 1 and d["waves"] == 4 and d["class_wmma"] == 128 and d["load_bytes"] == 16384 and d["stalls_on_lds"] > 0'
status 0 "$dir/o" "$sim" stats "$gemm" $gemm_args --json --lines
json "$dir/o" 'sum(l["hits"] for l in d["lines"]) == d["instructions"]'
status 0 "$dir/o" "$sim" trace "$gemm" $gemm_args --group 0 --wave 3
has "$dir/o" "s_endpgm" trace
status 0 "$dir/o" "$sim" disasm "$gemm"
has "$dir/o" "kernel gemm_fp8: .* spills 0 VGPRs 0 SGPRs" disasm
status 0 "$dir/o" "$sim" disasm "$gemm" --json
json "$dir/o" 'd["kernels"][0]["name"] == "gemm_fp8" and all(l["simulated"] or "(" in l["text"] for l in d["lines"])'
status 0 "$dir/o" "$sim" coverage
has "$dir/o" " 0 untested$" coverage
for bad in "run /nonexistent" "run $kernels --kernel nothing" "run $kernels $add" "run $kernels --kernel never_ends --grid x --arg in:i32:1" \
    "run $kernels --kernel never_ends --threads many --arg in:i32:1" "run $kernels $add --arg out:i32:4 --arg i32:four" \
    "run $kernels $add --arg out:i32:4 --arg i64:4" "stats $kernels" "disasm" "nothing"; do
    status 2 "$dir/o" "$sim" $bad
    [ -s "$dir/o.err" ] || fail "no message: $bad"
done
echo "command: all subcommands behave"
