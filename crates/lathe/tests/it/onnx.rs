//! `lathe export --format onnx`: families, storages and stacks that differ compute the same when what was written is read
//! back; what has no operators is refused.

use crate::export::saved;
use crate::{fails, json};
use lathe_onnx::Model;
use std::path::Path;

fn export(given: &str, more: &[&str]) -> (serde_json::Value, Model) {
    let out = format!("{given}-onnx{}", more.join(""));
    let found = json(&[&["export", given, "--format", "onnx", "--out", &out], more].concat());
    assert_eq!(found["path"], out);
    (found, Model::read(&Path::new(&out).join("model.onnx")).unwrap())
}

fn max_abs(found: &serde_json::Value) -> f64 {
    found["parity"]["max_abs"].as_f64().unwrap()
}

fn ports(model: &Model) -> (Vec<&str>, Vec<&str>) {
    (
        model.graph.inputs.iter().map(|port| &*port.name).collect(),
        model.graph.outputs.iter().map(|port| &*port.name).collect(),
    )
}

const STACKS: &[(&str, &str)] = &[
    ("gpt2", "backbone='gpt2'\nlayers='(sf)x2'\nheads=4"),
    ("opt", "backbone='opt'\nlayers='(sf)x2'\nheads=4"),
    ("llama", "backbone='llama'\nlayers='(sf)x2'\nheads=4\nkv_heads=2\ninner=96"),
    ("bert", "backbone='bert'\nlayers='(sf)x2'\nheads=4\npooler=true"),
    ("opt_reference", "backbone='opt'\nlayers='(sf)x2'\nheads=4\nreference=true"),
    ("roberta", "backbone='roberta'\nlayers='(sf)x2'\nheads=4"),
    ("distilbert", "backbone='distilbert'\nlayers='(sf)x2'\nheads=4\nhead='classify'\nlabels=['a', 'b']"),
    ("albert", "backbone='albert'\nlayers='(sf)x2'\nheads=4\nd_embed=16\nshared='attentions'"),
    ("mpnet", "backbone='mpnet'\nlayers='sf s2f'\nheads=4"),
    ("mobilebert", "backbone='mobilebert'\nlayers='(bottleneck)x2'\nheads=4\nd_embed=32"),
    ("transformer_xl", "backbone='transformer_xl'\nlayers='(sf)x2'\nheads=4\nmem_len=16\nvocab=256"),
    ("hetero", "backbone='llama'\nlayers='s4d16g2 f96 - f40 low_rank{inner=48,rank=8} s2d16g1 m4k2i32'\nheads=4"),
];

/// A folder of a stack; Transformer-XL has no longest text.
fn stack(dir: &Path, name: &str, toml: &str) -> String {
    if !toml.contains("mem_len") {
        return saved(dir, name, toml);
    }
    let spec = lathe_core::Spec::from_toml(&format!("{toml}\nd_model=64"), &lathe_model::REGISTRY).unwrap();
    let network = lathe_model::Network::new(spec.model(&lathe_model::REGISTRY).unwrap(), 7).unwrap();
    let path = dir.join(name);
    lathe_model::folder::save(&network, &path).unwrap();
    path.display().to_string()
}

#[test]
fn every_family_computes_the_same_in_every_storage() {
    let dir = tempfile::tempdir().unwrap();
    for (name, toml) in STACKS {
        let given = stack(dir.path(), name, toml);
        let (found, model) = export(&given, &[]);
        assert!(max_abs(&found) < 1e-5, "{name}: {found}");
        assert!(found["tensors"].as_array().unwrap().iter().all(|of| of[0] == "float" || of[0] == "int64"), "{found}");
        assert!(model.graph.nodes.iter().all(|node| node.domain.is_empty()), "{name}: only operators of ONNX");
        let (inputs, outputs) = ports(&model);
        assert_eq!(inputs[0], "input_ids");
        assert!(outputs.contains(&"logits"), "{name}: {outputs:?}");
        assert_eq!(outputs.contains(&"pooler_output"), ["bert", "distilbert"].contains(name));
        assert_eq!(inputs.contains(&"mems.1"), *name == "transformer_xl");
        let (found, _) = export(&given, &["--type", "f16"]);
        assert!((1e-7..1e-2).contains(&max_abs(&found)), "{name}: {found}");
        for (bits, kind, most) in [("8", "int8", 0.1), ("4", "uint8", 0.1)] {
            let made = format!("{given}-int{bits}");
            json(&["quantize", &given, "--bits", bits, "--seconds", "0", "--out", &made]);
            let (found, _) = export(&made, &[]);
            let count = found["tensors"].as_array().unwrap().iter().find(|of| of[0] == kind).cloned();
            assert!(count.is_some_and(|count| count[1].as_u64().unwrap() > 3), "{name}: {found}");
            assert!(max_abs(&found) < most, "{name} {bits}: {found}");
        }
    }
    // Nothing is left beside.
    let left = std::fs::read_dir(dir.path()).unwrap();
    assert_eq!(left.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with('.')).count(), 0);
}

#[test]
fn a_cache_is_there_where_it_is_wanted() {
    let dir = tempfile::tempdir().unwrap();
    for (name, toml) in STACKS {
        let given = stack(dir.path(), name, toml);
        if ["bert", "roberta", "distilbert", "albert", "mpnet", "mobilebert", "transformer_xl"].contains(name) {
            let out = format!("{given}-refused");
            let (code, error) = fails(&["export", &given, "--format", "onnx", "--cache", "--out", &out]);
            assert!(code == 2 && error.contains("no cache of keys and values"), "{error}");
            assert!(!Path::new(&out).exists());
            continue;
        }
        let (found, model) = export(&given, &["--cache"]);
        assert_eq!(found["architecture"], "decoder with cache");
        assert!(max_abs(&found) < 1e-5, "{name}: {found}");
        let (inputs, outputs) = ports(&model);
        for (part, names) in [("past_key_values", &inputs), ("present", &outputs)] {
            for layer in 0..2 {
                for side in ["key", "value"] {
                    assert!(names.contains(&&*format!("{part}.{layer}.{side}")), "{name}: {names:?}");
                }
            }
        }
        assert!(inputs.contains(&"attention_mask") && inputs.contains(&"position_ids"), "{name}: {inputs:?}");
    }
}

/// A stack as `prune` leaves it: heads and inner widths differ by layer.
#[test]
fn pruned_stacks_compute_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let given = saved(dir.path(), "m", "backbone='llama'\nlayers='(sf)x3'\nheads=4\nkv_heads=4");
    let (fewer, out) = (format!("{given}-heads"), format!("{given}-pruned"));
    let quick = ["--data", "builtin:0.02", "--samples", "4", "--seconds", "0.01", "--seq", "8"];
    json(&[&["prune", &given, "--heads", "0.4", "--out", &fewer][..], &quick].concat());
    let found = json(&[&["prune", &fewer, "--inner", "0.4", "--out", &out][..], &quick].concat());
    assert!(!found["layers"].as_str().unwrap().contains("x3"), "layers differ: {found}");
    for more in [&[][..], &["--cache"]] {
        let (found, _) = export(&out, more);
        assert!(max_abs(&found) < 1e-5, "{found}");
    }
}

/// The folder has what programs look for beside the graph, and a model folder's config where transformers has such a model.
#[test]
fn folders_have_configuration_and_tokenizer() {
    let dir = tempfile::tempdir().unwrap();
    let given = saved(dir.path(), "m", STACKS[0].1);
    let (found, _) = export(&given, &[]);
    let config = std::fs::read_to_string(dir.path().join("m-onnx/config.json")).unwrap();
    assert!(config.contains("GPT2LMHeadModel") && !config.contains("\"lathe\""), "{config}");
    let bytes: u64 = ["config.json", "model.onnx"]
        .map(|file| std::fs::metadata(dir.path().join("m-onnx").join(file)).unwrap().len())
        .iter()
        .sum();
    assert_eq!(found["bytes"], bytes, "bytes need no tokenizer");
}
