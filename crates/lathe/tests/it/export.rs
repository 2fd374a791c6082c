//! `lathe export`: what is written computes the same, what cannot be said is refused, and nothing is overwritten.

use crate::{fails, json, text};
use lathe_model::{Network, REGISTRY, folder};
use std::path::Path;

fn model(toml: &str) -> Network {
    let spec = lathe_core::Spec::from_toml(toml, &REGISTRY).unwrap();
    Network::new(spec.model(&REGISTRY).unwrap(), 7).unwrap()
}

/// A folder of a model of bytes with random weights.
pub(crate) fn saved(dir: &Path, name: &str, toml: &str) -> String {
    let path = dir.join(name);
    folder::save(&model(&format!("vocab=256\nd_model=64\nmax_len=48\n{toml}")), &path).unwrap();
    path.display().to_string()
}

const LLAMA: &str = "backbone='llama'\nheads=4\nkv_heads=2\ninner=96\n";

/// Families and stacks, and what llama.cpp calls them.
const MODELS: &[(&str, &str, &str)] = &[
    ("gpt2", "backbone='gpt2'\nlayers='(sf)x2'\nheads=4", "gpt2"),
    ("llama", "layers='(sf)x2'", "llama"),
    ("untied", "layers='(sf)x2'\ntie_embeddings=false\nrope_scaling='linear'\nrope_factor=2", "llama"),
    (
        "llama3",
        "layers='(sf)x2'\nrope_scaling='llama3'\nrope_factor=8\nrope_original_max_len=32\nrope_theta=50",
        "llama",
    ),
    ("biased", "layers='(sf)x2'\nqkv_bias=true\nout_bias=true", "llama"),
    ("qwen2", "layers='(sf)x2'\nqkv_bias=true", "qwen2"),
    ("qwen3", "layers='(sf)x2'\nhead_norm=true\nd_head=24", "qwen3"),
    ("hetero", "layers='s4d16g2 f96 - f40 s2d16g1 s2d16g2 f32'", "deci"),
    ("late", "layers='f64 s4d16g4 f96 s2d16g1'", "deci"),
];

#[test]
fn every_family_computes_the_same_in_gguf() {
    let dir = tempfile::tempdir().unwrap();
    for (name, toml, architecture) in MODELS {
        let toml = if name == &"gpt2" { toml.to_string() } else { format!("{LLAMA}{toml}") };
        let given = saved(dir.path(), name, &toml);
        let out = format!("{given}.gguf");
        let found = json(&["export", &given, "--format", "gguf", "--out", &out]);
        assert_eq!((&found["path"], &found["architecture"]), (&out.clone().into(), &(*architecture).into()), "{name}");
        assert_eq!(found["parity"]["tokens"], 48);
        assert!(found["parity"]["max_abs"].as_f64().unwrap() < 1e-5, "{name}: {found}");
        // It is a model like any other, and what is exported from it is the same again.
        let again = format!("{given}-again.gguf");
        json(&["export", &out, "--format", "gguf", "--out", &again]);
        let read = |path: &str| {
            let mut file = lathe_gguf::Gguf::open(Path::new(path)).unwrap();
            let names: Vec<String> = file.tensors().map(|(name, _)| name.to_string()).collect();
            names.iter().map(|name| (name.clone(), file.bytes(name).unwrap())).collect::<Vec<_>>()
        };
        assert!(read(&out) == read(&again), "{name}");
    }
    // Nothing is left beside.
    let left = std::fs::read_dir(dir.path())
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with('.'));
    assert_eq!(left.count(), 0);
}

#[test]
fn every_type_and_storage_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let given = saved(dir.path(), "m", &format!("{LLAMA}layers='(sf)x2'"));
    let path = |name: &str| dir.path().join(name).display().to_string();
    for (kind, most) in [("f32", 1e-6), ("f16", 1e-3), ("bf16", 1e-2), ("q8_0", 1e-2), ("q4_0", 0.2), ("q4_1", 0.2)] {
        let found = json(&["export", &given, "--format", "gguf", "--type", kind, "--out", &path(kind)]);
        assert!(found["tensors"].as_array().unwrap().iter().any(|count| count[0] == kind.to_uppercase()), "{found}");
        assert!(found["parity"]["max_abs"].as_f64().unwrap() < most, "{kind}: {found}");
        assert!(kind == "f32" || found["parity"]["max_abs"].as_f64().unwrap() > 0.0, "{kind}: {found}");
    }
    // Integers of ours keep their codes; scales of whole rows are rounded to f16.
    for (options, kind, most) in [
        (&["--bits", "8", "--group", "32"][..], "Q8_0", 1e-5),
        (&["--bits", "8"], "Q8_0", 1e-3),
        (&["--bits", "6", "--group", "64"], "Q8_0", 1e-5),
        (&["--bits", "4"], "Q4_0", 1e-3),
        (&["--bits", "4", "--group", "128", "--offset", "--output-bits", "none"], "Q4_1", 1e-5),
        (&["--bits", "4", "--group", "16", "--output-bits", "none"], "Q8_0", 1e-2),
    ] {
        let name = options.join("");
        let made = path(&format!("int{name}"));
        json(&[&["quantize", &given, "--seconds", "0", "--out", &made][..], options].concat());
        let found = json(&["export", &made, "--format", "gguf", "--out", &path(&format!("{name}.gguf"))]);
        assert!(found["tensors"].as_array().unwrap().iter().any(|count| count[0] == kind), "{name}: {found}");
        assert!(found["parity"]["max_abs"].as_f64().unwrap() < most, "{name}: {found}");
    }
}

#[test]
fn folders_for_transformers_say_what_it_understands() {
    let dir = tempfile::tempdir().unwrap();
    for (name, toml, class) in [
        ("gpt2", "backbone='gpt2'\nlayers='(sf)x2'\nheads=4", "GPT2LMHeadModel"),
        ("llama", "backbone='llama'\nheads=4\nkv_heads=2\nlayers='(sf)x2'", "LlamaForCausalLM"),
        ("bert", "backbone='bert'\nlayers='(sf)x2'\nheads=4", "BertForMaskedLM"),
        (
            "albert",
            "backbone='albert'\nlayers='(sf)x2'\nheads=4\nshared='all'\nd_embed=16\nhead='none'\npooler=true",
            "AlbertModel",
        ),
        ("mpnet", "backbone='mpnet'\nlayers='(sf)x2'\nheads=4", "MPNetForMaskedLM"),
        ("mobilebert", "backbone='mobilebert'\nlayers='(bottleneck)x2'\nheads=4\nd_embed=32", "MobileBertForMaskedLM"),
        ("roberta", "backbone='roberta'\nlayers='(sf)x2'\nheads=4", "RobertaForMaskedLM"),
        (
            "distilbert",
            "backbone='distilbert'\nlayers='(sf)x2'\nheads=4\nhead='span'",
            "DistilBertForQuestionAnswering",
        ),
    ] {
        let given = saved(dir.path(), name, toml);
        let out = format!("{given}-hf");
        let found = json(&["export", &given, "--format", "hf", "--out", &out]);
        assert_eq!(found["architecture"], class);
        assert!(found["parity"]["max_abs"].as_f64().unwrap() < 1e-5, "{name}: {found}");
        let config = std::fs::read_to_string(Path::new(&out).join("config.json")).unwrap();
        assert!(!config.contains("\"lathe\""), "{config}");
    }
    // Integers become floats.
    let given = dir.path().join("llama").display().to_string();
    let made = dir.path().join("int8").display().to_string();
    json(&["quantize", &given, "--bits", "8", "--seconds", "0", "--out", &made]);
    let out = dir.path().join("int8-hf").display().to_string();
    assert!(text(&["export", &made, "--format", "hf", "--type", "bf16", "--out", &out]).contains("BF16"));
}

#[test]
fn what_others_cannot_say_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out").display().to_string();
    for (name, toml, format, told) in [
        ("a", "backbone='gpt2'\nheads=4\nlayers='s4f s2d16f'", "gguf", "equal layers alone, and layer 1 differs"),
        ("b", "backbone='gpt2'\nheads=4\nlayers='(sf)x1'\nactivation='relu'", "gguf", "gelu_tanh alone, not relu"),
        ("c", "backbone='llama'\nheads=4\nlayers='s m4k2'", "gguf", "no block `moe`"),
        ("d", "backbone='llama'\nheads=4\nlayers='s4d16f s4d8f'", "gguf", "heads of one width in a model"),
        ("e", "backbone='llama'\nheads=4\nlayers='sf s2d16f'\nhead_norm=true", "gguf", "equal layers alone"),
        ("f", "backbone='llama'\nheads=4\nlayers='ff'", "gguf", "no stack without attention"),
        ("g", "backbone='bert'\nheads=4\nlayers='sf'", "gguf", "no architecture for backbone bert"),
        ("h", "backbone='llama'\nheads=4\nlayers='sf s2d16f'", "hf", "equal layers"),
        ("i", "backbone='transformer_xl'\nheads=4\nlayers='sf m4k2'\ntgt_len=16", "hf", "no block `moe`"),
        ("j", "backbone='albert'\nheads=4\nlayers='(sf)x2'\nd_embed=16\nshared='ffns'", "hf", "other settings alone"),
    ] {
        let given = saved(dir.path(), name, toml);
        let (code, error) = fails(&["export", &given, "--format", format, "--out", &out]);
        assert_eq!(code, 2, "{error}");
        assert!(error.contains("this model cannot be written as") && error.contains(told), "{name}: {error}");
        assert!(!Path::new(&out).exists());
    }
}

#[test]
fn nothing_is_overwritten_and_wrong_settings_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let given = saved(dir.path(), "m", &format!("{LLAMA}layers='sf'"));
    let path = |name: &str| dir.path().join(name).display().to_string();
    std::fs::write(path("kept"), "mine").unwrap();
    for out in [path("kept"), given.clone()] {
        for format in ["gguf", "hf", "onnx"] {
            let (code, error) = fails(&["export", &given, "--format", format, "--out", &out]);
            assert!(code == 2 && error.contains("nothing is overwritten"), "{error}");
        }
    }
    assert_eq!(std::fs::read_to_string(path("kept")).unwrap(), "mine");
    let (code, error) = fails(&["export", &given, "--format", "gguf", "--out", &path("none/a.gguf")]);
    assert!(code == 1 && error.contains("none") && error.contains("No such file"), "{error}");
    let (code, error) = fails(&["export", &given, "--format", "gguf", "--out", &path("kept/a.gguf")]);
    assert!(code == 1 && error.contains("kept"), "{error}");
    for (format, kind, told) in
        [("gguf", "q6_k", "f32, f16, bf16, q8_0"), ("hf", "q8_0", "f32"), ("onnx", "q8_0", "f32, bf16, f16")]
    {
        let (code, error) = fails(&["export", &given, "--format", format, "--type", kind, "--out", &path("x")]);
        assert!(code == 2 && error.contains(kind) && error.contains(told), "{error}");
    }
    let (code, error) = fails(&["export", &given, "--format", "gguf", "--cache", "--out", &path("x")]);
    assert!(code == 2 && error.contains("--cache") && error.contains("onnx"), "{error}");
    let (code, error) = fails(&["export", &path("missing"), "--format", "gguf", "--out", &path("x")]);
    assert!(code == 2 && error.contains("missing"), "{error}");
    assert!(!Path::new(&path("x")).exists());
}
