//! Attention to another stream, in the backbone's usual residual connection: y = x + softmax(q k / sqrt(K)) v Wo with
//! q = x Wq, k = m Wk and v = m Wv, m what was laid aside as the source.
//!
//! - `keep` lays the hidden states aside, and any number of `cross{heads=2}` above it read them, as in a
//!   decoder-decoder (Sun et al., 2024, "You Only Cache Once").
//! - `decoder` ends the encoder of an encoder-decoder: it lays the hidden states aside, and goes on with the other text.
//!   In decoding, keys and values of the source are computed once.
//!
//! | parameters of `cross` | FLOPs of one sequence |
//! |---|---|
//! | 4 D A, biases 3 A and D | 4 T D A + 4 S D A + 4 T S A |

use candle_core::Tensor;
use lathe_core::{Block, BlockKind, Cost, DECODER, Domain, Error, Frame, Knob, Result, Role, Setting, Shape, TARGET};
use lathe_model::blocks::AttentionStyle;
use lathe_model::build::{self, BuildBlock, LayerBuilder, Site};
use lathe_model::layer::{Cache, Layer, LayerState, OwnState, Pass, Saved, Stream, Sublayer};
use lathe_model::linear::{Linear, Matrix};
use lathe_model::norm;
use lathe_model::params::{Builder, Grads};
use lathe_model::{Graph, GraphStream, Precision};
use lathe_ops::attention::{self, ComposedPositions, Gradients, Inputs, KeptAs, Mask, Rows};
use lathe_ops::buffer::Buf;
use lathe_ops::gemm::{Mat, MatMut};
use lathe_ops::linear;
use std::any::Any;
use std::sync::Arc;

/// Lays the hidden states aside, and passes them on.
pub struct Keep;

/// Lays the hidden states aside, and goes on with the other text.
pub struct Decoder;

/// Attends to them.
pub struct Cross;

/// What is laid aside.
const SOURCE: &str = "source";
const HEADS: usize = 0;
const ROLE: Role = Role::MixesTokens;

fn heads(block: &Block, frame: &Frame) -> u32 {
    block.get(HEADS).unwrap_or(frame.heads)
}

/// K
fn d_head(block: &Block, frame: &Frame) -> u32 {
    frame.d_head.unwrap_or(frame.d_model / heads(block, frame)).max(1)
}

fn check(frame: &Frame) -> Result<()> {
    match frame.has_memory() {
        true => Err(Error::value("backbone", frame.backbone.key(), "one without a memory of earlier segments")),
        false => Ok(()),
    }
}

/// A block that has neither knobs nor weights and makes no sense without others.
macro_rules! plain_block {
    ($name:ident, $key:literal, $layer:expr, $reshape:expr) => {
        impl BlockKind for $name {
            fn key(&self) -> &'static str {
                $key
            }

            fn letter(&self) -> Option<char> {
                None
            }

            fn knobs(&self) -> &'static [Knob] {
                &[]
            }

            fn resolve(&self, block: &Block, _: &Frame) -> Block {
                *block
            }

            fn check(&self, _: &Block, frame: &Frame) -> Result<()> {
                check(frame)
            }

            fn cost(&self, _: &Block, _: &Frame, _: &Setting) -> Cost {
                Cost::default()
            }

            fn role(&self) -> Role {
                Role::Identity
            }

            fn variants(&self, _: &Frame) -> Vec<Block> {
                Vec::new()
            }

            fn reshape(&self, _: &Block, shape: Shape) -> Result<Shape> {
                $reshape(shape)
            }

            fn builder(&self) -> &'static dyn Any {
                &LayerBuilder(&Self)
            }
        }

        impl BuildBlock for $name {
            fn build(&self, _: &Block, _: &Frame, _: &Site<'_>, _: &mut Builder) -> Option<Box<dyn Layer>> {
                Some(Box::new($layer))
            }
        }
    };
}

plain_block!(Keep, "keep", KeepLayer, |mut shape: Shape| {
    shape.lay_aside(SOURCE);
    Ok(shape)
});

plain_block!(Decoder, "decoder", DecoderLayer, |mut shape: Shape| {
    let Some((width, len)) = shape.take(TARGET) else {
        return Err(Error::value("decoder", "no second text", "an encoder-decoder, and one decoder in it"));
    };
    if width != shape.width {
        return Err(Error::value("decoder", format!("an encoder of width {}", shape.width), width.to_string()));
    }
    shape.lay_aside(SOURCE);
    (shape.stack, shape.len) = (Some(DECODER), len);
    Ok(shape)
});

impl Cross {
    /// Whether it attends to an encoder, and not to tokens before its own.
    fn reads_encoder(frame: &Frame) -> bool {
        frame.stack() == Some(DECODER)
    }

    fn style(frame: &Frame) -> AttentionStyle {
        build::of_backbone(frame.backbone).attention(frame)
    }
}

impl BlockKind for Cross {
    fn key(&self) -> &'static str {
        "cross"
    }

    fn letter(&self) -> Option<char> {
        None
    }

    fn knobs(&self) -> &'static [Knob] {
        &[Knob { name: "heads", mark: None, domain: Domain::Int { min: 1, max: 1024 } }]
    }

    fn resolve(&self, block: &Block, frame: &Frame) -> Block {
        let mut block = *block;
        block.set(HEADS, heads(&block, frame));
        block
    }

    fn check(&self, _: &Block, frame: &Frame) -> Result<()> {
        check(frame)
    }

    fn cost(&self, block: &Block, frame: &Frame, setting: &Setting) -> Cost {
        let (d, a) = (u64::from(frame.d_model), u64::from(heads(block, frame)) * u64::from(d_head(block, frame)));
        let (b, t, wide_d, wide_a) =
            (u128::from(setting.batch), u128::from(setting.tgt_len), u128::from(d), u128::from(a));
        let source = frame.source_len().filter(|_| Self::reads_encoder(frame));
        let s = source.map_or(t, u128::from);
        let style = Self::style(frame);
        let biases = if style.qkv_bias { 3 * a } else { 0 } + if style.out_bias { d } else { 0 };
        Cost {
            params: 4 * d * a + biases,
            norm_params: norm::params_of(build::of_backbone(frame.backbone).style(frame, 1).norm, d),
            flops: b * 4 * ((t + s) * wide_d * wide_a + t * s * wide_a),
            activation_bytes: b
                * 4
                * (t * 2 * wide_a + 2 * s * wide_a + u128::from(heads(block, frame)) * t * s + 2 * t * wide_d),
            state_bytes: 8 * wide_a * source.map_or(frame.max_len.into(), u128::from),
        }
    }

    fn role(&self) -> Role {
        ROLE
    }

    /// A layer of a decoder is attention, attention to the encoder and a feed-forward.
    fn begins_layer(&self) -> bool {
        false
    }

    fn reads(&self) -> &'static [&'static str] {
        &[SOURCE]
    }

    fn variants(&self, _: &Frame) -> Vec<Block> {
        Vec::new()
    }

    fn reshape(&self, _: &Block, shape: Shape) -> Result<Shape> {
        match shape.see(SOURCE) {
            Some((width, _)) if shape.stack == Some(DECODER) && width == shape.width => Ok(shape),
            Some(kept) if kept == (shape.width, shape.len) => Ok(shape),
            Some((width, len)) => {
                let found = format!("{len} tokens of width {width} that were kept");
                Err(Error::value("cross", found, format!("{} of width {}", shape.len, shape.width)))
            }
            None => Err(Error::value("cross", "no keep below", "one, whose tokens it attends to")),
        }
    }

    fn builder(&self) -> &'static dyn Any {
        &LayerBuilder(&Self)
    }
}

impl BuildBlock for Cross {
    fn build(&self, block: &Block, frame: &Frame, site: &Site<'_>, builder: &mut Builder) -> Option<Box<dyn Layer>> {
        let (d, heads, d_head) = (frame.d_model as usize, heads(block, frame) as usize, d_head(block, frame) as usize);
        let (a, style) = (heads * d_head, site.attention());
        let norm = site.norm(builder, ROLE, "cross.norm");
        let mut linear =
            |part: &str, sizes, deviation, bias| site.linear(builder, &site.name(ROLE, part), sizes, deviation, bias);
        let q = linear("cross.q", [d, a], site.style.deviation, style.qkv_bias);
        let kv = ["cross.k", "cross.v"].map(|part| linear(part, [d, a], site.style.deviation, style.qkv_bias));
        let out = linear("cross.out", [a, d], site.style.output_deviation, style.out_bias);
        let mask = match Self::reads_encoder(frame) || !frame.backbone.causal() {
            true => Mask::Full,
            false => Mask::Causal,
        };
        let (max_len, salt, precision) = (frame.max_len as usize, site.salt(1), Precision::F32);
        site.residual(CrossAttention { q, kv, out, heads, d_head, mask, max_len, salt, precision }, norm)
    }
}

struct KeepLayer;

impl Layer for KeepLayer {
    fn forward(&self, _: &Pass<'_>, x: &Stream, _: Option<&Arc<Buf>>, _: &mut LayerState) -> (Stream, Saved) {
        let mut y = x.clone();
        y.aside.push((SOURCE, Stream { aside: Vec::new(), ..x.clone() }));
        (y, Box::new(()))
    }

    fn backward(&self, pass: &Pass<'_>, _: Saved, mut dy: Buf, _: &mut Grads) -> Buf {
        pass.aside_grads.take(SOURCE).iter().for_each(|kept| linear::add(&mut dy, kept));
        dy
    }

    fn composed(&self, _: &Graph<'_>, x: &GraphStream, _: &mut Option<Tensor>) -> candle_core::Result<GraphStream> {
        let mut y = x.clone();
        y.aside.push((SOURCE, GraphStream { aside: Vec::new(), ..x.clone() }));
        Ok(y)
    }

    fn matrices(&mut self) -> Vec<&mut Matrix> {
        Vec::new()
    }

    fn set_precision(&mut self, _: Precision) {}
}

struct DecoderLayer;

impl Layer for DecoderLayer {
    fn forward(&self, _: &Pass<'_>, x: &Stream, _: Option<&Arc<Buf>>, _: &mut LayerState) -> (Stream, Saved) {
        let mut source = x.clone();
        let Some(mut y) = source.take(TARGET) else {
            return (source, Box::new(None::<usize>)); // a block that is measured by itself
        };
        y.aside = std::mem::take(&mut source.aside);
        let numbers = source.hidden.len();
        y.aside.push((SOURCE, source));
        (y, Box::new(Some(numbers)))
    }

    fn backward(&self, pass: &Pass<'_>, saved: Saved, dy: Buf, _: &mut Grads) -> Buf {
        let Some(numbers) = *saved.downcast::<Option<usize>>().expect("what this layer saved") else { return dy };
        let source = pass.aside_grads.take(SOURCE).unwrap_or_else(|| Buf::zeros(numbers));
        pass.aside_grads.lay(TARGET, dy);
        source
    }

    fn composed(&self, _: &Graph<'_>, x: &GraphStream, _: &mut Option<Tensor>) -> candle_core::Result<GraphStream> {
        let mut source = x.clone();
        let Some(mut y) = source.take(TARGET) else { return Ok(source) };
        y.aside = std::mem::take(&mut source.aside);
        y.aside.push((SOURCE, source));
        Ok(y)
    }

    fn matrices(&mut self) -> Vec<&mut Matrix> {
        Vec::new()
    }

    fn set_precision(&mut self, _: Precision) {}
}

/// Keys and values [B, S, 2 A] of an encoder, once they are known, and which of the tokens are real.
#[derive(Debug, Clone, Default)]
struct Projected {
    kv: Arc<Buf>,
    mask: Option<Arc<Vec<bool>>>,
}

impl OwnState for Projected {
    fn boxed(&self) -> Box<dyn OwnState> {
        Box::new(self.clone())
    }
}

struct CrossAttention {
    q: Linear,
    /// Of keys and of values.
    kv: [Linear; 2],
    out: Linear,
    heads: usize,
    d_head: usize,
    mask: Mask,
    max_len: usize,
    salt: u64,
    precision: Precision,
}

/// What the way back needs.
struct Kept {
    /// What was laid aside, where there was anything.
    m: Option<Stream>,
    q: Buf,
    kv: Arc<Buf>,
    mask: Option<Arc<Vec<bool>>>,
    probabilities: Buf,
    context: Buf,
}

impl CrossAttention {
    fn a(&self) -> usize {
        self.heads * self.d_head
    }

    fn shape(&self, pass: &Pass<'_>, keys: usize) -> attention::Shape {
        attention::Shape {
            batch: pass.batch,
            queries: pass.len,
            keys,
            heads: self.heads,
            kv_heads: self.heads,
            d_head: self.d_head,
            mask: self.mask,
            dropout: pass.dropout[1].with(self.salt),
            precision: self.precision,
        }
    }

    /// Keys and values [B, S, 2 A] stand side by side.
    fn inputs<'a>(&self, pass: &Pass<'_>, q: &'a [f32], kv: &'a [f32], padding: Option<&'a [bool]>) -> Inputs<'a> {
        let (a, keys) = (self.a(), kv.len() / (2 * self.a() * pass.batch));
        let rows = |col: usize| Rows { data: &kv[col..], stride: 2 * a, batch_stride: 2 * a * keys };
        let q = Rows { data: q, stride: a, batch_stride: a * pass.len };
        Inputs { q, k: rows(0), v: rows(a), relative: None, distances: None, padding, lengths: None }
    }

    /// Keys and values of hidden states [N, D].
    fn project(&self, pass: &Pass<'_>, hidden: &[f32]) -> Buf {
        let a = self.a();
        let rows = hidden.len() / self.q.inputs();
        let mut kv = Buf::any(rows * 2 * a);
        if rows > 0 {
            let columns = MatMut::new(&mut kv, rows, 2 * a).split(&[rows], &[a, 2 * a]);
            let x = Mat::new(hidden, rows, self.q.inputs());
            Linear::forward_parts(&self.kv, pass.params, x, columns.into_iter().map(|(.., y)| y).collect());
        }
        kv
    }
}

impl Sublayer for CrossAttention {
    fn forward(&self, pass: &Pass<'_>, input: &[f32], state: &mut LayerState) -> (Buf, Saved) {
        let a = self.a();
        let m = pass.see(SOURCE); // trained or measured by itself, a block may attend to its own input
        let mut q = Buf::any(pass.rows() * a);
        self.q.forward(pass.params, input, &mut q);
        let hidden = m.map_or(input, |m| &m.hidden[..]);
        let (kv, mask) = match state.own::<Projected>() {
            Some(known) => {
                if known.kv.is_empty() {
                    let mask = m.and_then(|m| m.mask.clone());
                    *known = Projected { kv: Arc::new(self.project(pass, hidden)), mask };
                }
                (known.kv.clone(), known.mask.clone())
            }
            None => {
                let mask = m.map_or_else(|| pass.mask.map(|mask| Arc::new(mask.to_vec())), |m| m.mask.clone());
                (Arc::new(self.project(pass, hidden)), mask)
            }
        };
        let keys = kv.len() / (2 * a * pass.batch);
        let mut context = Buf::zeros(q.len());
        let mut probabilities = if pass.keep { Buf::any(self.heads * pass.rows() * keys) } else { Buf::default() };
        if keys > 0 {
            let inputs = self.inputs(pass, &q, &kv, mask.as_deref().map(Vec::as_slice));
            match state {
                LayerState::Cache(cache) => {
                    let first = cache.append(pass.batch, 2 * a, &kv, 2 * a, 0);
                    let kept = cache.keys_and_values(first, a);
                    attention::forward_kept(&self.shape(pass, cache.len), inputs.q, &kept, &mut context);
                }
                _ => {
                    let probabilities = (!probabilities.is_empty()).then_some(&mut *probabilities);
                    attention::forward(&self.shape(pass, keys), &inputs, &mut context, probabilities);
                }
            }
        }
        let mut y = Buf::any(input.len());
        self.out.forward(pass.params, &context, &mut y);
        (y, Box::new(Kept { m: m.cloned(), q, kv, mask, probabilities, context }))
    }

    fn backward(&self, pass: &Pass<'_>, input: &[f32], saved: Saved, dout: &[f32], grads: &mut Grads) -> Buf {
        let Kept { m, q, kv, mask, probabilities, context } = *saved.downcast().expect("what this layer saved");
        let (a, d) = (self.a(), self.q.inputs());
        let keys = kv.len() / (2 * a * pass.batch);
        let mut dcontext = Buf::any(context.len());
        self.out.backward_input(pass.params, dout, &mut dcontext, false);
        self.out.backward_params(&context, dout, grads);
        let mut dinput = Buf::zeros(input.len());
        if keys == 0 {
            return dinput; // there was nothing to attend to
        }
        let (mut dq, mut dkv, rows) = (Buf::any(q.len()), Buf::any(kv.len()), pass.batch * keys);
        let parts = MatMut::new(&mut dkv, rows, 2 * a).split(&[rows], &[a, 2 * a]);
        let [dk, dv] = <[_; 2]>::try_from(parts).unwrap_or_else(|_| unreachable!("two parts")).map(|(.., part)| part);
        let gradients = Gradients { dq: MatMut::new(&mut dq, pass.rows(), a), dk, dv, relative: None, distances: None };
        let inputs = self.inputs(pass, &q, &kv, mask.as_deref().map(Vec::as_slice));
        attention::backward(&self.shape(pass, keys), &inputs, &probabilities, &dcontext, gradients);
        self.q.backward_input(pass.params, &dq, &mut dinput, true);
        self.q.backward_params(input, &dq, grads);
        let (hidden, all) = (m.as_ref().map_or(input, |m| &m.hidden[..]), Mat::new(&dkv, rows, 2 * a));
        let mut dm = Buf::zeros(hidden.len());
        for (i, linear) in self.kv.iter().enumerate() {
            let dy = all.cols_from(i * a, a);
            linear.backward_input_from(pass.params, dy, &mut dm, true);
            linear.backward_params_from(Mat::new(hidden, rows, d), dy, grads);
        }
        match m {
            Some(_) => pass.aside_grads.add(SOURCE, dm),
            None => linear::add(&mut dinput, &dm),
        }
        dinput
    }

    fn composed(&self, graph: &Graph<'_>, input: &Tensor) -> candle_core::Result<Tensor> {
        let (a, m) = (self.a(), graph.see(SOURCE));
        let (hidden, keys) = m.map_or((input, graph.len), |m| (&m.hidden, m.len));
        let rows = |linear: &Linear, x: &Tensor, len: usize| linear.composed(graph, x)?.reshape((graph.batch, len, a));
        let q = rows(&self.q, input, graph.len)?;
        let (k, v) = (rows(&self.kv[0], hidden, keys)?, rows(&self.kv[1], hidden, keys)?);
        let mask = m.map_or(&graph.mask, |m| &m.mask).as_deref();
        let context =
            attention::composed(self.heads, self.heads, self.mask, mask, [&q, &k, &v], ComposedPositions::None)?;
        self.out.composed(graph, &context.reshape(((), a))?)
    }

    fn matrices(&mut self) -> Vec<&mut Matrix> {
        let [k, v] = &mut self.kv;
        [&mut self.q, k, v, &mut self.out].map(|linear| &mut linear.matrix).into()
    }

    fn set_precision(&mut self, precision: Precision) {
        self.precision = precision;
        self.matrices().into_iter().for_each(|matrix| matrix.set_precision(precision));
    }

    fn init_cache(&self, pass: &Pass<'_>, _: &[f32]) -> LayerState {
        match self.mask {
            Mask::Causal => {
                let sizes = (2 * self.a(), self.d_head);
                LayerState::Cache(Cache::new(pass.batch, sizes, self.max_len, self.max_len, KeptAs::F32))
            }
            _ => LayerState::Own(Box::new(Projected::default())),
        }
    }
}
