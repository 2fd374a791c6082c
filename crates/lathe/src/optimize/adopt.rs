//! Trainings that have ended elsewhere, to be taken over.

use super::stages::Job;
use crate::input::Usage;
use anyhow::{Context, Result};
use lathe_train::run;
use std::path::Path;

impl Job {
    /// Whether a folder holds the baseline, trained just as this job would.
    pub fn check_baseline(&self, from: &Path) -> Result<()> {
        let wrong = |found: &str, expected: &str| {
            Err(Usage(format!("--baseline {}: found {found}; expected {expected}", from.display())).into())
        };
        let read = |name: &str| std::fs::read_to_string(from.join(name));
        let (Ok(there), Ok(_)) = (read(run::SETTINGS), read(run::RESULT)) else {
            return wrong("no training that has ended", "the folder of one");
        };
        let here = self.training(from).to_toml(&self.baseline.spec());
        let lines = there.lines().count().max(here.lines().count());
        let [there, here] = [&there, &here].map(|text| text.lines().chain(std::iter::repeat("nothing")).take(lines));
        match there.zip(here).find(|(there, here)| there != here && !there.starts_with("out = ")) {
            Some((there, here)) => wrong(&format!("`{there}`"), &format!("`{here}`, as in this job")),
            None => Ok(()),
        }
    }

    /// Takes over a training that has ended elsewhere: to train it here would give the same again.
    pub fn adopt(&self, from: &Path, name: &str) -> Result<()> {
        let folder = self.out.join(name);
        if folder.join(run::SETTINGS).exists() {
            return Ok(());
        }
        std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let files = ["config.json", "model.safetensors", "tokenizer.json", "metrics.jsonl", run::RESULT];
        // The settings come last, so that half a copy is none.
        for name in files.into_iter().chain([run::SETTINGS]).filter(|name| from.join(name).exists()) {
            std::fs::copy(from.join(name), folder.join(name)).with_context(|| name.to_string())?;
        }
        Ok(())
    }
}
