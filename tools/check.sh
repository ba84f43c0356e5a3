#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check.sh BUILD: every habit that a machine can hold us to. Runs all, fails if any failed.
set -u
build=$1
status=0
step() {
    name=$1
    shift
    if "$@" >"$build/check.log" 2>&1; then
        echo "ok    $name"
    else
        status=1
        echo "FAIL  $name"
        cat "$build/check.log"
    fi
}
sources() { git ls-files '*.c' '*.h' '*.inc' | grep -v -e '/fuzz/corpus/' -e '^tests/refs/'; }
translation_units() { git ls-files 'src/*.c'; }

format() { sources | xargs clang-format --dry-run -Werror; }
tidy() { translation_units | xargs -P "$(nproc)" -n 8 clang-tidy -p "$build" --quiet --warnings-as-errors='*'; }
lint() {
    cppcheck --quiet --error-exitcode=1 --inline-suppr --enable=warning,portability --suppress=missingInclude \
        --suppress=missingIncludeSystem --suppress=preprocessorErrorDirective --suppress=internalAstError \
        -j "$(nproc)" -I include -I src src/base src/device src/registry src/policy src/ops src/model src/engine src/cli
}
# cppcheck does not follow the bounds and macros of lanes, nor out parameters: what it calls uninitialised there, clang's
# analyzer (below) and the sanitizers judge. Byte scratch that holds floats is how a kernel's workspace is, and the compilers
# we build with shift signed numbers arithmetically.
lint_kernels() {
    git ls-files 'src/kernels/*.c' 'tools/gfx12sim/src/*.c' 'tools/gfx12sim/hip/*.c' 'bench/*.c' >"$build/lint.txt"
    cppcheck --quiet --error-exitcode=1 --inline-suppr --enable=warning,portability --suppress=missingInclude \
        --suppress=missingIncludeSystem --suppress=internalAstError --suppress=uninitvar --suppress=legacyUninitvar \
        --suppress=invalidPointerCast --suppress=shiftTooManyBitsSigned \
        --suppress=seekOnAppendedFile:tools/gfx12sim/hip/counters.c -j "$(nproc)" -I include -I src -I tools/gfx12sim/src -I tools/gfx12sim/hip \
        --file-list="$build/lint.txt"
}
step "tree: floors, names, sizes, paths" python3 tools/check_tree.py
step "documentation snippets compile" python3 tools/check_snippets.py
step "clang-format" format
step "cppcheck" lint
step "cppcheck: kernels, simulator, drivers" lint_kernels
step "clang-tidy" tidy
exit $status
