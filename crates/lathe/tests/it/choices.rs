//! `lathe eval --task choices`. Whether it is right is tested in lathe-train, beside lm-eval.

use crate::{fails, json, text};
use serde_json::Value;

const PLACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../lathe-train/tests/it/fixtures/choices");

#[test]
fn what_lm_eval_counts_is_counted() {
    let bytes = std::fs::read(format!("{PLACE}/expected.json")).unwrap();
    let expected: Value = serde_json::from_slice(&bytes).unwrap();
    for (name, form, shots) in [("boolq", "", "0"), ("context", "", "1"), ("sglue_rte", "rte", "1")] {
        let data = format!("{PLACE}/{name}.jsonl");
        let found = json(&["eval", PLACE, "--task", "choices", "--data", &data, "--shots", shots, "--form", form]);
        let expected = &expected[name][shots];
        assert_eq!((&found["accuracy"], &found["examples"]), (&expected["accuracy"], &6.into()), "{name}");
        assert_eq!(found["accuracy_norm"], expected["accuracy_norm"], "{name}");
    }
    let lambada = format!("{PLACE}/lambada_openai.jsonl");
    let found = text(&["eval", PLACE, "--task", "choices", "--data", &lambada]);
    assert!(found.starts_with("accuracy 0.00 %, perplexity 10776"), "{found}");
    let long = format!("{PLACE}/boolq.jsonl");
    let found = text(&["eval", PLACE, "--task", "choices", "--data", &long, "--window", "8"]);
    assert!(found.contains("6 of them were too long for the model"), "{found}");
}

#[test]
fn what_has_no_meaning_is_refused() {
    let data = format!("{PLACE}/query.jsonl");
    let eval = |more: &[&str]| fails(&[&["eval", PLACE, "--data", &data], more].concat());
    let (code, error) = eval(&["--shots", "1"]);
    assert!(code == 2 && error.contains("shots: found it, with --task ``; expected --task choices"), "{error}");
    let (code, error) = eval(&["--task", "choices", "--documents"]);
    assert!(code == 2 && error.contains("documents: found it"), "{error}");
    assert_eq!(eval(&["--task", "choices", "--shots", "2"]).0, 2);
    let (code, error) = eval(&["--task", "choices", "--form", "nothing"]);
    assert!(code == 2 && error.contains("form: found `nothing`; expected query, answer"), "{error}");
    let (code, error) = fails(&["eval", PLACE, "--task", "choices", "--data", "nowhere.jsonl"]);
    assert!(code == 1 && error.contains("nowhere.jsonl"), "{error}");
}
