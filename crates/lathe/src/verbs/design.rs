//! `lathe design`: stacks by rule, without a search.

use super::Action;
use crate::output;
use anyhow::Result;
use clap::{Parser, Subcommand};
use lathe_core::notation;
use lathe_model::{REGISTRY, design};
use serde::Serialize;

/// Design a stack by rule, without a search
#[derive(Parser)]
#[command(
    name = "design",
    after_help = "\
Examples:
  lathe design par --blocks 24 --p 5         # (sff)x5 (f)x9
  lathe design par --blocks 32 --p 5 --every 4   # (sfff)x6 (f)x8, par_base
  lathe design sandwich --blocks 32 --k 6    # (s)x6 (sf)x10 (f)x6
  lathe design scaled --backbone gpt2 --layers 4"
)]
pub struct Design {
    #[command(subcommand)]
    rule: Rule,
}

#[derive(Subcommand)]
enum Rule {
    /// PAR: one block in p is attention, spread over the first two thirds
    Par {
        /// Blocks of the stack
        #[arg(long)]
        blocks: usize,
        /// Blocks per attention block
        #[arg(long, default_value_t = 5.0)]
        p: f64,
        /// Attention at every N-th place, as in the stacks that the paper prints (par_base: 4) [default: evenly over two thirds]
        #[arg(long, value_name = "N")]
        every: Option<usize>,
    },
    /// Sandwich: k attention blocks, interleaved blocks, k feed-forward blocks
    Sandwich {
        /// Blocks of the stack
        #[arg(long)]
        blocks: usize,
        /// Sandwich coefficient
        #[arg(long)]
        k: usize,
    },
    /// Layer-scaled baseline: N layers of the family's usual widths
    Scaled {
        /// transformer_xl (512 wide, 8 heads, inner 2048) or gpt2 (768, 12, 3072)
        #[arg(long)]
        backbone: String,
        /// Layers, of an attention and a feed-forward block each
        #[arg(long)]
        layers: usize,
        /// The widths that LTS prints: its GPT-2 is 1024 wide, with 12 heads
        #[arg(long)]
        as_printed: bool,
    },
}

#[derive(Serialize)]
struct DesignReport {
    layers: String,
    #[serde(flatten)]
    widths: Option<Widths>,
}

#[derive(Serialize)]
struct Widths {
    d_model: u32,
    heads: u32,
    inner: u32,
}

impl Action for Design {
    fn run(self, json: bool) -> Result<()> {
        let (stack, widths) = match self.rule {
            Rule::Par { blocks, p, every } => (design::par(blocks, p, every)?, None),
            Rule::Sandwich { blocks, k } => (design::sandwich(blocks, k)?, None),
            Rule::Scaled { backbone, layers, as_printed } => {
                let design::Scaled { layers, d_model, heads, inner } =
                    design::scaled(&backbone, layers, as_printed, &REGISTRY)?;
                (layers, Some(Widths { d_model, heads, inner }))
            }
        };
        let layers = notation::print(&notation::parse(&stack, &REGISTRY)?);
        if json {
            return output::json(&DesignReport { layers, widths });
        }
        let widths = widths.map(|w| format!("\nd_model {}, heads {}, inner {}", w.d_model, w.heads, w.inner));
        output::text(&format!("{layers}{}", widths.unwrap_or_default()))
    }
}
