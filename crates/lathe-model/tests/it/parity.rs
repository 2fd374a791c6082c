//! Against `transformers`: logits, loss, every gradient, memories and ten steps of AdamW, from files that
//! `oracles/*.py` wrote.

use crate::contract::of_tokens;
use lathe_core::{Spec, notation};
use lathe_model::head::Top;
use lathe_model::{Grads, Input, Network, Objective, Params, REGISTRY, State, Targets, Training};
use lathe_ops::buffer::Buf;
use lathe_ops::dropout::Dropout;
use lathe_ops::loss::IGNORE;
use lathe_ops::optim::AdamW;
use safetensors::{Dtype, SafeTensors};
use std::collections::HashMap;

/// A file of an oracle.
pub struct Fixture {
    pub floats: HashMap<String, (Vec<usize>, Vec<f32>)>,
    ids: Vec<u32>,
    /// Of an encoder: which tokens are real, of which text they are, and what they should be.
    mask: Option<Vec<bool>>,
    text_segments: Option<Vec<u32>>,
    targets: Option<Vec<u32>>,
    batch: usize,
    segments: usize,
    pub toml: String,
}

impl Fixture {
    pub fn read(name: &str) -> Self {
        let path = format!("{}/tests/it/fixtures/{name}.safetensors", env!("CARGO_MANIFEST_DIR"));
        let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
        let metadata = header.metadata().clone().unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let mut floats = HashMap::new();
        let mut batch = 0;
        let mut ints: HashMap<String, Vec<i64>> = HashMap::new();
        for (name, tensor) in tensors.iter() {
            if tensor.dtype() == Dtype::I64 {
                batch = tensor.shape()[0];
                let values = tensor.data().chunks_exact(8).map(|b| i64::from_le_bytes(b.try_into().unwrap()));
                ints.insert(name.to_string(), values.collect());
            } else {
                let data = tensor.data().chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
                floats.insert(name.to_string(), (tensor.shape().to_vec(), data));
            }
        }
        let segments = metadata.get("segments").map_or(1, |n| n.parse().unwrap());
        let ids = ints["ids"].iter().map(|&id| id as u32).collect();
        let target = |target: i64| u32::try_from(target).unwrap_or(IGNORE);
        Self {
            floats,
            ids,
            mask: ints.get("mask").map(|mask| mask.iter().map(|&real| real == 1).collect()),
            text_segments: ints.get("segments").map(|segments| segments.iter().map(|&s| s as u32).collect()),
            targets: ints.get("targets").map(|targets| targets.iter().copied().map(target).collect()),
            batch,
            segments,
            toml: metadata["model"].clone(),
        }
    }

    fn get(&self, name: &str) -> &[f32] {
        &self.floats.get(name).unwrap_or_else(|| panic!("{name} in the fixture")).1
    }

    /// The network with the oracle's weights, all of which it must know, and which must be all of its own.
    fn network(&self) -> Network {
        let model = Spec::from_toml(&self.toml, &REGISTRY).unwrap().model(&REGISTRY).unwrap();
        let mut network = Network::new(model, 0).unwrap();
        let mut own = 0;
        for param in network.params_mut() {
            let (shape, data) = self
                .floats
                .get(&format!("weight.{}", param.name))
                .unwrap_or_else(|| panic!("{} in the fixture", param.name));
            assert_eq!(&param.shape, shape, "{}", param.name);
            param.data.copy_from_slice(data);
            own += 1;
        }
        let theirs = self.floats.keys().filter(|name| name.starts_with("weight.")).count();
        assert_eq!(own, theirs, "as many parameters as the reference");
        network
    }

    fn len(&self) -> usize {
        self.ids.len() / self.batch
    }

    /// Tokens and next tokens of a segment, [B, T] each.
    fn segment(&self, i: usize) -> (Vec<u32>, Vec<u32>) {
        let (len, part) = (self.len(), self.len() / self.segments);
        let places = (0..self.batch).flat_map(|b| (i * part..(i + 1) * part).map(move |t| (b, t)));
        let next = |b: usize, t: usize| if t + 1 < len { self.ids[b * len + t + 1] } else { IGNORE };
        places.map(|(b, t)| (self.ids[b * len + t], next(b, t))).unzip()
    }

    /// One pass over all segments: the mean loss, and its gradients.
    fn train(&self, network: &Network, grads: &mut Grads) -> f64 {
        let count = self.batch * (self.len() - 1);
        let training = Training { dropout_key: None, balance: 0.0, scale: 1.0 / count as f32 };
        let mut state = network.init_memory(self.batch);
        let mut total = 0.0;
        for i in 0..self.segments {
            let (ids, targets) = self.segment(i);
            let outcome =
                network.train(&Input::tokens(&ids, self.batch), &Targets(&targets), &mut state, &training, grads);
            total += outcome.losses.iter().map(|&loss| f64::from(loss)).sum::<f64>();
        }
        total / count as f64
    }
}

/// Largest difference, relative to the largest entry.
fn difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let most = b.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    a.iter().zip(b).fold(0.0f32, |worst, (a, b)| worst.max((a - b).abs())) / most.max(1e-3)
}

fn check(name: &str) {
    let fixture = Fixture::read(name);
    let network = fixture.network();
    let vocab = network.model.frame.vocab as usize;
    let (batch, part) = (fixture.batch, fixture.len() / fixture.segments);

    // Logits and memories, segment by segment; with the memory projected, and one token at a time.
    let expected = fixture.get("logits");
    let mut state = network.init_memory(batch);
    let mut cached = network.init_cache(batch, part, &state);
    let mut single = [network.init_memory(batch), network.init_cache(batch, 1, &state)];
    for i in 0..fixture.segments {
        let (ids, _) = fixture.segment(i);
        let rows = |b: usize, t: usize| &expected[(b * fixture.len() + i * part + t) * vocab..][..vocab];
        let expected: Vec<f32> = (0..batch).flat_map(|b| (0..part).flat_map(move |t| rows(b, t).to_vec())).collect();
        let logits = network.logits(&Input::tokens(&ids, batch), &mut state);
        assert!(difference(&logits, &expected) < 1e-4, "{name}: logits {}", difference(&logits, &expected));
        for (layer, memory) in network.memories(&state) {
            let expected = fixture.get(&format!("mems.{layer}.{i}"));
            assert!(difference(memory, expected) < 1e-4, "{name}: memory {layer} {}", difference(memory, expected));
        }
        let logits = network.logits(&Input::tokens(&ids, batch), &mut cached);
        assert!(difference(&logits, &expected) < 1e-4, "{name}: projected memory {}", difference(&logits, &expected));
        check_decoding(name, &network, &ids, batch, &mut single, &expected);
    }

    check_training(name, &fixture, network, &|network, grads| fixture.train(network, grads));
}

/// Loss, gradients, and ten steps of AdamW.
fn check_training(name: &str, fixture: &Fixture, network: Network, train: &dyn Fn(&Network, &mut Grads) -> f64) {
    let mut grads = Grads::new(network.params());
    grads.clear();
    let loss = train(&network, &mut grads);
    assert!((loss - f64::from(fixture.get("loss")[0])).abs() < 1e-4 * loss, "{name}: loss {loss}");
    for (param, grad) in network.params().iter().zip(grads.finish()) {
        let expected = fixture.get(&format!("grad.{}", param.name));
        assert!(difference(grad, expected) < 1e-3, "{name}: gradient of {} {}", param.name, difference(grad, expected));
    }
    check_adamw(name, fixture, network, train);
}

/// One token at a time with a cache: equal to the whole sequence in a gpt2, to segments of one token in a
/// transformer_xl, where a longer segment sees farther back.
fn check_decoding(
    name: &str,
    network: &Network,
    ids: &[u32],
    batch: usize,
    [plain, cached]: &mut [State; 2],
    whole: &[f32],
) {
    let (len, vocab) = (ids.len() / batch, network.model.frame.vocab as usize);
    for t in 0..len {
        let tokens: Vec<u32> = (0..batch).map(|b| ids[b * len + t]).collect();
        let logits = network.logits(&Input::tokens(&tokens, batch), cached);
        let expected: Vec<f32> = match network.model.frame.has_memory() {
            false => (0..batch).flat_map(|b| whole[(b * len + t) * vocab..][..vocab].to_vec()).collect(),
            true => network.logits(&Input::tokens(&tokens, batch), plain).to_vec(),
        };
        assert!(difference(&logits, &expected) < 1e-4, "{name}: token {t} {}", difference(&logits, &expected));
    }
}

fn check_adamw(name: &str, fixture: &Fixture, mut network: Network, train: &dyn Fn(&Network, &mut Grads) -> f64) {
    let adamw = AdamW { lr: 1e-2, betas: (0.9, 0.95), eps: 1e-8, weight_decay: 0.1 };
    let mut grads = Grads::new(network.params());
    let mut moments: Vec<[Vec<f32>; 2]> =
        network.params().iter().map(|p| [vec![0.0; p.data.len()], vec![0.0; p.data.len()]]).collect();
    for (step, &expected) in fixture.get("adamw_losses").iter().enumerate() {
        grads.clear();
        let loss = train(&network, &mut grads);
        assert!((loss - f64::from(expected)).abs() < 1e-4 * loss, "{name}: step {step}: {loss} and {expected}");
        for ((param, grad), [m, v]) in network.params_mut().zip(grads.finish()).zip(&mut moments) {
            adamw.step(step as i32 + 1, 1.0, &mut param.data, grad, m, v);
        }
    }
}

/// What an encoder without an output layer was trained for in the fixture: the mean of (hidden - wanted)^2 over real tokens
/// and widths, and of (pooled - wanted)^2 where there is a pooler.
struct Wanted<'a>(&'a Fixture);

impl Objective for Wanted<'_> {
    fn loss(
        &self,
        top: &Top,
        params: &Params,
        hidden: &[f32],
        gradients: Option<(f32, &mut Grads)>,
    ) -> (Vec<f32>, Option<Buf>) {
        let (fixture, mask) = (self.0, self.0.mask.as_ref().unwrap());
        let width = hidden.len() / mask.len();
        let real = (mask.iter().filter(|&&real| real).count() * width) as f32;
        let (mut loss, mut dhidden) = (0.0, Buf::zeros(hidden.len()));
        let wanted = hidden.iter().zip(fixture.get("wanted_hidden")).enumerate();
        for (i, (x, wanted)) in wanted.filter(|(i, _)| mask[i / width]) {
            loss += (x - wanted) * (x - wanted) / real;
            dhidden[i] = 2.0 * (x - wanted) / real;
        }
        let Some(pooler) = &top.pooler else { return (vec![loss], Some(dhidden)) };
        let pooled = pooler.forward(params, hidden, fixture.batch, Dropout::NONE);
        let of_pooled = pooled.iter().zip(fixture.get("wanted_pooled")).map(|(x, wanted)| x - wanted);
        let differences: Vec<f32> = of_pooled.collect();
        let count = differences.len() as f32;
        loss += differences.iter().map(|d| d * d).sum::<f32>() / count;
        let dpooled: Vec<f32> = differences.iter().map(|d| 2.0 * d / count).collect();
        if let Some((_, grads)) = gradients {
            pooler.backward(params, hidden, (&pooled, &dpooled), Dropout::NONE, &mut dhidden, grads);
        }
        (vec![loss], Some(dhidden))
    }
}

impl Fixture {
    fn input(&self) -> Input<'_> {
        let (mask, segments) = (self.mask.as_deref(), self.text_segments.as_deref());
        Input { mask, segments, ..Input::tokens(&self.ids, self.batch) }
    }

    /// One pass of an encoder: its loss, and the gradients.
    fn train_encoder(&self, network: &Network, grads: &mut Grads) -> f64 {
        let mut state = network.init_memory(self.batch);
        let (training, objective): (_, Box<dyn Objective + '_>) = match &self.targets {
            Some(targets) => {
                let count = targets.iter().filter(|&&target| target != IGNORE).count();
                let scale = 1.0 / count as f32;
                (Training { dropout_key: None, balance: 0.0, scale }, Box::new(Targets(targets)))
            }
            None => (Training { dropout_key: None, balance: 0.0, scale: 1.0 }, Box::new(Wanted(self))),
        };
        let outcome = network.train(&self.input(), &*objective, &mut state, &training, grads);
        outcome.losses.iter().map(|&loss| f64::from(loss)).sum::<f64>() * f64::from(training.scale)
    }
}

/// Hidden states, outputs, losses, gradients and steps of an encoder.
fn check_encoder(name: &str) {
    let fixture = Fixture::read(name);
    let network = fixture.network();
    let hidden = network.hidden(&fixture.input(), &mut network.init_memory(fixture.batch));
    let close = |what: &str, found: &[f32], mask: Option<&[bool]>| {
        let difference = difference(&of_tokens(found, mask), &of_tokens(fixture.get(what), mask));
        assert!(difference < 1e-4, "{name}: {what} {difference}");
    };
    let mask = fixture.mask.as_deref();
    close("hidden", &hidden, mask);
    if network.has_head() {
        close("logits", &network.outputs(&hidden), mask);
    }
    if let Some(pooled) = network.pooled(&hidden, fixture.batch) {
        close("pooled", &pooled, None);
    }
    check_training(name, &fixture, network, &|network, grads| fixture.train_encoder(network, grads));
}

macro_rules! parity {
    ($($name:ident)*; $($encoder:ident)*) => {
        $(#[test]
        fn $name() {
            check(stringify!($name));
        })*
        $(#[test]
        fn $encoder() {
            check_encoder(stringify!($encoder));
        })*

        /// The decoders' fixtures.
        pub const DECODERS: &[&str] = &[$(stringify!($name)),*];
        /// All fixtures.
        const FIXTURES: &[&str] = &[$(stringify!($name),)* $(stringify!($encoder)),*];

        /// Every file of the oracles is tried.
        #[test]
        fn all_fixtures_are_tried() {
            let folder = format!("{}/tests/it/fixtures", env!("CARGO_MANIFEST_DIR"));
            let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
            let files: Vec<_> = files.filter(|path| path.extension().is_some_and(|e| e == "safetensors")).collect();
            assert_eq!(files.len(), FIXTURES.len());
        }
    };
}

parity! {
    gpt2_tanh gpt2_erf gpt2_relu gpt2_silu_untied gpt2_moe_top1 gpt2_moe_top2 gpt2_moe_renormalised gpt2_low_rank
    opt_pre opt_post opt_350m opt_gelu_untied
    xl_post xl_pre xl_adaptive xl_adaptive_div1 xl_same_length xl_untied
    llama_plain llama_grouped llama_linear llama_scaled3 llama_wide_heads llama_bias llama_low_rank qwen2 qwen3;
    bert_masked bert_full bert_model bert_relu bert_tanh_left
    roberta_masked roberta_model distilbert_masked distilbert_model
    albert_masked albert_groups albert_model mpnet_masked mpnet_model
    mobilebert_masked mobilebert_narrow mobilebert_model mobilebert_plain
}

/// Parameters as counted are the parameters there are, for every kind of block and frame.
#[test]
fn counted_parameters_exist() {
    for backbone in ["gpt2", "transformer_xl"] {
        for layers in ["s", "f", "m3k2", "-", "(s2 f)x2 m2k1i6 - s1d5 moe{experts=2,top_k=2,renormalise=true}"] {
            for extra in [
                "",
                "activation='swiglu'",
                "d_embed=4",
                "cutoffs=[3,7]",
                "cutoffs=[3,7]\ndiv_val=2",
                "cutoffs=[3,7]\nd_embed=4\ntie_projs=false",
                "cutoffs=[3]\ndiv_val=2\ntie_embeddings=false\ntie_projs=false",
                "tie_embeddings=false",
            ] {
                let model = crate::model(&format!(
                    "backbone='{backbone}'\nlayers='{layers}'\nd_model=8\nvocab=11\nmax_len=5\n{extra}"
                ));
                let counted = lathe_model::count(&model, &lathe_core::Setting::of(&model)).total_params();
                let network = Network::new(model, 0).unwrap();
                assert_eq!(
                    network.params().count() as u64,
                    counted,
                    "{backbone} {layers} {extra} {}",
                    notation::print(&network.model.blocks)
                );
            }
        }
    }
}

/// A gpt2 with a narrower or wider embedding begins with logits of the same size as one without.
#[test]
fn a_projected_embedding_begins_as_large_as_a_plain_one() {
    let size = |extra: &str| {
        let model = crate::model(&format!("backbone='gpt2'\nlayers='s'\nd_model=64\nvocab=97\nmax_len=32\n{extra}"));
        let network = Network::new(model, 0).unwrap();
        let ids: Vec<u32> = (0..32).collect();
        let logits = network.logits(&Input::tokens(&ids, 1), &mut network.init_memory(1));
        (logits.iter().map(|x| x * x).sum::<f32>() / logits.len() as f32).sqrt()
    };
    let plain = size("");
    for width in [16, 32, 256] {
        let ratio = size(&format!("d_embed={width}")) / plain;
        assert!((0.5..2.0).contains(&ratio), "{width}: {ratio}");
    }
}
