//! Every store keeps its promises.

use lathe_job::store::{STORES, Store, conformance};
use lathe_model::REGISTRY;

#[test]
fn stores_conform() {
    for entry in STORES {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let place = folder.path().join("a").join("store").display().to_string();
        let store: Box<dyn Store> = (entry.open)(&place).expect(entry.name);
        conformance(&*store, &REGISTRY);
    }
}

#[test]
fn files_are_read_by_whoever_comes_after() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let open = || lathe_job::store::Files::new(folder.path());
    open().log("log").expect("a log").append(b"one").expect("room");
    open().write("document", b"two").expect("room");
    assert_eq!(open().log("log").expect("a log").lines().expect("lines"), [b"one"]);
    assert_eq!(std::fs::read(folder.path().join("document")).expect("a file"), b"two");
    // A record of an earlier version, whose writer was killed in the middle of a line.
    let model = r#"backbone = \"gpt2\"\nlayers = \"s4 f\"\nd_model = 64\nvocab = 9\n"#;
    let line = format!(r#"{{"model":"{model}","latency_ms":1.5,"peak_bytes":7.0}}"#);
    std::fs::write(folder.path().join("old.jsonl"), format!("{line}\n{}", &line[..40])).expect("a file");
    let mut warn = |warning: String| panic!("{warning}");
    let record = lathe_job::store::open_record(&open(), "old.jsonl", &REGISTRY, &mut warn).expect("a record");
    assert_eq!(record.len(), 1);
}
