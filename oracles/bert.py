"""BERT and the families after it as transformers computes them: for masked tokens, and without an output layer. See README.md.

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
- RoBERTa counts tokens that are not padding from 2 on. Here places are given, 2 + the column: for real tokens in front of
  padding the same, which is asserted, and padding then has hidden states that depend on nothing but its column. Rows 0
  and 1 of the table are never used. Its head has always "gelu" with erf. No token has the id 1, its padding.
- DistilBERT has no segments and no pooler.
- MobileBERT puts the vectors of the next token, of the token and of the one before side by side: zeros where there is none. Beside
  padding it has the vector of padding, which begins as zeros and has no gradient: it is zeros here. With classifier_activation false the
  vector of a text is its first token's hidden state, and no pooled output is wanted here.
- MPNet has RoBERTa's positions, no segments, and a bias of scores by distance from one table for all layers.
- ALBERT has a LayerNorm of the embedding's width, then embedding_hidden_mapping_in with a bias. Layer i of L is of group
  i / (L / groups). Its head goes back to the embedding's width, and its pooler is called `pooler`, not `pooler.dense`.

Loss: masked LM, the mean negative log-likelihood over the places that have a target. Without an output layer, the mean of
(hidden - wanted_hidden)^2 over all D of all tokens plus the mean of (pooled - wanted_pooled)^2, where there is a pooler; its
derivatives by hidden and pooled are hidden_grad and pooled_grad.
"""

import copy
import re

import torch
from transformers import (
    AlbertConfig,
    AlbertForMaskedLM,
    AlbertModel,
    BertConfig,
    BertForMaskedLM,
    BertModel,
    DistilBertConfig,
    DistilBertForMaskedLM,
    DistilBertModel,
    MPNetConfig,
    MPNetForMaskedLM,
    MPNetModel,
    MobileBertConfig,
    MobileBertForMaskedLM,
    MobileBertModel,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaModel,
)

import fixture

ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu"}
NONE = -100
FAMILIES = {
    "bert": (BertConfig, BertForMaskedLM, BertModel),
    "roberta": (RobertaConfig, RobertaForMaskedLM, RobertaModel),
    "distilbert": (DistilBertConfig, DistilBertForMaskedLM, DistilBertModel),
    "albert": (AlbertConfig, AlbertForMaskedLM, AlbertModel),
    "mpnet": (MPNetConfig, MPNetForMaskedLM, MPNetModel),
    "mobilebert": (MobileBertConfig, MobileBertForMaskedLM, MobileBertModel),
}
# Keys of the model file that a family has not.
WITHOUT = {"distilbert": ["norm_eps", "segments", "pooler"], "mpnet": ["segments"], "mobilebert": ["pooler"]}
UNUSED_ROWS = {"roberta": 2, "mpnet": 2}


def spec(heads, activation="gelu", layers=2, head="masked_lm", d_model=16, inner=24, vocab=29, max_len=16, backbone="bert", **more):
    """A model file, as a dictionary."""
    out = {
        "backbone": backbone,
        "layers": f"(sf)x{layers}",
        "d_model": d_model,
        "vocab": vocab,
        "heads": heads,
        "inner": inner,
        "activation": activation,
        "norm": "post",
        "norm_eps": 1e-5 if backbone in UNUSED_ROWS else 1e-12,
        "max_len": max_len,
        "segments": 1 if backbone == "roberta" else 2,
        "head": head,
        "pooler": head == "none",
        "tie_embeddings": True,
        "dropout": 0.0,
        "attn_dropout": 0.0,
    }
    return {key: value for key, value in out.items() if key not in WITHOUT.get(backbone, [])} | more


def mobile(width=8, ffns=3, narrow=False, norm="scale", pooled=True, **more):
    """A MobileBERT."""
    sizes = {"heads": 2, "inner": 12, "activation": "relu"} | more
    own = {"d_embed": 6, "norm_kind": norm, "classifier_activation": pooled}
    out = spec(backbone="mobilebert", **sizes, **own)
    layer = f"bottleneck{{width={width},heads={out['heads']},inner={out['inner']},ffns={ffns},narrow={str(narrow).lower()}}}"
    return out | {"layers": f"({layer})x2"} if width else out


# name: model, T, tokens of each sequence (below zero: padded in front)
CASES = {
    "bert_masked": (spec(2), 13, [13, 8, 5]),
    "bert_full": (spec(4), 11, [11, 11]),
    "bert_model": (spec(2, head="none"), 12, [7, 12]),
    "bert_relu": (spec(1, "relu", layers=1), 9, [9, 6]),
    "bert_tanh_left": (spec(2, "gelu_tanh", layers=1), 9, [-6, 9, 4]),
    "roberta_masked": (spec(2, backbone="roberta"), 13, [13, 8, 5]),
    "roberta_model": (spec(4, "relu", head="none", backbone="roberta"), 12, [7, 12]),
    "distilbert_masked": (spec(2, backbone="distilbert"), 13, [13, 8, 5]),
    "distilbert_model": (spec(4, "relu", head="none", backbone="distilbert"), 12, [7, 12]),
    "albert_masked": (spec(2, "gelu_tanh", 3, backbone="albert", d_embed=8, shared="all"), 13, [13, 8, 5]),
    "albert_groups": (spec(2, layers=4, backbone="albert", d_embed=8, shared="all", shared_layers=2), 11, [11, 6]),
    "albert_model": (spec(4, "relu", head="none", backbone="albert", d_embed=8, shared="none"), 12, [7, 12]),
    "mobilebert_masked": (mobile(), 13, [13, 13]),  # the output layer moves the vector of padding, too
    "mobilebert_narrow": (mobile(12, 2, True, "layer", heads=4, activation="gelu"), 11, [11, 11]),
    "mobilebert_model": (mobile(head="none"), 12, [7, 12]),
    "mobilebert_plain": (mobile(0, head="none", pooled=False), 12, [7, 12]),
    "mpnet_masked": (spec(2, backbone="mpnet", max_len=40), 37, [37, 8]),
    "mpnet_model": (spec(4, "relu", head="none", backbone="mpnet"), 12, [7, 12]),
}


def of_mobile(spec):
    """What a MobileBERT has besides."""
    sizes = re.search(r"width=(\d+),.*ffns=(\d+),narrow=(\w+)", spec["layers"])
    out = {
        "embedding_size": spec["d_embed"],
        "trigram_input": True,
        "normalization_type": {"scale": "no_norm", "layer": "layer_norm"}[spec["norm_kind"]],
        "classifier_activation": spec["classifier_activation"],
        "use_bottleneck": sizes is not None,
        "num_feedforward_networks": 1,
    }
    if sizes:
        narrow = sizes[3] == "true"
        out |= {
            "intra_bottleneck_size": int(sizes[1]),
            "num_feedforward_networks": int(sizes[2]),
            "use_bottleneck_attention": narrow,
            "key_query_shared_bottleneck": not narrow,
        }
    return out


def groups(spec, layers):
    """Groups of layers that share their weights."""
    return layers if spec["shared"] == "none" else layers // spec.get("shared_layers", layers)


def config(spec):
    kind, backbone = FAMILIES[spec["backbone"]][0], spec["backbone"]
    layers, rows = int(spec["layers"].split(")x")[1]), spec["max_len"] + UNUSED_ROWS.get(backbone, 0)
    if backbone == "distilbert":
        return kind(
            vocab_size=spec["vocab"],
            dim=spec["d_model"],
            n_layers=layers,
            n_heads=spec["heads"],
            hidden_dim=spec["inner"],
            activation=ACTIVATIONS[spec["activation"]],
            dropout=0.0,
            attention_dropout=0.0,
            max_position_embeddings=rows,
            attn_implementation="eager",
        )
    more = {}
    if backbone == "albert":
        more = {"embedding_size": spec["d_embed"], "num_hidden_groups": groups(spec, layers)}
    if backbone == "mobilebert":
        more = of_mobile(spec)
    if "segments" in spec:
        more["type_vocab_size"] = spec["segments"]
    return kind(
        **more,
        vocab_size=spec["vocab"],
        hidden_size=spec["d_model"],
        num_hidden_layers=layers,
        num_attention_heads=spec["heads"],
        intermediate_size=spec["inner"],
        hidden_act=ACTIVATIONS[spec["activation"]],
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        max_position_embeddings=rows,
        layer_norm_eps=spec["norm_eps"],
        attn_implementation="eager",
    )


def build(spec):
    _, masked, bare = FAMILIES[spec["backbone"]]
    model = (bare if spec["head"] == "none" else masked)(config(spec))
    if spec["head"] != "none":
        rows = model.get_input_embeddings().weight
        assert model.get_output_embeddings().weight.data_ptr() == rows.data_ptr()
    assert model.config._attn_implementation == "eager"
    return model


def no_padding_vector(model):
    """The vector of padding is zeros where tokens see the one beside them."""
    if model.config.model_type == "mobilebert":
        with torch.no_grad():
            model.get_input_embeddings().weight[0] = 0.0


def inputs(spec, length, lengths, random):
    """Tokens, padding, two sentences each where there are segments, and a target at about a third of the tokens."""
    shape = (len(lengths), length)
    places = torch.arange(length).expand(shape)
    counts = torch.tensor(lengths)[:, None]
    mask = torch.where(counts > 0, places < counts, places >= length + counts)
    ids = torch.randint(1, spec["vocab"], shape, generator=random)
    if spec["backbone"] in UNUSED_ROWS:
        ids = ids.clamp(min=2)
    second = places >= torch.randint(2, 5, (len(lengths), 1), generator=random)
    targets = torch.randint(1, spec["vocab"], shape, generator=random)
    chosen = mask & (torch.rand(shape, generator=random) < 0.35)
    assert 2 <= chosen.sum() < mask.sum()
    out = {"ids": ids * mask, "mask": mask.long()}
    if spec.get("segments", 0) > 1:
        out["segments"] = (second & mask).long()
    if spec["head"] == "masked_lm":
        out["targets"] = torch.where(chosen, targets, NONE)
        return out
    d = spec["d_model"]
    out["wanted_hidden"] = torch.randn((*shape, d), generator=random)
    if spec.get("pooler", spec.get("classifier_activation")):
        out["wanted_pooled"] = 0.5 * torch.randn((len(lengths), d), generator=random)
    return out


def arguments(model, given):
    out = {"input_ids": given["ids"], "attention_mask": given["mask"]}
    if "segments" in given:
        out["token_type_ids"] = given["segments"]
    if model.config.model_type in UNUSED_ROWS:
        out["position_ids"] = UNUSED_ROWS[model.config.model_type] + torch.arange(given["ids"].shape[1]).expand(
            given["ids"].shape
        )
    return out


def check_places(model, given):
    """Places that are given are those that the model finds for real tokens by itself."""
    own = arguments(model, given)
    if own.pop("position_ids", None) is not None:
        real = given["mask"].bool()
        own["input_ids"] = torch.where(real, given["ids"], model.config.pad_token_id)
        found = model(**own, output_hidden_states=True).hidden_states[-1]
        expected = model(**arguments(model, given), output_hidden_states=True).hidden_states[-1]
        torch.testing.assert_close(found[real], expected[real])


def masked_lm(model, given):
    out = model(**arguments(model, given), labels=given["targets"], output_hidden_states=True)
    scored = given["targets"] != NONE
    mean = -out.logits.log_softmax(-1)[scored].gather(1, given["targets"][scored][:, None]).mean()
    torch.testing.assert_close(out.loss, mean)
    return out.loss, {"logits": out.logits, "hidden": out.hidden_states[-1]}


def encoder(model, given):
    out = model(**arguments(model, given))
    hidden = out.last_hidden_state
    real = given["mask"].bool()
    loss = (hidden - given["wanted_hidden"])[real].square().mean()
    # Through the pooler, `hidden` has a second way to the loss: `hidden_grad` is the direct one.
    direct = torch.where(real[..., None], 2 * (hidden - given["wanted_hidden"]), 0.0) / hidden[real].numel()
    outputs = {"hidden": hidden, "hidden_grad": direct}
    if "wanted_pooled" in given:
        apart = out.pooler_output - given["wanted_pooled"]
        loss = loss + apart.square().mean()
        outputs |= {"pooled": out.pooler_output, "pooled_grad": 2 * apart / apart.numel()}
    return loss, outputs


def draw(case, model_file, length, lengths, compute):
    """Weights and inputs whose ten steps are the same in f64: where a gradient is nothing but rounding, Adam's steps are, too."""
    for attempt in range(10):
        random = fixture.generator(case + (f" {attempt}" if attempt else ""))
        model = build(model_file)
        fixture.reinitialise(model, random)
        no_padding_vector(model)
        given = inputs(model_file, length, lengths, random)
        exact = {name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in given.items()}
        steps = fixture.adamw_losses(copy.deepcopy(model).eval(), lambda model: compute(model, given))
        sure = fixture.adamw_losses(copy.deepcopy(model).double().eval(), lambda model: compute(model, exact))
        if ((steps - sure) / sure).abs().max() < 3e-5:
            return model, given
    raise SystemExit(f"{case}: no weights whose steps are sure")


if __name__ == "__main__":
    for case, (model_file, length, lengths) in CASES.items():
        bare = model_file["head"] == "none"
        compute = encoder if bare else masked_lm
        model, given = draw(case, model_file, length, lengths, compute)
        check_places(model, given)
        prefix = f"{model.base_model_prefix}." if bare else ""
        fixture.write_case(case, model_file, model, given, lambda model: compute(model, given), {}, prefix)
