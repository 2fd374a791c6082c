"""What pruning costs, each figure recorded as it comes; what is recorded is not run again.

    python3 bench/prune/run.py [--only GROUP ...] [--table]

Groups: heads (the curve of Michel et al., 2019: share removed against loss, by gradients, by activations and at random
with three seeds), inner (the same for neurons), blocks (1 to 6 removed, looked at once or after each), speed (of what
heads and inner left by gradients, beside the model; give it a quiet machine), bits (fewer neurons, fewer bits, and both),
lottery (tickets with 20 and 10 % of the weights, trained for as many steps as the whole model and as the same zeros with
weights drawn anew; three seeds). All on the built-in language. Records are lines of bench/runs/prune.jsonl. Folders are
kept under --work, so that whatever was killed goes on. `--table` prints the records as Markdown.
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
parser.add_argument("--steps", type=int, default=1500, help="of the model whose heads, neurons and blocks go")
parser.add_argument("--ticket-steps", type=int, default=600, help="of every training of a lottery")
parser.add_argument("--threads", default="2", help="losses are the same with any number")
parser.add_argument("--seconds", type=float, default=1, help="to measure two models for; 0 leaves speed out")
parser.add_argument("--table", action="store_true")
args = parser.parse_args()

DATA = "builtin:2"
MODEL = ["--backbone", "gpt2", "--layers", "(sf)x6", "--d-model", "128", "--heads", "8", "--vocab", "256", "--max-len", "128"]
TICKET = """backbone = "gpt2"
layers = "(sf)x4"
d_model = 64
heads = 4
vocab = 256
max_len = 128
"""
KEPT = ["layers", "params", "loss", "bits_per_byte", "sparsity", "share", "cpu",
        "threads", "workload", "text", "rounds", "control", "gzip_bytes"]  # fmt: skip


def lathe(*flags):
    command = [str(args.lathe), *map(str, flags), "--threads", args.threads, "--json"]
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


def folder(name):
    return args.work / name.replace(" ", "_").replace(",", "")


def prune(model, name, *flags):
    out = folder(name)
    found = lathe("prune", model, "--data", DATA, "--eval-bytes", 1 << 16, "--seconds", 0, "--out", out, *flags)
    return {key: found[key] for key in KEPT if key in found}


def curve(knob):
    for tenths in range(1, 10):
        for by, seeds in [("gradient", 1), ("activations", 1), ("random", 3)]:
            for seed in range(seeds):
                name = f"{knob} 0.{tenths}, {by}" + (f", seed {seed}" if by == "random" else "")
                flags = [f"--{knob}", f"0.{tenths}", "--importance", by, "--seed", seed]
                yield name, lambda name=name, flags=flags: prune(trained(), name, *flags)


def blocks():
    for count in range(1, 7):
        for way, more in [("at once", []), ("one by one", ["--iterative"])]:
            name = f"{count} blocks, {way}"
            flags = ["--blocks", count, *more]
            yield name, lambda name=name, flags=flags: prune(trained(), name, *flags)


def lottery():
    model = args.work / "ticket.toml"
    model.write_text(TICKET)
    for left, rounds in [(20, 4), (10, 5)]:
        for seed in range(3):
            name = f"{left} % of the weights, seed {seed}"
            flags = ["--magnitude", 1 - left / 100, "--lottery", rounds, "--steps", args.ticket_steps, "--lr", "0.002",
                     "--control", "--seed", seed]  # fmt: skip
            yield name, lambda name=name, flags=flags: prune(model, "ticket " + name, *flags)


def speed():
    for knob in ["heads", "inner"]:
        for tenths in [1, 3, 5, 7, 9]:
            name = f"{knob} 0.{tenths}"

            def compare(name=name):
                pair = lathe("compare", trained(), folder(f"{name}, gradient"), "--seq", 128, "--seconds", args.seconds)
                return {key: pair[key] for key in ("speedup", "speedup_interval", "cpu", "threads")}

            yield name, compare


def bits():
    """Bits per byte with fewer neurons, with fewer bits, and with both."""
    for tenths in [0, 1, 2, 3]:
        for count in [None, 8, 4]:
            def both(tenths=tenths, count=count):
                model = trained()
                if tenths:
                    name = f"inner 0.{tenths}, activations"
                    if not folder(name).exists():
                        prune(model, name, "--inner", f"0.{tenths}", "--importance", "activations")
                    model = folder(name)
                if count:
                    out = folder(f"inner 0.{tenths}, {count} bits")
                    lathe("quantize", model, "--bits", count, "--data", DATA, "--seconds", 0, "--out", out)
                    model = out
                return {"bits_per_byte": lathe("eval", model, "--data", "builtin:0.1:77")["bits_per_byte"]}

            yield f"inner 0.{tenths}, {count or 32} bits", both


def mean_of(values):
    spread = f" ± {statistics.stdev(values):.4f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.4f}{spread}"


def table(records):
    rows = {(one["group"], one["name"]): one["result"] for one in records}
    for knob in ["heads", "inner"]:
        found = {name: result for (group, name), result in rows.items() if group == knob}
        if not found:
            continue
        print(f"\n### {knob}: bits/byte after removing a share\n\n| removed | gradient | activations | random (3 seeds) |")
        print("|---|---|---|---|")
        before = next(iter(found.values()))["bits_per_byte"]["before"]
        print(f"| 0 | {before:.4f} | {before:.4f} | {before:.4f} |")
        for tenths in range(1, 10):
            of = [result for name, result in found.items() if name.startswith(f"{knob} 0.{tenths},")]
            if len(of) < 5:
                continue
            bits = [result["bits_per_byte"]["after"] for result in of]
            print(f"| 0.{tenths} | {bits[0]:.4f} | {bits[1]:.4f} | {mean_of(bits[2:])} |")
    found = {name: result for (group, name), result in rows.items() if group == "blocks"}
    if found:
        print("\n### blocks\n\n| removed | bits/byte | layers |\n|---|---|---|")
        for name, result in found.items():
            print(f"| {name} | {result['bits_per_byte']['after']:.4f} | `{result['layers']}` |")
    found = {name: result for (group, name), result in rows.items() if group == "lottery"}
    if found:
        print("\n### lottery: bits/byte after as many steps\n\n| weights left | whole | ticket | drawn anew | gzipped |")
        print("|---|---|---|---|---|")
        for left in dict.fromkeys(name.split(",")[0] for name in found):
            of = [result for name, result in found.items() if name.startswith(left)]
            columns = [[one["bits_per_byte"][when] for one in of] for when in ("before", "after")]
            columns.append([one["control"]["bits_per_byte"] for one in of])
            gzip = statistics.mean(one["gzip_bytes"]["after"] / one["gzip_bytes"]["before"] for one in of)
            print(f"| {left} | " + " | ".join(map(mean_of, columns)) + f" | {gzip:.2f} |")
    found = {name: result for (group, name), result in rows.items() if group == "bits"}
    if found:
        print("\n### fewer neurons and fewer bits: bits/byte\n\n| neurons removed | f32 | 8 bits | 4 bits |\n|---|---|---|---|")
        for left in dict.fromkeys(name.split(",")[0] for name in found):
            of = [result["bits_per_byte"] for name, result in found.items() if name.startswith(left + ",")]
            print(f"| {left.split()[1]} | " + " | ".join(f"{bits:.4f}" for bits in of) + " |")
    found = {name: result for (group, name), result in rows.items() if group == "speed"}
    if found:
        print("\n### speed at 128 tokens\n\n| removed | times as fast |\n|---|---|")
        for name, result in found.items():
            print(f"| {name} | {result['speedup']:.2f} [{result['speedup_interval'][0]:.2f}, {result['speedup_interval'][1]:.2f}] |")


if args.table:
    table([json.loads(line) for line in RECORD.read_text().splitlines()] if RECORD.exists() else [])
    sys.exit()
args.work.mkdir(parents=True, exist_ok=True)
GROUPS = {"heads": lambda: curve("heads"), "inner": lambda: curve("inner"), "blocks": blocks, "bits": bits,
          "lottery": lottery, "speed": speed}  # fmt: skip
record(RECORD, GROUPS, args.only)
