//! The model that ships with its weights, wherever a model folder is read.

use crate::against::Place;
use crate::{command, json};
use serde_json::Value;

/// Runs `lathe` in a place, with a cache of its own.
fn run(place: &Place, args: &[&str]) -> Value {
    let mut command = command(&[args, &["--json"]].concat());
    let out = command.current_dir(place.0.path()).env("LATHE_CACHE", place.path("cache")).output().unwrap();
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap_or_else(|error| panic!("{args:?}: {error}"))
}

#[test]
fn models_list_it_with_its_loss() {
    let list = json(&["models"]);
    let of =
        |name: &str| list["models"].as_array().unwrap().iter().find(|model| model["name"] == name).cloned().unwrap();
    assert!(of("storyteller")["bits_per_byte"].as_f64().unwrap() < 1.0);
    assert_eq!(of("small_gpt2")["bits_per_byte"], Value::Null);
}

#[test]
fn every_verb_that_reads_a_model_folder_reads_it() {
    let place = Place::new();
    let text = lathe_train::language::Language::default().text(3000, 1);
    let (data, out) = (place.path("text.txt"), |name: &str| place.path(name));
    std::fs::write(&data, &text).unwrap();

    let bits = |found: &Value| found["bits_per_byte"].as_f64().unwrap();
    let found = run(&place, &["eval", "storyteller", "--data", &data, "--against", "storyteller"]);
    assert!(bits(&found) < 1.0 && found["same_top"] == 1.0, "{found}");
    let told = run(&place, &["generate", "Storyteller", "--prompt", "This is the story", "--tokens", "8"]);
    assert_eq!(told["text"].as_str().unwrap().len(), 8, "{told}");
    let pair = ["compare", "storyteller", "storyteller", "--data", &data, "--seconds", "0", "--seq", "8"];
    assert_eq!(run(&place, &pair)["kl"]["mean"], 0.0);
    run(&place, &["quantize", "storyteller", "--bits", "8", "--seconds", "0", "--out", &out("int8")]);
    let rounded = run(&place, &["eval", &out("int8"), "--data", &data]);
    assert!((bits(&rounded) / bits(&found) - 1.0).abs() < 0.1, "{rounded} beside {found}");
    let brief = ["--data", &data, "--valid", &data, "--steps", "1", "--batch", "1", "--lr", "0"];
    let on = run(&place, &[&["train", "--init", "storyteller", "--out", &out("on")], &brief[..]].concat());
    assert!((bits(&on["valid"]) / bits(&found) - 1.0).abs() < 1e-6, "{on} beside {found}");
    let student = ["distill", "--teacher", "storyteller", "--layers", "sf", "--out", &out("student")];
    assert_eq!(run(&place, &[&student, &brief[..]].concat())["steps"], 1);

    // A folder of that name comes first.
    std::fs::rename(out("int8"), out("storyteller")).unwrap();
    assert_eq!(run(&place, &["eval", "storyteller", "--data", &data]), rounded);
}
