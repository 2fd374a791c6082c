//! `lathe data`.

use crate::{command, fails, json, lathe, text};
use std::fs;

#[test]
fn data_shows_what_was_read() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("text.txt");
    let content = "the cat sat on the mat\n".repeat(100);
    fs::write(&file, &content).expect("written");
    let file = file.to_str().expect("UTF-8");
    let out = dir.path().join("out");
    let out = out.to_str().expect("UTF-8");

    let words = json(&["data", file, "--tokenizer", "word:6", "--out", out, "--seq", "4", "--batch", "2"]);
    assert_eq!(words["bytes"], 2300);
    assert_eq!(words["files"][0]["name"], file);
    assert_eq!(words["vocab"], 6);
    // 2070 bytes are 90 lines of 7 tokens, of which 2 words (of mat, on and sat) are unknown.
    let train = &words["train"];
    assert_eq!((&train["bytes"], &train["tokens"], &train["unknown"]), (&2070.into(), &630.into(), &90.into()));
    assert_eq!(train["bytes_per_token"].as_f64().map(|x| (x * 1000.0).round()), Some(3286.0));
    assert_eq!((&train["window_steps"], &train["stream_steps"]), (&78.into(), &78.into()));
    assert_eq!(words["valid"]["tokens"], 70);
    assert_eq!((&words["frequent"][0]["token"], &words["frequent"][0]["count"]), (&"\"the\"".into(), &180.into()));
    assert!(words["beginning"].as_str().is_some_and(|text| content.starts_with(text)));
    for kept in ["tokenizer.json", "train.tokens", "valid.tokens"] {
        assert!(fs::metadata(format!("{out}/{kept}")).is_ok(), "{kept}");
    }
    let again = json(&["data", file, "--tokenizer", &format!("{out}/tokenizer.json")]);
    assert_eq!(again["train"]["tokens"], 630);

    let shown = text(&["data", file, "--tokenizer", "bpe:300"]);
    for part in ["the cat sat on the mat", "vocabulary of", "train  2,070", "bytes/token", "an epoch at batch 16"] {
        assert!(shown.contains(part), "{part} in\n{shown}");
    }
}

#[test]
fn data_of_the_built_in_language() {
    let data = json(&["data", "builtin:1", "--seed", "3"]);
    assert_eq!((&data["bytes"], &data["vocab"]), (&(1 << 20).into(), &256.into()));
    assert_eq!(data, json(&["data", "builtin:1:3"]));
}

#[test]
fn wrong_data_is_told_from_wrong_usage() {
    let (code, error) = fails(&["data", "no-such-file"]);
    assert!(code == 1 && error.contains("no-such-file: No such file"), "{error}");
    for args in [["builtin", "--tokenizer", "bpe:3"], ["builtin:x", "--tokenizer", "bytes"], ["file", "--seed", "1"]] {
        let (code, error) = fails(&[&["data"], &args[..]].concat());
        assert!(code == 2 && error.contains("expected"), "{args:?}: {error}");
    }
    assert!(lathe(&["data", "--help"]).status.success());
    let out = command(&["data", "builtin:1"]).output().expect("runs");
    assert!(out.stderr.is_empty(), "nothing to tell of short work: {}", String::from_utf8_lossy(&out.stderr));
}
