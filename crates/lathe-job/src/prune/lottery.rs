//! Lottery tickets (Frankle and Carbin, 2019): train, take away a share of what is left by size, set the rest back to
//! the weights it began with, and again. The ticket is what is left in the end, with its original weights, not new
//! random ones; the control is the same sparse network with those.

use super::Job;
use super::outcome::{Found, Round, Share};
use crate::{Event, Result, Watch};
use lathe_model::prune::magnitude::Mask;
use lathe_model::{Network, folder};
use lathe_ops::storage::F32;
use lathe_train::run::SETTINGS;
use lathe_train::settings::Settings;
use std::path::Path;

/// Highest learning rate of a training from the beginning.
const RATE: f64 = 1e-3;
/// The weights that every round goes back to.
const INITIAL: &str = "initial";

impl Job<'_> {
    pub(super) fn lottery(&self, share: f64, watch: Watch<'_>) -> Result<Found> {
        self.begin()?;
        let rounds = self.asked.lottery.unwrap_or(1);
        let stages = rounds + 1 + u32::from(self.asked.control);
        let initial = self.out.join(INITIAL);
        if !folder::has_weights(&initial) {
            self.save_in(&initial, &self.network, &self.tokenizer)?;
        }
        watch(Event::Stage { number: 1, of: stages, what: "train the whole model".into() });
        let dense = self.train("rounds/0", self.training(&initial, RATE), &mut *watch)?;
        let mut told = vec![self.round(&dense, &mut *watch)?];
        let mut last = dense.clone();
        for round in 1..=rounds {
            // Every round takes the same share of what is left.
            let zeros = 1.0 - (1.0 - share).powf(f64::from(round) / f64::from(rounds));
            let what = format!("train the ticket with {:.1} % zeros from its original weights", 100.0 * zeros);
            watch(Event::Stage { number: round + 1, of: stages, what });
            let ticket = self.out.join(format!("tickets/{round}"));
            let name = format!("rounds/{round}");
            if !self.out.join(&name).join(SETTINGS).exists() {
                let mask = Mask::of_smallest(&folder::load(&last, self.registry)?, zeros, self.asked.evenly);
                self.ticket(&initial, &mask, &ticket)?;
            }
            let settings = Settings { keep_zeros: true, ..self.training(&ticket, RATE) };
            last = self.train(&name, settings, &mut *watch)?;
            told.push(self.round(&last, &mut *watch)?);
        }
        let network = folder::load(&last, self.registry)?;
        let mask = Mask::of_zeros(&network);
        self.save(&network, &self.tokenizer)?;
        let control = match self.asked.control {
            true => {
                let what = "train the same sparse network from weights drawn anew".to_string();
                watch(Event::Stage { number: stages, of: stages, what });
                self.redrawn(&mask, &mut *watch)?
            }
            false => None,
        };
        let share = Share::new(super::WEIGHTS, share, mask.sparsity());
        Ok(Found { rounds: told, control, ..Found::new(&dense, share) })
    }

    /// The weights of a folder where a mask keeps them.
    fn ticket(&self, weights: &Path, mask: &Mask, to: &Path) -> Result<()> {
        let mut network = folder::load(weights, self.registry)?;
        network.set_storage(&F32);
        mask.apply_to(&mut network);
        self.save_in(to, &network, &self.tokenizer)
    }

    /// The same zeros among weights that are drawn anew, trained alike.
    fn redrawn(&self, mask: &Mask, watch: Watch<'_>) -> Result<Option<super::Control>> {
        let weights = self.out.join("redrawn/initial");
        if !folder::has_weights(&weights) {
            let seed = u64::from(self.asked.seed) + 1;
            let mut network = Network::new(self.network.model.clone(), seed)?;
            mask.apply_to(&mut network);
            self.save_in(&weights, &network, &self.tokenizer)?;
        }
        let settings = Settings { keep_zeros: true, ..self.training(&weights, RATE) };
        let folder = self.train("redrawn/run", settings, &mut *watch)?;
        self.control("the same zeros, other weights drawn anew, as many steps", &folder, watch)
    }

    /// How sparse a round's model is, and how well it does.
    fn round(&self, folder: &Path, watch: Watch<'_>) -> Result<Round> {
        let sparsity = Mask::of_zeros(&folder::load(folder, self.registry)?).sparsity();
        let evaluation = match self.task {
            Some(task) => Some(self.text.loss(folder, task, self.registry, "the round", &mut *watch)?),
            None => None,
        };
        watch(Event::Done);
        let loss = evaluation.as_ref().map(|evaluation| evaluation.loss);
        Ok(Round { sparsity, loss, bits_per_byte: evaluation.map(|evaluation| evaluation.bits_per_byte) })
    }
}
