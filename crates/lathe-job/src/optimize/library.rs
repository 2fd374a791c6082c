//! What every slot of a trained model may become: options that are derived from its block, in one super net, where all of
//! them learn by themselves to give the block's output for its input.

use super::levers::Lever;
use crate::event::steps;
use crate::{Event, Result, Watch};
use lathe_core::{Block, Registry, Role};
use lathe_model::derive::{self, with_units};
use lathe_model::layer::Units;
use lathe_model::prune::units::Importance;
use lathe_model::{Network, SuperNet, Taps};
use lathe_ops::loss::states::Measure;
use lathe_train::data::Batch;
use lathe_train::distill::{OptionTraining, train_options};
use lathe_train::samples;
use lathe_train::settings::Settings;
use lathe_train::tasks::{Cut, Task};
use lathe_train::texts::Texts;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;

/// Shares of a block's units that narrower options have.
const SHARES: [f64; 3] = [0.75, 0.5, 0.25];
/// Units are a multiple of this where there are many: odd widths are slow.
const GRAIN: usize = 16;
const MANY: usize = 8 * GRAIN;

/// Tokens whose hidden states options are made to fit.
const SEEN: usize = 1024;

/// The options of each slot, the trained block first, then from the dearest to the cheapest.
pub fn options(network: &Network, levers: &[Lever], registry: &Registry) -> Vec<Vec<Block>> {
    let frame = &network.model.frame;
    let has = |lever: Lever| levers.contains(&lever);
    let of_slot = |slot: usize| {
        let own = network.model.blocks[slot];
        let mut options = vec![own];
        let mut offer = |block: Block| {
            let same = |other: &Block| other.kind.resolve(other, frame) == block.kind.resolve(&block, frame);
            if block.kind.check(&block, frame).is_ok() && !options.iter().any(same) {
                options.push(block);
            }
        };
        if has(Lever::Width) {
            let units = network.slot(slot).units;
            for units in units.iter().filter(|units| units.count > 1).take(1) {
                let fewer = |share: f64| fewer(units.count, share);
                SHARES.iter().map(|&share| with_units(&own, frame, units, fewer(share))).for_each(&mut offer);
            }
        }
        for kind in registry.blocks {
            let wanted = match kind.role() {
                Role::Identity => has(Lever::Blocks),
                _ if kind.key() == own.kind.key() => false,
                _ if kind.dense(&Block::new(*kind), frame).is_some() => has(Lever::Experts),
                _ => has(Lever::Rank),
            };
            if wanted && own.kind.role() != Role::Identity {
                kind.derived(&own, frame).into_iter().rev().for_each(&mut offer);
            }
        }
        options
    };
    (0..network.model.blocks.len()).map(of_slot).collect()
}

/// A share of some units, at least one.
fn fewer(count: usize, share: f64) -> usize {
    let wanted = share * count as f64;
    match count >= MANY {
        true => ((wanted / GRAIN as f64).round() as usize).max(1) * GRAIN,
        false => (wanted.round() as usize).max(1),
    }
}

/// How important the units of each slot are, by the knob that counts them.
pub struct Weights(HashMap<&'static str, Vec<Vec<f64>>>);

impl Weights {
    /// Looks at a network with sequences: what mixes tokens by the gradients of its gates (Michel et al., 2019), all else by
    /// activations.
    pub fn of(network: &Network, task: &dyn Task, sequences: &[Batch], watch: Watch<'_>) -> Result<Self> {
        let mut knobs: BTreeSet<(&'static str, bool)> = BTreeSet::new();
        for slot in 0..network.model.blocks.len() {
            let slot = network.slot(slot);
            let mixes = slot.block.kind.role() == Role::MixesTokens;
            knobs.extend(slot.units.iter().filter(|units| units.count > 1).map(|units| (units.knobs[0].0, mixes)));
        }
        let mut scores = HashMap::new();
        let mut done = 0;
        let total = knobs.len() * sequences.len();
        for (knob, by_gradient) in knobs {
            let mut importance = Importance::new(network, knob)?;
            let mut heard = || {
                done += 1;
                watch(steps("looking at units", done, total));
            };
            match by_gradient {
                true => samples::gradients(network, task, sequences, |grads| {
                    importance.add_gradients(network, grads);
                    heard();
                }),
                false => samples::observe(network, sequences, |shown| {
                    importance.add_activations(shown);
                    heard();
                }),
            }
            scores.insert(knob, importance.scores());
        }
        watch(Event::Done);
        Ok(Self(scores))
    }

    /// The most important units of a slot, in order.
    fn keep(&self, slot: usize, units: &Units, count: usize) -> Vec<usize> {
        let scores = self.0.get(units.knobs[0].0).map(|scores| &scores[slot]);
        let score = |unit: usize| scores.and_then(|scores| scores.get(unit)).copied().unwrap_or(0.0);
        let mut order: Vec<usize> = (0..units.count).collect();
        order.sort_by(|&a, &b| score(b).total_cmp(&score(a)).then(a.cmp(&b)));
        order.truncate(count);
        order.sort_unstable();
        order
    }
}

/// What enters each slot of a network for some sequences, [N, D].
fn entering(network: &Network, sequences: &[Batch]) -> Vec<Vec<f32>> {
    let slots = network.model.blocks.len();
    let taps = Taps { hidden: (0..slots).collect(), until: Some(slots), ..Taps::NONE };
    let mut entering = vec![Vec::new(); slots];
    let mut tokens = 0;
    for sequence in sequences {
        if tokens >= SEEN {
            break;
        }
        let mut state = network.init_memory(sequence.rows);
        let (_, seen) = network.look(&sequence.input(sequence.rows), &mut state, &taps);
        // Documents are padded behind.
        let real: Vec<usize> = match sequence.mask.is_empty() {
            true => (0..sequence.counted()).collect(),
            false => (0..sequence.ids.len()).filter(|&token| sequence.mask[token]).collect(),
        };
        for (all, seen) in entering.iter_mut().zip(seen.hidden) {
            let seen = seen.expect("the pass came there");
            let width = seen.len() / sequence.ids.len();
            real.iter().for_each(|&token| all.extend_from_slice(&seen[token * width..][..width]));
        }
        tokens += real.len();
    }
    entering
}

/// The super net of all options, with weights out of the trained blocks by what enters these for some sequences.
pub fn derive(
    network: &Network,
    options: &[Vec<Block>],
    weights: &Weights,
    sequences: &[Batch],
    seed: u64,
) -> Result<SuperNet> {
    let frame = &network.model.frame;
    let hidden = entering(network, sequences);
    let mut net = SuperNet::new(frame.clone(), options, seed)?;
    let most = options.iter().map(Vec::len).max().unwrap_or(0);
    let slots: Vec<Option<usize>> = (0..options.len()).map(Some).collect();
    for option in 0..most {
        let choice: Vec<usize> = options.iter().map(|slot| if option < slot.len() { option } else { 0 }).collect();
        let mut keep = |slot: usize, units: &Units, count: usize| weights.keep(slot, units, count);
        let seen = |slot: usize| Some(&*hidden[slot]);
        let (made, _) = derive::derive_seen(network, &seen, net.model(&choice), &slots, seed, &mut keep)?;
        net.adopt(&choice, &made);
    }
    Ok(net)
}

/// Lets all options but the first of each slot learn from the trained blocks, or goes on with it.
pub fn distil(
    network: &Network,
    net: SuperNet,
    task: &dyn Task,
    settings: &Settings,
    folder: &Path,
    watch: Watch<'_>,
) -> Result<(SuperNet, Vec<Vec<f64>>)> {
    let texts = Texts::open(folder, settings, &mut |_| ())?;
    let cut = Cut {
        batch: settings.batch as usize,
        len: settings.seq as usize,
        seed: settings.seed.into(),
        tokenizer: &texts.tokenizer,
    };
    let batches = task.batches(&network.model.frame, &texts.train, &cut)?;
    let how =
        OptionTraining { teacher: network, batches: &*batches, settings, measure: Measure::Relative, first: 1, folder };
    let trained = train_options(&how, net, &mut |step, losses| {
        let learnt: Vec<f64> = losses.iter().flat_map(|slot| slot.iter().skip(1)).copied().collect();
        let mean = learnt.iter().sum::<f64>() / learnt.len().max(1) as f64;
        let (note, total) = (format!("error {mean:.4}"), settings.steps.into());
        watch(Event::Steps { what: "distilling options", note: &note, done: step.into(), total });
    })?;
    watch(Event::Done);
    Ok(trained)
}
