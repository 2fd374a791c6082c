//! Plots as SVG, written by hand: scatter and lines, axes with round ticks, a legend. Text and axes take a neutral colour
//! on a light and on a dark page; the background is the page's.

use std::fmt::Write;

/// Colours of series, told apart on light and dark, and by people who see red and green alike (Okabe and Ito, 2008).
const COLOURS: [&str; 8] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1", "#7f7f7f"];
const STYLE: &str = "<style>text{font:12px sans-serif;fill:#444}.t{font-weight:bold}.m{text-anchor:middle}\
                     .e{text-anchor:end}.g{stroke:#888;stroke-opacity:.25}.a{stroke:#888;fill:none}\
                     @media(prefers-color-scheme:dark){text{fill:#bbb}}</style>";
const WIDTH: f64 = 460.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 46.0;
/// Height of a line of the legend.
const LINE: f64 = 15.0;

/// Height of a word beside a point.
const WORD: f64 = 12.0;

/// An axis.
pub struct Axis {
    pub label: String,
    /// Powers of ten. What is not above 0 stands at the left end, marked as 0.
    pub log: bool,
}

/// How points are drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    Dots,
    Line,
    Dashed,
}

/// Points that belong together.
pub struct Series {
    /// In the legend; none where it is empty.
    pub name: String,
    pub mark: Mark,
    pub points: Vec<(f64, f64)>,
    /// A word beside each point, or none at all.
    pub words: Vec<String>,
}

impl Series {
    pub fn new(name: impl Into<String>, mark: Mark, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), mark, points, words: Vec::new() }
    }
}

/// One plot.
pub struct Chart {
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    pub series: Vec<Series>,
}

/// Where numbers lie on an axis: positions are the numbers, or their logarithms to ten.
struct Scale {
    log: bool,
    low: f64,
    high: f64,
    /// Positions and labels, increasing.
    ticks: Vec<(f64, String)>,
}

impl Scale {
    fn new(axis: &Axis, values: impl Iterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.filter(|value| value.is_finite() && (!axis.log || *value > 0.0)).collect();
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (low, high) = if low > high { (1.0, 10.0) } else { (low, high) };
        let mut ticks: Vec<(f64, String)> = match axis.log {
            true => log_ticks(low, high).into_iter().map(|tick| (tick.log10(), short(tick))).collect(),
            false => linear_ticks(low, high).into_iter().map(|tick| (tick, short(tick))).collect(),
        };
        let (low, high) = (ticks[0].0, ticks[ticks.len() - 1].0);
        Self { log: axis.log, low, high, ticks: std::mem::take(&mut ticks) }
    }

    /// The same, with room at the low end for what a logarithm does not have.
    fn with_zero(mut self) -> Self {
        self.low -= (self.high - self.low) / 6.0;
        self.ticks.insert(0, (self.low, "0".into()));
        self
    }

    /// From 0 to 1 along the axis.
    fn at(&self, value: f64) -> f64 {
        match (self.log, value > 0.0) {
            (true, false) => 0.0,
            (true, true) => self.share(value.log10()),
            (false, _) => self.share(value),
        }
    }

    fn share(&self, position: f64) -> f64 {
        (position - self.low) / (self.high - self.low)
    }
}

/// Multiples of 1, 2 or 5 times a power of ten from below the lowest to above the highest number.
fn linear_ticks(low: f64, high: f64) -> Vec<f64> {
    let (low, high) = if low == high { (low - 0.5, high + 0.5) } else { (low, high) };
    let least = (high - low) / 5.0;
    let power = 10f64.powf(least.log10().floor());
    let step = [1.0, 2.0, 5.0].map(|n| n * power).into_iter().find(|step| *step >= least * 0.999);
    let step = step.unwrap_or(10.0 * power);
    let (first, last) = ((low / step).floor(), (high / step).ceil());
    (0..=(last - first) as usize).map(|i| (first + i as f64) * step).collect()
}

/// Powers of ten, with 2 and 5 between where there are few, and not every power where there are many.
fn log_ticks(low: f64, high: f64) -> Vec<f64> {
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let last = last.max(first + 1);
    if last - first > 2 {
        let every = ((last - first) as usize).div_ceil(8);
        let powers = (first..=last + every as i32 - 1).step_by(every);
        return powers.map(|power| 10f64.powi(power)).collect();
    }
    let all = (first..=last).flat_map(|power| [1.0, 2.0, 5.0].map(|n| n * 10f64.powi(power)));
    let all: Vec<f64> = all.take_while(|&tick| tick <= 10f64.powi(last) * 1.001).collect();
    let from = all.iter().rposition(|&tick| tick <= low).unwrap_or(0);
    let to = all.iter().position(|&tick| tick >= high).unwrap_or(all.len() - 1).max(from + 1);
    all[from..=to.min(all.len() - 1)].to_vec()
}

/// A number with a unit of a thousand, without zeros that say nothing.
fn short(number: f64) -> String {
    let units = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")];
    let (unit, name) = units.into_iter().find(|(unit, _)| number.abs() >= *unit * 0.9995).unwrap_or((1.0, ""));
    let digits = match number.abs() / unit {
        n if n >= 100.0 => 0,
        n if n >= 10.0 => 1,
        n if n >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{:.digits$}", number / unit);
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{}{name}", if text == "-0" { "0" } else { text })
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Plots beside each other, as one SVG document.
pub fn svg(charts: &[Chart]) -> String {
    let width = WIDTH * charts.len() as f64;
    let legend = charts.iter().map(|chart| chart.legend().count()).max().unwrap_or(0) as f64;
    let height = HEIGHT + LINE * (legend / 2.0).ceil();
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\">\n{STYLE}\n"
    );
    for (i, chart) in charts.iter().enumerate() {
        let _ = writeln!(out, "<g transform=\"translate({},0)\">", WIDTH * i as f64);
        chart.draw(&mut out);
        out.push_str("</g>\n");
    }
    out + "</svg>\n"
}

/// Words beside points, from the top, each moved down until it is clear of those above it.
fn words<'a>(points: impl Iterator<Item = ((f64, f64), &'a String)>) -> Vec<(f64, f64, &'a str)> {
    let mut all: Vec<(f64, f64, &str)> = points.map(|((x, y), word)| (x, y, word.as_str())).collect();
    all.retain(|(x, y, _)| x.is_finite() && y.is_finite());
    all.sort_by(|a, b| a.1.total_cmp(&b.1));
    for i in 1..all.len() {
        for j in 0..i {
            let (above, own) = (all[j], &mut all[i]);
            if (above.0 - own.0).abs() < WIDTH / 4.0 && own.1 < above.1 + WORD {
                own.1 = above.1 + WORD;
            }
        }
    }
    all
}

impl Chart {
    fn legend(&self) -> impl Iterator<Item = (usize, &Series)> {
        self.series.iter().enumerate().filter(|(_, series)| !series.name.is_empty())
    }

    fn draw(&self, out: &mut String) {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let mut x = Scale::new(&self.x, points().map(|point| point.0));
        if x.log && points().any(|point| point.0 <= 0.0) {
            x = x.with_zero();
        }
        let y = Scale::new(&self.y, points().map(|point| point.1));
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        let px = |value: f64| LEFT + x.at(value) * (right - LEFT);
        let py = |value: f64| bottom - y.at(value) * (bottom - TOP);
        let mut line = |text: String| {
            out.push_str(&text);
            out.push('\n');
        };
        line(format!("<text class=\"t m\" x=\"{:.1}\" y=\"18\">{}</text>", (LEFT + right) / 2.0, escape(&self.title)));
        for (tick, label) in &x.ticks {
            let at = LEFT + x.share(*tick) * (right - LEFT);
            line(format!("<path class=\"g\" d=\"M{at:.1} {TOP}V{bottom}\"/>"));
            line(format!("<text class=\"m\" x=\"{at:.1}\" y=\"{:.1}\">{label}</text>", bottom + 15.0));
        }
        for (tick, label) in &y.ticks {
            let at = bottom - y.share(*tick) * (bottom - TOP);
            line(format!("<path class=\"g\" d=\"M{LEFT} {at:.1}H{right}\"/>"));
            line(format!("<text class=\"e\" x=\"{:.1}\" y=\"{:.1}\">{label}</text>", LEFT - 5.0, at + 4.0));
        }
        line(format!("<path class=\"a\" d=\"M{LEFT} {TOP}V{bottom}H{right}\"/>"));
        let middle = (LEFT + right) / 2.0;
        line(format!(
            "<text class=\"m\" x=\"{middle:.1}\" y=\"{:.1}\">{}</text>",
            bottom + 32.0,
            escape(&self.x.label)
        ));
        let middle = (TOP + bottom) / 2.0;
        line(format!(
            "<text class=\"m\" transform=\"translate(13,{middle:.1})rotate(-90)\">{}</text>",
            escape(&self.y.label)
        ));
        for (i, series) in self.series.iter().enumerate() {
            let colour = COLOURS[i % COLOURS.len()];
            let known = || series.points.iter().filter(|(x, y)| x.is_finite() && y.is_finite());
            if series.mark != Mark::Dots {
                let path: Vec<String> = known().map(|&(x, y)| format!("{:.1} {:.1}", px(x), py(y))).collect();
                let dash = if series.mark == Mark::Dashed { " stroke-dasharray=\"5 4\"" } else { "" };
                if path.len() > 1 {
                    line(format!(
                        "<path d=\"M{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\"{dash}/>",
                        path.join("L")
                    ));
                }
            }
            for &(x, y) in known() {
                let (x, y) = (px(x), py(y));
                line(format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\" fill-opacity=\".75\"/>"));
            }
            let places = series.points.iter().map(|&(x, y)| (px(x), py(y)));
            for (x, y, word) in words(places.zip(&series.words)) {
                // Words stay inside the plot.
                let (class, x) = if x > WIDTH * 0.66 { (" class=\"e\"", x - 6.0) } else { ("", x + 6.0) };
                line(format!("<text{class} x=\"{x:.1}\" y=\"{:.1}\">{}</text>", y + 4.0, escape(word)));
            }
        }
        for (place, (i, series)) in self.legend().enumerate() {
            let x = LEFT + if place % 2 == 0 { 0.0 } else { (right - LEFT) / 2.0 };
            let y = HEIGHT + LINE * (place / 2) as f64;
            let colour = COLOURS[i % COLOURS.len()];
            line(format!("<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\" fill=\"{colour}\"/>", x + 4.0, y - 4.0));
            line(format!("<text x=\"{:.1}\" y=\"{y:.1}\">{}</text>", x + 13.0, escape(&series.name)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(log: bool) -> Axis {
        Axis { label: "x".into(), log }
    }

    fn labels(scale: &Scale) -> Vec<&str> {
        scale.ticks.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn ticks_are_round_and_hold_all_points() {
        let scale = |log, values: &[f64]| Scale::new(&axis(log), values.iter().copied());
        assert_eq!(labels(&scale(false, &[0.13, 0.97])), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        assert_eq!(labels(&scale(true, &[3.3e6, 9e7])), ["2M", "5M", "10M", "20M", "50M", "100M"]);
        assert_eq!(labels(&scale(true, &[2e6, 3e9])), ["1M", "10M", "100M", "1G", "10G"]);
        let with_zero = scale(true, &[0.0, 2e6, 3e9]).with_zero();
        assert_eq!(labels(&with_zero), ["0", "1M", "10M", "100M", "1G", "10G"]);
        assert_eq!(with_zero.at(0.0), 0.0);
        assert!(with_zero.at(3e9) < 1.0 && with_zero.at(2e6) > 0.14);
        for values in [&[][..], &[5.0], &[f64::NAN], &[1.0, 10.0], &[1e3], &[1e-9, 1e20], &[0.0]] {
            for log in [false, true] {
                let scale = scale(log, values);
                assert!(
                    scale.high > scale.low && (2..=11).contains(&scale.ticks.len()),
                    "{values:?}: {:?}",
                    scale.ticks
                );
                for &value in values.iter().filter(|value| **value > 0.0) {
                    assert!((-1e-9..=1.0 + 1e-9).contains(&scale.at(value)), "{values:?}: {:?}", scale.ticks);
                }
            }
        }
    }

    #[test]
    fn words_are_clear_of_each_other() {
        let names: Vec<String> = ["a", "b", "c"].map(String::from).into();
        let found = words([(0.0, 5.0), (1.0, 5.5), (400.0, 6.0)].into_iter().zip(&names));
        assert_eq!(found, [(0.0, 5.0, "a"), (1.0, 5.0 + WORD, "b"), (400.0, 6.0, "c")]);
    }

    #[test]
    fn charts_are_well_formed() {
        let dots = Series { words: vec!["a<b".into()], ..Series::new("dots", Mark::Dots, vec![(1.0, 2.0)]) };
        let line = Series::new("line & more", Mark::Line, vec![(0.0, 1.0), (3.0, f64::NAN), (4.0, 2.0)]);
        let chart = || Chart { title: "t".into(), x: axis(false), y: axis(false), series: vec![] };
        let found = svg(&[Chart { series: vec![dots, line], ..chart() }, chart()]);
        assert_eq!(found.matches("<circle").count(), 3 + 2, "what is no number is left out; two in the legend");
        assert!(found.contains("a&lt;b") && found.contains("line &amp; more"));
        for tag in ["g", "text", "svg", "style"] {
            let open = found.matches(&format!("<{tag}")).count() - found.matches(&format!("<{tag}/>")).count();
            assert_eq!(open, found.matches(&format!("</{tag}>")).count(), "{tag}");
        }
        assert!(!found.contains("NaN") && !found.contains("inf"));
    }
}
