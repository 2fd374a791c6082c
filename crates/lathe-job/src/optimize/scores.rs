//! Scores: what a model loses with one block replaced, and what it loses by fewer bits, on the text to choose by.

use super::architecture::{Architecture, Choices};
use super::menu::Losses;
use super::samples::{Assembled, Predictor, Samples};
use crate::event::steps;
use crate::{Event, Result, Watch};
use lathe_model::head::Top;
use lathe_model::quantize::{self, Range, Settings};
use lathe_model::{Grads, Network, Objective, Params, SuperNet, WeightStorage};
use lathe_ops::buffer::Buf;
use lathe_ops::loss::soft::{LOSSES, Terms};
use lathe_ops::loss::{self, IGNORE};
use lathe_train::distill::number_loss;
use lathe_train::divergence::kl;
use lathe_train::tasks::{ExampleTask, Numbers, Sequences};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::cell::Cell;

/// Storages that cost at most this share of the loss where all blocks have them are not looked at block by block.
const FREE: f64 = 0.004;

/// What replacing one block does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Nats per token that the loss grows by.
    pub loss: f64,
    /// KL of the original's predictions from those that come out, nats per token.
    pub kl: f64,
}

/// All scores.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Scores {
    /// The loss of the trained model on the tokens that are scored.
    pub loss: f64,
    /// Of each option of each slot.
    pub options: Vec<Vec<Score>>,
    /// Of each storage of each slot, and around the slots: nats per token that the loss grows by.
    pub storages: Vec<Vec<f64>>,
    /// Of what stands around the slots.
    pub frame: Vec<f64>,
}

impl Scores {
    /// What choosing goes by.
    pub fn losses(&self) -> Losses {
        let of = |slot: &Vec<Score>| slot.iter().map(|score| score.loss).collect();
        Losses {
            options: self.options.iter().map(of).collect(),
            storages: self.storages.clone(),
            frame: self.frame.clone(),
        }
    }
}

/// The predictions of a model that others are compared with.
pub struct Reference {
    /// Logits of the tokens that count, or numbers of examples, by batch.
    predictions: Vec<Vec<f32>>,
    vocab: usize,
    /// Nats per token.
    pub loss: f64,
}

/// An objective that notes predictions, or how far they are from a reference's.
trait Comparison: Objective {
    /// What was predicted, where there was no reference.
    fn predictions(&self) -> Vec<f32>;
    /// The sum of KL from the reference.
    fn kl(&self) -> f64;
}

/// Cross-entropy of the targets, and with the reference's logits the KL from them.
struct OfTokens<'a> {
    targets: &'a [u32],
    vocab: usize,
    reference: Option<&'a [f32]>,
    logits: Cell<Vec<f32>>,
    kl: Cell<f64>,
}

impl Objective for OfTokens<'_> {
    fn loss(
        &self,
        top: &Top,
        params: &Params,
        hidden: &[f32],
        _: Option<(f32, &mut Grads)>,
    ) -> (Vec<f32>, Option<Buf>) {
        let head = top.head.as_ref().expect("a model with an output layer");
        let width = hidden.len() / self.targets.len();
        let rows: Vec<usize> = (0..self.targets.len()).filter(|&row| self.targets[row] != IGNORE).collect();
        let counted: Vec<f32> = rows.iter().flat_map(|&row| hidden[row * width..][..width].iter().copied()).collect();
        let vocab = self.vocab;
        let mut logits = vec![0.0; rows.len() * vocab];
        head.logits(params, &counted, &mut logits);
        let targets: Vec<u32> = rows.iter().map(|&row| self.targets[row]).collect();
        let mut losses = vec![0.0; rows.len()];
        loss::negative_log_likelihood(&mut logits, vocab, &targets, &mut losses);
        if let Some(reference) = self.reference {
            let apart = |i: usize| kl(&reference[i * vocab..][..vocab], &logits[i * vocab..][..vocab]);
            let apart: Vec<f64> = (0..rows.len()).into_par_iter().map(apart).collect();
            self.kl.set(apart.iter().sum());
        } else {
            self.logits.set(logits);
        }
        (losses, None)
    }
}

impl Comparison for OfTokens<'_> {
    fn predictions(&self) -> Vec<f32> {
        self.logits.take()
    }

    fn kl(&self) -> f64 {
        self.kl.get()
    }
}

/// The task's losses of examples, and with the reference's numbers the KL from them.
struct OfExamples<'a> {
    task: &'a dyn ExampleTask,
    sequences: Sequences<'a>,
    reference: Option<&'a [f32]>,
    numbers: Cell<Vec<f32>>,
    kl: Cell<f64>,
}

impl Objective for OfExamples<'_> {
    fn loss(
        &self,
        top: &Top,
        params: &Params,
        hidden: &[f32],
        _: Option<(f32, &mut Grads)>,
    ) -> (Vec<f32>, Option<Buf>) {
        let terms = Terms { ce: 1.0, kl: 0.0, mse: 0.0, temperature: 1.0 };
        let loss = |numbers: &Numbers<'_>, values: &mut [f32], scale: f32, losses: &mut [f32]| {
            let own = values.to_vec();
            let mut each = vec![0.0; losses.len() * LOSSES];
            let both = (values, self.reference.unwrap_or(&own));
            losses.copy_from_slice(&number_loss(self.task, numbers, both, (&terms, scale), &mut each));
            self.kl.set(each.iter().skip(1).step_by(LOSSES).copied().map(f64::from).sum());
            self.numbers.set(own);
        };
        self.task.losses(&self.sequences, (top, params), hidden, &loss, None)
    }
}

impl Comparison for OfExamples<'_> {
    fn predictions(&self) -> Vec<f32> {
        self.numbers.take()
    }

    fn kl(&self) -> f64 {
        self.kl.get()
    }
}

impl Samples {
    /// The comparison of some sequences with a reference's predictions, if there are any.
    fn comparison<'a>(
        &self,
        sequences: &Sequences<'a>,
        vocab: usize,
        reference: Option<&'a [f32]>,
    ) -> Box<dyn Comparison + 'a> {
        match self.task.of_examples() {
            Some(task) => {
                let sequences = *sequences;
                Box::new(OfExamples { task, sequences, reference, numbers: Cell::default(), kl: Cell::new(0.0) })
            }
            None => {
                let targets = sequences.targets;
                Box::new(OfTokens { targets, vocab, reference, logits: Cell::default(), kl: Cell::new(0.0) })
            }
        }
    }
}

impl Reference {
    /// The predictions of a model with a vocabulary.
    pub fn of(model: &dyn Predictor, vocab: u32, samples: &Samples) -> Self {
        let (mut predictions, mut nats, vocab) = (Vec::new(), 0.0, vocab as usize);
        samples.visit(model, |_, sequences, state| {
            let objective = samples.comparison(sequences, vocab, None);
            let losses = model.losses(&sequences.input, &*objective, state);
            nats += losses.iter().copied().map(f64::from).sum::<f64>();
            predictions.push(objective.predictions());
        });
        Self { predictions, vocab, loss: nats / samples.tokens as f64 }
    }

    /// How much worse another model is.
    pub fn score(&self, model: &dyn Predictor, samples: &Samples) -> Score {
        let (mut nats, mut apart) = (0.0, 0.0);
        samples.visit(model, |i, sequences, state| {
            let objective = samples.comparison(sequences, self.vocab, Some(&self.predictions[i]));
            let losses = model.losses(&sequences.input, &*objective, state);
            nats += losses.iter().copied().map(f64::from).sum::<f64>();
            apart += objective.kl();
        });
        let tokens = samples.tokens as f64;
        Score { loss: nats / tokens - self.loss, kl: apart / tokens }
    }
}

/// The score of every option of every slot of a super net, all other slots as they were trained.
pub fn replace_one(net: &SuperNet, samples: &Samples, watch: Watch<'_>) -> (f64, Vec<Vec<Score>>) {
    let counts: Vec<usize> = net.options().collect();
    let mut choice = vec![0; counts.len()];
    let reference = Reference::of(&Assembled(net, &choice), net.frame.vocab, samples);
    let total: usize = counts.iter().map(|count| count - 1).sum();
    let (mut done, mut scores) = (0, Vec::new());
    for (slot, &count) in counts.iter().enumerate() {
        let mut of_slot = vec![Score::default()];
        for option in 1..count {
            choice[slot] = option;
            of_slot.push(reference.score(&Assembled(net, &choice), samples));
            done += 1;
            watch(steps("replacing one block", done, total));
        }
        choice[slot] = 0;
        scores.push(of_slot);
    }
    watch(Event::Done);
    (reference.loss, scores)
}

/// How weights are rounded: by what flows through them.
pub fn rounding(choices: &Choices, architecture: &Architecture) -> Settings {
    let format = |storage: usize| choices.storages[storage].format();
    Settings {
        slots: choices.slots(architecture).into_iter().map(|slot| format(architecture.storages[slot])).collect(),
        output: format(architecture.frame),
        range: Range::LeastSquares,
        compensate: true,
    }
}

/// What each storage costs in each slot, and around them: the loss of the trained model with that part rounded.
pub fn storages(
    network: &Network,
    choices: &Choices,
    (samples, calibration): (&Samples, &[Vec<u32>]),
    watch: Watch<'_>,
) -> Result<(Vec<Vec<f64>>, Vec<f64>)> {
    let slots = choices.blocks.len();
    let mut of_slots = vec![vec![0.0; choices.storages.len()]; slots];
    let mut of_frame = vec![0.0; choices.storages.len()];
    let loss = samples.loss(network);
    for (i, &storage) in choices.storages.iter().enumerate().skip(1) {
        let rounded = rounded(network, choices, i, storage, calibration)?;
        let blocks = network.blocks_params();
        let with = |from: &dyn Fn(usize) -> bool| -> Result<f64> {
            let mut mixed = Network::new(network.model.clone(), 0)?;
            let params = network.params().iter().zip(rounded.params().iter()).enumerate();
            let values: Vec<_> = params.map(|(at, (own, other))| if from(at) { other } else { own }.clone()).collect();
            mixed.params_mut().zip(values).for_each(|(param, value)| *param = value);
            Ok(samples.loss(&mixed) - loss)
        };
        of_frame[i] = with(&|at| !blocks.contains(&at))?;
        let all = with(&|at| blocks.contains(&at))?;
        if all <= FREE * loss {
            of_slots.iter_mut().for_each(|slot| slot[i] = all.max(0.0) / slots as f64);
        } else {
            for (slot, of_slot) in of_slots.iter_mut().enumerate() {
                let params = network.slot(slot).params;
                of_slot[i] = with(&|at| params.contains(&at))?;
                let what = format!("blocks in {storage}");
                watch(Event::Steps { what: &what, note: "", done: slot as u64 + 1, total: slots as u64 });
            }
        }
        watch(Event::Done);
    }
    Ok((of_slots, of_frame))
}

/// The trained model with all weights in a storage.
fn rounded(
    network: &Network,
    choices: &Choices,
    index: usize,
    storage: WeightStorage,
    calibration: &[Vec<u32>],
) -> Result<Network> {
    let mut copy = Network::new(network.model.clone(), 0)?;
    let values: Vec<_> = network.params().iter().cloned().collect();
    copy.params_mut().zip(values).for_each(|(param, value)| *param = value);
    let slots = choices.blocks.len();
    let all = Architecture { options: vec![0; slots], storages: vec![index; slots], frame: index };
    match storage.format() {
        Some(_) => quantize::calibrated(&mut copy, &rounding(choices, &all), calibration, &mut |_, _| ()),
        None => {
            (0..slots).for_each(|slot| copy.set_slot_storage(slot, storage));
            copy.set_frame_storage(storage);
        }
    }
    Ok(copy)
}
