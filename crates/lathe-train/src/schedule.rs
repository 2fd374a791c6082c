//! Learning rates over a run: a linear warm-up, then one of four shapes.
//!
//! With s steps done, w of warm-up and n in all, t = (s - w) / (n - w): cosine falls as (1 + cos(pi t)) / 2 and linear
//! as 1 - t, both to a floor; inverse_sqrt falls as sqrt(w / s) (Vaswani et al., 2017).

/// The shape after the warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Shape {
    Constant,
    Linear,
    Cosine,
    InverseSqrt,
}

const SHAPES: &[(&str, Shape)] = &[
    ("constant", Shape::Constant),
    ("linear", Shape::Linear),
    ("cosine", Shape::Cosine),
    ("inverse_sqrt", Shape::InverseSqrt),
];

impl Shape {
    /// The shape of a name.
    pub fn named(name: &str) -> Option<Self> {
        SHAPES.iter().find(|(known, _)| *known == name).map(|&(_, shape)| shape)
    }

    /// All names.
    pub fn names() -> String {
        SHAPES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
    }
}

/// A schedule.
#[derive(Debug, Clone, Copy)]
pub struct Schedule {
    /// After the warm-up.
    pub shape: Shape,
    /// The highest rate.
    pub lr: f64,
    /// Steps of warm-up.
    pub warmup: f64,
    /// All steps.
    pub steps: f64,
    /// Where linear and cosine end, relative to the highest rate.
    pub floor: f64,
}

impl Schedule {
    /// The rate of a step, counted from 1.
    pub fn rate(&self, step: u32) -> f64 {
        let step = f64::from(step);
        if step <= self.warmup {
            return self.lr * step / self.warmup;
        }
        let t = ((step - self.warmup) / (self.steps - self.warmup).max(1.0)).min(1.0);
        let falling = |share: f64| self.floor + (1.0 - self.floor) * share;
        self.lr
            * match self.shape {
                Shape::Constant => 1.0,
                Shape::Linear => falling(1.0 - t),
                Shape::Cosine => falling(0.5 * (1.0 + (std::f64::consts::PI * t).cos())),
                Shape::InverseSqrt => (self.warmup.max(1.0) / step).sqrt(),
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shapes_pass_through_their_known_points() {
        let of = |shape| Schedule { shape, lr: 2.0, warmup: 100.0, steps: 1100.0, floor: 0.1 };
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} is not {b}");
        for (_, shape) in SHAPES {
            near(of(*shape).rate(1), 0.02);
            near(of(*shape).rate(50), 1.0);
            near(of(*shape).rate(100), 2.0);
        }
        near(of(Shape::Constant).rate(1100), 2.0);
        near(of(Shape::Linear).rate(600), 1.1);
        near(of(Shape::Linear).rate(1100), 0.2);
        near(of(Shape::Cosine).rate(600), 1.1);
        near(of(Shape::Cosine).rate(350), 2.0 * (0.1 + 0.9 * 0.5 * (1.0 + 0.5f64.sqrt())));
        near(of(Shape::Cosine).rate(1100), 0.2);
        near(of(Shape::InverseSqrt).rate(400), 1.0);
    }
}
