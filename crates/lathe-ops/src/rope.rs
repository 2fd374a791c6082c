//! Rotary positions (Su et al., 2021), in the layout of Hugging Face's Llama: entries i and i + K/2 of a head are a
//! point of the plane, and position p turns it by the angle p f_i:
//!
//! - y_i = x_i cos(p f_i) - x_{i + K/2} sin(p f_i)
//! - y_{i + K/2} = x_{i + K/2} cos(p f_i) + x_i sin(p f_i)
//!
//! with f_i = theta^(-2i/K), [scaled](Scaling) for contexts longer than those of training. Frequencies, angles, cosines
//! and sines are f32, rounded where transformers rounds them. The gradient is turned back by the same angle.

use crate::gemm::MatMut;
use crate::parallel;
use crate::simd::simd;
use candle_core::{Result, Tensor};
use std::sync::{Arc, RwLock};

/// How frequencies change for contexts longer than those of training.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scaling {
    /// Not at all.
    None,
    /// All are divided by `factor` (Chen et al., 2023).
    Linear {
        /// How many times longer contexts become.
        factor: f32,
    },
    /// Llama 3.1's: waves longer than `original_max_len / low_freq_factor` are slowed by `factor`, those shorter than
    /// `original_max_len / high_freq_factor` stay, and in between the two are mixed.
    Llama3 {
        /// How many times longer contexts become.
        factor: f32,
        /// Waves that fit fewer times than this into a context of training are divided by all of `factor`.
        low_freq_factor: f32,
        /// Waves that fit more often than this stay.
        high_freq_factor: f32,
        /// The longest context of training.
        original_max_len: usize,
    },
}

impl Scaling {
    /// The scaled frequencies.
    fn apply(self, frequencies: &mut [f32]) {
        match self {
            Self::None => {}
            Self::Linear { factor } => frequencies.iter_mut().for_each(|f| *f /= factor),
            Self::Llama3 { factor, low_freq_factor, high_freq_factor, original_max_len } => {
                let [low, high] = [low_freq_factor, high_freq_factor].map(f64::from);
                let len = original_max_len as f64;
                let (longest, shortest) = ((len / low) as f32, (len / high) as f32);
                let (len, width) = (len as f32, (high - low) as f32);
                for f in frequencies {
                    // A number over a tensor is the tensor's reciprocal times the number in PyTorch.
                    let wave = 1.0 / *f * (2.0 * std::f64::consts::PI) as f32;
                    if wave > longest {
                        *f /= factor;
                    } else if wave >= shortest {
                        let smooth = (1.0 / wave * len - low_freq_factor) / width;
                        *f = (1.0 - smooth) * *f / factor + smooth * *f;
                    }
                }
            }
        }
    }
}

/// Rotary positions of heads of one width.
#[derive(Debug)]
pub struct Rope {
    d_head: usize,
    frequencies: Vec<f32>,
    table: RwLock<Arc<Vec<f32>>>, // a row of K for each position: K/2 cosines, K/2 sines
}

impl Rope {
    /// For heads of an even width K. The table of cosines and sines grows as positions are asked for.
    pub fn new(d_head: usize, theta: f64, scaling: Scaling) -> Self {
        assert!(d_head > 0 && d_head.is_multiple_of(2), "found heads of width {d_head}; expected an even width");
        let frequency = |i: usize| {
            let exponent = (2 * i) as f32 / d_head as f32;
            1.0 / f64::from(theta as f32).powf(f64::from(exponent)) as f32
        };
        let mut frequencies: Vec<f32> = (0..d_head / 2).map(frequency).collect();
        scaling.apply(&mut frequencies);
        Self { d_head, frequencies, table: RwLock::default() }
    }

    /// The angle by which position 1 turns each pair: K/2 of them.
    pub fn frequencies(&self) -> &[f32] {
        &self.frequencies
    }

    /// Turns rows of heads side by side, [B * T, H * K] with any row stride, in place. `positions` has one entry for
    /// each row of a sequence, `[T]`, the same for all sequences, or one for each row, [B * T].
    pub fn forward(&self, rows: MatMut<'_>, positions: &[usize]) {
        self.turn(rows, positions, 1.0);
    }

    /// Turns gradients back, in place: the gradient of the input of [`Self::forward`] from that of its output.
    pub fn backward(&self, rows: MatMut<'_>, positions: &[usize]) {
        self.turn(rows, positions, -1.0);
    }

    fn turn(&self, rows: MatMut<'_>, positions: &[usize], direction: f32) {
        let (d_head, count, width) = (self.d_head, rows.rows(), rows.cols());
        if count == 0 || width == 0 {
            return;
        }
        assert!(width.is_multiple_of(d_head), "rope: rows of {width}, heads of {d_head}");
        assert!(
            !positions.is_empty() && count.is_multiple_of(positions.len()),
            "rope: {count} rows, {} positions",
            positions.len()
        );
        let table = self.table(positions);
        parallel::matrix_rows(rows, |row, heads| {
            let turns = &table[positions[row % positions.len()] * d_head..][..d_head];
            heads.chunks_exact_mut(d_head).for_each(|head| turn_head(head, turns, direction));
        });
    }

    /// [`Self::forward`] as a graph: x is [B, T, H * K], with positions as there.
    pub fn composed(&self, x: &Tensor, positions: &[usize]) -> Result<Tensor> {
        let (batch, len, width) = x.dims3()?;
        let (d_head, half) = (self.d_head, self.d_head / 2);
        let table = self.table(positions);
        let turns: Vec<f32> = positions.iter().flat_map(|&p| &table[p * d_head..][..d_head]).copied().collect();
        let turns = Tensor::new(turns, x.device())?.to_dtype(x.dtype())?.reshape(((), len, 1, d_head))?;
        let (cos, sin) = (turns.narrow(3, 0, half)?, turns.narrow(3, half, half)?);
        // (B, T, A) -> (B, T, H, K)
        let x = x.reshape((batch, len, width / d_head, d_head))?;
        let (first, second) = (x.narrow(3, 0, half)?, x.narrow(3, half, half)?);
        let turned = [
            (first.broadcast_mul(&cos)? - second.broadcast_mul(&sin)?)?,
            (second.broadcast_mul(&cos)? + first.broadcast_mul(&sin)?)?,
        ];
        Tensor::cat(&turned, 3)?.reshape((batch, len, width))
    }

    /// Cosines and sines of at least these positions.
    fn table(&self, positions: &[usize]) -> Arc<Vec<f32>> {
        let (d_head, half) = (self.d_head, self.d_head / 2);
        let len = positions.iter().max().map_or(0, |most| most + 1);
        let table = self.table.read().expect("nothing panics while it holds the table").clone();
        if table.len() >= len * d_head {
            return table;
        }
        let mut longer = vec![0.0; len.next_power_of_two() * d_head];
        parallel::rows(&mut longer, d_head, |position, turns| {
            let (cos, sin) = turns.split_at_mut(half);
            for ((cos, sin), f) in cos.iter_mut().zip(sin).zip(&self.frequencies) {
                let angle = f64::from(position as f32 * f);
                (*cos, *sin) = (angle.cos() as f32, angle.sin() as f32);
            }
        });
        let longer = Arc::new(longer);
        let mut table = self.table.write().expect("nothing panics while it holds the table");
        // Another thread may have come further meanwhile.
        if table.len() < longer.len() {
            *table = longer;
        }
        table.clone()
    }
}

simd! {
    /// Turns one head; `turns` has its cosines, then its sines.
    fn turn_head(head: &mut [f32], turns: &[f32], direction: f32) {
        let half = head.len() / 2;
        let (first, second) = head.split_at_mut(half);
        let (cos, sin) = turns.split_at(half);
        for (((x, y), &cos), &sin) in first.iter_mut().zip(second).zip(cos).zip(sin) {
            let sin = sin * direction;
            (*x, *y) = (*x * cos - *y * sin, *y * cos + *x * sin);
        }
    }
}
