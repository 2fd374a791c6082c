//! Everything in lathe that reads what comes from outside, each as a function of bytes. Whatever the bytes are, it returns:
//! what is wrong is an error that the caller sees, never a panic.
//!
//! `fuzz/` has a target of cargo-fuzz for each, and this crate's test runs each on the stored corpus and on damaged copies
//! of it. To add one, write its function, its line in [`TARGETS`], its file in `fuzz/fuzz_targets` and a corpus.

mod damage;
mod files;
mod http;
mod texts;

pub use damage::Damage;

/// Something that reads bytes from outside.
pub struct Target {
    /// Name of the target and of the folder of its corpus.
    pub name: &'static str,
    /// Reads bytes; panics only where lathe has a mistake.
    pub run: fn(&[u8]),
}

/// Every target.
pub const TARGETS: &[Target] = &[
    Target { name: "notation", run: texts::notation },
    Target { name: "model_file", run: texts::model_file },
    Target { name: "space_file", run: texts::space_file },
    Target { name: "run_file", run: texts::run_file },
    Target { name: "config_json", run: files::config_json },
    Target { name: "tokenizer_json", run: files::tokenizer_json },
    Target { name: "safetensors", run: files::safetensors },
    Target { name: "gguf", run: files::gguf },
    Target { name: "gguf_model", run: files::gguf_model },
    Target { name: "choices", run: files::choices },
    Target { name: "labelled_examples", run: files::examples },
    Target { name: "http", run: http::request },
];

/// The target of a name.
pub fn run(name: &str, data: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("a name of TARGETS");
    (target.run)(data);
}
