//! `lathe eval`: how well a model folder predicts a text.

use super::Action;
use super::train::kinds;
use crate::input::Usage;
use crate::output::{self, BOLD, grouped};
use crate::progress::Progress;
use anyhow::{Context, Result};
use clap::Parser;
use lathe_core::Positions;
use lathe_core::model::key;
use lathe_model::{REGISTRY, folder};
use lathe_ops::Precision;
use lathe_train::data::{self, Tokenizer};
use lathe_train::evaluate::{Options, evaluate};
use lathe_train::texts::language_of;
use std::cell::RefCell;
use std::path::PathBuf;

/// Measure how well a model folder predicts a text
#[derive(Parser)]
#[command(
    name = "eval",
    after_help = "\
The text is cut into windows of tgt_len tokens, through which a transformer_xl carries its memory (gpt2: of max_len, each
by itself unless --context lets it see the end of the one before). Every token but the first is scored once.

Examples:
  lathe eval mine --data test.txt
  lathe eval mine --data enwik8.gz --tgt-len 128 --mem-len 2052 --clamp-len 820"
)]
pub struct Eval {
    /// Model folder: config.json, model.safetensors and tokenizer.json (bytes without one)
    folder: PathBuf,
    /// Text: a file, a folder, either with .gz, or builtin, builtin:MB or builtin:MB:SEED
    #[arg(long, value_name = "FILE")]
    data: String,
    /// gpt2: tokens that a window shares with the one before
    #[arg(long, value_name = "N", default_value_t = 0)]
    context: u32,
    /// transformer_xl: tokens of a window [default: the model's]
    #[arg(long, value_name = "N")]
    tgt_len: Option<u32>,
    /// transformer_xl: tokens remembered before a window [default: the model's]
    #[arg(long, value_name = "N")]
    mem_len: Option<u32>,
    /// transformer_xl: distances beyond it count as it [default: the model's]
    #[arg(long, value_name = "N")]
    clamp_len: Option<u32>,
    /// Precision of products: f32 or bf16
    #[arg(long, default_value_t = Precision::F32)]
    precision: Precision,
}

impl Action for Eval {
    fn run(self, json: bool) -> Result<()> {
        let mut spec = folder::load_model(&self.folder)?.spec();
        let lengths = [("tgt_len", self.tgt_len), ("mem_len", self.mem_len), ("clamp_len", self.clamp_len)];
        for (name, value) in lengths {
            let key = key(name).expect("a key of the model file");
            if let Some(value) = value {
                spec.set(key, key.parse(&value.to_string()).context("flags")?);
            }
        }
        let model = spec.model(&REGISTRY)?;
        let relative = model.frame.backbone.positions == Positions::Relative;
        if relative && self.context > 0 {
            return Err(Usage(
                "--context: found it for a transformer_xl, whose memory is its context; expected --mem-len".into(),
            )
            .into());
        }
        if !relative && self.context >= model.frame.max_len {
            let expected = format!("less than max_len, which is {}", model.frame.max_len);
            return Err(Usage(format!("--context: found {}; expected {expected}", self.context)).into());
        }
        let tokenizer = Tokenizer::load(&self.folder)?;
        super::check_tokenizer(&tokenizer, &model, &self.folder)?;
        let bar = RefCell::new(Progress::default());
        let aside = tempfile::tempdir().context("a folder for tokens")?;
        let progress = |what: &str, done, total| bar.borrow_mut().bytes(what, done, total);
        let tokens = data::encode_source(&self.data, &tokenizer, &aside.path().join("tokens"), &progress)?;
        if tokens.len() < 2 {
            anyhow::bail!(
                "{}: found {} tokens; expected at least 2, for the first is not scored",
                self.data,
                tokens.len()
            );
        }
        let mut network = folder::load_as(&self.folder, model)?;
        network.set_precision(self.precision);
        if let Some(warning) = self.precision.warning() {
            output::tell(format_args!("warning: {warning}"));
        }
        network.freeze();
        let language = language_of(&self.data, &tokenizer);
        let options = Options { context: self.context as usize, limit: 0, language: language.as_ref() };
        let evaluation = evaluate(&network, &tokens, &options, &mut |done, total| {
            bar.borrow_mut().steps("evaluating", "", done, total);
        })?;
        bar.borrow_mut().finish();
        if json {
            return output::json(&evaluation);
        }
        output::text(&format!(
            "{}{:.4} bits/byte{}, perplexity {:.3}, loss {:.5} over {} tokens\n{}",
            BOLD.render(),
            evaluation.bits_per_byte,
            BOLD.render_reset(),
            evaluation.perplexity,
            evaluation.loss,
            grouped(evaluation.tokens),
            kinds(&evaluation),
        ))
    }
}
