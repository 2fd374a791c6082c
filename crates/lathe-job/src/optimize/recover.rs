//! Recovery: an assembled model learns from the original, or from the text, whichever helps. Many candidates learn a
//! little, the better half of them twice as long, and so on.

use super::decide::Point;
use super::job::{Candidate, Job, Judged};
use super::plan::{ROUNDS, candidates};
use crate::event::steps;
use crate::input::{read_json, write_json};
use crate::{Error, Event, Result, Watch};
use lathe_model::folder;
use lathe_train::distill::Distill;
use lathe_train::run;
use lathe_train::settings::Settings;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// What a model learns from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Recipe {
    /// The original's predictions.
    Teacher,
    /// Those and the text.
    Both,
    /// The text.
    Text,
}

impl Recipe {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Teacher, Self::Both, Self::Text];

    /// Its name in folders.
    pub fn name(self) -> &'static str {
        match self {
            Self::Teacher => "teacher",
            Self::Both => "both",
            Self::Text => "text",
        }
    }

    /// Weights of KL to the teacher and of cross-entropy.
    fn weights(self) -> (f64, f64) {
        match self {
            Self::Teacher => (1.0, 0.0),
            Self::Both => (0.5, 0.5),
            Self::Text => (0.0, 1.0),
        }
    }
}

/// The name of the control.
const CONTINUED: &str = "continued";

/// A training of a candidate.
struct Lesson<'a> {
    name: &'a str,
    label: String,
    /// The folder whose weights it begins with.
    init: &'a Path,
    recipe: Recipe,
    steps: u32,
    /// Of the order of the text: every round sees other parts of it first.
    seed: u32,
}

impl Job<'_> {
    /// The settings of every training.
    pub(super) fn training(&self, out: &Path, steps: u32) -> Settings {
        let plan = &self.plan;
        // A checkpoint about every minute: they are large beside what a short run does.
        let a_minute = (60.0 / plan.step_seconds.max(1e-3)) as u32;
        let settings = Settings {
            steps,
            batch: plan.asked.train_batch,
            seq: if self.base.frame.has_memory() { 0 } else { plan.seq },
            lr: plan.lr,
            weight_decay: 0.01,
            warmup: 0.05,
            floor: 0.05,
            seed: plan.asked.seed,
            precision: plan.precision.clone(),
            checkpoint_every: a_minute.clamp(1, steps.max(1)),
            keep: 1,
            out: out.display().to_string(),
            ..Settings::default()
        };
        self.corpus.learn(&self.out, settings)
    }

    /// Whether a model of the base's frame can learn from another's predictions.
    fn has_logits(&self) -> bool {
        self.base.frame.cutoffs.is_empty()
    }

    /// Trains a candidate, or takes up what was trained, and returns its folder.
    fn learn(&self, lesson: &Lesson<'_>, watch: Watch<'_>) -> Result<PathBuf> {
        let Lesson { name, label, init, recipe, steps, seed } = lesson;
        let out = self.path("recover").join(name).join(label);
        let what = format!("recovering {name} from the {}", recipe.name().replace("both", "teacher and the text"));
        let mut heard = |event: run::Event<'_>| {
            if let run::Event::Step(step) = event {
                let note = format!("loss {:.4}", step.loss);
                let (done, total) = (step.step.into(), step.steps.into());
                watch(Event::Steps { what: &what, note: &note, done, total });
            }
        };
        if out.join(run::SETTINGS).exists() {
            run::resume(&out, self.context.registry, &mut heard)?;
        } else {
            let (kl, ce) = recipe.weights();
            let teacher = self.teacher_folder().display().to_string();
            let distill = (kl > 0.0).then(|| Distill { teacher, kl, ce, ..Distill::default() });
            let settings =
                Settings { init: init.display().to_string(), distill, seed: *seed, ..self.training(&out, *steps) };
            // What is trained already needs less.
            let settings =
                Settings { lr: if *name == CONTINUED { settings.lr / 2.0 } else { settings.lr }, ..settings };
            let model = folder::load_model(init, self.context.registry)?;
            run::begin(&settings, &model.spec(), self.context.registry, &mut heard)?;
        }
        watch(Event::Done);
        let checkpoints = out.join("checkpoints");
        if checkpoints.exists() {
            std::fs::remove_dir_all(&checkpoints).map_err(Error::io(&checkpoints))?; // nobody goes back there
        }
        Ok(out)
    }

    /// Nats per token of a folder on the text to choose by.
    fn judge(&self, folder: &Path) -> Result<f64> {
        let path = folder.join("judged.json");
        if path.exists() {
            return read_json(&path);
        }
        let network = folder::load(folder, self.context.registry)?;
        let loss = self.judging.loss(&network);
        write_json(&path, &loss)?;
        Ok(loss)
    }

    /// One round of a candidate's recovery.
    pub(super) fn round(&self, candidate: &mut Candidate, recipe: Recipe, round: u32, watch: Watch<'_>) -> Result<f64> {
        let label = format!("{round}-{}", recipe.name());
        let steps = self.plan.amounts.first_steps << round;
        let seed = self.plan.asked.seed.wrapping_add(round);
        let lesson = Lesson { name: &candidate.name, label, init: &candidate.folder, recipe, steps, seed };
        let folder = self.learn(&lesson, watch)?;
        let loss = self.judge(&folder)?;
        // What learnt too much of too little stays as it was.
        if loss < candidate.loss() {
            candidate.folder = folder;
        }
        candidate.rounds.push(Judged { steps, loss });
        Ok(loss)
    }

    /// The recipe that helps a candidate most in as many steps as a first round has.
    pub(super) fn recipe(&self, candidate: &Candidate, watch: Watch<'_>) -> Result<(Recipe, Vec<(Recipe, f64)>)> {
        if !self.has_logits() {
            return Ok((Recipe::Text, Vec::new()));
        }
        let mut tried = Vec::new();
        for recipe in Recipe::ALL {
            tried.push((recipe, self.round(&mut candidate.clone(), recipe, 0, watch)?));
        }
        let best = tried.iter().min_by(|a, b| a.1.total_cmp(&b.1)).expect("three recipes");
        Ok((best.0, tried))
    }

    /// Successive halving: all candidates learn, the better half twice as long, until one is left; it is the first of the list
    /// then and has learnt longest.
    pub(super) fn halve(&self, mut list: Vec<Candidate>, recipe: Recipe, watch: Watch<'_>) -> Result<Vec<Candidate>> {
        let proposed = list.len();
        let mut running: Vec<usize> = (0..list.len()).collect();
        for round in 0..=ROUNDS {
            let count = if round == ROUNDS { 1 } else { candidates(proposed, round) as usize };
            running.truncate(count.min(running.len()).max(1));
            for (done, &i) in running.iter().enumerate() {
                watch(steps("recovering candidates", done, running.len()));
                self.round(&mut list[i], recipe, round, watch)?;
            }
            running.sort_by(|&a, &b| self.expected(&list[a]).total_cmp(&self.expected(&list[b])));
        }
        watch(Event::Done);
        let best = running.first().copied();
        let mut order: Vec<usize> = (0..list.len()).collect();
        order.sort_by(|&a, &b| {
            let key = |i: usize| (Some(i) != best, std::cmp::Reverse(list[i].rounds.len()));
            key(a).cmp(&key(b)).then(self.expected(&list[a]).total_cmp(&self.expected(&list[b])))
        });
        Ok(order.into_iter().map(|i| list[i].clone()).collect())
    }

    /// All rounds of one candidate.
    pub(super) fn recover(&self, mut candidate: Candidate, recipe: Recipe, watch: Watch<'_>) -> Result<Candidate> {
        let rounds = if candidate.architecture.is_whole() { 0 } else { ROUNDS + 1 };
        for round in 0..rounds {
            self.round(&mut candidate, recipe, round, watch)?;
        }
        Ok(candidate)
    }

    /// What a candidate is judged by: its loss, and what its storages will cost.
    pub(super) fn expected(&self, candidate: &Candidate) -> f64 {
        candidate.loss() + candidate.lost_by_storage
    }

    /// The original trained on with the text for as many steps as a recovery has in all: none where nothing was recovered.
    pub(super) fn continued(&self, points: &[Point], watch: Watch<'_>) -> Result<(PathBuf, u32)> {
        if points.iter().all(|point| point.candidate.rounds.is_empty()) {
            return Ok((self.teacher_folder().into(), 0));
        }
        let steps = (0..=ROUNDS).map(|round| self.plan.amounts.first_steps << round).sum();
        let (label, recipe, seed) = ("text".to_string(), Recipe::Text, self.plan.asked.seed);
        let lesson = Lesson { name: CONTINUED, label, init: self.teacher_folder(), recipe, steps, seed };
        Ok((self.learn(&lesson, watch)?, steps))
    }
}
