//! A line of a file of examples: its columns, and what can be read from them.

use crate::{Error, Result};
use lathe_core::shorten;
use serde_json::{Map, Value};

/// A line, as its columns.
#[derive(Debug, Clone)]
pub struct Row {
    /// File and line.
    place: String,
    columns: Map<String, Value>,
}

impl Row {
    /// The columns of a line.
    pub fn new(place: String, columns: Map<String, Value>) -> Self {
        Self { place, columns }
    }

    /// File and line.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Whether it has a column.
    pub fn has(&self, column: &str) -> bool {
        self.columns.contains_key(column)
    }

    /// The names of its columns.
    pub fn names(&self) -> Vec<&str> {
        self.columns.keys().map(String::as_str).collect()
    }

    /// Whether it has the same columns with the same values.
    pub fn same(&self, other: &Self) -> bool {
        self.columns == other.columns
    }

    /// Gives a column a value.
    pub(super) fn set(&mut self, column: &str, value: impl Into<Value>) {
        self.columns.insert(column.into(), value.into());
    }

    /// An error about a column.
    pub(super) fn wrong(&self, column: &str, expected: impl std::fmt::Display) -> Error {
        let found = self.columns.get(column).map_or("nothing".into(), |value| shorten(&value.to_string()));
        Error::data(format_args!("{}, `{column}`", self.place), found, expected)
    }

    fn value(&self, column: &str) -> &Value {
        self.columns.get(column).unwrap_or(&Value::Null)
    }

    /// A text.
    pub fn text(&self, column: &str) -> Result<&str> {
        self.value(column).as_str().ok_or_else(|| self.wrong(column, "a text"))
    }

    /// A list of at least one text; of an object, its list `text`, as data sets of questions have it.
    pub fn texts(&self, column: &str) -> Result<Vec<String>> {
        let value = self.value(column);
        let list = value.get("text").unwrap_or(value).as_array();
        let texts: Option<Vec<String>> =
            list.and_then(|list| list.iter().map(|one| Some(one.as_str()?.into())).collect());
        texts.filter(|texts| !texts.is_empty()).ok_or_else(|| self.wrong(column, "a list of texts"))
    }

    /// A number of things, or a place.
    pub fn count(&self, column: &str) -> Result<usize> {
        let number = self.value(column).as_u64().and_then(|number| usize::try_from(number).ok());
        number.ok_or_else(|| self.wrong(column, "a number from 0"))
    }

    /// Which of so many things is right: a number from 0, the same as a text, false or true, or one of their names.
    pub fn label(&self, column: &str, names: &[&str], of: usize) -> Result<usize> {
        let found = match self.value(column) {
            Value::Bool(is) => Some(usize::from(*is)),
            Value::Number(number) => number.as_u64().and_then(|number| usize::try_from(number).ok()),
            Value::String(text) => names.iter().position(|name| name == text).or_else(|| text.trim().parse().ok()),
            _ => None,
        };
        found.filter(|label| *label < of).ok_or_else(|| {
            let names = if names.is_empty() { String::new() } else { format!(", or {}", names.join(", ")) };
            self.wrong(column, format_args!("a number from 0 to {}{names}", of.saturating_sub(1)))
        })
    }

    /// Those that are right: one, as [`Self::label`] has it, or a list of numbers from 0.
    pub fn right(&self, column: &str, names: &[&str], of: usize) -> Result<Vec<usize>> {
        let Some(list) = self.value(column).as_array() else { return Ok(vec![self.label(column, names, of)?]) };
        let number =
            |value: &Value| value.as_u64().and_then(|number| usize::try_from(number).ok()).filter(|at| *at < of);
        let all: Option<Vec<usize>> = list.iter().map(number).collect();
        all.ok_or_else(|| self.wrong(column, format_args!("numbers from 0 to {}", of.saturating_sub(1))))
    }

    /// Which of the labels of an object of choices a column names: `choices.label.index(answer)`.
    pub fn named(&self, column: &str, choices: &str) -> Result<usize> {
        let answer = self.text(column)?.trim();
        let labels = self.value(choices).get("label").and_then(Value::as_array);
        let labels = labels.ok_or_else(|| self.wrong(choices, "an object with lists `text` and `label`"))?;
        let at = labels.iter().position(|label| label == answer);
        at.ok_or_else(|| self.wrong(column, format_args!("one of the labels of `{choices}`")))
    }

    /// A text in which `{column}` stands for what is in a column.
    pub fn fill(&self, template: &str) -> Result<String> {
        let (mut out, mut rest) = (String::new(), template);
        while let Some((before, after)) = rest.split_once('{') {
            let (column, after) = after.split_once('}').expect("templates of this crate are closed");
            out += before;
            out += self.text(column)?;
            rest = after;
        }
        Ok(out + rest)
    }
}
