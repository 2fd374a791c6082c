//! How far the predictions of one model are from another's: at each place the Kullback-Leibler divergence of the two
//! distributions of the next token, KL(p || q) = sum p log(p / q) in nats, and whether both have the same most probable
//! token.

use serde::{Deserialize, Serialize};

/// KL(p || q) of the softmaxes of two rows of logits, which may be log-probabilities.
///
/// With d = log q - log p up to a constant and e = d - E(d), the mean over p, it is log E(exp e), which is
/// log(1 + E(exp e - 1 - e)).
/// No term is negative, so that nothing cancels however little p and q differ, and nothing is left where they do not.
pub fn kl(p: &[f32], q: &[f32]) -> f64 {
    let highest = p.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weights: Vec<f64> = p.iter().map(|&x| (f64::from(x) - f64::from(highest)).exp()).collect();
    let sum: f64 = weights.iter().sum();
    let differences = || p.iter().zip(q).map(|(&p, &q)| f64::from(q) - f64::from(p));
    let mean = weights.iter().zip(differences()).map(|(w, d)| w * d).sum::<f64>() / sum;
    if differences().any(|d| (d - mean).abs() > FAR) {
        return far(p, q);
    }
    let excess = weights.iter().zip(differences()).map(|(w, d)| w * excess(d - mean)).sum::<f64>() / sum;
    excess.ln_1p()
}

/// Differences beyond it are nothing that could cancel, and their exponentials might be too large.
const FAR: f64 = 30.0;

/// exp e - 1 - e, also for small e.
fn excess(e: f64) -> f64 {
    match e.abs() < 0.01 {
        true => e * e * (1.0 / 2.0 + e * (1.0 / 6.0 + e * (1.0 / 24.0 + e * (1.0 / 120.0 + e / 720.0)))),
        false => e.exp_m1() - e,
    }
}

/// By the definition.
fn far(p: &[f32], q: &[f32]) -> f64 {
    let (all_p, all_q) = (log_sum(p), log_sum(q));
    let terms = p.iter().zip(q).map(|(&p, &q)| {
        let (p, q) = (f64::from(p) - all_p, f64::from(q) - all_q);
        if p.exp() > 0.0 { p.exp() * (p - q) } else { 0.0 }
    });
    terms.sum::<f64>().max(0.0)
}

fn log_sum(row: &[f32]) -> f64 {
    let highest = f64::from(row.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    highest + row.iter().map(|&x| (f64::from(x) - highest).exp()).sum::<f64>().ln()
}

/// The most probable place of a row of logits, of equals the first.
pub fn top(row: &[f32]) -> usize {
    (0..row.len()).fold(0, |best, i| if row[i] > row[best] { i } else { best })
}

/// How probable a place of a row of logits is.
pub fn probability(row: &[f32], place: usize) -> f64 {
    (f64::from(row[place]) - log_sum(row)).exp()
}

/// A list of divergences in a few numbers. Quantiles between two values lie on the line between them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// 99 % are at most this.
    pub p99: f64,
    /// 99.9 % are at most this.
    pub p999: f64,
}

impl Spread {
    /// Of values in ascending order, at least one.
    pub fn of(sorted: &[f64]) -> Self {
        let at = |share: f64| quantile(sorted, share);
        let mean = sorted.iter().sum::<f64>() / sorted.len() as f64;
        Self { mean, p50: at(0.5), p99: at(0.99), p999: at(0.999) }
    }
}

/// The value that a share of ascending values is at most.
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    let place = share * (sorted.len() - 1) as f64;
    let (low, high) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    low + (high - low) * place.fract()
}

/// A place where two models disagree much.
#[derive(Debug, Clone, PartialEq)]
pub struct Passage {
    /// What both were given, its end; tokens of the model that was evaluated, as all here.
    pub before: Vec<u32>,
    /// What comes there.
    pub next: u32,
    /// The most probable token of the model that was evaluated, and of the other.
    pub tops: [u32; 2],
    /// What they give them.
    pub probabilities: [f64; 2],
    /// Nats.
    pub kl: f64,
}

/// How far a model's predictions are from another's.
#[derive(Debug, Clone, Serialize)]
pub struct Divergence {
    /// Over all places.
    pub kl: Spread,
    /// Share of places with the same most probable token.
    pub same_top: f64,
    /// How many places.
    #[serde(skip)]
    pub places: u64,
    /// Every hundredth of the places by their divergence: share and nats.
    #[serde(skip)]
    pub curve: Vec<[f64; 2]>,
    /// Where they are farthest apart, the farthest first.
    #[serde(skip)]
    pub worst: Vec<Passage>,
}

impl Divergence {
    /// Of all divergences, how often the top was the same, and the worst places; none without a divergence.
    pub fn of(mut nats: Vec<f64>, same: u64, worst: Vec<Passage>) -> Option<Self> {
        if nats.is_empty() {
            return None;
        }
        nats.sort_by(f64::total_cmp);
        let places = nats.len() as u64;
        let curve = (0..=100).map(|i| f64::from(i) / 100.0).map(|share| [share, quantile(&nats, share)]).collect();
        Some(Self { kl: Spread::of(&nats), same_top: same as f64 / places as f64, places, curve, worst })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn softmax(row: &[f64]) -> Vec<f64> {
        let sum: f64 = row.iter().map(|x| x.exp()).sum();
        row.iter().map(|x| x.exp() / sum).collect()
    }

    #[test]
    fn divergences_are_those_of_the_definition() {
        let rows: [(&[f32], &[f32]); 4] = [
            (&[0.1, 0.2, -3.0, 2.0], &[1.0, -1.0, 0.5, 2.5]),
            (&[5.0, -5.0, 0.0, 1.0], &[-5.0, 5.0, 2.0, 1.0]),
            (&[0.0, 0.0], &[0.0078125, 0.015625]),
            (&[-7.0, -0.5, -1.1], &[-6.0, -0.4, -1.3]),
        ];
        for (p, q) in rows {
            let wide = |row: &[f32]| softmax(&row.iter().map(|&x| f64::from(x)).collect::<Vec<_>>());
            let expected: f64 = wide(p).iter().zip(wide(q)).map(|(p, q)| p * (p / q).ln()).sum();
            assert!((kl(p, q) - expected).abs() < 1e-14 + 1e-12 * expected, "{} is not {expected}", kl(p, q));
            assert!((far(p, q) - expected).abs() < 1e-14);
            assert_eq!(kl(p, p), 0.0);
            // A constant changes no softmax.
            let moved: Vec<f32> = q.iter().map(|x| x + 64.0).collect();
            assert!((kl(p, &moved) - expected).abs() < 1e-4 * expected, "{p:?} {q:?}");
        }
    }

    /// Half the variance of the difference is all that is left of two distributions that hardly differ.
    #[test]
    fn tiny_differences_are_exact() {
        let p = [1.0f32, 2.0, 0.5, -1.0, 1.5];
        let mut q = p;
        q[1] = f32::from_bits(q[1].to_bits() + 1);
        q[4] = f32::from_bits(q[4].to_bits() - 3);
        let of_p = softmax(&p.map(f64::from));
        let d: Vec<f64> = p.iter().zip(q).map(|(&p, q)| f64::from(q) - f64::from(p)).collect();
        let mean: f64 = of_p.iter().zip(&d).map(|(p, d)| p * d).sum();
        let half: f64 = of_p.iter().zip(&d).map(|(p, d)| p * (d - mean) * (d - mean) / 2.0).sum();
        let found = kl(&p, &q);
        assert!(half > 1e-16 && half < 1e-12, "{half}");
        assert!((found / half - 1.0).abs() < 1e-6, "{found} is not {half}");
    }

    #[test]
    fn far_apart_is_finite() {
        let found = kl(&[0.0, -800.0, 3.0], &[900.0, 0.0, -300.0]);
        let p = softmax(&[0.0, 3.0]);
        assert!((found - (p[0] * p[0].ln() + p[1] * (p[1].ln() + 1200.0))).abs() < 1e-9, "{found}");
        assert_eq!(top(&[1.0, 3.0, 3.0, -1.0]), 1);
        assert!((probability(&[0.0, 0.0], 1) - 0.5).abs() < 1e-15);
    }

    #[test]
    fn quantiles_are_those_of_sorting() {
        let values: Vec<f64> = (0..1001u32).map(|i| f64::from(i * 577 % 1001)).collect();
        let found = Divergence::of(values, 250, Vec::new()).expect("places");
        assert_eq!(found.kl, Spread { mean: 500.0, p50: 500.0, p99: 990.0, p999: 999.0 });
        assert_eq!((found.same_top, found.places), (250.0 / 1001.0, 1001));
        assert_eq!((found.curve.len(), found.curve[25]), (101, [0.25, 250.0]));
        // Between two values, on the line between them, as numpy's.
        assert_eq!(quantile(&[1.0, 2.0, 4.0, 8.0], 0.5), 3.0);
        assert!((quantile(&[1.0, 2.0, 4.0, 8.0], 0.99) - 7.88).abs() < 1e-12);
        assert!(Divergence::of(Vec::new(), 0, Vec::new()).is_none());
    }
}
