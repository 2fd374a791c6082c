//! Examples to learn from: a text, a pair of texts or several of them, and what is right for it.
//!
//! [`table`] reads files, [`form`] says which columns mean what, [`benchmarks`] knows the forms of GLUE, SuperGLUE and
//! SQuAD. [`encoded`] makes tokens of examples, and batches in which texts of similar lengths stand together;
//! [`scores`] has the metrics.

pub mod benchmarks;
pub mod encoded;
pub mod form;
pub mod open;
pub mod scores;
pub mod squad;
pub mod table;

use crate::{Error, Result};
use scores::Metric;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use table::{Record, Table};

/// An example.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Example {
    /// The line of its file.
    pub line: u64,
    /// What a model reads, one after the other: texts, or pairs of them.
    pub texts: Vec<(String, Option<String>)>,
    /// What is right.
    #[serde(default, skip_serializing_if = "Target::is_none")]
    pub target: Target,
    /// Which examples it belongs to, or how its file calls it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The choices, of which each has a text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<String>,
}

/// What is right for an example.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub enum Target {
    /// Nobody says.
    #[default]
    None,
    /// A label.
    Label(String),
    /// A number.
    Value(f64),
    /// Some of its choices.
    Right(Vec<usize>),
    /// Parts of its second text; none where that does not tell.
    Answers(Vec<Answer>),
}

impl Target {
    /// Whether nobody says.
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }
}

/// A part of a text that answers a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The answer.
    pub text: String,
    /// Its first character in the text.
    pub start: usize,
}

impl Answer {
    /// Where its bytes are in a context; none where it is not there.
    pub fn bytes(&self, context: &str) -> Option<std::ops::Range<usize>> {
        let start = match context.char_indices().nth(self.start) {
            Some((at, _)) => at,
            None => return None,
        };
        context[start..].starts_with(&self.text).then(|| start..start + self.text.len())
    }
}

/// Examples of a file.
#[derive(Debug, Clone)]
pub struct Examples {
    /// The file.
    pub path: PathBuf,
    /// What models are judged by.
    pub metrics: Vec<Metric>,
    /// All of them, in the file's order.
    pub examples: Vec<Example>,
}

impl Examples {
    /// Writes some, whatever they are for, as lines of JSON that are read back as they are.
    pub fn write<'a>(path: &Path, examples: impl IntoIterator<Item = &'a Example>) -> Result<()> {
        let lines = examples.into_iter().map(|one| serde_json::to_string(one).expect("texts and numbers") + "\n");
        let text: String = lines.collect();
        Ok(lathe_model::folder::write_aside(path, |out| out.write_all(text.as_bytes()))?)
    }

    /// Whether a table is what [`Self::write`] wrote.
    fn are_written(table: &Table) -> bool {
        let has = |name| table.records.first().is_some_and(|first| first.value.get(name).is_some());
        ["line", "texts", "target"].into_iter().all(has)
    }

    fn written(table: &Table) -> Result<Vec<Example>> {
        let example = |record: &Record| {
            let wrong =
                |error| Error::data(table::place(&table.path, record.line), error, "an example as lathe writes it");
            serde_json::from_value(record.value.clone()).map_err(wrong)
        };
        table.records.iter().map(example).collect()
    }
}
