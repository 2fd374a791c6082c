//! Special tokens: where they are found, and what they do to texts, pairs and batches, against the tokenizers library.

use lathe_text::{DataSpec, Specials, Tokenizer, Words, prepare};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const FOLDERS: [&str; 4] = ["bert", "llama", "roberta", "t5"];

fn fixture(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/fixtures/specials")).join(name)
}

fn load(name: &str) -> Tokenizer {
    Tokenizer::load(&fixture(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn cases(name: &str) -> Value {
    let text = fs::read_to_string(fixture(name).join("cases.json")).expect("the fixture is there");
    serde_json::from_str(&text).expect("JSON")
}

/// A fixture's `tokenizer.json` with other files beside it.
fn folder(name: &str, files: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    fs::copy(fixture(name).join("tokenizer.json"), dir.path().join("tokenizer.json")).expect("copied");
    for (name, text) in files {
        fs::write(dir.path().join(name), text).expect("written");
    }
    dir
}

fn specials(dir: &TempDir) -> Specials {
    Tokenizer::load(dir.path()).expect("loads").specials().clone()
}

/// Tokens that make a word stand together, by the marks of a vocabulary or by letters.
#[test]
fn tokens_make_words() {
    let text = "the lazy dog, and they";
    let count = |tokenizer: &Tokenizer| {
        let (ids, words) = (tokenizer.encode(text).unwrap(), Words::of(tokenizer));
        1 + ids.windows(2).filter(|pair| !words.joins(pair[0], pair[1])).count()
    };
    // A comma is a word of its own in WordPiece, and goes on with one where words begin with spaces.
    for (name, expected) in FOLDERS.into_iter().zip([6, 5, 5, 5]) {
        assert_eq!(count(&load(name)), expected, "{name}");
    }
    assert_eq!(count(&Tokenizer::Bytes), 10);
    // Byte-level BPE has headings of Markdown, which are no marks.
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("tokenizer.json");
    let vocab = json!({"t": 0, "h": 1, "\u{120}": 2, "#": 3, "##": 4, "###": 5, "th": 6, "\u{120}th": 7});
    let merges = ["# #", "## #", "t h", "\u{120} th"];
    let level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    let text = json!({"version": "1.0", "added_tokens": [], "pre_tokenizer": level, "decoder": level,
        "model": {"type": "BPE", "vocab": vocab, "merges": merges}});
    fs::write(&file, text.to_string()).unwrap();
    let bpe = Tokenizer::open(&file).unwrap();
    let (ids, words) = (bpe.encode("th th###").unwrap(), Words::of(&bpe));
    assert_eq!(ids, [6, 7, 5]);
    assert!(!words.joins(6, 7) && words.joins(7, 5));
}

fn as_json(specials: &Specials) -> Value {
    let Specials { bos, eos, pad, unk, cls, sep, mask, .. } = specials;
    json!({"bos": bos, "eos": eos, "pad": pad, "unk": unk, "cls": cls, "sep": sep, "mask": mask})
}

#[test]
fn special_tokens_are_those_of_transformers() {
    for name in FOLDERS {
        assert_eq!(as_json(load(name).specials()), cases(name)["specials"], "{name}");
    }
    assert_eq!(load("llama").specials().stop, [2]);
    assert_eq!(Tokenizer::Bytes.specials(), &Specials::NONE);
}

#[test]
fn the_tokenizer_alone_names_most_of_them() {
    for (name, expected) in [
        ("bert", cases("bert")["specials"].clone()),
        ("llama", cases("llama")["specials"].clone()),
        ("t5", cases("t5")["specials"].clone()),
        // Its post-processor says CLS and SEP, the usual names say BOS and EOS: the same tokens.
        ("roberta", cases("roberta")["specials"].clone()),
    ] {
        assert_eq!(as_json(&specials(&folder(name, &[]))), expected, "{name}");
    }
    // A template, as newer BERTs have it; and a token before the text under another name.
    let change = |name: &str, from: &str, to: &str| {
        let dir = folder(name, &[]);
        let path = dir.path().join("tokenizer.json");
        let mut file: Value = serde_json::from_slice(&fs::read(&path).expect("is there")).expect("JSON");
        file["post_processor"] = json!({
            "type": "Sequence", "processors": [{"type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": from, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                    {"SpecialToken": {"id": to, "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {from: {"id": from, "ids": [2], "tokens": [from]},
                    to: {"id": to, "ids": [3], "tokens": [to]}}}]});
        fs::write(&path, file.to_string()).expect("written");
        specials(&dir)
    };
    let bert = change("bert", "[CLS]", "[SEP]");
    assert_eq!((bert.bos, bert.cls, bert.sep), (None, Some(2), Some(3)));
    let odd = change("llama", "<begin>", "<end>");
    assert_eq!((odd.bos, odd.cls, odd.sep), (Some(2), None, None));
}

#[test]
fn files_are_asked_in_order() {
    let named = ("tokenizer_config.json", r#"{"bos_token": {"__type": "AddedToken", "content": "<unk>"}}"#);
    let map = ("special_tokens_map.json", r#"{"bos_token": "</s>", "mask_token": {"content": "<s>"}}"#);
    let generation = ("generation_config.json", r#"{"bos_token_id": 5, "eos_token_id": [7, 8, 2], "pad_token_id": 9}"#);
    let config = ("config.json", r#"{"bos_token_id": 6, "eos_token_id": 10, "pad_token_id": -1, "vocab_size": 340}"#);
    let all = specials(&folder("llama", &[named, map, generation, config]));
    assert_eq!((all.bos, all.eos, all.pad, all.mask), (Some(0), Some(7), Some(9), Some(1)));
    assert_eq!(all.stop, [7, 8, 2]);
    let later = specials(&folder("llama", &[generation, config]));
    assert_eq!((later.bos, later.eos, later.pad), (Some(5), Some(7), Some(9)));
    let last = specials(&folder("llama", &[config]));
    assert_eq!((last.bos, last.eos, last.pad, last.stop), (Some(6), Some(10), None, vec![10]));
    // Null by name says that there is none; by id it says nothing, and so do tokens that are not there.
    let null = ("tokenizer_config.json", r#"{"bos_token": null, "eos_token": "<nowhere>"}"#);
    let dir = folder(
        "llama",
        &[null, ("config.json", r#"{"bos_token_id": 6, "eos_token_id": 99999, "pad_token_id": null}"#)],
    );
    let none = specials(&dir);
    assert_eq!((none.bos, none.eos, none.pad, none.stop), (None, Some(2), None, vec![2]));
}

#[test]
fn malformed_files_are_errors_that_name_them() {
    for (file, text, expected) in [
        ("tokenizer_config.json", "{", "tokenizer_config.json: found EOF"),
        ("special_tokens_map.json", "[]", "special_tokens_map.json: found invalid type: sequence"),
        ("tokenizer_config.json", r#"{"bos_token": 1}"#, "tokenizer_config.json, bos_token: found 1; expected a token"),
        ("tokenizer_config.json", r#"{"pad_token": {"id": 1}}"#, r#"tokenizer_config.json, pad_token: found {"id":1}"#),
        ("generation_config.json", r#"{"eos_token_id": ["a"]}"#, r#"eos_token_id: found "a"; expected the id"#),
        ("config.json", r#"{"eos_token_id": -7}"#, "config.json, eos_token_id: found -7; expected the id of a token"),
        ("config.json", r#"{"bos_token_id": 1.5}"#, "config.json, bos_token_id: found 1.5"),
        ("config.json", "\u{1}", "config.json: found expected value"),
    ] {
        let dir = folder("llama", &[(file, text)]);
        let error = Tokenizer::load(dir.path()).expect_err(text).to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn what_lay_beside_is_saved_beside() {
    let named = ("tokenizer_config.json", "{\"bos_token\":   \"</s>\", \"other\": [1,\n2]}");
    let generation = ("generation_config.json", r#"{"temperature": 0.5, "eos_token_id": [2, 7]}"#);
    let config = ("config.json", r#"{"bos_token_id": 6, "pad_token_id": 9}"#);
    let out = tempfile::tempdir().expect("a folder");
    let save = |files: &[(&str, &str)]| {
        let tokenizer = Tokenizer::load(folder("llama", files).path()).expect("loads");
        tokenizer.save(out.path()).expect("saves");
        assert_eq!(Tokenizer::load(out.path()).expect("loads").specials(), tokenizer.specials());
    };
    let read = |name: &str| fs::read_to_string(out.path().join(name)).expect("is there");
    save(&[named, generation]);
    assert_eq!((read(named.0), read(generation.0)), (named.1.into(), generation.1.into()));
    assert!(!out.path().join("special_tokens_map.json").exists() && !out.path().join("config.json").exists());
    // What only the model's file said moves.
    save(&[named, generation, config]);
    let moved: Value = serde_json::from_str(&read(generation.0)).expect("JSON");
    assert_eq!(moved, json!({"temperature": 0.5, "eos_token_id": [2, 7], "pad_token_id": 9}));
    assert_eq!(read(named.0), named.1);
    fs::remove_file(out.path().join(generation.0)).expect("was there");
    fs::remove_file(out.path().join(named.0)).expect("was there");
    save(&[config]);
    let made: Value = serde_json::from_str(&read(generation.0)).expect("JSON");
    assert_eq!(made, json!({"bos_token_id": 6, "pad_token_id": 9}));
}

/// What another tokenizer left in the folder is not taken for this one's.
#[test]
fn prepared_data_keeps_its_own_files() {
    let dir =
        folder("llama", &[("tokenizer_config.json", r#"{"bos_token": "</s>"}"#), ("text", "the cat sat on the mat")]);
    let (out, path) = (dir.path().join("out"), |name: &str| dir.path().join(name).to_string_lossy().into_owned());
    let run = |tokenizer: &str| {
        let tokenizer = tokenizer.parse().expect("a tokenizer");
        let prepared =
            prepare(&DataSpec { data: path("text"), valid: None, tokenizer, documents: false }, &out, &|_, _, _| {});
        let bos = prepared.expect("prepares").tokenizer.specials().bos;
        assert_eq!(Tokenizer::load(&out).expect("loads").specials().bos, bos);
        (bos, out.join("tokenizer_config.json").exists())
    };
    assert_eq!(run(&path("tokenizer.json")), (Some(2), true));
    assert_eq!(run("bpe:256"), (None, false));
    fs::write(dir.path().join("tokenizer_config.json"), r#"{"bos_token": "<unk>"}"#).expect("written");
    assert_eq!(run(&path("tokenizer.json")), (Some(0), true));
    fs::remove_file(dir.path().join("tokenizer_config.json")).expect("was there");
    assert_eq!(run(&path("tokenizer.json")), (Some(1), false));
    assert_eq!(run("bytes"), (None, false));
}

fn numbers<T: TryFrom<u64>>(value: &Value) -> Vec<Option<T>> {
    let list = value.as_array().expect("a list");
    list.iter().map(|value| value.as_u64().and_then(|number| number.try_into().ok())).collect()
}

fn ids(value: &Value) -> Vec<u32> {
    numbers(value).into_iter().map(|id| id.expect("a number")).collect()
}

#[test]
fn texts_and_pairs_are_those_of_the_library() {
    for name in FOLDERS {
        let tokenizer = load(name);
        let cases = cases(name);
        let cases = cases["cases"].as_array().expect("a list");
        assert_eq!(cases.len(), 102);
        for case in cases {
            let max_len = case["max_len"].as_u64().map(|len| len as usize);
            let a = case["a"].as_str().expect("a text");
            let encoding = match case["b"].as_str() {
                None => tokenizer.encode_with_specials(a, max_len),
                Some(b) => tokenizer.encode_pair(a, b, max_len),
            };
            let encoding = encoding.unwrap_or_else(|error| panic!("{name}, {case}: {error}"));
            assert_eq!(encoding.ids, ids(&case["ids"]), "{name}, {case}");
            assert_eq!(encoding.segments, ids(&case["segments"]), "{name}, {case}");
            assert_eq!(encoding.texts, numbers(&case["texts"]), "{name}, {case}");
            assert!(
                max_len.is_none_or(|most| encoding.ids.len() <= most) && encoding.offsets.len() == encoding.ids.len()
            );
            let texts = [a, case["b"].as_str().unwrap_or_default()];
            for (text, &(start, end)) in encoding.texts.iter().zip(&encoding.offsets) {
                assert!(text.map_or(end == 0, |text| texts[text as usize].get(start..end).is_some()), "{name}, {case}");
            }
        }
    }
}

#[test]
fn batches_are_filled_up_as_by_the_library() {
    for name in FOLDERS {
        let (tokenizer, expected) = (load(name), &cases(name)["batch"]);
        let texts = expected["texts"].as_array().expect("a list");
        let encode = |pair: &Value| match (pair[0].as_str().expect("a text"), pair[1].as_str()) {
            (a, None) => tokenizer.encode_with_specials(a, None).expect("encodes"),
            (a, Some(b)) => tokenizer.encode_pair(a, b, None).expect("encodes"),
        };
        let batch: Vec<_> = texts.iter().map(encode).collect();
        let padded = tokenizer.pad(&batch);
        let flat = |key: &str| expected[key].as_array().expect("rows").iter().flat_map(ids).collect::<Vec<_>>();
        assert_eq!((padded.batch, padded.len), (3, expected["ids"][0].as_array().expect("a row").len()));
        assert_eq!((padded.ids, padded.mask, padded.segments), (flat("ids"), flat("mask"), flat("segments")), "{name}");
        assert_eq!(tokenizer.pad(&[]).len, 0);
    }
}

#[test]
fn lengths_and_ids_that_cannot_be_are_errors() {
    let bert = load("bert");
    assert_eq!(bert.encode_pair("the dog", "the dog", Some(3)).expect("all special").ids, [2, 3, 3]);
    let error = bert.encode_pair("the dog", "the dog", Some(2)).expect_err("too short").to_string();
    assert_eq!(error, "max_len: found 2; expected at least 3, for the special tokens");
    assert!(bert.encode_with_specials("the dog", Some(1)).is_err());
    let dir = folder("bert", &[]);
    let path = dir.path().join("tokenizer.json");
    let text = fs::read_to_string(&path).expect("is there");
    let mut file: Value = serde_json::from_str(&text).expect("JSON");
    file["post_processor"]["cls"][1] = json!(4_000_000);
    fs::write(&path, file.to_string()).expect("written");
    let tokenizer = Tokenizer::load(dir.path()).expect("loads");
    assert_eq!(tokenizer.specials().cls, Some(2), "by its name");
    let error = tokenizer.encode_with_specials("the dog", None).expect_err("no such token").to_string();
    assert!(error.contains("found the special token 4000000; expected tokens below"), "{error}");
}

/// Windows of a long second text are, put together, what there is without a limit.
#[test]
fn windows_have_all_of_a_long_text() {
    let bert = load("bert");
    let context = "the dog saw the dog and the dog saw the cat and the dog ".repeat(4);
    let whole = bert.encode_pair("the dog", &context, None).expect("encodes");
    let tokens = |encoding: &lathe_text::Encoding| -> Vec<(u32, (usize, usize))> {
        let own = (0..encoding.ids.len()).filter(|&i| encoding.texts[i] == Some(1));
        own.map(|i| (encoding.ids[i], encoding.offsets[i])).collect()
    };
    let (all, first) = (tokens(&whole), whole.texts.iter().filter(|text| **text == Some(0)).count());
    let room = 20 - first - 3;
    let windows = bert.encode_windows("the dog", &context, 20, 4).expect("encodes");
    assert!(windows.len() > 2);
    for (i, window) in windows.iter().enumerate() {
        let begin = i * (room - 4);
        assert_eq!(tokens(window), all[begin..all.len().min(begin + room)], "window {i}");
        assert_eq!((window.ids[0], window.texts[0], window.ids.last()), (2, None, Some(&3)));
        assert_eq!(window.segments.iter().filter(|&&segment| segment == 1).count(), tokens(window).len() + 1);
    }
    assert_eq!(windows.last().map(|window| *tokens(window).last().expect("some")), all.last().copied());
    assert!(bert.encode_windows("the dog", &context, first + 3, 4).is_err());
}
