"""The figures of optimising in docs/results.md, each recorded as it comes; what is recorded is not run again.

    python3 bench/from_scratch/run.py --enwik8 enwik8.gz [--only GROUP ...]
    python3 bench/from_scratch/run.py --table

Groups: main (three seeds at batch 1 and 16), equal (a target of 1), compare (other ways beside them), iso (wide
feed-forwards in place of mixtures), targets (target against estimate against measurement), par (where PAR's search puts
attention), placement (the PAR rule's attention moved). Records are lines of bench/runs/from_scratch.jsonl. Folders are kept under --work, so that whatever was killed goes
on. About four hours on two cores, all together.
"""

import argparse
import concurrent.futures
import gzip
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]
sys.path.append(str(ROOT / "bench"))
from record import record  # noqa: E402

RECORD = ROOT / "bench/runs/from_scratch.jsonl"
parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
parser.add_argument("--lathe", default=ROOT / "target/release/lathe")
parser.add_argument("--enwik8", type=pathlib.Path, help="enwik8 or enwik8.gz")
parser.add_argument("--work", type=pathlib.Path, default=ROOT / "target/from_scratch")
parser.add_argument("--only", nargs="*")
parser.add_argument("--table", action="store_true", help="print what is recorded as tables, and run nothing")
args = parser.parse_args()
args.work.mkdir(parents=True, exist_ok=True)

MODEL = "deep_transformer_xl"
# A slice so small that the model learns all that it can from it: it is read almost twelve times, and the last quarter of the
# steps gives nothing better. Of both models the best of eight evaluations counts, since in the end they overfit.
TRAIN, VALID = 300_000, 65_000
STEPS = 1700
HALF = 800  # of searches and trainings that are compared with themselves alone
BATCH = 16
TARGETS = [0.5, 0.6, 0.7, 0.8, 0.9, 0.95]


def lathe(*flags, threads=2):
    env = {**os.environ, "LATHE_CACHE": str(args.work / "cache")}
    command = [str(args.lathe), *map(str, flags), "--threads", str(threads), "--json"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=env).stdout)


def texts():
    """The first bytes of enwik8 to train on, and those after them to validate on."""
    files = args.work / "train.txt", args.work / "valid.txt"
    if not files[1].exists():
        with (gzip.open if args.enwik8.suffix == ".gz" else open)(args.enwik8, "rb") as file:
            files[0].write_bytes(file.read(TRAIN))
            files[1].write_bytes(file.read(VALID))
    return files


def data():
    train, valid = texts()
    return ["--data", train, "--valid", valid]


def optimize(seed, batch, target, *further, name):
    out = args.work / name
    flags = ["--model", MODEL, *data(), "--target-latency", target, "--batch", batch, "--steps", STEPS, "--train-batch", BATCH]
    flags += ["--train-precision", "bf16", "--eval-tokens", 0]
    found = lathe("optimize", "--from-scratch", *flags, "--seed", seed, *further, "--out", out)
    metrics = [json.loads(line) for line in (out / "baseline/metrics.jsonl").read_text().splitlines()]
    found["baseline"]["curve"] = [[m["step"], m["valid"]["loss"]] for m in metrics if "valid" in m]
    found["baseline"]["seconds"] = json.loads((out / "baseline/result.json").read_text())["seconds"]
    del found["report"]  # a path of this machine
    result = json.loads((out / "search/result.json").read_text())
    found["search_seconds"] = {key: result[key] for key in ("weight_seconds", "arch_seconds", "seconds")}
    return found


def baseline(seed):
    return ["--baseline", args.work / f"main-1-{seed}/baseline"]


def main():
    for seed in range(3):
        for batch in (1, 16):
            more = [] if batch == 1 else baseline(seed)  # which is the same at every batch
            yield f"batch {batch}, seed {seed}", lambda seed=seed, batch=batch, more=more: optimize(seed, batch, 0.5, *more, name=f"main-{batch}-{seed}")


def equal():
    yield "target 1, seed 0", lambda: optimize(0, 1, 1.0, *baseline(0), name="equal")


def compare():
    for seed in range(3):
        yield f"batch 1, seed {seed}", lambda seed=seed: optimize(seed, 1, 0.5, "--compare", name=f"main-1-{seed}")["compared"]


def iso():
    for seed in range(3):
        yield f"seed {seed}", lambda seed=seed: optimize(seed, 1, 0.5, "--iso-parameter", *baseline(seed), name=f"iso-{seed}")


def space(layers):
    """A space of single blocks around the model, as a file."""
    model = pathlib.Path(ROOT / f"crates/lathe-model/shipped/models/{MODEL}.toml").read_text()
    path = args.work / "space.toml"
    options = ", ".join(f'"{option}"' for option in layers)
    path.write_text(f"[baseline]\n{model}\n[[slots]]\nrepeat = 16\noptions = [{options}]\n")
    return path


def measured(found, baseline):
    """Latencies of a model file relative to another's, in turn."""
    ratios = []
    for _ in range(5):
        a, b = (lathe("bench", model, "--seconds", 1)["latency_ms"]["median"] for model in (found, baseline))
        ratios.append(a / b)
    return statistics.median(ratios)


def search(out, *flags, threads=2):
    """A search in a folder; one that was killed goes on, and one that has ended tells again what it found."""
    flags = ["--resume", out] if (out / "search.json").exists() else [*flags, "--out", out]
    return lathe("search", "differentiable", *flags, threads=threads)


def targets():
    """From the baseline of the main runs, as `optimize` searches, in half the steps."""
    for seed in range(2):
        for target in TARGETS:
            def run(target=target, seed=seed):
                job, out = args.work / f"main-1-{seed}", args.work / f"target-{target}-{seed}"
                flags = ["--data", texts()[0], "--target-latency", target, "--steps", int(0.3 * STEPS), "--batch", BATCH, "--lr", 0.0015, "--seed", seed]
                flags += ["--precision", "bf16", "--init", job / "baseline", "--baseline-share", 0.5, "--arch-off", 0.2, "--arch-lr", 0.1]
                found = search(out, job / "space.toml", "--table", job / "table.json", *flags)
                ratio = measured(out / "found.toml", job / "baseline")
                return {"target": target, "estimated": found["estimated_latency"], "measured": ratio, "layers": found["layers"], "converged": found["converged"]}
            yield f"target {target}, seed {seed}", run


def par():
    """PAR's own three options; how many attention blocks each third of the network keeps. Two searches run at a time, on a thread
    each: that is faster than one on two threads, and gives the same."""
    flags = ["--data", texts()[0], "--preset", "par", "--steps", HALF, "--batch", BATCH, "--lr", 0.003, "--arch-lr", 0.1, "--precision", "bf16"]

    def find(seed):
        return search(args.work / f"par-{seed}", space(["-", "s", "f"]), "--seed", seed, *flags, threads=1)

    for seed in range(6):
        def run(seed=seed):
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                found = list(pool.map(find, [seed, seed ^ 1]))[0]
            kinds = [max(slot, key=lambda option: option[1])[0][0] for slot in found["probabilities"]]
            thirds = [kinds[round(16 * i / 3):round(16 * (i + 1) / 3)].count("s") for i in range(3)]
            return {"layers": found["layers"], "attention_per_third": thirds, "converged": found["converged"], "seconds": found["seconds"]}
        yield f"seed {seed}", run


def placement():
    """Four attention blocks and twelve feed-forwards: the PAR rule's place for attention, and others."""
    layers = {"first two thirds": "(sff)x3 s (f)x6", "everywhere": "(sfff)x4", "last two thirds": "(f)x6 (sff)x3 s"}
    for name, stack in layers.items():
        for seed in range(3):
            def run(stack=stack, name=name, seed=seed):
                out = args.work / f"placement-{re.sub(' ', '-', name)}-{seed}"
                flags = ["--resume", out] if (out / "run.toml").exists() else ["--model", MODEL, "--layers", stack, *data(), "--steps", HALF, "--batch", BATCH, "--lr", 0.003, "--precision", "bf16", "--seed", seed, "--out", out]
                trained = lathe("train", *flags)
                return {"layers": stack, "bits_per_byte": trained["valid"]["bits_per_byte"]}
            yield f"{name}, seed {seed}", run


def spread(values):
    """Mean and deviation."""
    deviation = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.3f}{deviation}"


def tables():
    """What is recorded, in Markdown."""
    records = {}
    for record in map(json.loads, RECORD.read_text().splitlines()):
        records.setdefault(record["group"], {})[record["name"]] = record["result"]

    def bits(side):
        return side["valid"]["bits_per_byte"]

    print("| | baseline, bits/byte | found, bits/byte | change | faster | gain of the last quarter | search/training | from |\n|---|---|---|---|---|---|---|---|")
    for name, one in [*records.get("main", {}).items(), *records.get("equal", {}).items(), *((f"iso-parameter, {name}", one) for name, one in records.get("iso", {}).items())]:
        baseline, found, curve = one["baseline"], one["found"], dict(one["baseline"]["curve"])
        gain = 1 - min(curve.values()) / min(loss for step, loss in curve.items() if step < 0.76 * max(curve))
        low, high = one["speedup_interval"]
        cost = one["search_seconds"]["seconds"] / baseline["seconds"]
        print(f"| {name} | {bits(baseline):.3f} | {bits(found):.3f} | {100 * (bits(found) / bits(baseline) - 1):+.1f} % | {one['speedup']:.2f} [{low:.2f}, {high:.2f}] | {100 * gain:+.1f} % | {cost:.2f} | {one['from']} |")
    others = {"baseline": [], "found": []}
    for name, rivals in records.get("compare", {}).items():
        job = records["main"][name]
        found = {**job["found"], "speedup": job["speedup"]}
        others["baseline"].append({**job["baseline"], "speedup": 1.0})
        others["found"].append(found)
        for rival in [{**found, "name": job["from"]}, *rivals]:
            others.setdefault(re.sub(r"-\d$", "", rival["name"]), []).append(rival)
    print("\n| | runs | faster | bits/byte |\n|---|---|---|---|")
    for name, runs in (pair for pair in others.items() if pair[1]):
        print(f"| {name} | {len(runs)} | {spread([one['speedup'] for one in runs])} | {spread([bits(one) for one in runs])} |")
    runs = list(records.get("targets", {}).values())
    print("\n| target | estimated | measured |\n|---|---|---|")
    for one in sorted(runs, key=lambda one: one["target"]):
        print(f"| {one['target']} | {one['estimated']:.3f} | {one['measured']:.3f} |")
    if len(runs) > 2:
        met = sum(one["estimated"] <= 1.02 * one["target"] for one in runs)
        for key in ("estimated", "measured"):
            print(f"target against {key}: correlation {statistics.correlation([one['target'] for one in runs], [one[key] for one in runs]):.3f}")
        print(f"{met} of {len(runs)} estimates at most 1.02 times the target")
    for name, one in records.get("par", {}).items():
        print(f"PAR, {name}: {one['layers']}, attention per third {one['attention_per_third']}")
    places = {}
    for name, one in records.get("placement", {}).items():
        places.setdefault(name.split(",")[0], []).append(one["bits_per_byte"])
    for name, values in places.items():
        print(f"{name}: {spread(values)} bits/byte over {len(values)} seeds")


groups = {"main": main, "equal": equal, "compare": compare, "iso": iso, "targets": targets, "par": par, "placement": placement}
tables() if args.table else record(RECORD, groups, args.only)
