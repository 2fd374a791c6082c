//! What models are trained for, one file each: which batches a text becomes, what their losses are, and how well a model
//! does in the end. Training, evaluation, proxies, searches and profiles take a task and know none by name.
//!
//! To add a task, write its file and add it to [`TASKS`].

mod causal_lm;
mod masked_lm;
mod prefix_lm;

pub use causal_lm::CausalLm;
pub use masked_lm::MaskedLm;
pub use prefix_lm::PrefixLm;

use crate::data::{Batch, Specials, Tokens};
use crate::evaluate::{Evaluation, Options};
use crate::{Error, Result};
use lathe_core::{Frame, Model};
use lathe_model::{Network, Objective, Targets};

/// How a text is cut into batches.
#[derive(Debug, Clone)]
pub struct Cut<'a> {
    /// B
    pub batch: usize,
    /// T
    pub len: usize,
    /// Of orders and of whatever else a task draws.
    pub seed: u64,
    /// The tokenizer's special tokens, and how many tokens it has.
    pub specials: &'a Specials,
    /// Tokens of the tokenizer.
    pub vocab: u32,
}

/// Batches, each a pure function of seed and step, so that a resumed run needs no state of its data.
pub trait Batches: Send + Sync {
    /// The batch of a step.
    fn batch(&self, step: u64) -> Result<Batch>;
    /// Steps until everything was seen once.
    fn steps_per_epoch(&self) -> u64;
}

/// What a model is trained for.
pub trait Task: Sync {
    /// Name in run files and flags.
    fn key(&self) -> &'static str;
    /// One line for lists.
    fn about(&self) -> &'static str;
    /// Whether models of a frame can be trained for it; an error that says why not.
    fn check(&self, frame: &Frame) -> Result<()>;
    /// Tokens that it needs beyond the tokenizer's.
    fn extra_tokens(&self, _specials: &Specials) -> u32 {
        0
    }
    /// The batches of a text for models of a frame.
    fn batches(&self, frame: &Frame, tokens: Tokens, cut: &Cut<'_>) -> Result<Box<dyn Batches>>;
    /// What the losses of a batch, or of some of its sequences, are.
    fn objective<'a>(&self, targets: &'a [u32]) -> Box<dyn Objective + 'a> {
        Box::new(Targets(targets))
    }
    /// The loss of a model that knows nothing: what losses are measured by that grow without bound.
    fn chance(&self, frame: &Frame) -> f32 {
        (frame.vocab as f32).ln()
    }
    /// How well a model does on a text; `watch` is told how many tokens of how many are done.
    fn evaluate(
        &self,
        network: &Network,
        tokens: &Tokens,
        options: &Options<'_>,
        watch: &mut dyn FnMut(u64, u64),
    ) -> Result<Evaluation>;
}

/// Every task; the first that fits a model is its default.
pub const TASKS: &[&dyn Task] = &[&CausalLm, &MaskedLm, &PrefixLm];

/// The task of a name, or the first that fits a model where there is no name.
pub fn find(name: &str, model: &Model) -> Result<&'static dyn Task> {
    if name.is_empty() {
        let fits = TASKS.iter().copied().find(|task| task.check(&model.frame).is_ok());
        return fits.ok_or_else(|| {
            let expected = "a backbone that one of the tasks fits";
            Error::setting("backbone", format_args!("`{}`", model.frame.backbone.key()), expected)
        });
    }
    let Some(&task) = TASKS.iter().find(|task| task.key() == name) else {
        let known: Vec<_> = TASKS.iter().map(|task| task.key()).collect();
        return Err(Error::setting("task", format_args!("`{name}`"), known.join(", ")));
    };
    task.check(&model.frame)?;
    Ok(task)
}
