"""The loss of a saved GPT2LMHeadModel on a text, window by window, as `lathe eval` defines it.

Writes crates/lathe/tests/it/fixtures/gpt2_text: the folder that transformers saves (config.json, model.safetensors,
tokenizer.json), text.txt, and expected.json with tokens, loss and bits per byte at context 0 and 8.
"""

import json
import math
import pathlib
import shutil

import torch
from tokenizers import ByteLevelBPETokenizer
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

LEN = 32
folder = pathlib.Path(__file__).parents[1] / "crates/lathe/tests/it/fixtures/gpt2_text"
shutil.rmtree(folder, ignore_errors=True)
folder.mkdir(parents=True)

line = "The tailor of {} measured {} cloaks — naïve, he said, “but {} fit” — and charged {} crowns.\n"
names = ["Aldra", "Brünn", "Caelum", "Dorf", "Évora", "Fjell"]
text = "".join(line.format(names[i % 6], i * 7 % 23, names[i * 5 % 6], i * i % 97) for i in range(40))
(folder / "text.txt").write_text(text)

tokenizer = ByteLevelBPETokenizer()
tokenizer.train_from_iterator([text], vocab_size=320)
PreTrainedTokenizerFast(tokenizer_object=tokenizer._tokenizer).save_pretrained(folder)
ids = torch.tensor(tokenizer.encode(text).ids)

torch.manual_seed(0)
config = GPT2Config(vocab_size=tokenizer.get_vocab_size(), n_positions=LEN, n_embd=32, n_layer=2, n_head=2)
model = GPT2LMHeadModel(config).eval()
with torch.no_grad():
    for parameter in model.parameters():
        parameter.add_(0.2 * torch.randn_like(parameter))  # far from uniform, so that mistakes show
model.save_pretrained(folder)


@torch.no_grad()
def score(context):
    nats, done = 0.0, 0
    while done < len(ids) - 1:
        before = min(context, done)
        end = min(done + LEN - before, len(ids) - 1)
        window = ids[done - before : end]
        losses = torch.nn.functional.cross_entropy(model(window[None]).logits[0].double(), ids[done - before + 1 : end + 1], reduction="none")
        nats += losses[before:].sum().item()
        done = end
    return {"loss": nats / done, "bits_per_byte": nats / math.log(2) / len(text.encode())}


expected = {"tokens": len(ids) - 1, "context_0": score(0), "context_8": score(8)}
(folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
for extra in ["generation_config.json", "tokenizer_config.json", "special_tokens_map.json"]:
    (folder / extra).unlink(missing_ok=True)
print(expected, sum(file.stat().st_size for file in folder.iterdir()), "bytes")
