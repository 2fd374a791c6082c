"""Runs an exported ONNX folder in ONNX Runtime and compares it with lathe's own forward of the model it was made from.

    python bench/export/onnx_runtime.py --lathe target/release/lathe --model DIR --onnx FOLDER [--tokens 48] [--batch 2] [--text FILE] [--file FILE.onnx]

Checks the file with onnx.checker, and prints for each output the largest difference, of a size of what; of logits also the mean
KL from ours in nats per token, and the share of equal top tokens. Texts of an encoder are padded, each to another length, and have
two segments; those of a decoder with a cache are padded on the left, too, and run in three parts: a prompt, one token, the rest.
"""
import argparse, json, pathlib, subprocess, tempfile
import numpy as np
import onnx, onnxruntime, tokenizers
from safetensors.numpy import load_file, save_file


def ours(lathe, model, tensors):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        save_file({name: array.astype(np.int64) for name, array in tensors.items()}, folder / "ids.safetensors")
        command = [lathe, "forward", model, "--tokens", folder / "ids.safetensors", "--out", folder / "out.safetensors"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return load_file(folder / "out.safetensors")


def log_softmax(x):
    x = x.astype(np.float64)
    x -= x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def cached(session, inputs, ids):
    """All logits, in three parts, each text padded by another number of tokens on the left."""
    batch, length = ids.shape
    width = length + 3
    padded, mask = np.zeros((batch, width), np.int64), np.zeros((batch, width), np.int64)
    for b in range(batch):
        first = 3 - b % 4
        padded[b, first : first + length], mask[b, first : first + length] = ids[b], 1
    positions = np.maximum(mask.cumsum(1) - 1, 0)
    past = {i.name: np.zeros([batch, i.shape[1], 0, i.shape[3]], np.float32) for i in inputs if i.name.startswith("past")}
    names, found = [output.name for output in session.get_outputs()], []
    cuts = [0, width // 2, width // 2 + 1, width]
    for start, end in zip(cuts, cuts[1:]):
        feed = {"input_ids": padded[:, start:end], "attention_mask": mask[:, :end], "position_ids": positions[:, start:end]}
        feed = {name: array for name, array in feed.items() if name in {i.name for i in inputs}}
        given = dict(zip(names, session.run(None, {**feed, **past})))
        past = {name.replace("present", "past_key_values"): array for name, array in given.items() if name.startswith("present")}
        found.append(given["logits"])
    logits = np.concatenate(found, 1)
    return np.stack([logits[b, 3 - b % 4 :][:length] for b in range(batch)])


def main():
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("--lathe", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--onnx", required=True, type=pathlib.Path)
    parser.add_argument("--file", type=pathlib.Path, help="another graph of the same model, as a quantiser made it")
    parser.add_argument("--text", type=pathlib.Path, help="a text to take tokens from, each window after BOS; else they are random")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--batch", type=int, default=2)
    args = parser.parse_args()
    path = args.file or args.onnx / "model.onnx"
    onnx.checker.check_model(str(path), full_check=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    inputs, outputs = session.get_inputs(), [output.name for output in session.get_outputs()]
    names = {i.name for i in inputs}
    vocab = json.loads((args.onnx / "config.json").read_text())
    vocab = vocab.get("vocab_size") or vocab["lathe"]["vocab"]
    random = np.random.default_rng(0)
    ids = random.integers(0, vocab, (args.batch, args.tokens))
    if args.text:
        tokenizer = tokenizers.Tokenizer.from_file(str(args.onnx / "tokenizer.json"))
        size = args.tokens - 1
        words = tokenizer.encode(args.text.read_text()[: 20 * args.tokens * args.batch], add_special_tokens=False).ids
        ids = np.array([[1] + words[i * size :][:size] for i in range(args.batch)])
    tensors = {"ids": ids}
    real = np.ones_like(ids, bool)
    if "last_hidden_state" in outputs:
        lengths = args.tokens - 5 * np.arange(args.batch)
        real = np.arange(args.tokens) < lengths[:, None]
        tensors["mask"] = real
        if "token_type_ids" in names:
            tensors["segments"] = (np.arange(args.tokens) >= lengths[:, None] // 2).astype(np.int64)
    expected = ours(args.lathe, args.model, tensors)
    if any(name.startswith("past") for name in names):
        found = {"logits": cached(session, inputs, ids)}
    else:
        feed = {"input_ids": ids, "attention_mask": real, "token_type_ids": tensors.get("segments")}
        feed = {name: array.astype(np.int64) for name, array in feed.items() if name in names}
        feed |= {i.name: np.zeros([args.batch, *i.shape[1:]], np.float32) for i in inputs if i.name.startswith("mems")}
        found = dict(zip(outputs, session.run(None, feed)))
    result = {"onnx": onnx.__version__, "onnxruntime": onnxruntime.__version__}
    for ours_, theirs in (("logits", "logits"), ("hidden", "last_hidden_state"), ("pooled", "pooler_output")):
        if theirs not in found:
            continue
        a, b = expected[ours_], found[theirs]
        a, b = (a, b) if a.ndim == 2 else (a[real], b[real])
        result[theirs] = {"max_abs": float(np.abs(a - b).max()), "of": float(np.abs(a).max())}
        if theirs == "logits":
            p, q = log_softmax(a), log_softmax(b)
            result[theirs] |= {"kl": float((np.exp(p) * (p - q)).sum(-1).mean()), "same_top": float((p.argmax(-1) == q.argmax(-1)).mean())}
    print(json.dumps(result))


main()
