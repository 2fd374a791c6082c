//! The numbers of an audit: correlations over all models, among the best, within one width, and per size.

use super::{Scores, Subject};
use crate::ranking::{bootstrap, common_ratio, kendall, pick, spearman, spearman_top};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The best so many percent by quality.
pub const SHARES: [u32; 10] = [10, 20, 30, 40, 50, 60, 70, 80, 90, 100];
/// The share whose interval is told.
const TOP: u32 = 20;
/// Fewest models of a width for a correlation.
const LEAST: usize = 5;
const BINS: usize = 4;
const ROUNDS: usize = 1000;

/// What was found of one table.
#[derive(Debug, Clone, Serialize)]
pub struct TableReport {
    /// Its name.
    pub table: String,
    /// How many models it has.
    pub models: usize,
    /// What was found of each proxy.
    pub proxies: Vec<ProxyReport>,
}

/// What was found of one proxy on one table. Intervals are of 95 %, by resampling models.
#[derive(Debug, Clone, Serialize)]
pub struct ProxyReport {
    /// Its name.
    pub name: String,
    /// Spearman's correlation with quality over all models.
    pub spearman: Option<f64>,
    /// Kendall's tau-b.
    pub kendall: Option<f64>,
    /// Spearman's correlation among the best so many percent.
    pub spearman_top: BTreeMap<u32, Option<f64>>,
    /// The share of the best so many percent that are among the proxy's.
    pub common_ratio: BTreeMap<u32, Option<f64>>,
    /// Seconds for one model, the mean.
    pub cost_s: f64,
    /// FLOPs for one model, the mean.
    pub cost_flops: u128,
    /// Of `spearman`.
    pub spearman_interval: Option<[f64; 2]>,
    /// Of `spearman_top.20`.
    pub spearman_top_20_interval: Option<[f64; 2]>,
    /// The mean of `widths`, each with as much weight as it has models.
    pub within_width: Option<f64>,
    /// Of `within_width`.
    pub within_width_interval: Option<[f64; 2]>,
    /// Per d_model of at least five models.
    pub widths: Vec<Width>,
    /// Per quarter of the models by decoder parameters (LTS, Figure 12).
    pub size_bins: Vec<Bin>,
    /// Why there are no numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The models of one width.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct Width {
    pub d_model: u32,
    pub models: usize,
    pub spearman: Option<f64>,
}

/// The models of a range of sizes.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct Bin {
    pub decoder_params: [u64; 2],
    pub models: usize,
    pub spearman: Option<f64>,
}

/// A proxy's scores beside the qualities.
struct Pairs<'a> {
    proxy: &'a [f64],
    quality: &'a [f64],
    width: Vec<u32>,
}

impl Pairs<'_> {
    fn over(&self, places: &[usize]) -> Option<f64> {
        spearman(&pick(self.proxy, places), &pick(self.quality, places))
    }

    /// Per width: the places among those given, and their correlation.
    fn widths(&self, places: &[usize]) -> Vec<Width> {
        let all: BTreeSet<u32> = places.iter().map(|&i| self.width[i]).collect();
        let width = |d_model| {
            let own: Vec<usize> = places.iter().copied().filter(|&i| self.width[i] == d_model).collect();
            Width { d_model, models: own.len(), spearman: self.over(&own) }
        };
        all.into_iter().map(width).filter(|width| width.models >= LEAST).collect()
    }
}

/// The mean over widths, each with as much weight as it has models.
fn mean(widths: &[Width]) -> Option<f64> {
    let known = || widths.iter().filter_map(|width| Some((width.models as f64, width.spearman?)));
    let models: f64 = known().map(|(models, _)| models).sum();
    (models > 0.0).then(|| known().map(|(models, spearman)| models * spearman).sum::<f64>() / models)
}

impl ProxyReport {
    /// Judges scores against the qualities of the same models.
    pub fn new(scores: &Scores, subjects: &[Subject], seed: u64) -> Self {
        let quality: Vec<f64> = subjects.iter().map(|subject| subject.quality).collect();
        let nothing = Vec::new();
        let (values, note) = match &scores.values {
            Ok(values) => (values, None),
            Err(why) => (&nothing, Some(why.clone())),
        };
        let known = !values.is_empty();
        let pairs =
            Pairs { proxy: values, quality: &quality, width: subjects.iter().map(|s| s.model.frame.d_model).collect() };
        let shares = |of: &dyn Fn(f64) -> Option<f64>| {
            SHARES.iter().map(|&share| (share, known.then(|| of(share.into())).flatten())).collect()
        };
        let all: Vec<usize> = if known { (0..subjects.len()).collect() } else { Vec::new() };
        let widths = pairs.widths(&all);
        let interval = |of: &dyn Fn(&[usize]) -> Option<f64>| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            known.then(|| bootstrap(all.len(), ROUNDS, &mut rng, of)).flatten()
        };
        let top = |places: &[usize]| spearman_top(&pick(values, places), &pick(&quality, places), TOP.into());
        Self {
            name: scores.name.clone(),
            spearman: known.then(|| spearman(values, &quality)).flatten(),
            kendall: known.then(|| kendall(values, &quality)).flatten(),
            spearman_top: shares(&|share| spearman_top(values, &quality, share)),
            common_ratio: shares(&|share| common_ratio(values, &quality, share)),
            cost_s: scores.seconds,
            cost_flops: scores.flops,
            spearman_interval: interval(&|places| pairs.over(places)),
            spearman_top_20_interval: interval(&top),
            within_width: mean(&widths),
            within_width_interval: interval(&|places| mean(&pairs.widths(places))),
            widths,
            size_bins: if known { bins(&pairs, subjects) } else { Vec::new() },
            note,
        }
    }
}

/// Quarters of the models by decoder parameters.
fn bins(pairs: &Pairs<'_>, subjects: &[Subject]) -> Vec<Bin> {
    let mut order: Vec<usize> = (0..subjects.len()).collect();
    order.sort_by_key(|&i| subjects[i].decoder_params);
    let cut = |i: usize| i * order.len() / BINS;
    let bins = (0..BINS).map(|i| &order[cut(i)..cut(i + 1)]).filter(|bin| !bin.is_empty());
    bins.map(|bin| Bin {
        decoder_params: [bin[0], bin[bin.len() - 1]].map(|i| subjects[i].decoder_params),
        models: bin.len(),
        spearman: pairs.over(bin),
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lathe_core::Spec;
    use lathe_model::REGISTRY;

    fn subject(d_model: u32, layers: usize, quality: f64) -> Subject {
        let toml = format!("backbone='gpt2'\nlayers='(sf)x{layers}'\nd_model={d_model}\nvocab=16");
        Subject::new(String::new(), Spec::from_toml(&toml, &REGISTRY).unwrap().model(&REGISTRY).unwrap(), quality)
    }

    #[test]
    fn widths_and_bins_are_groups_of_models() {
        // Within each width deeper is better, the narrow ones are worse, and one width has too few.
        let mut subjects: Vec<Subject> = (1..=6).map(|n| subject(8, n, n as f64)).collect();
        subjects.extend((1..=6).map(|n| subject(16, n, 10.0 - n as f64)));
        subjects.push(subject(32, 1, 100.0));
        let values = subjects.iter().map(|subject| subject.decoder_params as f64).collect();
        let scores = Scores { name: "x".into(), values: Ok(values), seconds: 1.0, flops: 2 };
        let found = ProxyReport::new(&scores, &subjects, 0);
        let widths: Vec<_> = found.widths.iter().map(|width| (width.d_model, width.models)).collect();
        assert_eq!(widths, [(8, 6), (16, 6)]);
        assert!((found.widths[0].spearman.unwrap() - 1.0).abs() < 1e-12);
        assert!((found.widths[1].spearman.unwrap() + 1.0).abs() < 1e-12);
        assert!(found.within_width.unwrap().abs() < 1e-12);
        assert_eq!(found.size_bins.iter().map(|bin| bin.models).collect::<Vec<_>>(), [3, 3, 3, 4]);
        assert!(found.size_bins.windows(2).all(|pair| pair[0].decoder_params[1] <= pair[1].decoder_params[0]));
        assert_eq!(found.spearman_top.keys().copied().collect::<Vec<_>>(), SHARES);
        assert_eq!(found.spearman_top[&100], found.spearman);
        assert_eq!(found.common_ratio[&100], Some(1.0));
        let [low, high] = found.spearman_interval.unwrap();
        assert!(low < found.spearman.unwrap() && found.spearman.unwrap() < high);
    }

    #[test]
    fn what_has_no_scores_has_no_numbers() {
        let scores = Scores { name: "x".into(), values: Err("why".into()), seconds: 0.0, flops: 0 };
        let found = ProxyReport::new(&scores, &[subject(8, 1, 1.0)], 0);
        assert_eq!((found.spearman, found.common_ratio[&100], found.note.as_deref()), (None, None, Some("why")));
    }
}
