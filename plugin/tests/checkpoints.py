# SPDX-License-Identifier: Apache-2.0
"""Writes random Qwen3 checkpoints: one in block-FP8, and its twin in bf16 with the same values. Scales are powers of two, so
that code * scale is exact in bf16 and the two differ in nothing but their encoding. Needs torch and safetensors."""

import argparse
import json
import pathlib
import shutil

import torch
from safetensors.torch import load_file, save_file

SHAPES = {
    # hidden, layers, heads, kv heads, head dim, intermediate, vocabulary
    "tiny": (256, 2, 4, 2, 64, 512, 512),
    # A 1B shape with a small head: 16 layers of 2048, of the size of published 1B models.
    "1b": (2048, 16, 16, 8, 128, 6144, 4096),
}


def config(shape):
    hidden, layers, heads, kv_heads, head_dim, intermediate, vocabulary = shape
    return {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": hidden,
        "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads,
        "head_dim": head_dim, "intermediate_size": intermediate, "vocab_size": vocabulary,
        "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 1e6, "hidden_act": "silu",
        "tie_word_embeddings": False, "attention_bias": False, "torch_dtype": "bfloat16",
        "bos_token_id": 1, "eos_token_id": 2,
    }


def linear(rows, columns, generator):
    """codes, scales and the bf16 matrix that they stand for."""
    codes = (torch.randn(rows, columns, generator=generator) * 64).clamp(-448, 448).to(torch.float8_e4m3fn)
    blocks = (-(-rows // 128), -(-columns // 128))
    exponent = torch.randint(-1, 2, blocks, generator=generator)
    scale = torch.exp2(exponent.float()) * 2.0 ** -round(6 + 0.5 * torch.log2(torch.tensor(float(columns))).item())
    grid = scale.repeat_interleave(128, 0)[:rows].repeat_interleave(128, 1)[:, :columns]
    return codes, scale, (codes.float() * grid).to(torch.bfloat16)


def write(folder, shape, seed=1):
    hidden, layers, heads, kv_heads, head_dim, intermediate, vocabulary = shape
    generator = torch.Generator().manual_seed(seed)
    plain = lambda *size: torch.randn(*size, generator=generator).to(torch.bfloat16)
    table = plain(vocabulary, hidden)
    # A random head alone makes near-ties, which any rounding decides; some of the embedding in it makes most tokens clear.
    head = (plain(vocabulary, hidden) * 0.2 + table.roll(7, 0) * 0.2).to(torch.bfloat16)
    fp8 = {"model.embed_tokens.weight": table, "model.norm.weight": torch.ones(hidden).bfloat16(), "lm_head.weight": head}
    twin = dict(fp8)
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        for name, size in (("input_layernorm", hidden), ("post_attention_layernorm", hidden),
                           ("self_attn.q_norm", head_dim), ("self_attn.k_norm", head_dim)):
            fp8[f"{prefix}{name}.weight"] = twin[f"{prefix}{name}.weight"] = torch.ones(size).bfloat16()
        for name, rows, columns in (
            ("self_attn.q_proj", heads * head_dim, hidden), ("self_attn.k_proj", kv_heads * head_dim, hidden),
            ("self_attn.v_proj", kv_heads * head_dim, hidden), ("self_attn.o_proj", hidden, heads * head_dim),
            ("mlp.gate_proj", intermediate, hidden), ("mlp.up_proj", intermediate, hidden),
            ("mlp.down_proj", hidden, intermediate)):
            codes, scale, matrix = linear(rows, columns, generator)
            fp8[f"{prefix}{name}.weight"], fp8[f"{prefix}{name}.weight_scale_inv"] = codes, scale
            twin[f"{prefix}{name}.weight"] = matrix
    for name, tensors in (("fp8", fp8), ("bf16", twin)):
        target = pathlib.Path(folder) / name
        target.mkdir(parents=True, exist_ok=True)
        save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
        settings = config(shape)
        if name == "fp8":
            settings["quantization_config"] = {
                "quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128],
                "modules_to_not_convert": ["lm_head"]}
        (target / "config.json").write_text(json.dumps(settings, indent=1))


def twin_of(source, target):
    """The bf16 twin of a block-FP8 folder of safetensors: codes times scales, everything else as it is."""
    source, target = pathlib.Path(source), pathlib.Path(target)
    target.mkdir(parents=True, exist_ok=True)
    tensors = load_file(source / "model.safetensors")
    twin = {}
    for name, tensor in tensors.items():
        scale = tensors.get(f"{name}_scale_inv")
        if scale is not None:
            grid = scale.repeat_interleave(128, 0)[: tensor.shape[0]].repeat_interleave(128, 1)[:, : tensor.shape[1]]
            tensor = (tensor.float() * grid).to(torch.bfloat16)
        if not name.endswith("_scale_inv"):
            twin[name] = tensor.contiguous()
    save_file(twin, target / "model.safetensors", metadata={"format": "pt"})
    settings = json.loads((source / "config.json").read_text())
    settings.pop("quantization_config")
    (target / "config.json").write_text(json.dumps(settings, indent=1))
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        if (source / name).exists():
            shutil.copy(source / name, target / name)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--shape", choices=SHAPES, default="tiny")
    parser.add_argument("--twin-of", metavar="SOURCE", help="write the bf16 twin of a block-FP8 folder instead")
    arguments = parser.parse_args()
    if arguments.twin_of:
        twin_of(arguments.twin_of, arguments.folder)
    else:
        write(arguments.folder, SHAPES[arguments.shape])
