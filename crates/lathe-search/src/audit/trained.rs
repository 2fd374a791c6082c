//! A sample of a space, trained for an audit. Each training has a folder of its own, so that an audit that was stopped
//! goes on where it was: what has ended is not repeated.
//!
//! ```text
//! OUT/data/             the text as tokens, for proxies that need some
//! OUT/models/000/ ...   a training run each
//! ```

use super::Subject;
use crate::proxies::{Probe, Record};
use crate::{Error, Result};
use lathe_core::space::Sampling;
use lathe_core::{Model, Registry, Space};
use lathe_train::data::{DataSpec, Sampler, Tokens, prepare};
use lathe_train::run::{self, Event, Outcome};
use lathe_train::settings::{self, Settings};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::path::{Path, PathBuf};

/// Draws that are tried for one more architecture before the space counts as used up.
const TRIES: usize = 1000;

/// `count` different architectures of a space, drawn choice by choice as the authors of LTS draw.
pub fn sample(space: &Space, count: usize, seed: u64) -> Result<Vec<Model>> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut models: Vec<Model> = Vec::new();
    while models.len() < count {
        let draws = std::iter::repeat_with(|| space.model(&space.sample(Sampling::Choices, &mut rng)));
        let fresh = draws.take(TRIES).find(|model| !models.contains(model)).ok_or_else(|| {
            let expected = format!("at most {}, for the space hardly has more architectures", models.len());
            Error::setting("train-k", count, expected)
        })?;
        models.push(fresh);
    }
    Ok(models)
}

/// What an audit tells while it trains.
pub type Watch<'a> = &'a mut dyn FnMut(usize, Event<'_>);

/// Trains each model, or takes what was trained before. A model whose training leads nowhere is left out, with a warning.
pub fn train(models: &[Model], settings: &Settings, registry: &Registry, watch: Watch<'_>) -> Result<Vec<Subject>> {
    let mut subjects = Vec::new();
    for (i, model) in models.iter().enumerate() {
        let folder = folder(settings, i);
        let own = Settings { out: folder.display().to_string(), ..settings.clone() };
        let outcome = match train_one(model, &own, &folder, registry, &mut |event| watch(i, event)) {
            Err(Error::Train(error)) if matches!(*error, lathe_train::Error::Diverged { .. }) => {
                watch(i, Event::Warning(format!("{} is left out: {error}", folder.display())));
                continue;
            }
            outcome => outcome?,
        };
        let Some(valid) = &outcome.valid else {
            let expected = "a text to validate on: `valid`, or longer `data`";
            return Err(Error::data(&settings.data, "no text to validate on", expected));
        };
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut subject = Subject::new(name, model.clone(), -valid.perplexity);
        let tokens = outcome.tokens / u64::from(outcome.steps.max(1));
        let seconds = outcome.tokens as f64 / outcome.tokens_per_s;
        subject.record = Some(Record::read(&folder, outcome.steps, tokens, seconds)?);
        subjects.push(subject);
    }
    Ok(subjects)
}

/// The folder of a training.
pub fn folder(settings: &Settings, i: usize) -> PathBuf {
    Path::new(&settings.out).join("models").join(format!("{i:03}"))
}

fn train_one(
    model: &Model,
    settings: &Settings,
    folder: &Path,
    registry: &Registry,
    watch: &mut dyn FnMut(Event<'_>),
) -> Result<Outcome> {
    let path = folder.join("run.toml");
    let spec = model.spec();
    if !path.exists() {
        return Ok(run::begin(settings, &spec, registry, watch)?);
    }
    let before = std::fs::read_to_string(&path).map_err(Error::io(&path))?;
    if let Some((before, now)) = settings::difference(&before, settings, &spec, registry)? {
        let expected = format!("`{now}`, or another folder");
        return Err(Error::setting(path.display(), format!("`{before}` of another audit"), expected));
    }
    Ok(run::resume(folder, registry, watch)?)
}

/// The text as tokens, for proxies that need some.
pub struct Text {
    tokens: Tokens,
    batch: usize,
    seed: u64,
}

impl Text {
    /// Reads the text of settings, once.
    pub fn open(settings: &Settings, batch: usize) -> Result<Self> {
        let tokenizer = if settings.tokenizer.is_empty() { "bytes" } else { &settings.tokenizer };
        let spec = DataSpec {
            data: settings.data.clone(),
            valid: Some(settings.valid.clone()).filter(|valid| !valid.is_empty()),
            tokenizer: tokenizer.parse()?,
            documents: false,
        };
        let prepared = prepare(&spec, &Path::new(&settings.out).join("data"), &|_, _, _| {})?;
        Ok(Self { tokens: prepared.train, batch, seed: settings.seed.into() })
    }

    /// Its first batch, as long as a model takes it.
    pub fn probe(&self, model: &Model) -> Result<Probe> {
        let frame = &model.frame;
        let batch = Sampler::streams(self.tokens.clone(), self.batch, frame.window() as usize)?.batch(0)?;
        Ok(Probe { ids: batch.ids, targets: batch.targets, batch: self.batch, seed: self.seed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lathe_model::REGISTRY;

    #[test]
    fn samples_differ_until_the_space_is_used_up() {
        let toml =
            "[baseline]\nbackbone='gpt2'\nlayers='sf'\nd_model=8\nvocab=256\n\n[[slots]]\nrepeat=2\noptions=['s','f']";
        let space = Space::from_toml(toml, &REGISTRY).unwrap();
        let models = sample(&space, 4, 1).unwrap();
        let mut layers: Vec<String> = models.iter().map(Model::layers).collect();
        layers.sort();
        let mut expected = ["ff", "fs", "sf", "ss"].map(notation);
        expected.sort();
        assert_eq!(layers, expected);
        let error = sample(&space, 5, 1).unwrap_err().to_string();
        assert!(error.contains("train-k: found 5; expected at most 4"), "{error}");
        assert_eq!(sample(&space, 3, 7).unwrap(), sample(&space, 3, 7).unwrap());
    }

    fn notation(layers: &str) -> String {
        lathe_core::notation::print(&lathe_core::notation::parse(layers, &REGISTRY).unwrap())
    }
}
