//! Tables of models that were trained and measured, side by side: how far the frontier of a proxy is from that of the trained
//! models, and what it costs to run one device's frontier on another.
//!
//! Rows are those of [`lathe_search::audit::table`] with the columns device and latency. Rows of one device, backbone and
//! vocabulary belong together, whichever file or table they come from.

use crate::{Error, Result};
use lathe_core::Registry;
use lathe_search::audit::Subject;
use lathe_search::audit::table;
use lathe_search::pareto::{frontier, lower_hull, mean_distance};
use lathe_search::transfer::{Point, Price, price};
use serde::Serialize;
use std::path::PathBuf;

/// What tables say.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// In the order in which they begin.
    pub devices: Vec<DeviceReport>,
    /// Every device's frontier on every other of the same backbone and vocabulary.
    pub prices: Vec<PriceReport>,
}

/// The models of a backbone on a device.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct DeviceReport {
    pub device: String,
    pub backbone: String,
    pub models: usize,
    /// Points that nothing beats in latency and decoder parameters.
    pub frontier: usize,
    /// Points on the lower convex hull of latency and perplexity, by name, the fastest first.
    pub recalibrated: Vec<String>,
    /// LTS's d_avg: mean relative difference in perplexity of the former from the latter, nearest in latency.
    pub d_avg: Option<f64>,
}

/// What one device's frontier costs on another.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct PriceReport {
    pub backbone: String,
    pub from: String,
    pub to: String,
    /// Share of latency that it takes more at the same perplexity or a lower one; with its 95 % interval.
    pub more: f64,
    pub interval: [f64; 2],
    /// What the gaps of a frontier alone make of it.
    pub spacing: Option<f64>,
    pub points: usize,
    pub unreached: usize,
    pub measured: usize,
    /// Median relative error where latencies had to be predicted.
    pub error: Option<f64>,
}

/// Models that belong together.
struct Group {
    device: String,
    backbone: &'static str,
    vocab: u32,
    subjects: Vec<(Subject, f64)>,
}

/// Compares the devices of tables.
pub fn run(files: &[PathBuf], registry: &Registry) -> Result<Report> {
    let mut groups: Vec<Group> = Vec::new();
    for file in files {
        for subject in table::read(file, registry)?.into_iter().flat_map(|table| table.subjects) {
            let Some((device, latency_ms)) = subject.measured.clone() else { continue };
            let (backbone, vocab) = (subject.model.frame.backbone.key(), subject.model.frame.vocab);
            let same = |group: &&mut Group| (&group.device, group.backbone, group.vocab) == (&device, backbone, vocab);
            match groups.iter_mut().find(same) {
                Some(group) => group.subjects.push((subject, latency_ms)),
                None => groups.push(Group { device, backbone, vocab, subjects: vec![(subject, latency_ms)] }),
            }
        }
    }
    if groups.is_empty() {
        let files = files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ");
        return Err(Error::data(files, "no row with a device and a latency", "at least one"));
    }
    let pairs = groups.iter().flat_map(|to| groups.iter().map(move |from| (from, to)));
    let pairs =
        pairs.filter(|(from, to)| from.device != to.device && (from.backbone, from.vocab) == (to.backbone, to.vocab));
    let prices = pairs.filter_map(|(from, to)| PriceReport::new(from, to)).collect();
    Ok(Report { devices: groups.iter().map(DeviceReport::new).collect(), prices })
}

impl DeviceReport {
    fn new(group: &Group) -> Self {
        let subjects = &group.subjects;
        let found: Vec<[f64; 2]> = subjects.iter().map(|(one, ms)| [*ms, -(one.decoder_params as f64)]).collect();
        let trained: Vec<[f64; 2]> = subjects.iter().map(|(one, ms)| [*ms, -one.quality]).collect();
        let (found, mut truth) = (frontier(&found), lower_hull(&trained));
        truth.sort_by(|&i, &j| trained[i][0].total_cmp(&trained[j][0]));
        let points = |places: &[usize]| places.iter().map(|&i| trained[i].into()).collect::<Vec<(f64, f64)>>();
        Self {
            device: group.device.clone(),
            backbone: group.backbone.into(),
            models: subjects.len(),
            frontier: found.len(),
            d_avg: mean_distance(&points(&found), &points(&truth)),
            recalibrated: truth.into_iter().map(|i| subjects[i].0.name.clone()).collect(),
        }
    }
}

impl PriceReport {
    fn new(from: &Group, to: &Group) -> Option<Self> {
        let points = |group: &Group| -> Vec<Point> {
            let point =
                |(one, ms): &(Subject, f64)| Point { model: one.model.clone(), quality: one.quality, latency_ms: *ms };
            group.subjects.iter().map(point).collect()
        };
        let Price { more, interval, spacing, points, unreached, measured, error } = price(&points(from), &points(to))?;
        let [from_device, to_device] = [from, to].map(|group| group.device.clone());
        let backbone = to.backbone.into();
        Some(Self {
            backbone,
            from: from_device,
            to: to_device,
            more,
            interval,
            spacing,
            points,
            unreached,
            measured,
            error,
        })
    }
}
