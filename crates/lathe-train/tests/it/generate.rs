//! Generation: what a prompt leaves is what computing everything leaves.

use lathe_core::Spec;
use lathe_model::{Input, Network, REGISTRY};
use lathe_train::generate::{Generator, Sampling};

const GREEDY: Sampling = Sampling { temperature: 0.0, top_k: 0, top_p: 1.0, repetition_penalty: 1.0, seed: 0 };

/// The most likely tokens after a prompt, with the logits of every token of every pass.
fn brute_force(network: &Network, prompt: &[u32], segment: usize, count: usize) -> Vec<u32> {
    let vocab = network.model.frame.vocab as usize;
    let mut state = network.init_cache(1, segment, &network.init_memory(1));
    let (mut new, mut out) = (prompt.to_vec(), Vec::new());
    for _ in 0..count {
        let mut logits = Vec::new();
        for part in new.chunks(segment) {
            logits = network.logits(&Input::tokens(part, 1), &mut state).to_vec();
        }
        let last = &logits[logits.len() - vocab..];
        let best = (0..vocab).fold(0, |best, id| if last[id] > last[best] { id } else { best }) as u32;
        out.push(best);
        new = vec![best];
    }
    out
}

#[test]
fn a_prompt_is_read_in_passes_and_only_its_last_token_counts() {
    for backbone in REGISTRY.backbones.iter().filter(|backbone| backbone.causal()) {
        let lengths = if backbone.ignored_keys().contains(&"max_len") { "mem_len=8" } else { "max_len=64" };
        let sizes = "layers='(sf)x2'\nd_model=16\nheads=2\ninner=32\ntgt_len=5\nvocab=40";
        let toml = format!("backbone='{}'\n{sizes}\n{lengths}", backbone.key());
        let model = Spec::from_toml(&toml, &REGISTRY).and_then(|spec| spec.model(&REGISTRY)).unwrap();
        let mut network = Network::new(model, 3).unwrap();
        // Larger weights, so that the most likely tokens are not all alike.
        network.params_mut().for_each(|param| param.data.iter_mut().for_each(|x| *x *= 4.0));
        let segment = network.model.frame.window() as usize;
        for len in [1, segment, segment + 2, 2 * segment + 1, 13].into_iter().filter(|&len| len < 50) {
            let prompt: Vec<u32> = (0..len as u32).map(|i| (i * 17 + 3) % 40).collect();
            let mut generator = Generator::new(&network, &prompt, GREEDY);
            let found: Vec<u32> = (0..9).map(|_| generator.next_token()).collect();
            assert_eq!(found, brute_force(&network, &prompt, segment, 9), "{}, {len} tokens", backbone.key());
        }
    }
}
