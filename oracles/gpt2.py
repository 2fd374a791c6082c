"""GPT-2 as transformers computes it. See README.md.

Good to know: attn.c_attn, attn.c_proj and mlp.c_* are `Conv1D`, whose weights are [in, out]; c_attn's columns are
q, k, v. LayerNorm's epsilon is 1e-5. The gradient of the keys' bias (the middle third of c_attn.bias) is zero but
for rounding, for it adds the same to all scores of a query.
"""

from transformers import GPT2Config, GPT2LMHeadModel

import fixture

ACTIVATIONS = {"gelu_tanh": "gelu_new", "gelu": "gelu", "relu": "relu", "silu": "silu"}


def spec(layers, d_model, heads, inner, vocab, max_len, activation, tie_embeddings=True):
    """A model file, as a dictionary."""
    return {
        "backbone": "gpt2",
        "layers": f"(sf)x{layers}",
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
}


def build(spec):
    config = GPT2Config(
        vocab_size=spec["vocab"],
        n_positions=spec["max_len"],
        n_embd=spec["d_model"],
        n_layer=int(spec["layers"].removeprefix("(sf)x")),
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
    return model


def forward(model, ids):
    logits = model(input_ids=ids).logits
    return logits, logits.log_softmax(-1), {}


for case, (model_file, batch, length) in CASES.items():
    random = fixture.generator(case)
    model = build(model_file)
    fixture.reinitialise(model, random)
    ids = fixture.tokens(batch, length, model_file["vocab"], random)
    fixture.write(case, model_file, model, ids, forward, {})
