//! Products with integer weights beside those of f32 and bf16: `cargo bench -p lathe-ops --bench integers`. All take turns,
//! and what is shown is the lower quartile of many rounds. `LATHE_CPU` caps the instructions, `RAYON_NUM_THREADS` the threads.
//!
//! Decoding goes through as many matrices as a model of 400 MB of f32 has, so that weights come from memory; GB/s are of
//! the bytes that a format takes, and beside them stands how fast as many bytes are just read. Prompts use one matrix again and
//! again; GOP/s count a multiplication and an addition for each term, and beside them stands what dot products of
//! registers alone would reach.

use lathe_ops::gemm::{Mat, MatMut, Packed, Rhs, gemm};
use lathe_ops::integers::{Activations, Format, Integers};
use lathe_ops::{Precision, cpu};
use std::hint::black_box;
use std::time::Instant;

const FORMATS: &[(&str, Activations)] = &[
    ("int8", Activations::Int8),
    ("int8_g32", Activations::Int8),
    ("int6_g64", Activations::Int8),
    ("int4_g64", Activations::Int8),
    ("int4_g32", Activations::Int8),
    ("int4_g32_offset", Activations::Int8),
    ("int8", Activations::Float),
    ("int4_g32", Activations::Float),
];

/// Weights of one kind.
enum Weights {
    Packed(Packed),
    Integers(Integers, Activations),
}

impl Weights {
    fn right(&self) -> Rhs<'_> {
        match self {
            Self::Packed(packed) => packed.into(),
            Self::Integers(w, activations) => {
                Rhs::Integers { w, first: 0, outputs: w.outputs(), activations: *activations }
            }
        }
    }
}

/// Every kind of weights: its name, its bytes, and so many matrices.
fn kinds(inputs: usize, outputs: usize, copies: usize) -> Vec<(String, usize, Vec<Weights>)> {
    let w: Vec<f32> = (0..inputs * outputs).map(|i| (i * 7919 % 1013) as f32 / 1013.0 - 0.5).collect();
    let (w, plain) = (Mat::new(&w, outputs, inputs), inputs * outputs);
    let mut kinds = Vec::new();
    let mut add = |name: String, bytes: usize, one: &dyn Fn() -> Weights| {
        kinds.push((name, bytes, (0..copies).map(|_| one()).collect()));
    };
    add("f32".into(), 4 * plain, &|| Weights::Packed(Packed::new(w.t())));
    if Precision::Bf16.warning().is_none() {
        add("bf16".into(), 2 * plain, &|| Weights::Packed(Packed::with_precision(w.t(), Precision::Bf16)));
    }
    let only = std::env::args().nth(2);
    for &(key, activations) in FORMATS.iter().filter(|(key, _)| only.as_deref().is_none_or(|only| only == *key)) {
        let quantized = Integers::quantize(Format::parse(key).expect("a format"), w);
        let name = if activations == Activations::Float { format!("{key} by f32") } else { key.into() };
        add(name, quantized.bytes(), &|| Weights::Integers(quantized.clone(), activations));
    }
    kinds
}

/// Seconds so far: of the processor where there is one thread, so that other programs do not count, or of the clock.
#[cfg(target_os = "linux")]
fn seconds() -> f64 {
    let which = if rayon::current_num_threads() == 1 { libc::CLOCK_PROCESS_CPUTIME_ID } else { libc::CLOCK_MONOTONIC };
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes the time and nothing else.
    unsafe { libc::clock_gettime(which, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

#[cfg(not(target_os = "linux"))]
fn seconds() -> f64 {
    static BEGIN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    BEGIN.get_or_init(Instant::now).elapsed().as_secs_f64()
}

/// Seconds of each work: the lower quartile of rounds in which all take turns, for about so long each.
fn quartiles(limit: f64, works: &mut [Box<dyn FnMut() + '_>]) -> Vec<f64> {
    let mut times = vec![Vec::new(); works.len()];
    works.iter_mut().for_each(|work| work());
    let begin = Instant::now();
    while times[0].len() < 9 || begin.elapsed().as_secs_f64() < limit * works.len() as f64 {
        for (work, times) in works.iter_mut().zip(&mut times) {
            let start = seconds();
            work();
            times.push(seconds() - start);
        }
    }
    times.iter_mut().for_each(|times| times.sort_by(f64::total_cmp));
    times.iter().map(|times| times[times.len() / 4]).collect()
}

/// Reads bytes on all threads.
fn read(bytes: &[u64]) {
    use rayon::prelude::*;
    let sum = |part: &[u64]| {
        let mut lanes = [0u64; 32];
        part.as_chunks::<32>().0.iter().for_each(|x| (0..32).for_each(|i| lanes[i] ^= x[i]));
        lanes.iter().sum::<u64>()
    };
    let piece = bytes.len().div_ceil(rayon::current_num_threads());
    black_box(bytes.par_chunks(piece.max(1)).map(sum).reduce(|| 0, u64::wrapping_add));
}

fn decode(inputs: usize, outputs: usize) {
    let copies = (400_000_000 / (4 * inputs * outputs)).max(1);
    let kinds = kinds(inputs, outputs, copies);
    let x: Vec<f32> = (0..inputs).map(|i| (i * 31 % 17) as f32 - 8.0).collect();
    let most = kinds.iter().map(|(_, bytes, _)| *bytes).max().unwrap_or(0);
    let plain = vec![1u64; copies * most / 8];
    let mut works: Vec<Box<dyn FnMut() + '_>> = Vec::new();
    for (_, bytes, weights) in &kinds {
        let (x, mut c) = (&x, vec![0.0; outputs]);
        works.push(Box::new(move || {
            weights
                .iter()
                .for_each(|w| gemm(MatMut::new(&mut c, 1, outputs), Mat::new(x, 1, inputs), w.right(), false));
        }));
        let plain = &plain[..copies * bytes / 8];
        works.push(Box::new(move || read(plain)));
    }
    let times = quartiles(0.3, &mut works);
    for (i, (name, bytes, _)) in kinds.iter().enumerate() {
        let (time, read) = (times[2 * i] / copies as f64, times[2 * i + 1] / copies as f64);
        println!(
            "{inputs:>5} {outputs:>6} {name:>16}  {:>8.1} us {:>6.1} GB/s, read {:>6.1}  {:>6.3} of f32",
            time * 1e6,
            *bytes as f64 / time / 1e9,
            *bytes as f64 / read / 1e9,
            times[2 * i] / times[0]
        );
    }
}

/// How often a prompt's product is computed at a turn.
const TIMES: usize = 10;

fn prompt(m: usize, inputs: usize, outputs: usize) {
    let kinds = kinds(inputs, outputs, 1);
    let x: Vec<f32> = (0..m * inputs).map(|i| (i * 31 % 17) as f32 - 8.0).collect();
    let mut works: Vec<Box<dyn FnMut() + '_>> = Vec::new();
    for (_, _, weights) in &kinds {
        let (x, mut c) = (&x, vec![0.0; m * outputs]);
        works.push(Box::new(move || {
            for _ in 0..TIMES {
                gemm(MatMut::new(&mut c, m, outputs), Mat::new(x, m, inputs), weights[0].right(), false);
            }
        }));
    }
    let times = quartiles(0.15, &mut works);
    for ((name, ..), time) in kinds.iter().zip(&times) {
        let rate = 2.0 * (TIMES * m * inputs * outputs) as f64 / time / 1e9;
        println!("{m:>5} {inputs:>5} {outputs:>6} {name:>16}  {rate:>8.0} GOP/s  {:>6.3} of f32", time / times[0]);
    }
}

/// Operations a second of dot products of registers alone, on all threads.
#[cfg(target_arch = "x86_64")]
fn peak() -> Option<f64> {
    use std::arch::x86_64::*;
    const STEPS: usize = 200_000;
    #[target_feature(enable = "avx512f,avx512vnni")]
    fn dots(start: i32) -> i32 {
        let mut sums = [_mm512_set1_epi32(start); 12];
        let (a, b) = (_mm512_set1_epi8(black_box(3)), _mm512_set1_epi8(black_box(5)));
        for _ in 0..STEPS {
            for sum in &mut sums {
                *sum = _mm512_dpbusd_epi32(*sum, a, b);
            }
        }
        sums.into_iter().fold(0, |all, sum| all.wrapping_add(_mm512_reduce_add_epi32(sum)))
    }
    let rounds = || {
        // SAFETY: asked for only where there is VNNI.
        black_box(rayon::broadcast(|_| unsafe { dots(black_box(1)) }));
    };
    cpu::vnni().then(|| {
        let time = quartiles(0.3, &mut [Box::new(rounds)])[0];
        (rayon::current_num_threads() * STEPS * 12 * 128) as f64 / time / 1e9
    })
}

#[cfg(not(target_arch = "x86_64"))]
fn peak() -> Option<f64> {
    None
}

fn main() {
    println!("{} threads, {}, vnni {}", rayon::current_num_threads(), cpu::level().name(), cpu::vnni());
    let only = std::env::args().nth(1).filter(|word| word != "--bench");
    if only.as_deref() != Some("prompt") {
        for (inputs, outputs) in [(576, 1536), (288, 32000), (512, 50257), (2048, 512)] {
            decode(inputs, outputs);
        }
    }
    if only.as_deref() != Some("decode") {
        if let Some(peak) = peak() {
            println!("dot products of registers alone: {peak:.0} GOP/s");
        }
        for m in [128, 512] {
            for (inputs, outputs) in [(576, 1536), (512, 2048), (288, 768)] {
                prompt(m, inputs, outputs);
            }
        }
    }
}
