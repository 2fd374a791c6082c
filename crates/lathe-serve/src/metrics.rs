//! What the server counts, in the text format of Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Upper bounds of the histograms, in seconds.
const BOUNDS: [f64; 12] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 600.0];

macro_rules! metrics {
    ($($name:ident: $kind:literal $help:literal;)*) => {
        /// What the server counts.
        #[derive(Debug, Default)]
        #[allow(missing_docs)]
        pub struct Metrics {
            $(pub $name: AtomicU64,)*
            pub first_token_seconds: Histogram,
            pub request_seconds: Histogram,
            answers: Mutex<BTreeMap<(&'static str, u16), u64>>,
        }

        const ALL: &[(&str, &str, &str, fn(&Metrics) -> &AtomicU64)] =
            &[$((stringify!($name), $kind, $help, |metrics| &metrics.$name),)*];
    };
}

metrics! {
    requests_waiting: "gauge" "Requests in the queue.";
    sequences_running: "gauge" "Sequences that are computed now.";
    sequences_total: "counter" "Sequences that were begun.";
    requests_rejected_total: "counter" "Requests turned away because the queue was full.";
    sequences_cancelled_total: "counter" "Sequences that ended because nobody waited for them any more.";
    prompt_tokens_total: "counter" "Tokens of prompts.";
    cached_tokens_total: "counter" "Tokens of prompts that were known from before.";
    generated_tokens_total: "counter" "Tokens that were written.";
    embedded_tokens_total: "counter" "Tokens of texts that were embedded.";
    steps_total: "counter" "Passes over the weights.";
    step_tokens_total: "counter" "Tokens of all passes.";
    prefix_cache_bytes: "gauge" "Bytes of what is kept of texts that may come again.";
    state_bytes: "gauge" "Bytes of what running sequences keep of their tokens.";
}

impl Metrics {
    /// Counts an answer.
    pub(crate) fn answered(&self, endpoint: &'static str, status: u16) {
        let mut answers = self.answers.lock().expect("nothing panics while it holds the counts");
        *answers.entry((endpoint, status)).or_default() += 1;
    }

    /// All of it as Prometheus reads it.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for (name, kind, help, value) in ALL {
            let value = value(self).load(Relaxed);
            let _ = write!(out, "# HELP lathe_{name} {help}\n# TYPE lathe_{name} {kind}\nlathe_{name} {value}\n");
        }
        out += "# HELP lathe_answers_total Answers by endpoint and status.\n# TYPE lathe_answers_total counter\n";
        for ((endpoint, status), count) in &*self.answers.lock().expect("nothing panics while it holds the counts") {
            let _ = writeln!(out, "lathe_answers_total{{endpoint=\"{endpoint}\",status=\"{status}\"}} {count}");
        }
        self.first_token_seconds.write(&mut out, "first_token_seconds", "From a request to its first token.");
        self.request_seconds.write(&mut out, "request_seconds", "From a request to its end.");
        if let Some(bytes) = resident_bytes() {
            let _ = write!(
                out,
                "# HELP process_resident_memory_bytes Memory of the process.\n\
                 # TYPE process_resident_memory_bytes gauge\nprocess_resident_memory_bytes {bytes}\n"
            );
        }
        out
    }
}

/// How often something took how long.
#[derive(Debug, Default)]
pub struct Histogram {
    counts: [AtomicU64; BOUNDS.len()],
    count: AtomicU64,
    micros: AtomicU64,
}

impl Histogram {
    pub(crate) fn add(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        for (_, count) in BOUNDS.iter().zip(&self.counts).filter(|(bound, _)| seconds <= **bound) {
            count.fetch_add(1, Relaxed);
        }
        self.count.fetch_add(1, Relaxed);
        self.micros.fetch_add(took.as_micros() as u64, Relaxed);
    }

    fn write(&self, out: &mut String, name: &str, help: &str) {
        let _ = write!(out, "# HELP lathe_{name} {help}\n# TYPE lathe_{name} histogram\n");
        for (bound, count) in BOUNDS.iter().zip(&self.counts) {
            let _ = writeln!(out, "lathe_{name}_bucket{{le=\"{bound}\"}} {}", count.load(Relaxed));
        }
        let (count, sum) = (self.count.load(Relaxed), self.micros.load(Relaxed) as f64 / 1e6);
        let _ = writeln!(out, "lathe_{name}_bucket{{le=\"+Inf\"}} {count}\nlathe_{name}_sum {sum}");
        let _ = writeln!(out, "lathe_{name}_count {count}");
    }
}

/// Memory of this process, where the system tells.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| 1024 * kib)
}
