//! Encoders that are fine-tuned, judged and asked, through the program.

use crate::{command, fails, json, text};
use lathe_model::REGISTRY;
use serde_json::Value;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use tempfile::TempDir;

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn file(&self, name: &str, text: &str) -> String {
        std::fs::write(self.0.path().join(name), text).expect("written");
        self.path(name)
    }

    /// An encoder without an output layer for a task.
    fn encoder(&self) -> String {
        self.encoder_of("bert")
    }

    /// The same of a family.
    fn encoder_of(&self, backbone: &str) -> String {
        let out = self.path(backbone);
        let sizes = "--layers (sf)x2 --d-model 16 --heads 2 --inner 32 --max-len 48 --task masked_lm";
        let model = format!("--backbone {backbone} {sizes}");
        let flags = format!("train --data builtin:0.02 --steps 5 --batch 4 --eval-every 100 --out {out} {model}");
        json(&words(&flags));
        out
    }

    /// Sentences whose label is a word in them.
    fn sentences(&self) -> String {
        let mut rows = String::from("text,label\n");
        for i in 0..80 {
            let word = ["bright", "dreary"][i % 2];
            rows += &format!(
                "\"{} {word} {}\",{}\n",
                ["a", "so", "the"][i % 3],
                ["day", "film"][i / 2 % 2],
                ["good", "bad"][i % 2]
            );
        }
        self.file("train.csv", &rows)
    }
}

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("a number, not {value}"))
}

fn files(folder: &str) -> Vec<u8> {
    std::fs::read(Path::new(folder).join("model.safetensors")).expect("weights")
}

/// What `transformers` says of the dropout before a task's output layer is read, used in training, and written.
#[test]
fn output_layers_of_tasks_have_a_dropout_of_their_own() {
    let folder = Folder::new();
    let data = folder.sentences();
    for (backbone, key, default) in [
        ("bert", "classifier_dropout", Value::Null),
        ("roberta", "classifier_dropout", Value::Null),
        ("distilbert", "seq_classif_dropout", Value::from(0.2)),
    ] {
        let encoder = folder.encoder_of(backbone);
        let place = Path::new(&encoder).join("config.json");
        let mut config: Value = serde_json::from_slice(&std::fs::read(&place).expect("config")).expect("JSON");
        config.as_object_mut().expect("an object").remove("lathe");
        let mut trained = |said: Option<Value>| {
            match &said {
                Some(said) => config[key] = said.clone(),
                None => drop(config.as_object_mut().expect("an object").remove(key)),
            }
            std::fs::write(&place, config.to_string()).expect("written");
            let out = folder.path(&format!("{backbone} {said:?}").replace(' ', "_"));
            let run = format!("train --init {encoder} --task classify --data {data} --steps 3 --batch 8 --lr 0.01");
            json(&[words(&run), vec!["--seq", "32", "--out", &out]].concat());
            let config = std::fs::read(Path::new(&out).join("config.json")).expect("config");
            let config: Value = serde_json::from_slice(&config).expect("JSON");
            (files(&out), config[key].clone())
        };
        let [none, most, unsaid] = [Some(Value::from(0.0)), Some(Value::from(0.9)), None].map(&mut trained);
        assert_eq!((&none.1, &most.1, &unsaid.1), (&Value::from(0.0), &Value::from(0.9), &default), "{backbone}");
        assert!(none.0 != most.0, "{backbone}: what is dropped matters");
        assert!((none.0 == unsaid.0) == default.is_null(), "{backbone}: hidden states are not dropped here");
    }
}

#[test]
fn every_family_of_encoders_is_fine_tuned() {
    let folder = Folder::new();
    let data = folder.sentences();
    for backbone in REGISTRY.backbones.iter().filter(|backbone| !backbone.causal()) {
        let (encoder, out) = (folder.encoder_of(backbone.key()), folder.path(&format!("{}_out", backbone.key())));
        let run =
            format!("train --init {encoder} --task classify --data {data} --epochs 25 --batch 8 --lr 0.01 --seq 32");
        json(&words(&format!("{run} --out {out}")));
        assert!(number(&json(&["eval", &out, "--data", &data])["accuracy"]) > 0.9, "{backbone:?}");
        let all = json(&["predict", &out, "--data", &data]);
        assert_eq!(all["predictions"].as_array().expect("a list").len(), 80, "{backbone:?}");
        json(&["bench", &out, "--seq", "8", "--seconds", "0.01"]);
        let embedded = json(&["predict", &encoder, "--task", "embed", "--data", &data]);
        assert_eq!(embedded["predictions"].as_array().expect("a list").len(), 80, "{backbone:?}");
    }
}

#[test]
fn a_classifier_is_trained_judged_and_asked() {
    let folder = Folder::new();
    let (encoder, data, out) = (folder.encoder(), folder.sentences(), folder.path("out"));
    let run = format!("train --init {encoder} --task classify --data {data} --epochs 25 --batch 8 --lr 0.01 --seq 32");
    let trained = json(&words(&format!("{run} --out {out}")));
    // 72 sentences to train on, 8 to validate on.
    assert_eq!((&trained["steps"], &trained["valid"]["examples"]), (&225.into(), &8.into()));
    let settings = std::fs::read_to_string(format!("{out}/run.toml")).expect("settings");
    for line in ["schedule = \"linear\"", "weight_decay = 0.01", "beta2 = 0.999", "head = \"classify\""] {
        assert!(settings.contains(line), "{line} in {settings}");
    }
    assert!(settings.contains("labels = [\"bad\", \"good\"]"), "{settings}");
    let config: Value = serde_json::from_slice(&std::fs::read(format!("{out}/config.json")).unwrap()).unwrap();
    assert_eq!(config["architectures"][0], "BertForSequenceClassification");
    assert_eq!(config["id2label"]["1"], "good");

    let found = json(&["eval", &out, "--data", &data]);
    assert_eq!((number(&found["accuracy"]), &found["examples"]), (1.0, &80.into()));
    assert!(number(&found["f1"]) == 1.0 && number(&found["matthews"]) == 1.0 && found["perplexity"].is_null());
    assert!(text(&["eval", &out, "--data", &data]).contains("accuracy 1.0000"));

    // From a pipe, as it comes.
    let mut child = command(&["predict", &out]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("runs");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(b"a bright film\n\n{\"text\": \"so dreary day\"}\n").expect("written");
    drop(stdin);
    let said = String::from_utf8(child.wait_with_output().expect("ends").stdout).expect("UTF-8");
    let said: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    assert_eq!(said.iter().map(|said| &said["label"]).collect::<Vec<_>>(), ["good", "bad"]);
    assert!(number(&said[0]["probabilities"]["good"]) > 0.5);
    let all = json(&["predict", &out, "--data", &data]);
    assert_eq!(all["predictions"].as_array().expect("a list").len(), 80);

    // A student of half the depth says what its teacher says.
    let student = folder.path("student");
    let flags = format!(
        "distill --teacher {out} --layers sf --inherit true --task classify --data {data} --epochs 25 --batch 8 --lr 0.01 --out {student}"
    );
    let taught = json(&words(&flags));
    assert_eq!(number(&taught["valid"]["accuracy"]), 1.0, "{taught}");
    assert_eq!(taught["teacher"]["examples"], 8);
    assert_eq!(number(&json(&["eval", &student, "--data", &data])["accuracy"]), 1.0);

    // It becomes a faster one, judged by examples that are used for nothing else.
    let faster = folder.path("faster");
    let flags = format!(
        "optimize --model {out} --task classify --data {data} --levers blocks,width,bits --target-latency 0.9 --budget 0.1 --steps 16 --train-batch 4 --out {faster}"
    );
    let job = || {
        let ran =
            command(&[&words(&flags)[..], &["--json"]].concat()).env("LATHE_CACHE", folder.path("cache")).output();
        let ran = ran.expect("it runs");
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        serde_json::from_slice::<Value>(&ran.stdout).expect("JSON")
    };
    let found = job();
    // Of 80, every second of the last 16.
    for side in ["baseline", "found", "continued"] {
        assert_eq!(found["test"][side]["examples"], 8, "{side}");
        assert!(number(&found["test"][side]["accuracy"]) >= 0.5, "{found}");
    }
    assert_eq!(number(&found["test"]["baseline"]["accuracy"]), 1.0);
    let report = format!("{faster}/examples/report.jsonl");
    let judged = json(&["eval", &format!("{faster}/found"), "--task", "classify", "--data", &report]);
    assert_eq!(judged["accuracy"], found["test"]["found"]["accuracy"]);
    assert!((number(&judged["loss"]) - number(&found["test"]["found"]["loss"])).abs() < 1e-6);
    assert!(number(&found["same_top"]) >= 0.5 && number(&found["kl"]["mean"]) >= 0.0, "{found}");
    assert!(
        number(&found["found"]["latency_ms"]) > 0.0
            && found["report"].as_str().is_some_and(|path| Path::new(path).exists())
    );
    assert_eq!(job(), found, "nothing is done again");

    // Several seeds; what was done before is not done again.
    let seeds = words(&run).into_iter().chain(["--seeds", "2", "--steps", "6", "--out"]).collect::<Vec<_>>();
    let several = folder.path("several");
    let args = [&seeds[..], &[&several]].concat();
    let found = json(&args);
    assert_eq!(found["seeds"].as_array().expect("runs").len(), 2);
    let losses: Vec<f64> = (0..2).map(|i| number(&found["seeds"][i]["valid"]["loss"])).collect();
    assert!((number(&found["median"]["loss"]) - (losses[0] + losses[1]) / 2.0).abs() < 1e-12);
    let deviation = (losses[0] - losses[1]).abs() / 2f64.sqrt();
    assert!((number(&found["deviation"]["loss"]) - deviation).abs() < 1e-12 && deviation > 0.0);
    assert_eq!(json(&args), found);
    let (code, told) = fails(&[&args[..], &["--clip", "0.5"]].concat());
    assert!(code == 2 && told.contains("clip = 1.0"), "{told}");

    // An adapted copy goes on from its own output layer, and a run that was killed to the same bits.
    std::fs::remove_file(format!("{several}/seed-0/result.json")).expect("an outcome");
    let weights = files(&format!("{several}/seed-0"));
    for entry in std::fs::read_dir(format!("{several}/seed-0/checkpoints")).expect("checkpoints").flatten() {
        if entry.file_name().to_string_lossy().as_ref() > "step-000000003" {
            std::fs::remove_dir_all(entry.path()).expect("removed");
        }
    }
    json(&["train", "--resume", &format!("{several}/seed-0")]);
    assert_eq!(files(&format!("{several}/seed-0")), weights);
}

/// An embedder is judged by what the original says, where nobody says how similar texts are.
#[test]
fn an_embedder_becomes_faster_without_labels() {
    let folder = Folder::new();
    let encoder = folder.encoder();
    let texts: String = (0..60)
        .map(|i| format!("{{\"text\": \"{} day {}\"}}\n", ["a bright", "so dreary", "the old"][i % 3], i))
        .collect();
    let data = folder.file("texts.jsonl", &texts);
    let out = folder.path("faster");
    let flags = format!(
        "optimize --model {encoder} --task embed --data {data} --levers blocks,bits --target-latency 0.95 --budget 0.1 --steps 16 --train-batch 4 --out {out}"
    );
    let ran = command(&[&words(&flags)[..], &["--json"]].concat()).env("LATHE_CACHE", folder.path("cache")).output();
    let ran = ran.expect("it runs");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let found: Value = serde_json::from_slice(&ran.stdout).expect("JSON");
    assert!(number(&found["cosine"]) > 0.5 && number(&found["cosine"]) < 1.0 + 1e-6, "{found}");
    // Against itself the original is right.
    assert!(number(&found["test"]["baseline"]["loss"]) < 1e-9, "{found}");
    assert_eq!(found["test"]["found"]["examples"], 6);
}

#[test]
fn benchmarks_embeddings_and_suites() {
    let folder = Folder::new();
    let encoder = folder.encoder();
    let glue = folder.path("glue");
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lathe-train/tests/it/fixtures/benchmarks");
    std::os::unix::fs::symlink(fixtures, &glue).expect("a link");
    for name in ["STS-B", "MNLI"] {
        let out = folder.path(&format!("runs/{name}"));
        std::fs::create_dir_all(folder.path("runs")).expect("a folder");
        let flags = format!("train --init {encoder} --task glue:{name} --data {glue} --epochs 2 --batch 2 --out {out}");
        assert!(number(&json(&words(&flags))["valid"]["score"]).is_finite());
    }
    let found = json(&["eval", &folder.path("runs"), "--task", "glue", "--data", &glue]);
    assert_eq!(found["missing"].as_array().expect("a list").len(), 7);
    let scores = ["glue:STS-B", "glue:MNLI"].map(|name| number(&found["tasks"][name]["score"]));
    assert!((number(&found["score"]) - (scores[0] + scores[1]) / 2.0).abs() < 1e-12);
    let mnli = &found["tasks"]["glue:MNLI"];
    assert_eq!((mnli["files"].as_array().expect("two files").len(), &mnli["examples"]), (2, &6.into()));
    assert!(
        text(&["eval", &folder.path("runs"), "--task", "glue", "--data", &glue]).contains("no model for glue:CoLA")
    );

    // Embeddings have length 1; a text is as similar to itself as can be.
    let lines = folder.file("lines.txt", "a small house\nthe sea\na small house\n");
    let vectors = json(&["predict", &encoder, "--task", "embed", "--data", &lines]);
    let vector = |i: usize| -> Vec<f64> {
        vectors["predictions"][i]["embedding"].as_array().expect("a vector").iter().map(number).collect()
    };
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    assert!((dot(&vector(0), &vector(2)) - 1.0).abs() < 1e-5 && dot(&vector(0), &vector(1)) < 1.0 - 1e-4);
    let pooling = ["mean", "cls"].map(|pooling| {
        let args =
            ["eval", &encoder, "--task", "embed", "--data", &format!("{glue}/STS-B/train.tsv"), "--pooling", pooling];
        number(&json(&args)["loss"])
    });
    assert!(pooling[0] != pooling[1]);

    // Answers are parts of their context, counted in characters.
    let span = folder.path("span");
    let flags = format!("train --init {encoder} --task squad --data {glue} --epochs 2 --batch 2 --out {span}");
    assert!(number(&json(&words(&flags))["valid"]["exact_match"]) <= 1.0);
    let asked = "{\"question\": \"Who?\", \"context\": \"Åsa, who won\"}\n";
    let said = json(&["predict", &span, "--data", &folder.file("asked.jsonl", asked)]);
    let (answer, start) =
        (said["predictions"][0]["answer"].as_str().expect("a text"), &said["predictions"][0]["start"]);
    let from: String = "Åsa, who won".chars().skip(start.as_u64().expect("a place") as usize).collect();
    assert!(from.starts_with(answer), "{said}");
}

#[test]
fn what_is_not_for_examples_says_so() {
    let folder = Folder::new();
    let (encoder, data) = (folder.encoder(), folder.sentences());
    let gpt2 = folder.path("gpt2");
    let flags = format!(
        "train --data builtin:0.02 --steps 2 --batch 2 --backbone gpt2 --layers sf --d-model 8 --max-len 16 --out {gpt2}"
    );
    json(&words(&flags));
    let out = folder.path("out");
    let train = |init: &str, task: &str, more: &str| {
        fails(&words(&format!("train --init {init} --task {task} --data {data} --out {out} {more}")))
    };
    let (code, told) = train(&gpt2, "classify", "");
    assert!(code == 2 && told.contains("an encoder with head classify"), "{told}");
    let (code, told) = train(&encoder, "sentiment", "");
    assert!(code == 2 && told.contains("found `sentiment`; expected") && told.contains("glue:CoLA"), "{told}");
    let (code, told) = train(&encoder, "classify", "--seq 64");
    assert!(code == 2 && told.contains("at most max_len, which is 48"), "{told}");
    let (code, told) = train(&encoder, "regress", "");
    assert!(code == 1 && told.contains("train.csv, line 2: found the value `good`; expected a number"), "{told}");
    let (code, told) = fails(&["predict", &gpt2, "--data", &data]);
    assert!(code == 2 && told.contains("whose predictions are tokens"), "{told}");
    let lines = folder.file("strange.jsonl", "{\"a\": 1}\n");
    let (code, told) = fails(&["predict", &encoder, "--task", "embed", "--data", &lines]);
    assert!(
        code == 1 && told.contains("strange.jsonl, line 1: found the columns a; expected columns of texts"),
        "{told}"
    );
    assert!(!Path::new(&out).exists());
}

/// Masked tokens and pairs at once: trained, judged on the other kind of pair as well, resumed, and refused where it cannot be.
#[test]
fn encoders_are_pretrained_on_pairs() {
    let folder = Folder::new();
    let story =
        |i: usize| format!("the {} {} and they {} it.\n", ["cat", "dog", "owl"][i % 3], i % 7, ["ate", "saw"][i % 2]);
    let stories: String = (0..60).map(|i| (i..i + 4).map(story).collect::<String>() + "\n").collect();
    let data = folder.file("text", &stories);
    let sizes = "--layers (sf)x2 --d-model 16 --heads 2 --inner 32 --max-len 48 --batch 4 --eval-every 100";
    for (backbone, task, other) in [("bert", "masked_nsp", "masked_sop"), ("albert", "masked_sop", "masked_nsp")] {
        let out = folder.path(backbone);
        let run = format!("train --data {data} --task {task} --backbone {backbone} {sizes}");
        let found = json(&words(&format!("{run} --steps 8 --out {out}")));
        let valid = &found["valid"];
        assert!(number(&valid["pair_loss"]) > 0.0 && valid["examples"].is_null(), "{valid}");
        let judged = |task: &str| json(&["eval", &out, "--data", &data, "--task", task]);
        let (own, others) = (judged(task), judged(other));
        assert!((0.0..=1.0).contains(&number(&own["pair_accuracy"])), "{own}");
        assert_ne!(own["pair_loss"], others["pair_loss"]);
        assert!(number(&judged("masked_lm")["loss"]) > 0.0);
        assert!(text(&["eval", &out, "--data", &data, "--task", task]).contains("pair_accuracy 0."));
        // A classifier on top of it has a layer of its own in the place of that of pairs.
        let sentences = folder.sentences();
        let tuned = folder.path(&format!("{backbone}_tuned"));
        json(&words(&format!("train --init {out} --task classify --data {sentences} --steps 3 --out {tuned}")));
        // What it knows goes on with longer texts.
        let longer = folder.path(&format!("{backbone}_longer"));
        let run =
            format!("train --init {out} --max-len 64 --data {data} --task {task} --steps 2 --batch 4 --out {longer}");
        json(&words(&run));
        let teacher = format!("distill --teacher {out} --data {data} --task {task} --layers sf --steps 2");
        assert!(
            fails(&words(&format!("{teacher} --out {}", folder.path("student"))))
                .1
                .contains("is not learnt from teachers")
        );
    }
    let run = format!("train --data {data} --task masked_nsp --backbone roberta {sizes} --out {}", folder.path("none"));
    assert!(fails(&words(&run)).1.contains("`roberta` without an output layer for pairs of texts"));
}
