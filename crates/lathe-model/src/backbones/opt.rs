//! OPT (Zhang et al., 2022): learned positions, ReLU, norm before each block and after the last, or (OPT-350M) after each block
//! and none at the end.
//!
//! It has two forms. As LTS (Javaheripi et al., 2022) has it, it is a GPT-2 with other defaults: 2050 positions (2048, and two
//! that are never used) and ReLU. With `reference = true` it is what transformers calls OPT: its names, matrices
//! [out, in], queries, keys and values apart, and a table of positions that has two rows more than `max_len`, in which the
//! first token has the third row; where `d_embed` is not `d_model`, as in OPT-350M, embeddings are projected in and hidden states
//! out, without biases.

use super::gpt2::{ACTIVATIONS, Gpt2};
use crate::blocks::AttentionStyle;
use crate::build::{BuildBackbone, DEVIATION, FrameCost, NetworkBuilder, Style};
use crate::embedding::{self, Embedding, EmbeddingStyle};
use crate::folder::{ConfigReader, Json, uniform};
use crate::head::{HeadStyle, TokenHead, Top};
use crate::norm::NormParams;
use crate::params::{Builder, Init};
use crate::stem::{Stem, TokenStem};
use lathe_core::model::{KeyKind, Value};
use lathe_core::{Activation, Backbone, Defaults, Error, Frame, Model, NormPlace, OwnKey, Result, Role, Setting};
use lathe_ops::norm::NormKind;
use serde_json::json;
use std::any::Any;

pub(super) struct Opt;

/// The form that LTS counts.
static LIKE_GPT2: Gpt2 = Gpt2 {
    key: "opt",
    about: "as gpt2, with 2050 positions and ReLU; or as transformers has it",
    aliases: &[],
    activation: Activation::Relu,
    max_len: 2050,
    base_widths: None,
    builder: &NetworkBuilder(&Opt),
};

/// Rows of the table of positions before the first token's.
const UNUSED_ROWS: u32 = 2;

const EMBEDDING: EmbeddingStyle = EmbeddingStyle {
    plain: Some("model.decoder.embed_tokens.weight"),
    prefix: "model.decoder.embed_tokens",
    scaled: false,
    projection: Some("model.decoder.project_in.weight"),
};
const HEAD: HeadStyle = HeadStyle {
    plain_weight: "lm_head.weight",
    plain_bias: None,
    criterion: false,
    projection: Some("model.decoder.project_out.weight"),
};

#[rustfmt::skip]
const KEYS: &[OwnKey] = &[
    OwnKey::new("reference", KeyKind::Flag, Some("false"), "opt as transformers has it, not as LTS counts it [false]"),
];

fn reference(frame: &Frame) -> bool {
    frame.flag("reference")
}

/// Rows of the table of positions.
fn rows(frame: &Frame) -> u64 {
    u64::from(frame.max_len) + u64::from(UNUSED_ROWS)
}

impl Backbone for Opt {
    fn key(&self) -> &'static str {
        LIKE_GPT2.key
    }

    fn about(&self) -> &'static str {
        LIKE_GPT2.about
    }

    fn defaults(&self) -> Defaults {
        LIKE_GPT2.defaults()
    }

    fn own_keys(&self) -> &'static [OwnKey] {
        KEYS
    }

    fn check(&self, frame: &Frame) -> Result<()> {
        if reference(frame) && embedding::adaptive(frame) {
            return Err(Error::value("div_val, cutoffs", "clusters", "none, where reference is true"));
        }
        Ok(())
    }

    fn builder(&self) -> &'static dyn Any {
        LIKE_GPT2.builder
    }
}

impl BuildBackbone for Opt {
    fn layer_name(&self, frame: &Frame, number: usize) -> String {
        match reference(frame) {
            true => format!("model.decoder.layers.{number}"),
            false => LIKE_GPT2.layer_name(frame, number),
        }
    }

    fn part_name(&self, frame: &Frame, role: Role, part: &str) -> String {
        if !reference(frame) {
            return LIKE_GPT2.part_name(frame, role, part);
        }
        match (role, part) {
            (Role::MixesTokens, part) if part.ends_with(".norm") => "self_attn_layer_norm",
            (_, part) if part.ends_with(".norm") => "final_layer_norm",
            (_, "attn.q") => "self_attn.q_proj",
            (_, "attn.k") => "self_attn.k_proj",
            (_, "attn.v") => "self_attn.v_proj",
            (_, "attn.out") => "self_attn.out_proj",
            (_, "mlp.up") => "fc1",
            (_, "mlp.down") => "fc2",
            (_, part) => part,
        }
        .into()
    }

    fn style(&self, frame: &Frame, blocks: usize) -> Style {
        match reference(frame) {
            true => Style::linear(NormKind::LAYER),
            false => LIKE_GPT2.style(frame, blocks),
        }
    }

    fn attention(&self, frame: &Frame) -> AttentionStyle {
        match reference(frame) {
            true => AttentionStyle::dot(true),
            false => LIKE_GPT2.attention(frame),
        }
    }

    fn stem(&self, frame: &Frame, builder: &mut Builder) -> Result<Box<dyn Stem>> {
        if !reference(frame) {
            return LIKE_GPT2.stem(frame, builder);
        }
        let mut stem = TokenStem::new(Embedding::new(frame, &EMBEDDING, builder));
        let (name, shape) = ("model.decoder.embed_positions.weight", [rows(frame) as usize, frame.d_model as usize]);
        stem.positions = Some(builder.param(name, &shape, Init::Normal(0.0, DEVIATION)));
        stem.first_position = UNUSED_ROWS as usize;
        Ok(Box::new(stem))
    }

    fn top(&self, frame: &Frame, stem: &dyn Stem, builder: &mut Builder) -> Top {
        if !reference(frame) {
            return LIKE_GPT2.top(frame, stem, builder);
        }
        let width = frame.d_model as usize;
        let norm = (frame.norm == NormPlace::Pre)
            .then(|| NormParams::new(builder, "model.decoder.final_layer_norm", NormKind::LAYER, width, 0.0));
        let head = TokenHead::new(frame, (stem.tables(), &EMBEDDING), &HEAD, builder);
        Top { norm, head: Some(Box::new(head)), ..Top::NONE }
    }

    fn frame_cost(&self, frame: &Frame, setting: &Setting) -> FrameCost {
        if !reference(frame) {
            return LIKE_GPT2.frame_cost(frame, setting);
        }
        let (mut cost, width) = (embedding::cost(frame, setting, false), u64::from(frame.d_model));
        if embedding::projected(frame) {
            cost.params -= u64::from(frame.vocab); // a projected output has no biases here
        }
        let position = rows(frame) * width;
        let norm = if frame.norm == NormPlace::Pre { 2 * width } else { 0 };
        FrameCost { params: cost.params + position, position, norm, ..cost }
    }

    fn model_types(&self) -> &'static [&'static str] {
        &["opt"]
    }

    fn read_config(&self, reader: &mut ConfigReader<'_>) -> Result<()> {
        reader.layers("num_hidden_layers", 12)?;
        reader.copy(&[
            ("vocab_size", "vocab", "50272"),
            ("hidden_size", "d_model", "768"),
            ("ffn_dim", "inner", "3072"),
            ("num_attention_heads", "heads", "12"),
            ("max_position_embeddings", "max_len", "2048"),
            ("dropout", "dropout", "0.1"),
            ("attention_dropout", "attn_dropout", "0"),
            ("tie_word_embeddings", "tie_embeddings", "true"),
        ])?;
        reader.copy_if_set(&[("word_embed_proj_dim", "d_embed")])?;
        reader.only(&[
            ("_remove_final_layer_norm", json!(false)),
            ("enable_bias", json!(true)),
            ("layer_norm_elementwise_affine", json!(true)),
        ])?;
        reader.activation("activation_function", "relu", ACTIVATIONS)?;
        let before = match reader.value("do_layer_norm_before") {
            None => true,
            Some(Json::Bool(before)) => *before,
            Some(found) => return Err(Error::value("do_layer_norm_before", format!("`{found}`"), "true or false")),
        };
        reader.set("norm", Value::Word(if before { "pre" } else { "post" }.into()));
        reader.set("reference", Value::Flag(true));
        let Some(&Value::Int(d)) = reader.get("d_model") else { return Ok(()) };
        match reader.get("heads") {
            Some(&Value::Int(heads)) if !d.is_multiple_of(heads) => {
                Err(Error::value("num_attention_heads", heads, format!("a divisor of hidden_size, which is {d}")))
            }
            _ => Ok(()),
        }
    }

    fn write_config(&self, model: &Model) -> Option<Json> {
        let frame = &model.frame;
        let layers = uniform(model)?;
        if !reference(frame) || embedding::adaptive(frame) || layers.heads * layers.d_head != frame.d_model {
            return None;
        }
        let (activation, _) = ACTIVATIONS.iter().find(|(_, known)| *known == frame.activation)?;
        Some(json!({
            "architectures": ["OPTForCausalLM"],
            "model_type": "opt",
            "vocab_size": frame.vocab,
            "hidden_size": frame.d_model,
            "word_embed_proj_dim": frame.d_embed,
            "ffn_dim": layers.inner,
            "num_hidden_layers": layers.count,
            "num_attention_heads": layers.heads,
            "max_position_embeddings": frame.max_len,
            "do_layer_norm_before": frame.norm == NormPlace::Pre,
            "_remove_final_layer_norm": false,
            "enable_bias": true,
            "layer_norm_elementwise_affine": true,
            "activation_function": activation,
            "dropout": frame.dropout,
            "attention_dropout": frame.attn_dropout,
            "layerdrop": 0.0,
            "tie_word_embeddings": frame.tie_embeddings,
            "pad_token_id": null,
            "bos_token_id": null,
            "eos_token_id": null,
        }))
    }

    /// OPTModel, which is OPTForCausalLM without its output, saves its weights without a prefix.
    fn other_names(&self, name: &str) -> Vec<String> {
        name.strip_prefix("model.").map(String::from).into_iter().collect()
    }

    fn is_needless(&self, name: &str, frame: &Frame) -> bool {
        match reference(frame) {
            true => name == "lm_head.weight" && frame.tie_embeddings,
            false => LIKE_GPT2.is_needless(name, frame),
        }
    }
}
