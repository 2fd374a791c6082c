//! Which of several texts a model folder holds to be the most probable.

use crate::evaluate::{self, Subject};
use crate::{Error, Event, Result, Watch, input};
use lathe_core::Registry;
use lathe_train::choices::{self, Options, Outcome};
use std::path::Path;

/// Name of this in place of a task.
pub const TASK: &str = "choices";

/// What to ask a model.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The model: folder, precision and lengths; its data is a file with a JSON object in each line.
    pub model: evaluate::Request,
    /// What the examples look like; empty for what their columns say.
    pub form: String,
    /// Examples that are shown before each: 0 or 1.
    pub shots: u32,
    /// Of the examples that are shown.
    pub seed: u32,
}

impl Request {
    /// Whether this is what was asked for. Settings that the other has no use for are errors.
    pub fn is_meant(&self) -> Result<bool> {
        let evaluate::Request { task, context, documents, against, .. } = &self.model;
        let meant = task == TASK;
        let unused = match meant {
            true => [("context", *context > 0), ("documents", *documents), ("against", against.is_some())],
            false => [("shots", self.shots > 0), ("seed", self.seed > 0), ("form", !self.form.is_empty())],
        };
        match unused.into_iter().find(|(_, given)| *given) {
            None => Ok(meant),
            Some((name, _)) => {
                let expected = if meant {
                    "nothing of it: each example is put by itself"
                } else {
                    "--task choices, or nothing of it"
                };
                Err(Error::setting(name, format_args!("it, with --task `{task}`"), expected))
            }
        }
    }
}

/// Asks a model folder.
pub fn run(registry: &Registry, request: &Request, watch: Watch<'_>) -> Result<Outcome> {
    if let Some(warning) = request.model.precision.warning() {
        watch(Event::Warning(warning));
    }
    let examples = choices::read(Path::new(&request.model.data), &request.form)?;
    let folder = input::model_folder(&request.model.folder)?;
    let subject =
        Subject::load(registry, &evaluate::Request { folder, task: "causal_lm".into(), ..request.model.clone() })?;
    let options =
        Options { shots: request.shots, seed: request.seed, window: request.model.window.unwrap_or(0) as usize };
    let total = examples.list.len();
    let mut heard = |done, _: &[f64]| watch(crate::event::steps("asking", done, total));
    heard(0, &[]);
    let outcome = choices::evaluate(&subject.network, &subject.tokenizer, &examples, &options, &mut heard)?;
    watch(Event::Done);
    Ok(outcome)
}
