//! How far the predictions of one model are from another's: at each place the Kullback-Leibler divergence of the two
//! distributions of the next token, KL(p || q) = sum p log(p / q) in nats, and whether both have the same most probable
//! token.

use lathe_ops::loss::divergence::log_sum;
pub use lathe_ops::loss::divergence::{kl, top};
use serde::{Deserialize, Serialize};

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

    #[test]
    fn a_probability_is_a_share() {
        assert!((probability(&[0.0, 0.0], 1) - 0.5).abs() < 1e-15);
        assert!((probability(&[1.0, 3.0, 2.0], 1) - 1.0 / (1.0 + (-2f64).exp() + (-1f64).exp())).abs() < 1e-15);
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
