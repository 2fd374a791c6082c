"""Transformer-XL as transformers 4.35.2, the last before it became a deprecated model, computes it. See README.md.

What it does, read from its code and checked below where a check is short:

- Memory starts as mem_len zero vectors per layer (`init_mems`, when mems is None), not as nothing: the first segment
  attends to them. With norm = "post" their keys and values are zero, but their relative scores are not, so they
  take a share of the attention; with norm = "pre" they pass through the LayerNorm and become its bias.
- Memory of layer i is the input of layer i (attention and feed-forward are one layer), layer 0's the scaled embedding,
  without a LayerNorm even when norm = "pre". New memory = the last mem_len rows of [memory; inputs], detached.
- Distances run from mem_len + T - 1 down to 0; clamp_len > 0 makes them min(distance, clamp_len), so that clamp_len + 1
  are told apart. Their embedding is [sin, cos], concatenated, of distance * 10000^(-2i / D).
- Without same_length a query sees all memory and the segment up to itself. With it, it sees distances 0 to mem_len - 1:
  mem_len keys, itself among them.
- Score = ((q + r_w_bias) k + (q + r_r_bias) r) / sqrt(d_head). Rows of qkv_net are q, k, v.
- The embedding, after its projection, is multiplied by sqrt(d_model); the output is not scaled. norm = "pre" has no
  LayerNorm after the last layer.
- Cluster i = 1, 2, ... of the adaptive softmax has the log-probability at column cutoffs[0] + i - 1 of the head.
- tie_projs of transformers is a list over clusters, [False, True, ...] by default (proj_share_all_but_first): the first
  output projection is never the embedding's. That is tie_projs = true of a model file; false is [False, ...].
- config.adaptive is not read: cutoffs alone decide.
"""

import warnings

import torch

warnings.filterwarnings("ignore", category=FutureWarning)  # 4.35.2 calls what newer torch renames
warnings.filterwarnings("ignore", category=DeprecationWarning)

from transformers import TransfoXLConfig, TransfoXLLMHeadModel  # noqa: E402

import fixture  # noqa: E402

BATCH = 2
SEGMENTS = 3


def spec(
    tgt_len, mem_len, vocab=37, cutoffs=(), div_val=1, d_embed=16, heads=2, d_head=8, norm="post", clamp_len=None,
    same_length=False, tie_embeddings=True, tie_projs=True,
):  # fmt: skip
    """A model file, as a dictionary."""
    clamp = {} if clamp_len is None else {"clamp_len": clamp_len}
    return {
        "backbone": "transformer_xl",
        "layers": "(sf)x2",
        "d_model": 16,
        "vocab": vocab,
        "heads": heads,
        "d_head": d_head,
        "inner": 24,
        "activation": "relu",
        "norm": norm,
        "d_embed": d_embed,
        "div_val": div_val,
        "cutoffs": list(cutoffs),
        "tie_embeddings": tie_embeddings,
        "tie_projs": tie_projs,
        "tgt_len": tgt_len,
        "mem_len": mem_len,
        **clamp,
        "same_length": same_length,
        "dropout": 0.0,
        "attn_dropout": 0.0,
    }


ADAPTIVE = {"vocab": 60, "cutoffs": [12, 30]}
CASES = {
    "xl_post": spec(5, 7),
    "xl_pre": spec(5, 7, heads=3, d_head=4, norm="pre", clamp_len=6),
    "xl_adaptive": spec(6, 4, **ADAPTIVE, div_val=2),
    "xl_adaptive_div1": spec(4, 6, **ADAPTIVE, d_embed=8),
    "xl_same_length": spec(4, 6, same_length=True),
    "xl_untied": spec(6, 4, **ADAPTIVE, div_val=2, tie_embeddings=False, tie_projs=False),
}


def build(spec):
    config = TransfoXLConfig(
        vocab_size=spec["vocab"],
        cutoffs=spec["cutoffs"],
        d_model=spec["d_model"],
        d_embed=spec["d_embed"],
        n_head=spec["heads"],
        d_head=spec["d_head"],
        d_inner=spec["inner"],
        div_val=spec["div_val"],
        pre_lnorm=spec["norm"] == "pre",
        n_layer=int(spec["layers"].removeprefix("(sf)x")),
        mem_len=spec["mem_len"],
        clamp_len=spec.get("clamp_len", -1),
        same_length=spec["same_length"],
        proj_share_all_but_first=spec["tie_projs"],
        tie_word_embeddings=spec["tie_embeddings"],
        adaptive=True,
        untie_r=True,
        dropout=0.0,
        dropatt=0.0,
    )
    model = TransfoXLLMHeadModel(config)
    check_tying(spec, model)
    return model


def check_tying(spec, model):
    """The parameters are tied as the model file says."""

    def same(a, b):
        return a.data_ptr() == b.data_ptr()

    embedding, output = model.transformer.word_emb, model.crit
    for one, other in zip(output.out_layers, embedding.emb_layers, strict=True):
        assert same(one.weight, other.weight) == spec["tie_embeddings"]
    for i, projection in enumerate(output.out_projs):
        if spec["div_val"] == 1 and spec["d_embed"] == spec["d_model"]:
            assert projection is None and len(embedding.emb_projs) == 0
        else:
            shared = embedding.emb_projs[0 if spec["div_val"] == 1 else i]
            assert same(projection, shared) == (spec["tie_projs"] and i > 0)
    biases = [getattr(layer.dec_attn, name) for layer in model.transformer.layers for name in ("r_w_bias", "r_r_bias")]
    assert len({bias.data_ptr() for bias in biases}) == 2 * len(model.transformer.layers)


def forward(model, ids):
    mems, scores, further = None, [], {}
    for segment, part in enumerate(ids.chunk(SEGMENTS, dim=1)):
        output = model(input_ids=part, mems=mems)
        scores.append(output.prediction_scores)
        mems = output.mems
        for layer, memory in enumerate(mems):
            assert memory.shape[0] == model.config.mem_len and not memory.requires_grad
            further[f"mems.{layer}.{segment}"] = memory.transpose(0, 1)
    scores = torch.cat(scores, dim=1)
    return scores, scores, further


def check_start(model, ids):
    """No memory means zeros."""
    segment = next(iter(ids.chunk(SEGMENTS, dim=1)))
    zeros = [torch.zeros(model.config.mem_len, BATCH, model.config.d_model)] * model.config.n_layer
    with torch.no_grad():
        assert torch.equal(model(segment).prediction_scores, model(segment, mems=zeros).prediction_scores)


for case, model_file in CASES.items():
    random = fixture.generator(case)
    model = build(model_file)
    fixture.reinitialise(model, random)
    ids = fixture.tokens(BATCH, SEGMENTS * model_file["tgt_len"], model_file["vocab"], random)
    cuts = torch.tensor(model_file["cutoffs"])
    assert len(torch.bucketize(ids, cuts, right=True).unique()) == len(cuts) + 1, "a cluster without a token"
    check_start(model, ids)
    fixture.write(case, model_file, model, ids, forward, {"segments": str(SEGMENTS)})
