//! How a record becomes an example: which columns its texts are made of, where its label stands, and what that is
//! called.
//!
//! Texts are templates: `{column}` is the value of a column, `{a.b}` one inside of an object, `{column|x=text|y=other}`
//! the text for a value. Where an example is a choice, [`CHOICE`] in its second text becomes each of the choices.

use super::table::{Record, Table, place};
use super::{Answer, Example, Target};
use crate::{Error, Result};
use serde_json::{Map, Value};

/// What stands for a choice in a template, as ReCoRD has it in its queries.
pub const CHOICE: &str = "@placeholder";

/// Where the choices of an example are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choices<'a> {
    /// It has none.
    None,
    /// In columns, of which the label tells the right one, counted from 0.
    Columns(&'a [&'a str]),
    /// Parts of a text, from `start` to `end` in characters, both included; those that `answers` lists are right.
    Parts {
        /// The text.
        text: &'a str,
        /// The list of parts.
        parts: &'a str,
        /// The list of right ones, by their `text`.
        answers: &'a str,
    },
}

/// How records become examples.
#[derive(Debug, Clone, Copy)]
pub struct Form<'a> {
    /// The names of the columns, of a table without a line of names.
    pub columns: &'a [&'a str],
    /// Lists inside of a record, outermost first: each of their elements is a record of its own.
    pub each: &'a [&'a str],
    /// One template or two.
    pub texts: &'a [&'a str],
    /// Whether two texts are read apart rather than as a pair.
    pub apart: bool,
    /// Where the choices are.
    pub choices: Choices<'a>,
    /// The column of the label, or of the value; of answers the list of them. Empty: there is none.
    pub label: &'a str,
    /// Labels as they stand in files, and their names; empty where they are any.
    pub labels: &'a [(&'a str, &'a str)],
    /// What the label is.
    pub kind: Kind,
    /// A template of which examples belong together; empty: there is none.
    pub group: &'a str,
    /// Whether lines with too few columns are left out.
    pub lenient: bool,
}

/// What the label of a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A word.
    Label,
    /// A number.
    Value,
    /// Which choice is right.
    Choice,
    /// Parts of the second text that answer the first.
    Answers,
}

impl Form<'_> {
    /// The form of one text, with a word as its label.
    pub const PLAIN: Form<'static> = Form {
        columns: &[],
        each: &[],
        texts: &[],
        apart: false,
        choices: Choices::None,
        label: "label",
        labels: &[],
        kind: Kind::Label,
        group: "",
        lenient: false,
    };

    /// The examples of a table. Without `labelled` a record need not say what is right.
    pub fn examples(&self, table: &Table, labelled: bool) -> Result<Vec<Example>> {
        let mut examples = Vec::new();
        for record in &table.records {
            for value in expand(record.value.clone(), self.each) {
                examples.push(self.example(table, &Record { line: record.line, value }, labelled)?);
            }
        }
        Ok(examples)
    }

    fn example(&self, table: &Table, record: &Record, labelled: bool) -> Result<Example> {
        let group = Reader { table, record, group: None }.fill(self.group)?;
        let of = Reader { table, record, group: Some(group.as_str()).filter(|group| !group.is_empty()) };
        let texts = self.texts.iter().map(|template| of.fill(template)).collect::<Result<Vec<_>>>()?;
        let target = match (self.label, find(&record.value, self.label)) {
            ("", _) => Target::None,
            (_, None) if !labelled => Target::None,
            (label, None) => return Err(of.missing(label)),
            (_, Some(value)) => self.target(&of, value, labelled)?,
        };
        let (choices, target) = self.choices(&of, target, labelled)?;
        let texts = match (texts.as_slice(), choices.is_empty()) {
            ([text], true) => vec![(text.clone(), None)],
            ([a, b], true) if self.apart => vec![(a.clone(), None), (b.clone(), None)],
            ([a, b], true) => vec![(a.clone(), Some(b.clone()))],
            ([a, b], false) => choices.iter().map(|choice| (a.clone(), Some(b.replace(CHOICE, choice)))).collect(),
            (texts, _) => unreachable!("forms of {} texts", texts.len()),
        };
        Ok(Example { line: record.line, texts, target, group, choices })
    }

    fn target(&self, of: &Reader<'_>, value: &Value, labelled: bool) -> Result<Target> {
        let text = text_of(value);
        Ok(match self.kind {
            Kind::Label => {
                let known = self.labels.iter().find(|(file, name)| *file == text || *name == text);
                match known {
                    Some((_, name)) => Target::Label((*name).into()),
                    None if self.labels.is_empty() => Target::Label(text),
                    None if !labelled => Target::None,
                    None => {
                        let known: Vec<_> = self.labels.iter().map(|(file, _)| *file).collect();
                        return Err(
                            of.wrong(format_args!("the label `{}`", lathe_core::shorten(&text)), known.join(", "))
                        );
                    }
                }
            }
            Kind::Value => match text.trim().parse::<f64>() {
                Ok(value) if value.is_finite() => Target::Value(value),
                _ if !labelled => Target::None,
                _ => return Err(of.wrong(format_args!("the value `{}`", lathe_core::shorten(&text)), "a number")),
            },
            Kind::Choice => match text.trim().parse() {
                Ok(right) => Target::Right(vec![right]),
                _ if !labelled => Target::None,
                _ => {
                    let found = format!("`{}` as the right choice", lathe_core::shorten(&text));
                    return Err(of.wrong(found, "its number, counted from 0"));
                }
            },
            Kind::Answers => Target::Answers(of.answers(value)?),
        })
    }

    fn choices(&self, of: &Reader<'_>, target: Target, labelled: bool) -> Result<(Vec<String>, Target)> {
        match self.choices {
            Choices::None => Ok((Vec::new(), target)),
            Choices::Columns(columns) => {
                let choices = columns.iter().map(|column| of.text(column)).collect::<Result<Vec<_>>>()?;
                match &target {
                    Target::Right(right) if right[0] >= choices.len() => {
                        let expected = format!("a number from 0 to {}", choices.len() - 1);
                        Err(of.wrong(format_args!("{} as the right choice", right[0]), expected))
                    }
                    _ => Ok((choices, target)),
                }
            }
            Choices::Parts { text, parts, answers } => {
                let text: Vec<char> = of.text(text)?.chars().collect();
                let mut choices: Vec<String> = Vec::new();
                for part in of.list(parts)? {
                    let at = |key: &str| part.get(key).and_then(Value::as_u64).map(|at| at as usize);
                    let part = at("start").zip(at("end")).and_then(|(start, end)| text.get(start..=end));
                    let Some(part) = part else {
                        return Err(of.wrong(
                            format_args!("a part beyond the {} characters of its text", text.len()),
                            "one inside",
                        ));
                    };
                    let choice: String = part.iter().collect();
                    if !choices.contains(&choice) {
                        choices.push(choice);
                    }
                }
                if find(&of.record.value, answers).is_none() && !labelled {
                    return Ok((choices, Target::None));
                }
                let listed = of.list(answers)?.iter().map(|answer| text_of(&answer["text"]));
                let right: Vec<usize> =
                    listed.filter_map(|answer| choices.iter().position(|choice| *choice == answer)).collect();
                match right.is_empty() && labelled {
                    true => Err(of.wrong("no right answer among the choices", "at least one")),
                    false => Ok((choices, Target::Right(right))),
                }
            }
        }
    }
}

/// A record under reading.
struct Reader<'a> {
    table: &'a Table,
    record: &'a Record,
    group: Option<&'a str>,
}

impl Reader<'_> {
    fn wrong(&self, found: impl std::fmt::Display, expected: impl std::fmt::Display) -> Error {
        let Some(group) = self.group.filter(|_| self.table.records.len() == 1) else {
            return Error::data(place(&self.table.path, self.record.line), found, expected);
        };
        // One document holds all examples: the line is that of the name that they go by.
        let text = std::fs::read_to_string(&self.table.path).unwrap_or_default();
        let line = text.find(&format!("\"{group}\"")).map_or(1, |at| 1 + text[..at].matches('\n').count());
        Error::data(format_args!("{}, `{group}`", place(&self.table.path, line as u64)), found, expected)
    }

    fn missing(&self, column: &str) -> Error {
        let names: Vec<_> = self.record.value.as_object().into_iter().flat_map(Map::keys).cloned().collect();
        self.wrong(format_args!("the columns {}", names.join(", ")), format_args!("a column `{column}`"))
    }

    fn text(&self, column: &str) -> Result<String> {
        find(&self.record.value, column).map(text_of).ok_or_else(|| self.missing(column))
    }

    fn list(&self, column: &str) -> Result<&[Value]> {
        let found = find(&self.record.value, column).ok_or_else(|| self.missing(column))?;
        found.as_array().map(Vec::as_slice).ok_or_else(|| self.wrong(format_args!("no list in `{column}`"), "a list"))
    }

    /// A template with the values of the record.
    fn fill(&self, template: &str) -> Result<String> {
        let mut text = String::new();
        let mut rest = template;
        while let Some((before, after)) = rest.split_once('{') {
            let (inside, after) = after.split_once('}').unwrap_or((after, ""));
            let (column, cases) = inside.split_once('|').unwrap_or((inside, ""));
            let value = self.text(column)?;
            let case = cases.split('|').filter_map(|case| case.split_once('=')).find(|(from, _)| *from == value);
            text += before;
            text += case.map_or(&value, |(_, to)| to);
            rest = after;
        }
        Ok(text + rest)
    }

    /// Answers as SQuAD has them, a list of `text` and `answer_start`, or as an object of two lists.
    fn answers(&self, value: &Value) -> Result<Vec<Answer>> {
        let pairs: Vec<(&Value, &Value)> = match value {
            Value::Array(list) => list.iter().map(|answer| (&answer["text"], &answer["answer_start"])).collect(),
            value => {
                let list = |key: &str| value[key].as_array().map(Vec::as_slice).unwrap_or_default();
                list("text").iter().zip(list("answer_start")).collect()
            }
        };
        let answer = |(text, start): (&Value, &Value)| {
            let text = text.as_str()?.to_string();
            Some(Answer { text, start: start.as_u64()? as usize })
        };
        let answers = pairs.into_iter().map(answer).collect::<Option<_>>();
        answers.ok_or_else(|| self.wrong("an answer without `text` or `answer_start`", "both"))
    }
}

impl Form<'_> {
    /// An error where an answer is not where it claims to be in its context, which is the second text.
    pub fn check_answers(&self, table: &Table, examples: &[Example]) -> Result<()> {
        for example in examples {
            let Target::Answers(answers) = &example.target else { continue };
            let context = example.texts[0].1.as_deref().unwrap_or_default();
            for answer in answers {
                if answer.bytes(context).is_none() {
                    let record = Record { line: example.line, value: Value::Null };
                    let of = Reader { table, record: &record, group: Some(&example.group) };
                    let found = format!(
                        "the answer `{}` at character {}, where its context of {} characters has it not",
                        lathe_core::shorten(&answer.text),
                        answer.start,
                        context.chars().count(),
                    );
                    return Err(of.wrong(found, "an answer inside its context"));
                }
            }
        }
        Ok(())
    }
}

/// The value at a path of names.
fn find<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    // A column may have a dot in its name.
    value.get(path).or_else(|| path.split('.').try_fold(value, |value, name| value.get(name)))
}

/// A value as a text.
fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), String::from)
}

/// A record for each element of lists inside of it.
fn expand(record: Value, each: &[&str]) -> Vec<Value> {
    let Some((path, inner)) = each.split_first() else { return vec![record] };
    let mut outside = record;
    let pointer = format!("/{}", path.replace('.', "/"));
    let Some(Value::Array(list)) = outside.pointer_mut(&pointer).map(Value::take) else { return Vec::new() };
    let with = |element: Value| {
        let mut record = outside.clone();
        if let Some(place) = record.pointer_mut(&pointer) {
            *place = element;
        }
        expand(record, inner)
    };
    list.into_iter().flat_map(with).collect()
}
