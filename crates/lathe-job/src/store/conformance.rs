//! What every store promises.

use super::{Store, open_record, read_table, write_table};
use lathe_core::{Model, Registry, Spec};
use lathe_search::profile::{Entry, Interval, Part, Prediction, ProfileTable};
use lathe_search::workload::Workload;

/// Checks a store that is empty; `registry` has gpt2, `s` and `f`.
///
/// # Panics
/// With what is wrong, where the store breaks a promise.
pub fn conformance(store: &dyn Store, registry: &Registry) {
    documents(store);
    names(store);
    logs(store);
    killed(store);
    one_writer(store);
    records(store, registry);
    tables(store, registry);
}

/// What was written last is read back, byte by byte.
fn documents(store: &dyn Store) {
    assert_eq!(store.read("document").expect("a store"), None);
    let long: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
    for content in [&b"one"[..], b"", &long, b"\0two\n\n"] {
        store.write("document", content).expect("room");
        assert_eq!(store.read("document").expect("a store").as_deref(), Some(content));
    }
    store.write("other.json", b"{}").expect("room");
    assert_eq!(store.read("document").expect("a store").as_deref(), Some(&b"\0two\n\n"[..]));
    assert!(store.place("document").contains("document"));
}

/// A name is a name, not a way out of the store.
fn names(store: &dyn Store) {
    for name in ["", ".", "..", "../x", "a/b", "a\\b", ".hidden", "a\n", "a b"] {
        assert!(store.read(name).is_err() && store.write(name, b"x").is_err() && store.log(name).is_err(), "{name:?}");
    }
}

fn line(i: usize) -> Vec<u8> {
    format!("line {i} {}", "x".repeat(i * 37 % 500)).into_bytes()
}

/// Lines are read back in the order written, by whoever wrote them and by whoever comes after.
fn logs(store: &dyn Store) {
    let mut written = Vec::new();
    for _ in 0..3 {
        let mut log = store.log("log.jsonl").expect("a log");
        assert_eq!(log.lines().expect("lines"), written);
        for _ in 0..50 {
            written.push(line(written.len()));
            log.append(&written[written.len() - 1]).expect("room");
        }
        assert_eq!(log.lines().expect("lines"), written);
    }
    let text = store.read("log.jsonl").expect("a store").expect("a log");
    assert_eq!(text, written.iter().flat_map(|line| [line, &b"\n"[..]].concat()).collect::<Vec<u8>>());
}

/// Half a last line is dropped, and whole ones stay.
fn killed(store: &dyn Store) {
    for (left, whole) in [("a\nb\nhal", 2), ("hal", 0), ("a\n", 1), ("a\n\nb\nc", 3), ("", 0)] {
        store.write("killed.jsonl", left.as_bytes()).expect("room");
        let mut log = store.log("killed.jsonl").expect("a log");
        assert_eq!(log.lines().expect("lines").len(), whole, "{left:?}");
        log.append(b"next").expect("room");
        drop(log);
        let lines = store.log("killed.jsonl").expect("a log").lines().expect("lines");
        assert_eq!((lines.len(), lines.last().map(Vec::as_slice)), (whole + 1, Some(&b"next"[..])), "{left:?}");
    }
}

/// A log has one writer at a time; another log has its own.
fn one_writer(store: &dyn Store) {
    let first = store.log("mine.jsonl").expect("a log");
    let Err(error) = store.log("mine.jsonl") else { panic!("a second writer") };
    assert!(!error.is_usage() && error.to_string().contains("mine.jsonl"), "{error}");
    let mut other = store.log("yours.jsonl").expect("another log");
    other.append(b"x").expect("room");
    drop(first);
    store.log("mine.jsonl").expect("a log that is free again");
}

fn model(layers: &str, registry: &Registry) -> Model {
    let text = format!("backbone='gpt2'\nlayers='{layers}'\nd_model=64\nheads=4\nvocab=9");
    Spec::from_toml(&text, registry).and_then(|spec| spec.model(registry)).expect("a model of the registry")
}

/// What a search evaluated is known to the search that goes on.
fn records(store: &dyn Store, registry: &Registry) {
    let found = |ms: f64| Prediction { latency_ms: ms, peak_bytes: 1e6 + ms };
    let models = ["s", "f", "s2 f", "sf"].map(|layers| model(layers, registry));
    for (i, known) in models.iter().enumerate() {
        let mut warn = |warning: String| panic!("{warning}");
        let mut record = open_record(store, "candidates.jsonl", registry, &mut warn).expect("a record");
        assert_eq!((record.len(), record.get(known)), (i, None));
        record.add(known, found(0.1 + i as f64)).expect("room");
        for (i, model) in models[..=i].iter().enumerate() {
            assert_eq!(record.get(model), Some(found(0.1 + i as f64)), "exactly");
        }
    }
    let text = store.read("candidates.jsonl").expect("a store").expect("a record");
    store.write("candidates.jsonl", &text[..text.len() - 9]).expect("room");
    let mut warn = |warning: String| panic!("{warning}");
    let record = open_record(store, "candidates.jsonl", registry, &mut warn).expect("a record");
    assert_eq!((record.len(), record.get(&models[3])), (3, None));
}

/// A table is read back as it was written, and a damaged one is an error that names it.
fn tables(store: &dyn Store, registry: &Registry) {
    assert!(read_table(store, "table.json").expect("a store").is_none());
    let mut table = ProfileTable::new(&Workload { batch: 3, ..Workload::default() });
    table.extend(Part::of_model(&model("s f", registry)).enumerate().map(|(i, part)| Entry {
        name: part.name,
        d_model: 64,
        batch: 3,
        seq: 16,
        latency_us: Interval { median: 0.1 + i as f64, low: 0.1, high: 9.0 },
        outliers: i,
        peak_bytes: u64::MAX,
        held_bytes: 1,
        raw_us: vec![1.0 / 3.0; 5],
    }));
    write_table(store, "table.json", &table).expect("room");
    assert_eq!(read_table(store, "table.json").expect("a store"), Some(table));
    let text = store.read("table.json").expect("a store").expect("a table");
    store.write("table.json", &text[..text.len() / 2]).expect("room");
    let error = read_table(store, "table.json").expect_err("half a table").to_string();
    assert!(error.contains("table.json"), "{error}");
}
