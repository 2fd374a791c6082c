//! GPT-2 (Radford et al., 2019): learned positions, norm before each block and after the last, output
//! weights tied to the embedding. Matrices are [in, out]; output projections begin narrower the deeper the stack is.

use crate::blocks::AttentionStyle;
use crate::build::{BuildBackbone, DEVIATION, FrameCost, NetworkBuilder, Style};
use crate::embedding::{self, Embedding, EmbeddingStyle};
use crate::folder::{ConfigReader, GgufForm, Json, uniform};
use crate::head::{HeadStyle, TokenHead, Top};
use crate::linear::Layout;
use crate::norm::NormParams;
use crate::params::{Builder, Init};
use crate::stem::{Stem, TokenStem};
use lathe_core::model::Value;
use lathe_core::{Activation, Backbone, BaseWidths, Defaults, Error, Frame, Model, NormPlace, Result, Role, Setting};
use lathe_ops::norm::NormKind;
use serde_json::json;
use std::any::Any;

/// A GPT-2, or what is computed like one.
pub(super) struct Gpt2 {
    pub key: &'static str,
    pub about: &'static str,
    pub aliases: &'static [&'static str],
    pub activation: Activation,
    pub max_len: u32,
    pub base_widths: Option<BaseWidths>,
    pub builder: &'static NetworkBuilder,
}

pub(super) static GPT2: Gpt2 = Gpt2 {
    key: "gpt2",
    about: "learned positions, no memory",
    aliases: &["GPT2"],
    activation: Activation::GeluTanh,
    max_len: 1024,
    base_widths: Some(BaseWidths { d_model: 768, heads: 12, inner: 3072 }),
    builder: &NetworkBuilder(&GPT2),
};

const EMBEDDING: EmbeddingStyle = EmbeddingStyle {
    plain: Some("transformer.wte.weight"),
    prefix: "transformer.wte",
    scaled: false,
    projection: None,
};
const HEAD: HeadStyle =
    HeadStyle { plain_weight: "lm_head.weight", plain_bias: None, criterion: false, projection: None };

/// The names of activations in `activation_function`; the first of a kind is the one that is written.
pub(super) const ACTIVATIONS: &[(&str, Activation)] = &[
    ("gelu_new", Activation::GeluTanh),
    ("gelu_pytorch_tanh", Activation::GeluTanh),
    ("gelu", Activation::Gelu),
    ("relu", Activation::Relu),
    ("silu", Activation::Silu),
    ("swish", Activation::Silu),
];

impl Backbone for Gpt2 {
    fn key(&self) -> &'static str {
        self.key
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn aliases(&self) -> &'static [&'static str] {
        self.aliases
    }

    fn defaults(&self) -> Defaults {
        Defaults { norm: NormPlace::Pre, activation: self.activation, max_len: self.max_len }
    }

    fn base_widths(&self) -> Option<BaseWidths> {
        self.base_widths
    }

    fn printed_widths(&self) -> Option<BaseWidths> {
        self.base_widths.map(|widths| BaseWidths { d_model: 1024, ..widths })
    }

    fn builder(&self) -> &'static dyn Any {
        self.builder
    }
}

impl BuildBackbone for Gpt2 {
    fn layer_name(&self, _: &Frame, number: usize) -> String {
        format!("transformer.h.{number}")
    }

    fn part_name(&self, _: &Frame, role: Role, part: &str) -> String {
        match (role, part) {
            (Role::MixesTokens, part) if part.ends_with(".norm") => "ln_1",
            (_, part) if part.ends_with(".norm") => "ln_2",
            (_, "attn.qkv") => "attn.c_attn",
            (_, "attn.out") => "attn.c_proj",
            (_, "mlp.up") => "mlp.c_fc",
            (_, "mlp.down") => "mlp.c_proj",
            (_, part) => part,
        }
        .into()
    }

    fn style(&self, _: &Frame, blocks: usize) -> Style {
        let output_deviation = DEVIATION / (blocks as f32).sqrt();
        Style { layout: Layout::InOut, output_deviation, ..Style::linear(NormKind::LAYER) }
    }

    fn attention(&self, _: &Frame) -> AttentionStyle {
        AttentionStyle { fused: true, ..AttentionStyle::dot(true) }
    }

    fn stem(&self, frame: &Frame, builder: &mut Builder) -> Result<Box<dyn Stem>> {
        let mut stem = TokenStem::new(Embedding::new(frame, &EMBEDDING, builder));
        let shape = [frame.max_len as usize, frame.d_model as usize];
        stem.positions = Some(builder.param("transformer.wpe.weight", &shape, Init::Normal(0.0, DEVIATION)));
        Ok(Box::new(stem))
    }

    fn top(&self, frame: &Frame, stem: &dyn Stem, builder: &mut Builder) -> Top {
        let norm = NormParams::new(builder, "transformer.ln_f", NormKind::LAYER, frame.d_model as usize, 0.0);
        let head = TokenHead::new(frame, (stem.tables(), &EMBEDDING), &HEAD, builder);
        Top { norm: Some(norm), head: Some(Box::new(head)), ..Top::NONE }
    }

    fn frame_cost(&self, frame: &Frame, setting: &Setting) -> FrameCost {
        let cost = embedding::cost(frame, setting, false);
        let position = u64::from(frame.max_len) * u64::from(frame.d_model);
        FrameCost { params: cost.params + position, position, norm: 2 * u64::from(frame.d_model), ..cost }
    }

    fn model_types(&self) -> &'static [&'static str] {
        &["gpt2"]
    }

    /// A GPT-2 has one dropout here: that of `resid_pdrop`.
    fn read_config(&self, reader: &mut ConfigReader<'_>) -> Result<()> {
        reader.layers("n_layer", 12)?;
        reader.copy(&[
            ("vocab_size", "vocab", "50257"),
            ("n_positions", "max_len", "1024"),
            ("n_embd", "d_model", "768"),
            ("n_head", "heads", "12"),
            ("resid_pdrop", "dropout", "0.1"),
            ("attn_pdrop", "attn_dropout", "0.1"),
            ("tie_word_embeddings", "tie_embeddings", "true"),
        ])?;
        reader.copy_if_set(&[("n_inner", "inner")])?;
        reader.only(&[
            ("layer_norm_epsilon", json!(1e-5)),
            ("scale_attn_weights", json!(true)),
            ("scale_attn_by_inverse_layer_idx", json!(false)),
            ("add_cross_attention", json!(false)),
        ])?;
        reader.activation("activation_function", "gelu_new", ACTIVATIONS)?;
        if let (Some(&Value::Int(d)), Some(&Value::Int(heads))) = (reader.get("d_model"), reader.get("heads"))
            && !d.is_multiple_of(heads)
        {
            return Err(Error::value("n_head", heads, format!("a divisor of n_embd, which is {d}")));
        }
        Ok(())
    }

    fn write_config(&self, model: &Model) -> Option<Json> {
        let frame = &model.frame;
        let layers = uniform(model)?;
        let plain = !embedding::adaptive(frame) && !embedding::projected(frame);
        let whole = layers.heads * layers.d_head == frame.d_model;
        if !plain || frame.norm != NormPlace::Pre || !whole {
            return None;
        }
        let (activation, _) = ACTIVATIONS.iter().find(|(_, known)| *known == frame.activation)?;
        Some(json!({
            "architectures": ["GPT2LMHeadModel"],
            "model_type": "gpt2",
            "vocab_size": frame.vocab,
            "n_positions": frame.max_len,
            "n_embd": frame.d_model,
            "n_layer": layers.count,
            "n_head": layers.heads,
            "n_inner": layers.inner,
            "activation_function": activation,
            "resid_pdrop": frame.dropout,
            "embd_pdrop": frame.dropout,
            "attn_pdrop": frame.attn_dropout,
            "layer_norm_epsilon": 1e-5,
            "tie_word_embeddings": frame.tie_embeddings,
            "bos_token_id": null,
            "eos_token_id": null,
        }))
    }

    /// GPT2Model, which is GPT2LMHeadModel without its output, saves its weights without a prefix.
    fn other_names(&self, name: &str) -> Vec<String> {
        name.strip_prefix("transformer.").map(String::from).into_iter().collect()
    }

    fn gguf(&self) -> Option<&'static dyn GgufForm> {
        Some(&super::gguf::gpt2::Gpt2)
    }

    fn is_needless(&self, name: &str, frame: &Frame) -> bool {
        match name {
            "lm_head.weight" => frame.tie_embeddings,
            name if name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") => true,
            name => embedding::is_tied_again(name, frame),
        }
    }
}
