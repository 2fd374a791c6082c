"""Tokens per second of 1 and of 16 texts written together: `lathe serve` over HTTP, and llama.cpp in a process of its own.

    python bench/serve/beside_llama_cpp.py MODEL.gguf [--lathe target/release/lathe] [--tokens 48] [--rounds 5] [--threads 2]

llama.cpp (package llama-cpp-python, built as bench/peers/README.md says) gets what its server would give it: the sequences as
one batch, a token of each at every step, greedily, without HTTP and without JSON, which only helps it. Both begin with a short
prompt of each text, and its reading counts. Rounds in turn. Prints one JSON document.
"""
import argparse
import asyncio
import ctypes
import json
import statistics
import time

import llama_cpp
import numpy as np

from run import Server, ask


class Llama:
    """Sequences in one context of llama.cpp."""

    def __init__(self, path, most, tokens, threads):
        self.model = llama_cpp.Llama(path, n_ctx=32, n_threads=threads, verbose=False)
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max = most * (tokens + 64), 2048, 512, most
        params.n_threads = params.n_threads_batch = threads
        self.context = llama_cpp.llama_init_from_model(self.model.model, params)
        self.batch = llama_cpp.llama_batch_init(2048, 0, 1)

    def decode(self, rows):
        """Rows of (token, position, sequence, whether logits are wanted); the likeliest token of those that are."""
        batch = self.batch
        batch.n_tokens = len(rows)
        for i, (token, position, sequence, wanted) in enumerate(rows):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0] = token, position, 1, sequence
            batch.logits[i] = wanted
        failed = llama_cpp.llama_decode(self.context, batch)
        assert not failed, f"llama_decode: {failed}"
        vocab = self.model.n_vocab()
        logits = lambda i: llama_cpp.llama_get_logits_ith(self.context, i)
        best = lambda i: int(np.ctypeslib.as_array(ctypes.cast(logits(i), ctypes.POINTER(ctypes.c_float)), (vocab,)).argmax())
        return [best(i) for i, row in enumerate(rows) if row[3]]

    def streams(self, prompts, tokens):
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)
        start = time.perf_counter()
        ids = [self.model.tokenize(prompt.encode(), add_bos=True) for prompt in prompts]
        rows = [(token, at, i, at + 1 == len(one)) for i, one in enumerate(ids) for at, token in enumerate(one)]
        best = self.decode(rows)
        for step in range(tokens - 1):
            best = self.decode([(token, len(one) + step, i, True) for i, (token, one) in enumerate(zip(best, ids))])
        return len(prompts) * tokens / (time.perf_counter() - start)


async def served(server, prompts, tokens):
    body = lambda prompt: {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True}
    start = time.perf_counter()
    answers = await asyncio.gather(*(ask(server, body(prompt)) for prompt in prompts))
    assert all(status == 200 for status, *_ in answers)
    return len(prompts) * tokens / (time.perf_counter() - start)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--lathe", default="target/release/lathe")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--streams", type=int, nargs="*", default=[1, 16])
    args = parser.parse_args()
    llama = Llama(args.model, max(args.streams), args.tokens, args.threads)
    found = {count: {"lathe": [], "llama.cpp": []} for count in args.streams}
    with Server(args.lathe, args.model, "--prefix-mb", "0", "--threads", str(args.threads)) as server:
        for number in range(args.rounds + 1):
            for count in args.streams:
                prompts = [f"Story {i}: once upon a time" for i in range(count)]
                sides = {"lathe": lambda: asyncio.run(served(server, prompts, args.tokens)),
                         "llama.cpp": lambda: llama.streams(prompts, args.tokens)}
                for side in sides if number % 2 else reversed(sides):
                    rate = sides[side]()
                    if number:  # the first warms up
                        found[count][side].append(round(rate, 1))
    result = {"model": args.model, "threads": args.threads, "tokens": args.tokens, "rounds": args.rounds}
    for count, sides in found.items():
        ratios = sorted(a / b for a, b in zip(sides["lathe"], sides["llama.cpp"]))
        medians = {side: statistics.median(rates) for side, rates in sides.items()}
        result[f"{count} streams"] = {"tokens_per_s": medians, "ratio": statistics.median(ratios), "ratios": [ratios[0], ratios[-1]]}
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
