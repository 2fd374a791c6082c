//! BERT (Devlin et al., 2018): an encoder. Learned positions and segments, a norm after their sum and after each block,
//! attention over the whole text but its padding, a vector of the text from its first token (the pooler), and an output
//! layer: for masked tokens, whose weights are the embedding's, or for a task that it was fine-tuned for.

use crate::blocks::AttentionStyle;
use crate::build::{BuildBackbone, DEVIATION, FrameCost, NetworkBuilder, Style};
use crate::embedding::{self, Embedding, EmbeddingStyle};
use crate::folder::{ConfigReader, Json, uniform};
use crate::head::{Head, HeadStyle, MaskedHead, Pooler, TaskHead, TokenHead, Top};
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
    OwnKey::new("head", KeyKind::Word, Some("masked_lm"), "output layer: masked_lm, classify, regress, choose, span or none [masked_lm]"),
    OwnKey::new("pooling", KeyKind::Word, Some("mean"), "what the embedding of a text is: the mean of its tokens, or cls, the first [mean]"),
    OwnKey::new("labels", KeyKind::Words, None, "with head classify: what texts can be, in the order of the outputs"),
    OwnKey::new("pooler", KeyKind::Flag, Some("false"), "a vector of the text from its first token [false]"),
];

/// An output layer.
struct HeadKind {
    /// The key `head`.
    name: &'static str,
    /// The model with it in `transformers`.
    class: &'static str,
    /// What its weights are called, of a layer for a task.
    weights: Option<&'static str>,
    /// Whether that has numbers for each token; else it stands on the pooler.
    of_tokens: bool,
}

const fn head(name: &'static str, class: &'static str, weights: Option<&'static str>, of_tokens: bool) -> HeadKind {
    HeadKind { name, class, weights, of_tokens }
}

const HEADS: &[HeadKind] = &[
    head("masked_lm", "BertForMaskedLM", None, false),
    head("none", "BertModel", None, false),
    head("classify", "BertForSequenceClassification", Some("classifier"), false),
    head("regress", "BertForSequenceClassification", Some("classifier"), false),
    head("choose", "BertForMultipleChoice", Some("classifier"), false),
    head("span", "BertForQuestionAnswering", Some("qa_outputs"), true),
];
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
        if !HEADS.iter().any(|known| known.name == head) {
            let known: Vec<_> = HEADS.iter().map(|known| known.name).collect();
            return Err(Error::value("head", format!("`{head}`"), known.join(", ")));
        }
        let pooling = frame.word("pooling").unwrap_or_default();
        if !["mean", "cls"].contains(&pooling) {
            return Err(Error::value("pooling", format!("`{pooling}`"), "mean or cls"));
        }
        let labels = frame.words("labels");
        match (head, labels.len()) {
            ("classify", 2..) => {}
            ("classify", n) => return Err(Error::value("labels", n, "at least two, for head classify")),
            (_, 0) => {}
            (_, n) => return Err(Error::value("labels", n, format!("none with head {head}"))),
        }
        if let Some(twice) =
            labels.iter().enumerate().find_map(|(i, label)| labels[..i].contains(label).then_some(label))
        {
            return Err(Error::value("labels", format!("`{twice}` twice"), "labels that differ"));
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

fn head_kind(frame: &Frame) -> &'static HeadKind {
    let head = frame.word("head").unwrap_or_default();
    HEADS.iter().find(|known| known.name == head).unwrap_or(&HEADS[0])
}

/// Whether there is a pooler: an output layer of texts stands on one.
fn has_pooler(frame: &Frame) -> bool {
    let head = head_kind(frame);
    frame.flag("pooler") || head.weights.is_some() && !head.of_tokens
}

/// Numbers of the output layer of a task: of labels, of where an answer begins and ends, or one.
fn outputs(frame: &Frame) -> usize {
    match head_kind(frame) {
        HeadKind { weights: None, .. } => 0,
        HeadKind { of_tokens: true, .. } => 2,
        _ => frame.words("labels").len().max(1),
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
        let linear = |builder: &mut Builder, name: &str, outputs: usize| {
            let weight = builder.param(format!("{name}.weight"), &[outputs, d], Init::Normal(0.0, DEVIATION));
            let bias = builder.param(format!("{name}.bias"), &[outputs], Init::Constant(0.0));
            Linear::new(weight, Some(bias), Layout::OutIn, d, outputs)
        };
        let pooler = has_pooler(frame).then(|| Pooler { dense: linear(builder, "bert.pooler.dense", d) });
        let kind = head_kind(frame);
        let task = kind.weights.map(|name| {
            let dense = linear(builder, name, outputs(frame));
            TaskHead { dense, of_tokens: kind.of_tokens }
        });
        let head = frame.has_head().then(|| {
            let dense = linear(builder, "cls.predictions.transform.dense", d);
            let name = "cls.predictions.transform.LayerNorm";
            let norm = NormParams::new(builder, name, norm_kind(frame), d, 0.0);
            let tokens = TokenHead::new(frame, (stem.tables(), &EMBEDDING), &HEAD, builder);
            Box::new(MaskedHead { dense, act: head_act(frame), norm, tokens }) as Box<dyn Head>
        });
        Top { head, pooler, task, embeds_first: frame.word("pooling") == Some("cls"), ..Top::NONE }
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
        if has_pooler(frame) {
            cost.params += square;
            let pooled = u128::from(setting.batch) * 2 * wide * wide;
            cost.output_flops += pooled;
            cost.output_full_flops += pooled;
        }
        let outputs = outputs(frame) as u64;
        let rows = if head_kind(frame).of_tokens { setting.tokens() } else { u128::from(setting.batch) };
        cost.params += outputs * (d + 1);
        cost.output_flops += rows * 2 * wide * u128::from(outputs);
        cost.output_full_flops += rows * 2 * wide * u128::from(outputs);
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
            Some("BertForSequenceClassification") => (read_labels(reader)?, true),
            Some("BertForMultipleChoice") => ("choose", true),
            Some("BertForQuestionAnswering") => ("span", false),
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
        let head = head_kind(frame);
        if has_pooler(frame) == (frame.has_head() || head.of_tokens) {
            return None;
        }
        let mut config = json!({
            "architectures": [head.class],
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
        });
        if head.name == "classify" || head.name == "regress" {
            let mut labels = frame.words("labels").to_vec();
            if labels.is_empty() {
                labels.push("LABEL_0".into());
            }
            let ids = labels.iter().enumerate().map(|(id, label)| (id.to_string(), json!(label)));
            config["id2label"] = ids.collect::<serde_json::Map<_, _>>().into();
            let ids = labels.iter().enumerate().map(|(id, label)| (label.clone(), json!(id)));
            config["label2id"] = ids.collect::<serde_json::Map<_, _>>().into();
            let problem = if head.name == "regress" { "regression" } else { "single_label_classification" };
            config["problem_type"] = json!(problem);
        }
        Some(config)
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
            name if name.starts_with("pooler.") => !has_pooler(frame),
            _ => false,
        }
    }
}

/// The labels of a model of `transformers` that has numbers for each text, and for which task it is.
fn read_labels(reader: &mut ConfigReader<'_>) -> Result<&'static str> {
    let problem = reader.text("problem_type");
    if problem == Some("multi_label_classification") {
        let found = "`multi_label_classification`";
        return Err(Error::value("problem_type", found, "single_label_classification or regression"));
    }
    let labels: Vec<String> = match reader.value("id2label") {
        None | Some(Json::Null) => vec!["LABEL_0".into(), "LABEL_1".into()],
        Some(ids) => {
            let label = |id: usize| ids.get(id.to_string()).and_then(Json::as_str).map(String::from);
            let count = ids.as_object().map_or(0, serde_json::Map::len);
            let wrong = || Error::value("id2label", format!("`{ids}`"), "a name for each number from 0 on");
            (0..count).map(label).collect::<Option<_>>().ok_or_else(wrong)?
        }
    };
    if problem == Some("regression") || problem.is_none() && labels.len() == 1 {
        if labels.len() != 1 {
            return Err(Error::value("id2label", format!("{} labels", labels.len()), "one, for a regression"));
        }
        return Ok("regress");
    }
    reader.set("labels", Value::Words(labels));
    Ok("classify")
}
