//! Probabilities of a slot's options from its alphas.
//!
//! Gumbel-softmax (Jang et al., 2017; Maddison et al., 2017): p = softmax((alpha + g) / tau) with g_i = -ln(-ln u_i).
//! The greatest entry of alpha + g is a draw from softmax(alpha), whatever tau is; for tau to 0, p becomes that draw.
//! Without the noise it is the mixture of DARTS (Liu et al., 2019). The gradient is that of a softmax:
//! dalpha_j = p_j (dp_j - sum_i p_i dp_i) / tau.

use rand::{Rng, RngExt};
use serde::{Deserialize, Serialize};

/// What probabilities are drawn with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Relaxation {
    /// Gumbel noise.
    Gumbel,
    /// No noise: always the same probabilities.
    Softmax,
}

/// What a slot computes with of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sampling {
    /// All options, weighted with p.
    Soft,
    /// One option: a draw from softmax(alpha).
    Hard,
    /// All options, weighted with 1 for the greatest of p and 0 for the others, but with the gradient of p.
    StraightThrough,
}

/// A sample of one slot.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// p, which sums to 1.
    pub soft: Vec<f64>,
    /// The greatest entry of alpha with its noise.
    pub hard: usize,
    tau: f64,
}

impl Sample {
    /// A sample with given noise, which may be 0.
    pub fn new(alpha: &[f64], noise: &[f64], tau: f64) -> Self {
        let noisy: Vec<f64> = alpha.iter().zip(noise).map(|(alpha, noise)| alpha + noise).collect();
        Self { soft: softmax(&noisy, tau), hard: argmax(&noisy), tau }
    }

    /// Draws a sample.
    pub fn draw<R: Rng>(alpha: &[f64], tau: f64, relaxation: Relaxation, rng: &mut R) -> Self {
        match relaxation {
            Relaxation::Gumbel => Self::new(alpha, &noise(alpha.len(), rng), tau),
            Relaxation::Softmax => Self::new(alpha, &vec![0.0; alpha.len()], tau),
        }
    }

    /// 1 for the greatest entry and 0 for the others.
    pub fn one_hot(&self) -> Vec<f64> {
        (0..self.soft.len()).map(|i| f64::from(u8::from(i == self.hard))).collect()
    }

    /// The gradient of alpha from that of p.
    pub fn backward(&self, dp: &[f64]) -> Vec<f64> {
        let mean: f64 = self.soft.iter().zip(dp).map(|(p, dp)| p * dp).sum();
        self.soft.iter().zip(dp).map(|(p, dp)| p * (dp - mean) / self.tau).collect()
    }
}

/// Draws an option from softmax(alpha).
pub fn draw_option<R: Rng>(alpha: &[f64], rng: &mut R) -> usize {
    Sample::new(alpha, &noise(alpha.len(), rng), 1.0).hard
}

/// Standard Gumbel numbers.
fn noise<R: Rng>(count: usize, rng: &mut R) -> Vec<f64> {
    // u is in [0, 1): a 0, which is one draw in 2^53, would give minus infinity.
    let gumbel = |u: f64| -(-u.max(f64::MIN_POSITIVE).ln()).ln();
    (0..count).map(|_| gumbel(rng.random::<f64>())).collect()
}

/// softmax(x / tau).
pub fn softmax(x: &[f64], tau: f64) -> Vec<f64> {
    let most = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let exp: Vec<f64> = x.iter().map(|x| ((x - most) / tau).exp()).collect();
    let sum: f64 = exp.iter().sum();
    exp.into_iter().map(|e| e / sum).collect()
}

/// The index of the greatest number, the first of equal ones.
pub fn argmax(x: &[f64]) -> usize {
    (0..x.len()).fold(0, |best, i| if x[i] > x[best] { i } else { best })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    const ALPHA: [f64; 4] = [0.3, -1.2, 1.1, 0.0];

    #[test]
    fn draws_follow_the_softmax() {
        const DRAWS: usize = 40_000;
        let exact = softmax(&ALPHA, 1.0);
        for tau in [0.1, 5.0] {
            let mut rng = ChaCha8Rng::seed_from_u64(1);
            let mut counts = [0usize; 4];
            for _ in 0..DRAWS {
                counts[Sample::draw(&ALPHA, tau, Relaxation::Gumbel, &mut rng).hard] += 1;
            }
            for (count, p) in counts.into_iter().zip(&exact) {
                // Five deviations of a binomial.
                let most = 5.0 * (DRAWS as f64 * p * (1.0 - p)).sqrt();
                let off = (count as f64 - DRAWS as f64 * p).abs();
                assert!(off < most, "tau {tau}: {count} of {DRAWS} draws where {p} is exact");
            }
        }
    }

    #[test]
    fn gradients_are_finite_differences() {
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        let weights = [0.7, -0.4, 1.3, 0.2];
        for tau in [0.5, 1.0, 5.0] {
            let noise = noise(4, &mut rng);
            let value = |alpha: &[f64]| -> f64 {
                Sample::new(alpha, &noise, tau).soft.iter().zip(weights).map(|(p, weight)| p * weight).sum()
            };
            let found = Sample::new(&ALPHA, &noise, tau).backward(&weights);
            for (i, found) in found.into_iter().enumerate() {
                let at = |step: f64| {
                    let mut alpha = ALPHA;
                    alpha[i] += step;
                    value(&alpha)
                };
                let slope = (at(1e-6) - at(-1e-6)) / 2e-6;
                assert!((found - slope).abs() < 1e-8, "tau {tau}, {i}: {found} is not {slope}");
            }
        }
    }

    #[test]
    fn cold_samples_are_one_hot_and_hot_ones_flat() {
        let noise = [0.1, 0.2, -0.3, 0.0];
        let cold = Sample::new(&ALPHA, &noise, 1e-4);
        assert_eq!(cold.soft, cold.one_hot());
        let hot = Sample::new(&ALPHA, &noise, 1e6);
        assert!(hot.soft.iter().all(|p| (p - 0.25).abs() < 1e-5));
        assert_eq!(hot.hard, cold.hard);
    }

    #[test]
    fn without_noise_it_is_the_softmax() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let sample = Sample::draw(&ALPHA, 1.0, Relaxation::Softmax, &mut rng);
        assert_eq!((sample.soft, sample.hard), (softmax(&ALPHA, 1.0), 2));
    }
}
