//! The record of a run: `metrics.jsonl`, one JSON object a line, only ever appended to, and TensorBoard event files
//! where they are asked for.
//!
//! After a run was killed it goes on from its last checkpoint, so a few steps may be recorded twice, with the same
//! values: a line `{"resumed": step}` stands between.

use crate::evaluate::Evaluation;
use crate::tensorboard::EventFile;
use crate::{Error, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// A training step.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct StepRecord {
    /// Counted from 1.
    pub step: u32,
    /// Mean loss since the last record, nats per token.
    pub loss: f64,
    /// Learning rate.
    pub lr: f64,
    /// Length of the gradient before clipping.
    pub grad_norm: f64,
    /// Since the last record.
    pub tokens_per_s: f64,
    /// What each mixture of experts did in this step, from the bottom.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub experts: Vec<ExpertRecord>,
    /// With a teacher: the mean of each term of the loss in this step, without its weight.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub terms: BTreeMap<&'static str, f64>,
}

/// What a mixture of experts did.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ExpertRecord {
    /// Share of the assignments that each expert got.
    pub loads: Vec<f64>,
    /// The balance loss, 1 when uniform.
    pub balance: f64,
}

#[derive(Serialize)]
struct EvaluationRecord<'a> {
    step: u32,
    valid: &'a Evaluation,
}

/// A file of JSON objects, one a line, only ever appended to.
pub struct Lines {
    path: PathBuf,
    file: File,
}

impl Lines {
    /// Opens the file, to be appended to.
    pub fn open(path: PathBuf) -> Result<Self> {
        let open = || -> std::io::Result<File> {
            let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
            // A process that was killed may have left half a line.
            let mut text = Vec::new();
            file.read_to_end(&mut text)?;
            let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
            file.set_len(whole as u64)?;
            file.seek(SeekFrom::End(0))?;
            Ok(file)
        };
        let file = open().map_err(Error::io(&path))?;
        Ok(Self { path, file })
    }

    /// Appends an object.
    pub fn line(&mut self, record: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_vec(record).expect("records of names and numbers");
        line.push(b'\n');
        self.file.write_all(&line).map_err(Error::io(&self.path))
    }

    /// Notes that a run goes on after a step.
    pub fn resumed(&mut self, step: u32) -> Result<()> {
        self.line(&serde_json::json!({ "resumed": step }))
    }
}

/// Where records go.
pub(crate) struct Metrics {
    lines: Lines,
    events: Option<EventFile>,
}

impl Metrics {
    /// Opens the record of a run, to be appended to.
    pub fn open(folder: &Path, tensorboard: bool) -> Result<Self> {
        let lines = Lines::open(folder.join("metrics.jsonl"))?;
        let events = if tensorboard { Some(EventFile::create(&folder.join("tensorboard"))?) } else { None };
        Ok(Self { lines, events })
    }

    /// A training step.
    pub fn step(&mut self, record: &StepRecord) -> Result<()> {
        self.lines.line(record)?;
        let Some(events) = &mut self.events else { return Ok(()) };
        let mut scalars = vec![
            ("train/loss".to_string(), record.loss),
            ("train/lr".into(), record.lr),
            ("train/grad_norm".into(), record.grad_norm),
            ("train/tokens_per_s".into(), record.tokens_per_s),
        ];
        scalars.extend(record.terms.iter().map(|(name, &mean)| (format!("distill/{name}"), mean)));
        for (i, experts) in record.experts.iter().enumerate() {
            scalars.push((format!("experts/{i}/balance"), experts.balance));
            let most = experts.loads.iter().copied().fold(0.0, f64::max);
            scalars.push((format!("experts/{i}/highest_load"), most));
        }
        events.scalars(record.step, &scalars)
    }

    /// An evaluation.
    pub fn evaluation(&mut self, step: u32, valid: &Evaluation) -> Result<()> {
        self.lines.line(&EvaluationRecord { step, valid })?;
        let Some(events) = &mut self.events else { return Ok(()) };
        events.scalars(step, &[("valid/loss".into(), valid.loss), ("valid/bits_per_byte".into(), valid.bits_per_byte)])
    }

    /// That the run goes on after a step.
    pub fn resumed(&mut self, step: u32) -> Result<()> {
        self.lines.resumed(step)
    }
}
