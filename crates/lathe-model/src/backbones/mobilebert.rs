//! MobileBERT (Sun et al., 2020): a deep and narrow BERT. A token's vector is made of three, its own and those beside it, by a
//! matrix from 3 E to D; layers are bottlenecks; norms may be nothing but a gain and a bias; and the output layer for masked tokens has
//! weights of its own beside the embedding, which is narrower than the model.
//!
//! Beside the first and the last token, and beside padding, there is a vector of zeros. Layers without a bottleneck are those of BERT.

use super::encoder::{self, Config, Encoder, HeadKind, Masked, Names, Vector, linear, norm_kind};
use crate::blocks::{AttentionStyle, BottleneckSizes};
use crate::build::{BuildBackbone, DEVIATION, FrameCost, NetworkBuilder, Style};
use crate::composed::{Graph, GraphStream};
use crate::embedding::{EmbeddingStyle, EmbeddingTable, adaptive};
use crate::folder::{ConfigReader, Json, Uniform, uniform};
use crate::head::{BesideHead, Head, HeadStyle, MaskedHead, PoolerAct, Top};
use crate::layer::{AsideGrads, Saved, Stream};
use crate::linear::{Layout, Linear, Matrix};
use crate::norm::NormParams;
use crate::onnx::OnnxPass;
use crate::params::{Builder, Grads, Init, ParamId};
use crate::stem::{Input, NormSaved, Stem, StemPass, TokenStem};
use candle_core::Tensor;
use lathe_core::model::{KeyKind, Value};
use lathe_core::{Activation, Backbone, Defaults, Error, Frame, Model, OwnKey, Result, Role, Setting};
use lathe_onnx::{Kind, Value as OnnxValue};
use lathe_ops::Precision;
use lathe_ops::buffer::Buf;
use serde_json::json;
use std::any::Any;

pub(super) struct MobileBert;

#[rustfmt::skip]
const KEYS: &[OwnKey] = &[
    encoder::norm_eps("1e-12"),
    encoder::segments("2"),
    encoder::HEAD,
    encoder::POOLING,
    encoder::LABELS,
    encoder::CLASSIFIER_DROPOUT,
    OwnKey::new("norm_kind", KeyKind::Word, Some("scale"), "norm of blocks and embedding: layer, or scale, a gain and a bias alone [scale]"),
    OwnKey::new("classifier_activation", KeyKind::Flag, Some("true"), "the vector of a text is tanh(W x + b) of its first token, not that token itself [true]"),
];

const POOLER: Vector = Vector { dense: "mobilebert.pooler.dense", act: PoolerAct::Tanh, drops: false };

/// What is BERT's.
static LIKE_BERT: Encoder = Encoder {
    key: "mobilebert",
    about: "encoder: bottlenecks, three tokens in a vector, also without norms",
    keys: KEYS,
    activation: Activation::Relu,
    max_len: 512,
    unused_rows: 0,
    buckets: None,
    names: Names {
        prefix: "mobilebert",
        layers: "encoder.layer",
        attention: [
            "attention.self.query",
            "attention.self.key",
            "attention.self.value",
            "attention.output.dense",
            "attention.output.LayerNorm",
        ],
        ffn: ["intermediate.dense", "output.dense", "output.LayerNorm"],
    },
    masked: Masked {
        prefix: "cls.predictions.",
        dense: "cls.predictions.transform.dense",
        norm: "cls.predictions.transform.LayerNorm",
        act: None,
        embedding: EmbeddingStyle {
            plain: Some("mobilebert.embeddings.word_embeddings.weight"),
            prefix: "mobilebert.embeddings.word_embeddings",
            scaled: false,
            projection: None,
        },
        tokens: HeadStyle {
            plain_weight: "cls.predictions.decoder.weight",
            plain_bias: Some("cls.predictions.bias"),
            criterion: false,
            projection: None,
        },
        bias_again: Some("cls.predictions.decoder.bias"),
    },
    pooler: None,
    heads: &[
        HeadKind::new("masked_lm", "ForMaskedLM", None, None),
        HeadKind::new(encoder::PRETRAINING, "ForPreTraining", Some("cls.seq_relationship"), Some(POOLER)),
        HeadKind::new("none", "Model", None, Some(POOLER)),
        HeadKind::new("classify", "ForSequenceClassification", Some("classifier"), Some(POOLER)),
        HeadKind::new("regress", "ForSequenceClassification", Some("classifier"), Some(POOLER)),
        HeadKind::new("choose", "ForMultipleChoice", Some("classifier"), Some(POOLER)),
        HeadKind::new("span", "ForQuestionAnswering", Some("qa_outputs"), None),
    ],
    config: Config {
        model_types: &["mobilebert"],
        class: "MobileBert",
        layers: ("num_hidden_layers", 24),
        copied: &[
            ("vocab_size", "vocab", "30522"),
            ("embedding_size", "d_embed", "128"),
            ("hidden_size", "d_model", "512"),
            ("intermediate_size", "inner", "512"),
            ("num_attention_heads", "heads", "4"),
            ("max_position_embeddings", "max_len", "512"),
            ("type_vocab_size", "segments", "2"),
            ("layer_norm_eps", "norm_eps", "1e-12"),
            ("hidden_dropout_prob", "dropout", "0"),
            ("attention_probs_dropout_prob", "attn_dropout", "0.1"),
            ("tie_word_embeddings", "tie_embeddings", "true"),
            ("classifier_activation", "classifier_activation", "true"),
        ],
        activation: ("hidden_act", "relu"),
        classifier: Some(("classifier_dropout", None)),
        only: || vec![("trigram_input", json!(true))],
    },
    builder: &NetworkBuilder(&MobileBert),
};

/// Vectors of tokens that make one.
const BESIDE: usize = 3;
/// The kinds of norms: theirs, ours.
const NORMS: [(&str, &str); 2] = [("no_norm", "scale"), ("layer_norm", "layer")];

impl Backbone for MobileBert {
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
        let kind = frame.word("norm_kind").unwrap_or_default();
        if !NORMS.iter().any(|(_, ours)| *ours == kind) {
            return Err(Error::value("norm_kind", format!("`{kind}`"), "scale or layer"));
        }
        if adaptive(frame) || frame.d_embed > frame.d_model {
            let expected = format!("at most d_model, which is {}, and no clusters", frame.d_model);
            return Err(Error::value("d_embed", frame.d_embed, expected));
        }
        Ok(())
    }

    fn builder(&self) -> &'static dyn Any {
        LIKE_BERT.builder
    }
}

impl BuildBackbone for MobileBert {
    fn layer_name(&self, frame: &Frame, number: usize) -> String {
        LIKE_BERT.layer_name(frame, number)
    }

    fn part_name(&self, frame: &Frame, role: Role, part: &str) -> String {
        // A feed-forward but the last: mlp0.up, mlp0.down, mlp0_norm.
        if let Some(rest) = part.strip_prefix("mlp")
            && let Some((number, part)) = rest.split_once(['.', '_']).filter(|(number, _)| !number.is_empty())
        {
            let of_ffn = match part {
                "up" => "intermediate.dense",
                "down" => "output.dense",
                _ => "output.LayerNorm",
            };
            return format!("ffn.{number}.{of_ffn}");
        }
        match part {
            "bottleneck.input" => "bottleneck.input.dense".into(),
            "bottleneck.input_norm" => "bottleneck.input.LayerNorm".into(),
            "bottleneck.shared" => "bottleneck.attention.dense".into(),
            "bottleneck.shared_norm" => "bottleneck.attention.LayerNorm".into(),
            "bottleneck.output" => "output.bottleneck.dense".into(),
            "bottleneck.output_norm" => "output.bottleneck.LayerNorm".into(),
            part => LIKE_BERT.part_name(frame, role, part),
        }
    }

    fn style(&self, frame: &Frame, blocks: usize) -> Style {
        LIKE_BERT.style(frame, blocks)
    }

    fn attention(&self, frame: &Frame) -> AttentionStyle {
        LIKE_BERT.attention(frame)
    }

    fn stem(&self, frame: &Frame, builder: &mut Builder) -> Result<Box<dyn Stem>> {
        let narrow = Frame { d_model: frame.d_embed, ..frame.clone() };
        let tokens = LIKE_BERT.token_stem(frame, &narrow, builder);
        let (e, d) = (frame.d_embed as usize, frame.d_model as usize);
        let mix = linear(builder, "mobilebert.embeddings.embedding_transformation", [BESIDE * e, d]);
        Ok(Box::new(MobileBertStem { tokens, mix }))
    }

    fn top(&self, frame: &Frame, stem: &dyn Stem, builder: &mut Builder) -> Top {
        let top = LIKE_BERT.top_without_tokens(frame, builder);
        Top { head: frame.has_head().then(|| masked_head(frame, stem, builder)), ..top }
    }

    fn frame_cost(&self, frame: &Frame, setting: &Setting) -> FrameCost {
        let [d, e, vocab] = [frame.d_model, frame.d_embed, frame.vocab].map(u64::from);
        let (mut cost, tokens) = (LIKE_BERT.top_cost(frame, setting), setting.tokens());
        let (positions, added) = LIKE_BERT.added_params(frame, d);
        let mix = BESIDE as u64 * e * d;
        cost.position = positions;
        cost.params += vocab * e + mix + d + positions + added;
        let mut flops = tokens * 2 * u128::from(mix);
        cost.activation_bytes = tokens * 4 * u128::from((1 + BESIDE as u64) * e + d);
        if frame.has_head() {
            let own = if frame.tie_embeddings { d - e } else { d };
            cost.params += d * d + 3 * d + vocab + own * vocab;
            flops += tokens * 2 * u128::from(d * d + d * vocab);
            cost.activation_bytes += tokens * 4 * u128::from(vocab);
        }
        cost.output_flops += flops;
        cost.output_full_flops += flops;
        cost
    }

    fn model_types(&self) -> &'static [&'static str] {
        LIKE_BERT.model_types()
    }

    fn read_config(&self, reader: &mut ConfigReader<'_>) -> Result<()> {
        LIKE_BERT.read_config(reader)?;
        let kind = reader.value("normalization_type").map_or(Some("no_norm"), Json::as_str).unwrap_or_default();
        let Some((_, kind)) = NORMS.iter().find(|(theirs, _)| *theirs == kind) else {
            return Err(Error::value("normalization_type", format!("`{kind}`"), "no_norm or layer_norm"));
        };
        reader.set("norm_kind", Value::Word((*kind).into()));
        let whole = |key: &str, default: u32| match reader.value(key) {
            None => Ok(default),
            Some(found) => {
                let number = found.as_u64().and_then(|n| u32::try_from(n).ok()).filter(|&n| n > 0);
                number.ok_or_else(|| Error::value(key, format!("`{found}`"), "a whole number from 1 on"))
            }
        };
        let (layers, ffns) = (whole("num_hidden_layers", 24)?, whole("num_feedforward_networks", 4)?);
        if !reader.flag("use_bottleneck", true)? {
            return match ffns {
                1 => Ok(()),
                _ => Err(Error::value("num_feedforward_networks", ffns, "1, where use_bottleneck is false")),
            };
        }
        let narrow = reader.flag("use_bottleneck_attention", false)?;
        if !narrow && !reader.flag("key_query_shared_bottleneck", true)? {
            let expected = "true, where use_bottleneck_attention is false";
            return Err(Error::value("key_query_shared_bottleneck", "false", expected));
        }
        let of_reader = |key: &str| match reader.get(key) {
            Some(&Value::Int(n)) => n,
            _ => 1,
        };
        let (heads, inner) = (of_reader("heads"), of_reader("inner"));
        let width = whole("intra_bottleneck_size", 128)?;
        let layer = BottleneckSizes { width, heads, inner, ffns, narrow }.notation();
        reader.set("layers", Value::Word(format!("({layer})x{layers}")));
        Ok(())
    }

    fn write_config(&self, model: &Model) -> Option<Json> {
        let frame = &model.frame;
        let (theirs, _) = NORMS.iter().find(|(_, ours)| frame.word("norm_kind") == Some(ours))?;
        let mut sizes = model.blocks.iter().map(|block| BottleneckSizes::of(block, frame));
        let first = sizes.next().flatten();
        let mut config = match first {
            Some(first) if sizes.all(|other| other == Some(first)) => {
                let BottleneckSizes { width, heads, inner, ffns, narrow } = first;
                let count = model.blocks.len();
                let layers = Uniform { count, heads, kv_heads: heads, d_head: width / heads, inner };
                let mut config = LIKE_BERT.config_of(model, &layers)?;
                config["intra_bottleneck_size"] = json!(width);
                config["num_feedforward_networks"] = json!(ffns);
                config["use_bottleneck_attention"] = json!(narrow);
                config["key_query_shared_bottleneck"] = json!(!narrow);
                config
            }
            Some(_) => return None,
            None => {
                let layers = uniform(model).filter(|layers| layers.heads * layers.d_head == frame.d_model)?;
                let mut config = LIKE_BERT.config_of(model, &layers)?;
                config["num_feedforward_networks"] = json!(1);
                config
            }
        };
        config["use_bottleneck"] = json!(first.is_some());
        config["normalization_type"] = json!(theirs);
        Some(config)
    }

    fn other_names(&self, name: &str) -> Vec<String> {
        LIKE_BERT.other_names(name)
    }

    /// Between equal widths transformers has a matrix without a row.
    fn is_needless(&self, name: &str, frame: &Frame) -> bool {
        LIKE_BERT.is_needless(name, frame) || name == BESIDE_WEIGHT && frame.d_embed == frame.d_model
    }
}

/// The weights of the output layer beside the embedding, [D - E, V].
const BESIDE_WEIGHT: &str = "cls.predictions.dense.weight";

fn masked_head(frame: &Frame, stem: &dyn Stem, builder: &mut Builder) -> Box<dyn Head> {
    let [d, e, vocab] = [frame.d_model, frame.d_embed, frame.vocab].map(|size| size as usize);
    let Masked { dense, norm, tokens, .. } = &LIKE_BERT.masked;
    let dense = linear(builder, dense, [d, d]);
    let norm = NormParams::new(builder, norm, norm_kind(frame), d, 0.0);
    let mut weight = |name: &str, shape: [usize; 2]| builder.param(name, &shape, Init::Normal(0.0, DEVIATION));
    let rows = match frame.tie_embeddings {
        true => stem.tables()[0].weight,
        false => weight(tokens.plain_weight, [vocab, e]),
    };
    let beside = (d > e).then(|| Linear::new(weight(BESIDE_WEIGHT, [d - e, vocab]), None, Layout::InOut, d - e, vocab));
    let bias = tokens.plain_bias.map(|name| builder.param(name, &[vocab], Init::Constant(0.0)));
    let tokens = Box::new(BesideHead { rows: Linear::new(rows, bias, Layout::OutIn, e, vocab), beside });
    Box::new(MaskedHead { dense, act: encoder::head_act(frame), norm, tokens })
}

/// Vectors of three tokens, and the matrix that makes one of them.
struct MobileBertStem {
    tokens: TokenStem,
    mix: Linear,
}

/// What a norm saved, and what the matrix was multiplied with.
type MobileBertSaved = (NormSaved, Buf);

impl MobileBertStem {
    /// E
    fn width(&self) -> usize {
        self.mix.inputs() / BESIDE
    }

    /// The rows whose vectors stand in the first and in the last part of a row of three: of the next token and of the one before.
    fn beside(input: &Input<'_>, row: usize) -> [Option<usize>; 2] {
        let (len, place) = (input.len(), row % input.len());
        let real = |row: &usize| input.mask.is_none_or(|mask| mask[*row]);
        [Some(row + 1).filter(|_| place + 1 < len).filter(real), row.checked_sub(1).filter(|_| place > 0).filter(real)]
    }

    /// [B * T, 3 E] of vectors [B * T, E].
    fn three(&self, input: &Input<'_>, x: &[f32]) -> Buf {
        let e = self.width();
        let mut out = Buf::zeros(x.len() * BESIDE);
        for (row, to) in out.chunks_exact_mut(BESIDE * e).enumerate() {
            let [next, before] = Self::beside(input, row);
            for (part, from) in [(0, next), (1, Some(row)), (2, before)] {
                if let Some(from) = from {
                    to[part * e..][..e].copy_from_slice(&x[from * e..][..e]);
                }
            }
        }
        out
    }

    /// The way back of [`Self::three`].
    fn three_backward(&self, input: &Input<'_>, dthree: &[f32]) -> Buf {
        let e = self.width();
        let mut dx = Buf::zeros(dthree.len() / BESIDE);
        for (row, from) in dthree.chunks_exact(BESIDE * e).enumerate() {
            let [next, before] = Self::beside(input, row);
            for (part, to) in [(0, next), (1, Some(row)), (2, before)] {
                if let Some(to) = to {
                    let parts = dx[to * e..][..e].iter_mut().zip(&from[part * e..][..e]);
                    parts.for_each(|(sum, d)| *sum += d);
                }
            }
        }
        dx
    }
}

impl Stem for MobileBertStem {
    fn forward(&self, pass: &StemPass<'_>, input: &Input<'_>) -> (Stream, Saved) {
        let mut three = self.three(input, &self.tokens.embedding.forward(pass.params, input.ids));
        if let Some(unpadded) = pass.unpadded {
            three = unpadded.take(&three);
        }
        let mut x = Buf::any(three.len() / self.mix.inputs() * self.mix.outputs());
        self.mix.forward(pass.params, &three, &mut x);
        let (x, saved) = self.tokens.add(pass, input, x);
        (pass.stream(x, input), Box::new((saved, three)))
    }

    fn takes_unpadded(&self) -> bool {
        true
    }

    fn backward(
        &self,
        pass: &StemPass<'_>,
        input: &Input<'_>,
        saved: Saved,
        (dx, _): (Buf, &AsideGrads),
        grads: &mut Grads,
    ) {
        if !grads.wanted() {
            return;
        }
        let (saved, three): MobileBertSaved = *saved.downcast().expect("what this stem saved");
        let dx = self.tokens.add_backward(pass, input, saved, dx, grads);
        let mut dthree = Buf::any(three.len());
        self.mix.backward_params(&three, &dx, grads);
        self.mix.backward_input(pass.params, &dx, &mut dthree, false);
        if let Some(unpadded) = pass.unpadded {
            dthree = unpadded.put(&dthree);
        }
        self.tokens.embedding.backward(pass.params, input.ids, &self.three_backward(input, &dthree), grads);
    }

    fn composed_embed(&self, graph: &Graph<'_>, ids: &[u32]) -> candle_core::Result<Tensor> {
        self.tokens.composed_embed(graph, ids)
    }

    fn composed_enter(&self, graph: &Graph<'_>, x: Tensor, input: &Input<'_>) -> candle_core::Result<GraphStream> {
        // A row of zeros comes last, for what is not there.
        let (rows, nothing) = (input.ids.len(), x.narrow(0, 0, 1)?.zeros_like()?);
        let all = Tensor::cat(&[&x, &nothing], 0)?;
        let part = |of: &dyn Fn(usize) -> Option<usize>| {
            let places: Vec<u32> = (0..rows).map(|row| of(row).unwrap_or(rows) as u32).collect();
            all.index_select(&Tensor::new(places, all.device())?, 0)
        };
        let next = part(&|row| Self::beside(input, row)[0])?;
        let before = part(&|row| Self::beside(input, row)[1])?;
        let x = self.mix.composed(graph, &Tensor::cat(&[&next, &x, &before], 1)?)?;
        self.tokens.composed_enter(graph, x, input)
    }

    fn onnx(&self, pass: &mut OnnxPass<'_>) -> std::result::Result<OnnxValue, String> {
        let x = self.tokens.embedding.onnx(pass); // [B, T, E]
        let mask = pass.mask().expect("an encoder has a mask");
        let (axis, last, first, one) =
            (pass.graph.ints(&[1]), pass.graph.ints(&[2]), pass.graph.ints(&[0]), pass.graph.ints(&[1]));
        let (end, before_end, zero) = (pass.graph.ints(&[i64::MAX]), pass.graph.ints(&[-1]), pass.graph.float(0.0));
        let real = pass.graph.node("Cast", &[&mask], &[("to", (Kind::F32 as i64).into())]);
        let real = pass.graph.node("Unsqueeze", &[&real, &last], &[]);
        let seen = pass.graph.node("Mul", &[&x, &real], &[]);
        let nothing = pass.graph.node("Slice", &[&seen, &first, &one, &axis], &[]);
        let nothing = pass.graph.node("Mul", &[&nothing, &zero], &[]); // [B, 1, E]
        let later = pass.graph.node("Slice", &[&seen, &one, &end, &axis], &[]);
        let earlier = pass.graph.node("Slice", &[&seen, &first, &before_end, &axis], &[]);
        let next = pass.graph.node("Concat", &[&later, &nothing], &[("axis", 1.into())]);
        let before = pass.graph.node("Concat", &[&nothing, &earlier], &[("axis", 1.into())]);
        let three = pass.graph.node("Concat", &[&next, &x, &before], &[("axis", 2.into())]);
        let x = self.mix.onnx(pass, &three);
        Ok(self.tokens.add_onnx(pass, x))
    }

    fn tables(&self) -> &[EmbeddingTable] {
        self.tokens.tables()
    }

    fn matrices(&mut self) -> Vec<&mut Matrix> {
        vec![&mut self.mix.matrix]
    }

    fn set_precision(&mut self, precision: Precision) {
        self.tokens.set_precision(precision);
        self.mix.matrix.set_precision(precision);
    }

    fn reads(&self) -> Vec<ParamId> {
        self.tokens.reads()
    }
}
