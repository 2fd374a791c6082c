//! Searchers: each proposes architectures of a space, given all that were evaluated before. They know nothing of tensors,
//! clocks or files.

mod evolution;
mod nsga2;
mod random;

use crate::Result;
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
    /// Whether the frontier that parents come from is the lower convex hull; for two or three objectives.
    pub hull: bool,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { population: 100, mutation: 0.3, hull: false }
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
    /// The next architectures, all of them new and within the bounds, given all evaluated so far, in their order.
    fn propose(&mut self, evaluated: &[Candidate], new: &mut Novelty<'_>, rng: &mut ChaCha8Rng) -> Result<Vec<Genome>>;
}

/// A space, what was drawn of it, and what may be.
pub struct Novelty<'a> {
    space: &'a Space,
    seen: &'a mut HashSet<Identity>,
    allows: &'a mut dyn FnMut(&Genome) -> Result<bool>,
}

/// How many times as many draws as are wanted are made at most. LTS draws until there are enough, which never ends where
/// there are none.
pub const DRAWS: usize = 20;

impl<'a> Novelty<'a> {
    /// A space, what was seen of it, and whether an architecture keeps the bounds.
    pub fn new(
        space: &'a Space,
        seen: &'a mut HashSet<Identity>,
        allows: &'a mut dyn FnMut(&Genome) -> Result<bool>,
    ) -> Self {
        Self { space, seen, allows }
    }

    /// Draws until as many as wanted are new and within the bounds, or [`DRAWS`] times as many were drawn. What was drawn is
    /// no longer new, also where it breaks a bound.
    pub fn draw(&mut self, wanted: usize, mut draw: impl FnMut(&Space) -> Genome) -> Result<Vec<Genome>> {
        let mut found = Vec::new();
        for _ in 0..DRAWS * wanted {
            if found.len() == wanted {
                break;
            }
            let genome = draw(self.space);
            if self.seen.insert(self.space.model(&genome).identity()) && (self.allows)(&genome)? {
                found.push(genome);
            }
        }
        Ok(found)
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
