//! Which values the codes of a group stand for: value = scale * code + offset.

use lathe_ops::integers::Format;

/// How the range of a group of weights is found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Range {
    /// From the least to the largest weight.
    MinMax,
    /// So that this share of the weights lies inside, 0 to 1; the others are clipped.
    Percentile(f64),
    /// So that the squared error of all weights is least, each counted as much as its input is large.
    LeastSquares,
}

/// The values of codes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Grid {
    /// From a code to the next.
    pub scale: f32,
    /// The value of code 0.
    pub offset: f32,
    /// The largest code.
    pub most: f32,
}

/// Factors by which a range is made smaller while the least error is looked for.
const SHRINKS: usize = 24;

impl Grid {
    /// The grid from `low` to `high` of a format; of a symmetric one, as wide as the larger of the two.
    fn between(format: Format, low: f32, high: f32) -> Self {
        let most = ((1u32 << format.bits()) - 1) as f32;
        let stored = |value: f32| format.stored(value);
        if format.offset() {
            let (low, high) = (low.min(0.0), high.max(0.0)); // 0 stays near 0
            return Self { scale: stored((high - low) / most), offset: stored(low), most };
        }
        let middle = (1u32 << (format.bits() - 1)) as f32;
        let scale = stored(low.abs().max(high.abs()) / (middle - 1.0));
        Self { scale, offset: -scale * middle, most }
    }

    /// The grid for values, whose errors count as much as `importance` says, or all alike.
    pub fn choose(format: Format, range: Range, values: &[f32], importance: Option<&[f32]>) -> Self {
        let (low, high) = values.iter().fold((0.0f32, 0.0f32), |(low, high), &x| (low.min(x), high.max(x)));
        match range {
            Range::MinMax => Self::between(format, low, high),
            Range::Percentile(share) => {
                let at = |mut sorted: Vec<f32>| {
                    sorted.sort_by(f32::total_cmp);
                    let index = ((sorted.len() as f64 * share).ceil() as usize).clamp(1, sorted.len());
                    sorted[index - 1]
                };
                if values.is_empty() {
                    return Self::between(format, 0.0, 0.0);
                }
                if format.offset() {
                    let low = -at(values.iter().map(|x| -x).collect());
                    return Self::between(format, low, at(values.to_vec()));
                }
                let most = at(values.iter().map(|x| x.abs()).collect());
                Self::between(format, -most, most)
            }
            Range::LeastSquares => {
                let grids = (0..SHRINKS).map(|i| {
                    let factor = 1.0 - 0.6 * i as f32 / SHRINKS as f32;
                    Self::between(format, low * factor, high * factor)
                });
                let errors = grids.map(|grid| (grid.error(values, importance), grid));
                errors
                    .min_by(|a, b| a.0.total_cmp(&b.0))
                    .map_or_else(|| Self::between(format, low, high), |best| best.1)
            }
        }
    }

    /// The code of a value.
    pub fn code(&self, value: f32) -> f32 {
        if self.scale == 0.0 {
            return if self.offset == 0.0 { 0.0 } else { ((self.most + 1.0) / 2.0).floor() };
        }
        ((value - self.offset) / self.scale).round_ties_even().clamp(0.0, self.most)
    }

    /// The value of a code.
    pub fn value(&self, code: f32) -> f32 {
        self.scale * code + self.offset
    }

    fn error(&self, values: &[f32], importance: Option<&[f32]>) -> f64 {
        let of = |(i, &x): (usize, &f32)| {
            let error = f64::from(x - self.value(self.code(x)));
            error * error * importance.map_or(1.0, |importance| f64::from(importance[i]))
        };
        values.iter().enumerate().map(of).sum()
    }
}
