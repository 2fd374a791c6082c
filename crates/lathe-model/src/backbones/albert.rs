//! ALBERT (Lan et al., 2020): a BERT whose layers share their weights, and whose embedding is narrower than the model:
//!
//! x = W norm(token + position + segment) + b, from the width of the embedding E = `d_embed` to D.
//!
//! Where E = D there is no W, as in the authors' code; transformers has one there, too, and such folders are refused.
//!
//! `shared` says what layers share: `all`, `attentions` or `ffns` alone, or `none`. All layers share it, or as many in a row as
//! `shared_layers` says. In transformers everything is shared, in groups of layers; the rest is for folders of ours.

use super::encoder::{self, Config, Encoder, HeadKind, Masked, Names, Vector, linear};
use crate::blocks::AttentionStyle;
use crate::build::{BuildBackbone, FrameCost, NetworkBuilder, Sharing, Style};
use crate::composed::{Graph, GraphStream};
use crate::embedding::{EmbeddingStyle, EmbeddingTable, adaptive, projected};
use crate::folder::{ConfigReader, Json};
use crate::head::{HeadStyle, PoolerAct, Top};
use crate::layer::{AsideGrads, Saved, Stream};
use crate::linear::{Linear, Matrix};
use crate::onnx::OnnxPass;
use crate::params::{Builder, Grads, ParamId};
use crate::stem::{Input, Stem, StemPass, TokenStem};
use candle_core::Tensor;
use lathe_core::model::{KeyKind, Value};
use lathe_core::{Activation, Backbone, Defaults, Error, Frame, Model, OwnKey, Result, Role, Setting};
use lathe_onnx::Value as OnnxValue;
use lathe_ops::Precision;
use lathe_ops::buffer::Buf;
use serde_json::json;
use std::any::Any;
use std::sync::Arc;

pub(super) struct Albert;

#[rustfmt::skip]
const KEYS: &[OwnKey] = &[
    encoder::norm_eps("1e-12"),
    encoder::segments("2"),
    encoder::HEAD,
    encoder::POOLING,
    encoder::LABELS,
    encoder::CLASSIFIER_DROPOUT,
    encoder::POOLER,
    OwnKey::new("shared", KeyKind::Word, Some("none"), "what layers share: all, attentions, ffns or none [none]"),
    OwnKey::new("shared_layers", KeyKind::Int(1, 10_000), None, "layers in a row that share it [all]"),
];

const POOLER: Vector = Vector { dense: "albert.pooler", act: PoolerAct::Tanh, drops: false };

/// What is BERT's.
static LIKE_BERT: Encoder = Encoder {
    key: "albert",
    about: "encoder: a BERT whose layers share weights, with a narrow embedding",
    keys: KEYS,
    activation: Activation::GeluTanh,
    max_len: 512,
    unused_rows: 0,
    buckets: None,
    names: Names {
        prefix: "albert",
        layers: "encoder.albert_layer_groups",
        attention: [
            "albert_layers.0.attention.query",
            "albert_layers.0.attention.key",
            "albert_layers.0.attention.value",
            "albert_layers.0.attention.dense",
            "albert_layers.0.attention.LayerNorm",
        ],
        ffn: ["albert_layers.0.ffn", "albert_layers.0.ffn_output", "albert_layers.0.full_layer_layer_norm"],
    },
    masked: Masked {
        prefix: "predictions.",
        dense: "predictions.dense",
        norm: "predictions.LayerNorm",
        act: None,
        embedding: EmbeddingStyle {
            plain: Some("albert.embeddings.word_embeddings.weight"),
            prefix: "albert.embeddings.word_embeddings",
            scaled: false,
            projection: None,
        },
        tokens: HeadStyle {
            plain_weight: "predictions.decoder.weight",
            plain_bias: Some("predictions.bias"),
            criterion: false,
            projection: None,
        },
        bias_again: Some("predictions.decoder.bias"),
    },
    pooler: Some(POOLER),
    heads: &[
        HeadKind::new("masked_lm", "ForMaskedLM", None, None),
        HeadKind::new(encoder::PRETRAINING, "ForPreTraining", Some("sop_classifier.classifier"), Some(POOLER)),
        HeadKind::new("none", "Model", None, None),
        HeadKind::new("classify", "ForSequenceClassification", Some("classifier"), Some(POOLER)),
        HeadKind::new("regress", "ForSequenceClassification", Some("classifier"), Some(POOLER)),
        HeadKind::new("choose", "ForMultipleChoice", Some("classifier"), Some(POOLER)),
        HeadKind::new("span", "ForQuestionAnswering", Some("qa_outputs"), None),
    ],
    config: Config {
        model_types: &["albert"],
        class: "Albert",
        layers: ("num_hidden_layers", 12),
        copied: &[
            ("vocab_size", "vocab", "30000"),
            ("embedding_size", "d_embed", "128"),
            ("hidden_size", "d_model", "4096"),
            ("intermediate_size", "inner", "16384"),
            ("num_attention_heads", "heads", "64"),
            ("max_position_embeddings", "max_len", "512"),
            ("type_vocab_size", "segments", "2"),
            ("layer_norm_eps", "norm_eps", "1e-12"),
            ("hidden_dropout_prob", "dropout", "0"),
            ("attention_probs_dropout_prob", "attn_dropout", "0"),
            ("tie_word_embeddings", "tie_embeddings", "true"),
        ],
        activation: ("hidden_act", "gelu_new"),
        classifier: Some(("classifier_dropout_prob", Some(0.1))),
        only: || vec![("position_embedding_type", json!("absolute")), ("inner_group_num", json!(1))],
    },
    builder: &NetworkBuilder(&Albert),
};

/// The key of the number of groups of layers in `transformers`.
const GROUPS: &str = "num_hidden_groups";

/// The frame as it is below the matrix from E to D, and at the output.
fn narrow(frame: &Frame) -> Frame {
    Frame { d_model: frame.d_embed, ..frame.clone() }
}

impl Backbone for Albert {
    fn key(&self) -> &'static str {
        LIKE_BERT.key
    }

    fn about(&self) -> &'static str {
        LIKE_BERT.about
    }

    fn defaults(&self) -> Defaults {
        LIKE_BERT.defaults()
    }

    fn own_keys(&self) -> &'static [OwnKey] {
        KEYS
    }

    fn causal(&self) -> bool {
        false
    }

    fn has_head(&self, frame: &Frame) -> bool {
        LIKE_BERT.has_head(frame)
    }

    fn check(&self, frame: &Frame) -> Result<()> {
        LIKE_BERT.check_head(frame)?;
        let shared = frame.word("shared").unwrap_or_default();
        if !["all", "attentions", "ffns", "none"].contains(&shared) {
            return Err(Error::value("shared", format!("`{shared}`"), "all, attentions, ffns or none"));
        }
        if shared == "none" && frame.int("shared_layers").is_some() {
            return Err(Error::value("shared_layers", "a number with shared none", "no number, or another shared"));
        }
        if adaptive(frame) {
            return Err(Error::value("div_val, cutoffs", "clusters", "none with backbone albert"));
        }
        Ok(())
    }

    fn builder(&self) -> &'static dyn Any {
        LIKE_BERT.builder
    }
}

impl BuildBackbone for Albert {
    fn layer_name(&self, frame: &Frame, number: usize) -> String {
        LIKE_BERT.layer_name(frame, number)
    }

    fn part_name(&self, frame: &Frame, role: Role, part: &str) -> String {
        LIKE_BERT.part_name(frame, role, part)
    }

    fn style(&self, frame: &Frame, blocks: usize) -> Style {
        LIKE_BERT.style(frame, blocks)
    }

    fn attention(&self, frame: &Frame) -> AttentionStyle {
        LIKE_BERT.attention(frame)
    }

    fn sharing(&self, frame: &Frame, role: Role) -> Option<Sharing> {
        let in_row = || Sharing::InRow(frame.int("shared_layers").map_or(usize::MAX, |layers| layers as usize));
        match (frame.word("shared"), role) {
            (Some("all"), _) | (Some("attentions"), Role::MixesTokens) | (Some("ffns"), Role::PerToken) => {
                Some(in_row())
            }
            _ => None,
        }
    }

    fn stem(&self, frame: &Frame, builder: &mut Builder) -> Result<Box<dyn Stem>> {
        let tokens = LIKE_BERT.token_stem(&narrow(frame), &narrow(frame), builder);
        let sizes = [frame.d_embed, frame.d_model].map(|size| size as usize);
        let wide = projected(frame).then(|| linear(builder, "albert.encoder.embedding_hidden_mapping_in", sizes));
        Ok(Box::new(AlbertStem { tokens, wide }))
    }

    fn top(&self, frame: &Frame, stem: &dyn Stem, builder: &mut Builder) -> Top {
        let top = LIKE_BERT.top_without_tokens(frame, builder);
        let head = frame.has_head().then(|| LIKE_BERT.masked_head(frame, (stem, &narrow(frame)), builder));
        Top { head, ..top }
    }

    fn frame_cost(&self, frame: &Frame, setting: &Setting) -> FrameCost {
        let (d, e) = (u64::from(frame.d_model), u64::from(frame.d_embed));
        let mut cost = LIKE_BERT.cost_over(frame, &narrow(frame), setting);
        if projected(frame) {
            cost.params += d * e + d;
            let below = setting.tokens() * 2 * u128::from(d * e);
            cost.output_flops += below;
            cost.output_full_flops += below;
            cost.activation_bytes += setting.tokens() * 4 * u128::from(if frame.has_head() { d } else { e });
        }
        cost
    }

    fn model_types(&self) -> &'static [&'static str] {
        LIKE_BERT.model_types()
    }

    fn read_config(&self, reader: &mut ConfigReader<'_>) -> Result<()> {
        LIKE_BERT.read_config(reader)?;
        if let (Some(Value::Int(e)), Some(Value::Int(d))) = (reader.get("d_embed"), reader.get("d_model"))
            && e == d
        {
            let expected =
                "another width than hidden_size: between equal widths transformers has a matrix that ALBERT has not";
            return Err(Error::value("embedding_size", *e, expected));
        }
        let count = |theirs: &str, default: u64| reader.value(theirs).map_or(Some(default), Json::as_u64);
        let layers = count("num_hidden_layers", 12).unwrap_or_default();
        let groups = count(GROUPS, 1).filter(|&groups| groups > 0 && layers.is_multiple_of(groups));
        let Some(groups) = groups else {
            let found = reader.value(GROUPS).map_or_else(String::new, |found| format!("`{found}`"));
            return Err(Error::value(GROUPS, found, format!("a divisor of num_hidden_layers, which is {layers}")));
        };
        let shared = if groups == layers && layers > 1 { "none" } else { "all" };
        if shared == "all" && groups > 1 {
            reader.set("shared_layers", Value::Int((layers / groups) as u32));
        }
        reader.set("shared", Value::Word(shared.into()));
        Ok(())
    }

    fn write_config(&self, model: &Model) -> Option<Json> {
        let frame = &model.frame;
        let mut config = LIKE_BERT.write_config(model)?;
        let layers = model.blocks.len() / 2;
        let groups = match (frame.word("shared"), frame.int("shared_layers")) {
            (Some("none"), _) => layers,
            (Some("all"), None) => 1,
            (Some("all"), Some(in_row)) if layers.is_multiple_of(in_row as usize) => layers / in_row as usize,
            _ => return None,
        };
        config[GROUPS] = json!(groups);
        projected(frame).then_some(config)
    }

    fn other_names(&self, name: &str) -> Vec<String> {
        LIKE_BERT.other_names(name)
    }

    fn is_needless(&self, name: &str, frame: &Frame) -> bool {
        let of_pairs = name.starts_with("sop_classifier.") && frame.word("head") != Some(encoder::PRETRAINING);
        of_pairs || LIKE_BERT.is_needless(name, frame)
    }
}

/// Vectors of tokens, and the matrix that makes them as wide as the model.
struct AlbertStem {
    tokens: TokenStem,
    wide: Option<Linear>,
}

/// What the tokens' stem saved, and what the matrix was multiplied with.
type AlbertSaved = (Saved, Arc<Buf>);

impl Stem for AlbertStem {
    fn forward(&self, pass: &StemPass<'_>, input: &Input<'_>) -> (Stream, Saved) {
        let (narrow, saved) = self.tokens.forward(pass, input);
        let Some(wide) = &self.wide else { return (narrow, saved) };
        let mut x = Buf::any(narrow.hidden.len() / wide.inputs() * wide.outputs());
        wide.forward(pass.params, &narrow.hidden, &mut x);
        (narrow.with(x), Box::new((saved, narrow.hidden)))
    }

    fn takes_unpadded(&self) -> bool {
        true
    }

    fn backward(
        &self,
        pass: &StemPass<'_>,
        input: &Input<'_>,
        saved: Saved,
        (dx, aside): (Buf, &AsideGrads),
        grads: &mut Grads,
    ) {
        let Some(wide) = &self.wide else { return self.tokens.backward(pass, input, saved, (dx, aside), grads) };
        if !grads.wanted() {
            return;
        }
        let (saved, narrow): AlbertSaved = *saved.downcast().expect("what this stem saved");
        let mut dnarrow = Buf::any(narrow.len());
        wide.backward_params(&narrow, &dx, grads);
        wide.backward_input(pass.params, &dx, &mut dnarrow, false);
        self.tokens.backward(pass, input, saved, (dnarrow, aside), grads);
    }

    fn composed_embed(&self, graph: &Graph<'_>, ids: &[u32]) -> candle_core::Result<Tensor> {
        self.tokens.composed_embed(graph, ids)
    }

    fn composed_enter(&self, graph: &Graph<'_>, x: Tensor, input: &Input<'_>) -> candle_core::Result<GraphStream> {
        let narrow = self.tokens.composed_enter(graph, x, input)?;
        match &self.wide {
            Some(wide) => Ok(narrow.with(wide.composed(graph, &narrow.hidden)?)),
            None => Ok(narrow),
        }
    }

    fn onnx(&self, pass: &mut OnnxPass<'_>) -> std::result::Result<OnnxValue, String> {
        let x = self.tokens.onnx(pass)?;
        Ok(match &self.wide {
            Some(wide) => wide.onnx(pass, &x),
            None => x,
        })
    }

    fn tables(&self) -> &[EmbeddingTable] {
        self.tokens.tables()
    }

    fn matrices(&mut self) -> Vec<&mut Matrix> {
        self.wide.iter_mut().map(|wide| &mut wide.matrix).collect()
    }

    fn set_precision(&mut self, precision: Precision) {
        self.tokens.set_precision(precision);
        self.matrices().into_iter().for_each(|matrix| matrix.set_precision(precision));
    }

    fn reads(&self) -> Vec<ParamId> {
        self.tokens.reads()
    }
}
