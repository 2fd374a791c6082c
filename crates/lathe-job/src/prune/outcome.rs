//! What a pruning returns: what is gone, what that cost, and what it gained.

use super::text::Parts;
use super::{Job, What};
use crate::optimize::pair;
use crate::{Error, Result};
use flate2::Compression;
use flate2::write::GzEncoder;
use lathe_search::profile::cpu;
use lathe_train::evaluate::Evaluation;
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A number of the model before, and of the smaller one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Change<T> {
    pub before: T,
    pub after: T,
}

/// What a pruning gave.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    /// The smaller model's stack.
    pub layers: String,
    /// Numbers that the models have.
    pub params: Change<u64>,
    /// Nats per token on text that decided nothing; none without an output layer. With fewer tokens in the vocabulary a
    /// text may have more of them: compare bits per byte.
    pub loss: Option<Change<f64>>,
    /// The same in bits per byte.
    pub bits_per_byte: Option<Change<f64>>,
    /// Medians, measured side by side.
    pub latency_ms: Change<f64>,
    /// Their 95 % intervals.
    pub latency_interval_ms: Change<[f64; 2]>,
    /// How many times as fast the smaller model is.
    pub speedup: f64,
    /// 95 % interval.
    pub speedup_interval: [f64; 2],
    /// Passes of each.
    pub passes: usize,
    /// The setting of the latencies.
    pub workload: String,
    /// Name of the CPU.
    pub cpu: String,
    /// Threads that computed.
    pub threads: usize,
    /// The share of the numbers before that are gone, or 0.
    pub sparsity: f64,
    /// The share that was asked for, and what became of it.
    pub share: Share,
    /// Where heads, neurons and blocks went.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<Removed>,
    /// Where tokens went.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vocab: Option<Vocabulary>,
    /// Where weights became 0: bytes of the file of weights, compressed by gzip.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gzip_bytes: Option<Change<u64>>,
    /// Of a lottery: the whole model, and the ticket of each round, all trained alike.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rounds: Vec<Round>,
    /// What the result is compared with, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<Control>,
    /// The parts of the text.
    pub text: Parts,
    /// The smaller model's folder.
    pub out: String,
}

/// A share, of what it is one, and how much of it there was to take.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Share {
    pub of: String,
    pub asked: f64,
    pub reached: f64,
}

impl Share {
    /// Of what, how much was asked for, and how much it became.
    pub(super) fn new(of: &str, asked: f64, reached: f64) -> Self {
        Self { of: of.into(), asked, reached }
    }
}

/// What went from a block, or the block itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removed {
    /// Counted from 1, in the model before.
    pub block: usize,
    /// The knob that counts what went, or the block.
    pub what: String,
    /// How many there were.
    pub before: usize,
    /// How many are left.
    pub after: usize,
    /// Which heads went, or groups of heads that share keys and values, counted from 0.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub units: Vec<usize>,
}

/// Tokens of the vocabulary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vocabulary {
    /// Before.
    pub before: u32,
    /// That stayed: those used, what it takes to encode any text, and special ones.
    pub after: u32,
    /// That the text uses.
    pub used: u32,
}

/// A round of a lottery.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// The share of the blocks' weights that is 0.
    pub sparsity: f64,
    /// Nats per token after training.
    pub loss: Option<f64>,
    /// The same in bits per byte.
    pub bits_per_byte: Option<f64>,
}

/// What a result is compared with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Control {
    /// What it is.
    pub what: String,
    /// Nats per token.
    pub loss: f64,
    /// Bits per byte.
    pub bits_per_byte: f64,
}

/// What a way to prune found, before anything is measured.
pub(super) struct Found {
    /// The folder of the model to compare with.
    pub before: PathBuf,
    pub share: Share,
    pub removed: Vec<Removed>,
    pub vocab: Option<Vocabulary>,
    pub rounds: Vec<Round>,
    pub control: Option<Control>,
}

impl Found {
    pub fn new(before: &Path, share: Share) -> Self {
        Self { before: before.into(), share, removed: Vec::new(), vocab: None, rounds: Vec::new(), control: None }
    }
}

/// Measures both models side by side, and puts all that is known together.
pub(super) fn outcome(
    job: &Job<'_>,
    found: Found,
    losses: Option<[Evaluation; 2]>,
    [before, after]: [u64; 2],
    left: u64,
    layers: String,
) -> Result<Outcome> {
    let asked = job.asked;
    let time = Duration::from_secs_f64(asked.seconds);
    let pair = pair::measure_trained([&found.before, job.out], &asked.workload, time, job.registry)?;
    let both = |of: &dyn Fn(&Evaluation) -> f64| {
        losses.as_ref().map(|[before, after]| Change { before: of(before), after: of(after) })
    };
    let gzip_bytes = match asked.what {
        What::Magnitude(_) => Some(Change { before: gzipped(&found.before)?, after: gzipped(job.out)? }),
        _ => None,
    };
    Ok(Outcome {
        layers,
        params: Change { before, after },
        loss: both(&|evaluation| evaluation.loss),
        bits_per_byte: both(&|evaluation| evaluation.bits_per_byte),
        latency_ms: Change { before: pair.first_ms.median, after: pair.second_ms.median },
        latency_interval_ms: Change {
            before: [pair.first_ms.low, pair.first_ms.high],
            after: [pair.second_ms.low, pair.second_ms.high],
        },
        speedup: pair.speedup,
        speedup_interval: pair.interval,
        passes: pair.passes,
        workload: asked.workload.to_string(),
        cpu: cpu(),
        threads: rayon::current_num_threads(),
        sparsity: 1.0 - left as f64 / before as f64,
        share: found.share,
        removed: found.removed,
        vocab: found.vocab,
        gzip_bytes,
        rounds: found.rounds,
        control: found.control,
        text: job.text.parts,
        out: job.out.display().to_string(),
    })
}

/// Bytes of a folder's weights after compression.
fn gzipped(folder: &Path) -> Result<u64> {
    struct Count(u64);
    impl Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len() as u64;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut total = 0;
    for entry in std::fs::read_dir(folder).map_err(Error::io(folder))? {
        let path = entry.map_err(Error::io(folder))?.path();
        if path.extension().is_some_and(|extension| extension == "safetensors") {
            let mut encoder = GzEncoder::new(Count(0), Compression::default());
            let mut file = std::fs::File::open(&path).map_err(Error::io(&path))?;
            io::copy(&mut file, &mut encoder).map_err(Error::io(&path))?;
            total += encoder.finish().map_err(Error::io(&path))?.0;
        }
    }
    Ok(total)
}
