//! Samples of a text that a model is looked at with: single sequences, each with what a task wants of it.

use crate::Result;
use crate::data::{Batch, Sampler, Tokenizer, Tokens};
use crate::tasks::{Cut, Sequences, Task};
use lathe_core::Frame;
use lathe_model::observe::Observation;
use lathe_model::{Grads, Network, State, Training};

/// Tokens of a sample, at most.
pub const LONGEST: usize = 1024;

/// Windows of a text in a random order, or segments that follow each other where there is a memory; without a task
/// there are no targets.
pub fn windows(
    frame: &Frame,
    task: Option<&dyn Task>,
    tokens: Tokens,
    tokenizer: &Tokenizer,
    count: usize,
    seed: u64,
) -> Result<Vec<Batch>> {
    let len = LONGEST.min(frame.window() as usize).min(tokens.len().saturating_sub(1) as usize).max(1);
    match task {
        Some(task) => {
            let cut = Cut { batch: 1, len, seed, tokenizer };
            let batches = task.batches(frame, &tokens.into(), &cut)?;
            let count = batches.steps_per_epoch().max(1).min(count as u64);
            (0..count).map(|step| batches.batch(step)).collect()
        }
        None => {
            let sampler = Sampler::windows(tokens, 1, len, seed)?;
            let count = sampler.steps_per_epoch().max(1).min(count as u64);
            (0..count).map(|step| sampler.batch(step)).collect()
        }
    }
}

/// Documents, each from its own beginning.
pub fn documents(
    sequences: impl Iterator<Item = lathe_text::Result<crate::data::Sequence>>,
    count: usize,
) -> Result<Vec<Batch>> {
    let mut samples = Vec::new();
    for sequence in sequences {
        let ids = sequence?.ids;
        if samples.len() == count {
            break;
        }
        if ids.len() > 1 {
            let (ids, targets) = (ids[..ids.len() - 1].to_vec(), ids[1..].to_vec());
            samples.push(Batch { rows: 1, ids, targets, fresh: true, ..Batch::default() });
        }
    }
    Ok(samples)
}

/// The state to go on with: a memory is carried where one sample follows another.
fn carry(network: &Network, state: &mut State, sample: &Batch) {
    if sample.fresh || !network.model.frame.has_memory() {
        *state = network.init_memory(sample.rows);
    }
}

/// What each sample shows.
pub fn observe(network: &Network, samples: &[Batch], mut each: impl FnMut(&Observation)) {
    let mut state = network.init_memory(1);
    for sample in samples {
        carry(network, &mut state, sample);
        each(&network.observe(&sample.input(sample.rows), &mut state));
    }
}

/// The gradients of each sample's mean loss, in the order of the parameters, which must be f32.
pub fn gradients(network: &Network, task: &dyn Task, samples: &[Batch], mut each: impl FnMut(&[Vec<f32>])) {
    let mut state = network.init_memory(1);
    let mut grads = Grads::new(network.params());
    for sample in samples {
        carry(network, &mut state, sample);
        grads.clear();
        let scale = 1.0 / sample.counted().max(1) as f32;
        let training = Training { dropout_key: None, balance: 0.0, scale };
        let input = sample.input(sample.rows);
        let objective = task.objective(Sequences::new(input, &sample.targets));
        network.train(&input, &*objective, &mut state, &training, &mut grads);
        each(grads.finish());
    }
}
