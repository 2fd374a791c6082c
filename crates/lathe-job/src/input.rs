//! Models and spaces by file, model folder or shipped name, and the small files of jobs.

use crate::store::cache_folder;
use crate::{At, Error, Result, identity};
use lathe_core::model::Value;
use lathe_core::{MAX_TEXT, Model, Registry, Space, Spec, shorten};
use lathe_model::folder::{self, write_aside};
use lathe_model::shipped::{self, MODELS, SPACES, Shipped};
use lathe_train::resumable;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// What is written of a model: in a file, a model folder or a shipped file.
pub fn spec(name: &str, registry: &Registry) -> Result<Spec> {
    let path = Path::new(name);
    if folder::is_model_folder(path) || path.is_dir() && shipped::find(MODELS, name).is_none() {
        return Ok(folder::load_model(path, registry)?.spec());
    }
    match find("model", MODELS, name)? {
        Source::Shipped(shipped) => shipped.spec().at(shipped.name),
        Source::File(text) => Spec::from_toml(&text, registry).at(name),
    }
}

/// Sets what embeddings of a model are, where it is asked for.
pub fn set_pooling(spec: &mut Spec, pooling: Option<&str>, registry: &Registry) -> Result<()> {
    if let (Some(pooling), Some(key)) = (pooling, registry.key("pooling")) {
        spec.set(key, Value::Word(pooling.into()));
    }
    Ok(())
}

/// The folder, or the GGUF file, of a model with weights.
pub fn trained(name: &str) -> Result<PathBuf> {
    let path = model_folder(name)?;
    match folder::has_weights(&path) {
        true => Ok(path),
        false => {
            let found = if path.exists() { "no weights" } else { "nothing of that name" };
            Err(Error::setting(format!("model {}", shorten(name)), found, "a model folder with weights or a GGUF file"))
        }
    }
}

/// The model folder that is meant: the one that is given, or, where there is none and it is the name of a model that
/// ships with its weights, the folder in the cache that these are unpacked to.
pub fn model_folder(given: impl Into<PathBuf>) -> Result<PathBuf> {
    let given = given.into();
    let shipped = || given.to_str().and_then(shipped::trained);
    let Some(trained) = (!folder::is_model_folder(&given)).then(shipped).flatten() else { return Ok(given) };
    let place = cache_folder().join("models").join(format!("{}-{}", trained.name, trained.version()));
    trained.unpack(&place)?;
    Ok(place)
}

/// The same as a text, which is what settings hold.
pub fn model_folder_name(given: &str) -> Result<String> {
    Ok(model_folder(given)?.display().to_string())
}

/// The model of a file.
pub fn model_file(path: &Path, registry: &Registry) -> Result<Model> {
    let name = path.display().to_string();
    spec(&name, registry)?.model(registry).at(name)
}

/// A space.
pub fn space(name: &str, registry: &Registry) -> Result<Space> {
    match find("space", SPACES, name)? {
        Source::Shipped(shipped) => Space::from_toml(shipped.text, registry).at(shipped.name),
        Source::File(text) => Space::from_toml(&text, registry).at(name),
    }
}

enum Source {
    Shipped(&'static Shipped),
    File(String),
}

/// What a name means: a file, a pipe or whatever can be read where one exists, else a shipped name.
fn find(what: &str, list: &'static [Shipped], name: &str) -> Result<Source> {
    let path = Path::new(name);
    let found = std::fs::metadata(path);
    if found.as_ref().is_ok_and(|found| !found.is_dir()) {
        return Ok(Source::File(read_text(path)?));
    }
    if let Some(shipped) = shipped::find(list, name) {
        return Ok(Source::Shipped(shipped));
    }
    if let Err(error) = found
        && error.kind() == ErrorKind::PermissionDenied
    {
        return Err(Error::io(Path::new(&shorten(name)))(error));
    }
    let names: Vec<_> = list.iter().map(|shipped| shipped.name).collect();
    let name = shorten(name);
    Err(Error::Usage(format!("`{name}` is neither a {what} file nor a shipped {what} ({})", names.join(", "))))
}

/// Reads a text file that cannot be large, at most a little more than is accepted.
pub fn read_text(path: &Path) -> Result<String> {
    let file = std::fs::File::open(path).map_err(Error::io(path))?;
    let mut bytes = Vec::new();
    file.take(MAX_TEXT as u64 + 1).read_to_end(&mut bytes).map_err(Error::io(path))?;
    if bytes.len() > MAX_TEXT {
        return Err(lathe_core::Error::TooLong { what: "the file" }).at(path.display());
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Error::Usage(format!("{}: byte {at} is not UTF-8; expected a TOML file", path.display()))
    })
}

/// Reads a JSON file that a job wrote.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = std::fs::read(path).map_err(Error::io(path))?;
    serde_json::from_slice(&text).map_err(|error| Error::data(path.display(), error, "what this version writes there"))
}

/// Writes a file of a job, whole or not at all.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_vec_pretty(value).expect("values with names as keys");
    Ok(write_aside(path, |out| out.write_all(&text))?)
}

/// The same with a text.
pub fn write_text(path: &Path, text: &str) -> Result<()> {
    Ok(write_aside(path, |out| out.write_all(text.as_bytes()))?)
}

/// The outcome in a folder, where it is that of what is asked for; nothing where the folder is free, or where a job with
/// the same request was stopped. What was asked for is in `file`; `what` says what kind of job that is.
pub fn known<A, O>(out: &Path, file: &str, asked: &A, what: &str) -> Result<Option<O>>
where
    A: Serialize + DeserializeOwned,
    O: DeserializeOwned,
{
    let place = || format!("out {}", out.display());
    let path = out.join(file);
    if !path.exists() {
        return match folder::is_free(out)? {
            true => Ok(None),
            false => Err(Error::setting(place(), "other files", "a new or empty folder")),
        };
    }
    match identity::difference(&read_json::<A>(&path)?, asked) {
        None => Ok(resumable::outcome(out)?),
        Some(differs) => {
            let found = format!("{what} with other settings ({differs})");
            Err(Error::setting(place(), found, "a new folder, or the settings that it began with"))
        }
    }
}

/// Makes the folder of a job and says what it is for.
pub fn begin(out: &Path, file: &str, asked: &impl Serialize) -> Result<()> {
    let path = out.join(file);
    if !path.exists() {
        std::fs::create_dir_all(out).map_err(Error::io(out))?;
        write_json(&path, asked)?;
    }
    Ok(())
}
