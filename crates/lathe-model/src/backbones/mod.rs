//! One file per backbone: the frame of a family of models.

mod gpt2;
mod opt;
mod transformer_xl;

use lathe_core::Backbone;

/// Every backbone.
pub const BACKBONES: &[&Backbone] = &[&transformer_xl::TRANSFORMER_XL, &gpt2::GPT2, &opt::OPT];
