#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# sanitize_device.sh BUILD [DEVICE]: compute-sanitizer's four tools over every op's rows on small cases (`radiance check`), each op in a
# process of its own. Skips by name where the tool is not installed or the card is not NVIDIA's.
set -u
build=$1 device=${2:-gpu:0} failed=0
tool=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null) || {
  echo "skipped: compute-sanitizer is not installed"
  exit 0
}
case $("$build/radiance" devices --device "$device" 2>&1) in
*sm_90a*) ;;
*) echo "skipped: $device is no card of sm_90a"; exit 0 ;;
esac
for op in ${SANITIZE_OPS:-$("$build/radiance" kernels --device "$device" --json | python3 -c 'import json, sys
rows = json.load(sys.stdin)
print(*sorted({row["op"] for row in rows if row["backend"] == "nvidia"}))')}; do
  for check in ${SANITIZE_TOOLS:-memcheck racecheck synccheck initcheck}; do
    log=$(mktemp)
    # The first-use check would run every row under the tool too.
    if RADIANCE_TRUST=1 timeout "${SANITIZE_SECONDS:-600}" "$tool" --tool "$check" --error-exitcode 9 --print-limit 5 \
        "$build/radiance" check --device "$device" --op "$op" --small > "$log" 2>&1; then
      echo "$check $op: clean"
    else
      echo "$check $op: FAILED"
      grep -E "=========|failed|FAILED" "$log" | head -12
      failed=1
    fi
    rm -f "$log"
  done
done
exit $failed
