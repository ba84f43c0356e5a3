#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# sanitize_device.sh BUILD [DEVICE]: compute-sanitizer's four tools over every op's rows on small cases (`radiance check`), each tool and
# op in a process of its own, as many side by side as SANITIZE_JOBS says (default: the cores). Skips by name where the tool is
# not installed or the card is not NVIDIA's.
set -u
build=${1:?"usage: sanitize_device.sh BUILD [DEVICE]"} device=${2:-gpu:0} check=${3:-} op=${4:-}
tool=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null) || {
  echo "skipped: compute-sanitizer is not installed"
  exit 0
}

if [ -n "$op" ]; then # one of them, called below
  log=$(mktemp)
  # The first-use check would run every row under the tool too. A thread of the host: the cores belong to the tools.
  if RADIANCE_TRUST=1 RADIANCE_THREADS=1 timeout "${SANITIZE_SECONDS:-170}" "$tool" --tool "$check" --error-exitcode 9 --print-limit 5 \
      "$build/radiance" check --device "$device" --op "$op" --small > "$log" 2>&1; then
    echo "$check $op: clean"
    failed=0
  else
    failed=$?
    echo "$check $op: FAILED (exit code $failed)"
    grep -E "=========|failed|FAILED" "$log" | head -12
  fi
  rm -f "$log"
  exit "$failed"
fi

case $("$build/radiance" devices --device "$device" 2>&1) in
*sm_90a*) ;;
*) echo "skipped: $device is no card of sm_90a"; exit 0 ;;
esac
ops=${SANITIZE_OPS:-$("$build/radiance" kernels --device "$device" | awk '$3 == "nvidia" { print $2 }' | sort -u)}
[ -n "$ops" ] || { echo "sanitize_device.sh: the build has no row for $device"; exit 1; }
# The longest first: racecheck of the ops with most code.
for check in ${SANITIZE_TOOLS:-racecheck initcheck memcheck synccheck}; do
  for op in $ops; do echo "$check $op"; done
done | xargs -P "${SANITIZE_JOBS:-$(nproc)}" -L 1 "$0" "$build" "$device"
