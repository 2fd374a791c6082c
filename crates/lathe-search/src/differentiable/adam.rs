//! Adam (Kingma and Ba, 2015) for the few numbers of an architecture, in f64. Weight decay is added to the gradient,
//! as in the original; the decoupled one would pull alphas apart from what Adam makes of the gradient.

use serde::{Deserialize, Serialize};

/// The longest plain step of a number.
const LONGEST: f64 = 0.5;

/// Adam with its state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Adam {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the two moments.
    pub betas: (f64, f64),
    /// Added to the root of the second moment.
    pub eps: f64,
    /// L2 penalty.
    pub weight_decay: f64,
    /// Whether a step is the gradient itself times lr, at most 0.5 for each number.
    #[serde(default)]
    pub plain: bool,
    steps: i32,
    moments: [Vec<f64>; 2],
}

impl Adam {
    /// Adam for so many numbers.
    pub fn new(lr: f64, betas: (f64, f64), weight_decay: f64, numbers: usize) -> Self {
        Self {
            lr,
            betas,
            eps: 1e-8,
            weight_decay,
            plain: false,
            steps: 0,
            moments: [vec![0.0; numbers], vec![0.0; numbers]],
        }
    }

    /// The same, with steps that are the gradient itself or not.
    pub fn plain(self, plain: bool) -> Self {
        Self { plain, ..self }
    }

    /// One step.
    pub fn step<'a>(&mut self, numbers: impl Iterator<Item = &'a mut f64>, gradient: impl Iterator<Item = f64>) {
        self.steps += 1;
        if self.plain {
            for (x, g) in numbers.zip(gradient) {
                *x -= (self.lr * (g + self.weight_decay * *x)).clamp(-LONGEST, LONGEST);
            }
            return;
        }
        let (beta1, beta2) = self.betas;
        let (c1, c2) = (1.0 - beta1.powi(self.steps), 1.0 - beta2.powi(self.steps));
        let [first, second] = &mut self.moments;
        for (((x, g), m), v) in numbers.zip(gradient).zip(first).zip(second) {
            let g = g + self.weight_decay * *x;
            *m = beta1 * *m + (1.0 - beta1) * g;
            *v = beta2 * *v + (1.0 - beta2) * g * g;
            *x -= self.lr * (*m / c1) / ((*v / c2).sqrt() + self.eps);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_by_hand() {
        let mut x = [1.0, -2.0];
        let mut adam = Adam::new(0.1, (0.9, 0.999), 0.0, 2);
        adam.step(x.iter_mut(), [4.0, -0.5].into_iter());
        // The first step is lr in the direction of the sign.
        assert!((x[0] - 0.9).abs() < 1e-8 && (x[1] + 1.9).abs() < 1e-8, "{x:?}");
        adam.step(x.iter_mut(), [0.0, 0.0].into_iter());
        let m: f64 = 0.9 * 0.1 * 4.0 / (1.0 - 0.81);
        let v: f64 = 0.999 * 0.001 * 16.0 / (1.0 - 0.999 * 0.999);
        assert!((x[0] - (0.9 - 0.1 * m / v.sqrt())).abs() < 1e-8, "{x:?}");
    }

    #[test]
    fn plain_steps_keep_sizes() {
        let mut x = [1.0, 1.0, 1.0];
        let mut plain = Adam::new(2.0, (0.9, 0.999), 0.0, 3).plain(true);
        plain.step(x.iter_mut(), [0.1, -0.01, 9.0].into_iter());
        assert_eq!(x, [0.8, 1.02, 0.5]);
    }

    #[test]
    fn weight_decay_pulls_to_zero() {
        // It is a part of the gradient: here it turns its sign, and the first step is lr in that direction.
        let mut x = [3.0, 3.0];
        let mut adam = Adam::new(0.1, (0.9, 0.999), 0.5, 2);
        adam.step(x.iter_mut(), [0.0, -2.0].into_iter());
        assert!((x[0] - 2.9).abs() < 1e-8 && (x[1] - 3.1).abs() < 1e-7, "{x:?}");
        // The second: gradients 1.5 and 1.45.
        adam.step(x.iter_mut(), [0.0, 0.0].into_iter());
        let m = (0.9 * 0.1 * 1.5 + 0.1 * 1.45) / (1.0 - 0.81);
        let v: f64 = (0.999 * 0.001 * 1.5 * 1.5 + 0.001 * 1.45 * 1.45) / (1.0 - 0.999 * 0.999);
        assert!((x[0] - (2.9 - 0.1 * m / v.sqrt())).abs() < 1e-7, "{x:?}");
    }
}
