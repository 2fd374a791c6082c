"""Fine-tuning a model on GLUE tasks, beside the same recipe in transformers; and its embeddings beside transformers'. Each result is
recorded as it comes, and what is recorded is not run again.

    python3 bench/glue/run.py --model MINILM --data GLUE --python VENV/bin/python [--only GROUP ...] [--seeds 3] [--steps N]
    python3 bench/glue/run.py --table

MINILM is a folder of transformers, GLUE the folder with CoLA, MRPC, RTE, STS-B and SST-2 in it, of which the first 10,000 training
sentences are used. VENV has torch, transformers, scipy and scikit-learn. Groups: lathe, transformers (fine-tuning, a record for each
task and seed: dev scores, seconds of the steps, tokens), embed (STS-B dev Spearman, and the largest difference of embeddings), time (60
steps of MRPC, or `--steps`, of both in each of `--rounds` rounds).

The recipe of both: AdamW 0.9/0.999, no decay of biases and norms, 0.01 else; 3 epochs of batches of 32; warm-up over a tenth, then
linear to 0; clip 1; texts of at most 128 tokens, those of similar lengths together, each batch padded to its longest. Seconds are
those of the steps alone, without evaluation and checkpoints. Seeds alternate between the two, so that drift of the machine hits both.
"""

import argparse
import json
import pathlib
import shutil
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]
sys.path.append(str(ROOT / "bench"))
from record import record  # noqa: E402

RECORD = ROOT / "bench/runs/glue.jsonl"
TASKS = {"MRPC": "accuracy f1", "RTE": "accuracy", "CoLA": "matthews", "STS-B": "pearson spearman", "SST-2": "accuracy"}
SENTENCES = 10_000

parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
parser.add_argument("--lathe", default=ROOT / "target/release/lathe")
parser.add_argument("--model", type=pathlib.Path)
parser.add_argument("--data", type=pathlib.Path)
parser.add_argument("--python", default=sys.executable)
parser.add_argument("--work", type=pathlib.Path, default=ROOT / "target/glue")
parser.add_argument("--record", type=pathlib.Path, default=RECORD)
parser.add_argument("--threads", default="2")
parser.add_argument("--seeds", type=int, default=3)
parser.add_argument("--steps", type=int, help="instead of 3 epochs, to try the script")
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--name", default="MRPC", help="of the group time")
parser.add_argument("--note", default="")
parser.add_argument("--tasks", nargs="*", default=list(TASKS))
parser.add_argument("--only", nargs="*")
parser.add_argument("--table", action="store_true")
args = parser.parse_args()


def data():
    """The folder of the tasks, with fewer sentences of SST-2."""
    folder = args.work / "data"
    for task in args.tasks:
        to = folder / task
        if to.exists():
            continue
        to.mkdir(parents=True)
        shutil.copy(args.data / task / "dev.tsv", to)
        lines = (args.data / task / "train.tsv").read_bytes().splitlines(keepends=True)
        (to / "train.tsv").write_bytes(b"".join(lines[: SENTENCES + 1] if task == "SST-2" else lines))
    return folder


def lathe(task, seed):
    out = args.work / f"lathe-{task}-{seed}"
    command = [args.lathe, "train", "--init", args.model, "--task", f"glue:{task}", "--data", data(), "--out", out, "--seq", "128"]
    command += ["--seed", str(seed), "--eval-every", "1000000", "--checkpoint-every", "1000000", "--threads", args.threads]
    command += ["--steps", str(args.steps)] if args.steps else []
    if (out / "run.toml").exists():
        command = [args.lathe, "train", "--resume", out, "--threads", args.threads]
    found = json.loads(subprocess.run([*command, "--json"], check=True, stdout=subprocess.PIPE, text=True).stdout)
    shutil.rmtree(out / "checkpoints", ignore_errors=True)
    seconds = found["tokens"] / found["tokens_per_s"]
    return {**{name: found["valid"][name] for name in TASKS[task].split()}, "seconds": seconds, "steps": found["steps"], "tokens": found["tokens"]}


def transformers(task, seed):
    worker = pathlib.Path(__file__).with_name("worker.py")
    command = [args.python, worker, args.model, data() / task, task, str(seed), args.threads, str(args.steps or 0)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1])


def timed(i):
    """A round of both, who begins changes."""
    found = {}
    for name, own in [("lathe", lathe), ("transformers", transformers)][:: 1 if i % 2 else -1]:
        shutil.rmtree(args.work / f"lathe-MRPC-{i}", ignore_errors=True)
        found[name] = own("MRPC", i)
    return {**found, "threads": args.threads, "note": args.note}


def timing():
    args.steps = args.steps or 60
    return [(f"{args.name} {i}", lambda i=i: timed(i)) for i in range(args.rounds)]


def embed():
    dev = data() / "STS-B/dev.tsv"
    found = subprocess.run(
        [args.lathe, "eval", args.model, "--task", "embed", "--data", dev, "--json", "--threads", args.threads],
        check=True, stdout=subprocess.PIPE, text=True,
    )
    lines = args.work / "sentences.txt"
    rows = [line.split("\t") for line in dev.read_text(encoding="utf-8-sig").splitlines()[1:]]
    lines.write_text("".join(f"{row[7]}\n{row[8]}\n" for row in rows))
    vectors = args.work / "vectors.jsonl"
    with vectors.open("w") as file:
        command = [args.lathe, "predict", args.model, "--task", "embed", "--data", lines, "--threads", args.threads]
        subprocess.run(command, check=True, stdout=file)
    worker = pathlib.Path(__file__).with_name("worker.py")
    command = [args.python, worker, args.model, dev, "embed", vectors, args.threads, "0"]
    theirs = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1])
    return {"spearman": json.loads(found.stdout)["spearman"], **theirs}


def fine_tuning(own):
    return lambda: [
        (f"{task} {seed}", lambda task=task, seed=seed: own(task, seed)) for task in args.tasks for seed in range(args.seeds)
    ]


GROUPS = {
    "embed": lambda: [("STS-B", embed)],
    "lathe": fine_tuning(lathe),
    "transformers": fine_tuning(transformers),
    "time": timing,
}


def table():
    lines = [json.loads(line) for line in args.record.read_text().splitlines()]
    print("| task | metric | lathe | transformers | time |\n|---|---|---|---|---|")
    for task in args.tasks:
        of = {
            group: [line["result"] for line in lines if line["group"] == group and line["name"].split()[0] == task]
            for group in ["lathe", "transformers"]
        }
        if not all(of.values()):
            continue
        seconds = [statistics.median(run["seconds"] for run in of[group]) for group in of]
        for metric in TASKS[task].split():
            cells = []
            for runs in of.values():
                values = [100 * run[metric] for run in runs]
                apart = statistics.stdev(values) if len(values) > 1 else 0.0
                cells.append(f"{statistics.median(values):.2f} ± {apart:.2f}")
            print(f"| {task} | {metric} | {' | '.join(cells)} | {seconds[0] / seconds[1]:.2f} |")
    for line in lines:
        if line["group"] == "embed":
            print("\nembeddings:", line["result"])
    rounds = [line for line in lines if line["group"] == "time"]
    for name in dict.fromkeys(line["name"].rsplit(" ", 1)[0] for line in rounds):
        of_name = [line["result"] for line in rounds if line["name"].rsplit(" ", 1)[0] == name]
        # Each side has an order of its own, so that batches of few steps differ.
        per_token = lambda run: 1e6 * run["seconds"] / run["tokens"]  # noqa: E731
        ratios = sorted(per_token(one["lathe"]) / per_token(one["transformers"]) for one in of_name)
        ours, theirs = (statistics.median(per_token(one[side]) for one in of_name) for side in ["lathe", "transformers"])
        print(f"\n{name}: {ours:.0f} and {theirs:.0f} us a real token, {statistics.median(ratios):.2f} [{ratios[0]:.2f}, {ratios[-1]:.2f}]")


if __name__ == "__main__":
    if args.table:
        table()
        sys.exit()
    args.work.mkdir(parents=True, exist_ok=True)
    args.record.parent.mkdir(parents=True, exist_ok=True)
    if args.only:
        record(args.record, GROUPS, args.only)
    else:
        record(args.record, {"embed": GROUPS["embed"]}, None)
        for name in [(task, seed) for task in args.tasks for seed in range(args.seeds)]:
            for group, own in [("lathe", lathe), ("transformers", transformers)]:
                one = [(f"{name[0]} {name[1]}", lambda own=own, name=name: own(*name))]
                record(args.record, {group: lambda one=one: one}, None)
