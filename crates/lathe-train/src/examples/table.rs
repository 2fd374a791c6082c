//! Records of a file, one at a time with the line that it begins at: tab-separated values as GLUE has them (no quotes),
//! CSV as RFC 4180 has it, JSON lines, or one JSON document.
//!
//! A record is a JSON object. Of a table its values are strings under the names of the columns, which the first line
//! gives unless the caller does.

use crate::{Error, Result};
use serde_json::{Map, Value};
use std::fmt::Display;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

/// A record, and where it is.
#[derive(Debug, Clone)]
pub struct Record {
    /// The line that it begins at, counted from 1.
    pub line: u64,
    /// An object.
    pub value: Value,
}

/// The forms of files, by the end of their names.
const FORMS: &str = "a file whose name ends with .tsv, .csv, .jsonl or .json";

/// What a file holds.
#[derive(Debug, Clone, Default)]
pub struct Table {
    /// The file, for messages.
    pub path: PathBuf,
    /// All of them.
    pub records: Vec<Record>,
    /// Lines with fewer columns than the first that were left out.
    pub short: Vec<u64>,
}

/// A line of a file, for messages.
pub fn place(path: &Path, line: u64) -> impl Display {
    format!("{}, line {line}", path.display())
}

impl Table {
    /// Reads a file. `columns` are the names of the columns where the file does not give them; `lenient` leaves out
    /// lines with too few columns, as those who made GLUE's tables do.
    pub fn read(path: &Path, columns: &[&str], lenient: bool) -> Result<Self> {
        let file = File::open(path).map_err(Error::io(path))?;
        let end = path.extension().and_then(|end| end.to_str()).unwrap_or_default();
        Self::parse(path, BufReader::new(file), end, columns, lenient)
    }

    /// As [`Self::read`], of something that is no file, in the form that ends a name so.
    pub fn parse(path: &Path, mut from: impl BufRead, form: &str, columns: &[&str], lenient: bool) -> Result<Self> {
        let mut table = Self { path: path.into(), ..Self::default() };
        match form {
            "tsv" | "txt" => table.tabs(from, columns, lenient)?,
            "csv" => table.csv(from, columns)?,
            "jsonl" => table.lines(from)?,
            "json" => {
                let mut text = String::new();
                from.read_to_string(&mut text).map_err(Error::io(path))?;
                let value = table.json(without_mark(&text), 1)?;
                table.records.push(Record { line: 1, value });
            }
            _ => return Err(Error::data(path.display(), format_args!("a name that ends with `{form}`"), FORMS)),
        }
        Ok(table)
    }

    fn tabs(&mut self, from: impl BufRead, columns: &[&str], lenient: bool) -> Result<()> {
        let mut names: Vec<String> = columns.iter().map(|name| name.to_string()).collect();
        for (line, text) in (1..).zip(from.split(b'\n')) {
            let text = self.text(line, text)?;
            let text = if line == 1 { without_mark(&text) } else { &text };
            let text = text.strip_suffix('\r').unwrap_or(text);
            if text.is_empty() {
                continue;
            }
            let values: Vec<&str> = text.split('\t').collect();
            if names.is_empty() {
                names = values.iter().map(|name| name.to_string()).collect();
            } else if values.len() < names.len() && lenient {
                self.short.push(line);
            } else {
                self.row(line, &names, values.into_iter(), lenient)?;
            }
        }
        Ok(())
    }

    fn csv(&mut self, mut from: impl BufRead, columns: &[&str]) -> Result<()> {
        let mark = from.fill_buf().map_err(Error::io(&self.path))?.starts_with(b"\xef\xbb\xbf");
        from.consume(if mark { 3 } else { 0 });
        let mut names: Vec<String> = columns.iter().map(|name| name.to_string()).collect();
        let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(from);
        let mut record = csv::StringRecord::new();
        loop {
            let begins = reader.position().line();
            match reader.read_record(&mut record) {
                Ok(false) => return Ok(()),
                Ok(true) => {}
                Err(error) => {
                    return Err(Error::data(place(&self.path, begins), error, "comma-separated values in UTF-8"));
                }
            }
            let line = record.position().map_or(begins, csv::Position::line);
            match names.is_empty() {
                true => names = record.iter().map(String::from).collect(),
                false => self.row(line, &names, record.iter(), false)?,
            }
        }
    }

    fn lines(&mut self, from: impl BufRead) -> Result<()> {
        for (line, text) in (1..).zip(from.split(b'\n')) {
            let text = self.text(line, text)?;
            let text = if line == 1 { without_mark(&text) } else { &text };
            if !text.trim().is_empty() {
                let value = self.json(text, line)?;
                self.records.push(Record { line, value });
            }
        }
        Ok(())
    }

    fn row<'a>(
        &mut self,
        line: u64,
        names: &[String],
        values: impl Iterator<Item = &'a str> + Clone,
        lenient: bool,
    ) -> Result<()> {
        let count = values.clone().count();
        if count < names.len() || count > names.len() && !lenient {
            let expected = format!("{}, as the first line has", names.len());
            return Err(Error::data(place(&self.path, line), format_args!("{count} columns"), expected));
        }
        let pairs = names.iter().cloned().zip(values.map(|value| Value::String(value.into())));
        self.records.push(Record { line, value: Value::Object(pairs.collect::<Map<_, _>>()) });
        Ok(())
    }

    fn text(&self, line: u64, bytes: std::io::Result<Vec<u8>>) -> Result<String> {
        let bytes = bytes.map_err(Error::io(&self.path))?;
        String::from_utf8(bytes).map_err(|error| {
            let found = format!("bytes that are not UTF-8 after {} others", error.utf8_error().valid_up_to());
            Error::data(place(&self.path, line), found, "UTF-8")
        })
    }

    fn json(&self, text: &str, line: u64) -> Result<Value> {
        let wrong = |line: u64, found: String| Error::data(place(&self.path, line), found, "a JSON object");
        let value: Value = serde_json::from_str(text)
            .map_err(|error| wrong(line + error.line() as u64 - 1, format!("no JSON: {error}")))?;
        match value.is_object() {
            true => Ok(value),
            false => Err(wrong(line, format!("`{}`", lathe_core::shorten(&value.to_string())))),
        }
    }
}

/// A text without the byte order mark that some editors put before it.
fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, form: &str, columns: &[&str], lenient: bool) -> Result<Table> {
        Table::parse(Path::new("a file"), text.as_bytes(), form, columns, lenient)
    }

    fn rows(table: &Table) -> Vec<(u64, String)> {
        table.records.iter().map(|record| (record.line, record.value.to_string())).collect()
    }

    #[test]
    fn tables_are_read_as_they_are_distributed() {
        let row = |line: u64, text: &str| (line, text.to_string());
        // A mark, quotes that are none, Windows' line ends, an empty line.
        let table = read("\u{feff}a\tb\r\n\" x\t1\r\n\r\ny\t\"\n", "tsv", &[], false).unwrap();
        assert_eq!(rows(&table), [row(2, r#"{"a":"\" x","b":"1"}"#), row(4, r#"{"a":"y","b":"\""}"#)]);
        // Without a line of names.
        assert_eq!(rows(&read("x\t1", "tsv", &["a", "b"], false).unwrap()), [row(1, r#"{"a":"x","b":"1"}"#)]);
        // Quotes, and a line end inside of them.
        let table = read("\u{feff}a,b\n\"x, \"\"y\"\"\nz\",1\nw,2\n", "csv", &[], false).unwrap();
        assert_eq!(rows(&table), [row(2, r#"{"a":"x, \"y\"\nz","b":"1"}"#), row(4, r#"{"a":"w","b":"2"}"#)]);
        let table = read("{\"a\": 1}\n\n{\"a\": true}\n", "jsonl", &[], false).unwrap();
        assert_eq!(rows(&table), [row(1, r#"{"a":1}"#), row(3, r#"{"a":true}"#)]);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let error = |text: &str, form: &str| read(text, form, &[], false).unwrap_err().to_string();
        assert_eq!(error("a\tb\nx\n", "tsv"), "a file, line 2: found 1 columns; expected 2, as the first line has");
        assert_eq!(
            error("a,b\n1,2\n1,2,3\n", "csv"),
            "a file, line 3: found 3 columns; expected 2, as the first line has"
        );
        assert!(error("{}\n[1]\n", "jsonl").starts_with("a file, line 2: found `[1]`; expected a JSON object"));
        assert!(error("{}\n{\n", "jsonl").starts_with("a file, line 2: found no JSON: "));
        assert!(error("a", "parquet").contains("ends with .tsv"));
        let lenient = read("a\tb\nx\ny\t1\t2\n", "tsv", &[], true).unwrap();
        assert_eq!((lenient.short.clone(), lenient.records.len()), (vec![2], 1));
    }
}
