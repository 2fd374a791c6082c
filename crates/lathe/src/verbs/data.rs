//! `lathe data`: what a text is made of, and what a tokenizer makes of it.

use super::Action;
use crate::input::Usage;
use crate::output::{self, BOLD, DIM, Table, bytes, grouped};
use crate::progress::Progress;
use anyhow::{Context, Result};
use clap::Parser;
use lathe_train::data::{self, DataSpec, FileSummary, Header, Prepared, Sampler, Tokenizer, Tokens};
use serde::Serialize;
use std::cell::RefCell;
use std::fmt::Write;
use std::path::PathBuf;

/// Tokens that are listed.
const LISTED: usize = 12;
/// Files that are listed for people.
const FILES: usize = 8;

/// Show a text and its tokens: files, split, vocabulary, compression, what is frequent
#[derive(Parser)]
#[command(
    name = "data",
    after_help = "\
DATA is a text file, a folder of them (all files, in sorted order), either of them gzipped, or `builtin`: stories in
a made-up language, builtin:MEGABYTES:SEED as long as you like. Without --valid, the last tenth validates.

bytes     a token is a byte, 256 of them; takes any file
bpe:N     pieces of words, N of them, learnt from the text (byte-level BPE, as GPT-2's): any text comes back as it was
word:N    the N most frequent words, `<unk>` for the others, `<eos>` for the end of a line
FILE      a tokenizer.json, GPT-2's vocab.json with merges.txt beside it, or a GGUF file

A tokenizer is learnt from the training text alone. --out keeps it, with the tokens, for others to use.

Examples:
  lathe data builtin
  lathe data builtin:1 --tokenizer bpe:512
  lathe data book.txt --tokenizer word:10000 --json
  lathe data wiki/ --valid wiki-valid.txt.gz --tokenizer bpe:8192 --out wiki-tokens"
)]
pub struct Data {
    /// Text file, folder of text files, or builtin, builtin:MEGABYTES or builtin:MEGABYTES:SEED
    #[arg(value_name = "DATA")]
    data: String,
    /// The same, to validate on [default: the last tenth of DATA]
    #[arg(long, value_name = "FILE")]
    valid: Option<String>,
    /// bytes, bpe:N, word:N or a file
    #[arg(long, value_name = "T", default_value = "bytes")]
    tokenizer: String,
    /// Read it document by document, as masked_nsp and masked_sop do: `<|endoftext|>` lines end documents, else blank lines
    #[arg(long)]
    documents: bool,
    /// Tokens of a window or a segment
    #[arg(long, value_name = "T", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    seq: u32,
    /// Windows or streams of a batch
    #[arg(long, value_name = "B", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    batch: u32,
    /// Seed of the text, for builtin
    #[arg(long)]
    seed: Option<u64>,
    /// Folder to keep tokenizer.json, train.tokens and valid.tokens in
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

#[derive(Serialize)]
struct DataReport {
    files: Vec<FileSummary>,
    valid_files: Vec<FileSummary>,
    bytes: u64,
    tokenizer: String,
    vocab: u32,
    /// Bytes that the tokenizer was learnt from; 0 where it was not.
    trained_on_bytes: u64,
    train: Part,
    /// Nothing where there are not two tokens.
    valid: Option<Part>,
    frequent: Vec<Frequent>,
    /// Of the vocabulary, how many tokens the training text has.
    used: u32,
    examples: Vec<Example>,
    beginning: String,
    out: Option<String>,
}

#[derive(Serialize)]
struct Part {
    bytes: u64,
    characters: u64,
    tokens: u64,
    bytes_per_token: f64,
    unknown: u64,
    unknown_rate: f64,
    /// Batches that show all of it once; 0 where there is too little for one.
    window_steps: u64,
    stream_steps: u64,
}

#[derive(Serialize)]
struct Frequent {
    id: u32,
    token: String,
    count: u64,
    share: f64,
}

#[derive(Serialize)]
struct Example {
    id: u32,
    text: String,
}

impl Action for Data {
    fn run(self, json: bool) -> Result<()> {
        let spec = DataSpec {
            data: self.source()?,
            valid: self.valid.clone(),
            tokenizer: self.tokenizer.parse().context("--tokenizer")?,
            documents: self.documents,
        };
        // Without --out the tokens are for now alone, in a folder that goes with `kept`.
        let kept = match &self.out {
            Some(_) => None,
            None => Some(tempfile::tempdir().context("a folder for the tokens")?),
        };
        let dir = self.out.as_deref().or(kept.as_ref().map(tempfile::TempDir::path)).unwrap_or(".".as_ref());
        let progress = RefCell::new(Progress::default());
        let prepared = data::prepare(&spec, dir, &|what, done, total| progress.borrow_mut().bytes(what, done, total));
        progress.borrow_mut().finish();
        let document = self.document(&spec, &prepared?)?;
        if json {
            return output::json(&document);
        }
        output::text(&self.report(&document)?)
    }
}

impl Data {
    /// DATA with the seed.
    fn source(&self) -> Result<String> {
        let Some(seed) = self.seed else { return Ok(self.data.clone()) };
        match (self.data.as_str(), self.data.strip_prefix("builtin:")) {
            ("builtin", _) => Ok(format!("builtin:{}:{seed}", data::BUILTIN_MB)),
            (_, Some(size)) if !size.contains(':') => Ok(format!("builtin:{size}:{seed}")),
            _ => {
                Err(Usage(format!("--seed: found {seed}; expected it with builtin or builtin:MEGABYTES alone")).into())
            }
        }
    }

    fn part(&self, tokens: &Tokens) -> Part {
        let Header { bytes, characters, unknown, .. } = *tokens.header();
        let (count, batch, len) = (tokens.len(), self.batch as usize, self.seq as usize);
        let ratio = |a: u64| a as f64 / count.max(1) as f64;
        let steps = |sampler: lathe_train::Result<Sampler>| sampler.map_or(0, |sampler| sampler.steps_per_epoch());
        Part {
            bytes,
            characters,
            tokens: count,
            bytes_per_token: ratio(bytes),
            unknown,
            unknown_rate: ratio(unknown),
            window_steps: steps(Sampler::windows(tokens.clone(), batch, len, 0)),
            stream_steps: steps(Sampler::streams(tokens.clone(), batch, len)),
        }
    }

    fn document(&self, spec: &DataSpec, prepared: &Prepared) -> Result<DataReport> {
        let Prepared { tokenizer, train, valid, summary } = prepared;
        let counts = count(train)?;
        let mut order: Vec<u32> = (0..train.vocab()).filter(|&id| counts[id as usize] > 0).collect();
        order.sort_by_key(|&id| (std::cmp::Reverse(counts[id as usize]), id));
        let frequent = order.iter().take(LISTED).map(|&id| {
            let count = counts[id as usize];
            Frequent { id, token: name(tokenizer, id), count, share: count as f64 / train.len().max(1) as f64 }
        });
        let mut first = vec![0; train.len().min(LISTED as u64) as usize];
        train.read(0, &mut first)?;
        Ok(DataReport {
            bytes: summary.train_bytes + summary.valid_bytes,
            files: summary.files.clone(),
            valid_files: summary.valid_files.clone(),
            tokenizer: spec.tokenizer.to_string(),
            vocab: summary.vocab,
            trained_on_bytes: summary.trained_on_bytes,
            train: self.part(train),
            valid: valid.as_ref().map(|valid| self.part(valid)),
            frequent: frequent.collect(),
            used: order.len() as u32,
            examples: first.iter().map(|&id| Example { id, text: tokenizer.decode(&[id]) }).collect(),
            beginning: summary.beginning.clone(),
            out: self.out.as_ref().map(|out| out.display().to_string()),
        })
    }

    fn report(&self, document: &DataReport) -> Result<String> {
        let mut out = String::new();
        let title = |out: &mut String, text: &str| writeln!(out, "{BOLD}{text}{BOLD:#}");
        title(&mut out, "text")?;
        for (files, what) in [(&document.files, "train"), (&document.valid_files, "valid")] {
            for file in files.iter().take(FILES) {
                writeln!(out, "  {}  {DIM}{}{DIM:#}", file.name, bytes(file.bytes.into()))?;
            }
            if files.len() > FILES {
                writeln!(out, "  and {} more files to {what} with", files.len() - FILES)?;
            }
        }
        let shown = document.beginning.escape_debug().to_string().replace("\\n", "\n  ").replace("\\\"", "\"");
        writeln!(out, "\n  {DIM}{}{DIM:#} ...\n", shown.replace("\\'", "'").trim_end())?;

        let learnt = match document.trained_on_bytes {
            0 => String::new(),
            n if n == document.train.bytes => ", learnt from the training text".into(),
            n => format!(", learnt from {} of the training text", bytes(n.into())),
        };
        title(&mut out, "tokens")?;
        let used = grouped(document.used);
        writeln!(
            out,
            "  {}: vocabulary of {}{learnt}; the training text has {used} of them",
            document.tokenizer,
            grouped(document.vocab)
        )?;
        let parts: Vec<(&str, &Part)> = std::iter::once(("train", &document.train))
            .chain(document.valid.as_ref().map(|part| ("valid", part)))
            .collect();
        let mut table = Table::new(&["  part", "bytes", "characters", "tokens", "bytes/token", "unknown"], 1);
        for (name, part) in &parts {
            table.row([
                format!("  {name}"),
                grouped(part.bytes),
                grouped(part.characters),
                grouped(part.tokens),
                format!("{:.3}", part.bytes_per_token),
                format!("{:.2} %", 100.0 * part.unknown_rate),
            ]);
        }
        write!(out, "{table}")?;
        if document.valid.is_none() {
            writeln!(out, "  nothing to validate on: it takes two tokens")?;
        }
        let (batch, len) = (self.batch, self.seq);
        let steps = |steps: u64| if steps == 0 { "too short".into() } else { format!("{} steps", grouped(steps)) };
        writeln!(
            out,
            "  an epoch at batch {batch}, {len} tokens: {} of windows, {} of streams\n",
            steps(document.train.window_steps),
            steps(document.train.stream_steps)
        )?;

        let mut table = Table::new(&["  frequent", "token", "times", "share"], 1);
        for token in &document.frequent {
            let share = format!("{:.2} %", 100.0 * token.share);
            table.row([format!("  {}", token.token), token.id.to_string(), grouped(token.count), share]);
        }
        write!(out, "{table}")?;
        let examples = document.examples.iter().map(|example| format!("{:?}{DIM}={}{DIM:#}", example.text, example.id));
        writeln!(out, "\n{BOLD}begins with{BOLD:#} {} ...", examples.collect::<Vec<_>>().join(" "))?;
        if let Some(kept) = &document.out {
            writeln!(out, "kept in {kept}")?;
        }
        Ok(out)
    }
}

/// How often each token is there.
fn count(tokens: &Tokens) -> Result<Vec<u64>> {
    let mut counts = vec![0; tokens.vocab() as usize];
    let mut ids = vec![0; 1 << 16];
    for start in (0..tokens.len()).step_by(ids.len()) {
        let left = (tokens.len() - start).min(ids.len() as u64) as usize;
        tokens.read(start, &mut ids[..left])?;
        for &id in &ids[..left] {
            counts[id as usize] += 1;
        }
    }
    Ok(counts)
}

/// The text of a token, quoted, or what stands in the vocabulary where it has none of its own.
fn name(tokenizer: &Tokenizer, id: u32) -> String {
    let text = tokenizer.decode(&[id]);
    match text.contains('\u{fffd}') {
        false => format!("{text:?}"),
        true => tokenizer.token(id).unwrap_or_default(),
    }
}
