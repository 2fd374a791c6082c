//! Weights that go while the model is trained (Zhu and Gupta, 2017), and the same training without pruning to compare
//! with.

use super::Job;
use super::outcome::{Control, Found, Share};
use crate::{Event, Result, Watch};
use lathe_model::folder;
use lathe_model::prune::magnitude::Mask;
use lathe_model::prune::store_as;
use lathe_train::run;
use lathe_train::settings::Settings;
use std::path::{Path, PathBuf};

/// Highest learning rate of a model that is trained already.
const RATE: f64 = 3e-4;

impl Job<'_> {
    /// The settings of a training from the weights of a folder.
    pub(super) fn training(&self, init: &Path, rate: f64) -> Settings {
        let asked = self.asked;
        let steps = asked.steps.unwrap_or(1);
        Settings {
            data: asked.data.clone(),
            valid: asked.valid.clone().unwrap_or_default(),
            init: init.display().to_string(),
            steps,
            batch: asked.train_batch,
            lr: asked.lr.unwrap_or(rate),
            seed: asked.seed,
            eval_every: steps, // in the end alone
            sparsity_evenly: asked.evenly,
            ..Settings::default()
        }
    }

    /// Trains in a folder of the job, or goes on with it. Returns the folder.
    pub(super) fn train(&self, name: &str, settings: Settings, watch: Watch<'_>) -> Result<PathBuf> {
        let folder = self.out.join(name);
        let mut heard = |event: run::Event<'_>| watch(Event::Training(event));
        if folder.join(run::SETTINGS).exists() {
            run::resume(&folder, self.registry, &mut heard)?;
        } else {
            let init = Path::new(&settings.init);
            let spec = folder::load_model(init, self.registry)?.spec();
            let out = folder.display().to_string();
            run::begin(&Settings { out, ..settings }, &spec, self.registry, &mut heard)?;
        }
        watch(Event::Done);
        Ok(folder)
    }

    pub(super) fn gradual(&self, share: f64, watch: Watch<'_>) -> Result<Found> {
        self.begin()?;
        let stages = if self.asked.control { 2 } else { 1 };
        let what = format!("train and prune to {:.1} % zeros", 100.0 * share);
        watch(Event::Stage { number: 1, of: stages, what });
        let settings = Settings { sparsity: share, ..self.training(&self.before, RATE) };
        let trained = self.train("training", settings, &mut *watch)?;
        let mut network = folder::load(&trained, self.registry)?;
        let reached = Mask::of_zeros(&network).sparsity();
        store_as(&mut network, &self.network); // bytes are compared with bytes of the same kind
        self.save(&network, &self.tokenizer)?;
        let mut control = None;
        if self.asked.control {
            watch(Event::Stage { number: 2, of: stages, what: "train the model on without pruning".into() });
            let folder = self.train("continued", self.training(&self.before, RATE), &mut *watch)?;
            control = self.control("the model before, trained on for as many steps", &folder, &mut *watch)?;
        }
        let share = Share::new(super::WEIGHTS, share, reached);
        Ok(Found { control, ..Found::new(&self.before, share) })
    }

    /// How well a model does that the result is compared with.
    pub(super) fn control(&self, what: &str, folder: &Path, watch: Watch<'_>) -> Result<Option<Control>> {
        let Some(task) = self.task else { return Ok(None) };
        let evaluation = self.text.loss(folder, task, self.registry, "the control", &mut *watch)?;
        Ok(Some(Control { what: what.into(), loss: evaluation.loss, bits_per_byte: evaluation.bits_per_byte }))
    }
}
