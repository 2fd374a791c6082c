//! Differentiable searches: what is to be found is known from how the task is made.

use lathe_core::{Block, Fault, Spec, notation};
use lathe_model::{Network, REGISTRY, SuperNet};
use lathe_search::Error;
use lathe_search::differentiable::gumbel::{Relaxation, Sampling};
use lathe_search::differentiable::latency::{CostTable, Target};
use lathe_search::differentiable::run::{self, Outcome, Search};
use lathe_search::differentiable::settings::{Preset, SearchSettings};
use lathe_search::differentiable::task::{self, Task};
use lathe_train::settings::Settings;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::path::Path;

const FRAME: &str = "backbone='transformer_xl'\nlayers='s'\nd_model=32\nvocab=256\nheads=2\nd_head=16\ninner=64\n\
                     tgt_len=8\nmem_len=8\nnorm='pre'\ntie_embeddings=false";

/// Random pairs of letters out of 4, each told 16 times in a row: a letter is the one two places before it, and nothing
/// but attention can know that one. Embeddings are not tied: where only skips run, tied ones would have to be alike.
fn copies(path: &Path) {
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let mut text = Vec::new();
    for _ in 0..1000 {
        let word: Vec<u8> = (0..2).map(|_| b'a' + rng.random_range(0..4u8)).collect();
        text.extend(word.repeat(16));
    }
    std::fs::write(path, text).unwrap();
}

fn parse(blocks: &str) -> Vec<Block> {
    notation::parse(blocks, &REGISTRY).unwrap()
}

/// A search over copies: the options and latencies of each slot.
fn task(folder: &Path, slots: &[(&str, &[f64])], baseline: f64, target: Option<f64>) -> Task {
    let data = folder.join("copies.txt");
    if !data.exists() {
        copies(&data);
    }
    let preset = SearchSettings::preset(if target.is_some() { Preset::Planer } else { Preset::Par }, None);
    let settings =
        SearchSettings { target: target.map(Target::Ratio), rounds: 30, arch_lr: 0.1, annealing: 0.9, ..preset };
    let training = Settings {
        data: data.display().to_string(),
        steps: 1200,
        batch: 16,
        lr: 1e-2,
        warmup: 0.05,
        weight_decay: 0.0,
        balance: 0.0,
        ..Settings::default()
    };
    Task {
        frame: Spec::from_toml(FRAME, &REGISTRY).unwrap().model(&REGISTRY).unwrap().frame,
        slots: slots.iter().map(|(options, _)| parse(options)).collect(),
        baseline: parse("s"),
        table: CostTable { slots: slots.iter().map(|(_, costs)| costs.to_vec()).collect(), fixed: 0.0, baseline },
        training,
        settings,
        options: None,
    }
}

fn search(folder: &Path, name: &str, task: &Task) -> Outcome {
    run::begin(task, &folder.join(name), &REGISTRY, &mut |_| ()).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn letters(layers: &str) -> String {
    parse(layers).iter().map(|block| block.kind.letter().unwrap()).collect()
}

#[test]
fn a_task_that_needs_one_attention_keeps_exactly_one() {
    let folder = tempfile::tempdir().unwrap();
    let costs: &[f64] = &[10.0, 2.0, 0.0];
    let task = task(folder.path(), &[("s f -", costs), ("s f -", costs), ("s f -", costs)], 30.0, Some(0.5));
    let outcome = search(folder.path(), "one", &task);
    let found = letters(&outcome.layers);
    assert_eq!(found.matches('s').count(), 1, "{outcome:?}");
    assert!(outcome.estimate <= 0.5 && outcome.loss < 1.0, "{outcome:?}");
}

#[test]
fn attention_stays_where_alone_it_is_offered() {
    let folder = tempfile::tempdir().unwrap();
    let slots: &[(&str, &[f64])] = &[("f -", &[2.0, 0.0]), ("s f -", &[10.0, 2.0, 0.0]), ("f -", &[2.0, 0.0])];
    let mut task = task(folder.path(), slots, 14.0, Some(0.8)); // 11.2: one f beside the attention would be too much
    task.training.steps = 2000; // attention is drawn in one slot only, and learns later
    let outcome = search(folder.path(), "where", &task);
    assert_eq!(letters(&outcome.layers), "-s-", "{outcome:?}");
}

#[test]
fn of_equal_options_the_faster_wins_while_the_target_is_not_met() {
    let folder = tempfile::tempdir().unwrap();
    let costs: &[f64] = &[10.0, 1.0];
    let mut task = task(folder.path(), &[("f64 f64", costs), ("f64 f64", costs)], 20.0, Some(0.15));
    (task.training.steps, task.settings.rounds) = (60, 20);
    task.settings.arch_share = 1.0;
    let outcome = search(folder.path(), "equal", &task);
    assert!((outcome.argmax.estimate - 0.1).abs() < 1e-9, "{outcome:?}");
    assert!(outcome.probabilities.iter().all(|slot| slot[1].1 > 0.7), "{outcome:?}");
}

fn lines(path: &Path) -> Vec<serde_json::Value> {
    std::fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn at_a_target_of_1_the_latency_loss_is_0_once_the_estimate_is_the_baselines() {
    let folder = tempfile::tempdir().unwrap();
    // The first slot can be slower than the baseline: the estimate begins above it and comes down.
    let slots: &[(&str, &[f64])] = &[("s f f64", &[30.0, 2.0, 2.0]), ("f -", &[2.0, 0.0])];
    let mut task = task(folder.path(), slots, 8.0, Some(1.0));
    (task.training.steps, task.settings.rounds) = (60, 20);
    task.settings.arch_share = 1.0;
    task.settings.arch_lr = 0.3;
    search(folder.path(), "gate", &task);
    let lines = lines(&folder.path().join("gate/architecture.jsonl"));
    assert!(lines.len() >= 30);
    let mut both = [false; 2];
    for line in &lines {
        let [loss, sampled] = ["latency_loss", "sampled_latency"].map(|key| line[key].as_f64().unwrap());
        match sampled <= 1.0 {
            true => assert_eq!(loss, 0.0, "{line}"),
            false => assert!((loss - sampled).abs() < 1e-12, "{line}"),
        }
        both[usize::from(sampled <= 1.0)] = true;
    }
    assert_eq!(both, [true; 2], "the search began above the target and came below it");
    assert!(lines.last().unwrap()["expected_latency"].as_f64().unwrap() < 1.2, "{:?}", lines.last());
}

#[test]
fn a_target_that_nothing_meets_is_said_so() {
    let folder = tempfile::tempdir().unwrap();
    let task = task(folder.path(), &[("s f", &[10.0, 2.0]), ("s f", &[10.0, 3.0])], 20.0, Some(0.2));
    let error = run::begin(&task, &folder.path().join("none"), &REGISTRY, &mut |_| ()).unwrap_err();
    assert!(matches!(error, Error::Fault(Fault::Setting { .. })), "exit code 2");
    assert_eq!(
        error.to_string(),
        "target-latency: found 0.2, which no architecture meets; expected at least 0.25, the estimate of the fastest \
         architecture of the space, `ff`"
    );
    assert!(!folder.path().join("none").exists(), "nothing was begun");
}

/// What a search ended with, to the bit.
fn bits(folder: &Path) -> (Vec<u8>, serde_json::Value) {
    let checkpoints = folder.join("checkpoints");
    let last = std::fs::read_dir(&checkpoints).unwrap().map(|entry| entry.unwrap().path()).max().unwrap();
    let tensors = std::fs::read(last.join("training.safetensors")).unwrap();
    let mut progress: serde_json::Value =
        serde_json::from_slice(&std::fs::read(last.join("progress.json")).unwrap()).unwrap();
    progress["small"]["seconds"] = serde_json::Value::Null;
    (tensors, progress)
}

#[test]
fn killed_and_resumed_gives_the_same_bits_and_another_seed_others() {
    for (target, relaxation, sampling) in [
        (Some(0.5), Relaxation::Gumbel, Sampling::Soft),
        (Some(0.5), Relaxation::Softmax, Sampling::StraightThrough),
        (None, Relaxation::Gumbel, Sampling::Soft),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let costs: &[f64] = &[10.0, 2.0, 0.0, 3.0];
        let mut task = task(folder.path(), &[("s f - m2k1", costs), ("s f - m2k1", costs)], 20.0, target);
        (task.training.steps, task.settings.rounds, task.training.checkpoint_every) = (20, 4, 5);
        (task.settings.arch_share, task.settings.relaxation, task.settings.arch_samples) = (0.5, relaxation, sampling);
        task.frame.dropout = 0.1;
        let whole = search(folder.path(), "whole", &task);
        let killed = folder.path().join("killed");
        task::write(&task, &killed).unwrap();
        // Two sittings that end between checkpoints, one among weight steps and one among architecture steps.
        for ticks in [8, 11] {
            let mut search = Search::open(&killed, &REGISTRY, &mut |_| ()).unwrap();
            for _ in 0..ticks {
                assert!(search.advance(&mut |_| ()).unwrap());
            }
        }
        let resumed = run::resume(&killed, &REGISTRY, &mut |_| ()).unwrap();
        assert_eq!((&whole.layers, &whole.probabilities), (&resumed.layers, &resumed.probabilities));
        let (a, b) = (bits(&folder.path().join("whole")), bits(&killed));
        assert_eq!(a.1, b.1);
        assert!(a.0 == b.0, "weights, moments and memories to the bit");
        let again = run::resume(&killed, &REGISTRY, &mut |_| ()).unwrap();
        assert_eq!(again.probabilities, resumed.probabilities, "one that has ended returns its outcome again");
        // Its weights are there for whoever trains on: of an option that was trained, not those that it began with.
        let choice = [1, 3];
        let inherited = run::network(&killed, &choice, &REGISTRY).unwrap();
        let ended = Search::open(&killed, &REGISTRY, &mut |_| ()).unwrap().state().net.network(&choice).unwrap();
        let fresh = SuperNet::new(task.frame.clone(), &task.slots, 0).unwrap().network(&choice).unwrap();
        let data = |network: &Network| network.params().iter().map(|param| param.data.clone()).collect::<Vec<_>>();
        assert!(data(&inherited) == data(&ended) && data(&inherited) != data(&fresh));
        task.training.seed = 1;
        assert_ne!(search(folder.path(), "other", &task).probabilities, whole.probabilities);
    }
}

#[test]
fn par_finds_attention_without_a_latency_loss() {
    let folder = tempfile::tempdir().unwrap();
    let costs: &[f64] = &[10.0, 2.0, 0.0];
    let task = task(folder.path(), &[("s f -", costs), ("s f -", costs)], 20.0, None);
    let outcome = search(folder.path(), "par", &task);
    assert!(letters(&outcome.layers).contains('s'), "{outcome:?}");
    assert_eq!((outcome.target, outcome.projected), (None, None));
    let lines = lines(&folder.path().join("par/architecture.jsonl"));
    assert!(lines.iter().all(|line| line["latency_loss"] == 0.0));
}

#[test]
fn settings_that_are_none_are_refused() {
    let planer = SearchSettings::preset(Preset::Planer, Some(Target::Ratio(0.5)));
    planer.check().unwrap();
    for (wrong, place) in [
        (SearchSettings { target: None, ..planer.clone() }, "target-latency"),
        (SearchSettings { temperature: f64::NAN, ..planer.clone() }, "temperature"),
        (SearchSettings { rounds: 0, ..planer.clone() }, "rounds"),
        (SearchSettings { arch_samples: Sampling::Hard, ..planer.clone() }, "arch-samples"),
        (SearchSettings { target: Some(Target::Ratio(-1.0)), ..planer.clone() }, "target-latency"),
    ] {
        let error = wrong.check().unwrap_err();
        assert!(error.to_string().starts_with(&format!("{place}: found")), "{error}");
    }
}
