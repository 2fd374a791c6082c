//! Choices: which of several texts a model holds to be the most probable, as lm-eval asks for it (Gao et al., 2021).
//!
//! An example has options, each a context and what goes on after it. `accuracy` is the share of examples where the option
//! whose continuation has the highest sum of log-probabilities is a right one; `accuracy_norm` divides that sum by the
//! bytes of the choice, the space before it not among them. An example of one option is right where every token of it is
//! the most probable one.
//!
//! ```text
//! file -> a form, by its columns -> examples -> (with one shot) another example before each -> tokens -> scores
//! ```

mod columns;
mod encode;
mod forms;
mod prepare;
mod python;
mod read;
mod score;

pub use columns::Row;
pub use forms::{FORMS, Form};
pub use read::{Examples, read};

use crate::{Error, Result};
use encode::Encoder;
use lathe_model::Network;
use lathe_text::Tokenizer;
use python::Random;
use score::{Scored, Text, score};
use serde::Serialize;

/// A question with what may come after it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Example {
    /// Each a context, and what goes on after it.
    pub options: Vec<(String, String)>,
    /// What the options differ in.
    pub choices: Vec<String>,
    /// The right ones.
    pub gold: Vec<usize>,
    /// Question and answer, as they stand before another question.
    pub shown: String,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// Share of examples where the right option has the highest sum of log-probabilities; where there is one option, where
    /// all of its tokens are the most probable ones.
    pub accuracy: f64,
    /// The same per byte of the choice, where there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accuracy_norm: Option<f64>,
    /// Of what goes on, where there is one option: e to the mean of the negative log-probability of an example.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub perplexity: Option<f64>,
    /// How many there were.
    pub examples: usize,
    /// Of these so many were too long for the model and lost tokens at their beginning.
    pub truncated: usize,
    /// What they looked like.
    pub form: &'static str,
    /// Examples that were shown before each.
    pub shots: u32,
}

/// How to ask.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Examples that are shown before each: 0 or 1.
    pub shots: u32,
    /// Which ones.
    pub seed: u32,
    /// The most tokens that the model looks at; 0 for as many as it can.
    pub window: usize,
}

/// Options that are computed together: about so many bytes of them.
const BYTES_AT_ONCE: usize = 1 << 13;

/// Asks a model; `watch` is told how many examples are done, and of the last of them the sums of log-probabilities.
pub fn evaluate(
    network: &Network,
    tokenizer: &Tokenizer,
    examples: &Examples,
    options: &Options,
    watch: &mut dyn FnMut(usize, &[f64]),
) -> Result<Outcome> {
    let frame = &network.model.frame;
    let window = match (frame.has_memory(), options.window) {
        (true, _) => usize::MAX,
        (false, 0) => frame.max_len as usize,
        (false, window) => window.min(frame.max_len as usize),
    };
    let encoder = Encoder::new(tokenizer, window)?;
    let shots = shots(examples, options)?;
    let mut tally = Tally::default();
    let mut done = 0;
    while done < examples.list.len() {
        let (mut bytes, mut texts) = (0, Vec::new());
        while done + texts.len() < examples.list.len() && bytes < BYTES_AT_ONCE {
            let at = done + texts.len();
            let shown = shots.get(at).map_or("", |&shot| &examples.list[shot].shown);
            let one = |(context, continuation): &(String, String)| {
                bytes += shown.len() + context.len() + continuation.len();
                encoder.text(&format!("{shown}{context}"), continuation)
            };
            let encoded: Result<Vec<Text>> = examples.list[at].options.iter().map(one).collect();
            texts.push(encoded.map_err(|error| examples.place(at, error))?);
        }
        for (scored, texts) in score(network, &texts).iter().zip(&texts) {
            tally.add(&examples.list[done], scored, texts.iter().any(|text| text.truncated));
            done += 1;
            watch(done, &scored.iter().map(|scored| scored.log_probability).collect::<Vec<_>>());
        }
    }
    Ok(tally.outcome(examples, options.shots))
}

/// For every example the one that is shown before it, as lm-eval draws it where examples are shown that are also asked
/// for: two by Python's generator, of which the first counts that is another one.
fn shots(examples: &Examples, options: &Options) -> Result<Vec<usize>> {
    match options.shots {
        0 => return Ok(Vec::new()),
        1 => {}
        more => return Err(Error::setting("shots", more, "0 or 1")),
    }
    let (count, mut random) = (examples.list.len(), Random::new(options.seed));
    let too_few = || {
        let expected = "at least 2 that differ, one to ask for and one to show before it";
        Error::data(&examples.file, format_args!("{count} examples"), expected)
    };
    if count < 2 {
        return Err(too_few());
    }
    let one = |at: usize| {
        let differs = |other: &usize| !examples.rows[*other].same(&examples.rows[at]);
        let [first, second] = random.two_of(count);
        match [first, second].into_iter().find(differs) {
            Some(shot) => Ok(shot),
            None => {
                let others: Vec<usize> = (0..count).filter(differs).collect();
                if others.is_empty() { Err(too_few()) } else { Ok(others[random.below(others.len())]) }
            }
        }
    };
    (0..count).map(one).collect()
}

/// Counts of what was right.
#[derive(Default)]
struct Tally {
    right: usize,
    right_norm: usize,
    nats: f64,
    /// Of one option.
    single: usize,
    truncated: usize,
}

impl Tally {
    fn add(&mut self, example: &Example, scored: &[Scored], truncated: bool) {
        self.truncated += usize::from(truncated);
        if let [only] = scored {
            self.single += 1;
            self.nats -= only.log_probability;
            self.right += usize::from(only.greedy);
            return;
        }
        let bytes = example.choices.iter().map(|choice| choice.len() as f64);
        let per_byte = scored.iter().zip(bytes).map(|(scored, bytes)| scored.log_probability / bytes);
        let right = |best: usize| usize::from(example.gold.contains(&best));
        self.right += right(first_of_most(scored.iter().map(|scored| scored.log_probability)));
        self.right_norm += right(first_of_most(per_byte));
    }

    fn outcome(&self, examples: &Examples, shots: u32) -> Outcome {
        let count = examples.list.len();
        let share = |right: usize| right as f64 / count as f64;
        let several = self.single < count;
        Outcome {
            accuracy: share(self.right),
            accuracy_norm: several.then(|| share(self.right_norm)),
            perplexity: (!several).then(|| (self.nats / count as f64).exp()),
            examples: count,
            truncated: self.truncated,
            form: examples.form.name,
            shots,
        }
    }
}

/// The place of the largest number, the first of several.
fn first_of_most(numbers: impl Iterator<Item = f64>) -> usize {
    let mut best = (0, f64::NEG_INFINITY);
    for (i, number) in numbers.enumerate() {
        if number > best.1 {
            best = (i, number);
        }
    }
    best.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_equals_the_first_counts() {
        assert_eq!(first_of_most([-2.0, -1.0, -1.0].into_iter()), 1);
        assert_eq!(first_of_most([f64::NEG_INFINITY, f64::NAN].into_iter()), 0);
    }
}
