#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bootstrap.sh SET...: installs the Debian packages that the named sets need, but for those whose tool or library is there already.
# Shows the line it runs; without root it prints that one line and stops.
# bootstrap.sh nvcc: NVIDIA's compiler into this checkout when there is none (RADIANCE_NVCC=none: do without). Where it cannot be
# fetched, the sm_90a kernels are left out of the build.
set -eu

if [ "$*" = nvcc ]; then
    [ "${RADIANCE_NVCC:-}" = none ] || [ -n "$(tools/find_nvcc.sh)" ] || tools/get_nvcc.sh ||
        echo "bootstrap.sh: going on without nvcc and the sm_90a kernels (tools/get_nvcc.sh tries again)"
    exit 0
fi

packages_of() {
    case "$1" in
    # g++: nvcc preprocesses with it, the tree itself is C.
    build) echo "cmake ninja-build pkg-config g++ libpcre2-dev libcjson-dev libutf8proc-dev libedit-dev libcmocka-dev" ;;
    demo) echo "python3 python3-pip" ;;
    test) echo "clang lld libclang-rt-14-dev llvm-22-dev clang-22 lld-22 llvm-22" ;;
    wheel) echo "python3 python3-pip python3-venv binutils" ;;
    check) echo "clang-format clang-tidy cppcheck python3" ;;
    *) echo "bootstrap.sh: set=$1, needs one of: build demo test wheel check, or nvcc alone" >&2; exit 1 ;;
    esac
}

wanted=""
for set in "$@"; do wanted="$wanted $(packages_of "$set")"; done

# What counts is that the tool or library is there, from whatever source: another distribution's package, a module, a local build.
present() {
    case "$1" in
    cmake | python3) command -v "$1" ;;
    ninja-build) command -v ninja ;;
    pkg-config) command -v pkg-config ;;
    g++) command -v g++ && command -v cc ;;
    libpcre2-dev) pkg-config --exists libpcre2-8 ;;
    libcmocka-dev) pkg-config --exists cmocka ;;
    libcjson-dev | libutf8proc-dev | libedit-dev) pkg-config --exists "${1%-dev}" ;;
    python3-venv) python3 -c 'import venv, ensurepip' ;;
    python3-pip) python3 -m pip --version ;;
    *) dpkg-query -W -f='${Status}' "$1" | grep 'install ok installed' ;;
    esac >/dev/null 2>&1
}

missing=""
for package in $wanted; do
    present "$package" || missing="$missing $package"
done
[ -z "$missing" ] && exit 0

line="apt-get install -y --no-install-recommends$missing"
if [ "$(id -u)" -ne 0 ]; then
    echo "These packages are missing. Please run this line as root, then try again:"
    echo "  apt-get update && $line"
    exit 1
fi
echo "+ apt-get update && $line"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
if ! { apt-get update && $line; } >"$log" 2>&1; then
    tail -20 "$log" >&2
    echo "bootstrap.sh: the package manager failed; its last lines stand above" >&2
    exit 1
fi
rm -f "$log"
