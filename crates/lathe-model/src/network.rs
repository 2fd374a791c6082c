//! A model at work: forward, backward, memory and decoding.

use crate::blocks::MoeStats;
use crate::body::{Body, State, Training};
use crate::build::{self, Site, layer_numbers};
use crate::context::Reports;
use crate::head::Head;
use crate::layer::{Stream, Units};
use crate::local::{Local, LocalTraining};
use crate::objective::Objective;
use crate::observe::Observation;
use crate::params::{Builder, Grads, Observer, Param, Params};
use crate::stack::{Choice, Mixture, Stack};
use crate::stem::Input;
use crate::taps::{Seen, Taps};
use crate::weight_storage::WeightStorage;
use lathe_core::{Block, Model, Result, Setting};
use lathe_ops::Precision;
use lathe_ops::attention::KeptAs;
use lathe_ops::buffer::Buf;
use lathe_ops::dropout::Dropout;
use lathe_ops::integers::Format;
use lathe_ops::storage::Storage;
use std::sync::Arc;

/// A model with weights.
pub struct Network {
    /// What it is.
    pub model: Model,
    pub(crate) params: Params,
    pub(crate) body: Body,
    /// The reference's layer that each slot is part of.
    names: Vec<usize>,
    owners: Vec<Owner>,
    precision: Precision,
    cache: KeptAs,
    frozen: bool,
}

/// What a training pass found.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The objective's losses: of tokens, -log p of each.
    pub losses: Vec<f32>,
    /// What each mixture of experts did, from the bottom.
    pub experts: Vec<MoeStats>,
}

/// A block of a network, and what is its own.
pub struct Slot<'a> {
    /// The block.
    pub block: &'a Block,
    /// Its parameters, in the order of the network's.
    pub params: std::ops::Range<usize>,
    /// Parts of it that can be taken away one by one.
    pub units: Vec<Units>,
}

/// Whose weight matrix a parameter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// A block's.
    Block,
    /// The output layer's, be it the embedding's too.
    Output,
    /// Nobody's: an embedding, a position, a bias, a norm.
    Other,
}

/// Whose weights each of so many parameters has.
fn owners(body: &mut Body, params: usize) -> Vec<Owner> {
    let mut owners = vec![Owner::Other; params];
    for layer in body.stack.layers_mut() {
        layer.matrices().iter().for_each(|matrix| owners[matrix.weight().0] = Owner::Block);
    }
    for matrix in body.top.head.iter_mut().flat_map(|head| head.matrices()) {
        owners[matrix.weight().0] = Owner::Output;
    }
    owners
}

/// A network has one option in each slot.
const ONLY: fn(usize) -> Mixture = |_| Mixture::Hard(0);

impl Network {
    /// A model with fresh weights, drawn as the reference implementations draw them.
    pub fn new(model: Model, seed: u64) -> Result<Self> {
        Self::build(model, Builder::new(seed))
    }

    /// A model whose weights repeat after a while: made sooner, and as fast as any, for measurements.
    pub fn for_measuring(model: Model, seed: u64) -> Result<Self> {
        Self::build(model, Builder::repeating(seed))
    }

    /// A model whose parameters have shapes but no values yet; whoever calls this fills them.
    pub(crate) fn unfilled(model: Model) -> Result<Self> {
        Self::build(model, Builder::unfilled())
    }

    fn build(model: Model, mut builder: Builder) -> Result<Self> {
        let family = build::of_backbone(model.frame.backbone);
        build::repeats(&model)?; // blocks that share their parameters can
        let names = layer_numbers(&model);
        let mut body = Body::build(&model.frame, &mut builder, |builder| {
            let placed = model.placed(Setting::of(&model)).zip(&names).enumerate();
            let mut slots = Vec::new();
            for (index, ((block, frame, _), &number)) in placed {
                let own = build::own_layer(&frame, block.kind.role(), number);
                let name = family.layer_name(&frame, own);
                let site = Site::new(&frame, name, index, model.blocks.len());
                slots.push(vec![Choice::build(block, &frame, &site, builder)]);
            }
            Stack { slots }
        })?;
        let mut params = builder.finish();
        params.set_matrices(body.matrices());
        let owners = owners(&mut body, params.iter().len());
        Ok(Self { model, params, body, names, owners, precision: Precision::F32, cache: KeptAs::F32, frozen: false })
    }

    /// Rounds all weights to those of a storage; matrices are held so from here on. Training needs f32.
    pub fn set_storage(&mut self, storage: &'static dyn Storage) {
        self.params_mut().for_each(|param| param.set_storage(storage));
    }

    /// Rounds all matrices to integers, and holds them so from here on.
    pub fn set_format(&mut self, format: Format) {
        self.params_mut().for_each(|param| param.set_format(format));
    }

    /// Stores the matrices of a slot.
    pub fn set_slot_storage(&mut self, slot: usize, storage: WeightStorage) {
        let params = self.slot(slot).params;
        self.params_mut().enumerate().filter(|(at, _)| params.contains(at)).for_each(|(_, param)| storage.apply(param));
    }

    /// Stores the matrices that no block has: embeddings and output layer.
    pub fn set_frame_storage(&mut self, storage: WeightStorage) {
        let blocks = self.blocks_params();
        self.params_mut()
            .enumerate()
            .filter(|(at, _)| !blocks.contains(at))
            .for_each(|(_, param)| storage.apply(param));
    }

    /// The weights. A frozen network has none to show.
    pub fn params(&self) -> &Params {
        assert!(!self.frozen, "a frozen network cannot show its weights");
        &self.params
    }

    /// The weights, to be changed.
    pub fn params_mut(&mut self) -> impl Iterator<Item = &mut Param> {
        assert!(!self.frozen, "a frozen network cannot change its weights");
        self.params.iter_mut()
    }

    /// Rounds what enters each matrix as integers of the format that its parameter is to have, by its place among all;
    /// `None` leaves it.
    pub fn set_rounded_inputs(&mut self, format: &dyn Fn(usize) -> Option<Format>) {
        self.body.each_matrix(&mut |matrix| matrix.set_rounded_inputs(format(matrix.weight().0)));
    }

    /// Who sees what enters products with weights from here on, if anybody.
    pub fn set_observer(&mut self, observer: Option<Arc<dyn Observer>>) {
        self.params.set_observer(observer);
    }

    /// What products are computed in, from here on: as asked for, or f32 where this CPU has nothing for it, of which
    /// [`Precision::warning`] tells.
    pub fn set_precision(&mut self, precision: Precision) {
        assert!(!self.frozen, "a frozen network has packed its weights");
        self.precision = precision.available();
        self.body.set_precision(self.precision);
    }

    /// What the caches of [`Self::init_cache`] keep keys and values as from here on; those of relative attention stay f32.
    pub fn set_cache(&mut self, kind: KeptAs) {
        self.cache = kind;
    }

    /// What products are computed in.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Packs all weights for inference and gives the memory of the originals back: from here on the network only
    /// computes.
    pub fn freeze(&mut self) {
        self.frozen = true;
        self.body.pack(&mut self.params);
    }

    /// Whether there is an output layer: an encoder may be without.
    pub fn has_head(&self) -> bool {
        self.body.top.head.is_some()
    }

    /// Whether outputs are log-probabilities (of an adaptive softmax, or where the reference has it so) rather than
    /// logits.
    pub fn log_probabilities(&self) -> bool {
        self.body.top.head.as_ref().is_some_and(|head| head.log_probabilities())
    }

    /// The state to begin with: a memory of zeros where the model has one, as in the reference, or nothing.
    pub fn init_memory(&self, batch: usize) -> State {
        self.body.init_memory(batch)
    }

    /// The state to decode with, or to run segments after a projected memory: keys and values are kept. Goes on after
    /// a state of [`Self::init_memory`].
    pub fn init_cache(&self, batch: usize, len: usize, after: &State) -> State {
        self.body.init_cache(&self.model.frame, &self.params, (batch, len), self.cache, after)
    }

    /// The memories of a state, with the number of the reference's layer: [B, M, D].
    pub fn memories<'a>(&'a self, state: &'a State) -> impl Iterator<Item = (usize, &'a [f32])> {
        self.names.iter().zip(&state.layers).filter_map(|(&name, state)| match state {
            crate::layer::LayerState::Memory(memory) => Some((name, &**memory)),
            _ => None,
        })
    }

    /// What enters the first slot, for a pass that is taken slot by slot.
    pub fn enter(&self, input: &Input<'_>) -> Stream {
        self.body.enter(&self.model.frame, &self.params, input)
    }

    /// What leaves a slot for what enters it; nothing came before.
    pub fn run_slot(&self, slot: usize, input: &Input<'_>, x: Stream) -> Stream {
        self.body.run_slot(&self.model.frame, &self.params, slot, input, x)
    }

    /// What the output layer gets for what leaves the last slot, [B * T, D].
    pub fn leave(&self, x: Stream) -> Buf {
        self.body.leave(&self.params, x)
    }

    /// The hidden states after the last block and its norm, [B * T, D].
    pub fn hidden(&self, input: &Input<'_>, state: &mut State) -> Buf {
        self.body.output(&self.model.frame, &self.params, input, state, ONLY)
    }

    /// As [`Self::hidden`], with what taps see, which may end the pass before.
    pub fn look(&self, input: &Input<'_>, state: &mut State, taps: &Taps) -> (Option<Buf>, Seen) {
        self.body.look(&self.model.frame, &self.params, input, state, ONLY, taps)
    }

    /// The vector of each sequence, [B, D], of such hidden states, where the model has one and blocks left a token.
    pub fn pooled(&self, hidden: &[f32], batch: usize) -> Option<Buf> {
        let pooler = self.body.top.pooler.as_ref().filter(|_| !hidden.is_empty());
        pooler.map(|pooler| pooler.forward(&self.params, hidden, batch, Dropout::NONE))
    }

    /// The numbers of a task for such hidden states, [B, N] or [B * T, N], where the model has an output layer for one.
    pub fn task_outputs(&self, hidden: &[f32], batch: usize) -> Option<Buf> {
        let outputs = self.body.top.outputs(&self.params, hidden, batch, Dropout::NONE);
        outputs.map(|outputs| outputs.values)
    }

    /// The output layer's numbers [N, V] for hidden states [N, D]: logits, or [`Self::log_probabilities`].
    pub fn outputs(&self, hidden: &[f32]) -> Buf {
        let rows = hidden.len() / self.model.frame.d_model as usize;
        let mut out = Buf::any(rows * self.model.frame.vocab as usize);
        self.body.head().logits(&self.params, hidden, &mut out);
        out
    }

    /// Logits of every token, [B * T, V], or [`Self::log_probabilities`].
    pub fn logits(&self, input: &Input<'_>, state: &mut State) -> Buf {
        self.outputs(&self.hidden(input, state))
    }

    /// The same of the last token of each sequence alone, [B, V]: all that a prompt is read for.
    pub fn last_logits(&self, input: &Input<'_>, state: &mut State) -> Buf {
        let hidden = self.hidden(input, state);
        let width = self.model.frame.d_model as usize;
        let mut last = Buf::any(input.batch * width);
        for (to, from) in last.chunks_exact_mut(width).zip(hidden.chunks_exact(hidden.len() / input.batch)) {
            to.copy_from_slice(&from[from.len() - width..]);
        }
        drop(hidden);
        self.outputs(&last)
    }

    /// The losses of an objective.
    pub fn loss(&self, input: &Input<'_>, objective: &dyn Objective, state: &mut State) -> Vec<f32> {
        self.loss_of(&self.hidden(input, state), objective)
    }

    /// The losses of an objective for hidden states of [`Self::hidden`].
    pub fn loss_of(&self, hidden: &[f32], objective: &dyn Objective) -> Vec<f32> {
        objective.loss(&self.body.top, &self.params, hidden, None).0
    }

    /// The losses of an objective, and the gradients of `scale` times their sum (and of the balance loss) added to
    /// `grads`.
    pub fn train(
        &self,
        input: &Input<'_>,
        objective: &dyn Objective,
        state: &mut State,
        training: &Training,
        grads: &mut Grads,
    ) -> Outcome {
        assert!(!self.frozen, "a frozen network cannot be trained");
        let frame = &self.model.frame;
        let trained = self.body.train(frame, &self.params, input, objective, state, ONLY, training, grads);
        Outcome { losses: trained.losses, experts: trained.reports.take() }
    }

    /// What a pass shows to somebody who looks: how large inputs of matrices are, and how far slots turn the hidden
    /// states.
    pub fn observe(&self, input: &Input<'_>, state: &mut State) -> Observation {
        self.body.observe(&self.model.frame, &self.params, input, state)
    }

    /// Trains slots by themselves, each from hidden states that are given to those that are wanted: for each of
    /// `locals` the sum of the losses of all tokens. Adds the gradients of `scale` times it to `grads`.
    pub fn train_local(
        &self,
        input: &Input<'_>,
        locals: &[Local],
        state: &mut State,
        how: &LocalTraining,
        grads: &mut Grads,
    ) -> (Vec<f64>, Vec<MoeStats>) {
        assert!(!self.frozen, "a frozen network cannot be trained");
        let (frame, reports) = (&self.model.frame, Reports::default());
        let losses = self.body.train_local(frame, &self.params, input, locals, state, how, &reports, grads);
        (losses.into_iter().map(|of_options| of_options[0]).collect(), reports.take())
    }

    /// The number of the reference's layer that each slot is part of.
    pub fn layers(&self) -> &[usize] {
        &self.names
    }

    /// Whose weights each parameter has, in the order of the parameters.
    pub fn owners(&self) -> &[Owner] {
        &self.owners
    }

    /// A slot: its block, its parameters and its units.
    pub fn slot(&self, slot: usize) -> Slot<'_> {
        let choice = &self.body.stack.slots[slot][0];
        let units = choice.layer.as_ref().map_or_else(Vec::new, |layer| layer.units());
        Slot { block: &choice.block, params: choice.params.clone(), units }
    }

    /// The parameters of all blocks.
    pub fn blocks_params(&self) -> std::ops::Range<usize> {
        let slots = &self.body.stack.slots;
        let first = slots.first().map_or(0, |slot| slot[0].params.start);
        first..slots.last().map_or(first, |slot| slot[0].params.end)
    }

    /// The parameters of the output layer of a task, by their places among all.
    pub fn task_params(&self) -> Vec<usize> {
        let dense = self.body.top.task.iter().map(|task| &task.dense);
        dense
            .flat_map(|dense| std::iter::once(dense.matrix.weight()).chain(dense.bias_param()))
            .map(|id| id.0)
            .collect()
    }

    /// The output layer, where there is one.
    pub fn head(&self) -> Option<&dyn Head> {
        self.body.top.head.as_deref()
    }
}
