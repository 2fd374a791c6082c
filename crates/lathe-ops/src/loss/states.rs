//! How far a student's hidden states and attention maps are from a teacher's, with gradients.
//!
//! - hidden states, per token: the mean of (x - w)^2 over the width (TinyBERT, MobileBERT), or the sum of it over the sum
//!   of w^2, which counts all layers and models alike (Puzzle's, here by token)
//! - attention maps, per query: the mean over heads of sum p (log p - log q) (MobileBERT). Where student and teacher have
//!   different numbers of heads, that of the mean over heads.

use crate::buffer::Buf;
use crate::parallel;
use crate::simd::{simd, sum, sum2};
use candle_core::{D, Result, Tensor};

/// What the squares of differences are divided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// The width.
    Mean,
    /// The sum of the squares of what is wanted.
    Relative,
}

/// What is added to the mean of squares that [`Measure::Relative`] divides by, so that zeros can be wanted.
pub const TINY: f32 = 1e-6;

impl Measure {
    /// The measures by their names in settings.
    pub const NAMES: &[(&str, Self)] = &[("relative", Self::Relative), ("mse", Self::Mean)];
}

/// How far rows x [N, D] are from what is `wanted`, into `losses`, and the gradient of `scale` times their sum into `dx`.
/// Rows that are not `real` count nothing.
pub fn squared_error(
    x: &[f32],
    wanted: &[f32],
    width: usize,
    (measure, real): (Measure, Option<&[bool]>),
    scale: f32,
    losses: &mut [f32],
    dx: &mut [f32],
) {
    assert_eq!((x.len(), x.len(), x.len()), (wanted.len(), dx.len(), losses.len() * width));
    parallel::zip_rows((dx, width), (losses, 1), |row, dx, loss| {
        if real.is_some_and(|real| !real[row]) {
            dx.fill(0.0);
            loss[0] = 0.0;
            return;
        }
        let (x, wanted) = (&x[row * width..][..width], &wanted[row * width..][..width]);
        let over = match measure {
            Measure::Mean => width as f32,
            Measure::Relative => squares(wanted) + TINY * width as f32,
        };
        loss[0] = difference(x, wanted, 2.0 * scale / over, dx) / over;
    });
}

simd! {
    fn squares(x: &[f32]) -> f32 {
        sum(x, |x| x * x)
    }
}

simd! {
    /// dx = factor (x - wanted); returns the sum of (x - wanted)^2.
    fn difference(x: &[f32], wanted: &[f32], factor: f32, dx: &mut [f32]) -> f32 {
        for ((dx, x), wanted) in dx.iter_mut().zip(x).zip(wanted) {
            *dx = factor * (x - wanted);
        }
        sum2(x, wanted, |x, wanted| (x - wanted) * (x - wanted))
    }
}

/// [`squared_error`] as a graph: `[N]`.
pub fn composed_squared_error(x: &Tensor, wanted: &Tensor, measure: Measure) -> Result<Tensor> {
    let error = (x - wanted)?.sqr()?.mean(D::Minus1)?;
    match measure {
        Measure::Mean => Ok(error),
        Measure::Relative => error / (wanted.sqr()?.mean(D::Minus1)? + f64::from(TINY))?,
    }
}

/// Probabilities below this count as this.
const LEAST: f32 = 1e-20;

/// Attention maps of a batch: probabilities [B, H, T, S], zero where a query does not see a key.
#[derive(Clone, Copy)]
pub struct Maps<'a> {
    /// The probabilities.
    pub probabilities: &'a [f32],
    /// H
    pub heads: usize,
}

impl Maps<'_> {
    /// The mean over heads, [B, T, S].
    fn mean(&self, batch: usize) -> Buf {
        let size = self.probabilities.len() / batch / self.heads;
        let mut mean = Buf::zeros(batch * size);
        parallel::rows(&mut mean, size, |b, mean| {
            for head in self.probabilities[b * self.heads * size..][..self.heads * size].chunks_exact(size) {
                crate::simd::add_scaled(mean, 1.0 / self.heads as f32, head);
            }
        });
        mean
    }
}

/// How far the maps of a student are from a teacher's, by query into `losses` [B, T], and the gradient of `scale` times
/// their sum for the student's probabilities. Queries that are not `real` count nothing.
pub fn attention_kl(
    student: Maps<'_>,
    teacher: Maps<'_>,
    (batch, queries): (usize, usize),
    real: Option<&[bool]>,
    scale: f32,
    losses: &mut [f32],
) -> Buf {
    let size = student.probabilities.len() / student.heads / batch; // T * S
    assert_eq!((size * batch * teacher.heads, batch * queries), (teacher.probabilities.len(), losses.len()));
    let keys = size / queries;
    let alike = student.heads == teacher.heads;
    let means = (!alike).then(|| (student.mean(batch), teacher.mean(batch)));
    let (q, p, heads) = match &means {
        None => (student.probabilities, teacher.probabilities, student.heads),
        Some((q, p)) => (&**q, &**p, 1),
    };
    let mut dq = Buf::any(batch * heads * size);
    parallel::zip_rows((&mut dq, heads * size), (losses, queries), |b, dq, losses| {
        losses.fill(0.0);
        for (row, dq) in dq.chunks_exact_mut(keys).enumerate() {
            let (query, place) = (row % queries, (b * heads * queries + row) * keys);
            if real.is_some_and(|real| !real[b * queries + query]) {
                dq.fill(0.0);
                continue;
            }
            let (q, p) = (&q[place..][..keys], &p[place..][..keys]);
            losses[query] += kl_row(p, q, scale / heads as f32, dq) / heads as f32;
        }
    });
    if alike {
        return dq;
    }
    // Each head has its share of the mean.
    let mut each = Buf::zeros(student.probabilities.len());
    parallel::rows(&mut each, size, |row, each| {
        let b = row / student.heads;
        crate::simd::add_scaled(each, 1.0 / student.heads as f32, &dq[b * size..][..size]);
    });
    each
}

/// sum p (log p - log q), and its gradient times `factor` for q.
fn kl_row(p: &[f32], q: &[f32], factor: f32, dq: &mut [f32]) -> f32 {
    let mut kl = 0.0;
    for ((&p, &q), dq) in p.iter().zip(q).zip(dq) {
        if p <= 0.0 {
            *dq = 0.0;
            continue;
        }
        let ratio = p / q.max(LEAST);
        kl += p * ratio.ln();
        *dq = -factor * ratio;
    }
    kl
}

/// [`attention_kl`] as a graph, of log-probabilities [B, H, T, S] of a student and probabilities of a teacher: [B, T].
pub fn composed_attention_kl(log_q: &Tensor, p: &Tensor) -> Result<Tensor> {
    let (log_q, p) = match log_q.dim(1)? == p.dim(1)? {
        true => (log_q.clone(), p.clone()),
        false => (log_q.exp()?.mean_keepdim(1)?.log()?, p.mean_keepdim(1)?),
    };
    // 0 log 0 = 0
    let log_p = p.maximum(&Tensor::full(LEAST, p.shape(), p.device())?.to_dtype(p.dtype())?)?.log()?;
    (p * (log_p - log_q)?)?.sum(D::Minus1)?.mean(1)
}
