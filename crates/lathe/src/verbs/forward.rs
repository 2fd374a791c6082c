//! `lathe forward`: what a model folder computes for given tokens, to be compared with other implementations.

use super::Action;
use crate::output::{self, grouped};
use crate::screen;
use anyhow::Result;
use clap::Parser;
use lathe_job::forward::{self, Request};
use lathe_ops::Precision;
use std::path::PathBuf;

/// Compute logits, loss, memories and gradients of a model folder for given tokens
#[derive(Parser)]
#[command(
    name = "forward",
    after_help = "\
IDS holds `ids`, int64 of shape [B, T]; for an encoder also `mask` (1 for a token, 0 for padding) and `segments`. OUT gets,
in f32,
  logits         [B, T, V]; log-probabilities where the model gives them, as with an adaptive softmax
  loss           [1], mean of -log p of the next token over B * (T - 1); absent if T is 1
  hidden         [B, T, D], of an encoder: after the last block
  pooled         [B, D], of an encoder that has it
  mems.<layer>   [B, M, D], the memories after the last segment, of a model with a memory
  grad.<weight>  the loss's gradient, which ends at the border of a segment; without dropout and balance loss
With --seconds, an encoder's pass over the tokens is measured, too.

Example:
  lathe forward my_model --tokens ids.safetensors --out out.safetensors --grads"
)]
pub struct Forward {
    /// Model folder (config.json and model.safetensors) or GGUF file
    folder: PathBuf,
    /// Tokens: a safetensors file with `ids`
    #[arg(long, value_name = "IDS")]
    tokens: PathBuf,
    /// Where the results go: a safetensors file
    #[arg(long, value_name = "OUT")]
    out: PathBuf,
    /// With a memory: consecutive segments that the tokens are cut into, which carry the memory
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    segments: u32,
    /// Also the gradient of every weight
    #[arg(long)]
    grads: bool,
    /// Precision of products: f32 or bf16
    #[arg(long, default_value_t = Precision::F32)]
    precision: Precision,
    /// Also measure how long an encoder's pass takes, for so long
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,
}

impl Action for Forward {
    fn run(self, json: bool) -> Result<()> {
        let Self { folder, tokens, out, segments, grads, precision, seconds } = self;
        let request = Request { folder, tokens, out, segments, grads, precision, seconds };
        let found = screen::job(|context, watch| forward::run(&request, context.registry, watch))?;
        if json {
            return output::json(&found);
        }
        let loss = found.loss.map_or_else(String::new, |loss| format!("loss {loss:.6}, "));
        let time = found
            .latency_ms
            .map_or_else(String::new, |time| format!("{:.2} ms [{:.2}, {:.2}], ", time.median, time.low, time.high));
        output::text(&format!("{time}{loss}{} tokens; results in {}", grouped(found.tokens as u64), found.out))
    }
}
