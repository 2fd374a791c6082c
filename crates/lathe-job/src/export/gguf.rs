//! A GGUF file for llama.cpp, with the tokenizer inside.

use super::{Job, Outcome, Parity, counted, parity};
use crate::{Error, Event, Result, Watch};
use lathe_gguf::{Gguf, TYPES, TensorType, Value};
use lathe_model::Network;
use lathe_model::folder::{self, GgufOptions};
use lathe_ops::integers::Activations;
use lathe_train::data::Tokenizer;

/// A text whose tokens must be the same.
const TEXT: &str =
    "The 12,345 birds' nests weren't at x=3.14; \"why?\" they'd asked:\n\n  naïve Füße — 日本語 🦜\tfn main() {}\n";

pub(super) fn write(job: &Job<'_>, mut network: Network, watch: Watch<'_>) -> Result<Outcome> {
    let kind = job.request.kind.as_deref().map(kind_of).transpose()?;
    let frame = &network.model.frame;
    let name = job.from.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mut keys = vec![("general.name".to_string(), Value::Text(name))];
    match job.tokenizer {
        Some(tokenizer) => keys.extend(tokenizer.gguf_keys(frame.vocab).map_err(lathe_train::Error::from)?),
        None => keys.push(("tokenizer.ggml.model".into(), Value::Text("no_vocab".into()))),
    }
    let tokens = parity::tokens(&network, job.first_token());
    watch(Event::Message("computing what the model computes".into()));
    let given = parity::outputs(&network, &tokens);
    watch(Event::Message(format!("writing {}", job.request.out.display())));
    folder::save_gguf(&mut network, &job.aside, &GgufOptions { kind, keys })?;
    let expected = parity::outputs(&network, &tokens);
    let has_head = network.has_head();
    drop(network);

    watch(Event::Message("reading it back".into()));
    let mut again = folder::load(&job.aside, job.context.registry)?;
    again.params_mut().for_each(|param| param.set_activations(Activations::Float));
    let found = parity::outputs(&again, &tokens);
    parity::check(&expected, &found)?;
    if let Some(tokenizer) = job.tokenizer {
        same_tokens(tokenizer, &Tokenizer::load(&job.aside)?)?;
    }
    let file = Gguf::open(&job.aside).map_err(folder::FolderError::from)?;
    let architecture = file.get("general.architecture").and_then(Value::text).unwrap_or_default().to_string();
    let tensors = counted(file.tensors().map(|(_, info)| info.kind.name.to_string()));
    job.outcome(Parity::of(&given, &found, tokens.len(), has_head), architecture, tensors)
}

/// The type of a name, in small letters too.
fn kind_of(name: &str) -> Result<&'static TensorType> {
    let kind = TensorType::named(&name.to_ascii_uppercase()).filter(|kind| kind.is_written());
    kind.ok_or_else(|| {
        let known: Vec<_> =
            TYPES.iter().filter(|kind| kind.is_written()).map(|kind| kind.name.to_lowercase()).collect();
        Error::setting("type", format!("`{name}`"), known.join(", "))
    })
}

fn same_tokens(given: &Tokenizer, again: &Tokenizer) -> Result<()> {
    let (given, again) = (given.encode(TEXT)?, again.encode(TEXT)?);
    let differs = given.iter().zip(&again).position(|(a, b)| a != b);
    match differs.or((given.len() != again.len()).then_some(given.len().min(again.len()))) {
        None => Ok(()),
        Some(at) => {
            let found = format!("other tokens than before from token {at} of a text on");
            Err(Error::data("tokenizer, read back", found, "a tokenizer that llama.cpp has"))
        }
    }
}
