"""Trainings at our scale: what the papers say of quality. One thread gives the same bits as two."""

import gzip
import json
import pathlib
import re
import resource

from machine import ROOT

SEEDS = 3
STEPS = 800
ATTENTION = {"0": "(f)x12", "1": "s(f)x11", "2": "s(f)x3 s(f)x7", "3": "s(fsf)x2 (f)x5", "4": "(sf)x4 (f)x4", "6": "(sssf)x2 (f)x4"}
INTERLEAVED = {"6, everywhere": "(sf)x6", "12": "(s)x12"}
PLACES = {"3, everywhere": "(sfff)x3", "3, last two thirds": "(f)x6 sffsfs"}
SMALL = {"backbone": "transformer_xl", "d-model": 128, "vocab": 1024, "heads": 4, "inner": 512, "tgt-len": 128, "mem-len": 128}
DEEP = ["--model", "deep_transformer_xl"]


def words(model):
    return [word for key, value in model.items() for word in (f"--{key}", value)]


def texts(machine):
    """The first 5 MB of enwik8: 4.5 to train on, 0.25 to validate on."""
    files = machine.work / "train.txt", machine.work / "valid.txt"
    if not files[1].exists():
        source = machine.args.enwik8
        with (gzip.open if source.suffix == ".gz" else open)(source, "rb") as file:
            files[0].write_bytes(file.read(45_000 if machine.quick else 4_500_000))
            files[1].write_bytes(file.read(5_000 if machine.quick else 250_000))
    return ["--data", files[0], "--valid", files[1]]


def train(machine, name, *flags, steps=STEPS):
    """What a run gives; one that was killed goes on."""
    out, steps = machine.work / re.sub(r"\W+", "-", name), 4 if machine.quick else steps
    resumed = (out / "run.toml").exists()
    flags = ["--resume", out] if resumed else [*flags, "--steps", steps, "--eval-every", steps, "--out", out]
    before = cpu_seconds()
    found = machine.lathe("train", *flags)
    kept = {key: found["valid"][key] for key in ("loss", "bits_per_byte", "kinds") if key in found["valid"]}
    if "fused" in found:
        kept["fused"] = [one["valid"]["bits_per_byte"] for one in found["fused"]]
    seconds = None if resumed else round(cpu_seconds() - before, 2)  # of all of it, or none
    return {**kept, "steps": found["steps"], "tokens": found["tokens"], "cpu_seconds": seconds}


def cpu_seconds():
    """What all calls used so far, which other work on the machine does not change much."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def seeds(machine, configurations, run):
    """Every configuration with every seed, all of one seed first."""
    for seed in range(1 if machine.quick else SEEDS):
        for name, one in configurations.items():
            yield f"{name}, seed {seed}", lambda one=one, name=name, seed=seed: run(name, one, seed)


def learn(lr):
    return ["--lr", lr, "--warmup", 50, "--precision", "bf16"]


LEARN = learn(0.003)


def thesis(machine):
    """PAR's thesis on the built-in language, whose content and context are told apart: 12 blocks, by attention blocks and their place."""
    def run(name, layers, seed):
        data = ["--data", "builtin:8", "--valid", "builtin:1:5", "--tokenizer", "bpe:1024"]
        model = words({**SMALL, "layers": layers})
        return train(machine, f"thesis-{name}-{seed}", *data, *model, *LEARN, "--batch", 8, "--seed", seed, steps=1200)
    return seeds(machine, {**ATTENTION, **INTERLEAVED, **PLACES}, run)


def coefficient(machine):
    """PAR's Figure 4: 16 blocks by its rule for several p, beside the baseline."""
    stacks = {"baseline": "(sf)x8", "3": "(sf)x5 (f)x6", "4": "(sfsff)x2 (f)x6", "5": "(sff)x3 (f)x7", "8": "s(f)x4 s(f)x10", "16": "s(f)x15"}

    def run(name, layers, seed):
        return train(machine, f"coefficient-{name}-{seed}", *texts(machine), *DEEP, "--layers", layers, *LEARN, "--seed", seed)
    return seeds(machine, stacks, run)


def searched(machine):
    """PAR's Figure 2: what its search found with six seeds, beside the baseline with as many."""
    records = map(json.loads, (ROOT / "bench/runs/from_scratch.jsonl").read_text().splitlines())
    found = [record["result"]["layers"] for record in records if record["group"] == "par"]
    for seed, layers in enumerate(found):
        for name, stack in {"searched": layers, "baseline": "(sf)x8"}.items():
            def run(name=name, stack=stack, seed=seed):
                trained = train(machine, f"searched-{name}-{seed}", *texts(machine), *DEEP, "--layers", stack, *LEARN, "--seed", seed)
                return {"layers": stack, "attention": expand(stack).count("s"), **trained}
            yield f"{name}, seed {seed}", run


def expand(layers):
    """The letters of a stack of bare letters and groups."""
    while "(" in layers:
        group = re.search(r"\(([^()]*)\)x(\d+)", layers)
        layers = layers[:group.start()] + group[1] * int(group[2]) + layers[group.end():]
    return layers.replace(" ", "")


def longer(machine):
    """PAR's Table A3: as many steps, and three and a half times as many."""
    stacks = {f"{name}, {steps} steps": (layers, steps) for steps in (STEPS, 7 * STEPS // 2) for name, layers in {"baseline": "(sf)x8", "par": "(sff)x3 (f)x7"}.items()}

    def run(name, one, seed):
        layers, steps = one
        return train(machine, f"longer-{name}-{seed}", *texts(machine), *DEEP, "--layers", layers, *LEARN, "--seed", seed, steps=steps)
    return seeds(machine, stacks, run)


def topology(machine):
    """LTS's Figure 14: equal decoder parameters, other aspect ratios, as Figure 7 in bench/search/run.py."""
    def run(name, one, seed):
        width, layers = one
        model = ["--backbone", "transformer_xl", "--layers", f"(sf)x{layers}", "--d-model", width, "--heads", 4, "--inner", 2 * width, "--vocab", 256, "--tgt-len", 128]
        count = machine.lathe("count", *model)["params"]["decoder"]
        bench = machine.lathe("bench", *model, "--seconds", 0.1 if machine.quick else 2)
        trained = train(machine, f"topology-{width}-{layers}-{seed}", *texts(machine), *model, *LEARN, "--seed", seed)
        return {"decoder": count, "latency_ms": bench["latency_ms"]["median"], "peak_bytes": bench["peak_bytes"], **trained}
    return seeds(machine, {f"d_model {width}, {layers} layers": (width, layers) for width, layers in [(64, 12), (92, 6), (128, 3), (156, 2)]}, run)


def audited(machine, space, models, *flags, lr=0.003):
    """Random architectures of a space, trained: parameters and loss of each."""
    for i, sample in enumerate(machine.lathe("space", space, "--sample", models, "--seed", 1)["samples"]):
        def run(i=i, sample=sample):
            model = [word for key in ("layers", "d_model", "d_embed") if key in sample for word in (f"--{key.replace('_', '-')}", sample[key])]
            trained = train(machine, f"{pathlib.Path(space).stem}-{lr}-{i}", *texts(machine), "--model", machine.file("frame.toml", frame_of(space)), *model, *learn(lr), *flags, steps=400)
            return {"layers": sample["layers"], "decoder": sample["params"]["decoder"], "total": sample["params"]["total"], **trained}
        yield f"architecture {i}", run


def frame_of(space):
    """The baseline of a space file as a model file."""
    return pathlib.Path(space).read_text().split("[baseline]\n")[1].split("\n[")[0]


HOMOGENEOUS = """[baseline]
backbone = "transformer_xl"
layers = "(s4 f384)x4"
d_model = 96
vocab = 256
heads = 4
inner = 384
tgt_len = 64
dropout = 0.0

[choices]
d_model = [64, 96, 128, 160]

[[slots]]
repeat = { min = 2, max = 6 }
options = ["sf"]
same = true
knobs = { heads = [2, 4, 8], inner = { min = 320, max = 768, step = 64 } }
"""


def homogeneous(machine):
    """LTS's Figure 13: architectures whose layers are all alike."""
    return audited(machine, machine.file("homogeneous.toml", HOMOGENEOUS), 24)


def rates(machine):
    """LTS's Appendix B: four learning rates for each of some architectures."""
    space = ROOT / "crates/lathe-model/shipped/spaces/proxies_small.toml"
    for rate in (0.0003, 0.001, 0.003, 0.01):
        for name, run in audited(machine, space, 12, lr=rate):
            yield f"rate {rate}, {name}", run


GPT2 = """[baseline]
backbone = "gpt2"
layers = "(s4 f512)x6"
d_model = 128
vocab = 256
heads = 4
inner = 512
tgt_len = 128
max_len = 128
dropout = 0.0

[choices]
d_model = { min = 64, max = 192, step = 32 }

[[slots]]
repeat = { min = 1, max = 8 }
options = ["sf"]
knobs = { heads = [2, 4], inner = { min = 128, max = 1024, step = 64 } }
"""


def frontier(machine):
    """LTS's Figures 8 and 16: for each scaled baseline the fastest point of the frontier with as many decoder parameters, both trained."""
    out = machine.work / "frontier"
    size = ["--iterations", 2, "--population", 8] if machine.quick else []
    found = machine.lathe("search", "pareto", machine.file("gpt2.toml", GPT2), "--searcher", "lts", *size, "--out", out)
    for baseline in found["baselines"]:
        if len(expand(baseline["layers"])) // 2 not in (1, 2, 4, 6, 8):
            continue
        enough = [point for point in found["frontier"] if point["params"]["decoder"] >= baseline["params"]["decoder"]]
        pair = {"baseline": baseline, "found": min(enough, key=lambda point: point["latency_ms"])} if enough else {}
        for seed in range(1 if machine.quick else SEEDS):
            for name, one in pair.items():
                def run(name=name, one=one, seed=seed):
                    model = ["--model", machine.file("frame.toml", frame_of(machine.work / "gpt2.toml")), "--layers", one["layers"], "--d-model", one["d_model"]]
                    trained = train(machine, f"frontier-{baseline['layers']}-{name}-{seed}", *texts(machine), *model, *LEARN, "--seed", seed)
                    return {**{key: one[key] for key in ("layers", "d_model", "latency_ms", "peak_bytes")}, "decoder": one["params"]["decoder"], **trained}
                yield f"{baseline['layers']}, {name}, seed {seed}", run


def fused(machine):
    """LTS's Appendix B: models of 3 and 5 layers in one training, and each by itself."""
    frame = words({"backbone": "gpt2", "d-model": 128, "heads": 4, "vocab": 256, "max-len": 128})
    models = {"3 layers": ["--layers", "(s f384)x3"], "5 layers": ["--layers", "(sf)x5"], "fused": ["--fuse", "(s f384)x3 + (sf)x5"]}

    def run(name, model, seed):
        return train(machine, f"fused-{name}-{seed}", *texts(machine), *frame, *model, *LEARN, "--seed", seed, steps=600)
    return seeds(machine, models, run)


def final_norm(machine):
    """Whether a norm after the last block changes what PAR's search finds where norms stand before blocks; then both trained."""
    space = "[baseline]\nbackbone = \"transformer_xl\"\nlayers = \"(sf)x4\"\nd_model = 128\nvocab = 256\nheads = 4\ninner = 512\n"
    space += "norm = \"pre\"\ntgt_len = 128\nfinal_norm = {}\n\n[[slots]]\nrepeat = 8\noptions = [\"-\", \"s\", \"f\"]\n"

    def run(name, norm, seed):
        out = machine.work / f"norm-{norm}-{seed}"
        steps = 20 if machine.quick else 400
        flags = ["--data", texts(machine)[1], "--preset", "par", "--steps", steps, "--batch", 16, "--lr", 0.003, "--arch-lr", 0.1, "--precision", "bf16", "--seed", seed, "--out", out]
        flags = ["--resume", out] if (out / "search.json").exists() else [machine.file(f"norm-{norm}.toml", space.format(norm)), *flags]
        found = machine.lathe("search", "differentiable", *flags)
        trained = train(machine, f"norm-{norm}-{seed}-found", *texts(machine), "--model", out / "found.toml", *LEARN, "--seed", seed, steps=400)
        letters = expand(found["layers"])
        return {"layers": found["layers"], "probabilities": found["probabilities"], **{name: letters.count(letter) for name, letter in {"attention": "s", "ffn": "f", "skips": "-"}.items()}, **trained}
    return seeds(machine, {"without": "false", "with": "true"}, run)


GROUPS = {
    "thesis": thesis, "coefficient": coefficient, "searched": searched, "longer": longer, "topology": topology,
    "homogeneous": homogeneous, "rates": rates, "frontier": frontier, "fused": fused, "final_norm": final_norm,
}
