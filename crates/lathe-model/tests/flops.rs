//! FLOPs as counted are the multiplications that run, before masking: for every block in every backbone. A binary of its
//! own, since the count is of the whole process.

use lathe_core::{Block, Setting, Spec};
use lathe_model::blocks::BLOCKS;
use lathe_model::{Input, Network, REGISTRY, count};
use lathe_ops::flops;

/// Where an embedding has another width, the matrix between it and the model counts.
#[test]
fn flops_of_a_narrow_embedding_are_those_that_run() {
    for backbone in ["albert", "mobilebert"] {
        let sizes = "d_model=8\nd_embed=4\nheads=2\ninner=16\ntgt_len=6\nvocab=11\nmax_len=12";
        let spec = Spec::from_toml(&format!("backbone='{backbone}'\nlayers='sf'\n{sizes}"), &REGISTRY).unwrap();
        let model = spec.model(&REGISTRY).unwrap();
        let expected = count(&model, &Setting { batch: 1, tgt_len: 6, mem_len: 0 }).total_flops();
        let network = Network::new(model, 0).unwrap();
        let counted = flops::count(|| {
            network.logits(&Input::tokens(&[1, 2, 3, 4, 5, 6], 1), &mut network.init_memory(1));
        });
        assert_eq!(counted, expected, "{backbone}");
    }
}

#[test]
fn flops_are_those_that_run() {
    for &backbone in REGISTRY.backbones {
        let memory = !backbone.ignored_keys().contains(&"mem_len");
        let lengths = if memory { "mem_len=5" } else { "max_len=12" };
        let model = |layers: &str| {
            let sizes = "d_model=8\nheads=2\ninner=16\ntgt_len=6\nvocab=11";
            let toml = format!("backbone='{}'\nlayers='{layers}'\n{sizes}\n{lengths}", backbone.key());
            Spec::from_toml(&toml, &REGISTRY).unwrap().model(&REGISTRY).unwrap()
        };
        let frame = model("s").frame;
        for kind in BLOCKS {
            let mut variants = kind.variants(&frame);
            variants.push(Block::new(*kind));
            variants.retain(|variant| kind.check(variant, &frame).is_ok());
            for variant in variants {
                let model = model(&format!("{variant:?} {variant:?}"));
                let (batch, len) = (1, 6); // projected distances are shared by a batch, and counted for each sequence
                let setting = Setting { batch, tgt_len: len, mem_len: model.frame.mem_len.into() };
                let expected = count(&model, &setting).total_flops();
                let network = Network::new(model, 0).unwrap();
                let ids: Vec<u32> = (0..(batch * len) as u32).map(|i| i % 11).collect();
                let mut state = network.init_memory(batch as usize);
                let counted = flops::count(|| {
                    network.logits(&Input::tokens(&ids, batch as usize), &mut state);
                });
                assert_eq!(counted, expected, "{} {variant:?}", backbone.key());
            }
        }
    }
}

/// A padded batch costs what its texts cost by themselves, in every encoder with every block.
#[test]
fn padding_is_not_computed() {
    let (ids, len) = (vec![3; 18], 6);
    let lengths = [6, 2, 0]; // a text may be empty
    let mask: Vec<bool> = lengths.iter().flat_map(|&real| (0..len).map(move |t| t < real)).collect();
    for &backbone in REGISTRY.backbones.iter().filter(|backbone| !backbone.causal()) {
        let model = |layers: &str| {
            let sizes = "d_model=8\nheads=2\ninner=16\ntgt_len=6\nvocab=11\nmax_len=12";
            let toml = format!("backbone='{}'\nlayers='{layers}'\n{sizes}", backbone.key());
            Spec::from_toml(&toml, &REGISTRY).unwrap().model(&REGISTRY).unwrap()
        };
        let frame = model("s").frame;
        for kind in BLOCKS.iter().filter(|kind| kind.check(&Block::new(**kind), &frame).is_ok()) {
            let network = Network::new(model(&format!("s f {:?}", Block::new(*kind))), 0).unwrap();
            let counted =
                |input: Input<'_>| flops::count(|| drop(network.hidden(&input, &mut network.init_memory(input.batch))));
            let found = counted(Input { mask: Some(&mask), ..Input::tokens(&ids, lengths.len()) });
            let alone = lengths.iter().filter(|&&real| real > 0);
            let expected: u128 = alone.map(|&real| counted(Input::tokens(&ids[..real], 1))).sum();
            assert_eq!(found, expected, "{} {}", backbone.key(), kind.key());
        }
    }
}
