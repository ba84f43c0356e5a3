#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""llama.cpp on the demo model through llama-cpp-python's low-level API: prefill and decode tok/s at given depths, the
weights requantised to Q8_0, flash attention off and on. Prints one CSV row a measurement."""
import argparse
import ctypes
import os
import sys
import tempfile
import time

import llama_cpp


def requantise(source, target):
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0
    params.allow_requantize = True
    params.nthread = 2
    if llama_cpp.llama_model_quantize(source.encode(), target.encode(), ctypes.byref(params)):
        sys.exit(f"llama.cpp could not requantise {source}")


def make_context(model, threads, flash):
    params = llama_cpp.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_ubatch = 4096, 512, 512
    params.n_threads = params.n_threads_batch = threads
    if hasattr(params, "flash_attn_type"):
        params.flash_attn_type = 1 if flash else 0
    else:
        params.flash_attn = flash
    context = llama_cpp.llama_init_from_model(model, params)
    if not context:
        sys.exit("llama.cpp made no context")
    return context


def evaluate(context, tokens):
    array = (llama_cpp.llama_token * len(tokens))(*tokens)
    if llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(array, len(tokens))):
        sys.exit("llama_decode failed")
    llama_cpp.llama_synchronize(context)


def clear(context):
    llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)


def tokens_of(count, vocab):
    state, out = 12345, []
    for _ in range(count):  # any tokens do: the work does not depend on them
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        out.append(100 + state % (vocab - 200))
    return out


def best(repeats, run):
    return min(run() for _ in range(repeats))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--depths", default="64,2048")
    parser.add_argument("--prefill", type=int, default=512)
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--csv")
    args = parser.parse_args()
    llama_cpp.llama_backend_init()
    quiet = llama_cpp.llama_log_callback(lambda *_: None)  # kept alive: the library holds the pointer
    llama_cpp.llama_log_set(quiet, None)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "q8_0.gguf")
        requantise(args.model, path)
        model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
        vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
        rows = []
        for threads in map(int, args.threads.split(",")):
            for flash in (False, True):
                context = make_context(model, threads, flash)
                prompt = tokens_of(args.prefill, vocab)

                def prefill():
                    clear(context)
                    start = time.perf_counter()
                    evaluate(context, prompt)
                    return time.perf_counter() - start

                prefill()
                rows.append((threads, flash, "prefill", args.prefill, args.prefill / best(args.repeats, prefill)))
                for depth in map(int, args.depths.split(",")):
                    clear(context)
                    filler = tokens_of(depth + args.steps * args.repeats, vocab)
                    for at in range(0, depth, 512):
                        evaluate(context, filler[at:min(at + 512, depth)])

                    def decode():
                        memory = llama_cpp.llama_get_memory(context)
                        llama_cpp.llama_memory_seq_rm(memory, 0, depth, -1)
                        start = time.perf_counter()
                        for step in range(args.steps):
                            evaluate(context, filler[depth + step:depth + step + 1])
                        return time.perf_counter() - start

                    rows.append((threads, flash, "decode", depth, args.steps / best(args.repeats, decode)))
                llama_cpp.llama_free(context)
    lines = ["rival,version,threads,flash_attention,what,tokens,tok_s"]
    lines += [f"llama.cpp Q8_0,{llama_cpp.__version__},{t},{int(f)},{w},{n},{v:.1f}" for t, f, w, n, v in rows]
    print("\n".join(lines))
    if args.csv:
        with open(args.csv, "w") as out:
            out.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
