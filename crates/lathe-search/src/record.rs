//! The record of a search: one line of JSON per architecture, written as it is evaluated. A search that goes on walks
//! the same way again and finds here what it need not evaluate twice.
//!
//! Lines go to a [`Log`]; where that keeps them is not the search's business.

use crate::profile::Prediction;
use crate::{Error, Result};
use lathe_core::{Identify, Identity, Model, Registry, Spec};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Lines that were written before, and a place for further ones. It has one writer at a time.
pub trait Log: Send {
    /// Where it is, for messages.
    fn place(&self) -> String;
    /// The whole lines, in the order written, without their ends.
    fn lines(&self) -> Result<Vec<Vec<u8>>>;
    /// Appends a line. Once this returns, a kill of the process does not lose it.
    fn append(&mut self, line: &[u8]) -> Result<()>;
}

/// A line of the record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// The model file of the architecture.
    pub model: String,
    /// One pass.
    pub latency_ms: f64,
    /// The most memory.
    pub peak_bytes: f64,
}

/// A record that can be asked and added to.
pub struct Record {
    known: HashMap<Identity, Prediction>,
    log: Option<Box<dyn Log>>,
}

impl Record {
    /// One that is kept nowhere.
    pub fn in_memory() -> Self {
        Self { known: HashMap::new(), log: None }
    }

    /// The record of a log. `warn` is told of damaged lines, whose architectures are then unknown; they stay in the log.
    pub fn open(log: Box<dyn Log>, registry: &Registry, warn: &mut dyn FnMut(String)) -> Result<Self> {
        let mut known = HashMap::new();
        for (i, line) in log.lines()?.iter().enumerate().filter(|(_, line)| !line.is_empty()) {
            match read(line, registry) {
                Ok((identity, prediction)) => drop(known.insert(identity, prediction)),
                Err(error) => warn(format!("{}: line {}: {error}; evaluated anew", log.place(), i + 1)),
            }
        }
        Ok(Self { known, log: Some(log) })
    }

    /// What is known of a model.
    pub fn get(&self, model: &Model) -> Option<Prediction> {
        self.known.get(&model.identity()).copied()
    }

    /// Notes what was found of a model.
    pub fn add(&mut self, model: &Model, found: Prediction) -> Result<()> {
        if let Some(log) = &mut self.log {
            let Prediction { latency_ms, peak_bytes } = found;
            let line = Line { model: model.to_toml(), latency_ms, peak_bytes };
            let text = serde_json::to_vec(&line).map_err(|error| Error::data(log.place(), error, "finite numbers"))?;
            log.append(&text)?;
        }
        self.known.insert(model.identity(), found);
        Ok(())
    }

    /// How many architectures are known.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}

/// The architecture of a line and what it costs, or what is wrong with the line.
fn read(line: &[u8], registry: &Registry) -> Result<(Identity, Prediction), String> {
    let Line { model, latency_ms, peak_bytes } = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    if latency_ms.is_nan() || latency_ms <= 0.0 || peak_bytes.is_nan() || peak_bytes < 0.0 {
        return Err("found a latency that is not above 0".into());
    }
    let model =
        Spec::from_toml(&model, registry).and_then(|spec| spec.model(registry)).map_err(|error| error.to_string())?;
    Ok((model.identity(), Prediction { latency_ms, peak_bytes }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lathe_model::REGISTRY;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<Vec<u8>>>>);

    impl Log for Shared {
        fn place(&self) -> String {
            "here".into()
        }

        fn lines(&self) -> Result<Vec<Vec<u8>>> {
            Ok(self.0.lock().unwrap().clone())
        }

        fn append(&mut self, line: &[u8]) -> Result<()> {
            self.0.lock().unwrap().push(line.to_vec());
            Ok(())
        }
    }

    fn model(layers: &str) -> Model {
        let text = format!("backbone='gpt2'\nlayers='{layers}'\nd_model=64\nheads=4\nvocab=9");
        Spec::from_toml(&text, &REGISTRY).unwrap().model(&REGISTRY).unwrap()
    }

    #[test]
    fn damaged_lines_are_told_and_the_rest_is_kept() {
        let log = Shared::default();
        let found = |ms: f64| Prediction { latency_ms: ms, peak_bytes: 1e6 };
        let open = |warnings: &mut Vec<String>| {
            Record::open(Box::new(log.clone()), &REGISTRY, &mut |warning| warnings.push(warning)).unwrap()
        };
        let mut warnings = Vec::new();
        let mut record = open(&mut warnings);
        for (layers, ms) in ["s", "f", "sf", "ff"].iter().zip(1..) {
            record.add(&model(layers), found(f64::from(ms))).unwrap();
        }
        let mut lines = log.lines().unwrap();
        lines[1].truncate(20);
        lines[2] = String::from_utf8(lines[2].clone()).unwrap().replace("gpt2", "gpt7").into_bytes();
        lines[3] = String::from_utf8(lines[3].clone()).unwrap().replace(":4.0", ":0.0").into_bytes();
        *log.0.lock().unwrap() = lines;
        let mut record = open(&mut warnings);
        let known = ["s4", "f", "sf", "ff"].map(|layers| record.get(&model(layers)));
        assert_eq!(known, [Some(found(1.0)), None, None, None], "s is s4 here");
        for (i, warning) in warnings.iter().enumerate() {
            assert!(warning.starts_with(&format!("here: line {}: ", i + 2)), "{warning}");
        }
        assert_eq!(warnings.len(), 3);
        record.add(&model("f"), found(2.5)).unwrap();
        let record = open(&mut Vec::new());
        assert_eq!((record.get(&model("f")), record.len()), (Some(found(2.5)), 2));
    }
}
