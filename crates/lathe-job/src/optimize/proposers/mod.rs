//! Who proposes architectures within limits, one file each. All are given the same library and scores, and all that they
//! propose is recovered and compared at equal cost.
//!
//! To add one, write its file and add it to [`PROPOSERS`].

mod blockwise;
mod differentiable;
mod evolution;
mod fewer_layers;
mod influence;
mod narrower;
mod random;

use super::architecture::Architecture;
use super::menu::{Limits, Menu};
use super::samples::{Assembled, Samples};
use crate::{Error, Result, Watch};
use lathe_core::Registry;
use lathe_model::SuperNet;
use lathe_train::settings::Settings;
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;

/// What proposers go by.
pub struct Bench<'a> {
    /// Costs and scores.
    pub menu: &'a Menu,
    /// All options, distilled.
    pub net: &'a SuperNet,
    /// The text to choose by.
    pub samples: &'a Samples,
    /// How far each trained block turns the hidden states.
    pub influence: &'a [f64],
    /// Evaluations of whole architectures that a proposer may ask for.
    pub evaluations: usize,
    /// Of all that is random.
    pub seed: u64,
    /// What searches that train work with.
    pub training: SearchTraining<'a>,
    known: RefCell<HashMap<Vec<usize>, f64>>,
}

/// What searches that train work with.
pub struct SearchTraining<'a> {
    /// How weights are trained, and on what: a folder of tokens, those to choose by among them.
    pub settings: Settings,
    /// Checkpoints of the distilled options.
    pub options: PathBuf,
    /// Where searches are kept.
    pub folder: PathBuf,
    /// The blocks and backbones there are.
    pub registry: &'a Registry,
}

impl<'a> Bench<'a> {
    /// Nothing is known yet of whole architectures.
    pub fn new(
        menu: &'a Menu,
        net: &'a SuperNet,
        samples: &'a Samples,
        influence: &'a [f64],
        (evaluations, seed): (usize, u64),
        training: SearchTraining<'a>,
    ) -> Self {
        Self { menu, net, samples, influence, evaluations, seed, training, known: RefCell::default() }
    }

    /// Nats per token of a whole architecture: its options as they are assembled, and what its storages cost.
    pub fn loss(&self, architecture: &Architecture) -> f64 {
        let known = self.known.borrow().get(&architecture.options).copied();
        let loss = known.unwrap_or_else(|| self.samples.loss(&Assembled(self.net, &architecture.options)));
        self.known.borrow_mut().insert(architecture.options.clone(), loss);
        loss + self.menu.lost_by_storage(architecture)
    }

    /// The best of some by [`Self::loss`].
    pub fn best(&self, of: Vec<Architecture>) -> Option<Architecture> {
        let with_loss = of.into_iter().map(|architecture| (self.loss(&architecture), architecture));
        with_loss.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, architecture)| architecture)
    }

    /// The option of a slot that leaves it out, where there is one.
    pub fn skip(&self, slot: usize) -> Option<usize> {
        let is_skip = |block: &lathe_core::Block| block.kind.role() == lathe_core::Role::Identity;
        self.menu.choices.blocks[slot].iter().position(is_skip)
    }
}

/// A way to an architecture.
pub trait Proposer: Sync {
    /// Its name.
    fn key(&self) -> &'static str;
    /// One line for lists.
    fn about(&self) -> &'static str;
    /// Whether it trains a super net, which takes much longer than evaluating.
    fn trains(&self) -> bool {
        false
    }
    /// An architecture within limits; `None` where it knows none.
    fn propose(&self, bench: &Bench<'_>, limits: Limits, watch: Watch<'_>) -> Result<Option<Architecture>>;
}

/// Every proposer.
pub const PROPOSERS: &[&dyn Proposer] = &[
    &blockwise::Blockwise,
    &evolution::Evolution,
    &influence::Influence,
    &fewer_layers::FewerLayers,
    &narrower::Narrower,
    &random::Random,
    &differentiable::MENDED,
    &differentiable::PLANER,
    &differentiable::PAR,
];

/// The proposers of a list with commas, or `all`; those that train nothing where it is empty.
pub fn proposers(list: &str) -> Result<Vec<&'static dyn Proposer>> {
    match list.trim() {
        "" => return Ok(PROPOSERS.iter().copied().filter(|one| !one.trains()).collect()),
        "all" => return Ok(PROPOSERS.to_vec()),
        _ => {}
    }
    let names = || format!("all, or of {}", PROPOSERS.iter().map(|one| one.key()).collect::<Vec<_>>().join(", "));
    let of = |name: &str| {
        let found = PROPOSERS.iter().copied().find(|one| one.key() == name.trim());
        found.ok_or_else(|| Error::setting("proposers", format!("`{}`", name.trim()), names()))
    };
    list.split(',').map(of).collect()
}
