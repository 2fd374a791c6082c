//! `lathe forward` against what `transformers` computed, and folders as MODEL.

use crate::{fails, json, lathe};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A fixture of `lathe-model`'s parity tests.
fn fixture(name: &str) -> Vec<u8> {
    let path = format!("{}/../lathe-model/tests/it/fixtures/{name}.safetensors", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A temporary folder with a model folder, tokens, and room for the output.
struct Case {
    dir: TempDir,
}

impl Case {
    /// A fixture's weights and tokens, with a configuration as `transformers` writes it.
    fn new(name: &str, config: &Value) -> Self {
        let case = Self { dir: tempfile::tempdir().unwrap() };
        std::fs::create_dir(case.path("model")).unwrap();
        std::fs::write(case.path("model/config.json"), config.to_string()).unwrap();
        let bytes = fixture(name);
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let weights = tensors.iter().filter_map(|(name, view)| Some((name.strip_prefix("weight.")?, view)));
        safetensors::serialize_to_file(weights, None, &case.path("model/model.safetensors")).unwrap();
        safetensors::serialize_to_file([("ids", tensors.tensor("ids").unwrap())], None, &case.path("ids")).unwrap();
        case
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Tokens of another shape, under another name or type.
    fn tokens(&self, name: &str, dtype: Dtype, shape: &[usize], ids: &[i64]) {
        let size = dtype.bitsize() / 8;
        let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()[..size].to_vec()).collect();
        let view = TensorView::new(dtype, shape.to_vec(), &bytes).unwrap();
        safetensors::serialize_to_file([(name, view)], None, &self.path("ids")).unwrap();
    }

    fn args<'a>(&self, extra: &[&'a str]) -> Vec<&'a str> {
        let path = |name: &str| -> &'static str { self.path(name).to_str().unwrap().to_string().leak() };
        let args = ["forward", path("model"), "--tokens", path("ids"), "--out", path("out")];
        args.into_iter().chain(extra.iter().copied()).collect()
    }

    fn out(&self) -> BTreeMap<String, (Vec<usize>, Vec<f32>)> {
        floats(&std::fs::read(self.path("out")).unwrap())
    }
}

fn floats(bytes: &[u8]) -> BTreeMap<String, (Vec<usize>, Vec<f32>)> {
    let tensors = SafeTensors::deserialize(bytes).unwrap();
    let floats = tensors.iter().filter(|(_, view)| view.dtype() == Dtype::F32);
    let values = |data: &[u8]| data.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
    floats.map(|(name, view)| (name.to_string(), (view.shape().to_vec(), values(view.data())))).collect()
}

fn assert_close(name: &str, found: &(Vec<usize>, Vec<f32>), expected: &(Vec<usize>, Vec<f32>), tolerance: f32) {
    assert_eq!(found.0, expected.0, "{name}");
    let most = expected.1.iter().fold(1e-3f32, |most, x| most.max(x.abs()));
    let worst = found.1.iter().zip(&expected.1).fold(0.0f32, |worst, (a, b)| worst.max((a - b).abs()));
    assert!(worst / most < tolerance, "{name}: {worst} of {most}");
}

fn gpt2_config() -> Value {
    json!({"model_type": "gpt2", "n_layer": 2, "n_embd": 16, "n_head": 2, "n_positions": 24, "vocab_size": 33})
}

fn xl_config() -> Value {
    json!({
        "model_type": "transfo-xl", "n_layer": 2, "d_model": 16, "d_embed": 16, "n_head": 2, "d_head": 8, "d_inner": 24,
        "vocab_size": 60, "cutoffs": [12, 30], "div_val": 2, "mem_len": 4, "clamp_len": -1, "same_length": false,
        "tie_projs": [false, true, true],
    })
}

#[test]
fn forward_computes_what_transformers_does() {
    for (name, config, segments) in [("gpt2_tanh", gpt2_config(), 1), ("xl_adaptive", xl_config(), 3)] {
        let case = Case::new(name, &config);
        let expected = floats(&fixture(name));
        let document = json(&case.args(&["--grads", "--segments", &segments.to_string()]));
        let loss = expected["loss"].1[0];
        assert!((document["loss"].as_f64().unwrap() as f32 - loss).abs() < 1e-5 * loss, "{name}: {document}");
        assert_eq!(document["tokens"], expected["logits"].0[0] * expected["logits"].0[1]);
        assert_eq!(document["out"], case.path("out").to_str().unwrap());

        let out = case.out();
        assert_close(name, &out["logits"], &expected["logits"], 1e-5);
        assert_close(name, &out["loss"], &expected["loss"], 1e-5);
        let mut compared = 2;
        for (tensor, values) in &expected {
            let last = format!(".{}", segments - 1);
            let found = match tensor.strip_suffix(&last).filter(|tensor| tensor.starts_with("mems.")) {
                Some(memory) => memory,
                None if tensor.starts_with("grad.") => tensor,
                None => continue,
            };
            assert_close(&format!("{name} {tensor}"), &out[found], values, 1e-3);
            compared += 1;
        }
        assert_eq!(out.len(), compared, "{name}: {:?}", out.keys());

        // Without gradients, the rest is the same.
        json(&case.args(&["--segments", &segments.to_string()]));
        let plain = case.out();
        assert_eq!(plain["logits"], out["logits"]);
        assert_close(name, &plain["loss"], &out["loss"], 1e-6);
        assert!(!plain.keys().any(|tensor| tensor.starts_with("grad.")));
    }
}

/// Products in bf16 are near those in f32, and told where the CPU has none.
#[test]
fn forward_computes_in_either_precision() {
    let case = Case::new("gpt2_tanh", &gpt2_config());
    let run = |precision: &str| {
        let out = lathe(&case.args(&["--grads", "--json", "--precision", precision]));
        assert!(out.status.success());
        (case.out(), String::from_utf8_lossy(&out.stderr).into_owned())
    };
    let (exact, said) = run("f32");
    assert_eq!(
        exact["logits"],
        {
            json(&case.args(&[]));
            case.out()
        }["logits"],
        "f32 without a word"
    );
    assert!(said.is_empty(), "{said}");
    let (rounded, said) = run("bf16");
    let [a, b] = [&exact, &rounded].map(|out| &out["logits"]);
    assert_close("bf16", b, a, 0.05);
    assert_eq!(a == b, said.contains("products run in f32"), "{said}");
    assert_eq!(exact.keys().collect::<Vec<_>>(), rounded.keys().collect::<Vec<_>>());
    let (code, told) = fails(&case.args(&["--precision", "f16"]));
    assert!(code == 2 && told.contains("f32") && told.contains("bf16"), "{told}");
}

#[test]
fn one_token_has_no_loss() {
    let case = Case::new("gpt2_tanh", &gpt2_config());
    case.tokens("ids", Dtype::I64, &[2, 1], &[3, 4]);
    let out = lathe(&case.args(&["--grads", "--json"]));
    assert!(out.status.success());
    assert!(String::from_utf8_lossy(&out.stderr).contains("there is no loss"));
    let document: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(document["tokens"], 2);
    assert!(document.get("loss").is_none());
    assert_eq!(case.out().keys().collect::<Vec<_>>(), ["logits"]);
}

#[test]
fn wrong_tokens_weights_and_configurations_are_told_apart() {
    let check = |case: &Case, extra: &[&str], code: i32, part: &str| {
        let (found, error) = fails(&case.args(extra));
        assert_eq!(found, code, "{error}");
        assert!(error.contains(part), "`{part}` in: {error}");
        assert!(!case.path("out").exists(), "{error}");
    };
    let case = Case::new("gpt2_tanh", &gpt2_config());
    check(&case, &["--segments", "2"], 2, "--segments: found 2 for a gpt2; expected 1");
    check(&case, &["--segments", "0"], 2, "--segments");
    check(&Case::new("xl_adaptive", &xl_config()), &["--segments", "4"], 2, "a divisor of T, which is 18");
    for (name, dtype, shape, ids, part) in [
        ("ids", Dtype::I64, &[1, 2][..], &[0, 33][..], "ids[0, 1]: found 33; expected a token from 0 to 32"),
        ("ids", Dtype::I64, &[2, 1], &[0, -1], "ids[1, 0]: found -1"),
        ("ids", Dtype::I64, &[1, 25], &[0; 25], "found 25 tokens in a sequence; expected at most max_len, which is 24"),
        ("ids", Dtype::I64, &[2], &[0; 2], "tensor `ids` has the shape [2]; expected [B, T]"),
        ("ids", Dtype::I64, &[0, 4], &[], "expected at least one token"),
        ("ids", Dtype::I64, &[4, 0], &[], "expected at least one token"),
        ("ids", Dtype::I32, &[1, 2], &[0; 2], "tensor `ids` is I32; expected I64"),
        ("tokens", Dtype::I64, &[1, 2], &[0; 2], "tensor `ids` is missing; expected I64 [B, T]"),
    ] {
        case.tokens(name, dtype, shape, ids);
        check(&case, &[], 1, part);
    }
    std::fs::remove_file(case.path("ids")).unwrap();
    check(&case, &[], 1, "ids");

    let case = Case::new("gpt2_tanh", &gpt2_config());
    let weights = case.path("model/model.safetensors");
    let bytes = std::fs::read(&weights).unwrap();
    std::fs::write(&weights, &bytes[..bytes.len() / 2]).unwrap();
    check(&case, &[], 1, "the file may be cut off");
    std::fs::write(case.path("model/config.json"), "{}").unwrap();
    check(&case, &[], 2, "model_type");
    std::fs::remove_file(case.path("model/config.json")).unwrap();
    check(&case, &[], 2, "config.json is missing");
}

/// Nothing but a file is written over.
#[test]
fn the_output_must_be_a_file() {
    let case = Case::new("gpt2_tanh", &gpt2_config());
    std::fs::create_dir(case.path("out")).unwrap();
    let (code, error) = fails(&case.args(&[]));
    assert_eq!(code, 1);
    assert!(error.contains("it is not overwritten"), "{error}");
}

#[test]
fn a_folder_is_a_model() {
    let case = Case::new("gpt2_tanh", &gpt2_config());
    let count = |path: &Path, extra: &[&str]| json(&[&["count", path.to_str().unwrap()], extra].concat());
    let found = count(&case.path("model"), &[]);
    assert_eq!(found["layers"], "(sf)x2");
    let bytes = fixture("gpt2_tanh");
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let weights = tensors.iter().filter(|(name, _)| name.starts_with("weight."));
    let total: usize = weights.map(|(_, view)| view.data().len() / 4).sum();
    assert_eq!(found["params"]["total"], total);
    assert_eq!(count(&case.path("model"), &["--layers", "(sf)x3"])["blocks"], 6);
    let (code, error) = fails(&["count", case.dir.path().to_str().unwrap()]);
    assert_eq!(code, 2);
    assert!(error.contains("config.json is missing"), "{error}");
}

/// An encoder's pass is measured where that is asked for, and computes the same; other passes are measured elsewhere.
#[test]
fn passes_of_encoders_are_measured() {
    let mut case = Case::new("gpt2_tanh", &gpt2_config());
    assert!(fails(&case.args(&["--seconds", "0"])).1.contains("passes of an encoder are measured here"));
    case = Case { dir: tempfile::tempdir().unwrap() };
    let folder = format!("{}/../lathe-model/tests/it/fixtures/folders/bert_model", env!("CARGO_MANIFEST_DIR"));
    case.tokens("ids", Dtype::I64, &[2, 3], &[1, 2, 3, 4, 5, 0]);
    let run = |extra: &[&str]| {
        let mut args = case.args(extra);
        args[1] = folder.clone().leak();
        json(&args)
    };
    assert!(run(&[]).get("latency_ms").is_none());
    let plain = case.out();
    let time = &run(&["--seconds", "0"])["latency_ms"];
    assert!(
        time["low"].as_f64() <= time["median"].as_f64() && time["median"].as_f64() <= time["high"].as_f64(),
        "{time}"
    );
    assert_eq!(case.out()["hidden"], plain["hidden"]);
}
