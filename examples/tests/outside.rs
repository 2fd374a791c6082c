//! Blocks and a backbone from outside go all the way: counted, trained, evaluated, decoded, profiled, searched in both
//! ways, saved and loaded, with no change to any crate of lathe.

use lathe_core::{Model, Space, Spec};
use lathe_examples::REGISTRY;
use lathe_job::measurer::InProcess;
use lathe_job::profiler::TableSource;
use lathe_job::store::Memory;
use lathe_job::{Context, differentiable, distill, evaluate, generate, pareto, train};
use lathe_model::{Composed, Grads, Input, Network, Precision, Targets, Training, folder};
use lathe_search::differentiable::latency::Target;
use lathe_search::differentiable::settings::{Preset, SearchSettings};
use lathe_search::profile::Part;
use lathe_search::workload::{Mode, Workload};
use lathe_train::generate::Sampling;
use lathe_train::settings::Settings;
use std::ops::ControlFlow;
use std::path::Path;

/// Spaces in our backbones: every slot may be our block, attention, a feed-forward or nothing; a funnel with a bottleneck
/// in it, where slots between the fixed blocks choose; and an encoder-decoder.
const SPACES: [&str; 3] = [
    "[baseline]\nbackbone='nope'\nlayers='conv{width=3} f s f'\nd_model=16\nheads=2\ninner=32\nvocab=256\n\
     max_len=24\ntgt_len=16\n\n[[slots]]\nrepeat=4\noptions=['conv{width=2}','conv{width=3}','s','f','-']",
    "[baseline]\nbackbone='nope'\nlayers='s pool f project{width=8} f project{width=16} unpool f'\nd_model=16\nheads=2\n\
     inner=32\nvocab=256\nmax_len=24\ntgt_len=16\n\n[[slots]]\noptions=['s','conv']\n[[slots]]\noptions=['pool']\n\
     [[slots]]\noptions=['conv','f','-']\n[[slots]]\noptions=['project{width=8}']\n[[slots]]\noptions=['rezero','f','conv']\n\
     [[slots]]\noptions=['project{width=16}']\n[[slots]]\noptions=['unpool']\n[[slots]]\noptions=['f','rezero']",
    "[baseline]\nbackbone='bart'\nlayers='s f decoder s cross f'\nd_model=16\nheads=2\ninner=32\nvocab=256\nmax_len=24\n\
     tgt_len=16\nsrc_len=12\n\n[[slots]]\noptions=['s','conv']\n[[slots]]\noptions=['f','-']\n[[slots]]\noptions=['decoder']\n\
     [[slots]]\noptions=['s','conv','-']\n[[slots]]\noptions=['cross','cross{heads=1}']\n[[slots]]\noptions=['f','rezero']",
];

fn model(toml: &str) -> Model {
    let spec = Spec::from_toml(toml, &REGISTRY).unwrap_or_else(|error| panic!("{error}\n{toml}"));
    spec.model(&REGISTRY).unwrap_or_else(|error| panic!("{error}\n{toml}"))
}

/// Our blocks in our backbone and in those of lathe that predict the next token.
fn models() -> Vec<Model> {
    let conv = ["nope", "gpt2", "transformer_xl", "llama"].map(|backbone| (backbone, "conv{width=3} f s conv", ""));
    let others = [
        ("nope", "s f pool s f unpool s", ""),
        ("gpt2", "pool{by=3} s rezero unpool{by=3} f", ""),
        ("llama", "s pool f pool s f unpool s unpool f", ""),
        ("llama", "s project{width=4} pool conv f unpool project{width=8} f", ""),
        ("transformer_xl", "s f project{width=6} s rezero{inner=5} project{width=8} f", ""),
        ("nope", "s f s f s f s f s f", "nope_layers=2"),
        ("llama", "s f keep cross f cross{heads=1} f", ""),
        ("gpt2", "s pool keep f cross unpool", ""),
        ("bart", "s f decoder s cross f s cross{heads=1} f", "src_len=4"),
        ("bart", "s f conv decoder s conv cross rezero f", ""),
    ];
    let model = |(backbone, stack, more): (&str, &str, &str)| {
        let lengths = if backbone == "transformer_xl" { "mem_len=5" } else { "max_len=12" };
        let sizes = "d_model=8\nheads=2\nvocab=11\ntgt_len=6";
        model(&format!("backbone='{backbone}'\nlayers='{stack}'\n{sizes}\n{lengths}\n{more}"))
    };
    conv.into_iter().chain(others).map(model).collect()
}

/// A network none of whose weights are 0, so that every gradient is.
fn network(model: Model, seed: u64) -> Network {
    let mut network = Network::new(model, seed).unwrap();
    network.params_mut().for_each(|param| param.data.iter_mut().for_each(|x| *x += 0.1));
    network
}

const IDS: [u32; 12] = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8];
const NEXT: [u32; 12] = [1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9];

/// What an encoder reads where there is one: as many tokens of each sequence as it takes at the most.
const SOURCE: [u32; 24] = [7, 0, 2, 10, 4, 4, 1, 9, 3, 8, 6, 5, 2, 2, 9, 0, 1, 10, 3, 7, 5, 6, 8, 4];

/// Tokens for a network, after a source where it reads one.
fn input<'a>(network: &Network, ids: &'a [u32], batch: usize) -> Input<'a> {
    let input = Input::tokens(ids, batch);
    network.model.frame.source_len().map_or(input, |len| input.after(&SOURCE[..batch * len as usize]))
}

fn close(a: &[f32], b: &[f32], what: &str) {
    assert_eq!(a.len(), b.len(), "{what}");
    let most = b.iter().fold(1e-3f32, |most, x| most.max(x.abs()));
    let worst = a.iter().zip(b).fold(0.0f32, |worst, (a, b)| worst.max((a - b).abs()));
    assert!(worst < 1e-3 * most, "{what}: {worst} of {most}");
}

#[test]
fn one_token_at_a_time_gives_what_the_whole_gives() {
    for model in models() {
        let network = network(model, 1);
        let memory = network.init_memory(2);
        let whole = network.logits(&input(&network, &IDS, 2), &mut memory.clone());
        let (mut cached, mut segments) = (network.init_cache(2, 1, &memory), memory);
        for t in 0..6 {
            let step = [IDS[t], IDS[6 + t]];
            let now = if t == 0 { input(&network, &step, 2) } else { Input::tokens(&step, 2) };
            let found = network.logits(&now, &mut cached);
            let expected = match network.model.frame.has_memory() {
                true => network.logits(&Input::tokens(&step, 2), &mut segments).to_vec(),
                false => [0, 1].map(|b| whole[(b * 6 + t) * 11..][..11].to_vec()).concat(),
            };
            close(&found, &expected, &format!("{} token {t}", network.model.layers()));
        }
    }
}

#[test]
fn gradients_are_those_of_the_graph() {
    for model in models() {
        let network = network(model, 2);
        let training = Training { dropout_key: None, balance: 0.0, scale: 1.0 / 12.0 };
        let mut grads = Grads::new(network.params());
        let input = input(&network, &IDS, 2);
        network.train(&input, &Targets(&NEXT), &mut network.init_memory(2), &training, &mut grads);
        let composed = Composed::new(&network, candle_core::DType::F64, &candle_core::Device::Cpu).unwrap();
        let mut state = composed.memory(2).unwrap();
        let (loss, _) = composed.loss(&input, &NEXT, &mut state, &training).unwrap();
        let store = loss.backward().unwrap();
        for ((name, var), grad) in composed.vars().zip(grads.finish()) {
            let expected: Vec<f64> = store.get(var.as_tensor()).unwrap().flatten_all().unwrap().to_vec1().unwrap();
            let expected: Vec<f32> = expected.into_iter().map(|x| x as f32).collect();
            close(grad, &expected, &format!("{name} of {}", network.model.layers()));
        }
    }
}

/// The judge of both, for blocks that change width and length or share weights: loss by weight.
#[test]
fn gradients_are_those_of_differences() {
    for model in models() {
        let (name, mut network) = (model.layers(), network(model, 3));
        let training = Training { dropout_key: None, balance: 0.0, scale: 1.0 };
        let input = input(&network, &IDS, 2);
        let mut grads = Grads::new(network.params());
        network.train(&input, &Targets(&NEXT), &mut network.init_memory(2), &training, &mut grads);
        let grads: Vec<Vec<f32>> = grads.finish().to_vec();
        // The loss in f64 with one weight moved, and where that is then.
        let mut loss = |at: usize, by: f32| -> (f64, f64) {
            let moved = |network: &mut Network, to: Option<f32>| {
                let param = network.params_mut().nth(at).unwrap();
                let i = param.data.len() / 2;
                let to = to.unwrap_or(param.data[i] + by);
                std::mem::replace(&mut param.data[i], to)
            };
            let before = moved(&mut network, None);
            let composed = Composed::new(&network, candle_core::DType::F64, &candle_core::Device::Cpu).unwrap();
            let (loss, _) = composed.loss(&input, &NEXT, &mut composed.memory(2).unwrap(), &training).unwrap();
            let loss = loss.to_scalar().unwrap();
            (f64::from(moved(&mut network, Some(before))), loss)
        };
        for (at, grad) in grads.iter().enumerate() {
            let (right, left) = (loss(at, 1e-3), loss(at, -1e-3));
            let (found, expected) = (f64::from(grad[grad.len() / 2]), (right.1 - left.1) / (right.0 - left.0));
            let off = (found - expected).abs();
            assert!(off < 1e-3 * expected.abs().max(0.1), "parameter {at} of {name}: {found} and {expected}");
        }
    }
}

#[test]
fn what_is_saved_is_loaded() {
    for model in models() {
        let (dir, network) = (tempfile::tempdir().unwrap(), network(model, 5));
        folder::save(&network, dir.path()).unwrap();
        let loaded = folder::load(dir.path(), &REGISTRY).unwrap();
        let logits = |network: &Network| network.logits(&input(network, &IDS, 2), &mut network.init_memory(2)).to_vec();
        assert_eq!(logits(&loaded), logits(&network), "{}", network.model.layers());
        let mut frozen = loaded;
        frozen.freeze();
        close(&logits(&frozen), &logits(&network), &network.model.layers());
    }
}

#[test]
fn padding_changes_nothing() {
    for stack in ["s f pool s f unpool s", "s keep f cross f cross", "pool{by=3} s rezero unpool{by=3} f"] {
        let sizes = "d_model=8\nheads=2\nvocab=11\ntgt_len=6\nmax_len=12";
        let network = network(model(&format!("backbone='bert'\nlayers='{stack}'\n{sizes}")), 4);
        let alone = network.hidden(&Input::tokens(&IDS[..5], 1), &mut network.init_memory(1));
        let mask: Vec<bool> = (0..12).map(|i| i != 5).collect();
        let padded = Input { mask: Some(&mask), ..Input::tokens(&IDS, 2) };
        close(&network.hidden(&padded, &mut network.init_memory(2))[..5 * 8], &alone, stack);
    }
}

/// Without an output for each token, an encoder may end with fewer of them, down to none.
#[test]
fn an_encoder_may_end_with_fewer_tokens() {
    let sizes = "d_model=8\nheads=2\nvocab=11\ntgt_len=6\nmax_len=12\nhead='none'\npooler=true";
    let network = network(model(&format!("backbone='bert'\nlayers='s pool f s pool f'\n{sizes}")), 6);
    for (len, left) in [(6, 1), (4, 1), (3, 0)] {
        let hidden = network.hidden(&Input::tokens(&IDS[..2 * len], 2), &mut network.init_memory(2));
        assert_eq!(hidden.len(), 2 * left * 8);
        assert_eq!(network.pooled(&hidden, 2).map(|pooled| pooled.len()), (left > 0).then_some(16));
    }
}

/// Blocks say themselves in ONNX's operators in their own file, or are refused by their own name.
#[test]
fn what_does_not_say_itself_in_onnx_is_refused() {
    let refused = |layers: &str| {
        let toml = format!("backbone='nope'\nlayers='{layers}'\nd_model=16\nheads=2\ninner=32\nvocab=11\nmax_len=12");
        let network = network(model(&toml), 1);
        lathe_model::onnx_graph(&network, &lathe_model::OnnxOptions::default()).map(|_| ()).map_err(|e| e.to_string())
    };
    assert_eq!(refused("s f"), Ok(()), "a backbone from outside is one like any other");
    let error = refused("s f conv f").unwrap_err();
    assert!(error.contains("block 2, `conv`, does not say itself"), "{error}");
}

#[test]
fn stacks_that_do_not_fit_are_named() {
    let sizes = "d_model=8\nheads=2\nvocab=11\ntgt_len=6\nmax_len=12";
    for (stack, more, expected) in [
        ("s unpool", "", "no pool below"),
        ("pool{by=2} unpool{by=3}", "", "as `by` of its pool makes them"),
        ("s cross", "", "no keep below"),
        ("s decoder s", "", "no second text"),
        ("keep pool cross unpool", "", "3 of width 8"),
        ("pool s", "", "3 of 6 tokens after the last block"),
        ("project{width=4} s", "", "a width of 4 after the last block"),
        ("s f64 s f32", "nope_layers=1", "equal blocks in layers that share their weights"),
    ] {
        let toml = format!("backbone='nope'\nlayers='{stack}'\n{sizes}\n{more}");
        let spec = Spec::from_toml(&toml, &REGISTRY).unwrap();
        let error = spec.model(&REGISTRY).and_then(|model| Network::new(model, 0)).err().expect(stack).to_string();
        assert!(error.contains(expected), "{stack}: {error}");
    }
    let space = SPACES[1].replace("['unpool']", "['unpool','s']");
    let error = Space::from_toml(&space, &REGISTRY).unwrap_err().to_string();
    assert!(error.contains("options that change width and length alike"), "{error}");
}

#[test]
fn all_the_way() {
    SPACES.into_iter().for_each(goes_all_the_way);
}

fn goes_all_the_way(toml: &str) {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let text = |path: &Path| path.display().to_string();
    std::fs::write(path("space.toml"), toml).unwrap();
    let (measurer, tables) = (InProcess::new(&REGISTRY), Memory::new("tables"));
    let context = Context { registry: &REGISTRY, measurer: &measurer, tables: &tables };
    let space = Space::from_toml(toml, &REGISTRY).unwrap();

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

    // A student of it learns outputs; hidden states only where blocks keep width and length.
    let key = |name: &str| lathe_train::distill::KEYS.iter().find(|key| key.name == name).unwrap();
    let learns = |out: &str, hidden: &str| distill::Request {
        student: Some(text(&path("model.toml"))),
        settings: [("data", "builtin:0.02"), ("steps", "4"), ("batch", "4"), ("out", &text(&path(out)))]
            .map(|(name, value)| set(name, value))
            .into(),
        distill: [("teacher", text(&path("run")).as_str()), ("hidden", hidden)]
            .map(|(name, value)| (key(name), key(name).parse(value).unwrap()))
            .into(),
        keys: Vec::new(),
    };
    distill::begin(&learns("outputs", "0"), &REGISTRY, &mut |_| ()).unwrap();
    let inside = distill::begin(&learns("inside", "1"), &REGISTRY, &mut |_| ());
    assert_eq!(inside.is_ok(), space.baseline.keeps_shape(), "{:?}", inside.err());

    // Profiled, and searched without training.
    let profiled = TableSource::default().table(&context, &space, &[], &Workload::default(), &mut |_| ()).unwrap();
    assert!(profiled.table.blocks.iter().any(|entry| entry.name.block.starts_with("conv")));
    for mode in [Mode::Infer, Mode::Decode, Mode::Prompt, Mode::Train] {
        let workload = Workload { mode, batch: 2, ..Workload::default() };
        for part in Part::of_space(&space, &workload).unwrap() {
            if let Some(block) = part.block {
                workload.block(&block, &part.frame, part.storage, 0).unwrap()();
            }
        }
    }
    let shapes: Vec<(u32, u32)> = space
        .covering()
        .flat_map(|model| Part::of_model(&model).collect::<Vec<_>>())
        .map(|part| (part.frame.d_model, part.frame.tgt_len))
        .collect();
    assert_eq!(shapes.contains(&(8, 8)), toml.contains("pool"), "{shapes:?}");
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
