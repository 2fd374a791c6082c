//! The weights of a folder: one file of tensors, or several that an index names.

use super::integers::IntegerTensors;
use super::tensors::{MAX_HEADER, TensorFile};
use super::{FolderError, WEIGHTS};
use crate::Param;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

const INDEX: &str = "model.safetensors.index.json";
/// The files that say where weights are.
pub(super) const FILES: [&str; 2] = [WEIGHTS, INDEX];

/// `model.safetensors.index.json`: the file of each tensor.
#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// Open files of tensors, whose headers fit their lengths.
pub(super) struct Weights {
    /// What to name in errors about all of them.
    path: PathBuf,
    files: Vec<TensorFile>,
}

impl Weights {
    /// Opens the weights of a folder.
    pub fn open(folder: &Path) -> Result<Self, FolderError> {
        let (whole, index) = (folder.join(WEIGHTS), folder.join(INDEX));
        if whole.exists() {
            return Ok(Self { files: vec![TensorFile::open(&whole)?], path: whole });
        }
        if !index.exists() {
            return Err(FolderError::NoWeights { file: whole, hint: hint(folder) });
        }
        let names: BTreeSet<String> = read_index(&index)?.weight_map.into_values().collect();
        let malformed = |found: String| FolderError::Malformed {
            file: index.clone(),
            found,
            expected: "names of safetensors files beside it".into(),
        };
        let mut files = Vec::new();
        for name in names {
            if Path::new(&name).file_name() != Some(name.as_ref()) {
                return Err(malformed(format!("the file name {:?}", super::readable(&name))));
            }
            let file = folder.join(&name);
            if !file.exists() {
                return Err(FolderError::NoWeights { file, hint: "model.safetensors.index.json names it" });
            }
            files.push(TensorFile::open(&file)?);
        }
        if files.is_empty() {
            return Err(malformed("no file".into()));
        }
        Ok(Self { files, path: index })
    }

    /// The file that holds a tensor.
    fn of(&self, name: &str) -> Option<usize> {
        self.files.iter().position(|file| file.has(name))
    }

    /// Whether there is a tensor of that name.
    pub fn has(&self, name: &str) -> bool {
        self.of(name).is_some()
    }

    /// An error unless there is a tensor of this name that a parameter can be filled with. Returns the names of all
    /// tensors that it takes.
    pub fn check(&self, name: &str, param: &Param) -> Result<Vec<String>, FolderError> {
        let Some(file) = self.of(name) else {
            let (file, tensor, expected) = (self.path.clone(), name.into(), format!("F32 {:?}", param.shape));
            return Err(FolderError::Missing { file, tensor, expected });
        };
        if let Some(integers) = IntegerTensors::of(&self.files[file], name, param)? {
            return integers.check(&self.files[file]);
        }
        self.files[file].check(name, &param.shape)?;
        Ok(vec![name.into()])
    }

    /// An error if there is a tensor that is not wanted.
    pub fn check_names(&self, wanted: impl Fn(&str) -> bool) -> Result<(), FolderError> {
        for file in &self.files {
            if let Some(tensor) = file.names().into_iter().find(|name| !wanted(name)) {
                let found = file.describe(&tensor);
                return Err(FolderError::Unexpected { file: file.path().into(), tensor, found });
            }
        }
        Ok(())
    }

    /// Gives a parameter the values of a tensor that was checked, all of which must be finite.
    pub fn fill(&mut self, name: &str, param: &mut Param) -> Result<(), FolderError> {
        let file = self.of(name).unwrap_or(0);
        if let Some(integers) = IntegerTensors::of(&self.files[file], name, param)? {
            return integers.fill(&mut self.files[file], param);
        }
        let (storage, bytes) = self.files[file].weights(name, &param.shape)?;
        param.fill(storage, bytes);
        Ok(())
    }
}

/// Bytes of the files that hold the weights of a folder, or of a file that is all of a model, where they are all there.
pub fn weight_bytes(folder: &Path) -> Option<u64> {
    let len = |path: PathBuf| Some(path.metadata().ok().filter(|found| found.is_file())?.len());
    if let Some(bytes) = len(folder.into()).or_else(|| len(folder.join(WEIGHTS))) {
        return Some(bytes);
    }
    let names: BTreeSet<String> = read_index(&folder.join(INDEX)).ok()?.weight_map.into_values().collect();
    names.into_iter().map(|name| len(folder.join(name))).sum()
}

fn read_index(path: &Path) -> Result<Index, FolderError> {
    let mut text = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_HEADER).read_to_end(&mut text));
    read.map_err(|error| FolderError::Io { file: path.into(), error })?;
    serde_json::from_slice(&text).map_err(|error| FolderError::Malformed {
        file: path.into(),
        found: super::readable(&error.to_string()),
        expected: r#"{"weight_map": {TENSOR: FILE, ...}}"#.into(),
    })
}

/// What to do about a folder without weights.
fn hint(folder: &Path) -> &'static str {
    if folder.join("pytorch_model.bin").exists() {
        "its weights are in pytorch_model.bin, and only safetensors is read: load the folder with transformers and call \
         save_pretrained(folder, safe_serialization=True)"
    } else {
        "expected the weights as a safetensors file"
    }
}
