//! What every block in every backbone has to fulfil, in every storage: a new entry of a registry is tried by all of it.

use lathe_core::{Backbone, Block, BlockKind, Model, Role, Setting, Spec};
use lathe_model::blocks::BLOCKS;
use lathe_model::derive::{self, Origin};
use lathe_model::{
    BlockBench, Grads, Input, Mixture, Network, Part, REGISTRY, State, SuperNet, Targets, Training, count, folder,
};
use lathe_ops::attention::KeptAs;
use lathe_ops::buffer::Buf;
use lathe_ops::integers::{Activations, FORMATS};
use lathe_ops::loss::IGNORE;
use lathe_ops::storage::STORAGES;

pub(crate) const VOCAB: u32 = 11;
pub(crate) const LEN: usize = 6;
pub(crate) const BATCH: usize = 2;

/// The backbone's model of a stack, with what else a test wants of it.
pub(crate) fn model_of(backbone: &dyn Backbone, layers: &str, extra: &str) -> Model {
    let lengths = if backbone.ignored_keys().contains(&"max_len") { "mem_len=5" } else { "max_len=12" };
    let heads = "d_model=8\nheads=2\ninner=16\ntgt_len=6";
    let toml = format!("backbone='{}'\nlayers='{layers}'\nvocab={VOCAB}\n{heads}\n{lengths}\n{extra}", backbone.key());
    let spec = Spec::from_toml(&toml, &REGISTRY).unwrap_or_else(|error| panic!("{error}\n{toml}"));
    spec.model(&REGISTRY).unwrap_or_else(|error| panic!("{error}\n{toml}"))
}

/// A stack of one block of each variant that its kind offers, between others, in each backbone that the kind takes.
pub(crate) fn cases() -> Vec<Model> {
    let mut models = Vec::new();
    for &backbone in REGISTRY.backbones {
        let frame = model_of(backbone, "s", "").frame;
        for kind in BLOCKS {
            let mut variants = kind.variants(&frame);
            variants.push(Block::new(*kind));
            variants.retain(|variant| kind.check(variant, &frame).is_ok());
            for variant in variants {
                models.push(model_of(backbone, &format!("s {variant:?} f {variant:?}"), ""));
            }
        }
    }
    models
}

pub(crate) fn name(model: &Model) -> String {
    format!("{} {}", model.frame.backbone.key(), model.layers())
}

/// Tokens that look random, and a target for each.
pub(crate) fn tokens(seed: u32) -> (Vec<u32>, Vec<u32>) {
    let token = |i: u32| (i.wrapping_mul(2_654_435_761) >> 7).wrapping_add(seed * 5) % VOCAB;
    ((0..(BATCH * LEN) as u32).map(token).collect(), (1..=(BATCH * LEN) as u32).map(token).collect())
}

/// Weights that are no constants: norms and biases, too, get values that a mistake would show.
pub(crate) fn network(model: &Model, seed: u64) -> Network {
    let mut network = Network::new(model.clone(), seed).unwrap();
    let mut state = seed as u32 + 1;
    for param in network.params_mut() {
        for x in &mut param.data {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *x = 4.0 * *x + 0.2 * ((state >> 8) as f32 / (1 << 24) as f32 - 0.5);
        }
    }
    network
}

fn logits(network: &Network, ids: &[u32], batch: usize) -> Buf {
    network.logits(&Input::tokens(ids, batch), &mut network.init_memory(batch))
}

pub(crate) fn close(a: &[f32], b: &[f32], tolerance: f32, what: &str) {
    assert_eq!(a.len(), b.len(), "{what}");
    let most = b.iter().fold(1e-3f32, |most, x| most.max(x.abs()));
    let worst = a.iter().zip(b).fold(0.0f32, |worst, (a, b)| worst.max((a - b).abs()));
    assert!(worst <= tolerance * most, "{what}: {worst} of {most}");
}

/// What stands at real tokens; padding is what a model makes of it elsewhere, and 0 here.
pub(crate) fn of_tokens(x: &[f32], mask: Option<&[bool]>) -> Vec<f32> {
    let Some(mask) = mask else { return x.to_vec() };
    let rows = x.chunks_exact(x.len() / mask.len()).zip(mask);
    rows.filter(|(_, real)| **real).flat_map(|(row, _)| row.to_vec()).collect()
}

#[test]
fn parameters_are_those_counted() {
    for model in cases() {
        let counted = count(&model, &Setting::of(&model)).total_params();
        let network = Network::new(model.clone(), 0).unwrap();
        assert_eq!(network.params().count() as u64, counted, "{}", name(&model));
    }
    // Keys that change what stands around the blocks, where the backbone has them.
    for &backbone in REGISTRY.backbones {
        for extra in [
            "tie_embeddings=false",
            "d_embed=4",
            "cutoffs=[3,7]\ndiv_val=2",
            "kv_heads=1",
            "qkv_bias=true",
            "out_bias=true\nhead_norm=true",
            "head='none'\npooler=true",
            "head='pretraining'",
            "head='none'\npooler=true\ntie_embeddings=false",
            "pooler=true\nsegments=3",
            "final_norm=true",
            "activation='geglu'",
            "activation='relu'",
            "norm_kind='layer'\nclassifier_activation=false\nhead='regress'",
            "d_embed=4\nhead='none'\ntie_embeddings=false",
            "d_embed=4\ntie_embeddings=false",
        ] {
            let lengths = if backbone.ignored_keys().contains(&"max_len") { "mem_len=5" } else { "max_len=12" };
            let toml = format!("backbone='{}'\nlayers='s f'\nvocab=11\nd_model=8\n{lengths}\n{extra}", backbone.key());
            let Ok(model) = Spec::from_toml(&toml, &REGISTRY).and_then(|spec| spec.model(&REGISTRY)) else { continue };
            let counted = count(&model, &Setting::of(&model)).total_params();
            let has_head = model.frame.has_head();
            let network = Network::new(model, 0).unwrap();
            assert_eq!(network.params().count() as u64, counted, "{toml}");
            assert_eq!(network.has_head(), has_head, "{toml}");
        }
    }
}

#[test]
fn one_token_at_a_time_gives_what_the_whole_gives() {
    for model in cases().into_iter().filter(|model| model.frame.backbone.causal()) {
        let network = network(&model, 1);
        let (ids, _) = tokens(1);
        let memory = network.init_memory(BATCH);
        let mut cached = network.init_cache(BATCH, 1, &memory);
        let mut segments = memory.clone();
        let whole = logits(&network, &ids, BATCH);
        for t in 0..LEN {
            let step: Vec<u32> = (0..BATCH).map(|b| ids[b * LEN + t]).collect();
            let found = network.logits(&Input::tokens(&step, BATCH), &mut cached);
            // Where there is a memory, a longer segment sees farther back than one token does.
            let expected = match model.frame.has_memory() {
                true => network.logits(&Input::tokens(&step, BATCH), &mut segments).to_vec(),
                false => (0..BATCH)
                    .flat_map(|b| whole[(b * LEN + t) * VOCAB as usize..][..VOCAB as usize].to_vec())
                    .collect(),
            };
            close(&found, &expected, 1e-4, &format!("{}: token {t}", name(&model)));
        }
    }
}

/// A prompt: all tokens into an empty cache, and the last one of each sequence through the output layer.
#[test]
fn the_last_token_alone_gives_its_logits() {
    for model in cases().into_iter().filter(|model| model.frame.backbone.causal()) {
        let network = network(&model, 1);
        let (ids, _) = tokens(1);
        let (input, vocab) = (Input::tokens(&ids, BATCH), VOCAB as usize);
        let cache = || network.init_cache(BATCH, LEN, &network.init_memory(BATCH));
        let (mut prompt, mut whole) = (cache(), cache());
        let all = network.logits(&input, &mut whole);
        let expected: Vec<f32> =
            all.chunks_exact(LEN * vocab).flat_map(|rows| rows[(LEN - 1) * vocab..].to_vec()).collect();
        close(&network.last_logits(&input, &mut prompt), &expected, 1e-5, &name(&model));
        // What comes next finds the same cache.
        let next = Input::tokens(&ids[..BATCH], BATCH);
        close(&network.logits(&next, &mut prompt), &network.logits(&next, &mut whole), 1e-5, &name(&model));
    }
}

/// Sequences that begin at different times and have different lengths: each gets in common passes what it gets alone, in
/// every storage and with every kind of cache, where the sums of products may have another order.
#[test]
fn sequences_decode_together_as_they_do_alone() {
    let (ids, _) = tokens(3);
    // Tokens of each of three sequences in each pass.
    let schedule = [[2, 0, 0], [1, 3, 0], [1, 1, 1], [0, 1, 2], [1, 0, 1]];
    for (i, model) in cases().into_iter().filter(|model| model.frame.backbone.causal()).enumerate() {
        for (s, &storage) in STORAGES.iter().enumerate() {
            let mut network = network(&model, 3);
            network.set_storage(storage);
            network.set_cache([KeptAs::F32, KeptAs::Bf16, KeptAs::Int8][(i + s) % 3]);
            network.freeze();
            let fresh = || network.init_cache(1, LEN, &network.init_memory(1));
            let [mut together, mut alone]: [Vec<State>; 2] = [(); 2].map(|()| (0..3).map(|_| fresh()).collect());
            let mut at = [0; 3];
            for (pass, counts) in schedule.iter().enumerate() {
                let next = |b: usize| &ids[b + at[b]..][..counts[b]];
                let here = || (0..3).filter(|&b| counts[b] > 0);
                let of_part = |(b, state)| Part { ids: next(b), state };
                let mut parts: Vec<Part<'_>> =
                    together.iter_mut().enumerate().filter(|(b, _)| counts[*b] > 0).map(of_part).collect();
                let found = network.outputs(&network.hidden_ragged(&mut parts));
                let mut expected = Vec::new();
                for b in here() {
                    expected.extend_from_slice(&network.logits(&Input::tokens(next(b), 1), &mut alone[b]));
                }
                // A cache of integers may round a number that differs in its last bit to the next code.
                let what = format!("{} {}: pass {pass}", name(&model), storage.key());
                close(&found, &expected, if (i + s) % 3 == 0 { 1e-5 } else { 2e-2 }, &what);
                (0..3).for_each(|b| at[b] += counts[b]);
            }
        }
    }
}

/// A state cut back to its first tokens goes on as one that never saw more; what cannot be cut back says so.
#[test]
fn states_go_back_to_a_prefix() {
    let (ids, _) = tokens(4);
    for model in cases().into_iter().filter(|model| model.frame.backbone.causal()) {
        let network = network(&model, 4);
        let fresh = || network.init_cache(1, LEN, &network.init_memory(1));
        let (mut whole, mut short) = (fresh(), fresh());
        network.hidden(&Input::tokens(&ids[..5], 1), &mut whole);
        network.hidden(&Input::tokens(&ids[..2], 1), &mut short);
        assert!(whole.prefix(6).is_none(), "{}: more than there is", name(&model));
        let Some(mut cut) = whole.prefix(2) else {
            assert!(model.frame.has_memory(), "{}: plain caches can be cut", name(&model));
            continue;
        };
        assert_eq!((cut.position(), cut.bytes() <= whole.bytes()), (2, true), "{}", name(&model));
        for next in ids[5..].chunks(3) {
            let next = Input::tokens(next, 1);
            close(&network.logits(&next, &mut cut), &network.logits(&next, &mut short), 1e-5, &name(&model));
        }
    }
}

#[test]
fn causal_models_do_not_look_into_the_future() {
    for model in cases() {
        let network = network(&model, 2);
        let (ids, _) = tokens(2);
        let before = logits(&network, &ids, BATCH);
        let mut other = ids.clone();
        other[LEN - 1] = (ids[LEN - 1] + 1) % VOCAB;
        let after = logits(&network, &other, BATCH);
        let seen = (LEN - 1) * VOCAB as usize;
        let same = before[..seen] == after[..seen];
        let mixes = model.blocks.iter().any(|block| block.kind.role() == Role::MixesTokens);
        assert!(same == (model.frame.backbone.causal() || !mixes), "{}", name(&model));
    }
}

#[test]
fn padding_changes_nothing() {
    for model in cases().into_iter().filter(|model| !model.frame.backbone.causal()) {
        let network = network(&model, 3);
        let d = model.frame.d_model as usize;
        let hidden = |ids: &[u32], batch: usize, mask: Option<&[bool]>| {
            let input = Input { mask, ..Input::tokens(ids, batch) };
            network.hidden(&input, &mut network.init_memory(batch))
        };
        let (ids, _) = tokens(3);
        let (long, short) = (&ids[..LEN], &ids[LEN..LEN + 4]);
        let alone = hidden(short, 1, None);
        for filler in [0, 7] {
            let padded = [long, short, &[filler; 2]].concat();
            let mask: Vec<bool> = (0..2 * LEN).map(|i| i < LEN + 4).collect();
            let found = hidden(&padded, 2, Some(&mask));
            close(&found[LEN * d..(LEN + 4) * d], &alone, 1e-5, &name(&model));
            close(&found[..LEN * d], &hidden(long, 1, None), 1e-5, &name(&model));
        }
    }
}

/// Padding, wherever it stands, has hidden states of 0, and a padded batch has the gradients of its texts.
#[test]
fn padding_is_zeros_and_learns_nothing() {
    for model in cases().into_iter().filter(|model| !model.frame.backbone.causal()) {
        let network = network(&model, 8);
        let d = model.frame.d_model as usize;
        let (ids, mut targets) = tokens(8);
        // Before, behind and between tokens, and nothing else.
        for real in [[2..LEN, 0..LEN - 3], [0..LEN, 1..1]] {
            for hole in [None, Some(3)] {
                let of_row = |b: usize| (0..LEN).map(|t| real[b].contains(&t) && Some(t) != hole).collect::<Vec<_>>();
                let mask: Vec<bool> = (0..BATCH).flat_map(of_row).collect();
                let input = Input { mask: Some(&mask), ..Input::tokens(&ids, BATCH) };
                let hidden = network.hidden(&input, &mut network.init_memory(BATCH));
                for (row, &real) in hidden.chunks_exact(d).zip(&mask) {
                    assert_eq!(row.iter().any(|&x| x != 0.0), real, "{}", name(&model));
                }
            }
        }
        let train = |ids: &[u32], batch: usize, mask: Option<&[bool]>, targets: &[u32], grads: &mut Grads| {
            let input = Input { mask, ..Input::tokens(ids, batch) };
            let training = Training { dropout_key: None, balance: 0.0, scale: 0.1 };
            network.train(&input, &Targets(targets), &mut network.init_memory(batch), &training, grads).losses
        };
        let [mut together, mut alone] = [(); 2].map(|()| Grads::new(network.params()));
        let mask: Vec<bool> = (0..2 * LEN).map(|i| i < LEN + 4).collect();
        targets[LEN + 4..].fill(IGNORE);
        let losses = train(&ids, 2, Some(&mask), &targets, &mut together);
        let mut expected = train(&ids[..LEN], 1, None, &targets[..LEN], &mut alone);
        expected.extend(train(&ids[LEN..LEN + 4], 1, None, &targets[LEN..LEN + 4], &mut alone));
        close(&losses[..LEN + 4], &expected, 1e-5, &name(&model));
        for (i, (a, b)) in together.finish().iter().zip(alone.finish().iter()).enumerate() {
            close(a, b, 1e-4, &format!("{}: {}", name(&model), network.params().iter().nth(i).unwrap().name));
        }
    }
}

/// The slope of the loss along each parameter's gradient is the gradient's length.
#[test]
fn gradients_are_slopes() {
    for model in cases() {
        // A token that is about to go to another expert makes a step that no gradient knows of: other weights then.
        let tries: Vec<String> = (4..8).map_while(|seed| slopes(&model, seed).err()).collect();
        assert!(tries.len() < 4, "{}: {tries:?}", name(&model));
    }
}

fn slopes(model: &Model, seed: u64) -> Result<(), String> {
    let mut network = network(model, seed);
    let (ids, mut targets) = tokens(seed as u32);
    targets[3] = IGNORE;
    let scale = 1.0 / (targets.len() - 1) as f32;
    let training = Training { dropout_key: None, balance: 0.0, scale };
    let input = Input::tokens(&ids, BATCH);
    let mut grads = Grads::new(network.params());
    network.train(&input, &Targets(&targets), &mut network.init_memory(BATCH), &training, &mut grads);
    let grads = grads.finish().to_vec();
    let loss = |network: &Network| -> f64 {
        let losses = network.loss(&input, &Targets(&targets), &mut network.init_memory(BATCH));
        losses.iter().map(|&loss| f64::from(loss)).sum::<f64>() * f64::from(scale)
    };
    for (at, grad) in grads.iter().enumerate() {
        let size = grad.iter().map(|&g| f64::from(g) * f64::from(g)).sum::<f64>().sqrt();
        if size < 1e-4 {
            continue; // nothing flows here, or too little for f32 to see a slope
        }
        let moved = |network: &mut Network, by: f64| {
            let param = network.params_mut().nth(at).unwrap();
            param.data.iter_mut().zip(grad).for_each(|(x, &g)| *x += (by * f64::from(g)) as f32);
        };
        let slope = |step: f64| {
            moved(&mut network, step);
            let above = loss(&network);
            moved(&mut network, -2.0 * step);
            let below = loss(&network);
            moved(&mut network, step);
            (above - below) / (2.0 * step) / (size * size)
        };
        let slopes: Vec<f64> = [2e-2, 5e-3, 1e-3, 2e-4].map(|step| step / size).into_iter().map(slope).collect();
        if slopes.iter().all(|slope| (slope - 1.0).abs() > 0.03) {
            let what = &network.params().iter().nth(at).unwrap().name;
            return Err(format!("{what}: slopes {slopes:?} of a gradient of {size}"));
        }
    }
    Ok(())
}

#[test]
fn every_storage_is_saved_and_loaded() {
    for model in cases() {
        for &storage in STORAGES {
            let mut network = network(&model, 5);
            network.set_storage(storage);
            let dir = tempfile::tempdir().unwrap();
            folder::save(&network, dir.path()).unwrap();
            let again = folder::load(dir.path(), &REGISTRY).unwrap_or_else(|error| panic!("{}: {error}", name(&model)));
            assert_eq!(again.model, model, "{}", name(&model));
            for (a, b) in network.params().iter().zip(again.params().iter()) {
                assert_eq!((a.read(), a.storage().key()), (b.read(), storage.key()), "{}: {}", name(&model), a.name);
            }
            // What is held in a storage computes as its rounded values do, packed or not.
            let (ids, _) = tokens(5);
            let found = logits(&again, &ids, BATCH);
            let mut rounded = Network::new(model.clone(), 0).unwrap();
            for (to, from) in rounded.params_mut().zip(network.params().iter()) {
                to.set_data(from.read().into_owned());
            }
            close(&found, &logits(&rounded, &ids, BATCH), 1e-5, &name(&model));
            let mut frozen = again;
            frozen.freeze();
            close(&logits(&frozen, &ids, BATCH), &found, 1e-5, &name(&model));
        }
    }
}

/// Fewer units compute what all of them do where the others write nothing.
#[test]
fn fewer_units_are_the_same_without_the_others() {
    let mut tried = 0;
    for &backbone in REGISTRY.backbones {
        for extra in ["", "kv_heads=2\nactivation='swiglu'"] {
            if !extra.is_empty() && !backbone.own_keys().iter().any(|own| own.key.name == "kv_heads") {
                continue;
            }
            let layers = |heads: &str, inner: u32| format!("{heads} f{inner} low_rank{{inner={inner},rank=3}}");
            let full = model_of(backbone, &layers(if extra.is_empty() { "s4d2" } else { "s4d2g2" }, 16), extra);
            let fewer = model_of(backbone, &layers(if extra.is_empty() { "s2d2" } else { "s2d2g1" }, 5), extra);
            let full_network = network(&full, 6);
            if full_network.slot(0).units.is_empty() {
                continue; // heads with a table of all layers
            }
            let kept = [vec![0, if extra.is_empty() { 3 } else { 0 }], vec![1, 4, 5, 9, 15], vec![0, 2, 3, 11, 12]];
            let mut keep = |slot: usize, _: &lathe_model::layer::Units, count: usize| kept[slot][..count].to_vec();
            let slots = [Some(0), Some(1), Some(2)];
            let (small, origins) = derive::derive(&full_network, fewer, &slots, 0, &mut keep).unwrap();
            assert_eq!(origins, [Origin::Derived; 3], "{}", name(&full));
            let mut silenced = network(&full, 6);
            for (slot, kept) in kept.iter().enumerate() {
                let units = &full_network.slot(slot).units[0];
                let kept = &kept[..small.slot(slot).units[0].count];
                for slice in units.slices.iter().filter(|slice| slice.writes) {
                    let param = silenced.params_mut().nth(full_network.params().position(slice.param)).unwrap();
                    let inner: usize = param.shape[slice.axis + 1..].iter().product::<usize>() * slice.width;
                    for rows in param.data.chunks_exact_mut(units.count * inner) {
                        let gone = (0..units.count).filter(|unit| !kept.contains(unit));
                        gone.for_each(|unit| rows[unit * inner..][..inner].fill(0.0));
                    }
                }
            }
            let (ids, _) = tokens(6);
            close(&logits(&small, &ids, BATCH), &logits(&silenced, &ids, BATCH), 1e-4, &name(&full));
            tried += 1;
        }
    }
    assert!(tried >= REGISTRY.backbones.len());
}

#[test]
fn blocks_run_alone_and_in_super_nets() {
    for &backbone in REGISTRY.backbones {
        let model = model_of(backbone, "s f", "");
        let variants = |kind: &&'static dyn BlockKind| [kind.variants(&model.frame), vec![Block::new(*kind)]].concat();
        let mut options: Vec<Block> = BLOCKS.iter().flat_map(variants).collect();
        options.retain(|block| block.kind.check(block, &model.frame).is_ok());
        for block in &options {
            let bench = BlockBench::new(block, &model.frame, 1).unwrap();
            let mut x = Buf::zeros(BATCH * LEN * 8);
            x.iter_mut().enumerate().for_each(|(i, x)| *x = (i % 13) as f32 / 13.0 - 0.5);
            let mut state = bench.state(BATCH, LEN, false);
            let y = bench.forward(x.clone(), BATCH, &mut state);
            assert!(y.iter().all(|y| y.is_finite()), "{block:?}");
            let mut grads = Grads::new(bench.params());
            let dx = bench.train(x, BATCH, &mut bench.state(BATCH, LEN, false), &mut grads);
            assert!(dx.iter().all(|dx| dx.is_finite()), "{block:?}");
        }
        let slots = vec![options.clone(); 2];
        let net = SuperNet::new(model.frame.clone(), &slots, 1).unwrap();
        let (ids, targets) = tokens(7);
        let p = vec![1.0 / options.len() as f32; options.len()];
        let training = Training { dropout_key: Some(1), balance: 0.01, scale: 1.0 / ids.len() as f32 };
        let mut grads = Grads::new(net.params());
        let outcome = net.train(
            &Input::tokens(&ids, BATCH),
            &Targets(&targets),
            &mut net.init_memory(BATCH),
            &[Mixture::Soft(p.clone()), Mixture::Soft(p)],
            &training,
            &mut grads,
        );
        assert!(outcome.losses.iter().all(|loss| loss.is_finite()), "{}", backbone.key());
        assert!(outcome.dp.iter().flatten().all(|dp| dp.is_finite()), "{}", backbone.key());
    }
}

/// A cache makes room when it is needed, and what it held stays.
#[test]
fn caches_grow() {
    let (batch, width, capacity) = (2, 2, 10_000);
    for (kind, off) in [(KeptAs::F32, 0.0), (KeptAs::Bf16, 1.0 / 256.0), (KeptAs::Int8, 1e-6)] {
        let mut cache = lathe_model::layer::Cache::new(batch, (width, 1), capacity, capacity, kind);
        let mut all: Vec<Vec<f32>> = vec![Vec::new(); batch];
        for (step, len) in [1, 4000, 300, 4000, 1].into_iter().enumerate() {
            let value = |b: usize, t: usize| (step * 100_000 + b * 10_000 + t) as f32;
            let new: Vec<f32> =
                (0..batch).flat_map(|b| (0..len).flat_map(move |t| [value(b, t), -value(b, t)])).collect();
            for (b, all) in all.iter_mut().enumerate() {
                all.extend_from_slice(&new[b * len * width..][..len * width]);
            }
            let first = cache.append(batch, width, &new, width, 0);
            let rows = cache.keys_and_values(first, 1);
            for (b, all) in all.iter().enumerate() {
                for (i, expected) in all.iter().step_by(2).enumerate() {
                    let mut found = [0.0];
                    rows.kept.read(rows.first + b * rows.batch_stride + i * rows.stride, &mut found);
                    assert!((found[0] - expected).abs() <= off * expected.abs(), "{kind}, step {step}: {found:?}");
                }
                assert_eq!(all.len() / 2, cache.len);
            }
        }
    }
}

/// Weights as integers: saved and loaded alike, computed as the values they stand for, whole and token by token.
#[test]
fn integers_compute_as_what_they_stand_for() {
    for (i, model) in cases().into_iter().enumerate() {
        let format = FORMATS[i % FORMATS.len()];
        let place = format!("{} {format}", name(&model));
        let mut network = network(&model, 7);
        network.set_format(format);
        network.params_mut().for_each(|param| param.set_activations(Activations::Float));
        let dir = tempfile::tempdir().unwrap();
        folder::save(&network, dir.path()).unwrap();
        let mut again = folder::load(dir.path(), &REGISTRY).unwrap_or_else(|error| panic!("{place}: {error}"));
        for (a, b) in network.params().iter().zip(again.params().iter()) {
            let held = a.place().is_some_and(|place| !place.exact);
            assert_eq!(b.storage_key(), if held { format.key() } else { "f32".into() }, "{place}: {}", a.name);
            assert_eq!(a.read(), b.read(), "{place}: {}", a.name);
            assert!(!held || a.activations() == b.activations(), "{place}: {}", a.name);
        }
        let mut rounded = Network::new(model.clone(), 0).unwrap();
        for (to, from) in rounded.params_mut().zip(network.params().iter()) {
            to.set_data(from.read().into_owned());
        }
        let (ids, targets) = tokens(7);
        let expected = logits(&rounded, &ids, BATCH);
        close(&logits(&again, &ids, BATCH), &expected, 1e-4, &place);
        // The gradients of activations and of weights are those of the values.
        if model.frame.backbone.causal() {
            let gradients = |network: &Network| {
                let mut grads = Grads::new(network.params());
                let training = Training { dropout_key: None, balance: 0.0, scale: 0.1 };
                let input = Input::tokens(&ids, BATCH);
                network.train(&input, &Targets(&targets), &mut network.init_memory(BATCH), &training, &mut grads);
                grads.finish().concat()
            };
            close(&gradients(&again), &gradients(&rounded), 1e-3, &place);
        }
        // With rounded activations a token's outputs depend on no other token's, be they computed together or not.
        again.params_mut().for_each(|param| param.set_activations(Activations::Int8));
        again.freeze();
        if model.frame.backbone.causal() && !model.frame.has_memory() {
            let whole = logits(&again, &ids, BATCH);
            let mut cached = again.init_cache(BATCH, 1, &again.init_memory(BATCH));
            for t in 0..LEN {
                let step: Vec<u32> = (0..BATCH).map(|b| ids[b * LEN + t]).collect();
                let found = again.logits(&Input::tokens(&step, BATCH), &mut cached);
                for (b, found) in found.chunks_exact(VOCAB as usize).enumerate() {
                    close(found, &whole[(b * LEN + t) * VOCAB as usize..][..VOCAB as usize], 0.02, &place);
                }
            }
        }
    }
}
