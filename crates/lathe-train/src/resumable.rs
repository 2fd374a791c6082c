//! Whatever takes steps in a folder and survives being killed: training runs and searches.
//!
//! ```text
//! checkpoints/    step-000001000/ ...; each whole or not there
//! data/           tokens; removed in the end
//! result.json     what came out, when it has ended
//! ```
//!
//! Work says what a checkpoint of it holds and what its next step is; when to go back, what to keep and who may be at
//! work in the folder is written here once.

use crate::checkpoint;
use crate::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::path::{Path, PathBuf};

/// The file of the outcome.
pub const RESULT: &str = "result.json";
const LOCK: &str = ".lock";

/// Work in steps.
pub trait Resumable {
    /// What can go wrong with it.
    type Error: From<Error>;
    /// Steps done so far, by which checkpoints are called.
    fn step(&self) -> u32;
    /// Writes the files of a checkpoint into a folder.
    fn write(&mut self, checkpoint: &Path) -> Result<()>;
    /// Goes back to a checkpoint.
    fn restore(&mut self, checkpoint: &Path) -> std::result::Result<(), Self::Error>;
    /// How many checkpoints to keep, and one that is kept beside them.
    fn keep(&self) -> (u32, Option<u32>);
}

/// What a step was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// None: all are done.
    Ended,
    /// One, after which a checkpoint is due or not.
    Step {
        /// Whether it is.
        checkpoint: bool,
    },
}

/// Where the checkpoints of a folder are.
pub fn checkpoints(folder: &Path) -> PathBuf {
    folder.join("checkpoints")
}

/// Holds a folder for this process, until it is dropped.
pub fn lock(folder: &Path) -> Result<File> {
    let path = folder.join(LOCK);
    let file = File::create(&path).map_err(Error::io(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => {
            Err(Error::data(folder.display(), "a run that another process is at work on", "a run that has stopped"))
        }
        Err(std::fs::TryLockError::Error(error)) => Err(Error::io(&path)(error)),
    }
}

/// Takes away what a run left in its folder that never took a step.
pub fn clear(folder: &Path) {
    let _ = std::fs::remove_dir_all(folder.join("data"));
    let _ = std::fs::remove_dir(checkpoints(folder));
    let _ = std::fs::remove_file(folder.join(LOCK));
}

/// The outcome of work that has ended.
pub fn outcome<O: DeserializeOwned>(folder: &Path) -> Result<Option<O>> {
    let path = folder.join(RESULT);
    if !path.exists() {
        return Ok(None);
    }
    let text = std::fs::read(&path).map_err(Error::io(&path))?;
    let outcome = serde_json::from_slice(&text);
    outcome.map(Some).map_err(|error| Error::data(path.display(), error, "the outcome of what ended here"))
}

/// Writes the outcome, and takes away what is needed no more.
pub fn end<O: Serialize>(folder: &Path, outcome: &O) -> Result<()> {
    checkpoint::write_json(&folder.join(RESULT), outcome)?;
    let _ = std::fs::remove_dir_all(folder.join("data")); // it would only take room
    Ok(())
}

/// Goes back to the newest checkpoint that is as it was written, if there is one; `warn` is told of others.
pub fn take_up<W: Resumable>(
    work: &mut W,
    folder: &Path,
    warn: &mut dyn FnMut(String),
) -> std::result::Result<(), W::Error> {
    let checkpoints = checkpoints(folder);
    std::fs::create_dir_all(&checkpoints).map_err(Error::io(&checkpoints))?;
    checkpoint::clean(&checkpoints)?;
    for step in checkpoint::steps(&checkpoints) {
        let path = checkpoint::path(&checkpoints, step);
        match checkpoint::verify(&path) {
            Ok(()) => return work.restore(&path),
            Err(error) => warn(format!("{error}; going back to the checkpoint before")),
        }
    }
    Ok(())
}

/// Writes a checkpoint of where work is, and removes those that are not kept.
pub fn save<W: Resumable>(work: &mut W, folder: &Path) -> Result<()> {
    let checkpoints = checkpoints(folder);
    checkpoint::write_whole(&checkpoints, work.step(), |folder| work.write(folder))?;
    let (keep, beside) = work.keep();
    checkpoint::prune(&checkpoints, keep, beside)
}

/// All steps that are left, with their checkpoints.
pub fn to_end<W: Resumable>(
    work: &mut W,
    folder: &Path,
    mut advance: impl FnMut(&mut W) -> std::result::Result<Next, W::Error>,
) -> std::result::Result<(), W::Error> {
    loop {
        match advance(work)? {
            Next::Ended => return Ok(()),
            Next::Step { checkpoint: true } => save(work, folder)?,
            Next::Step { checkpoint: false } => {}
        }
    }
}
