"""Runs an exported GGUF file in llama.cpp and compares it with lathe's own forward of the model it was made from.

    python bench/export/beside_llama_cpp.py --lathe target/release/lathe --model DIR --gguf FILE [--text FILE --windows N] [--tokens 64] [--greedy 40]

Prints the largest difference of a logit, the mean KL from ours in nats per token, the share of equal top tokens, how many
greedy tokens are the same, and whether both cut a text into the same tokens; "itself" is llama.cpp, reading token by token, from
llama.cpp that reads all at once. llama.cpp (package llama-cpp-python) keeps keys and values in f32 here, without flash attention.
"""
import argparse, json, pathlib, subprocess, tempfile
import numpy as np
from safetensors.numpy import load_file, save_file
import llama_cpp

TEXT = "Once upon a time, there was a little girl named Lily. She had 3 red balls, and she didn't like \"blue\" ones.\n"


def ours(lathe, model, ids):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        save_file({"ids": np.array([ids], dtype=np.int64)}, folder / "ids.safetensors")
        command = [lathe, "forward", model, "--tokens", folder / "ids.safetensors", "--out", folder / "out.safetensors"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return load_file(folder / "out.safetensors")["logits"][0]


def log_softmax(x):
    x = x.astype(np.float64)
    x -= x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lathe", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--gguf", required=True)
    parser.add_argument("--text", type=pathlib.Path)
    parser.add_argument("--windows", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--greedy", type=int, default=40)
    args = parser.parse_args()
    llama = llama_cpp.Llama(
        args.gguf, n_ctx=256, logits_all=True, verbose=False, n_threads=2, flash_attn=False,
        type_k=llama_cpp.GGML_TYPE_F32, type_v=llama_cpp.GGML_TYPE_F32,
    )
    theirs = lambda ids: (llama.reset(), llama.eval(ids), np.array(llama.scores[: len(ids)]))[2]
    vocab = llama.n_vocab()

    # What llama.cpp writes greedily is what we write, as long as each of its tokens is our most probable one.
    text = args.text.read_text()[: 20 * args.tokens * args.windows] if args.text else TEXT
    tokenized = llama.tokenize(text.encode(), add_bos=True)
    start = tokenized[:4]
    ids = list(start)
    for _ in range(args.greedy):
        ids.append(int(theirs(ids)[-1].argmax()))
    best = ours(args.lathe, args.model, ids).argmax(-1)[len(start) - 1 : -1]
    same = next((i for i, (a, b) in enumerate(zip(ids[len(start):], best)) if a != b), args.greedy)

    if not args.text:
        tokenized += ids[len(start):]
    windows = [tokenized[i * args.tokens :][: args.tokens] for i in range(args.windows)]
    random = np.random.default_rng(0).integers(0, vocab, args.tokens).tolist()
    found = {"same_greedy": same, "of": args.greedy}
    mine = lambda ids: ours(args.lathe, args.model, ids)
    one_by_one = lambda ids: (llama.reset(), [llama.eval([token]) for token in ids], np.array(llama.scores[: len(ids)]))[2]
    for name, lists, first in (("text", windows, mine), ("random", [random], mine), ("itself", windows, one_by_one)):
        tokens, worst, kl, top = 0, 0.0, 0.0, 0
        for ids in lists:
            a, b = first(ids), theirs(ids)
            p, q = log_softmax(a), log_softmax(b)
            tokens += len(ids)
            worst = max(worst, float(np.abs(a - b).max()))
            kl += float((np.exp(p) * (p - q)).sum())
            top += int((a.argmax(-1) == b.argmax(-1)).sum())
        found[name] = {"tokens": tokens, "max_abs": worst, "kl": kl / tokens, "same_top": top / tokens}
    print(json.dumps(found))


main()
