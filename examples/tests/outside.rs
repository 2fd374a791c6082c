//! A block and a backbone from outside go all the way: counted, trained, evaluated, decoded, profiled, searched in both ways,
//! saved and loaded, with no change to any crate of lathe.

use lathe_core::{Model, Space, Spec};
use lathe_examples::REGISTRY;
use lathe_job::measurer::InProcess;
use lathe_job::profiler::TableSource;
use lathe_job::store::Memory;
use lathe_job::{Context, differentiable, evaluate, generate, pareto, train};
use lathe_model::{Composed, Grads, Input, Network, Precision, Targets, Training, folder};
use lathe_search::differentiable::latency::Target;
use lathe_search::differentiable::settings::{Preset, SearchSettings};
use lathe_search::workload::Workload;
use lathe_train::generate::Sampling;
use lathe_train::settings::Settings;
use std::ops::ControlFlow;
use std::path::Path;

/// The space: every slot may be our block, attention, a feed-forward or nothing, in our backbone.
const SPACE: &str = "[baseline]\nbackbone='nope'\nlayers='conv{width=3} f s f'\nd_model=16\nheads=2\ninner=32\nvocab=256\n\
                     max_len=24\ntgt_len=16\n\n[[slots]]\nrepeat=4\noptions=['conv{width=2}','conv{width=3}','s','f','-']";

fn model(toml: &str) -> Model {
    let spec = Spec::from_toml(toml, &REGISTRY).unwrap_or_else(|error| panic!("{error}\n{toml}"));
    spec.model(&REGISTRY).unwrap_or_else(|error| panic!("{error}\n{toml}"))
}

/// Our block in our backbone and in those of lathe that predict the next token.
fn models() -> Vec<Model> {
    ["nope", "gpt2", "transformer_xl", "llama"]
        .map(|backbone| {
            let lengths = if backbone == "transformer_xl" { "mem_len=5" } else { "max_len=12" };
            let stack = "conv{width=3} f s conv";
            model(&format!(
                "backbone='{backbone}'\nlayers='{stack}'\nd_model=8\nheads=2\nvocab=11\ntgt_len=6\n{lengths}"
            ))
        })
        .into()
}

const IDS: [u32; 12] = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8];
const NEXT: [u32; 12] = [1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9];

fn close(a: &[f32], b: &[f32], what: &str) {
    assert_eq!(a.len(), b.len(), "{what}");
    let most = b.iter().fold(1e-3f32, |most, x| most.max(x.abs()));
    let worst = a.iter().zip(b).fold(0.0f32, |worst, (a, b)| worst.max((a - b).abs()));
    assert!(worst < 1e-3 * most, "{what}: {worst} of {most}");
}

#[test]
fn one_token_at_a_time_gives_what_the_whole_gives() {
    for model in models() {
        let network = Network::new(model, 1).unwrap();
        let memory = network.init_memory(2);
        let whole = network.logits(&Input::tokens(&IDS, 2), &mut memory.clone());
        let (mut cached, mut segments) = (network.init_cache(2, 1, &memory), memory);
        for t in 0..6 {
            let step = [IDS[t], IDS[6 + t]];
            let found = network.logits(&Input::tokens(&step, 2), &mut cached);
            let expected = match network.model.frame.has_memory() {
                true => network.logits(&Input::tokens(&step, 2), &mut segments).to_vec(),
                false => [0, 1].map(|b| whole[(b * 6 + t) * 11..][..11].to_vec()).concat(),
            };
            close(&found, &expected, &format!("{} token {t}", network.model.frame.backbone.key()));
        }
    }
}

#[test]
fn gradients_are_those_of_the_graph() {
    for model in models() {
        let network = Network::new(model, 2).unwrap();
        let training = Training { dropout_key: None, balance: 0.0, scale: 1.0 / 12.0 };
        let mut grads = Grads::new(network.params());
        let input = Input::tokens(&IDS, 2);
        network.train(&input, &Targets(&NEXT), &mut network.init_memory(2), &training, &mut grads);
        let composed = Composed::new(&network, candle_core::DType::F64, &candle_core::Device::Cpu).unwrap();
        let mut state = composed.memory(2).unwrap();
        let (loss, _) = composed.loss(&input, &NEXT, &mut state, &training).unwrap();
        let store = loss.backward().unwrap();
        for ((name, var), grad) in composed.vars().zip(grads.finish()) {
            let expected: Vec<f64> = store.get(var.as_tensor()).unwrap().flatten_all().unwrap().to_vec1().unwrap();
            let expected: Vec<f32> = expected.into_iter().map(|x| x as f32).collect();
            close(grad, &expected, name);
        }
    }
}

#[test]
fn all_the_way() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let text = |path: &Path| path.display().to_string();
    std::fs::write(path("space.toml"), SPACE).unwrap();
    let (measurer, tables) = (InProcess::new(&REGISTRY), Memory::new("tables"));
    let context = Context { registry: &REGISTRY, measurer: &measurer, tables: &tables };
    let space = Space::from_toml(SPACE, &REGISTRY).unwrap();

    // Trained, saved, loaded, evaluated, and made to write.
    std::fs::write(path("model.toml"), space.baseline.to_toml()).unwrap();
    let key = |name: &str| lathe_train::settings::KEYS.iter().find(|key| key.name == name).unwrap();
    let set = |name: &str, value: &str| (key(name), key(name).parse(value).unwrap());
    let request = train::Request {
        model: Some(text(&path("model.toml"))),
        settings: vec![
            set("data", "builtin:0.02"),
            set("steps", "40"),
            set("batch", "4"),
            set("lr", "0.01"),
            set("out", &text(&path("run"))),
        ],
        ..train::Request::default()
    };
    let outcome = train::begin(&request, &REGISTRY, &mut |_| ()).unwrap();
    assert!(outcome.loss < 5.0, "{outcome:?}");
    let network = folder::load(&path("run"), &REGISTRY).unwrap();
    assert_eq!(network.model, space.baseline);
    let asked =
        evaluate::Request { folder: path("run"), data: "builtin:0.01:9".into(), ..evaluate::Request::default() };
    let evaluation = evaluate::run(&REGISTRY, &asked, &mut |_| ()).unwrap().evaluation;
    assert!(evaluation.loss.is_finite() && evaluation.tokens > 1000);
    let sampling = Sampling { temperature: 0.0, top_k: 0, top_p: 1.0, repetition_penalty: 1.0, seed: 0 };
    let asked = generate::Request {
        folder: path("run"),
        prompt: "The ".into(),
        tokens: 40,
        sampling,
        precision: Precision::F32,
        cache: Default::default(),
    };
    let writer = generate::Writer::open(&asked, &REGISTRY).unwrap();
    assert!(!writer.write(&mut |_| ControlFlow::Continue(())).text.is_empty());

    // Profiled, and searched without training.
    let profiled = TableSource::default().table(&context, &space, &[], &Workload::default(), &mut |_| ()).unwrap();
    assert!(profiled.table.blocks.iter().any(|entry| entry.name.block.starts_with("conv")));
    let asked = pareto::Request {
        space: text(&path("space.toml")),
        workload: Workload::default(),
        table: TableSource::default(),
        out: path("pareto"),
        objectives: ["decoder_params", "latency", "memory"].map(String::from).into(),
        max_latency_ms: None,
        max_memory_mb: None,
        iterations: 2,
        population: 8,
        searcher: "nsga2".into(),
        measure_all: false,
        hull: false,
        models: 4,
        most_measured: 2,
        no_measure: true,
        seed: 0,
    };
    let found = pareto::run(&context, &asked, &mut |_| ()).unwrap();
    assert!(!found.frontier.is_empty());

    // And by training a super net.
    let asked = differentiable::Request {
        space: text(&path("space.toml")),
        settings: SearchSettings::preset(Preset::Planer, Some(Target::Ratio(0.9))),
        training: Settings {
            data: "builtin:0.02".into(),
            steps: 24,
            batch: 2,
            out: text(&path("search")),
            ..Settings::default()
        },
        table: None,
        blocks_only: true,
        measure_batch: 1,
        measure_seq: None,
    };
    let found = differentiable::begin(&context, &asked, &mut |_| ()).unwrap();
    let model = folder::load_model(&path("run"), &REGISTRY).unwrap();
    assert!(lathe_core::notation::parse(&found.layers, &REGISTRY).unwrap().len() == model.blocks.len());
}
