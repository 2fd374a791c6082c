"""GPT-2 as transformers computes it. See README.md.

Good to know: attn.c_attn, attn.c_proj and mlp.c_* are `Conv1D`, whose weights are [in, out]; c_attn's columns are
q, k, v. LayerNorm's epsilon is 1e-5. The gradient of the keys' bias (the middle third of c_attn.bias) is zero but
for rounding, for it adds the same to all scores of a query.

transformers has no mixture of experts for GPT-2: `Moe` is one, token by token and expert by expert.
"""

import re

import torch
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.activations import ACT2FN
from transformers.models.gpt2.modeling_gpt2 import GPT2Block

import fixture

ACTIVATIONS = {"gelu_tanh": "gelu_new", "gelu": "gelu", "relu": "relu", "silu": "silu"}


def spec(layers, d_model, heads, inner, vocab, max_len, activation, tie_embeddings=True, ffn="f"):
    """A model file, as a dictionary."""
    return {
        "backbone": "gpt2",
        "layers": f"(s {ffn})x{layers}".replace("s f", "sf"),
        "d_model": d_model,
        "vocab": vocab,
        "heads": heads,
        "inner": inner,
        "activation": activation,
        "norm": "pre",
        "tie_embeddings": tie_embeddings,
        "max_len": max_len,
        "dropout": 0.0,
        "attn_dropout": 0.0,
    }


# name: model, B, T
CASES = {
    "gpt2_tanh": (spec(2, 16, 2, 64, 33, 24, "gelu_tanh"), 2, 17),
    "gpt2_erf": (spec(3, 24, 3, 40, 50, 16, "gelu"), 3, 11),
    "gpt2_relu": (spec(1, 8, 1, 20, 19, 8, "relu"), 1, 5),
    "gpt2_silu_untied": (spec(2, 16, 4, 33, 21, 12, "silu", tie_embeddings=False), 2, 9),
    "gpt2_moe_top1": (spec(2, 16, 2, 20, 23, 16, "relu", ffn="m5k1"), 2, 13),
    "gpt2_moe_top2": (spec(2, 12, 2, 16, 19, 16, "gelu_tanh", ffn="m4k2"), 2, 11),
    "gpt2_moe_renormalised": (
        spec(1, 12, 3, 16, 19, 16, "silu", ffn="moe{experts=4,top_k=3,renormalise=true}"), 2, 11),
}


class Weights(torch.nn.Module):
    """Parameters of given shapes."""

    def __init__(self, **shapes):
        super().__init__()
        for name, shape in shapes.items():
            setattr(self, name, torch.nn.Parameter(torch.empty(shape)))


class Moe(torch.nn.Module):
    """Of every token the `top_k` most probable experts, weighted by their probabilities."""

    def __init__(self, d, inner, experts, top_k, renormalise, activation):
        super().__init__()
        self.gate = Weights(weight=(d, experts))
        self.c_fc = Weights(weight=(experts, d, inner), bias=(experts, inner))
        self.c_proj = Weights(weight=(experts, inner, d), bias=(experts, d))
        self.top_k, self.renormalise, self.activation = top_k, renormalise, ACT2FN[activation]

    def of_token(self, x):
        probabilities = (x @ self.gate.weight).softmax(0)
        best = probabilities.topk(self.top_k).indices
        total = probabilities[best].sum() if self.renormalise else 1
        out = 0
        for e in best:
            h = self.activation(x @ self.c_fc.weight[e] + self.c_fc.bias[e])
            out = out + probabilities[e] / total * (h @ self.c_proj.weight[e] + self.c_proj.bias[e])
        return out

    def forward(self, x):
        return torch.stack([self.of_token(row) for row in x.flatten(0, 1)]).view_as(x)


class MoeBlock(GPT2Block):
    """A block of GPT-2 whose feed-forward is `moe`."""

    mlp = property(lambda self: self.moe)


def with_experts(block, spec):
    numbers = [int(n) for n in re.findall(r"\d+", spec["layers"])]
    del block.mlp
    activation = ACTIVATIONS[spec["activation"]]
    block.moe = Moe(spec["d_model"], spec["inner"], *numbers[:2], "renormalise" in spec["layers"], activation)
    block.__class__ = MoeBlock


def build(spec):
    config = GPT2Config(
        vocab_size=spec["vocab"],
        n_positions=spec["max_len"],
        n_embd=spec["d_model"],
        n_layer=int(spec["layers"].split(")x")[1]),
        n_head=spec["heads"],
        n_inner=spec["inner"],
        activation_function=ACTIVATIONS[spec["activation"]],
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        tie_word_embeddings=spec["tie_embeddings"],
        bos_token_id=0,
        eos_token_id=0,
        use_cache=False,
        attn_implementation="eager",
    )
    model = GPT2LMHeadModel(config)
    tied = model.lm_head.weight.data_ptr() == model.transformer.wte.weight.data_ptr()
    assert tied == spec["tie_embeddings"]
    assert model.config._attn_implementation == "eager"
    if "m" in spec["layers"]:
        for block in model.transformer.h:
            with_experts(block, spec)
    return model


def forward(model, ids):
    logits = model(input_ids=ids).logits
    return logits, logits.log_softmax(-1), {}


if __name__ == "__main__":
    for case, (model_file, batch, length) in CASES.items():
        random = fixture.generator(case)
        model = build(model_file)
        fixture.reinitialise(model, random)
        ids = fixture.tokens(batch, length, model_file["vocab"], random)
        fixture.write(case, model_file, model, ids, forward, {})
