//! Examples of a task in three parts: some to learn from, some to choose by, and some to report on, which nothing is chosen
//! by.
//!
//! The last two are every second example of those to validate on: the benchmark's, or else the last fifth.

use super::outcome::Quality;
use super::samples::Samples;
use crate::{Error, Event, Result, Watch};
use lathe_core::Frame;
use lathe_model::Network;
use lathe_ops::loss::IGNORE;
use lathe_train::data::Tokenizer;
use lathe_train::divergence::Divergence;
use lathe_train::examples::encoded::{self, Encoder, Unit};
use lathe_train::examples::{Example, Examples, Target, open};
use lathe_train::settings::Settings;
use lathe_train::tasks::examples::Judge;
use lathe_train::tasks::{self, ExampleTask, Prediction, Task};
use std::path::Path;

/// The share of the examples in each of the parts to choose by and to report on.
const SHARE: usize = 10;
/// Tokens computed at once, padding included.
const AT_ONCE: usize = 2048;
/// Characters of a text that is shown.
const SHOWN: usize = 60;

/// In a job's folder: those to learn from, none at all, and those to report on.
pub const LEARN: &str = "examples/learn.jsonl";
pub const NONE: &str = "examples/none.jsonl";
pub const REPORT: &str = "examples/report.jsonl";

/// The task that learns from examples of a name.
fn task_of(name: &str) -> Result<(&'static dyn Task, &'static dyn ExampleTask)> {
    let task = tasks::named(name)?;
    let wrong = || Error::setting("task", task.key(), "a task that learns from examples");
    Ok((task, task.of_examples().ok_or_else(wrong)?))
}

/// Examples and their parts.
pub struct Labelled {
    /// A task, or a benchmark.
    pub name: String,
    learn: Examples,
    choose: Examples,
    report: Examples,
}

impl Labelled {
    /// Reads the examples of a task or a benchmark.
    pub fn open(name: &str, columns: &str, data: &str, valid: Option<&str>, watch: Watch<'_>) -> Result<Self> {
        let settings = Settings {
            task: name.into(),
            columns: columns.into(),
            data: data.into(),
            valid: valid.unwrap_or_default().into(),
            ..Settings::default()
        };
        let labelled = !task_of(name)?.1.gives_vectors();
        let (mut learn, held) = open::training(&settings, labelled, &mut |warning| watch(Event::Warning(warning)))?;
        let mut held = held.unwrap_or_else(|| Examples { examples: Vec::new(), ..learn.clone() });
        if valid.is_none() && !Path::new(data).is_dir() {
            learn.examples.append(&mut held.examples);
            held.examples = learn.examples.split_off(learn.examples.len() - 2 * (learn.examples.len() / SHARE));
        }
        let every_second = |from: usize| Examples {
            examples: held.examples.iter().skip(from).step_by(2).cloned().collect(),
            ..held.clone()
        };
        let (choose, report) = (every_second(0), every_second(1));
        for (what, part) in [("learn from", &learn), ("choose by", &choose), ("report on", &report)] {
            if part.examples.is_empty() {
                let expected = "enough to cut them into some to learn from, some to choose by and some to report on";
                return Err(Error::data(data, format!("too few examples: none is left to {what}"), expected));
            }
        }
        Ok(Self { name: name.into(), learn, choose, report })
    }

    /// Texts that nobody says a similarity of get the one that the original gives them: a pair its own, a text that to the
    /// next. Whether there were any.
    pub fn compare_by(&mut self, network: &Network, tokenizer: &Tokenizer) -> Result<bool> {
        let parts = [&self.learn, &self.choose, &self.report];
        if parts.iter().all(|part| part.examples.iter().all(|one| !one.target.is_none())) {
            return Ok(false);
        }
        let pairs = |part: &Examples| -> Result<Examples> {
            let next = part.examples.iter().cycle().skip(1);
            let pair = |(one, next): (&Example, &Example)| {
                let mut pair = one.clone();
                if let [text] = pair.texts.as_slice() {
                    pair.texts = vec![text.clone(), next.texts[0].clone()];
                }
                pair
            };
            let mut pairs = Examples { examples: part.examples.iter().zip(next).map(pair).collect(), ..part.clone() };
            let said = self.judge(&pairs, network, tokenizer)?;
            for (pair, said) in pairs.examples.iter_mut().zip(said) {
                if let (true, Prediction::Value(cosine)) = (pair.target.is_none(), said) {
                    pair.target = Target::Value(cosine);
                }
            }
            Ok(pairs)
        };
        (self.learn, self.choose, self.report) = (pairs(&self.learn)?, pairs(&self.choose)?, pairs(&self.report)?);
        Ok(true)
    }

    /// What models are judged for.
    pub fn task(&self) -> Result<(&'static dyn Task, &'static dyn ExampleTask)> {
        task_of(&self.name)
    }

    /// Writes what trainings and evaluations read into a job's folder.
    pub fn write(&self, out: &Path) -> Result<()> {
        let folder = out.join("examples");
        std::fs::create_dir_all(&folder).map_err(Error::io(&folder))?;
        let parts = [self.learn.examples.as_slice(), &[], &self.report.examples];
        for (name, examples) in [LEARN, NONE, REPORT].iter().zip(parts) {
            Examples::write(&out.join(name), examples)?;
        }
        Ok(())
    }

    fn units(&self, examples: &Examples, tokenizer: &Tokenizer, frame: &Frame) -> Result<Vec<Unit>> {
        let encoder = Encoder { tokenizer, max_len: frame.window() as usize, path: &examples.path };
        let (_, task) = self.task()?;
        let units = examples.examples.iter().map(|example| task.units(frame, &encoder, example));
        Ok(units.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
    }

    /// Tokens of the longest text to learn from, and of a text in the mean.
    pub fn lengths(&self, tokenizer: &Tokenizer, frame: &Frame) -> Result<[u32; 2]> {
        let units = self.units(&self.learn, tokenizer, frame)?;
        let lengths = || units.iter().flat_map(|unit| &unit.texts).map(|text| text.ids.len());
        let mean = lengths().sum::<usize>() as f64 / lengths().count().max(1) as f64;
        Ok([lengths().max().unwrap_or(1) as u32, mean.round().max(1.0) as u32])
    }

    /// Examples to choose by, of about so many tokens.
    pub fn samples(&self, tokenizer: &Tokenizer, frame: &Frame, limit: u64) -> Result<Samples> {
        let mut units = self.units(&self.choose, tokenizer, frame)?;
        let mut tokens = 0;
        let within = units.iter().take_while(|unit| {
            let fits = tokens < limit;
            tokens += unit.texts.iter().map(|text| text.ids.len() as u64).sum::<u64>();
            fits
        });
        units.truncate(within.count());
        let counted = units.iter().filter(|unit| unit.target != IGNORE).count();
        if counted == 0 {
            return Err(Error::data(self.choose.path.display(), "no example with a label", "some to choose by"));
        }
        let pad = tokenizer.specials().pad.unwrap_or(0);
        let batch = |group: &Vec<usize>| encoded::batch(&group.iter().map(|&i| &units[i]).collect::<Vec<_>>(), pad);
        let batches = encoded::by_length(&units, AT_ONCE).iter().map(batch).collect();
        Ok(Samples { task: self.task()?.0, batches, tokens: counted as u64, bytes: counted as f64 })
    }

    /// Tokens of so many texts to learn from, from all over them.
    pub fn sequences(&self, tokenizer: &Tokenizer, frame: &Frame, count: usize) -> Result<Vec<Vec<u32>>> {
        let units = self.units(&self.learn, tokenizer, frame)?;
        let texts: Vec<&Vec<u32>> = units.iter().flat_map(|unit| &unit.texts).map(|text| &text.ids).collect();
        let every = texts.len().div_ceil(count).max(1);
        Ok(texts.into_iter().step_by(every).cloned().collect())
    }

    fn judge(&self, examples: &Examples, network: &Network, tokenizer: &Tokenizer) -> Result<Vec<Prediction>> {
        let max_len = network.model.frame.window() as usize;
        let judge = Judge { task: self.task()?.1, network, tokenizer, max_len };
        Ok(judge.judge(examples, &mut |_, _| ())?.predictions)
    }

    /// How far the predictions of a model are from the original's; `None` where they are no choices.
    pub fn quality(&self, [original, found]: [&Network; 2], tokenizer: &Tokenizer) -> Result<Option<Quality>> {
        let judge = |network: &Network| self.judge(&self.report, network, tokenizer);
        let (original, found) = (judge(original)?, judge(found)?);
        let (mut nats, mut same) = (Vec::new(), 0);
        for pair in original.iter().zip(&found) {
            if let (Prediction::One { index, probabilities: p }, Prediction::One { index: other, probabilities: q }) =
                pair
            {
                let of =
                    |(&p, &q): (&f32, &f32)| f64::from(p) * (f64::from(p.max(1e-30)) / f64::from(q.max(1e-30))).ln();
                nats.push(p.iter().zip(q).map(of).sum::<f64>().max(0.0));
                same += u64::from(index == other);
            }
        }
        let quality = |found: Divergence| Quality { kl: found.kl, same_top: found.same_top };
        Ok(Divergence::of(nats, same, Vec::new()).map(quality))
    }

    /// The mean cosine of the vectors of a model with the original's; `None` where texts have none.
    pub fn cosine(&self, [original, found]: [&Network; 2], tokenizer: &Tokenizer) -> Result<Option<f64>> {
        if !self.task()?.1.gives_vectors() {
            return Ok(None);
        }
        let single =
            |(one, text): (&Example, &(String, Option<String>))| Example { texts: vec![text.clone()], ..one.clone() };
        let texts = self.report.examples.iter().flat_map(|one| one.texts.iter().map(move |text| (one, text)));
        let texts = Examples { examples: texts.map(single).collect(), ..self.report.clone() };
        let (original, found) = (self.judge(&texts, original, tokenizer)?, self.judge(&texts, found, tokenizer)?);
        let cosine = |pair: (&Prediction, &Prediction)| match pair {
            (Prediction::Vector(a), Prediction::Vector(b)) => a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum(),
            _ => f64::NAN,
        };
        let sum: f64 = original.iter().zip(&found).map(cosine).sum();
        Ok(Some(sum / original.len().max(1) as f64))
    }

    /// What a model says of some of the examples to report on.
    pub fn said(&self, network: &Network, tokenizer: &Tokenizer, count: usize) -> Result<String> {
        let labels = network.model.frame.words("labels");
        let show = |(example, prediction): (&Example, Prediction)| {
            let text = example.texts.first().map_or("", |(first, _)| first);
            let said = match prediction {
                Prediction::One { index, probabilities } => {
                    let name =
                        labels.get(index).or(example.choices.get(index)).cloned().unwrap_or_else(|| index.to_string());
                    format!("{name} ({:.2})", probabilities[index])
                }
                Prediction::Value(value) => format!("{value:.3}"),
                Prediction::Vector(vector) => format!("a vector of {}", vector.len()),
                Prediction::Part { none: true, .. } => "no answer".into(),
                Prediction::Part { bytes, .. } => {
                    let context = example.texts.first().and_then(|(_, context)| context.as_deref()).unwrap_or_default();
                    context.get(bytes).unwrap_or_default().into()
                }
            };
            format!("{}: {said}", text.chars().take(SHOWN).collect::<String>())
        };
        let some = self.report.examples.iter().take(count).cloned().collect();
        let some = Examples { examples: some, ..self.report.clone() };
        let predictions = self.judge(&some, network, tokenizer)?;
        Ok(some.examples.iter().zip(predictions).map(show).collect::<Vec<_>>().join("\n"))
    }
}
