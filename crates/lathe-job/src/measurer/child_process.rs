//! Measuring in a process of its own, so that its peak of memory is the model's alone.
//!
//! The process is any program whose main calls [`serve_child`] first: usually this one. It gets a [`Task`] as JSON on
//! stdin and answers with an [`Answer`] as JSON on stdout.

use super::{Measurement, Measurer, Request, in_process};
use crate::{Error, Result};
use lathe_core::{Registry, Spec};
use lathe_search::measure::peak_bytes;
use lathe_search::workload::Workload;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The environment variable that makes a process one that measures.
pub const CHILD: &str = "LATHE_MEASURE_CHILD";

/// What a process is asked to measure.
#[derive(Serialize, Deserialize)]
struct Task {
    /// A model file.
    model: String,
    workload: Workload,
    seconds: f64,
    seed: u64,
    threads: usize,
    beside: bool,
    weights: Option<PathBuf>,
}

/// What it answers.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Measured(Measurement),
    Failed(String),
}

/// Measures in a process for each measurement, with as many threads as this one computes with.
#[derive(Debug, Clone)]
pub struct ChildProcess {
    /// The program, whose main calls [`serve_child`] before anything else.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Further variables of its environment; [`CHILD`] is set in any case.
    pub env: Vec<(OsString, OsString)>,
}

impl ChildProcess {
    /// Processes of this program.
    pub fn of_this_program() -> Result<Self> {
        let program = std::env::current_exe().map_err(|error| failed(format_args!("has no path: {error}")))?;
        Ok(Self { program, args: Vec::new(), env: Vec::new() })
    }
}

fn failed(how: impl std::fmt::Display) -> Error {
    Error::Measuring(how.to_string())
}

impl Measurer for ChildProcess {
    fn measure(&self, request: &Request<'_>) -> Result<Measurement> {
        if std::env::var_os(CHILD).is_some() {
            // Its main went on where it should have measured; more processes would do the same, without end.
            return Err(failed("was asked to start another one: its main has to call serve_child first"));
        }
        let task = Task {
            model: request.model.to_toml(),
            workload: request.workload.clone(),
            seconds: request.seconds,
            seed: request.seed,
            threads: rayon::current_num_threads(),
            beside: request.beside,
            weights: request.weights.map(Path::to_path_buf),
        };
        let task = serde_json::to_vec(&task).map_err(|error| failed(format_args!("got no task: {error}")))?;
        let mut child = Command::new(&self.program)
            .args(&self.args)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .env(CHILD, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| failed(format_args!("did not start: {}: {error}", self.program.display())))?;
        // A process that ends without reading says more by how it ends than by its closed pipe.
        let asked = child.stdin.take().expect("a pipe").write_all(&task);
        let output = child.wait_with_output().map_err(|error| failed(format_args!("was lost: {error}")))?;
        if !output.status.success() {
            return Err(failed(format_args!("ended with {}", output.status)));
        }
        asked.map_err(|error| failed(format_args!("took no task: {error}")))?;
        match serde_json::from_slice(&output.stdout) {
            Ok(Answer::Measured(measurement)) => Ok(measurement),
            Ok(Answer::Failed(error)) => Err(failed(format_args!("failed: {error}"))),
            Err(error) => Err(failed(format_args!("answered what is no measurement: {error}"))),
        }
    }
}

/// Measures and ends the process, where [`CHILD`] says that this is what it is for; otherwise returns at once. A program
/// that uses [`ChildProcess`] calls it first thing in its main.
pub fn serve_child(registry: &Registry) {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let answer = match answer(registry) {
        Ok(measurement) => Answer::Measured(measurement),
        Err(error) => Answer::Failed(error.to_string()),
    };
    let mut out = std::io::stdout().lock();
    let told = serde_json::to_writer(&mut out, &answer).map_err(std::io::Error::from).and_then(|()| out.flush());
    std::process::exit(if told.is_ok() { 0 } else { 1 });
}

fn answer(registry: &Registry) -> Result<Measurement> {
    let task: Task = serde_json::from_reader(std::io::stdin().lock())
        .map_err(|error| Error::data("stdin", error, "a task of measuring"))?;
    let model = Spec::from_toml(&task.model, registry)?.model(registry)?;
    let Task { workload, seconds, seed, beside, .. } = &task;
    let (model, weights) = (&model, task.weights.as_deref());
    let request = Request { model, workload, seconds: *seconds, seed: *seed, beside: *beside, weights };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(task.threads).build();
    let pool = pool.map_err(|error| Error::data("threads", error, "a pool of them"))?;
    pool.install(|| in_process::run(&request, registry, peak_bytes))
}
