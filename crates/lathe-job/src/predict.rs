//! What a model folder says of texts: labels, values, choices, answers or embeddings, in the order of the texts.

use crate::evaluate::check_tokenizer;
use crate::{Error, Result, input};
use lathe_core::{Frame, Registry};
use lathe_model::{Network, Precision, folder};
use lathe_train::data::Tokenizer;
use lathe_train::examples::open::Wanted;
use lathe_train::examples::table::{Record, Table};
use lathe_train::examples::{Example, Examples};
use lathe_train::tasks::examples::Judge;
use lathe_train::tasks::{self, ExampleTask, Prediction};
use serde::Serialize;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Texts that are read before the first of them is answered, at the most.
const TOGETHER: usize = 1024;

/// What to predict, and from what.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// A model folder.
    pub folder: PathBuf,
    /// A task or a benchmark; empty for what the model is for.
    pub task: String,
    /// The columns of texts, where they are not the usual ones.
    pub columns: String,
    /// Of embeddings: what they are, where it is not what the model says.
    pub pooling: Option<String>,
    /// Most tokens of a text; the model's without it.
    pub window: Option<u32>,
    /// Precision of products.
    pub precision: Precision,
}

/// What a model says of a text.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
#[allow(missing_docs)]
pub enum Said {
    Label { label: String, probabilities: serde_json::Map<String, Value> },
    Choice { choice: usize, probabilities: Vec<f32> },
    Value { value: f64 },
    Embedding { embedding: Vec<f32> },
    Answer { answer: String, start: usize, probability: f32 },
}

/// A model that is ready to be asked.
pub struct Predictor {
    network: Network,
    tokenizer: Tokenizer,
    task: &'static dyn ExampleTask,
    request: Request,
    name: String,
}

impl Predictor {
    /// Loads the model of a request.
    pub fn open(request: &Request, registry: &Registry) -> Result<Self> {
        let folder = input::model_folder(&request.folder)?;
        let mut spec = folder::load_model(&folder, registry)?.spec();
        input::set_pooling(&mut spec, request.pooling.as_deref(), registry)?;
        let model = spec.model(registry)?;
        let tokenizer = Tokenizer::load(&folder)?;
        check_tokenizer(&tokenizer, &model, &folder)?;
        let found = tasks::find(&request.task, &model)?;
        let Some(task) = found.of_examples() else {
            let found = format!("{}, whose predictions are tokens", found.key());
            return Err(Error::setting("task", found, "classify, regress, choose, span or embed"));
        };
        if let Some(window) = request.window.filter(|window| !(1..=model.frame.max_len).contains(window)) {
            let expected = format!("from 1 to max_len, which is {}", model.frame.max_len);
            return Err(Error::setting("window", window, expected));
        }
        let name = if request.task.is_empty() { task.key().to_string() } else { request.task.clone() };
        let mut network = folder::load_as(&folder, model)?;
        network.set_precision(request.precision);
        network.freeze();
        Ok(Self { network, tokenizer, task, request: request.clone(), name })
    }

    /// Predicts for all of a file; `each` gets what is said, in its order.
    pub fn file(&self, path: &Path, each: &mut dyn FnMut(Said) -> Result<()>) -> Result<()> {
        if path.extension().is_some_and(|end| end != "txt") {
            return self.examples(&self.wanted().read(path, &mut |_| ())?, each);
        }
        let file = std::fs::File::open(path).map_err(Error::io(path))?;
        self.lines(path, BufReader::new(file), each)
    }

    /// Predicts for lines as they come: a text, two texts with a tab between them, or a JSON object with columns. What
    /// was read is answered before more is waited for.
    pub fn lines<R: Read>(
        &self,
        path: &Path,
        mut from: BufReader<R>,
        each: &mut dyn FnMut(Said) -> Result<()>,
    ) -> Result<()> {
        let mut table = Table { path: path.into(), ..Table::default() };
        let (mut line, mut bytes) = (0, Vec::new());
        loop {
            bytes.clear();
            let ended = from.read_until(b'\n', &mut bytes).map_err(Error::io(path))? == 0;
            if !ended {
                line += 1;
                table.records.extend(self.record(path, line, &bytes)?);
            }
            let waits = !from.buffer().contains(&b'\n');
            if ended || table.records.len() >= TOGETHER || waits {
                self.examples(&self.wanted().of_table(&table, &mut |_| ())?, each)?;
                table.records.clear();
            }
            if ended {
                return Ok(());
            }
        }
    }

    fn wanted(&self) -> Wanted<'_> {
        Wanted { task: &self.name, columns: &self.request.columns, labelled: false }
    }

    /// A line as a record; an empty one is none.
    fn record(&self, path: &Path, line: u64, bytes: &[u8]) -> Result<Option<Record>> {
        let text = std::str::from_utf8(bytes).map_err(|_| {
            let place = lathe_train::examples::table::place(path, line);
            Error::data(place, "bytes that are not UTF-8", "UTF-8")
        })?;
        let text = text.trim_end_matches(['\r', '\n']);
        if text.trim().is_empty() {
            return Ok(None);
        }
        if text.trim_start().starts_with('{') {
            let mut table = Table::parse(path, text.as_bytes(), "jsonl", &[], false)?;
            return Ok(table.records.pop().map(|record| Record { line, ..record }));
        }
        let value = match text.split_once('\t') {
            Some((a, b)) => json!({ "text_a": a, "text_b": b, "question": a, "context": b }),
            None => json!({ "text": text }),
        };
        Ok(Some(Record { line, value }))
    }

    fn examples(&self, examples: &Examples, each: &mut dyn FnMut(Said) -> Result<()>) -> Result<()> {
        let frame = &self.network.model.frame;
        let max_len = self.request.window.unwrap_or(frame.max_len) as usize;
        let judge = Judge { task: self.task, network: &self.network, tokenizer: &self.tokenizer, max_len };
        let judged = judge.judge(examples, &mut |_, _| ())?;
        for (example, prediction) in examples.examples.iter().zip(judged.predictions) {
            each(said(frame, example, prediction))?;
        }
        Ok(())
    }
}

fn said(frame: &Frame, example: &Example, prediction: Prediction) -> Said {
    let labels = frame.words("labels");
    match prediction {
        Prediction::One { index, probabilities } if !labels.is_empty() => Said::Label {
            label: labels.get(index).cloned().unwrap_or_default(),
            probabilities: labels.iter().cloned().zip(probabilities.into_iter().map(|p| json!(p))).collect(),
        },
        Prediction::One { index, probabilities } => Said::Choice { choice: index, probabilities },
        Prediction::Value(value) => Said::Value { value },
        Prediction::Vector(embedding) => Said::Embedding { embedding },
        Prediction::Part { none: true, probability, .. } => {
            Said::Answer { answer: String::new(), start: 0, probability }
        }
        Prediction::Part { bytes, probability, none: false } => {
            let context = example.texts.first().and_then(|(_, context)| context.as_deref()).unwrap_or_default();
            let start = context.get(..bytes.start).map_or(0, |before| before.chars().count());
            Said::Answer { answer: context.get(bytes).unwrap_or_default().into(), start, probability }
        }
    }
}
