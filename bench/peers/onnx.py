"""lathe beside ONNX Runtime's dynamic int8: a forward pass of a GPT-2 over 192 tokens, logits at every position.

    python3 bench/peers/onnx.py --python PYTHON --f32 FOLDER --int8 FOLDER [--rounds 9] [--table]

PYTHON has torch, transformers, onnx and onnxruntime. FOLDER is a GPT-2 of transformers, and what `lathe quantize --bits 8` made of
it; bench/compress makes both. A round is a process of each, who begins changes, 2 threads. Records are lines of
bench/runs/onnx.jsonl.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from record import record  # noqa: E402

RECORD = ROOT / "bench/runs/onnx.jsonl"
parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
parser.add_argument("--python")
parser.add_argument("--lathe", default=str(ROOT / "target/release/lathe"))
parser.add_argument("--f32", type=pathlib.Path)
parser.add_argument("--int8", type=pathlib.Path)
parser.add_argument("--rounds", type=int, default=9)
parser.add_argument("--seconds", type=float, default=3)
parser.add_argument("--table", action="store_true")
args = parser.parse_args()

EXPORT = """
import sys, torch, transformers
from onnxruntime.quantization import QuantType, quantize_dynamic
folder, out, int8 = sys.argv[1:]
model = transformers.GPT2LMHeadModel.from_pretrained(folder, attn_implementation="eager").eval()
class Logits(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.model = model
    def forward(self, ids):
        return self.model(ids, use_cache=False).logits
torch.onnx.export(Logits(), (torch.zeros(1, 192, dtype=torch.long),), out, input_names=["ids"], output_names=["logits"], dynamo=True)
quantize_dynamic(out, int8, weight_type=QuantType.QInt8, op_types_to_quantize=["MatMul", "Gemm"])
"""
RUN = """
import json, sys, time
import numpy as np, onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 2
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
ids = np.random.default_rng(0).integers(0, 50257, (1, 192))
times = []
begin = time.perf_counter()
while len(times) < 5 or time.perf_counter() - begin < float(sys.argv[2]):
    start = time.perf_counter()
    session.run(None, {"ids": ids})
    times.append(1e3 * (time.perf_counter() - start))
print(json.dumps({"ms": sorted(times)[len(times) // 2], "passes": len(times), "onnxruntime": onnxruntime.__version__}))
"""


def called(command):
    return json.loads(subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, text=True).stdout)


def rounds():
    f32, int8 = args.f32 / "model.onnx", args.f32 / "model.int8.onnx"
    if not int8.exists():
        subprocess.run([args.python, "-c", EXPORT, args.f32, f32, int8], check=True)

    def bench(folder):
        found = called([args.lathe, "bench", folder, "--seq", 192, "--seconds", args.seconds, "--threads", 2, "--json"])
        return {"ms": found["latency_ms"]["median"], "passes": found["repetitions"], "cpu": found["cpu"]}

    sides = {
        "lathe f32": lambda: bench(args.f32),
        "lathe int8": lambda: bench(args.int8),
        "ONNX Runtime f32": lambda: called([args.python, "-c", RUN, f32, args.seconds]),
        "ONNX Runtime int8": lambda: called([args.python, "-c", RUN, int8, args.seconds]),
    }
    for i in range(args.rounds):
        order = list(sides) if i % 2 else list(reversed(sides))
        yield f"round {i}", lambda order=order: {side: sides[side]() for side in order}


def table():
    found = [json.loads(line)["result"] for line in RECORD.read_text().splitlines()]
    print(f"| forward over 192 tokens, {len(found)} rounds | ms, median |\n|---|---|")
    for side in sorted(found[0]):
        print(f"| {side} | {statistics.median(one[side]['ms'] for one in found):.1f} |")
    ratios = sorted(one["ONNX Runtime int8"]["ms"] / one["lathe int8"]["ms"] for one in found)
    print(f"\nint8, ONNX Runtime's time over lathe's: {statistics.median(ratios):.2f} [{ratios[0]:.2f}, {ratios[-1]:.2f}]")


if args.table:
    table()
else:
    record(RECORD, {"onnx": rounds}, None)
