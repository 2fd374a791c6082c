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
//! Sequences may have lengths of their own, with their rows one after the other and no padding between them. Each then gets
//! what it gets alone.
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
    /// T: queries of a sequence; of the longest, where each has its own length.
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

    /// Notes so many passes' products of T by S by K: scores, values, and positions where scores are relative.
    fn count(&self, inputs: &Inputs<'_>, sequences: &[Sequence], passes: usize) {
        let products = self.heads * if inputs.relative.is_some() { 3 } else { 2 };
        for sequence in sequences {
            flops::add(passes * products, [sequence.queries, sequence.keys, self.d_head]);
        }
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
    /// A head of some rows, which begin at a number of `data`.
    fn head(&self, first: usize, h: usize, rows: usize, d_head: usize) -> Mat<'a> {
        let data = if rows == 0 { &[] } else { &self.data[first + h * d_head..] };
        Mat::with_stride(data, rows, d_head, self.stride)
    }
}

/// Where a sequence of a batch stands.
#[derive(Clone, Copy)]
struct Sequence {
    /// Its number.
    b: usize,
    /// T and S of its own.
    queries: usize,
    keys: usize,
    /// Its first row, where sequences have lengths of their own.
    first: Option<usize>,
    /// Where its rows of queries and of keys end, and its first probability.
    ends: [usize; 2],
    map: usize,
}

impl Sequence {
    /// Where its rows begin in `rows.data`.
    fn begin(&self, rows: &Rows<'_>) -> usize {
        self.first.map_or(self.b * rows.batch_stride, |first| first * rows.stride)
    }

    /// T * S
    fn map_size(&self) -> usize {
        self.queries * self.keys
    }
}

/// How many probabilities the heads of sequences of so many tokens have, in all.
pub fn maps_of_lengths(heads: usize, lengths: &[usize]) -> usize {
    lengths.iter().map(|len| heads * len * len).sum()
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
    /// `[B]`: tokens of each sequence, at most T, which is S. Rows of queries, keys, values and of the output then stand one
    /// after the other, without padding, and `batch_stride` says nothing; a head's probabilities are as many squared.
    pub lengths: Option<&'a [usize]>,
}

impl<'a> Inputs<'a> {
    /// The sequences of a batch.
    fn sequences(&self, shape: &Shape) -> Vec<Sequence> {
        let Shape { batch, queries, keys, heads, .. } = *shape;
        if let Some(lengths) = self.lengths {
            assert_eq!((lengths.len(), queries), (batch, keys), "a length for each sequence, of queries as of keys");
            assert!(self.padding.is_none() && self.relative.is_none(), "lengths go without padding or relative scores");
        }
        let (mut row, mut map) = (0, 0);
        let mut next = |b: usize| {
            let (first, queries, keys) = match self.lengths {
                Some(lengths) => (Some(row), lengths[b], lengths[b]),
                None => (None, queries, keys),
            };
            row += queries;
            let ends = [row, if first.is_some() { row } else { (b + 1) * keys }];
            let sequence = Sequence { b, queries, keys, first, ends, map };
            map += heads * sequence.map_size();
            sequence
        };
        (0..batch).map(&mut next).collect()
    }

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
    let Shape { heads, d_head, .. } = *shape;
    let sequences = inputs.sequences(shape);
    shape.count(inputs, &sequences, 1);
    let row_ends: Vec<usize> = sequences.iter().map(|sequence| sequence.ends[0]).collect();
    let col_ends: Vec<usize> = (1..=heads).map(|h| h * d_head).collect();
    let rows = row_ends.last().copied().unwrap_or(0);
    let parts = MatMut::new(out, rows, heads * d_head).split(&row_ends, &col_ends);
    let work = |i: usize, out: MatMut<'_>, probabilities: &mut [f32]| {
        Head::new(shape, inputs, &sequences[i / heads], i % heads).forward(out, probabilities);
    };
    match probabilities {
        Some(mut rest) => {
            let mut with_maps = Vec::with_capacity(parts.len());
            for (i, (_, _, out)) in parts.into_iter().enumerate() {
                let (own, after) = rest.split_at_mut(sequences[i / heads].map_size());
                with_maps.push((out, own));
                rest = after;
            }
            parallel::each(with_maps, |i, (out, probabilities)| work(i, out, probabilities));
        }
        None => parallel::each(parts, |i, (_, _, out)| {
            let Sequence { queries, keys, .. } = sequences[i / heads];
            work(i, out, &mut Buf::any(head::BLOCK.min(queries) * keys));
        }),
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
    let Shape { queries, heads, kv_heads, d_head, .. } = *shape;
    let (group, sequences) = (shape.group(), inputs.sequences(shape));
    shape.count(inputs, &sequences, 2);
    let columns = |by: usize| -> Vec<usize> { (1..=kv_heads).map(|i| i * by).collect() };
    let rows = |of: usize| -> Vec<usize> { sequences.iter().map(|sequence| sequence.ends[of]).collect() };
    let dq = gradients.dq.split(&rows(0), &columns(group * d_head));
    let dk = gradients.dk.split(&rows(1), &columns(d_head));
    let dv = gradients.dv.split(&rows(1), &columns(d_head));
    let mut positional: Vec<Positional> = (0..sequences.len() * heads).map(|_| Positional::default()).collect();
    let parts = dq.into_iter().zip(dk).zip(dv).zip(positional.chunks_mut(group)).collect();
    parallel::each(parts, |i, ((((_, _, mut dq), (_, _, mut dk)), (_, _, mut dv)), positional)| {
        for (g, positional) in positional.iter_mut().enumerate() {
            let i = i * group + g;
            let (sequence, h, a) = (&sequences[i / heads], i % heads, heads * d_head);
            if sequence.queries == 0 {
                continue;
            }
            let first = (sequence.ends[0] - sequence.queries) * a;
            let dout = Rows { data: dout, stride: a, batch_stride: 0 }.head(first, h, sequence.queries, d_head);
            let place = sequence.map + h * sequence.map_size()..sequence.map + (h + 1) * sequence.map_size();
            let maps = (&probabilities[place.clone()], dprobabilities.map(|maps| &maps[place]));
            let dq = dq.block(0, g * d_head, sequence.queries, d_head);
            *positional = Head::new(shape, inputs, sequence, h).backward(maps, dout, dq, (&mut dk, &mut dv), g > 0);
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
            let shorter = queries - sequences[i / heads].queries;
            let to = &mut ddistances[i % heads * width..][shorter..width];
            to.iter_mut().zip(&*parts.ddistances).for_each(|(to, from)| *to += from);
        }
    }
}
