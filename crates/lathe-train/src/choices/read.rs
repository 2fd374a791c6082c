//! Files of examples: a JSON object in each line.

use super::{Example, Form, Row};
use crate::{Error, Result};
use lathe_core::Fault;
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// A line that is longer is a slip.
const LONGEST: u64 = 1 << 24;

/// The examples of a file.
#[derive(Debug)]
pub struct Examples {
    /// Which file.
    pub file: String,
    /// What they look like.
    pub form: &'static Form,
    /// At least one.
    pub list: Vec<Example>,
    /// The lines that they come from.
    pub(super) rows: Vec<Row>,
}

/// Reads a file in a form, or in the one that its first line has the columns of.
pub fn read(path: &Path, form: &str) -> Result<Examples> {
    let rows = rows(path)?;
    let file = path.display().to_string();
    let Some(first) = rows.first() else {
        return Err(Error::data(file, "no line", "a JSON object in each line"));
    };
    let form = if form.is_empty() { Form::of(first)? } else { Form::find(form)? };
    let list = rows.iter().map(|row| form.example(row)).collect::<Result<_>>()?;
    Ok(Examples { file, form, list, rows })
}

impl Examples {
    /// An error about an example, at its line.
    pub(super) fn place(&self, at: usize, error: Error) -> Error {
        match error {
            Error::Fault(Fault::Data { found, expected, .. }) => Error::data(self.rows[at].place(), found, expected),
            error => error,
        }
    }
}

fn rows(path: &Path) -> Result<Vec<Row>> {
    let io = |error| Error::io(path)(error);
    let mut reader = BufReader::new(File::open(path).map_err(io)?);
    let (mut rows, mut line) = (Vec::new(), Vec::new());
    for number in 1.. {
        line.clear();
        if reader.by_ref().take(LONGEST).read_until(b'\n', &mut line).map_err(io)? == 0 {
            break;
        }
        let place = format!("{}, line {number}", path.display());
        if line.len() as u64 == LONGEST {
            return Err(Error::data(place, format_args!("more than {LONGEST} bytes"), "a JSON object in each line"));
        }
        let text = line.strip_prefix(b"\xef\xbb\xbf").filter(|_| number == 1).unwrap_or(&line);
        if text.trim_ascii().is_empty() {
            continue;
        }
        match serde_json::from_slice(text) {
            Ok(Value::Object(columns)) => rows.push(Row::new(place, columns)),
            Ok(_) => return Err(Error::data(place, "another value", "a JSON object")),
            Err(error) => return Err(Error::data(place, error, "a JSON object")),
        }
    }
    Ok(rows)
}
