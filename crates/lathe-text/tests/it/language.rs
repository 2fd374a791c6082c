//! The built-in language against arithmetic done by hand, brute force and counting.

use lathe_text::language::{Judge, Judged, Kind, Language, NEAR, SURE, Tally};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::HashMap;

fn judged(judge: &mut Judge, text: &[u8]) -> Vec<Judged> {
    text.iter().map(|&byte| judge.push(byte).unwrap_or_else(|error| panic!("{error}"))).collect()
}

/// Bits of a text right after another.
fn bits(language: &Language, before: &str, text: &str) -> f64 {
    let mut judge = language.judge();
    judged(&mut judge, before.as_bytes());
    judged(&mut judge, text.as_bytes()).iter().map(|judged| judged.bits).sum()
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}

#[test]
fn no_choice_is_a_prefix_of_another_in_any_language() {
    for seed in 0..40 {
        let language = Language::new(seed);
        for words in language.choices() {
            for (i, word) in words.iter().enumerate() {
                assert!(word.is_ascii() && !word.is_empty(), "seed {seed}: {word:?}");
                let clash = words.iter().enumerate().find(|(j, other)| *j != i && other.starts_with(&**word));
                assert!(clash.is_none(), "seed {seed}: {word:?} begins {clash:?}");
            }
        }
    }
}

#[test]
fn a_distribution_at_every_byte() {
    let language = Language::default();
    let mut judge = language.judge();
    for byte in language.text(100_000, 3) {
        let p = judge.probabilities();
        let judged = judge.push(byte).unwrap();
        assert!(close(p.iter().sum(), 1.0));
        assert!(close(judged.bits, -p[usize::from(byte)].log2()));
        let entropy: f64 = p.iter().filter(|&&p| p > 0.0).map(|p| -p * p.log2()).sum();
        assert!(close(judged.entropy, entropy));
        assert!(judged.bits >= 0.0 && judged.entropy >= 0.0);
        assert_eq!(judged.distance.is_some(), matches!(judged.kind, Kind::ContextNear | Kind::ContextFar));
        assert_eq!(judged.distance.is_some_and(|d| d > NEAR), judged.kind == Kind::ContextFar);
    }
}

#[test]
fn probabilities_of_words_by_hand() {
    let language = Language::default();
    // Four openings, 48 women, 32 trades, 3 sentences about what she had, 28 colours, 28 pets.
    assert!(close(bits(&language, "", "This"), 2.0));
    assert!(close(bits(&language, "This is the story of ", "Mara,"), 48f64.log2()));
    let place = language.facts().next().unwrap().subject;
    let first = format!("This is the story of Mara, who was a weaver in {place}.");
    assert!(close(bits(&language, "This is the story of Mara, who was a ", "weaver in "), 5.0));
    assert!(close(bits(&language, &first, " Everybody knew her "), 3f64.log2()));
    let second = format!("{first} Everybody knew her red coat, and everybody feared her ");
    assert!(close(bits(&language, &second, "cat, whose name was "), 28f64.log2()));
    // A word that is due, and one that is not: 28 pets share one part in SURE.
    let fourth = "But a letter came: she was wanted in";
    let before = format!(
        "{second}cat, whose name was Pepper. Her oldest friend was Otto, who had once given her a tin bell. {fourth} \
         {place} before the feast of Saint "
    );
    let saint = language.facts().find(|fact| fact.subject == place && fact.relation == "saint").unwrap().object;
    let sure = (SURE - 1) as f64 / SURE as f64;
    assert!(close(bits(&language, &before, saint), -(sure + 1.0 / (64 * SURE) as f64).log2()));
    let other = language.facts().find(|fact| fact.relation == "saint" && fact.object != saint).unwrap().object;
    assert!(close(bits(&language, &before, other), ((64 * SURE) as f64).log2()));
    let street = format!("{before}{saint}.\n\"Come here, Pepper!\" she shouted, but the ");
    assert!(close(bits(&language, &street, "cat"), -(sure + 1.0 / (28 * SURE) as f64).log2()));
    assert!(close(bits(&language, &street, "goose"), ((28 * SURE) as f64).log2()));
}

/// All texts of so many bytes that can follow, with their probabilities.
fn continuations(judge: &Judge, bytes: usize) -> Vec<(Vec<u8>, f64)> {
    if bytes == 0 {
        return vec![(Vec::new(), 1.0)];
    }
    let mut all = Vec::new();
    for (byte, p) in judge.probabilities().into_iter().enumerate().filter(|(_, p)| *p > 0.0) {
        let mut next = judge.clone();
        next.push(byte as u8).unwrap();
        for (mut rest, q) in continuations(&next, bytes - 1) {
            rest.insert(0, byte as u8);
            all.push((rest, p * q));
        }
    }
    all
}

#[test]
fn every_continuation_enumerated_and_counted() {
    let language = Language::default();
    let all = continuations(&language.judge(), 8);
    assert!(all.len() > 150, "{}", all.len());
    assert!(close(all.iter().map(|(_, p)| p).sum(), 1.0));
    // How often documents begin so, against those probabilities: chi-square, mean n - 1, deviation sqrt(2 (n - 1)).
    let n = 40_000;
    let mut counts: HashMap<Vec<u8>, u32> = HashMap::new();
    for document in language.documents(11).take(n) {
        *counts.entry(document.as_bytes()[..8].to_vec()).or_default() += 1;
    }
    assert!(counts.keys().all(|start| all.iter().any(|(text, _)| text == start)));
    let square = |(text, p): &(Vec<u8>, f64)| {
        let expected = p * n as f64;
        (f64::from(*counts.get(text).unwrap_or(&0)) - expected).powi(2) / expected
    };
    let chi: f64 = all.iter().map(square).sum();
    let free = (all.len() - 1) as f64;
    assert!((chi - free).abs() < 4.0 * (2.0 * free).sqrt(), "chi-square {chi} at {free} degrees of freedom");
}

#[test]
fn bytes_come_as_often_as_stated() {
    // Of all bytes that had a probability in some range, the share that came. Sums of p - [came] are martingales, so
    // each stays within a few times the root of its summed variances.
    let language = Language::default();
    let mut judge = language.judge();
    let (mut excess, mut variance) = ([[0.0; 12]; 4], [[0.0; 12]; 4]);
    for byte in language.text(1_000_000, 5) {
        let p = judge.probabilities();
        let kind = judge.push(byte).unwrap().kind as usize;
        for (b, &p) in p.iter().enumerate().filter(|(_, p)| **p > 0.0 && **p < 1.0) {
            let range = ((-p.log2()) as usize).min(11);
            excess[kind][range] += f64::from(u8::from(b == usize::from(byte))) - p;
            variance[kind][range] += p * (1.0 - p);
        }
    }
    let ranges = excess.as_flattened().iter().zip(variance.as_flattened());
    for (range, (excess, variance)) in ranges.enumerate().filter(|(_, (_, variance))| **variance > 5.0) {
        assert!(excess.abs() < 4.5 * variance.sqrt(), "range {range}: {excess} with variance {variance}");
    }
}

#[test]
fn mean_bits_are_the_entropy() {
    let language = Language::new(1);
    let mut judge = language.judge();
    let mut sums = HashMap::new();
    for byte in language.text(1_500_000, 8) {
        let judged = judge.push(byte).unwrap();
        let difference = judged.bits - judged.entropy;
        let (bytes, sum, square) = sums.entry(judged.kind).or_insert((0, 0.0, 0.0));
        *bytes += 1;
        *sum += difference;
        *square += difference * difference;
    }
    assert_eq!(sums.len(), Kind::ALL.len());
    for (kind, (bytes, sum, square)) in sums {
        let tolerance = 4.0 * f64::sqrt(square);
        assert!(f64::abs(sum) < tolerance, "{}: {sum} over {bytes} bytes, tolerance {tolerance}", kind.name());
        assert!(tolerance / f64::from(bytes) < 0.02, "too little text to say anything of {}", kind.name());
    }
}

#[test]
fn facts_hold_throughout() {
    let language = Language::default();
    let facts: HashMap<_, _> = language.facts().map(|fact| ((fact.relation, fact.subject), fact.object)).collect();
    assert_eq!(facts.len(), 192 * 8);
    let objects: Vec<_> = language.facts().filter(|fact| fact.relation == "inn").map(|fact| fact.object).collect();
    assert!(objects.iter().any(|object| *object != objects[0]));
    // Read with plain string search, without the judge.
    let text = String::from_utf8(language.text(6_000_000, 2)).unwrap();
    for (relation, opening, middle, end) in [
        ("inn", "She slept one night in ", ", at the inn called the ", ","),
        ("mayor", " coins that the mayor of ", " was not called ", "."),
        ("dish", "All the while she thought of ", ", and of the ", " they"),
        ("beyond", "Beyond ", " lies ", ","),
    ] {
        let (mut right, mut wrong) = (0, 0);
        for (at, _) in text.match_indices(opening) {
            let (subject, rest) = text[at + opening.len()..].split_once(middle).unwrap();
            let (object, _) = rest.split_once(end).unwrap();
            if facts[&(relation, subject)] == object { right += 1 } else { wrong += 1 }
        }
        let expected = f64::from(right + wrong) / SURE as f64;
        assert!(right > 500, "{relation}: {right}");
        assert!((f64::from(wrong) - expected).abs() < 4.0 * expected.sqrt() + 1.0, "{relation}: {wrong} of {right}");
    }
}

#[test]
fn a_wrong_context_word_costs_much_and_the_rest_nothing() {
    let language = Language::default();
    let mut tried = 0;
    for document in language.documents(4).take(200) {
        let Some((head, tail)) = document.split_once("That is how ") else { continue };
        let (name, rest) = tail.split_once(" the ").unwrap();
        if !head.lines().next().unwrap().contains(name) {
            continue; // one of the wrong words of the language itself
        }
        let wrong = if name == "Mara" { "Ada" } else { "Mara" };
        let before = format!("{head}That is how ");
        let (good, bad) = (bits(&language, &before, name), bits(&language, &before, wrong));
        assert!(good < 0.02 && close(bad, ((48 * SURE) as f64).log2()), "{name}: {good}, {wrong}: {bad}");
        let after = |name| bits(&language, &format!("{before}{name}"), &format!(" the {rest}"));
        assert!(close(after(name), after(wrong)));
        tried += 1;
    }
    assert!(tried > 30, "{tried}");
}

#[test]
fn distances_are_those_of_the_text_and_cover_near_and_far() {
    let language = Language::default();
    let text = language.text(1_000_000, 6);
    let all = judged(&mut language.judge(), &text);
    let mut words: HashMap<usize, u32> = HashMap::new();
    let (mut right, mut wrong, mut fresh) = (0, 0, 0);
    let mut at = 0;
    while at < text.len() {
        let Some(distance) = all[at].distance else {
            at += 1;
            continue;
        };
        // Text always stands between two words that are recalled, so a word ends where another kind begins.
        let len = all[at..].iter().take_while(|judged| judged.distance == Some(distance)).count();
        *words.entry(distance.next_power_of_two()).or_default() += 1;
        let word = &text[at..at + len];
        if text[at - distance..].starts_with(word) {
            right += 1
        } else {
            wrong += 1
        }
        if text[..at].ends_with(b", cheap ") && text[..at - 8].ends_with(word) {
            // Cried a moment ago: "Fresh figs, cheap figs!"
            assert_eq!(distance, len + 8);
            fresh += 1;
        }
        at += len;
    }
    let expected = f64::from(right + wrong) / SURE as f64;
    assert!((f64::from(wrong) - expected).abs() < 4.0 * expected.sqrt(), "{wrong} of {}", right + wrong);
    assert!(fresh > 50);
    for upto in [32, 64, 128, 256, 512, 1024] {
        assert!(words[&upto] > 300, "{upto}: {words:?}");
    }
}

#[test]
fn documents_are_of_a_page_and_judged_alone_as_together() {
    let language = Language::default();
    let documents: Vec<String> = language.documents(9).take(400).collect();
    let text = language.text(200_000, 9);
    assert!(documents.concat().into_bytes().starts_with(&text));
    assert!(text.len() >= 200_000 && text.len() < 205_000 && text.ends_with(b"\n\n"));
    let mut together = language.judge();
    for document in &documents {
        assert_eq!(document.matches("\n\n").count(), 1);
        assert!((300..4000).contains(&document.len()), "{}", document.len());
        let alone = judged(&mut language.judge(), document.as_bytes());
        assert_eq!(alone, judged(&mut together, document.as_bytes()));
    }
    let mean = documents.concat().len() / documents.len();
    assert!((700..1300).contains(&mean), "{mean}");
    let cut = &text[100..];
    let start = Language::first_document(cut).unwrap();
    assert_eq!(start + 100, documents[0].len());
    judged(&mut language.judge(), &cut[start..]);
    assert_eq!(Language::first_document(b"no border\n"), None);
}

#[test]
fn a_seed_gives_the_same_bytes_everywhere() {
    // FNV-1a of the text. A change here changes every figure that was ever measured on the language.
    let hash = |text: &[u8]| {
        text.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, &b| (hash ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
    };
    assert_eq!(hash(&Language::default().text(100_000, 0)), 0xb6da_156c_b6ef_6219);
    assert_eq!(hash(&Language::new(7).text(100_000, 1)), 0xea84_6993_7f83_02c7);
    assert_ne!(Language::new(0).text(1000, 0), Language::new(0).text(1000, 1));
    assert!(Language::new(0).facts().ne(Language::new(1).facts()));
}

#[test]
fn what_is_not_of_the_language_is_an_error_with_its_place() {
    let language = Language::default();
    let mut judge = language.judge();
    judged(&mut judge, b"This is the story of M");
    let error = judge.push(b'x').unwrap_err().to_string();
    assert_eq!(error, "byte 22 of the text: found 'x'; expected 'a'");
    // The judge stays where it was.
    judged(&mut judge, b"a");
    let error = judge.push(0xff).unwrap_err().to_string();
    assert_eq!(error, "byte 23 of the text: found '\\xff'; expected 'b' or 'r' or 't' or 'u'");
    judged(&mut judge, b"ud, who was a ");
    // Bytes at random, where every byte is possible at all, do no more than fail.
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let text = language.text(60_000, 1);
    let mut judge = language.judge();
    for &byte in &text {
        let noise: u8 = rng.random();
        let possible = judge.probabilities()[usize::from(noise)] > 0.0;
        assert_eq!(judge.clone().push(noise).is_ok(), possible);
        judge.push(byte).unwrap();
    }
}

#[test]
fn a_tally_adds_up() {
    let judged = |kind, bits| Judged { kind, bits, entropy: 0.0, distance: None };
    let mut tally = Tally::default();
    assert!(tally.rows().iter().all(|row| row.bytes == 0 && row.model == 0.0 && row.share == 0.0));
    tally.add(&judged(Kind::Local, 1.0), 2.0);
    tally.add(&judged(Kind::Local, 3.0), 4.0);
    tally.add(&judged(Kind::ContextNear, 0.5), 1.0);
    tally.add(&judged(Kind::ContextFar, 0.0), 6.0);
    let rows = tally.rows();
    let names: Vec<_> = rows.iter().map(|row| row.kind).collect();
    assert_eq!(names, ["local", "content", "context_near", "context_far", "context", "total"]);
    let figures = |row: usize| (rows[row].bytes, rows[row].share, rows[row].model, rows[row].language);
    assert_eq!(figures(0), (2, 0.5, 3.0, 2.0));
    assert_eq!(figures(1), (0, 0.0, 0.0, 0.0));
    assert_eq!(figures(4), (2, 0.5, 3.5, 0.25));
    assert_eq!(figures(5), (4, 1.0, 3.25, 1.125));
    assert_eq!(rows[5].difference, 2.125);
}

#[test]
fn the_figures_and_the_example_of_the_docs() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/language.md");
    let docs = std::fs::read_to_string(docs).unwrap();
    let language = Language::default();
    let (mut judge, mut tally) = (language.judge(), Tally::default());
    for byte in language.text(10_000_000, 7) {
        tally.add(&judge.push(byte).unwrap(), 0.0);
    }
    for row in tally.rows() {
        let share = if row.kind == "total" { "100 %".into() } else { format!("{:.2} %", 100.0 * row.share) };
        let line = format!("| {} | {share} | {:.4} |", row.kind, row.language);
        assert!(docs.contains(&line), "docs/language.md lacks {line}");
    }
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let example: Vec<&str> = docs.lines().filter_map(|line| line.strip_prefix("> ")).collect();
    let example = example.join(" ").replace(['*', '\\'], "");
    assert_eq!(words(&example), words(&language.documents(0).nth(2).unwrap()));
}
