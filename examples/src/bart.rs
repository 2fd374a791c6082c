//! BART (Lewis et al., 2020): an encoder that sees its whole text, and a decoder that reads it while it writes, as
//! `(s f)x6 decoder (s cross f)x6`. Learned positions and a norm after the embedding in both, LayerNorm after each
//! block, one embedding for both and for the output. Folders of transformers load and save.

use candle_core::Tensor;
use lathe_core::model::{KeyKind, Value};
use lathe_core::{
    Activation, Backbone, DECODER, Defaults, ENCODER, Error, Frame, Model, NormPlace, OwnKey, Result, Role, Setting,
    TARGET,
};
use lathe_model::blocks::AttentionStyle;
use lathe_model::build::{BuildBackbone, DEVIATION, FrameCost, NetworkBuilder, Style};
use lathe_model::embedding::{self, Embedding, EmbeddingStyle, EmbeddingTable};
use lathe_model::folder::{ConfigReader, Json, json};
use lathe_model::head::{HeadStyle, TokenHead, Top};
use lathe_model::layer::{AsideGrads, Saved, Stream};
use lathe_model::norm::NormParams;
use lathe_model::params::{Builder, Grads, Init, ParamId};
use lathe_model::stem::{Stem, StemPass, TokenStem};
use lathe_model::{Graph, GraphStream, Input, Precision};
use lathe_ops::buffer::Buf;
use lathe_ops::norm::{Norm, NormKind};
use std::any::Any;

/// The backbone.
pub struct Bart;

const EMBEDDING: EmbeddingStyle =
    EmbeddingStyle { plain: Some("model.shared.weight"), prefix: "model.shared", scaled: false, projection: None };
const HEAD: HeadStyle =
    HeadStyle { plain_weight: "lm_head.weight", plain_bias: None, criterion: false, projection: None };
const NORM: NormKind = NormKind { norm: Norm::Layer, eps: 1e-5 };
/// The first rows of a table of positions, which stand for nothing.
const OFFSET: usize = 2;
const ACTIVATIONS: &[(&str, Activation)] =
    &[("gelu", Activation::Gelu), ("gelu_new", Activation::GeluTanh), ("relu", Activation::Relu)];

const KEYS: &[OwnKey] = &[
    OwnKey::new("src_len", KeyKind::Int(1, 1 << 20), None, "tokens that the encoder reads at the most [max_len]"),
    OwnKey::new("stack", KeyKind::Word, None, "encoder or decoder, of a block that is measured alone"),
];

impl Backbone for Bart {
    fn key(&self) -> &'static str {
        "bart"
    }

    fn about(&self) -> &'static str {
        "an encoder, and a decoder that reads it"
    }

    fn defaults(&self) -> Defaults {
        Defaults { norm: NormPlace::Post, activation: Activation::Gelu, max_len: 1024 }
    }

    fn own_keys(&self) -> &'static [OwnKey] {
        KEYS
    }

    fn source_len(&self, frame: &Frame) -> Option<u32> {
        Some(frame.int("src_len").unwrap_or(frame.max_len))
    }

    fn check(&self, frame: &Frame) -> Result<()> {
        match frame.int("src_len") {
            Some(len) if len > frame.max_len => {
                Err(Error::value("src_len", len, format!("at most max_len, which is {}", frame.max_len)))
            }
            _ => Ok(()),
        }
    }

    fn builder(&self) -> &'static dyn Any {
        &NetworkBuilder(&Self)
    }
}

/// The text of the encoder, with that of the decoder laid aside.
struct TwoTexts {
    encoder: TokenStem,
    decoder: TokenStem,
}

impl TwoTexts {
    /// What each of the two knows of a pass.
    fn passes<'a>(pass: &StemPass<'a>) -> [StemPass<'a>; 2] {
        let of = |position: usize, salt: u64| StemPass {
            position: position + OFFSET,
            dropout: pass.dropout.with(salt),
            ..*pass
        };
        [of(0, 1), of(pass.position, 2)]
    }
}

impl Stem for TwoTexts {
    fn forward(&self, pass: &StemPass<'_>, input: &Input<'_>) -> (Stream, Saved) {
        let [of_encoder, of_decoder] = Self::passes(pass);
        let source = input.source();
        let (mut x, encoder): (Stream, Option<Saved>) = match source.is_empty() {
            true => (Stream::new(Buf::default(), 0, 0, None), None), // it was read before
            false => {
                let (x, saved) = self.encoder.forward(&of_encoder, &source);
                (x, Some(saved))
            }
        };
        let (mut target, decoder) = self.decoder.forward(&of_decoder, input);
        (x.position, target.position) = (0, pass.position);
        (x.stack, target.stack) = (Some(ENCODER), Some(DECODER));
        x.aside.push((TARGET, target));
        (x, Box::new((encoder, decoder)))
    }

    fn backward(
        &self,
        pass: &StemPass<'_>,
        input: &Input<'_>,
        saved: Saved,
        (dx, aside): (Buf, &AsideGrads),
        grads: &mut Grads,
    ) {
        let [of_encoder, of_decoder] = Self::passes(pass);
        let (encoder, decoder) = *saved.downcast::<(Option<Saved>, Saved)>().expect("what this stem saved");
        if let Some(encoder) = encoder {
            self.encoder.backward(&of_encoder, &input.source(), encoder, (dx, aside), grads);
        }
        if let Some(dtarget) = aside.take(TARGET) {
            self.decoder.backward(&of_decoder, input, decoder, (dtarget, aside), grads);
        }
    }

    fn composed_embed(&self, graph: &Graph<'_>, ids: &[u32]) -> candle_core::Result<Tensor> {
        self.decoder.composed_embed(graph, ids)
    }

    fn composed_enter(&self, graph: &Graph<'_>, x: Tensor, input: &Input<'_>) -> candle_core::Result<GraphStream> {
        let beside = graph.beside(graph.len, input.mask, graph.position + OFFSET);
        let mut target = self.decoder.composed_enter(&beside, x, input)?;
        let source = input.source();
        let beside = graph.beside(source.len(), source.mask, OFFSET);
        let embedded = self.encoder.composed_embed(&beside, source.ids)?;
        let mut x = self.encoder.composed_enter(&beside, embedded, &source)?;
        (x.stack, target.stack) = (Some(ENCODER), Some(DECODER));
        x.aside.push((TARGET, target));
        Ok(x)
    }

    fn tables(&self) -> &[EmbeddingTable] {
        self.decoder.tables()
    }

    fn set_precision(&mut self, precision: Precision) {
        self.encoder.set_precision(precision);
        self.decoder.set_precision(precision);
    }

    fn reads(&self) -> Vec<ParamId> {
        [self.encoder.reads(), self.decoder.reads()].concat()
    }
}

impl BuildBackbone for Bart {
    fn layer_name(&self, frame: &Frame, number: usize) -> String {
        format!("model.{}.layers.{number}", frame.stack().unwrap_or(DECODER))
    }

    fn part_name(&self, _: &Frame, _: Role, part: &str) -> String {
        match part {
            "attn.norm" => "self_attn_layer_norm".into(),
            "cross.norm" => "encoder_attn_layer_norm".into(),
            "mlp.up" => "fc1".into(),
            "mlp.down" => "fc2".into(),
            "attn.out" => "self_attn.out_proj".into(),
            "cross.out" => "encoder_attn.out_proj".into(),
            part => match part.split_once('.') {
                Some(("attn", matrix)) => format!("self_attn.{matrix}_proj"),
                Some(("cross", matrix)) => format!("encoder_attn.{matrix}_proj"),
                Some((_, "norm")) => "final_layer_norm".into(),
                _ => part.into(),
            },
        }
    }

    fn style(&self, _: &Frame, _: usize) -> Style {
        Style::linear(NORM)
    }

    fn attention(&self, frame: &Frame) -> AttentionStyle {
        AttentionStyle::dot(frame.stack() != Some(ENCODER))
    }

    fn stem(&self, frame: &Frame, builder: &mut Builder) -> Result<Box<dyn Stem>> {
        let (d, embedding) = (frame.d_model as usize, Embedding::new(frame, &EMBEDDING, builder));
        let [encoder, decoder] = [ENCODER, DECODER].map(|stack| {
            let (positions, norm) =
                (format!("model.{stack}.embed_positions.weight"), format!("model.{stack}.layernorm_embedding"));
            let shape = [frame.max_len as usize + OFFSET, d];
            TokenStem {
                positions: Some(builder.param(positions, &shape, Init::Normal(0.0, DEVIATION))),
                norm: Some(NormParams::new(builder, &norm, NORM, d, 0.0)),
                ..TokenStem::new(embedding.clone())
            }
        });
        Ok(Box::new(TwoTexts { encoder, decoder }))
    }

    fn top(&self, frame: &Frame, stem: &dyn Stem, builder: &mut Builder) -> Top {
        let head = TokenHead::new(frame, (stem.tables(), &EMBEDDING), &HEAD, builder);
        Top { head: Some(Box::new(head)), ..Top::NONE }
    }

    fn frame_cost(&self, frame: &Frame, setting: &Setting) -> FrameCost {
        let d = u64::from(frame.d_model);
        let mut cost = embedding::cost(frame, setting, false);
        cost.position = 2 * (u64::from(frame.max_len) + OFFSET as u64) * d;
        cost.params += cost.position + 4 * d;
        cost
    }

    fn model_types(&self) -> &'static [&'static str] {
        &["bart"]
    }

    fn read_config(&self, reader: &mut ConfigReader<'_>) -> Result<()> {
        reader.copy(&[
            ("vocab_size", "vocab", "50265"),
            ("d_model", "d_model", "1024"),
            ("encoder_ffn_dim", "inner", "4096"),
            ("encoder_attention_heads", "heads", "16"),
            ("max_position_embeddings", "max_len", "1024"),
            ("dropout", "dropout", "0.1"),
            ("attention_dropout", "attn_dropout", "0.0"),
        ])?;
        let same = |theirs: &str, default: u32| reader.value(theirs).cloned().unwrap_or(json!(default));
        let (heads, inner) = (same("encoder_attention_heads", 16), same("encoder_ffn_dim", 4096));
        reader.only(&[
            ("decoder_attention_heads", heads),
            ("decoder_ffn_dim", inner),
            ("scale_embedding", json!(false)),
            ("tie_word_embeddings", json!(true)),
        ])?;
        reader.activation("activation_function", "gelu", ACTIVATIONS)?;
        let layers = |theirs: &str| match reader.value(theirs).map_or(Some(12), Json::as_u64) {
            Some(layers @ 1..=1000) => Ok(layers),
            _ => Err(Error::value(theirs, format!("{:?}", reader.value(theirs)), "a whole number from 1 to 1000")),
        };
        let layers = format!("(s f)x{} decoder (s cross f)x{}", layers("encoder_layers")?, layers("decoder_layers")?);
        reader.set("layers", Value::Word(layers));
        Ok(())
    }

    fn write_config(&self, model: &Model) -> Option<Json> {
        let (frame, blocks) = (&model.frame, &model.blocks);
        let end = blocks.iter().position(|block| block.kind.key() == "decoder")?;
        let (encoder, decoder) = (end / 2, (blocks.len() - end - 1) / 3);
        let resolved = |spec: &str| -> Option<Vec<lathe_core::Block>> {
            let blocks = lathe_core::notation::parse(spec, &crate::REGISTRY).ok()?;
            Some(blocks.iter().map(|block| block.kind.resolve(block, frame)).collect())
        };
        let uniform = resolved(&format!("(s f)x{encoder} decoder (s cross f)x{decoder}"))?;
        let (activation, _) = ACTIVATIONS.iter().find(|(_, known)| *known == frame.activation)?;
        let plain = frame.norm == NormPlace::Post && frame.tie_embeddings && frame.d_head.is_none();
        if !plain || resolved(&model.layers())? != uniform {
            return None;
        }
        Some(json!({
            "architectures": ["BartForConditionalGeneration"],
            "model_type": "bart",
            "vocab_size": frame.vocab,
            "d_model": frame.d_model,
            "encoder_layers": encoder,
            "decoder_layers": decoder,
            "encoder_attention_heads": frame.heads,
            "decoder_attention_heads": frame.heads,
            "encoder_ffn_dim": frame.inner,
            "decoder_ffn_dim": frame.inner,
            "activation_function": activation,
            "max_position_embeddings": frame.max_len,
            "dropout": frame.dropout,
            "attention_dropout": frame.attn_dropout,
            "activation_dropout": 0.0,
            "scale_embedding": false,
            "tie_word_embeddings": true,
        }))
    }

    /// The embedding under its other names, and a bias of zeros.
    fn is_needless(&self, name: &str, _: &Frame) -> bool {
        name == "final_logits_bias" || name == "lm_head.weight" || name.ends_with(".embed_tokens.weight")
    }
}
