//! What the numbers of a task that learns from examples learn from a teacher's. Numbers that are logits of labels, of
//! choices or of places have KL(teacher || student) of each distribution, a mean over those of a row; all others half the
//! sum of their squared errors, which is KL between normal distributions of deviation 1.

use crate::tasks::{ExampleTask, Group, Numbers};
use lathe_ops::loss::IGNORE;
use lathe_ops::loss::soft::{self, LOSSES, Terms};

/// The weighted losses of rows, each term of them in `each` [rows, 3], and in the place of the numbers the gradient of
/// `scale` times the losses' sum.
pub fn loss(
    task: &dyn ExampleTask,
    numbers: &Numbers<'_>,
    (values, teacher): (&mut [f32], &[f32]),
    (terms, scale): (&Terms, f32),
    each: &mut [f32],
) -> Vec<f32> {
    let rows = numbers.targets.len();
    let (mut gradient, mut right) = (values.to_vec(), vec![0.0; rows]);
    task.loss(numbers, &mut gradient, scale * terms.ce, &mut right);
    each.chunks_exact_mut(LOSSES).zip(right).for_each(|(each, right)| each[0] += right);
    let distributions = task.distributions(numbers, values.len());
    let are_logits = !distributions.is_empty();
    let groups = if are_logits { distributions } else { Group::rows(values.len(), rows).collect() };
    let mut of_row = vec![0; rows];
    groups.iter().for_each(|group| of_row[group.row] += 1);
    for Group { row, places } in groups {
        let share = 1.0 / of_row[row] as f32;
        let mut z: Vec<f32> = places.iter().map(|&place| values[place]).collect();
        let t: Vec<f32> = places.iter().map(|&place| teacher[place]).collect();
        let mut apart = [0.0; LOSSES];
        let soft = Terms { ce: 0.0, kl: if are_logits { terms.kl } else { 0.0 }, ..*terms };
        let differences: Vec<f32> = z.iter().zip(&t).map(|(z, t)| z - t).collect();
        soft::against_logits(&mut z, t.len(), &t, &[IGNORE], &soft, scale * share, &mut apart);
        if !are_logits {
            apart[1] = 0.5 * differences.iter().map(|x| x * x).sum::<f32>();
            z.iter_mut().zip(&differences).for_each(|(d, x)| *d += scale * share * terms.kl * x);
        }
        let each = &mut each[row * LOSSES..][..LOSSES];
        each[1] += share * apart[1];
        each[2] += share * apart[2];
        places.iter().zip(z).for_each(|(&place, d)| gradient[place] += d);
    }
    values.copy_from_slice(&gradient);
    each.chunks_exact(LOSSES).map(|each| terms.total(each)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::{Choose, Classify, Embed, Regress, Span};

    fn softmax(z: &[f64]) -> Vec<f64> {
        let sum: f64 = z.iter().map(|z| z.exp()).sum();
        z.iter().map(|z| z.exp() / sum).collect()
    }

    fn kl(t: &[f64], z: &[f64], temperature: f64) -> f64 {
        let at = |values: &[f64]| softmax(&values.iter().map(|x| x / temperature).collect::<Vec<_>>());
        at(t).iter().zip(at(z)).map(|(p, q)| p * (p / q).ln()).sum::<f64>() * temperature * temperature
    }

    /// The losses and the gradient, which is compared with slopes.
    fn check(task: &dyn ExampleTask, numbers: &Numbers<'_>, count: usize) -> Vec<Vec<f32>> {
        let of =
            |seed: usize| -> Vec<f32> { (0..count).map(|i| ((i * 37 + seed * 11) % 17) as f32 / 9.0 - 0.8).collect() };
        let (z, t) = (of(1), of(5));
        let terms = Terms { ce: 0.3, kl: 0.7, mse: 0.2, temperature: 1.5 };
        let rows = numbers.targets.len();
        let total = |z: &[f32]| -> f64 {
            let mut each = vec![0.0; rows * LOSSES];
            loss(task, numbers, (&mut z.to_vec(), &t), (&terms, 0.0), &mut each).iter().map(|&x| f64::from(x)).sum()
        };
        let (mut gradient, mut each) = (z.clone(), vec![0.0; rows * LOSSES]);
        loss(task, numbers, (&mut gradient, &t), (&terms, 1.0), &mut each);
        for (i, &found) in gradient.iter().enumerate() {
            let step = 1e-2;
            let at = |by: f32| z.iter().enumerate().map(|(j, &x)| if i == j { x + by } else { x }).collect::<Vec<_>>();
            let slope = (total(&at(step)) - total(&at(-step))) / (2.0 * f64::from(step));
            assert!((slope - f64::from(found)).abs() < 2e-3, "{}, {i}: {slope} and {found}", task.key());
        }
        vec![z, t, each]
    }

    fn f64s(values: &[f32]) -> Vec<f64> {
        values.iter().copied().map(f64::from).collect()
    }

    #[test]
    fn labels_have_a_distribution_each() {
        let numbers = Numbers { targets: vec![2, 0], len: 4, mask: None };
        let found = check(&Classify, &numbers, 6);
        let (z, t) = (f64s(&found[0]), f64s(&found[1]));
        for row in 0..2 {
            let expected = kl(&t[row * 3..][..3], &z[row * 3..][..3], 1.5);
            assert!((expected - f64::from(found[2][row * LOSSES + 1])).abs() < 1e-5);
        }
    }

    #[test]
    fn choices_have_one_for_all_texts_of_an_example() {
        let numbers = Numbers { targets: vec![1, IGNORE, IGNORE, 0, IGNORE], len: 4, mask: None };
        let found = check(&Choose, &numbers, 5);
        let (z, t) = (f64s(&found[0]), f64s(&found[1]));
        for (row, range) in [(0, 0..3), (3, 3..5)] {
            let expected = kl(&t[range.clone()], &z[range], 1.5);
            assert!((expected - f64::from(found[2][row * LOSSES + 1])).abs() < 1e-5);
        }
    }

    #[test]
    fn places_have_two_over_what_is_no_padding() {
        let mask = [true, true, true, false, true, true, true, true];
        let numbers = Numbers { targets: vec![1 << 16 | 2, 3], len: 4, mask: Some(&mask) };
        let found = check(&Span, &numbers, 16);
        let side = |values: &[f32], side: usize| -> Vec<f64> {
            (0..3).map(|token| f64::from(values[2 * token + side])).collect()
        };
        let of = |i: usize| kl(&side(&found[1], i), &side(&found[0], i), 1.5);
        assert!((0.5 * (of(0) + of(1)) - f64::from(found[2][1])).abs() < 1e-5);
    }

    #[test]
    fn values_and_vectors_have_squared_errors() {
        let numbers = Numbers { targets: vec![0.5f32.to_bits(), 1.0f32.to_bits()], len: 4, mask: None };
        let found = check(&Regress, &numbers, 2);
        let error = found[0][1] - found[1][1];
        assert!((found[2][LOSSES + 1] - 0.5 * error * error).abs() < 1e-6);
        let numbers = Numbers { targets: vec![0.5f32.to_bits(), IGNORE], len: 4, mask: None };
        check(&Embed, &numbers, 6);
    }
}
