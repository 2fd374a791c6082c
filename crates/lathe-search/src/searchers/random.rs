//! Random search: the baseline that every searcher has to beat.

use super::{Candidate, Searcher, Sizes};
use lathe_core::{Genome, Sampling, Space};
use rand_chacha::ChaCha8Rng;

struct Random(Sizes);

/// Draws as many as evolution proposes, choice by choice.
pub fn new(sizes: Sizes) -> Box<dyn Searcher> {
    Box::new(Random(sizes))
}

impl Searcher for Random {
    fn propose(&mut self, space: &Space, _: &[Candidate], rng: &mut ChaCha8Rng) -> Vec<Genome> {
        (0..2 * self.0.children()).map(|_| space.sample(Sampling::Choices, rng)).collect()
    }
}
