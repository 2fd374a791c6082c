//! `lathe doctor`: what this machine is, what it can do, and what lathe therefore chooses.
//!
//! Peaks are the best rates that lathe's own products reach here, of shapes that fit the caches; memory bandwidth is that
//! of a sum of arrays far larger than a core's own caches.

use super::Action;
use crate::output::{self, Table, bytes};
use anyhow::Result;
use clap::Parser;
use lathe_ops::cpu::{self, Level};
use lathe_ops::gemm::{Mat, MatMut, Packed, Rhs, gemm};
use lathe_ops::{Precision, linear};
use lathe_search::measure::{self, Budget};
use serde::Serialize;
use std::time::Duration;

/// Show what this machine can do, measured, and what lathe therefore chooses
#[derive(Parser)]
#[command(
    name = "doctor",
    after_help = "\
LATHE_CPU caps the instructions: portable, avx2, avx512, avx512bf16, amx.

Examples:
  lathe doctor
  lathe doctor --threads 1
  LATHE_CPU=avx512 lathe doctor --json"
)]
pub struct Doctor {
    /// The longest time of each measurement
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS")]
    seconds: f64,
}

#[derive(Serialize)]
struct DoctorReport {
    cpu: String,
    cores: usize,
    threads: usize,
    caches: Vec<Cache>,
    instructions: &'static str,
    memory_bytes: Option<u64>,
    available_bytes: Option<u64>,
    /// GFLOP/s
    f32_peak: f64,
    bf16_peak: Option<f64>,
    /// GB/s of y += x, two arrays read and one written.
    memory_bandwidth: f64,
    timer_ns: u64,
    /// (ninth decile - least) / least of one product repeated.
    noise: f64,
    products_f32: &'static str,
    products_bf16: String,
}

#[derive(Serialize)]
struct Cache {
    name: String,
    size: String,
}

impl Action for Doctor {
    fn run(self, json: bool) -> Result<()> {
        let document = self.examine();
        match json {
            true => output::json(&document),
            false => output::text(&document.table()),
        }
    }
}

impl Doctor {
    fn examine(&self) -> DoctorReport {
        let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let memory = |name: &str| -> Option<u64> {
            let line = memory.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            Some(1024 * line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()?)
        };
        let (f32_peak, noise) = self.peak(Precision::F32);
        let bf16_peak = Precision::Bf16.warning().is_none().then(|| self.peak(Precision::Bf16).0);
        DoctorReport {
            cpu: lathe_search::profile::cpu(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            threads: rayon::current_num_threads(),
            caches: caches(),
            instructions: cpu::level().name(),
            memory_bytes: memory("MemTotal"),
            available_bytes: memory("MemAvailable"),
            f32_peak,
            bf16_peak,
            memory_bandwidth: self.bandwidth(),
            timer_ns: measure::resolution().as_nanos() as u64,
            noise,
            products_f32: match cpu::level() {
                Level::Portable => "portable",
                Level::Avx2 => "avx2",
                Level::Avx512 | Level::Avx512Bf16 => "avx512",
                Level::Amx => "avx512; in training amx, in three bf16 parts, where rows and columns are 256 and more",
            },
            products_bf16: match bf16_peak {
                None => "none: --precision bf16 runs in f32".into(),
                Some(peak) if peak < f32_peak => {
                    format!("{}, slower than f32 here: it saves memory alone", cpu::level().name())
                }
                Some(peak) => format!("{}, {:.1} times the rate of f32", cpu::level().name(), peak / f32_peak),
            },
        }
    }

    fn budget(&self) -> Budget {
        Budget { limit: Duration::from_secs_f64(self.seconds.clamp(0.0, 60.0)), tight: 0.0 }
    }

    /// The best rate of products in GFLOP/s, and how much the times of one of them differ.
    fn peak(&self, precision: Precision) -> (f64, f64) {
        let (mut best, mut noise) = (0.0, 0.0);
        for (m, n, k) in [(512, 512, 512), (1024, 512, 1024)] {
            let (a, b, mut c) = (vec![0.5; m * k], vec![0.25; k * n], vec![0.0; m * n]);
            // As in inference, where weights are packed before, and as in training.
            let packed = Packed::with_precision(Mat::new(&b, k, n), precision);
            for b in [Rhs::new(Mat::new(&b, k, n), precision), Rhs::from(&packed)] {
                let times = measure::measure(self.budget(), || {
                    gemm(MatMut::new(&mut c, m, n), Mat::new(&a, m, k), b, false);
                });
                let mut sorted = times.raw;
                sorted.sort_by(f64::total_cmp);
                best = f64::max(best, 2.0 * (m * n * k) as f64 / sorted[0] / 1e9);
                noise = (sorted[9 * (sorted.len() - 1) / 10] - sorted[0]) / sorted[0];
            }
        }
        (best, noise)
    }

    /// GB/s of y += x, which reads two arrays and writes one.
    fn bandwidth(&self) -> f64 {
        const LEN: usize = 32 << 20; // 128 MB
        let (x, mut y) = (vec![1.0f32; LEN], vec![1.0f32; LEN]);
        let times = measure::measure(self.budget(), || linear::add(&mut y, &x));
        let least = times.raw.iter().copied().fold(f64::MAX, f64::min);
        (3 * 4 * LEN) as f64 / least / 1e9
    }
}

/// The caches of the first core, as the system names them.
fn caches() -> Vec<Cache> {
    let read = |i: usize, file: &str| {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{i}/{file}");
        Some(std::fs::read_to_string(path).ok()?.trim().to_string())
    };
    let cache = |i: usize| {
        let name = format!("L{} {}", read(i, "level")?, read(i, "type")?.to_lowercase());
        Some(Cache { name, size: read(i, "size")? })
    };
    (0..8).map_while(cache).collect()
}

impl DoctorReport {
    fn table(&self) -> String {
        let mut table = Table::new(&["this machine", ""], 2);
        let mut row = |name: &str, value: String| table.row([name.into(), value]);
        let size = |bytes_of: Option<u64>| bytes_of.map_or("unknown".into(), |found| bytes(found.into()));
        row("cpu", self.cpu.clone());
        row("cores, threads", format!("{}, {}", self.cores, self.threads));
        for cache in &self.caches {
            row(&cache.name, cache.size.clone());
        }
        row("instructions", self.instructions.into());
        row("memory", format!("{}, {} available", size(self.memory_bytes), size(self.available_bytes)));
        row("f32 products", format!("{:.0} GFLOP/s", self.f32_peak));
        row("bf16 products", self.bf16_peak.map_or("-".into(), |peak| format!("{peak:.0} GFLOP/s")));
        row("memory bandwidth", format!("{:.1} GB/s", self.memory_bandwidth));
        row("timer", format!("{} ns", self.timer_ns));
        row("noise", format!("{:.0} %", 100.0 * self.noise));
        row("f32 is computed by", self.products_f32.into());
        row("bf16 is computed by", self.products_bf16.clone());
        table.to_string()
    }
}
