//! Tokenizers that go on with some of their tokens: what used these alone is encoded as before, and all else still is.

use lathe_text::{DataSpec, Pruned, Tokenizer, prepare};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Map, Value, json};
use std::collections::HashSet;
use std::path::Path;

const TEXTS: [&str; 8] = [
    "",
    " ",
    "The lazy dog.",
    "She said: \"it is the best part\" 🙂🏳️‍🌈",
    "naïve café — 日本語のテキスト, русский, عربى, हिन्दी",
    "x = [1, 2];\n\tfor (;;) { y += 3.14e-10 }\r\n",
    "zzqqxx ZEBRA \u{0}\u{1}\u{7f} \u{2581} \u{fffd}",
    "  two  spaces   and\n\nlines ",
];

fn strings(tokenizer: &Tokenizer, ids: &[u32]) -> Vec<String> {
    ids.iter().map(|&id| tokenizer.token(id).expect("a token of the vocabulary")).collect()
}

/// What has to hold for any text, whatever was used.
fn check(whole: &Tokenizer, pruned: &Pruned, text: &str, what: &str) -> bool {
    let Pruned { tokenizer, tokens } = pruned;
    let (before, after) = (whole.encode(text).unwrap(), tokenizer.encode(text).unwrap());
    assert!(after.iter().all(|&id| (id as usize) < tokens.len()), "{what}: {text:?}");
    assert_eq!(tokenizer.decode(&after), whole.decode(&before), "{what}: {text:?}");
    let stays = before.iter().all(|id| tokens.contains(id));
    if stays {
        assert_eq!(strings(tokenizer, &after), strings(whole, &before), "{what}: {text:?}");
        let old: Vec<u32> = after.iter().map(|&id| tokens[id as usize]).collect();
        assert_eq!(old, before, "{what}: {text:?}");
    }
    stays
}

fn keep(whole: &Tokenizer, text: &str) -> Pruned {
    let pruned = whole.keep(whole.encode(text).unwrap()).unwrap();
    assert_eq!(pruned.tokenizer.vocab() as usize, pruned.tokens.len());
    assert!(pruned.tokens.is_sorted());
    pruned
}

#[test]
fn tokenizers_of_every_kind_go_on() {
    for name in ["bert", "llama", "roberta", "t5"] {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/fixtures/specials")).join(name);
        let whole = Tokenizer::load(&folder).unwrap();
        let used = "The dog is lazy and the dog ran home. The end.";
        let pruned = keep(&whole, used);
        assert!(pruned.tokens.len() < whole.vocab() as usize, "{name}: {}", pruned.tokens.len());
        assert!(check(&whole, &pruned, used, name));
        for text in TEXTS {
            // Without bytes, what was no character of the vocabulary is unknown, as before.
            check(&whole, &pruned, text, name);
        }
        // The same special tokens, under their new ids, and around texts.
        let (old, new) = (whole.specials(), pruned.tokenizer.specials());
        let ids = |s: &lathe_text::Specials| [s.bos, s.eos, s.pad, s.unk, s.cls, s.sep, s.mask];
        for (old, new) in ids(old).into_iter().zip(ids(new)) {
            assert_eq!(new.map(|id| pruned.tokens[id as usize]), old, "{name}");
        }
        let around = |tokenizer: &Tokenizer| {
            let encoding = tokenizer.encode_with_specials("the dog", None).unwrap();
            strings(tokenizer, &encoding.ids)
        };
        assert_eq!(around(&pruned.tokenizer), around(&whole), "{name}");
        // What is saved is it.
        let dir = tempfile::tempdir().unwrap();
        pruned.tokenizer.save(dir.path()).unwrap();
        let again = Tokenizer::load(dir.path()).unwrap();
        assert_eq!((again.json(), again.specials()), (pruned.tokenizer.json(), new), "{name}");
        // Once more with all that is there changes nothing.
        let same = pruned.tokenizer.keep(0..pruned.tokenizer.vocab()).unwrap();
        assert_eq!(same.tokenizer.json(), pruned.tokenizer.json(), "{name}");
    }
}

#[test]
fn files_beside_name_the_new_ids() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/fixtures/specials/llama"));
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(folder.join("tokenizer.json"), dir.path().join("tokenizer.json")).unwrap();
    // A token of the text that also ends one, and one that the model's file alone names.
    let [end, pad] = [339, 335];
    let decoder =
        json!({"bos_token": "<s>", "added_tokens_decoder": {"1": {"content": "<s>"}, "339": {"content": "end"}}});
    std::fs::write(dir.path().join("tokenizer_config.json"), decoder.to_string()).unwrap();
    std::fs::write(dir.path().join("generation_config.json"), json!({"eos_token_id": [2, end]}).to_string()).unwrap();
    std::fs::write(dir.path().join("config.json"), json!({"pad_token_id": pad}).to_string()).unwrap();
    let whole = Tokenizer::load(dir.path()).unwrap();
    let pruned = keep(&whole, "the dog");
    assert!(pruned.tokens.len() < 330);
    let old = |id: &u32| pruned.tokens[*id as usize];
    let specials = pruned.tokenizer.specials();
    assert_eq!(specials.stop.iter().map(old).collect::<Vec<_>>(), [2, end]);
    let out = tempfile::tempdir().unwrap();
    pruned.tokenizer.save(out.path()).unwrap();
    let again = Tokenizer::load(out.path()).unwrap();
    assert_eq!(again.specials(), specials);
    let read =
        |name: &str| -> Value { serde_json::from_slice(&std::fs::read(out.path().join(name)).unwrap()).unwrap() };
    assert_eq!(read("generation_config.json")["eos_token_id"][1].as_u64().map(|id| old(&(id as u32))), Some(end));
    let decoder = read("tokenizer_config.json")["added_tokens_decoder"].clone();
    let by_id =
        |id: u32| decoder[pruned.tokens.iter().position(|&old| old == id).unwrap().to_string()]["content"].clone();
    assert_eq!((by_id(1), by_id(end)), (json!("<s>"), json!("end")));
}

#[test]
fn merges_learnt_from_a_text_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let spec =
        DataSpec { data: "builtin:0.1".into(), valid: None, tokenizer: "bpe:700".parse().unwrap(), documents: false };
    let whole = prepare(&spec, dir.path(), &|_, _, _| {}).unwrap().tokenizer;
    let source = lathe_text::Source::open("builtin:0.1").unwrap().beginning(100_000).unwrap();
    let lines: Vec<&str> = source.lines().filter(|line| !line.is_empty()).collect();
    let pruned = keep(&whole, lines[0]);
    assert!(pruned.tokens.len() > 256 && pruned.tokens.len() < 500, "{}", pruned.tokens.len());
    assert!(check(&whole, &pruned, lines[0], "the line itself"));
    let words: Vec<&str> = lines.iter().flat_map(|line| line.split(' ')).collect();
    let same = words.iter().filter(|word| check(&whole, &pruned, &format!(" {word}"), "a word")).count();
    assert!(same > 0 && same < words.len());
    for text in TEXTS {
        check(&whole, &pruned, text, "any text");
        assert_eq!(pruned.tokenizer.decode(&pruned.tokenizer.encode(text).unwrap()), text);
    }
}

/// A vocabulary of random strings as SentencePiece's are written: every split of a token into two is a merge, in any
/// order.
fn random_bpe(rng: &mut ChaCha8Rng) -> Tokenizer {
    let mut tokens: Vec<String> = vec!["<unk>".into()];
    tokens.extend((0..=255).map(|byte| format!("<0x{byte:02X}>")));
    let letters = ["\u{2581}", "a", "b", "c", "é"];
    tokens.extend(letters.map(String::from));
    for _ in 0..60 {
        let pick = |rng: &mut ChaCha8Rng| 257 + rng.random_range(0..tokens.len() - 257);
        let joined = tokens[pick(rng)].clone() + &tokens[pick(rng)];
        if joined.chars().count() <= 7 && !tokens.contains(&joined) {
            tokens.push(joined);
        }
    }
    let known: HashSet<&String> = tokens.iter().collect();
    let mut merges: Vec<[String; 2]> = Vec::new();
    for token in &tokens[257..] {
        let splits = token.char_indices().skip(1).map(|(at, _)| token.split_at(at));
        let splits = splits.map(|(a, b)| [a.to_string(), b.to_string()]);
        merges.extend(splits.filter(|[a, b]| known.contains(a) && known.contains(b)));
    }
    for i in (1..merges.len()).rev() {
        merges.swap(i, rng.random_range(0..=i));
    }
    let vocab: Map<String, Value> = tokens.iter().cloned().zip((0u32..).map(Value::from)).collect();
    let space = |from: &str, to: &str| json!({"type": "Replace", "pattern": {"String": from}, "content": to});
    let file = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "pre_tokenizer": null,
        "post_processor": null, "normalizer": space(" ", "\u{2581}"),
        "decoder": {"type": "Sequence", "decoders": [space("\u{2581}", " "), {"type": "ByteFallback"}, {"type": "Fuse"}]},
        "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
            "vocab": vocab, "merges": merges},
    });
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("tokenizer.json"), file.to_string()).unwrap();
    Tokenizer::load(dir.path()).unwrap()
}

#[test]
fn random_merges_go_on() {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let (mut same, mut other) = (0, 0);
    for _ in 0..20 {
        let whole = random_bpe(&mut rng);
        let text = |rng: &mut ChaCha8Rng, len: usize| -> String {
            (0..len).map(|_| [' ', 'a', 'b', 'c', 'é', 'x', '世'][rng.random_range(0..7)]).collect()
        };
        let used = text(&mut rng, 12);
        let pruned = keep(&whole, &used);
        assert!(check(&whole, &pruned, &used, "the text itself"));
        for _ in 0..60 {
            let len = rng.random_range(1..9);
            let text = text(&mut rng, len);
            match check(&whole, &pruned, &text, &used) {
                true => same += 1,
                false => other += 1,
            }
            assert_eq!(pruned.tokenizer.decode(&pruned.tokenizer.encode(&text).unwrap()), text);
        }
    }
    assert!(same > 100 && other > 100, "{same} and {other}");
}

#[test]
fn words_that_are_gone_are_unknown() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("text");
    std::fs::write(&file, "one two three two three three\n".repeat(9)).unwrap();
    let spec = DataSpec {
        data: file.display().to_string(),
        valid: None,
        tokenizer: "word:20".parse().unwrap(),
        documents: false,
    };
    let whole = prepare(&spec, dir.path(), &|_, _, _| {}).unwrap().tokenizer;
    let pruned = keep(&whole, "three one\n");
    let ids = pruned.tokenizer.encode("one two three\n").unwrap();
    let unknown = pruned.tokenizer.token(ids[1]).unwrap();
    assert_eq!((unknown.as_str(), pruned.tokenizer.unknown()), ("<unk>", Some(ids[1])));
    assert!(check(&whole, &pruned, "one three\n", "kept words"));
}

#[test]
fn what_cannot_lose_tokens_is_told() {
    let error = Tokenizer::Bytes.keep([1, 2]).unwrap_err().to_string();
    assert!(error.contains("bytes"), "{error}");
    let dir = tempfile::tempdir().unwrap();
    let file = json!({"version": "1.0", "added_tokens": [], "model": {"type": "BPE", "end_of_word_suffix": "</w>",
        "vocab": {"a": 0, "b</w>": 1, "ab</w>": 2}, "merges": [["a", "b</w>"]]}});
    std::fs::write(dir.path().join("tokenizer.json"), file.to_string()).unwrap();
    let error = Tokenizer::load(dir.path()).unwrap().keep([2]).unwrap_err().to_string();
    assert!(error.contains("end_of_word_suffix"), "{error}");
}
