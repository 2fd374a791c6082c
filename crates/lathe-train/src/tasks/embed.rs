//! Embeddings: a vector for each text, of length 1, whose products say how similar texts are (Reimers and Gurevych,
//! 2019). It is the mean of the last hidden states, or the first of them. Losses are squared errors of cosines.

use super::examples::{ExampleTask, NumberLoss, Numbers, Prediction};
use super::{Sequences, regress};
use crate::examples::Example;
use crate::examples::encoded::{Encoder, Unit};
use crate::examples::scores::Metric;
use crate::{Error, Result};
use lathe_core::Frame;
use lathe_model::head::Top;
use lathe_model::{Grads, Network, Params};
use lathe_ops::buffer::Buf;
use lathe_ops::loss::IGNORE;

/// Vectors of texts.
pub struct Embed;

impl ExampleTask for Embed {
    fn key(&self) -> &'static str {
        "embed"
    }

    fn about(&self) -> &'static str {
        "vectors of texts that say how similar they are"
    }

    fn check(&self, frame: &Frame) -> Result<()> {
        if frame.backbone.causal() || frame.source_len().is_some() {
            let found = format!("`{}`", frame.backbone.key());
            return Err(Error::setting("backbone", found, "an encoder, for embed"));
        }
        Ok(())
    }

    fn check_teacher(&self, frame: &Frame, teacher: &Frame) -> Result<()> {
        if frame.d_model == teacher.d_model {
            return Ok(());
        }
        let expected = format_args!("{}, the teacher's, for vectors are compared", teacher.d_model);
        Err(Error::setting("d_model", frame.d_model, expected))
    }

    fn gives_vectors(&self) -> bool {
        true
    }

    fn metrics(&self) -> &'static [Metric] {
        &[Metric::Pearson, Metric::Spearman]
    }

    fn target(&self, _: &Frame, _: &Encoder<'_>, example: &Example) -> Result<u32> {
        Ok(regress::value_of(example).map_or(IGNORE, |value| (value as f32).to_bits()))
    }

    fn numbers(&self, network: &Network, sequences: &Sequences<'_>, hidden: &[f32]) -> Option<Buf> {
        let mean = network.model.frame.word("pooling") != Some("cls");
        Some(vectors(sequences, hidden, network.model.frame.d_model as usize, mean).0)
    }

    fn losses(
        &self,
        sequences: &Sequences<'_>,
        (top, _): (&Top, &Params),
        hidden: &[f32],
        loss: NumberLoss<'_>,
        gradients: Option<(f32, &mut Grads)>,
    ) -> (Vec<f32>, Option<Buf>) {
        let (rows, width) = (sequences.input.batch, hidden.len() / sequences.input.ids.len());
        let (mut values, sizes) = vectors(sequences, hidden, width, !top.embeds_first);
        let targets: Vec<u32> = sequences.targets.iter().copied().step_by(sequences.input.len()).collect();
        let numbers = Numbers { targets, len: sequences.input.len(), mask: sequences.input.mask };
        let (mut losses, unit) = (vec![0.0; rows], values.clone());
        loss(&numbers, &mut values, gradients.as_ref().map_or(0.0, |(scale, _)| *scale), &mut losses);
        let dhidden = gradients.map(|_| {
            // d x / |x| = (dy - y (y dy)) / |x|
            for ((dy, y), size) in values.chunks_exact_mut(width).zip(unit.chunks_exact(width)).zip(&sizes) {
                let along: f32 = dy.iter().zip(y).map(|(dy, y)| dy * y).sum();
                dy.iter_mut().zip(y).for_each(|(dy, y)| *dy = (*dy - y * along) / size);
            }
            spread(sequences, &values, width, !top.embeds_first)
        });
        (losses, dhidden)
    }

    /// Rows are texts two by two: an example's, the first of which has the target.
    fn loss(&self, numbers: &Numbers<'_>, values: &mut [f32], scale: f32, losses: &mut [f32]) {
        let width = values.len() / losses.len();
        let mut row = 0;
        while row < losses.len() {
            let target = numbers.targets[row];
            let pair = target != IGNORE && row + 1 < losses.len() && numbers.targets[row + 1] == IGNORE;
            if !pair {
                values[row * width..][..width].fill(0.0);
                row += 1;
                continue;
            }
            let (a, b) = values[row * width..][..2 * width].split_at_mut(width);
            let cosine: f32 = a.iter().zip(&*b).map(|(a, b)| a * b).sum();
            let error = cosine - f32::from_bits(target);
            losses[row] = error * error;
            for (a, b) in a.iter_mut().zip(b) {
                (*a, *b) = (2.0 * scale * error * *b, 2.0 * scale * error * *a);
            }
            row += 2;
        }
    }

    fn any_target(&self, row: usize) -> u32 {
        if row.is_multiple_of(2) { 0 } else { IGNORE }
    }

    fn predict(&self, _: &Example, unit: &Unit, values: &[f32]) -> Prediction {
        match unit.texts.len() {
            2 => {
                let (a, b) = values.split_at(values.len() / 2);
                Prediction::Value(a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum())
            }
            _ => Prediction::Vector(values.to_vec()),
        }
    }

    fn score(&self, _: &Frame, metrics: &[Metric], judged: &[(&Example, Prediction)]) -> Vec<(Metric, f64)> {
        regress::correlations(metrics, judged)
    }
}

/// Tokens of each row of hidden states that count: all but padding, or the first.
fn counted<'a>(sequences: &Sequences<'a>, row: usize, mean: bool) -> impl Iterator<Item = usize> + use<'a> {
    let (len, mask) = (sequences.input.len(), sequences.input.mask);
    let tokens = row * len..(row + 1) * len;
    tokens.filter(move |&token| mask.is_none_or(|mask| mask[token])).take(if mean { len } else { 1 })
}

/// The vectors [B, D] of hidden states, of length 1, and how long they were.
fn vectors(sequences: &Sequences<'_>, hidden: &[f32], width: usize, mean: bool) -> (Buf, Vec<f32>) {
    let rows = sequences.input.batch;
    let (mut out, mut sizes) = (Buf::zeros(rows * width), Vec::new());
    for (row, vector) in out.chunks_exact_mut(width).enumerate() {
        let mut count = 0;
        for token in counted(sequences, row, mean) {
            vector.iter_mut().zip(&hidden[token * width..]).for_each(|(sum, x)| *sum += x);
            count += 1;
        }
        vector.iter_mut().for_each(|sum| *sum /= count.max(1) as f32);
        let size = vector.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>().sqrt().max(1e-12);
        vector.iter_mut().for_each(|x| *x = (f64::from(*x) / size) as f32);
        sizes.push(size as f32);
    }
    (out, sizes)
}

/// The gradient of hidden states from that of their means.
fn spread(sequences: &Sequences<'_>, dvectors: &[f32], width: usize, mean: bool) -> Buf {
    let mut dhidden = Buf::zeros(sequences.input.ids.len() * width);
    for (row, dvector) in dvectors.chunks_exact(width).enumerate() {
        let share = 1.0 / counted(sequences, row, mean).count().max(1) as f32;
        for token in counted(sequences, row, mean) {
            let to = &mut dhidden[token * width..][..width];
            to.iter_mut().zip(dvector).for_each(|(to, d)| *to = d * share);
        }
    }
    dhidden
}
