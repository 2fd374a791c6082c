//! Models that ship with their weights.

use lathe_core::Setting;
use lathe_model::shipped::{self, MODELS, STORYTELLER, TRAINED, Trained};
use lathe_model::{REGISTRY, count, folder};
use std::path::Path;

/// What of a folder is the model's.
fn files(folder: &Path) -> [Vec<u8>; 2] {
    ["config.json", "model.safetensors"].map(|name| std::fs::read(folder.join(name)).unwrap())
}

/// When its weights were written.
fn written(folder: &Path) -> std::time::SystemTime {
    folder.join("model.safetensors").metadata().unwrap().modified().unwrap()
}

fn storyteller() -> &'static Trained {
    shipped::trained(STORYTELLER).unwrap()
}

#[test]
fn trained_models_are_found_by_name() {
    assert_eq!(shipped::trained("Storyteller").unwrap().name, STORYTELLER);
    assert!(shipped::trained("gpt2_small").is_none() && shipped::trained("").is_none());
    for trained in TRAINED {
        let model = crate::model(shipped::find(MODELS, trained.name).unwrap().text);
        let network = trained.network();
        assert_eq!(network.model, model, "{}", trained.name);
        let counted = count(&model, &Setting::of(&model)).total_params();
        assert_eq!(network.params().count() as u64, counted, "{}", trained.name);
        assert!(network.params().iter().all(|param| param.storage_key() == "f32"), "{}", trained.name);
        assert!(2 * counted < 4_000_000, "{} ships in less than 4 MB", trained.name);
    }
}

/// A folder that is right is left alone, and whatever is wrong with one, it is right afterwards.
#[test]
fn unpacked_folders_are_mended() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("new").join("storyteller");
    storyteller().unpack(&folder).unwrap();
    let right = files(&folder);
    let loaded = folder::load(&folder, &REGISTRY).unwrap();
    for (found, wanted) in loaded.params().iter().zip(storyteller().network().params().iter()) {
        assert!(found.name == wanted.name && found.read() == wanted.read(), "{}", found.name);
    }
    let before = written(&folder);
    storyteller().unpack(&folder).unwrap();
    assert_eq!(written(&folder), before, "not written again");

    let [config, weights] = ["config.json", "model.safetensors"].map(|name| folder.join(name));
    let mut flipped = right[1].clone();
    *flipped.last_mut().unwrap() ^= 1;
    let damages: [&dyn Fn(); 5] = [
        &|| std::fs::write(&weights, &flipped).unwrap(),
        &|| std::fs::write(&weights, &right[1][..1000]).unwrap(),
        &|| std::fs::remove_file(&weights).unwrap(),
        &|| std::fs::remove_file(&config).unwrap(),
        &|| std::fs::write(&config, b"{}").unwrap(),
    ];
    for damage in damages {
        damage();
        storyteller().unpack(&folder).unwrap();
        assert!(files(&folder) == right);
    }
}

/// Where nothing can be written, the error says where.
#[test]
fn folders_that_cannot_be_written_are_named() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let error = storyteller().unpack(&file.join("storyteller")).unwrap_err().to_string();
    assert!(error.contains("file"), "{error}");
}
