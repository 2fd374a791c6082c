//! Regression: a number for a text, or for a pair of texts. Losses are squared errors.

use super::examples::{ExampleTask, Numbers, Prediction};
use crate::Result;
use crate::examples::encoded::{Encoder, Unit};
use crate::examples::scores::{Metric, Predicted};
use crate::examples::{Example, Target};
use lathe_core::Frame;
use lathe_ops::loss::IGNORE;

/// Numbers of texts.
pub struct Regress;

impl ExampleTask for Regress {
    fn key(&self) -> &'static str {
        "regress"
    }

    fn about(&self) -> &'static str {
        "a number for a text or a pair of texts"
    }

    fn metrics(&self) -> &'static [Metric] {
        &[Metric::Pearson, Metric::Spearman]
    }

    /// The bits of the number.
    fn target(&self, _: &Frame, _: &Encoder<'_>, example: &Example) -> Result<u32> {
        Ok(value_of(example).map_or(IGNORE, |value| (value as f32).to_bits()))
    }

    fn loss(&self, numbers: &Numbers<'_>, values: &mut [f32], scale: f32, losses: &mut [f32]) {
        for ((&target, value), loss) in numbers.targets.iter().zip(values).zip(losses) {
            let error = if target == IGNORE { 0.0 } else { *value - f32::from_bits(target) };
            *loss = error * error;
            *value = 2.0 * error * scale;
        }
    }

    fn predict(&self, _: &Example, _: &Unit, values: &[f32]) -> Prediction {
        Prediction::Value(values.first().copied().unwrap_or(f32::NAN).into())
    }

    fn score(&self, _: &Frame, metrics: &[Metric], judged: &[(&Example, Prediction)]) -> Vec<(Metric, f64)> {
        correlations(metrics, judged)
    }
}

/// The number that is right for an example.
pub(super) fn value_of(example: &Example) -> Option<f64> {
    match example.target {
        Target::Value(value) => Some(value),
        _ => None,
    }
}

/// How predicted numbers go with those that are right.
pub(super) fn correlations(metrics: &[Metric], judged: &[(&Example, Prediction)]) -> Vec<(Metric, f64)> {
    let both = |(example, prediction): &(&Example, Prediction)| match prediction {
        Prediction::Value(value) => Some((*value, value_of(example)?)),
        _ => None,
    };
    let (found, right): (Vec<f64>, Vec<f64>) = judged.iter().filter_map(both).unzip();
    let predicted = Predicted::Values { found: &found, right: &right };
    metrics.iter().filter_map(|&metric| Some((metric, metric.of(&predicted)?))).collect()
}
