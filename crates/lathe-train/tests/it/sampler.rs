//! Batches of token files, against brute force.

use lathe_train::data::{Batch, Sampler, Tokenizer, Tokens, encode_source, permute};
use std::collections::BTreeSet;
use tempfile::TempDir;

#[test]
fn permutations_are_bijections() {
    for n in (1..130).chain([255, 256, 257, 1000, 4096, 4097]) {
        for key in [0, 1, u64::MAX] {
            let image: BTreeSet<u64> = (0..n).map(|i| permute(i, n, key)).collect();
            assert!(image.len() as u64 == n && image.last() == Some(&(n - 1)), "{n}");
        }
    }
    let n = (1 << 40) + 1;
    let image: BTreeSet<u64> = (0..10_000).map(|i| permute(i, n, 5)).collect();
    assert!(image.len() == 10_000 && image.iter().all(|&i| i < n));
    // Not the identity and not a rotation: of 1000, about one in 1000 follows its predecessor.
    let follows = (1..1000).filter(|&i| permute(i, 1000, 7) == (permute(i - 1, 1000, 7) + 1) % 1000).count();
    assert!(follows < 10, "{follows}");
}

/// Tokens 0, 1, 2, ..., so that a token tells its place.
fn counting(tokens: u32) -> (TempDir, Tokens) {
    let text: String = (0..tokens).map(|id| format!("{id} ")).collect();
    let vocab: serde_json::Map<_, _> = (0..tokens).map(|id| (id.to_string(), id.into())).collect();
    let json = serde_json::json!({
        "version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "WhitespaceSplit"},
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "0"},
    });
    let dir = tempfile::tempdir().expect("a folder");
    let [file, words, out] = ["text", "words.json", "out.tokens"].map(|name| dir.path().join(name));
    std::fs::write(&file, text).expect("written");
    std::fs::write(&words, json.to_string()).expect("written");
    let tokenizer = Tokenizer::open(&words).expect("loads");
    let tokens = encode_source(file.to_str().expect("UTF-8"), &tokenizer, &out, &|_, _, _| {}).expect("encodes");
    (dir, tokens)
}

#[test]
fn windows_visit_every_token_once_an_epoch() {
    let (_dir, tokens) = counting(1003);
    let (batch, len) = (3, 10);
    let sampler = Sampler::windows(tokens.clone(), batch, len, 1).expect("long enough");
    let per_epoch = 99; // 1003 / 10 windows, but for the one that an offset may cost
    assert_eq!(sampler.steps_per_epoch(), 33);
    let batches: Vec<Batch> = (0..100).map(|step| sampler.batch(step).expect("reads")).collect();
    for batch in &batches {
        assert_eq!((batch.ids.len(), batch.targets.len(), batch.fresh), (30, 30, true));
        assert!(batch.ids.iter().zip(&batch.targets).all(|(id, target)| target == &(id + 1)));
    }
    let starts: Vec<u32> = batches.iter().flat_map(|batch| batch.ids.chunks(len).map(|window| window[0])).collect();
    let epochs: Vec<BTreeSet<u32>> =
        starts.chunks(per_epoch).take(3).map(|epoch| epoch.iter().copied().collect()).collect();
    for epoch in &epochs {
        let offset = *epoch.first().expect("not empty");
        let expected: BTreeSet<u32> = (0..per_epoch as u32).map(|i| offset + i * 10).collect();
        assert!(epoch == &expected && offset <= 12, "{epoch:?}");
    }
    assert!(starts[..per_epoch] != starts[per_epoch..2 * per_epoch], "epochs have orders of their own");
    assert!(epochs[0] != epochs[1] || epochs[1] != epochs[2], "and offsets");
    // Pure: in any order, from a new sampler; other seeds give other batches.
    let again = Sampler::windows(tokens.clone(), batch, len, 1).expect("long enough");
    for step in [99, 0, 50, 50, 7] {
        assert_eq!(again.batch(step).expect("reads"), batches[step as usize]);
    }
    assert_ne!(Sampler::windows(tokens, batch, len, 2).expect("long enough").batch(0).expect("reads"), batches[0]);
}

#[test]
fn windows_of_a_short_text() {
    for (count, len) in [(2, 1), (11, 10), (12, 10), (20, 10), (21, 10), (30, 10), (31, 10)] {
        let (_dir, tokens) = counting(count);
        let sampler = Sampler::windows(tokens, 4, len, 0).expect("long enough");
        let seen: BTreeSet<u32> = (0..200).flat_map(|step| sampler.batch(step).expect("reads").ids).collect();
        assert_eq!(seen, (0..count - 1).collect(), "over many epochs every token of {count} is read");
    }
}

#[test]
fn streams_follow_on() {
    let (_dir, tokens) = counting(1000);
    let sampler = Sampler::streams(tokens, 3, 16).expect("long enough");
    assert_eq!(sampler.steps_per_epoch(), 20); // 999 / 3 = 333 tokens each, 13 of them left out
    let batches: Vec<Batch> = (0..41).map(|step| sampler.batch(step).expect("reads")).collect();
    for (step, batch) in batches.iter().enumerate() {
        assert_eq!(batch.fresh, step % 20 == 0);
        for b in 0..3 {
            let start = (b * 333 + step % 20 * 16) as u32;
            assert_eq!(batch.ids[b * 16..][..16], (start..start + 16).collect::<Vec<_>>());
            assert_eq!(batch.targets[b * 16..][..16], (start + 1..start + 17).collect::<Vec<_>>());
        }
    }
}

#[test]
fn too_little_text_is_an_error_with_sizes() {
    let (_dir, tokens) = counting(33);
    let error = |sampler: lathe_train::Result<Sampler>| sampler.expect_err("too short").to_string();
    let window = error(Sampler::windows(tokens.clone(), 1, 33, 0));
    assert!(window.contains("found 33 tokens; expected at least 34, for a window of 33"), "{window}");
    let streams = error(Sampler::streams(tokens.clone(), 4, 9));
    assert!(streams.contains("found 33 tokens; expected at least 37, for 4 segments of 9"), "{streams}");
    assert!(Sampler::windows(tokens.clone(), 1, 32, 0).is_ok() && Sampler::streams(tokens.clone(), 4, 8).is_ok());
    assert!(error(Sampler::windows(tokens.clone(), 0, 1, 0)).contains("batch: found 0"));
    assert!(error(Sampler::streams(tokens, 1, 0)).contains("tgt_len: found 0"));
}
