//! Keys and values of the tokens before, kept as f32, as bf16 or as int8 with a scale for each head of each token: half or
//! a quarter of the memory. Where they are not f32, those of a head become f32 once for all queries that read them.

use super::head::{self, Head};
use super::{Inputs, Rows, Shape, forward};
use crate::buffer::Buf;
use crate::gemm::{Mat, MatMut};
use crate::simd::simd;
use crate::storage::bf16;
use crate::{flops, parallel};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// What keys and values are kept as.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum KeptAs {
    /// As they are.
    #[default]
    F32,
    /// Rounded to the nearest bf16.
    Bf16,
    /// Rounded to 8 bits, with a scale for each head of each token.
    Int8,
}

/// Every kind with its name.
pub const KEPT_AS: &[(&str, KeptAs)] = &[("f32", KeptAs::F32), ("bf16", KeptAs::Bf16), ("int8", KeptAs::Int8)];

impl fmt::Display for KeptAs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(KEPT_AS.iter().find(|(_, kind)| kind == self).map_or("", |(name, _)| name))
    }
}

impl FromStr for KeptAs {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = KEPT_AS.iter().find(|(known, _)| *known == name);
        found.map(|(_, kind)| *kind).ok_or_else(|| format!("found \"{name}\"; expected f32, bf16 or int8"))
    }
}

/// Numbers that are kept, in units of the width of a head.
#[derive(Debug, Clone)]
pub struct Kept {
    unit: usize,
    numbers: Numbers,
}

#[derive(Debug, Clone)]
enum Numbers {
    F32(Vec<f32>),
    Bf16(Vec<u16>),
    /// Codes, and a scale for each unit.
    Int8(Vec<i8>, Vec<f32>),
}

impl Kept {
    /// So many zeros, in units.
    pub fn new(kind: KeptAs, unit: usize, len: usize) -> Self {
        assert!(unit > 0 && len.is_multiple_of(unit), "{len} numbers in units of {unit}");
        let numbers = match kind {
            KeptAs::F32 => Numbers::F32(vec![0.0; len]),
            KeptAs::Bf16 => Numbers::Bf16(vec![0; len]),
            KeptAs::Int8 => Numbers::Int8(vec![0; len], vec![0.0; len / unit]),
        };
        Self { unit, numbers }
    }

    /// As many zeros of the same kind.
    pub fn zeros(&self, len: usize) -> Self {
        let kind = match self.numbers {
            Numbers::F32(_) => KeptAs::F32,
            Numbers::Bf16(_) => KeptAs::Bf16,
            Numbers::Int8(..) => KeptAs::Int8,
        };
        Self::new(kind, self.unit, len)
    }

    /// How many numbers.
    pub fn len(&self) -> usize {
        match &self.numbers {
            Numbers::F32(numbers) => numbers.len(),
            Numbers::Bf16(numbers) => numbers.len(),
            Numbers::Int8(codes, _) => codes.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that they take.
    pub fn bytes(&self) -> usize {
        match &self.numbers {
            Numbers::F32(numbers) => size_of_val(&**numbers),
            Numbers::Bf16(numbers) => size_of_val(&**numbers),
            Numbers::Int8(codes, scales) => size_of_val(&**codes) + size_of_val(&**scales),
        }
    }

    /// The numbers, where they are kept as they are.
    pub fn floats(&self) -> Option<&[f32]> {
        match &self.numbers {
            Numbers::F32(numbers) => Some(numbers),
            _ => None,
        }
    }

    /// Keeps whole units from a place on.
    pub fn write(&mut self, at: usize, values: &[f32]) {
        let Self { unit, numbers } = self;
        assert!(at.is_multiple_of(*unit) && values.len().is_multiple_of(*unit), "whole units of {unit}");
        match numbers {
            Numbers::F32(numbers) => numbers[at..][..values.len()].copy_from_slice(values),
            Numbers::Bf16(numbers) => {
                let to = numbers[at..][..values.len()].iter_mut();
                to.zip(values).for_each(|(to, &value)| *to = bf16::to_bits(value));
            }
            Numbers::Int8(codes, scales) => {
                let codes = codes[at..][..values.len()].chunks_exact_mut(*unit);
                let units = codes.zip(values.chunks_exact(*unit)).zip(&mut scales[at / *unit..]);
                for ((codes, values), scale) in units {
                    let most = values.iter().fold(0.0f32, |most, x| most.max(x.abs()));
                    // What is not finite, or too small to divide by, is kept as such.
                    *scale = if most < 1e-30 { 0.0 } else { most / 127.0 };
                    let factor = if *scale > 0.0 { 127.0 / most } else { 0.0 };
                    let code = |x: f32| (x * factor).round_ties_even() as i8;
                    codes.iter_mut().zip(values).for_each(|(to, &x)| *to = code(x));
                }
            }
        }
    }

    /// Whole units from a place on.
    pub fn read(&self, at: usize, out: &mut [f32]) {
        match &self.numbers {
            Numbers::F32(numbers) => out.copy_from_slice(&numbers[at..][..out.len()]),
            Numbers::Bf16(numbers) => widen(&numbers[at..][..out.len()], out),
            Numbers::Int8(codes, scales) => {
                let units = codes[at..][..out.len()].chunks_exact(self.unit).zip(out.chunks_exact_mut(self.unit));
                units.zip(&scales[at / self.unit..]).for_each(|((codes, out), &scale)| scaled(codes, scale, out));
            }
        }
    }

    /// Copies whole units of another, of the same kind, to a place.
    pub fn copy(&mut self, to: usize, from: &Self, range: Range<usize>) {
        let units = range.start / self.unit..range.end / self.unit;
        match (&mut self.numbers, &from.numbers) {
            (Numbers::F32(own), Numbers::F32(other)) => own[to..][..range.len()].copy_from_slice(&other[range]),
            (Numbers::Bf16(own), Numbers::Bf16(other)) => own[to..][..range.len()].copy_from_slice(&other[range]),
            (Numbers::Int8(own, scales), Numbers::Int8(other, others)) => {
                own[to..][..range.len()].copy_from_slice(&other[range]);
                scales[to / self.unit..][..units.len()].copy_from_slice(&others[units]);
            }
            _ => unreachable!("numbers of the same kind"),
        }
    }

    /// Moves whole units to a place.
    pub fn copy_within(&mut self, range: Range<usize>, to: usize) {
        let units = range.start / self.unit..range.end / self.unit;
        match &mut self.numbers {
            Numbers::F32(numbers) => numbers.copy_within(range, to),
            Numbers::Bf16(numbers) => numbers.copy_within(range, to),
            Numbers::Int8(codes, scales) => {
                codes.copy_within(range, to);
                scales.copy_within(units, to / self.unit);
            }
        }
    }
}

simd! {
    fn widen(from: &[u16], to: &mut [f32]) {
        from.iter().zip(to).for_each(|(from, to)| *to = f32::from_bits(u32::from(*from) << 16));
    }
}

simd! {
    fn scaled(codes: &[i8], scale: f32, to: &mut [f32]) {
        codes.iter().zip(to).for_each(|(code, to)| *to = scale * f32::from(*code));
    }
}

/// Where keys and values that are kept lie: head g of row s of sequence b has its keys at
/// `first + b * batch_stride + s * stride + g * K`, and its values `values` behind them.
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct KeptRows<'a> {
    pub kept: &'a Kept,
    pub first: usize,
    pub values: usize,
    pub stride: usize,
    pub batch_stride: usize,
}

/// As [`forward`] of absolute scores, with keys and values that are kept.
pub fn forward_kept(shape: &Shape, q: Rows<'_>, rows: &KeptRows<'_>, out: &mut [f32]) {
    let KeptRows { kept, first, values, stride, batch_stride } = *rows;
    if let Some(data) = kept.floats() {
        let of = |first: usize| Rows { data: &data[first..], stride, batch_stride };
        let (k, v) = (of(first), of(first + values));
        let inputs = Inputs { q, k, v, relative: None, distances: None, padding: None, lengths: None };
        return forward(shape, &inputs, out, None);
    }
    let Shape { batch, queries, keys, heads, kv_heads, d_head, .. } = *shape;
    flops::add(2 * batch * heads, [queries, keys, d_head]);
    let parts = MatMut::new(out, batch * queries, heads * d_head)
        .split(&ends(batch, queries), &ends(kv_heads, shape.group() * d_head));
    parallel::each(parts, |i, (_, _, out)| group_of_heads(shape, q, rows, (i / kv_heads, i % kv_heads), out));
}

/// One sequence of several that have keys and values of their own: its sizes, with a batch of 1, its queries, what is
/// kept of it, and where its output goes, [T, A].
#[allow(missing_docs)]
pub struct KeptPart<'a> {
    pub shape: Shape,
    pub q: Rows<'a>,
    pub rows: KeptRows<'a>,
    pub out: &'a mut [f32],
}

/// As [`forward_kept`] for each of the parts, all in one loop.
pub fn forward_kept_parts(parts: Vec<KeptPart<'_>>) {
    let mut groups = Vec::new();
    for KeptPart { shape, q, rows, out } in parts {
        let Shape { batch, queries, keys, heads, kv_heads, d_head, .. } = shape;
        assert_eq!(batch, 1, "a part is one sequence");
        flops::add(2 * heads, [queries, keys, d_head]);
        let columns = ends(kv_heads, shape.group() * d_head);
        let outs = MatMut::new(out, queries, heads * d_head).split(&[queries], &columns);
        groups.extend(outs.into_iter().enumerate().map(|(g, (_, _, out))| (shape, q, rows, g, out)));
    }
    parallel::each(groups, |_, (shape, q, rows, g, out)| group_of_heads(&shape, q, &rows, (0, g), out));
}

/// 1 `by`, 2 `by`, ...: `n` of them.
fn ends(n: usize, by: usize) -> Vec<usize> {
    (1..=n).map(|i| i * by).collect()
}

/// The heads of queries of sequence `b` that read head `g` of keys and values, side by side.
fn group_of_heads(shape: &Shape, q: Rows<'_>, rows: &KeptRows<'_>, (b, g): (usize, usize), mut out: MatMut<'_>) {
    let KeptRows { kept, first, values, stride, batch_stride } = *rows;
    let Shape { queries, keys, d_head, .. } = *shape;
    let at = |first: usize| first + b * batch_stride + g * d_head;
    let widened = |first: usize| {
        let mut numbers = Buf::any(keys * d_head);
        for (s, row) in numbers.chunks_exact_mut(d_head).enumerate() {
            kept.read(at(first) + s * stride, row);
        }
        numbers
    };
    let wide; // where they are not f32 already
    let [k, v] = match kept.floats() {
        Some(data) => [first, first + values].map(|first| Mat::with_stride(&data[at(first)..], keys, d_head, stride)),
        None => {
            wide = [widened(first), widened(first + values)];
            [0, 1].map(|i| Mat::new(&wide[i], keys, d_head))
        }
    };
    let mut probabilities = Buf::any(head::BLOCK.min(queries) * keys);
    for of_group in 0..shape.group() {
        let q = q.head(b * q.batch_stride, g * shape.group() + of_group, queries, d_head);
        let out = out.block(0, of_group * d_head, queries, d_head);
        Head::absolute(shape, [q, k, v]).forward(out, &mut probabilities);
    }
}
