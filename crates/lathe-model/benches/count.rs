//! How many architectures of 16 layers (32 blocks) are counted, drawn, printed and parsed in a second on one
//! core. Searches call the first two in their inner loop.
//!
//! `cargo bench -p lathe-model --bench count`

use lathe_core::space::Sampling;
use lathe_core::{Model, Setting, notation};
use lathe_model::shipped::{self, SPACES};
use lathe_model::{REGISTRY, count};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Repeats rounds over all items for a second and prints the median round's rate.
fn rate<T>(what: &str, items: &[T], mut work: impl FnMut(&T)) {
    let begin = Instant::now();
    let mut rounds = Vec::new();
    while begin.elapsed() < Duration::from_secs(1) {
        let start = Instant::now();
        items.iter().for_each(&mut work);
        rounds.push(items.len() as f64 / start.elapsed().as_secs_f64());
    }
    rounds.sort_by(f64::total_cmp);
    println!("{what:<24} {:>10.0} a second", rounds[rounds.len() / 2]);
}

fn main() {
    let space = shipped::find(SPACES, "lts_transformer_xl").and_then(|s| s.space().ok()).expect("a shipped space");
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let draw = |rng: &mut ChaCha8Rng| space.sample(Sampling::Choices, rng);
    let mut genomes = Vec::new();
    while genomes.len() < 1000 {
        let genome = draw(&mut rng);
        if space.model(&genome).blocks.len() == 32 {
            genomes.push(genome);
        }
    }
    let models: Vec<Model> = genomes.iter().map(|genome| space.model(genome)).collect();
    let setting = Setting { batch: 1, tgt_len: 192, mem_len: 192 };
    let texts: Vec<String> = models.iter().map(Model::layers).collect();

    rate("count", &models, |model| drop(black_box(count(model, &setting))));
    rate("build and count", &genomes, |genome| drop(black_box(count(&space.model(genome), &setting))));
    rate("mutate", &genomes, |genome| drop(black_box(space.mutate(genome, 0.3, &mut rng))));
    rate("print", &models, |model| drop(black_box(model.layers())));
    rate("parse", &texts, |text| drop(black_box(notation::parse(text, &REGISTRY))));
}
