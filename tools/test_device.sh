#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test_device.sh BUILD [DEVICE]: what only a card can show. Every row against its reference, kernels in every order, rows of a step,
# lengths of a graph, contexts (torch's too), faults, the engine; then NVIDIA's checkers, where they are. Without a card: says why, and
# is done. Each part says how long it took.
set -u
build=$1 device=${2:-gpu:0} failed="" started=$(date +%s)
if ! found=$("$build/radiance" devices --device "$device" 2>&1); then
  echo "skipped: $found"
  exit 0
fi
echo "$found"
here=$(dirname "$0")
run() {
  echo "== $*"
  since=$(date +%s)
  "$@" || failed="$failed
  $*"
  echo "== $(($(date +%s) - since)) s"
}
export RADIANCE_TEST_CARD="$device"
run "$build/radiance" check --device "$device"
for program in device_bits device_order test_card test_first_use test_engine_card test_engine_card_faults test_profile; do
  run "$build/$program"
done
command -v python3 > /dev/null && run python3 "$here/../plugin/tests/torch_context.py" "$build/libradiance.so"
run "$here/sanitize_device.sh" "$build" "$device"
echo "$(($(date +%s) - started)) s in all"
[ -z "$failed" ] || { echo "FAILED:$failed"; exit 1; }
echo "every part passed"
