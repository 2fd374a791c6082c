//! `lathe predict`: what a model folder says of texts.

use super::Action;
use crate::output;
use anyhow::Result;
use clap::Parser;
use lathe_job::predict::{Predictor, Request, Said};
use lathe_model::REGISTRY;
use lathe_ops::Precision;
use serde_json::json;
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};

/// Predict labels, values, choices, answers or embeddings of texts
#[derive(Parser)]
#[command(
    name = "predict",
    after_help = "\
Reads a file, or standard input: a text in each line, two texts with a tab between them, or a JSON object with the columns
of texts. A table (.tsv, .csv) names its columns in its first line. Writes a JSON object in a line for each text, in their
order and as soon as there is nothing more to read; with --json one document with all of them.

Of a model that was fine-tuned it writes what that is for: label and probabilities, value, choice, or answer and where in
the context it begins. Of any other encoder it writes embeddings, of length 1.

Examples:
  lathe predict my_sst2 --data sentences.txt
  echo 'a charming film' | lathe predict my_sst2
  lathe predict my_mrpc --data pairs.jsonl --columns first,second
  lathe predict minilm --task embed --data sentences.txt > vectors.jsonl"
)]
pub struct Predict {
    /// Model folder of an encoder (config.json, model.safetensors, tokenizer.json)
    folder: PathBuf,
    /// Texts: .txt, .jsonl, .tsv, .csv or, for SQuAD, .json [default: standard input]
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// A task, or a benchmark whose columns the file has [default: what the model is for]
    #[arg(long, default_value = "", hide_default_value = true)]
    task: String,
    /// Columns of the texts, as first,second [default: the usual names]
    #[arg(long, default_value = "", hide_default_value = true)]
    columns: String,
    /// What an embedding is: the mean of a text's tokens, or cls, the first [default: the model's]
    #[arg(long, value_parser = ["mean", "cls"])]
    pooling: Option<String>,
    /// Most tokens of a text; what is longer loses its end [default: max_len]
    #[arg(long, value_name = "N")]
    window: Option<u32>,
    /// Precision of products: f32 or bf16
    #[arg(long, default_value_t = Precision::F32)]
    precision: Precision,
}

impl Action for Predict {
    fn run(self, json: bool) -> Result<()> {
        let Self { folder, data, task, columns, pooling, window, precision } = self;
        let request = Request { folder, task, columns, pooling, window, precision };
        let predictor = Predictor::open(&request, &REGISTRY)?;
        let all = |each: &mut dyn FnMut(Said) -> lathe_job::Result<()>| match &data {
            Some(path) => predictor.file(path, each),
            None => predictor.lines(Path::new("standard input"), BufReader::new(std::io::stdin()), each),
        };
        if json {
            let mut predictions = Vec::new();
            all(&mut |said| {
                predictions.push(said);
                Ok(())
            })?;
            return output::json(&json!({ "predictions": predictions }));
        }
        let mut out = std::io::stdout().lock();
        let mut line = |said: &Said| -> std::io::Result<()> {
            serde_json::to_writer(&mut out, said)?;
            out.write_all(b"\n")?;
            out.flush()
        };
        let mut written = Ok(());
        all(&mut |said| {
            if written.is_ok() {
                written = line(&said);
            }
            Ok(())
        })?;
        Ok(written?)
    }
}
