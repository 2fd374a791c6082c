//! Tokenizer files that were damaged, by chance and by intent: each loads and works, or is an error that names it.

use lathe_text::Error;
use lathe_text::{DataSpec, Tokenizer, prepare};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Map, Value, json};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/fixtures/tokenizer");
const TEXTS: [&str; 6] =
    ["", "the cat sat on the mat", " The café's\n\n<s> 12 ", "[CLS] ünaffable [SEP]", "日本 🙂\u{0}x", "a▁<unk>##b"];

fn vocab<'a>(tokens: impl IntoIterator<Item = &'a str>) -> Map<String, Value> {
    tokens.into_iter().zip(0..).map(|(token, id)| (token.into(), id.into())).collect()
}

fn added(tokens: &[&str]) -> Value {
    let token = |(id, content): (usize, &&str)| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
               "normalized": false, "special": true})
    };
    tokens.iter().enumerate().map(token).collect()
}

fn template(pattern: &str, tokens: &[&str]) -> Value {
    let piece = |(name, type_id): (&str, u32)| match name {
        "A" | "B" => json!({"Sequence": {"id": name, "type_id": type_id}}),
        _ => json!({"SpecialToken": {"id": name, "type_id": type_id}}),
    };
    let pieces = |text: &str| -> Value { text.split(' ').map(|name| piece((name, 0))).collect() };
    let special = |(id, &token): (usize, &&str)| (token.into(), json!({"id": token, "ids": [id], "tokens": [token]}));
    let special: Map<String, Value> = tokens.iter().enumerate().map(special).collect();
    json!({"type": "TemplateProcessing", "single": pieces(pattern), "pair": pieces(&format!("{pattern} B")),
           "special_tokens": special})
}

/// BPE over characters with bytes for the rest, as Llama's.
fn llama() -> Value {
    let bytes: Vec<String> = (0..256).map(|byte| format!("<0x{byte:02X}>")).collect();
    let tokens = ["<unk>", "<s>", "</s>"].into_iter().chain(bytes.iter().map(String::as_str));
    let tokens = tokens.chain("▁ t h e c a s o n m th the at ▁the ▁c ▁cat ▁s ▁sat".split(' '));
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added(&["<unk>", "<s>", "</s>"]),
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "pre_tokenizer": null, "post_processor": template("<s> A", &["<unk>", "<s>", "</s>"]),
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
            "vocab": vocab(tokens),
            "merges": ["t h", "th e", "a t", "▁ the", "▁ c", "▁c at", "▁ s", "▁s at"]}
    })
}

/// WordPiece, as BERT's.
fn bert() -> Value {
    let specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"];
    let tokens = specials.into_iter().chain("the cat sat on mat un ##aff ##able caf ##e ##s 1 ##2 a ##b #".split(' '));
    json!({
        "version": "1.0",
        "truncation": {"max_length": 128, "strategy": "LongestFirst", "stride": 0, "direction": "Right"},
        "padding": {"strategy": {"Fixed": 128}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0,
            "pad_type_id": 0, "pad_token": "[PAD]"},
        "added_tokens": added(&specials),
        "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
            "strip_accents": null, "lowercase": true},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": vocab(tokens)}
    })
}

/// Unigram, as T5's.
fn unigram() -> Value {
    let tokens = "<pad> </s> <unk> ▁ t h e c a s o n m th the at ▁the ▁cat ▁sat".split(' ');
    let scored: Value = tokens.enumerate().map(|(i, token)| json!([token, -0.5 * i as f64])).collect();
    // A trie of 256 empty units, in base64: every character stays as it is.
    let charsmap = format!("AAQA{}=", "A".repeat(1367));
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added(&["<pad>", "</s>", "<unk>"]),
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Precompiled", "precompiled_charsmap": charsmap}, {"type": "NFKC"},
            {"type": "Strip", "strip_left": false, "strip_right": true},
            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "WhitespaceSplit"}, {"type": "Digits", "individual_digits": true},
            {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true}]},
        "post_processor": template("A </s>", &["<pad>", "</s>", "<unk>"]),
        "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true},
        "model": {"type": "Unigram", "unk_id": 2, "vocab": scored, "byte_fallback": false}
    })
}

/// Byte-level BPE: GPT-2's files, and merges and words that are learnt here.
fn trained(dir: &Path) -> Vec<Value> {
    let text = TEXTS.concat().repeat(30);
    fs::write(dir.join("text"), text).expect("written");
    let learn = |tokenizer: &str| {
        let data = dir.join("text").to_string_lossy().into_owned();
        let spec = DataSpec { data, valid: None, tokenizer: tokenizer.parse().expect("a tokenizer"), documents: false };
        prepare(&spec, &dir.join("out"), &|_, _, _| {}).expect("prepares").tokenizer
    };
    let gpt2 = Tokenizer::open(&Path::new(FIXTURES).join("vocab.json")).expect("the fixture loads");
    let tokenizers = [gpt2, learn("bpe:270"), learn("word:12")];
    tokenizers.iter().map(|one| serde_json::from_str(&one.json().expect("JSON")).expect("JSON")).collect()
}

/// Uses a file in every way; how far it got, for the counts.
fn use_all(path: &Path, rng: &mut ChaCha8Rng) -> Result<(), Error> {
    let tokenizer = Tokenizer::open(path)?;
    let vocab = tokenizer.vocab();
    tokenizer.save(path.parent().expect("in a folder"))?;
    let mut decoder = tokenizer.decoder();
    for id in [0, 1, vocab - 1, vocab, u32::MAX, rng.random_range(0..vocab)] {
        tokenizer.token(id);
        decoder.push(id);
    }
    decoder.finish();
    for text in TEXTS {
        let ids = tokenizer.encode(text)?;
        assert!(ids.iter().all(|&id| id < vocab), "{ids:?}");
        tokenizer.try_decode(&ids)?;
    }
    for (a, b) in [(TEXTS[1], TEXTS[2]), (TEXTS[0], TEXTS[3])] {
        let batch = [tokenizer.encode_with_specials(a, Some(8))?, tokenizer.encode_pair(a, b, Some(8))?];
        assert!(tokenizer.pad(&batch).ids.iter().all(|&id| id < vocab));
        tokenizer.document(b.as_bytes(), 4)?;
    }
    let random: Vec<u32> = (0..20).map(|_| rng.random_range(0..vocab)).collect();
    tokenizer.try_decode(&random).map(drop)
}

fn is_named(error: &Error) -> bool {
    let (Error::Data { place, found, expected } | Error::Setting { place, found, expected }) = error else {
        return false;
    };
    !place.is_empty() && !found.is_empty() && !expected.is_empty()
}

/// Every place in a value that holds another.
fn places(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter().map(|item| 1 + places(item)).sum(),
        Value::Object(items) => items.values().map(|item| 1 + places(item)).sum(),
        _ => 0,
    }
}

/// Changes the place of a number in the order of [`places`].
fn change(value: &mut Value, at: &mut usize, rng: &mut ChaCha8Rng) -> bool {
    let odd = |rng: &mut ChaCha8Rng, old: &Value| {
        let values = [
            json!(null),
            json!(0),
            json!(-1),
            json!(1),
            json!(u32::MAX),
            json!(u64::MAX),
            json!(1e300),
            json!(true),
            json!(""),
            json!("é"),
            json!("x"),
            json!("["),
            json!([]),
            json!({}),
            json!([old]),
            json!({"type": old}),
        ];
        values[rng.random_range(0..values.len())].clone()
    };
    match value {
        Value::Array(items) => {
            for i in 0..items.len() {
                if *at == 0 {
                    match rng.random_range(0..4) {
                        0 => drop(items.remove(i)),
                        1 => items.insert(i, items[i].clone()),
                        _ => items[i] = odd(rng, &items[i]),
                    }
                    return true;
                }
                *at -= 1;
                if change(&mut items[i], at, rng) {
                    return true;
                }
            }
        }
        Value::Object(items) => {
            for key in items.keys().cloned().collect::<Vec<_>>() {
                if *at == 0 {
                    let old = items.remove(&key).expect("is there");
                    match rng.random_range(0..4) {
                        0 => {}
                        1 => _ = items.insert(format!("{key}x"), old),
                        _ => _ = items.insert(key, odd(rng, &old)),
                    }
                    return true;
                }
                *at -= 1;
                if items.get_mut(&key).is_some_and(|item| change(item, at, rng)) {
                    return true;
                }
            }
        }
        _ => {}
    }
    false
}

/// A file with one thing wrong, in its bytes or in its values.
fn mutant(file: &Value, rng: &mut ChaCha8Rng) -> Vec<u8> {
    let mut bytes = file.to_string().into_bytes();
    // The vocabulary is most of the file, but what is wrong elsewhere does more.
    let start = if rng.random_bool(0.5) { 0 } else { bytes.len() * 9 / 10 };
    let at = rng.random_range(start..bytes.len());
    match rng.random_range(0..10) {
        0 => bytes[at] ^= 1 << rng.random_range(0..8),
        1 => drop(bytes.drain(at..(at + rng.random_range(1..30)).min(bytes.len()))),
        2 => {
            let Some(digit) = (at..bytes.len()).find(|&i| bytes[i].is_ascii_digit()) else { return bytes };
            let number = ["9", "99999", "4294967295", "4294967296", "-3", "0.5", "1e9"][rng.random_range(0..7)];
            bytes.splice(digit..=digit, number.bytes());
        }
        _ => {
            let mut changed = file.clone();
            // First which part, so that the small ones get their share.
            let parts = changed.as_object_mut().expect("a tokenizer is an object");
            let keys: Vec<String> = parts.keys().cloned().collect();
            let part = parts.get_mut(&keys[rng.random_range(0..keys.len())]).expect("is there");
            match places(part) {
                0 => *part = json!("é"),
                count => {
                    let mut at = rng.random_range(0..count);
                    // Of a long list, rather what is not in it.
                    if count > 40 && rng.random_bool(0.5) {
                        at = rng.random_range(0..8) * (count / 8);
                    }
                    assert!(change(part, &mut at, rng));
                }
            }
            bytes = changed.to_string().into_bytes();
        }
    }
    bytes
}

#[test]
fn damaged_files_are_errors_or_work() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut files = vec![llama(), bert(), unigram()];
    files.extend(trained(dir.path()));
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let (mut worked, mut refused, mut failed) = (0, 0, 0);
    for (kind, file) in files.iter().enumerate() {
        let path = dir.path().join("damaged.json");
        fs::write(&path, file.to_string()).expect("written");
        use_all(&path, &mut rng).unwrap_or_else(|error| panic!("kind {kind}: {error}"));
        for i in 0..200 {
            let bytes = mutant(file, &mut rng);
            fs::write(&path, &bytes).expect("written");
            let result = catch_unwind(AssertUnwindSafe(|| use_all(&path, &mut rng)));
            let text = String::from_utf8_lossy(&bytes);
            match result.unwrap_or_else(|_| panic!("kind {kind}, mutant {i} panics: {text}")) {
                Ok(()) => worked += 1,
                Err(error) => {
                    assert!(is_named(&error), "{error}");
                    let text = error.to_string();
                    failed += usize::from(text.contains("the tokenizers library fails on"));
                    refused += 1;
                }
            }
        }
    }
    // Some of each, or the mutants say nothing.
    assert!(worked > 100 && refused > 100 && failed > 10, "{worked} work, {refused} refused, {failed} of them caught");
}

/// Files that are wrong on purpose. Run again in a process of its own by the next test.
#[test]
fn absurd_files_are_errors_or_work() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let mut check = |name: &str, text: &str| {
        let path = dir.path().join("absurd.json");
        fs::write(&path, text).expect("written");
        let result = use_all(&path, &mut rng);
        if let Err(error) = &result {
            assert!(is_named(error), "{name}: {error}");
        }
        result.map_err(|error| error.to_string())
    };
    let with = |file: Value, pointer: &str, value: Value| {
        let mut file = file;
        *file.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer} is not there")) = value;
        file.to_string()
    };
    for id in [1u64 << 24, u64::from(u32::MAX) - 1, u64::from(u32::MAX)] {
        let error = check("a huge id", &with(bert(), "/model/vocab/cat", json!(id))).expect_err("refused");
        assert!(error.contains(&format!("a token with the id {id}, above 16777215")), "{error}");
    }
    check("an id beyond u32", &with(bert(), "/model/vocab/cat", json!(1u64 << 32))).expect_err("refused");
    check("an id far off", &with(bert(), "/model/vocab/cat", json!(1 << 20))).expect("holes do no harm");
    check("two tokens with an id", &with(bert(), "/model/vocab/cat", json!(7))).expect("one of them is not decoded");
    check("no tokens", &with(bert(), "/model/vocab", json!({}))).expect_err("no unknown token");
    check("merges that are not there", &with(llama(), "/model/merges", json!(["x y"]))).expect_err("refused");
    check("merges without a result", &with(llama(), "/model/merges", json!(["m m"]))).expect_err("refused");
    check("merges of three", &with(llama(), "/model/merges", json!(["t h e"]))).expect_err("refused");
    let _ = check("a merge twice", &with(llama(), "/model/merges", json!(["t h", "t h", "th e", "t h"])));
    // With a prefix, `a` and `##` make `a` again.
    let mut cyclic = llama();
    cyclic["model"]["continuing_subword_prefix"] = json!("##");
    cyclic["model"]["vocab"]["##"] = json!(600);
    cyclic["model"]["vocab"]["####"] = json!(601);
    let _ = check("a cycle", &with(cyclic, "/model/merges", json!(["t ##", "## ##", "## ####"])));
    let mut prefix = llama();
    prefix["model"]["continuing_subword_prefix"] = json!("é▁");
    let _ = check("a prefix that ends inside a character", &prefix.to_string());
    let deep = |open: &str, close: &str, depth: usize| open.repeat(depth) + "1" + &close.repeat(depth);
    for depth in [100, 1000, 200_000] {
        check("nested lists", &deep("[", "]", depth)).expect_err("refused");
        let nested = deep(r#"{"type":"Sequence","decoders":["#, "]}", depth);
        check(
            "nested decoders",
            &llama().to_string().replace(r#""decoder":{"#, &format!(r#""decoder":{nested},"x":{{"#)),
        )
        .expect_err("refused");
    }
    let mut nested = json!({"type": "Fuse"});
    for _ in 0..30 {
        nested = json!({"type": "Sequence", "decoders": [nested]});
    }
    check("decoders within decoders", &with(llama(), "/decoder", nested)).expect("30 are fine");
    let refused = [
        ("/decoder", json!({"type": "Nothing"})),
        ("/decoder", json!(7)),
        ("/pre_tokenizer", json!({"type": "FixedLength", "length": 0})),
        ("/normalizer", json!({"type": "Precompiled", "precompiled_charsmap": "AAAA"})),
        ("/normalizer", json!({"type": "Replace", "pattern": {"Regex": "("}, "content": ""})),
        ("/model", json!({"type": "Unigram", "unk_id": 9, "vocab": [["a", 0.0]]})),
        ("/model", json!(null)),
    ];
    for (pointer, value) in refused {
        let name = format!("{pointer} {value}");
        check(&name, &with(llama(), pointer, value)).expect_err(&name);
    }
    for text in ["", "null", "{}", "[]", "\u{feff}{}", "\0", "nonsense"] {
        check("not a tokenizer", text).expect_err("refused");
    }
    // What can be no file of text.
    fs::write(dir.path().join("raw.json"), [0xff; 100]).expect("written");
    assert!(is_named(&Tokenizer::open(&dir.path().join("raw.json")).expect_err("refused")));
    for (vocab, merges) in [("{", ""), ("{}", ""), (r#"{"a": 0, "b": 1}"#, "a b c\n"), (r#"{"a": 4294967295}"#, "")] {
        fs::write(dir.path().join("vocab.json"), vocab).expect("written");
        fs::write(dir.path().join("merges.txt"), merges).expect("written");
        assert!(is_named(&Tokenizer::open(&dir.path().join("vocab.json")).expect_err(vocab)));
    }
}

#[test]
fn nothing_is_printed_about_panics() {
    let name = "damaged::absurd_files_are_errors_or_work";
    let test = std::env::current_exe().expect("this test");
    let output = Command::new(test).args([name, "--exact", "--nocapture"]).output().expect("runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    assert!(!text.contains("panicked"), "{text}");
}
