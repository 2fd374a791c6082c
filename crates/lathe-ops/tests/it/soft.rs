//! Losses of logits against a teacher's.

use crate::{close, graph, numbers, same_bits};
use lathe_ops::loss::soft::{self, LOSSES, Terms, TopK};
use lathe_ops::loss::{self, IGNORE};

const SCALE: f32 = 0.37;

fn logits(rows: usize, width: usize, seed: u64) -> Vec<f32> {
    numbers(rows * width, seed).iter().map(|x| 6.0 * x).collect()
}

/// Targets, of which every fourth does not count.
fn targets(rows: usize, width: usize) -> Vec<u32> {
    (0..rows).map(|row| if row % 4 == 2 { IGNORE } else { (row * 7919 % width) as u32 }).collect()
}

const TERMS: [Terms; 5] = [
    Terms { ce: 0.0, kl: 1.0, mse: 0.0, temperature: 1.0 },
    Terms { ce: 0.0, kl: 0.7, mse: 0.0, temperature: 3.0 },
    Terms { ce: 0.0, kl: 0.0, mse: 0.4, temperature: 2.0 },
    Terms { ce: 0.6, kl: 0.0, mse: 0.0, temperature: 1.0 },
    Terms { ce: 0.3, kl: 0.9, mse: 0.2, temperature: 2.5 },
];

/// The three losses of each row, apart.
fn columns(losses: &[f32]) -> [Vec<f32>; LOSSES] {
    std::array::from_fn(|i| losses.iter().skip(i).step_by(LOSSES).copied().collect())
}

#[test]
fn fused_is_composed() {
    for rows in [1, 3, 17] {
        for width in [2, 5, 17, 65, 193, 1025] {
            for terms in &TERMS {
                let (z, t, targets) = (logits(rows, width, 1), logits(rows, width, 2), targets(rows, width));
                let what = format!("{rows} {width} {terms:?}");
                let shape = [rows, width];
                let teacher = candle_core::Tensor::from_slice(&t, &shape, &candle_core::Device::Cpu).unwrap();
                let temperature = f64::from(terms.temperature);
                let weights = vec![SCALE; rows];
                let (total, [gradient]) = graph([(&z, &shape)], &weights, |[z]| {
                    let teacher = teacher.to_dtype(z.dtype())?;
                    let ce = (loss::composed(z, &targets)? * f64::from(terms.ce))?;
                    let kl = (soft::composed_kl(z, &teacher, temperature)? * f64::from(terms.kl))?;
                    (ce + kl)? + (soft::composed_mse(z, &teacher)? * f64::from(terms.mse))?
                });
                let (mut dz, mut losses) = (z.clone(), vec![0.0; rows * LOSSES]);
                soft::against_logits(&mut dz, width, &t, &targets, terms, SCALE, &mut losses);
                let totals: Vec<f32> = losses.chunks_exact(LOSSES).map(|losses| terms.total(losses)).collect();
                close(&what, &totals, &total, 2e-6);
                close(&what, &dz, &gradient, 3e-6);
            }
        }
    }
}

#[test]
fn the_first_of_a_teacher_are_composed() {
    for rows in [1, 3, 17] {
        for (width, k) in [(2, 1), (5, 5), (5, 2), (17, 4), (65, 1), (193, 16), (1025, 64)] {
            for terms in TERMS.iter().filter(|terms| terms.mse == 0.0) {
                let (z, t, targets) = (logits(rows, width, 1), logits(rows, width, 2), targets(rows, width));
                let top = soft::top_k(&t, width, k, terms.temperature);
                let what = format!("{rows} {width} {k} {terms:?}");
                let temperature = f64::from(terms.temperature);
                let (total, [gradient]) = graph([(&z, &[rows, width])], &vec![SCALE; rows], |[z]| {
                    let ce = (loss::composed(z, &targets)? * f64::from(terms.ce))?;
                    ce + (soft::composed_top(z, &top, temperature)? * f64::from(terms.kl))?
                });
                let (mut dz, mut losses) = (z.clone(), vec![0.0; rows * LOSSES]);
                soft::against_top(&mut dz, width, &top, &targets, terms, SCALE, &mut losses);
                let totals: Vec<f32> = losses.chunks_exact(LOSSES).map(|losses| terms.total(losses)).collect();
                close(&what, &totals, &total, 2e-5); // of numbers of the size of T^2
                close(&what, &dz, &gradient, 3e-6);
            }
        }
    }
}

/// All tokens of a teacher say what its logits say; fewer say less.
#[test]
fn more_of_a_teacher_says_more() {
    let (rows, width) = (7, 65);
    let (z, t) = (logits(rows, width, 1), logits(rows, width, 2));
    let targets = vec![IGNORE; rows];
    let terms = Terms { ce: 0.0, kl: 1.0, mse: 0.0, temperature: 2.0 };
    let (mut whole, mut losses) = (z.clone(), vec![0.0; rows * LOSSES]);
    soft::against_logits(&mut whole, width, &t, &targets, &terms, 1.0, &mut losses);
    let [_, whole_kl, _] = columns(&losses);
    let mut before = vec![0.0; rows];
    for k in [1, 4, 16, 64, 65] {
        let (mut dz, mut losses) = (z.clone(), vec![0.0; rows * LOSSES]);
        soft::against_top(&mut dz, width, &soft::top_k(&t, width, k, 2.0), &targets, &terms, 1.0, &mut losses);
        let [_, kl, _] = columns(&losses);
        assert!(kl.iter().zip(&before).all(|(kl, before)| *kl > before - 1e-5), "{k}: {kl:?} after {before:?}");
        before = kl;
        if k == 65 {
            close("all tokens", &before, &whole_kl, 1e-5);
            close("all tokens", &dz, &whole, 1e-5);
        }
    }
}

#[test]
fn the_first_are_the_largest_in_order() {
    let logits = [0.5, 3.0, -1.0, 3.0, 2.0];
    let top = soft::top_k(&logits, 5, 3, 1.0);
    assert_eq!(top.ids, [1, 3, 4]);
    let total: f32 = logits.iter().map(|x| x.exp()).sum();
    let expected: Vec<f32> = [3.0f32, 3.0, 2.0].iter().map(|x| x - total.ln()).collect();
    close("log-probabilities", &top.log_p, &expected, 1e-6);
    close("the rest", &top.log_rest, &[((0.5f32.exp() + (-1.0f32).exp()) / total).ln()], 1e-6);
    let all = soft::top_k(&logits, 5, 9, 1.0);
    assert_eq!((all.k, all.log_rest[0]), (5, f32::NEG_INFINITY));
    let two: TopK = soft::top_k(&[0.0, 1.0, 1.0, 0.0], 2, 1, 1.0);
    assert_eq!(two.select(&[1]).ids, [0]);
}

/// A student that says what its teacher says has nothing to learn from it.
#[test]
fn the_same_logits_are_no_loss() {
    let (rows, width) = (5, 193);
    let z = logits(rows, width, 3);
    for temperature in [1.0, 4.0] {
        let terms = Terms { ce: 0.0, kl: 1.0, mse: 1.0, temperature };
        let (mut dz, mut losses) = (z.clone(), vec![0.0; rows * LOSSES]);
        soft::against_logits(&mut dz, width, &z, &vec![IGNORE; rows], &terms, 1.0, &mut losses);
        assert!(losses.iter().all(|loss| loss.abs() < 2e-5), "{losses:?}");
        assert!(dz.iter().all(|dz| dz.abs() < 1e-6));
        let terms = Terms { mse: 0.0, ..terms };
        let mut dz = z.clone();
        let top = soft::top_k(&z, width, 8, temperature);
        soft::against_top(&mut dz, width, &top, &vec![IGNORE; rows], &terms, 1.0, &mut losses);
        assert!(losses.iter().all(|loss| loss.abs() < 2e-5), "{losses:?}");
        assert!(dz.iter().all(|dz| dz.abs() < 1e-6));
    }
}

/// Logits far apart neither overflow nor become NaN.
#[test]
fn large_logits() {
    let (z, t) = ([1e4f32, 0.0, -1e4, 3.0], [-1e4f32, 1e4, 0.0, 2.0]);
    let terms = Terms { ce: 1.0, kl: 1.0, mse: 0.0, temperature: 2.0 };
    let (mut dz, mut losses) = (z, [0.0; LOSSES]);
    soft::against_logits(&mut dz, 4, &t, &[1], &terms, 1.0, &mut losses);
    close("KL", &losses[1..2], &[4.0 * 5e3], 1e-5);
    close("gradient", &dz, &[3.0, -3.0, 0.0, 0.0], 1e-5);
    let mut dz = z;
    soft::against_top(&mut dz, 4, &soft::top_k(&t, 4, 2, 2.0), &[1], &terms, 1.0, &mut losses);
    close("KL of the first", &losses[1..2], &[4.0 * 5e3], 1e-5);
    close("gradient", &dz, &[3.0, -3.0, 0.0, 0.0], 1e-5);
}

#[test]
fn same_on_any_number_of_threads() {
    let (rows, width) = (193, 257);
    let (z, t, targets) = (logits(rows, width, 1), logits(rows, width, 2), targets(rows, width));
    same_bits("losses of a teacher", || {
        let top = soft::top_k(&t, width, 9, 2.5);
        let (mut dz, mut losses) = (z.clone(), vec![0.0; rows * LOSSES]);
        soft::against_logits(&mut dz, width, &t, &targets, &TERMS[4], SCALE, &mut losses);
        let (mut of_top, mut top_losses) = (z.clone(), vec![0.0; rows * LOSSES]);
        soft::against_top(&mut of_top, width, &top, &targets, &TERMS[1], SCALE, &mut top_losses);
        vec![dz, losses, of_top, top_losses, top.log_p, top.log_rest]
    });
}
