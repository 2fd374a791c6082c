//! The record of a search: one line of JSON per architecture, written as it is evaluated. A search that goes on walks
//! the same way again and finds here what it need not evaluate twice.

use crate::profile::Prediction;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// A line of the record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// The model file of the architecture, which tells it from all others.
    pub model: String,
    /// One pass.
    pub latency_ms: f64,
    /// The most memory.
    pub peak_bytes: f64,
}

/// A record that can be asked and added to.
pub struct Record {
    known: HashMap<String, Prediction>,
    file: Option<(PathBuf, File)>,
}

impl Record {
    /// One that is kept nowhere.
    pub fn in_memory() -> Self {
        Self { known: HashMap::new(), file: None }
    }

    /// Opens a record, or begins one. `warn` hears of damaged lines, whose architectures are then unknown; they stay
    /// in the file.
    pub fn open(path: &Path, warn: &mut dyn FnMut(String)) -> Result<Self> {
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path).map_err(Error::io(path))?;
        let mut known = HashMap::new();
        let mut ended = true;
        for (i, line) in BufReader::new(&file).split(b'\n').enumerate() {
            let line = line.map_err(Error::io(path))?;
            if line.is_empty() {
                continue;
            }
            match serde_json::from_slice::<Line>(&line) {
                Ok(line) if line.latency_ms > 0.0 && line.peak_bytes >= 0.0 => {
                    known.insert(line.model, Prediction { latency_ms: line.latency_ms, peak_bytes: line.peak_bytes });
                }
                Ok(_) => warn(format!(
                    "{}: line {}: found a latency that is not above 0; evaluated anew",
                    path.display(),
                    i + 1
                )),
                Err(error) => warn(format!("{}: line {}: {error}; evaluated anew", path.display(), i + 1)),
            }
        }
        let length = file.seek(SeekFrom::End(0)).map_err(Error::io(path))?;
        if length > 0 {
            let mut last = [0];
            let mut end = File::open(path).map_err(Error::io(path))?;
            end.seek(SeekFrom::End(-1)).map_err(Error::io(path))?;
            std::io::Read::read_exact(&mut end, &mut last).map_err(Error::io(path))?;
            ended = last == *b"\n";
        }
        if !ended {
            // Killed in the middle of a line.
            file.write_all(b"\n").map_err(Error::io(path))?;
        }
        Ok(Self { known, file: Some((path.to_path_buf(), file)) })
    }

    /// What is known of a model.
    pub fn get(&self, model: &str) -> Option<Prediction> {
        self.known.get(model).copied()
    }

    /// Notes what was found of a model.
    pub fn add(&mut self, model: &str, found: Prediction) -> Result<()> {
        if let Some((path, file)) = &mut self.file {
            let Prediction { latency_ms, peak_bytes } = found;
            let line = Line { model: model.into(), latency_ms, peak_bytes };
            let mut text =
                serde_json::to_vec(&line).map_err(|error| Error::data(path.display(), error, "finite numbers"))?;
            text.push(b'\n');
            file.write_all(&text).map_err(Error::io(path))?;
        }
        self.known.insert(model.into(), found);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_lines_are_told_and_the_rest_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("record.jsonl");
        let found = |ms: f64| Prediction { latency_ms: ms, peak_bytes: 1e6 };
        let mut record = Record::open(&path, &mut |warning| panic!("{warning}")).unwrap();
        ["a", "b", "c"].iter().zip(1..).for_each(|(name, ms)| record.add(name, found(f64::from(ms))).unwrap());
        drop(record);
        let text = std::fs::read_to_string(&path).unwrap().replace("\"b\"", "\"b");
        std::fs::write(&path, &text[..text.len() - 5]).unwrap(); // and the last line is cut
        let mut warnings = Vec::new();
        let mut record = Record::open(&path, &mut |warning| warnings.push(warning)).unwrap();
        assert_eq!((record.get("a"), record.get("b"), record.get("c")), (Some(found(1.0)), None, None));
        assert!(warnings[0].contains("line 2") && warnings[1].contains("line 3"), "{warnings:?}");
        record.add("c", found(3.0)).unwrap();
        drop(record);
        let record = Record::open(&path, &mut |_| {}).unwrap();
        assert_eq!((record.get("c"), record.len()), (Some(found(3.0)), 2));
    }
}
