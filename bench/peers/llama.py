"""llama.cpp's side of run.py, one JSON document on stdout for each command:

    cut MODEL TEXT N                    a part of a text that is N tokens
    speed MODEL PROMPT N THREADS        reads a prompt, writes N tokens, one by one, the likeliest
    perplexity MODEL TEXT WINDOW THREADS    mean of -log p over windows, each by itself
    quantize MODEL TYPE OUT             the same model in another type
"""

import ctypes
import json
import pathlib
import sys
import time

import llama_cpp
import numpy as np


def load(path, context, threads, vocab_only=False):
    return llama_cpp.Llama(
        path, n_ctx=context, n_batch=max(context, 32), n_ubatch=512, n_threads=threads, n_threads_batch=threads,
        vocab_only=vocab_only, verbose=False,
    )  # fmt: skip


def tokens_of(model, text):
    return model.tokenize(text, add_bos=True, special=True)  # BOS where the model's file wants it


def decode(model, tokens, first, every):
    """Puts tokens behind `first` others; logits of the last, or of every one."""
    batch = llama_cpp.llama_batch_init(len(tokens), 0, 1)
    batch.n_tokens = len(tokens)
    for i, token in enumerate(tokens):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0] = token, first + i, 1, 0
        batch.logits[i] = every or i + 1 == len(tokens)
    found = llama_cpp.llama_decode(model.ctx, batch)
    assert found == 0, found
    rows = len(tokens) if every else 1
    pointer = llama_cpp.llama_get_logits(model.ctx) if every else llama_cpp.llama_get_logits_ith(model.ctx, -1)
    logits = np.ctypeslib.as_array(ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float)), (rows, model.n_vocab()))
    llama_cpp.llama_batch_free(batch)
    return logits


def clear(model):
    llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(model.ctx), True)


def cut(path, text, count):
    model = load(path, 512, 1, vocab_only=True)
    ids = model.tokenize(pathlib.Path(text).read_bytes()[: 64 * int(count)], add_bos=False)
    for start in range(len(ids) - int(count)):
        part = model.detokenize(ids[start : start + int(count)]).strip()
        if len(tokens_of(model, part)) == int(count):
            return {"text": part.decode()}
    raise SystemExit(f"no part of the text is {count} tokens")


def speed(path, prompt, count, threads):
    model = load(path, 2048, int(threads))
    tokens = tokens_of(model, prompt.encode())
    decode(model, tokens[:1], 0, False)  # the first pass makes what all others use
    clear(model)
    start = time.perf_counter()
    next_token = int(decode(model, tokens, 0, False)[0].argmax())
    first = time.perf_counter() - start
    start = time.perf_counter()
    for i in range(int(count) - 1):
        next_token = int(decode(model, [next_token], len(tokens) + i, False)[0].argmax())
    seconds = time.perf_counter() - start
    return {"prompt_tokens": len(tokens), "first_token_ms": 1e3 * first, "tokens_per_s": (int(count) - 1) / seconds}


def perplexity(path, text, window, threads):
    window = int(window)
    model = load(path, window, int(threads))
    ids = model.tokenize(pathlib.Path(text).read_bytes(), add_bos=False, special=True)
    total, count = 0.0, 0
    for start in range(0, len(ids) - 1, window):
        part, targets = ids[start : start + window], ids[start + 1 : start + window + 1]
        clear(model)
        logits = decode(model, part, 0, True)[: len(targets)].astype(np.float64)
        highest = logits.max(-1)
        sums = highest + np.log(np.exp(logits - highest[:, None]).sum(-1))
        total += float((sums - logits[np.arange(len(targets)), targets]).sum())
        count += len(targets)
    return {"loss": total / count, "tokens": count}


def quantize(path, kind, out):
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{kind}")
    params.allow_requantize = True
    params.pure = False
    found = llama_cpp.llama_model_quantize(path.encode(), out.encode(), ctypes.byref(params))
    assert found == 0, found
    return {"out": out}


if __name__ == "__main__":
    command, *given = sys.argv[1:]
    found = {"cut": cut, "speed": speed, "perplexity": perplexity, "quantize": quantize}[command](*given)
    print(json.dumps({**found, "llama_cpp_python": llama_cpp.__version__}))
