#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""transformers + torch in f32 on the demo model: tok/s of a prefill of 512 tokens with logits of the last position."""
import argparse
import os
import time

import torch
import transformers


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="a .gguf file or a Hugging Face folder")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--prefill", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    folder, name = os.path.split(args.model)
    extra = {"gguf_file": name} if name.endswith(".gguf") else {}
    model = transformers.AutoModelForCausalLM.from_pretrained(folder if extra else args.model, dtype=torch.float32, **extra)
    model.eval()
    ids = torch.randint(100, model.config.vocab_size - 100, (1, args.prefill), generator=torch.Generator().manual_seed(1))
    print("rival,version,threads,what,tokens,tok_s")
    for threads in map(int, args.threads.split(",")):
        torch.set_num_threads(threads)
        times = []
        with torch.inference_mode():
            for _ in range(args.repeats + 1):
                start = time.perf_counter()
                model(ids, logits_to_keep=1, use_cache=True)
                times.append(time.perf_counter() - start)
        print(f"transformers f32,{transformers.__version__}/torch {torch.__version__},{threads},prefill,{args.prefill},"
              f"{args.prefill / min(times[1:]):.1f}")


if __name__ == "__main__":
    main()
