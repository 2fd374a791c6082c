//! `lathe forward`: what a model folder computes for given tokens, to be compared with other implementations.

use super::Action;
use crate::output::{self, grouped};
use crate::screen;
use anyhow::Result;
use clap::Parser;
use lathe_job::forward::{self, Request};
use std::path::PathBuf;

/// Compute logits, loss, memories and gradients of a model folder for given tokens
#[derive(Parser)]
#[command(
    name = "forward",
    after_help = "\
IDS holds `ids`, int64 of shape [B, T]. OUT gets, in f32,
  logits         [B, T, V]; log-probabilities for a transformer_xl or an adaptive softmax
  loss           [1], mean of -log p of the next token over B * (T - 1); absent if T is 1
  mems.<layer>   [B, M, D], the memories of a transformer_xl after the last segment
  grad.<weight>  the loss's gradient, which ends at the border of a segment; without dropout and balance loss

Example:
  lathe forward my_model --tokens ids.safetensors --out out.safetensors --grads"
)]
pub struct Forward {
    /// Model folder: config.json and model.safetensors
    folder: PathBuf,
    /// Tokens: a safetensors file with `ids`
    #[arg(long, value_name = "IDS")]
    tokens: PathBuf,
    /// Where the results go: a safetensors file
    #[arg(long, value_name = "OUT")]
    out: PathBuf,
    /// transformer_xl: consecutive segments that the tokens are cut into, which carry the memory
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    segments: u32,
    /// Also the gradient of every weight
    #[arg(long)]
    grads: bool,
}

impl Action for Forward {
    fn run(self, json: bool) -> Result<()> {
        let Self { folder, tokens, out, segments, grads } = self;
        let request = Request { folder, tokens, out, segments, grads };
        let found = screen::job(|_, watch| forward::run(&request, watch))?;
        if json {
            return output::json(&found);
        }
        let loss = found.loss.map_or_else(String::new, |loss| format!("loss {loss:.6}, "));
        output::text(&format!("{loss}{} tokens; results in {}", grouped(found.tokens as u64), found.out))
    }
}
