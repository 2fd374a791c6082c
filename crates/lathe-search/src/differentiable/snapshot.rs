//! Checkpoints of a search, from which it goes on to the same bits: written as those of training runs are, whole or not
//! at all. What is drawn depends on seed and tick alone, so that no generator is kept.

use super::search::{Moving, Small};
use crate::{Error, Result};
use lathe_model::SuperNet;
use lathe_model::folder::{Tensor, TensorFile, write_tensors};
use lathe_train::checkpoint;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// What goes into a checkpoint beside tensors.
#[derive(Serialize, Deserialize)]
struct Progress {
    small: Small,
    /// How often each weight was stepped.
    steps: Vec<u32>,
}

/// Writes a checkpoint of where the search is.
pub fn write(checkpoints: &Path, moving: &Moving) -> Result<()> {
    Ok(checkpoint::write_whole(checkpoints, moving.small.tick, |folder| {
        write_tensors(&folder.join(checkpoint::TRAINING), &tensors(moving))?;
        let progress = Progress { small: moving.small.clone(), steps: moving.steps.clone() };
        checkpoint::write_json(&folder.join(checkpoint::PROGRESS), &progress)
    })?)
}

fn tensors(moving: &Moving) -> Vec<Tensor<'_>> {
    let mut tensors = Vec::new();
    for param in moving.net.params().iter() {
        let name = format!("weight.{}", param.name);
        tensors.push(Tensor::f32(name, &param.shape, &param.data));
    }
    for (i, moments) in moving.optimizer.moments().iter().enumerate() {
        for (param, values) in moving.net.params().iter().zip(moments) {
            tensors.push(Tensor::f32(format!("moment.{i}.{}", param.name), &param.shape, values));
        }
    }
    for (which, state) in moving.states.iter().enumerate() {
        for (slot, values) in state.memories().enumerate() {
            tensors.push(Tensor::f32(format!("memory.{which}.{slot}"), &[values.len()], values));
        }
    }
    tensors
}

/// Goes back to the newest checkpoint that is as it was written, if there is one; `warn` hears of others.
pub fn restore(checkpoints: &Path, moving: &mut Moving, warn: &mut dyn FnMut(String)) -> Result<()> {
    for step in checkpoint::steps(checkpoints) {
        let path = checkpoint::path(checkpoints, step);
        match checkpoint::verify(&path) {
            Ok(()) => return restore_from(&path, moving),
            Err(error) => warn(format!("{error}; going back to the checkpoint before")),
        }
    }
    Ok(())
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

fn restore_from(checkpoint: &Path, moving: &mut Moving) -> Result<()> {
    let path = checkpoint.join(checkpoint::PROGRESS);
    let text = std::fs::read(&path).map_err(Error::io(&path))?;
    let wrong = |error| Error::data(path.display(), error, "a search's progress");
    let Progress { small, steps } = serde_json::from_slice(&text).map_err(wrong)?;
    let mut file = open(checkpoint)?;
    weights(&mut file, &mut moving.net)?;
    for (i, moments) in moving.optimizer.moments_mut().iter_mut().enumerate() {
        for (param, values) in moving.net.params().iter().zip(moments) {
            *values = floats(&mut file, format!("moment.{i}.{}", param.name), &param.shape)?;
        }
    }
    for (which, state) in moving.states.iter_mut().enumerate() {
        for (slot, memory) in state.memories_mut().enumerate() {
            memory.copy_from_slice(&floats(&mut file, format!("memory.{which}.{slot}"), &[memory.len()])?);
        }
    }
    (moving.small, moving.steps) = (small, steps);
    Ok(())
}
