//! What the version before the model layer was rebuilt wrote, and what it answered: folders still load and compute the
//! same, runs that were stopped then go on, and the same seed gives the same bits. `fixtures/before/README.md` says what is
//! there.

use crate::command;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures/before")
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        match path.is_dir() {
            true => copy(&path, &target),
            false => assert!(std::fs::copy(&path, &target).is_ok()),
        }
    }
}

/// A copy of all that is there, to work in.
fn workplace() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    copy(&fixtures(), dir.path());
    dir
}

fn read(path: &Path) -> Value {
    let text = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&text).unwrap()
}

/// Whether this CPU gives the bits that were recorded, which were those of AVX2.
fn same_bits() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma");
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

/// What a command answers, as the fixtures were made.
fn answer(dir: &Path, args: &Value, more: &[&str]) -> Value {
    let args: Vec<&str> = args.as_array().unwrap().iter().map(|arg| arg.as_str().unwrap()).collect();
    let output = command(&args)
        .current_dir(dir)
        .env("LATHE_CPU", "avx2")
        .env("LATHE_CACHE", dir.join("cache"))
        .args(more)
        .args(["--threads", "2", "--json"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{args:?}: {error}"))
}

/// What was recorded is still answered; what is new is not looked at, nor what the clock says.
fn assert_holds(found: &Value, expected: &Value, place: &str) {
    const CLOCK: &[&str] = &["seconds", "training_seconds", "weight_seconds", "arch_seconds", "tokens_per_s", "out"];
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => {
            for (key, expected) in expected.iter().filter(|(key, _)| !CLOCK.contains(&key.as_str())) {
                let found = found.get(key).unwrap_or_else(|| panic!("{place}.{key} is gone"));
                assert_holds(found, expected, &format!("{place}.{key}"));
            }
        }
        (Value::Array(found), Value::Array(expected)) => {
            assert_eq!(found.len(), expected.len(), "{place}");
            found.iter().zip(expected).enumerate().for_each(|(i, (a, b))| assert_holds(a, b, &format!("{place}[{i}]")));
        }
        _ => assert_eq!(found, expected, "{place}"),
    }
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Tensors by name, bit for bit.
fn tensors(path: &Path) -> Vec<(String, Vec<u8>)> {
    let bytes = std::fs::read(path).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let mut all: Vec<_> = file.iter().map(|(name, tensor)| (name.to_string(), tensor.data().to_vec())).collect();
    all.sort();
    all
}

fn models() -> Vec<String> {
    let folders = std::fs::read_dir(fixtures()).unwrap().map(|entry| entry.unwrap().path());
    let folders = folders.filter(|path| path.join("model").exists());
    folders.map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect()
}

#[test]
fn folders_of_the_version_before_compute_the_same() {
    let models = models();
    assert!(models.len() >= 7);
    let dir = workplace();
    for name in models {
        let expected = read(&dir.path().join(&name).join("expected.json"));
        let expected: &Map<String, Value> = expected.as_object().unwrap();
        for (verb, case) in expected.iter().filter(|(verb, _)| *verb != "train") {
            let found = answer(dir.path(), &case["args"], &[]);
            if same_bits() || verb == "count" {
                assert_holds(&found, &case["result"], &format!("{name} {verb}"));
            }
            if same_bits() && verb == "forward" {
                let of = |folder: &Path| tensors(&folder.join(&name).join("forward.safetensors"));
                assert!(of(dir.path()) == of(&fixtures()), "{name}: forward gives other bits");
            }
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_bits_as_before() {
    if !same_bits() {
        return;
    }
    let dir = workplace();
    for name in models() {
        let case = &read(&dir.path().join(&name).join("expected.json"))["train"];
        let out = format!("again-{name}");
        let found = answer(dir.path(), &case["args"], &["--out", &out]);
        assert_holds(&found, &case["result"], &name);
        let metrics = Value::Array(lines(&dir.path().join(&out).join("metrics.jsonl")));
        assert_holds(&metrics, &case["metrics"], &format!("{name} metrics"));
        let weights = |folder: &Path| tensors(&folder.join("model.safetensors"));
        let same = weights(&dir.path().join(&out)) == weights(&dir.path().join(&name).join("model"));
        assert!(same, "{name}: training gives other bits");
    }
}

#[test]
fn runs_that_were_stopped_before_go_on() {
    let dir = workplace();
    for name in ["run_gpt2", "run_xl"] {
        let case = read(&dir.path().join(name).join("expected.json"));
        let half = format!("{name}/half");
        let found = answer(dir.path(), &serde_json::json!(["train", "--resume", half]), &[]);
        if same_bits() {
            assert_holds(&found, &case["result"], name);
        }
    }
    let case = read(&dir.path().join("search/expected.json"));
    let resume = serde_json::json!(["search", "differentiable", "--resume", "search/half"]);
    let found = answer(dir.path(), &resume, &[]);
    if same_bits() {
        assert_holds(&found, &case["result"], "search");
        let toml = std::fs::read_to_string(dir.path().join("search/half/found.toml")).unwrap();
        assert_eq!(toml, case["found"].as_str().unwrap());
    }
}
