//! Products in bf16: every model's losses, outputs and gradients are those of f32 within bf16's rounding, and the same
//! bits each time.
//!
//! A number rounded to bf16 is off by at most 2^-9 of itself, a product by 2^-8, which the tests of products hold
//! them to. The layers of these models, with weights far from 0, make more of it where sums cancel: up to 8 % of the
//! length of a gate's gradient, mostly below 2 %.

use crate::composed::{BATCH, MODELS, TRAINING, network, segments};
use lathe_model::{Grads, Input, Network, Precision, Targets};
use lathe_ops::attention::KeptAs;

const TOLERANCE: f32 = 0.1;

fn in_bf16(toml: &str) -> Network {
    let mut network = network(toml);
    network.set_precision(Precision::Bf16);
    network
}

/// Losses and logits of two segments, then all gradients.
fn everything(network: &Network) -> Vec<Vec<f32>> {
    let mut grads = Grads::new(network.params());
    let mut state = network.init_memory(BATCH);
    let mut found = Vec::new();
    for (ids, targets) in segments() {
        found.push(network.logits(&Input::tokens(&ids, BATCH), &mut state.clone()).to_vec());
        found.push(
            network.train(&Input::tokens(&ids, BATCH), &Targets(&targets), &mut state, &TRAINING, &mut grads).losses,
        );
    }
    found.extend(grads.finish().to_vec());
    found
}

#[test]
fn within_rounding_of_f32() {
    for toml in MODELS {
        let (found, expected) = (everything(&in_bf16(toml)), everything(&network(toml)));
        let same = found == expected;
        assert_eq!(same, Precision::Bf16.warning().is_some(), "{toml}: in bf16 only where the CPU has it");
        for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let length = |x: &mut dyn Iterator<Item = f32>| x.map(|x| x * x).sum::<f32>().sqrt();
            let off = length(&mut found.iter().zip(expected).map(|(a, b)| a - b));
            let all = length(&mut expected.iter().copied());
            assert!(off <= TOLERANCE * all, "{toml}: array {i} is off by {off} of {all}");
        }
    }
}

#[test]
fn the_same_bits_each_time_and_on_any_number_of_threads() {
    for toml in MODELS {
        let on = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| everything(&in_bf16(toml)))
        };
        assert!(on(1) == on(1) && on(1) == on(2), "{toml}");
    }
}

/// Weights packed for a step are packed anew once they change, and a frozen network computes what the open one did.
#[test]
fn packed_weights_follow_the_parameters() {
    for toml in MODELS {
        let (ids, targets) = segments().remove(0);
        let loss = |network: &Network| {
            network.loss(&Input::tokens(&ids, BATCH), &Targets(&targets), &mut network.init_memory(BATCH))
        };
        let [mut changed, mut expected] = [in_bf16(toml), network(toml)];
        loss(&changed);
        for network in [&mut changed, &mut expected] {
            network.params_mut().for_each(|param| param.data.iter_mut().for_each(|x| *x *= 0.5));
        }
        expected.set_precision(Precision::Bf16);
        let losses = loss(&changed);
        assert_eq!(losses, loss(&expected), "{toml}");
        changed.freeze();
        assert_eq!(losses, loss(&changed), "{toml}: frozen");
    }
}

/// Tokens one by one with keys and values kept in fewer bits: near to those of f32, in bf16 nearer than in int8.
#[test]
fn caches_of_fewer_bits() {
    for toml in MODELS {
        let mut network = network(toml);
        if !network.model.frame.backbone.causal() {
            continue;
        }
        let mut logits = |kind: KeptAs| {
            network.set_cache(kind);
            let mut state = network.init_cache(BATCH, 1, &network.init_memory(BATCH));
            let (ids, _) = &segments()[0];
            let len = ids.len() / BATCH;
            let step = |t: usize| ids.iter().skip(t).step_by(len).copied().collect::<Vec<u32>>();
            (0..len)
                .flat_map(|t| network.logits(&Input::tokens(&step(t), BATCH), &mut state).to_vec())
                .collect::<Vec<f32>>()
        };
        let [exact, bf16, int8] = [KeptAs::F32, KeptAs::Bf16, KeptAs::Int8].map(&mut logits);
        let length = |x: &mut dyn Iterator<Item = f32>| x.map(|x| x * x).sum::<f32>().sqrt();
        let off = |found: &[f32]| length(&mut found.iter().zip(&exact).map(|(a, b)| a - b));
        let all = length(&mut exact.iter().copied());
        assert!(off(&bf16) <= 0.02 * all && off(&int8) <= 0.04 * all, "{toml}: {} {} of {all}", off(&bf16), off(&int8));
        // Relative attention keeps f32.
        let relative = toml.contains("transformer_xl");
        assert!((off(&bf16) == 0.0) == relative && (off(&int8) == 0.0) == relative, "{toml}");
    }
}
