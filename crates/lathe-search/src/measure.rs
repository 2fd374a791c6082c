//! Timing that can be trusted: warmed up, repeated until the interval is tight or the time is up, reported as a median
//! with its interval. The clock of the program, with that of runs.

use std::time::{Duration, Instant};

/// When to stop.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// The longest time to measure for.
    pub limit: Duration,
    /// The width of the interval, relative to the median, that is tight enough.
    pub tight: f64,
}

/// Times of repetitions.
#[derive(Debug, Clone)]
pub struct Times {
    /// In the order in which they were taken, seconds.
    pub raw: Vec<f64>,
}

/// Fewest repetitions of a measurement.
const LEAST: usize = 7;
/// Warm-up: at least so many repetitions, and so long.
const WARM_RUNS: usize = 2;
const WARM_TIME: Duration = Duration::from_millis(300);

/// Measures a piece of work.
pub fn measure(budget: Budget, mut work: impl FnMut()) -> Times {
    let begin = Instant::now();
    let mut warm = 0;
    while warm < WARM_RUNS || begin.elapsed() < WARM_TIME.min(budget.limit / 4) {
        work();
        warm += 1;
    }
    let begin = Instant::now();
    let mut times = Times { raw: Vec::new() };
    loop {
        let start = Instant::now();
        work();
        times.raw.push(start.elapsed().as_secs_f64());
        let enough = times.raw.len() >= LEAST && times.spread() <= budget.tight;
        if times.raw.len() >= LEAST && (enough || begin.elapsed() >= budget.limit) {
            return times;
        }
    }
}

/// How many times as long a piece of work takes as another that is always the same, run before and after each of its
/// repetitions: a machine that is slower for some seconds is so for both. The ratios, and the times of the other.
pub fn measure_beside(limit: Duration, mut work: impl FnMut(), mut other: impl FnMut()) -> [Times; 2] {
    let seconds = |work: &mut dyn FnMut()| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    };
    work(); // warm
    other();
    let begin = Instant::now();
    let (mut ratios, mut others) = (Vec::new(), vec![seconds(&mut other)]);
    while ratios.len() < LEAST || begin.elapsed() < limit {
        let (before, time, after) = (others[others.len() - 1], seconds(&mut work), seconds(&mut other));
        ratios.push(2.0 * time / (before + after));
        others.push(after);
    }
    [ratios, others].map(|raw| Times { raw })
}

impl Times {
    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.raw.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }

    /// The median.
    pub fn median(&self) -> f64 {
        let sorted = self.sorted();
        let n = sorted.len();
        (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0
    }

    /// The 95 % interval of the median, by order statistics, which assumes nothing of the distribution.
    pub fn interval(&self) -> (f64, f64) {
        let sorted = self.sorted();
        let n = sorted.len() as f64;
        let half = 0.98 * n.sqrt(); // 1.96 deviations of a binomial with n and 1/2
        let low = (n / 2.0 - half).floor().max(0.0) as usize;
        let high = ((n / 2.0 + half).ceil() as usize).min(sorted.len() - 1);
        (sorted[low], sorted[high])
    }

    /// How many times lie far beyond the others: by more than three widths of the middle half.
    pub fn outliers(&self) -> usize {
        let sorted = self.sorted();
        let quarter = |quarters: usize| sorted[(sorted.len() - 1) * quarters / 4];
        let limit = quarter(3) + 3.0 * (quarter(3) - quarter(1));
        sorted.iter().filter(|&&time| time > limit).count()
    }

    /// Width of the interval relative to the median.
    pub fn spread(&self) -> f64 {
        let (low, high) = self.interval();
        (high - low) / self.median()
    }
}

/// The least step of the clock that was seen.
pub fn resolution() -> Duration {
    let step = || {
        let start = Instant::now();
        loop {
            let passed = start.elapsed();
            if !passed.is_zero() {
                return passed;
            }
        }
    };
    (0..1000).map(|_| step()).min().unwrap_or_default()
}

/// The most memory this process ever had, if the system tells.
pub fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(1024 * kilobytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_intervals() {
        let times = Times { raw: vec![3.0, 1.0, 2.0] };
        assert_eq!(times.median(), 2.0);
        assert_eq!(times.interval(), (1.0, 3.0));
        let times = Times { raw: (0..100).map(f64::from).collect() };
        assert_eq!(times.median(), 49.5);
        assert_eq!(times.interval(), (40.0, 60.0));
    }

    #[test]
    fn times_far_beyond_the_others_are_counted() {
        let raw = (0..20).map(|i| 1.0 + 0.01 * f64::from(i)).chain([9.0, 10.0]).collect();
        assert_eq!(Times { raw }.outliers(), 2);
    }

    #[test]
    fn the_other_work_runs_before_and_after_each_repetition() {
        let order = std::cell::RefCell::new(String::new());
        let run = |name: &'static str| || order.borrow_mut().push_str(name);
        let [ratios, others] = measure_beside(Duration::ZERO, run("w"), run("o"));
        assert_eq!((ratios.raw.len(), others.raw.len()), (LEAST, LEAST + 1));
        assert_eq!(*order.borrow(), format!("woo{}", "wo".repeat(LEAST)));
    }

    #[test]
    fn measures_at_least_a_few_times() {
        let mut runs = 0;
        let times = measure(Budget { limit: Duration::ZERO, tight: 0.0 }, || runs += 1);
        assert_eq!((times.raw.len(), runs), (LEAST, LEAST + WARM_RUNS));
    }
}
