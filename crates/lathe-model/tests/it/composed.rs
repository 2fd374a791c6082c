//! What holds for every model: the fused path is the composed one, whose gradients are those of finite differences; no
//! token sees a later one; and the same seed gives the same bits.

use candle_core::{DType, Device, Tensor};
use lathe_model::{Composed, Grads, Input, Network, Targets, Training};
use lathe_ops::loss::IGNORE;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Tiny models: every block, backbone, place of the norm, activation and kind of embedding.
pub const MODELS: &[&str] = &[
    "backbone='gpt2'\nlayers='(s f)x2'",
    "backbone='gpt2'\nlayers='s f6 - m3k2 s1d5'\nactivation='swiglu'\nnorm='post'",
    "backbone='gpt2'\nlayers='s f'\nactivation='geglu'\ntie_embeddings=false",
    "backbone='gpt2'\nlayers='s f'\nactivation='reglu'\ncutoffs=[4,9]",
    "backbone='gpt2'\nlayers='f s'\nactivation='gelu'\ncutoffs=[4,9]\nd_embed=4\ntie_projs=false",
    "backbone='gpt2'\nlayers='s f m2k1'\nactivation='silu'\nd_embed=4",
    "backbone='opt'\nlayers='s f'",
    "backbone='transformer_xl'\nlayers='(s f)x2'",
    "backbone='transformer_xl'\nlayers='(s f)x2'\nnorm='pre'\nactivation='gelu_tanh'",
    "backbone='transformer_xl'\nlayers='s4 f6 - s1d3 m3 f s2d5 f3'\nactivation='swiglu'",
    "backbone='transformer_xl'\nlayers='s f s'\nsame_length=true\nclamp_len=4",
    "backbone='transformer_xl'\nlayers='s f'\nmem_len=0",
    "backbone='transformer_xl'\nlayers='s f s f'\nmem_len=11\nclamp_len=6\nnorm='pre'",
    "backbone='transformer_xl'\nlayers='s f'\nnorm='pre'\nfinal_norm=true",
    "backbone='transformer_xl'\nlayers='s f'\ncutoffs=[4,9]\ndiv_val=2",
    "backbone='transformer_xl'\nlayers='s f'\ncutoffs=[4,9]\ndiv_val=2\ntie_embeddings=false\ntie_projs=false",
    "backbone='transformer_xl'\nlayers='s f'\ncutoffs=[4,9]\nd_embed=4",
    "backbone='transformer_xl'\nlayers='s moe{experts=4,top_k=2,renormalise=true} s moe{experts=3,top_k=1}'",
    "backbone='gpt2'\nlayers='s low_rank{rank=3} low_rank{inner=6,rank=2}'",
    "backbone='transformer_xl'\nlayers='s low_rank{rank=3} low_rank{inner=6,rank=9}'\nactivation='swiglu'",
    "backbone='gpt2'\nlayers='moe{experts=3,top_k=2,renormalise=true} s moe{experts=2,top_k=2}'\nactivation='relu'",
];

pub const BATCH: usize = 3;
const LEN: usize = 7;
const SEGMENTS: usize = 2;
const VOCAB: u32 = 13;
pub const TRAINING: Training = Training { dropout_key: None, balance: 0.2, scale: 0.1 };

/// A model with weights far from those of the start, so that nothing is nearly 0 or nearly linear.
pub fn network(toml: &str) -> Network {
    let mem_len = if toml.contains("transformer_xl") && !toml.contains("mem_len") { "mem_len=5" } else { "" };
    let common = format!("d_model=8\nheads=2\ninner=10\nvocab={VOCAB}\ntgt_len={LEN}\n{mem_len}");
    let max_len = if toml.contains("transformer_xl") { "" } else { "max_len=20" };
    let mut network = Network::new(crate::model(&format!("{toml}\n{common}\n{max_len}")), 0).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for param in network.params_mut() {
        param.data.iter_mut().for_each(|x| *x += rng.random_range(-0.4..0.4));
    }
    network
}

/// Tokens and targets of the segments, some of which do not count.
pub fn segments() -> Vec<(Vec<u32>, Vec<u32>)> {
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let mut tokens = || (0..BATCH * LEN).map(|_| rng.random_range(0..VOCAB)).collect::<Vec<_>>();
    let segment = |_| {
        let (ids, mut targets) = (tokens(), tokens());
        (targets[3], targets[LEN]) = (IGNORE, IGNORE);
        (ids, targets)
    };
    (0..SEGMENTS).map(segment).collect()
}

fn floats(tensor: &Tensor) -> Vec<f32> {
    tensor.to_dtype(DType::F32).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

/// Largest difference, relative to the largest entry.
#[track_caller]
fn close(what: &str, found: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let most = expected.iter().fold(1e-3f32, |most, x| most.max(x.abs()));
    let worst = found.iter().zip(expected).map(|(a, b)| (a - b).abs() / most);
    let worst = worst.fold(0.0, |worst: f32, x| if x.is_nan() { f32::INFINITY } else { worst.max(x) });
    assert!(worst <= tolerance, "{what}: {worst}");
}

#[test]
fn fused_is_composed() {
    for toml in MODELS {
        for dtype in [DType::F32, DType::F64] {
            let network = network(toml);
            let composed = Composed::new(&network, dtype, &Device::Cpu).unwrap();
            let mut grads = Grads::new(network.params());
            let mut expected: Vec<Vec<f32>> = grads.finish().to_vec();
            let (mut state, mut composed_state) = (network.init_memory(BATCH), composed.memory(BATCH).unwrap());
            for (ids, targets) in segments() {
                let logits = network.logits(&Input::tokens(&ids, BATCH), &mut state.clone());
                let composed_logits =
                    composed.logits(&Input::tokens(&ids, BATCH), &mut composed_state.clone()).unwrap();
                close(&format!("{toml}: logits"), &logits, &floats(&composed_logits), 1e-4);

                let outcome =
                    network.train(&Input::tokens(&ids, BATCH), &Targets(&targets), &mut state, &TRAINING, &mut grads);
                let balance: f32 = outcome.experts.iter().map(|experts| experts.balance).sum();
                let total = TRAINING.scale * outcome.losses.iter().sum::<f32>() + TRAINING.balance * balance;
                let (loss, _) =
                    composed.loss(&Input::tokens(&ids, BATCH), &targets, &mut composed_state, &TRAINING).unwrap();
                close(&format!("{toml}: loss"), &[total], &floats(&loss), 1e-5);
                let store = loss.backward().unwrap();
                for (sum, (_, var)) in expected.iter_mut().zip(composed.vars()) {
                    let gradient = store.get(var).map(floats).unwrap_or_default();
                    sum.iter_mut().zip(gradient).for_each(|(sum, x)| *sum += x);
                }
            }
            for ((found, expected), (name, _)) in grads.finish().iter().zip(&expected).zip(composed.vars()) {
                close(&format!("{toml}: gradient of {name}"), found, expected, 1e-4);
            }
        }
    }
}

#[test]
fn composed_gradients_are_finite_differences() {
    const STEP: f64 = 1e-5;
    for toml in MODELS {
        let network = network(toml);
        let composed = Composed::new(&network, DType::F64, &Device::Cpu).unwrap();
        let [(first, _), (ids, targets)] = <[_; SEGMENTS]>::try_from(segments()).unwrap();
        let mut state = composed.memory(BATCH).unwrap();
        composed.logits(&Input::tokens(&first, BATCH), &mut state).unwrap();
        let loss = || composed.loss(&Input::tokens(&ids, BATCH), &targets, &mut state.clone(), &TRAINING).unwrap().0;
        let store = loss().backward().unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        for (name, var) in composed.vars() {
            let weights = var.flatten_all().unwrap().to_vec1::<f64>().unwrap();
            let entry = rng.random_range(0..weights.len());
            let with = |step: f64| {
                let mut weights = weights.clone();
                weights[entry] += step;
                var.set(&Tensor::from_vec(weights, var.shape(), &Device::Cpu).unwrap()).unwrap();
                loss().to_scalar::<f64>().unwrap()
            };
            let slope = (with(STEP) - with(-STEP)) / (2.0 * STEP);
            with(0.0);
            let gradient =
                store.get(var).map_or(0.0, |gradient| gradient.flatten_all().unwrap().to_vec1::<f64>().unwrap()[entry]);
            assert!((gradient - slope).abs() < 1e-7 + 1e-5 * slope.abs(), "{toml}: {name}: {gradient} and {slope}");
        }
    }
}

/// The bias that ends a block is added to what it gives for each token: its gradient is the sum of theirs.
#[test]
fn probes_have_the_gradients_of_activations() {
    let network = network("backbone='gpt2'\nlayers='s f s f'");
    let composed = Composed::new(&network, DType::F64, &Device::Cpu).unwrap();
    let (ids, targets) = segments().remove(0);
    let mut state = composed.memory(BATCH).unwrap();
    let (loss, activations) = composed.loss(&Input::tokens(&ids, BATCH), &targets, &mut state, &TRAINING).unwrap();
    let store = loss.backward().unwrap();
    let biases: Vec<_> = composed.vars().filter(|(name, _)| name.ends_with("c_proj.bias")).collect();
    assert_eq!(biases.len(), activations.len());
    for ((name, bias), activation) in biases.iter().zip(&activations) {
        let sum = store.get(&activation.probe).unwrap().sum(0).unwrap();
        close(name, &floats(&sum), &floats(store.get(bias).unwrap()), 1e-6);
        assert_eq!(activation.value.dims(), [BATCH * LEN, 8]);
    }
}

/// Gradients can be differentiated again. candle keeps their graph only if its variable is set, so this runs itself.
#[test]
fn hessian_times_a_vector() {
    const KEEP: &str = "CANDLE_GRAD_DO_NOT_DETACH";
    if std::env::var(KEEP).is_err() {
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        let output = again.args(["--exact", "composed::hessian_times_a_vector"]).env(KEEP, "1").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        return;
    }
    const STEP: f64 = 1e-5;
    for toml in MODELS {
        let network = network(toml);
        let composed = Composed::new(&network, DType::F64, &Device::Cpu).unwrap();
        let (ids, targets) = segments().remove(0);
        let gradients = || -> Vec<Tensor> {
            let mut state = composed.memory(BATCH).unwrap();
            let (loss, _) = composed.loss(&Input::tokens(&ids, BATCH), &targets, &mut state, &TRAINING).unwrap();
            let store = loss.backward().unwrap();
            composed.vars().map(|(_, var)| store.get(var).cloned().unwrap_or(var.zeros_like().unwrap())).collect()
        };
        let mut rng = ChaCha8Rng::seed_from_u64(4);
        let mut direction = |var: &Tensor| {
            let numbers: Vec<f64> = (0..var.elem_count()).map(|_| rng.random_range(-1.0..1.0)).collect();
            Tensor::from_vec(numbers, var.shape(), &Device::Cpu).unwrap()
        };
        let vector: Vec<Tensor> = composed.vars().map(|(_, var)| direction(var)).collect();
        let first = gradients();
        let along = first.iter().zip(&vector).map(|(g, v)| (g * v).unwrap().sum_all().unwrap());
        let products = along.reduce(|a, b| (a + b).unwrap()).unwrap().backward().unwrap();

        let start: Vec<Tensor> = composed.vars().map(|(_, var)| var.as_tensor().copy().unwrap().detach()).collect();
        let moved = |step: f64| {
            for ((w, v), (_, var)) in start.iter().zip(&vector).zip(composed.vars()) {
                var.set(&(w + (v * step).unwrap()).unwrap()).unwrap();
            }
            gradients()
        };
        let (after, before) = (moved(STEP), moved(-STEP));
        for (((name, var), after), before) in composed.vars().zip(&after).zip(&before) {
            let expected = ((after - before).unwrap() / (2.0 * STEP)).unwrap();
            let found = products.get(var).cloned().unwrap_or(var.zeros_like().unwrap());
            close(&format!("{toml}: {name}"), &floats(&found), &floats(&expected), 1e-5);
        }
    }
}

#[test]
fn no_token_sees_a_later_one() {
    for toml in MODELS {
        let network = network(toml);
        let composed = Composed::new(&network, DType::F32, &Device::Cpu).unwrap();
        let [(first, _), (ids, _)] = <[_; SEGMENTS]>::try_from(segments()).unwrap();
        let mut state = network.init_memory(BATCH);
        let mut composed_state = composed.memory(BATCH).unwrap();
        network.logits(&Input::tokens(&first, BATCH), &mut state);
        composed.logits(&Input::tokens(&first, BATCH), &mut composed_state).unwrap();
        let logits = |ids: &[u32]| {
            let composed = composed.logits(&Input::tokens(ids, BATCH), &mut composed_state.clone()).unwrap();
            (network.logits(&Input::tokens(ids, BATCH), &mut state.clone()).to_vec(), floats(&composed))
        };
        let (fused, graph) = logits(&ids);
        for t in 0..LEN {
            let mut changed = ids.clone();
            (0..BATCH).for_each(|b| changed[b * LEN + t] = (ids[b * LEN + t] + 1) % VOCAB);
            let (other, other_graph) = logits(&changed);
            let width = VOCAB as usize;
            for b in 0..BATCH {
                let before = b * LEN * width..(b * LEN + t) * width;
                assert_eq!(other[before.clone()], fused[before.clone()], "{toml}: {t}");
                if t > 0 {
                    close(toml, &other_graph[before.clone()], &graph[before], 1e-6);
                }
                let own = (b * LEN + t) * width..(b * LEN + t + 1) * width;
                assert_ne!(other[own.clone()], fused[own], "{toml}: {t} sees itself");
            }
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_bits() {
    for toml in MODELS {
        let run = |threads: usize, seed: u64| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let toml = format!("{toml}\nd_model=40\nheads=5\nvocab=31\ndropout=0.1\nattn_dropout=0.1\nmax_len=99");
                let network = Network::new(crate::model(&toml), seed).unwrap();
                let mut grads = Grads::new(network.params());
                let (batch, len) = (4, 33);
                let mut state = network.init_memory(batch);
                let ids: Vec<u32> = (0..batch * len).map(|i| (i * i % 31) as u32).collect();
                let training = Training { dropout_key: Some(7), ..TRAINING };
                let mut results = Vec::new();
                for _ in 0..2 {
                    let outcome =
                        network.train(&Input::tokens(&ids, batch), &Targets(&ids), &mut state, &training, &mut grads);
                    results.push(outcome.losses);
                }
                results.extend_from_slice(grads.finish());
                results.into_iter().map(|list| list.into_iter().map(f32::to_bits).collect()).collect::<Vec<Vec<u32>>>()
            })
        };
        let first = run(1, 5);
        assert!(first == run(1, 5), "{toml}");
        assert!(first == run(2, 5), "{toml}: on two threads");
        assert!(first != run(1, 6), "{toml}: another seed");
    }
}
