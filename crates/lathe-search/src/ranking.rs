//! How well one list of scores ranks what another list ranks: a proxy against the quality after training.
//!
//! LTS (Javaheripi et al., 2022, section 4.1) judges a proxy by two numbers, each among the best k percent by quality:
//! Spearman's rank correlation, and the *common ratio*, the share of them that the proxy has among its own best.
//! With n models, the best k percent are the m = floor(n k / 100 + 1/2) best. Higher is better in both lists.

pub use lathe_train::examples::scores::{pearson, ranks, spearman};

use rand::{Rng, RngExt};

/// Kendall's tau-b: (concordant - discordant) / sqrt((pairs - ties in a) (pairs - ties in b)).
pub fn kendall(a: &[f64], b: &[f64]) -> Option<f64> {
    let (mut sum, mut untied_a, mut untied_b) = (0i64, 0i64, 0i64);
    let sign = |x: f64, y: f64| i64::from(x > y) - i64::from(x < y);
    for i in 0..a.len() {
        for j in 0..i {
            let (of_a, of_b) = (sign(a[i], a[j]), sign(b[i], b[j]));
            sum += of_a * of_b;
            untied_a += of_a.abs();
            untied_b += of_b.abs();
        }
    }
    let product = untied_a as f64 * untied_b as f64;
    (product > 0.0).then(|| sum as f64 / product.sqrt())
}

/// m of the best `percent` of n models.
pub fn top_count(n: usize, percent: f64) -> usize {
    ((n as f64 * percent / 100.0 + 0.5).floor() as usize).min(n)
}

/// The m best by quality, best first; of equal ones the earlier.
pub fn top(quality: &[f64], percent: f64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..quality.len()).collect();
    order.sort_by(|&a, &b| quality[b].total_cmp(&quality[a]));
    order.truncate(top_count(quality.len(), percent));
    order
}

/// Spearman's correlation over the best `percent` by quality.
pub fn spearman_top(proxy: &[f64], quality: &[f64], percent: f64) -> Option<f64> {
    let top = top(quality, percent);
    spearman(&pick(proxy, &top), &pick(quality, &top))
}

/// The share of the m best by quality that are among the m best by the proxy. Where the m-th place of the proxy is
/// shared by several, each of them counts with the chance that a draw among them would take it.
pub fn common_ratio(proxy: &[f64], quality: &[f64], percent: f64) -> Option<f64> {
    let best = top(quality, percent);
    let m = best.len();
    let border = proxy[*top(proxy, percent).last()?];
    let above = proxy.iter().filter(|&&score| score > border).count();
    let tied = proxy.iter().filter(|&&score| score == border).count();
    let chance = (m - above) as f64 / tied as f64;
    let shared = best.iter().map(|&i| match proxy[i] {
        score if score > border => 1.0,
        score if score == border => chance,
        _ => 0.0,
    });
    Some(shared.sum::<f64>() / m as f64)
}

/// The entries at some places.
pub fn pick(values: &[f64], places: &[usize]) -> Vec<f64> {
    places.iter().map(|&i| values[i]).collect()
}

/// The 95 % percentile interval of a statistic of n models over `rounds` resamples of them (Efron, 1979). Resamples for
/// which there is no statistic are left out; none where there are no others.
pub fn bootstrap(
    n: usize,
    rounds: usize,
    rng: &mut impl Rng,
    statistic: impl Fn(&[usize]) -> Option<f64>,
) -> Option<[f64; 2]> {
    let mut found: Vec<f64> =
        (0..rounds).filter_map(|_| statistic(&(0..n).map(|_| rng.random_range(0..n)).collect::<Vec<_>>())).collect();
    found.sort_by(f64::total_cmp);
    let at = |share: f64| found.get(((found.len() as f64 - 1.0) * share).round() as usize).copied();
    Some([at(0.025)?, at(0.975)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn equal_values_share_the_mean_of_their_ranks() {
        assert_eq!(ranks(&[30.0, 10.0, 20.0, 10.0, 10.0]), [5.0, 2.0, 4.0, 2.0, 2.0]);
        assert_eq!(ranks(&[]), [0.0; 0]);
    }

    #[test]
    fn correlations_by_hand() {
        // Ranks 1 2 3 4 and 2 1 4 3: 1 - 6 * 4 / (4 * 15) = 0.6; four of six pairs agree, two do not.
        let (a, b) = ([1.0, 2.0, 3.0, 4.0], [20.0, 10.0, 40.0, 30.0]);
        assert!((spearman(&a, &b).unwrap() - 0.6).abs() < 1e-12);
        assert!((kendall(&a, &b).unwrap() - 1.0 / 3.0).abs() < 1e-12);
        // A tie in a: ranks 1.5 1.5 3 and 1 2 3, r = 1.5 / sqrt(1.5 * 2); pairs: one tied, two concordant.
        let (a, b) = ([1.0, 1.0, 2.0], [1.0, 2.0, 3.0]);
        assert!((spearman(&a, &b).unwrap() - 1.5 / 3f64.sqrt()).abs() < 1e-12);
        assert!((kendall(&a, &b).unwrap() - 2.0 / 6f64.sqrt()).abs() < 1e-12);
        for nothing in [&[][..], &[1.0], &[2.0, 2.0]] {
            assert_eq!(spearman(nothing, nothing), None);
            assert_eq!(kendall(nothing, nothing), None);
        }
    }

    #[test]
    fn spearman_is_the_formula_of_squared_differences_without_ties() {
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        for n in [2, 3, 17, 100] {
            let draw = |rng: &mut ChaCha8Rng| (0..n).map(|_| rng.random::<f64>()).collect::<Vec<_>>();
            let (a, b) = (draw(&mut rng), draw(&mut rng));
            // A rank is one more than how many are below.
            let rank = |x: &[f64], i: usize| 1.0 + x.iter().filter(|&&other| other < x[i]).count() as f64;
            let squares: f64 = (0..n).map(|i| (rank(&a, i) - rank(&b, i)).powi(2)).sum();
            let n = n as f64;
            let expected = 1.0 - 6.0 * squares / (n * (n * n - 1.0));
            assert!((spearman(&a, &b).unwrap() - expected).abs() < 1e-12, "{n}");
        }
    }

    #[test]
    fn the_best_percent_round_half_up() {
        let counts = [(200, 10.0, 20), (38, 10.0, 4), (35, 10.0, 4), (5, 10.0, 1), (4, 10.0, 0), (35, 100.0, 35)];
        for (n, percent, m) in counts {
            assert_eq!(top_count(n, percent), m, "{n} {percent}");
        }
        assert_eq!(top(&[1.0, 5.0, 3.0, 5.0], 75.0), [1, 3, 2]);
    }

    #[test]
    fn common_ratio_is_the_overlap_of_two_sets() {
        let quality = [9.0, 8.0, 7.0, 6.0, 5.0];
        let proxy = [1.0, 5.0, 4.0, 2.0, 3.0];
        // The best two: {0, 1} by quality and {1, 2} by the proxy.
        assert_eq!(common_ratio(&proxy, &quality, 40.0), Some(0.5));
        assert_eq!(common_ratio(&proxy, &quality, 100.0), Some(1.0));
        assert_eq!(common_ratio(&proxy, &quality, 5.0), None, "none of five are the best 5 %");
        // Place two of the proxy is shared by 1, 3 and 4: of {0, 1} the first is in, the second with a third.
        let proxy = [9.0, 5.0, 1.0, 5.0, 5.0];
        assert!((common_ratio(&proxy, &quality, 40.0).unwrap() - (1.0 + 1.0 / 3.0) / 2.0).abs() < 1e-12);
    }

    #[test]
    fn spearman_among_the_best_leaves_the_others_out() {
        let quality = [9.0, 8.0, 7.0, 6.0, 5.0];
        let proxy = [1.0, 2.0, 3.0, 0.5, 0.1];
        assert!((spearman_top(&proxy, &quality, 60.0).unwrap() + 1.0).abs() < 1e-12);
        assert!(spearman_top(&proxy, &quality, 100.0).unwrap() > 0.0);
    }

    #[test]
    fn bootstrap_intervals_hold_the_mean_and_repeat() {
        let values: Vec<f64> = (0..100).map(f64::from).collect();
        let mean = |places: &[usize]| Some(pick(&values, places).iter().sum::<f64>() / places.len() as f64);
        let run = |seed| bootstrap(100, 2000, &mut ChaCha8Rng::seed_from_u64(seed), mean).unwrap();
        let [low, high] = run(1);
        // The deviation of a mean of 100 draws from 0..100 is 28.87 / 10; 1.96 of them on either side.
        assert!((49.5 - low - 5.66).abs() < 0.5 && (high - 49.5 - 5.66).abs() < 0.5, "{low} {high}");
        assert_eq!(run(1), [low, high]);
        assert_ne!(run(2), [low, high]);
        assert_eq!(bootstrap(3, 10, &mut ChaCha8Rng::seed_from_u64(0), |_| None), None);
    }
}
