//! Layer norm (Ba et al., 2016): y = (x - mean) / sqrt(var + eps) * gamma + beta, per row, and RMS norm (Zhang
//! and Sennrich, 2019): y = x / sqrt(mean x^2 + eps) * gamma. In the place of either, none (MobileBERT's NoNorm): y = x * gamma + beta.

use crate::parallel;
use crate::simd::{simd, sum, sum2};
use candle_core::{D, Result, Tensor};

/// Which norm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Norm {
    /// Subtracts the mean, divides by the deviation.
    Layer,
    /// Divides by the root of the mean square.
    Rms,
    /// Does nothing before gamma and beta.
    Scale,
}

/// A norm's variant and its epsilon.
#[derive(Debug, Clone, Copy)]
pub struct NormKind {
    /// Which.
    pub norm: Norm,
    /// Added to the variance.
    pub eps: f32,
}

impl NormKind {
    /// Layer norm with the usual epsilon.
    pub const LAYER: Self = Self { norm: Norm::Layer, eps: 1e-5 };

    /// Normalises rows of `gamma.len()`. `stats` gets mean and 1 / deviation of each row, for [`Self::backward`]. For RMS
    /// norm `beta` is empty.
    pub fn forward(self, x: &[f32], gamma: &[f32], beta: &[f32], y: &mut [f32], stats: &mut [f32]) {
        let width = gamma.len();
        assert!(x.len() == y.len() && stats.len() * width == 2 * x.len());
        let centre = self.norm == Norm::Layer;
        parallel::zip_rows((y, width), (stats, 2), |row, y, stats| {
            let x = &x[row * width..][..width];
            stats.copy_from_slice(&[0.0, 1.0]);
            if self.norm != Norm::Scale {
                let (mean, variance) = moments(x, centre);
                stats.copy_from_slice(&[mean, 1.0 / (variance + self.eps).sqrt()]);
            }
            apply_row(x, gamma, beta, stats[0], stats[1], y);
        });
    }

    /// [`Self::forward`] again, with the statistics that it gave.
    pub fn recompute(self, x: &[f32], gamma: &[f32], beta: &[f32], stats: &[f32], y: &mut [f32]) {
        let width = gamma.len();
        assert!(x.len() == y.len() && stats.len() * width == 2 * x.len());
        parallel::rows(y, width, |row, y| {
            apply_row(&x[row * width..][..width], gamma, beta, stats[2 * row], stats[2 * row + 1], y);
        });
    }

    /// Adds the gradient of the input to `dx` and those of the parameters to `dgamma` and `dbeta`.
    pub fn backward(
        self,
        x: &[f32],
        gamma: &[f32],
        stats: &[f32],
        dy: &[f32],
        dx: &mut [f32],
        dgamma: &mut [f32],
        dbeta: &mut [f32],
    ) {
        let width = gamma.len();
        let centre = self.norm == Norm::Layer;
        let mut sums = vec![0.0; 2 * width];
        parallel::sum_rows_with((dx, width), &mut sums, |row, dx, sums| {
            let (x, dy) = (&x[row * width..][..width], &dy[row * width..][..width]);
            let (gamma_sums, beta_sums) = sums.split_at_mut(width);
            params_row(x, stats[2 * row], stats[2 * row + 1], dy, gamma_sums, beta_sums);
            match self.norm {
                Norm::Scale => scale_backward_row(gamma, dy, dx),
                _ => backward_row(x, gamma, stats[2 * row], stats[2 * row + 1], dy, centre, dx),
            }
        });
        dgamma.iter_mut().zip(&sums[..width]).for_each(|(d, s)| *d += s);
        dbeta.iter_mut().zip(&sums[width..]).for_each(|(d, s)| *d += s);
    }

    /// [`Self::forward`] as a graph; RMS norm has no `beta`.
    pub fn composed(self, x: &Tensor, gamma: &Tensor, beta: Option<&Tensor>) -> Result<Tensor> {
        let x = match self.norm {
            Norm::Layer => x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)?,
            Norm::Rms | Norm::Scale => x.clone(),
        };
        let normed = match self.norm {
            Norm::Scale => x,
            _ => x.broadcast_div(&(x.sqr()?.mean_keepdim(D::Minus1)? + f64::from(self.eps))?.sqrt()?)?,
        };
        let y = normed.broadcast_mul(gamma)?;
        match beta {
            Some(beta) => y.broadcast_add(beta),
            None => Ok(y),
        }
    }
}

simd! {
    fn moments(x: &[f32], centre: bool) -> (f32, f32) {
        let n = x.len() as f32;
        let mean = if centre { sum(x, |x| x) / n } else { 0.0 };
        (mean, sum(x, |x| (x - mean) * (x - mean)) / n)
    }
}

simd! {
    fn apply_row(x: &[f32], gamma: &[f32], beta: &[f32], mean: f32, scale: f32, y: &mut [f32]) {
        for ((y, &x), &gamma) in y.iter_mut().zip(x).zip(gamma) {
            *y = (x - mean) * scale * gamma;
        }
        for (y, &beta) in y.iter_mut().zip(beta) {
            *y += beta;
        }
    }
}

simd! {
    fn backward_row(x: &[f32], gamma: &[f32], mean: f32, scale: f32, dy: &[f32], centre: bool, dx: &mut [f32]) {
        let n = x.len() as f32;
        let along = sum3(x, gamma, dy, mean) * scale / n; // mean of dxhat * xhat, with one more scale below
        let flat = if centre { sum2(dy, gamma, |dy, gamma| dy * gamma) / n } else { 0.0 };
        for (((dx, &x), &gamma), &dy) in dx.iter_mut().zip(x).zip(gamma).zip(dy) {
            *dx += scale * (dy * gamma - flat - (x - mean) * scale * along);
        }
    }
}

simd! {
    fn scale_backward_row(gamma: &[f32], dy: &[f32], dx: &mut [f32]) {
        for ((dx, &gamma), &dy) in dx.iter_mut().zip(gamma).zip(dy) {
            *dx += gamma * dy;
        }
    }
}

/// Sum of (x - mean) * gamma * dy.
#[inline(always)]
fn sum3(x: &[f32], gamma: &[f32], dy: &[f32], mean: f32) -> f32 {
    // Two at a time through sum2 would need a third slice; lanes by hand, as sum2 has them.
    const LANES: usize = 16;
    let mut lanes = [0.0f32; LANES];
    let whole = x.len() / LANES * LANES;
    for i in (0..whole).step_by(LANES) {
        for l in 0..LANES {
            lanes[l] += (x[i + l] - mean) * gamma[i + l] * dy[i + l];
        }
    }
    for i in whole..x.len() {
        lanes[i - whole] += (x[i] - mean) * gamma[i] * dy[i];
    }
    lanes.iter().sum()
}

simd! {
    fn params_row(x: &[f32], mean: f32, scale: f32, dy: &[f32], dgamma: &mut [f32], dbeta: &mut [f32]) {
        for (((dgamma, dbeta), &x), &dy) in dgamma.iter_mut().zip(dbeta).zip(x).zip(dy) {
            *dgamma += dy * (x - mean) * scale;
            *dbeta += dy;
        }
    }
}
