//! Every target over its stored corpus, and over damaged copies of it: as many as LATHE_CASES says, for as long as LATHE_SECONDS
//! says, or a few; which ones, LATHE_SEED says. LATHE_TARGETS names some, with commas.

use lathe_fuzz::{Damage, TARGETS};
use std::path::Path;
use std::time::{Duration, Instant};

/// Damaged copies of each target's corpus.
const CASES: u64 = 400;

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// A number that the environment gives.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name}: a number, not {value}")))
}

#[test]
fn nothing_from_outside_panics() {
    let seconds = number("LATHE_SECONDS");
    let most = number("LATHE_CASES").unwrap_or(if seconds.is_some() { u64::MAX } else { CASES });
    let time = Duration::from_secs(seconds.unwrap_or(u64::MAX));
    let seed = number("LATHE_SEED").unwrap_or(0);
    let each = |target: &lathe_fuzz::Target| {
        let files = corpus(target.name);
        assert!(!files.is_empty(), "{} has a corpus", target.name);
        files.iter().for_each(|file| (target.run)(file));
        let count = files.len();
        let mut damage = Damage::new(files, seed);
        let (begin, mut done) = (Instant::now(), 0);
        while done < most && begin.elapsed() < time {
            let data = damage.copy(done as usize % count);
            if std::panic::catch_unwind(|| (target.run)(&data)).is_err() {
                panic!("{} panics on case {done} of seed {seed}: {}", target.name, data.escape_ascii());
            }
            done += 1;
        }
        println!("{}: {done} damaged copies, none panics", target.name);
    };
    let named = std::env::var("LATHE_TARGETS").unwrap_or_default();
    let named: Vec<&str> = named.split(',').filter(|name| !name.is_empty()).collect();
    let known = |name: &&str| TARGETS.iter().any(|target| target.name == *name);
    assert!(named.iter().all(known), "LATHE_TARGETS: names of targets, not {named:?}");
    let wanted = |target: &&lathe_fuzz::Target| named.is_empty() || named.contains(&target.name);
    std::thread::scope(|scope| {
        TARGETS.iter().filter(wanted).for_each(|target| drop(scope.spawn(move || each(target))))
    });
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
