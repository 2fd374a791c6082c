//! Integration tests of the architecture language with the real blocks.

mod bad_input;
mod composed;
mod contract;
mod derived;
mod folder;
mod gguf;
mod integers;
mod names;
mod notation;
mod onnx;
mod papers;
mod parity;
mod precision;
mod prune;
mod references;
mod registry;
mod shared;
mod spaces;
mod supernet;
mod trained;

use lathe_core::{Model, Spec};
use lathe_model::REGISTRY;

/// The model of a model file.
fn model(toml: &str) -> Model {
    Spec::from_toml(toml, &REGISTRY)
        .and_then(|spec| spec.model(&REGISTRY))
        .unwrap_or_else(|error| panic!("{error}\n{toml}"))
}

/// How many random cases a property is tried on: a share in the suite, more with LATHE_CASES.
fn cases(default: usize) -> usize {
    std::env::var("LATHE_CASES").map_or(default, |n| n.parse().expect("LATHE_CASES is a number"))
}
