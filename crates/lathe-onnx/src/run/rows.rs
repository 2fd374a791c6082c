//! Operators over whole rows: sums, norms, softmax.

use super::{Array, Call, Reason, place};
use crate::graph::Attr;

impl Call<'_> {
    /// One number for each row along the last axis.
    pub(super) fn reduce(&self, each: impl Fn(&[f32]) -> f32) -> Result<Array, Reason> {
        let array = self.input(0)?;
        let rank = array.rank();
        match self.ints(1)? {
            [axis] if place(*axis, rank)? + 1 == rank => {}
            axes => return Err(format!("along axes {axes:?} of {rank}; only the last is known here")),
        }
        let width = array.shape[rank - 1];
        let values: Vec<f32> = self.floats(0)?.chunks_exact(width.max(1)).map(each).collect();
        let mut shape = array.shape.clone();
        match self.int("keepdims", 1) {
            0 => shape.truncate(rank - 1),
            _ => shape[rank - 1] = 1,
        }
        Ok(Array::of_floats(&shape, values))
    }

    /// The width of rows of an input, whose axis has to be the last.
    fn width(&self) -> Result<usize, Reason> {
        let array = self.input(0)?;
        match self.axis(-1, array.rank())? + 1 == array.rank() {
            true => Ok(array.shape[array.rank() - 1].max(1)),
            false => Err("along another axis than the last".into()),
        }
    }

    pub(super) fn softmax(&self, log: bool) -> Result<Array, Reason> {
        let width = self.width()?;
        let mut values = self.floats(0)?.to_vec();
        for row in values.chunks_exact_mut(width) {
            let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let sum: f64 = row.iter().map(|x| f64::from(x - most).exp()).sum();
            row.iter_mut().for_each(|x| {
                let centred = f64::from(*x - most);
                *x = if log { centred - sum.ln() } else { centred.exp() / sum } as f32;
            });
        }
        Ok(Array::of_floats(&self.input(0)?.shape, values))
    }

    pub(super) fn layer_norm(&self) -> Result<Array, Reason> {
        let (width, scale) = (self.width()?, self.floats(1)?);
        let bias = self.optional(2).and_then(Array::floats);
        if scale.len() != width || bias.is_some_and(|bias| bias.len() != width) {
            return Err(format!("a scale of {} for rows of {width}", scale.len()));
        }
        let eps = match self.attribute("epsilon") {
            Some(Attr::Float(eps)) => *eps,
            _ => 1e-5,
        };
        let mut values = self.floats(0)?.to_vec();
        for row in values.chunks_exact_mut(width) {
            let mean = row.iter().sum::<f32>() / width as f32;
            let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f32>() / width as f32;
            let by = 1.0 / (variance + eps).sqrt();
            for (i, x) in row.iter_mut().enumerate() {
                *x = (*x - mean) * by * scale[i] + bias.map_or(0.0, |bias| bias[i]);
            }
        }
        Ok(Array::of_floats(&self.input(0)?.shape, values))
    }
}
