//! A whole layer that is narrower than the model (Sun et al., 2020, "MobileBERT"), `bottleneck`: between two matrices, attention and
//! several feed-forwards, with a norm after each.
//!
//! - h = norm(A x + a), s = norm(B x + b)
//! - f_0 = norm(attention of queries and keys of s, values of x, + h)
//! - f_i = norm(D_i act(U_i f_{i-1} + u_i) + d_i + f_{i-1})
//! - y = norm(C f_n + c + x)
//!
//! With `narrow`, queries, keys and values are of h, and there is no s, as in MobileBERT_TINY. It sees the whole text, so that only
//! encoders have it, and its norms are after what they norm.
//!
//! With W = `width`, F = `inner` and n = `ffns`:
//!
//! | parameters without norms | FLOPs of one sequence |
//! |---|---|
//! | 3 (D W + W) + 3 (W W + W) + n (2 W F + F + W) + W D + D | 2 T of its matrices + 2 * 2 T T W |
//! | `narrow`: (D W + W) + 4 (W W + W) + n (2 W F + F + W) + W D + D | the same |

use super::{BYTES, ffn};
use crate::blocks::Scores;
use crate::build::{self, BuildBlock, LayerBuilder, Site};
use crate::composed::{Graph, GraphStream};
use crate::layer::{Layer, LayerState, Pass, Saved, Stream};
use crate::linear::{Linear, Matrix};
use crate::norm::{self, NormParams};
use crate::onnx::OnnxPass;
use crate::params::{Builder, Grads, Params};
use crate::taps::AttentionMap;
use crate::unpadded::Unpadded;
use candle_core::Tensor;
use lathe_core::{
    Block, BlockKind, Cost, Domain, Error, Frame, Knob, MAX_INNER, MAX_WIDTH, NormPlace, Result, Role, Setting,
};
use lathe_onnx::Value;
use lathe_ops::Precision;
use lathe_ops::activation::{self, Act};
use lathe_ops::attention::{self, ComposedPositions, Gradients, Inputs, Mask, Rows, Shape};
use lathe_ops::buffer::Buf;
use lathe_ops::dropout::Dropout;
use lathe_ops::gemm::{Mat, MatMut};
use lathe_ops::linear::add;
use lathe_ops::norm::{Norm, NormKind};
use std::any::Any;
use std::sync::Arc;

/// The kind of block.
pub struct Bottleneck;

const WIDTH: usize = 0;
const HEADS: usize = 1;
const INNER: usize = 2;
const FFNS: usize = 3;
const NARROW: usize = 4;
const ROLE: Role = Role::MixesTokens;
/// Feed-forwards of a block that does not say, as in MobileBERT.
const USUAL: u32 = 4;

/// The sizes of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// W
    pub width: u32,
    /// H, which together are as wide as the block.
    pub heads: u32,
    /// F
    pub inner: u32,
    /// How many feed-forwards.
    pub ffns: u32,
    /// Whether queries, keys and values are of the narrow states.
    pub narrow: bool,
}

impl Sizes {
    fn resolved(block: &Block, frame: &Frame) -> Self {
        Self {
            width: block.get(WIDTH).unwrap_or((frame.d_model / 4).max(1)),
            heads: block.get(HEADS).unwrap_or(frame.heads),
            inner: block.get(INNER).unwrap_or(frame.inner),
            ffns: block.get(FFNS).unwrap_or(USUAL),
            narrow: block.get(NARROW) == Some(1),
        }
    }

    /// Of a block, if it is one of this kind.
    pub fn of(block: &Block, frame: &Frame) -> Option<Self> {
        (block.kind.key() == Bottleneck.key()).then(|| Self::resolved(block, frame))
    }

    /// The block in the notation.
    pub fn notation(&self) -> String {
        let Self { width, heads, inner, ffns, narrow } = self;
        format!("{}{{width={width},heads={heads},inner={inner},ffns={ffns},narrow={narrow}}}", Bottleneck.key())
    }

    /// Products with matrices in a token's pass, multiply-adds; the norms' widths; and the biases.
    fn counted(&self, d: u64) -> (u64, u64, u64) {
        let (w, f, n) = (u64::from(self.width), u64::from(self.inner), u64::from(self.ffns));
        let into = if self.narrow { 1 } else { 2 };
        let of_values = if self.narrow { w } else { d };
        let products = into * d * w + 3 * w * w + of_values * w + n * 2 * w * f + w * d;
        (products, (into + 1 + n) * w + d, into * w + 4 * w + n * (f + w) + d)
    }
}

impl BlockKind for Bottleneck {
    fn key(&self) -> &'static str {
        "bottleneck"
    }

    fn letter(&self) -> Option<char> {
        None
    }

    fn knobs(&self) -> &'static [Knob] {
        const WIDE: Domain = Domain::Int { min: 1, max: MAX_WIDTH };
        &[
            Knob { name: "width", mark: None, domain: WIDE },
            Knob { name: "heads", mark: None, domain: WIDE },
            Knob { name: "inner", mark: None, domain: Domain::Int { min: 1, max: MAX_INNER } },
            Knob { name: "ffns", mark: None, domain: Domain::Int { min: 1, max: 64 } },
            Knob { name: "narrow", mark: None, domain: Domain::Flag },
        ]
    }

    fn resolve(&self, block: &Block, frame: &Frame) -> Block {
        let Sizes { width, heads, inner, ffns, narrow } = Sizes::resolved(block, frame);
        let mut resolved = Block::new(block.kind);
        let values = [(WIDTH, width), (HEADS, heads), (INNER, inner), (FFNS, ffns), (NARROW, narrow.into())];
        values.into_iter().for_each(|(knob, value)| resolved.set(knob, value));
        resolved
    }

    fn check(&self, block: &Block, frame: &Frame) -> Result<()> {
        let style = build::of_backbone(frame.backbone).attention(frame);
        let sees_all = matches!(style.scores, Scores::Dot { causal: false, rotary: None });
        if !sees_all || style.buckets.is_some() || frame.norm != NormPlace::Post {
            let found = format!("backbone {}, norm {}", frame.backbone.key(), frame.norm.name());
            return Err(Error::value(self.key(), found, "an encoder with plain scores and norm post"));
        }
        let Sizes { width, heads, .. } = Sizes::resolved(block, frame);
        if !width.is_multiple_of(heads) {
            return Err(Error::value("heads", heads, format!("a divisor of width, which is {width}")));
        }
        Ok(())
    }

    fn cost(&self, block: &Block, frame: &Frame, setting: &Setting) -> Cost {
        let sizes = Sizes::resolved(block, frame);
        let (products, norms, biases) = sizes.counted(frame.d_model.into());
        let kind = build::of_backbone(frame.backbone).style(frame, 1).norm;
        let (t, w, f) = (u128::from(setting.tgt_len), u128::from(sizes.width), u128::from(sizes.inner));
        let (n, d, h) = (u128::from(sizes.ffns), u128::from(frame.d_model), u128::from(sizes.heads));
        // What leaves each matrix and each norm, probabilities and context.
        let floats = t * (5 * w + n * (f + 2 * w) + 2 * d + if sizes.narrow { 2 * w } else { 4 * w }) + h * t * t;
        Cost {
            params: products + biases,
            norm_params: norm::params_of(kind, norms),
            flops: u128::from(setting.batch) * 2 * (t * u128::from(products) + 2 * t * t * w),
            activation_bytes: u128::from(setting.batch) * BYTES * floats,
            state_bytes: 0,
        }
    }

    fn role(&self) -> Role {
        ROLE
    }

    /// Its feed-forwards are the layer's.
    fn ends_layer(&self) -> bool {
        true
    }

    /// A quarter and half of the model's width.
    fn variants(&self, frame: &Frame) -> Vec<Block> {
        let of = |width: u32| {
            let mut block = Block::new(&Self);
            block.set(WIDTH, width);
            block
        };
        let widths = [frame.d_model / 4, frame.d_model / 2].into_iter().filter(|&width| width > 0);
        widths.map(of).filter(|block| self.check(block, frame).is_ok()).collect()
    }

    fn builder(&self) -> &'static dyn Any {
        &LayerBuilder(&Self)
    }
}

impl BuildBlock for Bottleneck {
    fn build(&self, block: &Block, frame: &Frame, site: &Site<'_>, builder: &mut Builder) -> Option<Box<dyn Layer>> {
        let sizes = Sizes::resolved(block, frame);
        let (d, w, f) = (frame.d_model as usize, sizes.width as usize, sizes.inner as usize);
        let style = site.style;
        let linear = |builder: &mut Builder, role: Role, part: &str, from: usize, to: usize| {
            site.linear(builder, &site.name(role, part), [from, to], style.deviation, true)
        };
        let norm = |builder: &mut Builder, role: Role, part: &str, width: usize| {
            NormParams::new(builder, &site.name(role, part), style.norm, width, style.norm_deviation)
        };
        let normed = |builder: &mut Builder, part: &str, from: usize, to: usize| Normed {
            linear: linear(builder, ROLE, part, from, to),
            norm: norm(builder, ROLE, &format!("{part}_norm"), to),
        };
        let input = normed(builder, "bottleneck.input", d, w);
        let shared = (!sizes.narrow).then(|| normed(builder, "bottleneck.shared", d, w));
        let of_values = if sizes.narrow { w } else { d };
        let qkv = [("attn.q", w), ("attn.k", w), ("attn.v", of_values)]
            .map(|(part, from)| linear(builder, ROLE, part, from, w));
        let out = Normed { linear: linear(builder, ROLE, "attn.out", w, w), norm: norm(builder, ROLE, "attn.norm", w) };
        // The last has the names of the only one of other blocks.
        let ffn = |i: u32| {
            let (prefix, of_norm) = match i + 1 == sizes.ffns {
                true => ("mlp".into(), "mlp.norm".into()),
                false => (format!("mlp{i}"), format!("mlp{i}_norm")),
            };
            Ffn {
                up: linear(builder, Role::PerToken, &format!("{prefix}.up"), w, f),
                down: linear(builder, Role::PerToken, &format!("{prefix}.down"), f, w),
                norm: {
                    // transformers builds that of the last with PyTorch's own eps.
                    let last = i + 1 == sizes.ffns && matches!(style.norm.norm, Norm::Layer);
                    let kind = if last { NormKind::LAYER } else { style.norm };
                    NormParams::new(builder, &site.name(Role::PerToken, &of_norm), kind, w, style.norm_deviation)
                },
            }
        };
        let ffns: Vec<Ffn> = (0..sizes.ffns).map(ffn).collect();
        let output = normed(builder, "bottleneck.output", w, d);
        Some(Box::new(BottleneckLayer {
            input,
            shared,
            qkv,
            out,
            ffns,
            output,
            act: ffn::act(frame.activation),
            heads: sizes.heads as usize,
            salts: [site.salt(0), site.salt(2)],
            precision: Precision::F32,
        }))
    }
}

/// A matrix, and a norm of what it gives and of what is added to that.
struct Normed {
    linear: Linear,
    norm: NormParams,
}

/// What the way back through [`Normed`] needs.
struct NormedSaved {
    sum: Buf,
    stats: Buf,
}

impl Normed {
    /// norm(W x + b + residual).
    fn forward(&self, params: &Params, x: &[f32], residual: Option<&[f32]>, dropout: Dropout) -> (Buf, NormedSaved) {
        let mut sum = Buf::any(x.len() / self.linear.inputs() * self.linear.outputs());
        self.linear.forward(params, x, &mut sum);
        dropout.apply(&mut sum);
        if let Some(residual) = residual {
            add(&mut sum, residual);
        }
        let (y, stats) = self.norm.forward(params, &sum);
        (y, NormedSaved { sum, stats })
    }

    /// Adds the gradient of x to `dx` or puts it there, and gives that of the residual.
    fn backward(
        &self,
        params: &Params,
        (x, saved): (&[f32], &NormedSaved),
        dy: &[f32],
        (dx, accumulate): (&mut [f32], bool),
        dropout: Dropout,
        grads: &mut Grads,
    ) -> Buf {
        let mut dsum = Buf::zeros(dy.len());
        self.norm.backward(params, &saved.sum, &saved.stats, dy, &mut dsum, grads);
        let mut dout = dsum.clone();
        dropout.apply(&mut dout);
        self.linear.backward_params(x, &dout, grads);
        self.linear.backward_input(params, &dout, dx, accumulate);
        dsum
    }

    fn composed(&self, graph: &Graph<'_>, x: &Tensor, residual: Option<&Tensor>) -> candle_core::Result<Tensor> {
        let y = self.linear.composed(graph, x)?;
        let sum = match residual {
            Some(residual) => (residual + y)?,
            None => y,
        };
        self.norm.composed(graph, &sum)
    }

    fn onnx(&self, pass: &mut OnnxPass<'_>, x: &Value, residual: Option<&Value>) -> Value {
        let mut y = self.linear.onnx(pass, x);
        if let Some(residual) = residual {
            y = pass.graph.node("Add", &[residual, &y], &[]);
        }
        self.norm.onnx(pass, &y)
    }
}

/// norm(D act(U x + u) + d + x).
struct Ffn {
    up: Linear,
    down: Linear,
    norm: NormParams,
}

/// What the way back through [`Ffn`] needs.
struct FfnSaved {
    x: Buf,
    h: Buf,
    sum: Buf,
    stats: Buf,
}

impl Ffn {
    fn forward(&self, params: &Params, act: Act, x: Buf) -> (Buf, FfnSaved) {
        let inner = x.len() / self.up.inputs() * self.up.outputs();
        let (mut h, mut a, mut sum) = (Buf::any(inner), Buf::any(inner), Buf::any(x.len()));
        self.up.forward_act(params, &x, act, &mut h, &mut a);
        self.down.forward(params, &a, &mut sum);
        add(&mut sum, &x);
        let (y, stats) = self.norm.forward(params, &sum);
        (y, FfnSaved { x, h, sum, stats })
    }

    fn backward(&self, params: &Params, act: Act, saved: FfnSaved, dy: &[f32], grads: &mut Grads) -> Buf {
        let FfnSaved { x, mut h, sum, stats } = saved;
        let (mut dx, mut dh) = (Buf::zeros(dy.len()), Buf::any(h.len()));
        self.norm.backward(params, &sum, &stats, dy, &mut dx, grads);
        self.down.backward_act(params, &dx, act, &mut h, &mut dh);
        self.down.backward_params(&h, &dx, grads);
        self.up.backward_params(&x, &dh, grads);
        self.up.backward_input(params, &dh, &mut dx, true);
        dx
    }
}

struct BottleneckLayer {
    input: Normed,
    /// For queries and keys, unless they are of the input.
    shared: Option<Normed>,
    qkv: [Linear; 3],
    out: Normed,
    ffns: Vec<Ffn>,
    output: Normed,
    act: Act,
    heads: usize,
    /// Of dropout: of what is added to x, and of probabilities.
    salts: [u64; 2],
    precision: Precision,
}

struct BottleneckSaved {
    x: Arc<Buf>,
    h: (Buf, NormedSaved),
    s: Option<(Buf, NormedSaved)>,
    /// [B * T, 3 W]
    qkv: Buf,
    probabilities: Arc<Buf>,
    context: Buf,
    attended: NormedSaved,
    ffns: Vec<FfnSaved>,
    /// What enters the last matrix.
    last: Buf,
    output: NormedSaved,
}

impl BottleneckLayer {
    /// W
    fn width(&self) -> usize {
        self.out.linear.outputs()
    }

    fn shape(&self, pass: &Pass<'_>) -> Shape {
        let (batch, len) = pass.sequences();
        Shape {
            batch,
            queries: len,
            keys: len,
            heads: self.heads,
            kv_heads: self.heads,
            d_head: self.width() / self.heads,
            mask: Mask::Full,
            dropout: pass.dropout[1].with(self.salts[1]),
            precision: self.precision,
        }
    }

    fn inputs<'a>(&self, pass: &Pass<'a>, qkv: &'a [f32]) -> Inputs<'a> {
        let (w, stride) = (self.width(), 3 * self.width());
        let rows = |first: usize| Rows { data: &qkv[first..], stride, batch_stride: stride * pass.len };
        let lengths = pass.unpadded.map(Unpadded::lengths);
        let (q, k, v) = (rows(0), rows(w), rows(2 * w));
        Inputs { q, k, v, relative: None, distances: None, padding: pass.mask, lengths }
    }

    /// Columns of queries, keys and values.
    fn columns<'a>(&self, qkv: &'a mut [f32]) -> impl Iterator<Item = MatMut<'a>> {
        let w = self.width();
        let rows = qkv.len() / (3 * w);
        let parts = MatMut::new(qkv, rows, 3 * w).split(&[rows], &[w, 2 * w, 3 * w]);
        parts.into_iter().map(|(_, _, part)| part)
    }

    fn dropout(&self, pass: &Pass<'_>) -> Dropout {
        pass.dropout[0].with(self.salts[0])
    }
}

impl Layer for BottleneckLayer {
    fn forward(&self, pass: &Pass<'_>, x: &Stream, _: Option<&Arc<Buf>>, _: &mut LayerState) -> (Stream, Saved) {
        if x.len == 0 {
            return (x.clone(), Box::new(())); // blocks below left no token
        }
        let (params, rows, none) = (pass.params, pass.rows(), Dropout::NONE);
        let h = self.input.forward(params, &x.hidden, None, none);
        let s = self.shared.as_ref().map(|shared| shared.forward(params, &x.hidden, None, none));
        let of_keys: &[f32] = s.as_ref().map_or(&h.0, |(s, _)| s);
        let of_values: &[f32] = if s.is_some() { &x.hidden } else { &h.0 };
        let mut qkv = Buf::any(rows * 3 * self.width());
        for ((linear, from), to) in self.qkv.iter().zip([of_keys, of_keys, of_values]).zip(self.columns(&mut qkv)) {
            linear.forward_into(params, Mat::new(from, rows, linear.inputs()), to);
        }
        let mut probabilities = pass.room_for_maps(self.heads, pass.len);
        let mut context = Buf::any(rows * self.width());
        let kept = (!probabilities.is_empty()).then_some(&mut *probabilities);
        attention::forward(&self.shape(pass), &self.inputs(pass, &qkv), &mut context, kept);
        let probabilities = Arc::new(probabilities);
        if pass.map.is_wanted() {
            pass.reports.add(AttentionMap { heads: self.heads, probabilities: probabilities.clone() });
        }
        let (mut f, attended) = self.out.forward(params, &context, Some(&h.0), none);
        let mut ffns = Vec::new();
        for ffn in &self.ffns {
            let (y, saved) = ffn.forward(params, self.act, f);
            f = y;
            if pass.keep {
                ffns.push(saved);
            }
        }
        let (y, output) = self.output.forward(params, &f, Some(&x.hidden), self.dropout(pass));
        if !pass.keep {
            return (x.with(y), Box::new(()));
        }
        let (last, hidden) = (f, x.hidden.clone());
        let saved = BottleneckSaved { x: hidden, h, s, qkv, probabilities, context, attended, ffns, last, output };
        (x.with(y), Box::new(saved))
    }

    fn takes_unpadded(&self) -> bool {
        true
    }

    fn backward(&self, pass: &Pass<'_>, saved: Saved, dy: Buf, grads: &mut Grads) -> Buf {
        if pass.len == 0 {
            return dy;
        }
        let saved: BottleneckSaved = *saved.downcast().expect("what this layer saved");
        let BottleneckSaved { x, h, s, qkv, probabilities, context, attended, ffns, last, output } = saved;
        let (params, rows, w, none) = (pass.params, pass.rows(), self.width(), Dropout::NONE);
        let mut df = Buf::any(last.len());
        let mut dx = self.output.backward(params, (&last, &output), &dy, (&mut df, false), self.dropout(pass), grads);
        for (ffn, saved) in self.ffns.iter().zip(ffns).rev() {
            df = ffn.backward(params, self.act, saved, &df, grads);
        }
        let mut dcontext = Buf::any(context.len());
        let mut dh = self.out.backward(params, (&context, &attended), &df, (&mut dcontext, false), none, grads);

        let mut dqkv = Buf::any(qkv.len());
        let [dq, dk, dv] =
            <[_; 3]>::try_from(self.columns(&mut dqkv).collect::<Vec<_>>()).unwrap_or_else(|_| unreachable!("three"));
        let gradients = Gradients { dq, dk, dv, relative: None, distances: None };
        let maps = (&**probabilities, pass.map.gradient());
        attention::backward_with_maps(&self.shape(pass), &self.inputs(pass, &qkv), maps, &dcontext, gradients);

        let all = Mat::new(&dqkv, rows, 3 * w);
        let mut ds = s.as_ref().map(|_| Buf::zeros(rows * w));
        for (i, linear) in self.qkv.iter().enumerate() {
            let dy = all.cols_from(i * w, w);
            let (from, to): (&[f32], &mut Buf) = match (&s, &mut ds, i) {
                (Some((s, _)), Some(ds), 0 | 1) => (s, ds),
                (Some(_), _, _) => (&x, &mut dx),
                (None, ..) => (&h.0, &mut dh),
            };
            linear.backward_params_from(Mat::new(from, rows, linear.inputs()), dy, grads);
            linear.backward_input_from(params, dy, to, true);
        }
        for (normed, (_, saved), d) in
            [(Some(&self.input), Some(&h), Some(&dh)), (self.shared.as_ref(), s.as_ref(), ds.as_ref())]
                .into_iter()
                .filter_map(|(normed, saved, d)| Some((normed?, saved?, d?)))
        {
            normed.backward(params, (&x, saved), d, (&mut dx, true), none, grads);
        }
        dx
    }

    fn composed(&self, graph: &Graph<'_>, x: &GraphStream, _: &mut Option<Tensor>) -> candle_core::Result<GraphStream> {
        if graph.len == 0 {
            return Ok(x.clone());
        }
        let wide = &x.hidden;
        let h = self.input.composed(graph, wide, None)?;
        let s = self.shared.as_ref().map(|shared| shared.composed(graph, wide, None)).transpose()?;
        let (of_keys, of_values) = s.as_ref().map_or((&h, &h), |s| (s, wide));
        let part = |i: usize, from: &Tensor| {
            self.qkv[i].composed(graph, from)?.reshape((graph.batch, graph.len, self.width()))
        };
        let [q, k, v] = [part(0, of_keys)?, part(1, of_keys)?, part(2, of_values)?];
        let (mask, none) = (graph.mask.as_deref(), ComposedPositions::None);
        let context = attention::composed(self.heads, self.heads, Mask::Full, mask, [&q, &k, &v], none)?;
        let mut f = self.out.composed(graph, &context.reshape(((), self.width()))?, Some(&h))?;
        for Ffn { up, down, norm } in &self.ffns {
            let inner = up.composed(graph, &f)?;
            graph.add_inner(&inner);
            let y = down.composed(graph, &activation::composed(self.act, false, &inner)?)?;
            f = norm.composed(graph, &(&f + y)?)?;
        }
        let y = graph.probe(self.output.linear.composed(graph, &f)?)?;
        Ok(x.with(self.output.norm.composed(graph, &(wide + y)?)?))
    }

    fn onnx(&self, pass: &mut OnnxPass<'_>, x: &Value, _: Option<&Value>) -> std::result::Result<Value, String> {
        let (w, heads) = (self.width(), self.heads as i64);
        let d_head = w / self.heads;
        let h = self.input.onnx(pass, x, None);
        let s = self.shared.as_ref().map(|shared| shared.onnx(pass, x, None));
        let (of_keys, of_values) = s.as_ref().map_or((&h, &h), |s| (s, x));
        // (B, T, W) -> (B, H, T, K), keys as (B, H, K, T)
        let [q, k, v] = [(of_keys, [0, 2, 1, 3]), (of_keys, [0, 2, 3, 1]), (of_values, [0, 2, 1, 3])];
        let mut parts = self.qkv.iter().zip([q, k, v]).map(|(linear, (from, order))| {
            let part = linear.onnx(pass, from);
            let part = pass.reshape(&part, &[0, 0, heads, d_head as i64]);
            pass.graph.node("Transpose", &[&part], &[("perm", order[..].into())])
        });
        let mut next = || parts.next().expect("queries, keys and values");
        let [q, k, v] = [next(), next(), next()];
        drop(parts);
        let scale = pass.graph.float(1.0 / (d_head as f32).sqrt());
        let q = pass.graph.node("Mul", &[&q, &scale], &[]);
        let mut scores = pass.graph.node("MatMul", &[&q, &k], &[]);
        if let Some(bias) = pass.bias(false, 4) {
            scores = pass.graph.node("Add", &[&scores, &bias], &[]);
        }
        let probabilities = pass.graph.node("Softmax", &[&scores], &[("axis", (-1).into())]);
        let context = pass.graph.node("MatMul", &[&probabilities, &v], &[]);
        let context = pass.graph.node("Transpose", &[&context], &[("perm", [0, 2, 1, 3][..].into())]);
        let context = pass.reshape(&context, &[0, 0, w as i64]);
        let mut f = self.out.onnx(pass, &context, Some(&h));
        for Ffn { up, down, norm } in &self.ffns {
            let inner = up.onnx(pass, &f);
            let inner = pass.activation(self.act, &inner, None);
            let y = down.onnx(pass, &inner);
            let sum = pass.graph.node("Add", &[&f, &y], &[]);
            f = norm.onnx(pass, &sum);
        }
        Ok(self.output.onnx(pass, &f, Some(x)))
    }

    fn matrices(&mut self) -> Vec<&mut Matrix> {
        let normed = std::iter::once(&mut self.input).chain(&mut self.shared).map(|normed| &mut normed.linear);
        let ffns = self.ffns.iter_mut().flat_map(|ffn| [&mut ffn.up, &mut ffn.down]);
        let rest = std::iter::once(&mut self.out.linear).chain(ffns).chain([&mut self.output.linear]);
        normed.chain(&mut self.qkv).chain(rest).map(|linear| &mut linear.matrix).collect()
    }

    fn set_precision(&mut self, precision: Precision) {
        self.precision = precision;
        self.matrices().into_iter().for_each(|matrix| matrix.set_precision(precision));
    }
}
