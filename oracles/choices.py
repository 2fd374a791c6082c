"""What lm-eval makes of examples of the data sets that it knows: its requests, and what a Llama of transformers answers.

Writes crates/lathe-train/tests/it/fixtures/choices: a tiny Llama with a tokenizer that begins a text with BOS (config.json,
model.safetensors, tokenizer.json), a file of examples for each data set with its columns (NAME.jsonl, invented here), and
expected.json: for each, with 0 and 1 shots, the log-probabilities of all options, whether each is greedy, the metrics, and
without shots the requests.
"""

import json
import os
import pathlib
import re
import shutil
import string
import sys
import tempfile
import types

os.environ |= {"HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1"}



def normal(answer):
    """As SQuAD's official script."""
    answer = "".join(c for c in answer.lower() if c not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", answer).split())


# Where lm-eval looks for it, transformers 5 has it no longer. f1 is not used here.
squad = types.ModuleType("transformers.data.metrics.squad_metrics")
squad.compute_exact = lambda gold, found: int(normal(gold) == normal(found))
squad.compute_f1 = lambda gold, found: 0.0
sys.modules["transformers.data.metrics"] = types.ModuleType("transformers.data.metrics")
sys.modules["transformers.data.metrics"].squad_metrics = squad
sys.modules["transformers.data.metrics.squad_metrics"] = squad

import torch
from lm_eval import simple_evaluate
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
from tokenizers import ByteLevelBPETokenizer, processors
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

LEN = 160  # some examples are longer
SEED = 0
folder = pathlib.Path(__file__).parents[1] / "crates/lathe-train/tests/it/fixtures/choices"
shutil.rmtree(folder, ignore_errors=True)
folder.mkdir(parents=True)

PEOPLE = ["Aldra", "Brünn", "Caelum", "Dorf", "Évora", "Fjell"]
THINGS = ["a lamp", "the red kettle", "two ropes", "naïve verses", "salt", "an old boat"]
PLACES = ["harbour", "mill", "tower", "market"]


def rows(make):
    return [make(i, PEOPLE[i % 6], THINGS[i * 5 % 6], PLACES[i % 4]) for i in range(6)]


def lettered(letters, *texts):
    return {"text": list(texts), "label": list(letters)}


def record(i, who, what, where):
    return {
        "passage": f"{who} came to the {where} with {what}. The {PEOPLE[i - 1]} family bought it.\n@highlight\n{who} sold {what}"
        f"\n@highlight\nNobody at the {where} knew {PEOPLE[i - 2]}",
        "query": f"At the {where} @placeholder paid for {what}",
        "entities": [who, f"The {PEOPLE[i - 1]}", PEOPLE[i - 1], PEOPLE[i - 2], who],
        "answers": [PEOPLE[i - 1]],
    }


def wsc(i, who, what, where):
    text = f"{who} gave {PEOPLE[i - 1]} {what} because he did n't need it , he said ( at the {where} ) ."
    at = text.split().index("he")
    return {"text": text, "span1_index": 0, "span1_text": who, "span2_index": at, "span2_text": "he", "label": i % 2}


def wic(i, who, what, where):
    first = f"{who} will book {what} — at the {where}."
    start = first.index("book")
    return {"word": "book", "sentence1": first, "sentence2": f"A book of {PEOPLE[i - 1]}.", "start1": start, "end1": start + 4,
            "start2": 2, "end2": 6, "label": i * i % 2}


LONG = " It was cold, and nobody at the mill had seen the boat or the lamp since the market closed." * 2
DATA = {
    "hellaswag": rows(lambda i, who, what, where: {
        "ind": i, "activity_label": "Carrying things", "ctx_a": f"[header] How to carry {what} [title] {who} begins.", "ctx_b": f"then He",
        "endings": [f"puts {what} down. [substeps] Rest [1].", f"walks to the  {where}.", f"calls {PEOPLE[i - 1]}", "[step] sings."],
        "label": str(i % 4)}),
    "piqa": rows(lambda i, who, what, where: {
        "goal": f"carry {what} to the {where}", "sol1": f"Ask {who}.", "sol2": f"Tie {what} to {PEOPLE[i - 1]}.", "label": i % 2}),
    "arc_easy": rows(lambda i, who, what, where: {
        "id": f"x{i}", "question": f"Who carried {what}?" + LONG * (i == 3), "choices": lettered("ABCD" if i % 2 else "1234", *PEOPLE[:4]),
        "answerKey": ("ABCD" if i % 2 else "1234")[i % 4]}),
    "openbookqa": rows(lambda i, who, what, where: {
        "id": f"x{i}", "question_stem": f"{who} keeps {what} in", "choices": lettered("ABC", "a box", f"the {where}", "water"),
        "answerKey": "ABC"[i % 3]}),
    "winogrande": rows(lambda i, who, what, where: {
        "sentence": f"{who} lent {PEOPLE[i - 1]} {what}, because _ asked for it .", "option1": who, "option2": PEOPLE[i - 1],
        "answer": str(1 + i % 2)}),
    "boolq": rows(lambda i, who, what, where: {
        "question": f"did {who.lower()} buy {what}", "passage": f"{who} went to the {where} for {what}." + LONG * (i == 2), "idx": i,
        "label": i % 2}),
    "cb": rows(lambda i, who, what, where: {
        "premise": f"{who}: I think {what} is at the {where}.", "hypothesis": f"{what} is at the {where}", "idx": i, "label": i % 3}),
    "copa": rows(lambda i, who, what, where: {
        "premise": f"{who} sold {what}. ", "choice1": f"The {where} was full.", "choice2": f"{PEOPLE[i - 1]} asked for it.",
        "question": ["cause", "effect"][i % 2], "idx": i, "label": i // 3}),
    "wic": rows(wic),
    "wsc": rows(wsc),
    "multirc": rows(lambda i, who, what, where: {
        "paragraph": f"{who} came to the {where}. There was {what}.", "question": f"What was at the {where}?", "answer": THINGS[i],
        "idx": {"paragraph": 0, "question": 0, "answer": i}, "label": i % 2}),
    "sglue_rte": rows(lambda i, who, what, where: {
        "premise": f"{who} has {what}.", "hypothesis": f"{PEOPLE[i - 1]} has {what}.", "idx": i, "label": i % 2}),
    "rte": rows(lambda i, who, what, where: {
        "sentence1": f"{who} has {what}.", "sentence2": f"{who} is at the {where}.", "idx": i, "label": i % 2}),
    "record": rows(record),
    "lambada_openai": rows(lambda i, who, what, where: {"text": f"{who} looked for {what} at the {where}, but only {PEOPLE[i - 1]} was at the {where}"}),
    # The lines that need no data set.
    "query": rows(lambda i, who, what, where: {
        "query": f"{who} carries {what} to the " + "\n" * (i % 2), "choices": [where, f"{PLACES[i % 4 - 1]} of {PEOPLE[i - 1]}", "end"], "gold": i % 3}),
    "answer": rows(lambda i, who, what, where: {
        "query": f"Question: where is {what}?" + "\n" * (i % 2), "choices": [f"At the {where}.", f"{PEOPLE[i - 1]} has it."], "gold": i % 2}),
    "context": rows(lambda i, who, what, where: {
        "context_options": [f"{who} met {PEOPLE[i - 1]} at the {where}, and {who}", f"{who} met {PEOPLE[i - 1]} at the {where}, and {PEOPLE[i - 1]}"],
        "continuation": f"carried {what}.", "gold": i % 2}),
    "continuation": rows(lambda i, who, what, where: {"context": f"{who} went to the {where} for", "continuation": what}),
}
CHOICES = {"doc_to_target": "gold", "doc_to_choice": "{{choices}}", "output_type": "multiple_choice"}
OWN = {
    "query": {"doc_to_text": "{{query}}", **CHOICES},
    # Jinja leaves out a newline at the end.
    "answer": {"doc_to_text": "{{query.rstrip()}}\nAnswer:", **CHOICES},
    "context": {"doc_to_text": "gold", "doc_to_target": "{{continuation}}", "doc_to_choice": "{{context_options}}", "output_type": "multiple_choice"},
    "continuation": {"doc_to_text": "{{context}}", "doc_to_target": "{{' '+continuation}}", "output_type": "loglikelihood",
                     "metric_list": [{"metric": "perplexity"}, {"metric": "acc"}]},
}

texts = []
for name, data in DATA.items():
    lines = [json.dumps(row, ensure_ascii=False) for row in data]
    (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    texts += lines
inner = ByteLevelBPETokenizer()
inner.train_from_iterator(texts, vocab_size=320, special_tokens=["<s>"])
inner = inner._tokenizer
inner.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 0)])
tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<s>", eos_token="<s>")
tokenizer.save_pretrained(folder)

torch.manual_seed(0)
config = LlamaConfig(vocab_size=inner.get_vocab_size(), hidden_size=24, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
                     num_key_value_heads=1, max_position_embeddings=LEN, bos_token_id=0, eos_token_id=0, tie_word_embeddings=True)
model = LlamaForCausalLM(config).eval()
with torch.no_grad():
    for parameter in model.parameters():
        parameter.add_(0.2 * torch.randn_like(parameter))
model.save_pretrained(folder)
(folder / "generation_config.json").unlink()


def task(name):
    local = {"dataset_path": "json", "dataset_name": None, "dataset_kwargs": {"data_files": {"test": str(folder / f"{name}.jsonl")}},
             "training_split": None, "validation_split": None, "test_split": "test", "fewshot_split": "test"}
    base = OWN.get(name, {})
    several = base.get("output_type", "" if name.startswith("lambada") else "multiple_choice") == "multiple_choice"
    # Those of ReCoRD are its own.
    metrics = {"metric_list": [{"metric": "acc"}, {"metric": "acc_bytes"}]} if several and name != "record" else {}
    path = pathlib.Path(aside) / f"{name}.yaml"
    include = {} if name in OWN else {"include": str(known[name].yaml_path)}
    path.write_text(json.dumps({**include, "task": name, **local, **base, **metrics}))  # JSON is YAML
    return str(path)


known = TaskManager().task_index
aside = tempfile.mkdtemp()
expected = {}
lm = HFLM(pretrained=str(folder), device="cpu", dtype="float32", batch_size=1)
for shots in [0, 1]:
    for name in DATA:
        found = simple_evaluate(model=lm, tasks=[task(name)], num_fewshot=shots, random_seed=SEED, fewshot_random_seed=SEED,
                                log_samples=True, bootstrap_iters=0)
        result = found["results"][name]
        samples = sorted(found["samples"][name], key=lambda sample: sample["doc_id"])
        keys = {"acc": "accuracy", "em": "accuracy", "acc_bytes": "accuracy_norm", "perplexity": "perplexity"}
        entry = {keys[key.split(",")[0]]: value for key, value in result.items() if key.split(",")[0] in keys}
        answers = [[resp[0] for resp in sample["resps"]] for sample in samples]
        entry["log_probabilities"] = [[round(answer[0], 6) for answer in of_sample] for of_sample in answers]
        if shots == 0:
            arguments = [[list(argument) for argument in sample["arguments"]] for sample in samples]
            entry["requests"] = arguments
        expected.setdefault(name, {})[str(shots)] = entry
        print(name, shots, {key: entry[key] for key in entry if key in keys.values()}, max(len(tokenizer(a + b).input_ids) for s in samples for a, b in s["arguments"]))
(folder / "expected.json").write_text(json.dumps(expected, ensure_ascii=False, indent=0) + "\n")
print(sum(file.stat().st_size for file in folder.iterdir()), "bytes")
