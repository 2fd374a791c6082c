//! A GGUF file stands wherever a model folder does.

use crate::{fails, json};
use std::path::Path;

fn fixture(name: &str) -> String {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    crates.join("lathe-model/tests/it/fixtures/gguf").join(name).display().to_string()
}

#[test]
fn every_verb_takes_a_gguf_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let text = "The quick brown fox jumps over the lazy dog, and the dog doesn't mind.\n".repeat(60);
    std::fs::write(path("text.txt"), text).unwrap();
    for (name, params) in [("llama.gguf", 95_968), ("gpt2.gguf", 37_280)] {
        let model = fixture(name);
        let counted = json(&["count", &model]);
        assert_eq!(counted["params"]["total"], params, "{name}");
        let written = json(&["generate", &model, "--prompt", "The dog", "--tokens", "12", "--temperature", "0"]);
        assert!(!written["text"].as_str().unwrap().is_empty());
        let before = json(&["eval", &model, "--data", &path("text.txt")]);
        assert!(before["tokens"].as_u64().unwrap() > 100, "{before}");
        let data = json(&["data", &path("text.txt"), "--tokenizer", &model]);
        assert_eq!(data["tokenizer"], model, "{data}");

        // Trained on, it becomes a folder with its tokenizer, which predicts better.
        let out = path(&format!("{name}.trained"));
        let train =
            ["train", "--init", &model, "--data", &path("text.txt"), "--steps", "8", "--lr", "0.01", "--batch", "4"];
        json(&[&train[..], &["--seq", "32", "--out", &out]].concat());
        assert!(
            Path::new(&out).join("tokenizer.json").exists() && Path::new(&out).join("tokenizer_config.json").exists()
        );
        let after = json(&["eval", &out, "--data", &path("text.txt")]);
        assert_eq!(after["tokens"], before["tokens"]);
        let loss = |found: &serde_json::Value| found["loss"].as_f64().unwrap();
        assert!(loss(&after) < loss(&before) - 0.5, "{name}: {after} {before}");
    }
}

#[test]
fn wrong_gguf_files_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cut.gguf");
    let whole = std::fs::read(fixture("llama.gguf")).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 1000]).unwrap();
    let path = path.display().to_string();
    for args in [&["generate", &path][..], &["count", &path], &["eval", &path, "--data", "builtin:0.01"]] {
        let (code, told) = fails(args);
        assert_eq!(code, 1, "{told}");
        assert!(told.contains("cut.gguf, tensor `") && told.contains("the file may be cut off"), "{told}");
    }
    let missing = dir.path().join("missing.gguf").display().to_string();
    let (code, told) = fails(&["generate", &missing]);
    assert!(code == 1 && told.contains("missing.gguf: No such file"), "{told}");
    // A file without a tokenizer counts and does not write.
    let silent = fixture("qwen2.gguf");
    assert_eq!(json(&["count", &silent])["params"]["total"], 12_448);
    let (code, told) = fails(&["generate", &silent]);
    assert!(code == 1 && told.contains("qwen2.gguf, key `tokenizer.ggml.tokens`: found nothing"), "{told}");
}
