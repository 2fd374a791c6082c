//! A stem, a stack of slots and a top: what networks and super nets are made of. The one place that walks from tokens
//! to losses and back.

use crate::build;
use crate::context::{Context, Contexts, Reports};
use crate::embedding::EmbeddingTable;
use crate::head::{Head, Top};
use crate::layer::{AsideGrads, CacheKind, LayerState, Pass, Saved, Stream};
use crate::linear::Matrix;
use crate::objective::Objective;
use crate::observe::{Observation, Observe};
use crate::params::{Builder, Grads, ParamId, Params, Place};
use crate::stack::{self, Mixture, Stack, pack};
use crate::stem::{Input, Stem, StemPass};
use crate::taps::{Map, Seen, Taps};
use crate::unpadded::{self, Unpadded};
use lathe_core::{Frame, Result, TARGET};
use lathe_ops::Precision;
use lathe_ops::attention::KeptAs;
use lathe_ops::buffer::Buf;
use lathe_ops::dropout::Dropout;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

/// What a network carries from segment to segment, or from token to token.
#[derive(Clone)]
pub struct State {
    /// One of each slot.
    pub(crate) layers: Vec<LayerState>,
    /// Tokens before.
    pub(crate) position: usize,
}

impl State {
    /// The memories, [B, M, D] each, from the bottom.
    pub fn memories(&self) -> impl Iterator<Item = &[f32]> {
        self.layers.iter().filter_map(|state| match state {
            LayerState::Memory(memory) => Some(&**memory),
            _ => None,
        })
    }

    /// The memories, [B, M, D] each, from the bottom: to be read from a checkpoint.
    pub fn memories_mut(&mut self) -> impl Iterator<Item = &mut [f32]> {
        self.layers.iter_mut().filter_map(|state| match state {
            LayerState::Memory(memory) => Some(&mut **memory),
            _ => None,
        })
    }
}

/// How to run a training pass.
#[derive(Debug, Clone, Copy)]
pub struct Training {
    /// Key of this step's dropout; `None` turns dropout off.
    pub dropout_key: Option<u64>,
    /// Weight of the balance loss of experts.
    pub balance: f32,
    /// What each loss counts, usually 1 / number of losses.
    pub scale: f32,
}

/// Salt of the dropout of the last hidden states.
const LAST: u64 = u64::MAX - 2;

/// Stem, slots and top.
pub(crate) struct Body {
    pub stem: Box<dyn Stem>,
    pub stack: Stack,
    pub top: Top,
}

/// A pass under way: all that its layers share, and what is owned by nobody else.
pub(crate) struct Run<'a> {
    params: &'a Params,
    input: &'a Input<'a>,
    position: usize,
    training: Option<&'a Training>,
    dropout: [Dropout; 3],
    contexts: Contexts<'a>,
    context: Arc<Context>,
    aside_grads: AsideGrads,
    /// The real tokens, where only these are computed.
    unpadded: Option<Unpadded>,
}

impl<'a> Run<'a> {
    /// Without `training` nothing is dropped and nothing kept.
    pub fn new(
        frame: &'a Frame,
        params: &'a Params,
        input: &'a Input<'a>,
        position: usize,
        training: Option<&'a Training>,
    ) -> Self {
        Self::changed(frame, params, input, position, training, None)
    }

    /// As [`Self::new`], with something done to what the backbone has for its blocks.
    fn changed(
        frame: &'a Frame,
        params: &'a Params,
        input: &'a Input<'a>,
        position: usize,
        training: Option<&'a Training>,
        change: Option<fn(&mut Context)>,
    ) -> Self {
        let key = training.and_then(|training| training.dropout_key);
        let of = |probability: f64| key.map_or(Dropout::NONE, |key| Dropout { probability: probability as f32, key });
        let dropout = [of(frame.dropout), of(frame.attn_dropout), of(frame.moe_dropout)];
        let contexts = Contexts::new(Cow::Borrowed(frame), dropout[0], change);
        let context = contexts.of(input.len(), frame.d_model as usize, None);
        let aside_grads = AsideGrads::default();
        Self { params, input, position, training, dropout, contexts, context, aside_grads, unpadded: None }
    }

    pub fn stem(&self) -> StemPass<'_> {
        let (keep, dropout) = (self.training.is_some(), self.dropout[0]);
        let (params, unpadded) = (self.params, self.unpadded.as_ref());
        StemPass { params, position: self.position, keep, dropout, unpadded }
    }

    pub fn pass<'p>(&'p self, reports: &'p Reports) -> Pass<'p> {
        let (batch, len, mask) = match &self.unpadded {
            Some(unpadded) => (unpadded.rows(), 1, None),
            None => (self.input.batch, self.input.len(), self.input.mask),
        };
        Pass {
            params: self.params,
            batch,
            len,
            position: self.position,
            mask,
            unpadded: self.unpadded.as_ref(),
            keep: self.training.is_some(),
            dropout: self.dropout,
            balance: self.training.map_or(0.0, |training| training.balance),
            context: &self.context,
            contexts: &self.contexts,
            reports,
            aside: &[],
            aside_grads: &self.aside_grads,
            map: Map::Unwanted,
        }
    }
}

/// What a pass keeps for its backward.
struct Kept {
    stem: Saved,
    /// [B, T] of what left the last slot, false for padding that was computed.
    mask: Option<Arc<Vec<bool>>>,
    /// Numbers that left the encoder, where no block went on with the other text.
    unread: Option<usize>,
    slots: Vec<stack::SlotKept>,
    norm: Option<(Buf, Buf)>,
}

/// What a pass with gradients found.
pub(crate) struct Trained {
    pub losses: Vec<f32>,
    pub dp: Vec<Vec<f64>>,
    pub reports: Reports,
}

impl Body {
    /// Makes stem and top, and by `slots` what stands between them: parameters stand in the order of the computation.
    pub fn build(frame: &Frame, builder: &mut Builder, slots: impl FnOnce(&mut Builder) -> Stack) -> Result<Self> {
        let family = build::of_backbone(frame.backbone);
        if build::shares(frame) {
            builder.share();
        }
        let stem = family.stem(frame, builder)?;
        let stack = slots(builder);
        let top = family.top(frame, &*stem, builder);
        Ok(Self { stem, stack, top })
    }

    /// The output layer.
    pub fn head(&self) -> &dyn Head {
        &**self.top.head.as_ref().expect("a model with an output layer")
    }

    /// What products are computed in.
    pub fn set_precision(&mut self, precision: Precision) {
        self.stem.set_precision(precision);
        if let Some(head) = &mut self.top.head {
            head.set_precision(precision);
        }
        if let Some(pooler) = &mut self.top.pooler {
            pooler.dense.matrix.set_precision(precision);
        }
        if let Some(task) = &mut self.top.task {
            task.dense.matrix.set_precision(precision);
        }
        self.stack.set_precision(precision);
    }

    /// Calls something with every matrix of stem, blocks and top.
    pub fn each_matrix(&mut self, each: &mut dyn FnMut(&mut Matrix)) {
        self.stem.matrices().into_iter().for_each(&mut *each);
        for layer in self.stack.layers_mut() {
            layer.matrices().into_iter().for_each(&mut *each);
        }
        self.top.matrices().into_iter().for_each(each);
    }

    /// Packs all weights for inference, and gives back the memory of those that nobody reads any more.
    pub fn pack(&mut self, params: &mut Params) {
        let mut users: HashMap<ParamId, usize> = HashMap::new();
        self.stem.reads().into_iter().for_each(|id| *users.entry(id).or_default() += 1);
        self.stem.matrices().iter().for_each(|matrix| *users.entry(matrix.weight()).or_default() += 1);
        for layer in self.stack.layers_mut() {
            layer.matrices().iter().for_each(|matrix| *users.entry(matrix.weight()).or_default() += 1);
        }
        self.top.matrices().iter().for_each(|matrix| *users.entry(matrix.weight()).or_default() += 1);
        pack(self.stem.matrices(), params, &mut users);
        self.stack.pack(params, &mut users);
        pack(self.top.matrices(), params, &mut users);
    }

    /// The parameters that are read as matrices or as rows of tokens, and how they lie.
    pub fn matrices(&mut self) -> Vec<(ParamId, Place)> {
        let mut places: Vec<(ParamId, Place)> = self.stem.tables().iter().flat_map(EmbeddingTable::matrices).collect();
        let mut add = |matrix: &Matrix| places.push((matrix.weight(), matrix.place()));
        self.stem.matrices().iter().for_each(|matrix| add(matrix));
        for layer in self.stack.layers_mut() {
            layer.matrices().iter().for_each(|matrix| add(matrix));
        }
        self.top.matrices().iter().for_each(|matrix| add(matrix));
        places
    }

    /// The state to begin with: a memory of zeros in each slot that has one.
    pub fn init_memory(&self, batch: usize) -> State {
        State { layers: self.stack.init_memory(batch), position: 0 }
    }

    /// The state to decode with, in passes of `len` tokens.
    pub fn init_cache(
        &self,
        frame: &Frame,
        params: &Params,
        (batch, len): (usize, usize),
        kind: KeptAs,
        after: &State,
    ) -> State {
        let ids = vec![0; batch * len]; // only their number counts
        let input = Input::tokens(&ids, batch);
        let change: Option<fn(&mut Context)> = match kind {
            KeptAs::F32 => None,
            KeptAs::Bf16 => Some(|context| context.insert(CacheKind(KeptAs::Bf16))),
            KeptAs::Int8 => Some(|context| context.insert(CacheKind(KeptAs::Int8))),
        };
        let run = Run::changed(frame, params, &input, after.position, None, change);
        let reports = Reports::default();
        State { layers: self.stack.init_cache(&run.pass(&reports), &after.layers), position: after.position }
    }

    /// The hidden states after the last block [B * T, D], as the output layer gets them, unless taps end the pass
    /// before; what a backward pass needs; and what was seen.
    fn hidden(
        &self,
        run: &Run<'_>,
        reports: &Reports,
        state: &mut State,
        mixture: impl Fn(usize) -> Mixture,
        taps: &Taps,
    ) -> (Option<Buf>, Kept, Seen) {
        let pass = run.pass(reports);
        let (x, stem) = self.stem.forward(&run.stem(), run.input);
        let (mut x, slots, mut seen) = self.stack.forward(&pass, x, &mut state.layers, mixture, taps);
        state.position += run.input.len();
        let mut kept = Kept { stem, slots, mask: None, unread: None, norm: None };
        if let Some(unpadded) = &run.unpadded {
            let hidden = seen.hidden.iter_mut().flatten();
            hidden.for_each(|hidden| *hidden = Arc::new(unpadded.put(hidden)));
        }
        if taps.until.is_some() {
            return (None, kept, seen);
        }
        if let Some(target) = x.take(TARGET) {
            (kept.unread, x) = (Some(x.hidden.len()), target); // a frame by itself
        }
        kept.mask = x.mask;
        let mut x = Arc::try_unwrap(x.hidden).unwrap_or_else(|x| (*x).clone());
        if let Some(norm) = &self.top.norm {
            let (y, stats) = norm.forward(run.params, &x);
            let before = std::mem::replace(&mut x, y);
            kept.norm = pass.keep.then_some((before, stats));
        }
        if self.top.dropout {
            run.dropout[0].with(LAST).apply(&mut x);
        }
        match (&run.unpadded, &kept.mask) {
            (Some(unpadded), _) => x = unpadded.put(&x),
            (None, Some(mask)) => unpadded::clear(mask, &mut x),
            (None, None) => {}
        }
        (Some(x), kept, seen)
    }

    /// The real tokens of an input, where it has padding that need not be computed: nothing came before, nobody asks for
    /// attention maps, which have all places, and stem and blocks can do without it.
    fn unpadded(&self, input: &Input<'_>, state: &State, taps: &Taps) -> Option<Unpadded> {
        let unpadded = input.mask.and_then(|mask| Unpadded::of(mask, input.batch))?;
        let nothing_before = state.position == 0 && state.layers.iter().all(|state| matches!(state, LayerState::None));
        let alone = input.source.is_none() && taps.maps.is_empty();
        let can = self.stem.takes_unpadded() && self.stack.takes_unpadded();
        (nothing_before && alone && can).then_some(unpadded)
    }

    /// What enters the first slot, for a pass that is taken slot by slot.
    pub fn enter(&self, frame: &Frame, params: &Params, input: &Input<'_>) -> Stream {
        let run = Run::new(frame, params, input, 0, None);
        self.stem.forward(&run.stem(), input).0
    }

    /// What leaves a slot for what enters it, after nothing.
    pub fn run_slot(&self, frame: &Frame, params: &Params, slot: usize, input: &Input<'_>, x: Stream) -> Stream {
        let run = Run::new(frame, params, input, 0, None);
        let mut state = self.stack.init_memory(input.batch).swap_remove(slot);
        self.stack.run_slot(slot, &run.pass(&Reports::default()), &x, &mut state)
    }

    /// What the output layer gets for what leaves the last slot.
    pub fn leave(&self, params: &Params, x: Stream) -> Buf {
        match &self.top.norm {
            Some(norm) => norm.forward(params, &x.hidden).0,
            None => Arc::try_unwrap(x.hidden).unwrap_or_else(|x| (*x).clone()),
        }
    }

    /// The weights of the output layer.
    pub fn head_weights(&mut self) -> Vec<ParamId> {
        self.top.head.iter_mut().flat_map(|head| head.matrices()).map(|matrix| matrix.weight()).collect()
    }

    /// The hidden states for the output layer, without a backward pass to come.
    pub fn output(
        &self,
        frame: &Frame,
        params: &Params,
        input: &Input<'_>,
        state: &mut State,
        mixture: impl Fn(usize) -> Mixture,
    ) -> Buf {
        self.look(frame, params, input, state, mixture, &Taps::NONE).0.expect("nothing ends the pass before")
    }

    /// As [`Self::output`], with what taps see, which may end the pass before.
    pub fn look(
        &self,
        frame: &Frame,
        params: &Params,
        input: &Input<'_>,
        state: &mut State,
        mixture: impl Fn(usize) -> Mixture,
        taps: &Taps,
    ) -> (Option<Buf>, Seen) {
        let unpadded = self.unpadded(input, state, taps);
        let run = Run { unpadded, ..Run::new(frame, params, input, state.position, None) };
        let (hidden, _, seen) = self.hidden(&run, &Reports::default(), state, mixture, taps);
        (hidden, seen)
    }

    /// What a pass without a backward shows to somebody who looks.
    pub fn observe(&self, frame: &Frame, params: &Params, input: &Input<'_>, state: &mut State) -> Observation {
        let looked: fn(&mut Context) = |context| context.insert(Observe);
        let unpadded = self.unpadded(input, state, &Taps::NONE);
        let run = Run { unpadded, ..Run::changed(frame, params, input, state.position, None, Some(looked)) };
        let reports = Reports::default();
        self.hidden(&run, &reports, state, |_| Mixture::Hard(0), &Taps::NONE);
        Observation::of(&reports)
    }

    /// The losses of an objective, and the gradients of `scale` times their sum (and of the balance loss) added to
    /// `grads`, with those of the weights of soft mixtures.
    #[allow(clippy::too_many_arguments)] // each is one thing
    pub fn train(
        &self,
        frame: &Frame,
        params: &Params,
        input: &Input<'_>,
        objective: &dyn Objective,
        state: &mut State,
        mixture: impl Fn(usize) -> Mixture,
        training: &Training,
        grads: &mut Grads,
    ) -> Trained {
        let (reports, taps) = (Reports::default(), objective.taps());
        let unpadded = self.unpadded(input, state, &taps);
        let run = Run { unpadded, ..Run::new(frame, params, input, state.position, Some(training)) };
        let (hidden, kept, seen) = self.hidden(&run, &reports, state, &mixture, &taps);
        let (mut losses, mut dx) = match hidden {
            Some(hidden) => {
                let (losses, dhidden) = objective.loss(&self.top, params, &hidden, Some((training.scale, grads)));
                (losses, dhidden.expect("gradients were asked for"))
            }
            None => (vec![0.0; input.ids.len()], Buf::zeros(input.ids.len() * frame.d_model as usize)),
        };
        let mut injected = objective.inside(seen, &mut losses, training.scale);
        match (&run.unpadded, &kept.mask) {
            (Some(unpadded), _) => {
                dx = unpadded.take(&dx);
                injected.hidden.iter_mut().flatten().for_each(|d| *d = unpadded.take(d));
            }
            (None, Some(mask)) => unpadded::clear(mask, &mut dx),
            (None, None) => {}
        }
        if self.top.dropout && taps.until.is_none() {
            run.dropout[0].with(LAST).apply(&mut dx);
        }
        if let (Some(norm), Some((x, stats))) = (&self.top.norm, kept.norm) {
            let mut d = Buf::zeros(dx.len());
            norm.backward(params, &x, &stats, &dx, &mut d, grads);
            dx = d;
        }
        if let Some(numbers) = kept.unread {
            run.aside_grads.lay(TARGET, std::mem::replace(&mut dx, Buf::zeros(numbers)));
        }
        let unheard = Reports::default();
        let pass = run.pass(&unheard);
        let (dx, dp) = self.stack.backward(&pass, kept.slots, dx, mixture, (&taps, &injected), grads);
        if taps.from == 0 {
            self.stem.backward(&run.stem(), input, kept.stem, (dx, &run.aside_grads), grads);
        }
        Trained { losses, dp, reports }
    }
}
