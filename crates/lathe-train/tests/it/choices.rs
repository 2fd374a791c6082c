//! Choices beside lm-eval (`oracles/choices.py`): what it asks for examples of every form, what a Llama of transformers
//! answers, and what it counts.

use lathe_core::Spec;
use lathe_model::{Input, Network, REGISTRY, folder};
use lathe_text::Tokenizer;
use lathe_train::choices::{self, Examples, FORMS, Options, Outcome};
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures/choices").join(name)
}

fn expected() -> serde_json::Map<String, Value> {
    serde_json::from_slice(&std::fs::read(fixture("expected.json")).unwrap()).unwrap()
}

/// What has to be asked for: columns that are those of another form.
fn form(name: &str) -> &str {
    match name {
        "answer" | "cb" => name,
        "sglue_rte" => "rte",
        _ => "",
    }
}

fn examples(name: &str) -> Examples {
    choices::read(&fixture(&format!("{name}.jsonl")), form(name)).unwrap()
}

fn model() -> (Network, Tokenizer) {
    let mut network = folder::load(&fixture(""), &REGISTRY).unwrap();
    network.freeze();
    (network, Tokenizer::load(&fixture("")).unwrap())
}

/// What comes of it, and the sums of log-probabilities of all options.
fn ask(network: &Network, tokenizer: &Tokenizer, examples: &Examples, shots: u32) -> (Outcome, Vec<Vec<f64>>) {
    let mut sums = Vec::new();
    let options = Options { shots, ..Options::default() };
    let found = choices::evaluate(network, tokenizer, examples, &options, &mut |_, scores| sums.push(scores.to_vec()));
    (found.unwrap(), sums)
}

#[test]
fn requests_are_those_of_lm_eval() {
    let expected = expected();
    for (name, expected) in &expected {
        let found: Vec<_> = examples(name).list.into_iter().map(|example| example.options).collect();
        assert_eq!(json!(found), expected["0"]["requests"], "{name}");
    }
    let told: Vec<&str> = expected.keys().map(|name| examples(name).form.name).collect();
    for form in FORMS {
        assert!(told.contains(&form.name), "no file of {}", form.name);
    }
}

#[test]
fn answers_are_those_of_transformers() {
    let (network, tokenizer) = model();
    for (name, expected) in &expected() {
        let examples = examples(name);
        for shots in [0, 1] {
            let expected = &expected[&shots.to_string()];
            let (found, sums) = ask(&network, &tokenizer, &examples, shots);
            for (example, (found, expected)) in
                sums.iter().zip(expected["log_probabilities"].as_array().unwrap()).enumerate()
            {
                let expected: Vec<f64> = serde_json::from_value(expected.clone()).unwrap();
                assert_eq!(found.len(), expected.len(), "{name}");
                for (found, expected) in found.iter().zip(expected) {
                    let near = (found - expected).abs() < 2e-5 * expected.abs();
                    assert!(near, "{name}, {shots} shots, example {example}: {found}, expected {expected}");
                }
            }
            let found = serde_json::to_value(&found).unwrap();
            for key in ["accuracy", "accuracy_norm", "perplexity"] {
                // lm-eval has no accuracy per byte of ReCoRD.
                let Some(expected) = expected.get(key).and_then(Value::as_f64) else { continue };
                let near = (found[key].as_f64().unwrap() / expected - 1.0).abs() < 1e-3 || found[key] == expected;
                assert!(near, "{name}, {shots} shots, {key}: {}, expected {expected}", found[key]);
            }
        }
    }
}

/// Sums of log-probabilities of a text's last tokens, and whether each is the most probable one, window after window.
fn brute_force(network: &Network, ids: &[u32], scored: usize) -> (f64, bool) {
    let frame = &network.model.frame;
    let window = if frame.has_memory() { frame.window() as usize } else { ids.len() };
    let mut state = network.init_cache(1, window, &network.init_memory(1));
    let inputs = &ids[..ids.len() - 1];
    let logits: Vec<f32> =
        inputs.chunks(window).flat_map(|piece| network.logits(&Input::tokens(piece, 1), &mut state).to_vec()).collect();
    let (mut sum, mut greedy) = (0.0, true);
    for (row, &token) in logits.chunks_exact(frame.vocab as usize).zip(&ids[1..]).skip(inputs.len() - scored) {
        let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let total: f64 = row.iter().map(|x| f64::from(x - most).exp()).sum();
        sum += f64::from(row[token as usize] - most) - total.ln();
        greedy &= row[token as usize] == most;
    }
    (sum, greedy)
}

#[test]
fn what_options_share_is_computed_once_and_gives_the_same() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("examples.jsonl");
    let long = "the same words again and again, ".repeat(4);
    let line = json!({"query": long, "choices": ["one", "another of them", "x"], "gold": 1});
    std::fs::write(&file, format!("{line}\n\n{line}\n")).unwrap();
    let examples = choices::read(&file, "").unwrap();
    assert_eq!(examples.list.len(), 2);
    for backbone in ["gpt2", "transformer_xl"] {
        let lengths = if backbone == "gpt2" { "max_len=256" } else { "tgt_len=24\nmem_len=40" };
        let toml =
            format!("backbone='{backbone}'\nlayers='(sf)x2'\nd_model=16\nheads=2\ninner=32\nvocab=256\n{lengths}");
        let model = Spec::from_toml(&toml, &REGISTRY).and_then(|spec| spec.model(&REGISTRY)).unwrap();
        let mut network = Network::new(model, 3).unwrap();
        network.params_mut().for_each(|param| param.data.iter_mut().for_each(|x| *x *= 4.0));
        network.freeze();
        let (_, sums) = ask(&network, &Tokenizer::Bytes, &examples, 0);
        for (choice, found) in ["one", "another of them", "x"].iter().zip(&sums[1]) {
            let text = format!("{} {choice}", long.trim_end()); // the space of the query, and the one before a choice
            let text = text.replacen(" one", "  one", 1).replacen(" another", "  another", 1).replacen(" x", "  x", 1);
            let ids: Vec<u32> = text.bytes().map(u32::from).collect();
            let (expected, _) = brute_force(&network, &ids, choice.len() + 2);
            assert!((found - expected).abs() < 1e-4 * expected.abs(), "{backbone}: {found}, expected {expected}");
        }
        assert_eq!(sums[0], sums[1], "{backbone}");
    }
}

#[test]
fn the_only_option_is_right_where_the_model_would_write_it() {
    let (network, tokenizer) = model();
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("examples.jsonl");
    let mut out = std::fs::File::create(&file).unwrap();
    let mut right = 0;
    let begin: Vec<u32> = tokenizer.begin().unwrap().into_iter().collect();
    assert_eq!(begin.len(), 1);
    for context in ["Aldra went to the", "two ropes and", "salt"] {
        for word in ["lamp", "boat", "the", "and"] {
            writeln!(out, "{}", json!({"context": context, "continuation": word})).unwrap();
            let of_context = tokenizer.encode(context).unwrap().len();
            let whole = tokenizer.encode(format!("{context} {word}")).unwrap();
            let scored = whole.len() - of_context;
            right += usize::from(brute_force(&network, &[begin.clone(), whole].concat(), scored).1);
        }
        // What the model would write.
        let ids = [begin.clone(), tokenizer.encode(context).unwrap()].concat();
        let logits = network.last_logits(&Input::tokens(&ids, 1), &mut network.init_memory(1));
        let mut ranked: Vec<u32> = (0..logits.len() as u32).collect();
        ranked.sort_by(|a, b| logits[*b as usize].total_cmp(&logits[*a as usize]));
        if let Some(word) = tokenizer.decode(&ranked[..1]).strip_prefix(' ') {
            writeln!(out, "{}", json!({"context": context, "continuation": word})).unwrap();
        }
    }
    drop(out);
    let examples = choices::read(&file, "").unwrap();
    let (found, _) = ask(&network, &tokenizer, &examples, 0);
    assert_eq!(found.accuracy * examples.list.len() as f64, right as f64);
    assert_eq!(found.accuracy_norm, None);
}

#[test]
fn wrong_files_are_refused_with_their_line() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("examples.jsonl");
    let good = r#"{"query":"a","choices":["b","c"],"gold":0}"#;
    let of = |text: &str, form: &str| {
        std::fs::write(&file, text).unwrap();
        choices::read(&file, form).unwrap_err().to_string().replace(&file.display().to_string(), "FILE")
    };
    assert_eq!(of("", ""), "FILE: found no line; expected a JSON object in each line");
    assert!(of("{", "").starts_with("FILE, line 1: found EOF"));
    assert_eq!(of("\n[1]", ""), "FILE, line 2: found another value; expected a JSON object");
    assert!(
        of("{\"a\":1}", "")
            .starts_with("FILE, line 1: found the columns a; expected those of query (query, choices, gold);")
    );
    let second = |line: &str| of(&format!("{good}\n{line}\n"), "");
    assert_eq!(
        second(r#"{"query":"a","choices":["b","c"],"gold":2}"#),
        "FILE, line 2, `gold`: found 2; expected a number from 0 to 1"
    );
    assert_eq!(
        second(r#"{"query":"a","choices":["b"],"gold":0}"#),
        "FILE, line 2, `choices`: found [\"b\"]; expected at least two"
    );
    assert_eq!(
        second(r#"{"query":7,"choices":["b","c"],"gold":0}"#),
        "FILE, line 2, `query`: found 7; expected a text"
    );
    assert_eq!(
        second(r#"{"query":"a","choices":"b","gold":0}"#),
        "FILE, line 2, `choices`: found \"b\"; expected a list of texts"
    );
    let rte = r#"{"premise":"a","hypothesis":"b","label":1}"#;
    assert_eq!(of(rte, ""), "form: found none for columns that cb and rte have; expected cb or rte");
    assert!(of(good, "cbt").starts_with("form: found `cbt`; expected query, answer, context,"));
    assert_eq!(
        of(r#"{"sentence":"no gap","option1":"a","option2":"b","answer":"1"}"#, ""),
        "FILE, line 1, `sentence`: found \"no gap\"; expected a text with a gap `_`"
    );
    std::fs::write(&file, good).unwrap();
    let (network, tokenizer) = model();
    let examples = choices::read(&file, "").unwrap();
    let options = Options { shots: 1, ..Options::default() };
    let error = choices::evaluate(&network, &tokenizer, &examples, &options, &mut |_, _| {}).unwrap_err().to_string();
    assert!(
        error.ends_with("found 1 examples; expected at least 2 that differ, one to ask for and one to show before it")
    );
}
