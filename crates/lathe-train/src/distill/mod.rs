//! Distillation: a student learns from a teacher (Hinton et al., 2015; PKD; TinyBERT; MobileBERT; Puzzle).
//!
//! A run with a table `[distill]` is a training run like any other, with its batches, checkpoints and evaluations. What is
//! different is the objective of a batch, a [`Lesson`], for which the teacher runs first; which parts learn when; and what
//! is learnt beside the student: projections where widths differ. [`train_options`] is for searches: it teaches many
//! options of every slot at once.

mod cache;
mod distiller;
mod layers;
mod numbers;
mod objective;
mod options;
mod plan;
mod settings;

pub(crate) use distiller::Distiller;
pub use numbers::loss as number_loss;
pub use objective::{Lesson, NAMES, Source};
pub use options::{OptionLosses, OptionTraining, train_options};
pub(crate) use settings::difference;
pub use settings::{Distill, KEYS, Transfer, read};

use crate::data::Tokenizer;
use crate::settings::Settings;
use crate::tasks::Task;
use crate::texts::Texts;
use crate::{Error, Result};
use lathe_core::{Model, Registry};
use lathe_model::Network;
use lathe_model::derive;
use lathe_model::folder;
use std::path::Path;

/// The teacher that a run's settings name, as it is used: in the run's precision, whatever it is stored as.
pub(crate) fn load_teacher(distill: &Distill, registry: &Registry) -> Result<Network> {
    let path = Path::new(&distill.teacher);
    if !folder::has_weights(path) {
        let found = if path.exists() { "no model with weights" } else { "nothing" };
        return Err(Error::setting(format!("teacher {}", distill.teacher), found, "a model folder with weights"));
    }
    Ok(folder::load(path, registry)?)
}

/// A student with the teacher's weights wherever they fit.
pub(crate) fn inherit(teacher: &Network, model: Model, distill: &Distill, seed: u64) -> Result<Network> {
    let fresh = Network::new(model.clone(), seed)?;
    let slots = layers::inherited(&fresh, teacher, distill)?;
    let (network, _) = derive::derive(teacher, model, &slots, seed, &mut derive::largest(teacher))?;
    Ok(network)
}

/// What a run knows when it begins to learn from a teacher.
pub(crate) struct Opening<'a> {
    pub settings: &'a Settings,
    pub student: &'a Network,
    pub task: &'static dyn Task,
    pub texts: &'a Texts,
    /// T
    pub len: usize,
    /// The run's folder.
    pub folder: &'a Path,
}

/// An error where a student cannot learn from a teacher what it is to learn.
fn check(distill: &Distill, teacher: &Network, opening: &Opening<'_>) -> Result<()> {
    let Opening { settings, student, task, texts, len, .. } = *opening;
    let (own, theirs) = (&student.model.frame, &teacher.model.frame);
    task.check(theirs)?;
    if task.head().is_some() {
        let expected = "a task of tokens or of examples: what pairs of texts are is not learnt from teachers";
        return Err(Error::setting("task", format_args!("`{}`", task.key()), expected));
    }
    same_tokenizer("teacher", &distill.teacher, &texts.tokenizer)?;
    if !settings.init.is_empty() && Path::new(&settings.init).join("tokenizer.json").exists() {
        same_tokenizer("student", &settings.init, &texts.tokenizer)?;
    }
    if !theirs.has_memory() && len as u32 > theirs.window() {
        let expected = format!("at most the teacher's max_len, which is {}", theirs.window());
        return Err(Error::setting("seq", len, expected));
    }
    let needed = texts.tokenizer.vocab() + task.extra_tokens(texts.tokenizer.specials());
    if theirs.vocab < needed {
        let found = format!("a vocabulary of {}", theirs.vocab);
        let expected = format!("at least {needed}, the size of the tokenizer's vocabulary");
        return Err(Error::setting(format!("teacher {}", distill.teacher), found, expected));
    }
    if distill.transfer()? == Transfer::Blocks || !distill.has_logit_terms() {
        return Ok(());
    }
    if let Some(task) = task.of_examples() {
        if distill.cache_logits > 0 {
            return Err(Error::setting("cache_logits", distill.cache_logits, "0 where examples are learnt from"));
        }
        return task.check_teacher(own, theirs);
    }
    if own.vocab != theirs.vocab {
        let expected = format!("{}, the teacher's, for kl and mse compare token by token", theirs.vocab);
        return Err(Error::setting("vocab", own.vocab, expected));
    }
    if !student.head().is_some_and(|head| head.is_plain()) {
        let expected = "none, for kl and mse need the logits of a plain softmax";
        return Err(Error::setting("cutoffs", "those of an adaptive softmax in the student", expected));
    }
    if distill.mse > 0.0 && teacher.log_probabilities() {
        return Err(Error::setting("mse", distill.mse, "0, for the teacher gives log-probabilities, not logits"));
    }
    if distill.cache_logits > 0 && theirs.has_memory() {
        let expected = "0, for what a teacher with a memory says depends on what it read before";
        return Err(Error::setting("cache_logits", distill.cache_logits, expected));
    }
    Ok(())
}

/// An error where a folder's tokenizer is not the run's.
fn same_tokenizer(what: &str, folder: &str, tokenizer: &Tokenizer) -> Result<()> {
    let found = Tokenizer::load(Path::new(folder))?;
    if found.json() == tokenizer.json() && found.specials() == tokenizer.specials() {
        return Ok(());
    }
    let found = format!("another tokenizer than the run's, with {} tokens", found.vocab());
    let expected = format!("the same in both: one of {} tokens", tokenizer.vocab());
    Err(Error::setting(format!("{what} {folder}"), found, expected))
}
