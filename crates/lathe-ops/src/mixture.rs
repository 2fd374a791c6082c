//! Mixtures of the outputs of several layers: y = sum_i p_i y_i (PLANER, equation 1; PAR, equation 6), with
//! dp_i = sum of dy y_i over all entries, and dy_i = p_i dy.

use crate::buffer::Buf;
use crate::parallel;
use crate::simd::{add_scaled, simd};
use candle_core::{Result, Tensor};

/// What a thread takes at a time, and what is summed at a time.
const PIECE: usize = 1 << 12;

/// y += p x.
pub fn add(p: f32, x: &[f32], y: &mut [f32]) {
    assert_eq!(x.len(), y.len());
    let (whole, rest) = y.split_at_mut(y.len() / PIECE * PIECE);
    let done = whole.len();
    parallel::rows(whole, PIECE, |row, y| add_scaled(y, p, &x[row * PIECE..]));
    add_scaled(rest, p, &x[done..]);
}

/// y = sum_i p_i y_i. A weight of 0 leaves its output out, so that a weight of 1 among zeros gives that output exactly.
pub fn forward<'a>(p: &[f32], outputs: impl IntoIterator<Item = &'a [f32]>, y: &mut [f32]) {
    y.fill(0.0);
    for (&p, output) in p.iter().zip(outputs).filter(|(p, _)| **p != 0.0) {
        add(p, output, y);
    }
}

/// p x, which is dy_i for x = dy.
pub fn scaled(p: f32, x: &[f32]) -> Buf {
    let mut y = Buf::zeros(x.len());
    add(p, x, &mut y);
    y
}

/// The sum of all products of entries, which is dp_i for dy and y_i, in pieces whose order is fixed.
pub fn dot(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let mut sums = vec![0.0; a.len().div_ceil(PIECE)];
    parallel::each(a.chunks(PIECE).zip(b.chunks(PIECE)).zip(&mut sums).collect(), |_, ((a, b), sum)| {
        *sum = f64::from(products(a, b));
    });
    sums.iter().sum()
}

simd! {
    fn products(a: &[f32], b: &[f32]) -> f32 {
        crate::simd::sum2(a, b, |a, b| a * b)
    }
}

/// [`forward`] as a graph: p is (n), and each output of any one shape.
pub fn composed(p: &Tensor, outputs: &[&Tensor]) -> Result<Tensor> {
    let terms = outputs.iter().enumerate().map(|(i, output)| output.broadcast_mul(&p.get(i)?));
    terms.reduce(|sum, term| sum? + term?).unwrap_or_else(|| p.zeros_like())
}
