//! Every family of models goes the whole way by the program: trained, evaluated, counted, profiled and searched in both ways.

use crate::{command, fails, json};
use lathe_model::REGISTRY;
use serde_json::Value;
use std::path::Path;

/// The program in a folder, with its answer.
fn run(folder: &Path, args: &[&str]) -> Value {
    let out = command(args)
        .current_dir(folder)
        .env("LATHE_CACHE", folder.join("cache"))
        .args(["--json", "--threads", "2"])
        .output()
        .expect("the binary runs");
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap_or_else(|error| panic!("{args:?}: {error}"))
}

#[test]
fn every_backbone_goes_the_whole_way() {
    for backbone in REGISTRY.backbones {
        let dir = tempfile::tempdir().unwrap();
        let key = backbone.key();
        let causal = backbone.causal();
        let lengths = if backbone.ignored_keys().contains(&"max_len") { "mem_len = 16" } else { "max_len = 16" };
        let vocab = if causal { 256 } else { 257 };
        let frame = format!(
            "backbone = \"{key}\"\nlayers = \"(sf)x2\"\nd_model = 16\nheads = 2\nd_head = 8\ninner = 32\nvocab = {vocab}\n\
             tgt_len = 16\n{lengths}\n"
        );
        std::fs::write(dir.path().join("model.toml"), &frame).unwrap();
        let space = format!(
            "[baseline]\n{frame}\n[[slots]]\nrepeat = 4\noptions = [\"-\", \"s1\", \"s2\", \"f16\", \"f32\"]\n"
        );
        std::fs::write(dir.path().join("space.toml"), space).unwrap();
        let data = "builtin:0.02";

        let counted = run(dir.path(), &["count", "model.toml"]);
        assert!(counted["params"]["total"].as_u64().unwrap() > 0, "{key}");
        let train = ["train", "--model", "model.toml", "--data", data, "--steps", "60", "--batch", "4", "--lr", "0.01"];
        let trained = run(dir.path(), &[&train[..], &["--out", "run"]].concat());
        let loss = trained["valid"]["loss"].as_f64().unwrap();
        assert!(loss < 5.0, "{key}: {loss}");
        let evaluated = run(dir.path(), &["eval", "run", "--data", data]);
        assert!(evaluated["loss"].as_f64().unwrap() < 5.0, "{key}");
        assert_eq!(evaluated.get("accuracy").is_some(), !causal, "{key}");
        let generated =
            command(&["generate", "run", "--prompt", "The", "--tokens", "8"]).current_dir(dir.path()).output().unwrap();
        assert_eq!(generated.status.success(), causal, "{key}: {}", String::from_utf8_lossy(&generated.stderr));
        let documents =
            command(&["eval", "run", "--data", data, "--documents"]).current_dir(dir.path()).output().unwrap();
        assert_eq!(documents.status.success(), causal, "{key}: {}", String::from_utf8_lossy(&documents.stderr));

        let profiled = run(dir.path(), &["profile", "space.toml", "--out", "table.json"]);
        assert!(profiled["blocks"].as_array().unwrap().len() >= 5, "{key}");
        let pareto = ["search", "pareto", "space.toml", "--table", "table.json", "--no-measure", "--models", "4"];
        let small = ["--iterations", "2", "--population", "8", "--out", "frontier"];
        let found = run(dir.path(), &[&pareto[..], &small[..]].concat());
        assert!(!found["frontier"].as_array().unwrap().is_empty(), "{key}");
        let search = ["search", "differentiable", "space.toml", "--data", data, "--steps", "20", "--batch", "2"];
        let target = ["--target-latency", "0.8", "--table", "table.json", "--out", "search"];
        let found = run(dir.path(), &[&search[..], &target[..]].concat());
        assert!(found["estimated_latency"].as_f64().unwrap() > 0.0, "{key}");
    }
}

/// The weights of a folder are never ignored without a word.
#[test]
fn weights_that_are_not_used_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let sizes = ["--layers", "sf", "--d-model", "8", "--max-len", "16", "--data", "builtin:0.01", "--batch", "2"];
    json(&[&["train", "--backbone", "gpt2", "--steps", "2", "--out", &path("model")], &sizes[..]].concat());
    let args = ["optimize", "--from-scratch", "--model", &path("model"), "--data", "builtin:0.01", "--steps", "2"];
    let (code, told) = fails(&[&args[..], &["--seq", "99", "--out", &path("faster")]].concat());
    assert_eq!(code, 2, "{told}");
    assert!(told.contains("weights in") && told.contains("not used") && told.contains("lathe train --init"), "{told}");
}

#[test]
fn an_encoder_without_output_layer_says_what_it_cannot_do() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("model.toml");
    let text = "backbone='bert'\nlayers='sf'\nd_model=16\nvocab=257\nmax_len=16\nhead='none'\npooler=true";
    std::fs::write(&file, text).unwrap();
    let model = file.display().to_string();
    json(&["bench", &model, "--seq", "8", "--seconds", "0.01"]);
    json(&["bench", &model, "--seq", "8", "--seconds", "0.01", "--mode", "train"]); // it may learn embeddings
    let (code, told) = fails(&["bench", &model, "--mode", "decode"]);
    assert!(code == 2 && told.contains("expected"), "{told}");
    let out = dir.path().join("run").display().to_string();
    let (_, told) = fails(&["train", "--model", &model, "--data", "builtin:0.01", "--out", &out]);
    assert!(told.contains("found a text; expected examples of a task"), "{told}");
    let task = ["train", "--model", &model, "--data", "builtin:0.01", "--task", "masked_lm", "--out", &out];
    let (code, told) = fails(&task);
    assert!(code == 2 && told.contains("found `bert` without an output layer; expected one with"), "{told}");
}
