"""Integer exports in ONNX Runtime beside what its own quantiser makes of the f32 one.

    python bench/export/onnx_speed.py --f32 FOLDER --int8 FOLDER [--name NAME] [--lengths 1 16 192] [--rounds 15] [--threads 1] [--table]

FOLDERs are exports of a model in f32 and of what `lathe quantize --bits 8` made of it. The f32 file is folded first (ONNX Runtime's
basic optimisations), so that tied and turned weights are weights for `quantize_dynamic`, too, and then quantised with its
defaults and, as a second rival, with a scale for each channel. All sessions live in one process; in a round each runs for
`--seconds`, who begins changes. Records are lines of bench/runs/onnx_export.jsonl.
"""
import argparse, json, pathlib, statistics, sys, tempfile, time
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from record import record  # noqa: E402

RECORD = ROOT / "bench/runs/onnx_export.jsonl"
parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
parser.add_argument("--f32", type=pathlib.Path)
parser.add_argument("--int8", type=pathlib.Path)
parser.add_argument("--name", default="model")
parser.add_argument("--lengths", type=int, nargs="*", default=[1, 16, 192])
parser.add_argument("--rounds", type=int, default=15)
parser.add_argument("--seconds", type=float, default=0.3)
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--note", default="")
parser.add_argument("--table", action="store_true")
args = parser.parse_args()
RIVALS = ["quantize_dynamic", "quantize_dynamic, per channel"]


def session(path, folded=None):
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = args.threads, 3
    if folded:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(folded)
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def quantised(folder):
    from onnxruntime.quantization import QuantType, quantize_dynamic
    folded = folder / "folded.onnx"
    session(args.f32 / "model.onnx", folded)
    paths = [folder / f"{i}.onnx" for i in range(2)]
    for path, per_channel in zip(paths, (False, True)):
        quantize_dynamic(folded, path, weight_type=QuantType.QInt8, per_channel=per_channel)
    return paths


def inputs(of, length, vocab):
    ids = np.random.default_rng(0).integers(0, vocab, (1, length))
    known = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    return {i.name: known.get(i.name, np.zeros([1, *i.shape[1:]], np.float32) if i.name.startswith("mems") else None) for i in of.get_inputs()}


def measure():
    import onnxruntime
    config = json.loads((args.f32 / "config.json").read_text())
    vocab = config.get("vocab_size") or config["lathe"]["vocab"]
    with tempfile.TemporaryDirectory() as folder:
        paths = [args.int8 / "model.onnx", *quantised(pathlib.Path(folder)), args.f32 / "model.onnx"]
        sessions = dict(zip(["lathe int8", *RIVALS, "f32"], map(session, paths)))
    results = {}
    for length in args.lengths:
        times = {name: [] for name in sessions}
        for i in range(args.rounds):
            for name in list(sessions) if i % 2 else list(reversed(sessions)):
                feed, runs = inputs(sessions[name], length, vocab), 0
                sessions[name].run(None, feed)
                begin = time.perf_counter()
                while time.perf_counter() - begin < args.seconds:
                    sessions[name].run(None, feed)
                    runs += 1
                times[name].append(1e3 * (time.perf_counter() - begin) / runs)
        results[length] = times
    return {"threads": args.threads, "onnxruntime": onnxruntime.__version__, "note": args.note, "ms": results}


def interval(values):
    """Median, and the 95 % interval of it by order statistics."""
    values = sorted(values)
    n, half = len(values), 0.98 * len(values) ** 0.5
    return statistics.median(values), values[max(0, int(n / 2 - half))], values[min(n - 1, int(n / 2 + half + 0.999))]


def table():
    print("| model, tokens | lathe int8, ms | " + " | ".join(f"time over that of {rival}" for rival in [*RIVALS, "f32"]) + " |\n|---|---|---|---|---|")
    for line in map(json.loads, RECORD.read_text().splitlines()):
        for length, times in line["result"]["ms"].items():
            ours = times["lathe int8"]
            cells = ["{:.2f}".format(statistics.median(ours))]
            cells += ["{:.2f} [{:.2f}, {:.2f}]".format(*interval([a / b for a, b in zip(ours, times[rival])])) for rival in [*RIVALS, "f32"]]
            print(f"| {line['name']}, {length} | " + " | ".join(cells) + " |")


if args.table:
    table()
else:
    record(RECORD, {"speed": lambda: [(args.name, measure)]}, None)
