//! One file per backbone: a family of models, all of it. Its defaults and keys, the names, layouts and first values of its
//! weights, what stands around the blocks and what that costs, and its configuration in `transformers`.
//!
//! To add a backbone, write its file and add it to [`BACKBONES`]; nothing else names it. A backbone may also live outside
//! of this crate: `examples/` has one.

mod albert;
mod bert;
mod distilbert;
mod encoder;
mod gguf;
mod gpt2;
mod llama;
mod mobilebert;
mod mpnet;
mod opt;
mod roberta;
mod transformer_xl;

use lathe_core::Backbone;

/// Every backbone, in the order in which lists show them.
pub const BACKBONES: &[&dyn Backbone] = &[
    &transformer_xl::TransformerXl,
    &gpt2::GPT2,
    &opt::Opt,
    &llama::Llama,
    &bert::BERT,
    &roberta::ROBERTA,
    &distilbert::DISTILBERT,
    &albert::Albert,
    &mpnet::MPNET,
    &mobilebert::MobileBert,
];
