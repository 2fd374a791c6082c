//! Pruning through the program.

use crate::{command, fails, json};
use lathe_model::REGISTRY;
use lathe_model::prune::magnitude::Mask;
use serde_json::Value;
use std::path::Path;
use tempfile::TempDir;

/// What every pruning of these tests is told.
const QUICK: [&str; 6] = ["--samples", "4", "--seconds", "0.01", "--seq", "8"];
const DATA: &str = "builtin:0.02";

fn path(dir: &TempDir, name: &str) -> String {
    dir.path().join(name).display().to_string()
}

/// A model of a backbone, trained a little; 4 heads and 24 neurons in a block.
fn trained(dir: &TempDir, backbone: &str, more: &[&str]) -> String {
    let model = path(dir, "model");
    let sizes = ["--layers", "(sf)x2", "--d-model", "16", "--heads", "4", "--inner", "24", "--tgt-len", "16"];
    let train = ["train", "--backbone", backbone, "--data", DATA, "--steps", "5", "--batch", "2", "--out", &model];
    json(&[&train[..], &sizes, more].concat());
    model
}

fn lengths(backbone: &dyn lathe_core::Backbone) -> [&'static str; 2] {
    if backbone.ignored_keys().contains(&"max_len") { ["--mem-len", "16"] } else { ["--max-len", "16"] }
}

fn prune(model: &str, out: &str, more: &[&str]) -> Value {
    json(&[&["prune", model, "--data", DATA, "--out", out], &QUICK[..], more].concat())
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn every_backbone_gets_smaller() {
    for &backbone in REGISTRY.backbones {
        let dir = tempfile::tempdir().unwrap();
        let key = backbone.key();
        let model = trained(&dir, key, &lengths(backbone));
        let ways = [
            ("heads", &["--heads", "0.5"][..]),
            ("inner", &["--inner", "0.25"]),
            ("blocks", &["--blocks", "2", "--iterative"]),
            ("magnitude", &["--magnitude", "0.6"]),
            ("heads_evenly", &["--heads", "0.5", "--evenly", "--importance", "activations"]),
            ("inner_gradient", &["--inner", "0.25", "--importance", "gradient"]),
            ("inner_random", &["--inner", "0.25", "--importance", "random"]),
        ];
        // How units are chosen does not depend on the backbone.
        for (name, what) in ways.into_iter().take(if key == "gpt2" { 7 } else { 4 }) {
            let out = path(&dir, name);
            if (key, name) == ("mpnet", "heads") {
                // Each head has biases in a table of all layers.
                let (code, told) = fails(&[&["prune", &model, "--data", DATA, "--out", &out][..], what].concat());
                assert!(code == 2 && told.contains("which can go one by one"), "{told}");
                continue;
            }
            let found = prune(&model, &out, what);
            for pair in ["params", "loss", "bits_per_byte", "latency_ms"] {
                assert!(
                    number(&found[pair]["before"]) > 0.0 && number(&found[pair]["after"]) > 0.0,
                    "{key} {name}: {found}"
                );
            }
            let speedup = number(&found["latency_ms"]["before"]) / number(&found["latency_ms"]["after"]);
            assert!((speedup - number(&found["speedup"])).abs() < 1e-9, "{key} {name}");
            assert!(found["speedup_interval"][0].as_f64() <= found["speedup_interval"][1].as_f64());
            assert!(!found["cpu"].as_str().unwrap().is_empty());
            let fewer = number(&found["params"]["after"]) < number(&found["params"]["before"]);
            assert_eq!(fewer, name != "magnitude", "{key} {name}");
            assert!(number(&found["sparsity"]) > 0.0, "{key} {name}");
            // What is told is what evaluates to it, and what it is.
            let counted = json(&["count", &out]);
            assert_eq!(
                (&counted["params"]["total"], &counted["layers"]),
                (&found["params"]["after"], &found["layers"])
            );
            let [start, end] = [0, 1].map(|i| found["text"]["evaluation"][i].as_u64().unwrap());
            assert!(found["text"]["calibration"][1].as_u64() <= Some(start) && start < end, "{found}");
            match name {
                "heads_evenly" => assert_eq!(found["removed"][0]["units"].as_array().unwrap().len(), 2, "{found}"),
                "blocks" => assert_eq!(counted["blocks"], 2, "{found}"),
                "magnitude" => {
                    let zeros =
                        Mask::of_zeros(&lathe_model::folder::load(Path::new(&out), &REGISTRY).unwrap()).sparsity();
                    assert!((zeros - 0.6).abs() < 1e-3 && (zeros - number(&found["share"]["reached"])).abs() < 1e-9);
                    let gzip = &found["gzip_bytes"];
                    assert!(number(&gzip["after"]) < number(&gzip["before"]), "{gzip}");
                }
                _ => assert!(
                    (number(&found["share"]["reached"]) - number(&found["share"]["asked"])).abs() < 0.1,
                    "{found}"
                ),
            }
        }
        // The same loss as `eval` has on the part that is held apart.
        let text = path(&dir, "held.txt");
        let source = lathe_train::data::Source::open(DATA).unwrap();
        let all = source.beginning(source.bytes() as usize).unwrap();
        std::fs::write(&text, &all[source.split().unwrap() as usize..]).unwrap();
        let evaluated = json(&["eval", &path(&dir, "inner"), "--data", &text]);
        let found = prune(&model, &path(&dir, "inner"), &["--inner", "0.25"]);
        assert!((number(&evaluated["loss"]) - number(&found["loss"]["after"])).abs() < 1e-6, "{key}");
    }
}

#[test]
fn a_pruning_is_told_again_and_nothing_is_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let model = trained(&dir, "gpt2", &["--max-len", "16"]);
    let out = path(&dir, "out");
    let first = prune(&model, &out, &["--heads", "0.25"]);
    assert_eq!(prune(&model, &out, &["--heads", "0.25"]), first);
    // One that was killed before it had ended goes on.
    std::fs::remove_file(Path::new(&out).join("result.json")).unwrap();
    let again = prune(&model, &out, &["--heads", "0.25"]);
    assert_eq!((&again["loss"], &again["removed"]), (&first["loss"], &first["removed"]));
    let base = ["prune", &model, "--data", DATA, "--out", &out];
    let (code, error) = fails(&[&base[..], &QUICK, &["--heads", "0.5"]].concat());
    assert!(code == 2 && error.contains("other settings") && error.contains("what"), "{error}");
    let (code, error) = fails(&["prune", &model, "--data", DATA, "--out", &model, "--heads", "0.5"]);
    assert!(code == 2 && error.contains("--out") && error.contains("empty folder"), "{error}");
    let shown = crate::text(&[&base[..], &QUICK, &["--heads", "0.25"]].concat());
    assert!(shown.contains("times as fast") && shown.contains("bits/byte"), "{shown}");
}

#[test]
fn wrong_requests_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let model = trained(&dir, "gpt2", &["--max-len", "16"]);
    for (what, expected) in [
        (&["--heads", "1"][..], "--heads: found 1; expected a share to remove"),
        (&["--inner", "-0.1"], "--inner"),
        (&["--blocks", "4"], "blocks: found 4; expected 1 to 3"),
        (&["--blocks", "1", "--evenly"], "--evenly"),
        (&["--heads", "0.5", "--iterative"], "--iterative"),
        (&["--magnitude", "0.5", "--importance", "random"], "--importance"),
        (&["--heads", "0.5", "--steps", "3"], "--steps"),
        (&["--magnitude", "0.5", "--lottery", "2"], "--steps is missing"),
        (&["--magnitude", "0.5", "--control"], "--control"),
        (&["--heads", "0.5", "--vocab"], "cannot be used with"),
        (&["--heads", "0.5", "--expected", "0.1"], "expected vocab"),
        (&["--vocab", "--expected", "1"], "from 0 to below 1"),
        (&[], "required"),
        (&["--vocab"], "bytes"),
        (&["--heads", "0.5", "--seq", "99"], "max_len"),
    ] {
        let out = path(&dir, "out");
        let args: Vec<&str> = ["prune", &model, "--data", DATA, "--out", &out].iter().chain(what).copied().collect();
        let (code, error) = fails(&args);
        assert!(code == 2 && error.contains(expected), "{what:?}: {error}");
        assert!(!Path::new(&out).exists(), "{what:?}");
    }
}

#[test]
fn an_encoder_without_output_layer_has_no_loss_to_tell() {
    let dir = tempfile::tempdir().unwrap();
    let toml = "backbone='bert'\nlayers='(sf)x2'\nd_model=16\nheads=4\ninner=24\nvocab=257\nmax_len=16\nhead='none'\npooler=true";
    let spec = lathe_core::Spec::from_toml(toml, &REGISTRY).unwrap();
    let network = lathe_model::Network::new(spec.model(&REGISTRY).unwrap(), 1).unwrap();
    lathe_model::folder::save(&network, &dir.path().join("model")).unwrap();
    let model = path(&dir, "model");
    let found = prune(&model, &path(&dir, "out"), &["--heads", "0.5", "--importance", "activations"]);
    assert!(found["loss"].is_null() && number(&found["speedup"]) > 0.0, "{found}");
    let out = path(&dir, "other");
    let (code, error) = fails(&["prune", &model, "--data", DATA, "--out", &out, "--heads", "0.5"]);
    assert!(code == 2 && error.contains("--importance") && error.contains("activations"), "{error}");
}

#[test]
fn unused_tokens_go() {
    for (backbone, lengths) in
        [("llama", ["--max-len", "16"]), ("bert", ["--max-len", "16"]), ("transformer_xl", ["--mem-len", "16"])]
    {
        without_unused(backbone, &[&lengths[..], &["--tokenizer", "bpe:500"]].concat());
    }
}

fn without_unused(backbone: &str, more: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let model = trained(&dir, backbone, more);
    // A text of a few words, and one with others.
    let few = path(&dir, "few.txt");
    std::fs::write(&few, "the birds fly north and the fish swim south. ".repeat(40)).unwrap();
    let out = path(&dir, "out");
    let found = json(&[&["prune", &model, "--data", &few, "--vocab", "--out", &out], &QUICK[..]].concat());
    let vocab = &found["vocab"];
    let causal = REGISTRY.backbone(backbone).unwrap().causal();
    assert_eq!(number(&vocab["before"]), if causal { 500.0 } else { 501.0 }); // with a mask token of the model's own
    assert!(
        number(&vocab["used"]) < 60.0 && number(&vocab["after"]) < 330.0 && number(&vocab["after"]) >= 256.0,
        "{vocab}"
    );
    assert!(number(&found["params"]["after"]) < number(&found["params"]["before"]));
    assert_eq!(json(&["count", &out])["params"]["total"], found["params"]["after"]);
    // Text of kept tokens has about the same loss, over fewer tokens; any text has one.
    let change = number(&found["loss"]["after"]) / number(&found["loss"]["before"]);
    assert!(change < 1.0 && change > 0.7, "{backbone}: {found}");
    let strange = path(&dir, "strange.txt");
    std::fs::write(&strange, "日本語 🙂 naïve ZEBRA\n".repeat(9)).unwrap();
    assert!(number(&json(&["eval", &out, "--data", &strange])["bits_per_byte"]) > 0.0);
    if causal {
        json(&["generate", &out, "--prompt", "the birds 🙂", "--tokens", "5"]);
        // What the model expects stays: everything where nothing may go, and ever less.
        let kept = |share: &str| {
            let out = path(&dir, &format!("kept-{share}"));
            let flags = ["prune", &model, "--data", &few, "--vocab", "--expected", share, "--out", &out];
            number(&json(&[&flags, &QUICK[..]].concat())["vocab"]["after"])
        };
        let after = number(&vocab["after"]);
        let (all, some) = (kept("0"), kept("0.9"));
        assert!(all == 500.0 && some < all && some >= after, "{backbone}: {all} {some} {after}");
    }
}

#[test]
fn an_adaptive_softmax_keeps_its_tokens() {
    let adaptive = tempfile::tempdir().unwrap();
    let model =
        trained(&adaptive, "transformer_xl", &["--mem-len", "16", "--tokenizer", "bpe:500", "--cutoffs", "100,200"]);
    let (code, error) = fails(&["prune", &model, "--data", DATA, "--vocab", "--out", &path(&adaptive, "out")]);
    assert!(code == 2 && error.contains("adaptive softmax"), "{error}");
}

const TRAINED: [&str; 6] = ["--steps", "8", "--train-batch", "2", "--lr", "0.01"];

#[test]
fn weights_go_while_the_model_is_trained() {
    let dir = tempfile::tempdir().unwrap();
    let model = trained(&dir, "gpt2", &["--max-len", "16"]);
    let out = path(&dir, "out");
    let found = prune(&model, &out, &[&["--magnitude", "0.5", "--control", "--evenly"], &TRAINED[..]].concat());
    assert!((number(&found["share"]["reached"]) - 0.5).abs() < 0.01, "{found}");
    assert!(number(&found["loss"]["after"]) < number(&found["loss"]["before"]), "{found}");
    // The control is the model trained on without pruning, as `train` would.
    let settings = ["--steps", "8", "--batch", "2", "--lr", "0.01", "--data", DATA];
    let control = json(&[&["train", "--init", &model, "--out", &path(&dir, "control")], &settings[..]].concat());
    assert!((number(&control["valid"]["loss"]) - number(&found["control"]["loss"])).abs() < 1e-6, "{found}");
}

#[test]
fn tickets_go_back_to_the_weights_they_began_with() {
    let dir = tempfile::tempdir().unwrap();
    let model = path(&dir, "model.toml");
    std::fs::write(&model, "backbone='gpt2'\nlayers='sf'\nd_model=16\nheads=2\ninner=24\nvocab=256\nmax_len=16")
        .unwrap();
    let lottery = [&["--magnitude", "0.75", "--lottery", "2", "--control", "--seed", "3"][..], &TRAINED].concat();
    let out = path(&dir, "out");
    let found = prune(&model, &out, &lottery);
    let zeros: Vec<f64> = (0..3).map(|i| number(&found["rounds"][i]["sparsity"])).collect();
    assert!(zeros[0] == 0.0 && (zeros[1] - 0.5).abs() < 0.01 && (zeros[2] - 0.75).abs() < 0.01, "{zeros:?}");
    assert_eq!(found["loss"]["before"], found["rounds"][0]["loss"]);
    assert_eq!(found["loss"]["after"], found["rounds"][2]["loss"]);
    assert!(number(&found["control"]["loss"]) > 0.0);

    let load = |name: &str| lathe_model::folder::load(&Path::new(&out).join(name), &REGISTRY).unwrap();
    let weights = |name: &str| -> Vec<Vec<f32>> { load(name).params().iter().map(|p| p.read().into_owned()).collect() };
    let initial = weights("initial");
    let drawn = lathe_model::Network::new(load("initial").model.clone(), 3).unwrap();
    assert!(drawn.params().iter().zip(&initial).all(|(param, weights)| param.data == *weights));
    let trained = weights(".");
    for (ticket, more) in [("tickets/1", "tickets/2"), ("tickets/2", "rounds/2")] {
        for ((ticket, more), initial) in weights(ticket).iter().zip(&weights(more)).zip(&initial) {
            for ((&ticket, &more), &initial) in ticket.iter().zip(more).zip(initial) {
                assert!(ticket == initial || ticket == 0.0);
                assert!(ticket != 0.0 || more == 0.0 || initial == 0.0);
            }
        }
    }
    assert_eq!(Mask::of_zeros(&load(".")), Mask::of_zeros(&load("redrawn/initial")));
    assert_ne!(weights("redrawn/initial"), weights("tickets/2"));

    // One that was killed in its second round goes on to the same weights.
    let folder = Path::new(&out);
    for name in ["result.json", "model.safetensors", "config.json"] {
        std::fs::remove_file(folder.join(name)).unwrap();
    }
    for name in ["rounds/2", "tickets/2", "redrawn"] {
        std::fs::remove_dir_all(folder.join(name)).unwrap();
    }
    let again = prune(&model, &out, &lottery);
    assert_eq!((&again["rounds"], &again["control"]), (&found["rounds"], &found["control"]));
    assert_eq!(weights("."), trained);
    let out =
        command(&["prune", &model, "--data", DATA, "--out", &path(&dir, "x"), "--heads", "0.5"]).output().unwrap();
    assert_eq!(out.status.code(), Some(2), "{}", String::from_utf8_lossy(&out.stderr)); // only a lottery draws weights
}
