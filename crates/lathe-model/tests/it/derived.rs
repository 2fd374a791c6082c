//! Blocks that are made out of trained ones: what they compute against what the trained ones do.

use lathe_core::{Backbone, Block, Model};
use lathe_model::blocks::BLOCKS;
use lathe_model::derive::{self, Origin};
use lathe_model::{Input, Network, REGISTRY, Taps};

const VOCAB: u32 = 13;
const LEN: usize = 12;
const BATCH: usize = 3;
const WIDTH: usize = 16;

/// What changes how a feed-forward's weights lie: plain and gated, before the norm and after it.
const EXTRA: &[&str] = &["", "activation='swiglu'", "activation='relu'", "norm='pre'", "norm='post'"];

fn model_of(backbone: &dyn Backbone, layers: &str, extra: &str) -> Model {
    let lengths = if backbone.ignored_keys().contains(&"max_len") { "mem_len=5" } else { "max_len=12" };
    let sizes = format!("d_model={WIDTH}\nheads=2\ninner=64\ntgt_len={LEN}");
    crate::model(&format!(
        "backbone='{}'\nlayers='{layers}'\nvocab={VOCAB}\n{sizes}\n{lengths}\n{extra}",
        backbone.key()
    ))
}

/// Each backbone in each case; weights that are no constants, norms and biases too.
fn networks() -> Vec<(String, Network)> {
    let cases = REGISTRY.backbones.iter().flat_map(|&backbone| EXTRA.iter().map(move |extra| (backbone, extra)));
    let network = |(backbone, extra): (&'static dyn Backbone, &&str)| {
        let mut network = Network::new(model_of(backbone, "s f", extra), 3).unwrap();
        let mut state = 7u32;
        for param in network.params_mut() {
            for x in &mut param.data {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                *x = 5.0 * *x + 0.3 * ((state >> 8) as f32 / (1 << 24) as f32 - 0.5);
            }
        }
        (format!("{} {extra}", backbone.key()), network)
    };
    cases.map(network).collect()
}

fn ids(seed: u32) -> Vec<u32> {
    (0..(BATCH * LEN) as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 7).wrapping_add(seed) % VOCAB).collect()
}

/// What enters the second slot, and what leaves it.
fn around(network: &Network, seed: u32) -> [Vec<f32>; 2] {
    let taps = Taps { hidden: vec![1, 2], until: Some(2), ..Taps::NONE };
    let ids = ids(seed);
    let (_, seen) = network.look(&Input::tokens(&ids, BATCH), &mut network.init_memory(BATCH), &taps);
    [0, 1].map(|i| seen.hidden[i].as_ref().expect("the pass came there").to_vec())
}

/// The network with another block in the place of its feed-forward.
fn with(network: &Network, block: &str, hidden: Option<&[f32]>) -> Network {
    let frame = &network.model.frame;
    let blocks = lathe_core::notation::parse(&format!("s {block}"), &REGISTRY).unwrap();
    let model = Model::new(frame.clone(), blocks).unwrap();
    let seen = |slot: usize| hidden.filter(|_| slot == 1);
    let mut largest = derive::largest(network);
    let (made, origins) = derive::derive_seen(network, &seen, model, &[Some(0), Some(1)], 0, &mut largest).unwrap();
    assert_eq!(origins, [Origin::Copied, Origin::Derived], "{block}");
    made
}

/// The largest difference, relative to the largest entry.
fn difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let most = b.iter().fold(1e-3f32, |most, x| most.max(x.abs()));
    a.iter().zip(b).fold(0.0f32, |worst, (a, b)| worst.max((a - b).abs())) / most
}

/// The mean square of what is missing, as a share of what the block adds.
fn error(found: &[f32], [before, after]: &[Vec<f32>; 2]) -> f64 {
    let sum = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>();
    sum(found, after) / sum(before, after)
}

fn without_gate(mut network: Network) -> Network {
    network.params_mut().filter(|param| param.name.ends_with("moe.gate.weight")).for_each(|param| param.data.fill(0.0));
    network
}

#[test]
fn all_experts_with_an_equal_gate_are_the_feed_forward() {
    for (name, network) in networks() {
        let expected = &around(&network, 1)[1];
        for block in ["m4k4i16", "m8k8i8", "moe{experts=4,top_k=4,inner=16,renormalise=true}", "m1k1i64"] {
            let found = &around(&without_gate(with(&network, block, None)), 1)[1];
            let difference = difference(found, expected);
            assert!(difference < 1e-5, "{name}: {block}: {difference}");
        }
    }
}

#[test]
fn a_full_rank_is_the_feed_forward() {
    for (name, network) in networks() {
        let known = around(&network, 1);
        for hidden in [None, Some(&*known[0])] {
            for rank in [WIDTH, WIDTH + 4] {
                let made = with(&network, &format!("low_rank{{inner=64,rank={rank}}}"), hidden);
                let difference = difference(&around(&made, 2)[1], &around(&network, 2)[1]);
                assert!(difference < 1e-4, "{name}: rank {rank}: {difference}");
            }
        }
    }
}

/// The blocks that kinds offer to make of a feed-forward, besides nothing.
fn offered(network: &Network) -> Vec<Block> {
    let (frame, from) = (&network.model.frame, &network.model.blocks[1]);
    let derived = BLOCKS.iter().map(|kind| kind.derived(from, frame));
    derived.flatten().filter(|block| block.kind.role() != lathe_core::Role::Identity).collect()
}

#[test]
fn what_is_offered_is_cheaper_and_can_be_made() {
    for (name, network) in networks() {
        let frame = &network.model.frame;
        let setting = lathe_core::Setting::of(&network.model);
        let flops = |block: &Block| block.kind.cost(block, frame, &setting).flops;
        let offered = offered(&network);
        assert!(offered.iter().any(|block| format!("{block:?}").starts_with("m4k1i16")), "{name}: {offered:?}");
        for block in &offered {
            assert!(flops(block) < flops(&network.model.blocks[1]), "{name}: {block:?}");
            with(&network, &format!("{block:?}"), None);
        }
        for kind in BLOCKS {
            let costs: Vec<u128> = kind.derived(&network.model.blocks[1], frame).iter().map(flops).collect();
            assert!(costs.is_sorted(), "{name}: {} from the cheapest on", kind.key());
        }
        let skip = lathe_core::notation::parse("-", &REGISTRY).unwrap()[0];
        assert!(BLOCKS.iter().all(|kind| kind.derived(&skip, frame).is_empty()), "{name}: of nothing comes nothing");
        let of_attention = BLOCKS.iter().flat_map(|kind| kind.derived(&network.model.blocks[0], frame));
        assert_eq!(of_attention.collect::<Vec<_>>(), [skip], "{name}");
    }
}

/// What is made for given hidden states is nearer to the feed-forward there than nothing is, and on the whole nearer than what
/// is made for none.
#[test]
fn what_is_made_for_hidden_states_is_nearer() {
    let mut sums: Vec<(String, [f64; 2])> = Vec::new();
    for (name, network) in networks() {
        let known = around(&network, 1);
        for block in offered(&network).iter().map(|block| format!("{block:?}")) {
            let errors = [None, Some(&*known[0])].map(|hidden| {
                let made = with(&network, &block, hidden);
                error(&around(&made, 1)[1], &known)
            });
            assert!(errors[1] < 1.0, "{name}: {block}: {errors:?}");
            match sums.iter_mut().find(|(of, _)| *of == block) {
                Some((_, sums)) => sums.iter_mut().zip(errors).for_each(|(sum, error)| *sum += error),
                None => sums.push((block, errors)),
            }
        }
    }
    assert!(sums.iter().all(|(_, [plain, fitted])| fitted < plain), "{sums:?}");
}

/// Experts that share neurons, or leave some out; more experts than neurons; wider ones than there are neurons.
#[test]
fn experts_of_any_size_come_out_of_a_feed_forward() {
    let (_, network) = networks().remove(0);
    for block in ["m8k1i32", "m8", "m3k2i5", "m3k3i21", "m100k2i3", "m2k1i1"] {
        for hidden in [None, Some(&*around(&network, 1)[0])] {
            let made = with(&network, block, hidden);
            assert!(around(&made, 2)[1].iter().all(|x| x.is_finite()), "{block}");
        }
    }
    let wide =
        Model::new(network.model.frame.clone(), lathe_core::notation::parse("s m2k1i65", &REGISTRY).unwrap()).unwrap();
    let largest = &mut derive::largest(&network);
    let (_, origins) = derive::derive(&network, wide, &[Some(0), Some(1)], 0, largest).unwrap();
    assert_eq!(origins, [Origin::Copied, Origin::Fresh]);
}
