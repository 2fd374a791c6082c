//! A trained model for other programs: a GGUF file for llama.cpp, folders for transformers and ONNX Runtime. What is written
//! is read back and computes the same before it gets its name.

mod gguf;
mod hf;
mod onnx;
mod parity;

pub use parity::Parity;

use crate::{Context, Error, Event, Result, Watch, input};
use lathe_model::{Network, folder};
use lathe_ops::integers::Activations;
use lathe_ops::storage::{self, STORAGES};
use lathe_train::data::Tokenizer;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// What to write.
#[derive(Debug, Clone)]
pub struct Request {
    /// A model folder or a GGUF file.
    pub folder: PathBuf,
    /// For whom.
    pub format: Format,
    /// What matrices are written as; `None` for what fits their storage.
    pub kind: Option<String>,
    /// Whether a decoder takes keys and values of earlier tokens, and gives those of all: in ONNX.
    pub cache: bool,
    /// Where: a new file or folder.
    pub out: PathBuf,
}

/// Formats of other programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A file for llama.cpp.
    Gguf,
    /// A folder for transformers.
    Hf,
    /// A folder for ONNX Runtime.
    Onnx,
}

/// What was written.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// Where.
    pub path: String,
    /// How near it is to the model that was given.
    pub parity: Parity,
    /// What it is called there: an architecture of llama.cpp, a class of transformers.
    pub architecture: String,
    /// Its types of tensors, and how many there are of each.
    pub tensors: Vec<(String, usize)>,
    /// Bytes of all its files.
    pub bytes: u64,
}

/// Writes a model for another program, reads it back and compares the two.
pub fn run(context: &Context<'_>, request: &Request, watch: Watch<'_>) -> Result<Outcome> {
    let from = input::model_folder(&request.folder)?;
    if request.out.symlink_metadata().is_ok() {
        let place = format!("out {}", request.out.display());
        return Err(Error::setting(place, "something that exists", "a new path: nothing is overwritten"));
    }
    if request.cache && request.format != Format::Onnx {
        return Err(Error::setting(
            "cache",
            "another format than onnx",
            "onnx: in others programs keep a cache themselves",
        ));
    }
    let mut network = folder::load(&from, context.registry)?;
    let tokenizer = tokenizer(&from, &network, watch)?;
    // What is compared are weights: llama.cpp rounds activations in its own way. ONNX says how.
    if request.format != Format::Onnx {
        exact_activations(&mut network);
    }
    let aside = Aside::new(&request.out)?;
    let job = Job { context, request, from: &from, aside: aside.path(), tokenizer: tokenizer.as_ref() };
    let outcome = match request.format {
        Format::Gguf => gguf::write(&job, network, watch),
        Format::Hf => hf::write(&job, network, watch),
        Format::Onnx => onnx::write(&job, network, watch),
    }?;
    aside.publish(&request.out)?;
    Ok(outcome)
}

/// Leaves activations as they are in products with integers.
fn exact_activations(network: &mut Network) {
    network.params_mut().for_each(|param| param.set_activations(Activations::Float));
}

/// Rounds weights to those of a storage that is asked for by name.
fn set_type(network: &mut Network, kind: Option<&str>) -> Result<()> {
    let Some(name) = kind else { return Ok(()) };
    let storage = storage::find(name).ok_or_else(|| {
        let known: Vec<_> = STORAGES.iter().map(|storage| storage.key()).collect();
        Error::setting("type", format!("`{name}`"), known.join(", "))
    })?;
    network.set_storage(storage);
    Ok(())
}

/// What a format works with.
struct Job<'a> {
    context: &'a Context<'a>,
    request: &'a Request,
    from: &'a Path,
    /// Where it writes to.
    aside: PathBuf,
    tokenizer: Option<&'a Tokenizer>,
}

impl Job<'_> {
    /// What texts begin with.
    fn first_token(&self) -> Option<u32> {
        self.tokenizer.and_then(|tokenizer| tokenizer.specials().bos)
    }

    fn outcome(&self, parity: Parity, architecture: String, tensors: Vec<(String, usize)>) -> Result<Outcome> {
        let path = self.request.out.display().to_string();
        Ok(Outcome { path, parity, architecture, tensors, bytes: bytes_of(&self.aside)? })
    }
}

/// The model's tokenizer; none where it has none, and its vocabulary is not that of bytes.
fn tokenizer(from: &Path, network: &Network, watch: Watch<'_>) -> Result<Option<Tokenizer>> {
    let tokenizer = Tokenizer::load(from)?;
    let vocab = network.model.frame.vocab;
    if tokenizer.vocab() > vocab || matches!(tokenizer, Tokenizer::Bytes) && vocab != tokenizer.vocab() {
        let found = match tokenizer {
            Tokenizer::Bytes => "there is no tokenizer".to_string(),
            _ => format!("its tokenizer has {} tokens, more than the {vocab} of the model", tokenizer.vocab()),
        };
        watch(Event::Warning(format!("{found}: the export has none either, and takes numbers of tokens alone")));
        return Ok(None);
    }
    Ok(Some(tokenizer))
}

/// A place beside where a result will be, on the same disk; what is left there is removed.
struct Aside(tempfile::TempDir);

impl Aside {
    fn new(out: &Path) -> Result<Self> {
        let folder = out.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let aside = tempfile::Builder::new().prefix(".lathe-export-").tempdir_in(folder);
        aside.map(Self).map_err(Error::io(folder))
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("export")
    }

    /// Gives the result its name, unless somebody has taken that meanwhile.
    fn publish(&self, out: &Path) -> Result<()> {
        if out.symlink_metadata().is_ok() {
            let place = format!("out {}", out.display());
            return Err(Error::setting(place, "something that was made meanwhile", "a new path"));
        }
        std::fs::rename(self.path(), out).map_err(Error::io(out))
    }
}

/// Bytes of a file, or of all files in a folder.
fn bytes_of(path: &Path) -> Result<u64> {
    let size = |path: &Path| std::fs::metadata(path).map(|found| found.len()).map_err(Error::io(path));
    if path.is_file() {
        return size(path);
    }
    let mut sum = 0;
    for entry in std::fs::read_dir(path).map_err(Error::io(path))? {
        sum += size(&entry.map_err(Error::io(path))?.path())?;
    }
    Ok(sum)
}

/// How many there are of each, in the order of their first.
fn counted(names: impl Iterator<Item = String>) -> Vec<(String, usize)> {
    let mut counts: Vec<(String, usize)> = Vec::new();
    for name in names {
        match counts.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => counts.push((name, 1)),
        }
    }
    counts
}
