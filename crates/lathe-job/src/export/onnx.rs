//! A folder for ONNX Runtime: the graph with its weights, `config.json` and the tokenizer.
//!
//! The file that was written is read and run by plain loops: once without rounding activations, which shows whether the
//! weights and the graph are those of the model, and once as ONNX says.

use super::{Job, Outcome, Parity, counted, exact_activations, parity, set_type};
use crate::{Error, Event, Result, Watch};
use lathe_model::folder::{self, FolderError};
use lathe_model::{Input, Network, OnnxOptions, onnx_graph};
use lathe_onnx::{Array, Dim, EXTERNAL_ABOVE, Model, Port, Rounding};
use std::collections::HashMap;

/// What the file is called in its folder, as others have it.
const FILE: &str = "model.onnx";

pub(super) fn write(job: &Job<'_>, mut network: Network, watch: Watch<'_>) -> Result<Outcome> {
    let cache = job.request.cache;
    let tokens = parity::tokens(&network, job.first_token());
    watch(Event::Message("computing what the model computes".into()));
    let given = outputs(&network, &tokens);
    set_type(&mut network, job.request.kind.as_deref())?;
    let graph = onnx_graph(&network, &OnnxOptions { cache })?;
    let rounds = network.params().iter().any(|param| !param.integers().is_empty());

    watch(Event::Message(format!("writing {}", job.request.out.display())));
    std::fs::create_dir(&job.aside).map_err(Error::io(&job.aside))?;
    let path = job.aside.join(FILE);
    Model { graph }.write(&path, EXTERNAL_ABOVE).map_err(FolderError::from)?;
    folder::save_config(&network, &job.aside)?;
    if let Some(tokenizer) = job.tokenizer {
        tokenizer.save(&job.aside)?;
    }
    exact_activations(&mut network);
    let expected = outputs(&network, &tokens);
    let (has_head, causal) = (network.has_head(), network.model.frame.backbone.causal());
    drop(network);

    watch(Event::Message("reading it back".into()));
    let model = Model::read(&path).map_err(FolderError::from)?;
    let exact = run(&model, &tokens, Rounding::None)?;
    for (name, expected) in &expected {
        parity::check(expected, exact.get(*name).map_or(&[], |found| found))?;
    }
    let found = if rounds { run(&model, &tokens, Rounding::Nearest)? } else { exact };
    let (main, given) = &given[0];
    let parity = Parity::of(given, &found[*main], tokens.len(), has_head);
    let architecture = match (causal, cache) {
        (true, true) => "decoder with cache",
        (true, false) => "decoder",
        (false, _) => "encoder",
    };
    let tensors = counted(model.graph.weights.iter().map(|(_, tensor)| tensor.kind.name().to_string()));
    job.outcome(parity, architecture.into(), tensors)
}

/// What a network computes by the names that the graph has for it, what it is for first.
fn outputs(network: &Network, tokens: &[u32]) -> Vec<(&'static str, Vec<f32>)> {
    let hidden = network.hidden(&Input::tokens(tokens, 1), &mut network.init_memory(1));
    let mut outputs = Vec::new();
    if network.has_head() {
        outputs.push(("logits", network.outputs(&hidden).to_vec()));
    }
    let name = if network.has_head() { "pair_logits" } else { "logits" };
    outputs.extend(network.task_outputs(&hidden, 1).map(|numbers| (name, numbers.to_vec())));
    let pooled = network.pooled(&hidden, 1);
    if !network.model.frame.backbone.causal() || !network.has_head() {
        outputs.push(("last_hidden_state", hidden.to_vec()));
    }
    outputs.extend(pooled.map(|pooled| ("pooler_output", pooled.to_vec())));
    outputs
}

/// What a file computes for a text, by name; with a cache in two parts, the second after the first.
fn run(model: &Model, tokens: &[u32], rounding: Rounding) -> Result<HashMap<String, Vec<f32>>> {
    let cached = model.graph.inputs.iter().any(|port| port.name.starts_with(PAST));
    let parts = if cached { vec![&tokens[..tokens.len() / 2], &tokens[tokens.len() / 2..]] } else { vec![tokens] };
    let (mut found, mut past, mut before) = (HashMap::<String, Vec<f32>>::new(), HashMap::new(), 0);
    for part in parts.into_iter().filter(|part| !part.is_empty()) {
        let inputs: Vec<(&str, Array)> =
            model.graph.inputs.iter().map(|port| (&*port.name, input(port, part, before, &past))).collect();
        let outputs = model.run(&inputs, rounding).map_err(FolderError::from)?;
        for (port, output) in model.graph.outputs.iter().zip(outputs) {
            match port.name.strip_prefix(PRESENT) {
                Some(place) => drop(past.insert(format!("{PAST}{place}"), output)),
                None => found.entry(port.name.clone()).or_default().extend(output.floats().unwrap_or_default()),
            }
        }
        before += part.len();
    }
    Ok(found)
}

const PAST: &str = "past_key_values";
const PRESENT: &str = "present";

/// An input for tokens after so many others.
fn input(port: &Port, tokens: &[u32], before: usize, past: &HashMap<String, Array>) -> Array {
    let (len, all) = (tokens.len(), before + tokens.len());
    match &*port.name {
        "input_ids" => Array::of_ints(&[1, len], tokens.iter().map(|&token| token.into()).collect()),
        "attention_mask" => Array::of_ints(&[1, all], vec![1; all]),
        "position_ids" => Array::of_ints(&[1, len], (before..all).map(|position| position as i64).collect()),
        "token_type_ids" => Array::of_ints(&[1, len], vec![0; len]),
        name => past.get(name).cloned().unwrap_or_else(|| {
            // Nothing came before: a cache is empty, a memory of zeros.
            let size = |dim: &Dim| match dim {
                Dim::Fixed(size) => *size,
                Dim::Named(name) => usize::from(name == "batch"),
            };
            let shape: Vec<usize> = port.shape.iter().map(size).collect();
            Array::of_floats(&shape, vec![0.0; shape.iter().product()])
        }),
    }
}
