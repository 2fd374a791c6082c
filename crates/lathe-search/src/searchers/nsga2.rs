//! NSGA-II (Deb et al., 2002): the best of all so far by rank of dominance, then by crowding distance, make up the
//! population; parents win binary tournaments in it; a child is a crossover that is then mutated.

use super::{Candidate, Novelty, Searcher, Sizes};
use crate::Result;
use crate::pareto::{range, ranks, scale};
use lathe_core::{Genome, Space};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

struct Nsga2(Sizes);

/// A population as large as LTS's, and as many children.
pub fn new(sizes: Sizes) -> Box<dyn Searcher> {
    Box::new(Nsga2(sizes))
}

impl Searcher for Nsga2 {
    fn propose(&mut self, evaluated: &[Candidate], new: &mut Novelty<'_>, rng: &mut ChaCha8Rng) -> Result<Vec<Genome>> {
        let costs: Vec<&[f64]> = evaluated.iter().map(|candidate| candidate.costs.as_slice()).collect();
        let population = survivors(&costs, self.0.population);
        if population.is_empty() {
            return Ok(Vec::new());
        }
        // The population is in order of preference, so the earlier of two wins.
        let winner = |rng: &mut ChaCha8Rng| {
            let pick = |rng: &mut ChaCha8Rng| rng.random_range(0..population.len());
            &evaluated[population[pick(rng).min(pick(rng))]].genome
        };
        let child = |space: &Space| {
            let (mother, father) = (winner(rng), winner(rng));
            let child = space.crossover(mother, father, rng);
            // About one gene in three of LTS's mutants changes; after a crossover a third of that is enough.
            space.mutate(&child, self.0.mutation / 3.0, rng)
        };
        new.draw(2 * self.0.children(), child)
    }
}

/// The best `count` points, best first: by rank, then by crowding distance, then as given.
fn survivors(points: &[&[f64]], count: usize) -> Vec<usize> {
    let ranks = ranks(points);
    let mut order: Vec<(usize, f64, usize)> = Vec::new();
    for rank in 0..=ranks.iter().copied().max().unwrap_or(0) {
        let level: Vec<usize> = (0..points.len()).filter(|&i| ranks[i] == rank).collect();
        let of_level: Vec<&[f64]> = level.iter().map(|&i| points[i]).collect();
        order.extend(level.iter().zip(crowding(&of_level)).map(|(&i, distance)| (rank, distance, i)));
        if order.len() >= count {
            break;
        }
    }
    order.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.total_cmp(&a.1)).then(a.2.cmp(&b.2)));
    order.into_iter().take(count).map(|(_, _, i)| i).collect()
}

/// How far the neighbours of each point lie apart, summed over the coordinates; infinite at the ends.
fn crowding(points: &[&[f64]]) -> Vec<f64> {
    let Some((low, high)) = range(points) else { return Vec::new() };
    let scaled: Vec<Vec<f64>> = points.iter().map(|point| scale(point, &low, &high)).collect();
    let mut distances = vec![0.0; points.len()];
    (0..low.len()).for_each(|coordinate| {
        let at = |i: usize| scaled[i][coordinate];
        let mut order: Vec<usize> = (0..points.len()).collect();
        order.sort_by(|&i, &j| at(i).total_cmp(&at(j)).then(i.cmp(&j)));
        let (first, last) = (order[0], order[order.len() - 1]);
        (distances[first], distances[last]) = (f64::INFINITY, f64::INFINITY);
        for neighbours in order.windows(3) {
            distances[neighbours[1]] += at(neighbours[2]) - at(neighbours[0]);
        }
    });
    distances
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crowding_of_known_points() {
        let points: [&[f64]; 4] = [&[0.0, 1.0], &[0.25, 0.5], &[0.5, 0.25], &[1.0, 0.0]];
        assert_eq!(crowding(&points), [f64::INFINITY, 1.25, 1.25, f64::INFINITY]);
    }

    #[test]
    fn survivors_by_rank_then_room() {
        let points: [&[f64]; 5] = [&[2.0, 2.0], &[0.0, 1.0], &[0.1, 0.9], &[1.0, 0.0], &[0.5, 0.5]];
        // The frontier is 1 to 4, of which 2 has the least room; 0 is behind all of them.
        assert_eq!(survivors(&points, 3), [1, 3, 4]);
        assert_eq!(survivors(&points, 9), [1, 3, 4, 2, 0]);
    }
}
