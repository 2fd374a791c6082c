//! Models side by side: prompts, divergences and `lathe compare`.

use crate::{fails, json};

const SIZES: [&str; 10] =
    ["--backbone", "gpt2", "--layers", "sf", "--d-model", "8", "--vocab", "40000", "--max-len", "128"];

/// A prompt has the logits of one token, not of all.
#[test]
fn a_prompt_takes_the_memory_of_one_row_of_logits() {
    let peak = |mode: &str| {
        let flags = ["--seq", "128", "--seconds", "0", "--mode", mode];
        let found = json(&[&["bench"], &SIZES[..], &flags].concat());
        assert!(found["latency_ms"]["median"].as_f64().unwrap() > 0.0);
        found["peak_bytes"].as_u64().unwrap()
    };
    let logits = 127 * 40_000 * 4;
    let (infer, prompt) = (peak("infer"), peak("prompt"));
    assert!(prompt + logits * 9 / 10 < infer, "{prompt} and {infer}");
}

#[test]
fn encoders_have_no_prompt() {
    let bert = ["bench", "--backbone", "bert", "--layers", "sf", "--d-model", "8", "--vocab", "64"];
    let (code, told) = fails(&[&bert[..], &["--seq", "8", "--mode", "prompt"]].concat());
    assert!(code == 2 && told.contains("--mode: found prompt for a bert; expected infer or train"), "{told}");
}
