"""Latencies and memory with random weights, which need quiet cores and no training."""

import csv
import json

from machine import ROOT, load

XL = """[baseline]
backbone = "transformer_xl"
layers = "(sf)x16"
d_model = 512
vocab = 20000
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
# The papers' FLOPs have an output of little more than the first cluster; lathe computes the probabilities of all 267,735 tokens.
HEAD = {"vocab": 20000, "cutoffs": []}


def lengths(tgt, mem, clamp):
    return {"tgt_len": tgt, "mem_len": mem, "clamp_len": clamp}


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


def base(machine):
    """PAR's Tables 1 and A2 and Figure 5, with an output of the first cluster's size and with all of it."""
    for output, keys in {"head": HEAD, "all tokens": {}}.items():
        for memory in MEMORIES:
            def run(keys=keys, memory=memory):
                names = ("transformer_xl_base", "sandwich_base", "par_base")
                return machine.compared({name: machine.model(name, **lengths(64, 640, 400), **keys) for name in names}, "--memory", memory)
            yield f"{memory}, {output}", run


def large(machine):
    """PAR's Table 2, Large with an output of the first cluster's size."""
    for size, keys in {"24b": lengths(128, 2052, 820), "large": {**lengths(128, 1600, 1000), **HEAD}}.items():
        for memory in MEMORIES:
            def run(size=size, keys=keys, memory=memory):
                return machine.compared({name: machine.model(f"{name}_{size}", **keys) for name in ("transformer_xl", "sandwich", "par")}, "--memory", memory)
            yield f"{size}, {memory}", run


# Half of attention skipped, the rest with fewer heads, mixtures towards the end: what PLANER's text says of its pictures.
PLANER = "(s4 f)x3 (s2 f)x3 (- f)x3 (- m8k1)x3"


def batches(machine):
    """PLANER's Figure 4, with the stacks on enwik8."""
    for batch in (1, 4, 16, 64)[:2 if machine.quick else 4]:
        for memory in MEMORIES:
            def run(batch=batch, memory=memory):
                models = {name: machine.model(f"{name}_24b", **lengths(64, 640, 400)) for name in ("transformer_xl", "sandwich", "par")}
                models["planer"] = machine.model("transformer_xl_24b", **lengths(64, 640, 400), layers=PLANER)
                return machine.compared(models, "--memory", memory, "--batch", batch)
            yield f"batch {batch}, {memory}", run


def opt(machine):
    """LTS's Appendix H: of the models of its Table 3 every third beside OPT-350M."""
    tables = (ROOT / "crates/lathe-model/tests/it/fixtures/lts_tables.csv").read_text().splitlines()
    rows = [row for row in csv.DictReader(line for line in tables if not line.startswith("#")) if row["table"] == "3"][1::3]
    tokens = 64 if machine.quick else 2048
    for row in rows[:2] if machine.quick else rows:
        def run(row=row):
            frame = {"d_model": int(row["d_model"]), "heads": int(row["n_head"]), "inner": int(row["d_inner"]), "d_embed": int(row["d_model"])}
            model = machine.file("lts.toml", machine.model("opt_350m", **frame, layers=f"(sf)x{row['n_layer']}").read_text())
            return machine.compared({"OPT-350M": "opt_350m", row["name"]: model}, "--seq", tokens)
        yield f"{row['name']}, {tokens} tokens", run


def objectives(machine):
    """LTS's Figure 15: of all candidates of a search, pairs that two objectives cannot tell apart."""
    def run():
        out = machine.work / "objectives"
        space = ["proxies_small", "--iterations", 2, "--population", 8] if machine.quick else ["lts_gpt2", "--seq", 192]
        before = load()
        machine.lathe("search", "pareto", *space, "--searcher", "lts", "--no-measure", "--most-measured", 0, "--out", out)
        points = []
        for one in map(json.loads, (out / "candidates.jsonl").read_text().splitlines()):
            count = machine.lathe("count", machine.file("candidate.toml", one["model"]))
            points.append((count["params"]["decoder"], one["latency_ms"], one["peak_bytes"]))
        return {"pairs": pairs(points), "candidates": len(points), "load": [before, load()]}
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
