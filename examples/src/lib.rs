//! Blocks and a backbone that live outside of lathe's crates, one file each: what to copy for one's own.
//!
//! | file | shows |
//! |---|---|
//! | `conv.rs` | a block that mixes tokens in its own way, with a state of its own |
//! | `bart.rs` | an encoder-decoder, with folders of transformers |
//! | `cross.rs` | attention to another stream, which a block below laid aside |
//! | `funnel.rs` | blocks that change the length |
//! | `project.rs` | a block that changes the width |
//! | `rezero.rs` | another residual connection |
//! | `nope.rs` | a family of models, whose layers can share their weights |
//!
//! They reach everything through a registry of one's own, [`REGISTRY`], which holds lathe's entries and ours. It is
//! passed to whatever reads models; `tests/outside.rs` counts, trains, decodes, profiles, searches, saves and loads
//! with it.

mod bart;
mod conv;
mod cross;
mod funnel;
mod nope;
mod project;
mod rezero;

use lathe_core::{Backbone, BlockKind, Registry};
use lathe_model::backbones::BACKBONES;

pub use bart::Bart;
pub use conv::Conv;
pub use cross::{Cross, Decoder, Keep};
pub use funnel::{Pool, Unpool};
pub use nope::Nope;
pub use project::Project;
pub use rezero::ReZero;

/// Our blocks.
pub const BLOCKS: &[&dyn BlockKind] = &[&Conv, &Keep, &Decoder, &Cross, &Pool, &Unpool, &Project, &ReZero];

/// lathe's blocks and backbones, and ours.
pub static REGISTRY: std::sync::LazyLock<Registry> = std::sync::LazyLock::new(|| Registry {
    blocks: [lathe_model::blocks::BLOCKS, BLOCKS].concat().leak(),
    backbones: [BACKBONES, &[&Nope as &dyn Backbone, &Bart]].concat().leak(),
});
