//! Training, evaluation and generation, through the program.

use crate::{command, fails, json, text};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;

/// A run small enough for a test: a transformer_xl, so that there is a memory to lose, with dropout and experts.
const TINY: &str = r#"
data = "builtin:0.1"
steps = 40
batch = 4
accumulate = 2
checkpoint_every = 3
eval_every = 7
log_every = 5
[model]
backbone = "transformer_xl"
layers = "s f s m4k2"
d_model = 16
heads = 2
inner = 32
tgt_len = 16
mem_len = 16
dropout = 0.1
"#;

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        std::fs::write(self.path(name), content).expect("a file");
        self.path(name)
    }

    /// The run file with lines before it.
    fn run(&self, lines: &str) -> String {
        self.file("run.toml", format!("{lines}\n{TINY}"))
    }
}

fn bytes(folder: &str, name: &str) -> Vec<u8> {
    let path = Path::new(folder).join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Loss and learning rate of every step recorded, and every evaluation; steps recorded twice must be the same.
fn record(folder: &str) -> std::collections::BTreeMap<String, String> {
    let mut record = std::collections::BTreeMap::new();
    for line in String::from_utf8(bytes(folder, "metrics.jsonl")).expect("UTF-8").lines() {
        let mut line: serde_json::Value = serde_json::from_str(line).expect("whole lines");
        let Some(fields) = line.as_object_mut().filter(|fields| fields.contains_key("step")) else { continue };
        fields.remove("tokens_per_s");
        let key = format!("{} {}", fields["step"], fields.contains_key("valid"));
        let value = line.to_string();
        let before = record.insert(key, value.clone());
        assert!(before.is_none_or(|before| before == value), "{value} was recorded otherwise before");
    }
    record
}

fn checkpoints(folder: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(Path::new(folder).join("checkpoints")).expect("checkpoints");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths
}

#[test]
fn a_killed_run_ends_with_the_same_bits() {
    let folder = Folder::new();
    let run = folder.run("");
    let (whole, killed) = (folder.path("whole"), folder.path("killed"));
    let outcome = json(&["train", &run, "--out", &whole]);
    assert_eq!((&outcome["steps"], &outcome["tokens"]), (&40.into(), &(40 * 4 * 16).into()));
    // Each sitting is a little longer than the one before, so that kills fall everywhere in it, and one gets through.
    let mut kills = 0;
    for sitting in 0..400u64 {
        let args =
            if sitting == 0 { vec!["train", &run, "--out", &killed] } else { vec!["train", "--resume", &killed] };
        let mut child = command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the binary runs");
        std::thread::sleep(Duration::from_millis(5 + 7 * sitting));
        if let Some(status) = child.try_wait().expect("a status") {
            // A folder that was killed before it had its settings is no run yet.
            if !status.success() && !Path::new(&killed).join("run.toml").exists() {
                std::fs::remove_dir_all(&killed).ok();
                continue;
            }
            assert!(status.success());
            break;
        }
        child.kill().expect("it can be killed");
        child.wait().expect("it ends");
        kills += 1;
        if !Path::new(&killed).join("run.toml").exists() {
            std::fs::remove_dir_all(&killed).ok();
            json(&["train", &run, "--out", &killed]);
            break;
        }
    }
    assert!(kills > 0, "no sitting was killed");
    assert_eq!(json(&["train", "--resume", &killed])["loss"], outcome["loss"]);
    assert_eq!(bytes(&killed, "model.safetensors"), bytes(&whole, "model.safetensors"));
    assert_eq!(record(&killed), record(&whole));
}

/// A run that stopped after 20 of its 40 steps, because its folder was copied then.
fn half(folder: &Folder, run: &str) -> String {
    let out = folder.path("half");
    json(&["train", run, "--out", &out]);
    // What ended is not to be resumed: only checkpoints up to the middle, and no result.
    for name in ["result.json", "config.json", "model.safetensors"] {
        std::fs::remove_file(Path::new(&out).join(name)).expect("a file of the model");
    }
    out
}

#[test]
fn damaged_checkpoints_are_named_and_the_one_before_is_used() {
    let folder = Folder::new();
    let run = folder.run("keep = 100");
    let whole = folder.path("whole");
    json(&["train", &run, "--out", &whole]);
    type Damage = fn(&Path);
    let damage: [(&str, Damage); 4] = [
        ("training.safetensors", |path| {
            let mut bytes = std::fs::read(path).expect("a file");
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            std::fs::write(path, bytes).expect("a file");
        }),
        ("model.safetensors", |path| {
            let file = std::fs::OpenOptions::new().write(true).open(path).expect("a file");
            file.set_len(100).expect("a shorter file");
        }),
        ("progress.json", |path| std::fs::remove_file(path).expect("a file")),
        ("manifest.json", |path| std::fs::write(path, "{").expect("a file")),
    ];
    let out = half(&folder, &run);
    let newest: Vec<PathBuf> = checkpoints(&out).into_iter().rev().take(damage.len()).collect();
    for (checkpoint, (name, damage)) in newest.iter().zip(damage) {
        damage(&checkpoint.join(name));
    }
    let done = command(&["train", "--resume", &out]).output().expect("the binary runs");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    for (checkpoint, (name, _)) in newest.iter().zip(damage) {
        let file = checkpoint.join(name).display().to_string();
        assert!(said.contains(&file), "{file} is not named in: {said}");
    }
    assert_eq!(bytes(&out, "model.safetensors"), bytes(&whole, "model.safetensors"));
}

/// Stacks of one frame: fewer blocks, and narrower ones.
const FUSED: &str = "s1 f8 + s f s m4k2 f48";

#[test]
fn fused_models_are_trained_at_once_and_each_is_a_model() {
    let folder = Folder::new();
    // Rates are such that what was learnt last shows in the next loss.
    let run = folder.run(&format!("fuse = \"{FUSED}\"\nlr = 0.01"));
    let whole = folder.path("whole");
    let outcome = json(&["train", &run, "--out", &whole]);
    let fused = outcome["fused"].as_array().expect("each model");
    let layers: Vec<_> = fused.iter().map(|one| one["layers"].as_str().expect("a stack")).collect();
    assert_eq!(layers, ["s1 f8", "sfs m4k2 f48"]);
    assert_eq!(outcome["valid"]["loss"], fused[1]["valid"]["loss"], "the largest stands for all");
    for one in fused {
        let loss = one["valid"]["loss"].as_f64().expect("a loss");
        assert!(loss < 4.0, "{}: {loss} is no better than at first", one["layers"]);
        let own = Path::new(&whole).join(one["folder"].as_str().expect("a folder")).display().to_string();
        let valid = json(&[
            "train",
            &run,
            "--init",
            &own,
            "--fuse",
            "",
            "--layers",
            one["layers"].as_str().unwrap(),
            "--lr",
            "0",
            "--steps",
            "1",
            "--out",
            &folder.path(&format!("again-{}", one["layers"].as_str().unwrap().len())),
        ]);
        assert_eq!(valid["valid"]["loss"], one["valid"]["loss"], "{} says again what it said", one["layers"]);
    }
    // Tokens are divided among the models, not multiplied.
    assert_eq!(outcome["tokens"], 40 * 4 * 16);
    // What was stopped ends with the same bits.
    let out = folder.path("half");
    json(&["train", &run, "--out", &out]);
    for name in ["result.json", "config.json", "model.safetensors", "fused/1/model.safetensors"] {
        std::fs::remove_file(Path::new(&out).join(name)).expect("a file of the model");
    }
    for checkpoint in checkpoints(&out).iter().rev().take(1) {
        std::fs::remove_dir_all(checkpoint).expect("a checkpoint");
    }
    json(&["train", "--resume", &out]);
    for name in ["model.safetensors", "fused/1/model.safetensors", "fused/2/model.safetensors"] {
        assert_eq!(bytes(&out, name), bytes(&whole, name), "{name}");
    }
}

#[test]
fn fused_models_come_from_files_and_must_fit_each_other() {
    let folder = Folder::new();
    let frame = "backbone = \"gpt2\"\nd_model = 16\nvocab = 256\nmax_len = 16\n";
    let small = folder.file("small.toml", format!("{frame}layers = \"sf\"\nheads = 2\ninner = 16"));
    let large = folder.file("large.toml", format!("{frame}layers = \"(sf)x2\"\nheads = 4\ninner = 32"));
    let other = folder.file("other.toml", format!("{frame}layers = \"sf\"").replace("16", "32"));
    let fuse = |models: &[&str]| {
        ["train", "--data", "builtin:0.1", "--steps", "2", "--fuse", &models.join("+"), "--out"].map(String::from)
    };
    let train = |models: &[&str], out: &str, further: &[&str]| {
        let (fuse, out) = (fuse(models), folder.path(out));
        let args: Vec<&str> = fuse.iter().map(String::as_str).chain([&*out]).chain(further.iter().copied()).collect();
        match further.is_empty() {
            true => json(&args)["fused"].to_string(),
            false => fails(&args).1,
        }
    };
    let fused = train(&[&small, &large], "both", &[]);
    assert!(fused.contains("s2d8 f16") && fused.contains("(s4d4 f32)x2"), "{fused}");
    let error = train(&[&small, &other], "none", &["--seed", "0"]);
    assert!(error.contains("d_model = 32") && error.contains("d_model = 16"), "{error}");
    let error = train(&[&small, &large], "none", &["--batch", "5"]);
    assert!(error.contains("batch: found 5") && error.contains("multiple of 2"), "{error}");
    let error = train(&["(sf)x2", "ffs"], "none", &["--seed", "0"]);
    assert!(error.contains("fuse: found ffs"), "{error}");
    let error = train(&[&small, &large], "none", &["--patience", "2"]);
    assert!(error.contains("patience beside it"), "{error}");
}

#[test]
fn a_folder_that_holds_something_is_left_alone() {
    let folder = Folder::new();
    let (code, error) = fails(&["train", &folder.run("step = 1"), "--out", &folder.path("x")]);
    assert!(code == 2 && error.contains("did you mean `steps`"), "{error}");
    let run = folder.run("");
    let out = folder.path("out");
    json(&["train", &run, "--steps", "2", "--out", &out]);
    let before = bytes(&out, "model.safetensors");
    let (code, error) = fails(&["train", &run, "--out", &out]);
    assert_eq!(code, 2);
    assert!(error.contains("another run") && error.contains("--resume"), "{error}");
    assert_eq!(bytes(&out, "model.safetensors"), before);
    std::fs::create_dir(folder.path("mine")).expect("a folder");
    folder.file("mine/letter.txt", "dear");
    let (code, error) = fails(&["train", &run, "--out", &folder.path("mine")]);
    assert!(code == 2 && error.contains("other files"), "{error}");
    assert_eq!(fails(&["train", "--resume", &folder.path("mine")]).0, 2);
    assert_eq!(fails(&["train", "--resume", &out, "--steps", "3"]).0, 2);
}

#[test]
fn bad_text_is_a_clear_error_that_leaves_nothing_behind() {
    let folder = Folder::new();
    let model = ["--model", "small_gpt2", "--steps", "2", "--batch", "2"];
    let short = folder.file("short.txt", "a text of a few bytes");
    let cases = [
        (folder.file("empty.txt", ""), "bytes", "empty.txt"),
        (folder.path("missing.txt"), "bytes", "missing.txt"),
        (folder.file("wrong.txt", [b"words and \xff more of them\n".as_slice(); 50].concat()), "word:100", "byte 10"),
        (short, "bytes", "tokens"),
        (folder.file("one.txt", "x"), "bytes", "one.txt"),
    ];
    for (data, tokenizer, part) in &cases {
        let out = folder.path("out");
        let args = [&["train", "--data", data, "--tokenizer", tokenizer, "--out", &out], model.as_slice()].concat();
        let (code, error) = fails(&args);
        assert!(code == 1 && error.contains(part), "{data}: {code}, {error}");
        assert!(!Path::new(&out).exists(), "{data} left a folder");
    }
    // A file of zeros is a text like any other.
    let zeros = folder.file("zeros.txt", [0; 4000]);
    let out = folder.path("zeros");
    let outcome = json(&[&["train", "--data", &zeros, "--out", &out], model.as_slice()].concat());
    assert!(outcome["valid"]["loss"].as_f64().is_some_and(|loss| loss < 6.0));
}

#[test]
fn with_patience_the_best_model_counts() {
    let folder = Folder::new();
    // Letters without a pattern: all that can be learnt of one text is wrong for the other.
    let letters = |mut state: u32, count: usize| -> Vec<u8> {
        let mut letter = || {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            b'a' + (state % 16) as u8
        };
        (0..count).map(|_| letter()).collect()
    };
    let (data, valid) = (folder.file("train.txt", letters(1, 300)), folder.file("valid.txt", letters(2, 1500)));
    let train = |patience: &str, steps: &str| {
        let out = folder.path(&format!("{patience} {steps}"));
        let model = ["--backbone", "gpt2", "--layers", "(sf)x2", "--d-model", "64", "--max-len", "32"];
        let run = ["--data", &data, "--valid", &valid, "--steps", steps, "--eval-every", "20", "--lr", "0.003"];
        let trained =
            json(&[&["train"], &model[..], &run, &["--batch", "8", "--patience", patience, "--out", &out]].concat());
        let lines = String::from_utf8(bytes(&out, "metrics.jsonl")).expect("UTF-8");
        let records = lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
        let losses: Vec<f64> = records.filter_map(|record| record["valid"]["loss"].as_f64()).collect();
        let loss = |document: &serde_json::Value| document["loss"].as_f64().expect("a loss");
        let (said, kept) = (loss(&trained["valid"]), loss(&json(&["eval", &out, "--data", &valid])));
        assert!((said - kept).abs() < 1e-6, "{said} {kept}");
        (said, losses)
    };
    let least = |losses: &[f64]| losses.iter().copied().fold(f64::INFINITY, f64::min);
    let (last, losses) = train("0", "160");
    assert!(last == losses[7] && last > least(&losses), "{last} {losses:?}");
    let (best, losses) = train("100", "160");
    assert!(best == least(&losses) && losses.len() == 8, "{best} {losses:?}");
    // The last weights are looked at, too.
    let (best, losses) = train("100", "4");
    assert!(best == losses[0] && best == least(&losses), "{best} {losses:?}");
}

#[test]
fn a_rate_that_is_too_high_stops_with_the_step_and_the_last_checkpoint() {
    let folder = Folder::new();
    let run = folder.run("");
    let out = folder.path("out");
    let args = ["train", &run, "--out", &out, "--lr", "900", "--warmup", "20", "--clip", "0", "--optimizer", "sgd"];
    let (code, error) = fails(&args);
    assert_eq!(code, 1);
    assert!(error.contains("step ") && error.contains("lr"), "{error}");
    // What was good is still there.
    assert!(Path::new(&out).join("metrics.jsonl").exists());
}

#[test]
fn the_loss_of_a_transformers_folder_is_that_of_pytorch() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/fixtures/gpt2_text");
    let data = format!("{folder}/text.txt");
    let expected: serde_json::Value = serde_json::from_slice(&bytes(folder, "expected.json")).expect("JSON");
    for context in ["0", "8"] {
        let found = json(&["eval", folder, "--data", &data, "--context", context]);
        assert_eq!(found["tokens"], expected["tokens"]);
        for key in ["loss", "bits_per_byte"] {
            let [a, b] = [&found, &expected[format!("context_{context}")]].map(|v| v[key].as_f64().expect("a number"));
            assert!((a - b).abs() < 1e-5 * b, "context {context}, {key}: {a} is not {b}");
        }
    }
}

#[test]
fn a_trained_model_is_evaluated_and_writes() {
    let folder = Folder::new();
    let run = folder.run("tensorboard = true");
    let out = folder.path("out");
    let outcome = json(&["train", &run, "--out", &out]);
    let kinds = outcome["valid"]["kinds"].as_array().expect("kinds of the built-in language");
    assert!(kinds.iter().any(|row| row["kind"] == "context"));
    // A token of several bytes counts for all of them.
    let pieces = json(&["train", &run, "--tokenizer", "bpe:300", "--steps", "2", "--out", &folder.path("pieces")]);
    let of = |key: &str, outcome: &serde_json::Value| {
        let rows = outcome["valid"]["kinds"].as_array().expect("kinds").clone();
        rows.iter().find(|row| row["kind"] == "total").expect("a sum")[key].as_f64().expect("a number")
    };
    let bits = pieces["valid"]["bits_per_byte"].as_f64().expect("a number");
    assert!((of("bits_per_byte", &pieces) / bits - 1.0).abs() < 0.05, "{bits}");
    assert!((of("entropy", &pieces) / of("entropy", &outcome) - 1.0).abs() < 0.05);
    assert!(Path::new(&out).join("tensorboard").is_dir());
    assert!(!Path::new(&out).join("data").exists());
    let again = json(&["train", "--resume", &out]);
    assert_eq!(again["valid"]["loss"], outcome["valid"]["loss"]);

    let sample =
        |seed: &str| json(&["generate", &out, "--prompt", "The", "--tokens", "30", "--seed", seed])["text"].clone();
    assert_eq!(sample("1"), sample("1"));
    assert_ne!(sample("1"), sample("2"));
    assert!(text(&["generate", &out, "--prompt", "The", "--tokens", "3", "--temperature", "0"]).starts_with("The"));
    assert_eq!(fails(&["generate", &out, "--top-p", "0"]).0, 2);
    // What was trained begins another run, at the loss where it ended.
    let more = json(&[
        "train",
        "--init",
        &out,
        "--data",
        "builtin:0.1",
        "--steps",
        "1",
        "--lr",
        "0",
        "--out",
        &folder.path("more"),
    ]);
    let [a, b] = [&more, &outcome].map(|run| run["valid"]["loss"].as_f64().expect("a loss"));
    assert!((a - b).abs() < 1e-4, "{a} is not {b}");
}
