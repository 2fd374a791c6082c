//! The gradient-based proxies against PyTorch's, from files that `oracles/proxies.py` wrote, and what holds for all of them.

use lathe_core::{Model, Spec};
use lathe_model::{REGISTRY, folder};
use lathe_search::audit::random_tokens;
use lathe_search::proxies::{Candidate, Choice, Needs, PROXIES, Probe, Scored};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

#[derive(Deserialize)]
struct Fixture {
    ids: Vec<u32>,
    targets: Vec<u32>,
    batch: usize,
    scores: BTreeMap<String, f64>,
}

fn fixture(case: &str) -> (PathBuf, Fixture) {
    let folder = PathBuf::from(format!("{}/tests/it/fixtures/{case}", env!("CARGO_MANIFEST_DIR")));
    let text = std::fs::read_to_string(folder.join("proxies.json")).unwrap_or_else(|error| panic!("{case}: {error}"));
    (folder, serde_json::from_str(&text).unwrap())
}

#[test]
fn proxies_are_those_of_pytorch() {
    for (case, proxies) in [("gpt2", 13), ("transformer_xl", 14)] {
        let (folder, fixture) = fixture(case);
        let model = folder::load_model(&folder, &REGISTRY).unwrap();
        let probe = Probe { ids: fixture.ids, targets: fixture.targets, batch: fixture.batch, seed: 0 };
        assert_eq!(fixture.scores.len(), proxies, "{case}");
        for (name, &expected) in &fixture.scores {
            let choice = Choice::parse(name).unwrap();
            let candidate = Candidate {
                probe: Some(&probe),
                weights: Some(&folder),
                output: choice.output,
                ..Candidate::new(&model)
            };
            let Scored::Score { value, flops } = (choice.proxy.score)(&candidate).unwrap() else {
                panic!("{case}: {name} has no score");
            };
            assert!((value - expected).abs() < 1e-5 * expected.abs(), "{case}: {name}: {value}, not {expected}");
            assert!(flops > 0);
        }
    }
}

fn model(toml: &str) -> Model {
    let toml = format!("{toml}\nd_model=8\nheads=2\ninner=12\nvocab=17\ntgt_len=5");
    Spec::from_toml(&toml, &REGISTRY).and_then(|spec| spec.model(&REGISTRY)).unwrap()
}

#[test]
fn gelu_has_no_relu_code() {
    let model = model("backbone='gpt2'\nlayers='sf'\nactivation='gelu'");
    let probe = random_tokens(&model, 3, 0).unwrap();
    let proxy = Choice::parse("relu_log_det").unwrap().proxy;
    let scored = (proxy.score)(&Candidate { probe: Some(&probe), ..Candidate::new(&model) }).unwrap();
    assert_eq!(scored, Scored::NotApplicable("its activation is not relu"));
}

/// Experts, gates, skips and every backbone: a finite score, the same again, and another one for other weights.
#[test]
fn every_proxy_scores_every_kind_of_model() {
    for toml in [
        "backbone='gpt2'\nlayers='s f - m2k1'\nactivation='relu'",
        "backbone='transformer_xl'\nlayers='s1 f6 s m3k2'\nmem_len=4",
        "backbone='gpt2'\nlayers='f s'\nactivation='swiglu'\nd_embed=4",
        "backbone='transformer_xl'\nlayers='sf'\ncutoffs=[5,9]\ndiv_val=2\nmem_len=3\ntie_embeddings=false",
    ] {
        let model = model(toml);
        for proxy in PROXIES.iter().filter(|proxy| proxy.needs != Needs::Training) {
            let score = |seed: u64, output: bool| {
                let probe = random_tokens(&model, 3, seed).unwrap();
                let candidate = Candidate { probe: Some(&probe), output, ..Candidate::new(&model) };
                (proxy.score)(&candidate).unwrap()
            };
            let first = score(0, false);
            assert_eq!(first, score(0, false), "{toml}: {}", proxy.name);
            match first {
                Scored::NotApplicable(_) => assert_eq!(proxy.name, "relu_log_det", "{toml}"),
                Scored::Score { value, flops } => {
                    assert!(value.is_finite(), "{toml}: {}: {value}", proxy.name);
                    assert_eq!(flops == 0, proxy.needs == Needs::Nothing, "{}", proxy.name);
                    assert_eq!(first == score(1, false), proxy.needs == Needs::Nothing, "{toml}: {}", proxy.name);
                    assert_eq!(first == score(0, true), !proxy.output, "{toml}: {}", proxy.name);
                }
            }
        }
    }
}

#[test]
fn what_a_proxy_lacks_is_named() {
    let model = model("backbone='gpt2'\nlayers='sf'");
    for proxy in PROXIES.iter().filter(|proxy| proxy.needs != Needs::Nothing) {
        let error = (proxy.score)(&Candidate::new(&model)).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{}: found no t", proxy.name)), "{error}");
    }
}
