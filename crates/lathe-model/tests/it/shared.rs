//! Networks whose weights are part of another's: against networks derived from it, and their gradients against differences.

use lathe_core::{Model, notation};
use lathe_model::derive::{self, Origin};
use lathe_model::shared::{Share, whole};
use lathe_model::{Grads, Input, Network, REGISTRY, Targets, Training};

const VOCAB: u32 = 11;
const IDS: [u32; 8] = [3, 1, 4, 1, 5, 9, 2, 6];

/// Wide heads, so that fewer of them have fewer weights.
fn model(backbone: &str, layers: &str) -> Model {
    let lengths = if backbone == "transformer_xl" { "mem_len=0" } else { "max_len=8" };
    crate::model(&format!(
        "backbone='{backbone}'\nlayers='{layers}'\nvocab={VOCAB}\nd_model=8\nd_head=4\nheads=4\ninner=12\ntgt_len=8\n{lengths}"
    ))
}

fn network(model: &Model, seed: u64) -> Network {
    let mut network = Network::new(model.clone(), seed).unwrap();
    network.params_mut().for_each(|param| param.data.iter_mut().for_each(|x| *x *= 4.0));
    network
}

fn held(models: &[Model]) -> Model {
    Model::new(models[0].frame.clone(), whole(models).unwrap()).unwrap()
}

fn loss(network: &Network) -> f64 {
    let losses = network.loss(&Input::tokens(&IDS, 1), &Targets(&IDS), &mut network.init_memory(1));
    losses.into_iter().map(f64::from).sum()
}

#[test]
fn the_whole_has_the_deepest_stack_and_the_widest_blocks() {
    for (stacks, expected) in [
        (&["(sf)x3", "(sf)x5"][..], "(sf)x5"),
        (&["s2 f20 s f", "s f8", "s4 f30"], "s f30 s f"),
        (&["f s", "s f s f"], "sfsf"), // the lowest f, and the s above it
        (&["s - f", "s f f"], "sff"),
    ] {
        let models: Vec<Model> = stacks.iter().map(|layers| model("gpt2", layers)).collect();
        let blocks = |layers: &str| notation::parse(layers, &REGISTRY).unwrap();
        assert_eq!(notation::print(&whole(&models).unwrap()), notation::print(&blocks(expected)), "{stacks:?}");
    }
    let error = whole(&[model("gpt2", "sfsf"), model("gpt2", "ffs")]).unwrap_err().to_string();
    assert!(error.contains("ffs") && error.contains("(sf)x2"), "{error}");
}

#[test]
fn a_part_is_what_is_derived_from_the_whole() {
    for backbone in ["gpt2", "transformer_xl", "llama"] {
        let models = ["s2 f8 s f", "s f s4 f m2k1 f20"].map(|layers| model(backbone, layers));
        let whole = network(&held(&models), 1);
        assert_eq!(whole.model.layers(), "sf s4 f m2k1 f20");
        for (model, slots) in models.iter().zip([[0, 1, 2, 3].as_slice(), &[0, 1, 2, 3, 4, 5]]) {
            let mut part = network(model, 2);
            Share::of(&part, &whole).unwrap().read(&whole, &mut part);
            let slots: Vec<_> = slots.iter().map(|&slot| Some(slot)).collect();
            let first = &mut |_: usize, _: &_, count| (0..count).collect();
            let (derived, origins) = derive::derive(&whole, model.clone(), &slots, 3, first).unwrap();
            assert!(!origins.contains(&Origin::Fresh));
            assert_eq!(loss(&part), loss(&derived), "{backbone} {}", model.layers());
        }
    }
}

#[test]
fn heads_that_cut_the_same_weights_otherwise_share_them_all() {
    let toml =
        |layers: &str| format!("backbone='gpt2'\nlayers='{layers}'\nvocab={VOCAB}\nd_model=8\ninner=12\nmax_len=8");
    let models = ["s2 f", "s4 f s2 f"].map(|layers| crate::model(&toml(layers)));
    let whole = network(&held(&models), 1);
    let mut part = network(&models[0], 2);
    Share::of(&part, &whole).unwrap().read(&whole, &mut part);
    let qkv =
        |network: &Network| network.params().iter().find(|param| param.name.contains("c_attn")).unwrap().data.clone();
    assert_eq!(qkv(&part), qkv(&whole));
}

#[test]
fn gradients_of_a_part_are_those_of_the_weights_it_has() {
    for backbone in ["gpt2", "transformer_xl"] {
        let models = ["s2 f8", "s f s f"].map(|layers| model(backbone, layers));
        let mut whole = network(&held(&models), 1);
        let mut part = network(&models[0], 2);
        let share = Share::of(&part, &whole).unwrap();
        share.read(&whole, &mut part);
        let (mut own, mut all) = (Grads::new(part.params()), Grads::new(whole.params()));
        let training = Training { dropout_key: None, balance: 0.0, scale: 1.0 };
        part.train(&Input::tokens(&IDS, 1), &Targets(&IDS), &mut part.init_memory(1), &training, &mut own);
        all.clear();
        share.add(&mut own, &mut all);
        let all = all.finish().to_vec();
        // Along a direction that touches every weight of the whole, those of no part of it too.
        let direction = |at: usize, i: usize| ((at * 31 + i * 17) % 7) as f32 - 3.0;
        let mut at = |step: f32| {
            for (at, param) in whole.params_mut().enumerate() {
                param.data.iter_mut().enumerate().for_each(|(i, x)| *x += step * direction(at, i));
            }
            share.read(&whole, &mut part);
            loss(&part)
        };
        let step = 2e-4;
        let (up, down) = (at(step), at(-2.0 * step));
        let measured = (up - down) / f64::from(2.0 * step);
        let along = |(at, grad): (usize, &Vec<f32>)| {
            grad.iter().enumerate().map(|(i, g)| f64::from(g * direction(at, i))).sum::<f64>()
        };
        let computed: f64 = all.iter().enumerate().map(along).sum();
        assert!((measured - computed).abs() < 0.02 * computed.abs() + 0.05, "{backbone}: {measured} {computed}");
    }
}
