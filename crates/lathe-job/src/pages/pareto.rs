//! The page of a search, with its figures as CSV and JSON.

use super::{page, write};
use crate::Result;
use crate::compare::searches::Ended;
use crate::pareto::{Baseline, MeanSaving, Point};
use crate::plot::{Axis, Chart, Mark, Series, svg};
use lathe_search::profile::Machine;
use lathe_search::search::{Evaluated, SearchPlan};
use lathe_search::workload::Workload;
use serde::Serialize;
use std::path::Path;

const TEMPLATE: &str = include_str!("pareto.html");
/// More candidates than this only make the page slow.
const MOST_CANDIDATES: usize = 4000;

/// What the page tells.
pub struct Page<'a> {
    pub space: &'a str,
    pub plan: &'a SearchPlan,
    pub workload: &'a Workload,
    pub evaluated: &'a [Evaluated],
    pub frontier: &'a [Point],
    pub baselines: &'a [Baseline],
    pub mean_saving: Option<MeanSaving>,
}

#[derive(Serialize)]
struct Data<'a> {
    space: &'a str,
    setting: String,
    machine: String,
    objectives: Vec<Shown>,
    evaluated: usize,
    candidates: Vec<Candidate<'a>>,
    frontier: &'a [Point],
    baselines: &'a [Baseline],
    mean_saving: Option<MeanSaving>,
}

#[derive(Serialize)]
struct Shown {
    label: &'static str,
    unit: f64,
}

#[derive(Serialize)]
struct Candidate<'a> {
    values: &'a [f64],
}

impl Page<'_> {
    /// Writes `report.html`, `frontier.svg`, `frontier.csv` and `frontier.json`.
    pub fn write(&self, out: &Path) -> Result<()> {
        let machine = Machine::here();
        let step = self.evaluated.len().div_ceil(MOST_CANDIDATES).max(1);
        let data = Data {
            space: self.space,
            setting: self.workload.to_string(),
            machine: format!("{}, {} threads, {}", machine.cpu, machine.threads, machine.instructions),
            objectives: self.plan.objectives.iter().map(|o| Shown { label: o.label.0, unit: o.label.1 }).collect(),
            evaluated: self.evaluated.len(),
            candidates: self.evaluated.iter().step_by(step).map(|one| Candidate { values: &one.values }).collect(),
            frontier: self.frontier,
            baselines: self.baselines,
            mean_saving: self.mean_saving,
        };
        write(&out.join("report.html"), &page(TEMPLATE, self.space, &data))?;
        write(&out.join("frontier.csv"), &self.csv())?;
        write(&out.join("frontier.svg"), &svg(&self.slices()))?;
        let objectives = self.plan.objectives.iter().map(|objective| objective.name.to_string()).collect();
        let frontier = self.frontier.iter().map(|point| point.values.clone()).collect();
        let ended = Ended { objectives, workload: self.workload.clone(), frontier };
        write(&out.join("frontier.json"), &serde_json::to_string(&ended).expect("numbers and names"))
    }

    /// Each pair of objectives.
    fn slices(&self) -> Vec<Chart> {
        let objectives = &self.plan.objectives;
        let mut charts = Vec::new();
        for y in 0..objectives.len() {
            for x in y + 1..objectives.len() {
                let at = |values: &[f64]| (values[x] / objectives[x].label.1, values[y] / objectives[y].label.1);
                let of = |points: &[&Point]| points.iter().map(|point| at(&point.values)).collect();
                let axis = |i: usize| Axis { label: objectives[i].label.0.into(), log: false };
                let frontier: Vec<&Point> = self.frontier.iter().collect();
                let baselines: Vec<&Point> = self.baselines.iter().map(|baseline| &baseline.point).collect();
                charts.push(Chart {
                    title: format!("{} against {}", objectives[y].label.0, objectives[x].label.0),
                    x: axis(x),
                    y: axis(y),
                    series: vec![
                        Series::new("frontier", Mark::Dots, of(&frontier)),
                        Series::new("baseline", Mark::Dots, of(&baselines)),
                    ],
                });
            }
        }
        charts
    }

    fn csv(&self) -> String {
        const COLUMNS: [&str; 8] = [
            "kind",
            "d_model",
            "decoder_params",
            "total_params",
            "latency_ms",
            "peak_bytes",
            "predicted_latency_ms",
            "layers",
        ];
        let mut csv = csv::Writer::from_writer(Vec::new());
        csv.write_record(COLUMNS).expect("memory takes all");
        let rows = self.frontier.iter().map(|point| ("frontier", point));
        for (kind, point) in rows.chain(self.baselines.iter().map(|baseline| ("baseline", &baseline.point))) {
            let Point { layers, d_model, params, latency_ms, peak_bytes, predicted_latency_ms, .. } = point;
            let cells: [&dyn ToString; 8] =
                [&kind, d_model, &params.decoder, &params.total, latency_ms, peak_bytes, predicted_latency_ms, layers];
            csv.write_record(cells.map(|cell| cell.to_string())).expect("memory takes all");
        }
        String::from_utf8(csv.into_inner().expect("memory takes all")).expect("cells are strings")
    }
}
