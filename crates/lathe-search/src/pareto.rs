//! Frontiers of points whose every coordinate is to be small: dominance, the lower convex hull, hypervolume, and
//! the distance between frontiers.

/// Whether `a` is nowhere worse than `b` and somewhere better.
pub fn dominates(a: &[f64], b: &[f64]) -> bool {
    a.iter().zip(b).all(|(a, b)| a <= b) && a.iter().zip(b).any(|(a, b)| a < b)
}

/// The points that no other dominates, in the order given; of equal points the first.
pub fn frontier<P: AsRef<[f64]>>(points: &[P]) -> Vec<usize> {
    let point = |i: usize| points[i].as_ref();
    // Whoever dominates a point comes before it in lexicographic order.
    let mut order: Vec<usize> = (0..points.len()).collect();
    order.sort_by(|&i, &j| lexicographic(point(i), point(j)).then(i.cmp(&j)));
    let mut kept: Vec<usize> = Vec::new();
    for i in order {
        if !kept.iter().any(|&j| point(j).iter().zip(point(i)).all(|(a, b)| a <= b)) {
            kept.push(i);
        }
    }
    kept.sort_unstable();
    kept
}

/// The points that no other beats in every coordinate, in the order given: the frontier, and what lies beside it.
pub fn unbeaten<P: AsRef<[f64]>>(points: &[P]) -> Vec<usize> {
    let beats = |a: &P, b: &P| a.as_ref().iter().zip(b.as_ref()).all(|(a, b)| a < b);
    // Whoever is beaten is beaten by a point of the frontier.
    let best = frontier(points);
    (0..points.len()).filter(|&i| !best.iter().any(|&j| beats(&points[j], &points[i]))).collect()
}

fn lexicographic(a: &[f64], b: &[f64]) -> std::cmp::Ordering {
    let unequal = a.iter().zip(b).map(|(a, b)| a.total_cmp(b)).find(|order| order.is_ne());
    unequal.unwrap_or(std::cmp::Ordering::Equal)
}

/// The ranks of non-dominated sorting: 0 for the frontier, 1 for the frontier of the rest, and so on.
pub fn ranks<P: AsRef<[f64]>>(points: &[P]) -> Vec<usize> {
    let mut ranks = vec![0; points.len()];
    let mut left: Vec<usize> = (0..points.len()).collect();
    for rank in 0.. {
        if left.is_empty() {
            break;
        }
        let here: Vec<&[f64]> = left.iter().map(|&i| points[i].as_ref()).collect();
        let mut first: Vec<usize> = frontier(&here);
        // Equal points share a rank.
        first = (0..here.len()).filter(|&i| first.iter().any(|&j| here[j] == here[i])).collect();
        first.iter().for_each(|&i| ranks[left[i]] = rank);
        left = (0..left.len()).filter(|i| !first.contains(i)).map(|i| left[i]).collect();
    }
    ranks
}

/// Each coordinate scaled so that `low` is 0 and `high` is 1.
pub fn scale(point: &[f64], low: &[f64], high: &[f64]) -> Vec<f64> {
    let width = |i: usize| if high[i] > low[i] { high[i] - low[i] } else { 1.0 };
    point.iter().enumerate().map(|(i, x)| (x - low[i]) / width(i)).collect()
}

/// The least and the greatest of each coordinate.
pub fn range<P: AsRef<[f64]>>(points: &[P]) -> Option<(Vec<f64>, Vec<f64>)> {
    let first = points.first()?.as_ref().to_vec();
    let start = (first.clone(), first);
    Some(points.iter().fold(start, |(mut low, mut high), point| {
        for (i, &x) in point.as_ref().iter().enumerate() {
            (low[i], high[i]) = (low[i].min(x), high[i].max(x));
        }
        (low, high)
    }))
}

/// The volume that points dominate up to a reference, exactly: slices along the last coordinate.
pub fn hypervolume<P: AsRef<[f64]>>(points: &[P], reference: &[f64]) -> f64 {
    let inside = |point: &&[f64]| point.iter().zip(reference).all(|(x, limit)| x < limit);
    let points: Vec<&[f64]> = points.iter().map(AsRef::as_ref).filter(inside).collect();
    volume(&points, reference)
}

fn volume(points: &[&[f64]], reference: &[f64]) -> f64 {
    let [rest @ .., limit] = reference else { return 0.0 };
    if points.is_empty() {
        return 0.0;
    }
    let last = rest.len();
    if last == 0 {
        return limit - points.iter().map(|point| point[0]).fold(f64::INFINITY, f64::min);
    }
    let mut sorted = points.to_vec();
    sorted.sort_by(|a, b| a[last].total_cmp(&b[last]));
    let mut sum = 0.0;
    let mut below: Vec<&[f64]> = Vec::new();
    for (i, point) in sorted.iter().enumerate() {
        // Points that those below dominate change nothing.
        if !below.iter().any(|other| other.iter().zip(&point[..last]).all(|(a, b)| a <= b)) {
            below.retain(|other| !point[..last].iter().zip(*other).all(|(a, b)| a <= b));
            below.push(&point[..last]);
        }
        let next = sorted.get(i + 1).map_or(*limit, |next| next[last]);
        if next > point[last] {
            sum += (next - point[last]) * volume(&below, rest);
        }
    }
    sum
}

/// How far beyond the worst of all points, scaled to a range of 1, the reference of volumes lies.
pub const REFERENCE: f64 = 1.1;

/// As many points as wanted that together dominate much: each in turn adds the most volume to those before it.
pub fn most_dominant<P: AsRef<[f64]>>(points: &[P], count: usize) -> Vec<usize> {
    let Some((low, high)) = range(points) else { return Vec::new() };
    let scaled: Vec<Vec<f64>> = points.iter().map(|point| scale(point.as_ref(), &low, &high)).collect();
    let reference = vec![REFERENCE; low.len()];
    let mut kept: Vec<usize> = Vec::new();
    let mut reached = 0.0;
    // What a point adds only becomes less as others are kept, so whoever still adds more than all others were known to
    // add is the next.
    let mut left: Vec<(f64, usize)> = (0..points.len()).map(|i| (f64::INFINITY, i)).collect();
    while kept.len() < count.min(points.len()) {
        let mut best: Option<(f64, usize)> = None;
        left.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        for (at, (adds, i)) in left.iter_mut().enumerate() {
            if best.is_some_and(|(most, _)| most >= *adds) {
                break;
            }
            let with: Vec<&[f64]> = kept.iter().chain([&*i]).map(|&j| scaled[j].as_slice()).collect();
            *adds = hypervolume(&with, &reference) - reached;
            if best.is_none_or(|(most, _)| *adds > most) {
                best = Some((*adds, at));
            }
        }
        let Some((adds, at)) = best else { break };
        reached += adds;
        kept.push(left.remove(at).1);
    }
    kept
}

/// The points on the lower convex hull: those that are the best for some weights of the coordinates, none negative.
/// For two or three coordinates.
pub fn lower_hull<P: AsRef<[f64]>>(points: &[P]) -> Vec<usize> {
    let Some((low, high)) = range(points) else { return Vec::new() };
    let scaled: Vec<Vec<f64>> = points.iter().map(|point| scale(point.as_ref(), &low, &high)).collect();
    let kept = frontier(&scaled);
    let best_somewhere = |&&i: &&usize| {
        // Weights (u, v, 1 - u - v), or (u, 1 - u): a triangle or a segment, cut by one half-plane per other point.
        let three = scaled[i].len() > 2;
        let mut polygon = match three {
            true => vec![[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]],
            false => vec![[0.0, 0.0], [1.0, 0.0]],
        };
        for &j in kept.iter().filter(|&&j| j != i) {
            let more: Vec<f64> = scaled[j].iter().zip(&scaled[i]).map(|(other, own)| other - own).collect();
            let (last, second) = (more[more.len() - 1], if three { more[1] } else { more[more.len() - 1] });
            polygon = cut(&polygon, [more[0] - last, second - last], last);
            if polygon.is_empty() {
                return false;
            }
        }
        true
    };
    kept.iter().filter(best_somewhere).copied().collect()
}

/// The part of a convex polygon where normal . w + offset >= 0, within rounding.
fn cut(polygon: &[[f64; 2]], normal: [f64; 2], offset: f64) -> Vec<[f64; 2]> {
    const ROUNDING: f64 = 1e-12;
    let side = |w: [f64; 2]| normal[0] * w[0] + normal[1] * w[1] + offset;
    let mut out = Vec::new();
    for (i, &from) in polygon.iter().enumerate() {
        let to = polygon[(i + 1) % polygon.len()];
        let (a, b) = (side(from), side(to));
        if a >= -ROUNDING {
            out.push(from);
        }
        if (a > ROUNDING && b < -ROUNDING) || (a < -ROUNDING && b > ROUNDING) {
            let share = a / (a - b);
            out.push([from[0] + share * (to[0] - from[0]), from[1] + share * (to[1] - from[1])]);
        }
    }
    out
}

/// LTS's d_avg: the mean relative difference in quality between a frontier and the points of the ground truth that are
/// nearest in latency. Points are (latency, quality).
pub fn mean_distance(frontier: &[(f64, f64)], truth: &[(f64, f64)]) -> Option<f64> {
    let difference = |&(latency, quality): &(f64, f64)| {
        let nearest = truth.iter().min_by(|a, b| (a.0 - latency).abs().total_cmp(&(b.0 - latency).abs()))?;
        Some((quality - nearest.1).abs() / nearest.1.abs())
    };
    let differences: Option<Vec<f64>> = frontier.iter().map(difference).collect();
    let differences = differences.filter(|all| !all.is_empty())?;
    Some(differences.iter().sum::<f64>() / differences.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    fn random(n: usize, dimensions: usize, seed: u64) -> Vec<Vec<f64>> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let coordinate = |rng: &mut ChaCha8Rng| f64::from(rng.random_range(0..8u32)) / 8.0;
        (0..n).map(|_| (0..dimensions).map(|_| coordinate(&mut rng)).collect()).collect()
    }

    #[test]
    fn frontiers_are_those_of_the_definition() {
        for seed in 0..20 {
            let points = random(60, 3, seed);
            let brute: Vec<usize> = (0..points.len())
                .filter(|&i| !points.iter().any(|other| dominates(other, &points[i])))
                .filter(|&i| !points[..i].contains(&points[i]))
                .collect();
            assert_eq!(frontier(&points), brute);
        }
    }

    #[test]
    fn the_unbeaten_are_those_of_the_definition() {
        for seed in 0..20 {
            let points = random(60, 3, seed);
            let beaten = |i: usize| points.iter().any(|other| other.iter().zip(&points[i]).all(|(a, b)| a < b));
            let brute: Vec<usize> = (0..points.len()).filter(|&i| !beaten(i)).collect();
            assert_eq!(unbeaten(&points), brute);
        }
        assert_eq!(unbeaten(&[[0.0, 1.0], [0.0, 2.0], [1.0, 2.0], [0.0, 1.0]]), [0, 1, 3]);
    }

    #[test]
    fn ranks_peel_frontiers() {
        let points = [[0.0, 1.0], [1.0, 0.0], [1.0, 1.0], [2.0, 2.0], [0.0, 1.0]];
        assert_eq!(ranks(&points), [0, 0, 1, 2, 0]);
    }

    #[test]
    fn the_most_dominant_are_the_greedy_choice() {
        for seed in 0..5 {
            let points = random(40, 3, seed);
            let (low, high) = range(&points).expect("points");
            let volume = |chosen: &[usize]| {
                let scaled: Vec<Vec<f64>> = chosen.iter().map(|&i| scale(&points[i], &low, &high)).collect();
                hypervolume(&scaled, &[REFERENCE; 3])
            };
            let chosen = most_dominant(&points, 8);
            assert_eq!(chosen.len(), 8);
            for n in 1..=8 {
                let with = |i: usize| volume(&[&chosen[..n - 1], &[i]].concat());
                let most = (0..points.len()).map(with).fold(0.0, f64::max);
                assert!((volume(&chosen[..n]) - most).abs() < 1e-12, "{n}");
            }
        }
        assert_eq!(most_dominant(&random(3, 2, 0), 9).len(), 3);
    }

    #[test]
    fn hypervolume_counts_cells() {
        // On a grid of eighths the volume is the number of cells that some point dominates.
        for (dimensions, seed) in [(1, 1), (2, 2), (2, 3), (3, 4), (3, 5), (4, 6)] {
            let points = random(12, dimensions, seed);
            let cells = 8usize.pow(dimensions as u32);
            let corner = |cell: usize| -> Vec<f64> {
                (0..dimensions as u32).map(|d| (cell / 8usize.pow(d) % 8) as f64 / 8.0).collect()
            };
            let covered = (0..cells)
                .filter(|&cell| points.iter().any(|point| point.iter().zip(corner(cell)).all(|(p, c)| *p <= c)))
                .count();
            let found = hypervolume(&points, &vec![1.0; dimensions]);
            assert!((found - covered as f64 / cells as f64).abs() < 1e-12, "{found} {covered} of {cells}");
        }
        assert_eq!(hypervolume(&[[2.0, 0.0]], &[1.0, 1.0]), 0.0);
        assert_eq!(hypervolume::<[f64; 2]>(&[], &[1.0, 1.0]), 0.0);
    }

    #[test]
    fn hulls_of_known_points() {
        // The middle point is on the frontier but above the line between its neighbours.
        assert_eq!(lower_hull(&[[0.0, 1.0], [0.6, 0.6], [1.0, 0.0]]), [0, 2]);
        assert_eq!(lower_hull(&[[0.0, 1.0], [0.4, 0.4], [1.0, 0.0]]), [0, 1, 2]);
        let corners = [[0.0, 1.0, 1.0], [1.0, 0.0, 1.0], [1.0, 1.0, 0.0]];
        assert_eq!(lower_hull(&[corners[0], corners[1], corners[2], [0.7, 0.7, 0.7]]), [0, 1, 2]);
        assert_eq!(lower_hull(&[corners[0], corners[1], corners[2], [0.6, 0.6, 0.6]]), [0, 1, 2, 3]);
        assert_eq!(lower_hull(&[[3.0, 4.0]]), [0]);
    }

    #[test]
    fn hulls_hold_the_best_of_any_weights() {
        let points = random(40, 3, 9);
        let hull = lower_hull(&points);
        let (low, high) = range(&points).unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for _ in 0..200 {
            let weights: Vec<f64> = (0..3).map(|_| rng.random::<f64>()).collect();
            let value =
                |i: usize| -> f64 { scale(&points[i], &low, &high).iter().zip(&weights).map(|(x, w)| x * w).sum() };
            let best = (0..points.len()).map(value).fold(f64::INFINITY, f64::min);
            let of_hull = hull.iter().map(|&i| value(i)).fold(f64::INFINITY, f64::min);
            assert!((best - of_hull).abs() < 1e-12);
        }
    }

    #[test]
    fn distance_is_to_the_nearest_in_latency() {
        let truth = [(1.0, 10.0), (2.0, 8.0)];
        let found = mean_distance(&[(1.1, 11.0), (1.9, 8.0)], &truth).unwrap();
        assert!((found - 0.05).abs() < 1e-12);
        assert_eq!(mean_distance(&[], &truth), None);
        assert_eq!(mean_distance(&truth, &[]), None);
    }
}
