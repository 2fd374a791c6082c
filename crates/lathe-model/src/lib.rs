//! The blocks and backbones of lathe, the exact cost of models built from them, and what ships with it.
//!
//! One idea is one file: [`blocks`] and [`backbones`] are listed in explicit ordered slices, which make up
//! the [`REGISTRY`] that the architecture language of `lathe-core` is read with.

mod alone;
pub mod backbones;
pub mod blocks;
mod composed;
mod count;
pub mod design;
mod embedding;
mod ends;
pub mod folder;
mod head;
mod layer;
mod network;
mod packed;
mod params;
pub mod shipped;
mod supernet;

pub use alone::Alone;
pub use composed::{Activation, Composed, ComposedState, Trace};
pub use count::{Counts, count};
pub use lathe_ops::Precision;
pub use layer::MoeStats;
pub use network::{Network, Outcome, State, Training};
pub use params::{Grads, Param, Params};
pub use supernet::{Mixture, SuperNet, SuperOutcome};

/// All blocks and backbones.
pub const REGISTRY: lathe_core::Registry =
    lathe_core::Registry { blocks: blocks::BLOCKS, backbones: backbones::BACKBONES };
