"""The gradient-based proxies a second time, in PyTorch, from the formulas of the papers that LTS cites. See README.md.

Writes, into crates/lathe-search/tests/it/fixtures, a small GPT-2 and a small Transformer-XL as transformers saves them,
each with a file proxies.json: the tokens, and every score, with the output layer left out and taken in. All in f64.

- grad_norm: sum over weight matrices of || dL/dW ||.
- snip (Lee et al., 2019): sum of | w dL/dw |.
- grasp (Wang et al., 2020): -sum of w (H g), by differentiating twice.
- fisher (LTS's form): per linear layer of the blocks and channel c, 1/2 mean over rows of (a dL/da)^2, times the second
  dimension of the layer's weight as stored, summed.
- fisher_blocks (Theis et al., 2018): per channel c of what a block adds, 1 / (2 N) sum_n (sum_t a dL/da)^2, summed.
- synflow (Tanaka et al., 2020): sum of | w dR/dw | with |w| for w, embeddings and distances of ones, R the sum of logits;
  synflow_norm_free with every LayerNorm the identity.
- jacob_cov (Mellor et al., 2020): -sum of log(v + k) + 1 / (v + k) over eigenvalues of the correlations of dL/dx_n.
- relu_log_det (Mellor et al., 2021): log | det K |, K[i, j] in how many ReLUs sequences i and j agree.
"""

import json
import pathlib
import warnings

import numpy
import torch

warnings.filterwarnings("ignore", category=FutureWarning)
warnings.filterwarnings("ignore", category=DeprecationWarning)

from transformers.pytorch_utils import Conv1D  # noqa: E402
from transformers import GPT2Config, GPT2LMHeadModel, TransfoXLConfig, TransfoXLLMHeadModel  # noqa: E402

import fixture  # noqa: E402

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "crates/lathe-search/tests/it/fixtures"
BATCH, LENGTH = 4, 6


def gpt2():
    return GPT2LMHeadModel(GPT2Config(
        vocab_size=23, n_positions=LENGTH, n_embd=12, n_layer=2, n_head=2, n_inner=20, activation_function="gelu_new",
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0, use_cache=False,
    ))  # fmt: skip


def xl():
    return TransfoXLLMHeadModel(TransfoXLConfig(
        vocab_size=30, cutoffs=[10, 20], d_model=12, d_embed=8, n_head=2, d_head=6, d_inner=20, div_val=2, n_layer=2,
        mem_len=5, clamp_len=-1, untie_r=True, dropout=0.0, dropatt=0.0,
    ))  # fmt: skip


def log_probabilities(model, ids):
    output = model(input_ids=ids)
    return output.logits.log_softmax(-1) if hasattr(output, "logits") else output.prediction_scores


def loss_of(model, ids, targets):
    return -log_probabilities(model, ids).gather(2, targets[..., None]).mean()


def matrices(model, output):
    """Weight matrices of the blocks; with the output, also its own and those it shares with the embedding."""
    names = dict(model.named_parameters())
    of_blocks = [p for name, p in names.items()
                 if (".h." in name or ".layers." in name) and name.endswith("weight") and p.dim() == 2]
    if not output:
        return of_blocks
    if isinstance(model, GPT2LMHeadModel):
        return of_blocks + [model.lm_head.weight]
    crit = model.crit
    return of_blocks + [layer.weight for layer in crit.out_layers] + list(crit.out_projs) + [crit.cluster_weight]


def pruning_scores(model, ids, targets, output):
    weights = matrices(model, output)
    assert len({p.data_ptr() for p in weights}) == len(weights)
    gradients = torch.autograd.grad(loss_of(model, ids, targets), weights, create_graph=True)
    along = sum((g * g.detach()).sum() for g in gradients)
    products = torch.autograd.grad(along, weights)
    return {
        "grad_norm": sum(g.norm() for g in gradients).item(),
        "snip": sum((w * g).abs().sum() for w, g in zip(weights, gradients)).item(),
        "grasp": -sum((w * h).sum() for w, h in zip(weights, products)).item(),
    }


def is_output_of_block(name):
    return name.endswith(("attn.c_proj", "mlp.c_proj", "dec_attn.o_net", "CoreNet.3"))


def activation_scores(model, ids, targets):
    added, inner, embedded, linears = [], [], [], []
    hooks = []
    for name, module in model.named_modules():
        if is_output_of_block(name):
            hooks.append(module.register_forward_hook(lambda _, __, out: added.append(out)))
        if name.endswith("CoreNet.0"):
            hooks.append(module.register_forward_hook(lambda _, __, out: inner.append(out)))
        if name.endswith(("transformer.wte", "transformer.word_emb")):
            hooks.append(module.register_forward_hook(lambda _, __, out: embedded.append(out)))
        if (".h." in name or ".layers." in name) and isinstance(module, (torch.nn.Linear, Conv1D)):
            hooks.append(module.register_forward_hook(lambda layer, _, out: linears.append((layer, out))))
    loss = loss_of(model, ids, targets)
    for hook in hooks:
        hook.remove()
    # Transformer-XL has time first.
    batch_first = (lambda x: x) if isinstance(model, GPT2LMHeadModel) else (lambda x: x.transpose(0, 1))
    of_linears = torch.autograd.grad(loss, [out for _, out in linears], retain_graph=True)
    fisher = 0.0
    for (layer, out), gradient in zip(linears, of_linears, strict=True):
        channels = out.shape[-1]
        by_token = (out * gradient).reshape(-1, channels) ** 2
        fisher += layer.weight.shape[1] * (by_token.mean(0) / 2).sum()
    gradients = [batch_first(g) for g in torch.autograd.grad(loss, added + embedded)]
    fisher_blocks = sum((batch_first(a) * g).sum(1).pow(2).sum() / (2 * BATCH) for a, g in zip(added, gradients))
    correlations = numpy.corrcoef(gradients[-1].reshape(BATCH, -1).numpy())
    values = numpy.linalg.eigvalsh(correlations)
    jacob_cov = -(numpy.log(values + 1e-5) + 1 / (values + 1e-5)).sum()
    scores = {"fisher": fisher.item(), "fisher_blocks": fisher_blocks.item(), "jacob_cov": jacob_cov.item()}
    if inner:
        codes = torch.cat([(batch_first(h) > 0).reshape(BATCH, -1) for h in inner], dim=1).double()
        kernel = codes @ codes.T + (1 - codes) @ (1 - codes).T
        scores["relu_log_det"] = torch.linalg.slogdet(kernel).logabsdet.item()
    return scores


def logits_of_ones(model):
    ones = torch.ones(1, LENGTH, model.config.hidden_size)
    if isinstance(model, GPT2LMHeadModel):
        return model(inputs_embeds=ones).logits
    hidden = ones.transpose(0, 1)
    mask = torch.ones(LENGTH, LENGTH).triu(1)[:, :, None].bool()
    for layer in model.transformer.layers:
        hidden = layer(hidden, torch.ones(LENGTH, 1, model.config.hidden_size), mask)[0]
    crit = model.crit
    first = torch.cat([crit.out_layers[0].weight, crit.cluster_weight])
    bias = torch.cat([crit.out_layers[0].bias, crit.cluster_bias])
    return hidden @ crit.out_projs[0] @ first.T + bias


def synflow(model, output, norm_free=False):
    as_it_is = torch.nn.LayerNorm.forward
    if norm_free:
        torch.nn.LayerNorm.forward = lambda _, hidden: hidden
    signs = [p.sign() for p in model.parameters()]
    with torch.no_grad():
        for p in model.parameters():
            p.abs_()
    weights = matrices(model, output)
    gradients = torch.autograd.grad(logits_of_ones(model).sum(), weights, allow_unused=True)
    score = sum((w * g).abs().sum() for w, g in zip(weights, gradients) if g is not None).item()
    torch.nn.LayerNorm.forward = as_it_is
    with torch.no_grad():
        for p, sign in zip(model.parameters(), signs):
            p.mul_(sign)
    return score


for case, build in [("gpt2", gpt2), ("transformer_xl", xl)]:
    random = fixture.generator("proxies_" + case)  # also sets f32 again
    model = build().eval()
    fixture.reinitialise(model, random)
    folder = FOLDER / case
    model.save_pretrained(folder, safe_serialization=True)
    (folder / "generation_config.json").unlink(missing_ok=True)
    (folder / "model.safetensors").chmod(0o644)

    tokens = fixture.tokens(BATCH, LENGTH + 1, model.config.vocab_size, random)
    ids, targets = tokens[:, :-1], tokens[:, 1:]
    torch.set_default_dtype(torch.float64)
    torch.Tensor.float = lambda tensor: tensor  # Transformer-XL's mask would round scores to f32
    model.double()
    if isinstance(model, TransfoXLLMHeadModel):
        model.transformer.pos_emb.inv_freq = 1 / 10000 ** (torch.arange(0, 12, 2) / 12)
    scores = activation_scores(model, ids, targets)
    for output in (False, True):
        found = {**pruning_scores(model, ids, targets, output), "synflow": synflow(model, output)}
        found["synflow_norm_free"] = synflow(model, output, norm_free=True)
        scores |= {name + (":output" if output else ""): value for name, value in found.items()}
    document = {"ids": ids.flatten().tolist(), "targets": targets.flatten().tolist(), "batch": BATCH, "scores": scores}
    (folder / "proxies.json").write_text(json.dumps(document, indent=1) + "\n")
    print(case, json.dumps(scores, indent=1))
