//! Distillation: each term against PyTorch (`oracles/distill.py`), steps, what a student that is its teacher learns, finite
//! differences, and blocks that learn by themselves.

use lathe_core::{Block, Spec, notation};
use lathe_model::{Grads, Input, Local, LocalTraining, Network, Projections, REGISTRY, Seen, SuperNet, Taps, Training};
use lathe_ops::loss::IGNORE;
use lathe_ops::loss::soft::{self, Terms};
use lathe_ops::loss::states::Measure;
use lathe_train::data::Batch;
use lathe_train::distill::{Lesson, NAMES, OptionTraining, Source, train_options};
use lathe_train::optimizer::{Optimizer, Rule};
use lathe_train::settings::Settings;
use lathe_train::tasks::Batches;
use safetensors::{Dtype, SafeTensors};
use std::cell::RefCell;
use std::collections::HashMap;

/// A file of the oracle.
struct Fixture {
    floats: HashMap<String, (Vec<usize>, Vec<f32>)>,
    ids: Vec<u32>,
    targets: Vec<u32>,
    metadata: HashMap<String, String>,
}

const BATCH: usize = 2;

impl Fixture {
    fn read(name: &str) -> Self {
        let path = format!("{}/tests/it/fixtures/distill/{name}.safetensors", env!("CARGO_MANIFEST_DIR"));
        let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let (mut floats, mut ints) = (HashMap::new(), HashMap::new());
        for (name, tensor) in tensors.iter() {
            if tensor.dtype() == Dtype::I64 {
                let of = |b: &[u8]| u32::try_from(i64::from_le_bytes(b.try_into().unwrap())).unwrap_or(IGNORE);
                ints.insert(name.to_string(), tensor.data().chunks_exact(8).map(of).collect::<Vec<_>>());
            } else {
                let data = tensor.data().chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
                floats.insert(name.to_string(), (tensor.shape().to_vec(), data));
            }
        }
        let [ids, targets] = ["ids", "targets"].map(|name| ints.remove(name).unwrap());
        Self { floats, ids, targets, metadata: header.metadata().clone().unwrap() }
    }

    fn get(&self, name: &str) -> &[f32] {
        &self.floats.get(name).unwrap_or_else(|| panic!("{name} in the fixture")).1
    }

    fn network(&self, who: &str) -> Network {
        let model = Spec::from_toml(&self.metadata[who], &REGISTRY).unwrap().model(&REGISTRY).unwrap();
        let mut network = Network::new(model, 0).unwrap();
        network.params_mut().for_each(|param| param.set_data(self.get(&format!("{who}.{}", param.name)).to_vec()));
        network
    }

    fn input(&self) -> Input<'_> {
        Input::tokens(&self.ids, BATCH)
    }

    fn counted(&self) -> usize {
        self.targets.iter().filter(|&&target| target != IGNORE).count()
    }

    /// Student layers 1 and 2 learn from teacher layers 2 and 4, each of two slots.
    fn projections(&self) -> Projections {
        let mut projections = Projections::new([(12, 16), (12, 16)], 0);
        for (i, param) in projections.params_mut().enumerate() {
            param.set_data(self.get(&format!("projection.{i}")).to_vec());
        }
        projections
    }
}

const STUDENT: Taps = Taps { hidden: Vec::new(), maps: Vec::new(), from: 0, until: None };

/// The weights of a term of the oracle: of logits, of hidden states, of maps; and how hidden states are compared.
fn weights(term: &str) -> (Terms, [f32; 2], Measure) {
    let none = Terms { ce: 0.0, kl: 0.0, mse: 0.0, temperature: 2.0 };
    let relative = Measure::Relative;
    match term {
        "ce" => (Terms { ce: 1.0, ..none }, [0.0; 2], relative),
        "kl" | "top" => (Terms { kl: 1.0, ..none }, [0.0; 2], relative),
        "mse" => (Terms { mse: 1.0, ..none }, [0.0; 2], relative),
        "hidden" => (none, [1.0, 0.0], relative),
        "hidden_mse" => (none, [1.0, 0.0], Measure::Mean),
        "attention" => (none, [0.0, 1.0], relative),
        "all" => (Terms { ce: 0.3, kl: 0.5, mse: 0.2, ..none }, [0.7, 0.4], relative),
        _ => unreachable!("{term}"),
    }
}

/// The loss of a term and the gradients of student and projections, with the sums of its parts.
fn learn(
    fixture: &Fixture,
    term: &str,
    (student, teacher): (&Network, &Network),
    projections: &Projections,
    grads: &mut Grads,
    of_projections: &RefCell<Grads>,
) -> (f64, [f64; NAMES.len()]) {
    let (terms, weights, measure) = weights(term);
    let taps = Taps { hidden: vec![4, 8], maps: vec![2, 6], ..STUDENT };
    let (last, seen) = teacher.look(&fixture.input(), &mut teacher.init_memory(BATCH), &taps);
    let source = match term {
        "ce" => Source::None,
        "top" => {
            let rows = Lesson::rows(&fixture.targets);
            let logits = teacher.outputs(&last.unwrap());
            Source::Top(soft::top_k(&logits, teacher.model.frame.vocab as usize, 4, 2.0).select(&rows))
        }
        _ => Source::Network(teacher, last.unwrap()),
    };
    let tapped = weights != [0.0; 2];
    let taps = Taps { hidden: vec![2, 4], maps: vec![0, 2], ..STUDENT };
    let lesson = Lesson {
        targets: &fixture.targets,
        examples: None,
        real: None,
        batch: BATCH,
        terms,
        source,
        taps: if tapped { taps } else { STUDENT },
        teacher: if tapped { seen } else { Seen::default() },
        first_pair: 0,
        weights: weights.map(|weight| weight / 2.0),
        measure,
        share: fixture.counted() as f32 / fixture.ids.len() as f32,
        projections,
        grads: of_projections,
        sums: RefCell::default(),
    };
    let scale = 1.0 / fixture.counted() as f32;
    let training = Training { dropout_key: None, balance: 0.0, scale };
    let mut state = student.init_memory(BATCH);
    let outcome = student.train(&fixture.input(), &lesson, &mut state, &training, grads);
    let loss = outcome.losses.iter().map(|&loss| f64::from(loss)).sum::<f64>() * f64::from(scale);
    (loss, lesson.sums.into_inner())
}

#[track_caller]
fn close(what: &str, found: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let most = expected.iter().fold(1e-3f32, |most, x| most.max(x.abs()));
    let worst = found.iter().zip(expected).fold(0.0f32, |worst, (a, b)| worst.max((a - b).abs()));
    assert!(worst <= tolerance * most, "{what}: off by {worst} where the largest is {most}");
}

const CASES: [&str; 2] = ["llama", "bert"];
const TERMS: [&str; 8] = ["ce", "kl", "mse", "top", "hidden", "hidden_mse", "attention", "all"];

#[test]
fn terms_are_pytorchs() {
    for case in CASES {
        let fixture = Fixture::read(case);
        let (student, teacher) = (fixture.network("narrow"), fixture.network("teacher"));
        let projections = fixture.projections();
        for term in TERMS {
            let what = format!("{case} {term}");
            let mut grads = Grads::new(student.params());
            grads.clear();
            let of_projections = RefCell::new(Grads::new(projections.params()));
            of_projections.borrow_mut().clear();
            let pair = (&student, &teacher);
            let (loss, sums) = learn(&fixture, term, pair, &projections, &mut grads, &of_projections);
            close(&what, &[loss as f32], fixture.get(&format!("{term}.loss")), 1e-4);
            if let Some(at) = NAMES.iter().position(|name| name.starts_with(term)) {
                let over = if at < 3 { fixture.counted() } else { 2 * fixture.ids.len() };
                close(&what, &[(sums[at] / over as f64) as f32], &[loss as f32], 1e-5);
            }
            for (param, grad) in student.params().iter().zip(grads.finish()) {
                let expected = fixture.get(&format!("{term}.grad.{}", param.name));
                close(&format!("{what} {}", param.name), grad, expected, 1e-3);
            }
            for (i, grad) in of_projections.into_inner().finish().iter().enumerate() {
                close(&format!("{what} projection {i}"), grad, fixture.get(&format!("{term}.projection.{i}")), 1e-3);
            }
        }
    }
}

#[test]
fn steps_are_pytorchs() {
    for case in CASES {
        let fixture = Fixture::read(case);
        let (mut student, teacher) = (fixture.network("narrow"), fixture.network("teacher"));
        let mut projections = fixture.projections();
        let settings = Settings { clip: 0.0, ..Settings::default() };
        let mut optimizer = Optimizer::new(Rule::AdamW, &settings, student.params());
        let mut beside = Optimizer::new(Rule::AdamW, &settings, projections.params());
        let mut grads = Grads::new(student.params());
        let of_projections = RefCell::new(Grads::new(projections.params()));
        for (step, expected) in (1..).zip(fixture.get("steps.loss")) {
            grads.clear();
            of_projections.borrow_mut().clear();
            let (loss, _) = learn(&fixture, "all", (&student, &teacher), &projections, &mut grads, &of_projections);
            close(&format!("{case}: step {step}"), &[loss as f32], &[*expected], 1e-4);
            optimizer.step(student.params_mut(), &mut grads, step, 0.01);
            beside.step(projections.params_mut(), &mut of_projections.borrow_mut(), step, 0.01);
        }
    }
}

/// A lesson of hidden states and maps that is nothing but taps, for any two networks of one width.
fn taps_alone(student: &Network, teacher: &Network, ids: &[u32], taps: Taps, grads: &mut Grads) -> f64 {
    let projections = Projections::new(taps.hidden.iter().map(|_| (1, 1)), 0);
    let of_projections = RefCell::new(Grads::new(projections.params()));
    let input = Input::tokens(ids, BATCH);
    let (_, seen) =
        teacher.look(&input, &mut teacher.init_memory(BATCH), &Taps { from: 0, until: None, ..taps.clone() });
    let lesson = Lesson {
        targets: &vec![IGNORE; ids.len()],
        examples: None,
        real: None,
        batch: BATCH,
        terms: Terms { ce: 0.0, kl: 0.0, mse: 0.0, temperature: 1.0 },
        source: Source::None,
        taps,
        teacher: seen,
        first_pair: 0,
        weights: [0.8, 0.6],
        measure: Measure::Relative,
        share: 1.0,
        projections: &projections,
        grads: &of_projections,
        sums: RefCell::default(),
    };
    let training = Training { dropout_key: None, balance: 0.0, scale: 1.0 / ids.len() as f32 };
    let outcome = student.train(&input, &lesson, &mut student.init_memory(BATCH), &training, grads);
    outcome.losses.iter().map(|&loss| f64::from(loss)).sum::<f64>() / ids.len() as f64
}

fn small(backbone: &str, layers: &str, seed: u64) -> Network {
    let lengths = if backbone == "transformer_xl" { "tgt_len=5\nmem_len=3" } else { "max_len=8" };
    let sizes = "d_model=8\nheads=2\ninner=12\nvocab=11";
    let toml = format!("backbone='{backbone}'\nlayers='{layers}'\n{sizes}\n{lengths}");
    let model = Spec::from_toml(&toml, &REGISTRY).unwrap().model(&REGISTRY).unwrap();
    let mut network = Network::new(model, seed).unwrap();
    // Fresh weights are so small that attention is uniform.
    network.params_mut().filter(|p| p.shape.len() > 1).for_each(|p| p.data.iter_mut().for_each(|x| *x *= 15.0));
    network
}

const IDS: [u32; 10] = [1, 5, 2, 7, 3, 10, 0, 4, 9, 6];

/// The largest difference of gradients from finite differences, over a few weights of every parameter, relative to the
/// largest gradient.
#[test]
fn taps_are_finite_differences() {
    for backbone in ["gpt2", "transformer_xl", "llama", "bert"] {
        let (mut student, teacher) = (small(backbone, "s f s f", 1), small(backbone, "s f s f", 2));
        let taps = || Taps { hidden: vec![0, 2, 4], maps: vec![0, 2], from: 0, until: Some(4) };
        let mut grads = Grads::new(student.params());
        grads.clear();
        taps_alone(&student, &teacher, &IDS, taps(), &mut grads);
        let gradients = grads.finish().to_vec();
        let most = gradients.iter().flatten().fold(0.0f32, |most, x| most.max(x.abs()));
        for (p, gradient) in gradients.iter().enumerate() {
            for place in [0, gradient.len() / 2, gradient.len() - 1] {
                let mut loss = |step: f32| {
                    let param = student.params_mut().nth(p).unwrap();
                    let before = param.data[place];
                    param.data[place] = before + step;
                    let mut unused = Grads::new(student.params());
                    let loss = taps_alone(&student, &teacher, &IDS, taps(), &mut unused);
                    student.params_mut().nth(p).unwrap().data[place] = before;
                    loss
                };
                let slope = (loss(1e-3) - loss(-1e-3)) / 2e-3;
                let off = (slope - f64::from(gradient[place])).abs();
                let name = student.params().iter().nth(p).unwrap().name.clone();
                assert!(off < 5e-3 * f64::from(most), "{backbone} {name} {place}: {slope} and {}", gradient[place]);
            }
        }
    }
}

/// A pass that ends where nothing more is wanted, and a way back that ends where nothing more learns, change nothing of what
/// is left.
#[test]
fn a_part_of_a_pass_is_a_part_of_the_whole() {
    for backbone in ["gpt2", "transformer_xl", "llama", "bert"] {
        let (student, teacher) = (small(backbone, "s f s f s f", 1), small(backbone, "s f s f s f", 2));
        let whole = Taps { hidden: vec![4], maps: vec![2], from: 0, until: Some(6) };
        let gradients = |taps: Taps| {
            let mut grads = Grads::new(student.params());
            grads.clear();
            let loss = taps_alone(&student, &teacher, &IDS, taps, &mut grads);
            (loss, grads.finish().to_vec())
        };
        let (loss, expected) = gradients(whole.clone());
        let (part_loss, part) = gradients(Taps { until: Some(4), ..whole.clone() });
        assert_eq!((part_loss, &part), (loss, &expected), "{backbone}");
        let (upper_loss, upper) = gradients(Taps { until: Some(4), from: 2, ..whole });
        assert_eq!(upper_loss, loss);
        let learns = student.slot(2).params.start;
        assert!(upper[..learns].iter().flatten().all(|g| *g == 0.0), "{backbone}: nothing learns below");
        assert_eq!(upper[learns..], expected[learns..], "{backbone}");
        assert!(expected[..learns].iter().flatten().any(|g| *g != 0.0));
    }
}

/// A student that is its teacher has nothing to learn.
#[test]
fn a_copy_learns_nothing() {
    for case in CASES {
        let fixture = Fixture::read(case);
        let (student, teacher) = (fixture.network("teacher"), fixture.network("teacher"));
        let rows = fixture.targets.len();
        let taps = Taps { hidden: vec![0, 2, 8], maps: vec![0, 6], ..STUDENT };
        let (last, seen) = teacher.look(&fixture.input(), &mut teacher.init_memory(BATCH), &taps);
        let projections = Projections::new([(16, 16); 3], 0);
        let of_projections = RefCell::new(Grads::new(projections.params()));
        let lesson = Lesson {
            targets: &fixture.targets,
            examples: None,
            real: None,
            batch: BATCH,
            terms: Terms { ce: 0.0, kl: 1.0, mse: 1.0, temperature: 3.0 },
            source: Source::Network(&teacher, last.unwrap()),
            taps,
            teacher: seen,
            first_pair: 0,
            weights: [1.0; 2],
            measure: Measure::Relative,
            share: 1.0,
            projections: &projections,
            grads: &of_projections,
            sums: RefCell::default(),
        };
        let training = Training { dropout_key: None, balance: 0.0, scale: 1.0 / rows as f32 };
        let mut grads = Grads::new(student.params());
        grads.clear();
        let mut state = student.init_memory(BATCH);
        let outcome = student.train(&fixture.input(), &lesson, &mut state, &training, &mut grads);
        assert!(outcome.losses.iter().all(|loss| loss.abs() < 1e-5), "{case}: {:?}", outcome.losses);
        for (param, grad) in student.params().iter().zip(grads.finish()) {
            assert!(grad.iter().all(|g| g.abs() < 1e-6), "{case}: {}", param.name);
        }
    }
}

/// The hidden states that enter each slot of a network and leave the last.
fn states(network: &Network, input: &Input<'_>) -> Vec<std::sync::Arc<lathe_ops::buffer::Buf>> {
    let slots = network.layers().len();
    let taps = Taps { hidden: (0..=slots).collect(), until: Some(slots), ..STUDENT };
    let (_, seen) = network.look(input, &mut network.init_memory(input.batch), &taps);
    seen.hidden.into_iter().map(|seen| seen.unwrap()).collect()
}

fn locals(network: &Network, input: &Input<'_>) -> Vec<Local> {
    let states = states(network, input);
    let local = |s: usize| Local { slots: s..s + 1, input: states[s].clone(), wanted: states[s + 1].clone() };
    (0..states.len() - 1).map(local).collect()
}

fn local_training(tokens: usize) -> LocalTraining {
    let training = Training { dropout_key: None, balance: 0.0, scale: 1.0 / tokens as f32 };
    LocalTraining { training, measure: Measure::Relative, first: 0 }
}

#[test]
fn blocks_alone_are_pytorchs() {
    for case in CASES {
        let fixture = Fixture::read(case);
        let (student, teacher) = (fixture.network("student"), fixture.network("teacher"));
        let (input, tokens) = (fixture.input(), fixture.ids.len());
        let mut grads = Grads::new(student.params());
        grads.clear();
        let mut state = student.init_memory(BATCH);
        let locals = locals(&teacher, &input);
        let (losses, _) = student.train_local(&input, &locals, &mut state, &local_training(tokens), &mut grads);
        let means: Vec<f32> = losses.iter().map(|loss| (loss / tokens as f64) as f32).collect();
        close(case, &means, fixture.get("local.loss"), 1e-4);
        for (param, grad) in student.params().iter().zip(grads.finish()) {
            let expected = fixture.get(&format!("local.grad.{}", param.name));
            close(&format!("{case} {}", param.name), grad, expected, 1e-3);
        }
    }
}

/// Blocks that are the teacher's have no loss; of one that is not, the loss falls, and no other block moves.
#[test]
fn a_perturbed_block_comes_back() {
    for backbone in ["gpt2", "transformer_xl", "llama", "bert"] {
        let (mut student, teacher) = (small(backbone, "s f s f", 1), small(backbone, "s f s f", 1));
        let input = Input::tokens(&IDS, BATCH);
        let locals = locals(&teacher, &input);
        let mut grads = Grads::new(student.params());
        let learn = |student: &Network, grads: &mut Grads| {
            grads.clear();
            let how = local_training(IDS.len());
            student.train_local(&input, &locals, &mut student.init_memory(BATCH), &how, grads).0
        };
        assert!(learn(&student, &mut grads).iter().all(|loss| *loss < 1e-9), "{backbone}");
        assert!(grads.finish().iter().flatten().all(|g| g.abs() < 1e-6), "{backbone}");
        let perturbed = student.slot(2).params;
        for param in student.params_mut().skip(perturbed.start).take(perturbed.len()) {
            param.data.iter_mut().enumerate().for_each(|(i, x)| *x += 0.2 * (i as f32).sin());
        }
        let settings = Settings { weight_decay: 0.0, ..Settings::default() };
        let mut optimizer = Optimizer::new(Rule::AdamW, &settings, student.params());
        let first = learn(&student, &mut grads);
        let mut last = first.clone();
        for step in 1..=60 {
            optimizer.step(student.params_mut(), &mut grads, step, 0.01);
            last = learn(&student, &mut grads);
        }
        assert!(last[2] < 0.2 * first[2], "{backbone}: {} to {}", first[2], last[2]);
        for slot in [0, 1, 3] {
            assert!(last[slot] < 1e-3 * first[2], "{backbone}: slot {slot} had nothing to learn");
        }
    }
}

/// The same batch in every step.
struct Again;

impl Batches for Again {
    fn batch(&self, _: u64) -> lathe_train::Result<Batch> {
        Ok(Batch { rows: BATCH, ids: IDS.to_vec(), targets: IDS.to_vec(), fresh: true, ..Batch::default() })
    }

    fn steps_per_epoch(&self) -> u64 {
        1
    }
}

fn blocks(text: &str) -> Vec<Block> {
    notation::parse(text, &REGISTRY).unwrap()
}

#[test]
fn options_of_slots_learn_apart_and_go_on_after_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    for backbone in ["llama", "transformer_xl"] {
        let teacher = small(backbone, "s f", 1);
        let settings = Settings { steps: 12, batch: 2, lr: 0.01, checkpoint_every: 5, keep: 9, ..Settings::default() };
        let run = |name: &str, slots: &[Vec<Block>], steps: u32| {
            let settings = Settings { steps, ..settings.clone() };
            let net = SuperNet::new(teacher.model.frame.clone(), slots, 3).unwrap();
            let how = OptionTraining {
                teacher: &teacher,
                batches: &Again,
                settings: &settings,
                measure: Measure::Relative,
                first: 0,
                folder: &folder.path().join(format!("{backbone} {name}")),
            };
            let mut first = None;
            let (net, losses) = train_options(&how, net, &mut |step, losses| {
                if step == 1 {
                    first = Some(losses.clone());
                }
            })
            .unwrap();
            (net, losses, first)
        };
        let slots = [blocks("s s1 -"), blocks("f f4 -")];
        let (net, losses, first) = run("whole", &slots, 12);
        let first = first.unwrap();
        for (slot, option) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            assert!(losses[slot][option] < first[slot][option], "{backbone} {slot} {option}");
        }
        // What leaves a block out is as far off in every step.
        assert!((losses[0][2] - first[0][2]).abs() < 1e-6 && losses[0][2] > 0.0);
        // An option alone becomes what it becomes among others.
        let weights = |net: &SuperNet, choice: &[usize]| -> Vec<f32> {
            net.network(choice).unwrap().params().iter().flat_map(|param| param.data.clone()).collect()
        };
        let (alone, of_alone, _) = run("alone", &[blocks("s"), blocks("f")], 12);
        assert_eq!(of_alone, [vec![losses[0][0]], vec![losses[1][0]]], "{backbone}");
        assert_eq!(weights(&alone, &[0, 0]), weights(&net, &[0, 0]), "{backbone}");
        // Stopped between 5 and 10 steps, it goes on from its checkpoint after 5 to the same bits.
        let stopped = folder.path().join(format!("{backbone} stopped"));
        run("stopped", &slots, 12);
        for step in [10, 12] {
            std::fs::remove_dir_all(lathe_train::checkpoint::path(&stopped.join("checkpoints"), step)).unwrap();
        }
        let (resumed, of_resumed, began) = run("stopped", &slots, 12);
        assert!(began.is_none(), "{backbone}: it does not begin anew");
        assert_eq!((of_resumed, weights(&resumed, &[1, 1])), (losses, weights(&net, &[1, 1])), "{backbone}");
    }
}
