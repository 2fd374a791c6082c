"""The trained figures of docs/results.md, each recorded as it comes; what is recorded is not run again.

    python3 bench/results/run.py --enwik8 enwik8.gz [--only GROUP ...]

Groups: enwik8 (memory and optimisers), local, span, attention, content (the built-in language), bf16.
Records are lines of bench/runs/results.jsonl: the group, the name, the command's flags, and what lathe printed.
`--table` prints them as Markdown.
"""

import argparse
import gzip
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parents[2]
RECORD = ROOT / "bench/runs/results.jsonl"
parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
parser.add_argument("--lathe", default=ROOT / "target/release/lathe")
parser.add_argument("--enwik8", type=pathlib.Path, help="enwik8 or enwik8.gz")
parser.add_argument("--only", nargs="*")
parser.add_argument("--threads", default="2")
parser.add_argument("--table", action="store_true")
args = parser.parse_args()

LANGUAGE = "--data builtin:12 --model small_transformer_xl --precision bf16 --steps 800 --lr 0.003 --warmup 50 --eval-every 800"
GPT2 = "--backbone gpt2 --d-model 128 --heads 4 --vocab 256"


def runs():
    """Group, name, flags."""
    xl = "--data TRAIN --valid VALID --model small_transformer_xl --steps 600 --batch 16 --warmup 60 --eval-every 300"
    lamb = "--lr 0.01 --beta2 0.999"
    yield "enwik8", "adamw, memory 128, seed 0", f"{xl} --lr 0.003"
    yield "enwik8", "adamw, no memory, seed 0", f"{xl} --lr 0.003 --mem-len 0"
    yield "enwik8", "lamb, memory 128, seed 0", f"{xl} {lamb} --optimizer lamb --weight-decay 0.01"
    yield "enwik8", "jitlamb, memory 128, seed 0", f"{xl} {lamb} --optimizer jitlamb --weight-decay 0 --clip 0.25"
    yield "enwik8", "nvlamb, memory 128, seed 0", f"{xl} {lamb} --optimizer nvlamb --weight-decay 0.01"
    yield "enwik8", "adamw, memory 128, seed 1", f"{xl} --lr 0.003 --seed 1"
    yield "enwik8", "adamw, no memory, seed 1", f"{xl} --lr 0.003 --mem-len 0 --seed 1"
    # 2,048 tokens in each step of what follows. "attention 4" is also the row of a span of 256 and of an inner width of 512.
    for blocks, layers in [(4, "(sf)x4"), (0, "(f)x8"), (1, "s(f)x7"), (2, "(sfff)x2")]:
        yield "attention", str(blocks), f"{LANGUAGE} --layers {layers}"
    for span, lengths in [(32, "--tgt-len 32 --mem-len 0 --batch 64"), (128, "--mem-len 0"), (1024, "--mem-len 896")]:
        yield "span", str(span), f"{LANGUAGE} {lengths}"
    for inner in [64, 2048]:
        yield "content", str(inner), f"{LANGUAGE} --inner {inner}"
    for seed in range(3):
        for precision in ["f32", "bf16"]:
            yield "bf16", f"{precision}, seed {seed}", (
                f"--data TRAIN --valid VALID {GPT2} --layers (sf)x4 --max-len 128 --steps 500 --batch 8 --seed {seed} "
                f"--precision {precision} --eval-every 500")
    yield "local", "(sf)x4, d 128, window 256", (
        f"--data builtin:16 {GPT2} --layers (sf)x4 --max-len 256 --batch 8 --steps 5000 --lr 0.003 --warmup 200 --eval-every 1000")


def split(folder):
    """The first 5 MB of enwik8: 4.5 to train on, 0.25 to validate on."""
    opened = gzip.open if args.enwik8.suffix == ".gz" else open
    with opened(args.enwik8, "rb") as file:
        text = file.read(5_000_000)
    (folder / "train.txt").write_bytes(text[:4_500_000])
    (folder / "valid.txt").write_bytes(text[4_500_000:4_750_000])


def table(records):
    for group in dict.fromkeys(record["group"] for record in records):
        rows = [record for record in records if record["group"] == group]
        kinds = [kind["kind"] for kind in rows[0]["result"]["valid"].get("kinds", [])]
        print(f"\n### {group}\n\n| | valid bits/byte | train loss | tokens/s |" + "".join(f" {kind} |" for kind in kinds))
        print("|---|---|---|---|" + "---|" * len(kinds))
        for record in rows:
            result = record["result"]
            of_kind = {kind["kind"]: f"{kind['bits_per_byte']:.4f} ({kind['bits_per_byte'] - kind['entropy']:+.4f})" for kind in result["valid"].get("kinds", [])}
            cells = [record["name"], f"{result['valid']['bits_per_byte']:.4f}", f"{result['loss']:.4f}", f"{result['tokens_per_s']:.0f}"]
            print("| " + " | ".join(cells + [of_kind[kind] for kind in kinds]) + " |")


records = [json.loads(line) for line in RECORD.read_text().splitlines()] if RECORD.exists() else []
if args.table:
    table(records)
    sys.exit()
done = {(record["group"], record["name"]) for record in records}
with tempfile.TemporaryDirectory() as temporary:
    folder = pathlib.Path(temporary)
    if args.enwik8:
        split(folder)
    for group, name, flags in runs():
        if (group, name) in done or args.only and group not in args.only:
            continue
        if "TRAIN" in flags and not args.enwik8:
            print(f"{group}, {name}: needs --enwik8", flush=True)
            continue
        words = flags.replace("TRAIN", str(folder / "train.txt")).replace("VALID", str(folder / "valid.txt")).split()
        out = folder / "out"
        command = [args.lathe, "train", *words, "--out", out, "--checkpoint-every", "1000000", "--json", "--threads", args.threads]
        result = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        del result["out"]
        subprocess.run(["rm", "-r", out], check=True)
        with RECORD.open("a") as file:
            file.write(json.dumps({"group": group, "name": name, "flags": flags, "result": result}) + "\n")
        print(group, name, result["valid"]["bits_per_byte"], f"{result['tokens_per_s']:.0f} tokens/s", flush=True)
