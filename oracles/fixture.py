"""What the oracles share: random weights, the loss, its gradients, ten steps of AdamW, and the file.

A fixture is one safetensors file:
  __metadata__.model     the model file (TOML)
  __metadata__.source    the versions that computed it
  __metadata__.segments  Transformer-XL: how many segments the tokens are cut into
  ids                    int64 [B, T]
  logits                 [B, T, V]; Transformer-XL: log-probabilities
  loss                   [1], mean negative log-likelihood of the next token over B * (T - 1)
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
            elif name.endswith(("ln_1.weight", "ln_2.weight", "ln_f.weight", "layer_norm.weight")):
                mean, std = 1.0, 0.1
            elif name.endswith(("wte.weight", "wpe.weight")) or ".emb_layers." in name:
                std = 0.3
            parameter.copy_(mean + std * torch.randn(parameter.shape, generator=random))


def tokens(batch, length, vocab, random):
    return torch.randint(vocab, (batch, length), generator=random)


def next_token_loss(log_probabilities, ids):
    """Over the whole sequence, across segments too."""
    return -log_probabilities[:, :-1].gather(2, ids[:, 1:, None]).mean()


def adamw_losses(model, ids, forward):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = next_token_loss(forward(model, ids)[1], ids)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


def write(case, spec, model, ids, forward, metadata):
    """`forward(model, ids)` gives the logits to store, log-probabilities, and further tensors to store."""
    model.eval()
    stepped = copy.deepcopy(model)  # keeps what is tied tied
    names = dict(model.named_parameters())  # a tied parameter once, under its first name: the embedding's
    assert len({p.data_ptr() for p in names.values()}) == len(names)
    assert sum(p.numel() for p in stepped.parameters()) == sum(p.numel() for p in names.values())

    logits, log_probabilities, further = forward(model, ids)
    torch.testing.assert_close(log_probabilities.exp().sum(-1), torch.ones(ids.shape), atol=1e-5, rtol=0)
    loss = next_token_loss(log_probabilities, ids)
    loss.backward()

    tensors = {"ids": ids, "logits": logits, "loss": loss.reshape(1), **further}
    for name, parameter in names.items():
        assert parameter.grad is not None, name
        tensors[f"weight.{name}"] = parameter
        tensors[f"grad.{name}"] = parameter.grad
    tensors["adamw_losses"] = adamw_losses(stepped, ids, forward)
    tensors = {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}
    assert all(t.dtype == torch.float32 and t.isfinite().all() for name, t in tensors.items() if name != "ids")

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
    xl = spec["backbone"] == "transformer_xl"
    a = spec["heads"] * spec.get("d_head", d // spec["heads"])
    ffn, layers = re.fullmatch(r"\(s ?(.*)\)x(\d+)", spec["layers"]).groups()
    experts = 0 if ffn == "f" else int(re.search(r"\d+", ffn)[0])
    attention = 5 * d * a + 2 * a if xl else 4 * d * a + 3 * a + d
    decoder = int(layers) * (attention + (experts or 1) * (2 * d * f + f + d) + d * experts + 2 * 2 * d)
    if not xl:
        untied = 0 if spec["tie_embeddings"] else v * d
        return decoder + 2 * d + v * d + spec["max_len"] * d + untied

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
