//! `lathe quantize`: a trained model with weights of fewer bits.

use super::Action;
use crate::output::{self, BOLD, grouped};
use crate::screen;
use anyhow::{Result, bail};
use clap::{Parser, ValueEnum};
use lathe_job::held_out::TextRequest;
use lathe_job::quantize::{self, Bits, Outcome, Request};
use lathe_model::quantize::Range;
use lathe_ops::integers::Activations;
use std::path::PathBuf;

/// Round the weights of a model folder to 8, 6 or 4 bits
#[derive(Parser)]
#[command(
    name = "quantize",
    after_help = "\
Weights become integers with a scale for each output (8 bits) or for each group of 32 inputs (6 and 4 bits). With --data, the
last tenth of the text is held out to tell what it costs, and the rest is looked at: from the bottom up, each matrix is
rounded so that its outputs for that text stay, where later weights make up for the errors of earlier ones (GPTQ). Activations
are rounded to 8 bits as they enter a product, but for those of matrices that bear it badly. In the end the model and what was
made of it are measured side by side on this machine.

With --tune, scales alone are trained to make the output probabilities those of the original again; it takes minutes and
helps 4 bits most. What was killed goes on with the same command.

Examples:
  lathe quantize stories15M --bits 8 --data stories.txt --documents --out stories-int8
  lathe quantize mine --bits 4 --output-bits 8 --data my.txt --tune 200 --out mine-int4
  lathe quantize mine --bits 4 --slots 0-1=8,11=none --data my.txt --out mixed
  lathe quantize mine --bits 8 --activations none --out weights-alone"
)]
pub struct Quantize {
    /// Model folder
    folder: PathBuf,
    /// Bits of a weight: 8, 6 or 4
    #[arg(long)]
    bits: u32,
    /// Inputs that share a scale: 16, 32, 64, 128, or 0 for all of a row [default: 0 for 8 bits, 32 else]
    #[arg(long, value_name = "N")]
    group: Option<usize>,
    /// Give each group an offset beside its scale (asymmetric)
    #[arg(long)]
    offset: bool,
    /// Bits of embedding and output layer: 8, 6, 4, or none to leave them [default: 8]
    #[arg(long, value_name = "BITS", default_value = "8", hide_default_value = true)]
    output_bits: Bits,
    /// Bits of some slots of the stack, counted from 0: `0-1=8,11=none`
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    slots: Vec<String>,
    /// What enters products with integers
    #[arg(long, value_enum, default_value_t = Rounded::Int8)]
    activations: Rounded,
    /// Text to calibrate with and, its last tenth, to judge by: a file, a folder, or builtin
    #[arg(long, value_name = "FILE")]
    data: Option<String>,
    /// Cut the text into documents, as `eval --documents` does; every tenth is held out
    #[arg(long, requires = "data")]
    documents: bool,
    /// Tokens to calibrate with
    #[arg(long, value_name = "N", default_value_t = 16_384, requires = "data")]
    calibration: usize,
    /// How the range of a group of weights is found
    #[arg(long, value_enum, default_value_t = Ranges::LeastSquares)]
    range: Ranges,
    /// With `--range percentile`: the share of the weights that lies inside
    #[arg(long, value_name = "SHARE", default_value_t = 0.999)]
    percentile: f64,
    /// Round each weight by itself, without making up for errors
    #[arg(long)]
    no_compensation: bool,
    /// Steps in which scales are trained after rounding
    #[arg(long, value_name = "STEPS", default_value_t = 0, requires = "data")]
    tune: u32,
    /// Seed of the order in which tuning sees the text
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Folder of the result, new or empty
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Seconds to measure each mode for; 0 leaves it out
    #[arg(long, value_name = "S", default_value_t = 6.0)]
    seconds: f64,
}

#[derive(Clone, Copy, ValueEnum)]
enum Rounded {
    /// 8 bits, each row and group with its own scale, where that is good enough
    Int8,
    /// As they are
    None,
}

#[derive(Clone, Copy, ValueEnum)]
enum Ranges {
    /// From the least to the largest weight
    Minmax,
    /// Without the outermost weights, which are clipped
    Percentile,
    /// The range with the least squared error
    LeastSquares,
}

impl Action for Quantize {
    fn run(self, json: bool) -> Result<()> {
        if !(0.5..=1.0).contains(&self.percentile) {
            bail!(lathe_job::Error::setting("percentile", self.percentile, "a share from 0.5 to 1"));
        }
        let range = match self.range {
            Ranges::Minmax => Range::MinMax,
            Ranges::Percentile => Range::Percentile(self.percentile),
            Ranges::LeastSquares => Range::LeastSquares,
        };
        let activations = match self.activations {
            Rounded::Int8 => Activations::Int8,
            Rounded::None => Activations::Float,
        };
        let (documents, tokens) = (self.documents, self.calibration);
        let text = self.data.map(|data| TextRequest { data, documents, tokens, judged: 0 });
        let request = Request {
            folder: self.folder,
            bits: self.bits,
            group: self.group,
            offset: self.offset,
            output: self.output_bits,
            slots: self.slots,
            activations,
            text,
            range,
            compensate: !self.no_compensation,
            tune: self.tune,
            seed: self.seed,
            out: self.out,
            seconds: self.seconds,
        };
        let outcome = screen::job(|context, watch| quantize::run(context, &request, watch))?;
        if json {
            return output::json(&outcome);
        }
        output::text(&told(&outcome))
    }
}

fn told(outcome: &Outcome) -> String {
    let mut text = format!(
        "{}{:.3} of the bytes{} ({} instead of {})\n",
        BOLD.render(),
        outcome.bytes.after as f64 / outcome.bytes.before as f64,
        BOLD.render_reset(),
        grouped(outcome.bytes.after as u64),
        grouped(outcome.bytes.before as u64),
    );
    for measured in &outcome.measured {
        text += &format!(
            "{}: {:.2} times as fast [{:.2}, {:.2}], {:.2} ms instead of {:.2}\n",
            measured.what,
            measured.speedup,
            measured.speedup_interval[0],
            measured.speedup_interval[1],
            measured.latency_ms.after,
            measured.latency_ms.before,
        );
    }
    if let Some(loss) = outcome.loss {
        let percent = 100.0 * (loss.after / loss.before - 1.0);
        text += &format!("loss {:.5} instead of {:.5} ({percent:+.2} %)\n", loss.after, loss.before);
    }
    if !outcome.float_activations.is_empty() {
        let count = outcome.float_activations.len();
        text += &format!("activations of {count} matrices stay f32: rounding them costs most\n");
    }
    text + &format!("{}, {} threads; {}\n", outcome.cpu, outcome.threads, outcome.out)
}
