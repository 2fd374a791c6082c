//! `lathe quantize`, and training for integers.

use crate::{fails, json};
use std::path::Path;

const MODEL: [&str; 12] =
    ["--backbone", "llama", "--layers", "sfsf", "--d-model", "32", "--heads", "2", "--inner", "64", "--max-len", "32"];
const RUN: [&str; 8] = ["--data", "builtin:0.05", "--steps", "40", "--batch", "4", "--lr", "0.01"];

fn trained(folder: &Path, more: &[&str]) -> serde_json::Value {
    let out = ["--out", folder.to_str().unwrap()];
    json(&[&["train"][..], &MODEL, &RUN, more, &out].concat())
}

fn header(folder: &Path) -> String {
    let bytes = std::fs::read(folder.join("model.safetensors")).unwrap();
    let len = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    String::from_utf8(bytes[8..8 + len].to_vec()).unwrap()
}

#[test]
fn a_rounded_model_is_smaller_and_nearly_as_good() {
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("model");
    trained(&model, &[]);
    let model = model.to_str().unwrap();
    let text = ["--data", "builtin:0.05", "--calibration", "512", "--seconds", "0.1"];
    let quantize = |name: &str, flags: &[&str]| {
        let out = dir.path().join(name);
        json(&[&["quantize", model][..], flags, &text, &["--out", out.to_str().unwrap()]].concat())
    };
    let share = |found: &serde_json::Value, key: &str| {
        found[key]["after"].as_f64().unwrap() / found[key]["before"].as_f64().unwrap()
    };
    let eight = quantize("eight", &["--bits", "8"]);
    assert!(share(&eight, "bytes") < 0.35, "{eight}");
    assert!((share(&eight, "loss") - 1.0).abs() < 0.01, "{eight}");
    assert!(eight["latency_ms"]["after"].as_f64().unwrap() > 0.0 && eight["cpu"].is_string(), "{eight}");
    assert!(header(&dir.path().join("eight")).contains("int8 "));
    let plain = quantize("plain", &["--bits", "4", "--range", "minmax", "--no-compensation"]);
    let tuned = quantize("tuned", &["--bits", "4", "--tune", "30", "--slots", "0=8,3=none"]);
    assert!(share(&plain, "bytes") < share(&eight, "bytes"));
    assert!(share(&tuned, "loss") < share(&plain, "loss").max(1.001), "{tuned} {plain}");
    let formats = header(&dir.path().join("tuned"));
    assert!(formats.contains("int4_g32") && formats.contains("\"int8 "), "{formats}");
    // What was saved evaluates to what was told, writes, and is compared with what it was made of.
    let made = dir.path().join("eight");
    let made = made.to_str().unwrap();
    assert!(json(&["generate", made, "--tokens", "5"])["text"].is_string());
    let compared = json(&["compare", model, made, "--data", "builtin:0.01", "--seconds", "0.1"]);
    assert!(
        compared["kl"]["mean"].as_f64().unwrap() < 0.01 && compared["same_top"].as_f64().unwrap() > 0.9,
        "{compared}"
    );
    // Nothing is overwritten, and wrong flags are told.
    for (flags, told) in [
        (vec!["--bits", "8", "--out", made], "expected a new folder"),
        (vec!["--bits", "5", "--out", "new"], "--bits"),
        (vec!["--bits", "4", "--group", "33", "--out", "new"], "expected"),
        (vec!["--bits", "4", "--slots", "9=8", "--out", "new"], "--slots"),
    ] {
        let (code, text) = fails(&[&["quantize", model][..], &flags].concat());
        assert!(code == 2 && text.contains(told), "{flags:?}: {text}");
    }
}

#[test]
fn training_for_integers_ends_with_integers() {
    let dir = tempfile::tempdir().unwrap();
    let [floats, integers] = ["floats", "integers"].map(|name| dir.path().join(name));
    let without = trained(&floats, &[]);
    let with = trained(&integers, &["--quantize", "int4_g32", "--quantize-activations", "true"]);
    let loss = |found: &serde_json::Value| found["valid"]["loss"].as_f64().unwrap();
    assert!(loss(&with) < 1.1 * loss(&without), "{with} {without}");
    assert!(header(&integers).contains("int4_g32 int8") && header(&integers).contains("int8 int8"));
    // What the run says of its model is what the folder does.
    let folder = integers.to_str().unwrap();
    let again = json(&[
        "quantize",
        folder,
        "--bits",
        "4",
        "--data",
        "builtin:0.05",
        "--seconds",
        "0",
        "--out",
        dir.path().join("again").to_str().unwrap(),
    ]);
    assert!((again["loss"]["before"].as_f64().unwrap() / loss(&with) - 1.0).abs() < 0.01, "{again} {with}");
}

/// A tuning that is killed goes on with the same command, to the same bits; what has ended is told again, and other settings are
/// refused.
#[test]
fn a_killed_tuning_ends_with_the_same_bits() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    trained(&dir.path().join("model"), &[]);
    let command = |out: &str| {
        let (model, out) = (path("model"), path(out));
        let flags = "--bits 4 --tune 60 --data builtin:0.05 --calibration 512 --seconds 0 --threads 2";
        let flags = flags.split(' ').map(String::from);
        ["quantize".to_string(), model].into_iter().chain(flags).chain(["--out".into(), out]).collect::<Vec<_>>()
    };
    let run = |out: &str| json(&command(out).iter().map(String::as_str).collect::<Vec<_>>());
    let whole = run("whole");
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_lathe"))
        .args(command("killed"))
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let checkpoint = dir.path().join("killed/checkpoints/step-000000020");
    while !checkpoint.exists() && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let after = run("killed");
    assert_eq!(after["loss"], whole["loss"]);
    let weights = |out: &str| std::fs::read(dir.path().join(out).join("model.safetensors")).unwrap();
    assert!(weights("killed") == weights("whole"));
    assert_eq!(run("killed"), after);
    assert!(!dir.path().join("killed/checkpoints").exists());
    let (code, told) = fails(&["quantize", &path("model"), "--bits", "8", "--out", &path("killed")]);
    assert!(code == 2 && told.contains("other settings"), "{told}");
}
