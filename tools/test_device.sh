#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test_device.sh BUILD [DEVICE]: what only a card can show. Every row against its reference, kernels in every order, rows of a step,
# lengths of a graph, contexts, the engine; then NVIDIA's checkers, where they are. Without a card: says why, and is done.
set -u
build=$1 device=${2:-gpu:0} failed=0
if ! found=$("$build/radiance" devices --device "$device" 2>&1); then
  echo "skipped: $found"
  exit 0
fi
echo "$found"
run() {
  echo "== $*"
  "$@" || { echo "FAILED: $*"; failed=1; }
}
export RADIANCE_TEST_CARD="$device"
run "$build/radiance" check --device "$device"
run "$build/device_bits"
run "$build/device_order"
for program in test_engine_card test_profile; do
  if [ -x "$build/$program" ]; then run "$build/$program"; fi
done
run "$(dirname "$0")/sanitize_device.sh" "$build" "$device"
exit $failed
