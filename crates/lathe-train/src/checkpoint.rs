//! Checkpoints: all that a run needs to go on to the same bits.
//!
//! A checkpoint is a model folder (so that it can be evaluated as it is) with two files more: `training.safetensors`
//! has the optimiser's moments, the memories of a transformer_xl and the last losses; `progress.json` the rest. The
//! order of the data, the learning rate and dropout are functions of seed and step, so the step is all their state.
//!
//! A checkpoint is written to a folder aside, each file synced, `manifest.json` with the SHA-256 of the others last,
//! and the folder renamed: whenever the process dies, there is either the whole checkpoint or none.

use crate::data::Tokenizer;
use crate::distill::Distiller;
use crate::optimizer::Optimizer;
use crate::{Error, Result};
use lathe_model::folder::{self, Tensor, TensorFile, write_aside, write_tensors};
use lathe_model::{Network, State};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

const MANIFEST: &str = "manifest.json";
/// How far a run has come.
pub const PROGRESS: &str = "progress.json";
/// The numbers that move beside the model.
pub const TRAINING: &str = "training.safetensors";
const ASIDE: &str = ".writing";

/// How far a run has come.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TrainProgress {
    /// Steps done.
    pub step: u32,
    /// Seconds of the whole run so far, all its sittings together.
    pub seconds: f64,
    /// Of which in training steps.
    pub training_seconds: f64,
    /// The best evaluation.
    pub best: Option<Best>,
    /// Evaluations since then.
    pub stale: u32,
    /// Loss of the first step.
    pub first_loss: f32,
    /// Tokens trained on, without padding.
    #[serde(default)]
    pub tokens: u64,
}

/// The best evaluation of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// After which step.
    pub step: u32,
    /// Nats per token.
    pub loss: f64,
}

/// Everything that moves during a run.
pub(crate) struct TrainState {
    /// The model.
    pub network: Network,
    /// The optimiser.
    pub optimizer: Optimizer,
    /// The memory of each part of the batch.
    pub states: Vec<State>,
    /// The losses of the last steps.
    pub recent: Vec<f32>,
    /// What a teacher says, and what is learnt beside the model.
    pub distiller: Option<Distiller>,
    /// How far it has come.
    pub progress: TrainProgress,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    bytes: u64,
    sha256: String,
}

type Manifest = BTreeMap<String, Entry>;

/// The folder of a step's checkpoint.
pub fn path(folder: &Path, step: u32) -> PathBuf {
    folder.join(format!("step-{step:09}"))
}

/// Writes the files of a checkpoint of where the run is.
pub(crate) fn write(folder: &Path, state: &mut TrainState, tokenizer: &Tokenizer) -> Result<()> {
    folder::save(&state.network, folder)?;
    tokenizer.save(folder)?;
    write_tensors(&folder.join(TRAINING), &tensors(state))?;
    write_json(&folder.join(PROGRESS), &state.progress)
}

/// Writes the checkpoint of a step, or none: `fill` writes its files into a folder aside, [`TRAINING`] and [`PROGRESS`]
/// among them.
pub fn write_whole(folder: &Path, step: u32, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let target = path(folder, step);
    let aside = folder.join(ASIDE);
    clear(&aside)?;
    let written = write_files(&aside, fill).and_then(|()| {
        clear(&target)?; // a damaged one, which the run went back behind
        std::fs::rename(&aside, &target).map_err(Error::io(&target))?;
        sync(folder)
    });
    if written.is_err() {
        let _ = std::fs::remove_dir_all(&aside); // room on a full disk; the first error is the one to tell
    }
    written
}

fn clear(folder: &Path) -> Result<()> {
    if folder.exists() { std::fs::remove_dir_all(folder).map_err(Error::io(folder)) } else { Ok(()) }
}

/// Makes a folder's entries last.
fn sync(folder: &Path) -> Result<()> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(Error::io(folder))
}

fn write_files(folder: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(Error::io(folder))?;
    fill(folder)?;
    let mut manifest = Manifest::new();
    for entry in std::fs::read_dir(folder).map_err(Error::io(folder))? {
        let path = entry.map_err(Error::io(folder))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        manifest.insert(name, hash(&path)?);
    }
    write_json(&folder.join(MANIFEST), &manifest)?;
    sync(folder)
}

/// Writes a small document, synced.
pub fn write_json(path: &Path, document: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(document).expect("documents without maps of odd keys");
    Ok(write_aside(path, |out| writeln!(out, "{text}"))?)
}

fn tensors(state: &mut TrainState) -> Vec<Tensor<'_>> {
    let mut tensors = Vec::new();
    for (i, moments) in state.optimizer.moments().iter().enumerate() {
        for (param, values) in state.network.params().iter().zip(moments) {
            tensors.push(Tensor::f32(format!("moment.{i}.{}", param.name), &param.shape, values));
        }
    }
    for (part, memory_state) in state.states.iter().enumerate() {
        for (layer, (_, values)) in state.network.memories(memory_state).enumerate() {
            tensors.push(Tensor::f32(format!("memory.{part}.{layer}"), &[values.len()], values));
        }
    }
    let recent = &state.recent;
    tensors.push(Tensor::f32("recent", &[recent.len()], recent));
    if let Some(distiller) = &mut state.distiller {
        tensors.extend(distiller.tensors());
    }
    tensors
}

fn hash(path: &Path) -> Result<Entry> {
    let mut file = File::open(path).map_err(Error::io(path))?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    let mut bytes = 0;
    loop {
        let read = file.read(&mut buffer).map_err(Error::io(path))?;
        if read == 0 {
            break;
        }
        bytes += read as u64;
        hasher.update(&buffer[..read]);
    }
    let mut sha256 = String::new();
    hasher.finalize().iter().for_each(|byte| write!(sha256, "{byte:02x}").expect("a string takes everything"));
    Ok(Entry { bytes, sha256 })
}

/// All steps that have a checkpoint, newest first.
pub fn steps(folder: &Path) -> Vec<u32> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let step = |entry: std::fs::DirEntry| entry.file_name().to_str()?.strip_prefix("step-")?.parse().ok();
    let mut steps: Vec<u32> = entries.filter_map(step).collect();
    steps.sort_unstable_by(|a, b| b.cmp(a));
    steps
}

/// An error that names the first file of a checkpoint that is not as it was written.
pub fn verify(checkpoint: &Path) -> Result<()> {
    let path = checkpoint.join(MANIFEST);
    let text = std::fs::read(&path).map_err(Error::io(&path))?;
    let manifest: Manifest =
        serde_json::from_slice(&text).map_err(|error| Error::data(path.display(), error, "a manifest of hashes"))?;
    for (name, entry) in &manifest {
        let path = checkpoint.join(name);
        let found = hash(&path)?;
        if found.bytes != entry.bytes {
            let (found, expected) = (format!("{} bytes", found.bytes), format!("{}, as written", entry.bytes));
            return Err(Error::data(path.display(), found, expected));
        }
        if found.sha256 != entry.sha256 {
            let found = format!("SHA-256 {}", found.sha256);
            return Err(Error::data(path.display(), found, format!("{}, as written", entry.sha256)));
        }
    }
    match manifest.contains_key(TRAINING) && manifest.contains_key(PROGRESS) {
        true => Ok(()),
        false => Err(Error::data(path.display(), "a list without all files", "that of a whole checkpoint")),
    }
}

/// Goes back to a checkpoint, which is verified.
pub(crate) fn restore(checkpoint: &Path, state: &mut TrainState) -> Result<()> {
    let path = checkpoint.join(PROGRESS);
    let text = std::fs::read(&path).map_err(Error::io(&path))?;
    let progress =
        serde_json::from_slice(&text).map_err(|error| Error::data(path.display(), error, "a run's progress"))?;
    state.network = folder::load_as(checkpoint, state.network.model.clone())?;
    let mut file = TensorFile::open(&checkpoint.join(TRAINING))?;
    for (i, moments) in state.optimizer.moments_mut().iter_mut().enumerate() {
        for (param, values) in state.network.params().iter().zip(moments) {
            *values = file.floats(&format!("moment.{i}.{}", param.name), &param.shape)?;
        }
    }
    for (part, memory_state) in state.states.iter_mut().enumerate() {
        for (layer, memory) in memory_state.memories_mut().enumerate() {
            memory.copy_from_slice(&file.floats(&format!("memory.{part}.{layer}"), &[memory.len()])?);
        }
    }
    let recent = file.shape("recent").unwrap_or_default().to_vec();
    state.recent = file.floats("recent", &recent)?;
    if let Some(distiller) = &mut state.distiller {
        distiller.restore(&mut file)?;
    }
    state.progress = progress;
    Ok(())
}

/// Removes all checkpoints but the newest few and the best.
pub fn prune(folder: &Path, keep: u32, best: Option<u32>) -> Result<()> {
    for step in steps(folder).into_iter().skip(keep as usize).filter(|&step| Some(step) != best) {
        // Not at once: whatever the process dies at, a folder under its name is whole.
        let aside = folder.join(format!(".removing-{step}"));
        clear(&aside)?;
        std::fs::rename(path(folder, step), &aside).map_err(Error::io(&aside))?;
        clear(&aside)?;
    }
    Ok(())
}

/// Removes what a killed process left.
pub fn clean(folder: &Path) -> Result<()> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with('.')) {
        clear(&entry.path())?;
    }
    Ok(())
}
