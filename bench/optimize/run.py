"""The figures of optimising trained models in docs/results.md, each recorded as it comes; what is recorded is not run again.

    python3 bench/optimize/run.py --stories DIR --text stories.txt [--other other.txt] [--only GROUP ...]
    python3 bench/optimize/run.py --table

Groups: first (with nothing given, on a quiet machine and on one of which a core is busy, three times each), stories (a Llama of 15 M with all levers, prompts and decoding), structure (its child with fewer
tokens, blocks and widths alone in f32, three seeds at two targets), paired (the same jobs with hardly any recovery; then everybody's
model, as assembled, learns for as many steps and is judged on --other), audit (scores of single blocks against whole architectures), general
(--general FILE, a GGUF file of a general model, on the same text, --outside FILE), room (--enwik8 FILE: a byte-level GPT-2 and a
Transformer-XL that are trained first). Records are lines of bench/runs/optimize.jsonl. Folders are kept under --work, so that
whatever was killed goes on. Minutes of each run by --minutes.
"""

import argparse
import gzip
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]
sys.path.append(str(ROOT / "bench"))
from record import record  # noqa: E402

RECORD = ROOT / "bench/runs/optimize.jsonl"
parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
parser.add_argument("--lathe", default=ROOT / "target/release/lathe")
parser.add_argument("--stories", type=pathlib.Path, help="folder of stories15M")
parser.add_argument("--text", type=pathlib.Path, help="stories")
parser.add_argument("--other", type=pathlib.Path, help="other stories, to compare on once more")
parser.add_argument("--general", type=pathlib.Path, help="GGUF file of a general model")
parser.add_argument("--outside", type=pathlib.Path, help="a text of another kind")
parser.add_argument("--enwik8", type=pathlib.Path, help="enwik8 or enwik8.gz")
parser.add_argument("--minutes", type=float, help="budget of each run [the group's own]")
parser.add_argument("--threads", default="2")
parser.add_argument("--equal-steps", type=int, default=80, help="of each recovery of group paired")
parser.add_argument("--work", type=pathlib.Path, default=ROOT / "target/optimize")
parser.add_argument("--only", nargs="*")
parser.add_argument("--table", action="store_true", help="print what is recorded as tables, and run nothing")
args = parser.parse_args()


def lathe(*flags):
    env = {**os.environ, "LATHE_CACHE": str(args.work / "cache")}
    command = [str(args.lathe), *map(str, flags), "--threads", args.threads, "--json"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=env).stdout)


def optimize(name, minutes, *flags, other=None):
    """A job, in a few figures."""
    out = args.work / name
    budget = args.minutes or minutes
    found = lathe("optimize", *flags, "--budget", budget, "--out", out)
    bits = lambda test: None if test is None else test["bits_per_byte"]
    result = {
        "minutes": budget,
        "threads": int(args.threads),
        "seconds": found["seconds"],
        "baseline_ms": found["baseline"]["latency_ms"],
        "speedup": found["speedup"],
        "speedup_interval": found["speedup_interval"],
        "estimated": found["estimated_latency"],
        "target": found["target"],
        "from": found["from"],
        "recipe": found["recipe"],
        "bits_per_byte": {side: bits(found["test"][side]) for side in ("baseline", "found", "continued")},
        "kl": found["kl"],
        "same_top": found["same_top"],
        "levers": found["levers"],
        "frontier": [
            {key: point[key] for key in ("name", "layers", "speedup", "bits_per_byte", "estimated", "bytes", "peak_bytes")}
            for point in found["frontier"]
        ],
        "proposers": [
            {key: one[key] for key in ("name", "layers", "assembled", "loss", "latency_ms", "rounds")} for one in found["proposers"]
        ],
        "audit": found.get("audit"),
        "outside": {side: bits(test) for side, test in found["outside"].items()} if found.get("outside") else None,
    }
    if other:
        documents = ["--documents"] if "<|endoftext|>" in other.read_text()[:100_000] else []
        setting = [flag for key in ("--mode", "--seq") if key in flags for flag in (key, flags[flags.index(key) + 1])]
        again = lathe("compare", out / "baseline", out / "found", "--data", other, *documents, *setting)
        result["compared"] = {key: again[key] for key in ("speedup", "bits_per_byte", "same_top")}
    return result


def loaded(run):
    """The same with a process that keeps one core busy all the while."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        try:
            return run()
        finally:
            busy.kill()


def first():
    for time in range(3):
        run = lambda name: optimize(name, 10)
        yield f"nothing given, quiet, {time}", lambda n=f"first-quiet-{time}": run(n)
        yield f"nothing given, one core busy, {time}", lambda n=f"first-loaded-{time}": loaded(lambda: run(n))


def stories():
    for mode, seq, target in [("prompt", 128, 0.33), ("decode", 64, 0.2)]:
        flags = ["--model", args.stories, "--data", args.text, "--mode", mode, "--seq", seq, "--target-latency", target]
        yield f"{mode}, all levers, target {target}", lambda f=flags, m=mode: optimize(f"stories-{m}", 60, *f, other=args.other)


def child():
    """stories15M without the tokens that the text never uses."""
    out = args.work / "stories-vocab"
    if not out.exists():
        lathe("prune", args.stories, "--data", args.text, "--vocab", "--documents", "--seconds", 0, "--out", out)
    return out


def structure():
    for target in (0.8, 0.6):
        for seed in range(3):
            flags = ["--data", args.text, "--mode", "prompt", "--seq", 128, "--levers", "blocks,width", "--seed", seed]
            flags += ["--target-latency", target]
            name = f"structure-{target}-{seed}"
            yield f"target {target}, seed {seed}", lambda f=flags, n=name: optimize(n, 30, "--model", child(), *f)


def recovered(model, name, seed):
    """Bits per byte on other stories of everybody's model: as assembled, and after as many steps from the original's predictions."""
    out = args.work / name
    found = {}
    for assembled in sorted((out / "recover").glob("*/assembled")):
        trained = out / f"equal-{args.equal_steps}" / assembled.parent.name
        if not (trained / "result.json").exists():
            begin = ["--teacher", model, "--student", assembled, "--data", out / "tokens", "--steps", args.equal_steps,
                     "--batch", 8, "--seq", 256, "--lr", 2e-4, "--weight-decay", 0.01, "--floor", 0.05, "--precision", "bf16",
                     "--eval-every", 1 << 30, "--checkpoint-every", 40, "--seed", seed, "--out", trained]  # fmt: skip
            lathe("distill", *(["--resume", trained] if (trained / "run.toml").exists() else begin))
        bits = lambda folder: lathe("eval", folder, "--data", args.other, "--documents")["bits_per_byte"]
        layers = lathe("count", assembled)["layers"]
        found[assembled.parent.name] = {"layers": layers, "assembled": bits(assembled), "recovered": bits(trained)}
    return found


def paired():
    for seed in range(3):
        for target in (0.6, 0.8):
            name = f"paired-{target}-{seed}"
            flags = ["--data", args.text, "--mode", "prompt", "--seq", 128, "--levers", "blocks,width", "--seed", seed]
            flags += ["--target-latency", target, "--steps", 8, "--model", child()]

            def run(flags=flags, name=name, seed=seed):
                searched = optimize(name, 12, *flags)
                measured = {one["name"]: one["latency_ms"] / searched["baseline_ms"] for one in searched["proposers"]}
                original = lathe("eval", child(), "--data", args.other, "--documents")["bits_per_byte"]
                everybody = recovered(child(), name, seed)
                for who, one in everybody.items():
                    one["measured"] = measured.get(who)
                return {"original": original, "steps": args.equal_steps, "everybody": everybody, "minutes": searched["minutes"],
                        "threads": searched["threads"]}  # fmt: skip

            yield f"target {target}, seed {seed}", run


def audit():
    flags = ["--data", args.text, "--levers", "blocks,width,experts,rank", "--proposers", "blockwise", "--audit", 30]
    yield "stories15M, 30 architectures", lambda: optimize("audit", 20, "--model", child(), *flags)


def general():
    common = ["--model", args.general, "--data", args.text, "--mode", "prompt", "--seq", 128, "--frontier", "0.7,0.35"]
    common += ["--target-latency", 0.5] + (["--outside", args.outside] if args.outside else [])
    for name, levers in [("structure", "blocks,width"), ("all levers", "")]:
        flags = common + (["--levers", levers] if levers else [])
        yield name, lambda f=flags, n=name: optimize(f"general-{n.replace(' ', '-')}", 90, *f)


def room():
    """Models of at most 5 M parameters that are trained first, on 10 MB, and made half as slow by structure alone."""
    text = args.work / "enwik8.txt"
    if not text.exists():
        with (gzip.open if args.enwik8.suffix == ".gz" else open)(args.enwik8, "rb") as file:
            text.write_bytes(file.read(12_000_000))
    shapes = {
        "gpt2": ["--backbone", "gpt2", "--layers", "(sf)x6", "--d-model", 256, "--heads", 4, "--max-len", 256],
        "transformer_xl": ["--backbone", "transformer_xl", "--layers", "(sf)x6", "--d-model", 256, "--heads", 4, "--tgt-len", 128],
    }
    for name, shape in shapes.items():
        model = args.work / f"room-{name}"
        if not (model / "result.json").exists():
            resume = ["--resume", model] if (model / "run.toml").exists() else None
            recipe = ["--data", text, "--steps", 8000, "--batch", 16, "--lr", 0.002, "--precision", "bf16", "--out", model]
            lathe("train", *(resume or [*shape, *recipe]))
        for seed in range(3):
            flags = ["--model", model, "--data", text, "--levers", "blocks,width,experts", "--target-latency", 0.5, "--seed", seed]
            yield f"{name}, seed {seed}", lambda f=flags, n=f"room-{name}-{seed}": optimize(n, 20, *f)


def table():
    records = [json.loads(line) for line in RECORD.read_text().splitlines()]
    pairs = [one for one in records if one["group"] == "paired"]
    for target in dict.fromkeys(one["name"].split(",")[0] for one in pairs):
        runs = [one["result"]["everybody"] for one in pairs if one["name"].startswith(target + ",")]
        print(f"## paired: {target}, {len(runs)} seeds; bits per byte on other stories, less than blockwise's by")
        for who in dict.fromkeys(name for run in runs for name in run):
            more = [run[who]["recovered"] - run["blockwise"]["recovered"] for run in runs if who in run]
            spread = f" ± {statistics.stdev(more):.4f}" if len(more) > 1 else ""
            mean = statistics.mean(run[who]["recovered"] for run in runs if who in run)
            print(f"| {who} | {mean:.4f} | {statistics.mean(more):+.4f}{spread} |")
    for line in (one for one in records if one["group"] != "paired"):
        result, bits = line["result"], line["result"]["bits_per_byte"]
        print(f"## {line['group']}: {line['name']}, {result['minutes']} minutes")
        print(f"original {bits['baseline']:.4f} bits per byte, control {bits['continued']:.4f}")
        for point in result["frontier"]:
            change = 100 * (point["bits_per_byte"] / bits["baseline"] - 1)
            print(f"| {point['name']} | {point['speedup']:.2f} x | {point['bits_per_byte']:.4f} | {change:+.1f} % | `{point['layers']}` |")
        for one in result["proposers"]:
            rounds = ", ".join(f"{judged['loss']:.3f}" for judged in one["rounds"])
            print(f"| {one['name']} | {one['assembled']:.3f} | {rounds} | `{one['layers']}` |")
        if result["audit"]:
            print(result["audit"]["spearman"])


GROUPS = {"first": first, "stories": stories, "structure": structure, "paired": paired, "audit": audit, "general": general, "room": room}
if args.table:
    table()
else:
    args.work.mkdir(parents=True, exist_ok=True)
    record(RECORD, GROUPS, args.only)
