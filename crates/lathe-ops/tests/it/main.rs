//! The fused operators against their composed versions, plain loops and finite differences.

mod activation;
mod attention;
mod embedding;
mod halves;
mod integers;
mod linear;
mod loss;
mod mixture;
mod moe;
mod norm;
mod optim;
mod rope;
mod soft;
mod states;
mod storage;

use candle_core::{DType, Device, Result, Tensor, Var};

/// Numbers between -1 and 1 in no order (splitmix64).
fn numbers(len: usize, seed: u64) -> Vec<f32> {
    let number = |i: usize| {
        let mut x = (seed << 32 | i as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..len).map(number).collect()
}

/// Asserts that the largest difference, relative to the largest entry, is small. Inputs are of the order of 1, so what
/// is far below it is what sums left over.
#[track_caller]
fn close(what: &str, found: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let most = expected.iter().fold(0.1f32, |most, x| most.max(x.abs()));
    let worst = found.iter().zip(expected).fold(0.0, |worst: f32, (a, b)| {
        let difference = (a - b).abs();
        if difference.is_nan() { f32::INFINITY } else { worst.max(difference) }
    });
    assert!(worst <= tolerance * most, "{what}: off by {worst} where the largest entry is {most}");
}

/// Asserts that all numbers are equal, and shows the first that are not.
#[track_caller]
fn equal(what: &str, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    if let Some(i) = (0..found.len()).find(|&i| found[i] != expected[i]) {
        panic!("{what}: at {i} of {} stands {} for {}", found.len(), found[i], expected[i]);
    }
}

/// An input of a graph: its numbers and its shape.
type Input<'a> = (&'a [f32], &'a [usize]);

/// What a graph gives, and the gradients of sum(weights * what it gives) for each input. Computed in f64; in f32 it has
/// to be nearly the same, and of few inputs the gradients have to be what finite differences say.
fn graph<const N: usize>(
    inputs: [Input<'_>; N],
    weights: &[f32],
    f: impl Fn([&Tensor; N]) -> Result<Tensor>,
) -> (Vec<f32>, [Vec<f32>; N]) {
    let floats = |x: &Tensor| x.to_dtype(DType::F32).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let run = |dtype: DType| {
        let vars = inputs.map(|(data, shape)| {
            Var::from_tensor(&Tensor::from_slice(data, shape, &Device::Cpu).unwrap().to_dtype(dtype).unwrap()).unwrap()
        });
        let value = f(vars.each_ref().map(|var| var.as_tensor())).unwrap();
        let weights = Tensor::from_slice(weights, value.shape(), &Device::Cpu).unwrap().to_dtype(dtype).unwrap();
        let total = (&value * weights).unwrap().sum_all().unwrap();
        let grads = total.backward().unwrap();
        let of_var = |var: &Var| {
            grads.get(var).map_or_else(|| vec![0.0; var.elem_count()], |gradient: &Tensor| floats(gradient))
        };
        (floats(&value), vars.each_ref().map(of_var))
    };
    let (value, gradients) = run(DType::F64);
    let (value_f32, gradients_f32) = run(DType::F32);
    close("composed in f32", &value_f32, &value, 1e-5);
    for (a, b) in gradients_f32.iter().zip(&gradients) {
        close("composed gradients in f32", a, b, 2e-5);
    }
    if inputs.iter().map(|(data, _)| data.len()).sum::<usize>() <= 200 {
        finite_differences(&inputs, weights, &gradients, |tensors| f(std::array::from_fn(|i| &tensors[i])).unwrap());
    }
    (value, gradients)
}

fn finite_differences(inputs: &[Input<'_>], weights: &[f32], gradients: &[Vec<f32>], f: impl Fn(&[Tensor]) -> Tensor) {
    const STEP: f64 = 1e-6;
    let total = |changed: usize, entry: usize, step: f64| -> f64 {
        let tensors: Vec<Tensor> = inputs
            .iter()
            .enumerate()
            .map(|(i, (data, shape))| {
                let mut data: Vec<f64> = data.iter().map(|&x| f64::from(x)).collect();
                if i == changed {
                    data[entry] += step;
                }
                Tensor::from_vec(data, *shape, &Device::Cpu).unwrap()
            })
            .collect();
        let value = f(&tensors).flatten_all().unwrap().to_vec1::<f64>().unwrap();
        value.iter().zip(weights).map(|(value, &weight)| value * f64::from(weight)).sum()
    };
    for (i, gradient) in gradients.iter().enumerate() {
        let slopes = (0..gradient.len()).map(|e| ((total(i, e, STEP) - total(i, e, -STEP)) / (2.0 * STEP)) as f32);
        close("gradients and finite differences", gradient, &slopes.collect::<Vec<_>>(), 1e-5);
    }
}

/// Asserts that something gives the same bits each time, on one thread and on two.
#[track_caller]
fn same_bits(what: &str, f: impl Fn() -> Vec<Vec<f32>> + Sync) {
    let bits = |results: Vec<Vec<f32>>| -> Vec<Vec<u32>> {
        results.into_iter().map(|result| result.into_iter().map(f32::to_bits).collect()).collect()
    };
    let on = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        bits(pool.install(&f))
    };
    let first = on(1);
    assert!(first == on(1), "{what}: again");
    assert!(first == on(2), "{what}: on two threads");
}

/// Runs the tests of a module, of which `one` is one, with every cap of instructions: those that this CPU has not are as the
/// one before. The test that calls this has to be named `on_every_level`.
fn on_every_level(module: &str, one: &str) {
    for cap in ["portable", "avx2", "avx512", "avx512vnni", "avx512bf16"] {
        let tests = std::process::Command::new(std::env::current_exe().unwrap())
            .args([module, "--skip", "on_every_level"])
            .env("LATHE_CPU", cap)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&tests.stdout);
        assert!(tests.status.success() && said.contains(&format!("{one} ... ok")), "{cap}: {said}");
    }
}
