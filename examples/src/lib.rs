//! A block and a backbone that live outside of lathe's crates, one file each: what to copy for one's own.
//!
//! They reach everything through a registry of one's own, [`REGISTRY`], which holds lathe's entries and ours. It is passed
//! to whatever reads models; `tests/outside.rs` counts, trains, decodes, profiles, searches, saves and loads with it.

mod conv;
mod nope;

use lathe_core::{Backbone, BlockKind, Registry};
use lathe_model::{backbones::BACKBONES, blocks::BLOCKS};

pub use conv::Conv;
pub use nope::Nope;

/// lathe's blocks and backbones, and ours.
pub static REGISTRY: std::sync::LazyLock<Registry> = std::sync::LazyLock::new(|| Registry {
    blocks: [BLOCKS, &[&Conv as &dyn BlockKind]].concat().leak(),
    backbones: [BACKBONES, &[&Nope as &dyn Backbone]].concat().leak(),
});
