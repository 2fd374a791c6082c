//! `lathe prune`: a smaller model out of a trained one, and what that gained and cost.

use super::Action;
use crate::output::{self, BOLD, DIM, Table, bytes, grouped};
use crate::screen;
use crate::workload::WorkloadArgs;
use anyhow::Result;
use clap::{ArgGroup, Parser, ValueEnum};
use lathe_job::prune::{self, Asked, By, Change, Outcome, Request, What};
use std::path::PathBuf;

/// Take away what a model needs least, and measure what that gains and costs
#[derive(Parser)]
#[command(
    name = "prune",
    group = ArgGroup::new("what").args(["heads", "inner", "blocks", "magnitude", "vocab"]).required(true),
    after_help = "\
R is the share that is REMOVED: --heads 0.25 leaves three quarters of the heads. Heads and inner neurons go where they
matter least over all blocks, or with --evenly as many from each; one head (or one group of heads that share keys and
values) and 8 neurons stay in every block. A block that is removed leaves no gap. The result is an ordinary model.

--vocab drops tokens that the text never uses. The tokenizer goes on with the rest, down to bytes where it has them: any
text is still encoded, and text of kept tokens as before. Special tokens stay; ids change. A word of other texts whose token
is gone costs many bits: --expected 0.00017 keeps what the model itself expects beyond the text, by its predictions for
--samples sequences.

--magnitude makes the smallest weights of the blocks' matrices 0. That is smaller when compressed, not faster. With
--steps N weights go while the model trains (Zhu and Gupta, 2017). With --lottery K the model is trained K + 1 times
for N steps, each time with fewer of the weights that it began with: MODEL holds these initial weights, or is a model
file or shipped name, whose weights are drawn from --seed. `lathe train --steps 1 --lr 0` makes a folder of initial
weights.

The text is split: the first nine tenths choose what goes (and train), losses are measured on the last tenth, at most
--eval-bytes of it; with --valid all of the text chooses, and losses are measured on the other file. Latencies of both
models are measured side by side, in turn. What was killed goes on with the same command.

Examples:
  lathe prune stories15M --data stories.txt --documents --vocab --expected 0.00017 --samples 256 --out fewer_tokens
  lathe prune mine --data my.txt --heads 0.25 --out fewer_heads
  lathe prune mine --data my.txt --inner 0.5 --evenly --importance gradient --out narrower
  lathe prune mine --data my.txt --blocks 4 --iterative --out shallower
  lathe prune mine --data my.txt --magnitude 0.8 --steps 1000 --control --out sparse
  lathe prune small_gpt2 --data my.txt --magnitude 0.9 --lottery 5 --steps 1000 --out ticket"
)]
pub struct Prune {
    /// Model folder; with --lottery also a model file or a shipped name
    model: String,
    /// Text: a file, a folder, either with .gz, or builtin, builtin:MB or builtin:MB:SEED
    #[arg(long, value_name = "FILE")]
    data: String,
    /// Text to measure losses on [default: the last tenth of the data]
    #[arg(long, value_name = "FILE")]
    valid: Option<String>,
    /// Remove this share of the heads
    #[arg(long, value_name = "R", help_heading = "What goes")]
    heads: Option<f64>,
    /// Remove this share of the inner neurons of feed-forwards
    #[arg(long, value_name = "R", help_heading = "What goes")]
    inner: Option<f64>,
    /// Remove the N blocks that turn the hidden states least
    #[arg(long, value_name = "N", help_heading = "What goes")]
    blocks: Option<u32>,
    /// Make this share of the weights of the blocks' matrices 0
    #[arg(long, value_name = "R", help_heading = "What goes")]
    magnitude: Option<f64>,
    /// Remove the tokens that the text never uses
    #[arg(long, help_heading = "What goes")]
    vocab: bool,
    /// What says how important heads or neurons are [default: gradient for heads, activations for inner]
    #[arg(long, value_enum, value_name = "BY", help_heading = "How it is chosen")]
    importance: Option<Importance>,
    /// The same share of each block's heads or neurons, or of each matrix's weights
    #[arg(long, help_heading = "How it is chosen")]
    evenly: bool,
    /// Remove blocks one by one, and look again after each
    #[arg(long, help_heading = "How it is chosen")]
    iterative: bool,
    /// With --vocab: keep unused tokens that the model expects, until those that go have at most this share of its predictions
    #[arg(long, value_name = "SHARE", help_heading = "How it is chosen")]
    expected: Option<f64>,
    /// Sequences of the text to look at
    #[arg(long, value_name = "N", default_value_t = 64, help_heading = "How it is chosen")]
    samples: u32,
    /// Train for N steps while weights go; in each round of a lottery
    #[arg(long, value_name = "N", help_heading = "Training, with --magnitude")]
    steps: Option<u32>,
    /// Rounds of training, pruning and going back to the initial weights
    #[arg(long, value_name = "ROUNDS", help_heading = "Training, with --magnitude")]
    lottery: Option<u32>,
    /// Train what to compare with, too: the model without pruning, or the ticket's zeros with weights drawn anew
    #[arg(long, help_heading = "Training, with --magnitude")]
    control: bool,
    /// Highest learning rate [default: 0.0003; of a lottery 0.001]
    #[arg(long, help_heading = "Training, with --magnitude")]
    lr: Option<f64>,
    /// Sequences of a step
    #[arg(long, default_value_t = 16, value_name = "N", help_heading = "Training, with --magnitude",
        value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    train_batch: u32,
    /// Read the text document by document, each after the token that texts begin with
    #[arg(long, help_heading = "What is measured")]
    documents: bool,
    /// Bytes of text to measure losses on, at most; 0 for all
    #[arg(long, value_name = "N", default_value_t = 1 << 18, help_heading = "What is measured")]
    eval_bytes: u64,
    /// How long both models are measured side by side
    #[arg(long, default_value_t = 5.0, value_name = "SECONDS", help_heading = "What is measured")]
    seconds: f64,
    #[command(flatten)]
    workload: WorkloadArgs,
    /// Seed of all that is random
    #[arg(long, default_value_t = 0)]
    seed: u32,
    /// Folder of the smaller model
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// The names of [`By`].
#[derive(Clone, Copy, ValueEnum)]
enum Importance {
    /// The gradient of the loss for a gate on it (Michel et al., 2019)
    Gradient,
    /// How much it writes: mean |h| times the length of its output weights
    Activations,
    /// A draw from --seed, to compare with
    Random,
}

impl Action for Prune {
    fn run(self, json: bool) -> Result<()> {
        let what = match (self.heads, self.inner, self.blocks, self.magnitude) {
            (Some(share), ..) => What::Heads(share),
            (_, Some(share), ..) => What::Inner(share),
            (_, _, Some(count), _) => What::Blocks(count),
            (.., Some(share)) => What::Magnitude(share),
            _ => What::Vocab,
        };
        let importance = self.importance.map(|by| match by {
            Importance::Gradient => By::Gradient,
            Importance::Activations => By::Activations,
            Importance::Random => By::Random,
        });
        let asked = Asked {
            model: self.model,
            data: self.data,
            valid: self.valid,
            what,
            importance,
            evenly: self.evenly,
            iterative: self.iterative,
            samples: self.samples,
            expected: self.expected,
            documents: self.documents,
            eval_bytes: self.eval_bytes,
            workload: self.workload.workload(),
            seconds: self.seconds,
            steps: self.steps,
            lottery: self.lottery,
            control: self.control,
            lr: self.lr,
            train_batch: self.train_batch,
            seed: self.seed,
        };
        let request = Request { asked, out: self.out };
        let found = screen::job(|context, watch| prune::run(context, &request, watch))?;
        if json { output::json(&found) } else { output::text(&Shown(&found).to_string()) }
    }
}

/// What was found, for people.
struct Shown<'a>(&'a Outcome);

impl std::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let found = self.0;
        let mut rows = Table::new(&["", "before", "after", "change"], 1);
        let percent = |Change { before, after }: Change<f64>| format!("{:+.2} %", 100.0 * (after / before - 1.0));
        let mut row = |name: &str, both: Change<f64>, show: &dyn Fn(f64) -> String| {
            rows.row([name.into(), show(both.before), show(both.after), percent(both)]);
        };
        let whole = |Change { before, after }: Change<u64>| Change { before: before as f64, after: after as f64 };
        row("parameters", whole(found.params), &|n| grouped(n as u64));
        if let Some(vocab) = found.vocab {
            let both = Change { before: vocab.before.into(), after: vocab.after.into() };
            row(&format!("tokens ({} used)", grouped(vocab.used)), both, &|n| grouped(n as u64));
        }
        if let Some(both) = found.gzip_bytes {
            row("weights, gzipped", whole(both), &|n| bytes(n as u128));
        }
        if let Some((loss, bits)) = found.loss.zip(found.bits_per_byte) {
            row("loss, nats/token", loss, &|x| format!("{x:.4}"));
            row("bits/byte", bits, &|x| format!("{x:.4}"));
        }
        row("ms", found.latency_ms, &|x| format!("{x:.3}"));
        write!(f, "{rows}")?;
        for (number, round) in found.rounds.iter().enumerate() {
            let bits = round.bits_per_byte.map_or_else(|| "-".into(), |bits| format!("{bits:.4}"));
            writeln!(f, "round {number}: {:.1} % zeros, {bits} bits/byte", 100.0 * round.sparsity)?;
        }
        if let Some(control) = &found.control {
            writeln!(f, "{}: {:.4} bits/byte", control.what, control.bits_per_byte)?;
        }
        let [low, high] = found.speedup_interval;
        writeln!(
            f,
            "\n{:.1} % of the {} removed; {}{:.2} times as fast{} [{low:.2}, {high:.2}], measured side by side: {}",
            100.0 * found.share.reached,
            found.share.of,
            BOLD.render(),
            found.speedup,
            BOLD.render_reset(),
            found.workload,
        )?;
        if found.gzip_bytes.is_some() {
            writeln!(f, "zeros are computed with like other numbers: smaller when compressed, not faster")?;
        }
        writeln!(f, "{}{}{}", DIM.render(), found.layers, DIM.render_reset())?;
        writeln!(f, "{}{}, {} threads; {}{}", DIM.render(), found.cpu, found.threads, found.out, DIM.render_reset())
    }
}
