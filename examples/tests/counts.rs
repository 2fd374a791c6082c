//! What is counted of a block and a backbone from outside is what there is, and what runs. A binary of its own, since
//! the count of operations is of the whole process.

use lathe_core::{Setting, Spec};
use lathe_examples::REGISTRY;
use lathe_model::{Input, Network, count};
use lathe_ops::flops;

#[test]
fn counted_as_it_is() {
    let conv = ["nope", "gpt2", "transformer_xl", "llama"].map(|backbone| (backbone, "conv{width=3} f s conv", ""));
    let others = [
        ("nope", "s f pool s f unpool s", ""),
        ("llama", "pool{by=3} s rezero unpool{by=3} f", ""),
        ("bert", "s project{width=4} pool s f unpool project{width=8} f", ""),
        ("transformer_xl", "s f project{width=6} s rezero{inner=5} project{width=8} f", ""),
        ("nope", "s f s f s f s f s f", "nope_layers=2"),
        ("llama", "s f keep cross f cross{heads=1} f", ""),
        ("gpt2", "s pool keep f cross unpool", ""),
        ("bart", "s f s f decoder s cross f s cross{heads=1} f", "src_len=5"),
    ];
    for (backbone, stack, more) in conv.into_iter().chain(others) {
        let lengths = if backbone == "transformer_xl" { "mem_len=5" } else { "max_len=12" };
        let sizes = "d_model=8\nheads=2\nvocab=11\ntgt_len=6";
        let toml = format!("backbone='{backbone}'\nlayers='{stack}'\n{sizes}\n{lengths}\n{more}");
        let model = Spec::from_toml(&toml, &REGISTRY).and_then(|spec| spec.model(&REGISTRY)).expect("a good model");
        let counts = count(&model, &Setting::of(&model));
        let network = Network::new(model, 0).expect("a network");
        assert_eq!(network.params().count() as u64, counts.total_params(), "{toml}");
        let mut state = network.init_memory(1);
        let mut input = Input::tokens(&[3, 1, 4, 1, 5, 9], 1);
        if network.model.frame.source_len().is_some() {
            input = input.after(&[2, 6, 5, 3, 5]);
        }
        let counted = flops::count(|| drop(network.logits(&input, &mut state)));
        assert_eq!(counted, counts.total_flops(), "{toml}");
    }
}
