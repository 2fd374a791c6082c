//! The main job from a trained model, through the program.

use crate::{command, fails};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

/// A folder with a trained model in it.
fn place() -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let out = folder.path().join("model").display().to_string();
    let shape = "--backbone llama --layers (sf)x3 --d-model 32 --heads 4 --inner 128 --max-len 32 --lr 0.01 --batch 8";
    let run = "--data builtin:0.2 --steps 60";
    let args: Vec<&str> = ["train"].into_iter().chain(shape.split(' ')).chain(run.split(' ')).collect();
    let trained = command(&[&args[..], &["--out", &out]].concat()).output().expect("the binary runs");
    assert!(trained.status.success(), "{}", String::from_utf8_lossy(&trained.stderr));
    folder
}

fn job(place: &TempDir, out: &str, more: &str) -> std::process::Command {
    let path = |name: &str| place.path().join(name).display().to_string();
    let (model, out) = (path("model"), path(out));
    let fixed = "--data builtin:0.2 --budget 0.15 --steps 16 --train-batch 4 --seq 32 --json";
    let mut args = vec!["optimize", "--model", &model, "--out", &out];
    args.extend(fixed.split(' ').chain(more.split(' ').filter(|word| !word.is_empty())));
    let mut command = command(&args);
    command.env("LATHE_CACHE", path("cache"));
    command
}

fn ended(mut job: std::process::Command) -> Value {
    let out = job.output().expect("the binary runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).expect("JSON")
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn a_trained_model_becomes_faster_ones_with_a_report() {
    let place = place();
    let found = ended(job(&place, "out", "--target-latency 0.7 --frontier 0.5"));
    let out = place.path().join("out");
    assert_eq!(found["baseline"]["layers"], "(sf)x3");
    let weights = |folder: &Path| std::fs::read(folder.join("model.safetensors")).expect("weights");
    assert!(weights(&out.join("baseline")) == weights(&place.path().join("model")), "the weights are the model's own");
    let (original, faster) = (number(&found["baseline"]["latency_ms"]), number(&found["found"]["latency_ms"]));
    assert!((number(&found["speedup"]) * faster / original - 1.0).abs() < 1e-6, "{found}");
    for side in ["baseline", "found", "continued"] {
        let test = &found["test"][side];
        assert!(number(&test["loss"]) > 0.0 && number(&test["bits_per_byte"]) > 0.0, "{side}: {found}");
    }
    assert!(number(&found["kl"]["mean"]) >= 0.0 && number(&found["same_top"]) <= 1.0);
    // A frontier of folders that load, the asked-for one first.
    let frontier = found["frontier"].as_array().expect("a list");
    assert_eq!(frontier[0]["name"], "found");
    for point in frontier {
        let folder = point["folder"].as_str().expect("a path");
        let judged = crate::json(&["eval", folder, "--data", &out.join("report.txt").display().to_string()]);
        assert!((number(&judged["loss"]) / number(&point["loss"]) - 1.0).abs() < 1e-6, "{point}");
        assert!(number(&point["latency_ms"]) > 0.0 && number(&point["peak_bytes"]) > 0.0, "{point}");
    }
    // Everybody who proposed something is told with it.
    let proposers = found["proposers"].as_array().expect("a list");
    for name in ["blockwise", "evolution", "fewer_layers", "narrower", "random", "influence"] {
        let one = proposers.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("{name}: {found}"));
        assert!(one["layers"].is_string() && number(&one["loss"]) > 0.0, "{one}");
    }
    let report = std::fs::read_to_string(found["report"].as_str().expect("a path")).expect("a report");
    assert!(report.contains("<!doctype html>") && !report.contains("{{") && !report.contains("src=\"http"));
    // Asked again, nothing is measured or trained anew.
    assert_eq!(ended(job(&place, "out", "--target-latency 0.7 --frontier 0.5")), found);
    let refused = job(&place, "out", "--target-latency 0.6 --frontier 0.5").output().expect("the binary runs");
    let error = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && error.contains("other settings"), "{error}");
}

#[test]
fn killed_at_any_stage_it_ends_with_the_same_bits() {
    let place = place();
    let more = "--target-latency 0.6 --levers blocks,width --proposers blockwise,random,mended";
    let whole = ended(job(&place, "whole", more));
    // What was measured and how much is done are taken up; everything else is done again.
    let [whole_at, killed_at] = ["whole", "killed"].map(|name| place.path().join(name));
    std::fs::create_dir_all(&killed_at).expect("a folder");
    for name in ["plan.json", "table.json", "correction.json"] {
        std::fs::copy(whole_at.join(name), killed_at.join(name)).expect("a record");
    }
    std::fs::create_dir_all(killed_at.join("whole")).expect("a folder");
    for entry in std::fs::read_dir(whole_at.join("whole")).expect("measurements") {
        let path = entry.expect("a file").path();
        std::fs::copy(&path, killed_at.join("whole").join(path.file_name().expect("a name"))).expect("a record");
    }
    let mut wait = Duration::from_millis(60);
    let mut kills = 0;
    let found = loop {
        let mut child = job(&place, "killed", more).stdout(std::process::Stdio::piped()).spawn().expect("it runs");
        let begin = std::time::Instant::now();
        while begin.elapsed() < wait && child.try_wait().expect("a child").is_none() {
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = child.kill();
        let out = child.wait_with_output().expect("a child");
        if out.status.success() {
            break serde_json::from_slice::<Value>(&out.stdout).expect("JSON");
        }
        assert_eq!(out.status.code(), None, "it ends by itself only when it is done");
        kills += 1;
        wait = wait * 7 / 5;
    };
    assert!(kills > 2, "{kills}");
    assert_eq!(found["found"]["layers"], whole["found"]["layers"]);
    let weights = |folder: &Path| std::fs::read(folder.join("found/model.safetensors")).expect("weights");
    assert!(weights(&killed_at) == weights(&whole_at), "other bits");
    assert_eq!(found["test"], whole["test"]);
}

#[test]
fn other_bounds_and_models_without_weights() {
    let place = place();
    let found = ended(job(&place, "loss", "--max-loss 400 --levers width,bits --proposers blockwise"));
    assert!(found["target"].is_null() && found["target_met"] == true, "{found}");
    let least = found["frontier"].as_array().expect("a list").iter().map(|point| number(&point["latency_ms"]));
    assert!(number(&found["found"]["latency_ms"]) <= 1.2 * least.fold(f64::INFINITY, f64::min), "{found}");
    let model = place.path().join("model.toml");
    let file = "backbone = 'gpt2'\nlayers = '(sf)x2'\nd_model = 16\nheads = 2\nvocab = 256\nmax_len = 32\ntgt_len = 32";
    std::fs::write(&model, file).expect("a model file");
    let mut fresh = job(&place, "fresh", "--levers blocks --proposers blockwise --target-latency 0.8");
    fresh.arg("--model").arg(&model);
    let args: Vec<_> = fresh.get_args().map(|arg| arg.to_os_string()).collect();
    // The model file takes the place of the folder.
    let args: Vec<_> = args[..1].iter().chain(&args[3..]).cloned().collect();
    let mut fresh = command(&[]);
    fresh.args(args).env("LATHE_CACHE", place.path().join("cache"));
    let out = fresh.output().expect("the binary runs");
    let told = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && told.contains("has no weights: it is trained first"), "{told}");
    assert!(place.path().join("fresh/trained/model.safetensors").exists());
}

#[test]
fn wrong_jobs_are_told() {
    let place = place();
    let refused = |more: &str, code: i32, word: &str| {
        let out = job(&place, "out", more).output().expect("the binary runs");
        let error = String::from_utf8_lossy(&out.stderr).to_string();
        assert!(out.status.code() == Some(code) && error.contains(word) && out.stdout.is_empty(), "{more:?}: {error}");
    };
    refused("--target-latency 0", 2, "--target-latency: found 0");
    refused("--levers speed", 2, "blocks, width, experts, rank, bits, vocab");
    refused("--proposers nobody", 2, "blockwise, evolution");
    refused("--max-loss=-1", 2, "max-loss");
    assert!(!place.path().join("out").exists(), "what cannot begin leaves nothing");
    refused("--target-latency 0.000001", 2, "which no model meets");
    let (code, error) = fails(&["optimize", "--model", "no_such_model", "--data", "builtin:0.1"]);
    assert!(code == 2 && error.contains("no_such_model"), "{error}");
    // A text too short for three parts, and a folder that is damaged.
    let text = place.path().join("short.txt");
    std::fs::write(&text, "a few words").expect("a text");
    let (text, model) = (text.display().to_string(), place.path().join("model").display().to_string());
    let out = place.path().join("short").display().to_string();
    let (code, error) = fails(&["optimize", "--model", &model, "--data", &text, "--out", &out]);
    assert!(code == 1 && error.contains("short.txt"), "{error}");
    let weights = place.path().join("model/model.safetensors");
    let bytes = std::fs::read(&weights).expect("weights");
    std::fs::write(&weights, &bytes[..bytes.len() / 2]).expect("half of them");
    let (code, error) = fails(&["optimize", "--model", &model, "--data", "builtin:0.1", "--out", &out]);
    assert!(code == 1 && error.contains("model.safetensors"), "{error}");
}
