//! What verbs take: models and spaces, by file, folder or shipped name, and the flags of a model.

use crate::output;
use anyhow::{Context, Result};
use clap::{Arg, ArgMatches, Command};
use lathe_core::model::{KEYS, Key};
use lathe_core::{MAX_TEXT, Model, Space, Spec, shorten};
use lathe_model::REGISTRY;
use lathe_model::folder::{self, FolderError};
use lathe_model::shipped::{self, MODELS, SPACES, Shipped};
use serde::de::DeserializeOwned;
use std::io::{ErrorKind, Read};
use std::path::Path;

/// Wrong usage that is not a wrong file: exit code 2.
#[derive(Debug)]
pub struct Usage(pub String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Reads a JSON file.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = std::fs::read(path).with_context(|| path.display().to_string())?;
    serde_json::from_slice(&text).with_context(|| path.display().to_string())
}

/// Whether an error is wrong usage, a wrong model or a wrong space, rather than a failed run.
pub fn is_usage(error: &anyhow::Error) -> bool {
    let config = |cause: &FolderError| cause.is_config();
    let train = |cause: &lathe_train::Error| match cause {
        lathe_train::Error::Setting { .. } | lathe_train::Error::Model(_) => true,
        lathe_train::Error::Folder(error) => error.is_config(),
        _ => false,
    };
    let search = |cause: &lathe_search::Error| match cause {
        lathe_search::Error::Setting { .. } | lathe_search::Error::Model(_) => true,
        lathe_search::Error::Train(error) => train(error),
        _ => false,
    };
    error.chain().any(|cause| {
        cause.is::<Usage>()
            || cause.is::<lathe_core::Error>()
            || cause.downcast_ref().is_some_and(config)
            || cause.downcast_ref().is_some_and(train)
            || cause.downcast_ref().is_some_and(search)
    })
}

/// The flags that stand for the keys of a model file.
#[derive(Debug)]
pub struct ModelKeys {
    /// Key and value of each flag given.
    flags: Vec<(&'static Key, String)>,
}

/// MODEL and the flags that stand for the keys of a model file, alone or over it.
#[derive(Debug)]
pub struct ModelArgs {
    name: Option<String>,
    keys: ModelKeys,
}

/// A flag for each key of a table.
pub fn key_flags(keys: &'static [Key], heading: &'static str) -> impl Iterator<Item = Arg> {
    keys.iter().map(move |key| {
        let flag: &'static str = key.name.replace('_', "-").leak();
        let name: &'static str = key.name.to_uppercase().leak();
        Arg::new(key.name)
            .long(flag)
            .value_name(name)
            .allow_hyphen_values(true) // a stack may begin with a skip
            .help(key.help)
            .help_heading(heading)
    })
}

impl ModelKeys {
    /// Whether no flag was given.
    pub fn is_empty(&self) -> bool {
        self.flags.is_empty()
    }

    /// Whether a flag was given.
    pub fn has(&self, name: &str) -> bool {
        self.flags.iter().any(|(key, _)| key.name == name)
    }

    /// Sets the keys that were given.
    pub fn apply(&self, spec: &mut Spec) -> Result<()> {
        for (key, text) in &self.flags {
            spec.set(key, key.parse(text).context("flags")?);
        }
        Ok(())
    }
}

impl clap::FromArgMatches for ModelKeys {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let flag = |key: &'static Key| Some((key, matches.get_one::<String>(key.name)?.clone()));
        Ok(Self { flags: KEYS.iter().filter_map(flag).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for ModelKeys {
    fn augment_args(command: Command) -> Command {
        command.args(key_flags(KEYS, "Model (over the file's, or without one)"))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl ModelArgs {
    /// Reads the model.
    pub fn model(&self) -> Result<Model> {
        let mut spec = match &self.name {
            Some(name) => spec_of(name)?,
            None if self.keys.is_empty() => {
                return Err(Usage("no model: give a file, a model folder, a shipped name (`lathe models` lists them), or --backbone, --layers, --d-model and --vocab".into()).into());
            }
            None => Spec::default(),
        };
        self.keys.apply(&mut spec)?;
        let model = spec.model(&REGISTRY).with_context(|| self.name.clone().unwrap_or_else(|| "flags".into()))?;
        for key in spec.without_effect(&model.frame) {
            output::tell(format_args!("note: {key} has no effect with backbone {}", model.frame.backbone.key));
        }
        Ok(model)
    }
}

impl clap::FromArgMatches for ModelArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self { name: matches.get_one("model").cloned(), keys: ModelKeys::from_arg_matches(matches)? })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for ModelArgs {
    fn augment_args(command: Command) -> Command {
        let model = Arg::new("model").value_name("MODEL").help("Model file (TOML), model folder or shipped name");
        ModelKeys::augment_args(command.arg(model))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// What is written of a model: in a file, a model folder or a shipped file.
pub fn spec_of(name: &str) -> Result<Spec> {
    let path = Path::new(name);
    if folder::is_model_folder(path) || path.is_dir() && shipped::find(MODELS, name).is_none() {
        return Ok(folder::load_model(path)?.spec());
    }
    match find("model", MODELS, name)? {
        Source::Shipped(shipped) => shipped.spec().context(shipped.name),
        Source::File(text) => Spec::from_toml(&text).with_context(|| name.to_string()),
    }
}

/// Reads a space.
pub fn space(name: &str) -> Result<Space> {
    match find("space", SPACES, name)? {
        Source::Shipped(shipped) => shipped.space().context(shipped.name),
        Source::File(text) => Space::from_toml(&text, &REGISTRY).with_context(|| name.to_string()),
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
        return Err(error).context(shorten(name));
    }
    let names: Vec<_> = list.iter().map(|shipped| shipped.name).collect();
    let name = shorten(name);
    Err(Usage(format!("`{name}` is neither a {what} file nor a shipped {what} ({})", names.join(", "))).into())
}

/// Reads a text file that cannot be large, at most a little more than is accepted.
pub fn read_text(path: &Path) -> Result<String> {
    let name = || path.display().to_string();
    let file = std::fs::File::open(path).with_context(name)?;
    let mut bytes = Vec::new();
    file.take(MAX_TEXT as u64 + 1).read_to_end(&mut bytes).with_context(name)?;
    if bytes.len() > MAX_TEXT {
        return Err(lathe_core::Error::TooLong { what: "the file" }).with_context(name);
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Usage(format!("{}: byte {at} is not UTF-8; expected a TOML file", path.display())).into()
    })
}
