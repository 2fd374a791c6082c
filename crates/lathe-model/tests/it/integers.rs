//! Folders with integer weights that are damaged, and rounding with text.

use lathe_core::Spec;
use lathe_model::quantize::{self, Range, Settings};
use lathe_model::{Input, Network, REGISTRY, folder};
use lathe_ops::gemm::Mat;
use lathe_ops::integers::{Activations, FORMATS, Format, Integers};
use std::path::Path;

fn network() -> Network {
    let toml = "backbone='llama'\nlayers='(sf)x2'\nd_model=32\nheads=2\ninner=48\nvocab=40\nmax_len=32";
    Network::new(Spec::from_toml(toml, &REGISTRY).unwrap().model(&REGISTRY).unwrap(), 3).unwrap()
}

fn saved(format: &str, dir: &Path) -> Vec<u8> {
    let mut network = network();
    network.set_format(Format::parse(format).unwrap());
    folder::save(&network, dir).unwrap();
    std::fs::read(dir.join("model.safetensors")).unwrap()
}

fn told(dir: &Path, bytes: &[u8]) -> String {
    std::fs::write(dir.join("model.safetensors"), bytes).unwrap();
    match folder::load(dir, &REGISTRY) {
        Ok(_) => "loaded".into(),
        Err(error) => error.to_string(),
    }
}

/// The same bytes with another text of the same length in the header.
fn edited(bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let at = bytes.windows(from.len()).position(|window| window == from.as_bytes()).expect("a text of the header");
    let mut bytes = bytes.to_vec();
    bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
    bytes
}

/// A projection that embedding and output share is read both ways, and codes are packed for one.
#[test]
fn shared_projections_stay_exact() {
    let toml = "backbone='transformer_xl'\nlayers='sf'\nd_model=32\nheads=2\ninner=48\nvocab=40\ntgt_len=8\nmem_len=4\n\
                cutoffs=[10, 20]\ndiv_val=2";
    let model = Spec::from_toml(toml, &REGISTRY).unwrap().model(&REGISTRY).unwrap();
    let ids: Vec<u32> = (0..8).map(|i| i * 5).collect();
    let logits = |network: &Network| network.logits(&Input::tokens(&ids, 1), &mut network.init_memory(1));
    let mut network = Network::new(model, 3).unwrap();
    let before = logits(&network);
    network.set_format(Format::parse("int8").unwrap());
    let far = before.iter().zip(logits(&network).iter()).fold(0.0f32, |most, (a, b)| most.max((a - b).abs()));
    assert!(far > 0.0 && far < 0.05, "{far}");
    let kept = network.params().iter().filter(|param| param.place().is_some() && param.integers().is_empty());
    let kept: Vec<&str> = kept.map(|param| param.name.as_str()).collect();
    assert_eq!(kept, ["transformer.word_emb.emb_projs.1", "transformer.word_emb.emb_projs.2"]);
}

#[test]
fn damaged_folders_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let good = saved("int4_g32_offset", dir.path());
    assert_eq!(told(dir.path(), &good), "loaded");
    for (from, to, expected) in [
        ("int4_g32_offset int8", "int5_g32_offset int8", "expected a format"),
        ("int4_g32_offset int8", "int4_g32_offset int9", "expected a format"),
        ("int4_g32_offset int8", "int6_g32_offset int8", "has the shape"),
        ("up_proj.weight.scale", "up_proj.weight.scala", "scale` is missing"),
    ] {
        let found = told(dir.path(), &edited(&good, from, to));
        assert!(found.contains(expected), "{to}: {found}");
    }
    assert!(told(dir.path(), &good[..good.len() - 3]).contains("cut off"));
    // A scale that is no number.
    let mut wrong = good.clone();
    let header = u64::from_le_bytes(good[..8].try_into().unwrap()) as usize;
    let text: serde_json::Value = serde_json::from_slice(&good[8..8 + header]).unwrap();
    let name = "model.layers.0.mlp.up_proj.weight.scale";
    let start = 8 + header + text[name]["data_offsets"][0].as_u64().unwrap() as usize;
    wrong[start..start + 2].copy_from_slice(&[0x00, 0x7c]); // infinite
    let found = told(dir.path(), &wrong);
    assert!(found.contains("model.layers.0.mlp.up_proj.weight") && found.contains("finite"), "{found}");
    // Whatever else is changed in the header: an error or a model, no panic.
    let mut state = 1u32;
    for _ in 0..300 {
        let mut bytes = good.clone();
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let at = 8 + (state >> 8) as usize % header;
        bytes[at] = bytes[at].wrapping_add(1 + (state % 50) as u8);
        told(dir.path(), &bytes);
    }
}

/// Inputs of a matrix that hang together, as activations do.
fn inputs(rows: usize, width: usize) -> Vec<f32> {
    let mut state = 9u32;
    let mut random = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 24) as f32 - 0.5
    };
    let mut x = Vec::new();
    for _ in 0..rows {
        let common = 3.0 * random();
        x.extend((0..width).map(|i| common * ((i % 5) as f32 - 1.0) + random()));
    }
    x
}

#[test]
fn compensation_and_least_squares_lower_the_error_of_products() {
    let (rows, width, outputs) = (200, 64, 24);
    let x = inputs(rows, width);
    let w: Vec<f32> = inputs(outputs, width).iter().map(|w| w * w * w.signum()).collect();
    let mut gram = vec![0.0f32; width * width];
    for row in x.chunks_exact(width) {
        (0..width * width).for_each(|at| gram[at] += row[at / width] * row[at % width]);
    }
    let error = |integers: &Integers| -> f64 {
        let rounded = integers.read();
        let mut sum = 0.0;
        for row in x.chunks_exact(width) {
            for o in 0..outputs {
                let of = |w: &[f32]| row.iter().zip(&w[o * width..]).map(|(x, w)| f64::from(x * w)).sum::<f64>();
                sum += (of(&w) - of(&rounded)).powi(2);
            }
        }
        sum
    };
    let mat = Mat::new(&w, outputs, width);
    for &format in FORMATS {
        let round = |range, compensate| error(&quantize::matrix(mat, format, range, Some(&gram), compensate));
        let plain = round(Range::MinMax, false);
        let (squares, both) = (round(Range::LeastSquares, false), round(Range::LeastSquares, true));
        let compensated = round(Range::MinMax, true);
        assert!(compensated < 0.7 * plain, "{format}: {compensated} of {plain}");
        assert!(both < 0.7 * plain && squares < 1.2 * plain, "{format}: {both}, {squares} of {plain}");
        let percentile = round(Range::Percentile(1.0), false);
        assert!((percentile / plain - 1.0).abs() < 1e-6, "{format}: {percentile} of {plain}");
    }
}

#[test]
fn a_network_is_rounded_from_the_bottom_up() {
    let sequences: Vec<Vec<u32>> = (0..6).map(|i| (0..24).map(|t| (i * 7 + t * t + t * i) % 40).collect()).collect();
    let original = network();
    let outputs = |network: &Network| -> Vec<f32> {
        let of = |ids: &Vec<u32>| network.logits(&Input::tokens(ids, 1), &mut network.init_memory(1)).to_vec();
        sequences.iter().flat_map(of).collect()
    };
    let expected = outputs(&original);
    let error = |compensate: bool| {
        let mut network = network();
        let slots = vec![Some(Format::parse("int4_g32").unwrap()); 4];
        let output = Format::parse("int8").ok();
        let settings = Settings { slots, output, range: Range::LeastSquares, compensate };
        let mut told = Vec::new();
        quantize::calibrated(&mut network, &settings, &sequences, &mut |done, total| told.push((done, total)));
        assert_eq!(told, (1..=5).map(|done| (done, 5)).collect::<Vec<_>>());
        let keys: Vec<String> = network.params().iter().map(|param| param.storage_key()).collect();
        assert!(keys.contains(&"int4_g32".into()) && keys.contains(&"int8".into()), "{keys:?}");
        let errors = quantize::activation_errors(&mut network, &sequences);
        assert!(errors.is_sorted_by(|a, b| a.1 >= b.1) && errors.iter().all(|(_, error)| *error < 1e-3), "{errors:?}");
        network.params_mut().for_each(|param| param.set_activations(Activations::Float));
        let found = outputs(&network);
        found.iter().zip(&expected).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>()
    };
    let (plain, compensated) = (error(false), error(true));
    assert!(compensated < plain, "{compensated} of {plain}");
}
