//! `lathe eval --against`, beside divergences computed by brute force from the logits of `lathe forward`.

use crate::{fails, json, text};
use lathe_train::data::{Documents, Source, Tokenizer};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A small GPT-2 with a tokenizer of 320 tokens.
pub const GPT2: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/fixtures/gpt2_text");

/// A temporary folder for models, tokens and logits.
pub struct Place(pub TempDir);

impl Place {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    /// A copy of a model folder whose weights are changed, by name and values.
    pub fn changed(&self, from: &str, name: &str, change: impl Fn(&str, &mut Vec<f32>)) -> String {
        let out = PathBuf::from(self.path(name));
        std::fs::create_dir(&out).unwrap();
        for file in ["config.json", "tokenizer.json"].into_iter().filter(|file| Path::new(from).join(file).exists()) {
            std::fs::copy(Path::new(from).join(file), out.join(file)).unwrap();
        }
        let bytes = std::fs::read(Path::new(from).join("model.safetensors")).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let all: Vec<(String, Vec<usize>, Vec<u8>)> = tensors
            .iter()
            .map(|(name, view)| {
                let mut values = floats(&view);
                change(name, &mut values);
                let rest: usize = view.shape()[1..].iter().product();
                let shape = [&[values.len() / rest], &view.shape()[1..]].concat();
                (name.to_string(), shape, values.iter().flat_map(|x| x.to_le_bytes()).collect())
            })
            .collect();
        let views = all.iter().map(|(name, shape, data)| {
            (name.as_str(), TensorView::new(Dtype::F32, shape.clone(), data).expect("a tensor"))
        });
        safetensors::serialize_to_file(views, None, &out.join("model.safetensors")).unwrap();
        out.display().to_string()
    }

    /// Logits of tokens [B, T] in so many segments, rows of V.
    fn logits(&self, model: &str, ids: &[u32], batch: usize, segments: usize) -> Vec<Vec<f32>> {
        let bytes: Vec<u8> = ids.iter().flat_map(|&id| i64::from(id).to_le_bytes()).collect();
        let view = TensorView::new(Dtype::I64, vec![batch, ids.len() / batch], &bytes).unwrap();
        let (tokens, out) = (self.path("ids"), self.path("out"));
        safetensors::serialize_to_file([("ids", view)], None, Path::new(&tokens)).unwrap();
        json(&["forward", model, "--tokens", &tokens, "--out", &out, "--segments", &segments.to_string()]);
        let bytes = std::fs::read(&out).unwrap();
        let logits = SafeTensors::deserialize(&bytes).unwrap();
        let logits = logits.tensor("logits").unwrap();
        floats(&logits).chunks_exact(logits.shape()[2]).map(<[f32]>::to_vec).collect()
    }
}

fn floats(view: &TensorView<'_>) -> Vec<f32> {
    assert_eq!(view.dtype(), Dtype::F32);
    view.data().as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()
}

/// Weights that are a little off, here and there.
#[allow(clippy::ptr_arg)] // as `changed` gives them
pub fn off(name: &str, values: &mut Vec<f32>) {
    if name.contains("mlp") || name.contains("ff") {
        values.iter_mut().enumerate().for_each(|(i, x)| *x *= 1.0 + 0.2 * ((i % 7) as f32 - 3.0) / 3.0);
    }
}

/// KL(p || q) by the definition, and whether both have the same top, of rows of logits.
fn brute_force(p: &[f32], q: &[f32]) -> (f64, bool) {
    let log_softmax = |row: &[f32]| -> Vec<f64> {
        let sum: f64 = row.iter().map(|&x| f64::from(x).exp()).sum();
        row.iter().map(|&x| f64::from(x) - sum.ln()).collect()
    };
    let best = |row: &[f32]| (0..row.len()).rev().max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap();
    let kl = log_softmax(p).iter().zip(log_softmax(q)).map(|(p, q)| p.exp() * (p - q)).sum();
    (kl, best(p) == best(q))
}

/// The keys that an evaluation should have.
struct Expected(Vec<(f64, bool)>);

impl Expected {
    fn assert(&self, found: &Value, what: &str) {
        let mut sorted: Vec<f64> = self.0.iter().map(|(kl, _)| *kl).collect();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        let at = |share: f64| {
            let place = share * (n - 1) as f64;
            sorted[place as usize] * (1.0 - place.fract()) + sorted[(place as usize + 1).min(n - 1)] * place.fract()
        };
        let mean = sorted.iter().sum::<f64>() / n as f64;
        for (key, expected) in [("mean", mean), ("p50", at(0.5)), ("p99", at(0.99)), ("p999", at(0.999))] {
            let value = found["kl"][key].as_f64().unwrap_or_else(|| panic!("{what}: no {key} in {found}"));
            assert!((value - expected).abs() < 1e-4 * expected + 1e-9, "{what}, {key}: {value} is not {expected}");
        }
        let same = self.0.iter().filter(|(_, same)| *same).count() as f64 / n as f64;
        assert!((found["same_top"].as_f64().unwrap() - same).abs() < 1e-12, "{what}: {found} is not {same}");
    }
}

fn tokens(model: &str) -> Vec<u32> {
    Tokenizer::load(Path::new(model)).unwrap().encode(std::fs::read(format!("{model}/text.txt")).unwrap()).unwrap()
}

#[test]
fn divergences_are_those_of_brute_force() {
    let place = Place::new();
    let other = place.changed(GPT2, "other", off);
    let (data, ids) = (format!("{GPT2}/text.txt"), tokens(GPT2));
    for (window, context) in [(32, 0), (16, 0), (32, 8)] {
        let mut expected = Expected(Vec::new());
        let mut done = 0;
        while done + 1 < ids.len() {
            let before = context.min(done);
            let end = (done - before + window).min(ids.len() - 1);
            let part = &ids[done - before..end];
            let [p, q] = [&other, GPT2].map(|model| place.logits(model, part, 1, 1));
            expected.0.extend(p.iter().zip(&q).skip(before).map(|(p, q)| brute_force(p, q)));
            done = end;
        }
        let flags = ["--window", &window.to_string(), "--context", &context.to_string()];
        let found = json(&[&["eval", GPT2, "--data", &data, "--against", &other], &flags[..]].concat());
        assert_eq!(found["tokens"], expected.0.len());
        expected.assert(&found, &format!("windows of {window}, {context} before"));
        // What else is told does not change.
        let alone = json(&[&["eval", GPT2, "--data", &data], &flags[..]].concat());
        assert!(alone.get("kl").is_none() && alone.get("same_top").is_none());
        for key in ["loss", "bits_per_byte", "perplexity", "tokens"] {
            assert_eq!(alone[key], found[key], "{key}");
        }
        // The other way round it is another number.
        let back = json(&[&["eval", &other, "--data", &data, "--against", GPT2], &flags[..]].concat());
        assert_ne!(back["kl"], found["kl"]);
        assert_eq!(back["same_top"], found["same_top"]);
    }
    let told = text(&["eval", GPT2, "--data", &data, "--against", &other]);
    assert!(told.contains("nats per token") && told.contains("same top token"), "{told}");
}

#[test]
fn documents_diverge_one_by_one() {
    let place = Place::new();
    let other = place.changed(GPT2, "other", off);
    let data = place.path("documents.txt");
    let long =
        "A second document, which is longer than a window of the model can be, so that it is cut.\nAnd more of it.";
    std::fs::write(&data, format!("The first one.\n\n{long}\n\nx y\n")).unwrap();
    let source = Source::open(&data).unwrap();
    let tokenizer = Tokenizer::load(Path::new(GPT2)).unwrap();
    for window in [32, 10] {
        let mut expected = Expected(Vec::new());
        for sequence in Documents::new(&source).unwrap().tokens(&tokenizer, window).unwrap() {
            let ids = sequence.unwrap().ids;
            let [p, q] = [&other, GPT2].map(|model| place.logits(model, &ids[..ids.len() - 1], 1, 1));
            expected.0.extend(p.iter().zip(&q).map(|(p, q)| brute_force(p, q)));
        }
        let flags = ["--documents", "--window", &window.to_string()];
        let found = json(&[&["eval", GPT2, "--data", &data, "--against", &other], &flags[..]].concat());
        assert_eq!(found["tokens"], expected.0.len());
        expected.assert(&found, "documents");
    }
}

/// A tiny model of bytes, trained for a step.
pub fn tiny(place: &Place, name: &str, backbone: &str, flags: &[&str]) -> String {
    let out = place.path(name);
    let sizes = ["--layers", "sf", "--d-model", "16", "--heads", "2", "--inner", "32"];
    let run = ["--data", "builtin:0.01", "--steps", "1", "--batch", "2", "--out", &out];
    json(&[&["train", "--backbone", backbone], &sizes[..], &run, flags].concat());
    out
}

#[test]
fn memories_are_carried_by_both() {
    let place = Place::new();
    let flags = ["--tgt-len", "8", "--mem-len", "8"];
    let model = tiny(&place, "model", "transformer_xl", &flags);
    let other = place.changed(&model, "other", off);
    let data = place.path("text.txt");
    let text: String = "some words of a text ".chars().cycle().take(12 * 8 + 1).collect();
    std::fs::write(&data, &text).unwrap();
    let ids: Vec<u32> = text.bytes().map(u32::from).collect();
    let [p, q] = [&other, &model].map(|model| place.logits(model, &ids[..12 * 8], 1, 12));
    let expected = Expected(p.iter().zip(&q).map(|(p, q)| brute_force(p, q)).collect());
    let found = json(&["eval", &model, "--data", &data, "--against", &other]);
    expected.assert(&found, "a memory");
    // One without a memory sees the windows alone.
    let gpt2 = tiny(&place, "gpt2", "gpt2", &["--max-len", "8"]);
    let p: Vec<_> = ids[..12 * 8].chunks(8).flat_map(|part| place.logits(&gpt2, part, 1, 1)).collect();
    let expected = Expected(p.iter().zip(&q).map(|(p, q)| brute_force(p, q)).collect());
    expected.assert(&json(&["eval", &model, "--data", &data, "--against", &gpt2]), "windows");
    let q: Vec<_> = ids[..12 * 8].chunks(8).flat_map(|part| place.logits(&model, part, 1, 1)).collect();
    let expected = Expected(q.iter().zip(&p).map(|(p, q)| brute_force(p, q)).collect());
    expected.assert(&json(&["eval", &gpt2, "--data", &data, "--against", &model]), "a fresh memory");
}

#[test]
fn the_same_model_is_at_distance_0() {
    let place = Place::new();
    let bert = tiny(&place, "bert", "bert", &["--max-len", "16"]);
    let moved = place.changed(&bert, "moved", |name, values| {
        if name.contains("cls.predictions") {
            values.iter_mut().for_each(|x| *x = 1.5 * *x + 0.001);
        }
    });
    let short = place.path("short.txt");
    std::fs::write(&short, "a few words and a few more of them\n\nand another text").unwrap();
    for (model, flags) in [(GPT2, &[][..]), (GPT2, &["--documents"]), (GPT2, &["--precision", "bf16"]), (&bert, &[])] {
        let found = json(&[&["eval", model, "--data", &short, "--against", model], flags].concat());
        let zeros = serde_json::json!({"mean": 0.0, "p50": 0.0, "p99": 0.0, "p999": 0.0});
        assert_eq!((&found["kl"], found["same_top"].as_f64()), (&zeros, Some(1.0)), "{flags:?}");
    }
    // An encoder is compared where it tells a token.
    let found = json(&["eval", &bert, "--data", "builtin:0.01", "--against", &moved]);
    assert!(found["kl"]["mean"].as_f64().unwrap() > 0.0, "{found}");
}

/// The fixture without its last tokens.
pub fn pruned(place: &Place, name: &str, keep: usize) -> String {
    let folder = place.changed(GPT2, name, |name, values| {
        if name.ends_with("wte.weight") || name.ends_with("lm_head.weight") {
            values.truncate(values.len() / 320 * keep);
        }
    });
    let edit = |file: &str, edit: &dyn Fn(&mut Value)| {
        let path = Path::new(&folder).join(file);
        let mut value: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        edit(&mut value);
        std::fs::write(&path, value.to_string()).unwrap();
    };
    edit("config.json", &|config| config["vocab_size"] = keep.into());
    edit("tokenizer.json", &|tokenizer| {
        let vocab = tokenizer["model"]["vocab"].as_object_mut().unwrap();
        vocab.retain(|_, id| id.as_u64().unwrap() < keep as u64);
        let vocab = vocab.clone();
        let merges = tokenizer["model"]["merges"].as_array_mut().unwrap();
        merges.retain(|merge| {
            let parts: Vec<String> = match merge.as_str() {
                Some(text) => text.split(' ').map(String::from).collect(),
                None => merge.as_array().unwrap().iter().map(|part| part.as_str().unwrap().into()).collect(),
            };
            vocab.contains_key(&parts.concat())
        });
        let added = tokenizer["added_tokens"].as_array_mut().unwrap();
        added.retain(|token| token["id"].as_u64().unwrap() < keep as u64);
    });
    folder
}

#[test]
fn a_smaller_vocabulary_is_compared_over_what_both_have() {
    let place = Place::new();
    let small = pruned(&place, "small", 305);
    let other = place.changed(GPT2, "other", off);
    let data = format!("{GPT2}/text.txt");
    let text = std::fs::read(&data).unwrap();
    let ids = Tokenizer::load(Path::new(&small)).unwrap().encode(&text).unwrap();
    assert!(ids.len() > tokens(GPT2).len(), "the text has tokens that are gone");
    let mut expected = Expected(Vec::new());
    for part in ids[..ids.len() - 1].chunks(32) {
        let p = place.logits(&other, part, 1, 1);
        let q = place.logits(&small, part, 1, 1);
        expected.0.extend(p.iter().zip(&q).map(|(p, q)| brute_force(&p[..305], q)));
    }
    let found = json(&["eval", &small, "--data", &data, "--against", &other]);
    expected.assert(&found, "305 tokens");
    let (code, told) = fails(&["eval", &other, "--data", &data, "--against", &small]);
    assert!(code == 1 && told.contains("a vocabulary without 15 of its tokens"), "{told}");
}

#[test]
fn what_cannot_be_compared_is_told() {
    let place = Place::new();
    let data = format!("{GPT2}/text.txt");
    let short = tiny(&place, "short", "gpt2", &["--max-len", "8"]);
    let long = tiny(&place, "long", "gpt2", &["--max-len", "16"]);
    let relative = tiny(&place, "relative", "transformer_xl", &["--tgt-len", "8", "--mem-len", "8"]);
    for (code, model, flags, part) in [
        (1, GPT2, &["--against", &short][..], "bytes in one, a tokenizer in the other"),
        (2, GPT2, &["--against", "no_such_model"], "no_such_model/config.json is missing"),
        (2, &long, &["--against", &short], "--window: found 16; expected at most 8"),
        (2, &long, &["--window", "17"], "--window: found 17; expected from 1 to max_len, which is 16"),
        (2, &long, &["--window", "0"], "--window"),
        (
            2,
            &long,
            &["--window", "8", "--context", "8"],
            "--context: found 8; expected less than the window, which is 8",
        ),
        (2, &relative, &["--window", "4"], "--window: found 4 for a transformer_xl"),
    ] {
        let (found, told) = fails(&[&["eval", model, "--data", &data], flags].concat());
        assert!(found == code && told.contains(part), "`{part}` in {found}: {told}");
    }
    assert!(json(&["eval", &long, "--data", &data, "--against", &short, "--window", "8"])["kl"]["mean"].is_f64());
}
