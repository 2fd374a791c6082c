//! What is read as text: architectures, model files, spaces and run files. What is accepted says the same when it is
//! written and read again.

use lathe_core::{Sampling, Setting, Space, Spec, notation};
use lathe_model::REGISTRY;
use lathe_train::settings::{self, ModelEntry};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// An architecture.
pub fn notation(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(blocks) = notation::parse(text, &REGISTRY) {
        let again = notation::parse(&notation::print(&blocks), &REGISTRY);
        assert_eq!(again.as_ref(), Ok(&blocks), "what is printed is the same architecture");
    }
}

/// A model file.
pub fn model_file(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(spec) = Spec::from_toml(text, &REGISTRY) else { return };
    let again = Spec::from_toml(&spec.to_toml(), &REGISTRY).expect("what is written is a model file");
    assert_eq!(again.to_toml(), spec.to_toml(), "what is written is the same model");
    if let Ok(model) = spec.model(&REGISTRY) {
        lathe_model::count(&model, &Setting::of(&model));
    }
}

/// A space file.
pub fn space_file(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(space) = Space::from_toml(text, &REGISTRY) else { return };
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let genome = space.sample(Sampling::Choices, &mut rng);
    assert!(space.contains(&space.model(&genome)), "a sample is of its space");
}

/// A run file.
pub fn run_file(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok((settings, ModelEntry::Inline(model))) = settings::read(text, &REGISTRY) else { return };
    let again = settings::read(&settings.to_toml(&model), &REGISTRY);
    assert!(again.is_ok(), "what is written is a run file");
}
