"""What lathe computed before its model layer was rebuilt: models, runs and tables that it must still read, and results
that it must still give. Run once, with the binary of the commit before:

    python3 oracles/before.py PATH/TO/lathe

It is here to tell how the fixtures were made. With a later binary they would prove nothing.

Writes crates/lathe/tests/it/fixtures/before; the README.md there says what each file is. All commands run in one folder
with relative paths, with LATHE_CPU=avx2 and --threads 2. What depends on the clock is left out of results.
"""

import hashlib
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

BINARY = pathlib.Path(sys.argv[1]).resolve()
FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "crates/lathe/tests/it/fixtures/before"
THREADS = "2"
CLOCK = {"seconds", "training_seconds", "weight_seconds", "arch_seconds", "tokens_per_s", "out"}

WORK = pathlib.Path(tempfile.mkdtemp(prefix="lathe-before-"))
ENVIRONMENT = os.environ | {"LATHE_CPU": "avx2", "LATHE_CACHE": str(WORK / "cache")}

SMALL = {"d_model": 12, "vocab": 256, "heads": 2, "inner": 20}
XL = {"backbone": "transformer_xl", "tgt_len": 8, "mem_len": 6}
ADAPTIVE = {"cutoffs": [60, 130], "div_val": 2}

# name: model file, what training has beside its defaults
MODELS = {
    "gpt2_moe": ({"backbone": "gpt2", "layers": "(s2f)x1 s1 m3k2 -", "max_len": 16, "dropout": 0.1}, {}),
    "gpt2_untied": (
        {"backbone": "gpt2", "layers": "(sf)x2", "vocab": 300, "max_len": 16, "tie_embeddings": False}
        | {"activation": "gelu"},
        {"--tokenizer": "bpe:300", "--optimizer": "lamb"},
    ),
    "gpt2_adaptive": ({"backbone": "gpt2", "layers": "s4 f s2d5 f", "max_len": 16, **ADAPTIVE}, {"--accumulate": "2"}),
    "gpt2_gated": (
        {"backbone": "gpt2", "layers": "(sf)x1", "max_len": 16, "norm": "post", "d_embed": 6, "activation": "swiglu"},
        {"--precision": "bf16"},
    ),
    "xl_adaptive": ({**XL, "layers": "(sf)x2", **ADAPTIVE, "dropout": 0.02, "attn_dropout": 0.02}, {"--steps": "800"}),
    "xl_pre": (
        {**XL, "layers": "s f moe{experts=3,top_k=2,renormalise=true}", "norm": "pre"}
        | {"clamp_len": 5, "same_length": True},
        {"--optimizer": "nvlamb", "--steps": "800", "--lr": "0.04"},
    ),
    "opt": ({"backbone": "opt", "layers": "(sf)x2", "max_len": 16}, {}),
}
TRAIN = {
    "--data": "text.txt", "--steps": "300", "--batch": "4", "--lr": "0.02", "--eval-every": "100", "--log-every": "10",
}  # fmt: skip

# name: model file, settings
RUNS = {
    "run_gpt2": (
        {"backbone": "gpt2", "layers": "s f m2k1", "d_model": 8, "vocab": 300, "heads": 2, "inner": 16}
        | {"max_len": 16, "dropout": 0.1},
        {"--data": "text.txt", "--tokenizer": "bpe:300", "--optimizer": "lamb", "--accumulate": "2"}
        | {"--eval-every": "50"},
    ),
    "run_xl": (
        {**XL, "layers": "s f s m2k1", "d_model": 8, "vocab": 256, "heads": 2, "inner": 16, "dropout": 0.1},
        {"--data": "builtin:0.01", "--eval-every": "15"},
    ),
}
RUN = {"--steps": "60", "--batch": "4", "--checkpoint-every": "20", "--keep": "1", "--log-every": "1", "--seed": "3"}

SPACE = """[baseline]
backbone = "transformer_xl"
layers = "(sf)x2"
d_model = 8
vocab = 256
heads = 2
inner = 16
tgt_len = 8

[[slots]]
repeat = 4
options = ["s", "f", "m2k1", "-"]
"""
SEARCH = {
    "--data": "builtin:0.01", "--batch": "4", "--steps": "60", "--rounds": "6", "--target-latency": "0.7",
    "--arch-lr": "0.3", "--latency-weight": "0.5", "--lr": "0.01",
    "--table": "table.json", "--checkpoint-every": "24", "--keep": "1", "--log-every": "1", "--seed": "3",
}  # fmt: skip


def text(count, start):
    line = "The tailor of {} measured {} cloaks — naïve, he said, “but {} fit” — and charged {} crowns.\n"
    names = ["Aldra", "Brünn", "Caelum", "Dorf", "Évora", "Fjell"]
    numbers = range(start, start + count)
    return "".join(line.format(names[i % 6], i * 7 % 23, names[i * 5 % 6], i * i % 97) for i in numbers)


def flat(options):
    return [part for option in options.items() for part in option]


def command(args):
    return [str(BINARY), *args, "--threads", THREADS, "--json"]


def lathe(*args):
    """Runs it in the folder of work: the JSON it prints, without what the clock says."""
    done = subprocess.run(command(args), cwd=WORK, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, (args, done.stderr)
    return timeless(json.loads(done.stdout))


def timeless(value):
    if isinstance(value, dict):
        return {key: timeless(inner) for key, inner in value.items() if key not in CLOCK}
    return [timeless(inner) for inner in value] if isinstance(value, list) else value


def record(file):
    """Lines of a record; steps that were recorded twice, before and after a stop, are the same and count once."""
    lines = [timeless(json.loads(line)) for line in file.read_text().splitlines()]
    return list({json.dumps(line): line for line in lines if "resumed" not in line}.values())


def sha256(file):
    return hashlib.sha256(file.read_bytes()).hexdigest()


def toml(spec):
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in spec.items())


def write_json(path, value):
    (WORK / path).write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def tokens(path, rows):
    """A safetensors file with `ids`."""
    data = b"".join(struct.pack("<q", token) for row in rows for token in row)
    entry = {"dtype": "I64", "shape": [len(rows), len(rows[0])], "data_offsets": [0, len(data)]}
    header = json.dumps({"ids": entry}).encode()
    header += b" " * (-len(header) % 8)
    (WORK / path).write_bytes(struct.pack("<Q", len(header)) + header + data)


def model(name, spec, options):
    """Trains a model, twice with the same bits, and asks it everything."""
    folder = WORK / name
    folder.mkdir()
    spec = SMALL | spec
    (folder / "model.toml").write_text(toml(spec))
    args = ["train", "--model", f"{name}/model.toml", *flat({"--tokenizer": "bytes"} | TRAIN | options)]
    result = lathe(*args, "--out", f"{name}/model")
    again = lathe(*args, "--out", f"again/{name}")
    metrics = record(folder / "model/metrics.jsonl")
    assert again == result and record(WORK / f"again/{name}/metrics.jsonl") == metrics
    weights = sha256(folder / "model/model.safetensors")
    assert sha256(WORK / f"again/{name}/model.safetensors") == weights

    relative = spec["backbone"] == "transformer_xl"
    questions = {
        "count": ["count", f"{name}/model"],
        "eval": ["eval", f"{name}/model", "--data", "heldout.txt"],
        "eval_otherwise": ["eval", f"{name}/model", "--data", "heldout.txt"]
        + (["--tgt-len", "5", "--mem-len", "11", "--clamp-len", "9"] if relative else ["--context", "7"]),
        "generate": ["generate", f"{name}/model", "--prompt", "The tailor", "--tokens", "40", "--temperature", "0"],
        "generate_sampled": ["generate", f"{name}/model", "--prompt", "The tailor", "--tokens", "40", "--seed", "5"],
        "forward": ["forward", f"{name}/model", "--tokens", "ids.safetensors", "--out", f"{name}/forward.safetensors"]
        + ["--grads", *(["--segments", "2"] if relative else [])],
    }
    answers = {key: {"args": args, "result": lathe(*args)} for key, args in questions.items()}
    trained = {"args": args, "result": result, "metrics": metrics, "model_sha256": weights}
    write_json(f"{name}/expected.json", {"train": trained, **answers})
    for part in ["run.toml", "metrics.jsonl", "result.json", ".lock", "checkpoints", "data"]:
        remove(folder / "model" / part)
    print(f"{name:14} loss {result['loss']:.4f} valid {result['valid']['loss']:.4f}")


def remove(path):
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def stopped(args, folder, steps):
    """Begins a run and kills it after a checkpoint, until one has been stopped half way."""
    for _ in range(200):
        remove(WORK / folder)
        process = subprocess.Popen(
            command([*args, "--out", folder]), cwd=WORK, env=ENVIRONMENT,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        while process.poll() is None and not list((WORK / folder).glob("checkpoints/step-*")):
            pass
        process.kill()
        process.wait()
        checkpoints = sorted(path.name for path in (WORK / folder).glob("checkpoints/*"))
        whole = all(name.startswith("step-") for name in checkpoints)
        if len(checkpoints) == 1 and whole and int(checkpoints[0][5:]) < steps:
            remove(WORK / folder / ".lock")
            return checkpoints[0]
    raise SystemExit(f"{folder} always ended before it could be stopped")


def run(name, spec, options):
    """A training that was stopped, and what it gives in the end."""
    folder = WORK / name
    folder.mkdir()
    (folder / "model.toml").write_text(toml(spec))
    args = ["train", "--model", f"{name}/model.toml", *flat(RUN | options)]
    result = lathe(*args, "--out", f"again/{name}")
    whole = WORK / "again" / name
    checkpoint = stopped(args, f"{name}/half", 60)
    shutil.copytree(folder / "half", WORK / "again" / f"{name}-resumed")
    assert lathe("train", "--resume", f"again/{name}-resumed") == result
    resumed = WORK / "again" / f"{name}-resumed"
    assert sha256(resumed / "model.safetensors") == sha256(whole / "model.safetensors")
    metrics = record(whole / "metrics.jsonl")
    assert sorted(map(json.dumps, record(resumed / "metrics.jsonl"))) == sorted(map(json.dumps, metrics))
    expected = {"args": args, "result": result, "metrics": metrics, "model_sha256": sha256(whole / "model.safetensors")}
    write_json(f"{name}/expected.json", expected)
    print(f"{name:14} loss {result['loss']:.4f} stopped with {checkpoint}")


def search():
    """A table of measured blocks, and a search with it that was stopped."""
    (WORK / "space.toml").write_text(SPACE)
    lathe("profile", "space.toml", "--models", "6", "--out", "table.json")
    read = ["profile", "space.toml", "--table", "table.json"]
    write_json("table.expected.json", {"args": read, "result": lathe(*read)})

    folder = WORK / "search"
    folder.mkdir()
    args = ["search", "differentiable", "space.toml", *flat(SEARCH)]
    result = lathe(*args, "--out", "again/search")
    checkpoint = stopped(args, "search/half", 60)
    shutil.copytree(folder / "half", WORK / "again/search-resumed")
    assert lathe("search", "differentiable", "--resume", "again/search-resumed") == result
    whole = WORK / "again/search"
    lines = {name: record(whole / name) for name in ["weights.jsonl", "architecture.jsonl", "probabilities.jsonl"]}
    expected = {"args": args, "result": result, "found": (whole / "found.toml").read_text(), "records": lines}
    write_json("search/expected.json", expected)
    print(f"search         {result['layers']} stopped with {checkpoint}")


def cpu():
    lines = pathlib.Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    fields = dict(map(str.strip, line.split(":", 1)) for line in lines if ":" in line)
    keys = {"family": "cpu family", "model": "model", "stepping": "stepping"}
    return ", ".join([fields["model name"], *(f"{word} {fields[key]}" for word, key in keys.items())])


(WORK / "text.txt").write_text(text(60, 0))
(WORK / "heldout.txt").write_text(text(6, 60))
(WORK / "again").mkdir()
tokens("ids.safetensors", [[(7 + 31 * t + 83 * b + t * t * 5) % 250 for t in range(6)] for b in range(2)])
for name, (spec, options) in MODELS.items():
    model(name, spec, options)
for name, (spec, options) in RUNS.items():
    run(name, spec, options)
search()
version = subprocess.run([BINARY, "--version"], capture_output=True, text=True).stdout.strip()
write_json("made.json", {"version": version, "cpu": cpu(), "LATHE_CPU": "avx2", "threads": int(THREADS)})

remove(WORK / "again")
remove(WORK / "cache")
for file in FIXTURES.glob("*"):
    if file.name != "README.md":
        remove(file)
shutil.copytree(WORK, FIXTURES, dirs_exist_ok=True)
remove(WORK)
print(sum(file.stat().st_size for file in FIXTURES.rglob("*") if file.is_file()), "bytes")
