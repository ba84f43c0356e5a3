#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test_device.sh BUILD [DEVICE]: what only a card can show. Every row against its reference, kernels in every order, rows of a step,
# lengths of a graph, contexts (torch's too), faults, the engine; then NVIDIA's checkers, where they are. Without a card: says why, and
# is done with exit code 0; a command that is not there, or a card that cannot be used, is a failure. Each part says how long it
# took, has PART_SECONDS at most, and what it skipped is named again at the end.
set -u
build=${1:?"usage: test_device.sh BUILD [DEVICE]"} device=${2:-gpu:0} failed="" skipped="" started=$(date +%s)
found=$("$build/radiance" devices --device "$device" 2>&1)
code=$?
echo "$found"
case $code in
0) ;;
3) # RD_E_NO_DEVICE of include/radiance.h
  [ ! -e /dev/nvidia0 ] || { echo "FAILED: there is a card (/dev/nvidia0) that cannot be used"; exit 1; }
  echo "skipped: no card"
  exit 0
  ;;
*) echo "FAILED: radiance devices, exit code $code"; exit 1 ;;
esac
here=$(dirname "$0")
log=$(mktemp)
trap 'rm -f "$log"' EXIT
run() {
  echo "== $*"
  since=$(date +%s)
  { timeout "${PART_SECONDS:-240}" "$@" 2>&1; echo "$?" > "$log.code"; } | tee "$log"
  code=$(cat "$log.code")
  rm -f "$log.code"
  [ "$code" -eq 0 ] || failed="$failed
  $* (exit code $code)"
  lines=$(grep -iE "^\[ *SKIPPED *\] [a-z]|^skipped" "$log") && skipped="$skipped
  $*: $lines"
  echo "== $(($(date +%s) - since)) s"
}
export RADIANCE_TEST_CARD="$device"
run "$build/radiance" check --device "$device"
for program in device_bits device_order test_card test_first_use test_engine_card test_engine_card_faults test_profile; do
  run "$build/$program"
done
if command -v python3 > /dev/null; then
  run python3 "$here/../plugin/tests/torch_context.py" "$build/libradiance.so"
else
  skipped="$skipped
  torch_context.py: no python3"
fi
run "$here/sanitize_device.sh" "$build" "$device"
echo "$(($(date +%s) - started)) s in all"
[ -z "$skipped" ] || echo "skipped:$skipped"
[ -z "$failed" ] || { echo "FAILED:$failed"; exit 1; }
echo "every part that was not skipped passed"
