"""Low-rank feed-forwards in GPT-2 and Llama. See README.md.

transformers has none: `LowRank` is one, with weights [in, out] in a GPT-2 and [out, in] in a Llama, as their own are.
"""

import torch
from transformers.activations import ACT2FN
from transformers.models.gpt2.modeling_gpt2 import GPT2Block
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

import fixture
import gpt2
import llama

RANK = 5
LAYERS = f"(s low_rank{{rank={RANK}}})x2"


class Thin(torch.nn.Module):
    """x A B + b."""

    def __init__(self, inputs, outputs, transposed, bias):
        super().__init__()
        shape = (lambda *sizes: sizes[::-1]) if transposed else (lambda *sizes: sizes)
        self.a = gpt2.Weights(weight=shape(inputs, RANK))
        self.b = gpt2.Weights(weight=shape(RANK, outputs), **({"bias": (outputs,)} if bias else {}))
        self.transposed = transposed

    def forward(self, x):
        a, b = self.a.weight, self.b.weight
        y = x @ a.T @ b.T if self.transposed else x @ a @ b
        return y + self.b.bias if hasattr(self.b, "bias") else y


class LowRank(torch.nn.Module):
    def __init__(self, d, inner, activation, gated, transposed):
        super().__init__()
        if gated:
            self.gate = Thin(d, inner, transposed, not gated)
        self.up = Thin(d, inner, transposed, not gated)
        self.down = Thin(inner, d, transposed, not gated)
        self.gated, self.activation = gated, ACT2FN[activation]

    def forward(self, x):
        h = self.activation(self.gate(x)) * self.up(x) if self.gated else self.activation(self.up(x))
        return self.down(h)


class Gpt2LowRank(GPT2Block):
    mlp = property(lambda self: self.low_rank)


class LlamaLowRank(LlamaDecoderLayer):
    mlp = property(lambda self: self.low_rank)


def replace(block, kind, low_rank):
    del block.mlp
    block.low_rank = low_rank
    block.__class__ = kind


def gpt2_case():
    spec = gpt2.spec(2, 16, 2, 20, 23, 16, "gelu_tanh")
    model = gpt2.build(spec)
    for block in model.transformer.h:
        replace(block, Gpt2LowRank, LowRank(spec["d_model"], spec["inner"], "gelu_new", False, False))
    return spec, model, gpt2.forward


def llama_case():
    spec = llama.spec(2, 2, tie_embeddings=True)
    model = llama.build("llama", spec)
    for block in model.model.layers:
        replace(block, LlamaLowRank, LowRank(spec["d_model"], spec["inner"], "silu", True, True))
    return spec, model, llama.forward


for case, of in {"gpt2_low_rank": gpt2_case, "llama_low_rank": llama_case}.items():
    random = fixture.generator(case)
    spec, model, forward = of()
    fixture.reinitialise(model, random)
    ids = fixture.tokens(2, 13, spec["vocab"], random)
    fixture.write(case, spec | {"layers": LAYERS}, model, ids, forward, {})
