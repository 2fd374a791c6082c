//! From what is asked for to a plan: a new one, or that of the job that a folder holds.

use super::options::with_head_width;
use super::plan::{Asked, OptimizePlan, steps_within};
use super::stages::PLAN;
use crate::{At, Context, Error, Event, Result, Watch, identity, input};
use lathe_core::model::{Value, key};
use lathe_core::{Model, Registry};
use lathe_model::Precision;
use lathe_model::folder::{has_weights, is_free};
use lathe_search::profile::median;
use lathe_search::workload::{Mode, Workload};
use lathe_train::data::{Tokenizer, TokenizerSpec};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A job to be done, or to be gone on with.
#[derive(Debug, Clone)]
pub struct Request {
    /// What makes it what it is.
    pub asked: Asked,
    /// Folder of the model, trained already just as here.
    pub baseline: Option<PathBuf>,
    /// Whether other ways are trained too.
    pub compare: bool,
    /// A text that nothing is chosen by, to judge both models on; of the built-in language, other stories without it.
    pub test: Option<String>,
    /// Seeds that the baseline and what was found are trained with.
    pub repeat: u32,
    /// Folder of the job.
    pub out: PathBuf,
    /// The command that asks for this, for the report.
    pub command: String,
}

/// Stories of the built-in language that no job learns or validates on, unless it is asked to.
const OTHER_STORIES: &str = "builtin:0.5:7919";

impl Request {
    /// The text that both models are judged on in the end, if there is one.
    pub(super) fn test(&self) -> Option<&str> {
        let builtin = self.asked.data.starts_with("builtin");
        self.test.as_deref().or(builtin.then_some(OTHER_STORIES))
    }

    /// The plan of the folder, or a new one.
    pub(super) fn plan(&self, context: &Context<'_>, watch: Watch<'_>) -> Result<OptimizePlan> {
        let asked = &self.asked;
        let place = || format!("out {}", self.out.display());
        let path = self.out.join(PLAN);
        if path.exists() {
            let plan: OptimizePlan = input::read_json(&path)?;
            return match identity::difference(&plan.asked, asked) {
                None => Ok(plan),
                Some(differs) => {
                    let found = format!("a job with other settings ({differs})");
                    Err(Error::setting(place(), found, "a new folder, or the settings that it began with"))
                }
            };
        }
        if !is_free(&self.out)? {
            return Err(Error::setting(place(), "other files", "a new or empty folder"));
        }
        if !(asked.budget > 0.0 && asked.budget.is_finite()) {
            return Err(Error::setting("budget", asked.budget, "minutes above 0"));
        }
        let target = asked.target()?;
        let precision = asked.precision()?;
        let (model, tokenizer) = asked.model(context.registry)?;
        if !model.frame.backbone.causal() {
            let found = format!("`{}`, an encoder", model.frame.backbone.key());
            return Err(Error::setting("model", found, "a model that predicts the next token"));
        }
        if has_weights(Path::new(&asked.model)) {
            watch(Event::Warning(format!(
                "the weights in {0} are not used: this trains the model of {0} and what is found from scratch, and compares \
                 the two; `lathe train --init {0} --data FILE` trains those weights on",
                asked.model
            )));
        }
        asked.workload.model(&model)?; // its lengths are checked before anything is done
        let steps = match asked.steps {
            Some(steps) => steps,
            None => {
                watch(Event::Message("measuring a training step".into()));
                steps_within(asked.budget, asked.step_seconds(&model, precision)?, target, self.compare)
            }
        };
        let lr = asked.lr.unwrap_or_else(|| 0.003 * (128.0 / f64::from(model.frame.d_model)).sqrt().min(1.0));
        Ok(OptimizePlan {
            asked: asked.clone(),
            model: model.to_toml(),
            data: asked.data.clone(),
            valid: asked.valid.clone().unwrap_or_default(),
            tokenizer,
            target,
            workload: asked.workload.clone(),
            steps,
            batch: asked.train_batch,
            lr,
            seed: asked.seed,
            precision: precision.to_string(),
            eval_tokens: asked.eval_tokens,
            iso_parameter: asked.iso_parameter,
            inherit: asked.inherit,
        })
    }
}

impl Asked {
    /// The model as it is to be, and how it reads text.
    fn model(&self, registry: &Registry) -> Result<(Model, String)> {
        let mut spec = input::spec(&self.model, registry)?;
        let tokenizer = match &self.tokenizer {
            Some(tokenizer) => tokenizer.clone(),
            None => {
                let file = Tokenizer::file_of(Path::new(&self.model))?;
                file.map_or_else(|| "bytes".into(), |file| file.display().to_string())
            }
        };
        // What is trained from scratch has the vocabulary of the tokenizer that is asked for.
        if self.tokenizer.is_some() || spec.get("vocab").is_none() {
            let vocab = match tokenizer.parse::<TokenizerSpec>()? {
                TokenizerSpec::Bytes => Tokenizer::Bytes.vocab(),
                TokenizerSpec::Bpe(vocab) | TokenizerSpec::Word(vocab) => vocab,
                TokenizerSpec::File(path) => Tokenizer::open(&path)?.vocab(),
            };
            spec.set(key("vocab").expect("a key of the model file"), Value::Int(vocab));
        }
        let model = spec.model(registry).at(&self.model)?;
        Ok((with_head_width(&model, registry)?, tokenizer))
    }

    fn precision(&self) -> Result<Precision> {
        let Some(name) = &self.train_precision else { return Ok(Precision::fastest()) };
        name.parse().map_err(|_| Error::setting("train_precision", format!("`{name}`"), "f32 or bf16"))
    }

    /// What one step of the baseline takes.
    fn step_seconds(&self, model: &Model, precision: Precision) -> Result<f64> {
        let workload = Workload { mode: Mode::Train, batch: self.train_batch, precision, ..Workload::default() };
        let mut step = workload.whole(model.clone(), 0)?;
        (0..3).for_each(|_| step());
        let mut times = Vec::new();
        for _ in 0..9 {
            let start = Instant::now();
            step();
            times.push(start.elapsed().as_secs_f64());
        }
        Ok(median(times))
    }
}
