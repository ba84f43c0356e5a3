# SPDX-License-Identifier: Apache-2.0
"""Runs one vLLM engine and prints one line of JSON: tokens of eight fixed prompts, or logprobs of fixed continuations, or
tokens a second. One engine a process, so that its environment is the test's."""

import argparse
import json
import time


def prompts(count, vocabulary):
    """Token ids from a fixed recurrence: the same in every process."""
    state, made = 12345, []
    for length in range(5, 5 + 3 * count, 3):
        ids = []
        for _ in range(length):
            state = (1103515245 * state + 12345) % 2**31
            ids.append(3 + state // 8 % (vocabulary - 3))
        made.append(ids)
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--vocabulary", type=int, default=512)
    parser.add_argument("--logprobs", help="file of token lists, scored teacher-forced")
    parser.add_argument("--ngram", action="store_true")
    parser.add_argument("--kv-dtype", default="auto")
    parser.add_argument("--speed", metavar="PROMPT,NEW", help="lengths of a timed run")
    parser.add_argument("--cpu-time", action="store_true", help="the process's CPU time in place of wall time, on a busy machine")
    parser.add_argument("--batched", type=int, help="most tokens of a step; fewer make the start of a large model shorter")
    parser.add_argument("--text", action="append", help="a text prompt, answered greedily")
    a = parser.parse_args()

    from vllm import LLM, SamplingParams

    options = dict(model=a.model, enforce_eager=not a.compiled, max_model_len=2048, dtype="bfloat16",
                   skip_tokenizer_init=not a.text, gpu_memory_utilization=0.2, seed=0, max_num_seqs=8,
                   kv_cache_dtype=a.kv_dtype, enable_prefix_caching=False)
    if a.batched:
        options["max_num_batched_tokens"] = a.batched
    if a.ngram:
        options["speculative_config"] = dict(method="ngram", num_speculative_tokens=3, prompt_lookup_max=3,
                                             prompt_lookup_min=1)
    llm = LLM(**options)
    out = {}
    greedy = dict(temperature=0.0, ignore_eos=True, detokenize=False)
    as_input = [dict(prompt_token_ids=ids) for ids in prompts(a.prompts, a.vocabulary)]
    if a.logprobs:
        lists = json.loads(open(a.logprobs).read())
        params = SamplingParams(max_tokens=1, prompt_logprobs=0, **greedy)
        results = llm.generate([dict(prompt_token_ids=ids) for ids in lists], params, use_tqdm=False)
        out["logprobs"] = [[p[t].logprob for p, t in zip(r.prompt_logprobs[1:], ids[1:])]
                           for r, ids in zip(results, lists)]
    elif a.speed:
        prompt, new = map(int, a.speed.split(","))
        clock = time.process_time if a.cpu_time else time.perf_counter
        ids = (prompts(1, a.vocabulary)[0] * prompt)[:prompt]

        def seconds(count):
            start = clock()
            llm.generate([dict(prompt_token_ids=ids)], SamplingParams(max_tokens=count, **greedy), use_tqdm=False)
            return clock() - start

        seconds(2)
        prefill = min(seconds(1) for _ in range(3))
        whole = min(seconds(new + 1) for _ in range(3))
        out = dict(prefill=prompt / prefill, decode=new / (whole - prefill))
    elif a.text:
        params = SamplingParams(max_tokens=a.tokens, temperature=0.0)
        out["text"] = [r.outputs[0].text for r in llm.generate(a.text, params, use_tqdm=False)]
    else:
        results = llm.generate(as_input, SamplingParams(max_tokens=a.tokens, **greedy), use_tqdm=False)
        out["tokens"] = [list(r.outputs[0].token_ids) for r in results]
    print("RESULT " + json.dumps(out), flush=True)


if __name__ == "__main__":
    main()
