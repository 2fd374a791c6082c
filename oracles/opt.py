"""OPT as transformers computes it. See README.md.

Good to know:

- The table of positions has two rows more than positions, and the first token has row 2; rows 0 and 1 are never read.
- do_layer_norm_before = false (OPT-350M) puts norms after the blocks and leaves out the last one.
- q is scaled by 1 / sqrt(K) after its bias; projections are [out, in], with biases, and the output has none.
- The embedding has a padding token, 1, whose row gets no gradient from the embedding: tokens here are others.
- Where word_embed_proj_dim differs from hidden_size (OPT-350M), project_in and project_out have no bias; positions are added
  after the first.
- Dropout is applied to what blocks add, not to the embedding.
"""

from transformers import OPTConfig, OPTForCausalLM

import fixture

PADDING = 1


def spec(layers, d_model, heads, inner, vocab, max_len, activation="relu", norm="pre", tie_embeddings=True,
         d_embed=None):  # fmt: skip
    """A model file, as a dictionary."""
    return {
        "backbone": "opt",
        "reference": True,
        "layers": f"(sf)x{layers}",
        "d_model": d_model,
        "d_embed": d_embed or d_model,
        "vocab": vocab,
        "heads": heads,
        "inner": inner,
        "activation": activation,
        "norm": norm,
        "tie_embeddings": tie_embeddings,
        "max_len": max_len,
        "dropout": 0.0,
        "attn_dropout": 0.0,
    }


# name: model, B, T
CASES = {
    "opt_pre": (spec(2, 16, 2, 40, 33, 24), 2, 17),
    "opt_post": (spec(3, 12, 3, 20, 29, 12, norm="post"), 3, 12),
    "opt_350m": (spec(2, 12, 2, 20, 27, 14, norm="post", d_embed=8), 2, 13),
    "opt_gelu_untied": (spec(2, 16, 4, 24, 21, 16, "gelu", tie_embeddings=False), 2, 9),
}


def build(spec):
    config = OPTConfig(
        vocab_size=spec["vocab"],
        hidden_size=spec["d_model"],
        word_embed_proj_dim=spec["d_embed"],
        num_hidden_layers=int(spec["layers"].split(")x")[1]),
        ffn_dim=spec["inner"],
        max_position_embeddings=spec["max_len"],
        do_layer_norm_before=spec["norm"] == "pre",
        num_attention_heads=spec["heads"],
        dropout=0.0,
        attention_dropout=0.0,
        activation_function=spec["activation"],
        tie_word_embeddings=spec["tie_embeddings"],
        pad_token_id=PADDING,
        bos_token_id=2,
        eos_token_id=2,
        use_cache=False,
        attn_implementation="eager",
    )
    model = OPTForCausalLM(config)
    check(spec, model)
    return model


def check(spec, model):
    """The model is what the model file says."""
    decoder = model.model.decoder
    assert (model.lm_head.weight.data_ptr() == decoder.embed_tokens.weight.data_ptr()) == spec["tie_embeddings"]
    assert decoder.embed_positions.weight.shape[0] == spec["max_len"] + 2 and decoder.embed_positions.offset == 2
    assert (decoder.final_layer_norm is not None) == (spec["norm"] == "pre")
    projected = spec["d_embed"] != spec["d_model"]
    assert (decoder.project_in is not None) == projected and (decoder.project_out is not None) == projected
    assert model.config._attn_implementation == "eager"


def tokens(batch, length, vocab, random):
    ids = fixture.tokens(batch, length, vocab, random)
    return ids.masked_fill(ids == PADDING, PADDING + 1)


def forward(model, ids):
    logits = model(input_ids=ids).logits
    return logits, logits.log_softmax(-1), {}


if __name__ == "__main__":
    for case, (model_file, batch, length) in CASES.items():
        random = fixture.generator(case)
        model = build(model_file)
        fixture.reinitialise(model, random)
        ids = tokens(batch, length, model_file["vocab"], random)
        fixture.write(case, model_file, model, ids, forward, {})
