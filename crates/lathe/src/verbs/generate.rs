//! `lathe generate`: text from a model folder.

use super::Action;
use crate::output;
use anyhow::Result;
use clap::Parser;
use lathe_job::generate::{Request, Writer};
use lathe_model::REGISTRY;
use lathe_ops::Precision;
use lathe_ops::attention::KeptAs;
use lathe_train::generate::Sampling;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::PathBuf;

/// Let a model folder continue a text
#[derive(Parser)]
#[command(
    name = "generate",
    after_help = "\
The text appears as it comes.

Examples:
  lathe generate mine --prompt \"Once upon a time\" --tokens 200
  lathe generate storyteller --prompt \"This is the story of\"
  lathe generate mine --prompt \"The capital of\" --tokens 20 --temperature 0
  lathe generate SmolLM2-135M.gguf --prompt \"The capital of\""
)]
pub struct Generate {
    /// Model folder (config.json, model.safetensors, tokenizer.json; bytes without one), GGUF file or storyteller
    folder: PathBuf,
    /// Text to continue [default: a new line]
    #[arg(long, default_value = "")]
    prompt: String,
    /// Tokens to write
    #[arg(long, value_name = "N", default_value_t = 200)]
    tokens: u32,
    /// How freely to choose: 1 as the model says, towards 0 ever more the likeliest, 0 always the likeliest token
    #[arg(long, default_value_t = 0.8)]
    temperature: f64,
    /// Choose among the K likeliest tokens; 0 for all
    #[arg(long, value_name = "K", default_value_t = 0)]
    top_k: usize,
    /// Choose among the likeliest tokens that have this probability together
    #[arg(long, value_name = "P", default_value_t = 1.0)]
    top_p: f64,
    /// Make tokens that were there before less likely by this factor
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    repetition_penalty: f64,
    /// Seed of the choices
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Precision of products: f32 or bf16
    #[arg(long, default_value_t = Precision::F32)]
    precision: Precision,
    /// What keys and values of the tokens before are kept as: f32, bf16 or int8
    #[arg(long, default_value_t, value_name = "KIND")]
    cache: KeptAs,
}

impl Action for Generate {
    fn run(self, json: bool) -> Result<()> {
        let sampling = Sampling {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            repetition_penalty: self.repetition_penalty,
            seed: self.seed,
        };
        let (tokens, precision, cache) = (self.tokens, self.precision, self.cache);
        let request = Request { folder: self.folder, prompt: self.prompt, tokens, sampling, precision, cache };
        let writer = Writer::open(&request, &REGISTRY)?;
        if json {
            return output::json(&writer.write(&mut |_| ControlFlow::Continue(())));
        }
        let mut out = std::io::stdout().lock();
        write!(out, "{}", request.prompt)?;
        let mut written = Ok(());
        let found = writer.write(&mut |piece| {
            written = out.write_all(piece.as_bytes()).and_then(|()| out.flush());
            if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        written?;
        writeln!(out)?;
        output::tell(format_args!("{tokens} tokens, {:.0} tokens/s", found.tokens_per_s));
        Ok(())
    }
}
