//! Llama (Touvron et al., 2023) and what is built like it (Mistral, Qwen2, Qwen3): rotary positions, RMS norm before each
//! block and after the last, gated feed-forward, no biases but those of queries, keys and values where a model has them,
//! heads of keys and values that groups of queries share.

use crate::blocks::{AttentionStyle, Rotary, Scores};
use crate::build::{BuildBackbone, FrameCost, NetworkBuilder, Style};
use crate::embedding::{self, Embedding, EmbeddingStyle};
use crate::folder::{ConfigReader, GgufForm, Json, uniform};
use crate::head::{HeadStyle, TokenHead, Top};
use crate::norm::{self, NormParams};
use crate::params::Builder;
use crate::stem::{Stem, TokenStem};
use lathe_core::model::{KeyKind, MAX_LEN, Value};
use lathe_core::{
    Activation, Backbone, Defaults, Error, Frame, MAX_WIDTH, Model, NormPlace, OwnKey, Result, Role, Setting,
};
use lathe_ops::norm::{Norm, NormKind};
use lathe_ops::rope::Scaling;
use serde_json::json;
use std::any::Any;

pub(super) struct Llama;

const EMBEDDING: EmbeddingStyle = EmbeddingStyle {
    plain: Some("model.embed_tokens.weight"),
    prefix: "model.embed_tokens",
    scaled: false,
    projection: None,
};
const HEAD: HeadStyle =
    HeadStyle { plain_weight: "lm_head.weight", plain_bias: None, criterion: false, projection: None };

/// The ways to stretch rotary positions beyond the length of training.
const SCALINGS: &[&str] = &["none", "linear", "llama3"];

#[rustfmt::skip]
const KEYS: &[OwnKey] = &[
    OwnKey::new("kv_heads", KeyKind::Int(1, MAX_WIDTH), None, "heads of keys and values, which groups of heads share [heads]"),
    OwnKey::new("norm_eps", KeyKind::Real(0.0, 1.0), Some("1e-5"), "added to variances by norms"),
    OwnKey::new("rope_theta", KeyKind::Real(1.0, 1e12), Some("10000"), "base of rotary positions [10000]"),
    OwnKey::new("rope_scaling", KeyKind::Word, Some("none"), "rotary positions stretched: none, linear or llama3 [none]"),
    OwnKey::new("rope_factor", KeyKind::Real(1e-6, 1e6), Some("1"), "how far rotary positions are stretched [1]"),
    OwnKey::new("rope_low_freq_factor", KeyKind::Real(1e-6, 1e6), Some("1"), "llama3: waves longer than rope_original_max_len by it are stretched whole [1]"),
    OwnKey::new("rope_high_freq_factor", KeyKind::Real(1e-6, 1e6), Some("4"), "llama3: waves shorter than rope_original_max_len by it are left alone [4]"),
    OwnKey::new("rope_original_max_len", KeyKind::Int(1, MAX_LEN), Some("8192"), "llama3: tokens of a window in training [8192]"),
    OwnKey::new("qkv_bias", KeyKind::Flag, Some("false"), "queries, keys and values have biases [false]"),
    OwnKey::new("out_bias", KeyKind::Flag, Some("false"), "the output of attention has a bias [false]"),
    OwnKey::new("head_norm", KeyKind::Flag, Some("false"), "queries and keys are normed by head [false]"),
];

impl Backbone for Llama {
    fn key(&self) -> &'static str {
        "llama"
    }

    fn about(&self) -> &'static str {
        "rotary positions, RMS norm, gated feed-forward; Mistral, Qwen2 and Qwen3 too"
    }

    fn defaults(&self) -> Defaults {
        Defaults { norm: NormPlace::Pre, activation: Activation::Swiglu, max_len: 2048 }
    }

    fn own_keys(&self) -> &'static [OwnKey] {
        KEYS
    }

    fn check(&self, frame: &Frame) -> Result<()> {
        let scaling = frame.word("rope_scaling").unwrap_or_default();
        if !SCALINGS.contains(&scaling) {
            return Err(Error::value("rope_scaling", format!("`{scaling}`"), SCALINGS.join(", ")));
        }
        let factor = |name| frame.real(name).unwrap_or(1.0);
        let (low, high) = (factor("rope_low_freq_factor"), factor("rope_high_freq_factor"));
        if scaling == "llama3" && low >= high {
            return Err(Error::value("rope_low_freq_factor", low, format!("less than rope_high_freq_factor, {high}")));
        }
        if let Some(kv_heads) = frame.int("kv_heads")
            && !frame.heads.is_multiple_of(kv_heads)
        {
            return Err(Error::value("kv_heads", kv_heads, format!("a divisor of heads, which is {}", frame.heads)));
        }
        Ok(())
    }

    fn builder(&self) -> &'static dyn Any {
        &NetworkBuilder(&Self)
    }
}

/// RMS norm with the frame's epsilon.
fn norm_kind(frame: &Frame) -> NormKind {
    NormKind { norm: Norm::Rms, eps: frame.real("norm_eps").unwrap_or(1e-5) as f32 }
}

pub(super) fn rotary(frame: &Frame) -> Rotary {
    let real = |name: &str| frame.real(name).unwrap_or(1.0) as f32;
    let factor = real("rope_factor");
    let scaling = match frame.word("rope_scaling") {
        Some("linear") => Scaling::Linear { factor },
        Some("llama3") => Scaling::Llama3 {
            factor,
            low_freq_factor: real("rope_low_freq_factor"),
            high_freq_factor: real("rope_high_freq_factor"),
            original_max_len: frame.int("rope_original_max_len").unwrap_or(8192) as usize,
        },
        _ => Scaling::None,
    };
    Rotary { theta: frame.real("rope_theta").unwrap_or(1e4), scaling }
}

impl BuildBackbone for Llama {
    fn layer_name(&self, _: &Frame, number: usize) -> String {
        format!("model.layers.{number}")
    }

    fn part_name(&self, _: &Frame, role: Role, part: &str) -> String {
        match (role, part) {
            (Role::MixesTokens, part) if part.ends_with(".norm") => "input_layernorm",
            (_, part) if part.ends_with(".norm") => "post_attention_layernorm",
            (_, "attn.q") => "self_attn.q_proj",
            (_, "attn.k") => "self_attn.k_proj",
            (_, "attn.v") => "self_attn.v_proj",
            (_, "attn.out") => "self_attn.o_proj",
            (_, "attn.q_norm") => "self_attn.q_norm",
            (_, "attn.k_norm") => "self_attn.k_norm",
            (_, "mlp.gate") => "mlp.gate_proj",
            (_, "mlp.up") => "mlp.up_proj",
            (_, "mlp.down") => "mlp.down_proj",
            (_, part) => part,
        }
        .into()
    }

    fn style(&self, frame: &Frame, _: usize) -> Style {
        Style { bias: false, split_gate: true, ..Style::linear(norm_kind(frame)) }
    }

    fn attention(&self, frame: &Frame) -> AttentionStyle {
        AttentionStyle {
            scores: Scores::Dot { causal: true, rotary: Some(rotary(frame)) },
            qkv_bias: frame.flag("qkv_bias"),
            out_bias: frame.flag("out_bias"),
            grouped: true,
            head_norm: frame.flag("head_norm").then(|| norm_kind(frame)),
            ..AttentionStyle::dot(true)
        }
    }

    fn stem(&self, frame: &Frame, builder: &mut Builder) -> Result<Box<dyn Stem>> {
        Ok(Box::new(TokenStem::new(Embedding::new(frame, &EMBEDDING, builder))))
    }

    fn top(&self, frame: &Frame, stem: &dyn Stem, builder: &mut Builder) -> Top {
        let norm = NormParams::new(builder, "model.norm", norm_kind(frame), frame.d_model as usize, 0.0);
        let head = TokenHead::new(frame, (stem.tables(), &EMBEDDING), &HEAD, builder);
        Top { norm: Some(norm), head: Some(Box::new(head)), ..Top::NONE }
    }

    fn frame_cost(&self, frame: &Frame, setting: &Setting) -> FrameCost {
        let norm = norm::params_of(norm_kind(frame), frame.d_model.into());
        FrameCost { norm, ..embedding::cost(frame, setting, false) }
    }

    fn model_types(&self) -> &'static [&'static str] {
        &["llama", "mistral", "qwen2", "qwen3"]
    }

    fn read_config(&self, reader: &mut ConfigReader<'_>) -> Result<()> {
        let kind = reader.text("model_type").unwrap_or("llama").to_string();
        reader.layers("num_hidden_layers", 32)?;
        let (vocab, max_len) = match kind.as_str() {
            "qwen2" | "qwen3" => ("151936", "32768"),
            "mistral" => ("32000", "131072"),
            _ => ("32000", "2048"),
        };
        reader.copy(&[
            ("vocab_size", "vocab", vocab),
            ("hidden_size", "d_model", "4096"),
            ("intermediate_size", "inner", if kind.starts_with("qwen") { "22016" } else { "11008" }),
            ("num_attention_heads", "heads", "32"),
            ("max_position_embeddings", "max_len", max_len),
            ("rms_norm_eps", "norm_eps", "1e-6"),
            ("tie_word_embeddings", "tie_embeddings", "false"),
            ("attention_dropout", "attn_dropout", "0"),
        ])?;
        reader.copy_if_set(&[("num_key_value_heads", "kv_heads")])?;
        if kind == "mistral" && !reader.has("num_key_value_heads") {
            reader.set("kv_heads", Value::Int(8));
        }
        reader.copy_if_set(&[("head_dim", "d_head")])?;
        if kind == "qwen3" && !reader.has("head_dim") {
            reader.set("d_head", Value::Int(128));
        }
        let biased = reader.flag("attention_bias", false)?;
        reader.set("qkv_bias", Value::Flag(biased || kind == "qwen2"));
        reader.set("out_bias", Value::Flag(biased));
        reader.set("head_norm", Value::Flag(kind == "qwen3"));
        reader.only(&[("mlp_bias", json!(false)), ("use_sliding_window", json!(false))])?;
        if kind == "mistral" {
            reader.only(&[("sliding_window", Json::Null)])?;
        }
        if let Some(Json::Array(types)) = reader.value("layer_types")
            && let Some(other) = types.iter().find(|kind| **kind != json!("full_attention"))
        {
            return Err(Error::value("layer_types", format!("`{other}`"), "full_attention"));
        }
        reader.activation("hidden_act", "silu", GATED)?;
        read_rope(reader)
    }

    fn write_config(&self, model: &Model) -> Option<Json> {
        let frame = &model.frame;
        let layers = uniform(model)?;
        let (activation, _) = GATED.iter().find(|(_, known)| *known == frame.activation)?;
        let plain = !embedding::adaptive(frame) && !embedding::projected(frame);
        if !plain || frame.norm != NormPlace::Pre {
            return None;
        }
        let [qkv, out, heads] = ["qkv_bias", "out_bias", "head_norm"].map(|name| frame.flag(name));
        let (architecture, kind) = match (qkv, out, heads) {
            (false, false, false) | (true, true, false) => ("LlamaForCausalLM", "llama"),
            (true, false, false) => ("Qwen2ForCausalLM", "qwen2"),
            (_, _, true) if qkv == out => ("Qwen3ForCausalLM", "qwen3"),
            _ => return None,
        };
        let real = |name: &str| frame.real(name).unwrap_or(1.0);
        let theta = real("rope_theta");
        let scaling = match frame.word("rope_scaling") {
            Some("linear") => json!({"rope_type": "linear", "factor": real("rope_factor")}),
            Some("llama3") => json!({
                "rope_type": "llama3",
                "factor": real("rope_factor"),
                "low_freq_factor": real("rope_low_freq_factor"),
                "high_freq_factor": real("rope_high_freq_factor"),
                "original_max_position_embeddings": frame.int("rope_original_max_len"),
            }),
            _ => Json::Null,
        };
        Some(json!({
            "architectures": [architecture],
            "model_type": kind,
            "vocab_size": frame.vocab,
            "hidden_size": frame.d_model,
            "intermediate_size": layers.inner,
            "num_hidden_layers": layers.count,
            "num_attention_heads": layers.heads,
            "num_key_value_heads": layers.kv_heads,
            "head_dim": layers.d_head,
            "hidden_act": activation,
            "max_position_embeddings": frame.max_len,
            "rms_norm_eps": real("norm_eps"),
            "rope_theta": theta,
            "rope_scaling": scaling,
            "attention_bias": out,
            "attention_dropout": frame.attn_dropout,
            "mlp_bias": false,
            "use_sliding_window": false,
            "tie_word_embeddings": frame.tie_embeddings,
        }))
    }

    /// LlamaModel, which is LlamaForCausalLM without its output, saves its weights without a prefix.
    fn other_names(&self, name: &str) -> Vec<String> {
        name.strip_prefix("model.").map(String::from).into_iter().collect()
    }

    fn gguf(&self) -> Option<&'static dyn GgufForm> {
        Some(&super::gguf::llama::Llama)
    }

    fn is_needless(&self, name: &str, frame: &Frame) -> bool {
        match name {
            "lm_head.weight" => frame.tie_embeddings,
            name if name.ends_with(".rotary_emb.inv_freq") => true,
            name => embedding::is_tied_again(name, frame),
        }
    }
}

/// The names of activations in `hidden_act`, all of which gate.
const GATED: &[(&str, Activation)] = &[
    ("silu", Activation::Swiglu),
    ("swish", Activation::Swiglu),
    ("gelu", Activation::Geglu),
    ("relu", Activation::Reglu),
];

/// Rotary positions: `rope_theta` and `rope_scaling`, or from version 5 on `rope_parameters`, which has both.
fn read_rope(reader: &mut ConfigReader<'_>) -> Result<()> {
    let object = |name: &str| reader.value(name).filter(|value| !value.is_null()).cloned();
    let parameters = object("rope_parameters");
    let scaling = parameters.clone().or_else(|| object("rope_scaling"));
    let theta = parameters.as_ref().and_then(|parameters| parameters.get("rope_theta")).cloned();
    match theta {
        Some(theta) => reader.set_json("rope_theta", "rope_parameters.rope_theta", &theta)?,
        None => reader.copy(&[("rope_theta", "rope_theta", "10000")])?,
    }
    let Some(scaling) = scaling else { return Ok(()) };
    let place = if parameters.is_some() { "rope_parameters" } else { "rope_scaling" };
    let kind = scaling.get("rope_type").or_else(|| scaling.get("type")).and_then(Json::as_str).unwrap_or("default");
    let keys: &[(&str, &str)] = match kind {
        "default" => return Ok(()),
        "linear" => &[("factor", "rope_factor")],
        "llama3" => &[
            ("factor", "rope_factor"),
            ("low_freq_factor", "rope_low_freq_factor"),
            ("high_freq_factor", "rope_high_freq_factor"),
            ("original_max_position_embeddings", "rope_original_max_len"),
        ],
        other => {
            let expected = "default, linear or llama3";
            return Err(Error::value(format!("{place}.rope_type"), format!("`{other}`"), expected));
        }
    };
    reader.set("rope_scaling", Value::Word(kind.into()));
    for (theirs, ours) in keys {
        let place = format!("{place}.{theirs}");
        let value = scaling.get(*theirs).ok_or_else(|| Error::value(&place, "nothing", "a number"))?;
        reader.set_json(ours, &place, value)?;
    }
    Ok(())
}
