"""What pruning costs, each figure recorded as it comes; what is recorded is not run again.

    python3 bench/prune/run.py [--only GROUP ...] [--table]

Groups: heads (the curve of Michel et al., 2019: share removed against loss, by gradients, by activations and at random
with three seeds), inner (the same for neurons), blocks (1 to 6 removed, looked at once or after each), lottery (tickets
with 20 and 10 % of the weights, trained for as many steps as the whole model and as the same zeros with weights drawn
anew; three seeds). All on the built-in language. Records are lines of bench/runs/prune.jsonl. Folders are kept under
--work, so that whatever was killed goes on. `--table` prints the records as Markdown.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]
sys.path.append(str(ROOT / "bench"))
from record import record  # noqa: E402

RECORD = ROOT / "bench/runs/prune.jsonl"
parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
parser.add_argument("--lathe", default=ROOT / "target/release/lathe")
parser.add_argument("--work", type=pathlib.Path, default=ROOT / "target/prune")
parser.add_argument("--only", nargs="*")
parser.add_argument("--steps", type=int, default=3000, help="of the model whose heads, neurons and blocks go")
parser.add_argument("--ticket-steps", type=int, default=1500, help="of every training of a lottery")
parser.add_argument("--table", action="store_true")
args = parser.parse_args()

DATA = "builtin:2"
MODEL = ["--backbone", "gpt2", "--layers", "(sf)x6", "--d-model", "128", "--heads", "8", "--vocab", "256", "--max-len", "128"]
KEPT = ["layers", "params", "loss", "bits_per_byte", "latency_ms", "speedup", "speedup_interval", "sparsity", "share", "cpu",
        "threads", "workload", "text", "rounds", "control", "gzip_bytes"]  # fmt: skip


def lathe(*flags):
    command = [str(args.lathe), *map(str, flags), "--threads", "2", "--json"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def trained():
    """The model to prune; a training that was stopped goes on."""
    out = args.work / f"model-{args.steps}"
    if not (out / "result.json").exists():
        if (out / "run.toml").exists():
            lathe("train", "--resume", out)
        else:
            lathe("train", *MODEL, "--data", DATA, "--steps", args.steps, "--lr", "0.002", "--seq", "128", "--out", out)
    return out


def prune(model, name, *flags):
    out = args.work / name.replace(" ", "_").replace(",", "")
    found = lathe("prune", model, "--data", DATA, "--eval-bytes", 1 << 16, "--out", out, *flags)
    return {key: found[key] for key in KEPT if key in found}


def curve(knob):
    for tenths in range(1, 10):
        for by, seeds in [("gradient", 1), ("activations", 1), ("random", 3)]:
            for seed in range(seeds):
                name = f"{knob} 0.{tenths}, {by}" + (f", seed {seed}" if by == "random" else "")
                flags = [f"--{knob}", f"0.{tenths}", "--importance", by, "--seed", seed, "--seconds", 1]
                yield name, lambda name=name, flags=flags: prune(trained(), name, *flags)


def blocks():
    for count in range(1, 7):
        for way, more in [("at once", []), ("one by one", ["--iterative"])]:
            name = f"{count} blocks, {way}"
            flags = ["--blocks", count, *more, "--seconds", 2]
            yield name, lambda name=name, flags=flags: prune(trained(), name, *flags)


def lottery():
    for left, rounds in [(20, 4), (10, 5)]:
        for seed in range(3):
            name = f"{left} % of the weights, seed {seed}"
            flags = ["--magnitude", 1 - left / 100, "--lottery", rounds, "--steps", args.ticket_steps, "--lr", "0.002",
                     "--control", "--seed", seed, "--seconds", 2]  # fmt: skip
            yield name, lambda name=name, flags=flags: prune("small_gpt2", "ticket " + name, *flags)


def table(records):
    rows = {(one["group"], one["name"]): one["result"] for one in records}
    for knob in ["heads", "inner"]:
        found = {name: result for (group, name), result in rows.items() if group == knob}
        if not found:
            continue
        print(f"\n### {knob}: bits/byte after removing a share\n\n| removed | gradient | activations | random (3 seeds) | faster |")
        print("|---|---|---|---|---|")
        before = next(iter(found.values()))["bits_per_byte"]["before"]
        print(f"| 0 | {before:.4f} | {before:.4f} | {before:.4f} | 1.00 |")
        for tenths in range(1, 10):
            of = [result for name, result in found.items() if name.startswith(f"{knob} 0.{tenths},")]
            if len(of) < 5:
                continue
            bits = [result["bits_per_byte"]["after"] for result in of]
            print(f"| 0.{tenths} | {bits[0]:.4f} | {bits[1]:.4f} | {statistics.mean(bits[2:]):.4f} | {of[0]['speedup']:.2f} |")
    found = {name: result for (group, name), result in rows.items() if group == "blocks"}
    if found:
        print("\n### blocks\n\n| removed | bits/byte | faster | layers |\n|---|---|---|---|")
        for name, result in found.items():
            print(f"| {name} | {result['bits_per_byte']['after']:.4f} | {result['speedup']:.2f} | `{result['layers']}` |")
    found = {name: result for (group, name), result in rows.items() if group == "lottery"}
    if found:
        print("\n### lottery: bits/byte after as many steps\n\n| | whole | ticket | weights drawn anew | gzipped | faster |")
        print("|---|---|---|---|---|---|")
        for name, result in found.items():
            bits, gzip = result["bits_per_byte"], result["gzip_bytes"]
            cells = [f"{bits['before']:.4f}", f"{bits['after']:.4f}", f"{result['control']['bits_per_byte']:.4f}",
                     f"{gzip['after'] / gzip['before']:.2f}", f"{result['speedup']:.2f}"]  # fmt: skip
            print(f"| {name} | " + " | ".join(cells) + " |")


if args.table:
    table([json.loads(line) for line in RECORD.read_text().splitlines()] if RECORD.exists() else [])
    sys.exit()
args.work.mkdir(parents=True, exist_ok=True)
GROUPS = {"heads": lambda: curve("heads"), "inner": lambda: curve("inner"), "blocks": blocks, "lottery": lottery}
record(RECORD, GROUPS, args.only)
