//! The notation: what it means, what the printer makes of it, and random round trips.

use lathe_core::{Block, Domain, MAX_BLOCKS, notation};
use lathe_model::REGISTRY;
use lathe_model::blocks::BLOCKS;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

fn parse(text: &str) -> Vec<Block> {
    notation::parse(text, &REGISTRY).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn printed(text: &str) -> String {
    notation::print(&parse(text))
}

#[test]
fn short_and_long_forms_mean_the_same() {
    for (short, long) in [
        ("s", "attention"),
        ("s4", "attention{heads=4}"),
        ("s4d64", "attention { heads = 4 , d_head = 64 }"),
        ("sd64", "attention{d_head=64}"),
        ("f1216", "ffn{inner=1216}"),
        ("m8k2i1024", "moe{inner=1024,experts=8,top_k=2}"),
        ("mk1", "moe{top_k=1}"),
        ("-", "skip"),
        ("-", "skip{}"),
        ("sff", " s  f\n\tf "),
        ("s4f8", "s4 f8"),
        ("s skip ffn s", "sskip ffn s"),
        ("(sff)x2 (f)x3", "( s f f ) x 2 fff"),
        ("((s)x2f)x2", "ssfssf"),
    ] {
        assert_eq!(parse(short), parse(long), "{short} and {long}");
    }
    assert_ne!(parse("m8"), parse("moe{experts=8,renormalise=true}"));
}

#[test]
fn the_printer_writes_groups_as_the_papers_do() {
    for text in [
        "(sf)x16",
        "(s)x6 (sf)x10 (f)x6",
        "(s)x5 (sf)x7 (f)x5",
        "(s)x3 (sf)x9 (f)x3",
        "(sff)x5 (f)x9",
        "(sfff)x6 (f)x8",
        "(f)x3",
        "ff",
        "sff",
        "s2 f1216 s2 f1280",
        "(s2 f1216)x3",
        "s - f s4d64 m8k2",
        "moe{experts=8,renormalise=true}",
        "(moe{experts=8,renormalise=false})x4",
    ] {
        assert_eq!(printed(text), text.replace("s - f s4d64 m8k2", "s-f s4d64 m8k2"));
    }
}

fn random_block(rng: &mut ChaCha8Rng, bare: bool) -> Block {
    let mut block = Block::new(BLOCKS[rng.random_range(0..BLOCKS.len())]);
    for (i, knob) in block.kind.knobs().iter().enumerate() {
        if !bare && rng.random_bool(0.5) {
            block.set(
                i,
                match knob.domain {
                    Domain::Int { min, max } => rng.random_range(min..=max),
                    Domain::Flag => rng.random_range(0..=1),
                    Domain::Word(words) => rng.random_range(0..words.len() as u32),
                },
            );
        }
    }
    block
}

/// Stacks with structure: runs, repeated patterns, and noise.
fn random_stack(rng: &mut ChaCha8Rng) -> Vec<Block> {
    let bare = rng.random_bool(0.5);
    let mut stack = Vec::new();
    for _ in 0..rng.random_range(1..5) {
        let pattern: Vec<Block> = (0..rng.random_range(1..6)).map(|_| random_block(rng, bare)).collect();
        for _ in 0..rng.random_range(1..8) {
            stack.extend_from_slice(&pattern);
        }
    }
    stack
}

#[test]
fn printing_and_parsing_round_trip() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for _ in 0..crate::cases(20_000) {
        let stack = random_stack(&mut rng);
        let text = notation::print(&stack);
        assert_eq!(notation::parse(&text, &REGISTRY).as_ref(), Ok(&stack), "{text}");
        assert_eq!(notation::print(&parse(&text)), text, "printing is stable");
    }
}

#[test]
fn long_stacks_round_trip() {
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let noise: Vec<Block> = (0..MAX_BLOCKS).map(|_| random_block(&mut rng, false)).collect();
    assert!(parse(&notation::print(&noise)) == noise);
    assert_eq!(printed(&format!("(sf)x{}", MAX_BLOCKS / 2)), "(sf)x5000");
    assert_eq!(printed(&format!("(f)x{MAX_BLOCKS}")), "(f)x10000");
}

/// Random strings over the notation's own characters: never a panic, and what parses round-trips.
#[test]
fn random_strings_never_panic() {
    let alphabet: Vec<char> = "sfm-(){}x=,0123456789dki attentionheads_ inner\u{e9}\u{1f600}".chars().collect();
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let mut parsed = 0;
    for _ in 0..crate::cases(50_000) {
        let length = rng.random_range(0..24);
        let text: String = (0..length).map(|_| alphabet[rng.random_range(0..alphabet.len())]).collect();
        if let Ok(stack) = notation::parse(&text, &REGISTRY) {
            parsed += 1;
            assert_eq!(parse(&notation::print(&stack)), stack, "{text}");
        }
    }
    assert!(parsed > 0);
}
