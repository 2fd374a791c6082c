//! Pages for people: HTML files that need nothing but themselves.

pub mod compare;
pub mod from_scratch;
pub mod optimize;
pub mod pareto;

use crate::Result;
use crate::input::write_text as write;
use lathe_core::Registry;
use lathe_model::folder;
use lathe_train::data::Tokenizer;
use lathe_train::generate::{Generator, Sampling};
use serde::Serialize;
use std::path::Path;

const STYLE: &str = include_str!("style.css");
const DRAW: &str = include_str!("draw.js");

/// Tokens of the samples.
const SAMPLE: usize = 400;

/// Fills a template: the style, the drawing code, and `data` as JSON that cannot end its element.
fn page(template: &str, title: &str, data: &impl Serialize) -> String {
    let data = serde_json::to_string(data).expect("numbers and names").replace('<', "\\u003c");
    let title = title.replace('&', "&amp;").replace('<', "&lt;");
    template
        .replace("{{style}}", STYLE)
        .replace("{{draw}}", DRAW)
        .replace("{{space}}", &title)
        .replace("{{data}}", &data)
}

/// What a trained model writes.
pub fn sample(folder: &Path, registry: &Registry) -> Result<String> {
    let mut network = folder::load(folder, registry)?;
    network.freeze();
    let tokenizer = Tokenizer::load(folder)?;
    let prompt = tokenizer.encode("\n")?;
    let sampling = Sampling { temperature: 0.8, top_k: 0, top_p: 0.95, repetition_penalty: 1.0, seed: 0 };
    let mut generator = Generator::new(&network, &prompt, sampling);
    let mut decoder = tokenizer.decoder();
    let mut text = String::new();
    for _ in 0..SAMPLE {
        text.push_str(&decoder.push(generator.next_token()).unwrap_or_default());
    }
    text.push_str(&decoder.finish().unwrap_or_default());
    Ok(text)
}
