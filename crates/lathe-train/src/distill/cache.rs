//! The teacher's largest log-probabilities on disk, so that a batch that comes again, in the next epoch or in another run,
//! needs no pass of the teacher.
//!
//! ```text
//! logits.json       what they depend on
//! 000000012.0.topk  those of part 0 of batch 12: rows, K, tokens, log-probabilities, what the rest has, and a checksum
//! ```
//!
//! A file is written aside and renamed, so that there is all of it or nothing; one that is damaged is made again.

use crate::{Error, Result};
use lathe_model::folder::write_aside;
use lathe_ops::loss::soft::TopK;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

const ABOUT: &str = "logits.json";

/// All that kept logits depend on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct About {
    /// Paths, sizes and times of the teacher's files of weights.
    pub teacher: String,
    /// Of the tokens that batches are cut from.
    pub tokens: String,
    pub task: String,
    pub batch: u32,
    pub accumulate: u32,
    pub seq: u32,
    pub seed: u32,
    pub temperature: f64,
    pub k: u32,
    pub precision: String,
}

/// A folder of kept logits.
pub struct Cache {
    folder: PathBuf,
}

impl Cache {
    /// Opens a folder, which is new or has logits of the same.
    pub fn open(folder: &Path, about: &About) -> Result<Self> {
        std::fs::create_dir_all(folder).map_err(Error::io(folder))?;
        let path = folder.join(ABOUT);
        let text = serde_json::to_string_pretty(about).expect("names and numbers");
        match std::fs::read_to_string(&path) {
            Ok(there) => {
                let there: serde_json::Value = serde_json::from_str(&there)
                    .map_err(|error| Error::data(path.display(), error, "what kept logits depend on"))?;
                let here = serde_json::to_value(about).expect("names and numbers");
                let differs = here.as_object().into_iter().flatten().find(|(key, value)| there.get(key) != Some(value));
                if let Some((key, value)) = differs {
                    let found = there.get(key).map_or("nothing".into(), ToString::to_string);
                    let place = format!("cache {}: {key}", folder.display());
                    let expected = format!("{value}, or another folder");
                    return Err(Error::setting(place, found.trim(), expected));
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                write_aside(&path, |out| out.write_all(text.as_bytes()))?;
            }
            Err(error) => return Err(Error::io(&path)(error)),
        }
        Ok(Self { folder: folder.into() })
    }

    fn path(&self, batch: u64, part: usize) -> PathBuf {
        self.folder.join(format!("{batch:09}.{part}.topk"))
    }

    /// What is kept of a part of a batch, or else what `compute` gives, which is kept from here on.
    pub fn get(&self, batch: u64, part: usize, rows: usize, compute: impl FnOnce() -> TopK) -> Result<TopK> {
        let path = self.path(batch, part);
        match std::fs::read(&path) {
            Ok(bytes) => {
                if let Some(top) = decode(&bytes).filter(|top| top.rows() == rows) {
                    return Ok(top);
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io(&path)(error)),
        }
        let top = compute();
        let bytes = encode(&top);
        write_aside(&path, |out| out.write_all(&bytes))?;
        Ok(top)
    }
}

/// FNV-1a.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

fn encode(top: &TopK) -> Vec<u8> {
    let words = [top.rows() as u32, top.k as u32].into_iter().chain(top.ids.iter().copied());
    let floats = top.log_p.iter().chain(&top.log_rest).map(|x| x.to_bits());
    let mut bytes: Vec<u8> = words.chain(floats).flat_map(u32::to_le_bytes).collect();
    bytes.extend(checksum(&bytes).to_le_bytes());
    bytes
}

/// `None` for what [`encode`] did not write.
fn decode(bytes: &[u8]) -> Option<TopK> {
    let (content, sum) = bytes.split_at_checked(bytes.len().checked_sub(8)?)?;
    if checksum(content).to_le_bytes() != sum {
        return None;
    }
    let words: Vec<u32> = content.as_chunks().0.iter().map(|&word| u32::from_le_bytes(word)).collect();
    let (&[rows, k], words) = words.split_first_chunk()?;
    let (rows, k) = (rows as usize, k as usize);
    let (ids, floats) = words.split_at_checked(rows.checked_mul(k)?)?;
    let (log_p, log_rest) = floats.split_at_checked(rows * k)?;
    let floats = |words: &[u32]| words.iter().map(|&bits| f32::from_bits(bits)).collect();
    (log_rest.len() == rows).then(|| TopK { k, ids: ids.to_vec(), log_p: floats(log_p), log_rest: floats(log_rest) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about() -> About {
        About {
            teacher: "big".into(),
            tokens: "abc".into(),
            task: "causal_lm".into(),
            batch: 4,
            accumulate: 1,
            seq: 16,
            seed: 0,
            temperature: 2.0,
            k: 2,
            precision: "f32".into(),
        }
    }

    fn top() -> TopK {
        TopK {
            k: 2,
            ids: vec![5, 1, 2, 3],
            log_p: vec![-0.5, -1.5, -0.25, -3.0],
            log_rest: vec![-4.0, f32::NEG_INFINITY],
        }
    }

    #[test]
    fn what_is_kept_comes_back_and_what_is_damaged_is_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::open(folder.path(), &about()).unwrap();
        assert_eq!(cache.get(3, 0, 2, top).unwrap(), top());
        assert_eq!(cache.get(3, 0, 2, || panic!("it is kept")).unwrap(), top());
        let path = cache.path(3, 0);
        let mut bytes = std::fs::read(&path).unwrap();
        for damage in 0..bytes.len() {
            bytes[damage] ^= 4;
            assert_eq!(decode(&bytes), None);
            bytes[damage] ^= 4;
        }
        assert_eq!((0..bytes.len()).find_map(|len| decode(&bytes[..len])), None);
        bytes.truncate(20);
        std::fs::write(&path, &bytes).unwrap();
        let mut made = false;
        let found = cache.get(3, 0, 2, || {
            made = true;
            top()
        });
        assert_eq!((found.unwrap(), made), (top(), true));
    }

    #[test]
    fn logits_of_something_else_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        Cache::open(folder.path(), &about()).unwrap();
        Cache::open(folder.path(), &about()).unwrap();
        let error = Cache::open(folder.path(), &About { seed: 1, ..about() }).err().unwrap();
        assert!(error.is_usage() && error.to_string().contains("seed"), "{error}");
    }
}
