//! From what settings name to examples: which files those of a benchmark are, and what the columns of other files mean.

use super::benchmarks::{self, Benchmark};
use super::form::{CHOICE, Choices, Form, Kind};
use super::table::Table;
use super::{Example, Examples, Target};
use crate::settings::Settings;
use crate::tasks::{self, ExampleTask};
use crate::{Error, Result};
use lathe_core::model::{Value, key};
use lathe_core::{Registry, Spec};
use std::path::{Path, PathBuf};

/// Columns of texts that files usually have, and of labels.
const TEXTS: &[&[&str]] = &[
    &["sentence1", "sentence2"],
    &["premise", "hypothesis"],
    &["question1", "question2"],
    &["question", "sentence"],
    &["question", "passage"],
    &["text_a", "text_b"],
    &["text1", "text2"],
    &["text"],
    &["sentence"],
];
const LABELS: &[&str] = &["label", "score", "gold_label"];

/// What examples are read for.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// A task or a benchmark.
    pub task: &'a str,
    /// The columns of texts and label, where they are not the usual ones.
    pub columns: &'a str,
    /// Whether a label is needed.
    pub labelled: bool,
}

/// Is told what a user should know.
pub type Warn<'a> = &'a mut dyn FnMut(String);

impl Wanted<'_> {
    /// The examples of a file.
    pub fn read(&self, path: &Path, warn: Warn<'_>) -> Result<Examples> {
        let benchmark = benchmarks::find(self.task);
        let (columns, lenient) = benchmark.map_or((&[][..], false), |known| (known.form.columns, known.form.lenient));
        self.of_table(&Table::read(path, columns, lenient)?, warn)
    }

    /// The examples of a table.
    pub fn of_table(&self, table: &Table, warn: Warn<'_>) -> Result<Examples> {
        let benchmark = benchmarks::find(self.task);
        if let Some(first) = table.short.first() {
            warn(format!(
                "{} lines of {} have too few columns and are left out, the first is line {first}",
                table.short.len(),
                table.path.display()
            ));
        }
        let mut examples = match benchmark {
            _ if Examples::are_written(table) => Examples::written(table)?,
            Some(benchmark) => checked(&benchmark.form, table, self.labelled)?,
            None => self.own(table)?,
        };
        let task = tasks::named(self.task)?.of_examples();
        if task.is_some_and(ExampleTask::gives_vectors) {
            similarities(&mut examples);
        }
        let metrics = benchmark.map_or_else(Vec::new, |benchmark| benchmark.metrics.to_vec());
        Ok(Examples { path: table.path.clone(), metrics, examples })
    }

    /// Examples of a file that no benchmark knows.
    fn own(&self, table: &Table) -> Result<Vec<Example>> {
        let task = tasks::named(self.task)?.key();
        let Some(first) = table.records.first() else { return Ok(Vec::new()) };
        let has = |name: &&str| first.value.get(*name).is_some();
        let mut named: Vec<&str> = self.columns.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
        if task == "span" {
            if first.value.get("data").is_some() {
                return checked(&benchmarks::SQUAD, table, self.labelled);
            }
            if named.is_empty() {
                named = vec!["question", "context", "answers"];
            }
        }
        if named.is_empty() {
            let texts = TEXTS.iter().find(|names| names.iter().all(has));
            let label = LABELS.iter().copied().find(|label| has(label));
            let Some(texts) = texts else {
                let names: Vec<_> =
                    first.value.as_object().into_iter().flat_map(serde_json::Map::keys).cloned().collect();
                let known: Vec<_> = TEXTS.iter().map(|names| names.join(" and ")).collect();
                let expected = format!("columns of texts ({}), or their names in `columns`", known.join("; "));
                let place = super::table::place(&table.path, first.line);
                return Err(Error::data(place, format_args!("the columns {}", names.join(", ")), expected));
            };
            named = texts.to_vec();
            named.push(label.unwrap_or("label"));
        } else if !self.labelled && task != "span" && named.last().is_some_and(|last| !LABELS.contains(last)) {
            // Texts alone, where there are no more than a task has.
            if task == "choose" || named.len() < 3 {
                named.push("");
            }
        }
        let kind = match task {
            "regress" | "embed" => Kind::Value,
            "choose" => Kind::Choice,
            "span" => Kind::Answers,
            _ => Kind::Label,
        };
        let label = named.pop().unwrap_or_default();
        let most = if kind == Kind::Choice { usize::MAX } else { 2 };
        let least = if kind == Kind::Choice { 3 } else { 1 };
        if !(least..=most).contains(&named.len()) {
            let expected = match kind {
                Kind::Choice => "the columns of a text, of at least two choices and of the label",
                _ => "the columns of one or two texts and of the label",
            };
            return Err(Error::setting("columns", format_args!("`{}`", self.columns), expected));
        }
        let choices = if kind == Kind::Choice { named.split_off(1) } else { Vec::new() };
        let mut templates: Vec<String> = named.iter().map(|name| format!("{{{name}}}")).collect();
        if kind == Kind::Choice {
            templates.push(CHOICE.into());
        }
        let texts: Vec<&str> = templates.iter().map(String::as_str).collect();
        let choices = if choices.is_empty() { Choices::None } else { Choices::Columns(&choices) };
        let group = if kind == Kind::Answers && has(&"id") { "{id}" } else { "" };
        let form = Form { texts: &texts, apart: task == "embed", choices, label, kind, group, ..Form::PLAIN };
        checked(&form, table, self.labelled)
    }

    /// The files to judge by: one itself, or those of a benchmark in a folder.
    pub fn judged(&self, data: &Path) -> Result<Vec<PathBuf>> {
        match benchmarks::find(self.task) {
            Some(benchmark) if data.is_dir() => {
                benchmark.dev.iter().map(|names| file_of(benchmark, data, names)).collect()
            }
            _ => Ok(vec![data.into()]),
        }
    }
}

fn checked(form: &Form<'_>, table: &Table, labelled: bool) -> Result<Vec<Example>> {
    let examples = form.examples(table, labelled)?;
    form.check_answers(table, &examples)?;
    Ok(examples)
}

/// Similarities on a scale of their own, such as 0 to 5, become shares of it.
fn similarities(examples: &mut [Example]) {
    let value = |example: &Example| if let Target::Value(value) = example.target { value.abs() } else { 0.0 };
    let most = examples.iter().map(value).fold(1.0, f64::max);
    for example in examples {
        if let Target::Value(value) = &mut example.target {
            *value /= most;
        }
    }
}

/// A file of a benchmark, in a folder or in the one that it is distributed in there.
fn file_of(benchmark: &Benchmark, data: &Path, names: &[&str]) -> Result<PathBuf> {
    let folders = [data.to_path_buf(), data.join(benchmark.folder)];
    let found =
        names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name))).find(|path| path.is_file());
    found.ok_or_else(|| {
        let expected = match names {
            [] => format!("nothing to train {} on: it is there to judge models", benchmark.name),
            names => format!("{}, there or in {}", names.join(" or "), benchmark.folder),
        };
        Error::data(data.display(), format_args!("no such file of {}", benchmark.name), expected)
    })
}

/// What a run trains on and validates on: the files of a benchmark in a folder, or the file of the settings, of which
/// the last tenth validates where they name no other. Without `labelled` a record need not say what is right.
pub fn training(settings: &Settings, labelled: bool, warn: Warn<'_>) -> Result<(Examples, Option<Examples>)> {
    let wanted = Wanted { task: &settings.task, columns: &settings.columns, labelled };
    let data = Path::new(&settings.data);
    let path = match benchmarks::find(&settings.task) {
        Some(benchmark) if data.is_dir() => file_of(benchmark, data, benchmark.train)?,
        _ => data.to_path_buf(),
    };
    let mut train = wanted.read(&path, warn)?;
    let of_folder = data.is_dir() && settings.valid.is_empty();
    let judged = match settings.valid.as_str() {
        "" if of_folder => wanted.judged(data).ok().and_then(|files| files.into_iter().next()),
        "" => None,
        valid => wanted.judged(Path::new(valid))?.into_iter().next(),
    };
    let valid = match judged {
        Some(path) => wanted.read(&path, warn)?,
        None => {
            let count = train.examples.len() / 10;
            let examples = train.examples.split_off(train.examples.len() - count);
            Examples { path: train.path.clone(), metrics: train.metrics.clone(), examples }
        }
    };
    Ok((train, Some(valid).filter(|valid| !valid.examples.is_empty())))
}

/// A model with the output layer that the task of a run needs. Labels that a task does not know itself are those of the
/// examples, numbers in their order and words in theirs.
pub fn fit(settings: &Settings, model: &Spec, registry: &Registry) -> Result<Spec> {
    let mut model = model.clone();
    if settings.task.is_empty() {
        return Ok(model);
    }
    let task = tasks::named(&settings.task)?;
    let (Some(head), Some(names)) = (registry.key("head"), registry.key("labels")) else { return Ok(model) };
    if let Some(needed) = task.head() {
        let mut with_head = model.clone();
        with_head.set(head, Value::Word(needed.into()));
        with_head.set(names, Value::Words(Vec::new()));
        // A family that cannot have it stays as it is: the task says why it does not fit.
        let mut of_any_vocab = with_head.clone();
        of_any_vocab.set(key("vocab").expect("a key of the model file"), Value::Int(256));
        return Ok(if of_any_vocab.frame(registry).is_ok() { with_head } else { model });
    }
    if task.of_examples().is_none_or(ExampleTask::gives_vectors) {
        return Ok(model);
    }
    let mut labels = Vec::new();
    if task.key() == "classify" {
        labels = match benchmarks::find(&settings.task) {
            Some(benchmark) => benchmark.form.labels.iter().map(|(_, name)| name.to_string()).collect(),
            None => labels_of(&training(settings, true, &mut |_| ())?.0),
        };
        let known = match model.get("labels") {
            Some(Value::Words(known)) => known.as_slice(),
            _ => &[],
        };
        if !known.is_empty() && labels.iter().all(|label| known.contains(label)) {
            labels = known.to_vec(); // in its own order
        }
    }
    model.set(head, Value::Word(task.key().into()));
    model.set(names, Value::Words(labels));
    Ok(model)
}

fn labels_of(examples: &Examples) -> Vec<String> {
    let mut labels: Vec<String> = Vec::new();
    for example in &examples.examples {
        if let Target::Label(label) = &example.target
            && !labels.contains(label)
        {
            labels.push(label.clone());
        }
    }
    let number = |label: &String| label.parse::<i64>().ok();
    match labels.iter().all(|label| number(label).is_some()) {
        true => labels.sort_by_key(number),
        false => labels.sort(),
    }
    labels
}
