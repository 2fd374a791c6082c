//! What verbs print: JSON, tables and numbers that a person can read. Colours only on a terminal, and not
//! with NO_COLOR, which `anstream` sees to.

use anstyle::{AnsiColor, Style};
use anyhow::Result;
use serde::Serialize;
use serde::ser::SerializeMap;
use std::io::Write;

pub const ERROR: Style = AnsiColor::Red.on_default().bold();
pub const BOLD: Style = Style::new().bold();
pub const DIM: Style = Style::new().dimmed();

/// Prints one JSON document.
pub fn json(document: &impl Serialize) -> Result<()> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    serde_json::to_writer_pretty(&mut out, document)?;
    writeln!(out)?;
    Ok(out.flush()?)
}

/// Prints text, with its colours where they are wanted.
pub fn text(text: &str) -> Result<()> {
    texts([text.to_string()])
}

/// Prints texts as they come, each from a new line.
pub fn texts(texts: impl IntoIterator<Item = String>) -> Result<()> {
    let mut out = anstream::stdout().lock();
    for text in texts {
        out.write_all(text.as_bytes())?;
        if !text.ends_with('\n') {
            out.write_all(b"\n")?;
        }
    }
    Ok(out.flush()?)
}

/// Prints a line on stderr. Where that cannot be written to, nobody can be told.
pub fn tell(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(anstream::stderr(), "{line}");
}

/// Prints a text that is itself a document, as it is or as the one key of a JSON object.
pub fn document(key: &str, content: &str, as_json: bool) -> Result<()> {
    match as_json {
        true => json(&std::collections::BTreeMap::from([(key, content)])),
        false => {
            let mut out = std::io::stdout().lock();
            out.write_all(content.as_bytes())?;
            Ok(out.flush()?)
        }
    }
}

/// Whether the reader of our output went away, as `head` does.
pub fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let io = cause.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        let json = cause.downcast_ref::<serde_json::Error>().and_then(serde_json::Error::io_error_kind);
        io.or(json) == Some(std::io::ErrorKind::BrokenPipe)
    })
}

/// A JSON object of counts, in the order given.
pub struct Object(pub Vec<(&'static str, u128)>);

impl Serialize for Object {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

/// Columns under a bold header, the first to the left, numbers to the right.
pub struct Table {
    rows: Vec<Vec<String>>,
    left: usize,
}

impl Table {
    /// A table whose first `left` columns hold words.
    pub fn new(header: &[&str], left: usize) -> Self {
        Self { rows: vec![header.iter().map(ToString::to_string).collect()], left }
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let columns = self.rows[0].len();
        let width = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for (i, row) in self.rows.iter().enumerate() {
            let cells: Vec<String> = (0..columns)
                .map(|c| match c < self.left {
                    true => format!("{:<1$}", row[c], widths[c]),
                    false => format!("{:>1$}", row[c], widths[c]),
                })
                .collect();
            let line = cells.join("  ");
            match i {
                0 => writeln!(f, "{BOLD}{}{BOLD:#}", line.trim_end())?,
                _ => writeln!(f, "{}", line.trim_end())?,
            }
        }
        Ok(())
    }
}

/// 124,439,808
pub fn grouped(number: impl Into<u128>) -> String {
    let digits = number.into().to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// 25.3 G: three digits and a unit of a thousand.
pub fn short(number: u128) -> String {
    scaled(number as f64, 1000.0, &["", " k", " M", " G", " T", " P", " E"])
}

/// 12.0 MB: three digits and a unit of 1024.
pub fn bytes(number: u128) -> String {
    scaled(number as f64, 1024.0, &[" B", " kB", " MB", " GB", " TB", " PB", " EB"])
}

fn scaled(number: f64, base: f64, units: &[&str]) -> String {
    let mut value = number;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < units.len() {
        value /= base;
        unit += 1;
    }
    let decimals = match value {
        _ if unit == 0 => 0,
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}{}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(grouped(124_439_808u32), "124,439,808");
        assert_eq!(grouped(0u32), "0");
        assert_eq!(grouped(1000u32), "1,000");
        assert_eq!(short(25_299_000_000), "25.3 G");
        assert_eq!(short(999), "999");
        assert_eq!(short(999_600), "1.00 M");
        assert_eq!(bytes(1 << 20), "1.00 MB");
        assert_eq!(bytes(12), "12 B");
    }
}
