//! BERT (Devlin et al., 2018): an encoder. Learned positions and segments, a norm after their sum and after each block,
//! attention over the whole text but its padding, a vector of the text from its first token (the pooler), and an output
//! layer for masked tokens whose weights are the embedding's.

use crate::blocks::AttentionStyle;
use crate::build::{BuildBackbone, DEVIATION, FrameCost, NetworkBuilder, Style};
use crate::embedding::{self, Embedding, EmbeddingStyle};
use crate::folder::{ConfigReader, Json, uniform};
use crate::head::{Head, HeadStyle, MaskedHead, Pooler, TokenHead, Top};
use crate::linear::{Layout, Linear};
use crate::norm::NormParams;
use crate::params::{Builder, Init};
use crate::stem::{Stem, TokenStem};
use lathe_core::model::{KeyKind, Value};
use lathe_core::{Activation, Backbone, Defaults, Error, Frame, Model, NormPlace, OwnKey, Result, Role, Setting};
use lathe_ops::activation::Act;
use lathe_ops::norm::{Norm, NormKind};
use serde_json::json;
use std::any::Any;

pub(super) struct Bert;

const EMBEDDING: EmbeddingStyle = EmbeddingStyle {
    plain: Some("bert.embeddings.word_embeddings.weight"),
    prefix: "bert.embeddings.word_embeddings",
    scaled: false,
    projection: None,
};
const HEAD: HeadStyle = HeadStyle {
    plain_weight: "cls.predictions.decoder.weight",
    plain_bias: Some("cls.predictions.bias"),
    criterion: false,
    projection: None,
};

#[rustfmt::skip]
const KEYS: &[OwnKey] = &[
    OwnKey::new("norm_eps", KeyKind::Real(0.0, 1.0), Some("1e-12"), "added to variances by norms"),
    OwnKey::new("segments", KeyKind::Int(1, 1 << 10), Some("2"), "texts that an input may consist of [2]"),
    OwnKey::new("head", KeyKind::Word, Some("masked_lm"), "output layer: masked_lm or none [masked_lm]"),
    OwnKey::new("pooler", KeyKind::Flag, Some("false"), "a vector of the text from its first token [false]"),
];

const HEADS: &[&str] = &["masked_lm", "none"];
const ACTIVATIONS: &[(&str, Activation)] = &[
    ("gelu", Activation::Gelu),
    ("gelu_new", Activation::GeluTanh),
    ("gelu_pytorch_tanh", Activation::GeluTanh),
    ("relu", Activation::Relu),
    ("silu", Activation::Silu),
    ("swish", Activation::Silu),
];

impl Backbone for Bert {
    fn key(&self) -> &'static str {
        "bert"
    }

    fn about(&self) -> &'static str {
        "encoder: learned positions and segments, sees the whole text"
    }

    fn defaults(&self) -> Defaults {
        Defaults { norm: NormPlace::Post, activation: Activation::Gelu, max_len: 512 }
    }

    fn own_keys(&self) -> &'static [OwnKey] {
        KEYS
    }

    fn causal(&self) -> bool {
        false
    }

    fn has_head(&self, frame: &Frame) -> bool {
        frame.word("head") == Some("masked_lm")
    }

    fn check(&self, frame: &Frame) -> Result<()> {
        let head = frame.word("head").unwrap_or_default();
        if !HEADS.contains(&head) {
            return Err(Error::value("head", format!("`{head}`"), HEADS.join(", ")));
        }
        if embedding::adaptive(frame) || embedding::projected(frame) {
            return Err(Error::value("d_embed", frame.d_embed, "d_model, and no cutoffs, with backbone bert"));
        }
        Ok(())
    }

    fn builder(&self) -> &'static dyn Any {
        &NetworkBuilder(&Self)
    }
}

fn norm_kind(frame: &Frame) -> NormKind {
    NormKind { norm: Norm::Layer, eps: frame.real("norm_eps").unwrap_or(1e-12) as f32 }
}

/// The non-linearity of the output layer, which has no gate.
fn head_act(frame: &Frame) -> Act {
    match frame.activation {
        Activation::Relu | Activation::Reglu => Act::Relu,
        Activation::Gelu | Activation::Geglu => Act::Gelu,
        Activation::GeluTanh => Act::GeluTanh,
        Activation::Silu | Activation::Swiglu => Act::Silu,
    }
}

impl BuildBackbone for Bert {
    fn layer_name(&self, _: &Frame, number: usize) -> String {
        format!("bert.encoder.layer.{number}")
    }

    fn part_name(&self, _: &Frame, role: Role, part: &str) -> String {
        match (role, part) {
            (Role::MixesTokens, part) if part.ends_with(".norm") => "attention.output.LayerNorm",
            (_, part) if part.ends_with(".norm") => "output.LayerNorm",
            (_, "attn.q") => "attention.self.query",
            (_, "attn.k") => "attention.self.key",
            (_, "attn.v") => "attention.self.value",
            (_, "attn.out") => "attention.output.dense",
            (_, "mlp.up") => "intermediate.dense",
            (_, "mlp.down") => "output.dense",
            (_, part) => part,
        }
        .into()
    }

    fn style(&self, frame: &Frame, _: usize) -> Style {
        Style::linear(norm_kind(frame))
    }

    fn attention(&self, _: &Frame) -> AttentionStyle {
        AttentionStyle::dot(false)
    }

    fn stem(&self, frame: &Frame, builder: &mut Builder) -> Result<Box<dyn Stem>> {
        let d = frame.d_model as usize;
        let mut stem = TokenStem::new(Embedding::new(frame, &EMBEDDING, builder));
        let mut table = |name: &str, rows: u32| {
            let name = format!("bert.embeddings.{name}_embeddings.weight");
            Some(builder.param(name, &[rows as usize, d], Init::Normal(0.0, DEVIATION)))
        };
        stem.positions = table("position", frame.max_len);
        stem.segments = table("token_type", frame.int("segments").unwrap_or(2));
        stem.norm = Some(NormParams::new(builder, "bert.embeddings.LayerNorm", norm_kind(frame), d, 0.0));
        Ok(Box::new(stem))
    }

    fn top(&self, frame: &Frame, stem: &dyn Stem, builder: &mut Builder) -> Top {
        let d = frame.d_model as usize;
        let dense = |builder: &mut Builder, name: &str| {
            let weight = builder.param(format!("{name}.weight"), &[d, d], Init::Normal(0.0, DEVIATION));
            let bias = builder.param(format!("{name}.bias"), &[d], Init::Constant(0.0));
            Linear::new(weight, Some(bias), Layout::OutIn, d, d)
        };
        let pooler = frame.flag("pooler").then(|| Pooler { dense: dense(builder, "bert.pooler.dense") });
        let head = frame.has_head().then(|| {
            let dense = dense(builder, "cls.predictions.transform.dense");
            let name = "cls.predictions.transform.LayerNorm";
            let norm = NormParams::new(builder, name, norm_kind(frame), d, 0.0);
            let tokens = TokenHead::new(frame, (stem.tables(), &EMBEDDING), &HEAD, builder);
            Box::new(MaskedHead { dense, act: head_act(frame), norm, tokens }) as Box<dyn Head>
        });
        Top { norm: None, dropout: false, head, pooler }
    }

    fn frame_cost(&self, frame: &Frame, setting: &Setting) -> FrameCost {
        let d = u64::from(frame.d_model);
        let (square, wide) = (d * d + d, u128::from(d));
        let mut cost = embedding::cost(frame, setting, true);
        cost.position = u64::from(frame.max_len) * d;
        cost.params += cost.position + u64::from(frame.int("segments").unwrap_or(2)) * d + 2 * d;
        if frame.has_head() {
            cost.params += square + 2 * d;
            let transform = setting.tokens() * 2 * wide * wide;
            cost.output_flops += transform;
            cost.output_full_flops += transform;
        } else {
            let output = u64::from(frame.vocab) * if frame.tie_embeddings { 1 } else { d + 1 };
            cost.params -= output;
            (cost.output_flops, cost.output_full_flops) = (0, 0);
            cost.activation_bytes = setting.tokens() * 4 * wide;
        }
        if frame.flag("pooler") {
            cost.params += square;
            let pooled = u128::from(setting.batch) * 2 * wide * wide;
            cost.output_flops += pooled;
            cost.output_full_flops += pooled;
        }
        cost
    }

    fn model_types(&self) -> &'static [&'static str] {
        &["bert"]
    }

    fn read_config(&self, reader: &mut ConfigReader<'_>) -> Result<()> {
        reader.layers("num_hidden_layers", 12)?;
        reader.copy(&[
            ("vocab_size", "vocab", "30522"),
            ("hidden_size", "d_model", "768"),
            ("intermediate_size", "inner", "3072"),
            ("num_attention_heads", "heads", "12"),
            ("max_position_embeddings", "max_len", "512"),
            ("type_vocab_size", "segments", "2"),
            ("layer_norm_eps", "norm_eps", "1e-12"),
            ("hidden_dropout_prob", "dropout", "0.1"),
            ("attention_probs_dropout_prob", "attn_dropout", "0.1"),
            ("tie_word_embeddings", "tie_embeddings", "true"),
        ])?;
        reader.only(&[("position_embedding_type", json!("absolute")), ("is_decoder", json!(false))])?;
        reader.activation("hidden_act", "gelu", ACTIVATIONS)?;
        if let (Some(&Value::Int(d)), Some(&Value::Int(heads))) = (reader.get("d_model"), reader.get("heads"))
            && !d.is_multiple_of(heads)
        {
            let expected = format!("a divisor of hidden_size, which is {d}");
            return Err(Error::value("num_attention_heads", heads, expected));
        }
        let architecture = reader.value("architectures").and_then(|list| list.get(0)).and_then(Json::as_str);
        let (head, pooler) = match architecture {
            Some("BertForMaskedLM") => ("masked_lm", false),
            Some("BertForPreTraining") => ("masked_lm", true),
            _ => ("none", true),
        };
        reader.set("head", Value::Word(head.into()));
        reader.set("pooler", Value::Flag(pooler));
        Ok(())
    }

    fn write_config(&self, model: &Model) -> Option<Json> {
        let frame = &model.frame;
        let layers = uniform(model)?;
        let (activation, _) = ACTIVATIONS.iter().find(|(_, known)| *known == frame.activation)?;
        if frame.norm != NormPlace::Post || layers.heads * layers.d_head != frame.d_model {
            return None;
        }
        let architecture = match (frame.has_head(), frame.flag("pooler")) {
            (true, false) => "BertForMaskedLM",
            (false, true) => "BertModel",
            _ => return None,
        };
        Some(json!({
            "architectures": [architecture],
            "model_type": "bert",
            "vocab_size": frame.vocab,
            "hidden_size": frame.d_model,
            "intermediate_size": layers.inner,
            "num_hidden_layers": layers.count,
            "num_attention_heads": layers.heads,
            "hidden_act": activation,
            "max_position_embeddings": frame.max_len,
            "type_vocab_size": frame.int("segments"),
            "layer_norm_eps": frame.real("norm_eps"),
            "hidden_dropout_prob": frame.dropout,
            "attention_probs_dropout_prob": frame.attn_dropout,
            "position_embedding_type": "absolute",
            "tie_word_embeddings": frame.tie_embeddings,
        }))
    }

    /// BertModel saves its weights without a prefix; very old files call a norm's parameters gamma and beta.
    fn other_names(&self, name: &str) -> Vec<String> {
        let old = |name: &str| {
            name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        };
        let mut names: Vec<String> = name.strip_prefix("bert.").map(String::from).into_iter().collect();
        if name.contains("LayerNorm.") {
            names.extend(names.clone().iter().map(|name| old(name)));
            names.push(old(name));
        }
        names
    }

    fn is_needless(&self, name: &str, frame: &Frame) -> bool {
        match name.strip_prefix("bert.").unwrap_or(name) {
            "embeddings.position_ids" => true,
            "cls.predictions.decoder.weight" => frame.tie_embeddings,
            "cls.predictions.decoder.bias" => true,
            name if name.starts_with("cls.seq_relationship.") => true,
            name if name.starts_with("cls.predictions.") => !frame.has_head(),
            name if name.starts_with("pooler.") => !frame.flag("pooler"),
            _ => false,
        }
    }
}
