//! Multi-head attention, forward and backward, one head of one sequence per thread.
//!
//! Query i stands at place `offset + i` of S keys and sees those that [`Mask`] lets it. Two kinds of scores:
//!
//! - absolute: q k^T / sqrt(K)
//! - relative (Transformer-XL): ((q + u) k^T + shift((q + v) r^T)) / sqrt(K), where row p of r stands for the
//!   distance S - 1 - p, and the shift moves each query's row so that its own place has distance 0.
//!
//! Scores may have a bias by the distance between query and key, for each head its own (T5, MPNet): that of query i and key j is
//! number T - 1 - i + j of T - 1 + S.
//!
//! With fewer heads of keys and values than of queries (grouped-query attention, Ainslie et al., 2023), query head h
//! reads the head h / (heads / kv_heads) of keys and values.
//!
//! Keys that are padding get a probability of exactly 0, whatever finite numbers stand there, and no gradient. A query
//! that sees no key at all has an output of zeros and a gradient of zeros.
//!
//! Rows are processed in blocks, and a block looks only at the keys that its rows can see, so a causal mask
//! saves half of the work.

mod composed;
mod head;
mod kept;

pub use composed::{ComposedPositions, composed};
pub use kept::{KEPT_AS, Kept, KeptAs, KeptPart, KeptRows, forward_kept, forward_kept_parts};

use crate::Precision;
use crate::buffer::Buf;
use crate::dropout::Dropout;
use crate::gemm::{Mat, MatMut};
use crate::{flops, parallel};
use head::{Head, Positional};

/// Which keys a query sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mask {
    /// All.
    Full,
    /// Those up to its own place.
    Causal,
    /// The last so many up to its own place, itself included.
    Window(usize),
}

impl Mask {
    /// The keys that the query at a place sees: first, and one past the last.
    fn range(self, place: usize, keys: usize) -> (usize, usize) {
        match self {
            Self::Full => (0, keys),
            Self::Causal => (0, (place + 1).min(keys)),
            Self::Window(width) => ((place + 1).saturating_sub(width), (place + 1).min(keys)),
        }
    }
}

/// The sizes of an attention.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// B
    pub batch: usize,
    /// T: queries of a sequence.
    pub queries: usize,
    /// S: keys of a sequence, of which the last T are the queries' own places. There may be fewer where all see all.
    pub keys: usize,
    /// H: heads of queries.
    pub heads: usize,
    /// Heads of keys and values, of which the heads of queries are a multiple.
    pub kv_heads: usize,
    /// K
    pub d_head: usize,
    /// Who sees whom.
    pub mask: Mask,
    /// Dropout of probabilities.
    pub dropout: Dropout,
    /// What products are computed in.
    pub precision: Precision,
}

impl Shape {
    /// How many heads of queries read the same keys.
    fn group(&self) -> usize {
        let Self { heads, kv_heads, .. } = *self;
        assert!(kv_heads > 0 && heads.is_multiple_of(kv_heads), "{heads} heads of queries, {kv_heads} of keys");
        heads / kv_heads
    }

    /// How many products of T by S by K a forward pass is: scores, values, and positions where scores are relative.
    fn products(&self, inputs: &Inputs<'_>) -> usize {
        self.batch * self.heads * if inputs.relative.is_some() { 3 } else { 2 }
    }
}

/// Rows of queries, keys or values: `data` from the first row's first entry on, rows `stride` apart, sequences
/// `batch_stride` apart, heads side by side.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    /// The numbers.
    pub data: &'a [f32],
    /// From a row to the next.
    pub stride: usize,
    /// From a sequence to the next.
    pub batch_stride: usize,
}

impl<'a> Rows<'a> {
    fn head(&self, b: usize, h: usize, rows: usize, d_head: usize) -> Mat<'a> {
        Mat::with_stride(&self.data[b * self.batch_stride + h * d_head..], rows, d_head, self.stride)
    }
}

/// What relative scores need: projected positions r `[S, A]`, and the biases u and v `[A]`.
#[derive(Clone, Copy)]
pub struct Relative<'a> {
    /// Row p: distance S - 1 - p.
    pub r: &'a [f32],
    /// Added to queries that meet keys (r_w_bias).
    pub u: &'a [f32],
    /// Added to queries that meet positions (r_r_bias).
    pub v: &'a [f32],
}

/// The inputs of an attention.
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct Inputs<'a> {
    pub q: Rows<'a>,
    pub k: Rows<'a>,
    pub v: Rows<'a>,
    pub relative: Option<Relative<'a>>,
    /// Biases by distance, [H, T - 1 + S].
    pub distances: Option<&'a [f32]>,
    /// [B, S]: true where a key is a real token, false where it is padding; without it all are real.
    pub padding: Option<&'a [bool]>,
}

impl<'a> Inputs<'a> {
    /// Which keys of a sequence are real tokens.
    fn real(&self, shape: &Shape, b: usize) -> Option<&'a [bool]> {
        let keys = shape.keys;
        self.padding.map(|real| {
            assert_eq!(real.len(), shape.batch * keys, "padding of {} sequences of {keys} keys", shape.batch);
            &real[b * keys..][..keys]
        })
    }
}

/// out [B * T, A] = attention; `probabilities` [B, H, T, S], if given, are kept for the backward pass.
pub fn forward(shape: &Shape, inputs: &Inputs<'_>, out: &mut [f32], probabilities: Option<&mut [f32]>) {
    let Shape { batch, queries, keys, heads, d_head, .. } = *shape;
    flops::add(shape.products(inputs), [queries, keys, d_head]);
    let row_ends: Vec<usize> = (1..=batch).map(|b| b * queries).collect();
    let col_ends: Vec<usize> = (1..=heads).map(|h| h * d_head).collect();
    let parts = MatMut::new(out, batch * queries, heads * d_head).split(&row_ends, &col_ends);
    let size = queries * keys;
    let work = |i: usize, out: MatMut<'_>, probabilities: &mut [f32]| {
        Head::new(shape, inputs, i / heads, i % heads).forward(out, probabilities);
    };
    match probabilities {
        Some(probabilities) => {
            let parts = parts.into_iter().zip(probabilities.chunks_mut(size)).collect();
            parallel::each(parts, |i, ((_, _, out), probabilities)| work(i, out, probabilities));
        }
        None => {
            let block = head::BLOCK.min(queries) * keys;
            parallel::each(parts, |i, (_, _, out)| work(i, out, &mut Buf::any(block)));
        }
    }
}

/// Where the gradients of an attention go; each is overwritten.
#[allow(missing_docs)]
pub struct Gradients<'a> {
    pub dq: MatMut<'a>,
    pub dk: MatMut<'a>,
    pub dv: MatMut<'a>,
    pub relative: Option<RelativeGradients<'a>>,
    /// Of biases by distance, [H, T - 1 + S]: added to.
    pub distances: Option<&'a mut [f32]>,
}

/// Gradients of r `[S, A]` (overwritten), u and v `[A]` (added to).
#[allow(missing_docs)]
pub struct RelativeGradients<'a> {
    pub dr: &'a mut [f32],
    pub du: &'a mut [f32],
    pub dv: &'a mut [f32],
}

/// The gradients from dout [B * T, A]. dq is [B * T, A], dk and dv are [B * S, kv_heads * K], each with any row stride.
/// One thread computes all heads that read the same keys, in their order, so sums over them do not depend on threads.
pub fn backward(shape: &Shape, inputs: &Inputs<'_>, probabilities: &[f32], dout: &[f32], gradients: Gradients<'_>) {
    backward_with_maps(shape, inputs, (probabilities, None), dout, gradients);
}

/// As [`backward`], where the probabilities have a gradient of their own too, [B, H, T, S]: what a loss makes of them before
/// their dropout. What it says of keys that a query does not see counts nothing.
pub fn backward_with_maps(
    shape: &Shape,
    inputs: &Inputs<'_>,
    (probabilities, dprobabilities): (&[f32], Option<&[f32]>),
    dout: &[f32],
    gradients: Gradients<'_>,
) {
    let Shape { batch, queries, keys, heads, kv_heads, d_head, .. } = *shape;
    let group = shape.group();
    flops::add(2 * shape.products(inputs), [queries, keys, d_head]);
    let ends = |n: usize, by: usize| -> Vec<usize> { (1..=n).map(|i| i * by).collect() };
    let dq = gradients.dq.split(&ends(batch, queries), &ends(kv_heads, group * d_head));
    let dk = gradients.dk.split(&ends(batch, keys), &ends(kv_heads, d_head));
    let dv = gradients.dv.split(&ends(batch, keys), &ends(kv_heads, d_head));
    let mut positional: Vec<Positional> = (0..batch * heads).map(|_| Positional::default()).collect();
    let parts = dq.into_iter().zip(dk).zip(dv).zip(positional.chunks_mut(group)).collect();
    parallel::each(parts, |i, ((((_, _, mut dq), (_, _, mut dk)), (_, _, mut dv)), positional)| {
        for (g, positional) in positional.iter_mut().enumerate() {
            let i = i * group + g;
            let (b, h) = (i / heads, i % heads);
            let dout =
                Mat::with_stride(&dout[b * queries * heads * d_head + h * d_head..], queries, d_head, heads * d_head);
            let place = i * queries * keys..(i + 1) * queries * keys;
            let maps = (&probabilities[place.clone()], dprobabilities.map(|maps| &maps[place]));
            let dq = dq.block(0, g * d_head, queries, d_head);
            *positional = Head::new(shape, inputs, b, h).backward(maps, dout, dq, (&mut dk, &mut dv), g > 0);
        }
    });
    if let Some(RelativeGradients { dr, du, dv }) = gradients.relative {
        // Sums over the batch, in its order.
        let a = heads * d_head;
        dr.fill(0.0);
        for (i, parts) in positional.iter().enumerate() {
            let parts = parts.relative.as_ref().expect("relative inputs give relative gradients");
            let cols = i % heads * d_head..(i % heads + 1) * d_head;
            for (to, from) in dr.chunks_exact_mut(a).zip(parts.dr.chunks_exact(d_head)) {
                to[cols.clone()].iter_mut().zip(from).for_each(|(to, from)| *to += from);
            }
            du[cols.clone()].iter_mut().zip(&parts.du).for_each(|(to, from)| *to += from);
            dv[cols].iter_mut().zip(&parts.dv).for_each(|(to, from)| *to += from);
        }
    }
    if let Some(ddistances) = gradients.distances {
        let width = ddistances.len() / heads;
        for (i, parts) in positional.iter().enumerate() {
            let to = &mut ddistances[i % heads * width..][..width];
            to.iter_mut().zip(&*parts.ddistances).for_each(|(to, from)| *to += from);
        }
    }
}
