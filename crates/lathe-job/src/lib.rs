//! The jobs of lathe: what a front end asks for, done without a terminal.
//!
//! - [`measurer`]: what a whole model takes, in this process or in one of its own.
//! - [`store`]: where tables and records are kept.
//! - [`profiler`], [`profile`]: tables of measured blocks, and how well they predict whole models.
//! - [`pareto`], [`differentiable`]: searches.
//! - [`compare`]: models, or searches, side by side.
//! - [`train`], [`distill`], [`evaluate`], [`choices`], [`predict`], [`generate`], [`forward`], [`bench`](mod@bench),
//!   [`audit`]: one thing each.
//! - [`export`]: a model for other programs.
//! - [`prune`](mod@prune): a smaller model out of a trained one, measured.
//! - [`optimize`]: from a model and a text to a faster model and a report.
//!
//! A job is given a [`Context`] and a request, sends [`Event`]s while it runs, and returns what it found. Blocks and
//! backbones come in through the context's [`Registry`].

pub mod audit;
pub mod bench;
pub mod choices;
pub mod compare;
pub mod differentiable;
pub mod distill;
mod error;
pub mod evaluate;
mod event;
pub mod export;
pub mod forward;
mod fuse;
pub mod generate;
pub mod held_out;
pub mod identity;
pub mod input;
pub mod measurer;
pub mod optimize;
mod pages;
pub mod pareto;
mod plot;
pub mod predict;
pub mod profile;
pub mod profiler;
pub mod prune;
pub mod quantize;
pub mod store;
pub mod train;

pub use error::{At, Error, Result, is_usage, setting};
pub use event::{Event, Watch};

use lathe_core::Registry;
use measurer::Measurer;
use store::Store;

/// What jobs work with.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The blocks and backbones there are.
    pub registry: &'a Registry,
    /// How whole models are measured.
    pub measurer: &'a dyn Measurer,
    /// Where tables of this machine are kept.
    pub tables: &'a dyn Store,
}
