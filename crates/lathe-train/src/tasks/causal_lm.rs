//! Language modelling: every token from those before it. Losses are -log p of the next token.

use super::{Batches, Cut, Task};
use crate::data::{Batch, Data, Sampler};
use crate::evaluate::{self, Evaluation, Options};
use crate::{Error, Result};
use lathe_core::Frame;
use lathe_model::Network;

/// The next token.
pub struct CausalLm;

impl Task for CausalLm {
    fn key(&self) -> &'static str {
        "causal_lm"
    }

    fn about(&self) -> &'static str {
        "the next token, from those before it"
    }

    fn check(&self, frame: &Frame) -> Result<()> {
        if frame.source_len().is_some() {
            let found = format!("`{}`, which reads one text and writes another", frame.backbone.key());
            return Err(Error::setting("backbone", found, "one for causal_lm, of a single text"));
        }
        if frame.backbone.causal() && frame.has_head() {
            return Ok(());
        }
        if frame.backbone.causal() {
            let found = format!("`{}` without an output layer", frame.backbone.key());
            return Err(Error::setting("backbone", found, "one with an output layer, for causal_lm"));
        }
        let found = format!("`{}`, whose tokens see what comes after them", frame.backbone.key());
        Err(Error::setting("backbone", found, "one for causal_lm, whose tokens see only those before them"))
    }

    /// Streams for models with a memory, shuffled windows for all others.
    fn batches(&self, frame: &Frame, data: &Data, cut: &Cut<'_>) -> Result<Box<dyn Batches>> {
        let tokens = data.tokens()?.clone();
        Ok(Box::new(match frame.has_memory() {
            true => Sampler::streams(tokens, cut.batch, cut.len)?,
            false => Sampler::windows(tokens, cut.batch, cut.len, cut.seed)?,
        }))
    }

    fn evaluate(
        &self,
        network: &Network,
        data: &Data,
        options: &Options<'_>,
        watch: &mut dyn FnMut(u64, u64),
    ) -> Result<Evaluation> {
        evaluate::evaluate(network, data.tokens()?, options, watch)
    }
}

impl Batches for Sampler {
    fn batch(&self, step: u64) -> Result<Batch> {
        Sampler::batch(self, step)
    }

    fn steps_per_epoch(&self) -> u64 {
        Sampler::steps_per_epoch(self)
    }
}
