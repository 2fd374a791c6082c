//! `lathe eval`: how well a model folder predicts a text.

use super::Action;
use super::train::kinds;
use crate::output::{self, BOLD, grouped};
use crate::screen;
use anyhow::Result;
use clap::Parser;
use lathe_job::choices;
use lathe_job::evaluate::{self, Request, Suite};
use lathe_ops::Precision;
use lathe_train::divergence::{Divergence, Spread};
use std::path::PathBuf;

/// Measure how well a model folder predicts a text
#[derive(Parser)]
#[command(
    name = "eval",
    after_help = "\
The text is cut into windows: of tgt_len tokens, through which a model with a memory carries it; else of max_len, each by
itself unless --context lets it see the end of the one before. Every token but the first is scored once. With --documents
each document is scored by itself, after the token that texts begin with, up to max_len tokens. An encoder tells masked
tokens, 15 % of all, always the same.

With --against both models are given the same windows, those of DIR, and their predictions are compared at every token
that is scored: kl is KL(p || q) in nats per token, p of the model it is compared with (DIR2), q of the one that is
evaluated (DIR): mean, median, 99 % and 99.9 %. same_top is the share of tokens where both
have the same most probable one.

With --task choices the data has a JSON object in each line: a query with choices, contexts of which one fits the
continuation, a context with its last words, or the columns of a data set that lm-eval knows (HellaSwag, PIQA, ARC,
OpenBookQA, WinoGrande, BoolQ, CB, COPA, WiC, WSC, MultiRC, RTE, ReCoRD, LAMBADA), and is put as lm-eval puts it. The choice
counts whose log-probabilities have the highest sum, or (accuracy_norm) the highest per byte.

Examples:
  lathe eval mine --data test.txt
  lathe eval storyteller --data builtin:1:1    # the model that ships with its weights
  lathe eval stories15M --data stories.txt --documents
  lathe eval SmolLM2-135M.gguf --data test.txt
  lathe eval my_bert --task masked_lm --data test.txt
  lathe eval stories15M --task choices --data copa.jsonl --shots 1
  lathe eval my_mrpc --task glue:MRPC --data GLUE    # the folder with MRPC in it, or MRPC itself
  lathe eval runs --task glue --data GLUE            # runs/CoLA, runs/SST-2 and so on, and their mean score
  lathe eval minilm --task embed --data STS-B/dev.tsv
  lathe eval mine_int8 --data test.txt --against mine
  lathe eval mine --data enwik8.gz --tgt-len 128 --mem-len 2052 --clamp-len 820"
)]
pub struct Eval {
    /// Model folder (config.json, model.safetensors, tokenizer.json; bytes without one), GGUF file or storyteller
    folder: PathBuf,
    /// Text: a file, a folder, either with .gz, or builtin, builtin:MB or builtin:MB:SEED
    #[arg(long, value_name = "FILE")]
    data: String,
    /// Without a memory: tokens that a window shares with the one before
    #[arg(long, value_name = "N", default_value_t = 0)]
    context: u32,
    /// Without a memory: tokens of a window, fewer than max_len [default: max_len]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    window: Option<u32>,
    /// With a memory: tokens of a window [default: the model's]
    #[arg(long, value_name = "N")]
    tgt_len: Option<u32>,
    /// With a memory: tokens remembered before a window [default: the model's]
    #[arg(long, value_name = "N")]
    mem_len: Option<u32>,
    /// With a memory: distances beyond it count as it [default: the model's]
    #[arg(long, value_name = "N")]
    clamp_len: Option<u32>,
    /// Precision of products: f32 or bf16
    #[arg(long, default_value_t = Precision::F32)]
    precision: Precision,
    /// What to evaluate for: causal_lm, masked_lm, masked_words, classify, regress, choose, span, embed, choices, or glue:NAME,
    /// superglue:NAME, squad [default: what the model is for]
    #[arg(long, default_value = "", hide_default_value = true)]
    task: String,
    /// With examples: their columns of texts and label, as sentence1,sentence2,label [default: the usual names]
    #[arg(long, default_value = "", hide_default_value = true)]
    columns: String,
    /// With embed: what an embedding is, the mean of a text's tokens, or cls, the first [default: the model's]
    #[arg(long, value_parser = ["mean", "cls"])]
    pooling: Option<String>,
    /// Score documents one by one: those between lines `<|endoftext|>`, or else between blank lines
    #[arg(long)]
    documents: bool,
    /// Another model folder: how far the predictions are from its, in nats per token
    #[arg(long, value_name = "DIR2")]
    against: Option<PathBuf>,
    /// Choices: other examples of the file, with their answers, before each
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1))]
    shots: u32,
    /// Choices: which examples are shown
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u32,
    /// Choices: what the examples look like [default: what their columns say]
    #[arg(long, default_value = "", hide_default_value = true)]
    form: String,
}

impl Action for Eval {
    fn run(self, json: bool) -> Result<()> {
        let Self { folder, data, context, window, tgt_len, mem_len, clamp_len, .. } = self;
        let Self { precision, task, columns, pooling, documents, against, shots, seed, form, .. } = self;
        let lengths = Request { context, window, tgt_len, mem_len, clamp_len, ..Request::default() };
        let request = Request { folder, data, precision, task, columns, pooling, documents, against, ..lengths };
        let asked = choices::Request { model: request, form, shots, seed };
        if asked.is_meant()? {
            return ask(&asked, json);
        }
        let request = asked.model;
        if let Some(found) = screen::job(|context, watch| evaluate::suite(context.registry, &request, watch))? {
            return if json { output::json(&found) } else { output::text(&suite(&found)) };
        }
        let found = screen::job(|context, watch| evaluate::run(context.registry, &request, watch))?;
        if json {
            return output::json(&found);
        }
        let evaluation = &found.evaluation;
        if let Some(examples) = evaluation.examples {
            let files = found.files.iter().map(|of| format!("\n{}: {}", of.file, screen::metrics(&of.evaluation)));
            let (metrics, files) = (screen::metrics(evaluation), files.collect::<String>());
            let (bold, plain) = (BOLD.render(), BOLD.render_reset());
            return output::text(&format!("{bold}{metrics}{plain} over {} examples{files}", grouped(examples)));
        }
        output::text(&format!(
            "{}{:.4} bits/byte{}, perplexity {:.3}, loss {:.5} over {} tokens{}{}{}\n{}",
            BOLD.render(),
            evaluation.bits_per_byte,
            BOLD.render_reset(),
            evaluation.perplexity,
            evaluation.loss,
            grouped(evaluation.tokens),
            evaluation.accuracy.map_or_else(String::new, |share| format!(", {:.1} % of them told", 100.0 * share)),
            evaluation.scores.iter().map(|(name, value)| format!(", {name} {value:.4}")).collect::<String>(),
            found.divergence.as_ref().map_or_else(String::new, divergence),
            kinds(evaluation),
        ))
    }
}

/// Choices instead of a text.
fn ask(request: &choices::Request, json: bool) -> Result<()> {
    let found = screen::job(|context, watch| choices::run(context.registry, request, watch))?;
    if json {
        return output::json(&found);
    }
    let percent = |share: f64| format!("{:.2} %", 100.0 * share);
    let norm = found.accuracy_norm.map_or_else(String::new, |share| format!(", {} per byte", percent(share)));
    let perplexity = found.perplexity.map_or_else(String::new, |perplexity| format!(", perplexity {perplexity:.3}"));
    let truncated = match found.truncated {
        0 => String::new(),
        count => format!("\n{} of them were too long for the model and lost their beginning", grouped(count as u64)),
    };
    output::text(&format!(
        "{}accuracy {}{}{norm}{perplexity}, of {} examples ({}, {}-shot){truncated}",
        BOLD.render(),
        percent(found.accuracy),
        BOLD.render_reset(),
        grouped(found.examples as u64),
        found.form,
        found.shots,
    ))
}

/// The score of a suite, and each of its tasks.
fn suite(found: &Suite) -> String {
    let missing = match found.missing.as_slice() {
        [] => String::new(),
        missing => format!("\nno model for {}", missing.join(", ")),
    };
    let tasks = found.tasks.iter().map(|(name, of)| format!("\n{name}: {}", screen::metrics(&of.evaluation)));
    let (bold, plain, tasks) = (BOLD.render(), BOLD.render_reset(), tasks.collect::<String>());
    format!("{bold}score {:.4}{plain} over {} tasks{tasks}{missing}", found.score, found.tasks.len())
}

/// A divergence in a line.
fn divergence(found: &Divergence) -> String {
    let Spread { mean, p50, p99, p999 } = found.kl;
    format!(
        "\nkl {mean:.6} nats per token (median {p50:.6}, 99 % {p99:.5}, 99.9 % {p999:.5}), same top token {:.2} %",
        100.0 * found.same_top
    )
}
