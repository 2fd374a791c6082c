"""Makes the model that ships with its weights, the storyteller, and half of its layers by the same recipe, which must be
at least 5 % worse; what is recorded is not run again.

    python3 bench/demo/run.py [--pieces SECONDS] [--only train | longer | ship]

train: both trainings, each a line of bench/runs/demo.jsonl. longer: the same with four times the steps, which ships nothing.
ship: the weights as bf16 into crates/lathe-model/shipped/trained, with their bits per byte of the text that they are judged
by; build lathe again then. Without --only: train and ship.
Folders are kept under --work, so that whatever was killed goes on; with --pieces a training is stopped and taken up again
after so many seconds, to let others have the machine in between. The recipe is crates/lathe-train/recipes/storyteller.toml.
"""

import argparse
import json
import pathlib
import shutil
import struct
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]
sys.path.append(str(ROOT / "bench"))
from record import record  # noqa: E402

RECIPE = ROOT / "crates/lathe-train/recipes/storyteller.toml"
SHIPPED = ROOT / "crates/lathe-model/shipped/trained/storyteller.safetensors"
JUDGED_ON = "builtin:1:1"
parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
parser.add_argument("--lathe", default=ROOT / "target/release/lathe")
parser.add_argument("--work", type=pathlib.Path, default=ROOT / "target/demo")
parser.add_argument("--threads", default="2")
parser.add_argument("--pieces", type=int)
parser.add_argument("--only", choices=["train", "longer", "ship"])
args = parser.parse_args()


def lathe(*words):
    done = subprocess.run([args.lathe, *words, "--json", "--threads", args.threads], check=True, stdout=subprocess.PIPE, timeout=args.pieces)
    return json.loads(done.stdout)


def train(name, *flags):
    """Begins a training, or goes on with the one that is there; one that has ended is told again."""
    out = args.work / name
    while True:
        try:
            begun = (out / "run.toml").exists()
            result = lathe("train", *(["--resume", out] if begun else [RECIPE, *flags, "--out", out]))
            keep = ["steps", "tokens", "seconds", "tokens_per_s", "loss", "valid"]
            return {"flags": flags, **{key: result[key] for key in keep}}
        except subprocess.TimeoutExpired:
            pass


HALF = ["--layers", "(sf)x2"]
LONGER = ["--data", "builtin:10", "--steps", "10000", "--warmup", "300"]


def trainings():
    yield "storyteller", lambda: train("storyteller")
    yield "half its layers", lambda: train("half", *HALF)


def longer():
    yield "storyteller", lambda: train("longer", *LONGER)
    yield "half its layers", lambda: train("longer-half", *LONGER, *HALF)


def bf16(floats):
    """Rounded to the nearest, ties to even."""
    words = memoryview(floats).cast("I")
    out = bytearray(len(floats) // 2)
    for i, word in enumerate(words):
        out[2 * i : 2 * i + 2] = ((word + 0x7FFF + (word >> 16 & 1)) >> 16).to_bytes(2, "little")
    return bytes(out)


def pack(source, target, notes):
    """A file of f32 tensors as one of bf16."""
    raw = source.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    tensors = json.loads(raw[8 : 8 + size])
    del tensors["__metadata__"]
    header, values = {"__metadata__": notes}, b""
    for name, tensor in tensors.items():
        begin, end = (8 + size + offset for offset in tensor["data_offsets"])
        piece = bf16(raw[begin:end])
        header[name] = {"dtype": "BF16", "shape": tensor["shape"], "data_offsets": [len(values), len(values) + len(piece)]}
        values += piece
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    target.write_bytes(struct.pack("<Q", len(text)) + text + values)


def ship():
    trained, packed = args.work / "storyteller", args.work / "packed"
    train("storyteller")
    packed.mkdir(exist_ok=True)
    shutil.copy(trained / "config.json", packed)
    pack(trained / "model.safetensors", packed / "model.safetensors", {"format": "pt"})
    found = lathe("eval", packed, "--data", JUDGED_ON)["bits_per_byte"]
    notes = {"format": "pt", "judged_on": JUDGED_ON, "bits_per_byte": f"{found:.4f}"}
    pack(trained / "model.safetensors", SHIPPED, notes)
    print(f"{SHIPPED}: {SHIPPED.stat().st_size} bytes, {found:.4f} bits per byte of {JUDGED_ON}")


args.work.mkdir(parents=True, exist_ok=True)
if args.only != "ship":
    record(ROOT / "bench/runs/demo.jsonl", {"train": trainings, "longer": longer}, [args.only or "train"])
if args.only in (None, "ship"):
    ship()
