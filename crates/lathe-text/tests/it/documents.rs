//! Texts cut into documents, and documents as tokens.

use lathe_text::{Documents, Sequence, Source, Tokenizer};
use std::fs;
use std::path::Path;

fn documents(text: impl AsRef<[u8]>) -> Vec<(String, u64)> {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("text");
    fs::write(&path, &text).expect("written");
    let source = Source::open(path.to_str().expect("UTF-8")).expect("opens");
    let documents = Documents::new(&source).expect("reads").map(|document| {
        let document = document.expect("reads");
        let start = document.start as usize;
        assert_eq!(text.as_ref()[start..start + document.text.len()], document.text);
        (String::from_utf8_lossy(&document.text).into_owned(), document.start)
    });
    documents.collect()
}

fn texts(text: impl AsRef<[u8]>) -> Vec<String> {
    documents(text).into_iter().map(|(text, _)| text).collect()
}

fn sequences(text: &[u8], tokenizer: &Tokenizer, max_len: usize) -> Vec<Result<Sequence, String>> {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("text");
    fs::write(&path, text).expect("written");
    let source = Source::open(path.to_str().expect("UTF-8")).expect("opens");
    let tokens = Documents::new(&source).expect("reads").tokens(tokenizer, max_len).expect("long enough");
    let name = format!("{}/", dir.path().display());
    tokens.map(|sequence| sequence.map_err(|error| error.to_string().replace(&name, ""))).collect()
}

fn fixture(name: &str) -> Tokenizer {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/fixtures/specials")).join(name);
    Tokenizer::load(&folder).expect("loads")
}

#[test]
fn a_line_ends_a_document() {
    assert_eq!(
        texts("one\n\ntwo \n<|endoftext|>\n three\r\n<|endoftext|>\r\n\n<|endoftext|>\n"),
        ["one\n\ntwo", "three"]
    );
    assert_eq!(texts("<|endoftext|>\none\n <|endoftext|> \ntwo"), ["one", "two"]);
    // Not a line of its own, so no separator: blank lines are.
    assert_eq!(texts("one<|endoftext|>two\n\n<|endoftext|>x"), ["one<|endoftext|>two", "<|endoftext|>x"]);
    assert_eq!(texts("a <|endoftext|> b\n<|endoftext|>\nc"), ["a <|endoftext|> b", "c"]);
    assert_eq!(documents("\u{3000} one\n<|endoftext|>\n\n two"), [("one".into(), 4), ("two".into(), 24)]);
}

#[test]
fn blank_lines_end_documents_where_no_line_does() {
    assert_eq!(texts("\n\none\nline\n\ntwo\n \t\n\u{a0}\r\n\n three"), ["one\nline", "two", "three"]);
    assert_eq!(texts("one\r\n\r\ntwo\n"), ["one", "two"]);
    for nothing in ["", "\n", " \n\n ", "<|endoftext|>", "<|endoftext|>\n<|endoftext|>\n\n"] {
        assert_eq!(texts(nothing), [""; 0], "{nothing:?}");
    }
    assert_eq!(texts(b"\xff \n\n\xfe"), ["\u{fffd}", "\u{fffd}"], "bytes that are no text");
    // More than any buffer holds.
    let long = "x ".repeat(200_000);
    assert_eq!(texts(format!("{long}\n\n{long}b")), [long.trim_end(), &format!("{long}b")]);
}

#[test]
fn tokens_follow_bos_up_to_a_length() {
    let llama = fixture("llama");
    let text = "The lazy dog ran to her mum";
    let all = llama.encode(text).expect("encodes");
    for max_len in 2..all.len() + 4 {
        let sequence = llama.document(text.as_bytes(), max_len).expect("encodes");
        let kept = all.len().min(max_len - 1);
        assert_eq!(sequence.ids, [&[1], &all[..kept]].concat());
        assert_eq!((sequence.targets(), sequence.truncated), (kept, kept < all.len()));
        assert_eq!(llama.decode(&all[..kept]), text[..sequence.bytes as usize], "the bytes of the tokens");
        assert_eq!(sequence.bytes, sequence.target_bytes);
    }
    // Bytes of one character that are tokens count as it.
    let cut = llama.document("日本".as_bytes(), 1 + 1 + 2).expect("encodes");
    assert_eq!((cut.ids.len(), cut.bytes), (4, 3));
}

#[test]
fn without_bos_the_first_token_is_not_scored() {
    for name in ["bert", "t5"] {
        let tokenizer = fixture(name);
        let text = "story and then they went home";
        let ids = tokenizer.encode(text).expect("encodes");
        let whole = tokenizer.document(text.as_bytes(), 100).expect("encodes");
        assert_eq!((&whole.ids, whole.targets(), whole.bytes), (&ids, ids.len() - 1, 29), "{name}");
        assert_eq!(whole.target_bytes, 24, "{name}: without `story`");
        let cut = tokenizer.document(text.as_bytes(), 2).expect("encodes");
        assert_eq!((&cut.ids[..], cut.bytes, cut.target_bytes, cut.truncated), (&ids[..2], 9, 4, true), "{name}");
    }
    let bytes = Tokenizer::Bytes.document(b"abc\xff", 3).expect("any bytes");
    assert_eq!((bytes.ids, bytes.bytes, bytes.target_bytes), (vec![97, 98, 99], 3, 2));
    let one = Tokenizer::Bytes.document(b"a", 3).expect("any bytes");
    assert_eq!((one.targets(), one.bytes, one.target_bytes, one.truncated), (0, 1, 0, false));
}

#[test]
fn long_documents_are_encoded_as_far_as_needed() {
    let llama = fixture("llama");
    let text = "The lazy dog ran, and the quick fox jumps. ".repeat(5000);
    let (all, long) =
        (llama.encode(text.trim()).expect("encodes"), llama.document(text.trim().as_bytes(), 50).expect("encodes"));
    assert_eq!((&long.ids[1..], long.truncated), (&all[..49], true));
    assert_eq!(llama.decode(&all[..49]), text[..long.bytes as usize]);
    let more = llama.document(text.trim().as_bytes(), usize::MAX).expect("encodes");
    assert_eq!((&more.ids[1..], more.bytes), (&all[..], text.trim().len() as u64));
    // Words of a thousand bytes: the first part that is tried has too few tokens.
    let words = format!("{} ", "é".repeat(500)).repeat(300);
    let dir = tempfile::tempdir().expect("a folder");
    let file = serde_json::json!({"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "WhitespaceSplit"},
        "model": {"type": "WordLevel", "vocab": {"é".repeat(500): 0, "<unk>": 1}, "unk_token": "<unk>"}});
    fs::write(dir.path().join("tokenizer.json"), file.to_string()).expect("written");
    let tokenizer = Tokenizer::load(dir.path()).expect("loads");
    let sequence = tokenizer.document(words.trim().as_bytes(), 250).expect("encodes");
    assert_eq!((sequence.ids, sequence.bytes, sequence.truncated), (vec![0; 250], 250 * 1001 - 1, true));
    let all = tokenizer.document(words.trim().as_bytes(), 300).expect("encodes");
    assert_eq!((all.targets(), all.truncated, all.bytes), (299, false, 300 * 1001 - 1));
}

#[test]
fn every_document_is_a_sequence_or_an_error_at_its_place() {
    let llama = fixture("llama");
    let found = sequences(b"the dog\n\n a \xff b\n\nthe end", &llama, 8);
    assert_eq!(found.len(), 3);
    assert_eq!(found[0].as_ref().expect("encodes").ids[0], 1);
    let error = found[1].as_ref().expect_err("no UTF-8");
    assert_eq!(
        error,
        "text, byte 12: found 0xff, which is not UTF-8; expected UTF-8; the tokenizer `bytes` takes any bytes"
    );
    assert_eq!(found[2].as_ref().expect("encodes").bytes, 7);
    let bytes = sequences(b"ab\n\n\xff\xfe\n", &Tokenizer::Bytes, 8);
    let ids: Vec<_> = bytes.into_iter().map(|sequence| sequence.expect("any bytes").ids).collect();
    assert_eq!(ids, [[97, 98], [255, 254]]);
    let source = Source::open("builtin:1").expect("no file");
    assert!(Documents::new(&source).expect("reads").tokens(&llama, 1).is_err(), "no target");
    let documents = Documents::new(&source).expect("reads").tokens(&Tokenizer::Bytes, 100).expect("long enough");
    let bytes: u64 = documents.take(50).map(|sequence| sequence.expect("reads").bytes).sum();
    assert!(bytes > 50 * 20 && bytes <= 50 * 100, "{bytes}");
}
