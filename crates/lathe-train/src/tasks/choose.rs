//! Choice: which of several texts is right, such as the answer to a question (Zellers et al., 2018, as BERT does it).
//! Each is a sequence of its own with a number; losses are -log of the softmax over an example's texts.

use super::examples::{ExampleTask, Group, Numbers, Prediction, most_probable, softmax};
use crate::Result;
use crate::examples::encoded::{Encoder, Unit};
use crate::examples::scores::{Metric, Predicted};
use crate::examples::{Example, Target};
use lathe_core::Frame;
use lathe_ops::loss::IGNORE;
use std::ops::Range;

/// One text of several.
pub struct Choose;

impl ExampleTask for Choose {
    fn key(&self) -> &'static str {
        "choose"
    }

    fn about(&self) -> &'static str {
        "which of several texts is right"
    }

    fn metrics(&self) -> &'static [Metric] {
        &[Metric::Accuracy]
    }

    /// The first that is right.
    fn target(&self, _: &Frame, _: &Encoder<'_>, example: &Example) -> Result<u32> {
        Ok(right_of(example).first().map_or(IGNORE, |&right| right as u32))
    }

    fn loss(&self, numbers: &Numbers<'_>, values: &mut [f32], scale: f32, losses: &mut [f32]) {
        for rows in texts_of_examples(&numbers.targets) {
            let first = rows.start;
            let (scores, right) = (&mut values[rows], numbers.targets[first]);
            let probabilities = softmax(scores);
            let most = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let sum: f32 = scores.iter().map(|x| (x - most).exp()).sum();
            losses[first] = scores.get(right as usize).map_or(0.0, |score| most + sum.ln() - score);
            for (i, (score, probability)) in scores.iter_mut().zip(&probabilities).enumerate() {
                let wanted = f32::from(u8::from(i == right as usize));
                *score = if right == IGNORE { 0.0 } else { scale * (probability - wanted) };
            }
        }
    }

    fn distributions(&self, numbers: &Numbers<'_>, _: usize) -> Vec<Group> {
        let group = |rows: Range<usize>| Group { row: rows.start, places: rows.collect() };
        texts_of_examples(&numbers.targets).map(group).collect()
    }

    fn predict(&self, _: &Example, _: &Unit, values: &[f32]) -> Prediction {
        most_probable(values)
    }

    fn score(&self, _: &Frame, metrics: &[Metric], judged: &[(&Example, Prediction)]) -> Vec<(Metric, f64)> {
        let found: Vec<usize> = judged.iter().map(|(_, prediction)| super::classify::index(prediction)).collect();
        let right: Vec<&[usize]> = judged.iter().map(|(example, _)| right_of(example)).collect();
        let choice = |example: &Example, i: usize| example.choices.get(i).cloned().unwrap_or_default();
        let texts: Vec<String> = judged.iter().zip(&found).map(|((example, _), &i)| choice(example, i)).collect();
        let all = |example: &Example| right_of(example).iter().map(|&i| choice(example, i)).collect();
        let right_texts: Vec<Vec<String>> = judged.iter().map(|(example, _)| all(example)).collect();
        let choices = Predicted::Choices { found: &found, right: &right };
        let texts = Predicted::Texts { found: &texts, right: &right_texts };
        let value = |metric: Metric| metric.of(&choices).or_else(|| metric.of(&texts));
        metrics.iter().filter_map(|&metric| Some((metric, value(metric)?))).collect()
    }
}

/// The rows of each example: those after the first have no target.
fn texts_of_examples(targets: &[u32]) -> impl Iterator<Item = Range<usize>> {
    let mut first = 0;
    std::iter::from_fn(move || {
        let rest = targets.get(first + 1..)?.iter().take_while(|&&target| target == IGNORE).count();
        let rows = first..first + 1 + rest;
        first = rows.end;
        Some(rows)
    })
}

fn right_of(example: &Example) -> &[usize] {
    match &example.target {
        Target::Right(right) => right,
        _ => &[],
    }
}
