"""lathe train and nanoGPT's train.py on tinyshakespeare, with the small CPU setting of nanoGPT's README.

    python3 bench/nanogpt/run.py --nanogpt CLONE --text input.txt --python PYTHON_WITH_TORCH

CLONE is a checkout of github.com/karpathy/nanoGPT. Rounds alternate; each result is appended to the runs file as it
comes. Wall time is that of the whole process, evaluations included: both evaluate every 250 steps on as many tokens,
and lathe once more on the whole held-out tenth.
"""

import argparse
import datetime
import json
import os
import pathlib
import pickle
import re
import shutil
import statistics
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).parents[2]
parser = argparse.ArgumentParser()
parser.add_argument("--nanogpt", required=True, type=pathlib.Path)
parser.add_argument("--text", required=True, type=pathlib.Path)
parser.add_argument("--python", default="python3")
parser.add_argument("--lathe", default=ROOT / "target/release/lathe")
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--lr", default="0.003")
args = parser.parse_args()
stamp = datetime.date.today().isoformat()
record = ROOT / f"bench/runs/{stamp}-nanogpt.json"
runs = json.loads(record.read_text()) if record.exists() else []
env = os.environ | {"OMP_NUM_THREADS": str(args.threads), "MKL_NUM_THREADS": str(args.threads)}


def prepare(folder):
    """What nanoGPT's data/shakespeare_char/prepare.py writes, without its download."""
    text = args.text.read_text()
    chars = sorted(set(text))
    ids = [chars.index(c) for c in text]
    split = int(len(text) * 0.9)
    import array

    for name, part in [("train", ids[:split]), ("val", ids[split:])]:
        (folder / f"{name}.bin").write_bytes(array.array("H", part).tobytes())
    meta = {"vocab_size": len(chars), "itos": dict(enumerate(chars)), "stoi": {c: i for i, c in enumerate(chars)}}
    (folder / "meta.pkl").write_bytes(pickle.dumps(meta))


def nanogpt(work):
    command = [args.python, "train.py", "config/train_shakespeare_char.py", "--device=cpu", "--compile=False",
               "--eval_iters=20", "--log_interval=1", "--block_size=64", "--batch_size=12", "--n_layer=4", "--n_head=4",
               "--n_embd=128", "--max_iters=2000", "--lr_decay_iters=2000", "--dropout=0.0"]  # fmt: skip
    start = time.monotonic()
    out = subprocess.run(command, cwd=work, env=env, check=True, capture_output=True, text=True).stdout
    wall = time.monotonic() - start
    steps = [float(x) for x in re.findall(r"time ([\d.]+)ms", out)]
    return {"wall_s": wall, "step_ms": statistics.median(steps), "valid_loss_estimate": float(re.findall(r"val loss ([\d.]+)", out)[-1])}


def lathe(work):
    command = [args.lathe, "train", "--model", "small_gpt2", "--data", args.text, "--steps", "2000", "--batch", "12",
               "--lr", args.lr, "--eval-every", "250", "--eval-tokens", "30720", "--out", work / "out", "--json",
               "--threads", str(args.threads)]  # fmt: skip
    start = time.monotonic()
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    wall = time.monotonic() - start
    result = json.loads(out)
    return {"wall_s": wall, "step_ms": 1000 * 12 * 64 / result["tokens_per_s"], "valid_loss": result["valid"]["loss"]}


with tempfile.TemporaryDirectory() as temporary:
    clone = pathlib.Path(temporary) / "nanogpt"
    shutil.copytree(args.nanogpt, clone, ignore=shutil.ignore_patterns(".git"))
    prepare(clone / "data/shakespeare_char")
    for round in range(args.rounds):
        results = {"lr": args.lr, "nanogpt": nanogpt(clone)}
        work = pathlib.Path(temporary) / f"lathe{round}"
        work.mkdir()
        results["lathe"] = lathe(work)
        results["wall_ratio"] = results["lathe"]["wall_s"] / results["nanogpt"]["wall_s"]
        runs.append(results)
        record.write_text(json.dumps(runs, indent=1) + "\n")
        print(json.dumps(results), flush=True)
