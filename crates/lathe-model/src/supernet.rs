//! A super net: a network whose slots each hold several layers to choose from (PAR, section 2.1; PLANER, section 2.2).
//!
//! A slot's output is y = sum_i p_i layer_i(x), with layer_i the whole layer, residual connection and norm included, and
//! x itself for a skip (PLANER, equation 1; PAR, equations 5 and 6). A pass takes a [`Mixture`] for each slot: weights
//! p, for which every option runs and whose gradients dp_i = <dy, y_i> are given; or one option, which alone runs and
//! costs what a plain network's layer costs.
//!
//! The memory of a transformer_xl is the raw input of a slot, shared by its options, whichever of them runs.

use crate::blocks::{self, Names};
use crate::ends::{Ends, Kept, Tokens};
use crate::layer::{Layer, LayerState, MoeStats, Pass, Saved, remember};
use crate::network::{Network, State, Training};
use crate::params::{Builder, Grads, Param, Params};
use lathe_core::{Block, Error, Frame, Model, Result};
use lathe_ops::Precision;
use lathe_ops::buffer::Buf;
use lathe_ops::mixture;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// A network with several options in each slot.
pub struct SuperNet {
    /// What stands around the slots.
    pub frame: Frame,
    params: Params,
    ends: Ends,
    slots: Vec<Vec<Choice>>,
    precision: Precision,
}

/// One option of a slot.
struct Choice {
    block: Block,
    /// `None`: a skip.
    layer: Option<Layer>,
    /// Whether it reads the slot's memory.
    remembers: bool,
    /// Its parameters.
    params: Range<usize>,
}

/// What a slot computes in a pass.
#[derive(Debug, Clone, PartialEq)]
pub enum Mixture {
    /// All options, weighted.
    Soft(Vec<f32>),
    /// One option alone.
    Hard(usize),
}

/// What a pass with gradients found.
#[derive(Debug, Clone)]
pub struct SuperOutcome {
    /// -log p of each token.
    pub losses: Vec<f32>,
    /// For each slot, the gradient of the loss for each weight of a soft mixture; empty for a hard one.
    pub dp: Vec<Vec<f64>>,
    /// What each mixture of experts that ran did, from the bottom.
    pub experts: Vec<MoeStats>,
}

/// What a slot keeps for its backward, by option: its output, and what its layer saved. One entry where one option ran.
type SlotSaved = Vec<(Option<Arc<Buf>>, Option<Saved>)>;

impl SuperNet {
    /// A super net with fresh weights: for each slot its options, from the bottom.
    pub fn new(frame: Frame, slots: &[Vec<Block>], seed: u64) -> Result<Self> {
        let mut builder = Builder::new(seed);
        let prefix = blocks::prefix(&frame);
        for (s, options) in slots.iter().enumerate() {
            if options.is_empty() {
                return Err(Error::value(format!("slot {}", s + 1), "no option", "at least one"));
            }
            Model::new(frame.clone(), options.clone())?; // checks each block
        }
        let (ends, slots) = Ends::around(&frame, &mut builder, |builder| {
            let mut choice = |index: usize, option: usize, block: &Block| {
                // The index is the slot's: options of a slot drop the same entries, as a plain network's layer would.
                let layer = format!("{prefix}.{index}.options.{option}");
                let names = Names { layer, index, blocks: slots.len() };
                let first = builder.count();
                let layer = Layer::build(block, &frame, &names, builder);
                let remembers = layer.as_ref().is_some_and(|layer| matches!(layer.memory(1), LayerState::Memory(_)));
                Choice { block: *block, layer, remembers, params: first..builder.count() }
            };
            let mut slot = |(index, options): (usize, &Vec<Block>)| -> Vec<Choice> {
                options.iter().enumerate().map(|(option, block)| choice(index, option, block)).collect()
            };
            slots.iter().enumerate().map(&mut slot).collect::<Vec<_>>()
        })?;
        Ok(Self { frame, params: builder.finish(), ends, slots, precision: Precision::F32 })
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
        self.slots.iter().map(Vec::len)
    }

    /// What products are computed in, from here on, as [`Network::set_precision`].
    pub fn set_precision(&mut self, precision: Precision) {
        self.precision = precision.available();
        self.ends.set_precision(self.precision);
        let layers = self.slots.iter_mut().flatten().filter_map(|choice| choice.layer.as_mut());
        layers.for_each(|layer| layer.set_precision(self.precision));
    }

    /// The state to begin with: a memory of zeros in each slot of which an option has one.
    pub fn memory(&self, batch: usize) -> State {
        let of_slot = |choices: &Vec<Choice>| {
            let mut layers =
                choices.iter().filter(|choice| choice.remembers).filter_map(|choice| choice.layer.as_ref());
            layers.next().map_or(LayerState::None, |layer| layer.memory(batch))
        };
        State { layers: self.slots.iter().map(of_slot).collect(), position: 0 }
    }

    /// The architecture of one option per slot.
    pub fn model(&self, choice: &[usize]) -> Model {
        let blocks = self.slots.iter().zip(choice).map(|(choices, &option)| choices[option].block).collect();
        Model { frame: self.frame.clone(), blocks }
    }

    /// Where the parameters of one option per slot stand, in the order of the computation, which is also a plain network's.
    fn places(&self, choice: &[usize]) -> Vec<usize> {
        let of_slots = self.slots.first().map_or(0, |slot| slot[0].params.start);
        let after = self.slots.last().and_then(|slot| slot.last()).map_or(0, |last| last.params.end);
        let chosen = self.slots.iter().zip(choice).flat_map(|(choices, &option)| choices[option].params.clone());
        (0..of_slots).chain(chosen).chain(after..self.params.iter().len()).collect()
    }

    /// The plain network of one option per slot, with its weights from here.
    pub fn network(&self, choice: &[usize]) -> Result<Network> {
        let mut network = Network::unfilled(self.model(choice))?;
        let all: Vec<&Param> = self.params.iter().collect();
        for (to, from) in network.params_mut().zip(self.places(choice)) {
            assert_eq!(to.shape, all[from].shape, "{} and {}", to.name, all[from].name);
            to.data.clone_from(&all[from].data);
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
            all[to].data.clone_from(&from.data);
        }
    }

    /// The hidden states for the output layer, and what the slots and the upper end keep.
    fn hidden(
        &self,
        tokens: &Tokens<'_>,
        state: &mut State,
        mixtures: &[Mixture],
        stats: &Mutex<Vec<MoeStats>>,
    ) -> (Buf, Vec<SlotSaved>, Kept) {
        assert_eq!(mixtures.len(), self.slots.len(), "a mixture for each slot");
        let pass = tokens.pass(&self.params, stats);
        let mut x = self.ends.enter(&self.params, tokens);
        let mut saved = Vec::new();
        for ((slot, mixture), state) in self.slots.iter().zip(mixtures).zip(&mut state.layers) {
            let (y, kept) = forward(slot, mixture, &pass, x, state);
            x = y;
            saved.push(kept);
        }
        state.position += tokens.len();
        let (x, kept) = self.ends.leave(&self.params, tokens, x);
        (x, saved, kept)
    }

    /// -log p of each target, 0 where it is [`lathe_ops::loss::IGNORE`].
    pub fn loss(
        &self,
        ids: &[u32],
        targets: &[u32],
        batch: usize,
        state: &mut State,
        mixtures: &[Mixture],
    ) -> Vec<f32> {
        let stats = Mutex::new(Vec::new());
        let tokens = Tokens::new(&self.frame, ids, batch, state.position, None);
        let (hidden, _, _) = self.hidden(&tokens, state, mixtures, &stats);
        self.ends.head.loss(&self.params, &hidden, targets, None).0
    }

    /// The loss of each target, the gradients of `scale` times their sum (and of the balance loss) for the weights of
    /// soft mixtures, and those of the parameters added to `grads`. With [`Grads::unwanted`] the latter, about a third of
    /// the work, are left out.
    #[allow(clippy::too_many_arguments)] // those of `Network::train`, and the mixtures
    pub fn train(
        &self,
        ids: &[u32],
        targets: &[u32],
        batch: usize,
        state: &mut State,
        mixtures: &[Mixture],
        training: &Training,
        grads: &mut Grads,
    ) -> SuperOutcome {
        let stats = Mutex::new(Vec::new());
        let tokens = Tokens::new(&self.frame, ids, batch, state.position, Some(training));
        let (hidden, saved, kept) = self.hidden(&tokens, state, mixtures, &stats);
        let (losses, dhidden) = self.ends.head.loss(&self.params, &hidden, targets, Some((training.scale, grads)));
        drop(hidden);
        let dhidden = dhidden.expect("gradients were asked for");
        let mut dx = self.ends.leave_backward(&self.params, &tokens, kept, dhidden, grads);
        let unused = Mutex::new(Vec::new());
        let pass = tokens.pass(&self.params, &unused);
        let mut dp = vec![Vec::new(); self.slots.len()];
        for (s, saved) in saved.into_iter().enumerate().rev() {
            let lowest = s == 0 && !grads.wanted(); // nothing below wants a gradient
            dx = backward(&self.slots[s], &mixtures[s], &pass, saved, dx, (&mut dp[s], lowest), grads);
        }
        self.ends.enter_backward(&self.params, &tokens, dx, grads);
        SuperOutcome { losses, dp, experts: stats.into_inner().expect("nothing panics while it holds the list") }
    }
}

/// The output of a slot, and what its backward needs.
fn forward(slot: &[Choice], mixture: &Mixture, pass: &Pass<'_>, x: Buf, state: &mut LayerState) -> (Buf, SlotSaved) {
    let x = Arc::new(x);
    let behind = match state {
        LayerState::Memory(memory) => Some(Arc::new(remember(pass, memory, &x))),
        _ => None,
    };
    let run = |choice: &Choice| {
        choice.layer.as_ref().map(|layer| {
            let input = behind.as_ref().filter(|_| choice.remembers).unwrap_or(&x);
            layer.forward_from(pass, x.clone(), input.clone(), &mut LayerState::None)
        })
    };
    match mixture {
        Mixture::Hard(option) => match run(&slot[*option]) {
            Some((y, saved)) => (y, vec![(None, Some(saved))]),
            None => (Arc::try_unwrap(x).unwrap_or_else(|x| (*x).clone()), vec![(None, None)]),
        },
        Mixture::Soft(p) => {
            assert_eq!(p.len(), slot.len(), "a weight for each option");
            let of_choice = |choice: &Choice| match run(choice) {
                Some((y, saved)) => (Arc::new(y), Some(saved)),
                None => (x.clone(), None),
            };
            let outputs: Vec<(Arc<Buf>, Option<Saved>)> = slot.iter().map(of_choice).collect();
            let mut y = Buf::any(x.len());
            mixture::forward(p, outputs.iter().map(|(y, _)| &***y), &mut y);
            match pass.keep {
                true => (y, outputs.into_iter().map(|(y, saved)| (Some(y), saved)).collect()),
                false => (y, Vec::new()),
            }
        }
    }
}

/// The gradient of a slot's input, unless it is the lowest whose gradient nobody wants; fills in those of the weights
/// of a soft mixture and adds those of the parameters.
fn backward(
    slot: &[Choice],
    mixture: &Mixture,
    pass: &Pass<'_>,
    saved: SlotSaved,
    dy: Buf,
    (dp, lowest): (&mut Vec<f64>, bool),
    grads: &mut Grads,
) -> Buf {
    let p = match mixture {
        Mixture::Hard(option) => {
            let saved = saved.into_iter().next().and_then(|(_, saved)| saved);
            return match (&slot[*option].layer, saved) {
                (Some(layer), Some(saved)) => layer.backward(pass, saved, dy, grads),
                _ => dy,
            };
        }
        Mixture::Soft(p) => p,
    };
    let mut dx = Buf::zeros(dy.len());
    for ((choice, &p), (y, saved)) in slot.iter().zip(p).zip(saved) {
        dp.push(y.map_or(0.0, |y| mixture::dot(&dy, &y)));
        if p == 0.0 || lowest {
            continue; // nothing flows back through it, or nobody wants to know
        }
        match (&choice.layer, saved) {
            (Some(layer), Some(saved)) => {
                let d = layer.backward(pass, saved, mixture::scaled(p, &dy), grads);
                mixture::add(1.0, &d, &mut dx);
            }
            _ => mixture::add(p, &dy, &mut dx),
        }
    }
    dx
}
