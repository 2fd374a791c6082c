//! Pruning: what decides it against PyTorch's, from files that `oracles/prune.py` wrote; and what comes out against the
//! whole network with what is gone silenced, in every backbone.

use crate::model;
use lathe_core::{Backbone, Model, Role};
use lathe_model::prune::magnitude::{Mask, nonzero};
use lathe_model::prune::units::{Importance, Spread, choose};
use lathe_model::prune::{blocks, units, vocabulary};
use lathe_model::{Grads, Input, Mixture, Network, REGISTRY, SuperNet, Targets, Training, folder};
use lathe_ops::storage::STORAGES;
use serde_json::Value;
use std::path::PathBuf;

fn fixture(case: &str) -> (Network, Value) {
    let folder = PathBuf::from(format!("{}/tests/it/fixtures/prune/{case}", env!("CARGO_MANIFEST_DIR")));
    let text = std::fs::read_to_string(folder.join("scores.json")).unwrap_or_else(|error| panic!("{case}: {error}"));
    (folder::load(&folder, &REGISTRY).unwrap(), serde_json::from_str(&text).unwrap())
}

fn rows(value: &Value) -> Vec<Vec<u32>> {
    serde_json::from_value(value.clone()).unwrap()
}

fn close(found: &[f64], expected: &[f64], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (a, b) in found.iter().zip(expected) {
        assert!((a - b).abs() < 2e-5 * (1.0 + b.abs()), "{what}: {found:?}, not {expected:?}");
    }
}

#[test]
fn importance_and_influence_are_those_of_pytorch() {
    for case in ["gpt2", "llama", "bert"] {
        let (network, scores) = fixture(case);
        let samples: Vec<(Vec<u32>, Vec<u32>)> =
            rows(&scores["ids"]).into_iter().zip(rows(&scores["targets"])).collect();
        assert!(samples.len() > 1);
        let mut influence = blocks::Influence::default();
        for knob in ["heads", "inner"] {
            let mut by_gradients = Importance::new(&network, knob).unwrap();
            let mut by_activations = Importance::new(&network, knob).unwrap();
            for (ids, targets) in &samples {
                let input = Input::tokens(ids, 1);
                let training = Training { dropout_key: None, balance: 0.0, scale: 1.0 / ids.len() as f32 };
                let mut grads = Grads::new(network.params());
                network.train(&input, &Targets(targets), &mut network.init_memory(1), &training, &mut grads);
                by_gradients.add_gradients(&network, grads.finish());
                let observation = network.observe(&input, &mut network.init_memory(1));
                by_activations.add_activations(&observation);
                influence.add(&observation);
            }
            for (name, importance) in [("gradient", by_gradients), ("activations", by_activations)] {
                let expected: Vec<Vec<f64>> = serde_json::from_value(scores[knob][name].clone()).unwrap();
                let found: Vec<Vec<f64>> = importance.scores().into_iter().filter(|slot| !slot.is_empty()).collect();
                assert_eq!(found.len(), expected.len(), "{case} {knob} {name}");
                for (found, expected) in found.iter().zip(&expected) {
                    close(found, expected, &format!("{case} {knob} {name}"));
                }
            }
        }
        let expected: Vec<f64> = serde_json::from_value(scores["influence"].clone()).unwrap();
        close(&influence.scores(), &expected, &format!("{case} influence"));
    }
}

const LEN: usize = 6;
const BATCH: usize = 2;
const VOCAB: u32 = 13;

fn small(backbone: &dyn Backbone, layers: &str, extra: &str) -> Model {
    let lengths = if backbone.ignored_keys().contains(&"max_len") { "mem_len=5" } else { "max_len=12" };
    let sizes = "d_model=8\nheads=4\nd_head=2\ninner=12\ntgt_len=6";
    model(&format!("backbone='{}'\nlayers='{layers}'\nvocab={VOCAB}\n{sizes}\n{lengths}\n{extra}", backbone.key()))
}

/// Every backbone, with what changes its units or its vocabulary where it has the keys.
fn cases(layers: &str) -> Vec<Model> {
    let mut models = Vec::new();
    for &backbone in REGISTRY.backbones {
        models.push(small(backbone, layers, ""));
        models.push(small(backbone, layers, "norm='pre'\ntie_embeddings=false"));
        if backbone.own_keys().iter().any(|own| own.key.name == "kv_heads") {
            models.push(small(backbone, layers, "kv_heads=2\nqkv_bias=true\nhead_norm=true"));
        }
    }
    models
}

fn name(model: &Model) -> String {
    format!("{} {} {:?}", model.frame.backbone.key(), model.layers(), model.frame.own)
}

/// Weights that are no constants, as large as those of trained networks.
fn network(model: &Model) -> Network {
    let mut network = Network::new(model.clone(), 3).unwrap();
    for (i, param) in network.params_mut().enumerate() {
        for (j, x) in param.data.iter_mut().enumerate() {
            *x = 5.0 * *x + 0.1 * ((i * 31 + j * 17) as f32).sin();
        }
    }
    network
}

fn ids() -> Vec<u32> {
    (0..(BATCH * LEN) as u32).map(|i| (i * i + 3 * i + 1) % VOCAB).collect()
}

/// Logits of two segments, the second after the memory of the first where there is one.
fn logits(network: &Network, ids: &[u32]) -> Vec<f32> {
    let mut state = network.init_memory(BATCH);
    let mut out = network.logits(&Input::tokens(ids, BATCH), &mut state).to_vec();
    if network.model.frame.has_memory() {
        out.extend_from_slice(&network.logits(&Input::tokens(ids, BATCH), &mut state));
    }
    out
}

fn same(a: &[f32], b: &[f32], what: &str) {
    assert_eq!(a.len(), b.len(), "{what}");
    let worst = a.iter().zip(b).fold(0.0f32, |worst, (a, b)| worst.max((a - b).abs()));
    assert!(worst <= 1e-5, "{what}: {worst}");
}

/// The network with the weights by which some units write set to 0.
fn silenced(model: &Model, knob: &str, kept: &[Vec<usize>]) -> Network {
    let mut silenced = network(model);
    let all = units::units(&silenced, knob).unwrap();
    for (units, kept) in all.iter().zip(kept).filter_map(|(units, kept)| Some((units.as_ref()?, kept))) {
        for slice in units.slices.iter().filter(|slice| slice.writes) {
            let at = silenced.params().position(slice.param);
            let param = silenced.params_mut().nth(at).unwrap();
            let inner: usize = param.shape[slice.axis + 1..].iter().product::<usize>() * slice.width;
            for (i, unit) in param.data.chunks_exact_mut(inner).enumerate() {
                if !kept.contains(&(i % units.count)) {
                    unit.fill(0.0);
                }
            }
        }
    }
    silenced
}

#[test]
fn without_units_is_as_if_they_were_silent() {
    for knob in ["heads", "inner"] {
        for model in cases("s f s3d2 f7") {
            if model.frame.int("kv_heads") == Some(2) {
                continue; // three heads cannot share two of keys
            }
            check_units(&model, knob);
        }
        for model in cases("s f - s f") {
            check_units(&model, knob);
        }
    }
}

fn check_units(model: &Model, knob: &str) {
    let what = format!("{knob}: {}", name(model));
    let network = network(model);
    if network.slot(0).units.is_empty() && knob == "heads" {
        let error = units::units(&network, knob).unwrap_err().to_string(); // heads with a table of all layers
        return assert!(error.contains("which can go one by one"), "{what}: {error}");
    }
    let mut importance = Importance::new(&network, knob).unwrap();
    importance.add_activations(&network.observe(&Input::tokens(&ids(), BATCH), &mut network.init_memory(BATCH)));
    for evenly in [false, true] {
        let kept = choose(&importance.scores(), &Spread { share: 0.5, evenly, least: 1 });
        let pruned = units::keep(&network, knob, &kept).unwrap();
        assert!(pruned.params().count() < network.params().count(), "{what}");
        same(&logits(&pruned, &ids()), &logits(&silenced(model, knob, &kept), &ids()), &what);
        // It is an ordinary model: what is saved loads and gives the same.
        let dir = tempfile::tempdir().unwrap();
        folder::save(&pruned, dir.path()).unwrap();
        let again = folder::load(dir.path(), &REGISTRY).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(logits(&again, &ids()), logits(&pruned, &ids()), "{what}");
    }
}

#[test]
fn without_blocks_is_as_if_they_were_skipped() {
    for model in cases("s f s f f") {
        let network = network(&model);
        let skip = *REGISTRY.blocks.iter().find(|kind| kind.role() == Role::Identity).unwrap();
        for gone in [vec![0], vec![3], vec![1, 2], vec![0, 1, 4]] {
            let shorter = blocks::without(&network, &gone).unwrap();
            assert_eq!(shorter.model.blocks.len(), 5 - gone.len());
            // The same weights in a net that may skip every slot.
            let slots: Vec<_> = model.blocks.iter().map(|&block| vec![block, lathe_core::Block::new(skip)]).collect();
            let mut net = SuperNet::new(model.frame.clone(), &slots, 0).unwrap();
            net.adopt(&[0; 5], &network);
            let mixtures: Vec<Mixture> = (0..5).map(|slot| Mixture::Hard(usize::from(gone.contains(&slot)))).collect();
            let targets: Vec<u32> = ids().iter().map(|id| (id + 1) % VOCAB).collect();
            let (ids, mut state, mut of_net) = (ids(), shorter.init_memory(BATCH), net.init_memory(BATCH));
            for _ in 0..2 {
                let input = Input::tokens(&ids, BATCH);
                let found = shorter.loss(&input, &Targets(&targets), &mut state);
                let expected = net.loss(&input, &Targets(&targets), &mut of_net, &mixtures);
                same(&found, &expected, &format!("{}: {gone:?}", name(&model)));
                if !model.frame.has_memory() {
                    break;
                }
            }
        }
    }
}

#[test]
fn fewer_tokens_have_the_same_logits() {
    let kept: Vec<u32> = vec![0, 1, 4, 5, 8, 12];
    for model in cases("s f") {
        let network = network(&model);
        let smaller = vocabulary::keep(&network, &kept).unwrap();
        assert_eq!(smaller.model.frame.vocab, kept.len() as u32);
        let new: Vec<u32> = (0..(BATCH * LEN) as u32).map(|i| (i * i + i) % kept.len() as u32).collect();
        let old: Vec<u32> = new.iter().map(|&id| kept[id as usize]).collect();
        let all = logits(&network, &old);
        let of_kept = |row: &[f32]| kept.iter().map(|&id| row[id as usize]).collect::<Vec<_>>();
        let mut expected: Vec<f32> = all.chunks_exact(VOCAB as usize).flat_map(of_kept).collect();
        let mut found = logits(&smaller, &new);
        if network.log_probabilities() {
            // Over fewer tokens the same logits have other probabilities.
            for values in [&mut expected, &mut found] {
                for row in values.chunks_exact_mut(kept.len()) {
                    let first = row[0];
                    row.iter_mut().for_each(|x| *x -= first);
                }
            }
        }
        same(&found, &expected, &name(&model));
    }
    let adaptive = small(REGISTRY.backbone("transformer_xl").unwrap(), "s f", "cutoffs=[4,8]");
    let error = vocabulary::keep(&network(&adaptive), &kept).err().unwrap().to_string();
    assert!(error.contains("cutoffs") && error.contains("adaptive softmax"), "{error}");
}

#[test]
fn weights_keep_their_storage() {
    let model = small(REGISTRY.backbone("llama").unwrap(), "s f s f", "");
    for &storage in STORAGES {
        let mut network = network(&model);
        network.set_storage(storage);
        let kept = [vec![0, 2], vec![], vec![1], vec![]];
        for pruned in [
            units::keep(&network, "heads", &kept).unwrap(),
            blocks::without(&network, &[1]).unwrap(),
            vocabulary::keep(&network, &[1, 2, 3]).unwrap(),
        ] {
            assert!(pruned.params().iter().all(|param| param.storage().key() == storage.key()));
            // No value is rounded once more: each is one of those there were.
            let last = |network: &Network| network.params().iter().last().unwrap().read().into_owned();
            assert_eq!(last(&pruned), last(&network));
        }
    }
}

#[test]
fn the_lowest_scores_go() {
    let scores = vec![vec![0.9, 0.1, 0.3, 0.2], vec![], vec![0.05, 0.8], vec![0.01, 0.02, 0.03, 0.04]];
    let chosen = |share, evenly, least| choose(&scores, &Spread { share, evenly, least });
    // Half of ten: the five lowest of all, but one stays in each slot.
    assert_eq!(chosen(0.5, false, 1), vec![vec![0, 2, 3], vec![], vec![1], vec![3]]);
    assert_eq!(chosen(0.5, true, 1), vec![vec![0, 2], vec![], vec![1], vec![2, 3]]);
    // No more than the least allows.
    assert_eq!(chosen(1.0, false, 1), vec![vec![0], vec![], vec![1], vec![3]]);
    assert_eq!(chosen(1.0, true, 3), vec![vec![0, 2, 3], vec![], vec![0, 1], vec![1, 2, 3]]);
    assert_eq!(chosen(0.0, false, 1).iter().map(Vec::len).collect::<Vec<_>>(), [4, 0, 2, 4]);
}

#[test]
fn what_cannot_be_pruned_is_told() {
    let llama = REGISTRY.backbone("llama").unwrap();
    let shared = network(&small(llama, "s f", "kv_heads=1"));
    let error = units::units(&shared, "heads").unwrap_err().to_string();
    assert!(error.contains("heads") && error.contains("several"), "{error}");
    let network = network(&small(llama, "s f -", ""));
    for count in [0, 2, 3] {
        let error = blocks::least(&network, &[0.1, 0.2, 0.0], count).unwrap_err().to_string();
        assert!(error.contains("1 to 1"), "{error}");
    }
    assert_eq!(blocks::least(&network, &[0.2, 0.1, 0.0], 1).unwrap(), [1]);
}

#[test]
fn the_smallest_weights_go() {
    let model = small(REGISTRY.backbone("gpt2").unwrap(), "s f", "");
    for evenly in [false, true] {
        let mut network = network(&model);
        let before = nonzero(&network);
        let mask = Mask::of_smallest(&network, 0.6, evenly);
        assert!((mask.sparsity() - 0.6).abs() < 0.01, "{}", mask.sparsity());
        let whole: Vec<Vec<f32>> = network.params().iter().map(|param| param.data.clone()).collect();
        mask.apply_to(&mut network);
        let (mut gone, mut prunable, mut largest_gone, mut smallest_left) = (0, 0, 0.0f32, f32::MAX);
        for (param, whole) in network.params().iter().zip(&whole) {
            let zeros = param.data.iter().zip(whole).filter(|(now, before)| **now == 0.0 && **before != 0.0).count();
            let is_matrix = param.name.contains(".h.") && param.shape.len() == 2;
            assert!(is_matrix || zeros == 0, "{}", param.name);
            if !is_matrix {
                continue;
            }
            (gone, prunable) = (gone + zeros, prunable + param.count());
            for (now, before) in param.data.iter().zip(whole) {
                match *now == 0.0 {
                    true => largest_gone = largest_gone.max(before.abs()),
                    false => smallest_left = smallest_left.min(before.abs()),
                }
            }
            if evenly {
                let share = zeros as f64 / param.count() as f64;
                assert!((share - 0.6).abs() <= 0.5 / param.count() as f64 + 1e-9, "{}: {share}", param.name);
            }
        }
        assert!(gone.abs_diff((prunable as f64 * 0.6).round() as usize) <= if evenly { 2 } else { 0 }, "{gone}");
        assert!(evenly || largest_gone <= smallest_left);
        assert_eq!(nonzero(&network), before - gone as u64);
        // What is 0 stays so, and goes first.
        assert_eq!(Mask::of_zeros(&network), mask);
        let more = Mask::of_smallest(&network, 0.8, evenly);
        more.apply_to(&mut network);
        assert!(Mask::of_zeros(&network) == more && (more.sparsity() - 0.8).abs() < 0.01);
        // Ties: half of equal weights.
        network.params_mut().for_each(|param| param.data.fill(0.5));
        assert!((Mask::of_smallest(&network, 0.5, evenly).sparsity() - 0.5).abs() < 0.01);
    }
}
