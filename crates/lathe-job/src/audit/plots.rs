//! Plots like Figures 4, 5 and 6 of LTS, of one table each.

use crate::plot::{Axis, Chart, Mark, Series, svg};
use crate::{Error, Result};
use lathe_search::audit::{ProxyReport, SHARES, Subject, TableReport};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The panels of Figure 4: the best so many percent.
const PANELS: [u32; 3] = [20, 50, 100];

/// Writes them, and says where.
pub fn write(folder: &Path, report: &TableReport, subjects: &[Subject]) -> Result<Vec<PathBuf>> {
    std::fs::create_dir_all(folder).map_err(Error::io(folder))?;
    let mut figures = vec![("figure5", vec![costs(report)]), ("figure6", sizes(report, subjects))];
    if report.proxies.iter().any(is_partial) {
        figures.insert(0, ("figure4", partial(report)));
    }
    let name: String = report.table.chars().map(|c| if c.is_alphanumeric() { c } else { '_' }).collect();
    let mut written = Vec::new();
    for (figure, charts) in figures {
        let path = folder.join(format!("{name}_{figure}.svg"));
        std::fs::write(&path, svg(&charts)).map_err(Error::io(&path))?;
        written.push(path);
    }
    Ok(written)
}

fn axis(label: &str, log: bool) -> Axis {
    Axis { label: label.into(), log }
}

fn is_partial(proxy: &ProxyReport) -> bool {
    proxy.name.starts_with("partial_training")
}

/// Figure 4: partial training against the parameter proxies, by time, among the best k percent.
fn partial(report: &TableReport) -> Vec<Chart> {
    let panel = |share: u32| {
        let line = |name: &str, mark: Mark, of: &dyn Fn(&ProxyReport) -> Option<f64>| {
            let points = report.proxies.iter().filter(|proxy| is_partial(proxy));
            Series::new(name, mark, points.filter_map(|proxy| Some((proxy.cost_s, of(proxy)?))).collect())
        };
        let mut series = vec![
            line("partial training, Spearman", Mark::Line, &|proxy| proxy.spearman_top[&share]),
            line("partial training, CR", Mark::Dashed, &|proxy| proxy.common_ratio[&share]),
        ];
        for proxy in report.proxies.iter().filter(|proxy| proxy.name.ends_with("_params")) {
            let points = proxy.spearman_top[&share].map(|spearman| (0.0, spearman));
            series.push(Series::new(proxy.name.clone(), Mark::Dots, points.into_iter().collect()));
        }
        Chart {
            title: format!("{}, best {share} %", report.table),
            x: axis("seconds of training per model", false),
            y: axis("Spearman, common ratio", false),
            series,
        }
    };
    PANELS.iter().map(|&share| panel(share)).collect()
}

/// Figure 5: what each proxy costs, and how well it ranks. Partial trainings are one line, from the shortest on.
fn costs(report: &TableReport) -> Chart {
    let known = report.proxies.iter().filter_map(|proxy| Some((proxy, proxy.spearman?)));
    let (partial, others): (Vec<_>, Vec<_>) = known.partition(|(proxy, _)| is_partial(proxy));
    let point = |&(proxy, spearman): &(&ProxyReport, f64)| (proxy.cost_flops as f64, spearman);
    let words = others.iter().map(|(proxy, _)| proxy.name.clone()).collect();
    let mut series = vec![Series { words, ..Series::new("", Mark::Dots, others.iter().map(point).collect()) }];
    if !partial.is_empty() {
        series.push(Series::new("partial training", Mark::Line, partial.iter().map(point).collect()));
    }
    Chart { title: report.table.clone(), x: axis("FLOPs per model", true), y: axis("Spearman", false), series }
}

/// Figure 6: perplexity by total parameters, and the parameter proxies among the best k percent.
fn sizes(report: &TableReport, subjects: &[Subject]) -> Vec<Chart> {
    let mut by_factor: BTreeMap<u32, Vec<(f64, f64)>> = BTreeMap::new();
    for subject in subjects {
        let points = by_factor.entry(subject.model.frame.div_val).or_default();
        points.push((subject.total_params as f64, -subject.quality));
    }
    let dots = by_factor.into_iter().map(|(factor, points)| Series::new(format!("k = {factor}"), Mark::Dots, points));
    let scatter = Chart {
        title: format!("{}: perplexity and size", report.table),
        x: axis("total parameters", true),
        y: axis("validation perplexity", false),
        series: dots.collect(),
    };
    let lines = |title: &str, of: &dyn Fn(&ProxyReport, u32) -> Option<f64>| {
        let free = report.proxies.iter().filter(|proxy| proxy.cost_flops == 0 && proxy.note.is_none());
        let series = free.map(|proxy| {
            let points = SHARES.iter().filter_map(|&share| Some((f64::from(share), of(proxy, share)?)));
            Series::new(proxy.name.clone(), Mark::Line, points.collect())
        });
        Chart { title: title.into(), x: axis("best k %", false), y: axis(title, false), series: series.collect() }
    };
    vec![
        scatter,
        lines("Spearman", &|proxy, share| proxy.spearman_top[&share]),
        lines("common ratio", &|proxy, share| proxy.common_ratio[&share]),
    ]
}
