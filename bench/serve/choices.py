"""`lathe eval --task choices` beside lm-eval's `local-completions` against `lathe serve`, on the same examples.

    python3 bench/serve/choices.py MODEL --tokenizer FOLDER --data FOLDER [--limit 100] [--shots 0,1] [--threads 1]

MODEL is a folder or a GGUF file, FOLDER of the tokenizer one that transformers reads. Of every .jsonl file of the data (a
query with choices, contexts with a continuation, or a context with a continuation) the first examples are asked for. Needs
lm-eval[api] and transformers. Prints one JSON document, and ends with 1 where an accuracy differs.

`local-completions` asks for a token more than it scores, so that it can use a token less of the model's window than the
model can; `--window` has lathe do the same.
"""
import argparse
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.request

from run import Server

CHOICES = {"output_type": "multiple_choice", "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}, {"metric": "acc_bytes"}]}
FORMS = {
    "query": {"doc_to_text": "{{query}}", "doc_to_target": "gold", "doc_to_choice": "{{choices}}", **CHOICES},
    "context_options": {"doc_to_text": "gold", "doc_to_target": "{{continuation}}", "doc_to_choice": "{{context_options}}", **CHOICES},
    "context": {"doc_to_text": "{{context}}", "doc_to_target": "{{' '+continuation}}", "output_type": "loglikelihood",
                "metric_list": [{"metric": "acc"}, {"metric": "perplexity"}]},
}
KEYS = {"acc": "accuracy", "acc_bytes": "accuracy_norm", "perplexity": "perplexity"}


def begins_with_bos(tokenizer):
    return tokenizer.bos_token_id is not None and tokenizer("a").input_ids[0] == tokenizer.bos_token_id


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--limit", type=int, default=100)
    parser.add_argument("--shots", default="0")
    parser.add_argument("--threads", default="1")
    parser.add_argument("--lathe", default="target/release/lathe")
    args = parser.parse_args()
    os.environ |= {"HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1"}
    import lm_eval
    from transformers import AutoTokenizer

    bos = begins_with_bos(AutoTokenizer.from_pretrained(args.tokenizer))
    found, same = {}, True
    with tempfile.TemporaryDirectory() as folder, Server(args.lathe, args.model, "--threads", args.threads) as server:
        os.environ["HF_HOME"] = folder
        with urllib.request.urlopen(server.url + "/v1/models") as answer:
            window = json.load(answer)["data"][0]["max_model_len"]
        model_args = {"model": "model", "base_url": server.url + "/v1/completions", "tokenizer": args.tokenizer, "max_length": window + 1,
                      "add_bos_token": bos, "max_retries": 1, "tokenizer_backend": "huggingface"}
        files = {}
        for source in sorted(pathlib.Path(args.data).glob("*.jsonl")):
            path = pathlib.Path(folder) / source.name
            with open(source, encoding="utf-8") as lines:
                path.write_text("".join(itertools.islice(lines, args.limit)), encoding="utf-8")
            row = json.loads(path.read_text(encoding="utf-8").split("\n", 1)[0])
            form = next(FORMS[column] for column in FORMS if column in row)
            task = {"task": source.stem, "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(path)}},
                    "test_split": "test", "fewshot_split": "test", **form}
            files[source.stem] = path
            path.with_suffix(".yaml").write_text(json.dumps(task))  # JSON is YAML
        for shots in map(int, args.shots.split(",")):
            ours = {}
            for name, path in files.items():
                command = [args.lathe, "eval", args.model, "--task", "choices", "--data", str(path), "--shots", str(shots), "--json",
                           "--window", str(window - 1), "--threads", args.threads]
                start = time.perf_counter()
                ours[name] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
                ours[name]["seconds"] = round(time.perf_counter() - start, 1)
                print(f"{name}, {shots} shots: {ours[name]}", file=sys.stderr)
            theirs = lm_eval.simple_evaluate(
                model="local-completions", model_args=model_args, tasks=[str(path.with_suffix(".yaml")) for path in files.values()],
                num_fewshot=shots, batch_size=16, random_seed=0, fewshot_random_seed=0, bootstrap_iters=0)["results"]
            for name in files:
                result = {key.split(",")[0]: value for key, value in theirs[name].items()}
                row = {"examples": ours[name]["examples"], "truncated": ours[name]["truncated"], "seconds": ours[name]["seconds"]}
                for key, own in KEYS.items():
                    if key in result:
                        row[own] = {"lathe": ours[name][own], "lm_eval": result[key]}
                        same &= abs(ours[name][own] - result[key]) < 1e-9 or own == "perplexity"
                if "acc_norm" in result:
                    row["per_character"] = {"lm_eval": result["acc_norm"]}
                found.setdefault(name, {})[str(shots)] = row
    print(json.dumps({"model": os.path.basename(args.model.rstrip("/")), "limit": args.limit, "bos": bos, "same": same, "files": found}, indent=1))
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
