//! The one stack of slots that everything runs on: a network has one option in each slot, a super net several, and a
//! block that is measured alone is a stack of one slot.
//!
//! A slot with several options computes y = sum_i p_i layer_i(x), with layer_i the whole layer, residual connection and
//! norm included, and x itself for a skip (PLANER, equation 1; PAR, equations 5 and 6). A pass takes a [`Mixture`] for
//! each slot: weights p, for which every option runs and whose gradients dp_i = <dy, y_i> are returned; or one option,
//! which alone runs and costs what a plain network's layer costs. A memory is the raw input of a slot, shared by its
//! options, whichever of them runs.

use crate::build::{self, Site};
use crate::context::Context;
use crate::layer::{Layer, LayerState, Pass, Saved, Stream, remember};
use crate::linear::Matrix;
use crate::observe::{Observe, Turn};
use crate::params::{Builder, Grads, ParamId, Params};
use crate::taps::{AttentionMap, Map, Seen, TapGradients, Taps};
use lathe_core::{Block, Frame, Role};
use lathe_ops::Precision;
use lathe_ops::buffer::Buf;
use lathe_ops::mixture;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// Slots, from the bottom.
pub(crate) struct Stack {
    pub slots: Vec<Vec<Choice>>,
}

/// One option of a slot.
pub(crate) struct Choice {
    pub block: Block,
    /// `None`: a skip.
    pub layer: Option<Box<dyn Layer>>,
    /// Whether it reads the slot's memory.
    pub remembers: bool,
    /// Its parameters.
    pub params: Range<usize>,
}

/// What a slot computes in a pass.
#[derive(Debug, Clone, PartialEq)]
pub enum Mixture {
    /// All options, weighted.
    Soft(Vec<f32>),
    /// One option alone.
    Hard(usize),
}

/// One option of each slot.
pub fn stack_choice(choice: &[usize]) -> Vec<Mixture> {
    choice.iter().map(|&option| Mixture::Hard(option)).collect()
}

/// What a slot sees of a pass: tokens and width as they are where it stands.
pub(crate) struct Here {
    /// B * T * D
    numbers: usize,
    len: usize,
    position: usize,
    mask: Option<Arc<Vec<bool>>>,
    context: Arc<Context>,
}

impl Here {
    pub fn new(pass: &Pass<'_>, x: &Stream) -> Self {
        let context = match x.len {
            0 => Arc::default(), // nothing to do for any block
            len => pass.contexts.of(len, x.hidden.len() / (pass.batch * len), x.stack),
        };
        Self { numbers: x.hidden.len(), len: x.len, position: x.position, mask: x.mask.clone(), context }
    }

    pub fn pass<'p>(&'p self, pass: &Pass<'p>) -> Pass<'p> {
        let mask = self.mask.as_deref().map(Vec::as_slice);
        Pass { len: self.len, position: self.position, mask, context: &self.context, ..*pass }
    }
}

/// What a slot keeps for its backward, and where it stands.
pub(crate) type SlotKept = (SlotSaved, Here);

/// What a slot keeps for its backward, by option: its output, and what its layer saved. One entry where one option ran.
pub(crate) type SlotSaved = Vec<(Option<Arc<Buf>>, Option<Saved>)>;

impl Choice {
    /// A block where it stands, with its parameters.
    pub fn build(block: &Block, frame: &Frame, site: &Site<'_>, builder: &mut Builder) -> Self {
        let first = builder.count();
        let layer = build::of_block(block.kind).build(block, frame, site, builder);
        let remembers = layer.as_ref().is_some_and(|layer| matches!(layer.init_memory(1), LayerState::Memory(_)));
        Self { block: *block, layer, remembers, params: first..builder.count() }
    }
}

impl Stack {
    /// All layers, of all options.
    pub fn layers_mut(&mut self) -> impl Iterator<Item = &mut Box<dyn Layer>> {
        self.slots.iter_mut().flatten().filter_map(|choice| choice.layer.as_mut())
    }

    /// Whether every block can run over real tokens alone.
    pub fn takes_unpadded(&self) -> bool {
        let takes = |choice: &Choice| match &choice.layer {
            Some(layer) => choice.block.kind.role() == Role::PerToken || layer.takes_unpadded(),
            None => true,
        };
        self.slots.iter().flatten().all(takes)
    }

    /// What products are computed in.
    pub fn set_precision(&mut self, precision: Precision) {
        self.layers_mut().for_each(|layer| layer.set_precision(precision));
    }

    /// The state that training and plain evaluation begin with: a memory of zeros in each slot of which an option has
    /// one.
    pub fn init_memory(&self, batch: usize) -> Vec<LayerState> {
        let of_slot = |choices: &Vec<Choice>| {
            let mut layers =
                choices.iter().filter(|choice| choice.remembers).filter_map(|choice| choice.layer.as_ref());
            layers.next().map_or(LayerState::None, |layer| layer.init_memory(batch))
        };
        self.slots.iter().map(of_slot).collect()
    }

    /// The state that decoding goes on with after another, where each slot has one option.
    pub fn init_cache(&self, pass: &Pass<'_>, after: &[LayerState]) -> Vec<LayerState> {
        let of_slot = |(choices, after): (&Vec<Choice>, &LayerState)| match &choices[..] {
            [Choice { layer: Some(layer), .. }] => layer.init_cache(pass, after),
            _ => LayerState::None,
        };
        self.slots.iter().zip(after).map(of_slot).collect()
    }

    /// The hidden states after the last slot, or where taps end the pass, what a backward pass needs, and what was
    /// seen.
    pub fn forward(
        &self,
        pass: &Pass<'_>,
        x: Stream,
        states: &mut [LayerState],
        mixture: impl Fn(usize) -> Mixture,
        taps: &Taps,
    ) -> (Stream, Vec<SlotKept>, Seen) {
        let slots = 0..taps.until.unwrap_or(self.slots.len());
        self.walk(pass, (slots.clone(), taps), x, &mut states[slots], mixture)
    }

    /// Runs some slots one after the other, with a state of each. What a backward pass needs is kept from where it ends
    /// on.
    pub fn walk(
        &self,
        pass: &Pass<'_>,
        (slots, taps): (Range<usize>, &Taps),
        mut x: Stream,
        states: &mut [LayerState],
        mixture: impl Fn(usize) -> Mixture,
    ) -> (Stream, Vec<SlotKept>, Seen) {
        let (mut saved, mut seen) = (Vec::new(), Seen::of(taps));
        for (s, state) in slots.clone().zip(states) {
            seen.enter(taps, s, &x.hidden);
            let map = if taps.maps.contains(&s) { Map::Wanted } else { Map::Unwanted };
            let (here, keep) = (Here::new(pass, &x), pass.keep && s >= taps.from);
            let of_slot = Pass { map, keep, aside: &x.aside, ..here.pass(pass) };
            let (y, kept) = forward(&self.slots[s], &mixture(s), &of_slot, &x, state);
            if here.context.get::<Observe>().is_some() {
                pass.reports.add(Turn::new(s, pass.batch * x.len, &x.hidden, &y.hidden));
            }
            if map.is_wanted() {
                seen.inside(taps, s, pass.reports.take::<AttentionMap>().pop());
            }
            if keep {
                saved.push((kept, here));
            }
            x = y;
        }
        seen.enter(taps, slots.end, &x.hidden);
        (x, saved, seen)
    }

    /// What leaves a slot of one option.
    pub fn run_slot(&self, slot: usize, pass: &Pass<'_>, x: &Stream, state: &mut LayerState) -> Stream {
        let here = Here::new(pass, x);
        forward(&self.slots[slot], &Mixture::Hard(0), &Pass { aside: &x.aside, ..here.pass(pass) }, x, state).0
    }

    /// The gradient of what entered the first slot (or the one where taps end the way back), and for each slot those of
    /// the weights of a soft mixture. Adds those of the parameters.
    pub fn backward(
        &self,
        pass: &Pass<'_>,
        saved: Vec<SlotKept>,
        dx: Buf,
        mixture: impl Fn(usize) -> Mixture,
        (taps, injected): (&Taps, &TapGradients),
        grads: &mut Grads,
    ) -> (Buf, Vec<Vec<f64>>) {
        self.walk_back(pass, (taps.from, taps), saved, dx, mixture, injected, grads)
    }

    /// The way back of [`Self::walk`], from what it kept of the slots that begin with `first`.
    #[allow(clippy::too_many_arguments)] // each is one thing
    pub fn walk_back(
        &self,
        pass: &Pass<'_>,
        (first, taps): (usize, &Taps),
        saved: Vec<SlotKept>,
        mut dx: Buf,
        mixture: impl Fn(usize) -> Mixture,
        injected: &TapGradients,
        grads: &mut Grads,
    ) -> (Buf, Vec<Vec<f64>>) {
        let mut dp = vec![Vec::new(); self.slots.len()];
        injected.enter(taps, first + saved.len(), &mut dx);
        for (s, (saved, here)) in (first..).zip(saved).collect::<Vec<_>>().into_iter().rev() {
            let lowest = s == 0 && !grads.wanted(); // nothing below wants a gradient
            let of_slot = (&mut dp[s], lowest, here.numbers);
            let here = Pass { map: injected.inside(taps, s), ..here.pass(pass) };
            dx = backward(&self.slots[s], &mixture(s), &here, saved, dx, of_slot, grads);
            injected.enter(taps, s, &mut dx);
        }
        (dx, dp)
    }

    /// Packs all weights for inference, and gives back the memory of those that nobody else reads.
    pub fn pack(&mut self, params: &mut Params, users: &mut HashMap<ParamId, usize>) {
        for layer in self.layers_mut() {
            pack(layer.matrices(), params, users);
        }
    }
}

/// Packs matrices, and gives back the memory of those that were the last to read a parameter.
pub(crate) fn pack(matrices: Vec<&mut Matrix>, params: &mut Params, users: &mut HashMap<ParamId, usize>) {
    for matrix in matrices {
        let id = matrix.pack(params);
        if let Some(left) = users.get_mut(&id) {
            *left -= 1;
            if *left == 0 {
                params.forget(id);
            }
        }
    }
}

/// The output of a slot, and what its backward needs.
pub(crate) fn forward(
    slot: &[Choice],
    mixture: &Mixture,
    pass: &Pass<'_>,
    x: &Stream,
    state: &mut LayerState,
) -> (Stream, SlotSaved) {
    let behind = match state {
        LayerState::Memory(memory) => Some(Arc::new(remember(pass.batch, memory, &x.hidden))),
        _ => None,
    };
    let mut run = |choice: &Choice| {
        choice.layer.as_ref().map(|layer| {
            let behind = behind.as_ref().filter(|_| choice.remembers);
            layer.forward(pass, x, behind, state)
        })
    };
    match mixture {
        Mixture::Hard(option) => match run(&slot[*option]) {
            Some((y, saved)) => (y, vec![(None, Some(saved))]),
            None => (x.clone(), vec![(None, None)]),
        },
        Mixture::Soft(p) => {
            assert_eq!(p.len(), slot.len(), "a weight for each option");
            let of_choice = |choice: &Choice| match run(choice) {
                Some((y, saved)) => (y, Some(saved)),
                None => (x.clone(), None),
            };
            let outputs: Vec<(Stream, Option<Saved>)> = slot.iter().map(of_choice).collect();
            let mut y = Buf::any(outputs[0].0.hidden.len());
            mixture::forward(p, outputs.iter().map(|(y, _)| &**y.hidden), &mut y);
            let y = outputs[0].0.with(y);
            match pass.keep {
                true => (y, outputs.into_iter().map(|(y, saved)| (Some(y.hidden), saved)).collect()),
                false => (y, Vec::new()),
            }
        }
    }
}

/// The gradient of a slot's input, unless it is the lowest whose gradient nobody wants; fills in those of the weights
/// of a soft mixture and adds those of the parameters. So many numbers entered the slot.
fn backward(
    slot: &[Choice],
    mixture: &Mixture,
    pass: &Pass<'_>,
    saved: SlotSaved,
    dy: Buf,
    (dp, lowest, entered): (&mut Vec<f64>, bool, usize),
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
    let mut dx = Buf::zeros(entered);
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
