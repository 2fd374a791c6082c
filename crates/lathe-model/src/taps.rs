//! Looking into a pass: hidden states between slots and attention maps inside them are seen on the way forward, and what a
//! loss makes of them joins the gradients on the way back.
//!
//! Hidden states are numbered by the slot that they enter: 0 is what the stem gives, and the number of slots is what leaves
//! the last one, before the norm of the top.

use lathe_ops::buffer::Buf;
use std::sync::Arc;

/// What to see of a pass, and which part of it there is to run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Taps {
    /// Hidden states, by the slot that they enter.
    pub hidden: Vec<usize>,
    /// Slots whose attention maps are wanted.
    pub maps: Vec<usize>,
    /// Nothing learns below this slot: the way back ends here.
    pub from: usize,
    /// Nothing runs from this slot on, nor the top; `None`: everything does.
    pub until: Option<usize>,
}

impl Taps {
    /// Nothing to see.
    pub const NONE: Self = Self { hidden: Vec::new(), maps: Vec::new(), from: 0, until: None };
}

/// What was seen, in the order in which it was asked for.
#[derive(Clone, Default)]
pub struct Seen {
    /// Hidden states, [B * T, D]; `None` where the pass did not come there.
    pub hidden: Vec<Option<Arc<Buf>>>,
    /// Attention maps; `None` of blocks that have none.
    pub maps: Vec<Option<AttentionMap>>,
}

/// The attention maps of a block.
#[derive(Clone)]
pub struct AttentionMap {
    /// H
    pub heads: usize,
    /// [B, H, T, S], before dropout; 0 where a query does not see a key.
    pub probabilities: Arc<Buf>,
}

/// Gradients of what was seen, in the same order; nothing where there are none.
#[derive(Default)]
pub struct TapGradients {
    /// Of hidden states.
    pub hidden: Vec<Option<Buf>>,
    /// Of attention maps.
    pub maps: Vec<Option<Buf>>,
}

/// What a pass wants of the attention maps of a layer.
#[derive(Clone, Copy, Default)]
pub enum Map<'a> {
    /// Nothing.
    #[default]
    Unwanted,
    /// A report of type [`AttentionMap`].
    Wanted,
    /// On the way back: their gradient, [B, H, T, S], is to be added.
    Gradient(&'a [f32]),
}

impl<'a> Map<'a> {
    /// The gradient, if there is one.
    pub fn gradient(self) -> Option<&'a [f32]> {
        match self {
            Self::Gradient(gradient) => Some(gradient),
            _ => None,
        }
    }

    /// Whether the maps are to be reported.
    pub fn is_wanted(self) -> bool {
        matches!(self, Self::Wanted)
    }
}

impl Seen {
    pub(crate) fn of(taps: &Taps) -> Self {
        Self { hidden: vec![None; taps.hidden.len()], maps: vec![None; taps.maps.len()] }
    }

    /// Notes the hidden states that enter a slot, where they are wanted.
    pub(crate) fn enter(&mut self, taps: &Taps, slot: usize, hidden: &Arc<Buf>) {
        let wanted = taps.hidden.iter().zip(&mut self.hidden).filter(|(wanted, _)| **wanted == slot);
        wanted.for_each(|(_, seen)| *seen = Some(hidden.clone()));
    }

    /// Notes the attention maps of a slot.
    pub(crate) fn inside(&mut self, taps: &Taps, slot: usize, map: Option<AttentionMap>) {
        let wanted = taps.maps.iter().zip(&mut self.maps).filter(|(wanted, _)| **wanted == slot);
        wanted.for_each(|(_, seen)| *seen = map.clone());
    }
}

impl TapGradients {
    /// Adds the gradients of the hidden states that enter a slot.
    pub(crate) fn enter(&self, taps: &Taps, slot: usize, dx: &mut Buf) {
        let here = taps.hidden.iter().zip(&self.hidden).filter(|(at, _)| **at == slot);
        here.filter_map(|(_, gradient)| gradient.as_ref()).for_each(|gradient| lathe_ops::linear::add(dx, gradient));
    }

    /// The gradient of a slot's attention maps.
    pub(crate) fn inside<'a>(&'a self, taps: &Taps, slot: usize) -> Map<'a> {
        let mut here = taps.maps.iter().zip(&self.maps).filter(|(at, _)| **at == slot);
        here.find_map(|(_, gradient)| gradient.as_deref()).map_or(Map::Unwanted, Map::Gradient)
    }
}
