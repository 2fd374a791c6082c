//! Attention to another stream: `keep` lays the hidden states aside, and any number of `cross{heads=2}` above it take
//! their keys and values from those rather than from their own input, as in a decoder-decoder (Sun et al., 2024, "You
//! Only Cache Once") or above an encoder: y = x + softmax(q k / sqrt(K)) v Wo with q = x Wq and [k, v] = m Wkv, m what
//! was kept.
//!
//! | parameters of `cross` | FLOPs of one sequence |
//! |---|---|
//! | 4 D A | 8 T D A + 4 T T A |

use candle_core::Tensor;
use lathe_core::{Block, BlockKind, Cost, Domain, Error, Frame, Knob, Result, Role, Setting, Shape};
use lathe_model::build::{BuildBlock, LayerBuilder, Site};
use lathe_model::layer::{AsideGrads, Cache, Layer, LayerState, Pass, Saved, Stream};
use lathe_model::linear::{Linear, Matrix};
use lathe_model::params::{Builder, Grads};
use lathe_model::{Graph, GraphStream, Precision};
use lathe_ops::attention::{self, Gradients, Inputs, KeptAs, Mask, Rows};
use lathe_ops::buffer::Buf;
use lathe_ops::gemm::MatMut;
use lathe_ops::linear;
use std::any::Any;
use std::sync::Arc;

/// Lays the hidden states aside, and passes them on.
pub struct Keep;

/// Attends to them.
pub struct Cross;

/// What is laid aside.
const NAME: &str = "kept";
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

impl BlockKind for Keep {
    fn key(&self) -> &'static str {
        "keep"
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
        Vec::new() // it makes no sense without the other
    }

    fn reshape(&self, _: &Block, mut shape: Shape) -> Result<Shape> {
        shape.lay_aside(NAME);
        Ok(shape)
    }

    fn builder(&self) -> &'static dyn Any {
        &LayerBuilder(&Self)
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
        let (t, wide_d, wide_a) = (u128::from(setting.tgt_len), u128::from(d), u128::from(a));
        let rows = setting.tokens();
        Cost {
            params: 4 * d * a,
            flops: 8 * rows * wide_d * wide_a + 4 * rows * t * wide_a,
            activation_bytes: 4 * rows * (4 * wide_a + u128::from(heads(block, frame)) * t + 2 * wide_d),
            state_bytes: 8 * wide_a * u128::from(frame.max_len),
            ..Cost::default()
        }
    }

    fn role(&self) -> Role {
        ROLE
    }

    fn variants(&self, _: &Frame) -> Vec<Block> {
        Vec::new()
    }

    fn reshape(&self, _: &Block, shape: Shape) -> Result<Shape> {
        match shape.see(NAME) {
            Some((width, len)) if (width, len) == (shape.width, shape.len) => Ok(shape),
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

impl BuildBlock for Keep {
    fn build(&self, _: &Block, _: &Frame, _: &Site<'_>, _: &mut Builder) -> Option<Box<dyn Layer>> {
        Some(Box::new(KeepLayer))
    }
}

impl BuildBlock for Cross {
    fn build(&self, block: &Block, frame: &Frame, site: &Site<'_>, builder: &mut Builder) -> Option<Box<dyn Layer>> {
        let (d, heads, d_head) = (frame.d_model as usize, heads(block, frame) as usize, d_head(block, frame) as usize);
        let a = heads * d_head;
        let mut linear =
            |part: &str, sizes, deviation| site.linear(builder, &site.name(ROLE, part), sizes, deviation, false);
        Some(Box::new(CrossLayer {
            q: linear("cross.q", [d, a], site.style.deviation),
            kv: linear("cross.kv", [d, 2 * a], site.style.deviation),
            out: linear("cross.out", [a, d], site.style.output_deviation),
            heads,
            d_head,
            mask: if frame.backbone.causal() { Mask::Causal } else { Mask::Full },
            max_len: frame.max_len as usize,
            salt: site.salt(1),
            precision: Precision::F32,
        }))
    }
}

struct KeepLayer;

impl Layer for KeepLayer {
    fn forward(&self, _: &Pass<'_>, x: &Stream, _: Option<&Arc<Buf>>, _: &mut LayerState) -> (Stream, Saved) {
        let mut y = x.clone();
        y.aside.push((NAME, Stream { aside: Vec::new(), ..x.clone() }));
        (y, Box::new(()))
    }

    fn backward(&self, _: &Pass<'_>, _: Saved, mut dy: Buf, aside: &mut AsideGrads, _: &mut Grads) -> Buf {
        aside.take(NAME).iter().for_each(|kept| linear::add(&mut dy, kept));
        dy
    }

    fn composed(&self, _: &Graph<'_>, x: &GraphStream, _: &mut Option<Tensor>) -> candle_core::Result<GraphStream> {
        let mut y = x.clone();
        y.aside.push((NAME, GraphStream { aside: Vec::new(), ..x.clone() }));
        Ok(y)
    }

    fn matrices(&mut self) -> Vec<&mut Matrix> {
        Vec::new()
    }

    fn set_precision(&mut self, _: Precision) {}
}

struct CrossLayer {
    q: Linear,
    kv: Linear,
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
    x: Arc<Buf>,
    /// What was kept, where there was anything.
    m: Option<Stream>,
    q: Buf,
    kv: Buf,
    probabilities: Buf,
    context: Buf,
}

impl CrossLayer {
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
        Inputs { q, k: rows(0), v: rows(a), relative: None, padding }
    }
}

impl Layer for CrossLayer {
    fn forward(&self, pass: &Pass<'_>, x: &Stream, _: Option<&Arc<Buf>>, state: &mut LayerState) -> (Stream, Saved) {
        if x.len == 0 {
            return (x.clone(), Box::new(())); // blocks below left no token
        }
        let a = self.a();
        let kept = x.see(NAME); // a block that is measured by itself has nothing beside it, and attends to its input
        let m = kept.unwrap_or(x);
        let (mut q, mut kv) = (Buf::any(pass.rows() * a), Buf::any(pass.batch * m.len * 2 * a));
        self.q.forward(pass.params, &x.hidden, &mut q);
        self.kv.forward(pass.params, &m.hidden, &mut kv);
        let mut context = Buf::any(q.len());
        let mut probabilities = if pass.keep { Buf::any(self.heads * pass.rows() * m.len) } else { Buf::default() };
        let padding = m.mask.as_deref().map(Vec::as_slice);
        let inputs = self.inputs(pass, &q, &kv, padding);
        match state {
            LayerState::Cache(cache) => {
                let first = cache.append(pass.batch, 2 * a, &kv, 2 * a, 0);
                let kept = cache.keys_and_values(first, a);
                attention::forward_kept(&self.shape(pass, cache.len), inputs.q, &kept, &mut context);
            }
            _ => {
                let probabilities = (!probabilities.is_empty()).then_some(&mut *probabilities);
                attention::forward(&self.shape(pass, m.len), &inputs, &mut context, probabilities);
            }
        }
        let mut y = Buf::any(x.hidden.len());
        self.out.forward(pass.params, &context, &mut y);
        linear::add(&mut y, &x.hidden);
        if !pass.keep {
            return (x.with(y), Box::new(()));
        }
        let saved = Kept { x: x.hidden.clone(), m: kept.cloned(), q, kv, probabilities, context };
        (x.with(y), Box::new(saved))
    }

    fn backward(&self, pass: &Pass<'_>, saved: Saved, mut dy: Buf, aside: &mut AsideGrads, grads: &mut Grads) -> Buf {
        if pass.len == 0 {
            return dy;
        }
        let Kept { x, m, q, kv, probabilities, context } = *saved.downcast().expect("what this layer saved");
        let (a, keys) = (self.a(), kv.len() / (2 * self.a() * pass.batch));
        let mut dcontext = Buf::any(context.len());
        self.out.backward_input(pass.params, &dy, &mut dcontext, false);
        self.out.backward_params(&context, &dy, grads);
        let (mut dq, mut dkv) = (Buf::any(q.len()), Buf::any(kv.len()));
        let rows = pass.batch * keys;
        let parts = MatMut::new(&mut dkv, rows, 2 * a).split(&[rows], &[a, 2 * a]);
        let [dk, dv] = <[_; 2]>::try_from(parts).unwrap_or_else(|_| unreachable!("two parts")).map(|(.., part)| part);
        let gradients = Gradients { dq: MatMut::new(&mut dq, pass.rows(), a), dk, dv, relative: None };
        let padding = m.as_ref().map_or(pass.mask, |m| m.mask.as_deref().map(Vec::as_slice));
        let inputs = self.inputs(pass, &q, &kv, padding);
        attention::backward(&self.shape(pass, keys), &inputs, &probabilities, &dcontext, gradients);
        self.q.backward_input(pass.params, &dq, &mut dy, true);
        self.q.backward_params(&x, &dq, grads);
        match m {
            Some(m) => {
                let mut dm = Buf::any(m.hidden.len());
                self.kv.backward_input(pass.params, &dkv, &mut dm, false);
                self.kv.backward_params(&m.hidden, &dkv, grads);
                aside.add(NAME, dm);
            }
            None => {
                self.kv.backward_input(pass.params, &dkv, &mut dy, true);
                self.kv.backward_params(&x, &dkv, grads);
            }
        }
        dy
    }

    fn composed(&self, graph: &Graph<'_>, x: &GraphStream, _: &mut Option<Tensor>) -> candle_core::Result<GraphStream> {
        let (a, m) = (self.a(), x.see(NAME).unwrap_or(x));
        let q = self.q.composed(graph, &x.hidden)?.reshape((graph.batch, graph.len, a))?;
        let kv = self.kv.composed(graph, &m.hidden)?.reshape((graph.batch, m.len, 2 * a))?;
        let (k, v) = (kv.narrow(2, 0, a)?.contiguous()?, kv.narrow(2, a, a)?.contiguous()?);
        let context = attention::composed(self.heads, self.heads, self.mask, m.mask.as_deref(), [&q, &k, &v], None)?;
        let added = self.out.composed(graph, &context.reshape(((), a))?)?;
        Ok(x.with((&x.hidden + graph.probe(added)?)?))
    }

    fn matrices(&mut self) -> Vec<&mut Matrix> {
        [&mut self.q, &mut self.kv, &mut self.out].map(|linear| &mut linear.matrix).into()
    }

    fn set_precision(&mut self, precision: Precision) {
        self.precision = precision;
        self.matrices().into_iter().for_each(|matrix| matrix.set_precision(precision));
    }

    fn init_cache(&self, pass: &Pass<'_>, _: &LayerState) -> LayerState {
        let (width, head) = (2 * self.a(), self.a() / self.heads);
        LayerState::Cache(Cache::new(pass.batch, (width, head), self.max_len, self.max_len, KeptAs::F32))
    }
}
