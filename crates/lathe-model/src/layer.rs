//! A block at work. A [`Layer`] is all that a slot of a stack computes; [`Residual`] is the usual one, a [`Sublayer`]
//! inside its residual connection and norm:
//!
//! - pre-norm: y = x + dropout(f(norm(x)))
//! - post-norm: y = norm(x + dropout(f(x)))
//!
//! The fused path is written by hand, forward and backward: each layer keeps what its backward needs in a [`Saved`] and
//! returns the gradient of its input for the gradient of its output.

use crate::composed::{Graph, GraphStream};
use crate::context::{Context, Contexts, Reports, Shared};
use crate::linear::{Linear, Matrix};
use crate::norm::NormParams;
use crate::observe::{Activity, Observe};
use crate::onnx::OnnxPass;
use crate::params::{Grads, ParamId, Params};
use crate::ragged::PartPlace;
use crate::taps::Map;
use crate::unpadded::Unpadded;
use candle_core::{Result, Tensor};
use lathe_core::NormPlace;
use lathe_onnx::Value;
use lathe_ops::Precision;
use lathe_ops::attention::{self, Kept, KeptAs, KeptRows};
use lathe_ops::buffer::Buf;
use lathe_ops::dropout::Dropout;
use lathe_ops::linear;
use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard};

/// What flows through a stack: hidden states [B * T, D], and which of the tokens are real.
#[derive(Clone)]
pub struct Stream {
    /// [B * T, D]
    pub hidden: Arc<Buf>,
    /// T
    pub len: usize,
    /// Tokens before the first, of which a cache or a memory knows.
    pub position: usize,
    /// [B, T], false for padding; `None` where every token is real.
    pub mask: Option<Arc<Vec<bool>>>,
    /// What blocks below laid aside for blocks above, by name; the latest last.
    pub aside: Vec<(&'static str, Stream)>,
    /// The stack, where a model has several.
    pub stack: Option<&'static str>,
}

impl Stream {
    /// Hidden states of tokens, with nothing laid aside.
    pub fn new(hidden: Buf, len: usize, position: usize, mask: Option<&[bool]>) -> Self {
        let mask = mask.map(|mask| Arc::new(mask.to_vec()));
        Self { hidden: Arc::new(hidden), len, position, mask, aside: Vec::new(), stack: None }
    }

    /// Other hidden states of the same tokens.
    pub fn with(&self, hidden: Buf) -> Self {
        Self { hidden: Arc::new(hidden), ..self.clone() }
    }

    /// What was laid aside under a name at last, to be read.
    pub fn see(&self, name: &str) -> Option<&Self> {
        self.aside.iter().rev().find(|(known, _)| *known == name).map(|(_, stream)| stream)
    }

    /// What was laid aside under a name at last, to be taken away.
    pub fn take(&mut self, name: &str) -> Option<Self> {
        let at = self.aside.iter().rposition(|(known, _)| *known == name)?;
        Some(self.aside.remove(at).1)
    }
}

/// Gradients of what was laid aside, on the way back: who read it adds to them, who laid it aside takes them.
#[derive(Default)]
pub struct AsideGrads(Mutex<Vec<(&'static str, Buf)>>);

impl AsideGrads {
    /// The gradient of what the layer took away.
    pub fn lay(&self, name: &'static str, gradient: Buf) {
        self.all().push((name, gradient));
    }

    fn all(&self) -> MutexGuard<'_, Vec<(&'static str, Buf)>> {
        self.0.lock().expect("nothing panics while it holds the list")
    }

    /// The gradient of what the layer read and left for others.
    pub fn add(&self, name: &'static str, gradient: Buf) {
        let mut all = self.all();
        match all.iter_mut().rev().find(|(known, _)| *known == name) {
            Some((_, sum)) => linear::add(sum, &gradient),
            None => all.push((name, gradient)),
        }
    }

    /// The gradient of what the layer laid aside, if anybody read it.
    pub fn take(&self, name: &str) -> Option<Buf> {
        let mut all = self.all();
        let at = all.iter().rposition(|(known, _)| *known == name)?;
        Some(all.remove(at).1)
    }
}

/// What a pass over a batch of sequences has in common for all layers.
#[derive(Clone, Copy)]
pub struct Pass<'a> {
    /// The weights.
    pub params: &'a Params,
    /// B
    pub batch: usize,
    /// T, where the layer stands.
    pub len: usize,
    /// Tokens before the first, of which a cache or a memory knows.
    pub position: usize,
    /// [B, T], false for padding; `None` where every token is real.
    pub mask: Option<&'a [bool]>,
    /// Where padding was left out: whose the real tokens are. B then counts these, and T is 1.
    pub unpadded: Option<&'a Unpadded>,
    /// Whether layers keep what a backward pass needs.
    pub keep: bool,
    /// Dropout of hidden states, of attention probabilities, and inside experts; none in evaluation.
    pub dropout: [Dropout; 3],
    /// Weight of the balance loss of experts.
    pub balance: f32,
    /// What the backbone has for those blocks that ask for it.
    pub context: &'a Context,
    /// The same for other widths and lengths.
    pub(crate) contexts: &'a Contexts<'a>,
    /// What layers tell of this pass.
    pub reports: &'a Reports,
    /// What blocks below laid aside for this one; nothing on the way back.
    pub aside: &'a [(&'static str, Stream)],
    /// On the way back, the gradients of what was laid aside.
    pub aside_grads: &'a AsideGrads,
    /// What is wanted of attention maps.
    pub map: Map<'a>,
}

impl Pass<'_> {
    /// B * T
    pub fn rows(&self) -> usize {
        self.batch * self.len
    }

    /// How many sequences mix tokens among themselves, and the tokens of the longest.
    pub fn sequences(&self) -> (usize, usize) {
        self.unpadded.map_or((self.batch, self.len), |unpadded| (unpadded.lengths().len(), unpadded.longest()))
    }

    /// The places of tokens in their sequences: of each row, or of the rows of a sequence where all are alike.
    pub fn positions(&self) -> Vec<usize> {
        self.unpadded.map_or_else(|| (self.position..self.position + self.len).collect(), Unpadded::positions)
    }

    /// What was laid aside under a name at last, to be read.
    pub fn see(&self, name: &str) -> Option<&Stream> {
        self.aside.iter().rev().find(|(known, _)| *known == name).map(|(_, stream)| stream)
    }

    /// Room for the probabilities [B, H, T, S] of a pass that keeps or shows them: zeros where somebody looks at all of them.
    pub fn room_for_maps(&self, heads: usize, keys: usize) -> Buf {
        let size = match self.unpadded {
            Some(unpadded) => attention::maps_of_lengths(heads, unpadded.lengths()),
            None => heads * self.rows() * keys,
        };
        match (self.map.is_wanted(), self.keep) {
            (true, _) => Buf::zeros(size),
            (false, true) => Buf::any(size),
            (false, false) => Buf::default(),
        }
    }

    /// Shows the inputs of a linear layer by which units write, where somebody looks.
    pub fn show(&self, linear: &Linear, x: &[f32]) {
        if self.context.get::<Observe>().is_some() {
            self.reports.add(Activity::new(linear, x));
        }
    }
}

/// What a layer's backward needs of its forward.
pub type Saved = Box<dyn Any + Send>;

/// What a layer carries from segment to segment, or from token to token.
#[derive(Debug, Clone, Default)]
pub enum LayerState {
    /// Nothing.
    #[default]
    None,
    /// Hidden states of the tokens before, [B, M, D].
    Memory(Buf),
    /// Projected keys and values of the tokens before.
    Cache(Cache),
    /// Whatever else a layer carries.
    Own(Box<dyn OwnState>),
}

/// What a layer carries that is neither a memory of inputs nor a cache of keys and values.
pub trait OwnState: Any + Send + Sync + std::fmt::Debug {
    /// A copy.
    fn boxed(&self) -> Box<dyn OwnState>;
}

impl Clone for Box<dyn OwnState> {
    fn clone(&self) -> Self {
        (**self).boxed()
    }
}

impl LayerState {
    /// Bytes of what is kept of the tokens before; what a layer carries of its own is not counted.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Memory(memory) => size_of_val(&**memory),
            Self::Cache(cache) => cache.rows.bytes(),
            Self::None | Self::Own(_) => 0,
        }
    }

    /// A copy as it was after `len` of so many tokens of one sequence.
    pub(crate) fn prefix(&self, len: usize, tokens: usize) -> Option<Self> {
        match self {
            Self::None => Some(Self::None),
            Self::Cache(cache) => cache.prefix(len, tokens).map(Self::Cache),
            Self::Memory(_) | Self::Own(_) => None,
        }
    }

    /// What a layer carries of its own, if it is of this type.
    pub fn own<T: OwnState>(&mut self) -> Option<&mut T> {
        match self {
            Self::Own(own) => (&mut **own as &mut dyn Any).downcast_mut(),
            _ => None,
        }
    }
}

/// Projected keys and values, [B, places, 2 A] (keys, then values), of which the last `len` places before `end` count.
#[derive(Debug, Clone)]
pub struct Cache {
    rows: Kept,
    /// Places that there are, and the most that there may be.
    places: usize,
    capacity: usize,
    end: usize,
    /// How many places count.
    pub len: usize,
    /// At most so many are kept; older ones are forgotten.
    pub limit: usize,
    /// Projected distances, for a number of keys, where positions are relative.
    pub(crate) positions: Option<(usize, Buf)>,
}

/// What caches keep keys and values as, for layers that ask.
#[derive(Debug, Clone, Copy)]
pub struct CacheKind(pub KeptAs);

impl Shared for CacheKind {
    fn fill(&mut self, _: f32) {}
}

/// Places that a cache begins with.
const PLACES: usize = 4096;

impl Cache {
    /// An empty cache for rows of `width`, kept in units of the width of a head. Room for a long context is made when it is
    /// needed.
    pub fn new(batch: usize, (width, unit): (usize, usize), limit: usize, capacity: usize, kind: KeptAs) -> Self {
        let places = capacity.min(PLACES);
        let rows = Kept::new(kind, unit, batch * places * width);
        Self { rows, places, capacity, end: 0, len: 0, limit, positions: None }
    }

    /// Makes room for `len` more places: by moving those that count to the front, and where that is not enough, by
    /// taking more memory.
    fn make_room(&mut self, width: usize, len: usize) {
        let kept = self.end - self.len..self.end;
        assert!(self.len + len <= self.capacity, "a cache of {} places has no room for {len} more", self.capacity);
        let batch = self.rows.len() / (self.places * width);
        for first in (0..batch).map(|b| b * self.places * width) {
            self.rows.copy_within(first + kept.start * width..first + kept.end * width, first);
        }
        self.end = self.len;
        if self.end + len > self.places {
            let places = (2 * self.places).max(self.len + len).min(self.capacity);
            let mut rows = self.rows.zeros(batch * places * width);
            for b in 0..batch {
                let from = b * self.places * width;
                rows.copy(b * places * width, &self.rows, from..from + self.len * width);
            }
            (self.rows, self.places) = (rows, places);
        }
    }

    /// Adds [B, T] new rows, the columns of `new` from `first_col` on. Returns the place of the first row that counts.
    pub fn append(&mut self, batch: usize, width: usize, new: &[f32], stride: usize, first_col: usize) -> usize {
        let len = new.len() / stride / batch;
        if self.end + len > self.places {
            self.make_room(width, len);
        }
        for b in 0..batch {
            for t in 0..len {
                let from = &new[(b * len + t) * stride + first_col..][..width];
                self.rows.write((b * self.places + self.end + t) * width, from);
            }
        }
        self.end += len;
        self.len += len;
        self.end - self.len
    }

    /// A copy, of one sequence, as it was after `len` of so many tokens, with little room for more; `None` where tokens
    /// were forgotten or places are relative.
    fn prefix(&self, len: usize, tokens: usize) -> Option<Self> {
        if self.len != tokens || len > tokens || self.positions.is_some() {
            return None;
        }
        let (width, first) = (self.rows.len() / self.places, self.end - self.len);
        let places = (len + 1).next_multiple_of(64).min(self.capacity);
        let mut rows = self.rows.zeros(places * width);
        rows.copy(0, &self.rows, first * width..(first + len) * width);
        Some(Self { rows, places, end: len, len, positions: None, ..*self })
    }

    /// Lets go of rows beyond the limit.
    pub fn forget(&mut self) {
        self.len = self.len.min(self.limit);
    }

    /// Keys and values from a place on, each `a` wide.
    pub fn keys_and_values(&self, first: usize, a: usize) -> KeptRows<'_> {
        let (stride, batch_stride) = (2 * a, self.places * 2 * a);
        KeptRows { kept: &self.rows, first: first * stride, values: a, stride, batch_stride }
    }
}

/// Parts of a layer that are alike and can be taken away one by one: heads, inner neurons, experts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Units {
    /// The knobs that say how many there are, each with what one of them counts: a group of heads that share keys and
    /// values counts as several heads.
    pub knobs: Vec<(&'static str, u32)>,
    /// How many there are.
    pub count: usize,
    /// Where their weights are.
    pub slices: Vec<Slice>,
}

/// Where a parameter has the weights of units: along an axis that is `repeats` x `units` x `width` long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Slice {
    pub param: ParamId,
    pub axis: usize,
    pub repeats: usize,
    pub width: usize,
    /// Whether units write by it: one whose weights here are 0 says nothing.
    pub writes: bool,
}

impl Units {
    /// Whether a knob says how many there are.
    pub fn counted_by(&self, knob: &str) -> bool {
        self.knobs.iter().any(|(name, _)| *name == knob)
    }
}

impl Slice {
    /// The outputs of a linear layer: of its weight, and of its bias.
    pub fn outputs(linear: &Linear, repeats: usize, width: usize) -> impl Iterator<Item = Self> {
        let axis = usize::from(linear.matrix.layout() == crate::linear::Layout::InOut);
        let weight = Self { param: linear.matrix.weight(), axis, repeats, width, writes: false };
        std::iter::once(weight).chain(linear.bias_param().map(|param| Self {
            param,
            axis: 0,
            repeats,
            width,
            writes: false,
        }))
    }

    /// The inputs of a linear layer.
    pub fn inputs(linear: &Linear, repeats: usize, width: usize) -> Self {
        let axis = usize::from(linear.matrix.layout() == crate::linear::Layout::OutIn);
        Self { param: linear.matrix.weight(), axis, repeats, width, writes: true }
    }
}

/// All that a slot computes: hidden states in, hidden states out.
pub trait Layer: Send + Sync {
    /// The output for an input. `behind` is the input behind the slot's memory, [B, M + T, D], where it has one.
    fn forward(
        &self,
        pass: &Pass<'_>,
        x: &Stream,
        behind: Option<&Arc<Buf>>,
        state: &mut LayerState,
    ) -> (Stream, Saved);
    /// The output for the tokens of several parts, each at its own place after a state of its own: `x` has them one after
    /// the other, [R, D]. `None`, and nothing done, where the layer has to see part after part.
    fn forward_ragged(
        &self,
        _pass: &Pass<'_>,
        _x: &Stream,
        _parts: &[PartPlace],
        _states: &mut [&mut LayerState],
    ) -> Option<Stream> {
        None
    }
    /// Whether it mixes tokens as [`Pass::unpadded`] says; what works per token need not say it.
    fn takes_unpadded(&self) -> bool {
        false
    }
    /// The gradient of the input; adds those of the parameters, and of what it read of what was laid aside
    /// ([`Pass::aside_grads`]).
    fn backward(&self, pass: &Pass<'_>, saved: Saved, dy: Buf, grads: &mut Grads) -> Buf;
    /// [`Self::forward`] as a graph. The memory, if there is one, is [B, M, D].
    fn composed(&self, graph: &Graph<'_>, x: &GraphStream, memory: &mut Option<Tensor>) -> Result<GraphStream>;
    /// [`Self::forward`] as nodes of ONNX, [B, T, D] to [B, T, D], or why there are none. `behind` is the input behind the
    /// slot's memory, where it has one.
    fn onnx(
        &self,
        _pass: &mut OnnxPass<'_>,
        _x: &Value,
        _behind: Option<&Value>,
    ) -> std::result::Result<Value, String> {
        Err("does not say itself in ONNX's operators".into())
    }
    /// Its weight matrices, to be packed.
    fn matrices(&mut self) -> Vec<&mut Matrix>;
    /// What its products are computed in.
    fn set_precision(&mut self, precision: Precision);
    /// The state that training and plain evaluation begin with: zeros, where it has a memory.
    fn init_memory(&self, _batch: usize) -> LayerState {
        LayerState::None
    }
    /// The state that decoding goes on with after a memory, or begins with.
    fn init_cache(&self, _pass: &Pass<'_>, _after: &LayerState) -> LayerState {
        LayerState::None
    }
    /// Parts that can be taken away one by one.
    fn units(&self) -> Vec<Units> {
        Vec::new()
    }
}

/// The inside of a [`Residual`].
pub trait Sublayer: Send + Sync {
    /// The output [B * T, D] for an input [B * T, D], or [B * (M + T), D] after a memory.
    fn forward(&self, pass: &Pass<'_>, input: &[f32], state: &mut LayerState) -> (Buf, Saved);
    /// As [`Layer::forward_ragged`], for an input [R, D].
    fn forward_ragged(
        &self,
        _pass: &Pass<'_>,
        _input: &[f32],
        _parts: &[PartPlace],
        _states: &mut [&mut LayerState],
    ) -> Option<Buf> {
        None
    }
    /// As [`Layer::takes_unpadded`].
    fn takes_unpadded(&self) -> bool {
        false
    }
    /// The gradient of the input; adds those of the parameters. What was saved may be consumed.
    fn backward(&self, pass: &Pass<'_>, input: &[f32], saved: Saved, dout: &[f32], grads: &mut Grads) -> Buf;
    /// [`Self::forward`] as a graph, without a cache.
    fn composed(&self, graph: &Graph<'_>, input: &Tensor) -> Result<Tensor>;
    /// [`Self::forward`] as nodes of ONNX, or why there are none: the output [B, T, D] for an input [B, T, D], or
    /// [B, M + T, D] after a memory.
    fn onnx(&self, _pass: &mut OnnxPass<'_>, _input: &Value) -> std::result::Result<Value, String> {
        Err("does not say itself in ONNX's operators".into())
    }
    /// Its weight matrices, to be packed.
    fn matrices(&mut self) -> Vec<&mut Matrix>;
    /// What its products are computed in.
    fn set_precision(&mut self, precision: Precision) {
        self.matrices().into_iter().for_each(|matrix| matrix.set_precision(precision));
    }
    /// The memory it begins with: zeros, as in the reference.
    fn init_memory(&self, _batch: usize) -> LayerState {
        LayerState::None
    }
    /// The cache that continues a memory [B, M, D], normed where the norm comes first; an empty one without memory.
    fn init_cache(&self, _pass: &Pass<'_>, _memory: &[f32]) -> LayerState {
        LayerState::None
    }
    /// Parts that can be taken away one by one.
    fn units(&self) -> Vec<Units> {
        Vec::new()
    }
}

/// A sublayer in its residual connection and norm.
pub struct Residual {
    /// The inside.
    pub sublayer: Box<dyn Sublayer>,
    /// Its norm.
    pub norm: NormParams,
    /// Where that stands.
    pub place: NormPlace,
    /// D
    pub width: usize,
    /// Salt of its dropout.
    pub salt: u64,
}

/// What a layer keeps: its input (behind a memory, where it has one), with post-norm the sum before the norm, the
/// norm's statistics, and what the sublayer keeps. The normed input of pre-norm is computed again rather
/// than kept: one pass over it in place of one array of the input's size per block.
struct ResidualSaved {
    input: Arc<Buf>,
    sum: Buf,
    stats: Buf,
    inner: Saved,
}

impl Layer for Residual {
    fn forward(
        &self,
        pass: &Pass<'_>,
        x: &Stream,
        behind: Option<&Arc<Buf>>,
        state: &mut LayerState,
    ) -> (Stream, Saved) {
        if x.len == 0 {
            return (x.clone(), Box::new(())); // blocks below left no token
        }
        let dropout = pass.dropout[0].with(self.salt);
        let input = behind.unwrap_or(&x.hidden).clone();
        let (y, sum, stats, inner) = match self.place {
            NormPlace::Pre => {
                let (normed, stats) = self.norm.forward(pass.params, &input);
                let (mut y, inner) = self.sublayer.forward(pass, &normed, state);
                dropout.apply(&mut y);
                linear::add(&mut y, &x.hidden);
                (y, Buf::default(), stats, inner)
            }
            NormPlace::Post => {
                let (mut sum, inner) = self.sublayer.forward(pass, &input, state);
                dropout.apply(&mut sum);
                linear::add(&mut sum, &x.hidden);
                let (y, stats) = self.norm.forward(pass.params, &sum);
                (y, sum, stats, inner)
            }
        };
        let y = x.with(y);
        if !pass.keep {
            return (y, Box::new(()));
        }
        (y, Box::new(ResidualSaved { input, sum, stats, inner }))
    }

    fn forward_ragged(
        &self,
        pass: &Pass<'_>,
        x: &Stream,
        parts: &[PartPlace],
        states: &mut [&mut LayerState],
    ) -> Option<Stream> {
        let y = match self.place {
            NormPlace::Pre => {
                let (normed, _) = self.norm.forward(pass.params, &x.hidden);
                let mut y = self.sublayer.forward_ragged(pass, &normed, parts, states)?;
                linear::add(&mut y, &x.hidden);
                y
            }
            NormPlace::Post => {
                let mut sum = self.sublayer.forward_ragged(pass, &x.hidden, parts, states)?;
                linear::add(&mut sum, &x.hidden);
                self.norm.forward(pass.params, &sum).0
            }
        };
        Some(x.with(y))
    }

    fn takes_unpadded(&self) -> bool {
        self.sublayer.takes_unpadded()
    }

    fn backward(&self, pass: &Pass<'_>, saved: Saved, mut dy: Buf, grads: &mut Grads) -> Buf {
        if pass.len == 0 {
            return dy;
        }
        let ResidualSaved { input, sum, stats, inner } = *saved.downcast().expect("what this layer saved");
        let dropout = pass.dropout[0].with(self.salt);
        let dropped = |d: &Buf| {
            let mut d = d.clone();
            dropout.apply(&mut d);
            d
        };
        let has_memory = input.len() > dy.len();
        match self.place {
            NormPlace::Pre => {
                let normed = self.norm.recompute(pass.params, &input, &stats);
                let dout = if dropout.is_none() { None } else { Some(dropped(&dy)) };
                let dnormed = self.sublayer.backward(pass, &normed, inner, dout.as_ref().unwrap_or(&dy), grads);
                drop(normed);
                if has_memory {
                    let mut dinput = Buf::zeros(input.len());
                    self.norm.backward(pass.params, &input, &stats, &dnormed, &mut dinput, grads);
                    self.add_present(pass, &dinput, &mut dy);
                } else {
                    self.norm.backward(pass.params, &input, &stats, &dnormed, &mut dy, grads);
                }
                dy
            }
            NormPlace::Post => {
                let mut dsum = Buf::zeros(dy.len());
                self.norm.backward(pass.params, &sum, &stats, &dy, &mut dsum, grads);
                drop(dy);
                let dout = if dropout.is_none() { None } else { Some(dropped(&dsum)) };
                let dinput = self.sublayer.backward(pass, &input, inner, dout.as_ref().unwrap_or(&dsum), grads);
                if has_memory {
                    self.add_present(pass, &dinput, &mut dsum);
                } else {
                    linear::add(&mut dsum, &dinput);
                }
                dsum
            }
        }
    }

    fn composed(&self, graph: &Graph<'_>, stream: &GraphStream, memory: &mut Option<Tensor>) -> Result<GraphStream> {
        if graph.len == 0 {
            return Ok(stream.clone());
        }
        let x = &stream.hidden;
        let mut input = x.clone();
        if let Some(memory) = memory {
            let all = Tensor::cat(&[&*memory, &x.reshape((graph.batch, graph.len, self.width))?], 1)?;
            *memory = all.narrow(1, graph.len, memory.dim(1)?)?.detach();
            input = all.reshape(((), self.width))?; // (B, M + T, D) -> (B * (M + T), D)
        }
        let y = match self.place {
            NormPlace::Pre => {
                let normed = self.norm.composed(graph, &input)?;
                (x + graph.probe(self.sublayer.composed(graph, &normed)?)?)?
            }
            NormPlace::Post => {
                let sum = (x + graph.probe(self.sublayer.composed(graph, &input)?)?)?;
                self.norm.composed(graph, &sum)?
            }
        };
        Ok(stream.with(y))
    }

    fn onnx(&self, pass: &mut OnnxPass<'_>, x: &Value, behind: Option<&Value>) -> std::result::Result<Value, String> {
        let input = behind.unwrap_or(x);
        Ok(match self.place {
            NormPlace::Pre => {
                let normed = self.norm.onnx(pass, input);
                let y = self.sublayer.onnx(pass, &normed)?;
                pass.graph.node("Add", &[x, &y], &[])
            }
            NormPlace::Post => {
                let y = self.sublayer.onnx(pass, input)?;
                let sum = pass.graph.node("Add", &[x, &y], &[]);
                self.norm.onnx(pass, &sum)
            }
        })
    }

    fn matrices(&mut self) -> Vec<&mut Matrix> {
        self.sublayer.matrices()
    }

    fn set_precision(&mut self, precision: Precision) {
        self.sublayer.set_precision(precision);
    }

    fn init_memory(&self, batch: usize) -> LayerState {
        self.sublayer.init_memory(batch)
    }

    fn init_cache(&self, pass: &Pass<'_>, after: &LayerState) -> LayerState {
        match after {
            LayerState::Memory(memory) if self.place == NormPlace::Pre => {
                self.sublayer.init_cache(pass, &self.norm.forward(pass.params, memory).0)
            }
            LayerState::Memory(memory) => self.sublayer.init_cache(pass, memory),
            _ => self.sublayer.init_cache(pass, &[]),
        }
    }

    fn units(&self) -> Vec<Units> {
        self.sublayer.units()
    }
}

impl Residual {
    /// dx += the rows of [B, M + T, D] that are not memory.
    fn add_present(&self, pass: &Pass<'_>, all: &[f32], dx: &mut [f32]) {
        let (all_len, len) = (all.len() / pass.batch, pass.len * self.width);
        for (all, dx) in all.chunks_exact(all_len).zip(dx.chunks_exact_mut(len)) {
            dx.iter_mut().zip(&all[all_len - len..]).for_each(|(dx, all)| *dx += all);
        }
    }
}

/// An input behind its memory, [B, M + T, D]; the memory moves on to the last M of these.
pub(crate) fn remember(batch: usize, memory: &mut Buf, x: &[f32]) -> Buf {
    let (old, new) = (memory.len() / batch, x.len() / batch);
    let mut all = Buf::any(memory.len() + x.len());
    for (b, all) in all.chunks_exact_mut(old + new).enumerate() {
        all[..old].copy_from_slice(&memory[b * old..(b + 1) * old]);
        all[old..].copy_from_slice(&x[b * new..(b + 1) * new]);
        memory[b * old..(b + 1) * old].copy_from_slice(&all[new..]);
    }
    all
}
