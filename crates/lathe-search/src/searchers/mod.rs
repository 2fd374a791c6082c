//! Searchers: each proposes architectures of a space, given all that were evaluated before. They know nothing of tensors,
//! clocks or files.

mod evolution;
mod nsga2;
mod random;

use lathe_core::{Genome, Identify, Identity, Space};
use rand_chacha::ChaCha8Rng;
use std::collections::HashSet;

/// What a searcher is told.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The architecture.
    pub genome: Genome,
    /// What it costs, each to be small.
    pub costs: Vec<f64>,
}

/// Numbers that all searchers share; those of LTS by default.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sizes {
    /// Architectures to begin with.
    pub population: usize,
    /// Chance of each gene to be chosen anew in a mutant.
    pub mutation: f64,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { population: 100, mutation: 0.3 }
    }
}

impl Sizes {
    /// Parents of an iteration: 20 of 100.
    pub fn parents(&self) -> usize {
        (self.population / 5).max(1)
    }

    /// Mutants of an iteration, and as many from crossover: 40 of 100 each.
    pub fn children(&self) -> usize {
        (2 * self.population / 5).max(1)
    }
}

/// A way of searching.
pub trait Searcher: Send {
    /// The next architectures, all of them new, given all evaluated so far, in their order.
    fn propose(&mut self, evaluated: &[Candidate], new: &mut Novelty<'_>, rng: &mut ChaCha8Rng) -> Vec<Genome>;
}

/// A space, and what was proposed of it.
pub struct Novelty<'a> {
    space: &'a Space,
    seen: HashSet<Identity>,
}

/// The most draws to find an architecture that is new.
const PATIENCE: usize = 20;

impl<'a> Novelty<'a> {
    /// A space of which nothing was proposed.
    pub fn new(space: &'a Space) -> Self {
        Self { space, seen: HashSet::new() }
    }

    /// Draws until an architecture is new, which it then is no longer; `None` where many draws find none.
    pub fn draw(&mut self, mut draw: impl FnMut(&Space) -> Genome) -> Option<Genome> {
        let mut draws = (0..PATIENCE).map(|_| draw(self.space));
        draws.find(|genome| self.seen.insert(self.space.model(genome).identity()))
    }

    /// How many were proposed.
    pub fn count(&self) -> usize {
        self.seen.len()
    }
}

/// A searcher that can be named.
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// One line for lists.
    pub about: &'static str,
    /// Makes one.
    pub new: fn(Sizes) -> Box<dyn Searcher>,
}

/// Every searcher.
pub const SEARCHERS: &[Entry] = &[
    Entry {
        name: "lts",
        about: "evolution from the frontier of all evaluated (LTS, Algorithm 1)",
        new: evolution::new,
    },
    Entry { name: "nsga2", about: "NSGA-II: a population by rank and crowding (Deb et al., 2002)", new: nsga2::new },
    Entry { name: "random", about: "random architectures", new: random::new },
];

/// The searcher of a name.
pub fn find(name: &str) -> Option<&'static Entry> {
    SEARCHERS.iter().find(|entry| entry.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lathe_core::{Sampling, Spec};
    use lathe_model::REGISTRY;
    use lathe_model::shipped::SPACES;
    use rand::SeedableRng;

    #[test]
    fn two_spellings_are_one_architecture() {
        let model = |layers: &str| {
            let text = format!("backbone='gpt2'\nlayers='{layers}'\nd_model=64\nheads=4\ninner=128\nvocab=9");
            Spec::from_toml(&text, &REGISTRY).unwrap().model(&REGISTRY).unwrap()
        };
        assert_eq!(model("(sf)x2").identity(), model("s4 f128 attention{heads=4} f").identity());
        assert_ne!(model("sf").identity(), model("fs").identity());
        assert_ne!(model("s4 f").identity(), model("s2 f").identity());
    }

    #[test]
    fn identities_and_model_files_tell_the_same_architectures_apart() {
        for shipped in SPACES {
            let space = shipped.space().unwrap();
            let mut rng = ChaCha8Rng::seed_from_u64(0);
            let models = (0..200).map(|_| space.model(&space.sample(Sampling::Choices, &mut rng)));
            let (texts, identities): (HashSet<String>, HashSet<Identity>) =
                models.map(|model| (model.to_toml(), model.identity())).unzip();
            assert_eq!(texts.len(), identities.len(), "{}", shipped.name);
        }
    }
}
