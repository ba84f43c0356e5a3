#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run_tests.sh JOBS [release|asan|tsan|fuzz ...]: builds and runs the named suites (all when none is named). The release
# suite runs last, so that its ctest summary ends the output.
set -eu
jobs=$1
shift
suites=${*:-"asan tsan fuzz release"}
export ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1
export UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS="suppressions=$PWD/tests/tsan.supp"

build() { # preset
    cmake --preset "$1" >"build-$1.log" 2>&1 || { cat "build-$1.log"; exit 1; }
    folder=build-$1
    [ "$1" = release ] && folder=build
    ninja -C "$folder" -j"$jobs" --quiet
}

# Parts of whole grids skip themselves without RADIANCE_TEST_FULL: they are not even started then.
skip=
[ -n "${RADIANCE_TEST_FULL:-}" ] || skip="-LE full"

for suite in $suites; do
    echo "== $suite"
    case $suite in
    release) build release && ctest --test-dir build --output-on-failure -j"$jobs" $skip ;;
    asan) build asan && ctest --test-dir build-asan --output-on-failure -j"$jobs" -LE slow ;;
    # Only what runs threads: the rest would repeat the release suite ten times slower.
    tsan) build tsan && ctest --test-dir build-tsan --output-on-failure -j"$jobs" -L threads ;;
    fuzz) build fuzz && tools/fuzz.sh build-fuzz "${FUZZ_SECONDS:-10}" ;;
    *) echo "run_tests.sh: suite=$suite, needs one of: release asan tsan fuzz" >&2; exit 1 ;;
    esac
done
