//! A folder for transformers: its own `config.json`, weights of a float type, and the tokenizer.

use super::{Job, Outcome, Parity, counted, parity, set_type};
use crate::{Event, Result, Watch};
use lathe_model::Network;
use lathe_model::folder;
use lathe_ops::storage::F32;

pub(super) fn write(job: &Job<'_>, mut network: Network, watch: Watch<'_>) -> Result<Outcome> {
    let tokens = parity::tokens(&network, job.first_token());
    watch(Event::Message("computing what the model computes".into()));
    let given = parity::outputs(&network, &tokens);
    set_type(&mut network, job.request.kind.as_deref())?;
    // Integers of ours are read by nobody else.
    for param in network.params_mut().filter(|param| !param.integers().is_empty()) {
        param.set_storage(&F32);
    }
    watch(Event::Message(format!("writing {}", job.request.out.display())));
    folder::save_for_transformers(&network, &job.aside)?;
    if let Some(tokenizer) = job.tokenizer {
        tokenizer.save(&job.aside)?;
    }
    let expected = parity::outputs(&network, &tokens);
    let has_head = network.has_head();
    let tensors = counted(network.params().iter().map(|param| param.storage().dtype().to_string()));
    drop(network);

    watch(Event::Message("reading it back".into()));
    let again = folder::load(&job.aside, job.context.registry)?;
    let found = parity::outputs(&again, &tokens);
    parity::check(&expected, &found)?;
    let config: serde_json::Value = crate::input::read_json(&job.aside.join("config.json"))?;
    let architecture = config["architectures"][0].as_str().unwrap_or_default().to_string();
    job.outcome(Parity::of(&given, &found, tokens.len(), has_head), architecture, tensors)
}
