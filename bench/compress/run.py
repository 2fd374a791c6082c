"""What fewer bits and fewer tokens gain and cost, each figure recorded as it comes; what is recorded is not run again.

    python3 bench/compress/run.py --stories stories15M --text tinystories.txt --python PYTHON [--only GROUP ...] [--table]

Groups: stories (a real Llama of 15 M parameters in 8 and 4 bits; calibrated on stories, judged on 400 others), vocab (the
same without the tokens that the stories never use), together (both), gpt2 (a random GPT-2 of 16 layers, d 512, vocabulary
50,257: decoding in bf16, int8 and int4; PYTHON has transformers), quality (a small GPT-2 on the built-in language in 4 bits: rounded
after training, tuned, and trained for them; three seeds; trained on in f32 as the control). Shares are of f32's time, whole models in turn, 2 threads. Records are
lines of bench/runs/compress.jsonl; folders are kept under --work. `--table` prints the records as Markdown.
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

RECORD = ROOT / "bench/runs/compress.jsonl"
parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
parser.add_argument("--lathe", default=ROOT / "target/release/lathe")
parser.add_argument("--python", help="a Python with transformers")
parser.add_argument("--stories", help="the folder of stories15M")
parser.add_argument("--text", help="stories, with <|endoftext|> after each")
parser.add_argument("--work", type=pathlib.Path, default=ROOT / "target/compress")
parser.add_argument("--seconds", type=float, default=8, help="to measure two models for")
parser.add_argument("--steps", type=int, default=1000, help="of a training of the group quality")
parser.add_argument("--threads", default="2", help="shares are those of 2; losses are the same with any number")
parser.add_argument("--only", nargs="*")
parser.add_argument("--table", action="store_true")
args = parser.parse_args()

TEST, LEARN = 400, 3000  # stories to judge by, and to calibrate with
END = "\n<|endoftext|>\n"


def lathe(*flags):
    command = [str(args.lathe), *map(str, flags), "--threads", args.threads, "--json"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def size(folder):
    return sum(path.stat().st_size for path in pathlib.Path(folder).glob("*.safetensors"))


def shares(before, after, modes):
    """Time of the second model as a share of the first's, whole models in turn."""
    found = {}
    for mode, seq in modes:
        pair = lathe("compare", before, after, "--mode", mode, "--seq", seq, "--seconds", args.seconds)
        low, high = pair["speedup_interval"]
        found[f"{mode} {seq}"] = {"share": 1 / pair["speedup"], "interval": [1 / high, 1 / low], "memory": 1 / pair["memory_ratio"]}
        found["cpu"] = pair["cpu"]
    return found


def texts():
    """The stories to judge by, and two parts of the others: some, and all."""
    files = [args.work / name for name in ("test.txt", "learn.txt", "rest.txt")]
    if not files[2].exists():
        stories = [story.strip() for story in pathlib.Path(args.text).read_text().split("<|endoftext|>")]
        stories = [story for story in stories if story]
        for file, part in zip(files, (stories[:TEST], stories[TEST : TEST + LEARN], stories[TEST:]), strict=True):
            file.write_text(END.join(part) + END)
    return files


def judged(before, after):
    """Loss and bits per byte of both on the stories to judge by."""
    found = [lathe("eval", folder, "--data", texts()[0], "--documents") for folder in (before, after)]
    return {key: [one[key] for one in found] for key in ("loss", "bits_per_byte", "tokens")}


def make(verb, folder, name, *flags):
    out = args.work / name.replace(" ", "_").replace(",", "")
    if not (out / "config.json").exists():
        lathe(verb, folder, *flags, "--out", out)
    return out


def compressed(folder, name, *flags, verb="quantize", before=None):
    out = make(verb, folder, name, *flags)
    before = before or folder
    measured = shares(before, out, [("prompt", 128), ("decode", 128)])
    return {"flags": [str(flag) for flag in flags if not isinstance(flag, pathlib.Path)], "bytes": size(out) / size(before), **judged(before, out), **measured}


CALIBRATED = ["--documents", "--seconds", 0]
BITS = {
    "int8, a scale for each output": ["--bits", 8],
    "int8, groups of 64": ["--bits", 8, "--group", 64],
    "int6, groups of 64": ["--bits", 6, "--group", 64],
    "int4, rounded plainly": ["--bits", 4, "--range", "minmax", "--no-compensation"],
    "int4, calibrated": ["--bits", 4],
    "int4, calibrated and tuned": ["--bits", 4, "--tune", 200],
    "int4, groups of 16 with offsets": ["--bits", 4, "--group", 16, "--offset"],
    "int4, groups of 16 with offsets, tuned": ["--bits", 4, "--group", 16, "--offset", "--tune", 200],
    "int4, groups of 16 with offsets, tuned on new text": ["--bits", 4, "--group", 16, "--offset", "--tune", 120],
}


def stories():
    for name, flags in BITS.items():
        flags = [*flags, "--data", texts()[1], *CALIBRATED]
        yield name, lambda name=name, flags=flags: compressed(args.stories, name, *flags)


VOCAB = ["--vocab", "--documents", "--seconds", 1]


EXPECTED = ["--expected", "0.0001", "--samples", 512]


def vocab():
    for name, more in {"tokens used": [], "tokens used or expected": EXPECTED}.items():
        flags = [*VOCAB, *more, "--data", texts()[2]]
        yield name, lambda name=name, flags=flags: compressed(args.stories, f"vocab {name}", *flags, verb="prune")


def together():
    fewer = make("prune", args.stories, "vocab tokens used or expected", *VOCAB, *EXPECTED, "--data", texts()[2])
    for bits in ("int8, groups of 64", "int4, groups of 16 with offsets"):
        flags = [*BITS[bits], "--data", texts()[1], *CALIBRATED]
        name = f"tokens used or expected, {bits}"
        yield name, lambda name=name, flags=flags: compressed(fewer, name, *flags, before=args.stories)


MAKE = """
import sys, torch, transformers
torch.manual_seed(0)
config = transformers.GPT2Config(n_layer=16, n_embd=512, n_head=8, vocab_size=50257, n_positions=1024)
model = transformers.GPT2LMHeadModel(config)
model.save_pretrained(sys.argv[1])
model.to(torch.bfloat16).save_pretrained(sys.argv[2])
"""


def gpt2():
    f32, bf16 = args.work / "gpt2-f32", args.work / "gpt2-bf16"
    if not (bf16 / "config.json").exists():
        subprocess.run([args.python, "-c", MAKE, f32, bf16], check=True)

    def of(name, *flags):
        out = make("quantize", f32, name, *flags, "--seconds", 0) if flags else bf16
        return {"bytes": size(out) / size(f32), **shares(f32, out, [("decode", 128), ("prompt", 512)])}

    yield "bf16", lambda: of("bf16")
    yield "int8", lambda: of("gpt2 int8", "--bits", 8)
    yield "int4, output int8", lambda: of("gpt2 int4", "--bits", 4)
    yield "int4, output too", lambda: of("gpt2 int4 all", "--bits", 4, "--output-bits", 4)


SMALL = "--backbone gpt2 --layers (sf)x4 --d-model 128 --heads 4 --inner 512 --vocab 256 --max-len 128".split()
RUN = "--data builtin:2 --batch 16 --eval-every 1000000".split()
JUDGED = "builtin:0.3:77"  # another text of the language


def quality():
    """Each way begins with the same trained model; what is trained on has a quarter of the steps more."""
    for seed in range(3):
        def trained(name, *flags, seed=seed):
            out = args.work / f"{name}-{seed}"
            if not (out / "result.json").exists():
                if (out / "run.toml").exists():
                    lathe("train", "--resume", out)
                else:
                    lathe("train", *RUN, *flags, "--seed", seed, "--out", out)
            return out, json.loads((out / "result.json").read_text())["valid"]["loss"]

        def ways(seed=seed, trained=trained):
            model, loss = trained("small", *SMALL, "--lr", "0.002", "--steps", args.steps)
            on = ["--init", model, "--steps", args.steps // 4, "--lr", "0.0005"]
            found = {"f32": loss, "f32, trained on": trained("on", *on)[1]}
            for name, flags in {"plainly": BITS["int4, rounded plainly"], "calibrated": BITS["int4, calibrated"], "tuned": ["--bits", 4, "--tune", 200]}.items():
                out = make("quantize", model, f"small {name} {seed}", *flags, "--data", "builtin:1", "--seconds", 0, "--activations", "none")
                found[name] = lathe("eval", out, "--data", JUDGED)["loss"]
            aware, _ = trained("aware", *on, "--quantize", "int4_g32")
            both, _ = trained("aware-activations", *on, "--quantize", "int4_g32", "--quantize-activations", "true")
            for name, folder in {"f32": model, "f32, trained on": args.work / f"on-{seed}", "aware": aware, "aware, activations too": both}.items():
                found[name] = lathe("eval", folder, "--data", JUDGED)["loss"]
            return found

        yield f"seed {seed}", ways


def percent(after, before):
    return f"{100 * (after / before - 1):+.2f} %"


def cell(one):
    return "{:.3f} [{:.3f}, {:.3f}]".format(one["share"], *one["interval"])


def table(records):
    groups = {}
    for one in records:
        groups.setdefault(one["group"], {})[one["name"]] = one["result"]
    for group in ("stories", "vocab", "together"):
        for i, (name, one) in enumerate(groups.get(group, {}).items()):
            if i == 0:
                print(f"\n### {group}\n\n| | bytes | loss | bits per byte | prompt of 128 | decode 128 |\n|---|---|---|---|---|---|")
            loss = percent(*reversed(one["loss"])) if len(set(one["tokens"])) == 1 else "other tokens"
            print(f"| {name} | {one['bytes']:.3f} | {loss} | {percent(*reversed(one['bits_per_byte']))} | {cell(one['prompt 128'])} | {cell(one['decode 128'])} |")
    for i, (name, one) in enumerate(groups.get("gpt2", {}).items()):
        if i == 0:
            print("\n### gpt2\n\n| | bytes | decode 128 | prompt of 512 |\n|---|---|---|---|")
        print(f"| {name} | {one['bytes']:.3f} | {cell(one['decode 128'])} | {cell(one['prompt 512'])} |")
    if found := list(groups.get("quality", {}).values()):
        print("\n### quality\n\n| | loss | over f32 |\n|---|---|---|")
        for way in found[0]:
            losses, over = [one[way] for one in found], [100 * (one[way] / one["f32"] - 1) for one in found]
            each = ", ".join(f"{x:.4f}" for x in losses)
            spread = f" ± {statistics.stdev(over):.2f}" if len(over) > 1 else ""
            print(f"| {way} | {each} | {statistics.mean(over):+.2f}{spread} % |")


if args.table:
    table([json.loads(line) for line in RECORD.read_text().splitlines()] if RECORD.exists() else [])
    sys.exit()
args.work.mkdir(parents=True, exist_ok=True)
GROUPS = {"gpt2": gpt2, "stories": stories, "vocab": vocab, "together": together, "quality": quality}
record(RECORD, GROUPS, args.only)
