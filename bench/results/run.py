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
parser.add_argument("--table", action="store_true")
args = parser.parse_args()

LANGUAGE = "--data builtin:16 --steps 3000 --lr 0.002 --warmup 200 --eval-every 1000"
GPT2 = "--backbone gpt2 --d-model 128 --heads 4 --inner 512 --vocab 256"


def runs():
    """Group, name, flags."""
    xl = "--data TRAIN --valid VALID --model small_transformer_xl --steps 1500 --batch 16 --warmup 100 --eval-every 500"
    for seed in range(2):
        of_seed = f"{xl} --seed {seed}"
        yield "enwik8", f"adamw, memory 128, seed {seed}", f"{of_seed} --lr 0.002"
        yield "enwik8", f"adamw, no memory, seed {seed}", f"{of_seed} --lr 0.002 --mem-len 0"
        yield "enwik8", f"lamb, memory 128, seed {seed}", f"{of_seed} --optimizer lamb --lr 0.01 --weight-decay 0.01 --beta2 0.999"
    yield "enwik8", "jitlamb, memory 128, seed 0", f"{xl} --optimizer jitlamb --lr 0.01 --weight-decay 0 --beta2 0.999 --clip 0.25"
    yield "enwik8", "nvlamb, memory 128, seed 0", f"{xl} --optimizer nvlamb --lr 0.01 --weight-decay 0.01 --beta2 0.999"
    yield "local", "gpt2 (sf)x6, d 192, window 512", (
        "--data builtin:32 --backbone gpt2 --layers (sf)x6 --d-model 192 --heads 6 --inner 768 --vocab 256 --max-len 512 "
        "--batch 16 --steps 4000 --lr 0.002 --warmup 200 --eval-every 500")
    # Equal tokens in each step: 4,096.
    for span in [32, 128, 512, 1024]:
        yield "span", str(span), f"{LANGUAGE} {GPT2} --layers (sf)x4 --max-len {span} --batch {4096 // span}"
    for blocks, layers in [(0, "(f)x8"), (1, "sf (f)x6"), (2, "(sfff)x2"), (4, "(sf)x4")]:
        yield "attention", str(blocks), f"{LANGUAGE} {GPT2} --layers {layers.replace(' ', '')} --max-len 512 --batch 8"
    for inner in [64, 256, 1024]:
        yield "content", str(inner), f"{LANGUAGE} {GPT2.replace('--inner 512', f'--inner {inner}')} --layers (sf)x4 --max-len 512 --batch 8"
    for seed in range(3):
        for precision in ["f32", "bf16"]:
            yield "bf16", f"{precision}, seed {seed}", (
                f"--data TRAIN --valid VALID --backbone gpt2 --layers (sf)x4 --d-model 256 --heads 4 --vocab 256 --max-len 128 "
                f"--steps 500 --batch 16 --seed {seed} --precision {precision} --eval-every 500")


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
        command = [args.lathe, "train", *words, "--out", out, "--checkpoint-every", "1000000", "--json"]
        result = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        del result["out"]
        subprocess.run(["rm", "-r", out], check=True)
        with RECORD.open("a") as file:
            file.write(json.dumps({"group": group, "name": name, "flags": flags, "result": result}) + "\n")
        print(group, name, result["valid"]["bits_per_byte"], f"{result['tokens_per_s']:.0f} tokens/s", flush=True)
