//! Runs whose weights become 0 and stay so.

use lathe_core::Spec;
use lathe_model::prune::magnitude::Mask;
use lathe_model::{Network, REGISTRY, folder};
use lathe_train::checkpoint;
use lathe_train::run;
use lathe_train::settings::Settings;
use std::path::Path;

const MODEL: &str = "backbone='gpt2'\nlayers='sf'\nd_model=16\nheads=2\ninner=32\nvocab=256\nmax_len=16";

fn settings(out: &Path) -> Settings {
    let out = out.display().to_string();
    let (data, steps, checkpoint_every) = ("builtin:0.02".to_string(), 40, 10);
    Settings { data, steps, batch: 4, checkpoint_every, keep: 10, out, lr: 0.01, ..Settings::default() }
}

fn train(settings: &Settings) -> Network {
    let spec = Spec::from_toml(MODEL, &REGISTRY).unwrap();
    run::begin(settings, &spec, &REGISTRY, &mut |_| {}).unwrap();
    folder::load(Path::new(&settings.out), &REGISTRY).unwrap()
}

fn weights(network: &Network) -> Vec<Vec<f32>> {
    network.params().iter().map(|param| param.read().into_owned()).collect()
}

#[test]
fn zeros_come_and_stay_whatever_the_rule() {
    for rule in ["adamw", "lamb"] {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("run");
        let sparse =
            Settings { sparsity: 0.7, optimizer: rule.into(), sparsity_evenly: rule == "lamb", ..settings(&out) };
        let network = train(&sparse);
        let zeros = Mask::of_zeros(&network);
        assert!((zeros.sparsity() - 0.7).abs() < 0.01, "{rule}: {}", zeros.sparsity());
        // More and more on the way.
        let on_the_way = |step: u32| {
            let path = checkpoint::path(&out.join("checkpoints"), step);
            Mask::of_zeros(&folder::load(&path, &REGISTRY).unwrap()).sparsity()
        };
        let shares = [10, 20, 30, 40].map(on_the_way);
        assert!(0.3 < shares[0] && shares[0] < shares[1] && shares[1] < shares[2], "{rule}: {shares:?}");
        assert_eq!(shares[2], shares[3], "{rule}");
        // Trained on, the same weights are 0, and the others move.
        let more = dir.path().join("more");
        let on =
            Settings { init: out.display().to_string(), keep_zeros: true, optimizer: rule.into(), ..settings(&more) };
        let after = train(&on);
        assert_eq!(Mask::of_zeros(&after), zeros, "{rule}");
        assert_ne!(weights(&after), weights(&network), "{rule}");
        // Without the word they come back.
        let free = dir.path().join("free");
        let free = Settings { keep_zeros: false, out: free.display().to_string(), ..on };
        assert!(Mask::of_zeros(&train(&free)).sparsity() < 0.1, "{rule}");
    }
}

#[test]
fn a_run_that_went_on_has_the_same_bits() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, half) = (dir.path().join("whole"), dir.path().join("half"));
    let network = train(&Settings { sparsity: 0.6, ..settings(&whole) });
    // As if it had been killed after step 25.
    let at = checkpoint::path(&half.join("checkpoints"), 20);
    std::fs::create_dir_all(&at).unwrap();
    std::fs::copy(whole.join("run.toml"), half.join("run.toml")).unwrap();
    for entry in std::fs::read_dir(checkpoint::path(&whole.join("checkpoints"), 20)).unwrap() {
        let from = entry.unwrap().path();
        std::fs::copy(&from, at.join(from.file_name().unwrap())).unwrap();
    }
    run::resume(&half, &REGISTRY, &mut |_| {}).unwrap();
    assert_eq!(weights(&folder::load(&half, &REGISTRY).unwrap()), weights(&network));
}

#[test]
fn the_best_on_the_way_may_not_be_sparse() {
    let error = Settings { sparsity: 0.5, patience: 2, ..Settings::default() }.check().unwrap_err().to_string();
    assert!(error.contains("patience") && error.contains("sparsity"), "{error}");
}
