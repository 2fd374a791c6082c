//! Text, tokenizers and token files, against transformers' tokenizer, brute force and each other.

use lathe_text::Error;
use lathe_text::language::Language;
use lathe_text::{Chunks, DataSpec, Prepared, Source, Tokenizer, TokenizerSpec, Tokens, encode_source, prepare};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/fixtures/tokenizer");

/// Texts and their tokens, by GPT2TokenizerFast of transformers.
fn cases() -> Vec<(String, Vec<u32>)> {
    let text = fs::read_to_string(Path::new(FIXTURES).join("cases.json")).expect("the fixture is there");
    serde_json::from_str(&text).expect("a list of texts and tokens")
}

fn gpt2() -> Tokenizer {
    Tokenizer::open(&Path::new(FIXTURES).join("vocab.json")).expect("the fixture loads")
}

/// A text of odd pieces, with white space at least every few characters.
fn odd_text(bytes: usize, seed: u64) -> String {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let cases: Vec<String> = cases().into_iter().map(|(text, _)| text).filter(|text| text.len() < 20).collect();
    let spaces = [" ", "  ", "\n", "\n\n", " \n", "\r\n", "\t", "\u{a0}", "\u{3000}", "\n "];
    let mut text = String::new();
    while text.len() < bytes {
        text += &cases[rng.random_range(0..cases.len())];
        text += spaces[rng.random_range(0..spaces.len())];
    }
    text
}

fn no_progress(_: &str, _: u64, _: u64) {}

/// A folder with files in it.
fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    for (name, content) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().expect("in the folder")).expect("a folder");
        fs::write(path, content).expect("written");
    }
    dir
}

fn path(dir: &TempDir, name: &str) -> String {
    dir.path().join(name).to_str().expect("UTF-8").into()
}

fn spec(data: &str, valid: Option<&str>, tokenizer: &str) -> DataSpec {
    let tokenizer = tokenizer.parse().unwrap_or_else(|error| panic!("{tokenizer}: {error}"));
    DataSpec { data: data.into(), valid: valid.map(Into::into), tokenizer, documents: false }
}

/// Prepares a text in a folder of its own.
fn prepared(text: &[u8], tokenizer: &str) -> (TempDir, Prepared) {
    let dir = folder(&[("text", text)]);
    let prepared = prepare(&spec(&path(&dir, "text"), None, tokenizer), &dir.path().join("out"), &no_progress);
    (dir, prepared.unwrap_or_else(|error| panic!("{tokenizer}: {error}")))
}

fn all(tokens: &Tokens) -> Vec<u32> {
    let mut ids = vec![0; tokens.len() as usize];
    tokens.read(0, &mut ids).expect("within the file");
    ids
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("in memory")
}

#[test]
fn gpt2_tokens_are_those_of_transformers() {
    let (quick, library) = (gpt2(), gpt2().without_quick());
    assert_eq!(quick.vocab(), 573);
    for (text, ids) in cases() {
        assert_eq!(quick.encode(&text).expect("encodes"), ids, "{text:?}");
        assert_eq!(library.encode(&text).expect("encodes"), ids, "{text:?}, the library");
        assert_eq!(quick.decode(&ids), text);
    }
}

#[test]
fn saved_tokenizers_load() {
    let dir = tempfile::tempdir().expect("a folder");
    gpt2().save(dir.path()).expect("saves");
    let again = Tokenizer::load(dir.path()).expect("loads");
    assert_eq!(again.vocab(), 573);
    for (text, ids) in cases() {
        assert_eq!(again.encode(&text).expect("encodes"), ids, "{text:?}");
    }
    fs::remove_file(dir.path().join("tokenizer.json")).expect("was there");
    Tokenizer::Bytes.save(dir.path()).expect("nothing to save");
    assert!(!dir.path().join("tokenizer.json").exists());
    assert_eq!(Tokenizer::load(dir.path()).expect("bytes").vocab(), 256);
}

#[test]
fn trained_merges_give_back_any_text() {
    let text = odd_text(20_000, 1);
    let (_dir, Prepared { tokenizer, summary, .. }) = prepared(text.as_bytes(), "bpe:400");
    assert_eq!((tokenizer.vocab(), summary.vocab), (400, 400));
    assert_eq!(summary.trained_on_bytes, summary.train_bytes);
    for text in cases().iter().map(|(text, _)| text).chain([&text, &odd_text(5000, 2)]) {
        let ids = tokenizer.encode(text).expect("encodes");
        assert_eq!(&tokenizer.decode(&ids), text);
        assert!(ids.len() <= text.len());
    }
    assert!(tokenizer.encode(&text).expect("encodes").len() < text.len() * 3 / 4, "it compresses");
    let (_dir, again) = prepared(text.as_bytes(), "bpe:400");
    assert_eq!(tokenizer.json(), again.tokenizer.json(), "the same text gives the same merges");
    let library = again.tokenizer.without_quick();
    assert_eq!(tokenizer.encode(&text).expect("encodes"), library.encode(&text).expect("encodes"));
}

/// As Transformer-XL's vocabulary.py: `line.strip().split() + ["<eos>"]`, the most frequent words first.
#[test]
fn words_are_those_of_transformer_xl() {
    let text = " the cat <unk> sat \n\n the mat , \u{3000} the end\r\nthe cat was new words here one two\n".repeat(10);
    let train: String = text.chars().take(text.chars().count() * 9 / 10).collect();
    let mut counts = BTreeMap::new();
    for word in train.split_whitespace().filter(|&word| word != "<unk>") {
        *counts.entry(word).or_insert(0) -= 1;
    }
    let mut order: Vec<(i32, &str)> = counts.iter().map(|(&word, &count)| (count, word)).collect();
    order.sort();
    let vocab: Vec<&str> = ["<eos>", "<unk>"].into_iter().chain(order.iter().map(|&(_, word)| word)).take(8).collect();
    let id = |word: &str| vocab.iter().position(|&known| known == word).unwrap_or(1) as u32;
    let expected: Vec<u32> = train.lines().flat_map(|line| line.split_whitespace().chain(["<eos>"])).map(id).collect();
    assert_eq!(vocab[2..4], ["the", "cat"], "frequent words come first");

    let (dir, prepared) = prepared(text.as_bytes(), "word:8");
    let ids = all(&prepared.train);
    assert_eq!(ids, expected[..ids.len()]);
    assert!(expected.len() - ids.len() <= 1, "the cut may be within a line");
    assert_eq!(prepared.train.header().unknown, ids.iter().filter(|&&id| id == 1).count() as u64);
    let library = Tokenizer::load(&dir.path().join("out")).expect("loads").without_quick();
    for text in [&text, "a", "\n\n", "", "the<eos>", "<eos> the"] {
        assert_eq!(
            prepared.tokenizer.encode(text).expect("encodes"),
            library.encode(text).expect("encodes"),
            "{text:?}"
        );
    }
    assert_eq!(prepared.tokenizer.decode(&[2, 3, 0, 0, 2, 1, 0]), "the cat\n\nthe <unk>\n");
}

#[test]
fn pieces_encode_like_the_whole() {
    let text = odd_text(30_000, 3);
    let (dir, words) = prepared(text.as_bytes(), "word:100");
    let source = Source::open(&path(&dir, "text")).expect("opens");
    for tokenizer in [gpt2(), gpt2().without_quick(), words.tokenizer, Tokenizer::Bytes] {
        let whole = tokenizer.encode(&text).expect("encodes");
        for size in [64, 65, 100, 1000, 4096] {
            let chunks: Vec<Vec<u8>> = Chunks::new(&source, 0..source.bytes(), tokenizer.needs_text(), size)
                .collect::<Result<_, _>>()
                .expect("valid UTF-8");
            assert!(chunks.len() >= text.len() / size && chunks.iter().all(|chunk| chunk.len() <= size));
            let ids: Vec<u32> = chunks.iter().flat_map(|chunk| tokenizer.encode(chunk).expect("encodes")).collect();
            assert!(ids == whole, "{tokenizer:?} in pieces of {size}");
        }
    }
}

/// Whatever a tokenizer puts before a text, a long text has it once.
#[test]
fn long_texts_encode_like_one_piece() {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let words =
        ["The", "capital", "of", "low", "lower", "newest", "2026", "naïve", "</s>", "(and", "so", "on)", "世界"];
    let ends = [" ", " ", " ", " ", " ", "\n", "  ", "\n\n", ".\n", ", ", " \n"];
    let mut text = String::new();
    while text.len() < 280_000 {
        text += words[rng.random_range(0..words.len())];
        text += ends[rng.random_range(0..ends.len())];
    }
    // Without a space between words there are still lines.
    let lines: String = (0..46_000).map(|i| if i % 20 == 19 { "界\n" } else { "世" }).collect();
    let dir = folder(&[("text", text.as_bytes()), ("lines", lines.as_bytes())]);
    let specials = |name: &str| {
        Tokenizer::load(&Path::new(FIXTURES).with_file_name("specials").join(name)).expect("the fixture loads")
    };
    let prefixed = {
        let tokenizer = fs::read_to_string(Path::new(FIXTURES).with_file_name("specials/roberta/tokenizer.json"));
        let tokenizer = tokenizer
            .expect("the fixture is there")
            .replace("\"add_prefix_space\": false", "\"add_prefix_space\": true");
        fs::write(dir.path().join("tokenizer.json"), tokenizer).expect("written");
        Tokenizer::load(dir.path()).expect("loads")
    };
    let (_dir, word) = prepared(text.as_bytes(), "word:100");
    for (name, tokenizer, marked) in [
        ("gpt2", gpt2(), false),
        ("word", word.tokenizer, false),
        ("bert", specials("bert"), false),
        ("llama", specials("llama"), true),
        ("t5", specials("t5"), true),
        ("prefixed", prefixed, true),
    ] {
        // Some take the square of what is between two spaces.
        let files = if ["gpt2", "llama"].contains(&name) { 2 } else { 1 };
        for (file, text) in [("text", &text), ("lines", &lines)].into_iter().take(files) {
            let whole = tokenizer.encode(text).expect("encodes");
            let tokens = encode_source(&path(&dir, file), &tokenizer, &dir.path().join("tokens"), &no_progress);
            assert!(all(&tokens.expect("encodes")) == whole, "{name}, {file}");
        }
        // In small pieces, too; and the marks are really there.
        let part = &text[..6000];
        fs::write(dir.path().join("part"), part).expect("written");
        let source = Source::open(&path(&dir, "part")).expect("opens");
        let whole = tokenizer.encode(part).expect("encodes");
        let pieces: Vec<Vec<u8>> = Chunks::for_tokenizer(&source, 0..source.bytes(), &tokenizer, 300)
            .collect::<Result<_, _>>()
            .expect("UTF-8");
        let before = std::iter::once(None).chain(pieces.iter().map(|piece| Some(piece.as_slice())));
        let joined =
            before.zip(&pieces).flat_map(|(before, piece)| tokenizer.encode_piece(before, piece).expect("encodes"));
        assert!(joined.collect::<Vec<u32>>() == whole, "{name}, pieces");
        let chunks = Chunks::new(&source, 0..source.bytes(), true, 300);
        let apart = chunks.flat_map(|piece| tokenizer.encode(piece.expect("UTF-8")).expect("encodes"));
        let apart: Vec<u32> = apart.collect();
        assert_eq!(apart != whole, marked, "{name}");
    }
}

#[test]
fn decoding_as_tokens_come_gives_whole_characters() {
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    let random: Vec<u32> = (0..2000).map(|_| rng.random_range(0..256)).collect();
    let text = odd_text(5000, 5);
    let (_dir, words) = prepared(text.as_bytes(), "word:50");
    for tokenizer in [&Tokenizer::Bytes, &gpt2(), &words.tokenizer] {
        let ids = tokenizer.encode(&text).expect("encodes");
        let below = random.iter().map(|id| id % tokenizer.vocab()).collect::<Vec<_>>();
        for ids in [&ids, &below, &random[..0].to_vec(), &vec![0xe2, 0x82]] {
            let mut decoder = tokenizer.decoder();
            let mut parts: Vec<String> = ids.iter().filter_map(|&id| decoder.push(id)).collect();
            parts.extend(decoder.finish());
            assert_eq!(parts.concat(), tokenizer.decode(ids));
            assert!(parts.iter().all(|part| !part.is_empty()));
        }
    }
    // A character of three bytes comes when it is whole.
    let mut decoder = Tokenizer::Bytes.decoder();
    assert_eq!([0xe2, 0x82, 0xac, 0x41].map(|id| decoder.push(id)), [None, None, Some("€".into()), Some("A".into())]);
}

#[test]
fn the_split_is_at_nine_tenths_and_a_character() {
    let (_dir, prepared) = prepared("aaaaaaaa€€bb".as_bytes(), "bytes"); // 16 bytes: 14 is the first € plus three
    assert_eq!(prepared.train.bytes(), 14);
    let (_dir, inside) = self::prepared("aaaaaaaaa€€".as_bytes(), "bytes"); // 15 bytes: 13 is within the second
    assert_eq!((inside.train.bytes(), inside.valid.as_ref().map(Tokens::bytes)), (15, None));
    let (_dir, bytes) = self::prepared(&[0x80; 100], "bytes");
    assert_eq!((bytes.train.bytes(), bytes.valid.map(|valid| valid.len())), (93, Some(7)), "no character begins there");
}

#[test]
fn vocabularies_come_from_the_training_part_alone() {
    let text = "one two three ".repeat(90) + &"strange words ".repeat(10);
    let (_dir, prepared) = prepared(text.as_bytes(), "word:100");
    assert_eq!(prepared.tokenizer.vocab(), 5, "<eos>, <unk>, one, two, three");
    assert_eq!(prepared.train.header().unknown, 0);
    let valid = prepared.valid.expect("a tenth");
    assert!(valid.header().unknown == 20, "{:?}", valid.header());
}

#[test]
fn files_of_a_folder_are_one_text() {
    let files: &[(&str, &[u8])] =
        &[("b.txt", b"two "), ("a/z.txt", b"one "), (".hidden", b"no"), ("c.gz", &gzip(b"three")), ("d", b"")];
    let dir = folder(files);
    let source = Source::open(dir.path().to_str().expect("UTF-8")).expect("opens");
    let mut text = String::new();
    std::io::Read::read_to_string(&mut source.read(0..source.bytes()), &mut text).expect("reads");
    assert_eq!(text, "one two three");
    let sizes: Vec<u64> = source.files().map(|(_, bytes)| bytes).collect();
    assert_eq!(sizes, [4, 4, 5, 0]);
    for (start, end) in [(0, 0), (2, 6), (5, 13), (8, 10), (13, 13)] {
        let mut part = String::new();
        std::io::Read::read_to_string(&mut source.read(start..end), &mut part).expect("reads");
        assert_eq!(part, text[start as usize..end as usize]);
    }
    assert!(source.place(9).ends_with("c.gz, byte 1"), "{}", source.place(9));
}

#[test]
fn a_gzipped_text_has_the_same_tokens() {
    let text = odd_text(300_000, 6);
    let dir = folder(&[("text.gz", &gzip(text.as_bytes()))]);
    for tokenizer in ["bytes", "bpe:300", "word:64"] {
        let (_plain_dir, plain) = prepared(text.as_bytes(), tokenizer);
        let out = dir.path().join(tokenizer);
        let gzipped = prepare(&spec(&path(&dir, "text.gz"), None, tokenizer), &out, &no_progress).expect("prepares");
        assert_eq!(gzipped.tokenizer.json(), plain.tokenizer.json());
        assert!(all(&gzipped.train) == all(&plain.train) && gzipped.train.bytes() == plain.train.bytes());
        // Encoded in parallel pieces, but as if it were one.
        let bytes = &text.as_bytes()[..plain.train.bytes() as usize];
        assert!(all(&plain.train) == plain.tokenizer.encode(bytes).expect("encodes"), "{tokenizer}");
        assert_eq!(
            plain.train.header().characters,
            std::str::from_utf8(bytes).expect("cut well").chars().count() as u64
        );
    }
}

#[test]
fn the_built_in_language_is_a_text_of_any_size() {
    let dir = tempfile::tempdir().expect("a folder");
    let prepared = prepare(&spec("builtin:1:7", None, "bytes"), dir.path(), &no_progress).expect("prepares");
    let valid = prepared.valid.expect("a tenth");
    let text: Vec<u8> = all(&prepared.train).into_iter().chain(all(&valid)).map(|id| id as u8).collect();
    assert_eq!(text.len(), 1 << 20);
    assert!(Language::new(0).text(1 << 20, 7).starts_with(&text));
}

#[test]
fn what_is_there_is_used_again() {
    let dir = folder(&[("text", odd_text(4000, 7).as_bytes()), ("valid", b"valid text")]);
    let out = dir.path().join("out");
    let (data, valid) = (path(&dir, "text"), path(&dir, "valid"));
    let run = |valid: Option<&str>, tokenizer: &str| {
        let prepared = prepare(&spec(&data, valid, tokenizer), &out, &no_progress).expect("prepares");
        (prepared.summary.reused, prepared.tokenizer.vocab(), all(&prepared.train))
    };
    let first = run(None, "bpe:280");
    assert!(!first.0);
    assert_eq!(run(None, "bpe:280"), (true, 280, first.2.clone()));
    assert!(!run(Some(&valid), "bpe:280").0, "all of the text trains now");
    assert!(run(Some(&valid), "bpe:280").0);
    assert!(!run(None, "bytes").0);
    assert_eq!(run(None, "bytes").1, 256);
    assert!(!out.join("tokenizer.json").exists(), "that of another run would be taken for this one's");
    assert!(!run(None, "bpe:280").0);
    fs::write(&data, odd_text(4000, 8)).expect("written");
    assert!(!run(None, "bpe:280").0, "another text");
    fs::write(out.join("train.tokens"), "broken").expect("written");
    assert_eq!(run(None, "bpe:280"), (false, 280, run(None, "bpe:280").2));
}

#[test]
fn token_files_are_as_wide_as_needed_and_checked() {
    let dir = folder(&[("text", "0 1 2 3 4 5 6 7 8 9 ".repeat(20).as_bytes())]);
    let words = |count: u32| {
        let vocab: serde_json::Map<_, _> = (0..count).map(|id| (id.to_string(), id.into())).collect();
        let json = serde_json::json!({
            "version": "1.0", "added_tokens": [],
            "pre_tokenizer": {"type": "WhitespaceSplit"},
            "model": {"type": "WordLevel", "vocab": vocab, "unk_token": (count - 1).to_string()},
        });
        fs::write(dir.path().join("words.json"), json.to_string()).expect("written");
        Tokenizer::open(&dir.path().join("words.json")).expect("loads")
    };
    let out = dir.path().join("out.tokens");
    let expected: Vec<u32> = (0..200).map(|i| i % 10).collect();
    for (vocab, width) in [(256, 1), (257, 2), (65_536, 2), (65_537, 4)] {
        let tokens = encode_source(&path(&dir, "text"), &words(vocab), &out, &no_progress).expect("encodes");
        assert_eq!((tokens.vocab(), tokens.bytes(), all(&tokens)), (vocab, 400, expected.clone()));
        assert_eq!(fs::metadata(&out).expect("is there").len(), 1024 + 200 * width);
        let mut ids = [0; 3];
        tokens.read(197, &mut ids).expect("within");
        assert_eq!(ids, [7, 8, 9]);
        assert!(tokens.read(198, &mut ids).is_err() && tokens.read(u64::MAX, &mut ids).is_err());
    }
    let whole = fs::read(&out).expect("is there");
    for wrong in [&whole[..whole.len() - 1], &whole[..500], &whole[..0], &[0; 2000], &[&whole[..], &[0]].concat()] {
        fs::write(&out, wrong).expect("written");
        assert!(matches!(Tokens::open(&out), Err(Error::Data { .. })), "{} bytes", wrong.len());
    }
    // A token that the vocabulary does not have, and a file that shrinks under its reader.
    let mut wrong = whole.clone();
    wrong[1024 + 7] = 1;
    fs::write(&out, wrong).expect("written");
    let tokens = Tokens::open(&out).expect("the size is right");
    let error = tokens.read(0, &mut [0; 9]).expect_err("too large").to_string();
    assert!(error.contains("token 1: found 16777217; expected a token below 65537"), "{error}");
    fs::OpenOptions::new().write(true).open(&out).and_then(|file| file.set_len(1100)).expect("truncated");
    assert!(matches!(tokens.read(100, &mut [0; 9]), Err(Error::Io { .. })));
}

#[test]
fn odd_texts_prepare() {
    let zeros = vec![0; 300_000];
    let spaces = " ".repeat(300_000) + "x";
    let long = "a".repeat(300_000);
    for (text, name) in
        [(&zeros[..], "zeros"), (spaces.as_bytes(), "spaces"), (long.as_bytes(), "one word"), (b"ab", "ab")]
    {
        for tokenizer in ["bytes", "bpe:300", "word:10"] {
            let (_dir, prepared) = prepared(text, tokenizer);
            assert_eq!(prepared.train.bytes(), text.len() as u64 * 9 / 10, "{name}, {tokenizer}");
            if tokenizer != "word:10" {
                let decoded = prepared.tokenizer.decode(&all(&prepared.train));
                assert!(decoded.as_bytes() == &text[..text.len() * 9 / 10], "{name}, {tokenizer}");
            }
        }
    }
}

#[test]
fn errors_name_place_value_and_what_would_do() {
    let invalid = [&"x".repeat(200_000).into_bytes()[..], b" \xff tail of the text"].concat();
    let cut = "text €".as_bytes();
    let dir = folder(&[
        ("empty", b""),
        ("one", b"x"),
        ("invalid", &invalid),
        ("cut", &cut[..cut.len() - 1]),
        ("good", b"some text\n"),
        ("short.gz", &gzip(&invalid)[..100]),
        ("broken.json", b"{}"),
        ("alone/vocab.json", b"{}"),
    ]);
    fs::create_dir(dir.path().join("nothing")).expect("a folder");
    let fails = |data: &str, valid: Option<&str>, tokenizer: &str| {
        let valid = valid.map(|valid| path(&dir, valid));
        let tokenizer = tokenizer.replace("DIR", dir.path().to_str().expect("UTF-8"));
        let spec = spec(&path(&dir, data), valid.as_deref(), &tokenizer);
        let error = prepare(&spec, &dir.path().join("out"), &no_progress).expect_err("refused").to_string();
        error.replace(&format!("{}/", dir.path().display()), "")
    };
    for tokenizer in ["bytes", "bpe:300", "word:10"] {
        assert!(
            fails("empty", None, tokenizer).starts_with("empty: found 0 bytes of text; expected a text of at least")
        );
        assert!(fails("one", None, tokenizer).starts_with("one: found 1 bytes of text"));
        assert!(fails("missing", None, tokenizer).starts_with("missing: No such file"));
        assert!(fails("nothing", None, tokenizer).starts_with("nothing: found an empty folder"));
        assert!(fails("good", Some("missing"), tokenizer).starts_with("missing: No such file"));
        assert!(fails("short.gz", None, tokenizer).starts_with("short.gz: "));
    }
    for tokenizer in ["bpe:300", "word:10"] {
        let at = fails("good", Some("invalid"), tokenizer);
        assert!(at.starts_with("invalid, byte 200001: found 0xff, which is not UTF-8; expected UTF-8"), "{at}");
        assert!(fails("good", Some("cut"), tokenizer).starts_with("cut, byte 5: found 0xe2"));
    }
    let (_dir, bytes) = prepared(&invalid, "bytes");
    assert_eq!(bytes.train.len(), invalid.len() as u64 * 9 / 10);
    assert!(fails("good", None, "DIR/broken.json").starts_with("broken.json: found "));
    assert!(fails("good", None, "DIR/missing.json").starts_with("missing.json: No such file"));
    assert!(fails("good", None, "DIR/alone/vocab.json").starts_with("alone/merges.txt: No such file"));
}

#[test]
fn specs_are_words() {
    for text in ["bytes", "bpe:4096", "word:267735", "gpt2/tokenizer.json"] {
        let parsed: TokenizerSpec = text.parse().expect("accepted");
        assert_eq!(parsed.to_string(), text);
        assert_eq!(serde_json::to_string(&parsed).expect("a string"), format!("{text:?}"));
    }
    assert_eq!("./bytes".parse::<TokenizerSpec>().expect("a file"), TokenizerSpec::File(PathBuf::from("./bytes")));
    for text in ["", "bpe", "word", "bpe:", "bpe:0", "bpe:255", "bpe:-1", "word:2", "word:x", "bpe:1048577"] {
        assert!(matches!(text.parse::<TokenizerSpec>(), Err(Error::Setting { .. })), "{text}");
    }
    let spec: DataSpec = serde_json::from_str(r#"{"data": "file", "tokenizer": "bpe:4096"}"#).expect("parses");
    assert_eq!(spec, self::spec("file", None, "bpe:4096"));
    assert_eq!(serde_json::from_str::<DataSpec>(r#"{"data": "f"}"#).expect("parses").tokenizer, TokenizerSpec::Bytes);
    assert!(serde_json::from_str::<DataSpec>(r#"{"data": "f", "vaild": "g"}"#).is_err());
    for name in ["builtin:", "builtin:0", "builtin:x", "builtin:1:x", "builtin:99999999"] {
        assert!(matches!(Source::open(name), Err(Error::Setting { .. })), "{name}");
    }
    assert_eq!(Source::open("builtin:3:7").expect("no file").bytes(), 3 << 20);
    assert_eq!(Source::open("builtin").expect("no file").bytes(), 4 << 20);
}

/// Tokens of a text that was read document by document know where each begins, and are not taken for those of another reading.
#[test]
fn tokens_know_their_documents() {
    let texts = ["the birds fly north", "fish", "so it was, and so it is"];
    let dir = folder(&[("text", texts.join("\n\n").as_bytes()), ("valid", b"one\n\n\ntwo".as_slice())]);
    let (text, valid, out) = (path(&dir, "text"), path(&dir, "valid"), dir.path().join("out"));
    let plain = DataSpec { documents: false, ..spec(&text, Some(&valid), "bytes") };
    let prepared = prepare(&plain, &out, &no_progress).expect("prepares");
    assert_eq!(prepared.train.documents().expect("reads"), [0; 0]);
    let apart = DataSpec { documents: true, ..plain };
    for reused in [false, true] {
        let prepared = prepare(&apart, &out, &no_progress).expect("prepares");
        assert_eq!(prepared.summary.reused, reused);
        assert_eq!(prepared.train.documents().expect("reads"), [0, 19, 23]);
        assert_eq!(all(&prepared.train), texts.concat().bytes().map(u32::from).collect::<Vec<_>>());
        assert_eq!(prepared.valid.expect("six tokens").documents().expect("reads"), [0, 3]);
    }
    // A file whose end is gone, or whose places are out of order, is none.
    let file = out.join("train.tokens");
    let whole = fs::read(&file).expect("is there");
    fs::write(&file, &whole[..whole.len() - 8]).expect("written");
    let error = Tokens::open(&file).expect_err("too short").to_string();
    assert!(error.contains("46 tokens and the places of 3 documents"), "{error}");
    let mut wrong = whole.clone();
    let last = wrong.len() - 8;
    wrong[last] = 200;
    fs::write(&file, wrong).expect("written");
    let error =
        Tokens::open(&file).expect("as long as it should be").documents().expect_err("beyond the end").to_string();
    assert!(error.contains("a document at token 200"), "{error}");
}
