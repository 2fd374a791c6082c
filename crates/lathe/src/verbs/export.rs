//! `lathe export`: a trained model for other programs.

use super::Action;
use crate::output::{self, grouped};
use crate::screen;
use anyhow::Result;
use clap::{Parser, ValueEnum};
use lathe_job::export::{self, Format, Outcome, Request};
use std::path::PathBuf;

/// Write a model for llama.cpp (GGUF), ONNX Runtime (onnx) or transformers (hf)
#[derive(Parser)]
#[command(
    name = "export",
    after_help = "\
  gguf   one file for llama.cpp, with tokenizer and chat template inside. GPT-2 and Llama (Mistral, Qwen2, Qwen3). A Llama
         whose layers differ, as prune and optimize make them, becomes the architecture `deci`: heads and inner widths of
         each layer, layers without attention. Integers of `lathe quantize` keep their codes: int8 is Q8_0, int4 is Q4_0
  hf     a folder that transformers loads, where it has such a stack; integers become f32
  onnx   a folder with model.onnx, config.json and the tokenizer, of any stack of attention, feed-forwards, experts and thin
         matrices, decoders and encoders. --cache: a decoder that takes past_key_values and gives present, for generation.
         Integers of `lathe quantize` keep their codes: MatMulInteger for int8, MatMulNBits for int4 and groups

What the other program cannot say is refused, with the reason. What is written is read back and must compute what the model
computes, activations in f32, before it gets its name; nothing is overwritten. `parity` tells how far its outputs are from
those of the model on a text that the model writes: nothing but the order of sums, unless --type rounds.

Examples:
  lathe export mine --format gguf --out mine.gguf
  lathe export mine --format gguf --type q8_0 --out mine-q8_0.gguf
  lathe export mine-int4 --format gguf --out mine-int4.gguf
  lathe export mine --format hf --type bf16 --out mine-hf
  lathe export mine-int8 --format onnx --cache --out mine-onnx"
)]
pub struct Export {
    /// Model folder or GGUF file
    folder: PathBuf,
    /// For whom
    #[arg(long, value_enum)]
    format: Formats,
    /// What matrices are written as: f32, f16, bf16, and in GGUF q8_0, q4_0, q4_1 [default: what fits their storage]
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// A decoder with inputs and outputs for keys and values of earlier tokens (onnx)
    #[arg(long)]
    cache: bool,
    /// Where: a new file (gguf) or a new folder (hf, onnx)
    #[arg(long, value_name = "PATH")]
    out: PathBuf,
}

#[derive(Clone, Copy, ValueEnum)]
enum Formats {
    /// A file for llama.cpp
    Gguf,
    /// A folder for transformers
    Hf,
    /// A folder for ONNX Runtime
    Onnx,
}

impl Action for Export {
    fn run(self, json: bool) -> Result<()> {
        let format = match self.format {
            Formats::Gguf => Format::Gguf,
            Formats::Hf => Format::Hf,
            Formats::Onnx => Format::Onnx,
        };
        let Self { folder, kind, cache, out, .. } = self;
        let request = Request { folder, format, kind, cache, out };
        let outcome = screen::job(|context, watch| export::run(context, &request, watch))?;
        if json {
            return output::json(&outcome);
        }
        output::text(&told(&outcome))
    }
}

fn told(outcome: &Outcome) -> String {
    let tensors: Vec<String> = outcome.tensors.iter().map(|(name, count)| format!("{count} {name}")).collect();
    let parity = outcome.parity;
    let kl = parity.kl.map_or_else(String::new, |kl| format!(", KL {kl:.1e} nats per token"));
    let same =
        parity.same_top.map_or_else(String::new, |same| format!(", the same top token in {:.1} %", 100.0 * same));
    format!(
        "{}: {}, {} bytes; tensors: {}\nread back, {} tokens: outputs differ by at most {:.1e}{kl}{same}\n",
        outcome.path,
        outcome.architecture,
        grouped(outcome.bytes),
        tensors.join(", "),
        parity.tokens,
        parity.max_abs,
    )
}
