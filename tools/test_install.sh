#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test_install.sh BUILD SOURCE: installs into a scratch prefix, builds the example against it with pkg-config and with
# CMake, runs both.
set -eu
build=$1
source=$2
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT INT TERM
cmake --install "$build" --prefix "$prefix/usr" >/dev/null
export PKG_CONFIG_PATH="$prefix/usr/lib/pkgconfig:$prefix/usr/lib/x86_64-linux-gnu/pkgconfig"
export LD_LIBRARY_PATH="$prefix/usr/lib:$prefix/usr/lib/x86_64-linux-gnu"
cc -std=c11 -Wall -Werror "$source/examples/gemm.c" $(pkg-config --cflags --libs radiance) -o "$prefix/gemm"
"$prefix/gemm"
mkdir "$prefix/project"
cat >"$prefix/project/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.25)
project(example C)
find_package(radiance REQUIRED)
add_executable(example $source/examples/gemm.c)
target_link_libraries(example PRIVATE radiance::radiance)
CMAKE
cmake -S "$prefix/project" -B "$prefix/project/build" -DCMAKE_PREFIX_PATH="$prefix/usr" >/dev/null
cmake --build "$prefix/project/build" >/dev/null
"$prefix/project/build/example"
size=$(stat -Lc %s "$build/libradiance.so")
stripped=$(mktemp)
strip -o "$stripped" "$build/libradiance.so"
echo "libradiance.so: $size bytes, $(stat -c %s "$stripped") stripped (limit 6291456)"
[ "$(stat -c %s "$stripped")" -lt 6291456 ]
rm -f "$stripped"
