//! Training runs: from a run file, a recipe and single settings to a run in a folder.

use crate::{At, Error, Event, Result, Watch, fuse, input};
use lathe_core::model::{Key, Value};
use lathe_core::{Registry, Spec};
use lathe_train::examples::open;
use lathe_train::recipes::RECIPES;
use lathe_train::run::{self, Outcome};
use lathe_train::settings::{self, ModelEntry, Settings};
use serde::Serialize;
use std::collections::BTreeMap;
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

/// What several runs gave that differ in their seed alone.
#[derive(Debug, Clone, Serialize)]
pub struct Seeds {
    /// Of each figure of their evaluations the median.
    pub median: BTreeMap<String, f64>,
    /// And the standard deviation, of a sample.
    pub deviation: BTreeMap<String, f64>,
    /// The runs.
    pub seeds: Vec<Outcome>,
}

/// Begins as many runs, in folders `seed-N` of their own, from the seed of the request on; those that were begun before
/// with the same settings go on.
pub fn seeds(request: &Request, count: u32, registry: &Registry, watch: Watch<'_>) -> Result<Seeds> {
    let (settings, model) = request.read(registry)?;
    let mut seeds = Vec::new();
    for seed in settings.seed..settings.seed + count {
        let folder = Path::new(&settings.out).join(format!("seed-{seed}"));
        let own = Settings { seed, out: folder.display().to_string(), ..settings.clone() };
        let begun = folder.join(run::SETTINGS);
        if !begun.exists() {
            std::fs::create_dir_all(&folder).map_err(Error::io(&folder))?;
            seeds.push(run::begin(&own, &model, registry, &mut |event| watch(Event::Training(event)))?);
            continue;
        }
        let fitted = open::fit(&own, &model, registry)?;
        if let Some((there, here)) = settings::difference(&input::read_text(&begun)?, &own, &fitted, registry)? {
            let found = format!("a run with other settings ({there})");
            return Err(Error::setting(format!("out {}", folder.display()), found, format!("{here}, or a new folder")));
        }
        seeds.push(resume(&folder, registry, watch)?);
    }
    let mut figures: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for valid in seeds.iter().filter_map(|outcome| outcome.valid.as_ref()) {
        if let Ok(serde_json::Value::Object(valid)) = serde_json::to_value(valid) {
            let numbers = valid.into_iter().filter_map(|(name, value)| Some((name, value.as_f64()?)));
            numbers.for_each(|(name, value)| figures.entry(name).or_default().push(value));
        }
    }
    let of = |figure: fn(&[f64]) -> f64| figures.iter().map(|(name, values)| (name.clone(), figure(values))).collect();
    Ok(Seeds { median: of(median), deviation: of(deviation), seeds })
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { 0.5 * (values[middle - 1] + values[middle]) }
}

fn deviation(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0).max(1.0)).sqrt()
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
        let text = match &self.run {
            Some(name) => {
                let recipe = RECIPES.iter().find(|recipe| recipe.name == name && !Path::new(name).exists());
                match recipe {
                    Some(recipe) => recipe.text.to_string(),
                    None => input::read_text(Path::new(name))?,
                }
            }
            None => String::new(),
        };
        let name = self.run.as_deref().unwrap_or("the run file");
        // What the task is decides what the other settings are where nothing is said of them.
        let mut asked = settings::read(&text, registry).at(name)?.0;
        self.settings.iter().for_each(|(key, value)| asked.set(key, value.clone()));
        let plain = Settings::for_task(&asked.task, &asked.init);
        let (mut settings, mut model) = settings::read_over(plain, &text, registry).at(name)?;
        if self.settings.iter().any(|(key, _)| key.name == "steps") {
            settings.epochs = 0.0;
        }
        let mut settings = with(settings, &self.settings)?;
        let frame_of_fused = match settings.fuse.is_empty() {
            true => None,
            false => {
                let (stacks, frame) = fuse::read(&settings.fuse, registry)?;
                settings.fuse = stacks;
                frame
            }
        };
        if settings.out.is_empty() {
            return Err(Error::missing("out", "the folder of the run, which becomes the model's folder"));
        }
        if settings.data.is_empty() {
            return Err(Error::missing("data", "the text to learn, which a recipe does not bring"));
        }
        if let Some(name) = &self.model {
            model = ModelEntry::Name(name.clone());
        }
        let framed = !matches!(model, ModelEntry::None) || !settings.init.is_empty();
        if framed && frame_of_fused.is_some() {
            let expected = "stacks, or model files without another model";
            return Err(Error::setting("fuse", "model files beside a model to train or to begin with", expected));
        }
        let mut spec = match model {
            ModelEntry::Inline(spec) => spec,
            ModelEntry::Name(name) => input::spec(&name, registry)?,
            ModelEntry::None if !settings.init.is_empty() => input::spec(&settings.init, registry)?,
            ModelEntry::None if frame_of_fused.is_some() => frame_of_fused.unwrap_or_default(),
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
