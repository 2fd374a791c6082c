"""Kills a training run with SIGKILL at random moments, goes on each time, and compares the end with a run that was left alone.

    python3 bench/kill/run.py [--kills 25]

Checkpoints are written after every second step, so that many kills hit the writing; half-written ones are counted.
"""

import argparse
import hashlib
import json
import pathlib
import random
import signal
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).parents[2]
parser = argparse.ArgumentParser()
parser.add_argument("--lathe", default=str(ROOT / "target/release/lathe"))
parser.add_argument("--kills", type=int, default=25)
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
FLAGS = ("--data builtin:0.2 --backbone transformer_xl --layers (sm4k2)x2 --d-model 192 --heads 4 --inner 384 --vocab 256 --tgt-len 32 --mem-len 32 "
         "--dropout 0.1 --steps 400 --batch 4 --accumulate 2 --checkpoint-every 2 --eval-every 50 --eval-tokens 2048 --threads 2").split()


def digest(folder):
    result = json.loads((folder / "result.json").read_text())
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest(), result["loss"], result["valid"]


with tempfile.TemporaryDirectory() as temporary:
    whole, killed = pathlib.Path(temporary) / "whole", pathlib.Path(temporary) / "killed"
    begin = time.time()
    subprocess.run([args.lathe, "train", *FLAGS, "--out", str(whole), "--json"], check=True, capture_output=True)
    seconds = time.time() - begin
    print(f"the run takes {seconds:.1f} s", flush=True)
    rng = random.Random(args.seed)
    kills, writing = 0, 0
    while not (killed / "result.json").exists():
        command = ["--resume", str(killed)] if (killed / "run.toml").exists() else [*FLAGS, "--out", str(killed)]
        process = subprocess.Popen([args.lathe, "train", *command, "--json"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if kills < args.kills:
            time.sleep(rng.uniform(0.02, 1.4 * seconds / args.kills))
            process.send_signal(signal.SIGKILL)
            died = process.wait() == -signal.SIGKILL
            kills += died
            complete = {path.name for path in (killed / "checkpoints").glob("*") if (path / "manifest.json").exists()}
            writing += died and any(path.name not in complete for path in (killed / "checkpoints").glob("*"))
        else:
            assert process.wait() == 0
    print(json.dumps({"kills": kills, "while_writing": writing, "same": digest(whole) == digest(killed)}))
    assert digest(whole) == digest(killed)
