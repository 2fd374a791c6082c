//! Algorithm 1 of LTS (Javaheripi et al., 2022), as its authors' code has it. Each iteration:
//!
//! 1. The frontier of all that was evaluated: what no other beats in every objective. A point that another equals in one
//!    objective and beats in the rest stays, unlike in [`crate::pareto::frontier`]. With `hull` it is the lower convex hull
//!    instead, as the paper's text says.
//! 2. Parents (20 of a population of 100) are drawn from it with replacement, with weight 1 / (1 + scaled use): those used
//!    less often before those used more.
//! 3. Mutants (40) of a parent each: every gene is chosen anew with probability 0.3. Then crossovers (40) of two different
//!    places among the parents: every gene from either. Both are drawn until there are so many that keep the bounds and
//!    were never drawn before, with at most [`super::DRAWS`] times as many draws.
//!
//! In the authors' code, a child counts as seen from the next iteration on, so that two equal ones may be born in one; here
//! every architecture is evaluated once. A gene that does not fit the others is drawn anew here (see
//! [`lathe_core::Space::crossover`]), and their child rejected.

use super::{Candidate, Novelty, Searcher, Sizes};
use crate::Result;
use crate::pareto::{lower_hull, unbeaten};
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
    fn propose(&mut self, evaluated: &[Candidate], new: &mut Novelty<'_>, rng: &mut ChaCha8Rng) -> Result<Vec<Genome>> {
        let costs: Vec<&[f64]> = evaluated.iter().map(|candidate| candidate.costs.as_slice()).collect();
        let best = if self.sizes.hull { lower_hull(&costs) } else { unbeaten(&costs) };
        let best: Vec<&Genome> = best.into_iter().map(|i| &evaluated[i].genome).collect();
        if best.is_empty() {
            return Ok(Vec::new());
        }
        let uses: Vec<u32> = best.iter().map(|genome| self.used.get(*genome).copied().unwrap_or(0)).collect();
        let weights = weights(&uses);
        let parents: Vec<&Genome> = (0..self.sizes.parents()).map(|_| best[draw(&weights, rng)]).collect();
        parents.iter().for_each(|&parent| *self.used.entry(parent.clone()).or_default() += 1);
        let children = self.sizes.children();
        let mut found = new.draw(children, |space| {
            let parent = parents[rng.random_range(0..parents.len())];
            space.mutate(parent, self.sizes.mutation, rng)
        })?;
        found.extend(new.draw(children, |space| {
            let (mother, father) = two(parents.len(), rng);
            space.crossover(parents[mother], parents[father], rng)
        })?);
        Ok(found)
    }
}

/// Two different places among so many; where there is one, that one twice.
fn two(places: usize, rng: &mut ChaCha8Rng) -> (usize, usize) {
    if places < 2 {
        return (0, 0);
    }
    let first = rng.random_range(0..places);
    let second = rng.random_range(0..places - 1);
    (first, second + usize::from(second >= first))
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
