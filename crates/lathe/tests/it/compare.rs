//! Models side by side: `lathe compare`, and prompts, which are what a chat waits for.

use crate::against::{GPT2, Place, off, pruned, tiny};
use crate::{command, fails, json, lathe, text};
use serde_json::Value;

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
    assert!(prompt + logits / 2 < infer, "{prompt} and {infer}");
}

/// Blocks are measured as a prompt goes through them, and the sum is of the same kind.
#[test]
fn prompts_have_a_profile() {
    let place = Place::new();
    let space = "[baseline]\nbackbone='gpt2'\nlayers='(sf)x1'\nd_model=8\nheads=2\ninner=16\nvocab=64\n\
                 max_len=16\ntgt_len=16\n[[slots]]\nrepeat=2\noptions=['s1','s2','f16']\n";
    std::fs::write(place.path("space.toml"), space).unwrap();
    let (file, table) = (place.path("space.toml"), place.path("table.json"));
    let flags = ["--mode", "prompt", "--seq", "16", "--fresh", "--out", &table];
    let out = command(&[&["profile", &file, "--json"], &flags[..]].concat())
        .env("LATHE_CACHE", place.path("cache"))
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let found: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert!(found["blocks"].as_array().unwrap().len() >= 4, "{found}");
    let kept: Value = serde_json::from_slice(&std::fs::read(&table).unwrap()).unwrap();
    assert_eq!(kept["workload"]["mode"], "prompt");
}

#[test]
fn encoders_have_no_prompt() {
    let bert = ["bench", "--backbone", "bert", "--layers", "sf", "--d-model", "8", "--vocab", "64"];
    let (code, told) = fails(&[&bert[..], &["--seq", "8", "--mode", "prompt"]].concat());
    assert!(code == 2 && told.contains("--mode: found prompt for a bert; expected infer or train"), "{told}");
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// Enough for a test, which trusts no time.
const QUICK: [&str; 4] = ["--seconds", "0", "--seq", "8"];

#[test]
fn models_are_compared_by_all_that_counts() {
    let place = Place::new();
    let other = place.changed(GPT2, "other", off);
    let data = format!("{GPT2}/text.txt");
    let found = json(&[&["compare", GPT2, &other, "--data", &data], &QUICK[..]].concat());
    let ratio = number(&found["latency_ms"]["a"]) / number(&found["latency_ms"]["b"]);
    assert!((number(&found["speedup"]) / ratio - 1.0).abs() < 1e-9);
    let interval = [0, 1].map(|i| number(&found["speedup_interval"][i]));
    assert!(interval[0] <= ratio && ratio <= interval[1] && found["passes"].as_u64() >= Some(11), "{found}");
    let memory = number(&found["peak_bytes"]["a"]) / number(&found["peak_bytes"]["b"]);
    assert!((number(&found["memory_ratio"]) / memory - 1.0).abs() < 1e-9);
    let weights = std::fs::metadata(format!("{GPT2}/model.safetensors")).unwrap().len();
    assert_eq!(found["bytes"]["a"], weights);
    for key in ["cpu", "instructions", "precision"] {
        assert!(found[key].is_string(), "{key}");
    }
    assert_eq!((&found["mode"], &found["batch"], &found["seq"]), (&"infer".into(), &1.into(), &8.into()));
    assert!(found["threads"].as_u64() >= Some(1) && found["notes"] == serde_json::json!([]));
    // What it says of the text is what evaluations say.
    let alone = json(&["eval", GPT2, "--data", &data]);
    let beside = json(&["eval", &other, "--data", &data, "--against", GPT2]);
    for key in ["loss", "bits_per_byte", "tokens"] {
        assert_eq!((&found[key]["a"], &found[key]["b"]), (&alone[key], &beside[key]), "{key}");
    }
    for key in ["kl", "same_top"] {
        assert_eq!(found[key], beside[key], "{key}");
    }
    // A model beside itself.
    let same = json(&[&["compare", GPT2, GPT2, "--data", &data, "--documents"], &QUICK[..]].concat());
    assert_eq!((number(&same["kl"]["mean"]), number(&same["kl"]["p999"]), number(&same["same_top"])), (0.0, 0.0, 1.0));
    assert_eq!(same["loss"]["a"], same["loss"]["b"]);
    let told = text(&[&["compare", GPT2, &other, "--data", &data], &QUICK[..]].concat());
    for part in ["latency", "peak memory", "on disk", "bits/byte", "times as fast as A", "same top token"] {
        assert!(told.contains(part), "`{part}` in {told}");
    }
}

#[test]
fn vocabularies_are_compared_over_what_both_have() {
    let place = Place::new();
    let data = format!("{GPT2}/text.txt");
    let compare = |a: &str, b: &str| json(&[&["compare", a, b, "--data", &data], &QUICK[..]].concat());
    let small = pruned(&place, "small", 316);
    // Fewer tokens and nothing else: over what is left, nothing changes.
    let cut = compare(GPT2, &small);
    assert_eq!((number(&cut["kl"]["p999"]), number(&cut["same_top"])), (0.0, 1.0));
    let other = place.changed(GPT2, "other", off);
    let forth = compare(&other, &small);
    assert_ne!(forth["tokens"]["a"], forth["tokens"]["b"]);
    let expected = json(&["eval", &small, "--data", &data, "--against", &other]);
    assert_eq!((&forth["kl"], &forth["same_top"]), (&expected["kl"], &expected["same_top"]));
    assert!(forth["notes"][0].as_str().unwrap().contains("over the 316 tokens that both models have"), "{forth}");
    // The other way round the smaller one still cuts the text, and the divergence is from it.
    let back = compare(&small, &other);
    assert_eq!(back["same_top"], forth["same_top"]);
    assert!(back["kl"]["mean"] != forth["kl"]["mean"] && number(&back["kl"]["mean"]) > 0.0, "{back}");
    // A vocabulary that has hardly anything of the other is no smaller version of it, and neither are bytes.
    let bytes = tiny(&place, "bytes", "gpt2", &["--max-len", "16"]);
    for (other, why) in [(pruned(&place, "letters", 257), "times as many tokens"), (bytes, "one has bytes")] {
        let found = compare(GPT2, &other);
        assert!(found["kl"].is_null() && found["same_top"].is_null(), "{found}");
        assert!(number(&found["bits_per_byte"]["b"]) > 0.0);
        let note = found["notes"][0].as_str().unwrap();
        assert!(note.contains("kl and same_top are not there") && note.contains(why), "{note}");
    }
    // An encoder and a decoder are asked different things.
    let bert = tiny(&place, "bert", "bert", &["--max-len", "16"]);
    let found = json(&[&["compare", GPT2, &bert, "--data", &data], &QUICK[..]].concat());
    assert!(found["kl"].is_null() && found["notes"][0].as_str().unwrap().contains("masked_lm"), "{found}");
}

#[test]
fn models_without_weights_are_measured() {
    let flags = ["--seconds", "0", "--seq", "4", "--mode", "prompt", "--batch", "2", "--precision", "bf16"];
    let found = json(&[&["compare", "small_gpt2", GPT2], &flags[..]].concat());
    assert!(number(&found["speedup"]) > 0.0 && number(&found["memory_ratio"]) > 0.0);
    assert_eq!((&found["mode"], &found["batch"]), (&"prompt".into(), &2.into()));
    assert!(found["loss"]["a"].is_null() && found["bits_per_byte"]["b"].is_null() && found["kl"].is_null());
    assert!(found["bytes"]["a"].is_null() && found["bytes"]["b"].is_u64());
    assert!(found["notes"][0].as_str().unwrap().contains("small_gpt2 has no weights"));
    // Training takes fresh weights, and both need not be of one family.
    let flags = ["--seconds", "0", "--seq", "4", "--mode", "train"];
    json(&[&["compare", GPT2, "small_gpt2"], &flags[..]].concat());
}

#[test]
fn wrong_comparisons_are_told() {
    let place = Place::new();
    let bert = tiny(&place, "bert", "bert", &["--max-len", "16"]);
    let (data, page) = (format!("{GPT2}/text.txt"), place.path("page.html"));
    std::fs::write(&page, "mine").unwrap();
    for (code, args, part) in [
        (2, &["compare", GPT2][..], "required"),
        (2, &["compare", GPT2, "no_such_model"], "no_such_model"),
        (
            2,
            &["compare", GPT2, "small_gpt2", "--data", &data],
            "--data: found a text for small_gpt2, which has no weights",
        ),
        (2, &["compare", GPT2, GPT2, "--seq", "33"], "at most max_len, which is 32"),
        (2, &["compare", GPT2, &bert, "--seq", "8", "--mode", "decode"], "--mode: found decode for a bert"),
        (2, &["compare", GPT2, GPT2, "--window", "8"], "--data"),
        (2, &["compare", GPT2, GPT2, "--page", &page], "which is there; expected a new file"),
        (2, &["compare", GPT2, GPT2, "--seconds", "0", "--seq", "8", "--data", &data, "--window", "64"], "--window"),
        (1, &["compare", GPT2, GPT2, "--seconds", "0", "--seq", "8", "--data", "no_such.txt"], "no_such.txt"),
    ] {
        let (found, told) = fails(args);
        assert!(found == code && told.contains(part), "{args:?}, `{part}` in {found}: {told}");
    }
    assert_eq!(std::fs::read_to_string(&page).unwrap(), "mine");
}

/// A page needs nothing but itself, and shows text as text.
#[test]
fn a_page_stands_alone() {
    let place = Place::new();
    let other = place.changed(GPT2, "an <b>other<!--", off);
    let (data, page) = (place.path("text.txt"), place.path("page.html"));
    std::fs::write(&data, "if a < b && c > \"d\" then </script><script>alert(1)</script> else so on, and so on")
        .unwrap();
    let args = ["compare", GPT2, &other, "--data", &data, "--page", &page];
    let out = lathe(&[&args[..], &QUICK].concat());
    assert!(out.status.success() && String::from_utf8_lossy(&out.stderr).contains("wrote "));
    let html = std::fs::read_to_string(&page).unwrap();
    assert!(html.starts_with("<!doctype html>") && html.contains("prefers-color-scheme: dark"));
    for part in ["{{", "src=", "href=", "<link", "@import", "url(", "fetch("] {
        assert!(!html.contains(part), "{part}");
    }
    assert_eq!((html.matches("<script").count(), html.matches("</script>").count()), (2, 2));
    let data = html.split("type=\"application/json\">").nth(1).unwrap().split("</script>").next().unwrap();
    let data: Value = serde_json::from_str(data).unwrap();
    assert_eq!(data["models"]["b"], other.as_str());
    assert!(data["speedup"].is_f64() && data["curve"].as_array().unwrap().len() == 101);
    let passages = data["passages"].as_array().unwrap();
    let nats: Vec<f64> = passages.iter().map(|passage| number(&passage["kl"])).collect();
    assert!(nats.len() == 8 && nats.is_sorted_by(|a, b| a >= b), "{nats:?}");
    assert!((nats[0] - number(&data["curve"][100][1])).abs() < 1e-12, "the farthest of all");
    assert!(passages.iter().all(|passage| number(&passage["probabilities"][0]) <= 1.0));
    assert!(data["command"].as_str().unwrap().starts_with("lathe compare "));
}
