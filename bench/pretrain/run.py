"""What small encoders learn from WikiText-2, and what that costs, each figure recorded as it comes; what is recorded is not run again.

    python3 bench/pretrain/run.py --text WIKITEXT --glue GLUE [--only GROUP ...] [--quick]
    python3 bench/pretrain/run.py --table

WIKITEXT is the folder with train.txt and valid.txt, whose articles are the documents; GLUE has MRPC and SST-2 in it, of which the first
10,000 training sentences are used. Python needs `tokenizers`, for a WordPiece vocabulary of 4,096 learnt from the text. Groups:

    table3      PAR's Table 3, small: BERT, PAR BERT of as many blocks, and BERT distilled to half its layers in DistilBERT's way; loss curves
                of masked tokens, then MRPC and SST-2, the median of five seeds
    speed       the last two beside the first, at 128 tokens (give it a quiet machine)
    sharing     ALBERT: what layers share
    embedding   ALBERT: how wide the embedding is, with and without sharing
    objectives  ALBERT: masked tokens alone, with the next sentence, with the order of sentences; each judged on both
    mobilebert  MobileBERT alone, with a teacher's predictions, with its feature maps too, with its attention too
    mobilebert_speed   norms and activations of MobileBERT-tiny, as times as fast as the slowest (quiet machine, too)
    bert_proxy  LTS's Appendix J: 30 random encoders, whether those with more parameters tell masked tokens better

Records are lines of bench/runs/pretrain.jsonl. Folders are kept under --work, so that whatever was killed goes on. `--quick` takes a few
steps of everything, into a record and a folder of its own. `--table` prints the records as Markdown.
"""

import argparse
import json
import pathlib
import random
import shutil
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]
sys.path.append(str(ROOT / "bench"))
from record import record  # noqa: E402

parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
parser.add_argument("--lathe", default=ROOT / "target/release/lathe")
parser.add_argument("--text", type=pathlib.Path)
parser.add_argument("--glue", type=pathlib.Path)
parser.add_argument("--work", type=pathlib.Path)
parser.add_argument("--record", type=pathlib.Path)
parser.add_argument("--only", nargs="*")
parser.add_argument("--steps", type=int, help="of every pre-training [1500]; a third of it for each encoder of bert_proxy")
parser.add_argument("--threads", default="1", help="losses are the same with any number")
parser.add_argument("--seconds", type=float, help="to measure two models for [8]")
parser.add_argument("--quick", action="store_true")
parser.add_argument("--table", action="store_true")
args = parser.parse_args()

QUICK = args.quick
WORK = args.work or ROOT / ("target/pretrain-quick" if QUICK else "target/pretrain")
RECORD = args.record or (WORK / "record.jsonl" if QUICK else ROOT / "bench/runs/pretrain.jsonl")
STEPS = args.steps or (4 if QUICK else 1500)
SECONDS = args.seconds or (0.2 if QUICK else 8)
SEEDS = 2 if QUICK else 5
PROXIES = 4 if QUICK else 30
VOCAB, LEN = 4096, 128
SEQ = 64
TASKS = {"MRPC": "accuracy f1", "SST-2": "accuracy"}
SENTENCES = 10_000
# Of every training: AdamW with a linear schedule, 32 windows of 64 tokens a step.
TRAIN = ["--batch", 32, "--seq", SEQ, "--lr", "0.001", "--beta2", "0.98", "--weight-decay", "0.01", "--schedule", "linear",
         "--floor", 0, "--warmup", "0.1", "--eval-tokens", 16384]  # fmt: skip
SIZES = ["--d-model", 128, "--heads", 4, "--inner", 512, "--max-len", SEQ, "--dropout", 0, "--attn-dropout", 0]
BERT, PAR, HALF = "(sf)x6", "(sff)x3 (f)x3", "(sf)x3"


def run(*flags):
    command = [str(args.lathe), *map(str, flags), "--threads", args.threads, "--json"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def corpus():
    """The two texts, a line between articles."""
    folder = WORK / "text"
    for name in ["train", "valid"]:
        to = folder / f"{name}.txt"
        if to.exists():
            continue
        folder.mkdir(parents=True, exist_ok=True)
        lines = (args.text / f"{name}.txt").read_text(encoding="utf-8").splitlines()
        is_title = lambda line: line.startswith(" = ") and not line.startswith(" = =") and line.rstrip().endswith(" =")
        text = "".join(("<|endoftext|>\n" if is_title(line) else "") + line.strip() + "\n" for line in lines if line.strip())
        part = to.with_suffix(".part")
        part.write_text(text[: 300_000] if QUICK else text, encoding="utf-8")
        part.rename(to)
    return folder


def vocabulary():
    path = WORK / "tokenizer.json"
    if not path.exists():
        import tokenizers as t

        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        tokenizer = t.Tokenizer(t.models.WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer = t.normalizers.BertNormalizer(lowercase=True)
        tokenizer.pre_tokenizer = t.pre_tokenizers.BertPreTokenizer()
        trainer = t.trainers.WordPieceTrainer(vocab_size=VOCAB, special_tokens=special, show_progress=False)
        tokenizer.train([str(corpus() / "train.txt")], trainer)
        tokenizer.post_processor = t.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
        tokenizer.decoder = t.decoders.WordPiece()
        tokenizer.save(str(path))
    return path


def data():
    return ["--data", corpus() / "train.txt", "--valid", corpus() / "valid.txt"]


def begun(out, *flags):
    """A run in a folder, from its beginning or from where it was stopped."""
    out = WORK / out.replace(" ", "_").replace(",", "")
    if not (out / "result.json").exists():
        if (out / "run.toml").exists():
            run(flags[0], "--resume", out)
        else:
            run(*flags, "--out", out)
    shutil.rmtree(out / "checkpoints", ignore_errors=True)
    return out


def trained(name, backbone, layers, task="masked_lm", more=(), steps=STEPS):
    model = ["--backbone", backbone, "--layers", layers, *more]
    flags = [*data(), "--tokenizer", vocabulary(), "--task", task, "--steps", steps, *TRAIN]
    return begun(name, "train", *flags, *model)


def distilled(name, teacher, student, *flags):
    return begun(name, "distill", "--teacher", teacher, *student, *data(), "--task", "masked_lm", "--steps", STEPS, *TRAIN, *flags)


def outcome(out):
    """What a run came to: the loss of masked tokens on the way and at the end."""
    found = json.loads((out / "result.json").read_text())
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    curve = [(line["step"], line["valid"]["loss"]) for line in lines if "valid" in line]
    model = run("count", out)["params"]
    valid = {name: value for name, value in found["valid"].items() if isinstance(value, (int, float))}
    seconds = found["tokens"] / found["tokens_per_s"]
    return {**valid, "curve": curve, "params": model["total"], "encoder_params": model["decoder"], "seconds": seconds,
            "steps": found["steps"]}  # fmt: skip


def glue(task):
    to = WORK / "glue" / task
    if not to.exists():
        part = to.with_name(task + ".part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        for name in ["train.tsv", "dev.tsv"]:
            lines = (args.glue / task / name).read_bytes().splitlines(keepends=True)
            most = 40 if QUICK else SENTENCES if name == "train.tsv" else len(lines)
            (part / name).write_bytes(b"".join(lines[: most + 1]))
        part.rename(to)
    return to


def tuned(name, model, task):
    """Fine-tuned five times: the median of each metric."""
    out = WORK / f"{name}-{task}"
    more = ["--steps", 2] if QUICK else ["--epochs", 3]
    found = run("train", "--init", model, "--task", f"glue:{task}", "--data", glue(task), "--seeds", SEEDS, "--lr", "0.0003",
                "--seq", SEQ, "--eval-every", 1_000_000, "--checkpoint-every", 1_000_000, *more, "--out", out)  # fmt: skip
    for checkpoints in out.glob("seed-*/checkpoints"):
        shutil.rmtree(checkpoints)
    metrics = TASKS[task].split()
    seeds = [{metric: seed["valid"][metric] for metric in metrics} for seed in found["seeds"]]
    return {"median": {metric: found["median"][metric] for metric in metrics}, "seeds": seeds}


def bert():
    return trained("bert", "bert", BERT, "masked_nsp", SIZES)


def par():
    return trained("par", "bert", PAR, "masked_nsp", SIZES)


def half():
    """As DistilBERT: every second layer of the teacher to begin with, its predictions, the text, and its hidden states."""
    student = ["--layers", HALF, "--inherit", "true"]
    return distilled("half", bert(), student, "--kl", 5, "--ce", 2, "--temperature", 2, "--hidden", 1)


MODELS = {"BERT": bert, "PAR BERT": par, "distilled": half}


def alike(out):
    """What a run came to, and how it tells masked tokens of plain windows, whatever it was trained on."""
    found = run("eval", out, "--data", corpus() / "valid.txt", "--task", "masked_lm")
    return {**outcome(out), "masked_lm": {key: found[key] for key in ("loss", "perplexity", "accuracy")}}


def table3():
    for name, model in MODELS.items():
        yield f"{name}, masked tokens", lambda model=model: alike(model())
    for task in TASKS:
        for name, model in MODELS.items():
            yield f"{name}, {task}", lambda name=name, model=model, task=task: tuned(f"tuned-{name.replace(' ', '_')}", model(), task)


def pair(a, b, *flags):
    found = run("compare", a, b, "--seconds", SECONDS, *flags)
    return {key: found[key] for key in ("speedup", "speedup_interval", "cpu", "threads")}


def speed():
    for name in ["PAR BERT", "distilled"]:
        for batch in [1, 8]:
            yield f"{name}, batch {batch}", lambda name=name, batch=batch: pair(bert(), MODELS[name](), "--seq", SEQ, "--batch", batch)


def albert(name, task="masked_lm", embed=64, shared="all", more=()):
    return trained(name, "albert", BERT, task, [*SIZES, "--d-embed", embed, "--shared", shared, *more])


def sharing():
    for shared in ["all", "attentions", "ffns", "none"]:
        yield shared, lambda shared=shared: outcome(albert(f"sharing {shared}", shared=shared))


def embedding():
    for shared in ["all", "none"]:
        for width in [16, 32, 64, 128]:
            # 64 is that of `sharing`.
            name = f"sharing {shared}" if width == 64 else f"embedding {width} {shared}"
            yield f"{width}, shared {shared}", lambda name=name, width=width, shared=shared: outcome(albert(name, embed=width, shared=shared))


def objectives():
    for name, task in [("none", "masked_lm"), ("NSP", "masked_nsp"), ("SOP", "masked_sop")]:

        def judged(name=name, task=task):
            out = albert(f"objective {name}", task, more=["--head", "pretraining"])
            valid = corpus() / "valid.txt"
            of = lambda task: run("eval", out, "--data", valid, "--task", task)
            kinds = {key: of(key) for key in ("masked_nsp", "masked_sop")}
            pairs = {key: {what: one[what] for what in ("pair_accuracy", "pair_loss", "loss", "accuracy")} for key, one in kinds.items()}
            return {**outcome(out), "judged": pairs}

        yield name, judged


STUDENT = "(bottleneck{width=32,heads=4,inner=128,ffns=4})x6"
TEACHER = "(bottleneck{width=128,heads=4,inner=512,ffns=1})x6"


def mobile(norm="scale"):
    return [*SIZES, "--d-embed", 64, "--activation", "relu", "--norm-kind", norm]


def teacher():
    return trained("mobile teacher", "mobilebert", TEACHER, more=mobile("layer"))


def mobilebert():
    yield "teacher", lambda: outcome(teacher())
    yield "bare", lambda: outcome(trained("mobile bare", "mobilebert", STUDENT, more=mobile()))
    predictions = ["--ce", "0.5", "--kl", "0.5"]
    maps = ["--hidden", 1, "--hidden-loss", "mse", "--transfer", "progressive"]
    ways = {"PD": predictions, "PD, FMT": predictions + maps, "PD, FMT, AT": predictions + maps + ["--attention-maps", 1]}
    for name, flags in ways.items():

        def taught(name=name, flags=flags):
            student = ["--layers", STUDENT, "--norm-kind", "scale"]
            return outcome(distilled(f"mobile {name}", teacher(), student, *flags))

        yield name, taught


def mobilebert_speed():
    def file(norm, activation):
        path = WORK / f"mobilebert-{norm}-{activation}.toml"
        text = subprocess.run([str(args.lathe), "models", "mobilebert_tiny"], check=True, stdout=subprocess.PIPE, text=True).stdout
        lines = [line for line in text.splitlines() if line.split("=")[0].strip() not in ("norm_kind", "activation")]
        path.write_text("\n".join([*lines, f'norm_kind = "{norm}"', f'activation = "{activation}"']) + "\n")
        return path

    for norm in ["layer", "scale"]:
        for activation in ["gelu", "relu"]:
            if (norm, activation) != ("layer", "gelu"):
                name = f"{norm}, {activation}"
                yield name, lambda norm=norm, activation=activation: pair(file("layer", "gelu"), file(norm, activation), "--seq", LEN)


def bert_proxy():
    """Layers, widths, heads and inner widths drawn alike, as LTS's space for BERT has them, smaller."""
    draw = random.Random(0)
    for i in range(PROXIES):
        layers, width = draw.randint(2, 6), draw.choice([64, 96, 128, 160])
        blocks = " ".join(f"s{draw.choice([2, 4, 8])}d{width // 8} f{draw.choice(range(64, 641, 64))}" for _ in range(layers))
        sizes = ["--d-model", width, "--heads", 4, "--max-len", SEQ, "--dropout", 0, "--attn-dropout", 0]
        yield str(i), lambda i=i, blocks=blocks, sizes=sizes: outcome(
            trained(f"proxy {i}", "bert", blocks, more=sizes, steps=max(STEPS // 3, 2))
        )


def ranks(values):
    order = sorted(range(len(values)), key=lambda i: values[i])
    out = [0.0] * len(values)
    for rank, i in enumerate(order):
        out[i] = rank
    for value in set(values):  # equals have the mean of their ranks
        same = [i for i, other in enumerate(values) if other == value]
        mean = statistics.mean(out[i] for i in same)
        for i in same:
            out[i] = mean
    return out


def spearman(a, b):
    return statistics.correlation(ranks(a), ranks(b))


def common(a, b, share):
    """Of the best by one, how many are among as many best by the other."""
    count = max(1, round(share * len(a)))
    best = lambda values: set(sorted(range(len(values)), key=lambda i: -values[i])[:count])
    return len(best(a) & best(b)) / count


def table(records):
    rows = {}
    for one in records:
        rows.setdefault(one["group"], {})[one["name"]] = one["result"]
    if "table3" in rows:
        found = rows["table3"]
        print("\n### Table 3, small: loss of masked tokens, and medians of five seeds\n")
        print("| model | parameters | loss | perplexity | pairs right | " + " | ".join(TASKS) + " |")
        print("|---|" + "---|" * (4 + len(TASKS)))
        for name in MODELS:
            one = found.get(f"{name}, masked tokens")
            if one is None:
                continue
            tasks = [found.get(f"{name}, {task}") for task in TASKS]
            scores = [" / ".join(f"{100 * value:.1f}" for value in of["median"].values()) if of else "" for of in tasks]
            pairs = f"{100 * one['pair_accuracy']:.1f} %" if "pair_accuracy" in one else ""
            told = one["masked_lm"]
            print(f"| {name} | {one['params']:,} | {told['loss']:.3f} | {told['perplexity']:.1f} | {pairs} | " + " | ".join(scores) + " |")
        curves = {name: dict(map(tuple, found[f"{name}, masked tokens"]["curve"])) for name in MODELS if f"{name}, masked tokens" in found}
        steps = sorted({step for curve in curves.values() for step in curve})
        print("\nOn the way, on the windows that each is trained on:\n\n| step | " + " | ".join(curves) + " |\n|---|" + "---|" * len(curves))
        for step in steps:
            print(f"| {step} | " + " | ".join(f"{curve[step]:.3f}" if step in curve else "" for curve in curves.values()) + " |")
    for group, title in [("speed", "times as fast as BERT"), ("mobilebert_speed", "times as fast as LayerNorm with gelu")]:
        if group in rows:
            print(f"\n### {group}: {title}\n\n| | |\n|---|---|")
            for name, one in rows[group].items():
                low, high = one["speedup_interval"]
                print(f"| {name} | {one['speedup']:.2f} [{low:.2f}, {high:.2f}] |")
    for group in ["sharing", "embedding", "mobilebert"]:
        if group in rows:
            print(f"\n### {group}\n\n| | parameters | loss | perplexity | tokens told |\n|---|---|---|---|---|")
            for name, one in rows[group].items():
                told = f"{100 * one['accuracy']:.1f} %"
                print(f"| {name} | {one['params']:,} | {one['loss']:.3f} | {one['perplexity']:.1f} | {told} |")
    if "objectives" in rows:
        print("\n### objectives: accuracy of masked tokens and of pairs\n\n| trained for | tokens told | next sentence | order |")
        print("|---|---|---|---|")
        for name, one in rows["objectives"].items():
            pairs = [f"{100 * one['judged'][key]['pair_accuracy']:.1f} %" for key in ("masked_nsp", "masked_sop")]
            print(f"| {name} | {100 * one['judged']['masked_sop']['accuracy']:.1f} % | " + " | ".join(pairs) + " |")
    if "bert_proxy" in rows and len(rows["bert_proxy"]) > 2:
        found = list(rows["bert_proxy"].values())
        quality = [-one["perplexity"] for one in found]
        print(f"\n### {len(found)} encoders: parameters and perplexity of masked tokens\n")
        print("| by | Spearman | common of the best 10 % | 20 % | 30 % | 50 % |\n|---|---|---|---|---|---|")
        for key, name in [("encoder_params", "parameters of blocks"), ("params", "all parameters")]:
            by = [one[key] for one in found]
            shares = " | ".join(f"{common(by, quality, share):.2f}" for share in (0.1, 0.2, 0.3, 0.5))
            print(f"| {name} | {spearman(by, quality):.3f} | {shares} |")


if args.table:
    table([json.loads(line) for line in RECORD.read_text().splitlines()] if RECORD.exists() else [])
    sys.exit()
if args.text is None or args.glue is None:
    parser.error("--text and --glue are needed")
WORK.mkdir(parents=True, exist_ok=True)
RECORD.parent.mkdir(parents=True, exist_ok=True)
GROUPS = {"table3": table3, "speed": speed, "sharing": sharing, "embedding": embedding, "objectives": objectives,
          "mobilebert": mobilebert, "mobilebert_speed": mobilebert_speed, "bert_proxy": bert_proxy}  # fmt: skip
record(RECORD, GROUPS, args.only)
