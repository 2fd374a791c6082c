"""Folders as `save_pretrained` of transformers writes them, and what they compute. See README.md.

Each goes to crates/lathe-model/tests/it/fixtures/folders/<name>, as it was saved, with one more file in it,
expected.safetensors: `ids` ([B, T]; BERT also `mask` and `segments`) and `logits`, or `hidden` and `pooled`, which
transformers computes in f32 from the weights as it loads them from that folder.

What differs between them:

- bert_model saves its names without `bert.`; bert_masked_lm saves neither the tied weight nor the tied bias of
  cls.predictions.decoder, only cls.predictions.bias.
- Version 5 writes `rope_parameters` and `dtype`. llama_version4 has the keys of version 4 in their place, `rope_theta`,
  `rope_scaling` and `torch_dtype`, and leaves out head_dim, as older ones did; otherwise it is a folder of version 5.
- llama_sharded has its weights in two files and an index.
- Tied models save no lm_head.weight.
"""

import json
import shutil

import torch
from safetensors.torch import save
from transformers import BertForMaskedLM, BertModel
from transformers.utils.logging import disable_progress_bar

import bert
import fixture
import llama
import opt

FOLDER = fixture.FOLDER / "folders"

# name: how to build, the model file it is, the type of its weights
CASES = {
    "bert_model": (bert.build, bert.spec(2, head="none"), torch.float32),
    "bert_masked_lm": (bert.build, bert.spec(2), torch.float32),
    "llama_bf16": (
        llama.build,
        llama.spec(4, 2, d_head=8, rope=llama.LLAMA3, rope_theta=50.0, max_len=64),
        torch.bfloat16,
    ),
    "llama_f16": (llama.build, llama.spec(2, 2, tie_embeddings=True), torch.float16),
    "llama_sharded": (llama.build, llama.spec(4, 1, rope=llama.LINEAR), torch.float32),
    "llama_version4": (
        llama.build,
        llama.spec(2, 1, rope=llama.LLAMA3, rope_theta=50.0, max_len=64, tie_embeddings=True),
        torch.bfloat16,
    ),
    "opt_f16": (opt.build, opt.spec(2, 16, 2, 40, 33, 24), torch.float16),
    "opt_350m": (opt.build, opt.spec(2, 12, 3, 20, 29, 12, norm="post", d_embed=8), torch.float32),
    "qwen2": (llama.build, llama.spec(4, 2, qkv_bias=True, rope_theta=1e6, tie_embeddings=True), torch.bfloat16),
    "qwen3": (llama.build, llama.spec(2, 1, d_head=12, head_norm=True, rope_theta=1e6), torch.bfloat16),
}


def keys_of_version_4(folder):
    file = folder / "config.json"
    config = json.loads(file.read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = rope
    config["torch_dtype"] = config.pop("dtype")
    del config["head_dim"]
    config["transformers_version"] = "4.46.0"
    file.write_text(json.dumps(dict(sorted(config.items())), indent=2) + "\n")


def load(kind, folder):
    model, info = kind.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    assert not any(info.get(key) for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    assert all(p.dtype == torch.float32 for p in model.parameters())
    return model.eval()


@torch.no_grad()
def expect(model, spec, random, build):
    if isinstance(model, (BertModel, BertForMaskedLM)):
        given = bert.inputs(spec, 10, [10, 6], random)
        given = {name: given[name] for name in ("ids", "mask", "segments")}
        out = model(input_ids=given["ids"], attention_mask=given["mask"], token_type_ids=given["segments"])
        if isinstance(model, BertModel):
            return given | {"hidden": out.last_hidden_state, "pooled": out.pooler_output}
        return given | {"logits": out.logits}
    ids = (opt if build is opt.build else fixture).tokens(2, 12, spec["vocab"], random)
    return {"ids": ids, "logits": model(input_ids=ids).logits}


disable_progress_bar()
for name, (build, spec, dtype) in CASES.items():
    random = fixture.generator(f"folder {name}")
    model = build(name.split("_")[0], spec) if build is llama.build else build(spec)
    fixture.reinitialise(model, random)
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    model.to(dtype).save_pretrained(folder, max_shard_size="13KB" if "sharded" in name else "1GB")
    if name == "llama_version4":
        keys_of_version_4(folder)
    loaded = load(type(model), folder)
    if build is llama.build:
        llama.check(spec, loaded)
    for (one, saved), (other, found) in zip(model.named_parameters(), loaded.named_parameters(), strict=True):
        assert one == other and torch.equal(saved.float(), found), one
    tensors = {key: tensor.contiguous() for key, tensor in expect(loaded, spec, random, build).items()}
    (folder / "expected.safetensors").write_bytes(save(tensors))
    files = sorted(folder.iterdir())
    print(f"{name:15}", sum(file.stat().st_size for file in files), "bytes", [file.name for file in files])
