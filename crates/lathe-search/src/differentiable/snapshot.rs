//! Checkpoints of a search, from which it goes on to the same bits: written as those of training runs are, whole or not
//! at all. What is drawn depends on seed and tick alone, so that no generator is kept.

use super::search::{SearchProgress, SearchState};
use crate::{Error, Result};
use lathe_model::SuperNet;
use lathe_model::folder::{Tensor, TensorFile, write_tensors};
use lathe_train::checkpoint;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// What goes into a checkpoint beside tensors.
#[derive(Serialize, Deserialize)]
struct SnapshotProgress {
    #[serde(rename = "small")]
    progress: SearchProgress,
    /// How often each weight was stepped.
    steps: Vec<u32>,
}

/// Writes the files of a checkpoint of where the search is.
pub fn write(folder: &Path, search: &SearchState) -> lathe_train::Result<()> {
    write_tensors(&folder.join(checkpoint::TRAINING), &tensors(search))?;
    let progress = SnapshotProgress { progress: search.progress.clone(), steps: search.steps.clone() };
    checkpoint::write_json(&folder.join(checkpoint::PROGRESS), &progress)
}

fn tensors(search: &SearchState) -> Vec<Tensor<'_>> {
    let mut tensors = Vec::new();
    for param in search.net.params().iter() {
        let name = format!("weight.{}", param.name);
        tensors.push(Tensor::f32(name, &param.shape, &param.data));
    }
    for (i, moments) in search.optimizer.moments().iter().enumerate() {
        for (param, values) in search.net.params().iter().zip(moments) {
            tensors.push(Tensor::f32(format!("moment.{i}.{}", param.name), &param.shape, values));
        }
    }
    for (which, state) in search.states.iter().enumerate() {
        for (slot, values) in state.memories().enumerate() {
            tensors.push(Tensor::f32(format!("memory.{which}.{slot}"), &[values.len()], values));
        }
    }
    tensors
}

/// Gives a super net the weights of the newest checkpoint.
pub fn restore_weights(checkpoints: &Path, net: &mut SuperNet) -> Result<()> {
    let wrong = || Error::data(checkpoints.display(), "no checkpoint", "that of a search that has ended");
    let newest = checkpoint::steps(checkpoints).into_iter().next().ok_or_else(wrong)?;
    let path = checkpoint::path(checkpoints, newest);
    checkpoint::verify(&path)?;
    weights(&mut open(&path)?, net)
}

fn open(checkpoint: &Path) -> Result<TensorFile> {
    Ok(TensorFile::open(&checkpoint.join(checkpoint::TRAINING)).map_err(lathe_train::Error::from)?)
}

fn floats(file: &mut TensorFile, name: String, shape: &[usize]) -> Result<Vec<f32>> {
    Ok(file.floats(&name, shape).map_err(lathe_train::Error::from)?)
}

fn weights(file: &mut TensorFile, net: &mut SuperNet) -> Result<()> {
    for param in net.params_mut() {
        param.data = floats(file, format!("weight.{}", param.name), &param.shape)?;
    }
    Ok(())
}

/// Goes back to a checkpoint.
pub fn restore(folder: &Path, search: &mut SearchState) -> Result<()> {
    let path = folder.join(checkpoint::PROGRESS);
    let text = std::fs::read(&path).map_err(Error::io(&path))?;
    let wrong = |error| Error::data(path.display(), error, "a search's progress");
    let SnapshotProgress { progress, steps } = serde_json::from_slice(&text).map_err(wrong)?;
    let mut file = open(folder)?;
    weights(&mut file, &mut search.net)?;
    for (i, moments) in search.optimizer.moments_mut().iter_mut().enumerate() {
        for (param, values) in search.net.params().iter().zip(moments) {
            *values = floats(&mut file, format!("moment.{i}.{}", param.name), &param.shape)?;
        }
    }
    for (which, state) in search.states.iter_mut().enumerate() {
        for (slot, memory) in state.memories_mut().enumerate() {
            memory.copy_from_slice(&floats(&mut file, format!("memory.{which}.{slot}"), &[memory.len()])?);
        }
    }
    (search.progress, search.steps) = (progress, steps);
    Ok(())
}
