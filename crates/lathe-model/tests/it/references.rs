//! Whole folders as `transformers` saved them, each with what it computed of them: names, types, shards and configurations
//! as they are in the wild. Written by `oracles/folders.py`.

use crate::contract::of_tokens;
use lathe_model::{Input, REGISTRY, folder};
use safetensors::{Dtype, SafeTensors};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

fn folders() -> Vec<PathBuf> {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures/folders");
    let mut folders: Vec<PathBuf> = std::fs::read_dir(all).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    folders
}

struct Expected {
    floats: HashMap<String, Vec<f32>>,
    ints: HashMap<String, Vec<i64>>,
    batch: usize,
}

fn expected(folder: &Path) -> Expected {
    let bytes = std::fs::read(folder.join("expected.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let mut found =
        Expected { floats: HashMap::new(), ints: HashMap::new(), batch: tensors.tensor("ids").unwrap().shape()[0] };
    for (name, tensor) in tensors.iter() {
        let data = tensor.data();
        match tensor.dtype() {
            Dtype::I64 => {
                let values = data.chunks_exact(8).map(|b| i64::from_le_bytes(b.try_into().unwrap())).collect();
                found.ints.insert(name.into(), values);
            }
            _ => {
                let values = data.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
                found.floats.insert(name.into(), values);
            }
        }
    }
    found
}

fn close(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let most = expected.iter().fold(1e-3f32, |most, x| most.max(x.abs()));
    let worst = found.iter().zip(expected).fold(0.0f32, |worst, (a, b)| worst.max((a - b).abs()));
    assert!(worst < 1e-4 * most, "{what}: {worst} of {most}");
}

#[test]
fn folders_of_transformers_compute_what_it_computes() {
    let folders = folders();
    assert!(folders.len() >= 8);
    for path in folders {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let network = folder::load(&path, &REGISTRY).unwrap_or_else(|error| panic!("{name}: {error}"));
        let expected = expected(&path);
        let ids: Vec<u32> = expected.ints["ids"].iter().map(|&id| id as u32).collect();
        let mask: Option<Vec<bool>> = expected.ints.get("mask").map(|mask| mask.iter().map(|&m| m == 1).collect());
        let segments: Option<Vec<u32>> =
            expected.ints.get("segments").map(|segments| segments.iter().map(|&s| s as u32).collect());
        let (mask, segments) = (mask.as_deref(), segments.as_deref());
        let input = Input { mask, segments, ..Input::tokens(&ids, expected.batch) };
        let hidden = network.hidden(&input, &mut network.init_memory(expected.batch));
        let mut compared = 0;
        if let Some(logits) = expected.floats.get("logits") {
            close(&of_tokens(&network.outputs(&hidden), mask), &of_tokens(logits, mask), &format!("{name}: logits"));
            compared += 1;
        }
        if let (Some(states), false) = (expected.floats.get("hidden"), network.model.frame.backbone.causal()) {
            close(&of_tokens(&hidden, mask), &of_tokens(states, mask), &format!("{name}: hidden"));
            compared += 1;
        }
        if let Some(pooled) = expected.floats.get("pooled") {
            close(&network.pooled(&hidden, expected.batch).unwrap(), pooled, &format!("{name}: pooled"));
            compared += 1;
        }
        assert!(compared > 0, "{name}");

        // Saved and loaded again, it is the same in the same type, and says so in its configuration.
        let again = tempfile::tempdir().unwrap();
        folder::save(&network, again.path()).unwrap();
        let loaded = folder::load(again.path(), &REGISTRY).unwrap();
        assert_eq!(loaded.model, network.model, "{name}");
        for (a, b) in network.params().iter().zip(loaded.params().iter()) {
            assert_eq!((a.read(), a.storage().key()), (b.read(), b.storage().key()), "{name}: {}", a.name);
        }
        let read = |folder: &Path| -> serde_json::Value {
            serde_json::from_slice(&std::fs::read(folder.join("config.json")).unwrap()).unwrap()
        };
        let (theirs, ours) = (read(&path), read(again.path()));
        assert_eq!(theirs["model_type"], ours["model_type"], "{name}");
        assert_eq!(theirs["architectures"], ours["architectures"], "{name}");
        let dtype = theirs.get("dtype").or(theirs.get("torch_dtype"));
        assert_eq!(dtype, ours.get("torch_dtype"), "{name}");
        // Without our own keys, theirs say the same model.
        let mut plain = ours.clone();
        plain.as_object_mut().unwrap().remove("lathe");
        std::fs::write(again.path().join("config.json"), plain.to_string()).unwrap();
        let mut said = folder::load_model(again.path(), &REGISTRY).unwrap();
        said.frame.d_head = network.model.frame.d_head; // written out even where it is d_model / heads
        assert_eq!(said, network.model, "{name}");
    }
}
