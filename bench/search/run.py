"""The figures of profiling and searching in docs/results.md, each recorded as it comes; what is recorded is not run again.

    python3 bench/search/run.py [--enwik8 enwik8.gz] [--only GROUP ...]

Groups: check (predicted against measured), published (the search of LTS), measured (predicting against measuring every
candidate), seeds (searchers over five seeds, as predicted), seeds_measured (the same, measured), noise (a profile under load), topology (equal parameters, different shapes),
audit (proxies against trained models). Records are lines of bench/runs/search.jsonl. Folders are kept under --work, so
that whatever was killed goes on.
"""

import argparse
import gzip
import json
import multiprocessing
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).parents[2]
sys.path.append(str(ROOT / "bench"))
from record import record  # noqa: E402

RECORD = ROOT / "bench/runs/search.jsonl"
parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
parser.add_argument("--lathe", default=ROOT / "target/release/lathe")
parser.add_argument("--enwik8", type=pathlib.Path, help="enwik8 or enwik8.gz")
parser.add_argument("--work", type=pathlib.Path, default=ROOT / "target/search")
parser.add_argument("--only", nargs="*")
args = parser.parse_args()
args.work.mkdir(parents=True, exist_ok=True)
SPACE = ["lts_gpt2", "--seq", "192"]
SMALL = ["--iterations", "15", "--population", "40"]
MEASURED = 96  # points of each frontier that are measured where searchers are compared


def lathe(*flags, cache=None):
    env = {**os.environ, "LATHE_CACHE": str(cache or args.work / "cache")}
    out = subprocess.run([str(args.lathe), *map(str, flags), "--threads", "2", "--json"], check=True, stdout=subprocess.PIPE, text=True, env=env).stdout
    return json.loads(out)


def hypervolumes(folders):
    compared = lathe("search", "compare", *folders)["searches"]
    return [one["hypervolume"] for one in compared]


def burn():
    while True:
        pass


def check():
    yield "50 random architectures", lambda: {k: v for k, v in lathe("profile", *SPACE, "--models", 16, "--check", 50).items() if k in ("calibration", "check", "others_share")}


def published():
    def run():
        cache = args.work / f"empty-{time.time():.0f}"
        begin = time.time()
        found = lathe("search", "pareto", *SPACE, "--searcher", "lts", "--out", args.work / "published", cache=cache)
        return {"seconds": time.time() - begin, **{k: found[k] for k in ("evaluated", "mean_saving", "baselines")}, "points": len(found["frontier"]), "frontier": found["frontier"]}
    yield "30 iterations, population 100, empty cache", run


def measured():
    def run():
        both = [args.work / "predicted", args.work / "measured"]
        begin = time.time()
        lathe("search", "pareto", *SPACE, *SMALL, "--searcher", "lts", "--out", both[0])
        middle = time.time()
        lathe("search", "pareto", *SPACE, *SMALL, "--searcher", "lts", "--measure-all", "--out", both[1])
        volumes = hypervolumes(both)
        return {"predicted": volumes[0], "measured": volumes[1], "ratio": volumes[0] / volumes[1], "seconds": [middle - begin, time.time() - middle]}
    yield "hypervolume, 15 iterations, population 40", run


def searched(seed):
    """The published size by every searcher, all by one calibrated table; what each found, and where."""
    table = args.work / "table.json"
    if not table.exists():
        lathe("profile", *SPACE, "--models", 16, "--out", table)
    folders = {name: args.work / f"{name}-{seed}" for name in ("lts", "nsga2", "random")}
    return folders, {name: lathe("search", "pareto", *SPACE, "--seed", seed, "--searcher", name, "--table", table, "--no-measure", "--most-measured", 0, "--out", folder) for name, folder in folders.items()}


def seeds():
    """Whole frontiers, as predicted."""
    for seed in range(5):
        def run(seed=seed):
            folders, found = searched(seed)
            return {"hypervolume": dict(zip(folders, hypervolumes(folders.values()))), "evaluated": {name: one["evaluated"] for name, one in found.items()}, "points": {name: len(one["frontier"]) for name, one in found.items()}}
        yield f"seed {seed}", run


def seeds_measured():
    """The points that dominate most of each frontier, measured side by side."""
    for seed in range(5):
        def run(seed=seed):
            folders, _ = searched(seed)
            return {"hypervolume": dict(zip(folders, hypervolumes([*folders.values(), "--measure", MEASURED, "--rounds", 1]))), "points": MEASURED}
        yield f"seed {seed}", run


def noise():
    def run():
        quiet = lathe("profile", "cpu", "--fresh", cache=args.work / "quiet")
        load = multiprocessing.Process(target=burn, daemon=True)
        load.start()
        begin = subprocess.run([str(args.lathe), "profile", "cpu", "--fresh", "--threads", "2", "--json"], check=True, capture_output=True, text=True, env={**os.environ, "LATHE_CACHE": str(args.work / "loaded")})
        load.terminate()
        loaded = json.loads(begin.stdout)
        ratios = {a["block"]: b["latency_us"]["median"] / a["latency_us"]["median"] for a, b in zip(quiet["blocks"], loaded["blocks"])}
        return {"ratios": ratios, "others_share": loaded.get("others_share"), "said": begin.stderr}
    yield "one core busy", run


def topology():
    """LTS's claim: equal decoder parameters, different aspect ratios (inner = 2 * d_model, 8 heads there, 4 here)."""
    text = split()
    for size, shapes in {"0.4 M": [(64, 12), (96, 5), (128, 3), (160, 2)], "1.2 M": [(96, 16), (128, 9), (192, 4), (272, 2)]}.items():
        for width, layers in shapes:
            def run(width=width, layers=layers):
                model = ["--backbone", "gpt2", "--layers", f"(sf)x{layers}", "--d-model", width, "--heads", 4, "--inner", 2 * width, "--vocab", 256, "--max-len", 128]
                out = args.work / f"topology-{width}-{layers}"
                flags = ["--resume", out] if (out / "run.toml").exists() else [*model, "--data", text[0], "--valid", text[1], "--steps", 1000, "--batch", 16, "--lr", 0.002, "--warmup", 100, "--precision", "bf16", "--eval-every", 1000, "--out", out]
                trained = lathe("train", *flags)
                count, bench = lathe("count", *model), lathe("bench", *model, "--seq", 128, "--seconds", 2)
                return {"decoder": count["params"]["decoder"], "bits_per_byte": trained["valid"]["bits_per_byte"], "perplexity": trained["valid"]["perplexity"], "latency_ms": bench["latency_ms"], "peak_bytes": bench["peak_bytes"]}
            yield f"{size}, d_model {width}, {layers} layers", run


def audit():
    text = split()
    def run():
        found = lathe("proxies", "audit", "--space", "proxies_small", "--data", text[0], "--valid", text[1], "--train-k", 40, "--steps", 600, "--lr", 0.003, "--precision", "bf16", "--plots", args.work / "audit-plots", "--out", args.work / "audit")
        del found["plots"]  # paths of this machine
        return found
    yield "40 architectures on enwik8", run


def split():
    """The first 5 MB of enwik8: 4.5 to train on, 0.25 to validate on."""
    files = args.work / "train.txt", args.work / "valid.txt"
    if not files[1].exists():
        opened = gzip.open if args.enwik8.suffix == ".gz" else open
        with opened(args.enwik8, "rb") as file:
            text = file.read(5_000_000)
        files[0].write_bytes(text[:4_500_000])
        files[1].write_bytes(text[4_500_000:4_750_000])
    return files


groups = {"check": check, "published": published, "measured": measured, "seeds": seeds, "seeds_measured": seeds_measured, "noise": noise, "topology": topology, "audit": audit}
if not args.enwik8:
    groups = {name: group for name, group in groups.items() if group not in (topology, audit)}
record(RECORD, groups, args.only)
