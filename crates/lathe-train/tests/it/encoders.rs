//! Fine-tuned encoders against `transformers`: numbers, loss, every gradient and ten steps of AdamW, from folders that
//! `oracles/encoders.py` saved; and these folders both ways.

use lathe_model::{Grads, Input, Network, REGISTRY, Taps, Training, folder};
use lathe_ops::loss::IGNORE;
use lathe_ops::loss::soft::Terms;
use lathe_ops::loss::states::Measure;
use lathe_train::distill::{Lesson, Source};
use lathe_train::optimizer::{Optimizer, Rule};
use lathe_train::settings::Settings;
use lathe_train::tasks::{self, Sequences, Task};
use safetensors::{Dtype, SafeTensors};
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;

/// Of other families than BERT: `roberta_classify`.
#[rustfmt::skip]
const CASES: &[&str] = &[
    "classify", "regress", "choose", "span", "embed",
    "roberta_classify", "roberta_regress", "roberta_choose", "roberta_span",
    "distilbert_classify", "distilbert_regress", "distilbert_span", "distilbert_embed",
    "albert_classify", "albert_choose", "albert_span", "albert_embed",
    "mpnet_classify", "mpnet_choose", "mpnet_span", "mpnet_embed",
    "mobilebert_classify", "mobilebert_choose", "mobilebert_span", "mobilebert_embed",
];

/// Masked tokens and pairs of texts.
const PAIRS: &[&str] = &["pretraining", "albert_pretraining", "mobilebert_pretraining"];

/// What the names of its weights begin with.
fn prefix(case: &str) -> &str {
    case.rsplit_once('_').map_or("bert", |(family, _)| family)
}

/// Numbers of the tokens that are there, of all that stand in a batch.
fn of_real(numbers: &[f32], mask: &[bool]) -> Vec<f32> {
    let of_each = numbers.len() / mask.len();
    numbers.chunks_exact(of_each).zip(mask).filter(|(_, real)| **real).flat_map(|(token, _)| token).copied().collect()
}

/// What a case is trained for.
fn task_of(case: &str) -> &str {
    case.rsplit('_').next().unwrap()
}

fn place(case: &str) -> PathBuf {
    PathBuf::from(format!("{}/tests/it/fixtures/encoders/{case}", env!("CARGO_MANIFEST_DIR")))
}

struct Fixture {
    floats: HashMap<String, Vec<f32>>,
    ids: Vec<u32>,
    mask: Vec<bool>,
    segments: Option<Vec<u32>>,
    /// [B, T], as a task has them.
    targets: Vec<u32>,
    batch: usize,
}

impl Fixture {
    fn read(case: &str) -> Self {
        let bytes = std::fs::read(place(case).join("expected.safetensors")).unwrap();
        let (mut floats, mut ints, mut batch) = (HashMap::new(), HashMap::new(), 0);
        for (name, tensor) in SafeTensors::deserialize(&bytes).unwrap().iter() {
            if tensor.dtype() == Dtype::I64 {
                let values = tensor.data().chunks_exact(8).map(|b| i64::from_le_bytes(b.try_into().unwrap()) as u32);
                ints.insert(name.to_string(), values.collect::<Vec<u32>>());
                batch = if name == "ids" { tensor.shape()[0] } else { batch };
            } else {
                let values = tensor.data().chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()));
                floats.insert(name.to_string(), values.collect::<Vec<f32>>());
            }
        }
        let wanted: Vec<u32> = match task_of(case) {
            "regress" | "embed" => floats["targets"].iter().map(|value| value.to_bits()).collect(),
            "span" => ints["targets"].chunks_exact(2).map(|pair| pair[0] << 16 | pair[1]).collect(),
            _ => ints["targets"].clone(),
        };
        if task_of(case) == "pretraining" {
            // That of the pair stands at the first token.
            let mut targets: Vec<u32> =
                wanted.into_iter().map(|target| if target == -100i32 as u32 { IGNORE } else { target }).collect();
            let len = targets.len() / batch;
            targets.iter_mut().step_by(len).zip(&ints["pairs"]).for_each(|(target, &pair)| *target = pair);
            let mask = ints["mask"].iter().map(|&real| real == 1).collect();
            let (ids, segments) = (ints.remove("ids").unwrap(), ints.remove("segments"));
            return Self { floats, ids, mask, segments, targets, batch };
        }
        // At the first token of each example, some of which have two rows.
        let (len, rows) = (ints["ids"].len() / batch, batch / wanted.len());
        let mut targets = vec![IGNORE; batch * len];
        wanted.iter().enumerate().for_each(|(i, &target)| targets[i * rows * len] = target);
        let mask = ints["mask"].iter().map(|&real| real == 1).collect();
        Self { floats, ids: ints.remove("ids").unwrap(), mask, segments: ints.remove("segments"), targets, batch }
    }

    fn input(&self) -> Input<'_> {
        Input { mask: Some(&self.mask), segments: self.segments.as_deref(), ..Input::tokens(&self.ids, self.batch) }
    }

    /// The mean loss, and its gradients.
    fn train(&self, task: &dyn Task, network: &Network, grads: &mut Grads) -> f32 {
        let counted = self.targets.iter().filter(|&&target| target != IGNORE).count() as f32;
        let training = Training { dropout_key: None, balance: 0.0, scale: 1.0 / counted };
        grads.clear();
        let objective = task.objective(Sequences::new(self.input(), &self.targets));
        let mut state = network.init_memory(self.batch);
        let losses = network.train(&self.input(), &*objective, &mut state, &training, grads).losses;
        losses.iter().sum::<f32>() / counted
    }
}

/// Largest difference, relative to the largest entry.
fn difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let most = b.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    a.iter().zip(b).fold(0.0f32, |worst, (a, b)| worst.max((a - b).abs())) / most.max(1e-3)
}

#[test]
fn fine_tuning_goes_as_in_transformers() {
    for &case in CASES.iter().chain(PAIRS) {
        let fixture = Fixture::read(case);
        let mut network = folder::load(&place(case), &REGISTRY).unwrap();
        let name = task_of(case);
        let asked = match name {
            "embed" => name,
            "pretraining" if case.starts_with("albert") => "masked_sop",
            "pretraining" => "masked_nsp",
            _ => "",
        };
        let task = tasks::find(asked, &network.model).unwrap();
        assert!(!asked.is_empty() || task.key() == name, "{case}: what a folder is for");
        let rows = Sequences::new(fixture.input(), &fixture.targets);
        let hidden = network.hidden(&fixture.input(), &mut network.init_memory(fixture.batch));
        let values = match task.of_examples() {
            Some(task) => task.numbers(&network, &rows, &hidden).unwrap(),
            None => {
                let (found, expected) = (network.outputs(&hidden), &fixture.floats["token_logits"]);
                let tokens = difference(&of_real(&found, &fixture.mask), &of_real(expected, &fixture.mask));
                assert!(tokens < 1e-4, "{case}: numbers of tokens");
                network.task_outputs(&hidden, fixture.batch).unwrap()
            }
        };
        // Where each token has numbers, those of padding are of nothing.
        let real = |x: &[f32]| if name == "span" { of_real(x, &fixture.mask) } else { x.to_vec() };
        assert!(difference(&real(&values), &real(&fixture.floats["logits"])) < 1e-4, "{case}: numbers");

        let mut grads = Grads::new(network.params());
        let loss = fixture.train(task, &network, &mut grads);
        assert!((loss - fixture.floats["loss"][0]).abs() < 1e-4 * loss, "{case}: loss {loss}");
        let mut reached = 0;
        for (param, grad) in network.params().iter().zip(grads.finish()) {
            // A model without an output layer saves its names without a prefix.
            let bare = param.name.split_once('.').map(|(_, name)| name).filter(|_| name == "embed");
            let name = bare.unwrap_or(&param.name);
            match fixture.floats.get(&format!("grad.{name}")) {
                Some(expected) => {
                    let apart = difference(grad, expected);
                    assert!(apart < 1e-3, "{case}: gradient of {name} {apart}");
                    reached += 1;
                }
                None => assert!(grad.iter().all(|&g| g == 0.0), "{case}: {name}"),
            }
        }
        assert_eq!(reached, fixture.floats.keys().filter(|name| name.starts_with("grad.")).count(), "{case}");

        let settings = Settings { beta2: 0.999, weight_decay: 0.01, clip: 1.0, ..Settings::default() };
        let mut optimizer = Optimizer::new(Rule::AdamW, &settings, network.params());
        for (step, &expected) in (1..).zip(&fixture.floats["adamw_losses"]) {
            let loss = fixture.train(task, &network, &mut grads);
            assert!((loss - expected).abs() < 1e-3 * expected, "{case}: step {step}: {loss} and {expected}");
            optimizer.step(network.params_mut(), &mut grads, step, 0.01);
        }
    }
}

#[test]
fn fine_tuned_folders_go_both_ways() {
    for &case in CASES.iter().chain(PAIRS) {
        let network = folder::load(&place(case), &REGISTRY).unwrap();
        let dir = tempfile::tempdir().unwrap();
        folder::save_for_transformers(&network, dir.path()).unwrap();
        let config = |path: PathBuf| -> serde_json::Value {
            serde_json::from_slice(&std::fs::read(path.join("config.json")).unwrap()).unwrap()
        };
        let (theirs, ours) = (config(place(case)), config(dir.path().into()));
        for key in ["architectures", "model_type", "num_hidden_layers", "hidden_act"] {
            assert_eq!(theirs[key], ours[key], "{case}: {key}");
        }
        // These stand for themselves where a model has the usual two labels.
        for key in ["id2label", "label2id"].iter().filter(|_| ["classify", "regress"].contains(&task_of(case))) {
            assert_eq!(theirs[*key], ours[*key], "{case}: {key}");
        }
        let names = |path: PathBuf| -> Vec<String> {
            let bytes = std::fs::read(path.join("model.safetensors")).unwrap();
            let mut names: Vec<String> = SafeTensors::deserialize(&bytes)
                .unwrap()
                .names()
                .into_iter()
                .map(|name| name.strip_prefix(&format!("{}.", prefix(case))).unwrap_or(name).to_string())
                .collect();
            names.sort();
            names
        };
        assert_eq!(names(place(case)), names(dir.path().into()), "{case}");
        let again = folder::load(dir.path(), &REGISTRY).unwrap();
        assert_eq!(again.model, network.model, "{case}");
        for (a, b) in network.params().iter().zip(again.params().iter()) {
            assert_eq!(a.data, b.data, "{case}: {}", a.name);
        }
    }
}

/// sentence-transformers reads a model without its output layer, whatever class `config.json` names.
#[test]
fn folders_of_sentence_transformers_are_read_as_there() {
    let dir = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(place("mpnet_embed").join(file), dir.path().join(file)).unwrap();
    }
    let config = std::fs::read_to_string(dir.path().join("config.json")).unwrap();
    std::fs::write(dir.path().join("config.json"), config.replace("MPNetModel", "MPNetForMaskedLM")).unwrap();
    assert!(folder::load(dir.path(), &REGISTRY).is_err_and(|error| error.to_string().contains("lm_head")));
    std::fs::create_dir(dir.path().join("1_Pooling")).unwrap();
    let pooling = r#"{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}"#;
    std::fs::write(dir.path().join("1_Pooling/config.json"), pooling).unwrap();
    let network = folder::load(dir.path(), &REGISTRY).unwrap();
    assert_eq!((network.has_head(), network.model.frame.word("pooling")), (false, Some("cls")));
    // What is not computed here is refused.
    for (file, text, told) in [
        ("modules.json", r#"[{"type": "sentence_transformers.models.Dense"}]"#, "Dense"),
        ("1_Pooling/config.json", r#"{"pooling_mode_cls_token": true, "pooling_mode_max_tokens": true}"#, "max_tokens"),
    ] {
        std::fs::write(dir.path().join(file), text).unwrap();
        let error = folder::load(dir.path(), &REGISTRY).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(told) && error.contains(file), "{error}");
    }
}

/// A class whose output layer is not known here is not read without it.
#[test]
fn unknown_classes_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for class in ["BertForTokenClassification", "BertLMHeadModel", "BertForNextSentencePrediction"] {
        let config = std::fs::read_to_string(place("classify").join("config.json")).unwrap();
        assert!(config.contains("BertForSequenceClassification"));
        let config = config.replace("BertForSequenceClassification", class);
        std::fs::write(dir.path().join("config.json"), config).unwrap();
        let error = folder::load_model(dir.path(), &REGISTRY).unwrap_err().to_string();
        assert!(error.contains(class) && error.contains("ForMaskedLM"), "{error}");
    }
}

/// An encoder gets the output layer of a task: everything below it stays, and a layer of other labels begins afresh.
#[test]
fn an_output_layer_is_put_on_what_is_there() {
    let with = |case: &str, head: &str, labels: &[&str]| {
        let mut spec = folder::load_model(&place(case), &REGISTRY).unwrap().spec();
        let words = lathe_core::model::Value::Words(labels.iter().map(|label| label.to_string()).collect());
        spec.set(REGISTRY.key("labels").unwrap(), words);
        spec.set(REGISTRY.key("head").unwrap(), lathe_core::model::Value::Word(head.into()));
        folder::load_under(&place(case), spec.model(&REGISTRY).unwrap(), 1, &REGISTRY).unwrap()
    };
    let classifier = ["classifier.weight", "classifier.bias"];
    let pooler = ["bert.pooler.dense.weight", "bert.pooler.dense.bias"];
    let fresh = |found: &(Network, Vec<String>)| found.1.clone();
    assert_eq!(fresh(&with("embed", "classify", &["a", "b"])), classifier);
    assert_eq!(fresh(&with("classify", "classify", &["low", "middle", "other"])), classifier);
    assert_eq!(fresh(&with("classify", "classify", &["low", "middle", "high"])), [""; 0]);
    assert_eq!(fresh(&with("span", "regress", &[])), [pooler, classifier].concat());
    let (network, _) = with("classify", "span", &[]);
    let source = folder::load(&place("classify"), &REGISTRY).unwrap();
    for param in network.params().iter().filter(|param| param.name.starts_with("bert.encoder")) {
        let theirs = source.params().iter().find(|known| known.name == param.name).unwrap();
        assert_eq!(param.data, theirs.data, "{}", param.name);
    }
}

/// A model that takes longer texts has the positions of the one that it begins with, and new ones behind them.
#[test]
fn positions_are_added_behind_those_that_are_there() {
    for (case, first) in [("embed", 0), ("roberta_classify", 2), ("pretraining", 0)] {
        let source = folder::load(&place(case), &REGISTRY).unwrap();
        let mut spec = source.model.spec();
        spec.set(REGISTRY.key("max_len").unwrap(), lathe_core::model::Value::Int(24));
        let longer = spec.model(&REGISTRY).unwrap();
        let (network, fresh) = folder::load_under(&place(case), longer, 1, &REGISTRY).unwrap();
        let family = if case.starts_with("roberta") { "roberta" } else { "bert" };
        let table = format!("{family}.embeddings.position_embeddings.weight from row {} on", 16 + first);
        assert_eq!(fresh, [table], "{case}");
        for (param, known) in network.params().iter().zip(source.params().iter()) {
            assert_eq!(param.data[..known.data.len()], known.data, "{case}: {}", param.name);
            let rows = param.data[known.data.len()..].chunks(16);
            assert_eq!(rows.len(), if param.name.contains("position") { 8 } else { 0 }, "{case}: {}", param.name);
            rows.for_each(|row| assert!(row.iter().any(|&x| x != 0.0 && x.abs() < 0.2), "{case}: as others are drawn"));
        }
        let fixture = Fixture::read(case);
        let hidden =
            |network: &Network| network.hidden(&fixture.input(), &mut network.init_memory(fixture.batch)).to_vec();
        assert_eq!(hidden(&network), hidden(&source), "{case}: short texts mean what they meant");
        // The other way nothing is left out unasked.
        let mut spec = source.model.spec();
        for key in ["max_len", "tgt_len"] {
            spec.set(REGISTRY.key(key).unwrap(), lathe_core::model::Value::Int(12));
        }
        let error = folder::load_under(&place(case), spec.model(&REGISTRY).unwrap(), 1, &REGISTRY).err().unwrap();
        assert!(error.to_string().contains("position_embeddings"), "{error}");
    }
}

/// Of a task that learns from examples a student takes what its teacher says: all of it where it is the teacher, and more
/// and more of it where it is another.
#[test]
fn students_learn_from_fine_tuned_teachers() {
    for &case in CASES {
        let fixture = Fixture::read(case);
        let teacher = folder::load(&place(case), &REGISTRY).unwrap();
        let task = tasks::find(if task_of(case) == "embed" { "embed" } else { "" }, &teacher.model).unwrap();
        let width = teacher.model.frame.d_model as usize;
        let projections = lathe_model::Projections::new([(width, width)], 0);
        let of_projections = RefCell::new(Grads::new(projections.params()));
        let taps = Taps { hidden: vec![1], ..Taps::NONE };
        let counted = fixture.targets.iter().filter(|&&target| target != IGNORE).count() as f32;
        let learn = |student: &Network, grads: &mut Grads| -> f32 {
            let (last, seen) = teacher.look(&fixture.input(), &mut teacher.init_memory(fixture.batch), &taps);
            let lesson = Lesson {
                targets: &fixture.targets,
                examples: Some((task.of_examples().unwrap(), Sequences::new(fixture.input(), &fixture.targets))),
                real: Some(&fixture.mask),
                batch: fixture.batch,
                terms: Terms { ce: 0.0, kl: 1.0, mse: 0.1, temperature: 2.0 },
                source: Source::Network(&teacher, last.unwrap()),
                taps: taps.clone(),
                teacher: seen,
                first_pair: 0,
                weights: [0.1, 0.0],
                measure: Measure::Relative,
                share: counted / fixture.mask.iter().filter(|&&real| real).count() as f32,
                projections: &projections,
                grads: &of_projections,
                sums: RefCell::default(),
            };
            grads.clear();
            let training = Training { dropout_key: None, balance: 0.0, scale: 1.0 / counted };
            let mut state = student.init_memory(fixture.batch);
            student.train(&fixture.input(), &lesson, &mut state, &training, grads).losses.iter().sum::<f32>() / counted
        };
        let mut grads = Grads::new(teacher.params());
        assert!(learn(&teacher, &mut grads).abs() < 1e-5, "{case}");
        assert!(grads.finish().iter().all(|grad| grad.iter().all(|g| g.abs() < 1e-5)), "{case}");

        let mut student = Network::new(teacher.model.clone(), 3).unwrap();
        let mut optimizer = Optimizer::new(Rule::AdamW, &Settings::default(), student.params());
        let first = learn(&student, &mut grads);
        for step in 1..40 {
            learn(&student, &mut grads);
            optimizer.step(student.params_mut(), &mut grads, step, 0.01);
        }
        let last = learn(&student, &mut grads);
        assert!(last < 0.3 * first, "{case}: {first}, then {last}");
    }
}
