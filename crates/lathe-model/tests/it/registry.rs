//! Contracts that every block kind and every shipped file must keep.

use lathe_core::block::MAX_KNOBS;
use lathe_core::{Block, Setting, notation};
use lathe_model::blocks::BLOCKS;
use lathe_model::shipped::{MODELS, SPACES, Shipped};
use lathe_model::{REGISTRY, count};
use std::collections::HashSet;
use std::path::Path;

#[test]
fn names_are_unambiguous() {
    let mut seen = HashSet::new();
    let letters: Vec<char> = BLOCKS.iter().filter_map(|kind| kind.letter()).collect();
    for kind in BLOCKS {
        assert!(seen.insert(kind.key().to_string()), "{} twice", kind.key());
        assert!(kind.letter().is_none_or(|letter| seen.insert(letter.to_string())));
        let written_in_letters = kind.key().chars().all(|c| letters.contains(&c));
        assert!(!written_in_letters, "{} could be read as a run of letters", kind.key());
        assert!(kind.knobs().len() <= MAX_KNOBS);
        for (i, knob) in kind.knobs().iter().enumerate() {
            assert!(knob.mark != Some("") || i == 0, "only the first knob may follow the letter directly");
            let clash = knob.mark.and_then(|mark| mark.chars().next()).is_some_and(|c| letters.contains(&c));
            assert!(!clash, "{}: mark {:?} is a block's letter", kind.key(), knob.mark);
        }
    }
}

/// A block with every knob left open and one with every knob at 1 print, parse and cost something sensible.
#[test]
fn every_block_round_trips_and_costs() {
    let setting = Setting { batch: 2, tgt_len: 3, mem_len: 5 };
    for kind in BLOCKS {
        let open = Block::new(*kind);
        let mut set = open;
        for i in 0..kind.knobs().len() {
            set.set(i, 1);
        }
        let mut tried = 0;
        for backbone in ["gpt2", "transformer_xl", "bert"] {
            let frame = crate::model(&format!("backbone='{backbone}'\nlayers='-'\nd_model=8\nvocab=11\n")).frame;
            for block in [open, set].into_iter().filter(|block| kind.check(block, &frame).is_ok()) {
                tried += 1;
                let text = notation::print(&[block]);
                assert_eq!(notation::parse(&text, &REGISTRY).unwrap(), [block], "{text}");
                let one = crate::model(&format!("backbone='{backbone}'\nlayers='{text}'\nd_model=8\nvocab=11\n"));
                let two =
                    crate::model(&format!("backbone='{backbone}'\nlayers='{text} {text}'\nd_model=8\nvocab=11\n"));
                let (a, b) = (count(&one, &setting), count(&two, &setting));
                let resolved = kind.resolve(&block, &one.frame);
                assert_eq!(kind.resolve(&resolved, &one.frame), resolved);
                assert_eq!(kind.cost(&resolved, &one.frame, &setting), a.blocks, "{text} and {resolved:?}");
                assert_eq!(2 * a.blocks.params, b.blocks.params);
                assert_eq!(2 * a.blocks.flops, b.blocks.flops);
                let half = count(&one, &Setting { batch: 1, ..setting });
                assert_eq!(a.blocks.flops, 2 * half.blocks.flops, "FLOPs grow with the batch");
                assert_eq!(a.activation_bytes, 2 * half.activation_bytes);
            }
        }
        assert!(tried >= 2, "{}", kind.key());
    }
}

fn check_folder(folder: &str, list: &[Shipped]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("shipped").join(folder);
    let mut files: Vec<String> =
        std::fs::read_dir(path).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap()).collect();
    let mut listed: Vec<String> = list.iter().map(|shipped| format!("{}.toml", shipped.name)).collect();
    files.sort();
    listed.sort();
    assert_eq!(files, listed, "files in shipped/{folder} and in the list");
    for shipped in list {
        assert!(shipped.text.starts_with("# ") && shipped.about().len() < 110, "{}: first line", shipped.name);
    }
}

#[test]
fn every_shipped_file_is_listed_and_valid() {
    check_folder("models", MODELS);
    check_folder("spaces", SPACES);
    for shipped in MODELS {
        let model = crate::model(shipped.text);
        let again = crate::model(&model.to_toml());
        assert_eq!(model, again, "{} written and read again", shipped.name);
    }
    for shipped in SPACES {
        shipped.space().unwrap_or_else(|error| panic!("{}: {error}", shipped.name));
    }
}
