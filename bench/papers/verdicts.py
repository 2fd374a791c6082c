"""What the records say of each table and figure: our figure, and a verdict that follows from an interval.

A claim is a range. Our interval inside it agrees, outside of it disagrees, and across its edge nothing can be decided. Intervals of
means are Student's, of ratios of latencies the least and the greatest of all rounds, of correlations from the audit's bootstrap.
"""

import json
import math
import random
import re
import statistics

from machine import ROOT
from trained import expand

AGREES, DISAGREES, OPEN = "agrees", "**disagrees**", "cannot be decided"
STUDENT = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26, 10: 2.23, 11: 2.20}
RUNS = ROOT / "bench/runs"


def records(name):
    """Results by group and name."""
    path, found = RUNS / f"{name}.jsonl", {}
    for record in map(json.loads, path.read_text().splitlines() if path.exists() else []):
        found.setdefault(record["group"], {})[record["name"]] = record["result"]
    return found


OWN, SCRATCH, SEARCH, ENCODERS = records("papers"), records("from_scratch"), records("search"), records("pretrain")
OWN.update({f"bench/pretrain {group}": found for group, found in ENCODERS.items()})


def judged(interval, claim):
    (low, high), (least, most) = interval, claim
    return AGREES if least <= low and high <= most else DISAGREES if high < least or low > most else OPEN


def mean(values):
    """Mean and its 95 % interval."""
    middle = statistics.mean(values)
    half = STUDENT.get(len(values) - 1, 2.1) * statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.inf
    return middle, (middle - half, middle + half)


def shown(value, interval, digits=2, unit=""):
    return f"{value:.{digits}f}{unit} [{interval[0]:.{digits}f}, {interval[1]:.{digits}f}]"


def by_seed(group, key="bits_per_byte"):
    """A group of trainings: its figure by configuration, in the order of seeds."""
    found = {}
    for name, result in OWN.get(group, {}).items():
        found.setdefault(name.rsplit(", seed ", 1)[0], []).append(result[key])
    return found


def change(group, of, to):
    """Bits per byte of one over those of another in percent, seed by seed; nothing before three seeds of both are there."""
    found = by_seed(group)
    pairs = list(zip(found.get(of, []), found.get(to, [])))
    return mean([100 * (a / b - 1) for a, b in pairs]) if len(pairs) >= 3 else None


def share(compared, name):
    """A model's latency as a share of that of what it stood beside, and its interval."""
    one = compared["models"][name]
    return 1 / one["speedup"], tuple(1 / times for times in reversed(one["speedup_interval"]))


def latency(group, name, claim, names):
    """Shares of the latency with the memory cached and projected anew, the latter being what the papers measured."""
    found = OWN.get(group, {})
    if any(of_memory not in found for of_memory in names.values()):
        return None
    out = {memory: share(found[of_memory], name) for memory, of_memory in names.items()}
    here = "; ".join(f"{memory} {shown(*one)}" for memory, one in out.items())
    return here, judged(out["re-projected"][1], claim)


MEMORY = {"cached": "cached", "re-projected": "reproject"}


def exact(test):
    return f"the same, exactly (test `{test}`)", AGREES


def par_latency():
    found = latency("base", "par_base", (0, 0.70), {memory: f"{name}, head" for memory, name in MEMORY.items()})
    return found and (f"PAR / Transformer-XL: {found[0]}", f"latency: {found[1]} (claim: at most 0.70, re-projected); quality: Figure 4")


def par_large():
    out = []
    for size, claim in {"large": (0, 0.76), "24b": (0, 0.72)}.items():
        found = latency("large", "par", claim, {memory: f"{size}, {name}" for memory, name in MEMORY.items()})
        if not found:
            return None
        out.append((f"{size}: {found[0]}", f"{size} {found[1]} (claim: at most {claim[1]})"))
    return "; ".join(one for one, _ in out), "latency: " + "; ".join(one for _, one in out) + "; quality not tried: it is that of weeks on GPUs"


def attention_found():
    """Attention blocks that PAR's search kept, by third."""
    return [result["attention_per_third"] for result in SCRATCH["par"].values()]


def par_figure_2():
    middle, interval = mean([sum(thirds) for thirds in attention_found()])
    here = f"search keeps {shown(middle, interval, 1)} of 16 attention blocks, the baseline has 8"
    trained = by_seed("searched")
    pairs = list(zip(trained.get("searched", []), trained.get("baseline", [])))
    if len(pairs) >= 3:
        better, of_better = mean([100 * (a / b - 1) for a, b in pairs])
        here += f"; retrained {shown(better, of_better, 1, ' %')} bits per byte against it"
    return here, f"{judged(interval, (0, 8))} (claim: below 8)"


def par_figure_3():
    middle, interval = mean([thirds[2] for thirds in attention_found()])
    return f"{shown(middle, interval, 1)} of 5 slots in the last third", f"{judged(interval, (0, 1))} (claim: below 1)"


def within(group, of, to, most, what):
    found = change(group, of, to)
    return found and (f"{what}: {shown(*found, 2, ' %')} bits per byte", f"{judged(found[1], (-math.inf, most))} (claim: at most {most} % worse)")


def par_figure_6():
    found = ENCODERS.get("table3", {})
    models = [found.get(f"{name}, masked tokens") for name in ("BERT", "PAR BERT")]
    if None in models:
        return None
    ours, theirs = (dict(map(tuple, one["curve"])) for one in reversed(models))
    off = [100 * (ours[step] / theirs[step] - 1) for step in sorted(ours.keys() & theirs.keys())]
    here = f"losses of masked tokens on the way, one seed: PAR BERT {min(off):+.1f} to {max(off):+.1f} %, in the end {off[-1]:+.1f} %"
    return here, f"{judged((min(off), max(off)), (-2, 2))} (claim: they lie on each other)"


def par_table_3():
    found, timed = ENCODERS.get("table3", {}), ENCODERS.get("speed", {}).get("PAR BERT, batch 1")
    pairs = [[found.get(f"{name}, {task}") for name in ("PAR BERT", "BERT")] for task in ("MRPC", "SST-2")]
    if timed is None or None in sum(pairs, []):
        return None
    off = [100 * (ours["median"]["accuracy"] - theirs["median"]["accuracy"]) for ours, theirs in pairs]
    share = [1 / one for one in (timed["speedup"], *reversed(timed["speedup_interval"]))]
    here = f"{shown(share[0], share[1:])} of the latency; accuracy MRPC {off[0]:+.1f}, SST-2 {off[1]:+.1f}, medians of five"
    return here, f"latency {judged(share[1:], (0, 0.7))} (claim: 0.66); accuracy {judged((min(off), max(off)), (-0.5, 100))} (claim: no worse)"


def par_thesis():
    found = by_seed("thesis", "kinds")
    few, many, last = (found.get(name, []) for name in ("3", "6, everywhere", "3, last two thirds"))
    if min(map(len, (few, many, last))) < 3:
        return None

    def context(kinds):
        return next(row["bits_per_byte"] for row in kinds if row["kind"] == "context")
    saturation = mean([100 * (context(a) / context(b) - 1) for a, b in zip(few, many)])
    place = mean([100 * (context(a) / context(b) - 1) for a, b in zip(last, few)])
    here = f"context, 3 attention blocks of 12 against 6: {shown(*saturation, 1, ' %')}; in the last two thirds against the first: {shown(*place, 1, ' %')}"
    return here, f"saturation {judged(saturation[1], (-math.inf, 2))} (claim: at most 2 % worse); place {judged(place[1], (0, math.inf))} (claim: the last are worse)"


def audit_of(tables, table, proxy):
    found = next(one for one in tables if one["table"] == table)
    return next(one for one in found["proxies"] if one["name"] == proxy)


def published(proxy):
    tables = OWN.get("tables", {}).get("proxies")
    return tables and {name: audit_of(tables, f"random_{name}_wt103", proxy) for name in ("GPT2", "TransXL")}


def lts_figure_3():
    found = published("decoder_params")
    if not found:
        return None
    here = ", ".join(f"{name} {shown(one['spearman'], one['spearman_interval'], 3)}" for name, one in found.items())
    same = all(round(one["spearman"], 2) == 0.97 for one in found.values())
    return f"{here} on the authors' models", f"{AGREES if same else DISAGREES} (claim: 0.97; the same models); LM1B's random models are not published"


def lts_figure_6():
    decoder, total = published("decoder_params"), published("total_params")
    if not decoder:
        return None
    here = ", ".join(f"{name} {total[name]['spearman']:.3f} (total) and {decoder[name]['spearman']:.3f} (decoder)" for name in total)
    lower = all(total[name]["spearman_interval"][1] < decoder[name]["spearman_interval"][0] for name in total)
    return here, f"{AGREES if lower else OPEN} (claim: intervals apart)"


def scored(proxy):
    tables = SEARCH["audit"]["40 architectures on enwik8"]["tables"]
    found = audit_of(tables, "proxies_small", proxy)
    return found["spearman"], found["spearman_interval"]


def lts_figure_4():
    partial, decoder = scored("partial_training:5"), scored("decoder_params")
    here = f"5 % of the steps {shown(*partial)}, decoder parameters {shown(*decoder)}; 40 small GPT-2s with narrow embeddings"
    return here, f"partial training {judged(partial[1], (0.9, 1))} (claim: above 0.9); decoder parameters as good: {judged(decoder[1], (partial[1][0], 1))} (claim: within its interval)"


def lts_figure_5():
    names = ["grad_norm", "snip", "grasp", "fisher", "synflow", "jacob_cov", "relu_log_det"]
    of_names = {name: scored(name) for name in names}
    best = max(of_names, key=lambda name: of_names[name][0])
    outside = all(interval[1] < 0.8 for _, interval in of_names.values())
    decoder = scored("decoder_params")
    return f"the best of seven is {best}, {shown(*of_names[best])}; decoder parameters {shown(*decoder)}", f"{DISAGREES if outside else OPEN} (claim: all above 0.8); decoder parameters are best: {OPEN}"


def topologies(sizes, most):
    """Perplexity's largest deviation from the median, latency and memory from least to greatest, over equal sizes."""
    out = []
    for size in sizes:
        middle = statistics.median(one["perplexity"] for one in size)
        off = max(abs(one["perplexity"] / middle - 1) for one in size)
        ms, peak = ([one["latency_ms"]["median"] for one in size], [one["peak_bytes"] for one in size])
        out.append((100 * off, max(ms) / min(ms), max(peak) / min(peak)))
    worst = max(off for off, *_ in out)
    here = "; ".join(f"within {off:.0f} %, latency up to {ms:.1f} times, memory {peak:.1f}" for off, ms, peak in out)
    return here, f"{judged((worst, worst), (0, most))} (claim: within {most} %); one seed of 1,000 steps, in which deep models fall behind"


def lts_figure_7():
    found = SEARCH["topology"]
    return topologies([[one for name, one in found.items() if name.startswith(size)] for size in ("0.4 M", "1.2 M")], 12.8)


def lts_figure_8():
    saving = SEARCH["published"]["30 iterations, population 100, empty cache"]["mean_saving"]
    here = f"GPT-2, untrained: {100 * saving['latency']:.0f} % of the latency and {100 * saving['memory']:.0f} % of the memory at equal decoder parameters"
    return here, f"{OPEN} before models of the frontier are trained (group `frontier`)"


def lts_figure_11():
    devices = OWN.get("tables", {}).get("frontiers")
    here = devices and ", ".join(f"{one['backbone']} {100 * one['d_avg']:.1f} %" for one in devices)
    return devices and (f"d_avg among the published models of the frontiers (LM1B, Core i7): {here}", f"{OPEN}: the other 1,127 models are not published")


def lts_figure_12():
    found = published("decoder_params")
    here = found and "; ".join(f"{name} {' '.join(format(one['spearman'], '.2f') for one in found[name]['size_bins'])}" for name in found)
    return found and (f"quarters of 200 random models by size: {here}", f"{OPEN}: no number is printed, and the 1,200 models are not published")


def lts_appendix_h():
    found = {name: one for result in OWN.get("opt", {}).values() for name, one in result["models"].items()}
    if len(found) < 7:
        return None
    best = max(found, key=lambda name: found[name]["speedup"])
    interval = found[best]["speedup_interval"]
    faster = sum(one["speedup_interval"][0] > 1 for one in found.values())
    here = f"{faster} of {len(found)} are faster; {best} most, {shown(found[best]['speedup'], interval)} times"
    return here, f"{judged(interval, (1.5, 1.7))} (claim: up to 1.5 to 1.7 times); accuracy cannot be tried"


def lts_figure_15():
    found = next(iter(OWN.get("objectives", {}).values()), None)
    if not found:
        return None
    pairs = found["pairs"]
    widest = pairs["latency"]["widest"]
    here = f"of {found['candidates']} candidates: latency up to {widest:.2f} times at equal parameters and memory, memory up to {pairs['memory']['widest']:.2f} times at equal parameters and latency"
    return here, f"{judged((widest, widest), (1.5, math.inf))} (claim: pairs at 1.5 times and more; as predicted)"


# What a search costs, in hours of two cores: watts of two cores of a server with their share of memory, dollars of such a machine;
# kilograms of CO2e for a kilowatt-hour are those of LTS's own Table 1, for GPUs of 300 W.
WATTS, DOLLARS, KILOGRAMS = 30, 0.10, 5433 / 2.2046 / 19024 / 0.3


def lts_table_1():
    hours = SEARCH["published"]["30 iterations, population 100, empty cache"]["seconds"] / 3600
    kwh = hours * WATTS / 1000
    here = f"search {hours:.2f} h of two cores, about {1000 * kwh:.1f} Wh, {1000 * kwh * KILOGRAMS:.1f} g of CO2e, {100 * hours * DOLLARS:.1f} cents; no training"
    decoder, partial = scored("decoder_params"), scored("partial_training:10")
    apart = decoder[1][1] < partial[1][0]
    return here, f"cost {AGREES} (claim: about 0); decoder parameters rank better than partial training: {DISAGREES if apart else OPEN} ({shown(*decoder)} and {shown(*partial)} at 10 % of the steps)"


def lts_search_cost():
    hours = SEARCH["published"]["30 iterations, population 100, empty cache"]["seconds"] / 3600
    return f"{60 * hours:.1f} min on two cores of an EPYC, blocks measured instead of models", f"{judged((hours, hours), (0, 3))} (claim: under 3 hours)"


def lts_fused():
    found = OWN.get("fused", {})
    if len(found) < 9:
        return None
    seconds = [[found[f"{name}, seed {seed}"]["cpu_seconds"] for name in ("fused", "5 layers")] for seed in range(3)]
    whole = [fused / alone for fused, alone in seconds if fused and alone]  # of trainings that nobody interrupted
    cost = mean(whole) if whole else None
    off = {name: mean([100 * (found[f"fused, seed {seed}"]["fused"][i] / found[f"{name}, seed {seed}"]["bits_per_byte"] - 1) for seed in range(3)]) for i, name in enumerate(("3 layers", "5 layers"))}
    time = f"{shown(*cost)} of the time of the one of 5 alone; " if cost else ""
    here = f"{time}bits per byte " + ", ".join(f"{name} {shown(*one, 1, ' %')}" for name, one in off.items())
    return here, f"cost {judged(cost[1], (0, 1.1)) if cost else OPEN} (claim: at most 1.1); what sharing costs is not said there"


def rank_correlation(group, parameters):
    """Spearman's of parameters and quality over trained architectures, with a bootstrap's interval."""
    models = list(OWN.get(group, {}).values())
    if len(models) < 20:
        return None

    def spearman(of):
        ranks = [ranked([one[key] for one in of]) for key in (parameters, "loss")]
        return -statistics.correlation(*ranks) if all(len(set(one)) > 1 for one in ranks) else 0.0
    draw = random.Random(0)
    drawn = sorted(spearman(draw.choices(models, k=len(models))) for _ in range(1000))
    return spearman(models), (drawn[25], drawn[974])


def ranked(values):
    """Ranks, ties in the middle."""
    order = sorted(values)
    return [order.index(value) + (order.count(value) - 1) / 2 for value in values]


def by_parameters(group, claims):
    """Claims of rank correlation by the parameters that are counted."""
    found = {key: rank_correlation(group, key) for key in claims}
    if None in found.values():
        return None
    here = "; ".join(f"{key} {shown(*one)}" for key, one in found.items())
    return f"{len(OWN[group])} small models: {here}", "; ".join(f"{key} {judged(found[key][1], claim)} (claim: {claim[0]} and above)" for key, claim in claims.items())


def lts_figure_14():
    names = {name.rsplit(", seed ", 1)[0] for name in OWN.get("topology", {})}
    bits = by_seed("topology")
    if len(names) < 4 or min(map(len, bits.values())) < 3:
        return None
    losses = by_seed("topology", "loss")
    of_seed = [[math.exp(losses[name][seed]) for name in names] for seed in range(3)]
    off = mean([100 * max(abs(one / statistics.median(seed) - 1) for one in seed) for seed in of_seed])
    ms = [statistics.median(one) for one in by_seed("topology", "latency_ms").values()]
    here = f"perplexity within {shown(*off, 1, ' %')} of the median, latency up to {max(ms) / min(ms):.1f} times"
    return here, f"{judged(off[1], (0, 7))} (claim: within 7 %)"


def lts_rates():
    found = {}
    for name, result in OWN.get("rates", {}).items():
        rate, architecture = name.split(", ")
        found.setdefault(architecture, {})[rate] = result["loss"]
    if len(found) < 12 or any(len(one) < 4 for one in found.values()):
        return None
    best = [min(one, key=one.get) for one in found.values()]
    most = max(set(best), key=best.count)
    share, n = best.count(most) / len(best), len(best)
    interval = wilson(share, n)
    return f"{most} is best for {shown(100 * share, [100 * x for x in interval], 0, ' %')} of {n}", f"{judged(interval, (0.9, 1))} (claim: over 90 %)"


def wilson(share, n, z=1.96):
    """95 % interval of a share."""
    middle, half = share + z * z / (2 * n), z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)


def lts_frontiers():
    """Trained points of a frontier beside the scaled baselines with as many decoder parameters or fewer; before that, untrained."""
    found = OWN.get("frontier", {})
    names = [name for name in found if ", baseline, " in name and name.replace("baseline", "found") in found]
    if len(names) < 15:
        return lts_figure_8()
    pairs = {}
    for name in names:  # seeds of one pair are not several pairs
        pairs.setdefault(re.sub(r", seed \d+", "", name), []).append((found[name], found[name.replace("baseline", "found")]))
    of_pair = lambda change: mean([statistics.mean(change(a, b) for a, b in seeds) for seeds in pairs.values()])
    faster = of_pair(lambda a, b: 100 * (1 - b["latency_ms"] / a["latency_ms"]))
    better = of_pair(lambda a, b: 100 * (b["bits_per_byte"] / a["bits_per_byte"] - 1))
    here = f"GPT-2, enwik8, {len(pairs)} pairs, {len(names)} trainings of each side: {shown(*faster, 0, ' %')} less latency at {shown(*better, 1, ' %')} bits per byte"
    return here, f"faster {judged(faster[1], (0, 100))}, no worse {judged(better[1], (-math.inf, 1))} (claim: less latency at at most 1 % worse)"


def premise():
    found = OWN.get("blocks", {})
    if len(found) < 2:
        return None
    shares = {}
    for memory, name in MEMORY.items():
        us = found[name]["us"]
        shares[memory] = [us["s8d64"][i] / (us["s8d64"][i] + us["f2048"][j]) for i, j in ((0, 0), (1, 2), (2, 1))]
    here = "of the blocks' time: " + "; ".join(f"{memory} {shown(100 * one[0], [100 * x for x in one[1:]], 0, ' %')}" for memory, one in shares.items())
    return here, "; ".join(f"{memory} {judged(one[1:], (0.8, 1))}" for memory, one in shares.items()) + " (claim: above 80 %)"


def par_figure_1():
    found = OWN.get("blocks", {})
    timed = [f"{memory} {found[name]['us']['s8d64'][0] / found[name]['us']['f2048'][0]:.1f}" for memory, name in MEMORY.items() if name in found]
    here, verdict = exact("par_figure_1")
    return here + (f"; in time attention costs {' and '.join(timed)} feed-forwards" if timed else ""), verdict


def planer_targets():
    return [(result["target"], result["estimated"], result["measured"], expand_wide(result["layers"])) for result in SCRATCH["targets"].values()]


def expand_wide(layers):
    """Letters of a stack whose blocks have knobs."""
    return [word[0] for word in expand_words(layers)]


def expand_words(layers):
    while "(" in layers:
        group = re.search(r"\(([^()]*)\)x(\d+)", layers)
        layers = layers[:group.start()] + f" {group[1]} " * int(group[2]) + layers[group.end():]
    return re.findall(r"[a-z]\w*|-", layers)


def planer_figure_1():
    found = planer_targets()
    counts = {target: statistics.mean(blocks.count("s") for t, _, _, blocks in found if t == target) for target in sorted({t for t, *_ in found})}
    fewer = all(a <= b for a, b in zip(counts.values(), list(counts.values())[1:]))
    mixtures = sum("m" in blocks for *_, blocks in found)
    here = "attention blocks by target: " + ", ".join(f"{target} {count:g}" for target, count in counts.items()) + f"; mixtures in {mixtures} of {len(found)}"
    return here, f"fewer attention blocks: {AGREES if fewer else OPEN}; mixtures added: {judged((mixtures, mixtures), (1, len(found)))}"


def planer_figure_5():
    found = planer_targets()
    n, out = len(found), []
    for what, i, j in [("target and estimate", 0, 1), ("estimate and measurement", 1, 2)]:
        r = statistics.correlation([one[i] for one in found], [one[j] for one in found])
        z, half = math.atanh(r), 1.96 / math.sqrt(n - 3)
        out.append((what, r, (math.tanh(z - half), math.tanh(z + half))))
    here = "; ".join(f"{what} {shown(r, interval, 3)}" for what, r, interval in out)
    verdicts = {judged(interval, (0.9, 1)) for _, _, interval in out}
    return f"{here}, {n} searches", f"{verdicts.pop() if len(verdicts) == 1 else OPEN} (claim: above 0.9)"


def changes(group):
    return [100 * (one["found"]["valid"]["bits_per_byte"] / one["baseline"]["valid"]["bits_per_byte"] - 1) for one in SCRATCH[group].values()]


def planer_figure_9():
    off, speed = mean(changes("main")), mean([one["speedup"] for one in SCRATCH["main"].values()])
    here = f"six jobs: {shown(*off, 2, ' %')} bits per byte at {shown(*speed)} times the speed; four of six gave fewer layers, not what was searched"
    return here, f"quality {judged(off[1], (-0.5, 0.5))} (claim: within 0.5 %), speed {judged(speed[1], (2, math.inf))} (claim: over 2)"


def planer_architectures():
    found = [one["found"]["layers"] for one in SCRATCH["main"].values()] + [one["layers"] for rivals in SCRATCH["compare"].values() for one in rivals if one["name"] == "searched"]
    mixtures = sum("m" in expand_wide(layers) for layers in found)
    fewer = sum(expand_wide(layers).count("s") < 8 for layers in found)  # of the 8 that all begin with
    return f"a slice of enwik8, half the latency: attention skipped rather than narrowed; mixtures in {mixtures} of {len(found)}", f"attention pruned in {fewer}: {judged((fewer, fewer), (len(found), len(found)))}; mixtures added: {judged((mixtures, mixtures), (1, len(found)))}"


def planer_table_1():
    here = []
    for name, key in {"PLANER": "main", "iso-parameter": "iso"}.items():
        here.append(f"{name} {shown(*mean(changes(key)), 2, ' %')}")
    return "bits per byte against the baseline: " + ", ".join(here), f"{judged(mean(changes('main'))[1], (-1, 0.5))} (claim: from 1 % better to 0.5 % worse)"


def planer_figure_4():
    found = OWN.get("batches", {})
    names = [name for name in found if name.endswith("reproject")]
    if len(names) < 4:
        return None
    shown_of = {name: shown(found[name]["models"]["planer"]["speedup"], found[name]["models"]["planer"]["speedup_interval"]) for name in names}
    here = "re-projected, a stack in its manner: " + "; ".join(f"{name.split(',')[0]} {shown_of[name]}, PAR {found[name]['models']['par']['speedup']:.2f}" for name in names)
    return here, f"{judged(found[names[-1]]['models']['planer']['speedup_interval'], (2, math.inf))} (claim: over 2 at batch 64)"


def planer_figure_6():
    found = OWN.get("options", {})
    if len(found) < 2:
        return None
    out = []
    for memory, name in MEMORY.items():
        us = found[name]["us"]
        shares = [us["s8d64"][i] / us["f2048"][j] for i, j in ((0, 0), (1, 2), (2, 1))]
        mixture = max(value[2] for key, value in us.items() if key.startswith(("m8", "moe"))) < us["f16384"][1]
        out.append((f"{memory} attention {shown(shares[0], shares[1:], 1)} feed-forwards", shares[1:], mixture))
    here = "; ".join(one[0] for one in out)
    return here, f"6.2 times: {judged(out[-1][1], (5.2, 7.2))} (claim: 5.2 to 7.2, re-projected); mixtures cheaper than the wide feed-forward: {AGREES if all(one[2] for one in out) else OPEN}"


def final_norm():
    attention, skips = by_seed("final_norm", "attention"), by_seed("final_norm", "skips")
    if min(map(len, [*attention.values(), [] if len(attention) < 2 else [0] * 3])) < 3:
        return None
    less = mean([a - b for a, b in zip(attention["with"], attention["without"])])
    here = f"attention blocks of 8 with it less those without: {shown(*less, 1)}; skips {skips['with']} and {skips['without']}"
    return here, f"changes it: {DISAGREES if less[1][0] <= 0 <= less[1][1] and less[1][1] - less[1][0] < 2 else OPEN if less[1][0] <= 0 <= less[1][1] else AGREES}"


VERDICTS = {
    "PAR Figure 1": par_figure_1,
    "PAR Figure 2": par_figure_2,
    "PAR Figure 3": par_figure_3,
    "PAR Figure 4": lambda: within("coefficient", "5", "baseline", 0.5, "p = 5 against the baseline"),
    "PAR Figure 5": par_latency,
    "PAR Figure 6": par_figure_6,
    "PAR Table 3": par_table_3,
    "PAR Table 1": par_latency,
    "PAR Table 2": par_large,
    "PAR Table A1": lambda: ("`lathe models`: the same widths; recipe `par_base`", AGREES),
    "PAR Table A2": lambda: ("192.0 M and 199.8 M; 25.3 and 14.9 GFLOP of blocks and an output that depends on the text (test `par_table_a2`)", f"parameters {AGREES}, FLOPs {OPEN}: 27 and 17 lie within what they can be"),
    "PAR Table A3": lambda: within("longer", "par, 2800 steps", "baseline, 2800 steps", 1, "PAR against the baseline after 3.5 times as many steps"),
    "PAR thesis": par_thesis,
    "PAR equations 1-4": final_norm,
    "LTS Figure 2": lambda: ("10^37.5 architectures as written, exactly (`lathe space lts_gpt2`)", f"{DISAGREES} (claim: over 10^54, which counts d_model once per layer)"),
    "LTS Figure 3": lts_figure_3,
    "LTS Figure 4": lts_figure_4,
    "LTS Figure 5": lts_figure_5,
    "LTS Figure 6": lts_figure_6,
    "LTS Figure 7": lts_figure_7,
    "LTS Figure 8": lts_frontiers,
    "LTS Figure 11": lts_figure_11,
    "LTS Figure 12": lts_figure_12,
    "LTS Figure 15": lts_figure_15,
    "LTS Figure 13": lambda: by_parameters("homogeneous", {"decoder": (0.9, 1)}),
    "LTS Figure 14": lts_figure_14,
    "LTS Figure 16": lts_frontiers,
    "LTS Figure 18": lambda: by_parameters("bench/pretrain bert_proxy", {"encoder_params": (0.9, 1), "params": (0.9, 1)}),
    "LTS Appendix B, rates": lts_rates,
    "LTS Table 1": lts_table_1,
    "LTS Table 2": lambda: ("five recipes of the same settings, read by a test", AGREES),
    **{f"LTS Table {n}": lambda: exact("lts_tables_3_to_7") for n in (3, 4, 5, 6, 7)},
    "LTS Appendix H": lts_appendix_h,
    "LTS Appendix B, fused": lts_fused,
    "LTS search cost": lts_search_cost,
    "PLANER premise": premise,
    "PLANER Figure 1": planer_figure_1,
    "PLANER Figure 4": planer_figure_4,
    "PLANER Figure 5": planer_figure_5,
    "PLANER Figure 6": planer_figure_6,
    **{f"PLANER Figure {n}": planer_architectures for n in (8, 11)},
    "PLANER Figure 9": planer_figure_9,
    "PLANER Table 1": planer_table_1,
}
