"""Latencies and memory with random weights, which need quiet cores and no training."""

import csv
import json

from machine import ROOT, load

XL = """[baseline]
backbone = "transformer_xl"
layers = "(sf)x16"
d_model = 512
vocab = 267735
cutoffs = [19997, 39997, 199997]
heads = 8
d_head = 64
inner = 2048
tgt_len = 64
mem_len = 640
clamp_len = 400

[[slots]]
repeat = 32
options = [{}]
"""
MEMORIES = ["cached", "reproject"]


def lengths(tgt, mem, clamp):
    return ["--tgt-len", tgt, "--mem-len", mem, "--clamp-len", clamp]


def profiled(machine, options, memory, batch):
    """Microseconds of each option and of the frame: median, low, high."""
    space = machine.file("space.toml", XL.format(", ".join(f'"{option}"' for option in options)))
    before = load()
    found = machine.lathe("profile", space, "--memory", memory, "--batch", batch, "--fresh")
    us = {"frame" if one["block"] is None else one["block"]: [one["latency_us"][key] for key in ("median", "low", "high")] for one in found["blocks"]}
    return {"us": us, "others_share": found.get("others_share"), "load": [before, load()]}


def blocks(machine):
    """PAR's Figure 1 and PLANER's premise: one block of each kind, 64 tokens after 640."""
    for memory in MEMORIES:
        yield memory, lambda memory=memory: profiled(machine, ["-", "s8", "f"], memory, 1)


def options(machine):
    """PLANER's Figure 6: its options and the iso-parametric feed-forward."""
    every = ["-", "s1", "s2", "s4", "s8", "f", "m8k1", "m8k2", "f16384"]
    for memory in MEMORIES:
        yield memory, lambda memory=memory: profiled(machine, every, memory, 2 if machine.quick else 64)


# The papers' FLOPs have an output of little more than the first cluster; `lathe bench` computes the probabilities of all 267,735 tokens.
HEAD = ["--vocab", 20000, "--cutoffs", ""]


def base(machine):
    """PAR's Tables 1 and A2 and Figure 5, with an output of the first cluster's size and with all of it."""
    models = {name: [name] for name in ("transformer_xl_base", "sandwich_base", "par_base")}
    for output, flags in {"head": HEAD, "all tokens": []}.items():
        for memory in MEMORIES:
            yield f"{memory}, {output}", lambda memory=memory, flags=flags: machine.in_turns(models, *lengths(64, 640, 400), *flags, "--memory", memory)


def large(machine):
    """PAR's Table 2, Large with an output of the first cluster's size."""
    for size, at in {"24b": lengths(128, 2052, 820), "large": [*lengths(128, 1600, 1000), *HEAD]}.items():
        models = {name: [f"{name}_{size}"] for name in ("transformer_xl", "sandwich", "par")}
        for memory in MEMORIES:
            yield f"{size}, {memory}", lambda models=models, at=at, memory=memory: machine.in_turns(models, *at, "--memory", memory)


# Half of attention skipped, the rest with fewer heads, mixtures towards the end: what PLANER's text says of its pictures.
PLANER = "(s4 f)x3 (s2 f)x3 (- f)x3 (- m8k1)x3"


def batches(machine):
    """PLANER's Figure 4, with the stacks on enwik8."""
    models = {"transformer_xl": ["transformer_xl_24b"], "sandwich": ["sandwich_24b"], "par": ["par_24b"], "planer": ["transformer_xl_24b", "--layers", PLANER]}
    for batch in (1, 4, 16, 64)[:2 if machine.quick else 4]:
        for memory in MEMORIES:
            yield f"batch {batch}, {memory}", lambda batch=batch, memory=memory: machine.in_turns(
                models, *lengths(64, 640, 400), "--memory", memory, "--batch", batch, rounds=6)


def opt(machine):
    """LTS's Appendix H: the models of its Table 3 beside OPT-350M."""
    tables = (ROOT / "crates/lathe-model/tests/it/fixtures/lts_tables.csv").read_text().splitlines()
    rows = [row for row in csv.DictReader(line for line in tables if not line.startswith("#")) if row["table"] == "3"]
    models = {}
    for row in rows[:3] if machine.quick else rows:
        layers = f"(s{row['n_head']} f{row['d_inner']})x{row['n_layer']}"
        models[row["name"]] = ["opt_350m", "--layers", layers, "--d-model", row["d_model"], "--heads", row["n_head"], "--inner", row["d_inner"]]
    tokens = 64 if machine.quick else 2048
    yield f"{tokens} tokens", lambda: machine.in_turns(models, "--seq", tokens, rounds=6)


def objectives(machine):
    """LTS's Figure 15: of all candidates of a search, pairs that two objectives cannot tell apart."""
    def run():
        out = machine.work / "objectives"
        size = ["--iterations", 2, "--population", 8] if machine.quick else ["--iterations", 30, "--population", 100]
        before = load()
        machine.lathe("search", "pareto", "lts_gpt2", "--seq", 192, "--searcher", "lts", "--no-measure", "--most-measured", 0, *size, "--out", out)
        with (out / "candidates.jsonl").open() as lines:
            points = [json.loads(line) for line in lines]
        return {"pairs": pairs([point["values"] for point in points]), "candidates": len(points), "load": [before, load()]}
    yield "all candidates of a search", run


def pairs(points):
    """The widest gap in the third objective among candidates that agree within 1 % in the other two."""
    def close(a, b):
        return abs(a - b) <= 0.01 * min(a, b)

    def widest(same, other):
        gaps = [max(a[other], b[other]) / min(a[other], b[other]) for i, a in enumerate(points) for b in points[:i] if all(close(a[k], b[k]) for k in same)]
        return {"pairs": len(gaps), "widest": max(gaps, default=1.0)}
    return {"latency": widest((0, 2), 1), "memory": widest((0, 1), 2)}


GROUPS = {"blocks": blocks, "options": options, "base": base, "large": large, "batches": batches, "opt": opt, "objectives": objectives}
