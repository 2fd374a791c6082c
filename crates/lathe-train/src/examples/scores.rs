//! How good predictions are. Values are those of scikit-learn, scipy and the benchmarks' own scripts.
//!
//! With n_ij predictions of label j for examples of label i, of n in all: accuracy = sum n_ii / n; F1 = 2 p r / (p + r)
//! of precision and recall, of the second of two labels, or the mean over more; Matthews' correlation in its form for
//! any number of labels (Gorodkin, 2004): (c n - sum t_k p_k) / sqrt((n^2 - sum p_k^2) (n^2 - sum t_k^2)) of c right
//! ones, t_k true and p_k predicted.

use super::squad;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Metric {
    /// Share of right labels or choices.
    Accuracy,
    /// F1 of the second of two labels, mean F1 of more.
    F1,
    /// Matthews' correlation of labels.
    Matthews,
    /// Correlation of values.
    Pearson,
    /// Correlation of their ranks.
    Spearman,
    /// Share of groups of examples that are all right.
    GroupExact,
    /// Share of pairs, which are groups, in which both labels are the same.
    GenderParity,
    /// Share of answers that are one of the right ones.
    AnswerExact,
    /// F1 of their words.
    AnswerF1,
}

/// What was predicted, and what is right.
#[derive(Debug)]
pub enum Predicted<'a> {
    /// Labels, by number, of so many.
    Labels {
        /// Predicted.
        found: &'a [usize],
        /// Right.
        right: &'a [usize],
        /// How many labels there are.
        labels: usize,
        /// Which belong together.
        groups: &'a [&'a str],
    },
    /// Choices, any of which may be right.
    Choices {
        /// Predicted.
        found: &'a [usize],
        /// Right.
        right: &'a [&'a [usize]],
    },
    /// Numbers.
    Values {
        /// Predicted.
        found: &'a [f64],
        /// Right.
        right: &'a [f64],
    },
    /// Texts, and all that are right for each; none: that there is no answer.
    Texts {
        /// Predicted.
        found: &'a [String],
        /// Right.
        right: &'a [Vec<String>],
    },
}

impl Metric {
    /// The key in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Accuracy => "accuracy",
            Self::F1 | Self::AnswerF1 => "f1",
            Self::Matthews => "matthews",
            Self::Pearson => "pearson",
            Self::Spearman => "spearman",
            Self::GroupExact | Self::AnswerExact => "exact_match",
            Self::GenderParity => "gender_parity",
        }
    }

    /// The metric of predictions; none where it means nothing for them.
    pub fn of(self, predicted: &Predicted<'_>) -> Option<f64> {
        let share = |right: usize, of: usize| (of > 0).then(|| right as f64 / of as f64);
        match (self, predicted) {
            (Self::Accuracy, Predicted::Labels { found, right, .. }) => {
                share(found.iter().zip(*right).filter(|(a, b)| a == b).count(), found.len())
            }
            (Self::Accuracy, Predicted::Choices { found, right }) => {
                share(found.iter().zip(*right).filter(|(a, b)| b.contains(a)).count(), found.len())
            }
            (Self::F1, Predicted::Labels { found, right, labels, .. }) => Some(f1(found, right, *labels)),
            (Self::Matthews, Predicted::Labels { found, right, labels, .. }) => Some(matthews(found, right, *labels)),
            (Self::GroupExact, Predicted::Labels { found, right, groups, .. }) => {
                let whole = by_group(groups, |i| found[i] == right[i]);
                share(whole.values().filter(|of| of.iter().all(|&right| right)).count(), whole.len())
            }
            (Self::GenderParity, Predicted::Labels { found, groups, .. }) => {
                let pairs = by_group(groups, |i| found[i]);
                share(pairs.values().filter(|of| of.iter().all(|label| *label == of[0])).count(), pairs.len())
            }
            (Self::Pearson, Predicted::Values { found, right }) => pearson(found, right),
            (Self::Spearman, Predicted::Values { found, right }) => spearman(found, right),
            (Self::AnswerExact, Predicted::Texts { found, right }) => {
                let exact = found.iter().zip(*right).filter(|(found, right)| squad::exact(found, right)).count();
                share(exact, found.len())
            }
            (Self::AnswerF1, Predicted::Texts { found, right }) => {
                let sum: f64 = found.iter().zip(*right).map(|(found, right)| squad::f1(found, right)).sum();
                (!found.is_empty()).then(|| sum / found.len() as f64)
            }
            _ => None,
        }
    }
}

/// What there is of each example, by its group.
fn by_group<'a, T>(groups: &[&'a str], of: impl Fn(usize) -> T) -> BTreeMap<&'a str, Vec<T>> {
    let mut all: BTreeMap<&str, Vec<T>> = BTreeMap::new();
    for (i, group) in groups.iter().enumerate() {
        all.entry(group).or_default().push(of(i));
    }
    all
}

/// F1 of a label; 0 where neither is it ever right nor predicted.
fn f1_of(label: usize, found: &[usize], right: &[usize]) -> f64 {
    let count = |test: &dyn Fn(usize, usize) -> bool| {
        found.iter().zip(right).filter(|(found, right)| test(**found, **right)).count() as f64
    };
    let both = count(&|found, right| found == label && right == label);
    let either = count(&|found, _| found == label) + count(&|_, right| right == label);
    if either > 0.0 { 2.0 * both / either } else { 0.0 }
}

fn f1(found: &[usize], right: &[usize], labels: usize) -> f64 {
    if labels == 2 {
        return f1_of(1, found, right);
    }
    // Labels that are neither predicted nor right do not count.
    let met: Vec<usize> = (0..labels).filter(|label| found.contains(label) || right.contains(label)).collect();
    met.iter().map(|&label| f1_of(label, found, right)).sum::<f64>() / met.len().max(1) as f64
}

fn matthews(found: &[usize], right: &[usize], labels: usize) -> f64 {
    let n = found.len() as f64;
    let count = |list: &[usize], label: usize| list.iter().filter(|&&one| one == label).count() as f64;
    let correct = found.iter().zip(right).filter(|(a, b)| a == b).count() as f64;
    let (mut both, mut of_found, mut of_right) = (0.0, 0.0, 0.0);
    for label in 0..labels {
        let (p, t) = (count(found, label), count(right, label));
        (both, of_found, of_right) = (both + p * t, of_found + p * p, of_right + t * t);
    }
    let below = ((n * n - of_found) * (n * n - of_right)).sqrt();
    if below > 0.0 { (correct * n - both) / below } else { 0.0 }
}

/// Ranks from 1, lowest first; equal values share the mean of their ranks.
pub fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut before = 0;
    for group in order.chunk_by(|&a, &b| values[a] == values[b]) {
        let mean = before as f64 + (group.len() as f64 + 1.0) / 2.0;
        group.iter().for_each(|&i| ranks[i] = mean);
        before += group.len();
    }
    ranks
}

/// Pearson's correlation; none where a list has fewer than two values or only equal ones.
pub fn pearson(a: &[f64], b: &[f64]) -> Option<f64> {
    let n = a.len() as f64;
    let mean = |x: &[f64]| x.iter().sum::<f64>() / n;
    let (mean_a, mean_b) = (mean(a), mean(b));
    let (mut ab, mut aa, mut bb) = (0.0, 0.0, 0.0);
    for (a, b) in a.iter().zip(b) {
        let (a, b) = (a - mean_a, b - mean_b);
        (ab, aa, bb) = (ab + a * b, aa + a * a, bb + b * b);
    }
    let product: f64 = aa * bb;
    (product > 0.0).then(|| ab / product.sqrt())
}

/// Spearman's rank correlation: Pearson's of the ranks.
pub fn spearman(a: &[f64], b: &[f64]) -> Option<f64> {
    pearson(&ranks(a), &ranks(b))
}
