//! Classification: the label of a text, or of a pair of texts (Devlin et al., 2018, section 4.1). Losses are -log p of
//! the right label.

use super::examples::{ExampleTask, Group, Numbers, Prediction, most_probable};
use crate::examples::encoded::{Encoder, Unit};
use crate::examples::scores::{Metric, Predicted};
use crate::examples::{Example, Target};
use crate::{Error, Result};
use lathe_core::{Frame, shorten};
use lathe_ops::loss::{self, IGNORE};

/// Labels of texts.
pub struct Classify;

impl ExampleTask for Classify {
    fn key(&self) -> &'static str {
        "classify"
    }

    fn about(&self) -> &'static str {
        "the label of a text or a pair of texts"
    }

    fn metrics(&self) -> &'static [Metric] {
        &[Metric::Accuracy, Metric::F1, Metric::Matthews]
    }

    fn target(&self, frame: &Frame, encoder: &Encoder<'_>, example: &Example) -> Result<u32> {
        let labels = frame.words("labels");
        let Target::Label(label) = &example.target else { return Ok(IGNORE) };
        match labels.iter().position(|known| known == label) {
            Some(number) => Ok(number as u32),
            None => {
                let found = format!("the label `{}`, which the model does not know", shorten(label));
                Err(Error::data(encoder.place(example.line), found, labels.join(", ")))
            }
        }
    }

    fn loss(&self, numbers: &Numbers<'_>, values: &mut [f32], scale: f32, losses: &mut [f32]) {
        loss::cross_entropy(values, values.len() / losses.len(), &numbers.targets, scale, losses);
    }

    fn distributions(&self, numbers: &Numbers<'_>, count: usize) -> Vec<Group> {
        Group::rows(count, numbers.targets.len()).collect()
    }

    fn predict(&self, _: &Example, _: &Unit, values: &[f32]) -> Prediction {
        most_probable(values)
    }

    fn score(&self, frame: &Frame, metrics: &[Metric], judged: &[(&Example, Prediction)]) -> Vec<(Metric, f64)> {
        let labels = frame.words("labels");
        let found: Vec<usize> = judged.iter().map(|(_, prediction)| index(prediction)).collect();
        let number = |example: &Example| match &example.target {
            Target::Label(label) => labels.iter().position(|known| known == label).unwrap_or(labels.len()),
            _ => labels.len(),
        };
        let right: Vec<usize> = judged.iter().map(|(example, _)| number(example)).collect();
        let groups: Vec<&str> = judged.iter().map(|(example, _)| example.group.as_str()).collect();
        let predicted = Predicted::Labels { found: &found, right: &right, labels: labels.len(), groups: &groups };
        metrics.iter().filter_map(|&metric| Some((metric, metric.of(&predicted)?))).collect()
    }
}

/// Which was predicted.
pub(super) fn index(prediction: &Prediction) -> usize {
    match prediction {
        Prediction::One { index, .. } => *index,
        _ => 0,
    }
}
