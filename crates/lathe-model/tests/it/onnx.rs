//! Networks as graphs of ONNX's operators, run by lathe-onnx: every block in every backbone and storage computes what the
//! network computes, with padding, with a cache and with a memory.

use crate::contract::{BATCH, LEN, VOCAB, cases, close, model_of, name, network, of_tokens, tokens};
use lathe_core::Model;
use lathe_model::{Input, Network, OnnxOptions, REGISTRY, onnx_graph};
use lathe_onnx::{Array, Kind, Rounding};
use lathe_ops::integers::{Activations, FORMATS, Format};
use lathe_ops::storage::STORAGES;
use std::collections::HashMap;

const PLAIN: OnnxOptions = OnnxOptions { cache: false };
const CACHE: OnnxOptions = OnnxOptions { cache: true };

type Outputs = HashMap<String, Array>;

fn graph(network: &Network, options: &OnnxOptions) -> lathe_onnx::Model {
    lathe_onnx::Model { graph: onnx_graph(network, options).unwrap_or_else(|error| panic!("{error}")) }
}

/// Runs a graph; memories that are not given are zeros.
fn run(model: &lathe_onnx::Model, given: &[(&str, Array)], rounding: Rounding) -> Outputs {
    let mut inputs: Vec<(&str, Array)> = Vec::new();
    for port in &model.graph.inputs {
        let known = given.iter().find(|(name, _)| *name == port.name).map(|(_, array)| array.clone());
        let zeros = || {
            let size = |dim: &lathe_onnx::Dim| match dim {
                lathe_onnx::Dim::Fixed(size) => *size,
                lathe_onnx::Dim::Named(name) => {
                    if name == "batch" {
                        BATCH
                    } else {
                        0
                    }
                }
            };
            let shape: Vec<usize> = port.shape.iter().map(size).collect();
            Array::of_floats(&shape, vec![0.0; shape.iter().product()])
        };
        inputs.push((&port.name, known.unwrap_or_else(zeros)));
    }
    let outputs = model.run(&inputs, rounding).unwrap_or_else(|error| panic!("{error}"));
    model.graph.outputs.iter().map(|port| port.name.clone()).zip(outputs).collect()
}

fn ints(values: impl IntoIterator<Item = u32>) -> Array {
    let values: Vec<i64> = values.into_iter().map(i64::from).collect();
    Array::of_ints(&[BATCH, values.len() / BATCH], values)
}

/// Tokens that all count, of one text.
fn all_of(ids: &[u32]) -> [(&'static str, Array); 3] {
    let same = |value: u32| ints(ids.iter().map(|_| value));
    [("input_ids", ints(ids.iter().copied())), ("attention_mask", same(1)), ("token_type_ids", same(0))]
}

fn logits(network: &Network, ids: &[u32]) -> Vec<f32> {
    network.logits(&Input::tokens(ids, BATCH), &mut network.init_memory(BATCH)).to_vec()
}

fn floats<'a>(outputs: &'a Outputs, name: &str) -> &'a [f32] {
    outputs[name].floats().unwrap_or_else(|| panic!("{name} are floats"))
}

fn exact(mut network: Network) -> Network {
    network.params_mut().for_each(|param| param.set_activations(Activations::Float));
    network
}

#[test]
fn every_block_says_itself_in_every_backbone_and_storage() {
    let (ids, _) = tokens(1);
    for model in cases() {
        for &storage in STORAGES {
            let mut network = network(&model, 1);
            network.set_storage(storage);
            let found = run(&graph(&network, &PLAIN), &all_of(&ids), Rounding::Nearest);
            let what = format!("{} {}", name(&model), storage.key());
            close(floats(&found, "logits"), &logits(&network, &ids), 1e-4, &what);
        }
    }
}

/// What stands around the blocks: tables of several widths, projections, untied outputs, gates, norms of heads, biases.
fn frames() -> Vec<Model> {
    let mut models = Vec::new();
    for &backbone in REGISTRY.backbones {
        for extra in [
            "tie_embeddings=false",
            "d_embed=4",
            "cutoffs=[3,7]\ndiv_val=2",
            "cutoffs=[3,7]",
            "cutoffs=[4]\ndiv_val=2\ntie_embeddings=false\ntie_projs=false",
            "norm='post'",
            "norm='pre'",
            "norm='pre'\nfinal_norm=true",
            "kv_heads=1",
            "qkv_bias=true\nout_bias=true\nhead_norm=true",
            "rope_scaling='linear'\nrope_factor=3",
            "rope_scaling='llama3'\nrope_factor=4\nrope_original_max_len=8\nrope_theta=20",
            "activation='geglu'",
            "activation='relu'",
            "activation='silu'",
            "clamp_len=2",
            "same_length=true",
            "mem_len=0",
        ] {
            let toml = format!("backbone='{}'\nlayers='s f'\nvocab={VOCAB}\nd_model=8\n{extra}", backbone.key());
            let known = lathe_core::Spec::from_toml(&toml, &REGISTRY).and_then(|spec| spec.model(&REGISTRY));
            let Ok(known) = known else { continue };
            let memory = extra.contains("mem_len");
            if memory && backbone.ignored_keys().contains(&"mem_len") {
                continue;
            }
            let layers = "s4d4 f - low_rank{rank=3} moe{experts=3,top_k=2,renormalise=true} s2 f24";
            models.push(if memory { known } else { model_of(backbone, layers, extra) });
        }
    }
    models
}

#[test]
fn what_stands_around_the_blocks_computes_the_same() {
    let (ids, _) = tokens(2);
    let models = frames();
    assert!(models.len() > 30, "{}", models.len());
    for model in models {
        let network = network(&model, 2);
        let found = run(&graph(&network, &PLAIN), &all_of(&ids), Rounding::Nearest);
        close(floats(&found, "logits"), &logits(&network, &ids), 1e-4, &format!("{} {:?}", name(&model), model.frame));
    }
}

#[test]
fn integers_keep_their_codes() {
    let (ids, _) = tokens(3);
    let formats: Vec<Format> = FORMATS
        .iter()
        .copied()
        .chain(
            [(8, None, true), (6, None, false), (4, None, false), (8, Some(16), true), (4, Some(16), true)]
                .map(|(bits, group, offset)| Format::new(bits, group, offset).unwrap()),
        )
        .collect();
    for &backbone in REGISTRY.backbones {
        let wide = format!("backbone='{}'\nvocab={VOCAB}\nd_model=128\nheads=2\ninner=128\ntgt_len=6", backbone.key());
        // 8, 24 and 48 inputs are no multiples of most groups.
        for model in [
            model_of(backbone, "s f24 moe{experts=3,inner=48}", ""),
            model_of(backbone, "low_rank{rank=8,inner=32} s2d16", "tie_embeddings=false"),
            crate::model(&format!("{wide}\nlayers='s f'")),
        ] {
            for &format in &formats {
                let mut network = network(&model, 3);
                network.set_format(format);
                let what = format!("{} {format}", name(&model));
                let rounded = graph(&network, &PLAIN);
                let expected_rounded = logits(&network, &ids);
                let kinds = |kind: Kind| rounded.graph.weights.iter().filter(|(_, of)| of.kind == kind).count();
                let whole = model.frame.d_model == 128 || !format.offset();
                assert!(!whole || kinds(Kind::I8) + kinds(Kind::U8) > 1, "{what}: integers are written");
                let network = exact(network);
                let expected = logits(&network, &ids);
                let found = run(&rounded, &all_of(&ids), Rounding::None);
                close(floats(&found, "logits"), &expected, 1e-4, &what);
                // Rounded activations are not far from those of the network; in small ones a gate chooses others.
                let found = run(&rounded, &all_of(&ids), Rounding::Nearest);
                if model.frame.d_model == 128 {
                    close(floats(&found, "logits"), &expected_rounded, 0.2, &format!("{what}, rounded"));
                }
                // Activations that stay as they are are not rounded.
                let found = run(&graph(&network, &PLAIN), &all_of(&ids), Rounding::Nearest);
                close(floats(&found, "logits"), &expected, 1e-4, &format!("{what}, activations f32"));
            }
        }
    }
}

#[test]
fn a_cache_changes_nothing() {
    let (ids, _) = tokens(4);
    for model in cases().into_iter().chain(frames()) {
        if !model.frame.backbone.causal() || model.frame.has_memory() {
            continue;
        }
        let mut network = network(&model, 4);
        if model.blocks.len() % 2 == 0 {
            network.set_format(Format::new(8, None, false).unwrap());
        }
        let network = exact(network);
        let file = graph(&network, &CACHE);
        // The first sequence has two tokens of padding before it, the second none, but as many of another text.
        let pads = [2, 0];
        let (whole, width) = (logits(&network, &ids), LEN + 2);
        let padded = |b: usize, t: usize| t.checked_sub(pads[b]).filter(|t| *t < LEN);
        let (mut past, vocab) = (Vec::<(String, Array)>::new(), VOCAB as usize);
        for part in [0..3, 3..4, 4..width] {
            let of_part = |each: &dyn Fn(usize, usize) -> u32| {
                ints((0..BATCH).flat_map(|b| part.clone().map(move |t| (b, t))).map(|(b, t)| each(b, t)))
            };
            let token = |b: usize, t: usize| padded(b, t).map_or(0, |t| ids[b * LEN + t]);
            let place = |b: usize, t: usize| t.saturating_sub(pads[b]) as u32;
            let mask = (0..BATCH).flat_map(|b| (0..part.end).map(move |t| u32::from(t >= pads[b])));
            let mut given =
                vec![("input_ids", of_part(&token)), ("position_ids", of_part(&place)), ("attention_mask", ints(mask))];
            given.extend(past.iter().map(|(name, array)| (&**name, array.clone())));
            let found = run(&file, &given, Rounding::Nearest);
            for (b, t) in (0..BATCH).flat_map(|b| part.clone().map(move |t| (b, t))) {
                let Some(at) = padded(b, t) else { continue };
                let row = |values: &'_ [f32], at: usize| values[at * vocab..][..vocab].to_vec();
                let found = row(floats(&found, "logits"), b * part.len() + t - part.start);
                close(&found, &row(&whole, b * LEN + at), 2e-4, &format!("{} at {b} {t}", name(&model)));
            }
            let present = found
                .into_iter()
                .filter_map(|(name, array)| Some((format!("past_key_values{}", name.strip_prefix("present")?), array)));
            past = present.collect();
        }
    }
}

#[test]
fn a_memory_is_carried() {
    let (ids, _) = tokens(5);
    for model in cases().into_iter().filter(|model| model.frame.has_memory()) {
        let network = network(&model, 5);
        let file = graph(&network, &PLAIN);
        let mut state = network.init_memory(BATCH);
        let mut memories: Vec<(String, Array)> = Vec::new();
        for segment in 0..2 {
            let part: Vec<u32> = (0..BATCH).flat_map(|b| ids[b * LEN + 3 * segment..][..3].to_vec()).collect();
            let expected = network.logits(&Input::tokens(&part, BATCH), &mut state);
            let mut given = all_of(&part).to_vec();
            given.extend(memories.iter().map(|(name, array)| (&**name, array.clone())));
            let found = run(&file, &given, Rounding::Nearest);
            close(floats(&found, "logits"), &expected, 1e-4, &format!("{} segment {segment}", name(&model)));
            let next = found
                .into_iter()
                .filter_map(|(name, array)| Some((name.strip_prefix("new_").map(String::from)?, array)));
            memories = next.collect();
        }
        for ((_, expected), i) in network.memories(&state).zip(0..) {
            let found = memories.iter().find(|(name, _)| *name == format!("mems.{i}")).unwrap();
            close(found.1.floats().unwrap(), expected, 1e-4, &format!("{} memory {i}", name(&model)));
        }
    }
}

#[test]
fn encoders_mind_padding_and_segments() {
    let (ids, _) = tokens(6);
    let mask: Vec<bool> = (0..BATCH * LEN).map(|i| i % LEN < [LEN, LEN - 2][i / LEN]).collect();
    let segments: Vec<u32> = (0..BATCH * LEN).map(|i| (i % LEN / 3) as u32).collect();
    for &backbone in REGISTRY.backbones.iter().filter(|backbone| !backbone.causal()) {
        for extra in [
            "pooler=true",
            "head='pretraining'",
            "head='none'\npooler=true",
            "head='none'\npooler=false",
            "head='classify'\nlabels=['a','b','c']",
            "head='span'",
        ] {
            let toml = format!("backbone='{}'\nlayers='s'\nvocab=9\nd_model=8\n{extra}", backbone.key());
            if lathe_core::Spec::from_toml(&toml, &REGISTRY).and_then(|spec| spec.model(&REGISTRY)).is_err() {
                continue; // a family without such an output layer, or without what it stands on
            }
            let network = network(&model_of(backbone, "s f s2d6 f", extra), 6);
            let input = Input { mask: Some(&mask), segments: Some(&segments), ..Input::tokens(&ids, BATCH) };
            let hidden = network.hidden(&input, &mut network.init_memory(BATCH));
            let given = [
                ("input_ids", ints(ids.iter().copied())),
                ("attention_mask", ints(mask.iter().map(|&real| real.into()))),
                ("token_type_ids", ints(segments.iter().copied())),
            ];
            let found = run(&graph(&network, &PLAIN), &given, Rounding::Nearest);
            // At padding the graph has what the model makes of it.
            let real = |x: &[f32]| of_tokens(x, Some(&mask));
            close(&real(floats(&found, "last_hidden_state")), &real(&hidden), 1e-4, extra);
            let pooled = network.pooled(&hidden, BATCH);
            assert_eq!(pooled.is_some(), found.contains_key("pooler_output"), "{extra}");
            if let Some(pooled) = pooled {
                close(floats(&found, "pooler_output"), &pooled, 1e-4, extra);
            }
            let numbers = network.task_outputs(&hidden, BATCH);
            assert_eq!(network.has_head() || numbers.is_some(), found.contains_key("logits"), "{extra}");
            if let Some(numbers) = numbers {
                let of_each = numbers.len() > BATCH * network.model.frame.words("labels").len().max(2);
                let real = |x: &[f32]| if of_each { real(x) } else { x.to_vec() };
                let name = if network.has_head() { "pair_logits" } else { "logits" };
                close(&real(floats(&found, name)), &real(&numbers), 1e-4, extra);
            }
            if network.has_head() {
                close(&real(floats(&found, "logits")), &real(&network.outputs(&hidden)), 1e-4, extra);
            }
        }
    }
}

#[test]
fn a_cache_of_what_has_none_is_refused() {
    for &backbone in REGISTRY.backbones {
        let model = model_of(backbone, "s f", "");
        let can = backbone.causal() && !model.frame.has_memory();
        match onnx_graph(&network(&model, 7), &CACHE) {
            Ok(_) => assert!(can),
            Err(error) => assert!(!can && error.to_string().contains("no cache of keys and values"), "{error}"),
        }
    }
}
