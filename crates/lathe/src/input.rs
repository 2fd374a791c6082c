//! What verbs take: a model by file, folder or shipped name, and the flags that stand for keys of files.

use crate::output;
use anyhow::{Context, Result};
use clap::{Arg, ArgMatches, Command};
use lathe_core::model::Key;
use lathe_core::{Model, Spec};
use lathe_job::input::spec;
use lathe_job::train::Given;
use lathe_model::REGISTRY;
use lathe_model::folder::has_weights;
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

/// Whether an error is wrong usage, a wrong model or a wrong space, rather than a failed run.
pub fn is_usage(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.is::<Usage>() || lathe_job::is_usage(cause))
}

/// Flags with their values, as the keys that they stand for.
pub fn given(flags: &[(&'static Key, String)]) -> Result<Vec<Given>> {
    flags.iter().map(|(key, text)| Ok((*key, key.parse(text).context("flags")?))).collect()
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
pub fn key_flags(keys: impl IntoIterator<Item = &'static Key>, heading: &'static str) -> impl Iterator<Item = Arg> {
    keys.into_iter().map(move |key| {
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

/// The flags of a table that were given, with their values.
pub fn flags_given(keys: impl IntoIterator<Item = &'static Key>, matches: &ArgMatches) -> Vec<(&'static Key, String)> {
    let flag = |key: &'static Key| Some((key, matches.get_one::<String>(key.name)?.clone()));
    keys.into_iter().filter_map(flag).collect()
}

/// Makes flags that derive from tables known to clap: `args` of the type adds them to a command, `read` reads them.
macro_rules! derived_flags {
    ($flags:ty) => {
        impl clap::Args for $flags {
            fn augment_args(command: clap::Command) -> clap::Command {
                Self::args(command)
            }

            fn augment_args_for_update(command: clap::Command) -> clap::Command {
                Self::args(command)
            }
        }

        impl clap::FromArgMatches for $flags {
            fn from_arg_matches(matches: &clap::ArgMatches) -> Result<Self, clap::Error> {
                Ok(Self::read(matches))
            }

            fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
                *self = Self::read(matches);
                Ok(())
            }
        }
    };
}
pub(crate) use derived_flags;

impl ModelKeys {
    /// Whether no flag was given.
    pub fn is_empty(&self) -> bool {
        self.flags.is_empty()
    }

    /// The keys that were given.
    pub fn given(&self) -> Result<Vec<Given>> {
        given(&self.flags)
    }

    /// Those that were given.
    pub fn read(matches: &ArgMatches) -> Self {
        Self { flags: flags_given(REGISTRY.keys(), matches) }
    }

    /// Adds the flags to a command.
    pub fn args(command: Command) -> Command {
        command.args(key_flags(REGISTRY.keys(), "Model (over the file's, or without one)"))
    }
}

derived_flags!(ModelKeys);

impl ModelArgs {
    /// Reads the model.
    pub fn model(&self) -> Result<Model> {
        let mut model = match &self.name {
            Some(name) => spec(name, &REGISTRY)?,
            None if self.keys.is_empty() => {
                return Err(Usage("no model: give a file, a model folder, a shipped name (`lathe models` lists them), or --backbone, --layers, --d-model and --vocab".into()).into());
            }
            None => Spec::default(),
        };
        for (key, value) in self.keys.given()? {
            model.set(key, value);
        }
        if let Some(name) = self.name.as_ref().filter(|name| has_weights(Path::new(name))) {
            output::tell(format_args!("note: only the architecture of {name} is used, not its weights"));
        }
        let spec = model;
        let model = spec.model(&REGISTRY).with_context(|| self.name.clone().unwrap_or_else(|| "flags".into()))?;
        for key in spec.without_effect(&model.frame) {
            output::tell(format_args!("note: {key} has no effect with backbone {}", model.frame.backbone.key()));
        }
        Ok(model)
    }

    /// The folder or file of a model with weights, where no key is given over it.
    pub fn folder(&self) -> Option<&Path> {
        self.name.as_deref().map(Path::new).filter(|path| self.keys.is_empty() && has_weights(path))
    }

    fn read(matches: &ArgMatches) -> Self {
        Self { name: matches.get_one("model").cloned(), keys: ModelKeys::read(matches) }
    }

    fn args(command: Command) -> Command {
        let model =
            Arg::new("model").value_name("MODEL").help("Model file (TOML), model folder, GGUF file or shipped name");
        ModelKeys::args(command.arg(model))
    }
}

derived_flags!(ModelArgs);
