//! Model folders in the style of Hugging Face: `config.json` says what the model is, `model.safetensors` holds its weights,
//! or several files do that `model.safetensors.index.json` names. A GGUF file stands for a folder wherever one is read.
//!
//! Weights have the names of the reference implementation, so that a GPT-2 or a Llama saved by `transformers`
//! loads here, and what is saved here loads there where that architecture exists. Other files of a folder, such as
//! `tokenizer.json`, are left alone.
//!
//! What a folder claims is checked before anything is allocated for it: names, types and shapes of all tensors against
//! the model, and the header against the file's length.

mod config;
mod gguf;
mod integers;
mod tensors;
mod weights;

pub use config::{ConfigReader, Json, Uniform, json, json_of, uniform};
pub use gguf::{GgufForm, GgufModel, GgufOptions, GgufTensor, Order, save_gguf};
pub use lathe_gguf::is_gguf;
pub use tensors::{Tensor, TensorFile, Values, is_free, write_aside, write_tensors};
pub use weights::weight_bytes;

use crate::{Network, Param, build};
use lathe_core::model::Value;
use lathe_core::{MAX_TEXT, Model, Registry};
use lathe_ops::storage::{F32, Storage};
use std::collections::HashSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use weights::Weights;

const CONFIG: &str = "config.json";
const WEIGHTS: &str = "model.safetensors";

/// What can be wrong with a model folder, or with a file of tensors.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// A file cannot be read or written.
    #[error("{}: {error}", file.display())]
    Io {
        /// Which.
        file: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// There is no `config.json`.
    #[error("{} is missing; expected a model folder with config.json and model.safetensors", file.display())]
    NoConfig {
        /// Where it should be.
        file: PathBuf,
    },
    /// Something is wrong with a GGUF file.
    #[error(transparent)]
    Gguf(#[from] lathe_gguf::Error),
    /// Something is wrong with an ONNX file.
    #[error(transparent)]
    Onnx(#[from] lathe_onnx::Error),
    /// `config.json` is not a configuration of a model that exists here.
    #[error("{}: {error}", file.display())]
    Config {
        /// Which.
        file: PathBuf,
        /// What is wrong.
        error: lathe_core::Error,
    },
    /// There is no `model.safetensors`.
    #[error("{} is missing; {hint}", file.display())]
    NoWeights {
        /// Where it should be.
        file: PathBuf,
        /// What to do.
        hint: &'static str,
    },
    /// A file that is no safetensors file, or not all of one.
    #[error("{}: found {found}; expected {expected}", file.display())]
    Malformed {
        /// Which.
        file: PathBuf,
        /// What is there.
        found: String,
        /// What would be accepted.
        expected: String,
    },
    /// A tensor that the model needs is not there.
    #[error("{}: tensor `{tensor}` is missing; expected {expected}", file.display())]
    Missing {
        /// Which file.
        file: PathBuf,
        /// The tensor's name.
        tensor: String,
        /// Its type and shape.
        expected: String,
    },
    /// A tensor that the model does not have.
    #[error("{}: found tensor `{}`, {found}; expected only those of the model", file.display(), readable(tensor))]
    Unexpected {
        /// Which file.
        file: PathBuf,
        /// The tensor's name.
        tensor: String,
        /// Its type and shape.
        found: String,
    },
    /// A tensor of another type.
    #[error("{}: tensor `{tensor}` is {found}; expected {expected}", file.display())]
    Dtype {
        /// Which file.
        file: PathBuf,
        /// The tensor's name.
        tensor: String,
        /// Its type.
        found: String,
        /// The type that is read.
        expected: String,
    },
    /// A tensor of another shape.
    #[error("{}: tensor `{tensor}` has the shape {found}; expected {expected}", file.display())]
    Shape {
        /// Which file.
        file: PathBuf,
        /// The tensor's name.
        tensor: String,
        /// Its shape.
        found: String,
        /// The model's.
        expected: String,
    },
    /// A model that another format cannot say.
    #[error("this model cannot be written as {format}: {reason}")]
    Refused {
        /// Which.
        format: &'static str,
        /// Why.
        reason: String,
    },
    /// A weight that is NaN or infinite.
    #[error("{}: tensor `{tensor}`, index {index}: found {found}; expected a finite number", file.display())]
    NotFinite {
        /// Which file.
        file: PathBuf,
        /// The tensor's name.
        tensor: String,
        /// Which of its values, in the order of the file.
        index: usize,
        /// The value.
        found: f32,
    },
}

impl FolderError {
    /// Whether it says what the model is, rather than its weights, that is wrong.
    pub fn is_config(&self) -> bool {
        matches!(self, Self::Config { .. } | Self::NoConfig { .. } | Self::Refused { .. })
    }
}

/// A name from outside, on one line that is not too long.
fn readable(name: &str) -> String {
    name.chars().take(120).flat_map(char::escape_debug).collect()
}

/// Whether a path is a folder with a `config.json`, or a GGUF file.
pub fn is_model_folder(folder: &Path) -> bool {
    folder.join(CONFIG).is_file() || is_gguf(folder)
}

/// Whether a path is a model folder that has weights, or a GGUF file, which always has them.
pub fn has_weights(folder: &Path) -> bool {
    is_gguf(folder) || is_model_folder(folder) && weights::FILES.iter().any(|name| folder.join(name).is_file())
}

/// What the model in a folder is, without its weights.
pub fn load_model(folder: &Path, registry: &Registry) -> Result<Model, FolderError> {
    if is_gguf(folder) {
        return gguf::load_model(folder, registry);
    }
    let file = folder.join(CONFIG);
    if !is_model_folder(folder) {
        return Err(FolderError::NoConfig { file });
    }
    let mut text = Vec::new();
    let read = std::fs::File::open(&file).and_then(|file| file.take(MAX_TEXT as u64 + 1).read_to_end(&mut text));
    match read {
        Ok(_) => {
            let model = config::read(&text, pooling(folder).is_file(), registry);
            let model = model.map_err(|error| FolderError::Config { file, error })?;
            with_pooling(model, folder)
        }
        Err(error) => Err(FolderError::Io { file, error }),
    }
}

/// Where sentence-transformers says what embeddings are.
fn pooling(folder: &Path) -> PathBuf {
    folder.join("1_Pooling").join(CONFIG)
}

/// A model with what its embeddings are, as sentence-transformers says it in a folder of its own.
fn with_pooling(mut model: Model, folder: &Path) -> Result<Model, FolderError> {
    let file = pooling(folder);
    let Some(pooling) = model.frame.own.get_mut("pooling").filter(|_| file.is_file()) else { return Ok(model) };
    let text = std::fs::read(&file).map_err(|error| FolderError::Io { file: file.clone(), error })?;
    let config: Json = serde_json::from_slice(&text).unwrap_or_default();
    let config = config.as_object().cloned().unwrap_or_default();
    let modes = config.iter().filter(|(_, chosen)| **chosen == Json::Bool(true));
    let modes: Vec<_> = modes.filter_map(|(name, _)| name.strip_prefix("pooling_mode_")).collect();
    *pooling = match modes.as_slice() {
        ["mean_tokens"] => Value::Word("mean".into()),
        ["cls_token"] => Value::Word("cls".into()),
        _ => {
            let error = lathe_core::Error::value("pooling_mode", modes.join(", "), "one of mean_tokens and cls_token");
            return Err(FolderError::Config { file, error });
        }
    };
    let file = folder.join("modules.json");
    let modules: Json =
        std::fs::read(&file).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
    for kind in modules.as_array().into_iter().flatten().filter_map(|module| module["type"].as_str()) {
        let known = ["Transformer", "Pooling", "Normalize"];
        if !known.contains(&kind.rsplit('.').next().unwrap_or(kind)) {
            let error = lathe_core::Error::value("type", kind, format!("one of {}", known.join(", ")));
            return Err(FolderError::Config { file, error });
        }
    }
    Ok(model)
}

/// The model in a folder, with its weights.
pub fn load(folder: &Path, registry: &Registry) -> Result<Network, FolderError> {
    load_as(folder, load_model(folder, registry)?)
}

/// The weights in a folder as those of a model that is given, which may differ from the folder's in what weights do not
/// depend on, such as the length of the memory.
pub fn load_as(folder: &Path, model: Model) -> Result<Network, FolderError> {
    if is_gguf(folder) {
        return gguf::load_as(folder, model);
    }
    let network = Network::unfilled(model);
    let mut network = network.map_err(|error| FolderError::Config { file: folder.join(CONFIG), error })?;
    let mut weights = Weights::open(folder)?;

    // Everything that headers say is checked before the first weight is read.
    let frame = &network.model.frame;
    let family = build::of_backbone(frame.backbone);
    let (mut names, mut known) = (Vec::new(), HashSet::new());
    for param in network.params().iter() {
        let other = || family.other_names(&param.name).into_iter().find(|other| weights.has(other));
        let name = match weights.has(&param.name) {
            true => param.name.clone(),
            false => other().unwrap_or_else(|| param.name.clone()),
        };
        known.extend(weights.check(&name, param)?);
        names.push(name);
    }
    weights.check_names(|name| known.contains(name) || family.is_needless(name, frame))?;
    for (param, name) in network.params_mut().zip(&names) {
        weights.fill(name, param)?;
    }
    Ok(network)
}

/// The weights in a folder under the output layer of a model that is given. Where that is another than the folder's it
/// begins afresh, and so does a pooler that the folder has not, and so do the last rows of learned positions where the model takes
/// longer texts than the folder's; returns the names of what does.
pub fn load_under(
    folder: &Path,
    model: Model,
    seed: u64,
    registry: &Registry,
) -> Result<(Network, Vec<String>), FolderError> {
    let theirs = load_model(folder, registry)?;
    let same = |name: &str| theirs.spec().get(name) == model.spec().get(name);
    let longer = model.frame.max_len.saturating_sub(theirs.frame.max_len) as usize;
    let same_head = same("head") && same("labels");
    if same_head && longer == 0 {
        return Ok((load_as(folder, model)?, Vec::new()));
    }
    let source = load_as(folder, theirs)?;
    let network = Network::new(model, seed);
    let mut network = network.map_err(|error| FolderError::Config { file: folder.join(CONFIG), error })?;
    let task = if same_head { Vec::new() } else { network.task_params() };
    let above = network.blocks_params().end;
    let mut fresh = Vec::new();
    for (i, param) in network.params_mut().enumerate() {
        let known = source.params().iter().find(|known| known.name == param.name && !task.contains(&i));
        match known {
            Some(known) if known.shape == param.shape => param.data = known.read().into_owned(),
            Some(known) if longer > 0 && has_more_rows(&param.shape, &known.shape, longer) => {
                let rows = known.read();
                param.data[..rows.len()].copy_from_slice(&rows);
                fresh.push(format!("{} from row {} on", param.name, known.shape[0]));
            }
            None if i >= above => fresh.push(param.name.clone()),
            known => {
                let file = folder.join(WEIGHTS);
                let (tensor, expected) = (param.name.clone(), format!("{:?}", param.shape));
                return Err(match known {
                    Some(known) => FolderError::Shape { file, tensor, found: format!("{:?}", known.shape), expected },
                    None => FolderError::Missing { file, tensor, expected },
                });
            }
        }
    }
    Ok((network, fresh))
}

/// Whether a table is another one with so many rows behind it.
fn has_more_rows(shape: &[usize], known: &[usize], more: usize) -> bool {
    shape.len() == known.len() && shape[1..] == known[1..] && shape[0] == known[0] + more
}

/// Saves a network as a folder, over what it may hold of a model.
pub fn save(network: &Network, folder: &Path) -> Result<(), FolderError> {
    let (storage, quantised) = (main_storage(network), is_quantised(network));
    save_with(network, folder, &config::write(&network.model, storage, quantised))
}

/// Saves a network as a folder that says nothing but what transformers understands. An error where it has no such model.
pub fn save_for_transformers(network: &Network, folder: &Path) -> Result<(), FolderError> {
    let refused = |reason: String| FolderError::Refused { format: "a folder for transformers", reason };
    if is_quantised(network) {
        return Err(refused("its weights are integers".into()));
    }
    let config = config::write_theirs(&network.model, main_storage(network)).map_err(refused)?;
    save_with(network, folder, &config)
}

/// Saves what a network is, without its weights: as transformers has it where it has such a model, else as our own folders
/// do.
pub fn save_config(network: &Network, folder: &Path) -> Result<(), FolderError> {
    let storage = main_storage(network);
    let theirs = config::write_theirs(&network.model, storage);
    let config = theirs.unwrap_or_else(|_| config::write(&network.model, storage, is_quantised(network)));
    tensors::write_aside(&folder.join(CONFIG), |out| out.write_all(config.as_bytes()))
}

fn save_with(network: &Network, folder: &Path, config: &str) -> Result<(), FolderError> {
    std::fs::create_dir_all(folder).map_err(|error| FolderError::Io { file: folder.into(), error })?;
    fn tensors(param: &Param) -> Vec<Tensor<'_>> {
        if !param.integers().is_empty() {
            return integers::tensors(param);
        }
        let values = Values::Stored(param.storage(), param.read());
        vec![Tensor { name: param.name.clone(), shape: param.shape.clone(), values }]
    }
    let notes = network.params().iter().filter_map(integers::note);
    let tensors: Vec<_> = network.params().iter().flat_map(tensors).collect();
    tensors::write_tensors_with(&folder.join(WEIGHTS), &tensors, notes)?;
    tensors::write_aside(&folder.join(CONFIG), |out| out.write_all(config.as_bytes()))
}

/// What most of a network is stored as.
fn main_storage(network: &Network) -> &'static dyn Storage {
    let largest = network.params().iter().max_by_key(|param| param.count());
    largest.map_or(&F32, |param| param.storage())
}

fn is_quantised(network: &Network) -> bool {
    network.params().iter().any(|param| !param.integers().is_empty())
}
