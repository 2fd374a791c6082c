"""Llama, Qwen2 and Qwen3 as transformers computes them. See README.md.

Good to know:

- `Linear` weights are [out, in]. A norm is x * rsqrt(mean(x^2) + eps) * weight, computed in f32.
- Rotation pairs element i of a head with element i + K / 2 (`rotate_half`), not with its neighbour, at the angle
  position * theta^(-2i / K). cos and sin are multiplied by 1 in all cases here. Values are not rotated.
- linear: all frequencies are divided by the factor.
- llama3, with L = rope_original_max_len and the wavelength w = 2 pi / frequency: w < L / high stays; w > L / low is
  divided by the factor; between, with s = (L / w - low) / (high - low), it is (1 - s) * frequency / factor +
  s * frequency.
- Heads of queries share a head of keys and values in consecutive groups: query h reads h // (heads / kv_heads).
- Scores are divided by sqrt(K), K being d_head where it is given.
- attention_bias of Llama and of Qwen3 means q, k, v and o. Qwen2 has q, k, v always and o never.
- Qwen3 normalises every head of q and of k, [K] wide, before the rotation, with one weight for all heads of a layer.
- The gradient of the keys' bias is not zero as in GPT-2: the bias is rotated with the key.
"""

import math

from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

import fixture

BATCH = 2


def spec(
    heads, kv_heads, layers=2, d_model=16, d_head=None, inner=20, vocab=31, max_len=24, norm_eps=1e-5,
    rope_theta=10000.0, rope=None, qkv_bias=False, out_bias=False, head_norm=False, tie_embeddings=False,
):  # fmt: skip
    """A model file, as a dictionary."""
    return {
        "backbone": "llama",
        "layers": f"(sf)x{layers}",
        "d_model": d_model,
        "vocab": vocab,
        "heads": heads,
        "kv_heads": kv_heads,
        **({} if d_head is None else {"d_head": d_head}),
        "inner": inner,
        "activation": "swiglu",
        "norm": "pre",
        "norm_eps": norm_eps,
        "rope_theta": rope_theta,
        **(rope or {}),
        "qkv_bias": qkv_bias,
        "out_bias": out_bias,
        "head_norm": head_norm,
        "tie_embeddings": tie_embeddings,
        "max_len": max_len,
        "dropout": 0.0,
        "attn_dropout": 0.0,
    }


LINEAR = {"rope_scaling": "linear", "rope_factor": 2.5}
LLAMA3 = {
    "rope_scaling": "llama3",
    "rope_factor": 8.0,
    "rope_low_freq_factor": 1.0,
    "rope_high_freq_factor": 4.0,
    "rope_original_max_len": 48,
}
FAMILIES = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
}

# name, of which the first word is the family: model, T
CASES = {
    "llama_plain": (spec(2, 2, tie_embeddings=True), 17),
    "llama_grouped": (spec(4, 2, inner=24), 13),
    "llama_linear": (spec(4, 1, rope=LINEAR, tie_embeddings=True), 19),
    "llama_scaled3": (spec(2, 1, rope=LLAMA3, rope_theta=50.0, max_len=64, tie_embeddings=True), 23),
    "llama_wide_heads": (spec(2, 2, d_head=12, norm_eps=1e-6, tie_embeddings=True), 11),
    "llama_bias": (spec(2, 1, qkv_bias=True, out_bias=True, tie_embeddings=True), 12),
    "qwen2": (spec(4, 2, qkv_bias=True, rope_theta=1e6, norm_eps=1e-6, tie_embeddings=True), 14),
    "qwen3": (spec(2, 1, d_head=12, head_norm=True, rope_theta=1e6, norm_eps=1e-6, tie_embeddings=True), 13),
}


def rope_parameters(spec):
    rope = {"rope_type": spec.get("rope_scaling", "default"), "rope_theta": spec["rope_theta"]}
    keys = {
        "rope_factor": "factor",
        "rope_low_freq_factor": "low_freq_factor",
        "rope_high_freq_factor": "high_freq_factor",
        "rope_original_max_len": "original_max_position_embeddings",
    }
    return rope | {theirs: spec[ours] for ours, theirs in keys.items() if ours in spec}


def build(family, spec):
    config_of, model_of = FAMILIES[family]
    extra = {} if family == "qwen2" else {"attention_bias": spec["qkv_bias"]}
    if "d_head" in spec:
        extra["head_dim"] = spec["d_head"]
    config = config_of(
        vocab_size=spec["vocab"],
        hidden_size=spec["d_model"],
        intermediate_size=spec["inner"],
        num_hidden_layers=int(spec["layers"].split(")x")[1]),
        num_attention_heads=spec["heads"],
        num_key_value_heads=spec["kv_heads"],
        hidden_act="silu",
        max_position_embeddings=spec["max_len"],
        rms_norm_eps=spec["norm_eps"],
        rope_parameters=rope_parameters(spec),
        attention_dropout=0.0,
        tie_word_embeddings=spec["tie_embeddings"],
        bos_token_id=0,
        eos_token_id=0,
        use_cache=False,
        attn_implementation="eager",
        **extra,
    )
    model = model_of(config)
    check(spec, model)
    return model


def check(spec, model):
    """The model is what the model file says."""
    tied = model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()
    assert tied == spec["tie_embeddings"]
    assert model.config._attn_implementation == "eager"
    attention = model.model.layers[0].self_attn
    assert attention.head_dim == spec.get("d_head", spec["d_model"] // spec["heads"])
    for projection, bias in [("q", "qkv_bias"), ("k", "qkv_bias"), ("v", "qkv_bias"), ("o", "out_bias")]:
        assert (getattr(attention, f"{projection}_proj").bias is not None) == spec[bias]
    assert hasattr(attention, "q_norm") == spec["head_norm"]

    rope, k = model.model.rotary_emb, attention.head_dim
    assert rope.attention_scaling == 1.0
    expected = [frequency(spec, spec["rope_theta"] ** (-2 * i / k)) for i in range(k // 2)]
    assert all(abs(found / f - 1) < 1e-5 for found, (f, _) in zip(rope.inv_freq.tolist(), expected, strict=True))
    if spec.get("rope_scaling") == "llama3":
        assert {regime for _, regime in expected} == {"high", "medium", "low"}


def frequency(spec, plain):
    """A frequency after scaling, by the formulas above, and where it lies."""
    match spec.get("rope_scaling"):
        case None:
            return plain, None
        case "linear":
            return plain / spec["rope_factor"], None
    turns = spec["rope_original_max_len"] * plain / (2 * math.pi)  # in the original length
    low, high, factor = spec["rope_low_freq_factor"], spec["rope_high_freq_factor"], spec["rope_factor"]
    if turns > high:
        return plain, "high"
    if turns < low:
        return plain / factor, "low"
    smooth = (turns - low) / (high - low)
    return (1 - smooth) * plain / factor + smooth * plain, "medium"


def forward(model, ids):
    logits = model(input_ids=ids).logits
    return logits, logits.log_softmax(-1), {}


if __name__ == "__main__":
    for case, (model_file, length) in CASES.items():
        random = fixture.generator(case)
        model = build(case.split("_")[0], model_file)
        fixture.reinitialise(model, random)
        ids = fixture.tokens(BATCH, length, model_file["vocab"], random)
        fixture.write(case, model_file, model, ids, forward, {})
