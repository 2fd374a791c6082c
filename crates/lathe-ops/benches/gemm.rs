//! GFLOP/s of the products that matter, NN and NT, packed and not: `cargo bench -p lathe-ops --bench gemm`.

use lathe_ops::PRECISIONS;
use lathe_ops::gemm::{Mat, MatMut, Packed, Rhs, gemm};
use std::time::{Duration, Instant};

/// The best of rounds over about a sixth of a second.
fn gflops(flops: f64, mut work: impl FnMut()) -> f64 {
    work();
    let begin = Instant::now();
    let mut best = f64::MAX;
    while begin.elapsed() < Duration::from_millis(150) {
        let start = Instant::now();
        work();
        best = best.min(start.elapsed().as_secs_f64());
    }
    flops / best / 1e9
}

fn main() {
    println!("{} threads, {}", rayon::current_num_threads(), lathe_ops::cpu::level().name());
    println!("{:>6} {:>6} {:>6} {:>5}  {:>6} {:>6} {:>6} {:>6}", "m", "n", "k", "", "NN", "NT", "TN", "packed");
    rayon::scope(|_| {
        for (m, n, k) in [
            (192, 512, 512),
            (192, 1536, 512),
            (192, 2048, 512),
            (192, 512, 2048),
            (64, 512, 512),
            (64, 2048, 512),
            (1536, 512, 512),
            (1536, 2048, 512),
            (1536, 512, 2048),
            (1536, 10000, 512),
            (2048, 256, 256),
            (2048, 1024, 256),
            (2048, 256, 1024),
            (512, 2048, 1536),
            (256, 1024, 2048),
        ] {
            let a: Vec<f32> = (0..m * k).map(|i| (i % 7) as f32).collect();
            let b: Vec<f32> = (0..k * n).map(|i| (i % 5) as f32).collect();
            let mut c = vec![0.0; m * n];
            let flops = 2.0 * (m * n * k) as f64;
            let (a_mat, b_mat) = (Mat::new(&a, m, k), Mat::new(&b, k, n));
            let (a_t, b_t) = (Mat::new(&a, k, m).t(), Mat::new(&b, n, k).t());
            for (name, precision) in PRECISIONS.iter().filter(|(_, precision)| precision.warning().is_none()) {
                let packed = Packed::with_precision(b_mat, *precision);
                let mut rate = |a: Mat<'_>, b: Rhs<'_>| gflops(flops, || gemm(MatMut::new(&mut c, m, n), a, b, false));
                println!(
                    "{m:>6} {n:>6} {k:>6} {name:>5}  {:>6.0} {:>6.0} {:>6.0} {:>6.0}",
                    rate(a_mat, Rhs::new(b_mat, *precision)),
                    rate(a_mat, Rhs::new(b_t, *precision)),
                    rate(a_t, Rhs::new(b_mat, *precision)),
                    rate(a_mat, (&packed).into())
                );
            }
        }
    });
}
