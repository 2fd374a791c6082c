//! The papers' protocol of the main job, through the program.

use crate::{command, fails};
use serde_json::Value;
use std::time::Duration;
use tempfile::TempDir;

const MODEL: &str = r#"
backbone = "transformer_xl"
layers = "(sf)x2"
d_model = 32
vocab = 256
heads = 2
inner = 64
norm = "pre"
tgt_len = 16
mem_len = 16
"#;

fn place() -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("model.toml"), MODEL).expect("a model");
    folder
}

/// The job of these tests.
fn job(place: &TempDir, more: &[&str]) -> std::process::Command {
    job_in("out", place, more)
}

fn job_in(folder: &str, place: &TempDir, more: &[&str]) -> std::process::Command {
    let path = |name: &str| place.path().join(name).display().to_string();
    let (model, out) = (path("model.toml"), path(folder));
    let args = [
        "optimize",
        "--from-scratch",
        "--model",
        &model,
        "--data",
        "builtin:0.1",
        "--steps",
        "30",
        "--train-batch",
        "4",
        "--out",
        &out,
    ];
    let mut command = command(&[&args, more].concat());
    command.env("LATHE_CACHE", path("cache"));
    command
}

fn ended(place: &TempDir, more: &[&str]) -> Value {
    let out = job(place, more).arg("--json").output().expect("the binary runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).expect("JSON")
}

#[test]
fn a_job_ends_with_two_models_and_a_report() {
    let place = place();
    let found = ended(&place, &[]);
    for side in ["baseline", "found"] {
        assert!(found[side]["latency_ms"].as_f64() > Some(0.0), "{found}");
        assert!(found[side]["valid"]["bits_per_byte"].as_f64() > Some(0.0), "{found}");
        let folder = place.path().join("out").join(side);
        assert!(folder.join("config.json").exists() && folder.join("model.safetensors").exists());
    }
    assert_eq!(found["baseline"]["layers"], "(sf)x2");
    for side in ["baseline", "found"] {
        let (test, valid) = (&found["test"][side]["loss"], &found[side]["valid"]["loss"]);
        assert!(test.as_f64() > Some(0.0) && test != valid, "judged on other text than it was chosen by: {found}");
    }
    let (baseline, faster) = (&found["baseline"]["latency_ms"], &found["found"]["latency_ms"]);
    let ratio = baseline.as_f64().expect("a number") / faster.as_f64().expect("a number");
    let speedup = found["speedup"].as_f64().expect("a number");
    assert!((speedup / ratio - 1.0).abs() < 1e-6);
    let interval = &found["speedup_interval"];
    assert!(interval[0].as_f64() <= Some(speedup) && interval[1].as_f64() >= Some(speedup));
    assert_eq!(found["compared"], Value::Null);
    // Of those that were trained to the end, the best is given.
    let race = found["race"].as_array().expect("a list");
    let whole = |runner: &Value| runner["whole"]["loss"].as_f64().unwrap_or(f64::INFINITY);
    let best = race.iter().min_by(|a, b| whole(a).total_cmp(&whole(b))).expect("runners");
    assert_eq!((&best["name"], &best["layers"]), (&found["from"], &found["found"]["layers"]), "{found}");
    assert_eq!(best["whole"]["loss"], found["found"]["valid"]["loss"]);
    let report = std::fs::read_to_string(found["report"].as_str().expect("a path")).expect("a report");
    assert!(report.contains("<!doctype html>") && !report.contains("{{") && !report.contains("src=\"http"));
    // Asked again, the job is done already: nothing is measured or trained anew, but what it is compared with.
    let again = ended(&place, &["--compare"]);
    for key in ["baseline", "found", "speedup", "speedup_interval"] {
        assert_eq!(again[key], found[key], "{key}");
    }
    let compared = again["compared"].as_array().expect("a list");
    let others = race.iter().filter(|one| one["layers"] != found["found"]["layers"]);
    for other in others {
        let rival = compared.iter().find(|rival| rival["name"] == other["name"]).expect("all of the race");
        assert_eq!(rival["layers"], other["layers"]);
        assert!(other["whole"].is_null() || other["whole"]["loss"] == rival["valid"]["loss"], "trained once");
    }
    assert!(compared.iter().all(|rival| rival["layers"] != found["found"]["layers"]));
    assert_eq!(ended(&place, &["--compare"])["compared"], again["compared"]);
    // Both trained with another seed: the first of the two is what there was.
    let repeated = ended(&place, &["--repeat", "2"]);
    assert_eq!(repeated["compared"], again["compared"], "what was compared stays in the report");
    let repeated = &repeated["repeated"];
    assert_eq!(repeated["seeds"], serde_json::json!([0, 1]));
    for side in ["baseline", "found"] {
        let values = repeated[side]["values"].as_array().expect("a list");
        assert_eq!(values[0], found[side]["valid"]["bits_per_byte"]);
        assert!(values.len() == 2 && values[0] != values[1], "{values:?}");
    }
    // The folder holds this job and no other.
    let refused = job(&place, &["--seed", "9"]).output().expect("the binary runs");
    let error = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && error.contains("other settings (seed 0, here 9)"), "{error}");
    // Another job takes its baseline over, if it would train it in the same way.
    let baseline = place.path().join("out/baseline").display().to_string();
    let other = |more: &[&str]| {
        let flags = [&["--baseline", &baseline, "--json"], more].concat();
        job_in("other", &place, &flags).output().expect("the binary runs")
    };
    let refused = other(&["--seed", "5"]);
    let error = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && error.contains("found `seed = 0`; expected `seed = 5`"), "{error}");
    assert!(!place.path().join("other").exists());
    let document: Value =
        serde_json::from_slice(&other(&["--target-latency", "0.8", "--inherit"]).stdout).expect("JSON");
    assert_eq!(document["baseline"]["valid"], found["baseline"]["valid"]);
    assert_eq!((&found["inherited"], &document["inherited"]), (&Value::Bool(false), &Value::Bool(true)));
    let inherited = place.path().join("other/inherited/compare").display().to_string();
    let run = |job: &str| std::fs::read_to_string(place.path().join(job).join("found/run.toml")).expect("a run file");
    assert!(run("other").contains(&inherited) && !run("out").contains("inherited"), "{}", run("other"));
    let weights =
        |job: &str| std::fs::read(place.path().join(job).join("baseline/model.safetensors")).expect("weights");
    assert!(weights("out") == weights("other"));
}

#[test]
fn a_job_that_is_killed_goes_on() {
    let place = place();
    let mut wait = Duration::from_millis(50);
    let found = loop {
        let mut child = job(&place, &["--json"]).stdout(std::process::Stdio::piped()).spawn().expect("the binary runs");
        let begin = std::time::Instant::now();
        while begin.elapsed() < wait && child.try_wait().expect("a child").is_none() {
            std::thread::yield_now();
        }
        let _ = child.kill();
        let out = child.wait_with_output().expect("a child");
        if out.status.success() {
            break serde_json::from_slice::<Value>(&out.stdout).expect("JSON");
        }
        assert_eq!(out.status.code(), None, "it ends by itself only when it is done");
        wait = wait * 3 / 2;
    };
    // What the stages left is what the end tells.
    let chosen = std::fs::read(place.path().join("out/chosen.json")).expect("a stage");
    let chosen: Value = serde_json::from_slice(&chosen).expect("JSON");
    assert_eq!(chosen["layers"], found["found"]["layers"]);
    assert!(found["speedup"].as_f64() > Some(0.0));
}

#[test]
fn wrong_jobs_are_refused() {
    let place = place();
    let out = place.path().join("out").display().to_string();
    let refused = |more: &[&str], word: &str| {
        let out = job(&place, more).output().expect("the binary runs");
        let error = String::from_utf8_lossy(&out.stderr).to_string();
        assert!(out.status.code() == Some(2) && error.contains(word), "{more:?}: {error}");
    };
    refused(&["--target-latency", "0"], "--target-latency: found 0");
    refused(&["--target-latency", "0.000001"], "no architecture meets");
    let (code, error) = fails(&["optimize", "--from-scratch", "--model", "no_such_model", "--out", &out]);
    assert!(code == 2 && error.contains("no_such_model"), "{error}");
    // What is wrong with the text is said at once, and leaves nothing behind.
    let (code, error) = fails(&["optimize", "--from-scratch", "--data", "no_such.txt", "--steps", "3", "--out", &out]);
    assert!(code == 1 && error.contains("no_such.txt"), "{error}");
    assert!(!place.path().join("out").exists());
    std::fs::create_dir_all(&out).expect("a folder");
    std::fs::write(place.path().join("out/other.txt"), "mine").expect("a file");
    refused(&[], "other files");
}
