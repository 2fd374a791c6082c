"""One run of `run.py` in transformers: a fine-tuning, or embeddings. Prints its result as JSON.

    worker.py MODEL FOLDER TASK SEED THREADS STEPS
    worker.py MODEL DEV.tsv embed VECTORS.jsonl THREADS 0
"""

import csv
import json
import pathlib
import random
import sys
import time

import torch
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer, get_linear_schedule_with_warmup

MODEL, DATA, TASK, SEED, THREADS, STEPS = sys.argv[1:]
torch.set_num_threads(int(THREADS))
# Columns of texts, of the label, and whether the first line has names; labels in the order of numbers.
FORMS = {
    "MRPC": ([3, 4], 0, True, ["0", "1"]),
    "RTE": ([1, 2], 3, True, ["entailment", "not_entailment"]),
    "CoLA": ([3], 1, False, ["0", "1"]),
    "STS-B": ([7, 8], 9, True, None),
    "SST-2": ([0], 1, True, ["0", "1"]),
}
BATCH, EPOCHS, RATE, LENGTH, STRETCH = 32, 3, 5e-5, 128, 50


def rows(path):
    with open(path, encoding="utf-8-sig", newline="") as file:
        return [row for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE) if row]


def read(path, tokenizer):
    texts, label, names, labels = FORMS[TASK]
    lines = rows(path)[names:]
    encoded = tokenizer(*[[line[i] for line in lines] for i in texts], truncation=True, max_length=LENGTH)
    right = [labels.index(line[label]) if labels else float(line[label]) for line in lines]
    return [{**{key: encoded[key][i] for key in encoded}, "labels": right[i]} for i in range(len(lines))]


def batches(examples, draw):
    """An epoch: shuffled, stretches sorted by length, batches in a random order."""
    order = list(range(len(examples)))
    draw.shuffle(order)
    length = lambda i: len(examples[i]["input_ids"])  # noqa: E731
    stretches = [order[i : i + STRETCH * BATCH] for i in range(0, len(order), STRETCH * BATCH)]
    order = [i for stretch in stretches for i in sorted(stretch, key=length, reverse=True)]
    found = [order[i : i + BATCH] for i in range(0, len(order), BATCH)]
    draw.shuffle(found)
    return found


def collate(tokenizer, examples):
    padded = tokenizer.pad([{k: v for k, v in one.items() if k != "labels"} for one in examples], return_tensors="pt")
    padded["labels"] = torch.tensor([one["labels"] for one in examples])
    return padded


def fine_tune():
    torch.manual_seed(int(SEED))
    draw = random.Random(int(SEED))
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    labels = FORMS[TASK][3]
    model = AutoModelForSequenceClassification.from_pretrained(MODEL, num_labels=len(labels) if labels else 1)
    train, dev = (read(pathlib.Path(DATA) / name, tokenizer) for name in ["train.tsv", "dev.tsv"])
    steps = int(STEPS) or EPOCHS * -(-len(train) // BATCH)
    plain = [p for name, p in model.named_parameters() if name.endswith("bias") or "LayerNorm" in name]
    decayed = [p for name, p in model.named_parameters() if not (name.endswith("bias") or "LayerNorm" in name)]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.999), eps=1e-8, fused=True)
    schedule = get_linear_schedule_with_warmup(optimizer, round(0.1 * steps), steps)
    model.train()
    done, tokens, seconds = 0, 0, 0.0
    while done < steps:
        for places in batches(train, draw):
            begin = time.perf_counter()
            batch = collate(tokenizer, [train[i] for i in places])
            model(**batch).loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            seconds += time.perf_counter() - begin
            tokens += int(batch["attention_mask"].sum())
            done += 1
            if done == steps:
                break
    model.eval()
    found = []
    with torch.inference_mode():
        for i in range(0, len(dev), 64):
            found.append(model(**collate(tokenizer, dev[i : i + 64])).logits)
    logits, right = torch.cat(found), [one["labels"] for one in dev]
    if labels:
        best = logits.argmax(-1).tolist()
        scores = {"accuracy": accuracy_score(right, best), "f1": f1_score(right, best), "matthews": matthews_corrcoef(right, best)}
    else:
        values = logits[:, 0].tolist()
        scores = {"pearson": pearsonr(values, right)[0], "spearman": spearmanr(values, right)[0]}
    return {**{name: float(value) for name, value in scores.items()}, "seconds": seconds, "steps": done, "tokens": tokens}


def embed():
    tokenizer, model = AutoTokenizer.from_pretrained(MODEL), AutoModel.from_pretrained(MODEL).eval()
    lines = rows(DATA)[1:]
    texts = [text for line in lines for text in (line[7], line[8])]
    vectors = []
    with torch.inference_mode():
        for i in range(0, len(texts), 64):
            batch = tokenizer(texts[i : i + 64], padding=True, truncation=True, max_length=512, return_tensors="pt")
            mask = batch["attention_mask"][..., None].float()
            mean = (model(**batch).last_hidden_state * mask).sum(1) / mask.sum(1)
            vectors.append(torch.nn.functional.normalize(mean, dim=-1))
    vectors = torch.cat(vectors)
    cosines = (vectors[0::2] * vectors[1::2]).sum(-1).tolist()
    ours = torch.tensor([json.loads(line)["embedding"] for line in open(SEED)])
    spearman = spearmanr(cosines, [float(line[9]) for line in lines])[0]
    return {"theirs": float(spearman), "texts": len(texts), "difference": (ours - vectors).abs().max().item()}


print(json.dumps(embed() if TASK == "embed" else fine_tune()))
