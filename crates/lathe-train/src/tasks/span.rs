//! Answers out of a context (Devlin et al., 2018, sections 4.2 and 4.3): two numbers of each token say whether the
//! answer begins and ends there; the first token stands for no answer. Losses are the mean of -log p of the two places.
//!
//! A long context is read in windows that overlap. The answer is the best part of all windows, and none where the first
//! token of every window has more.

use super::examples::{ExampleTask, Group, Numbers, Prediction};
use crate::Result;
use crate::examples::encoded::{Encoder, Unit};
use crate::examples::scores::{Metric, Predicted};
use crate::examples::{Example, Target};
use lathe_core::Frame;
use lathe_ops::loss::IGNORE;
use lathe_text::Encoding;
use std::ops::Range;

/// Parts of contexts.
pub struct Span;

/// Tokens that a window of a context shares with the one before.
const OVERLAP: usize = 128;
/// The places with the highest numbers are looked at, and answers of so many tokens.
const PLACES: usize = 20;
const LONGEST: usize = 30;

impl ExampleTask for Span {
    fn key(&self) -> &'static str {
        "span"
    }

    fn about(&self) -> &'static str {
        "the part of a context that answers a question, or none"
    }

    fn metrics(&self) -> &'static [Metric] {
        &[Metric::AnswerExact, Metric::AnswerF1]
    }

    fn units(&self, _: &Frame, encoder: &Encoder<'_>, example: &Example) -> Result<Vec<Unit>> {
        let windows = windows(encoder, example)?;
        let targets = targets(example, &windows);
        let unit = |(window, target)| Unit { target, texts: vec![window], ..Unit::default() };
        Ok(windows.into_iter().zip(targets).map(unit).collect())
    }

    fn unit(&self, _: &Frame, encoder: &Encoder<'_>, example: &Example) -> Result<Unit> {
        let texts = windows(encoder, example)?;
        let mut targets = targets(example, &texts).into_iter();
        Ok(Unit { target: targets.next().unwrap_or(IGNORE), others: targets.collect(), texts, cut: None })
    }

    fn target(&self, _: &Frame, _: &Encoder<'_>, _: &Example) -> Result<u32> {
        Ok(IGNORE) // it depends on the window
    }

    fn loss(&self, numbers: &Numbers<'_>, values: &mut [f32], scale: f32, losses: &mut [f32]) {
        let len = numbers.len;
        for (row, (values, loss)) in values.chunks_exact_mut(2 * len).zip(losses).enumerate() {
            let target = numbers.targets[row];
            if target == IGNORE {
                values.fill(0.0);
                continue;
            }
            let real = |token: usize| numbers.mask.is_none_or(|mask| mask[row * len + token]);
            for (side, place) in [(0, target >> 16), (1, target & 0xffff)] {
                let scores = || (0..len).filter(|&token| real(token)).map(|token| values[2 * token + side]);
                let most = scores().fold(f32::NEG_INFINITY, f32::max);
                let sum: f32 = scores().map(|score| (score - most).exp()).sum();
                *loss += 0.5 * (most + sum.ln() - values[2 * place as usize + side]);
                for token in 0..len {
                    let value = &mut values[2 * token + side];
                    let wanted = f32::from(u8::from(token == place as usize));
                    let probability = if real(token) { (*value - most).exp() / sum } else { 0.0 };
                    *value = 0.5 * scale * (probability - wanted);
                }
            }
        }
    }

    /// Where an answer begins, and where it ends: each over the tokens of a window.
    fn distributions(&self, numbers: &Numbers<'_>, count: usize) -> Vec<Group> {
        let (len, rows) = (numbers.len, count / (2 * numbers.len).max(1));
        let real = |token: &usize| numbers.mask.is_none_or(|mask| mask[*token]);
        let side = |row: usize, side: usize| Group {
            row,
            places: (row * len..(row + 1) * len).filter(real).map(|token| 2 * token + side).collect(),
        };
        (0..rows).flat_map(|row| [side(row, 0), side(row, 1)]).collect()
    }

    fn predict(&self, _: &Example, unit: &Unit, values: &[f32]) -> Prediction {
        let per_window = values.len() / unit.texts.len().max(1);
        let mut found: Vec<(f32, Range<usize>)> = Vec::new();
        let mut none = f32::INFINITY;
        for (window, values) in unit.texts.iter().zip(values.chunks_exact(per_window.max(1))) {
            none = none.min(values[0] + values[1]);
            let best = |side: usize| {
                let mut places: Vec<usize> = (0..window.ids.len()).filter(|&i| window.texts[i] == Some(1)).collect();
                places.sort_by(|&a, &b| values[2 * b + side].total_cmp(&values[2 * a + side]));
                places.truncate(PLACES);
                places
            };
            let ends = best(1);
            for start in best(0) {
                for &end in ends.iter().filter(|&&end| (start..start + LONGEST).contains(&end)) {
                    let bytes = window.offsets[start].0..window.offsets[end].1;
                    found.push((values[2 * start] + values[2 * end + 1], bytes));
                }
            }
        }
        found.sort_by(|a, b| b.0.total_cmp(&a.0));
        found.truncate(PLACES);
        let Some((score, bytes)) = found.first().cloned() else {
            return Prediction::Part { bytes: 0..0, probability: 1.0, none: true };
        };
        let most = score.max(none);
        let sum: f32 = found.iter().map(|(score, _)| score).chain([&none]).map(|score| (score - most).exp()).sum();
        let probability = (score - most).exp() / sum;
        Prediction::Part { bytes, probability, none: none > score }
    }

    /// No answer is accepted only where some questions have none.
    fn score(&self, _: &Frame, metrics: &[Metric], judged: &[(&Example, Prediction)]) -> Vec<(Metric, f64)> {
        let answers = |example: &Example| match &example.target {
            Target::Answers(answers) => answers.iter().map(|answer| answer.text.clone()).collect(),
            _ => Vec::new(),
        };
        let right: Vec<Vec<String>> = judged.iter().map(|(example, _)| answers(example)).collect();
        let some_have_none = right.iter().any(Vec::is_empty);
        let text = |(example, prediction): &(&Example, Prediction)| match prediction {
            Prediction::Part { none: true, .. } if some_have_none => String::new(),
            Prediction::Part { bytes, .. } => context(example).get(bytes.clone()).unwrap_or_default().to_string(),
            _ => String::new(),
        };
        let found: Vec<String> = judged.iter().map(text).collect();
        let predicted = Predicted::Texts { found: &found, right: &right };
        metrics.iter().filter_map(|&metric| Some((metric, metric.of(&predicted)?))).collect()
    }
}

/// Where the answer begins and ends in each window, in one number.
fn targets(example: &Example, windows: &[Encoding]) -> Vec<u32> {
    let Target::Answers(answers) = &example.target else { return vec![IGNORE; windows.len()] };
    let bytes = answers.first().and_then(|answer| answer.bytes(context(example)));
    let places = |window| bytes.as_ref().and_then(|bytes| tokens_of(window, bytes)).unwrap_or((0, 0));
    windows.iter().map(places).map(|(start, end)| (start as u32) << 16 | end as u32).collect()
}

fn context(example: &Example) -> &str {
    example.texts.first().and_then(|(_, context)| context.as_deref()).unwrap_or_default()
}

fn windows(encoder: &Encoder<'_>, example: &Example) -> Result<Vec<Encoding>> {
    let question = example.texts.first().map(|(question, _)| question.as_str()).unwrap_or_default();
    // Places are kept in 16 bits.
    let encoder = Encoder { max_len: encoder.max_len.min(1 << 16), ..*encoder };
    encoder.windows(example.line, question, context(example), OVERLAP)
}

/// The tokens of a window that a part of its context begins and ends in; none where it is not all there.
fn tokens_of(window: &Encoding, bytes: &Range<usize>) -> Option<(usize, usize)> {
    let own = || (0..window.ids.len()).filter(|&i| window.texts[i] == Some(1));
    let (first, last) = (own().next()?, own().next_back()?);
    if window.offsets[first].0 > bytes.start || window.offsets[last].1 < bytes.end {
        return None;
    }
    let start = own().find(|&i| window.offsets[i].1 > bytes.start)?;
    let end = own().rfind(|&i| window.offsets[i].0 < bytes.end)?;
    Some((start, end.max(start)))
}
