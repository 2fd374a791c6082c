//! Every target over its stored corpus, and over damaged copies of it: as many as LATHE_CASES says, or a few.

use lathe_fuzz::{Damage, TARGETS};
use std::path::Path;

/// Damaged copies of each target's corpus.
const CASES: usize = 400;

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

#[test]
fn nothing_from_outside_panics() {
    let cases = std::env::var("LATHE_CASES").map_or(CASES, |cases| cases.parse().unwrap());
    let each = |target: &lathe_fuzz::Target| {
        let files = corpus(target.name);
        assert!(!files.is_empty(), "{} has a corpus", target.name);
        files.iter().for_each(|file| (target.run)(file));
        let count = files.len();
        let mut damage = Damage::new(files, 0);
        for case in 0..cases {
            let data = damage.copy(case % count);
            if std::panic::catch_unwind(|| (target.run)(&data)).is_err() {
                panic!("{} panics on case {case}: {}", target.name, data.escape_ascii());
            }
        }
    };
    std::thread::scope(|scope| TARGETS.iter().for_each(|target| drop(scope.spawn(move || each(target)))));
}

#[test]
fn every_target_has_its_program() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    for target in TARGETS {
        assert!(manifest.contains(&format!("name = \"{}\"", target.name)), "{}", target.name);
        let program = std::fs::read_to_string(folder.join(format!("fuzz_targets/{}.rs", target.name))).unwrap();
        assert!(program.contains(&format!("\"{}\"", target.name)), "{}", target.name);
    }
}
