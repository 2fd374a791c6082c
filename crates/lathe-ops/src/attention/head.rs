//! One head of one sequence, forward and backward, in blocks of queries.

use super::{Inputs, Sequence, Shape};
use crate::buffer::Buf;
use crate::dropout::Dropout;
use crate::gemm::{Mat, MatMut, Rhs, gemm_part};
use crate::simd::{add_scaled, exp, max, simd, sum, sum2};

/// Rows of queries that are processed together.
pub const BLOCK: usize = 64;

/// A head's part of the gradients of r, u and v.
pub(super) struct HeadRelative {
    pub dr: Buf,
    pub du: Vec<f32>,
    pub dv: Vec<f32>,
}

/// A head's part of the gradients of what positions have to do with scores.
#[derive(Default)]
pub(super) struct Positional {
    pub relative: Option<HeadRelative>,
    /// Of biases by distance; empty where there are none.
    pub ddistances: Buf,
}

/// One head of one sequence.
pub(super) struct Head<'a> {
    shape: Shape,
    q: Mat<'a>,
    k: Mat<'a>,
    v: Mat<'a>,
    r: Option<Mat<'a>>,
    /// Which keys are no padding.
    real: Option<&'a [bool]>,
    /// q + u and q + v, where scores are relative.
    biased: Option<(Buf, Buf)>,
    /// Biases by distance.
    distances: Option<&'a [f32]>,
    scale: f32,
    dropout: Dropout,
}

impl<'a> Head<'a> {
    pub fn new(shape: &Shape, inputs: &Inputs<'a>, sequence: &Sequence, h: usize) -> Self {
        let Shape { heads, d_head, .. } = *shape;
        let Sequence { b, queries, keys, .. } = *sequence;
        let q = inputs.q.head(sequence.begin(&inputs.q), h, queries, d_head);
        // Of all biases by distance those between places of this sequence, which may be shorter.
        let (shorter, all) = (shape.queries - queries, shape.queries - 1 + shape.keys);
        let of_keys = h / shape.group();
        let biased = inputs.relative.map(|relative| {
            let with = |bias: &[f32]| {
                let mut out = Buf::any(queries * d_head);
                let bias = &bias[h * d_head..][..d_head];
                for (i, row) in out.chunks_exact_mut(d_head).enumerate() {
                    let q = q.row(i, 0, d_head);
                    row.iter_mut().zip(q.iter().zip(bias)).for_each(|(x, (q, bias))| *x = q + bias);
                }
                out
            };
            (with(relative.u), with(relative.v))
        });
        Self {
            shape: Shape { queries, keys, ..*shape },
            q,
            k: inputs.k.head(sequence.begin(&inputs.k), of_keys, keys, d_head),
            v: inputs.v.head(sequence.begin(&inputs.v), of_keys, keys, d_head),
            r: inputs
                .relative
                .map(|relative| Mat::with_stride(&relative.r[h * d_head..], keys, d_head, heads * d_head)),
            real: inputs.real(shape, b),
            biased,
            distances: inputs
                .distances
                .map(|of_heads| &of_heads[h * all + shorter..][..(queries + keys).saturating_sub(1)]),
            scale: 1.0 / (d_head as f32).sqrt(),
            dropout: shape.dropout.with((b * heads + h) as u64),
        }
    }

    /// A head of absolute scores, of queries, keys and values, that drops nothing.
    pub fn absolute(shape: &Shape, [q, k, v]: [Mat<'a>; 3]) -> Self {
        let scale = 1.0 / (shape.d_head as f32).sqrt();
        let (dropout, shape) = (Dropout::NONE, *shape);
        Self { shape, q, k, v, r: None, real: None, biased: None, distances: None, scale, dropout }
    }

    /// Blocks of queries: first, count, and one past the last key that any of them sees.
    fn blocks(&self) -> impl DoubleEndedIterator<Item = (usize, usize, usize)> + use<> {
        let Shape { queries, keys, mask, .. } = self.shape;
        (0..queries).step_by(BLOCK).map(move |first| {
            let count = BLOCK.min(queries - first);
            let (_, end) = mask.range(keys.saturating_sub(queries) + first + count - 1, keys);
            (first, count, end)
        })
    }

    /// A single query has no use for tiles: keys and values are read once, as they are.
    fn forward_one(&self, mut out: MatMut<'_>, probabilities: &mut [f32]) {
        let Shape { keys, d_head, mask, .. } = self.shape;
        let (from, to) = mask.range(keys - 1, keys);
        probabilities.fill(0.0);
        let seen = &mut probabilities[from..to];
        let q = self.biased.as_ref().map_or_else(|| self.q.row(0, 0, d_head), |(with_u, _)| with_u);
        for (j, score) in seen.iter_mut().enumerate() {
            *score = dot(q, self.k.row(from + j, 0, d_head));
        }
        if let (Some((_, with_v)), Some(r)) = (&self.biased, self.r) {
            for (j, score) in seen.iter_mut().enumerate() {
                *score += dot(with_v, r.row(from + j, 0, d_head));
            }
        }
        self.add_distances(0, from, seen);
        self.softmax(seen, from);
        let out = out.row(0, 0, d_head);
        out.fill(0.0);
        for (j, &weight) in seen.iter().enumerate() {
            add_scaled(out, weight, self.v.row(from + j, 0, d_head));
        }
    }

    /// The output of all queries. `probabilities` has room for those of all of them, which then stay there, or of one block.
    pub fn forward(&self, mut out: MatMut<'_>, probabilities: &mut [f32]) {
        let Shape { queries, keys, d_head, mask, .. } = self.shape;
        if queries == 0 {
            return;
        }
        let kept = probabilities.len() == queries * keys;
        if queries == 1 && self.dropout.is_none() {
            return self.forward_one(out, probabilities);
        }
        let mut shifted = Buf::any(if self.r.is_some() { BLOCK * keys } else { 0 });
        let mut dropped = Buf::any(if self.dropout.is_none() { 0 } else { BLOCK * keys });
        for (first, count, end) in self.blocks() {
            let place = if kept { first } else { 0 };
            let block = &mut probabilities[place * keys..(place + count) * keys];
            self.scores(first, count, end, block, &mut shifted);
            for (i, row) in block.chunks_exact_mut(keys).enumerate() {
                let (from, to) = mask.range(keys.saturating_sub(queries) + first + i, keys);
                row[..from].fill(0.0);
                row[to..end].fill(0.0);
                self.add_distances(first + i, from, &mut row[from..to]);
                self.softmax(&mut row[from..to], from);
            }
            let weights = if self.dropout.is_none() {
                Mat::with_stride(block, count, end, keys)
            } else {
                dropped[..count * keys].copy_from_slice(block);
                self.drop_block(&mut dropped, first, count, end);
                Mat::with_stride(&dropped, count, end, keys)
            };
            self.product(out.block(first, 0, count, d_head), weights, self.v.rows_from(0, end), false);
        }
    }

    /// Probabilities from the scores of the keys from `from` on.
    fn softmax(&self, scores: &mut [f32], from: usize) {
        match self.real {
            None => softmax_row(scores, self.scale),
            Some(real) => softmax_real_row(scores, &real[from..], self.scale),
        }
    }

    /// Adds the biases of a query's distances to its unscaled scores of the keys from `from` on.
    fn add_distances(&self, query: usize, from: usize, scores: &mut [f32]) {
        if let Some(distances) = self.distances {
            add_scaled(scores, 1.0 / self.scale, &distances[self.shape.queries - 1 - query + from..]);
        }
    }

    /// C = A B, or added to C.
    fn product(&self, c: MatMut<'_>, a: Mat<'_>, b: Mat<'_>, accumulate: bool) {
        gemm_part(c, a, Rhs::new(b, self.shape.precision), accumulate);
    }

    /// Applies the dropout of this head's probabilities to a block of rows.
    fn drop_block(&self, rows: &mut [f32], first: usize, count: usize, end: usize) {
        let keys = self.shape.keys;
        for (i, row) in rows.chunks_exact_mut(keys).take(count).enumerate() {
            self.dropout.apply_from(&mut row[..end], (first + i) * keys);
        }
    }

    /// Unscaled scores of a block of queries, rows `keys` apart.
    fn scores(&self, first: usize, count: usize, end: usize, out: &mut [f32], shifted: &mut [f32]) {
        let Shape { queries, keys, d_head, .. } = self.shape;
        let Some((with_u, with_v)) = &self.biased else {
            let q = self.q.rows_from(first, count);
            return self.product(MatMut::with_stride(out, count, end, keys), q, self.k.rows_from(0, end).t(), false);
        };
        let range = first * d_head..(first + count) * d_head;
        let (with_u, with_v) = (&with_u[range.clone()], &with_v[range]);
        self.product(
            MatMut::with_stride(out, count, end, keys),
            Mat::new(with_u, count, d_head),
            self.k.rows_from(0, end).t(),
            false,
        );
        // Query i meets key j at position j + T - 1 - i, so this block needs positions from `low` on.
        let low = queries - first - count;
        let r = self.r.expect("relative scores have positions").rows_from(low, keys - low);
        self.product(
            MatMut::with_stride(shifted, count, keys - low, keys),
            Mat::new(with_v, count, d_head),
            r.t(),
            false,
        );
        for (i, (row, shifted)) in out.chunks_exact_mut(keys).zip(shifted.chunks_exact(keys)).take(count).enumerate() {
            let skip = count - 1 - i;
            let seen = end.min(keys - low - skip);
            row[..seen].iter_mut().zip(&shifted[skip..]).for_each(|(score, shifted)| *score += shifted);
        }
    }

    /// The gradients of a head's queries, keys and values, from that of the output and, where there is one, that of the
    /// probabilities; where `add`, those of keys and values are added to what another head left there.
    pub fn backward(
        &self,
        (probabilities, dprobabilities): (&[f32], Option<&[f32]>),
        dout: Mat<'_>,
        mut dq: MatMut<'_>,
        (dk, dv): (&mut MatMut<'_>, &mut MatMut<'_>),
        mut add: bool,
    ) -> Positional {
        let Shape { queries, keys, d_head, mask, .. } = self.shape;
        let mut ds = Buf::any(BLOCK * keys);
        let mut dropped = Buf::any(if self.dropout.is_none() { 0 } else { BLOCK * keys });
        let mut relative = self.r.map(|_| HeadRelative {
            dr: Buf::zeros(keys * d_head),
            du: vec![0.0; d_head],
            dv: vec![0.0; d_head],
        });
        let mut ddistances = Buf::zeros(self.distances.map_or(0, <[f32]>::len));
        let mut moved = Buf::any(if self.r.is_some() { BLOCK * keys } else { 0 });
        // The last block sees every key, so what it gives is stored, unless it is added too, and the others add to it.
        for (first, count, end) in self.blocks().rev() {
            let p = &probabilities[first * keys..(first + count) * keys];
            let dout = dout.rows_from(first, count);
            // dP = dO V^T
            self.product(MatMut::with_stride(&mut ds, count, end, keys), dout, self.v.rows_from(0, end).t(), false);
            let weights = if self.dropout.is_none() {
                Mat::with_stride(p, count, end, keys)
            } else {
                self.drop_block(&mut ds, first, count, end);
                dropped[..count * keys].copy_from_slice(p);
                self.drop_block(&mut dropped, first, count, end);
                Mat::with_stride(&dropped, count, end, keys)
            };
            // dV += P^T dO
            self.product(dv.block(0, 0, end, d_head), weights.t(), dout, add);
            for (i, ds) in ds.chunks_exact_mut(keys).take(count).enumerate() {
                let (from, to) = mask.range(keys.saturating_sub(queries) + first + i, keys);
                ds[..from].fill(0.0);
                ds[to..end].fill(0.0);
                if let Some(own) = dprobabilities {
                    add_scaled(&mut ds[from..to], 1.0, &own[(first + i) * keys + from..]);
                }
                // Padding has p = 0, so ds = 0.
                softmax_backward_row(&p[i * keys + from..i * keys + to], &mut ds[from..to], self.scale);
                if self.distances.is_some() {
                    let place = queries - 1 - (first + i) + from;
                    add_scaled(&mut ddistances[place..place + to - from], 1.0 / self.scale, &ds[from..to]);
                }
            }
            let ds_mat = Mat::with_stride(&ds, count, end, keys);
            // dQ = dS K, dK += dS^T (Q + u)
            self.product(dq.block(first, 0, count, d_head), ds_mat, self.k.rows_from(0, end), false);
            match (&self.biased, &mut relative) {
                (Some((with_u, with_v)), Some(relative)) => {
                    let with_u = Mat::new(&with_u[first * d_head..(first + count) * d_head], count, d_head);
                    self.product(dk.block(0, 0, end, d_head), ds_mat.t(), with_u, add);
                    add_columns(&mut dq.block(first, 0, count, d_head), &mut relative.du);
                    // The same gradients at the places of their positions.
                    let low = queries - first - count;
                    let width = keys - low;
                    for (i, (moved, ds)) in
                        moved.chunks_exact_mut(keys).zip(ds.chunks_exact(keys)).take(count).enumerate()
                    {
                        let skip = count - 1 - i;
                        let seen = end.min(width - skip);
                        moved[..width].fill(0.0);
                        moved[skip..skip + seen].copy_from_slice(&ds[..seen]);
                    }
                    let moved = Mat::with_stride(&moved, count, width, keys);
                    let r = self.r.expect("relative scores have positions").rows_from(low, width);
                    let mut dq_r = Buf::any(count * d_head);
                    self.product(MatMut::new(&mut dq_r, count, d_head), moved, r, false);
                    let with_v = Mat::new(&with_v[first * d_head..(first + count) * d_head], count, d_head);
                    let dr = MatMut::new(&mut relative.dr[low * d_head..], width, d_head);
                    self.product(dr, moved.t(), with_v, true);
                    for (i, part) in dq_r.chunks_exact(d_head).enumerate() {
                        relative.dv.iter_mut().zip(part).for_each(|(sum, x)| *sum += x);
                        dq.row(first + i, 0, d_head).iter_mut().zip(part).for_each(|(dq, x)| *dq += x);
                    }
                }
                _ => self.product(dk.block(0, 0, end, d_head), ds_mat.t(), self.q.rows_from(first, count), add),
            }
            add = true;
        }
        Positional { relative, ddistances }
    }
}

/// sums += the rows of a matrix.
fn add_columns(matrix: &mut MatMut<'_>, sums: &mut [f32]) {
    for row in 0..matrix.rows() {
        let width = matrix.cols();
        sums.iter_mut().zip(matrix.row(row, 0, width)).for_each(|(sum, x)| *sum += *x);
    }
}

simd! {
    fn dot(a: &[f32], b: &[f32]) -> f32 {
        sum2(a, b, |a, b| a * b)
    }
}

simd! {
    /// softmax(scale * x) in place.
    fn softmax_row(x: &mut [f32], scale: f32) {
        let most = max(x);
        for x in x.iter_mut() {
            *x = exp::<FUSED>((*x - most) * scale);
        }
        let factor = 1.0 / sum(x, |x| x);
        for x in x.iter_mut() {
            *x *= factor;
        }
    }
}

simd! {
    /// softmax(scale * x) in place over what is real, and 0 elsewhere; zeros where nothing is real.
    fn softmax_real_row(x: &mut [f32], real: &[bool], scale: f32) {
        for (x, &real) in x.iter_mut().zip(real) {
            *x = if real { *x } else { f32::NEG_INFINITY };
        }
        let most = max(x);
        if most == f32::NEG_INFINITY {
            return x.fill(0.0);
        }
        for (x, &real) in x.iter_mut().zip(real) {
            // exp of minus infinity is small, but not 0.
            *x = if real { exp::<FUSED>((*x - most) * scale) } else { 0.0 };
        }
        let factor = 1.0 / sum(x, |x| x);
        for x in x.iter_mut() {
            *x *= factor;
        }
    }
}

simd! {
    /// From dP to dS: P * (dP - sum(dP * P)) * scale.
    fn softmax_backward_row(p: &[f32], dp: &mut [f32], scale: f32) {
        let along = sum2(p, dp, |p, dp| p * dp);
        for (dp, &p) in dp.iter_mut().zip(p) {
            *dp = p * (*dp - along) * scale;
        }
    }
}
