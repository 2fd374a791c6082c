//! Tokenizers inside GGUF files give the tokens of llama.cpp (`oracles/gguf_tokenizers.py`), can be saved, and are errors
//! where they are wrong.

use lathe_gguf::{Array, Gguf, Value};
use lathe_text::Tokenizer;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

type Case = (String, Vec<u32>);

/// What the oracle found.
#[derive(serde::Deserialize)]
struct Cases {
    pieces: Vec<Case>,
    /// By pre-tokenizer; where a text is missing, GPT-2's tokens.
    bytes: BTreeMap<String, Vec<Case>>,
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures/gguf").join(name)
}

fn cases() -> Cases {
    serde_json::from_slice(&std::fs::read(fixture("cases.json")).unwrap()).unwrap()
}

/// A file with some keys changed, and some left out.
fn changed(name: &str, keys: &[(&str, Option<Value>)]) -> (TempDir, PathBuf) {
    let file = Gguf::open(&fixture(name)).unwrap();
    let mut all: BTreeMap<&str, Value> = file.keys().map(|(key, value)| (key, value.clone())).collect();
    for (key, value) in keys {
        match value {
            Some(value) => all.insert(key, value.clone()),
            None => all.remove(key),
        };
    }
    let all: Vec<_> = all.iter().map(|(key, value)| (*key, value)).collect();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    lathe_gguf::write(&mut std::fs::File::create(&path).unwrap(), &all, &[]).unwrap();
    (dir, path)
}

fn key(name: &str) -> String {
    format!("tokenizer.ggml.{name}")
}

#[test]
fn pieces_have_the_tokens_of_sentencepiece() {
    let tokenizer = Tokenizer::load(&fixture("pieces.gguf")).unwrap();
    let found = cases().pieces;
    assert!(found.len() > 200);
    for (text, ids) in &found {
        assert_eq!(tokenizer.encode(text).unwrap(), *ids, "{text:?}");
        assert_eq!(tokenizer.decode(ids), *text, "{text:?}");
    }
    assert_eq!((tokenizer.vocab(), tokenizer.unknown()), (520, Some(0)));
    let specials = tokenizer.specials();
    assert_eq!((specials.bos, specials.eos, specials.unk, &*specials.stop), (Some(1), Some(2), Some(0), &[2][..]));
    // BOS stands before a text, unless the file says otherwise.
    let first = |tokenizer: &Tokenizer| tokenizer.encode_with_specials("the", None).unwrap().ids[0];
    assert_eq!(first(&tokenizer), 1);
    let (_dir, path) = changed("pieces.gguf", &[(&key("add_bos_token"), Some(Value::Bool(false)))]);
    assert_ne!(first(&Tokenizer::open(&path).unwrap()), 1);
    let (_dir, path) = changed("pieces.gguf", &[(&key("add_eos_token"), Some(Value::Bool(true)))]);
    let pair = Tokenizer::open(&path).unwrap().encode_pair("the", "dog", None).unwrap();
    assert_eq!((pair.ids[0], pair.ids.last(), pair.segments.last()), (1, Some(&2), Some(&1)));
}

/// Converters that do not know scores write the same for all; tokens then merge in their own order, which is the same.
#[test]
fn pieces_without_scores_merge_in_their_order() {
    let scores = Value::Array(Array::F32(vec![-1000.0; 520]));
    let (_dir, path) = changed("pieces.gguf", &[(&key("scores"), Some(scores))]);
    let tokenizer = Tokenizer::open(&path).unwrap();
    for (text, ids) in cases().pieces {
        assert_eq!(tokenizer.encode(&text).unwrap(), ids, "{text:?}");
    }
}

#[test]
fn bytes_have_the_tokens_of_llama_cpp_with_every_pre_tokenizer() {
    let cases = cases();
    let base = &cases.bytes["gpt-2"];
    assert!(base.len() > 200 && cases.bytes.len() == 7);
    for (pre, other) in &cases.bytes {
        let (_dir, path) = changed("bytes.gguf", &[(&key("pre"), Some(Value::Text(pre.clone())))]);
        let tokenizer = Tokenizer::open(&path).unwrap();
        let other: HashMap<&str, &[u32]> = other.iter().map(|(text, ids)| (&**text, &**ids)).collect();
        for (text, ids) in base {
            let ids = other.get(&**text).copied().unwrap_or(ids);
            assert_eq!(tokenizer.encode(text).unwrap(), ids, "{pre}: {text:?}");
            assert_eq!(tokenizer.decode(ids), *text, "{pre}: {text:?}");
        }
        // Llama 3's begin with BOS, where no key says otherwise.
        let begins = tokenizer.encode_with_specials("the", None).unwrap().ids[0] == tokenizer.specials().bos.unwrap();
        assert_eq!(begins, pre == "llama-bpe", "{pre}");
    }
    // Without a name, the default's.
    let (_dir, path) = changed("bytes.gguf", &[(&key("pre"), None)]);
    let tokenizer = Tokenizer::open(&path).unwrap();
    for (text, ids) in &cases.bytes["default"] {
        assert_eq!(tokenizer.encode(text).unwrap(), *ids, "{text:?}");
    }
}

/// What is saved is a tokenizer.json that says the same, with the special tokens and the template beside it.
#[test]
fn saved_tokenizers_are_the_same() {
    let cases = cases();
    for (name, cases) in [("pieces.gguf", &cases.pieces), ("bytes.gguf", &cases.bytes["gpt-2"])] {
        let tokenizer = Tokenizer::load(&fixture(name)).unwrap();
        let dir = tempfile::tempdir().unwrap();
        tokenizer.save(dir.path()).unwrap();
        let again = Tokenizer::load(dir.path()).unwrap();
        assert_eq!(again.specials(), tokenizer.specials());
        for (text, ids) in cases {
            assert_eq!(again.encode(text).unwrap(), *ids);
        }
    }
    let tokenizer = Tokenizer::load(&fixture("bytes.gguf")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    tokenizer.save(dir.path()).unwrap();
    let end = tokenizer.vocab() - 3;
    assert_eq!((tokenizer.specials().eos, &*tokenizer.specials().stop), (Some(end), &[end, end + 2][..]));
    let config = std::fs::read_to_string(dir.path().join("tokenizer_config.json")).unwrap();
    let config: serde_json::Value = serde_json::from_str(&config).unwrap();
    assert_eq!((&config["chat_template"], &config["bos_token"]), (&"{{ messages }}".into(), &"<|endoftext|>".into()));
}

#[test]
fn wrong_tokenizers_are_named() {
    let texts = |texts: &[&str]| Value::Array(Array::Text(texts.iter().map(|text| text.to_string()).collect()));
    let text = |text: &str| Some(Value::Text(text.into()));
    for (name, keys, expected) in [
        ("bytes.gguf", vec![("model", text("bert"))], "model`: found `bert`; expected llama or gpt2"),
        ("bytes.gguf", vec![("model", None)], "model`: found nothing; expected llama or gpt2"),
        ("bytes.gguf", vec![("pre", text("viking"))], "pre`: found `viking`; expected default, falcon, gpt-2"),
        ("bytes.gguf", vec![("pre", Some(Value::U8(1)))], "pre`: found a value of another type; expected a text"),
        ("bytes.gguf", vec![("merges", None)], "merges`: found nothing; expected a list of texts"),
        ("bytes.gguf", vec![("merges", Some(texts(&["ab"])))], "merges`: found `ab`; expected two tokens with a space"),
        ("bytes.gguf", vec![("tokens", None)], "tokens`: found nothing; expected a list of texts"),
        ("bytes.gguf", vec![("tokens", Some(texts(&[])))], "tokens`: found none; expected at least one"),
        (
            "bytes.gguf",
            vec![("tokens", Some(texts(&["a", "b", "a"])))],
            "tokens`: found `a` as 0 and as 2; expected every",
        ),
        (
            "bytes.gguf",
            vec![("bos_token_id", Some(Value::U32(9999)))],
            "bos_token_id`: found 9999; expected a token below",
        ),
        ("bytes.gguf", vec![("eot_token_id", Some(Value::I32(-7)))], "eot_token_id`: found -7; expected a token below"),
        ("pieces.gguf", vec![("scores", None)], "scores`: found nothing; expected 520 numbers, one for each token"),
        (
            "pieces.gguf",
            vec![("scores", Some(Value::Array(Array::F32(vec![1.0]))))],
            "scores`: found a list of 1; expected 520",
        ),
        ("pieces.gguf", vec![("token_type", Some(texts(&["a"])))], "token_type`: found a list of 1; expected 520"),
        (
            "pieces.gguf",
            vec![("add_bos_token", text("yes"))],
            "add_bos_token`: found a value of another type; expected true",
        ),
    ] {
        let names: Vec<_> = keys.iter().map(|(name, value)| (key(name), value.clone())).collect();
        let keys: Vec<_> = names.iter().map(|(name, value)| (&**name, value.clone())).collect();
        let (_dir, path) = changed(name, &keys);
        let error = Tokenizer::open(&path).unwrap_err().to_string();
        let place = format!("{}, key `tokenizer.ggml.{expected}", path.display());
        assert!(error.starts_with(&place), "{error}\n{place}");
    }
    let missing = fixture("missing.gguf");
    assert!(Tokenizer::open(&missing).unwrap_err().to_string().starts_with(&format!("{}: ", missing.display())));
    // A merge of what is no token is the library's to refuse.
    let (_dir, path) = changed("bytes.gguf", &[(&key("merges"), Some(texts(&["zz yy"])))]);
    let error = Tokenizer::open(&path).unwrap_err().to_string();
    assert!(error.contains("model.gguf") && error.contains("zz"), "{error}");
}

/// Lists with anything in them give a tokenizer or an error.
#[test]
fn damaged_lists_never_panic() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for name in ["pieces.gguf", "bytes.gguf"] {
        let whole = std::fs::read(fixture(name)).unwrap();
        for _ in 0..150 {
            let mut bytes = whole.clone();
            for _ in 0..rng.random_range(1..5) {
                let at = rng.random_range(24..bytes.len());
                bytes[at] = rng.random();
            }
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("model.gguf");
            std::fs::write(&path, bytes).unwrap();
            match Tokenizer::open(&path) {
                Ok(tokenizer) => drop(tokenizer.encode("The dog's 12 naïve <s>  ▁ 🙂\n")),
                Err(error) => assert!(error.to_string().contains("model.gguf"), "{error}"),
            }
        }
    }
}

/// A tokenizer in a file of its own, as exports write it.
fn written(tokenizer: &Tokenizer, vocab: u32) -> Result<Tokenizer, lathe_text::Error> {
    let keys = tokenizer.gguf_keys(vocab)?;
    let keys: Vec<_> = keys.iter().map(|(key, value)| (&**key, value)).collect();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    lathe_gguf::write(&mut std::fs::File::create(&path).unwrap(), &keys, &[]).unwrap();
    Tokenizer::load(&path)
}

#[test]
fn what_is_written_gives_the_same_tokens() {
    let pieces = Tokenizer::load(&fixture("pieces.gguf")).unwrap();
    let again = written(&pieces, pieces.vocab() + 8).unwrap();
    assert_eq!((again.vocab(), again.specials()), (pieces.vocab() + 8, pieces.specials()));
    for (text, ids) in &cases().pieces {
        assert_eq!(again.encode(text).unwrap(), *ids, "{text:?}");
    }
    // Bytes: as many tokens as bytes.
    let bytes = written(&Tokenizer::Bytes, 256).unwrap();
    for text in ["plain", "naïve\n\t 日本 \u{0}\u{7f}"] {
        assert_eq!(bytes.encode(text).unwrap(), Tokenizer::Bytes.encode(text).unwrap());
    }
    let error = pieces.gguf_keys(100).unwrap_err().to_string();
    assert!(error.contains("520 tokens for a model of 100"), "{error}");
}

#[test]
fn every_way_to_cut_texts_is_written_by_its_name() {
    for (name, found) in &cases().bytes {
        let (_dir, path) = changed("bytes.gguf", &[(&key("pre"), Some(Value::Text(name.clone())))]);
        let tokenizer = Tokenizer::load(&path).unwrap();
        let again = written(&tokenizer, tokenizer.vocab()).unwrap();
        for (text, ids) in found {
            assert_eq!(again.encode(text).unwrap(), *ids, "{name}: {text:?}");
        }
    }
}
