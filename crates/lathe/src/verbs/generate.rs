//! `lathe generate`: text from a model folder.

use super::Action;
use crate::input::Usage;
use crate::output;
use anyhow::Result;
use clap::Parser;
use lathe_model::folder;
use lathe_ops::Precision;
use lathe_train::data::Tokenizer;
use lathe_train::generate::{Generator, Sampling};
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

/// Let a model folder continue a text
#[derive(Parser)]
#[command(
    name = "generate",
    after_help = "\
The text appears as it comes.

Examples:
  lathe generate mine --prompt \"Once upon a time\" --tokens 200
  lathe generate mine --prompt \"The capital of\" --tokens 20 --temperature 0"
)]
pub struct Generate {
    /// Model folder: config.json, model.safetensors and tokenizer.json (bytes without one)
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
}

#[derive(Serialize)]
struct Document {
    text: String,
    tokens_per_s: f64,
}

impl Action for Generate {
    fn run(self, json: bool) -> Result<()> {
        let sampling = self.sampling()?;
        let mut network = folder::load(&self.folder)?;
        let tokenizer = Tokenizer::load(&self.folder)?;
        super::check_tokenizer(&tokenizer, &network.model, &self.folder)?;
        network.set_precision(self.precision);
        network.freeze();
        let prompt = if self.prompt.is_empty() { "\n" } else { &self.prompt };
        let ids = tokenizer.encode(prompt)?;
        if ids.is_empty() {
            return Err(Usage("--prompt: found no token in it; expected a text that the tokenizer knows".into()).into());
        }
        let mut generator = Generator::new(&network, &ids, sampling);
        let mut decoder = tokenizer.decoder();
        ids.iter().for_each(|&id| drop(decoder.push(id))); // what comes may depend on what was
        let mut text = String::new();
        let mut out = std::io::stdout().lock();
        if !json {
            write!(out, "{}", self.prompt)?;
        }
        let start = Instant::now();
        let mut seconds = 0.0;
        for i in 0..self.tokens {
            let piece = decoder.push(generator.next_token());
            if i + 1 == self.tokens {
                seconds = start.elapsed().as_secs_f64();
            }
            if let Some(piece) = piece {
                if !json {
                    write!(out, "{piece}")?;
                    out.flush()?;
                }
                text.push_str(&piece);
            }
        }
        let rest = decoder.finish().unwrap_or_default();
        text.push_str(&rest);
        let tokens_per_s = if self.tokens > 0 { f64::from(self.tokens) / seconds } else { 0.0 };
        if json {
            drop(out);
            return output::json(&Document { text, tokens_per_s });
        }
        writeln!(out, "{rest}")?;
        output::tell(format_args!("{} tokens, {tokens_per_s:.0} tokens/s", self.tokens));
        Ok(())
    }
}

impl Generate {
    fn sampling(&self) -> Result<Sampling> {
        let within = |flag: &str, value: f64, expected: &str, good: bool| match good {
            true => Ok(()),
            false => Err(Usage(format!("--{flag}: found {value}; expected {expected}"))),
        };
        let t = self.temperature;
        within("temperature", t, "a finite number of at least 0", t.is_finite() && t >= 0.0)?;
        let p = self.top_p;
        within("top-p", p, "a number above 0 and at most 1", p > 0.0 && p <= 1.0)?;
        let r = self.repetition_penalty;
        within("repetition-penalty", r, "a finite number above 0", r.is_finite() && r > 0.0)?;
        Ok(Sampling { temperature: t, top_k: self.top_k, top_p: p, repetition_penalty: r, seed: self.seed })
    }
}
