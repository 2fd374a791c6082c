//! `lathe compare`: two models side by side.

use super::Action;
use super::optimize::command;
use crate::output::{self, BOLD, DIM, Table, bytes, grouped};
use crate::screen;
use crate::workload::WorkloadArgs;
use anyhow::Result;
use clap::Parser;
use lathe_job::compare::models::{self, Outcome, Request, Two};
use std::path::PathBuf;

/// Compare two models: speed, memory, and how well and how alike they predict a text
#[derive(Parser)]
#[command(
    name = "compare",
    after_help = "\
Latencies are those of one pass of each in turn, so that whatever else the machine does hits both; the modes are those
of `lathe bench`. Peak memory is that of a process for each. speedup and memory_ratio are A's over B's: above 1, B is the
faster or the smaller one.

With --data both predict the same text, each by its own tokens: compare bits_per_byte wherever these differ. kl is
KL(p || q) in nats per token, p of A and q of B: how much worse than A itself B tells what A would say. It and same_top,
the share of places with the same most probable token, are there where one vocabulary holds all tokens of the other, over
the tokens that both have. Windows are of the shorter max_len, at most 2048 tokens unless --window says so.

Examples:
  lathe compare mine faster --data test.txt
  lathe compare mine mine_int8 --data test.txt --mode decode --seq 64 --page compared.html
  lathe compare gpt2_small gpt2_medium --mode prompt --seq 512 --precision bf16"
)]
pub struct Compare {
    /// Model folder, model file (TOML) or shipped name; without weights it gets random ones
    a: String,
    /// The other one
    b: String,
    /// Text that both predict: a file, a folder, either with .gz, or builtin, builtin:MB or builtin:MB:SEED
    #[arg(long, value_name = "FILE")]
    data: Option<String>,
    /// Score documents one by one: those between lines `<|endoftext|>`, or else between blank lines
    #[arg(long, requires = "data")]
    documents: bool,
    /// Without a memory: tokens of a window of the text
    #[arg(long, value_name = "N", requires = "data", value_parser = clap::value_parser!(u32).range(1..))]
    window: Option<u32>,
    #[command(flatten)]
    workload: WorkloadArgs,
    /// How long to measure both
    #[arg(long, default_value_t = 8.0, value_name = "SECONDS")]
    seconds: f64,
    /// Seed of tokens, and of weights where there are none
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Also write a page to look at
    #[arg(long, value_name = "FILE.html")]
    page: Option<PathBuf>,
}

impl Action for Compare {
    fn run(self, json: bool) -> Result<()> {
        let workload = self.workload.workload();
        let Self { a, b, data, documents, window, seconds, seed, page, .. } = self;
        let command = command();
        let models = [a, b];
        let request = Request { models, data, documents, window, workload, seconds, seed, page, command };
        let found = screen::job(|context, watch| models::run(context, &request, watch))?;
        if json {
            return output::json(&found);
        }
        output::text(&shown(&found))
    }
}

/// A table, and what it means in a line.
fn shown(found: &Outcome) -> String {
    let mut table = Table::new(&["", "A", "B", "A / B"], 1);
    let ratio = |a: f64, b: f64| format!("{:.3}", a / b);
    let mut row = |name: &str, two: [Option<f64>; 2], text: &dyn Fn(f64) -> String| {
        if let [Some(a), Some(b)] = two {
            table.row([name.into(), text(a), text(b), ratio(a, b)]);
        }
    };
    let whole = |two: &Two<Option<u64>>| [two.a, two.b].map(|n| n.map(|n| n as f64));
    let size = |n: f64| bytes(n as u128);
    let [low, high] = found.speedup_interval;
    row("latency", [found.latency_ms.a, found.latency_ms.b].map(Some), &|ms| format!("{ms:.2} ms"));
    row("peak memory", whole(&found.peak_bytes), &size);
    row("on disk", whole(&found.bytes), &size);
    row("parameters", [found.params.a, found.params.b].map(|n| Some(n as f64)), &|n| grouped(n as u64));
    row("bits/byte", [found.bits_per_byte.a, found.bits_per_byte.b], &|x| format!("{x:.4}"));
    row("loss", [found.loss.a, found.loss.b], &|x| format!("{x:.4}"));
    row("tokens", whole(&found.tokens), &|n| grouped(n as u64));
    let (dim, plain) = (DIM.render(), DIM.render_reset());
    let mut text = format!(
        "A  {}  {dim}{}{plain}\nB  {}  {dim}{}{plain}\n\n{table}\n{}B is {:.2} times as fast as A{} \
         {dim}[{low:.2}, {high:.2}], {} passes of each in turn{plain}\n",
        found.models.a,
        found.layers.a,
        found.models.b,
        found.layers.b,
        BOLD.render(),
        found.speedup,
        BOLD.render_reset(),
        found.passes,
    );
    if let (Some(kl), Some(same)) = (&found.kl, found.same_top) {
        text.push_str(&format!(
            "kl of B from A {:.6} nats per token (median {:.6}, 99 % {:.5}, 99.9 % {:.5}), same top token {:.2} %\n",
            kl.mean,
            kl.p50,
            kl.p99,
            kl.p999,
            100.0 * same
        ));
    }
    let Outcome { threads, cpu, instructions, precision, batch, seq, mode, .. } = found;
    let mode = mode.name();
    text.push_str(&format!(
        "{dim}{mode}, batch {batch}, {seq} tokens; {threads} threads, {cpu} ({instructions}, {precision}){plain}"
    ));
    text
}
