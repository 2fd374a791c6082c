//! Reading TOML with the place of every key and value at hand, so that errors can name it.

use crate::error::shorten;
use crate::{Error, MAX_TEXT, Result};
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A TOML document.
pub struct TomlDocument<'a> {
    text: &'a str,
    table: Spanned<DeTable<'a>>,
}

impl<'a> TomlDocument<'a> {
    /// Parses `text`; `what` names the file in the error for one that is too long.
    pub fn parse(text: &'a str, what: &'static str) -> Result<Self> {
        if text.len() > MAX_TEXT {
            return Err(Error::TooLong { what });
        }
        let table = DeTable::parse(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let before = &text[..text.floor_char_boundary(at)];
            let line = before.matches('\n').count() + 1;
            let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
            Error::Syntax { line, column, message: shorten_message(error.message()) }
        })?;
        Ok(Self { text, table })
    }

    /// The document's keys.
    pub fn fields(&self) -> Fields<'_> {
        Fields { text: self.text, name: String::new(), at: 0, table: self.table.get_ref() }
    }
}

fn shorten_message(message: &str) -> String {
    message.lines().map(|line| line.chars().take(100).collect::<String>()).collect::<Vec<_>>().join(", ")
}

/// The keys of one table of a document.
#[derive(Clone)]
pub struct Fields<'d> {
    text: &'d str,
    /// How the table is called in errors; empty for the document itself.
    name: String,
    at: usize,
    table: &'d DeTable<'d>,
}

/// One value, with its place.
#[derive(Clone)]
pub struct Field<'d> {
    text: &'d str,
    /// How the value is called in errors: `slots[0].options[1]`.
    name: String,
    span: Range<usize>,
    pub(crate) value: &'d DeValue<'d>,
}

impl<'d> Fields<'d> {
    /// All keys with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&'d str, Field<'d>)> + '_ {
        self.table.iter().map(|(key, value)| (key.get_ref().as_ref(), self.field(key.get_ref(), value)))
    }

    /// One key's value.
    pub fn get(&self, key: &str) -> Option<Field<'d>> {
        self.table.get(key).map(|value| self.field(key, value))
    }

    /// An error if a key is not among the known ones.
    pub fn only(&self, known: &[&str]) -> Result<()> {
        for (key, field) in self.iter() {
            if !known.contains(&key) {
                return Err(field.unknown(key, known));
            }
        }
        Ok(())
    }

    fn field(&self, key: &str, value: &'d Spanned<DeValue<'d>>) -> Field<'d> {
        let dot = if self.name.is_empty() { "" } else { "." };
        let name = format!("{}{dot}{}", self.name, shorten(key));
        Field { text: self.text, name, span: value.span(), value: value.get_ref() }
    }

    /// The error for a key that is not there.
    pub fn missing(&self, key: &'static str, expected: &str) -> Error {
        let place = format!("line {}, {}", line_of(self.text, self.at), self.name);
        Error::Missing { place, key, expected: expected.into() }
    }
}

impl<'d> Field<'d> {
    /// Line and name, for errors. Finding the line reads the text up to it.
    pub fn place(&self) -> String {
        format!("line {}, {}", line_of(self.text, self.span.start), self.name)
    }

    /// An error that shows this value.
    pub fn error(&self, expected: impl Into<String>) -> Error {
        let found = self.text.get(self.span.clone()).unwrap_or_default();
        Error::value(self.place(), format!("`{}`", shorten(found)), expected)
    }

    /// The error for a key that is not known.
    pub fn unknown(&self, key: &str, known: &[&str]) -> Error {
        Error::unknown_key(format!("line {}", line_of(self.text, self.span.start)), key, known)
    }

    /// A whole number within bounds.
    pub fn int(&self, min: u32, max: u32) -> Result<u32> {
        let number = self.value.as_integer().and_then(|i| i64::from_str_radix(i.as_str(), i.radix()).ok());
        int_within(number, min, max).map_err(|expected| self.error(expected))
    }

    /// A number from `min` up to but not including `max`.
    pub fn real(&self, min: f64, max: f64) -> Result<f64> {
        let number = match self.value {
            DeValue::Integer(i) => i64::from_str_radix(i.as_str(), i.radix()).ok().map(|n| n as f64),
            DeValue::Float(f) => f.as_str().parse().ok(),
            _ => None,
        };
        real_within(number, min, max).map_err(|expected| self.error(expected))
    }

    /// `true` or `false`.
    pub fn flag(&self) -> Result<bool> {
        self.value.as_bool().ok_or_else(|| self.error("true or false"))
    }

    /// A string.
    pub fn text(&self) -> Result<&'d str> {
        self.value.as_str().ok_or_else(|| self.error("a string in quotes"))
    }

    /// A list; `expected` says of what.
    pub fn list(&self, expected: &str) -> Result<Vec<Field<'d>>> {
        let array = self.value.as_array().ok_or_else(|| self.error(expected))?;
        Ok((0..array.len())
            .map(|i| {
                let value = &array[i];
                let name = format!("{}[{i}]", self.name);
                Field { text: self.text, name, span: value.span(), value: value.get_ref() }
            })
            .collect())
    }

    /// Whether it is a table.
    pub fn is_table(&self) -> bool {
        self.value.is_table()
    }

    /// A table.
    pub fn table(&self) -> Result<Fields<'d>> {
        let table = self.value.as_table().ok_or_else(|| self.error("a table"))?;
        Ok(Fields { text: self.text, name: self.name.clone(), at: self.span.start, table })
    }
}

/// The number if it is there and within bounds; else what would be accepted.
pub(crate) fn int_within(number: Option<i64>, min: u32, max: u32) -> Result<u32, String> {
    let number = number.and_then(|n| u32::try_from(n).ok()).filter(|n| (min..=max).contains(n));
    number.ok_or_else(|| format!("a whole number from {min} to {max}"))
}

/// The number if it is there and from `min` to below `max`; else what would be accepted.
pub(crate) fn real_within(number: Option<f64>, min: f64, max: f64) -> Result<f64, String> {
    number.filter(|n| (min..max).contains(n)).ok_or_else(|| format!("a number from {min} to below {max}"))
}

fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at.min(text.len())].iter().filter(|&&byte| byte == b'\n').count() + 1
}
