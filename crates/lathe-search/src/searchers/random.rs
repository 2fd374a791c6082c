//! Random search: the baseline that every searcher has to beat.

use super::{Candidate, Novelty, Searcher, Sizes};
use crate::Result;
use lathe_core::{Genome, Sampling};
use rand_chacha::ChaCha8Rng;

struct Random(Sizes);

/// Draws as many as evolution proposes, choice by choice.
pub fn new(sizes: Sizes) -> Box<dyn Searcher> {
    Box::new(Random(sizes))
}

impl Searcher for Random {
    fn propose(&mut self, _: &[Candidate], new: &mut Novelty<'_>, rng: &mut ChaCha8Rng) -> Result<Vec<Genome>> {
        new.draw(2 * self.0.children(), |space| space.sample(Sampling::Choices, rng))
    }
}
