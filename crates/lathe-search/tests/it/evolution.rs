//! LTS's Algorithm 1 step by step against a plain Python version with the same random draws, from files that
//! `oracles/lts_search.py` wrote.

use lathe_core::{Identify, Space, Spec};
use lathe_model::REGISTRY;
use lathe_search::objective;
use lathe_search::profile::Prediction;
use lathe_search::record::Record;
use lathe_search::search::{SearchPlan, search};
use lathe_search::searchers::{self, Sizes};
use serde::Deserialize;

#[derive(Deserialize)]
struct Fixture {
    seed: u64,
    population: usize,
    iterations: u32,
    most_ms: f64,
    objectives: usize,
    hull: bool,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    iteration: u32,
    d_model: u32,
    layers: String,
    latency_ms: f64,
    peak_bytes: f64,
    decoder_params: f64,
    kept: bool,
}

const SPACE: &str = "[baseline]\nbackbone='gpt2'\nlayers='(s1 f8)x2'\nd_model=8\nheads=1\ninner=8\nvocab=9\nmax_len=8\n\n\
                     [choices]\nd_model=[8,16,24,32]\n\n\
                     [[slots]]\nrepeat={min=2,max=5}\noptions=['s1','s2','f8','f16','f40']";

#[test]
fn algorithm_1_is_that_of_plain_python() {
    let space = Space::from_toml(SPACE, &REGISTRY).unwrap();
    for name in ["frontier", "hull"] {
        let path = format!("{}/tests/it/fixtures/lts_search/{name}.json", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let fixture: Fixture = serde_json::from_str(&text).unwrap();
        let identity = |step: &Step| {
            let (d_model, layers) = (step.d_model, &step.layers);
            let text =
                format!("backbone='gpt2'\nlayers='{layers}'\nd_model={d_model}\nheads=1\ninner=8\nvocab=9\nmax_len=8");
            Spec::from_toml(&text, &REGISTRY).and_then(|spec| spec.model(&REGISTRY)).unwrap().identity()
        };
        let plan = SearchPlan {
            searcher: searchers::find("lts").unwrap(),
            sizes: Sizes { population: fixture.population, hull: fixture.hull, ..Sizes::default() },
            iterations: fixture.iterations,
            seed: fixture.seed,
            batch: 1,
            objectives: ["decoder_params", "latency", "memory"][..fixture.objectives]
                .iter()
                .map(|name| objective::find(name).unwrap())
                .collect(),
            max_latency_ms: fixture.most_ms,
            max_peak_bytes: f64::INFINITY,
        };
        let (mut at, mut seen) = (0, Vec::new());
        let found = search(
            &space,
            &plan,
            &mut Record::in_memory(),
            &mut |model| {
                let step = fixture.steps.get(at).unwrap_or_else(|| panic!("{name}: {at}: one too many"));
                let found = format!("{} of width {}", model.layers(), model.frame.d_model);
                assert_eq!(model.identity(), identity(step), "{name}, step {at}: {found}, not {}", step.layers);
                at += 1;
                Ok(Prediction { latency_ms: step.latency_ms, peak_bytes: step.peak_bytes })
            },
            &mut |iteration, count| seen.push((iteration, count)),
        )
        .unwrap();
        assert_eq!(at, fixture.steps.len(), "{name}");
        for (iteration, count) in seen {
            let expected = fixture.steps.iter().filter(|step| step.iteration <= iteration).count();
            assert_eq!(count, expected, "{name}: iteration {iteration}");
        }
        let kept: Vec<&Step> = fixture.steps.iter().filter(|step| step.kept).collect();
        assert!(kept.len() < fixture.steps.len(), "{name}: the bound is for nothing");
        assert_eq!(found.len(), kept.len(), "{name}");
        for (one, step) in found.iter().zip(kept) {
            assert_eq!(one.model.identity(), identity(step), "{name}");
            assert_eq!(one.values[0], step.decoder_params, "{name}: {}", step.layers);
        }
    }
}
