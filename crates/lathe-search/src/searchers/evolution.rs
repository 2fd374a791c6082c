//! Algorithm 1 of LTS (Javaheripi et al., 2022): parents come from the frontier of all that was evaluated, those used
//! less often before those used more, with weight 1 / (1 + scaled use); half of the children are mutants, half crossovers.
//! A child that was seen before is drawn again.

use super::{Candidate, Novelty, Searcher, Sizes};
use crate::pareto::frontier;
use lathe_core::Genome;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use std::collections::HashMap;

struct Evolution {
    sizes: Sizes,
    /// How often each architecture was a parent.
    used: HashMap<Genome, u32>,
}

/// The published search.
pub fn new(sizes: Sizes) -> Box<dyn Searcher> {
    Box::new(Evolution { sizes, used: HashMap::new() })
}

impl Searcher for Evolution {
    fn propose(&mut self, evaluated: &[Candidate], new: &mut Novelty<'_>, rng: &mut ChaCha8Rng) -> Vec<Genome> {
        let costs: Vec<&[f64]> = evaluated.iter().map(|candidate| candidate.costs.as_slice()).collect();
        let best: Vec<&Genome> = frontier(&costs).into_iter().map(|i| &evaluated[i].genome).collect();
        if best.is_empty() {
            return Vec::new();
        }
        let uses: Vec<u32> = best.iter().map(|genome| self.used.get(*genome).copied().unwrap_or(0)).collect();
        let weights = weights(&uses);
        let parents: Vec<&Genome> = (0..self.sizes.parents()).map(|_| best[draw(&weights, rng)]).collect();
        parents.iter().for_each(|&parent| *self.used.entry(parent.clone()).or_default() += 1);
        let any = |rng: &mut ChaCha8Rng| parents[rng.random_range(0..parents.len())];
        let children = self.sizes.children();
        let mut found = Vec::new();
        found.extend((0..children).filter_map(|_| new.draw(|space| space.mutate(any(rng), self.sizes.mutation, rng))));
        found.extend((0..children).filter_map(|_| new.draw(|space| space.crossover(any(rng), any(rng), rng))));
        found
    }
}

/// 1 / (1 + use), with uses scaled to between 0 and 1.
fn weights(uses: &[u32]) -> Vec<f64> {
    let (least, most) = (uses.iter().min().copied().unwrap_or(0), uses.iter().max().copied().unwrap_or(0));
    let range = f64::from((most - least).max(1));
    uses.iter().map(|&uses| 1.0 / (1.0 + f64::from(uses - least) / range)).collect()
}

/// An index with a chance in proportion to its weight.
fn draw(weights: &[f64], rng: &mut ChaCha8Rng) -> usize {
    let mut left = rng.random::<f64>() * weights.iter().sum::<f64>();
    for (i, weight) in weights.iter().enumerate() {
        left -= weight;
        if left < 0.0 {
            return i;
        }
    }
    weights.len() - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn those_used_often_weigh_half() {
        assert_eq!(weights(&[3, 5, 4]), [1.0, 0.5, 1.0 / 1.5]);
        assert_eq!(weights(&[2, 2]), [1.0, 1.0]);
    }

    #[test]
    fn draws_follow_weights() {
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        let mut counts = [0u32; 3];
        (0..30_000).for_each(|_| counts[draw(&[1.0, 0.5, 1.5], &mut rng)] += 1);
        for (count, expected) in counts.into_iter().zip([10_000.0, 5_000.0, 15_000.0]) {
            assert!((f64::from(count) - expected).abs() < 400.0, "{count} {expected}");
        }
    }
}
