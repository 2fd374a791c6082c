"""BertForMaskedLM and BertModel as transformers computes them. See README.md.

Good to know:

- Word, segment and position embeddings are added, then normalised. Positions count from the first column, padding or
  not. There is no norm after the last layer.
- norm = "post": x = LayerNorm(x + block(x)). The epsilon is 1e-12.
- Padding is hidden as a key. As a query it is computed all the same, so that `hidden` holds numbers there.
- "gelu" is the one with erf; "gelu_tanh" is `gelu_new` of transformers. The head's transform has the same activation.
- Head: LayerNorm(activation(dense(hidden))), times the word embedding, plus cls.predictions.bias. transformers also
  knows the bias as cls.predictions.decoder.bias: one parameter.
- pooled = tanh(dense(hidden of the first column)). BertForMaskedLM has no pooler.
- The row of the word embedding for padding (id 0) gets no gradient from the embedding (`padding_idx`). No token
  has the id 0 here, so that it makes no difference.
- The gradient of the keys' bias is zero but for rounding.

Loss: masked LM, the mean negative log-likelihood over the places that have a target. BertModel, the mean of
(hidden - wanted_hidden)^2 over all D of all tokens plus the mean of (pooled - wanted_pooled)^2; its derivatives by
hidden and pooled are hidden_grad and pooled_grad.
"""

import torch
from transformers import BertConfig, BertForMaskedLM, BertModel

import fixture

ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu"}
NONE = -100


def spec(heads, activation="gelu", layers=2, head="masked_lm", d_model=16, inner=24, vocab=29, max_len=16):
    """A model file, as a dictionary."""
    return {
        "backbone": "bert",
        "layers": f"(sf)x{layers}",
        "d_model": d_model,
        "vocab": vocab,
        "heads": heads,
        "inner": inner,
        "activation": activation,
        "norm": "post",
        "norm_eps": 1e-12,
        "max_len": max_len,
        "segments": 2,
        "head": head,
        "pooler": head == "none",
        "tie_embeddings": True,
        "dropout": 0.0,
        "attn_dropout": 0.0,
    }


# name: model, T, tokens of each sequence (below zero: padded in front)
CASES = {
    "bert_masked": (spec(2), 13, [13, 8, 5]),
    "bert_full": (spec(4), 11, [11, 11]),
    "bert_model": (spec(2, head="none"), 12, [7, 12]),
    "bert_relu": (spec(1, "relu", layers=1), 9, [9, 6]),
    "bert_tanh_left": (spec(2, "gelu_tanh", layers=1), 9, [-6, 9, 4]),
}


def build(spec):
    config = BertConfig(
        vocab_size=spec["vocab"],
        hidden_size=spec["d_model"],
        num_hidden_layers=int(spec["layers"].split(")x")[1]),
        num_attention_heads=spec["heads"],
        intermediate_size=spec["inner"],
        hidden_act=ACTIVATIONS[spec["activation"]],
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        max_position_embeddings=spec["max_len"],
        type_vocab_size=spec["segments"],
        layer_norm_eps=spec["norm_eps"],
        attn_implementation="eager",
    )
    if spec["head"] == "none":
        model = BertModel(config)
    else:
        model = BertForMaskedLM(config)
        head = model.cls.predictions
        assert head.decoder.weight.data_ptr() == model.bert.embeddings.word_embeddings.weight.data_ptr()
        assert head.decoder.bias.data_ptr() == head.bias.data_ptr()
    assert model.config._attn_implementation == "eager"
    return model


def inputs(spec, length, lengths, random):
    """Tokens, padding, two sentences each, and a target at about a third of the tokens."""
    shape = (len(lengths), length)
    places = torch.arange(length).expand(shape)
    counts = torch.tensor(lengths)[:, None]
    mask = torch.where(counts > 0, places < counts, places >= length + counts)
    ids = torch.randint(1, spec["vocab"], shape, generator=random)
    second = places >= torch.randint(2, 5, (len(lengths), 1), generator=random)
    targets = torch.randint(1, spec["vocab"], shape, generator=random)
    chosen = mask & (torch.rand(shape, generator=random) < 0.35)
    assert 2 <= chosen.sum() < mask.sum()
    out = {"ids": ids * mask, "mask": mask.long(), "segments": (second & mask).long()}
    if spec["head"] == "masked_lm":
        out["targets"] = torch.where(chosen, targets, NONE)
    else:
        d = spec["d_model"]
        out["wanted_hidden"] = torch.randn((*shape, d), generator=random)
        out["wanted_pooled"] = 0.5 * torch.randn((len(lengths), d), generator=random)
    return out


def masked_lm(model, given):
    out = model(
        input_ids=given["ids"],
        attention_mask=given["mask"],
        token_type_ids=given["segments"],
        labels=given["targets"],
        output_hidden_states=True,
    )
    scored = given["targets"] != NONE
    mean = -out.logits.log_softmax(-1)[scored].gather(1, given["targets"][scored][:, None]).mean()
    torch.testing.assert_close(out.loss, mean)
    return out.loss, {"logits": out.logits, "hidden": out.hidden_states[-1]}


def encoder(model, given):
    out = model(input_ids=given["ids"], attention_mask=given["mask"], token_type_ids=given["segments"])
    hidden, pooled = out.last_hidden_state, out.pooler_output
    real = given["mask"].bool()
    apart = (hidden - given["wanted_hidden"])[real].square().mean()
    loss = apart + (pooled - given["wanted_pooled"]).square().mean()
    # Through the pooler, `hidden` has a second way to the loss: `hidden_grad` is the direct one.
    direct = torch.where(real[..., None], 2 * (hidden - given["wanted_hidden"]), 0.0) / hidden[real].numel()
    pooled_grad = 2 * (pooled - given["wanted_pooled"]) / pooled.numel()
    return loss, {"hidden": hidden, "pooled": pooled, "hidden_grad": direct, "pooled_grad": pooled_grad}


if __name__ == "__main__":
    for case, (model_file, length, lengths) in CASES.items():
        random = fixture.generator(case)
        model = build(model_file)
        fixture.reinitialise(model, random)
        given = inputs(model_file, length, lengths, random)
        compute, prefix = (masked_lm, "") if model_file["head"] == "masked_lm" else (encoder, "bert.")
        fixture.write_case(case, model_file, model, given, lambda model: compute(model, given), {}, prefix)
