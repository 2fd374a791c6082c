//! A decoder without positions (Kazemnejad et al., 2023, "NoPE"): the causal mask alone tells tokens their order. RMS
//! norm before each block and after the last, output weights tied to the embedding.

use lathe_core::model::KeyKind;
use lathe_core::{Activation, Backbone, Defaults, Frame, Model, NormPlace, OwnKey, Result, Role, Setting};
use lathe_model::blocks::AttentionStyle;
use lathe_model::build::{BuildBackbone, FrameCost, NetworkBuilder, Sharing, Style};
use lathe_model::embedding::{self, Embedding, EmbeddingStyle};
use lathe_model::folder::{ConfigReader, Json};
use lathe_model::head::{HeadStyle, TokenHead, Top};
use lathe_model::norm::{self, NormParams};
use lathe_model::params::Builder;
use lathe_model::stem::{Stem, TokenStem};
use lathe_ops::norm::{Norm, NormKind};
use std::any::Any;

/// The backbone.
pub struct Nope;

const EMBEDDING: EmbeddingStyle = EmbeddingStyle {
    plain: Some("decoder.embedding.weight"),
    prefix: "decoder.embedding",
    scaled: false,
    projection: None,
};
const HEAD: HeadStyle =
    HeadStyle { plain_weight: "decoder.output.weight", plain_bias: None, criterion: false, projection: None };

/// Keys of the model file that only this backbone has.
const KEYS: &[OwnKey] = &[
    OwnKey::new("nope_eps", KeyKind::Real(0.0, 1.0), Some("1e-6"), "added to variances by norms [1e-6]"),
    OwnKey::new(
        "nope_layers",
        KeyKind::Int(1, 1000),
        None,
        "layers with weights of their own, which others share [all]",
    ),
];

fn norm_kind(frame: &Frame) -> NormKind {
    NormKind { norm: Norm::Rms, eps: frame.real("nope_eps").unwrap_or(1e-6) as f32 }
}

impl Backbone for Nope {
    fn key(&self) -> &'static str {
        "nope"
    }

    fn about(&self) -> &'static str {
        "a decoder without positions"
    }

    fn defaults(&self) -> Defaults {
        Defaults { norm: NormPlace::Pre, activation: Activation::Gelu, max_len: 256 }
    }

    fn own_keys(&self) -> &'static [OwnKey] {
        KEYS
    }

    fn builder(&self) -> &'static dyn Any {
        &NetworkBuilder(&Self)
    }
}

impl BuildBackbone for Nope {
    fn layer_name(&self, _: &Frame, number: usize) -> String {
        format!("decoder.layers.{number}")
    }

    /// As in ALBERT (Lan et al., 2020).
    fn sharing(&self, frame: &Frame, _: Role) -> Option<Sharing> {
        frame.int("nope_layers").map(|layers| Sharing::InTurn(layers as usize))
    }

    fn style(&self, frame: &Frame, _: usize) -> Style {
        Style { bias: false, ..Style::linear(norm_kind(frame)) }
    }

    fn attention(&self, _: &Frame) -> AttentionStyle {
        AttentionStyle { fused: true, qkv_bias: false, out_bias: false, ..AttentionStyle::dot(true) }
    }

    fn stem(&self, frame: &Frame, builder: &mut Builder) -> Result<Box<dyn Stem>> {
        Ok(Box::new(TokenStem::new(Embedding::new(frame, &EMBEDDING, builder))))
    }

    fn top(&self, frame: &Frame, stem: &dyn Stem, builder: &mut Builder) -> Top {
        let norm = NormParams::new(builder, "decoder.norm", norm_kind(frame), frame.d_model as usize, 0.0);
        let head = TokenHead::new(frame, (stem.tables(), &EMBEDDING), &HEAD, builder);
        Top { norm: Some(norm), head: Some(Box::new(head)), ..Top::NONE }
    }

    fn frame_cost(&self, frame: &Frame, setting: &Setting) -> FrameCost {
        let norm = norm::params_of(norm_kind(frame), frame.d_model.into());
        FrameCost { norm, ..embedding::cost(frame, setting, false) }
    }

    /// No other program has it: its folders hold our own keys alone.
    fn model_types(&self) -> &'static [&'static str] {
        &[]
    }

    fn read_config(&self, _: &mut ConfigReader<'_>) -> Result<()> {
        Ok(())
    }

    fn write_config(&self, _: &Model) -> Option<Json> {
        None
    }
}
