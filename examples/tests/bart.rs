//! The encoder-decoder from outside against `transformers`: a folder that it saved, logits and every gradient
//! (`oracles/bart.py`).

use lathe_examples::REGISTRY;
use lathe_model::{Grads, Input, Network, Source, Targets, Training, folder};
use safetensors::SafeTensors;
use std::path::Path;

fn close(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 2e-5 * expected.abs().max(1.0), "{what}: {found} and {expected}");
    }
}

/// What the oracle wrote, by name.
struct Outputs(Vec<u8>);

impl Outputs {
    fn floats(&self, name: &str) -> Vec<f32> {
        let tensors = SafeTensors::deserialize(&self.0).unwrap();
        let data = tensors.tensor(name).unwrap_or_else(|error| panic!("{name}: {error}"));
        data.data().chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
    }

    fn ints(&self, name: &str) -> Vec<u32> {
        let tensors = SafeTensors::deserialize(&self.0).unwrap();
        let data = tensors.tensor(name).unwrap();
        data.data().chunks_exact(8).map(|b| i64::from_le_bytes(b.try_into().unwrap()) as u32).collect()
    }
}

#[test]
fn as_transformers_computes_it() {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/bart");
    let outputs = Outputs(std::fs::read(fixture.join("outputs.safetensors")).unwrap());
    let network = folder::load(&fixture, &REGISTRY).unwrap();
    assert_eq!(network.model.layers(), "(sf)x2 decoder s cross f");
    let (ids, source, targets) = (outputs.ints("ids"), outputs.ints("source"), outputs.ints("targets"));
    let mask: Vec<bool> = outputs.ints("source_mask").iter().map(|&real| real == 1).collect();
    let source = Source { ids: &source, mask: Some(&mask) };
    let input = Input { source: Some(source), ..Input::tokens(&ids, 2) };
    let logits = |network: &Network| network.logits(&input, &mut network.init_memory(2)).to_vec();
    close(&logits(&network), &outputs.floats("logits"), "logits");

    let training = Training { dropout_key: None, balance: 0.0, scale: 0.1 };
    let mut grads = Grads::new(network.params());
    let outcome = network.train(&input, &Targets(&targets), &mut network.init_memory(2), &training, &mut grads);
    close(&[outcome.losses.iter().sum::<f32>() / 10.0], &outputs.floats("loss"), "loss");
    for (param, grad) in network.params().iter().zip(grads.finish()) {
        close(grad, &outputs.floats(&format!("grad.{}", param.name)), &param.name);
    }

    // One token at a time, the source read with the first.
    let whole = logits(&network);
    let mut state = network.init_cache(2, 1, &network.init_memory(2));
    for t in 0..5 {
        let step = [ids[t], ids[5 + t]];
        let input = Input { source: (t == 0).then_some(source), ..Input::tokens(&step, 2) };
        let found = network.logits(&input, &mut state);
        let expected = [0, 1].map(|b| whole[(b * 5 + t) * 23..][..23].to_vec()).concat();
        close(&found, &expected, &format!("token {t}"));
    }

    // What we save, transformers knows: the same keys with the same values.
    let saved = tempfile::tempdir().unwrap();
    folder::save(&network, saved.path()).unwrap();
    assert_eq!(logits(&folder::load(saved.path(), &REGISTRY).unwrap()), whole);
    let read = |folder: &Path| -> serde_json::Value {
        serde_json::from_str(&std::fs::read_to_string(folder.join("config.json")).unwrap()).unwrap()
    };
    let (ours, theirs) = (read(saved.path()), read(&fixture));
    for key in ["model_type", "d_model", "encoder_layers", "decoder_layers", "encoder_ffn_dim", "vocab_size"] {
        assert_eq!(ours[key], theirs[key], "{key}");
    }
}
