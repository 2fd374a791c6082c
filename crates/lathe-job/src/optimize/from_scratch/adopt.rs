//! Trainings that have ended elsewhere, to be taken over.

use super::stages::OptimizeJob;
use crate::{At, Error, Result};
use lathe_train::resumable::RESULT;
use lathe_train::run;
use lathe_train::settings;
use std::path::Path;

impl OptimizeJob {
    /// Whether a folder holds the baseline, trained just as this job would.
    pub fn check_baseline(&self, from: &Path) -> Result<()> {
        let wrong =
            |found: &str, expected: &str| Err(Error::setting(format!("baseline {}", from.display()), found, expected));
        let read = |name: &str| std::fs::read_to_string(from.join(name));
        let (Ok(there), Ok(_)) = (read(run::SETTINGS), read(RESULT)) else {
            return wrong("no training that has ended", "the folder of one");
        };
        let here = self.training(from);
        let differs = settings::difference(&there, &here, &self.baseline.spec(), &self.registry);
        match differs.at(from.join(run::SETTINGS).display())? {
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
        std::fs::create_dir_all(&folder).map_err(Error::io(&folder))?;
        let files = ["config.json", "model.safetensors", "tokenizer.json", "metrics.jsonl", RESULT];
        // The settings come last, so that half a copy is none.
        for name in files.into_iter().chain([run::SETTINGS]).filter(|name| from.join(name).exists()) {
            std::fs::copy(from.join(name), folder.join(name)).map_err(Error::io(&from.join(name)))?;
        }
        Ok(())
    }
}
