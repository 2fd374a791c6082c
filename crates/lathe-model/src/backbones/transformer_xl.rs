//! Transformer-XL (Dai et al., 2019): relative positions, a memory of the segments before, norm after each
//! block, and an output layer with a bias per token. Matrices are [out, in]; the reference drops distances, inner activations and the
//! last hidden states too, and multiplies embeddings by sqrt(D). It has no norm after the last block: with the norm before blocks,
//! logits then grow with every block that is not skipped, which `final_norm` mends.

use crate::blocks::{AttentionStyle, Distances, Scores};
use crate::build::{BuildBackbone, DEVIATION, FrameCost, NetworkBuilder, Style};
use crate::context::Context;
use crate::embedding::{self, Embedding, EmbeddingStyle};
use crate::folder::{ConfigReader, Json, uniform};
use crate::head::{HeadStyle, TokenHead, Top};
use crate::norm::{self, NormParams};
use crate::params::Builder;
use crate::stem::{Stem, TokenStem};
use lathe_core::model::{KeyKind, Value};
use lathe_core::{
    Activation, Backbone, BaseWidths, Defaults, Error, Frame, Model, NormPlace, OwnKey, Result, Role, Segmentation,
    Setting,
};
use lathe_ops::buffer::Buf;
use lathe_ops::dropout::Dropout;
use lathe_ops::norm::NormKind;
use serde_json::json;
use std::any::Any;

pub(super) struct TransformerXl;

const EMBEDDING: EmbeddingStyle =
    EmbeddingStyle { plain: None, prefix: "transformer.word_emb", scaled: true, projection: None };
const HEAD: HeadStyle = HeadStyle { plain_weight: "", plain_bias: None, criterion: true, projection: None };

/// Not set where nothing is said, so that models of before are written as they were.
const KEYS: &[OwnKey] = &[OwnKey::new("final_norm", KeyKind::Flag, None, "a norm after the last block [false]")];

impl Backbone for TransformerXl {
    fn key(&self) -> &'static str {
        "transformer_xl"
    }

    fn about(&self) -> &'static str {
        "relative positions, memory of earlier segments"
    }

    fn aliases(&self) -> &'static [&'static str] {
        &["TransXL"]
    }

    fn defaults(&self) -> Defaults {
        Defaults { norm: NormPlace::Post, activation: Activation::Relu, max_len: 0 }
    }

    fn own_keys(&self) -> &'static [OwnKey] {
        KEYS
    }

    fn ignored_keys(&self) -> &'static [&'static str] {
        &["max_len"]
    }

    fn segmentation(&self) -> Segmentation {
        Segmentation::Stream
    }

    fn base_widths(&self) -> Option<BaseWidths> {
        Some(BaseWidths { d_model: 512, heads: 8, inner: 2048 })
    }

    fn builder(&self) -> &'static dyn Any {
        &NetworkBuilder(&Self)
    }
}

impl BuildBackbone for TransformerXl {
    fn layer_name(&self, _: &Frame, number: usize) -> String {
        format!("transformer.layers.{number}")
    }

    fn part_name(&self, _: &Frame, _: Role, part: &str) -> String {
        match part {
            "attn.norm" => "dec_attn.layer_norm",
            "attn.qkv" => "dec_attn.qkv_net",
            "attn.out" => "dec_attn.o_net",
            "attn.r" => "dec_attn.r_net",
            "attn.u" => "dec_attn.r_w_bias",
            "attn.v" => "dec_attn.r_r_bias",
            "mlp.norm" => "pos_ff.layer_norm",
            "mlp.up" => "pos_ff.CoreNet.0",
            "mlp.down" => "pos_ff.CoreNet.3",
            part => return part.strip_suffix(".norm").map_or_else(|| part.into(), |of| format!("{of}.layer_norm")),
        }
        .into()
    }

    fn style(&self, _: &Frame, _: usize) -> Style {
        Style { norm_deviation: DEVIATION, inner_dropout: true, ..Style::linear(NormKind::LAYER) }
    }

    fn attention(&self, _: &Frame) -> AttentionStyle {
        AttentionStyle {
            scores: Scores::Relative,
            fused: true,
            qkv_bias: false,
            out_bias: false,
            ..AttentionStyle::dot(true)
        }
    }

    fn stem(&self, frame: &Frame, builder: &mut Builder) -> Result<Box<dyn Stem>> {
        if !frame.d_model.is_multiple_of(2) {
            return Err(Error::value("d_model", frame.d_model, "an even width for relative positions"));
        }
        Ok(Box::new(TokenStem::new(Embedding::new(frame, &EMBEDDING, builder))))
    }

    fn top(&self, frame: &Frame, stem: &dyn Stem, builder: &mut Builder) -> Top {
        let norm = |builder: &mut Builder| {
            NormParams::new(builder, "transformer.layer_norm", NormKind::LAYER, frame.d_model as usize, 0.0)
        };
        let norm = frame.flag("final_norm").then(|| norm(builder));
        let head = TokenHead::new(frame, (stem.tables(), &EMBEDDING), &HEAD, builder);
        Top { norm, dropout: true, head: Some(Box::new(head)), ..Top::NONE }
    }

    fn frame_cost(&self, frame: &Frame, setting: &Setting) -> FrameCost {
        let norm = if frame.flag("final_norm") { norm::params_of(NormKind::LAYER, frame.d_model.into()) } else { 0 };
        FrameCost { norm, ..embedding::cost(frame, setting, true) }
    }

    fn context(&self, frame: &Frame, len: usize, dropout: Dropout) -> Context {
        let mut distances = distances(frame, frame.mem_len as usize + len);
        dropout.with(u64::MAX).apply(&mut distances);
        let mut context = Context::default();
        context.insert(Distances(distances));
        context
    }

    fn model_types(&self) -> &'static [&'static str] {
        &["transfo-xl"]
    }

    fn read_config(&self, reader: &mut ConfigReader<'_>) -> Result<()> {
        reader.layers("n_layer", 18)?;
        // Files of old versions have `tie_weight`.
        let tied = if reader.has("tie_word_embeddings") { "tie_word_embeddings" } else { "tie_weight" };
        reader.copy(&[
            ("vocab_size", "vocab", "267735"),
            ("cutoffs", "cutoffs", "20000,40000,200000"),
            ("d_model", "d_model", "1024"),
            ("d_embed", "d_embed", "1024"),
            ("n_head", "heads", "16"),
            ("d_head", "d_head", "64"),
            ("d_inner", "inner", "4096"),
            ("div_val", "div_val", "4"),
            ("mem_len", "mem_len", "1600"),
            ("same_length", "same_length", "true"),
            ("dropout", "dropout", "0.1"),
            ("dropatt", "attn_dropout", "0"),
            (tied, "tie_embeddings", "true"),
        ])?;
        reader.copy_if_set(&[("tgt_len", "tgt_len")])?;
        if reader.value("clamp_len").is_none_or(|clamp| clamp.as_f64().is_none_or(|clamp| clamp > 0.0)) {
            reader.copy(&[("clamp_len", "clamp_len", "1000")])?; // 0 and less: none
        }
        reader.only(&[("untie_r", json!(true)), ("attn_type", json!(0)), ("layer_norm_epsilon", json!(1e-5))])?;
        let norm = if reader.flag("pre_lnorm", false)? { NormPlace::Pre } else { NormPlace::Post };
        reader.set("norm", Value::Word(norm.name().into()));
        let (Some(&Value::Int(vocab)), Some(Value::Ints(cutoffs))) = (reader.get("vocab"), reader.get("cutoffs"))
        else {
            unreachable!("both were just set")
        };
        if cutoffs.iter().any(|&cutoff| cutoff >= vocab) {
            let expected = format!("numbers below vocab_size, which is {vocab}");
            return Err(Error::value("cutoffs", format!("{cutoffs:?}"), expected));
        }
        let tie_projs = tie_projs(reader, cutoffs.len())?;
        reader.set("tie_projs", Value::Flag(tie_projs));
        Ok(())
    }

    fn write_config(&self, model: &Model) -> Option<Json> {
        let frame = &model.frame;
        let layers = uniform(model)?;
        if frame.activation != Activation::Relu || frame.flag("final_norm") {
            return None;
        }
        Some(json!({
            "architectures": ["TransfoXLLMHeadModel"],
            "model_type": "transfo-xl",
            "vocab_size": frame.vocab,
            "cutoffs": frame.cutoffs,
            "d_model": frame.d_model,
            "d_embed": frame.d_embed,
            "n_layer": layers.count,
            "n_head": layers.heads,
            "d_head": layers.d_head,
            "d_inner": layers.inner,
            "div_val": frame.div_val,
            "pre_lnorm": frame.norm == NormPlace::Pre,
            "tgt_len": frame.tgt_len,
            "mem_len": frame.mem_len,
            "clamp_len": frame.clamp_len.map_or(-1, i64::from),
            "same_length": frame.same_length,
            "proj_share_all_but_first": frame.tie_projs,
            "tie_projs": projections(frame.tie_projs, frame.cutoffs.len()),
            "tie_word_embeddings": frame.tie_embeddings,
            "adaptive": true,
            "untie_r": true,
            "dropout": frame.dropout,
            "dropatt": frame.attn_dropout,
            "layer_norm_epsilon": 1e-5,
            "eos_token_id": null,
        }))
    }

    fn is_needless(&self, name: &str, frame: &Frame) -> bool {
        name == "transformer.pos_emb.inv_freq" || embedding::is_tied_again(name, frame)
    }
}

/// Whether output projections are shared with the embedding. Saved configurations have a list over the clusters, whose
/// first is never shared; `proj_share_all_but_first` makes that list where it is missing.
fn tie_projs(reader: &ConfigReader<'_>, cutoffs: usize) -> Result<bool> {
    let share = reader.flag("proj_share_all_but_first", true)?;
    let Some(list) = reader.value("tie_projs") else { return Ok(share) };
    let [same, other] = [share, !share].map(|shared| projections(shared, cutoffs));
    match list {
        list if *list == same => Ok(share),
        list if *list == other => Ok(!share),
        list => Err(Error::value("tie_projs", format!("`{list}`"), format!("{same} or {other}"))),
    }
}

/// Which output projections are the embedding's, as `transformers` writes it.
fn projections(shared: bool, cutoffs: usize) -> Json {
    [vec![false], vec![shared; cutoffs]].concat().into()
}

/// Sinusoids of distances, farthest first: row p stands for distance S - 1 - p, at most `clamp_len`.
fn distances(frame: &Frame, keys: usize) -> Buf {
    let d = frame.d_model as usize;
    let mut out = Buf::any(keys * d);
    let frequencies: Vec<f32> = (0..d / 2).map(|i| 1.0 / 10_000f32.powf(2.0 * i as f32 / d as f32)).collect();
    for (p, row) in out.chunks_exact_mut(d).enumerate() {
        let distance = frame.clamp_len.map_or(keys - 1 - p, |clamp| (keys - 1 - p).min(clamp as usize)) as f32;
        for (i, frequency) in frequencies.iter().enumerate() {
            row[i] = (distance * frequency).sin();
            row[d / 2 + i] = (distance * frequency).cos();
        }
    }
    out
}
