//! The architecture language of lathe: what a Transformer is, and what it costs.
//!
//! - [`notation`]: `(sff)x5 (f)x9`, the one string that describes a stack of blocks.
//! - [`model`]: the model file, that is the stack plus its frame (widths, embedding, positions).
//! - [`block`], [`backbone`], [`cost`]: what a block and a family of models are to everybody who does not compute with
//!   them.
//! - [`fields`]: TOML with the place of every value, for errors that name it.
//! - [`identity`]: hashes of what a value is, whatever way it was written.
//! - [`space`]: a model with choices in it, to count, sample, mutate and cross.
//!
//! This crate has no tensors, does no I/O beyond strings and knows no single block: the blocks and
//! the backbones come in through a [`Registry`].

pub mod backbone;
pub mod block;
pub mod cost;
mod error;
mod fault;
pub mod fields;
pub mod identity;
pub mod model;
pub mod notation;
pub mod space;

pub use backbone::{Backbone, BaseWidths, Defaults, OwnKey, Registry, Segmentation};
pub use block::{Block, BlockKind, DECODER, Domain, ENCODER, Knob, Role, Shape, TARGET, knob};
pub use cost::{Cost, Setting};
pub use error::{Error, Result, shorten};
pub use fault::Fault;
pub use identity::{Identify, Identity};
pub use model::{Activation, Frame, Model, NormPlace, Spec, StackPlace};
pub use space::{Genome, Sampling, Space};

/// The most blocks an architecture may have.
pub const MAX_BLOCKS: usize = 10_000;
/// The most bytes a model file, a space file or a notation string may have.
pub const MAX_TEXT: usize = 1 << 20;
/// The widest model or embedding, the most heads, and the widest head.
pub const MAX_WIDTH: u32 = 1 << 16;
/// The widest inner layer.
pub const MAX_INNER: u32 = 1 << 20;
