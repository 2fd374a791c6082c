"""Metrics as scikit-learn and scipy compute them, and as the benchmarks' own scripts do, into
crates/lathe-train/tests/it/fixtures/scores.json. See README.md.

The functions of SQuAD are those of its official evaluation (version 2.0), word by word; ReCoRD's are the same with the
highest over answers, and MultiRC's those of SuperGLUE: F1 over all answers, and the share of questions whose answers are all right.
"""

import collections
import json
import random
import re
import string

from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

import fixture

FILE = fixture.FOLDER.parents[3] / "lathe-train/tests/it/fixtures/scores.json"


def normalize_answer(s):
    def remove_articles(text):
        regex = re.compile(r"\b(a|an|the)\b", re.UNICODE)
        return re.sub(regex, " ", text)

    def white_space_fix(text):
        return " ".join(text.split())

    def remove_punc(text):
        exclude = set(string.punctuation)
        return "".join(ch for ch in text if ch not in exclude)

    return white_space_fix(remove_articles(remove_punc(s.lower())))


def get_tokens(s):
    return normalize_answer(s).split() if s else []


def compute_exact(a_gold, a_pred):
    return int(normalize_answer(a_gold) == normalize_answer(a_pred))


def compute_f1(a_gold, a_pred):
    gold_toks, pred_toks = get_tokens(a_gold), get_tokens(a_pred)
    common = collections.Counter(gold_toks) & collections.Counter(pred_toks)
    num_same = sum(common.values())
    if len(gold_toks) == 0 or len(pred_toks) == 0:
        return int(gold_toks == pred_toks)
    if num_same == 0:
        return 0
    precision, recall = 1.0 * num_same / len(pred_toks), 1.0 * num_same / len(gold_toks)
    return (2 * precision * recall) / (precision + recall)


def squad(found, right):
    golds = [[a for a in answers if normalize_answer(a)] or [""] for answers in right]
    pairs = list(zip(found, golds))
    exact = sum(max(compute_exact(a, f) for a in answers) for f, answers in pairs) / len(pairs)
    return {"exact_match": exact, "f1": sum(max(compute_f1(a, f) for a in answers) for f, answers in pairs) / len(pairs)}


def labels(count, n, draw):
    right = [draw.randrange(count) for _ in range(n)]
    found = [label if draw.random() < 0.6 else draw.randrange(count) for label in right]
    groups = [str(i // 3) for i in range(n)]
    exact = [all(found[i] == right[i] for i in range(n) if groups[i] == group) for group in dict.fromkeys(groups)]
    same = [len({found[i] for i in range(n) if groups[i] == group}) == 1 for group in dict.fromkeys(groups)]
    return {
        "labels": count, "found": found, "right": right, "groups": groups,
        "accuracy": accuracy_score(right, found),
        "f1": f1_score(right, found) if count == 2 else f1_score(right, found, average="macro"),
        "matthews": matthews_corrcoef(right, found),
        "exact_match": sum(exact) / len(exact),
        "gender_parity": sum(same) / len(same),
    }


def values(n, draw):
    right = [round(draw.uniform(0, 5) * 5) / 5 for _ in range(n)]  # with ties
    found = [value + draw.gauss(0, 1) for value in right]
    return {"found": found, "right": right, "pearson": pearsonr(found, right)[0], "spearman": spearmanr(found, right)[0]}


TEXTS = (
    ["The Denver Broncos", "in 1066.", "an apple a day", "", "nothing", "Santa Clara, California", "a", "Theatre",
     "the \u00c9cole  normale", "12\u20137", "a the an", "under_the", "the-end", "U.S.A.", "half"],
    [["Denver Broncos", "Broncos"], ["1066", "the year 1066"], ["apple day", "days"], [], [], ["California"], ["b"],
     ["the theatre"], ["\u00e9cole normale sup\u00e9rieure"], ["127"], ["the"], ["under"], ["theend"], ["usa"], ["half of it"]],
)

if __name__ == "__main__":
    draw = random.Random(22)
    cases = {
        "labels": [labels(2, 40, draw), labels(3, 61, draw), labels(2, 3, draw), labels(5, 200, draw)],
        "values": [values(50, draw), values(7, draw)],
        "texts": [{"found": TEXTS[0], "right": TEXTS[1], **squad(*TEXTS)}],
    }
    constant = [1] * 6
    cases["labels"].append({
        "labels": 2, "found": constant, "right": [0, 1, 0, 1, 1, 1], "groups": list("aabbcc"), "accuracy": 4 / 6,
        "f1": f1_score([0, 1, 0, 1, 1, 1], constant), "matthews": matthews_corrcoef([0, 1, 0, 1, 1, 1], constant),
        "exact_match": 1 / 3, "gender_parity": 1.0,
    })
    FILE.write_text(json.dumps(cases, indent=1) + "\n")
    print(cases["texts"][0]["exact_match"], cases["texts"][0]["f1"])
