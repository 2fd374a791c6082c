//! What every task and every optimiser has to fulfil, over the registries: a new entry is tried by all of it.

use lathe_core::{Model, Spec};
use lathe_model::{Grads, Input, Network, REGISTRY, Training};
use lathe_ops::loss::IGNORE;
use lathe_train::data::{Tokenizer, Tokens, encode_documents, encode_source};
use lathe_train::evaluate::Options;
use lathe_train::examples::open;
use lathe_train::optimizer::{Optimizer, Rule};
use lathe_train::settings::Settings;
use lathe_train::tasks::{self, Cut, Sequences, TASKS, Task};

const BATCH: usize = 4;
const LEN: usize = 12;

/// A text of bytes.
fn text(folder: &tempfile::TempDir) -> Tokens {
    let file = folder.path().join("text.txt");
    std::fs::write(&file, "the birds fly north and the fish swim south; ".repeat(60)).unwrap();
    encode_source(file.to_str().unwrap(), &Tokenizer::Bytes, &folder.path().join("tokens"), &|_, _, _| {}).unwrap()
}

/// The tasks that learn from a text.
fn of_text() -> impl Iterator<Item = &'static dyn Task> {
    TASKS.iter().copied().filter(|task| task.of_examples().is_none())
}

/// A small model of each backbone that a task fits.
fn models(task: &dyn Task) -> Vec<Model> {
    let model = |backbone: &&'static dyn lathe_core::Backbone| {
        let lengths = if backbone.ignored_keys().contains(&"max_len") { "mem_len=12" } else { "max_len=12" };
        let vocab = 256 + task.extra_tokens(Tokenizer::Bytes.specials());
        let sizes = "layers='sf'\nd_model=16\nheads=2\ninner=32\ntgt_len=12";
        let toml = format!("backbone='{}'\n{sizes}\nvocab={vocab}\n{lengths}", backbone.key());
        let settings = Settings { task: task.key().into(), ..Settings::default() };
        let settings = if task.of_examples().is_some() { Settings::default() } else { settings };
        open::fit(&settings, &Spec::from_toml(&toml, &REGISTRY).unwrap(), &REGISTRY).unwrap().model(&REGISTRY).unwrap()
    };
    REGISTRY.backbones.iter().map(model).filter(|model| task.check(&model.frame).is_ok()).collect()
}

fn cut() -> Cut<'static> {
    Cut { batch: BATCH, len: LEN, seed: 3, tokenizer: &Tokenizer::Bytes }
}

#[test]
fn every_backbone_has_a_task_and_every_task_a_backbone() {
    for task in of_text().filter(|task| task.key() != "prefix_lm") {
        assert!(!models(task).is_empty(), "{}", task.key()); // the encoder-decoder is tested where it lives, in examples/
    }
    for model in TASKS.iter().flat_map(|task| models(*task)) {
        let default = tasks::find("", &model).unwrap();
        assert!(default.check(&model.frame).is_ok());
        for task in TASKS {
            let named = tasks::find(task.key(), &model);
            assert_eq!(named.is_ok(), task.check(&model.frame).is_ok(), "{}", task.key());
            if let Err(error) = named {
                assert!(error.to_string().contains("expected"), "{error}");
            }
        }
        assert!(tasks::find("no_such_task", &model).is_err());
    }
}

#[test]
fn tasks_batch_learn_and_evaluate() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = text(&folder);
    for task in of_text() {
        for model in models(task) {
            let what = format!("{} of {}", task.key(), model.frame.backbone.key());
            let batches = task.batches(&model.frame, &tokens.clone().into(), &cut()).unwrap();
            let again = task.batches(&model.frame, &tokens.clone().into(), &cut()).unwrap();
            assert!(batches.steps_per_epoch() > 0, "{what}");
            let mut network = Network::new(model.clone(), 1).unwrap();
            let settings = Settings { lr: 0.01, weight_decay: 0.0, ..Settings::default() };
            let mut optimizer = Optimizer::new(Rule::AdamW, &settings, network.params());
            let mut grads = Grads::new(network.params());
            let mut losses = Vec::new();
            for step in 0..40 {
                let batch = batches.batch(step).unwrap();
                assert_eq!(batch, again.batch(step).unwrap(), "{what}: a batch is a function of seed and step");
                assert_eq!((batch.ids.len(), batch.targets.len()), (BATCH * LEN, BATCH * LEN), "{what}");
                assert!(batch.counted() > 0, "{what}: something to learn");
                assert!(batch.ids.iter().all(|&id| id < model.frame.vocab), "{what}");
                assert!(batch.targets.iter().all(|&id| id == IGNORE || id < model.frame.vocab), "{what}");
                let training = Training { dropout_key: None, balance: 0.0, scale: 1.0 / batch.counted() as f32 };
                grads.clear();
                let input = batch.input(BATCH);
                let objective = task.objective(Sequences::new(input, &batch.targets));
                let mut state = network.init_memory(BATCH);
                let outcome = network.train(&input, &*objective, &mut state, &training, &mut grads);
                optimizer.step(network.params_mut(), &mut grads, step as u32 + 1, 0.01);
                losses.push(outcome.losses.iter().sum::<f32>() / batch.counted() as f32);
            }
            let chance = task.chance(&model.frame);
            assert!((losses[0] - chance).abs() < 0.3 * chance, "{what}: begins at {}, by chance {chance}", losses[0]);
            let (first, last) = (losses[0], losses[35..].iter().sum::<f32>() / 5.0);
            assert!(last < 0.8 * first, "{what}: {first} to {last}");
            let options = Options::new(&Tokenizer::Bytes);
            let evaluate = || task.evaluate(&network, &tokens.clone().into(), &options, &mut |_, _| {}).unwrap();
            let evaluation = evaluate();
            assert_eq!(evaluation, evaluate(), "{what}: an evaluation is always the same");
            assert!(evaluation.loss.is_finite() && evaluation.tokens > 0, "{what}");
            assert!((evaluation.loss as f32) < first, "{what}");
        }
    }
}

/// Of a word every letter is to be told, or none.
#[test]
fn words_are_masked_whole() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = text(&folder);
    let task = tasks::named("masked_words").unwrap();
    let model = models(task).swap_remove(0);
    let batches = task.batches(&model.frame, &tokens.into(), &cut()).unwrap();
    let mut longest = 0;
    for step in 0..40 {
        let batch = batches.batch(step).unwrap();
        for (ids, targets) in batch.ids.chunks(LEN).zip(batch.targets.chunks(LEN)) {
            let told: Vec<bool> = targets.iter().map(|&target| target != IGNORE).collect();
            if told.iter().filter(|&&told| told).count() == 1 {
                continue; // a word of one letter, or a window in which no word was drawn
            }
            let text: Vec<u32> =
                ids.iter().zip(targets).map(|(&id, &target)| if target == IGNORE { id } else { target }).collect();
            let letter = |at: usize| u8::try_from(text[at]).is_ok_and(|byte| byte.is_ascii_alphanumeric());
            for at in (1..LEN).filter(|&at| letter(at) && letter(at - 1)) {
                assert_eq!(told[at], told[at - 1], "{text:?} {told:?}");
            }
            longest = longest.max(told.split(|told| !told).map(<[bool]>::len).max().unwrap());
        }
    }
    assert!(longest >= 4, "{longest}");
}

/// A pair is two parts of a document in a row, swapped, or parts of two documents; over an epoch all of every document is read.
#[test]
fn pairs_are_made_of_documents() {
    let folder = tempfile::tempdir().unwrap();
    // Each of 26 documents has a letter of its own, and counts: `a0 a1 a2 ...`.
    let document = |i: u32| {
        let letter = char::from_u32('a' as u32 + i).unwrap();
        (0..i + 2).map(|n| format!("{letter}{n} ")).collect::<String>()
    };
    let file = folder.path().join("text.txt");
    std::fs::write(&file, (0..26).map(|i| document(i) + "\n\n").collect::<String>()).unwrap();
    let source = lathe_train::data::Source::open(file.to_str().unwrap()).unwrap();
    let path = folder.path().join("tokens");
    let tokens = encode_documents(&source, 0..source.bytes(), &Tokenizer::Bytes, &path, &|_, _, _| {}).unwrap();
    for (key, swapped) in [("masked_nsp", false), ("masked_sop", true)] {
        let task = tasks::named(key).unwrap();
        let model = models(task).swap_remove(0);
        let batches = task.batches(&model.frame, &tokens.clone().into(), &cut()).unwrap();
        let (mut kinds, mut seen, mut told, mut all, mut cut) = ([0, 0], std::collections::BTreeSet::new(), 0, 0, 0);
        for step in 0..batches.steps_per_epoch() * 4 {
            let batch = batches.batch(step).unwrap();
            for row in 0..BATCH {
                let row = row * LEN..(row + 1) * LEN;
                let real = batch.mask.get(row.clone()).map_or(LEN, |mask| mask.iter().filter(|&&real| real).count());
                let row = row.start..row.start + real;
                let kind = batch.targets[row.start];
                kinds[kind as usize] += 1;
                // What stood there before it was masked.
                let text: String = row
                    .clone()
                    .map(|at| match batch.targets[at] {
                        target if at > row.start && target != IGNORE => target,
                        _ => batch.ids[at],
                    })
                    .map(|id| char::from_u32(id).unwrap())
                    .collect();
                told += row.clone().skip(1).filter(|&at| batch.targets[at] != IGNORE).count();
                all += real - 1;
                let segments = &batch.segments[row.clone()];
                let second = segments.iter().position(|&segment| segment == 1).unwrap();
                assert!(segments[second..].iter().all(|&segment| segment == 1), "{segments:?}");
                let (a, b) = text.split_at(second);
                assert!(!a.is_empty() && !b.is_empty(), "{key}: {a:?} {b:?}");
                cut += usize::from(b.starts_with(char::is_numeric));
                let letter = |text: &str| text.chars().find(char::is_ascii_lowercase);
                let of = |letter: Option<char>| letter.map(|letter| document(letter as u32 - 'a' as u32));
                let Some(whole) = of(letter(b)) else { continue }; // a space
                match (kind, swapped) {
                    (0, _) => assert!(whole.contains(text.trim_end()), "{key}: {text:?} is no part of {whole:?}"),
                    (_, true) => assert!(whole.contains(format!("{b}{a}").trim_end()), "{b:?} is not before {a:?}"),
                    // A space alone says nothing.
                    (_, false) => assert!(letter(a).is_none() || letter(a) != letter(b), "{a:?} {b:?}"),
                }
                seen.extend(letter(b));
            }
        }
        assert_eq!(seen.len(), 26, "{key}: {seen:?}");
        let (share, masked) = (kinds[1] as f64 / (kinds[0] + kinds[1]) as f64, told as f64 / all as f64);
        assert!((0.4..0.6).contains(&share), "{key}: {kinds:?}");
        assert!(
            cut * 10 < kinds[0] + kinds[1],
            "{key}: {cut} begin inside of words, which happens where no word begins"
        );
        assert!((0.12..0.22).contains(&masked), "{key}: {masked}"); // each window has one at least
    }
    // Families without segments, a vector of the text, or a layer for pairs say so.
    for backbone in ["roberta", "distilbert", "mpnet", "gpt2"] {
        let toml = format!("backbone='{backbone}'\nlayers='sf'\nd_model=16\nvocab=257");
        let model = Spec::from_toml(&toml, &REGISTRY).unwrap().model(&REGISTRY).unwrap();
        let error = tasks::find("masked_nsp", &model).err().unwrap().to_string();
        assert!(error.contains(backbone) && error.contains("expected"), "{error}");
    }
    let toml = "backbone='bert'\nlayers='sf'\nd_model=16\nvocab=257\nhead='pretraining'\nsegments=1";
    let model = Spec::from_toml(toml, &REGISTRY).unwrap().model(&REGISTRY).unwrap();
    let error = tasks::find("masked_sop", &model).err().unwrap().to_string();
    assert!(error.contains("segments: found 1"), "{error}");
}

#[test]
fn optimisers_learn_and_go_the_same_way_each_time() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = text(&folder);
    let task = TASKS[0];
    let model = models(task).swap_remove(0);
    let batch = task.batches(&model.frame, &tokens.into(), &cut()).unwrap().batch(0).unwrap();
    for name in Rule::names().split(", ") {
        let rule = Rule::named(name).unwrap();
        let run = || -> Vec<f32> {
            let mut network = Network::new(model.clone(), 1).unwrap();
            let mut optimizer = Optimizer::new(rule, &Settings::default(), network.params());
            let mut grads = Grads::new(network.params());
            let training = Training { dropout_key: None, balance: 0.0, scale: 1.0 / batch.counted() as f32 };
            let lr = if name == "sgd" { 0.5 } else { 0.02 };
            let step = |step: u32| {
                grads.clear();
                let input = Input::tokens(&batch.ids, BATCH);
                let objective = task.objective(Sequences::new(input, &batch.targets));
                let mut state = network.init_memory(BATCH);
                let losses = network.train(&input, &*objective, &mut state, &training, &mut grads).losses;
                let length = optimizer.step(network.params_mut(), &mut grads, step, lr);
                assert!(length.is_finite() && length > 0.0, "{name}");
                losses.iter().sum::<f32>() / losses.len() as f32
            };
            (1..=30).map(step).collect()
        };
        let losses = run();
        assert!(losses[29] < 0.95 * losses[0], "{name}: {} to {}", losses[0], losses[29]);
        assert_eq!(losses, run(), "{name}");
    }
}

/// A text that leaves a last window of one token, or that has but one window.
#[test]
fn short_ends_are_scored() {
    let folder = tempfile::tempdir().unwrap();
    for (bytes, task) in [25, 13, 3, 2].into_iter().flat_map(|bytes| of_text().map(move |task| (bytes, task))) {
        let file = folder.path().join("short.txt");
        std::fs::write(&file, "the birds fly north and so".split_at(bytes).0).unwrap();
        let path = folder.path().join(format!("{bytes}.tokens"));
        let tokens = encode_source(file.to_str().unwrap(), &Tokenizer::Bytes, &path, &|_, _, _| {}).unwrap();
        for model in models(task) {
            let network = Network::new(model, 1).unwrap();
            let found = task
                .evaluate(&network, &tokens.clone().into(), &Options::new(&Tokenizer::Bytes), &mut |_, _| {})
                .unwrap();
            assert!(found.loss.is_finite() && found.tokens > 0, "{}: {bytes}: {found:?}", task.key());
            let targets = vec![IGNORE; LEN];
            let training = Training { dropout_key: None, balance: 0.0, scale: 1.0 };
            let (ids, mut grads) = (vec![7; LEN], Grads::new(network.params()));
            let mut state = network.init_memory(1);
            let input = Input::tokens(&ids, 1);
            let outcome = network.train(
                &input,
                &*task.objective(Sequences::new(input, &targets)),
                &mut state,
                &training,
                &mut grads,
            );
            assert!(outcome.losses.iter().all(|&loss| loss == 0.0), "{}", task.key());
        }
    }
}
