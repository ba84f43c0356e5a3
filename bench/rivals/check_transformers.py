#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `radiance convert` writes, loaded by transformers: configuration, tokenizer, tensor names, shapes and types, and (where
every dimension is a multiple of 128, as its CPU path needs) the dequantised model and its next-token logits.

    check_transformers.py RADIANCE [MODEL.gguf]

Exit code 77 when transformers or torch is missing: a skipped test."""
import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import torch
    from safetensors import safe_open
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, LlamaConfig, Qwen3Config
    from transformers.integrations.finegrained_fp8 import replace_with_fp8_linear
    from transformers.utils.quantization_config import FineGrainedFP8Config
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

ROWS = pathlib.Path(__file__).resolve().parents[2] / "tests/refs/tok_smollm2.jsonl"
BLOCK = 128


def need(truth, text):
    if not truth:
        sys.exit(f"FAILED: {text}")


def convert(radiance, source, out, *options):
    done = subprocess.run([radiance, "convert", str(source), str(out), *options], capture_output=True, text=True)
    need(done.returncode == 0, done.stderr)


def tensors_of(folder):
    with safe_open(folder / "model.safetensors", "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}


def dequantise(codes, scale):
    rows, cols = codes.shape
    wide = scale.repeat_interleave(BLOCK, 0)[:rows].repeat_interleave(BLOCK, 1)[:, :cols]
    return codes.float() * wide


def check_layout(folder):
    """The file against the modules that transformers makes for this configuration, FP8Linear included."""
    config = AutoConfig.from_pretrained(folder)
    settings = FineGrainedFP8Config(**{k: v for k, v in config.quantization_config.items() if k != "quant_method"})
    need(tuple(settings.weight_block_size) == (BLOCK, BLOCK), f"weight_block_size={settings.weight_block_size}")
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        model = replace_with_fp8_linear(model, settings.modules_to_not_convert, settings, pre_quantized=True)
    wanted = {name: (tuple(t.shape), t.dtype) for name, t in model.state_dict().items()}
    if config.tie_word_embeddings:
        wanted.pop("lm_head.weight", None)
    seen = {name: (tuple(t.shape), t.dtype) for name, t in tensors_of(folder).items()}
    need(seen == wanted, f"{folder}: tensors differ: {sorted(set(seen.items()) ^ set(wanted.items()))[:6]}")
    print(f"{folder.name}: {len(seen)} tensors as transformers' FP8 modules expect them")
    return config


def check_tokenizer(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    rows = [json.loads(line) for line in ROWS.read_text().splitlines()]
    for row in rows:
        ids = tokenizer(row["text"], add_special_tokens=False)["input_ids"]
        need(ids == row["ids_special"], f"tokenizer row {row['i']}: {ids}, needs {row['ids_special']}")
    messages = [{"role": "user", "content": "hi"}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    need(text.endswith("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"), f"chat template gives {text!r}")
    print(f"{folder.name}: AutoTokenizer gives the ids of {len(rows)} rows, and the chat template renders")


def check_model(radiance, scratch, config, demo):
    """A random model whose sizes are multiples of 128, with the demo model's tokenizer where there is one."""
    torch.manual_seed(7)
    name = type(config).__name__
    source, out = scratch / f"{name}-source", scratch / f"{name}-fp8"
    original = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    original.save_pretrained(source)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (source / file).write_text((demo / file).read_text())
    convert(radiance, source, out)
    check_layout(out)
    loaded = AutoModelForCausalLM.from_pretrained(out).eval()  # without a GPU: dequantised to bf16
    state, stored, plain = loaded.state_dict(), tensors_of(out), original.state_dict()
    worst = 0
    for tensor, codes in stored.items():
        if tensor.endswith("_scale_inv"):
            continue
        exact = dequantise(codes, stored[tensor + "_scale_inv"]) if codes.dtype == torch.float8_e4m3fn else codes
        need(torch.equal(state[tensor], exact.to(torch.bfloat16)), f"{tensor}: transformers dequantises otherwise")
        worst = max(worst, ((exact.float() - plain[tensor].float()).abs().sum() / plain[tensor].float().abs().sum()).item())
    need(worst < 0.035, f"quantisation error {worst}")  # e4m3: 2.6 % on average, see tests/test_model_convert.c
    text = "The rabbit-hole went straight on like a tunnel for some way, and then dipped suddenly down."
    prompt = AutoTokenizer.from_pretrained(out)(text, add_special_tokens=False)["input_ids"]
    logits = loaded(torch.tensor([prompt])).logits[0, -1].float()
    ours = json.loads(subprocess.run([radiance, "generate", str(out), "--raw", "--prompt", text, "--max-tokens", "1", "--json",
                                      "--top-logits", "50"], capture_output=True, text=True, check=True).stdout)
    need(ours["prompt_ids"] == prompt, f"prompt ids {ours['prompt_ids']}, needs {prompt}")
    off = max(abs(value - logits[i].item()) for i, value in ours["top_logits"])
    need(off < 0.03 * logits.abs().max().item(), f"logits differ by {off}, the largest is {logits.abs().max().item()}")
    print(f"{out.name}: dequantised weights equal, logits within {off:.2g} of transformers' bf16 run")


def main():
    radiance, gguf = sys.argv[1], pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None
    if not gguf or not gguf.exists():
        print(f"skipped: the demo model is absent ({gguf}); `make demo` gets it")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        demo = scratch / "demo"
        convert(radiance, gguf, demo)
        check_layout(demo)
        check_tokenizer(demo)
        sizes = dict(vocab_size=49152, hidden_size=256, intermediate_size=384, num_hidden_layers=2, num_attention_heads=4,
                     num_key_value_heads=2, head_dim=64, max_position_embeddings=512)
        check_model(radiance, scratch, LlamaConfig(tie_word_embeddings=True, **sizes), demo)
        check_model(radiance, scratch, Qwen3Config(tie_word_embeddings=False, **sizes), demo)


if __name__ == "__main__":
    main()
