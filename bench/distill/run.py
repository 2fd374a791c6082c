"""What distillation gives a student of half the depth, or of half the width, at equal steps; each result is recorded as it
comes, and what is recorded is not run again.

    python3 bench/distill/run.py [--only GROUP ...] [--seeds 3] [--table]

The teacher is a GPT-2 of 8 layers on the built-in language; students of one group differ in what they learn from it alone.
Groups: fresh (half the depth, fresh weights), inherited (half the depth, every second layer of the teacher), narrow (half
the width, projections). "ce" learns from the text alone and is the control: the teacher is not asked. "blocks, then kl"
spends half of its steps on each. Records are lines of bench/runs/distill.jsonl: the loss on held-out text, KL from the teacher as the last step had it,
and the seconds of the steps. Folders are kept under --work, so that whatever was killed goes on. `--table` prints means and
deviations over seeds as Markdown.
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

RECORD = ROOT / "bench/runs/distill.jsonl"
parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
parser.add_argument("--lathe", default=ROOT / "target/release/lathe")
parser.add_argument("--work", type=pathlib.Path, default=ROOT / "target/distill")
parser.add_argument("--threads", default="2")
parser.add_argument("--seeds", type=int, default=3)
parser.add_argument("--steps", type=int, default=400, help="of a student")
parser.add_argument("--teacher-steps", type=int, default=2000)
parser.add_argument("--only", nargs="*")
parser.add_argument("--table", action="store_true")
args = parser.parse_args()

DATA = "--data builtin:2 --precision bf16"
MODEL = "--backbone gpt2 --layers (sf)x8 --d-model 64 --heads 4 --inner 256 --vocab 256 --max-len 128"
STUDENT = f"{DATA} --batch 16 --lr 0.001 --eval-every 1000000 --checkpoint-every 200"

# Name, flags of the lesson. Steps are equal; where there are two runs, each has half of them.
WAYS = [
    ("ce", ["--kl 0 --ce 1"]),  # the control
    ("kl", ["--kl 1"]),
    ("kl, T 2", ["--kl 1 --temperature 2"]),
    ("kl and ce", ["--kl 0.5 --ce 0.5"]),
    ("mse", ["--kl 0 --mse 1"]),
    ("kl of 32 kept tokens", ["--kl 1 --cache-logits 32"]),
    ("kl and hidden", ["--kl 1 --hidden 1"]),
    ("kl and hidden, mse", ["--kl 1 --hidden 1 --hidden-loss mse"]),
    ("kl and maps", ["--kl 1 --attention-maps 1"]),
    ("kl, hidden and maps", ["--kl 1 --hidden 1 --attention-maps 1"]),
    ("progressive", ["--kl 1 --hidden 1 --attention-maps 1 --transfer progressive"]),
    ("blocks, then kl", ["--transfer blocks", "--kl 1"]),
]
GROUPS = {
    "fresh": "--layers (sf)x4",
    "inherited": "--layers (sf)x4 --inherit true",
    "narrow": "--layers (sf)x8 --d-model 32 --heads 2 --inner 128",
}


def run(verb, words, out):
    """Begins a run, or goes on with the one that is there."""
    begun = (out / "run.toml").exists()
    command = [args.lathe, verb, *(["--resume", out] if begun else [*words.split(), "--out", out])]
    done = subprocess.run([*command, "--json", "--threads", args.threads], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def teacher():
    out = args.work / f"teacher-{args.teacher_steps}"
    flags = f"{DATA} {MODEL} --steps {args.teacher_steps} --batch 16 --lr 0.002 --eval-every 1000000"
    run("train", flags, out)
    return out


def last_kl(out):
    """KL from the teacher as the last record has it, if it has."""
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return [line["terms"].get("kl") for line in lines if "terms" in line][-1]


def student(group, name, lessons, seed):
    of = teacher()
    stem = f"{group} {name} {seed}".replace(",", "").replace(" ", "_")
    outs = [args.work / f"{stem}_{i}" for i in range(len(lessons))]
    seconds = 0.0
    for i, (lesson, out) in enumerate(zip(lessons, outs, strict=True)):
        who = GROUPS[group] if i == 0 else f"--student {outs[i - 1]}"
        flags = f"--teacher {of} {who} {STUDENT} {lesson} --steps {args.steps // len(lessons)} --seed {seed}"
        result = run("distill", flags, out)
        seconds += result["seconds"]
    found = {"valid": result["valid"]["loss"], "teacher": result["teacher"]["loss"], "kl": last_kl(outs[-1])}
    for out in outs:
        shutil.rmtree(out)
    return {**found, "seconds": seconds, "steps": args.steps, "flags": lessons}


def group(name):
    def runs():
        for seed in range(args.seeds):
            for way, lessons in WAYS:
                if name != "inherited" and "blocks" in way:
                    continue  # blocks alone need the teacher's width and its embedding
                if name == "inherited" and way not in ("ce", "kl", "kl and hidden", "blocks, then kl"):
                    continue
                yield f"{way}, seed {seed}", lambda way=way, lessons=lessons, seed=seed: student(name, way, lessons, seed)

    return runs


def table():
    records = [json.loads(line) for line in RECORD.read_text().splitlines()]
    for of in dict.fromkeys(one["group"] for one in records):
        rows = {}
        for one in records:
            if one["group"] == of:
                rows.setdefault(one["name"].rsplit(", seed", 1)[0], []).append(one["result"])
        teachers = {one["teacher"] for results in rows.values() for one in results if "teacher" in one}
        print(f"\n### {of}; the teacher: {', '.join(f'{loss:.4f}' for loss in sorted(teachers))}\n")
        print("| | valid loss | KL from the teacher | seconds |\n|---|---|---|---|")
        for name, results in rows.items():
            losses = [one["valid"] for one in results]
            spread = f" ± {statistics.stdev(losses):.4f}" if len(losses) > 1 else ""
            kls = [one["kl"] for one in results if one.get("kl") is not None]
            kl = f"{statistics.mean(kls):.4f}" if kls else ""
            print(f"| {name} | {statistics.mean(losses):.4f}{spread} | {kl} | {statistics.mean(one['seconds'] for one in results):.0f} |")


if args.table:
    table()
    sys.exit()
args.work.mkdir(parents=True, exist_ok=True)
record(RECORD, {name: group(name) for name in GROUPS}, args.only)
