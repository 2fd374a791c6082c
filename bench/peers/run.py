"""lathe and llama.cpp in turn on the same GGUF files, each result recorded as it comes; what is recorded is not run again.

    python3 bench/peers/run.py --python peers/bin/python --models m.Q8_0.gguf m.Q4_0.gguf --text test.txt --rounds 15

Groups: speed (a prompt read and tokens written one by one, in rounds) and perplexity (the same windows of the text).
Records are lines of bench/runs/NAME.jsonl. `--table` prints them as Markdown: medians with 95 % intervals, and lathe's
share of llama.cpp in the same round. README.md says how llama.cpp was built.
"""

import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "bench"))
from record import record  # noqa: E402

parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
parser.add_argument("--python", help="a Python with llama-cpp-python")
parser.add_argument("--lathe", default=str(ROOT / "target/release/lathe"))
parser.add_argument("--models", nargs="*", default=[], help="GGUF files")
parser.add_argument("--text", help="a text file")
parser.add_argument("--rounds", type=int, default=15)
parser.add_argument("--prompt", type=int, default=512, help="tokens of the prompt")
parser.add_argument("--tokens", type=int, default=128, help="tokens to write")
parser.add_argument("--window", type=int, default=512, help="tokens of a window of the text")
parser.add_argument("--bytes", type=int, default=65536, help="bytes of the text, at most")
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--only", nargs="*")
parser.add_argument("--name", default="peers")
parser.add_argument("--table", action="store_true")
args = parser.parse_args()
RECORD = ROOT / "bench/runs" / f"{args.name}.jsonl"


def call(command):
    out = subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout
    return json.loads(out[out.index("{") :])


def llama(*command):
    return call([args.python, HERE / "llama.py", *command])


def lathe(*command):
    return call([args.lathe, *command, "--threads", args.threads, "--json"])


def speed():
    """Rounds of both; who begins changes."""
    for i in range(args.rounds):
        for model in args.models:
            yield f"{pathlib.Path(model).stem}, {args.threads} threads, round {i}", lambda i=i, model=model: measure(i, model)


def measure(i, model):
    prompt = llama("cut", model, args.text, args.prompt)["text"]
    sides = {
        "llama.cpp": lambda: llama("speed", model, prompt, args.tokens, args.threads),
        "lathe": lambda: lathe("generate", model, "--prompt", prompt, "--tokens", args.tokens, "--temperature", 0),
    }
    found = {side: sides[side]() for side in (sides if i % 2 else reversed(sides))}
    for side in found.values():
        side.pop("text", None)
        assert side["prompt_tokens"] == args.prompt, found
    return {"tokens": args.tokens, "threads": args.threads, **found}


def perplexity():
    for model in args.models:
        yield f"{pathlib.Path(model).stem}, windows of {args.window}, {args.bytes} bytes", lambda model=model: compare(model)


def compare(model):
    beginning = pathlib.Path(args.text).read_bytes()[: args.bytes].decode(errors="ignore")
    with tempfile.TemporaryDirectory() as aside:
        text = pathlib.Path(aside) / "text.txt"
        text.write_text(beginning)
        theirs = llama("perplexity", model, text, args.window, args.threads)
        ours = lathe("eval", model, "--data", text, "--window", args.window)
    assert ours["tokens"] == theirs["tokens"], (ours, theirs)
    both = {"lathe": ours["loss"], "llama.cpp": theirs["loss"]}
    return {"tokens": theirs["tokens"], "loss": both, "ratio": math.exp(both["lathe"] - both["llama.cpp"])}


def interval(values):
    """Median, and the 95 % interval of it by order statistics."""
    values = sorted(values)
    n, half = len(values), 0.98 * len(values) ** 0.5
    return statistics.median(values), values[max(0, int(n / 2 - half))], values[min(n - 1, int(n / 2 + half + 0.999))]


def table():
    lines = [json.loads(line) for line in RECORD.read_text().splitlines()]
    rounds = {}
    for line in (line for line in lines if line["group"] == "speed"):
        rounds.setdefault(line["name"].rsplit(", round", 1)[0], []).append(line["result"])
    if rounds:
        print("| model | | lathe | llama.cpp | lathe / llama.cpp |\n|---|---|---|---|---|")
    for name, results in rounds.items():
        for what, rate in {
            "prompt, tokens/s": lambda side: 1e3 * side["prompt_tokens"] / side["first_token_ms"],
            "decode, tokens/s": lambda side: side["tokens_per_s"],
        }.items():
            sides = [[rate(result[side]) for result in results] for side in ("lathe", "llama.cpp")]
            cells = ["{:.1f} [{:.1f}, {:.1f}]".format(*interval(side)) for side in sides]
            ratio = "{:.3f} [{:.3f}, {:.3f}]".format(*interval([a / b for a, b in zip(*sides, strict=True)]))
            print(f"| {name}, {len(results)} rounds | {what} | {cells[0]} | {cells[1]} | {ratio} |")
    texts = [line for line in lines if line["group"] == "perplexity"]
    if texts:
        print("\n| model | perplexity, lathe | llama.cpp | lathe / llama.cpp |\n|---|---|---|---|")
    for line in texts:
        loss = line["result"]["loss"]
        ours, theirs = math.exp(loss["lathe"]), math.exp(loss["llama.cpp"])
        print(f"| {line['name']} | {ours:.4f} | {theirs:.4f} | {line['result']['ratio']:.5f} |")


if args.table:
    table()
else:
    if not (args.python and args.models and args.text):
        parser.error("--python, --models and --text are needed")
    RECORD.parent.mkdir(exist_ok=True)
    record(RECORD, {"speed": speed, "perplexity": perplexity}, args.only)
