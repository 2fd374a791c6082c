//! What models are trained for, one file each: which batches a text or examples become, what their losses are, and how
//! well a model does in the end. Training, evaluation, proxies, searches and profiles take a task and know none by
//! name.
//!
//! To add a task, write its file and add it to [`TASKS`]. One that learns from examples implements [`ExampleTask`].

mod causal_lm;
mod choose;
mod classify;
mod embed;
pub mod examples;
mod masked_lm;
mod masked_pairs;
mod prefix_lm;
mod regress;
mod span;

pub use causal_lm::CausalLm;
pub use choose::Choose;
pub use classify::Classify;
pub use embed::Embed;
pub use examples::{ExampleTask, Group, NumberLoss, Numbers, Prediction};
pub use masked_lm::MaskedLm;
pub use masked_pairs::MaskedPairs;
pub use prefix_lm::PrefixLm;
pub use regress::Regress;
pub use span::Span;

use crate::data::{Batch, Data, Specials, Tokenizer};
use crate::evaluate::{Evaluation, Options};
use crate::examples::benchmarks;
use crate::{Error, Result};
use lathe_core::{Frame, Model};
use lathe_model::{Input, Network, Objective, Targets};
use lathe_ops::dropout::Dropout;

/// How data are cut into batches.
#[derive(Debug, Clone)]
pub struct Cut<'a> {
    /// B
    pub batch: usize,
    /// T, of examples at the most.
    pub len: usize,
    /// Of orders and of whatever else a task draws.
    pub seed: u64,
    /// What makes tokens of texts, or made them.
    pub tokenizer: &'a Tokenizer,
}

/// Batches, each a pure function of seed and step, so that a resumed run needs no state of its data.
pub trait Batches: Send + Sync {
    /// The batch of a step.
    fn batch(&self, step: u64) -> Result<Batch>;
    /// What a user should know of the data.
    fn note(&self) -> Option<String> {
        None
    }
    /// Steps until everything was seen once.
    fn steps_per_epoch(&self) -> u64;
}

/// Sequences whose losses are wanted.
#[derive(Debug, Clone, Copy)]
pub struct Sequences<'a> {
    /// What a model reads.
    pub input: Input<'a>,
    /// What the task wants, as [`Batch::targets`].
    pub targets: &'a [u32],
    /// Of what stands between the last block and an output layer.
    pub dropout: Dropout,
}

impl<'a> Sequences<'a> {
    /// Without dropout.
    pub fn new(input: Input<'a>, targets: &'a [u32]) -> Self {
        Self { input, targets, dropout: Dropout::NONE }
    }
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
    /// Whether its text is read document by document.
    fn of_documents(&self) -> bool {
        false
    }
    /// The output layer that a model needs for it, by the value of its key `head`, where there are several.
    fn head(&self) -> Option<&'static str> {
        None
    }
    /// It as a task that learns from examples, where it is one.
    fn of_examples(&self) -> Option<&dyn ExampleTask> {
        None
    }
    /// The batches of data for models of a frame.
    fn batches(&self, frame: &Frame, data: &Data, cut: &Cut<'_>) -> Result<Box<dyn Batches>>;
    /// What the losses of a batch, or of some of its sequences, are.
    fn objective<'a>(&'a self, sequences: Sequences<'a>) -> Box<dyn Objective + 'a> {
        Box::new(Targets(sequences.targets))
    }
    /// Targets of sequences of so many tokens, made of random numbers below the vocabulary: for measurements.
    fn any_targets(&self, _frame: &Frame, random: Vec<u32>, _len: usize) -> Vec<u32> {
        random
    }
    /// The loss of a model that knows nothing: what losses are measured by that grow without bound.
    fn chance(&self, frame: &Frame) -> f32 {
        (frame.vocab as f32).ln()
    }
    /// How well a model does; `watch` is told how many tokens, or examples, of how many are done.
    fn evaluate(
        &self,
        network: &Network,
        data: &Data,
        options: &Options<'_>,
        watch: &mut dyn FnMut(u64, u64),
    ) -> Result<Evaluation>;
}

/// Every task; the first that fits a model is its default.
pub const TASKS: &[&dyn Task] = &[
    &CausalLm,
    &MaskedLm::TOKENS,
    &MaskedLm::WORDS,
    &MaskedPairs::NEXT,
    &MaskedPairs::ORDER,
    &PrefixLm,
    &Classify,
    &Regress,
    &Choose,
    &Span,
    &Embed,
];

/// The task of a name, which may be that of a benchmark; none where there is no such name.
pub fn named(name: &str) -> Result<&'static dyn Task> {
    let key = benchmarks::find(name).map_or(name, |benchmark| benchmark.task);
    TASKS.iter().copied().find(|task| task.key() == key).ok_or_else(|| {
        let known = TASKS.iter().map(|task| task.key()).chain(benchmarks::BENCHMARKS.iter().map(|known| known.name));
        Error::setting("task", format_args!("`{name}`"), known.collect::<Vec<_>>().join(", "))
    })
}

/// The task of a name, or the first that fits a model where there is no name.
pub fn find(name: &str, model: &Model) -> Result<&'static dyn Task> {
    if name.is_empty() {
        let fits = TASKS.iter().copied().find(|task| task.check(&model.frame).is_ok());
        return fits.ok_or_else(|| {
            let expected = "a backbone that one of the tasks fits";
            Error::setting("backbone", format_args!("`{}`", model.frame.backbone.key()), expected)
        });
    }
    let task = named(name)?;
    task.check(&model.frame)?;
    Ok(task)
}
