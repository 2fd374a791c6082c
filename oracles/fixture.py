"""What the oracles share: random weights, the loss, its gradients, ten steps of AdamW, and the file.

A fixture is one safetensors file:
  __metadata__.model     the model file (TOML)
  __metadata__.source    the versions that computed it
  __metadata__.segments  Transformer-XL: how many segments the tokens are cut into
  ids                    int64 [B, T]
  mask, segments         encoders: int64 [B, T], 1 a token and 0 padding; which sentence a token belongs to, where that counts
  targets                encoders: int64 [B, T], the token to predict at a place, -100 where none is
  logits                 [B, T, V]; Transformer-XL: log-probabilities
  hidden, pooled         encoders: [B, T, D] after the last block; [B, D]
  loss                   [1], mean negative log-likelihood of the next token over B * (T - 1); encoders: see bert.py
  weight.<name>          every parameter once, under the name transformers gives it
  grad.<name>            d loss / d weight
  adamw_losses           [10], the loss before each of ten steps
  mems.<layer>.<segment> Transformer-XL: [B, M, D], the memory after the segment
"""

import copy
import json
import pathlib
import re
import zlib

import torch
import transformers
from safetensors.torch import save

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "crates/lathe-model/tests/it/fixtures"
STEPS = 10
NORMS = r"(_layer_norm|ln_1|ln_2|ln_f|layer_norm|layernorm|LayerNorm|model\.norm|q_norm|k_norm)\.weight$"
EMBEDDINGS = r"(wte|wpe|embed_tokens|embed_positions|_embeddings)\.weight$|\.emb_layers\."


def generator(case):
    """One stream of random numbers per case, so that adding a case leaves the others as they are."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.set_default_dtype(torch.float32)
    return torch.Generator().manual_seed(zlib.crc32(case.encode()))


def reinitialise(model, random):
    """Random values everywhere: the usual zeros and ones would hide a bias or a gain that is left out."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            mean, std = 0.0, 0.15
            if name.endswith(("r_w_bias", "r_r_bias")):
                std = 0.2
            elif name.endswith("bias"):
                std = 0.1
            elif re.search(NORMS, name):
                mean, std = 1.0, 0.1
            elif re.search(EMBEDDINGS, name):
                std = 0.3
            parameter.copy_(mean + std * torch.randn(parameter.shape, generator=random))


def tokens(batch, length, vocab, random):
    return torch.randint(vocab, (batch, length), generator=random)


def next_token_loss(log_probabilities, ids):
    """Over the whole sequence, across segments too."""
    return -log_probabilities[:, :-1].gather(2, ids[:, 1:, None]).mean()


def adamw_losses(model, compute):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss, _ = compute(model)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


def write(case, spec, model, ids, forward, metadata):
    """`forward(model, ids)` gives the logits to store, log-probabilities, and further tensors to store."""

    def compute(model):
        logits, log_probabilities, further = forward(model, ids)
        torch.testing.assert_close(log_probabilities.exp().sum(-1), torch.ones(ids.shape), atol=1e-5, rtol=0)
        return next_token_loss(log_probabilities, ids), {"logits": logits, **further}

    write_case(case, spec, model, {"ids": ids}, compute, metadata)


def write_case(case, spec, model, inputs, compute, metadata, prefix=""):
    """`compute(model)` gives the loss and the tensors to store; `prefix` goes before the names of the weights."""
    model.eval()
    stepped = copy.deepcopy(model)  # keeps what is tied tied
    names = dict(model.named_parameters())  # a tied parameter once, under its first name: the embedding's
    assert len({p.data_ptr() for p in names.values()}) == len(names)
    assert sum(p.numel() for p in stepped.parameters()) == sum(p.numel() for p in names.values())

    loss, outputs = compute(model)
    loss.backward()

    tensors = {**inputs, "loss": loss.reshape(1), **outputs}
    for name, parameter in names.items():
        assert parameter.grad is not None, name
        tensors[f"weight.{prefix}{name}"] = parameter
        tensors[f"grad.{prefix}{name}"] = parameter.grad
    tensors["adamw_losses"] = adamw_losses(stepped, compute)
    tensors = {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}
    floats = [t for name, t in tensors.items() if name not in inputs or t.is_floating_point()]
    assert all(t.dtype == torch.float32 and t.isfinite().all() for t in floats)

    toml = "".join(f"{key} = {json.dumps(value)}\n" for key, value in spec.items())
    source = f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}"
    FOLDER.mkdir(parents=True, exist_ok=True)
    file = FOLDER / f"{case}.safetensors"
    file.write_bytes(stable(save(tensors, {"model": toml, "source": source, **metadata})))

    total, formula = sum(p.numel() for p in names.values()), count(spec)
    print(f"{case:18} parameters {total:6} formula {formula:6} loss {loss.item():.6f} {file.stat().st_size:7} bytes")
    assert total == formula


def stable(data):
    """The same file with the metadata in order; safetensors writes them in a random one."""
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data[end:]


def count(spec):
    """`params.total` from the formulas in docs/costs.md."""
    d, f, v = spec["d_model"], spec["inner"], spec["vocab"]
    if spec["backbone"] == "llama":
        return count_llama(spec, d, f, v)
    if "head" in spec:
        return count_encoder(spec, d, f, v)
    xl = spec["backbone"] == "transformer_xl"
    a = spec["heads"] * spec.get("d_head", d // spec["heads"])
    ffn, layers = re.fullmatch(r"\(s ?(.*)\)x(\d+)", spec["layers"]).groups()
    rank = re.search(r"rank=(\d+)", ffn)
    experts = 0 if ffn == "f" or rank else int(re.search(r"\d+", ffn)[0])
    attention = 5 * d * a + 2 * a if xl else 4 * d * a + 3 * a + d
    matrices = 2 * int(rank[1]) * (d + f) if rank else 2 * d * f
    decoder = int(layers) * (attention + (experts or 1) * (matrices + f + d) + d * experts + 2 * 2 * d)
    if not xl:
        untied = 0 if spec["tie_embeddings"] else v * d
        opt = spec["backbone"] == "opt"  # two rows of positions more, and no last norm where norms are after
        last = 0 if opt and spec["norm"] == "post" else 2 * d
        e = spec.get("d_embed", d)
        projections = 2 * d * e if e != d else 0
        return decoder + last + v * e + projections + (spec["max_len"] + 2 * opt) * d + untied

    e, k, cutoffs = spec["d_embed"], spec["div_val"], spec["cutoffs"]
    ends = [0, *cutoffs, v]
    widths = [e // k**i for i in range(len(cutoffs) + 1)]
    weights = sum((end - start) * w for start, end, w in zip(ends, ends[1:], widths))
    output = v + len(cutoffs) * (e + 1) + (0 if spec["tie_embeddings"] else weights)
    if k == 1 and e == d:
        return decoder + weights + output
    projections = sum(d * w for w in widths)
    embedding = weights + (d * e if k == 1 else projections)
    return decoder + embedding + output + (d * e if spec["tie_projs"] else projections)


def count_llama(spec, d, f, v):
    """No bias but those that are asked for; a norm has a gain only; three matrices in a feed-forward."""
    k = spec.get("d_head", d // spec["heads"])
    a, c = spec["heads"] * k, spec["kv_heads"] * k
    bias = spec["qkv_bias"] * (a + 2 * c) + spec["out_bias"] * d
    rank = re.search(r"rank=(\d+)", spec["layers"])
    matrices = 3 * int(rank[1]) * (d + f) if rank else 3 * d * f
    layer = 2 * d * a + 2 * d * c + bias + spec["head_norm"] * 2 * k + matrices + 2 * d
    return int(spec["layers"].split(")x")[1]) * layer + d + v * d * (1 if spec["tie_embeddings"] else 2)


def count_mobilebert(spec, d, f, v):
    """As docs/costs.md has bottlenecks."""
    e, layers = spec["d_embed"], int(spec["layers"].split(")x")[1])
    sizes = re.search(r"width=(\d+),.*ffns=(\d+),narrow=(\w+)", spec["layers"])
    layer = 4 * (d * d + d) + 2 * d * f + f + d + 2 * 2 * d
    if sizes:
        w, n, narrow = int(sizes[1]), int(sizes[2]), sizes[3] == "true"
        into = (1 if narrow else 2) * (d * w + w + 2 * w)
        attention = 3 * (w * w + w) + (w if narrow else d) * w + w + 2 * w
        layer = into + attention + n * (2 * w * f + f + w + 2 * w) + w * d + d + 2 * d
    embedding = v * e + 3 * e * d + d + (spec["max_len"] + spec["segments"]) * d + 2 * d
    head = d * d + d + 2 * d + v + (d - e) * v if spec["head"] == "masked_lm" else 0
    pooler = d * d + d if spec["head"] == "none" and spec["classifier_activation"] else 0
    return layers * layer + embedding + head + pooler


def count_encoder(spec, d, f, v):
    """A LayerNorm after the sum of the embeddings, none after the last layer."""
    if spec["backbone"] == "mobilebert":
        return count_mobilebert(spec, d, f, v)
    e, layers = spec.get("d_embed", d), int(spec["layers"].split(")x")[1])
    if spec.get("shared") == "all":
        layers //= spec.get("shared_layers", layers)
    layer = 4 * (d * d + d) + 2 * d * f + f + d + 2 * 2 * d
    unused = 2 if spec["backbone"] in ("roberta", "mpnet") else 0
    buckets = 32 * spec["heads"] if spec["backbone"] == "mpnet" else 0
    embedding = (v + spec["max_len"] + unused + spec.get("segments", 0)) * e + 2 * e + (e * d + d if e != d else 0)
    head = d * e + 3 * e + v if spec["head"] == "masked_lm" else 0
    pooler = d * d + d if spec.get("pooler") else 0
    return layers * layer + buckets + embedding + head + pooler
