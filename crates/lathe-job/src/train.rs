//! Training runs: from a run file, a recipe and single settings to a run in a folder.

use crate::{At, Error, Event, Result, Watch, input};
use lathe_core::model::{Key, Value};
use lathe_core::{Registry, Spec};
use lathe_train::recipes::RECIPES;
use lathe_train::run::{self, Outcome};
use lathe_train::settings::{self, ModelEntry, Settings};
use std::path::Path;

/// The model that is trained where none is named.
pub const DEFAULT_MODEL: &str = "small_transformer_xl";

/// A key with the value that it is given.
pub type Given = (&'static Key, Value);

/// What to train, and how.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// A run file, or the name of a recipe.
    pub run: Option<String>,
    /// Settings over the run file's.
    pub settings: Vec<Given>,
    /// A model over the run file's, by file, model folder or shipped name.
    pub model: Option<String>,
    /// Keys of the model file over the model's.
    pub keys: Vec<Given>,
}

/// Begins a run.
pub fn begin(request: &Request, registry: &Registry, watch: Watch<'_>) -> Result<Outcome> {
    let (settings, model) = request.read(registry)?;
    Ok(run::begin(&settings, &model, registry, &mut |event| watch(Event::Training(event)))?)
}

/// Goes on with the run in a folder.
pub fn resume(folder: &Path, registry: &Registry, watch: Watch<'_>) -> Result<Outcome> {
    Ok(run::resume(folder, registry, &mut |event| watch(Event::Training(event)))?)
}

/// Settings with some of their keys set.
pub fn with(mut settings: Settings, given: &[Given]) -> Result<Settings> {
    for (key, value) in given {
        settings.set(key, value.clone());
    }
    settings.check()?;
    settings.init = input::model_folder_name(&settings.init)?;
    Ok(settings)
}

impl Request {
    /// The settings and the model of the run.
    pub fn read(&self, registry: &Registry) -> Result<(Settings, Spec)> {
        let (settings, mut model) = match &self.run {
            Some(name) => {
                let recipe = RECIPES.iter().find(|recipe| recipe.name == name && !Path::new(name).exists());
                let text = match recipe {
                    Some(recipe) => recipe.text.to_string(),
                    None => input::read_text(Path::new(name))?,
                };
                settings::read(&text, registry).at(name)?
            }
            None => (Settings::default(), ModelEntry::None),
        };
        let settings = with(settings, &self.settings)?;
        if settings.out.is_empty() {
            return Err(Error::missing("out", "the folder of the run, which becomes the model's folder"));
        }
        if settings.data.is_empty() {
            return Err(Error::missing("data", "the text to learn, which a recipe does not bring"));
        }
        if let Some(name) = &self.model {
            model = ModelEntry::Name(name.clone());
        }
        let mut spec = match model {
            ModelEntry::Inline(spec) => spec,
            ModelEntry::Name(name) => input::spec(&name, registry)?,
            ModelEntry::None if !settings.init.is_empty() => input::spec(&settings.init, registry)?,
            // Keys that say what a model is stand for all of it.
            ModelEntry::None if self.keys.iter().any(|(key, _)| key.name == "backbone") => Spec::default(),
            ModelEntry::None => input::spec(DEFAULT_MODEL, registry)?,
        };
        for (key, value) in &self.keys {
            spec.set(key, value.clone());
        }
        Ok((settings, spec))
    }
}
