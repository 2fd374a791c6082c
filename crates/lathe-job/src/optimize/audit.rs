//! How well scores of single blocks tell the loss of whole architectures: random ones, assembled, and after a first round of
//! recovery; and what leaving out two neighbours costs beyond the sum of leaving out each.

use super::architecture::Architecture;
use super::job::{Candidate, Job};
use super::menu::Menu;
use super::recover::Recipe;
use super::samples::Assembled;
use super::scores::Scores;
use crate::event::steps;
use crate::input::{read_json, write_json};
use crate::{Event, Result, Watch};
use lathe_core::Role;
use lathe_model::{SuperNet, folder};
use lathe_search::ranking::spearman;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

/// What was found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Audit {
    /// Random architectures.
    pub architectures: Vec<Audited>,
    /// Neighbouring blocks left out together.
    pub pairs: Vec<Neighbours>,
    /// Spearman's correlation of sums of single losses, and of single KL, with the assembled loss and the recovered one.
    pub spearman: Correlations,
}

/// A random architecture.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Audited {
    /// Its blocks.
    pub layers: String,
    /// Sums of the losses and of the KL of its blocks, each replaced alone.
    pub sum_loss: f64,
    /// The same of KL.
    pub sum_kl: f64,
    /// Nats per token as assembled.
    pub assembled: f64,
    /// After a first round of recovery.
    pub recovered: f64,
}

/// Two neighbouring blocks left out.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Neighbours {
    /// The lower one, counted from 1.
    pub block: usize,
    /// Nats per token that both cost together, and the sum of what each costs alone.
    pub together: f64,
    /// The sum of what each costs alone.
    pub alone: f64,
}

/// Spearman's correlations.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Correlations {
    pub loss_assembled: Option<f64>,
    pub loss_recovered: Option<f64>,
    pub kl_assembled: Option<f64>,
    pub kl_recovered: Option<f64>,
    pub assembled_recovered: Option<f64>,
}

impl Job<'_> {
    /// Audits the scores with so many random architectures.
    pub(super) fn audit(
        &self,
        menu: &Menu,
        (scores, net): (&Scores, &SuperNet),
        count: usize,
        watch: Watch<'_>,
    ) -> Result<Audit> {
        let path = self.path("audit.json");
        if path.exists() {
            return read_json(&path);
        }
        let mut rng = ChaCha8Rng::seed_from_u64(u64::from(self.plan.asked.seed) ^ 3);
        let mut architectures = Vec::new();
        for i in 0..count {
            watch(steps("auditing scores", i, count));
            let whole: f64 = rng.random_range(0.2..0.95);
            let mut option = |slot: &Vec<lathe_core::Block>| match rng.random_bool(whole) {
                true => 0,
                false => rng.random_range(0..slot.len()),
            };
            let options: Vec<usize> = menu.choices.blocks.iter().map(&mut option).collect();
            let single = |slot: usize| scores.options[slot][options[slot]];
            let (sum_loss, sum_kl) =
                (0..options.len()).map(single).fold((0.0, 0.0), |sum, one| (sum.0 + one.loss, sum.1 + one.kl));
            let architecture = Architecture { options, ..Architecture::own(menu.slots()) };
            let assembled = self.judging.loss(&Assembled(net, &architecture.options));
            let name = format!("audit-{i}");
            let folder = self.path("recover").join(&name).join("assembled");
            if !folder.join("config.json").exists() {
                folder::save(&menu.choices.network(&architecture, net)?, &folder)?;
                self.tokenizer.save(&folder)?;
            }
            let layers = menu.choices.model(&architecture).layers();
            let mut candidate = Candidate {
                name,
                from: vec!["audit".into()],
                layers: layers.clone(),
                estimated: 0.0,
                measured: 0.0,
                assembled,
                lost_by_storage: 0.0,
                rounds: Vec::new(),
                folder,
                architecture,
            };
            let recovered = match candidate.architecture.is_whole() {
                true => assembled,
                false => self.round(&mut candidate, Recipe::Both, 0, watch)?,
            };
            architectures.push(Audited { layers, sum_loss, sum_kl, assembled, recovered });
        }
        watch(Event::Done);
        let column = |of: fn(&Audited) -> f64| architectures.iter().map(of).collect::<Vec<f64>>();
        let correlation = |a: fn(&Audited) -> f64, b: fn(&Audited) -> f64| spearman(&column(a), &column(b));
        let spearman = Correlations {
            loss_assembled: correlation(|one| one.sum_loss, |one| one.assembled),
            loss_recovered: correlation(|one| one.sum_loss, |one| one.recovered),
            kl_assembled: correlation(|one| one.sum_kl, |one| one.assembled),
            kl_recovered: correlation(|one| one.sum_kl, |one| one.recovered),
            assembled_recovered: correlation(|one| one.assembled, |one| one.recovered),
        };
        let audit = Audit { pairs: self.neighbours(menu, scores, net), architectures, spearman };
        write_json(&path, &audit)?;
        Ok(audit)
    }

    fn neighbours(&self, menu: &Menu, scores: &Scores, net: &SuperNet) -> Vec<Neighbours> {
        let skip = |slot: usize| {
            menu.choices.blocks[slot].iter().position(|block| block.kind.role() == Role::Identity).filter(|&at| at > 0)
        };
        let pair = |slot: usize| {
            let both = [skip(slot)?, skip(slot + 1)?];
            let mut options = vec![0; menu.slots()];
            options[slot..slot + 2].copy_from_slice(&both);
            let alone = scores.options[slot][both[0]].loss + scores.options[slot + 1][both[1]].loss;
            let together = self.scoring.loss(&Assembled(net, &options)) - scores.loss;
            Some(Neighbours { block: slot + 1, together, alone })
        };
        (0..menu.slots().saturating_sub(1)).filter_map(pair).collect()
    }
}
