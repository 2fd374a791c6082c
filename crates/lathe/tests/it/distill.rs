//! Distillation, through the program.

use crate::{command, fails, json, text};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    /// A teacher of a few steps.
    fn teacher(&self, name: &str, model: &str) -> String {
        let out = self.path(name);
        let args =
            format!("train --data builtin:0.02 --steps 20 --batch 4 --lr 0.01 --eval-every 100 --out {out} {model}");
        json(&args.split(' ').collect::<Vec<_>>());
        out
    }
}

const GPT2: &str = "--backbone gpt2 --layers (sf)x4 --d-model 16 --heads 2 --inner 32 --max-len 16";
const XL: &str = "--backbone transformer_xl --layers (sf)x2 --d-model 16 --heads 2 --inner 32 --tgt-len 8 --mem-len 8";
const BERT: &str = "--backbone bert --layers (sf)x4 --d-model 16 --heads 4 --inner 32 --max-len 16";
/// A short run.
const RUN: &str =
    "--data builtin:0.02 --steps 12 --batch 4 --checkpoint-every 3 --log-every 3 --eval-every 100 --keep 100";

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

fn bytes(folder: &str, name: &str) -> Vec<u8> {
    let path = Path::new(folder).join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The last record of a run's steps.
fn last_record(folder: &str) -> serde_json::Value {
    let text = String::from_utf8(bytes(folder, "metrics.jsonl")).expect("UTF-8");
    let mut lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("whole lines"));
    lines.rfind(|line| line.get("loss").is_some()).expect("a step")
}

/// Takes away what a run wrote after a step.
fn stop_at(folder: &str, last: u32) {
    for name in ["result.json", "config.json", "model.safetensors"] {
        std::fs::remove_file(Path::new(folder).join(name)).expect("a file of the model");
    }
    for entry in std::fs::read_dir(Path::new(folder).join("checkpoints")).expect("checkpoints").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.strip_prefix("step-").and_then(|step| step.parse().ok()).is_some_and(|step: u32| step > last) {
            std::fs::remove_dir_all(entry.path()).expect("a checkpoint");
        }
    }
}

/// Every way to learn: what it gives has the keys of a training run and the teacher's loss, records its terms, and goes on
/// after a stop to the same bits.
#[test]
fn every_way_ends_with_the_same_bits_after_a_stop() {
    let folder = Folder::new();
    let teachers = [folder.teacher("gpt2", GPT2), folder.teacher("xl", XL), folder.teacher("bert", BERT)];
    let half = "--layers (sf)x2 --inherit true";
    let narrow = "--layers (sf)x2 --d-model 8";
    let ways = [
        (0, half, "", "ce kl"),
        (0, half, "--kl 0.5 --ce 0.5 --mse 0.1 --temperature 2 --accumulate 2 --dropout 0.1", "ce kl mse"),
        (0, narrow, "--hidden 1 --attention-maps 1 --layer-map 1:1,2:4", "attention_maps ce hidden kl"),
        (0, narrow, "--kl 0 --hidden 1 --hidden-loss mse", "hidden"),
        (0, narrow, "--transfer progressive --hidden 1 --attention-maps 0.5", "ce kl"),
        (0, half, "--transfer progressive --hidden 1 --earlier 0.1 --kl 0", "hidden"),
        (0, half, "--transfer progressive --hidden 1 --layer-map 0:0,1:2,2:4", "ce kl"),
        (0, half, "--transfer blocks", "hidden"),
        (0, "--layers (s1f8)x4", "--transfer blocks", "hidden"),
        (0, half, "--cache-logits 4", "ce kl"),
        (1, "--layers (sf)x1", "--hidden 1 --attention-maps 1 --accumulate 2", "attention_maps ce hidden kl"),
        (1, "--layers (s1f)x2 --inherit true", "--transfer blocks", "hidden"),
        (2, narrow, "--hidden 1 --attention-maps 1", "attention_maps ce hidden kl"),
        (2, half, "--cache-logits 8 --ce 0.5", "ce kl"),
    ];
    for (i, (teacher, student, how, terms)) in ways.into_iter().enumerate() {
        let (out, teacher) = (folder.path(&format!("out{i}")), &teachers[teacher]);
        let args = format!("distill --teacher {teacher} {student} {how} {RUN} --out {out}");
        let outcome = json(&words(&args));
        assert_eq!(outcome["steps"], 12, "{args}");
        for key in ["loss", "tokens_per_s", "seconds"] {
            assert!(outcome[key].is_number(), "{args}: {key}");
        }
        assert!(outcome["valid"]["loss"].is_number() && outcome["teacher"]["loss"].is_number(), "{args}");
        let record = last_record(&out);
        let found: Vec<&str> = record["terms"].as_object().expect("terms").keys().map(String::as_str).collect();
        assert_eq!(found, words(terms), "{args}");
        let (whole, loss) = (bytes(&out, "model.safetensors"), outcome["loss"].clone());
        stop_at(&out, 6);
        let resumed = json(&["distill", "--resume", &out]);
        assert_eq!(resumed["loss"], loss, "{args}");
        assert!(bytes(&out, "model.safetensors") == whole, "{args}: other bits after a stop");
    }
}

#[test]
fn a_killed_run_ends_with_the_same_bits() {
    let folder = Folder::new();
    let teacher = folder.teacher("teacher", XL);
    let (whole, killed) = (folder.path("whole"), folder.path("killed"));
    let args = |out: &str| {
        let how = "--layers (sf)x1 --d-model 8 --dropout 0.1 --hidden 1 --attention-maps 1 --accumulate 2 --keep 2";
        let run = "--data builtin:0.02 --steps 24 --batch 4 --checkpoint-every 3 --eval-every 7";
        format!("distill --teacher {teacher} {how} {run} --out {out}")
    };
    let outcome = json(&words(&args(&whole)));
    let mut kills = 0;
    for sitting in 0..400u64 {
        let first = !Path::new(&killed).join("run.toml").exists();
        if first {
            std::fs::remove_dir_all(&killed).ok();
        }
        let line = if first { args(&killed) } else { format!("distill --resume {killed}") };
        let mut child =
            command(&words(&line)).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the binary runs");
        std::thread::sleep(Duration::from_millis(10 + 9 * sitting));
        if let Some(status) = child.try_wait().expect("a status") {
            assert!(status.success());
            break;
        }
        child.kill().expect("it can be killed");
        child.wait().expect("it ends");
        kills += 1;
    }
    assert!(kills > 0, "no sitting was killed");
    assert_eq!(json(&["distill", "--resume", &killed])["loss"], outcome["loss"]);
    assert!(bytes(&killed, "model.safetensors") == bytes(&whole, "model.safetensors"));
}

/// A student that is its teacher stays it; the teacher's loss is the one that an evaluation gives; a student of half the
/// depth comes nearer to its teacher.
#[test]
fn students_come_near_their_teacher() {
    let folder = Folder::new();
    let teacher = folder.teacher("teacher", GPT2);
    let valid = folder.path("valid.txt");
    std::fs::write(&valid, "the birds fly north and the fish swim south; ".repeat(60)).expect("a file");
    let out = folder.path("same");
    let args = format!("distill --teacher {teacher} --student {teacher} --valid {valid} {RUN} --out {out}");
    let same = json(&words(&args));
    assert!(same["loss"].as_f64().expect("a number") < 1e-4, "{}", same["loss"]);
    let evaluated = json(&["eval", &teacher, "--data", &valid]);
    assert_eq!(same["teacher"]["loss"], evaluated["loss"]);
    let difference = same["valid"]["loss"].as_f64().expect("a number") - evaluated["loss"].as_f64().expect("a number");
    assert!(difference.abs() < 0.02, "{difference}");
    // Both as bf16, as large models come.
    let stored = folder.path("bf16");
    let mut network = lathe_model::folder::load(Path::new(&teacher), &lathe_model::REGISTRY).expect("a model");
    network.set_storage(&lathe_ops::storage::Bf16);
    lathe_model::folder::save(&network, Path::new(&stored)).expect("a folder");
    let out = folder.path("of_bf16");
    let args = format!("distill --teacher {stored} --student {stored} {RUN} --lr 1e-9 --out {out}");
    let loss = json(&words(&args))["loss"].as_f64().expect("a number");
    assert!(loss.abs() < 1e-6, "{loss}");
    let out = folder.path("half");
    let args = format!("distill --teacher {teacher} --layers (sf)x2 --lr 0.01 {RUN} --out {out}");
    json(&words(&args));
    let text = String::from_utf8(bytes(&out, "metrics.jsonl")).expect("UTF-8");
    let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("whole lines"));
    let kl: Vec<f64> = lines.filter_map(|line| line["terms"]["kl"].as_f64()).collect();
    assert!(kl.len() == 4 && kl[3] < 0.5 * kl[0], "{kl:?}");
}

/// Logits that one run kept serve another, which gives the same bits; not one that has other batches.
#[test]
fn kept_logits_are_shared() {
    let folder = Folder::new();
    let teacher = folder.teacher("teacher", GPT2);
    let cache = folder.path("cache");
    // A text of two epochs or more.
    let data = folder.path("text.txt");
    std::fs::write(&data, "the birds fly north and the fish swim south; ".repeat(12)).expect("a file");
    let args = |out: &str, more: &str| {
        let run = format!("--data {data} --steps 20 --batch 4 --seq 16 --cache-logits 6 --cache {cache} {more}");
        format!("distill --teacher {teacher} --layers (sf)x1 {run} --out {}", folder.path(out))
    };
    let kept = || {
        let mut files: Vec<_> = std::fs::read_dir(&cache)
            .expect("a folder")
            .map(|entry| {
                let entry = entry.expect("a file");
                (entry.file_name(), entry.metadata().and_then(|found| found.modified()).expect("a time"))
            })
            .collect();
        files.sort();
        files
    };
    json(&words(&args("first", "")));
    let after_first = kept();
    assert!(after_first.len() > 2 && after_first.len() < 20, "{} files: every epoch is the same", after_first.len());
    json(&words(&args("second", "")));
    assert_eq!(kept(), after_first, "nothing is written twice");
    assert!(bytes(&folder.path("first"), "model.safetensors") == bytes(&folder.path("second"), "model.safetensors"));
    let (code, error) = fails(&words(&args("third", "--seed 1")));
    assert!(code == 2 && error.contains("seed") && error.contains("another folder"), "{error}");
    assert!(!Path::new(&folder.path("third")).exists(), "a run that never began leaves nothing behind");
}

/// A run file with a table [distill] is the same run.
#[test]
fn a_run_file_distils_too() {
    let folder = Folder::new();
    let teacher = folder.teacher("teacher", GPT2);
    let by_flags = folder.path("flags");
    let args = format!("distill --teacher {teacher} --layers (sf)x2 --kl 0.5 --hidden 1 {RUN} --out {by_flags}");
    json(&words(&args));
    let run = String::from_utf8(bytes(&by_flags, "run.toml")).expect("UTF-8");
    assert!(run.contains("[distill]") && run.contains("hidden = 1"), "{run}");
    let (file, out) = (folder.path("run.toml"), folder.path("file"));
    std::fs::write(&file, run).expect("a file");
    json(&["train", &file, "--out", &out]);
    assert!(bytes(&out, "model.safetensors") == bytes(&by_flags, "model.safetensors"));
    assert!(text(&["distill", "--resume", &by_flags]).contains("teacher: valid loss"));
}

#[test]
fn what_cannot_be_learnt_is_told() {
    let folder = Folder::new();
    let teacher = folder.teacher("teacher", GPT2);
    let (xl, bert) = (folder.teacher("xl", XL), folder.teacher("bert", BERT));
    let other = folder.path("other");
    let words_of =
        format!("train --data builtin:0.02 --tokenizer bpe:300 --steps 2 --batch 2 --out {other} --vocab 300 {GPT2}");
    json(&words(&words_of));
    let out = folder.path("out");
    let half = "--layers (sf)x2";
    for (args, parts) in [
        (half.to_string(), "--teacher is missing"),
        (format!("--teacher {teacher}"), "--student is missing"),
        (format!("--teacher {} {half}", folder.path("nobody")), "nobody"),
        (format!("--teacher {teacher} {half} --vocab 300"), "300"),
        (format!("--teacher {teacher} --student {other}"), "tokenizer"),
        (format!("--teacher {teacher} {half} --tokenizer bpe:300"), "tokenizer"),
        (format!("--teacher {bert} {half} --backbone gpt2 --vocab 256"), "causal_lm"),
        (format!("--teacher {teacher} {half} --cutoffs [64]"), "adaptive"),
        (format!("--teacher {xl} {half} --mse 1"), "--mse"),
        (format!("--teacher {xl} {half} --cache-logits 4"), "--cache-logits"),
        (format!("--teacher {teacher} {half} --max-len 32"), "--seq"),
        (format!("--teacher {teacher} {half} --kl 0"), "kl"),
        (format!("--teacher {teacher} {half} --hidden 1 --layer-map 1:9"), "--layer-map"),
        (format!("--teacher {teacher} {half} --hidden 1 --layer-map 2"), "layer_map"),
        (format!("--teacher {teacher} {half} --transfer slowly"), "transfer"),
        (format!("--teacher {teacher} {half} --transfer progressive"), "hidden"),
        (format!("--teacher {teacher} {half} --transfer blocks --d-model 8"), "--d-model"),
        (format!("--teacher {teacher} {half} --transfer blocks --layer-map 1:3,2:1"), "--layer-map"),
        (format!("--teacher {teacher} {half} --cache-logits 4 --hidden 1"), "hidden"),
        (format!("--teacher {teacher} {half} --temperature 0"), "temperature"),
        (format!("--teacher {teacher} --layers ff --attention-maps 1"), "--attention-maps"),
        (format!("--teacher {teacher} --student {teacher} --inherit true"), "--inherit"),
        (format!("--resume {teacher} --kl 1"), "--resume"),
    ] {
        let line = format!("distill --data builtin:0.02 --steps 2 --batch 2 --out {out} {args}");
        let line = if args.starts_with("--resume") { format!("distill {args}") } else { line };
        let (code, error) = fails(&words(&line));
        assert!(code == 2 && error.contains(parts), "{args}: {code}, {error}");
        assert!(!Path::new(&out).exists(), "{args}: a run that never began leaves nothing behind");
    }
    // A larger vocabulary is no matter where tokens are not compared.
    json(&words(&format!(
        "distill --data builtin:0.02 --steps 2 --batch 2 --out {out} --teacher {other} {half} --vocab 310 --kl 0 --hidden 1"
    )));
}
