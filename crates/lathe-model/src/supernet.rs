//! A super net: a network whose slots each hold several layers to choose from (PAR, section 2.1; PLANER, section 2.2).
//! [`crate::stack`] says what a slot computes.

use crate::blocks::MoeStats;
use crate::body::{Body, State, Training};
use crate::build::{self, Site};
use crate::context::Reports;
use crate::local::{Local, LocalTraining};
use crate::network::Network;
use crate::objective::Objective;
use crate::params::{Builder, Grads, Param, Params};
use crate::stack::{Choice, Mixture, Stack};
use crate::stem::Input;
use lathe_core::{Block, Error, Frame, Model, Result, StackPlace};
use lathe_ops::Precision;
use std::borrow::Cow;

/// A network with several options in each slot.
pub struct SuperNet {
    /// What stands around the slots.
    pub frame: Frame,
    params: Params,
    body: Body,
    precision: Precision,
}

/// What a pass with gradients found.
#[derive(Debug, Clone)]
pub struct SuperOutcome {
    /// The objective's losses: of tokens, -log p of each.
    pub losses: Vec<f32>,
    /// For each slot, the gradient of the loss for each weight of a soft mixture; empty for a hard one.
    pub dp: Vec<Vec<f64>>,
    /// What each mixture of experts that ran did, from the bottom.
    pub experts: Vec<MoeStats>,
}

/// The frame that each slot stands in. Options of a slot are mixed: where one changes width or length, it stands alone.
fn frames<'a>(frame: &'a Frame, slots: &[Vec<Block>]) -> Result<Vec<Cow<'a, Frame>>> {
    let (mut place, mut frames) = (StackPlace::new(frame), Vec::new());
    for (s, options) in slots.iter().enumerate() {
        let at = |error: Error| error.at(&format!("slot {}", s + 1));
        frames.push(place.frame.clone());
        let mut above = None;
        for block in options {
            let mut here = place.clone();
            here.check(block).and_then(|()| here.pass(block)).map_err(at)?;
            if here.shape != place.shape && options.len() > 1 {
                return Err(at(Error::value(format!("{block:?}"), "a change of width or length", "no other option")));
            }
            above = Some(here);
        }
        place = above.ok_or_else(|| Error::value(format!("slot {}", s + 1), "no option", "at least one"))?;
    }
    place.end()?;
    Ok(frames)
}

impl SuperNet {
    /// A super net with fresh weights: for each slot its options, from the bottom.
    pub fn new(frame: Frame, slots: &[Vec<Block>], seed: u64) -> Result<Self> {
        let mut builder = Builder::new(seed);
        let family = build::of_backbone(frame.backbone);
        if build::shares(&frame) {
            return Err(Error::value("slots", "layers that share their weights", "layers with weights of their own"));
        }
        let frames = frames(&frame, slots)?;
        let body = Body::build(&frame, &mut builder, |builder| {
            let mut choice = |index: usize, option: usize, block: &Block| {
                // The index is the slot's: options of a slot drop the same entries, as a plain network's layer would.
                let frame = &*frames[index];
                let layer = format!("{}.options.{option}", family.layer_name(frame, index));
                Choice::build(block, frame, &Site::new(frame, layer, index, slots.len()), builder)
            };
            let mut slot = |(index, options): (usize, &Vec<Block>)| -> Vec<Choice> {
                options.iter().enumerate().map(|(option, block)| choice(index, option, block)).collect()
            };
            Stack { slots: slots.iter().enumerate().map(&mut slot).collect() }
        })?;
        drop(frames);
        Ok(Self { frame, params: builder.finish(), body, precision: Precision::F32 })
    }

    fn slots(&self) -> &[Vec<Choice>] {
        &self.body.stack.slots
    }

    /// The weights of all options.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// The weights, to be changed.
    pub fn params_mut(&mut self) -> impl Iterator<Item = &mut Param> {
        self.params.iter_mut()
    }

    /// How many options each slot has, from the bottom.
    pub fn options(&self) -> impl ExactSizeIterator<Item = usize> {
        self.slots().iter().map(Vec::len)
    }

    /// What products are computed in, from here on, as [`Network::set_precision`].
    pub fn set_precision(&mut self, precision: Precision) {
        self.precision = precision.available();
        self.body.set_precision(self.precision);
    }

    /// The state to begin with: a memory of zeros in each slot of which an option has one.
    pub fn init_memory(&self, batch: usize) -> State {
        self.body.init_memory(batch)
    }

    /// The architecture of one option per slot.
    pub fn model(&self, choice: &[usize]) -> Model {
        let blocks = self.slots().iter().zip(choice).map(|(choices, &option)| choices[option].block).collect();
        Model { frame: self.frame.clone(), blocks }
    }

    /// Where the parameters of one option per slot stand, in the order of the computation, which is also a plain
    /// network's.
    fn places(&self, choice: &[usize]) -> Vec<usize> {
        let of_slots = self.slots().first().map_or(0, |slot| slot[0].params.start);
        let after = self.slots().last().and_then(|slot| slot.last()).map_or(0, |last| last.params.end);
        let chosen = self.slots().iter().zip(choice).flat_map(|(choices, &option)| choices[option].params.clone());
        (0..of_slots).chain(chosen).chain(after..self.params.iter().len()).collect()
    }

    /// The plain network of one option per slot, with its weights from here.
    pub fn network(&self, choice: &[usize]) -> Result<Network> {
        let mut network = Network::unfilled(self.model(choice))?;
        let all: Vec<&Param> = self.params.iter().collect();
        for (to, from) in network.params_mut().zip(self.places(choice)) {
            assert_eq!(to.shape, all[from].shape, "{} and {}", to.name, all[from].name);
            to.set_data(all[from].read().into_owned());
        }
        network.set_precision(self.precision);
        Ok(network)
    }

    /// Takes the weights of a plain network of one option per slot; all other options keep theirs.
    pub fn adopt(&mut self, choice: &[usize], network: &Network) {
        let places = self.places(choice);
        let mut all: Vec<&mut Param> = self.params.iter_mut().collect();
        for (from, to) in network.params().iter().zip(places) {
            assert_eq!(from.shape, all[to].shape, "{} and {}", from.name, all[to].name);
            all[to].set_data(from.read().into_owned());
        }
    }

    /// Where the parameters of an option of a slot stand.
    pub fn option_params(&self, slot: usize, option: usize) -> std::ops::Range<usize> {
        self.slots()[slot][option].params.clone()
    }

    /// Trains slots by themselves, all options of each: for each of `locals` and each option the sum of the losses of
    /// all tokens. Adds the gradients of `scale` times it to `grads`.
    pub fn train_local(
        &self,
        input: &Input<'_>,
        locals: &[Local],
        state: &mut State,
        how: &LocalTraining,
        grads: &mut Grads,
    ) -> Vec<Vec<f64>> {
        let reports = Reports::default();
        self.body.train_local(&self.frame, &self.params, input, locals, state, how, &reports, grads)
    }

    /// The losses of an objective.
    pub fn loss(
        &self,
        input: &Input<'_>,
        objective: &dyn Objective,
        state: &mut State,
        mixtures: &[Mixture],
    ) -> Vec<f32> {
        assert_eq!(mixtures.len(), self.slots().len(), "a mixture for each slot");
        let hidden = self.body.output(&self.frame, &self.params, input, state, |s| mixtures[s].clone());
        objective.loss(&self.body.top, &self.params, &hidden, None).0
    }

    /// The losses of an objective, the gradients of `scale` times their sum (and of the balance loss) for the weights
    /// of soft mixtures, and those of the parameters added to `grads`. With [`Grads::unwanted`] the latter, about a
    /// third of the work, are left out.
    pub fn train(
        &self,
        input: &Input<'_>,
        objective: &dyn Objective,
        state: &mut State,
        mixtures: &[Mixture],
        training: &Training,
        grads: &mut Grads,
    ) -> SuperOutcome {
        assert_eq!(mixtures.len(), self.slots().len(), "a mixture for each slot");
        let mixture = |s: usize| mixtures[s].clone();
        let trained = self.body.train(&self.frame, &self.params, input, objective, state, mixture, training, grads);
        SuperOutcome { losses: trained.losses, dp: trained.dp, experts: trained.reports.take() }
    }
}
