//! The super net against plain networks with its weights, and its gradients of mixtures against finite differences.

use lathe_core::notation;
use lathe_model::{Grads, Input, Mixture, Precision, REGISTRY, State, SuperNet, Targets, Training};

const BATCH: usize = 2;
const LEN: usize = 5;
const FRAMES: &[&str] = &[
    "backbone='transformer_xl'\nlayers='sf'\nd_model=8\nvocab=11\nheads=2\nd_head=4\ninner=16\ntgt_len=5\nmem_len=4\n\
     dropout=0.1\nattn_dropout=0.1\nmoe_dropout=0.2",
    "backbone='transformer_xl'\nlayers='sf'\nd_model=8\nvocab=11\nheads=2\ninner=16\ntgt_len=5\nmem_len=6\nnorm='pre'",
    "backbone='gpt2'\nlayers='sf'\nd_model=8\nvocab=11\nheads=2\ninner=16\nmax_len=10\ndropout=0.1",
];
const SLOTS: &[&str] = &["s f -", "f s1 m2k1", "- s m3k2 f8"];
/// As many experts active as there are: where a token goes does not jump.
const SMOOTH_SLOTS: &[&str] = &["s f -", "f s1 m2k2", "- s m3k3 f8"];
const TRAINING: Training = Training { dropout_key: Some(7), balance: 0.01, scale: 0.1 };

fn supernet(frame: &str) -> SuperNet {
    supernet_of(frame, SLOTS)
}

/// Without dropout, which `loss` does not know, and without jumps and kinks, which finite differences do not.
fn smooth(frame: &str) -> SuperNet {
    let kept: Vec<&str> = frame.lines().filter(|line| !line.contains("dropout")).collect();
    supernet_of(&format!("{}\nactivation='gelu'", kept.join("\n")), SMOOTH_SLOTS)
}

fn supernet_of(frame: &str, slots: &[&str]) -> SuperNet {
    let frame = crate::model(frame).frame;
    let slots: Vec<_> = slots.iter().map(|options| notation::parse(options, &REGISTRY).unwrap()).collect();
    let mut net = SuperNet::new(frame, &slots, 3).unwrap();
    // Weights as they are drawn are small and norms nearly plain: larger ones show more.
    for (i, param) in net.params_mut().enumerate() {
        for (j, x) in param.data.iter_mut().enumerate() {
            *x = 4.0 * *x + 0.1 * ((i * 31 + j * 17) as f32).sin();
        }
    }
    net
}

/// Tokens and targets of a segment.
fn segment(n: usize) -> (Vec<u32>, Vec<u32>) {
    let token = |i: usize| ((i * i + 3 * i + 7 * n) % 11) as u32;
    ((0..BATCH * LEN).map(token).collect(), (1..=BATCH * LEN).map(token).collect())
}

/// Losses of two segments, the gradients of both together, and those of the mixtures of the last.
fn train(net: &SuperNet, mixtures: &[Mixture], mut grads: Grads) -> (Vec<f32>, Grads, Vec<Vec<f64>>) {
    let mut state = net.init_memory(BATCH);
    let mut losses = Vec::new();
    let mut dp = Vec::new();
    for n in 0..2 {
        let (ids, targets) = segment(n);
        let outcome =
            net.train(&Input::tokens(&ids, BATCH), &Targets(&targets), &mut state, mixtures, &TRAINING, &mut grads);
        losses.extend(outcome.losses);
        dp = outcome.dp;
    }
    (losses, grads, dp)
}

fn one_hot(choice: &[usize]) -> Vec<Mixture> {
    let options = SLOTS.iter().map(|options| notation::parse(options, &REGISTRY).unwrap().len());
    let soft = |(n, &chosen): (usize, &usize)| Mixture::Soft((0..n).map(|i| f32::from(i == chosen)).collect());
    options.zip(choice).map(soft).collect()
}

#[test]
fn one_option_a_slot_is_the_plain_network() {
    for frame in FRAMES {
        for (choice, precision) in [
            ([0, 0, 0], Precision::F32),
            ([1, 1, 1], Precision::F32),
            ([2, 2, 2], Precision::F32),
            ([0, 1, 3], Precision::F32),
            ([0, 2, 1], Precision::Bf16),
        ] {
            let mut net = supernet(frame);
            net.set_precision(precision);
            let network = net.network(&choice).unwrap();
            assert_eq!(network.model.blocks, net.model(&choice).blocks);
            let mut expected = Grads::new(network.params());
            let mut losses = Vec::new();
            let mut state = network.init_memory(BATCH);
            for n in 0..2 {
                let (ids, targets) = segment(n);
                losses.extend(
                    network
                        .train(&Input::tokens(&ids, BATCH), &Targets(&targets), &mut state, &TRAINING, &mut expected)
                        .losses,
                );
            }
            let hard: Vec<Mixture> = choice.iter().map(|&option| Mixture::Hard(option)).collect();
            for mixtures in [hard, one_hot(&choice)] {
                let (found, mut grads, _) = train(&net, &mixtures, Grads::new(net.params()));
                assert_eq!(found, losses, "{frame} {choice:?} {mixtures:?}");
                let chosen = |name: &str| match name.split_once(".options.") {
                    None => true,
                    Some((slot, option)) => {
                        let slot: usize = slot.rsplit('.').next().unwrap().parse().unwrap();
                        option.starts_with(&format!("{}.", choice[slot]))
                    }
                };
                let mut plain = expected.finish().iter();
                for (param, grad) in net.params().iter().zip(grads.finish()) {
                    match chosen(&param.name) {
                        true => assert_eq!(grad, plain.next().unwrap(), "{frame} {choice:?}: {}", param.name),
                        false => assert!(grad.iter().all(|&x| x == 0.0), "{frame} {choice:?}: {}", param.name),
                    }
                }
                assert!(plain.next().is_none());
            }
        }
    }
}

fn soft() -> Vec<Vec<f32>> {
    vec![vec![0.5, 0.3, 0.2], vec![0.25, 0.35, 0.4], vec![0.1, 0.4, 0.3, 0.2]]
}

fn mixtures(p: &[Vec<f32>]) -> Vec<Mixture> {
    p.iter().cloned().map(Mixture::Soft).collect()
}

#[test]
fn gradients_of_mixtures_are_finite_differences() {
    const STEP: f32 = 4e-3;
    for frame in FRAMES {
        let net = smooth(frame);
        let (ids, targets) = segment(0);
        let training = Training { dropout_key: None, balance: 0.0, ..TRAINING };
        let mut grads = Grads::new(net.params());
        let p = soft();
        let mut state = net.init_memory(BATCH);
        let found = net.train(
            &Input::tokens(&ids, BATCH),
            &Targets(&targets),
            &mut state,
            &mixtures(&p),
            &training,
            &mut grads,
        );
        let loss = |slot: usize, option: usize, step: f32| -> f64 {
            let mut p = p.clone();
            p[slot][option] += step;
            let losses =
                net.loss(&Input::tokens(&ids, BATCH), &Targets(&targets), &mut net.init_memory(BATCH), &mixtures(&p));
            f64::from(training.scale) * losses.iter().map(|&loss| f64::from(loss)).sum::<f64>()
        };
        for (s, dp) in found.dp.iter().enumerate() {
            for (i, &dp) in dp.iter().enumerate() {
                let slope = (loss(s, i, STEP) - loss(s, i, -STEP)) / (2.0 * f64::from(STEP));
                assert!((dp - slope).abs() <= 5e-3 * slope.abs().max(0.1), "{frame}: {s} {i}: {dp} is not {slope}");
            }
        }
    }
}

#[test]
fn gradients_of_weights_in_a_mixture_are_finite_differences() {
    let mut net = smooth(FRAMES[0]);
    let (ids, targets) = segment(0);
    let training = Training { dropout_key: None, balance: 0.0, ..TRAINING };
    let mut grads = Grads::new(net.params());
    let mixtures = mixtures(&soft());
    net.train(
        &Input::tokens(&ids, BATCH),
        &Targets(&targets),
        &mut net.init_memory(BATCH),
        &mixtures,
        &training,
        &mut grads,
    );
    let names: Vec<String> = net.params().iter().map(|param| param.name.clone()).collect();
    let grads = grads.finish().to_vec();
    for (which, name) in names.iter().enumerate() {
        // The entry with the steepest slope: the others drown in f32.
        let entry = (0..grads[which].len()).max_by(|&a, &b| grads[which][a].abs().total_cmp(&grads[which][b].abs()));
        let entry = entry.unwrap();
        let mut loss = |step: f32| -> f64 {
            net.params_mut().nth(which).unwrap().data[entry] += step;
            let losses =
                net.loss(&Input::tokens(&ids, BATCH), &Targets(&targets), &mut net.init_memory(BATCH), &mixtures);
            net.params_mut().nth(which).unwrap().data[entry] -= step;
            f64::from(training.scale) * losses.iter().map(|&loss| f64::from(loss)).sum::<f64>()
        };
        let slope = (loss(2e-3) - loss(-2e-3)) / 4e-3;
        let found = f64::from(grads[which][entry]);
        assert!((found - slope).abs() <= 2e-2 * slope.abs().max(0.05), "{name}: {found} is not {slope}");
    }
}

#[test]
fn without_gradients_of_weights_those_of_mixtures_are_the_same() {
    for frame in FRAMES {
        let net = supernet(frame);
        let (losses, _, dp) = train(&net, &mixtures(&soft()), Grads::new(net.params()));
        let (again, _, without) = train(&net, &mixtures(&soft()), Grads::unwanted(net.params()));
        assert_eq!((losses, dp), (again, without), "{frame}");
    }
}

#[test]
fn the_memory_is_the_slots_input_whichever_option_runs() {
    let net = supernet(FRAMES[0]);
    let (ids, targets) = segment(0);
    let memories = |first: usize| -> Vec<Vec<f32>> {
        let mixtures = [Mixture::Hard(first), Mixture::Hard(0), Mixture::Hard(0)];
        let mut state: State = net.init_memory(BATCH);
        net.loss(&Input::tokens(&ids, BATCH), &Targets(&targets), &mut state, &mixtures);
        state.memories().map(<[f32]>::to_vec).collect()
    };
    let [attention, ffn, skip] = [0, 1, 2].map(memories);
    assert_eq!(attention.len(), 3, "every slot offers attention");
    assert_eq!((&attention[0], &attention[0]), (&ffn[0], &skip[0]), "what entered the first slot");
    assert!(attention[0].iter().any(|&x| x != 0.0));
    assert_eq!(skip[1], skip[0], "a skip passes on what entered it");
    assert_ne!(attention[1], ffn[1]);
}

#[test]
fn a_slot_without_options_is_an_error() {
    let frame = crate::model(FRAMES[0]).frame;
    let error = SuperNet::new(frame, &[Vec::new()], 0).err().unwrap().to_string();
    assert_eq!(error, "slot 1: found no option; expected at least one");
}

#[test]
fn a_super_net_takes_the_weights_of_a_plain_network() {
    for frame in FRAMES {
        let (from, mut to) = (supernet(frame), supernet(frame));
        to.params_mut().for_each(|param| param.data.iter_mut().for_each(|x| *x += 1.0));
        let (chosen, other) = ([0, 2, 1], [1, 0, 3]);
        let network = from.network(&chosen).unwrap();
        let before = to.network(&other).unwrap();
        to.adopt(&chosen, &network);
        let same = |a: &lathe_model::Network, b: &lathe_model::Network| {
            a.params().iter().zip(b.params().iter()).filter(|(a, b)| a.data == b.data).count()
        };
        let all = network.params().iter().count();
        assert_eq!(same(&network, &to.network(&chosen).unwrap()), all);
        // Other options keep their own; only what stands around the slots is shared.
        let kept = to.network(&other).unwrap();
        let shared =
            kept.params().iter().filter(|param| !param.name.contains(".h.") && !param.name.contains(".layers."));
        assert_eq!(same(&before, &kept), kept.params().iter().count() - shared.count());
    }
}
