//! A job at work: what it knows, and where it keeps it.

use super::architecture::{Architecture, Choices};
use super::corpus::Corpus;
use super::library;
use super::menu::{Correction, Menu, parts};
use super::plan::Plan;
use super::samples::Samples;
use super::scores::{self, Scores};
use crate::event::steps;
use crate::input::{read_json, write_json};
use crate::optimize::pair;
use crate::profiler::TableSource;
use crate::{Context, Error, Event, Result, Watch, identity};
use lathe_core::Model;
use lathe_model::prune::blocks::Influence;
use lathe_model::{Network, SuperNet, folder};
use lathe_search::profile::{Part, ProfileTable};
use lathe_search::workload::Pass;
use lathe_train::data::Tokenizer;
use lathe_train::samples;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The folder of the original.
pub const BASELINE: &str = "baseline";
/// The folder, and the name, of the model that was asked for.
pub const FOUND: &str = "found";
/// What whole architectures take, as measured.
const WHOLE: &str = "whole";
/// The folder of the original without tokens that the text never uses.
pub const VOCAB: &str = "vocab";

/// A job at work.
pub struct Job<'a> {
    pub(super) context: &'a Context<'a>,
    pub(super) out: PathBuf,
    pub(super) plan: Plan,
    pub(super) corpus: Corpus,
    /// The model as it was given.
    pub(super) original: Model,
    /// The model that options are derived from: the original, or with fewer tokens.
    pub(super) base: Model,
    /// Its folder.
    pub(super) teacher: PathBuf,
    pub(super) tokenizer: Tokenizer,
    /// What to choose by, for scores and for judging trained models.
    pub(super) scoring: Samples,
    pub(super) judging: Samples,
}

/// An architecture that was proposed, and what became of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Candidate {
    /// Who proposed it first, and for which target where there are several.
    pub name: String,
    /// All who proposed it.
    pub from: Vec<String>,
    /// What it is.
    pub architecture: Architecture,
    /// Its blocks.
    pub layers: String,
    /// What it takes by the table, as a share of the original's latency.
    pub estimated: f64,
    /// What it takes as measured beside the original, as a share of the original's latency.
    pub measured: f64,
    /// Nats per token on the text to choose by, as it was assembled, in f32.
    pub assembled: f64,
    /// Nats per token that its storages cost by the scores.
    pub lost_by_storage: f64,
    /// Rounds of recovery: nats per token, in f32.
    pub rounds: Vec<Judged>,
    /// Its weights in f32.
    pub folder: PathBuf,
}

impl Candidate {
    /// Nats per token of its weights as they are: the least that came out so far.
    pub fn loss(&self) -> f64 {
        self.rounds.iter().map(|judged| judged.loss).fold(self.assembled, f64::min)
    }
}

/// A round of recovery.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Judged {
    pub steps: u32,
    pub loss: f64,
}

/// How long architectures are measured whole at the least, to correct sums by and to check candidates: a share of the budget,
/// and at most so many seconds.
const MEASURING: (f64, f64) = (0.002, 0.8);
/// Architectures that correct the sums of parts, besides the trained one in each storage.
const CORRECTING: usize = 5;
/// Sequences that units are looked at with.
const LOOKED_AT: usize = 48;

impl Job<'_> {
    /// What was decided at its start.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// A share of the budget, at most so many seconds.
    pub(super) fn share_of_budget(&self, (share, most): (f64, f64)) -> Duration {
        Duration::from_secs_f64((share * 60.0 * self.plan.asked.budget).clamp(0.02, most))
    }

    /// The most bytes that a model may take.
    pub(super) fn most_bytes(&self) -> f64 {
        self.plan.asked.target_memory_mb.map_or(f64::INFINITY, |mb| mb * f64::from(1 << 20))
    }

    /// The model as it was given.
    pub fn original(&self) -> &Model {
        &self.original
    }

    /// A place in the job's folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.out.join(name)
    }

    /// The folder of the model that options are derived from and learn from.
    pub(super) fn teacher_folder(&self) -> &Path {
        &self.teacher
    }

    /// The model that options are derived from, in f32.
    pub(super) fn base_network(&self) -> Result<Network> {
        let mut network = folder::load(self.teacher_folder(), self.context.registry)?;
        network.set_storage(&lathe_ops::storage::F32);
        Ok(network)
    }

    /// What every option costs here.
    pub(super) fn profile(&self, choices: &Choices, watch: Watch<'_>) -> Result<ProfileTable> {
        let path = self.path("table.json");
        if path.exists() {
            return Ok(ProfileTable::read(&path)?);
        }
        let workload = &self.plan.asked.workload;
        let parts: Vec<Part> = parts(choices, workload)?;
        let table = TableSource::default().parts(self.context, parts, workload, watch)?.table;
        table.write(&path)?;
        Ok(table)
    }

    /// The library: all options with their weights, distilled.
    pub(super) fn library(&self, choices: &Choices, network: &Network, watch: Watch<'_>) -> Result<SuperNet> {
        let sequences = self.scoring.singles(LOOKED_AT);
        let weights = library::Weights::of(network, self.scoring.task, &sequences, watch)?;
        let net = library::derive(network, &choices.blocks, &weights, &sequences, self.plan.asked.seed.into())?;
        if choices.blocks.iter().all(|slot| slot.len() == 1) {
            return Ok(net);
        }
        let folder = self.path("options");
        let steps = self.plan.amounts.option_steps;
        let mut settings = self.training(&folder, steps);
        settings.seq = self.plan.seq;
        settings.weight_decay = 0.0;
        settings.lr = 2.0 * self.plan.lr;
        settings.checkpoint_every = (steps / 4).max(1);
        let (net, errors) = library::distil(network, net, self.scoring.task, &settings, &folder, watch)?;
        write_json(&self.path("option_errors.json"), &errors)?;
        Ok(net)
    }

    /// Scores of all options and storages.
    pub(super) fn scores(
        &self,
        choices: &Choices,
        network: &Network,
        net: &SuperNet,
        watch: Watch<'_>,
    ) -> Result<Scores> {
        let path = self.path("scores.json");
        if path.exists() {
            return read_json(&path);
        }
        let (loss, options) = scores::replace_one(net, &self.scoring, watch);
        let sequences = self.calibration()?;
        let (storages, frame) = scores::storages(network, choices, (&self.scoring, &sequences), watch)?;
        let scores = Scores { loss, options, storages, frame };
        write_json(&path, &scores)?;
        Ok(scores)
    }

    /// Sequences to learn from, from all over them.
    pub(super) fn calibration(&self) -> Result<Vec<Vec<u32>>> {
        self.corpus.sequences(&self.tokenizer, &self.base.frame)
    }

    /// How far each trained block turns the hidden states.
    pub(super) fn influence(&self, network: &Network) -> Vec<f64> {
        let mut influence = Influence::default();
        samples::observe(network, &self.scoring.singles(LOOKED_AT), |shown| influence.add(shown));
        influence.scores()
    }

    /// The passes of the original.
    pub(super) fn original_pass(&self) -> Result<Pass> {
        let workload = &self.plan.asked.workload;
        let network = folder::load_as(&self.path(BASELINE), workload.model(&self.original)?)?;
        Ok(workload.passes(network, 0))
    }

    /// What an architecture takes whole, as a share of the original's latency, and the original's milliseconds; what was
    /// measured before is not measured again.
    pub(super) fn measure(&self, choices: &Choices, architecture: &Architecture) -> Result<(f64, f64)> {
        let folder = self.path(WHOLE);
        let path = folder.join(format!("{}.json", identity::of(architecture)));
        if path.exists() {
            return read_json(&path);
        }
        let workload = &self.plan.asked.workload;
        let model = workload.model(&choices.model(architecture))?;
        let pass = workload.passes(choices.for_measuring(architecture, model)?, 0);
        let pair = pair::measure_tight([self.original_pass()?, pass], self.share_of_budget(MEASURING));
        let measured = (pair.share, pair.first_ms.median);
        std::fs::create_dir_all(&folder).map_err(Error::io(&folder))?;
        write_json(&path, &measured)?;
        Ok(measured)
    }

    /// Fits the correction of a menu's sums to whole models. Returns the original's milliseconds.
    pub(super) fn correct(&self, menu: &mut Menu, watch: Watch<'_>) -> Result<f64> {
        #[derive(Serialize, Deserialize)]
        struct Fitted {
            original_ms: f64,
            correction: Correction,
            /// Sums, and what was measured, microseconds.
            pairs: Vec<(f64, f64)>,
        }
        let path = self.path("correction.json");
        if path.exists() {
            let fitted: Fitted = read_json(&path)?;
            menu.correction = fitted.correction;
            return Ok(fitted.original_ms);
        }
        let slots = menu.slots();
        let of_storage =
            |storage| Architecture { storages: vec![storage; slots], frame: storage, ..Architecture::own(slots) };
        let mut list: Vec<Architecture> = (0..menu.choices.storages.len()).map(of_storage).collect();
        let mut rng = ChaCha8Rng::seed_from_u64(self.plan.asked.seed.into());
        let storages = menu.choices.storages.len();
        for _ in 0..CORRECTING {
            let options = menu.choices.blocks.iter().map(|slot| rng.random_range(0..slot.len())).collect();
            let storages: Vec<usize> = (0..slots).map(|_| rng.random_range(0..storages)).collect();
            list.push(Architecture { options, frame: storages[0], storages });
        }
        let (mut pairs, mut originals) = (Vec::new(), Vec::new());
        for (done, architecture) in list.iter().enumerate() {
            watch(steps("measuring whole models", done, list.len()));
            let (share, original_ms) = self.measure(&menu.choices, architecture)?;
            originals.push(original_ms);
            pairs.push((menu.sum_us(architecture), share));
        }
        watch(Event::Done);
        let original_ms = lathe_search::profile::median(originals);
        pairs.iter_mut().for_each(|(_, share)| *share *= 1e3 * original_ms);
        let correction = Correction::fit(&pairs);
        menu.correction = correction;
        write_json(&path, &Fitted { original_ms, correction, pairs })?;
        Ok(original_ms)
    }

    /// An error where a limit cannot be met.
    pub(super) fn check_limit(&self, menu: &Menu, us: f64, original_ms: f64) -> Result<()> {
        let cheapest = menu.cheapest();
        let least = menu.estimate_us(&cheapest);
        if least <= us {
            return Ok(());
        }
        let layers = menu.choices.model(&cheapest).layers();
        let (found, least) = (us / 1e3 / original_ms, least / 1e3 / original_ms);
        let expected = format!(
            "at least {:.4}, the estimate of the fastest model that these levers allow, `{layers}`",
            least + 5e-5
        );
        Err(Error::setting("target_latency", format!("{found:.4}, which no model meets"), expected))
    }
}
