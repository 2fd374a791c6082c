//! The encoder-decoder from outside against `transformers`: a folder that it saved, logits and every gradient
//! (`oracles/bart.py`).

use lathe_core::Spec;
use lathe_examples::REGISTRY;
use lathe_model::{Grads, Input, Network, Source, Targets, Training, folder};
use lathe_train::data::{Tokenizer, encode_source};
use lathe_train::evaluate::Options;
use lathe_train::tasks::{PrefixLm, Task};
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

/// Every token but those of the very first source is told once, each from the source before its window and from the
/// tokens of its window before it.
#[test]
fn a_text_is_told_from_what_was_before() {
    let toml =
        "backbone='bart'\nlayers='s decoder s cross f'\nd_model=8\nheads=2\nvocab=256\nmax_len=9\ntgt_len=6\nsrc_len=5";
    let model = Spec::from_toml(toml, &REGISTRY).and_then(|spec| spec.model(&REGISTRY)).unwrap();
    let network = Network::new(model, 3).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("text.txt");
    std::fs::write(&file, "the fish swim south, the birds fly north").unwrap(); // 40 bytes: 35 to tell
    let (name, to) = (file.to_str().unwrap(), dir.path().join("tokens"));
    let tokens = encode_source(name, &Tokenizer::Bytes, &to, &|_, _, _| {}).unwrap();
    let found =
        PrefixLm.evaluate(&network, &tokens.clone().into(), &Options::new(&Tokenizer::Bytes), &mut |_, _| ()).unwrap();
    assert_eq!(found.tokens, 35);
    let text: Vec<u32> = std::fs::read(&file).unwrap().into_iter().map(u32::from).collect();
    let window = Options::new(&Tokenizer::Bytes).window_of(&network.model.frame);
    let mut nats = 0.0;
    for first in (5..40).step_by(window) {
        let end = 40.min(first + window);
        let input = Input::tokens(&text[first - 1..end - 1], 1).after(&text[first - 5..first]);
        let losses = network.loss(&input, &Targets(&text[first..end]), &mut network.init_memory(1));
        nats += losses.into_iter().map(f64::from).sum::<f64>();
    }
    assert!((found.loss - nats / 35.0).abs() < 1e-5, "{} and {}", found.loss, nats / 35.0);
}
