"""A padded batch of 32 texts through an encoder: lathe beside transformers in f32, and beside ONNX Runtime in int8.

    python3 bench/encoders/padded.py --python VENV/bin/python --model MINILM --data GLUE [--rounds 9] [--name NAME]
    python3 bench/encoders/padded.py --table

MINILM is a folder of transformers, GLUE the folder with STS-B and MRPC in it. VENV has torch, transformers, onnx and onnxruntime.
In each round all sides run for `--seconds` over one batch, drawn from the dev set by the round's number: 32 sentences of STS-B, or
32 pairs of MRPC, padded to the longest. The tokens are made before, and are the same for all; who begins changes. Results are
hidden states and the vector of the text.

  lathe f32, lathe int8          `lathe forward --seconds`; int8 is what `lathe quantize --bits 8` makes of the folder
  transformers f32               PyTorch with sdpa, in inference mode
  ONNX Runtime int8              `quantize_dynamic` of PyTorch's f32 export
  ONNX Runtime int8, fused       the same of what ONNX Runtime's optimiser of Transformers makes of the export

PyTorch and ONNX Runtime are a process each, which sleeps while others run. Hidden states of tokens are compared in every round: f32
with f32, and int8 by the cosine of their means. Records are lines of bench/runs/padded.jsonl.
"""

import argparse
import csv
import json
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from record import record  # noqa: E402

RECORD = ROOT / "bench/runs/padded.jsonl"
BATCH = 32
# Columns of texts; whether a text is a pair of them.
TEXTS = {"STS-B": ([7, 8], False), "MRPC": ([3, 4], True)}
OURS = ["lathe f32", "lathe int8"]
THEIRS = {"transformers f32": "torch", "ONNX Runtime int8": "onnx", "ONNX Runtime int8, fused": "fused"}


def tokens(data, tokenizer, task, seed):
    """ids, mask and segments of a batch."""
    import random

    columns, pairs = TEXTS[task]
    with open(data / task / "dev.tsv", encoding="utf-8-sig", newline="") as file:
        rows = [row for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE) if row][1:]
    texts = [[row[i] for i in columns] for row in rows] if pairs else [[row[i]] for row in rows for i in columns]
    drawn = random.Random(seed).sample(texts, BATCH)
    found = tokenizer(*[list(part) for part in zip(*drawn)], padding=True, truncation=True, max_length=128, return_tensors="pt")
    return {"ids": found["input_ids"], "mask": found["attention_mask"], "segments": found["token_type_ids"]}


def timed(work, seconds):
    """Milliseconds of each pass, after some that warm up."""
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds / 4:
        work()
    times, begin = [], time.perf_counter()
    while len(times) < 7 or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        work()
        times.append(1e3 * (time.perf_counter() - start))
    return times


def worker(kind, model, work, threads, seconds):
    """Answers each line, a file of tokens and a file for hidden states, with times; `data TASK SEED FILE` makes tokens."""
    import torch
    from safetensors.torch import load_file, save_file
    from transformers import AutoModel, AutoTokenizer

    torch.set_num_threads(threads)
    if kind == "torch":
        tokenizer = AutoTokenizer.from_pretrained(model)
        network = AutoModel.from_pretrained(model, attn_implementation="sdpa").eval()
        inputs = lambda t: {"input_ids": t["ids"], "attention_mask": t["mask"], "token_type_ids": t["segments"]}  # noqa: E731
        run = lambda batch: network(**batch).last_hidden_state  # noqa: E731
    else:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = threads, 3
        session = onnxruntime.InferenceSession(exported(model, work, kind), options, providers=["CPUExecutionProvider"])
        names = {"input_ids": "ids", "attention_mask": "mask", "token_type_ids": "segments"}
        inputs = lambda t: {i.name: t[names[i.name]].numpy() for i in session.get_inputs()}  # noqa: E731
        run = lambda batch: torch.from_numpy(session.run(None, batch)[0])  # noqa: E731
    print("ready", flush=True)
    for line in sys.stdin:
        if line.startswith("data\t"):
            _, data, task, seed, file = line.rstrip("\n").split("\t")
            of_batch = tokens(pathlib.Path(data), tokenizer, task, int(seed))
            save_file({name: values.contiguous() for name, values in of_batch.items()}, file)
            print(json.dumps({"tokens": int(of_batch["mask"].sum()), "padded": of_batch["mask"].numel()}), flush=True)
            continue
        file, out = line.rstrip("\n").split("\t")
        batch = inputs(load_file(file))
        with torch.inference_mode():
            times = timed(lambda: run(batch), seconds)
            save_file({"hidden": run(batch).clone()}, out)
        print(json.dumps({"ms": statistics.median(times), "passes": len(times)}), flush=True)


def exported(model, work, kind):
    """The file of an integer model, made once."""
    import onnx
    import torch
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from transformers import AutoModel

    network = AutoModel.from_pretrained(model, attn_implementation="eager").eval()
    plain, found = work / "model.onnx", work / f"{kind}.int8.onnx"
    names = ["input_ids", "attention_mask", "token_type_ids"]
    if not plain.exists():

        class Hidden(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.network = network

            def forward(self, ids, mask, segments):
                found = self.network(input_ids=ids, attention_mask=mask, token_type_ids=segments)
                return found.last_hidden_state, found.pooler_output

        axes = {name: {0: "batch", 1: "tokens"} for name in [*names, "hidden"]}
        ones = torch.ones(2, 9, dtype=torch.long)
        torch.onnx.export(
            Hidden(), (ones, ones, 0 * ones), str(plain), input_names=names, output_names=["hidden", "pooled"],
            dynamic_axes={**axes, "pooled": {0: "batch"}}, dynamo=False,
        )
    if not found.exists():
        source = plain
        if kind == "fused":
            from onnxruntime.transformers import optimizer

            config = network.config
            source = work / "fused.onnx"
            fused = optimizer.optimize_model(str(plain), "bert", num_heads=config.num_attention_heads, hidden_size=config.hidden_size)
            fused.save_model_to_file(str(source))
        floats = {"DefaultTensorType": onnx.TensorProto.FLOAT}  # what its own operators give
        quantize_dynamic(source, found, weight_type=QuantType.QInt8, extra_options=floats)
    return str(found)


class Side:
    """A process that measures when it is asked."""

    def __init__(self, args, kind):
        command = [args.python, __file__, "--worker", kind, "--model", args.model, "--work", args.work]
        command += ["--threads", args.threads, "--seconds", args.seconds]
        self.process = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        while self.process.stdout.readline() != "ready\n":
            assert self.process.poll() is None, f"{kind} ended"

    def ask(self, *words):
        self.process.stdin.write("\t".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


COMPARE = """
import json, sys
from safetensors.torch import load_file
tokens, folder, *sides = sys.argv[1:]
mask = load_file(tokens)["mask"].bool()
hidden = {side: load_file(f"{folder}/{side}.safetensors")["hidden"] for side in sides}
mean = {side: (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True) for side, x in hidden.items()}
wanted = "transformers f32"
cosine = lambda side: (mean[side] * mean[wanted]).sum(1) / mean[side].norm(dim=1) / mean[wanted].norm(dim=1)
print(json.dumps({
    "difference": (hidden["lathe f32"] - hidden[wanted])[mask].abs().max().item(),
    "cosines": {side: cosine(side).min().item() for side in sides if "int8" in side},
}))
"""


def rounds(args, task):
    sides = {}
    for i in range(args.rounds):

        def measure(i=i):
            sides.update({name: Side(args, kind) for name, kind in THEIRS.items()} if not sides else {})
            file = args.work / "tokens.safetensors"
            found = sides["transformers f32"].ask("data", args.data, task, i, file)
            folders = dict(zip(OURS, [args.model, args.work / "int8"]))
            names = [*OURS, *THEIRS]
            for name in names if i % 2 else reversed(names):
                out = args.work / f"{name}.safetensors"
                if name in sides:
                    found[name] = sides[name].ask(file, out)
                    continue
                command = [args.lathe, "forward", folders[name], "--tokens", file, "--out", out, "--seconds", args.seconds]
                command += ["--threads", args.threads, "--json"]
                ours = json.loads(subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, text=True).stdout)
                found[name] = {"ms": ours["latency_ms"]["median"]}
            command = [args.python, "-c", COMPARE, file, args.work, *names]
            compared = subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, text=True).stdout
            return {"threads": args.threads, "cpu": cpu(), **found, **json.loads(compared)}

        yield f"{args.name} {task} {i}", measure
    for side in sides.values():
        side.process.stdin.close()
        side.process.wait()


def cpu():
    names = [line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    return names[0]


def interval(values):
    """Median, and the 95 % interval of it by order statistics."""
    values = sorted(values)
    n, half = len(values), 0.98 * len(values) ** 0.5
    return statistics.median(values), values[max(0, int(n / 2 - half))], values[min(n - 1, int(n / 2 + half + 0.999))]


def table(args):
    lines = [json.loads(line) for line in args.record.read_text().splitlines()]
    groups = {}
    for line in lines:
        groups.setdefault(line["name"].rsplit(" ", 1)[0], []).append(line["result"])
    pairs = [("lathe f32", "transformers f32"), ("lathe int8", "ONNX Runtime int8"), ("lathe int8", "ONNX Runtime int8, fused")]
    sides = [*OURS, *THEIRS]
    print("| batches | real | " + " | ".join(f"{side}, ms" for side in sides) + " | " + " | ".join(f"{a} over {b}" for a, b in pairs) + " |")
    print("|" + "---|" * (2 + len(sides) + len(pairs)))
    for name, found in groups.items():
        real = statistics.median(one["tokens"] / one["padded"] for one in found)
        cells = [f"{statistics.median(one[side]['ms'] for one in found):.1f}" for side in sides]
        cells += ["{:.2f} [{:.2f}, {:.2f}]".format(*interval([one[a]["ms"] / one[b]["ms"] for one in found])) for a, b in pairs]
        print(f"| {name} | {100 * real:.0f} % | " + " | ".join(cells) + " |")
        worst = {side: min(one["cosines"][side] for one in found) for side in found[0]["cosines"]}
        print(f"<!-- largest difference {max(one['difference'] for one in found):.1e}, least cosines {worst} -->", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("--python")
    parser.add_argument("--lathe", default=ROOT / "target/release/lathe")
    parser.add_argument("--model", type=pathlib.Path)
    parser.add_argument("--data", type=pathlib.Path)
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "target/padded")
    parser.add_argument("--record", type=pathlib.Path, default=RECORD)
    parser.add_argument("--tasks", nargs="*", default=list(TEXTS))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--name", default="packed")
    parser.add_argument("--worker")
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    if args.worker:
        return worker(args.worker, args.model, args.work, args.threads, args.seconds)
    if args.table:
        return table(args)
    args.work.mkdir(parents=True, exist_ok=True)
    if not (args.work / "int8").exists():
        command = [args.lathe, "quantize", args.model, "--bits", "8", "--out", args.work / "int8", "--seconds", "0"]
        subprocess.run(list(map(str, command)), check=True)
    record(args.record, {"padded": lambda: (one for task in args.tasks for one in rounds(args, task))}, None)


main()
