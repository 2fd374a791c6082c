//! What every searcher and every proxy has to fulfil, over the registries: a new entry is tried by all of it.

use lathe_core::{Genome, Model, Sampling, Space, Spec};
use lathe_model::{REGISTRY, count};
use lathe_search::audit::random_tokens;
use lathe_search::proxies::{Candidate as Scoring, Needs, PROXIES, Scored};
use lathe_search::searchers::{Candidate, Novelty, SEARCHERS, Sizes};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::collections::HashSet;

fn space(backbone: &str) -> Space {
    let toml = format!(
        "[baseline]\nbackbone='{backbone}'\nlayers='(sf)x3'\nd_model=16\nheads=4\ninner=32\nvocab=17\ntgt_len=6\n\n[choices]\n\
         d_model=[8,16]\n\n[[slots]]\nrepeat=6\noptions=['-','s1','s2','s4','f8','f16','f32']"
    );
    Space::from_toml(&toml, &REGISTRY).unwrap_or_else(|error| panic!("{backbone}: {error}"))
}

/// What an architecture costs here, each to be small.
fn costs(model: &Model) -> Vec<f64> {
    let counts = count(model, &lathe_core::Setting::of(model));
    vec![-(counts.decoder_params() as f64), counts.total_flops() as f64]
}

#[test]
fn searchers_propose_what_is_new_and_allowed_and_the_same_with_the_same_seed() {
    for backbone in REGISTRY.backbones {
        let space = space(backbone.key());
        let bound = 0.7 * costs(&space.baseline)[1];
        for entry in SEARCHERS {
            let run = |seed: u64| -> Vec<String> {
                let mut searcher = (entry.new)(Sizes { population: 10, ..Sizes::default() });
                let (mut seen, mut rng) = (HashSet::new(), ChaCha8Rng::seed_from_u64(seed));
                let within = |genome: &Genome| costs(&space.model(genome))[1] < bound;
                let mut allows = |genome: &Genome| Ok(within(genome));
                let mut evaluated: Vec<Candidate> = Vec::new();
                for round in 0..6 {
                    let mut new = Novelty::new(&space, &mut seen, &mut allows);
                    let proposed = match round {
                        // Every search begins with random architectures.
                        0 => new.draw(10, |space| space.sample(Sampling::Choices, &mut rng)),
                        _ => searcher.propose(&evaluated, &mut new, &mut rng),
                    };
                    let proposed = proposed.unwrap();
                    assert!(!proposed.is_empty(), "{}: nothing in round {round}", entry.name);
                    for genome in proposed {
                        let model = space.model(&genome);
                        assert!(within(&genome), "{}: {} breaks the bound", entry.name, model.layers());
                        assert!(space.contains(&model), "{}: {} is outside", entry.name, model.layers());
                        evaluated.push(Candidate { genome, costs: costs(&model) });
                    }
                }
                evaluated.iter().map(|candidate| space.model(&candidate.genome).to_toml()).collect()
            };
            let first = run(1);
            let different: HashSet<&String> = first.iter().collect();
            assert_eq!(different.len(), first.len(), "{}: an architecture twice", entry.name);
            assert_eq!(first, run(1), "{}", entry.name);
            assert_ne!(first, run(2), "{}", entry.name);
        }
    }
}

#[test]
fn proxies_score_every_backbone_the_same_each_time() {
    for backbone in REGISTRY.backbones {
        let lengths = if backbone.ignored_keys().contains(&"max_len") { "mem_len=4" } else { "max_len=8" };
        let toml = format!(
            "backbone='{}'\nlayers='s f s f'\nd_model=8\nheads=2\ninner=12\nvocab=17\ntgt_len=5\nactivation='relu'\n{lengths}",
            backbone.key()
        );
        let model = Spec::from_toml(&toml, &REGISTRY).and_then(|spec| spec.model(&REGISTRY)).unwrap();
        let probe = random_tokens(&model, 3, 0).unwrap();
        for proxy in PROXIES.iter().filter(|proxy| proxy.needs != Needs::Training) {
            for output in [false, true] {
                let candidate = Scoring { probe: Some(&probe), output, ..Scoring::new(&model) };
                let score =
                    || (proxy.score)(&candidate).unwrap_or_else(|error| panic!("{} {toml}: {error}", proxy.name));
                let scored = score();
                assert_eq!(scored, score(), "{}", proxy.name);
                if let Scored::Score { value, .. } = scored {
                    assert!(value.is_finite(), "{} of {}: {value}", proxy.name, backbone.key());
                }
            }
        }
    }
}
