//! The blocks and backbones of lathe, the exact cost of models built from them, and what ships with it.
//!
//! One idea is one file: [`blocks`] and [`backbones`] are listed in explicit ordered slices, which make up
//! the [`REGISTRY`] that the architecture language of `lathe-core` is read with. Others may be added from outside: a
//! registry of one's own is passed to whatever reads models. [`build`] has what a block and a backbone implement, and
//! [`layer`], [`linear`], [`norm`], [`params`], [`stem`] and [`head`] what they are made of.

pub mod backbones;
mod block_bench;
pub mod blocks;
mod body;
pub mod build;
mod composed;
pub mod context;
mod count;
pub mod derive;
pub mod design;
pub mod embedding;
pub mod folder;
pub mod head;
pub mod layer;
pub mod linear;
mod local;
mod network;
pub mod norm;
pub mod objective;
pub mod observe;
mod onnx;
mod packed;
pub mod params;
mod projections;
pub mod prune;
pub mod quantize;
mod ragged;
pub mod shared;
pub mod shipped;
mod stack;
pub mod stem;
mod supernet;
pub mod taps;
pub mod unpadded;
mod weight_storage;

pub use block_bench::{BenchState, BlockBench};
pub use blocks::MoeStats;
pub use body::{State, Training};
pub use composed::{Activation, Composed, ComposedState, Graph, GraphStream, LinearOutput, Trace};
pub use count::{Counts, count, of_blocks};
pub use lathe_ops::Precision;
pub use local::{Local, LocalTraining};
pub use network::{Network, Outcome, Owner, Slot};
pub use objective::{Objective, Targets};
pub use onnx::{OnnxOptions, OnnxPass, onnx_graph};
pub use params::{Grads, Param, Params};
pub use projections::Projections;
pub use ragged::{Part, PartPlace};
pub use stack::{Mixture, stack_choice};
pub use stem::{Input, Source};
pub use supernet::{SuperNet, SuperOutcome};
pub use taps::{AttentionMap, Seen, TapGradients, Taps};
pub use weight_storage::WeightStorage;

/// All blocks and backbones.
pub const REGISTRY: lathe_core::Registry =
    lathe_core::Registry { blocks: blocks::BLOCKS, backbones: backbones::BACKBONES };
