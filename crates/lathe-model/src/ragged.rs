//! One pass over the weights for several sequences, each at a place of its own after a state of its own: what a server
//! needs whose requests come and go. A part may be one token that is decoded or a piece of a prompt.
//!
//! What works per token sees the tokens of all parts as one matrix [R, D]. What mixes tokens projects them so, and looks
//! at each part's own cache ([`crate::layer::Layer::forward_ragged`]); a layer that cannot runs part after part. Either way a part gets
//! what it would get alone, but for the order in which products of more or fewer rows are summed.

use crate::body::{Body, Run, State};
use crate::context::Reports;
use crate::layer::{LayerState, Pass, Stream};
use crate::network::Network;
use crate::params::Params;
use crate::stack::{Choice, Here, Mixture, forward};
use crate::stem::Input;
use lathe_core::{Frame, Role};
use lathe_ops::buffer::Buf;
use std::sync::Arc;

/// A sequence of a ragged pass: the tokens that come next, and all before them.
pub struct Part<'a> {
    /// At least one.
    pub ids: &'a [u32],
    /// Of [`Network::init_cache`] for one sequence.
    pub state: &'a mut State,
}

/// What the layers of a ragged pass know of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartPlace {
    /// T
    pub len: usize,
    /// Tokens before the first.
    pub position: usize,
}

impl Network {
    /// The hidden states after the last block and its norm of all parts, one after the other, [R, D].
    pub fn hidden_ragged(&self, parts: &mut [Part<'_>]) -> Buf {
        self.body.ragged(&self.model.frame, &self.params, parts)
    }
}

impl Body {
    fn ragged(&self, frame: &Frame, params: &Params, parts: &mut [Part<'_>]) -> Buf {
        let inputs: Vec<Input<'_>> = parts.iter().map(|part| Input::tokens(part.ids, 1)).collect();
        let runs: Vec<Run<'_>> = inputs
            .iter()
            .zip(&*parts)
            .map(|(input, part)| Run::new(frame, params, input, part.state.position, None))
            .collect();
        let reports = Reports::default();
        let passes: Vec<Pass<'_>> = runs.iter().map(|run| run.pass(&reports)).collect();
        let enter = |(run, input): (&Run<'_>, &Input<'_>)| self.stem.forward(&run.stem(), input).0;
        let mut xs: Vec<Stream> = runs.iter().zip(&inputs).map(enter).collect();
        for (s, slot) in self.stack.slots.iter().enumerate() {
            let states = parts.iter_mut().map(|part| &mut part.state.layers[s]).collect();
            xs = forward_slot(slot, &passes, xs, states);
        }
        parts.iter_mut().for_each(|part| part.state.position += part.ids.len());
        let hidden = Arc::try_unwrap(join(&xs).hidden).unwrap_or_else(|hidden| (*hidden).clone());
        match &self.top.norm {
            Some(norm) => norm.forward(params, &hidden).0,
            None => hidden,
        }
    }
}

/// What leaves a slot of one option, for each part.
fn forward_slot(
    slot: &[Choice],
    passes: &[Pass<'_>],
    xs: Vec<Stream>,
    mut states: Vec<&mut LayerState>,
) -> Vec<Stream> {
    let Some(choice) = slot.first() else { return xs };
    let alike = |x: &Stream| x.aside.is_empty() && x.mask.is_none() && x.len > 0;
    if let (Some(layer), true) = (&choice.layer, xs.iter().all(alike)) {
        let all = join(&xs);
        let joint = Pass { batch: rows(&xs), ..passes[0] };
        let here = Here::new(&joint, &all);
        let pass = here.pass(&joint);
        let together = match choice.block.kind.role() {
            Role::PerToken => Some(layer.forward(&pass, &all, None, &mut LayerState::None).0),
            Role::MixesTokens => {
                let places: Vec<PartPlace> =
                    xs.iter().map(|x| PartPlace { len: x.len, position: x.position }).collect();
                layer.forward_ragged(&pass, &all, &places, &mut states)
            }
            Role::Identity => None,
        };
        if let Some(y) = together {
            return split(&y, &xs);
        }
    }
    let alone = |((pass, x), state): ((&Pass<'_>, Stream), &mut LayerState)| {
        let here = Here::new(pass, &x);
        forward(slot, &Mixture::Hard(0), &Pass { aside: &x.aside, ..here.pass(pass) }, &x, state).0
    };
    passes.iter().zip(xs).zip(states).map(alone).collect()
}

/// R
fn rows(xs: &[Stream]) -> usize {
    xs.iter().map(|x| x.len).sum()
}

/// The tokens of all parts as so many sequences of one token, [R, D].
fn join(xs: &[Stream]) -> Stream {
    let mut all = Buf::any(xs.iter().map(|x| x.hidden.len()).sum());
    let mut rest = &mut all[..];
    for x in xs {
        let (to, after) = rest.split_at_mut(x.hidden.len());
        to.copy_from_slice(&x.hidden);
        rest = after;
    }
    Stream { stack: xs.first().and_then(|x| x.stack), ..Stream::new(all, 1, 0, None) }
}

/// The way back of [`join`].
fn split(all: &Stream, xs: &[Stream]) -> Vec<Stream> {
    let width = all.hidden.len() / rows(xs);
    let mut rest = &all.hidden[..];
    let take = |x: &Stream| {
        let (own, after) = rest.split_at(x.len * width);
        rest = after;
        let mut hidden = Buf::any(own.len());
        hidden.copy_from_slice(own);
        x.with(hidden)
    };
    xs.iter().map(take).collect()
}

impl State {
    /// Tokens before.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.layers.iter().map(LayerState::bytes).sum()
    }

    /// A copy of the state, of one sequence, as it was after its first `len` tokens; `None` where a layer carries
    /// something that knows no way back.
    pub fn prefix(&self, len: usize) -> Option<Self> {
        if len > self.position {
            return None;
        }
        let layers = self.layers.iter().map(|layer| layer.prefix(len, self.position)).collect::<Option<_>>()?;
        Some(Self { layers, position: len })
    }
}
