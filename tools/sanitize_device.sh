#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# sanitize_device.sh BUILD [DEVICE]: compute-sanitizer's four tools over every op's rows on small cases (`radiance check --small`, which
# launches every kernel: tests/test_check_kernels.c) and over the kernel that measures reading ("read": `radiance devices`). Each
# tool and op is a process of its own, as many side by side as SANITIZE_JOBS says (default: the cores), the longest first. A run is
# clean when the command exits with 0 and the tool's summary counts nothing: a tool that did not attach prints none, and
# warnings do not change the exit code. Skips by name where the tool is not installed, no card is there or it is not NVIDIA's; a
# command that is not there, or a card that cannot be used, is a failure.
# SANITIZE_OPS, SANITIZE_TOOLS: only these. SANITIZE_SECONDS: the most that one run may take.
set -u
build=${1:?"usage: sanitize_device.sh BUILD [DEVICE]"} device=${2:-gpu:0} check=${3:-} op=${4:-}
tool=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null) || {
  echo "skipped: compute-sanitizer is not installed"
  exit 0
}

if [ -n "$op" ]; then # one of them, called below
  log=$(mktemp) since=$(date +%s)
  if [ "$op" = read ]; then
    set -- devices --device "$device"
  else
    set -- check --device "$device" --op "$op" --small
  fi
  # The first-use check would run every row under the tool too. A thread of the host: the cores belong to the tools.
  RADIANCE_TRUST=1 RADIANCE_THREADS=1 timeout "${SANITIZE_SECONDS:-170}" "$tool" --tool "$check" --error-exitcode 9 --print-limit 5 \
      "$build/radiance" "$@" > "$log" 2>&1
  code=$?
  if [ "$code" -eq 0 ] && grep -qE "ERROR SUMMARY: 0 errors|RACECHECK SUMMARY: 0 hazards" "$log"; then
    echo "$check $op: clean, $(($(date +%s) - since)) s"
    failed=0
  else
    echo "$check $op: FAILED (exit code $code) after $(($(date +%s) - since)) s"
    grep -E "=========|failed|FAILED" "$log" | head -12
    failed=1
  fi
  rm -f "$log"
  exit "$failed"
fi

found=$("$build/radiance" devices --device "$device" --json 2>&1)
code=$?
if [ "$code" -eq 3 ] && [ ! -e /dev/nvidia0 ]; then # RD_E_NO_DEVICE of include/radiance.h
  echo "skipped: no card"
  exit 0
elif [ "$code" -ne 0 ]; then
  echo "$found"
  echo "FAILED: radiance devices, exit code $code"
  exit 1
fi
echo "$found" | grep -q '"isa":.*"sm_90a"' || {
  echo "skipped: $device is no card of sm_90a"
  exit 0
}
rows=$("$build/radiance" kernels --device "$device" | awk '$3 == "nvidia" { print $2 }' | sort -u)
[ -n "$rows" ] || { echo "sanitize_device.sh: the build has no row for $device"; exit 1; }
# What takes longest stands first; ops that are not named here come after.
ops=""
for op in sample attn_decode attn_prefill gemm_fp8block gemm_bf16 gemm_fp8block_w8a16 $rows read; do
  case " $ops " in
  *" $op "*) ;;
  *) ops="$ops $op" ;;
  esac
done
for check in ${SANITIZE_TOOLS:-racecheck initcheck memcheck synccheck}; do
  for op in ${SANITIZE_OPS:-$ops}; do echo "$check $op"; done
done | xargs -P "${SANITIZE_JOBS:-$(nproc)}" -L 1 "$0" "$build" "$device"
