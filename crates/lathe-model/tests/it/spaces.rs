//! Spaces: exact sizes, distributions of samples, and nothing ever leaves a space.

use lathe_core::space::{Genome, Sampling};
use lathe_core::{NormPlace, Space};
use lathe_model::REGISTRY;
use lathe_model::shipped::{self, SPACES};
use num_bigint::BigUint;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::{HashMap, HashSet};

fn shipped(name: &str) -> Space {
    shipped::find(SPACES, name).unwrap().space().unwrap()
}

/// 2 widths, 1 or 2 layers, heads and inner with a condition: small enough to list.
const SMALL: &str = "
where = ['inner >= 2 * d_model']
[baseline]
backbone = 'gpt2'
layers = 'sf'
d_model = 4
vocab = 7
[choices]
d_model = [4, 8]
[[slots]]
repeat = [1, 2]
options = ['sf', 'f-']
knobs = { heads = [1, 2], inner = { min = 8, max = 16, step = 4 } }
[[slots]]
options = ['-', 'm2k1']
";

fn small() -> Space {
    Space::from_toml(SMALL, &REGISTRY).unwrap()
}

#[test]
fn sizes_are_exact() {
    assert_eq!(shipped("par").size(), BigUint::from(3u32).pow(32));
    assert_eq!(shipped("par_pre").size(), shipped("par").size());
    assert_eq!(["par", "par_pre"].map(|name| shipped(name).baseline.frame.norm), [NormPlace::Post, NormPlace::Pre]);
    assert_eq!(shipped("planer_wt103").size(), BigUint::from(8u32).pow(32));
    assert_eq!(shipped("planer_enwik8").size(), BigUint::from(8u32).pow(24));
    assert_eq!(shipped("planer_wt103_iso").size(), BigUint::from(7u32).pow(32));
    assert_eq!(shipped("lts_opt").size(), BigUint::from(27u32 * 16 * 4 * 88));
    // By hand: inner widths from 2 * d_model to 4096 in steps of 64, 3 heads, 2 to 16 layers, 9 embeddings.
    let lts: BigUint = (128..=1024u32)
        .step_by(64)
        .flat_map(|d| (2..=16).map(move |layers| BigUint::from(3 * ((4096 - 2 * d) / 64 + 1)).pow(layers)))
        .sum::<BigUint>()
        * 9u32;
    assert_eq!(shipped("lts_transformer_xl").size(), lts);
    assert_eq!(shipped("lts_gpt2").size(), lts);
    assert_eq!(lts.to_string().len(), 38, "10^37.5");
}

/// All of a small space, by brute force over the text of its file.
fn brute_force() -> HashSet<String> {
    let mut all = HashSet::new();
    for d in [4, 8] {
        let inner: Vec<u32> = [8, 12, 16].into_iter().filter(|inner| *inner >= 2 * d).collect();
        let mut picks: Vec<String> = inner.iter().flat_map(|f| [1, 2].map(|h| format!("s{h} f{f}"))).collect();
        picks.extend(inner.iter().map(|f| format!("f{f} -")));
        for last in ["-", "m2k1"] {
            for a in &picks {
                all.insert(format!("{d}: {a} {last}"));
                all.extend(picks.iter().map(|b| format!("{d}: {a} {b} {last}")));
            }
        }
    }
    all
}

fn describe(space: &Space, genome: &Genome) -> String {
    let model = space.model(genome);
    let blocks: Vec<String> = model.blocks.iter().map(|block| format!("{block:?}")).collect();
    format!("{}: {}", model.frame.d_model, blocks.join(" "))
}

#[test]
fn enumeration_is_complete() {
    let space = small();
    let listed: Vec<String> = space.enumerate(1000).unwrap().map(|genome| describe(&space, &genome)).collect();
    let expected = brute_force();
    assert_eq!(listed.iter().cloned().collect::<HashSet<_>>(), expected);
    assert_eq!(listed.len(), expected.len(), "each once");
    assert_eq!(space.size(), BigUint::from(expected.len()));
    assert!(space.nth(&space.size()).is_none());
    assert!(space.enumerate(expected.len() as u64 - 1).is_none());
    assert!(shipped("par").enumerate(1_000_000).is_none());
}

/// Chi-square against expected probabilities; the bound is 6 standard deviations, and the seed is fixed.
fn check_distribution(
    space: &Space,
    probability: impl Fn(&str) -> f64,
    mut draw: impl FnMut(&mut ChaCha8Rng) -> Genome,
) {
    let draws = crate::cases(100_000);
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let mut seen: HashMap<String, f64> = HashMap::new();
    for _ in 0..draws {
        *seen.entry(describe(space, &draw(&mut rng))).or_default() += 1.0;
    }
    let all = brute_force();
    let total: f64 = all.iter().map(|name| probability(name)).sum();
    assert!((total - 1.0).abs() < 1e-9, "the expected probabilities sum to {total}");
    let chi_square: f64 = all
        .iter()
        .map(|name| {
            let expected = probability(name) * draws as f64;
            (seen.get(name).copied().unwrap_or(0.0) - expected).powi(2) / expected
        })
        .sum();
    let freedom = all.len() as f64 - 1.0;
    assert!((chi_square - freedom).abs() < 6.0 * (2.0 * freedom).sqrt(), "chi-square {chi_square}, freedom {freedom}");
}

/// Choice by choice: width, repetitions, then per slot the option, then its knobs.
fn by_choices(name: &str) -> f64 {
    let (d, blocks) = name.split_once(": ").unwrap();
    let inner = if d == "4" { 3.0 } else { 1.0 };
    let blocks: Vec<&str> = blocks.split(' ').collect();
    let repeats = blocks[..blocks.len() - 1].chunks(2);
    let picks: f64 = repeats.map(|pick| 0.5 / inner / if pick[0].starts_with('s') { 2.0 } else { 1.0 }).product();
    0.5 * 0.5 * picks * 0.5
}

#[test]
fn samples_have_the_stated_distribution() {
    let space = small();
    check_distribution(&space, by_choices, |rng| space.sample(Sampling::Choices, rng));
    let size = brute_force().len() as f64;
    check_distribution(&space, |_| 1.0 / size, |rng| space.sample(Sampling::Architectures, rng));
}

#[test]
fn mutation_and_crossover_choose_genes_as_stated() {
    let space = small();
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let mut draw = |_: usize| space.sample(Sampling::Choices, &mut rng);
    let parents: Vec<Genome> = (0..200).map(&mut draw).collect();
    for parent in &parents {
        assert_eq!(&space.mutate(parent, 0.0, &mut rng), parent, "nothing mutates");
        assert_eq!(&space.crossover(parent, parent, &mut rng), parent, "nothing to cross");
    }
    // Every gene anew is a fresh sample.
    check_distribution(&space, by_choices, |rng| space.mutate(&parents[0], 1.0, rng));
}

#[test]
fn crossover_takes_every_gene_from_a_parent() {
    let space = shipped("par");
    let mut rng = ChaCha8Rng::seed_from_u64(6);
    for _ in 0..100 {
        let [a, b] = [0, 1].map(|_| space.sample(Sampling::Choices, &mut rng));
        let child = space.model(&space.crossover(&a, &b, &mut rng));
        let (a, b) = (space.model(&a), space.model(&b));
        for (i, block) in child.blocks.iter().enumerate() {
            assert!(*block == a.blocks[i] || *block == b.blocks[i]);
        }
        assert_ne!(child.blocks, a.blocks);
    }
}

/// Whatever happens to an architecture, it stays inside: checked by `contains`, which knows no genes.
#[test]
fn nothing_leaves_its_space() {
    for shipped in SPACES {
        let space = shipped.space().unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(4);
        let mut population: Vec<Genome> = (0..8).map(|_| space.sample(Sampling::Choices, &mut rng)).collect();
        population.extend((0..8).map(|_| space.sample(Sampling::Architectures, &mut rng)));
        for _ in 0..crate::cases(400) {
            let [a, b] = [0, 1].map(|_| population[rng.random_range(0..population.len())].clone());
            let child =
                if rng.random_bool(0.5) { space.mutate(&a, 0.3, &mut rng) } else { space.crossover(&a, &b, &mut rng) };
            let model = space.model(&child);
            assert!(space.contains(&model), "{}: {}", shipped.name, model.layers());
            lathe_core::Model::new(model.frame, model.blocks).expect("a valid model");
            let slot = rng.random_range(0..population.len());
            population[slot] = child;
        }
    }
}

#[test]
fn contains_tells_inside_from_outside() {
    for name in ["par", "planer_wt103", "planer_enwik8", "planer_wt103_iso", "lts_transformer_xl", "lts_opt", "cpu"] {
        let space = shipped(name);
        assert!(space.contains(&space.baseline), "{name}");
    }
    let space = shipped("lts_gpt2");
    assert!(!space.contains(&space.baseline), "the printed baseline has 12 heads");
    let (small, par) = (small(), shipped("par"));
    let with =
        |layers: &str, d: u32| crate::model(&format!("backbone='gpt2'\nlayers='{layers}'\nd_model={d}\nvocab=7"));
    assert!(small.contains(&with("s1 f8 -", 4)) && small.contains(&with("s1 f16 f16 - m2k1", 8)));
    for (layers, d) in [("s1 f8 -", 8), ("s1 f8", 4), ("s1 f9 -", 4), ("s1 f8 s1 f8 s1 f8 -", 4), ("s1 f8 -", 5)] {
        assert!(!small.contains(&with(layers, d)), "{layers}, {d} wide");
    }
    assert!(!par.contains(&with("s1 f8 -", 4)));
}

#[test]
fn seeds_reproduce() {
    let space = shipped("lts_gpt2");
    let draw = |seed| {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        (0..20).map(|_| space.sample(Sampling::Choices, &mut rng)).collect::<Vec<_>>()
    };
    assert_eq!(draw(1), draw(1));
    assert_ne!(draw(1), draw(2));
}

/// A space over a small GPT-2.
fn read(before: &str, after: &str) -> Space {
    let text = format!("{before}\n[baseline]\nbackbone='gpt2'\nlayers='sf'\nd_model=64\nvocab=256\n{after}");
    Space::from_toml(&text, &REGISTRY).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn layers(space: &Space) -> Vec<String> {
    space.enumerate(1000).unwrap().map(|genome| space.model(&genome).layers()).collect()
}

/// A slot that may be left out is left out where no pick is valid.
#[test]
fn a_slot_without_valid_picks_is_not_repeated() {
    let slots = "[[slots]]\noptions=['s']\nrepeat={min=0,max=2}\n[[slots]]\noptions=['f']";
    let space = read("where=['heads > 100']", slots);
    assert_eq!(layers(&space), ["f"]);
    assert_eq!((space.blocks(), space.options().len()), ((1, 1), 1), "only what is possible");
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    for sampling in [Sampling::Choices, Sampling::Architectures] {
        let genome = space.sample(sampling, &mut rng);
        assert_eq!(space.model(&genome).layers(), "f");
        assert_eq!(space.mutate(&genome, 1.0, &mut rng), genome);
    }
    // In the world of 128 heads the slot is there.
    let space = read("where=['heads > 100']", &format!("[choices]\nheads=[128]\nd_model=[128]\n{slots}"));
    assert_eq!(layers(&space), ["f", "sf", "ssf"]);
}

#[test]
fn conditions_see_defaults_and_derived_widths() {
    // 64 wide: s1 has a head of 64, s4 of 16; a bare m has 8 experts, 2 active, of inner width 256.
    for (condition, left) in [
        ("d_head >= 32", &["s1", "m", "f7"][..]),
        ("experts < 8", &["s1", "s4", "f7"]),
        ("top_k == 2", &["s1", "s4", "m", "f7"]),
        ("renormalise == 1", &["s1", "s4", "f7"]),
        ("inner == 4 * d_model", &["s1", "s4", "m"]),
    ] {
        let space = read(&format!("where=['{condition}']"), "[[slots]]\noptions=['s1','s4','m','f7']");
        assert_eq!(layers(&space), left, "{condition}");
        assert_eq!(space.options().len(), left.len());
    }
    let space = read("", "[[slots]]\noptions=['m']\nknobs={renormalise=[true,false],top_k=[1,8]}");
    assert_eq!(space.size(), BigUint::from(4u32));
    assert!(space.contains(&crate::model("backbone='gpt2'\nlayers='m8k1i256'\nd_model=64\nvocab=256")));
    assert!(!space.contains(&crate::model("backbone='gpt2'\nlayers='m8'\nd_model=64\nvocab=256")), "2 active");
}

/// Without its condition each of these has a frame that is refused.
#[test]
fn conditions_can_exclude_invalid_frames() {
    let slot = "[[slots]]\noptions=['f']";
    let clusters = format!("cutoffs=[10]\n[choices]\nd_embed=[1,64]\ndiv_val=[1,2]\n{slot}");
    assert_eq!(read("where=['d_embed >= div_val']", &clusters).size(), BigUint::from(3u32));
    let heads = format!("[choices]\nheads=[4,8]\nd_model=[4,8]\n{slot}");
    assert_eq!(read("where=['heads <= d_model']", &heads).size(), BigUint::from(3u32));
}

#[test]
fn blocks_and_options_follow_the_conditions() {
    let slots = "[[slots]]\nrepeat=[1,2]\noptions=['s','ffff']\n[[slots]]\nrepeat=0\noptions=['m']\n";
    let space = read("", slots);
    assert_eq!((space.blocks(), space.options().len()), ((1, 8), 2));
    let space = read("where=['inner < 3']", slots);
    assert_eq!((space.blocks(), space.options().len()), ((1, 2), 1));
}

/// 10,000 repetitions of 90,000 picks: the values to choose from are not listed anew for each.
#[test]
fn large_spaces_are_sampled_quickly() {
    let knobs = "knobs={heads={min=1,max=30000},d_head=[1,2,3]}";
    let space = read("", &format!("[choices]\nd_model=[65536]\n[[slots]]\noptions=['s']\nrepeat=10000\n{knobs}"));
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    for sampling in [Sampling::Choices, Sampling::Architectures] {
        let genome = space.sample(sampling, &mut rng);
        assert_eq!(space.model(&genome).blocks.len(), 10_000);
        assert_ne!(space.mutate(&genome, 0.5, &mut rng), genome);
    }
}

#[test]
fn block_choices_of_the_shipped_spaces() {
    let places = |name: &str| {
        let space = shipped::find(SPACES, name).unwrap().space().unwrap();
        space.block_choices().map(|(_, places)| places).map_err(|error| error.to_string())
    };
    let par = places("par").unwrap();
    assert_eq!((par.len(), format!("{:?}", par[31])), (32, "[s, f, -]".to_string()));
    assert_eq!(places("planer_enwik8").unwrap().iter().map(Vec::len).collect::<Vec<_>>(), [8; 24]);
    let expected =
        "; expected one frame, and slots that are repeated a fixed number of times and choose one block each";
    let found = places("lts_gpt2").unwrap_err();
    assert_eq!(found, format!("choices: found models that differ in d_model, d_embed, div_val{expected}"));
    let base = "[baseline]\nbackbone='gpt2'\nlayers='sf'\nd_model=64\nvocab=9\n";
    for (slots, problem) in [
        ("[[slots]]\noptions=['s','f']\nrepeat=[1,2]", "slots, table 1: found 1 to 2 repetitions"),
        ("[[slots]]\noptions=['s','f']\n[[slots]]\noptions=['sf','f']", "slots, table 2: found the option `sf`"),
        (
            "[[slots]]\noptions=['s','f']\nrepeat=3\nsame=true",
            "slots, table 1: found 3 repetitions that are all the same",
        ),
    ] {
        let error = Space::from_toml(&format!("{base}{slots}"), &REGISTRY).unwrap().block_choices().unwrap_err();
        assert_eq!(error.to_string(), format!("{problem}{expected}"));
    }
}
