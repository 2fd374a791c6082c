//! From blocks to the shortest string that reads like the papers': `(s)x6 (sf)x10 (f)x6`.

use crate::{Block, MAX_BLOCKS};
use std::collections::HashMap;

/// The longest pattern that is looked for as a repeated group.
const MAX_PERIOD: usize = 64;

/// Prints a stack; what it prints parses back to the same blocks.
pub fn print(blocks: &[Block]) -> String {
    debug_assert!(blocks.len() <= MAX_BLOCKS);
    let mut out = String::new();
    let mut after_letter = false;
    for Piece { start, period, count } in pieces(blocks) {
        let pattern = join(&blocks[start..start + period]);
        // Bare letters run together; everything else stands apart.
        let letter = count == 1 && pattern.len() == 1;
        if !(out.is_empty() || letter && after_letter) {
            out.push(' ');
        }
        match count {
            1 => out.push_str(&pattern),
            _ => out.push_str(&format!("({pattern})x{count}")),
        }
        after_letter = letter;
    }
    out
}

/// Blocks without grouping: `sff`, or `s2 f1216`.
fn join(blocks: &[Block]) -> String {
    let words: Vec<String> = blocks.iter().map(block).collect();
    let apart = words.iter().any(|word| word.len() > 1);
    words.join(if apart { " " } else { "" })
}

/// One block: the short form where it can say everything, else the long form.
fn block(block: &Block) -> String {
    let set = || block.knobs().filter_map(|(_, knob, value)| value.map(|value| (knob, value)));
    if let Some(letter) = block.kind.letter()
        && set().all(|(knob, _)| knob.mark.is_some())
    {
        let mut out = String::from(letter);
        for (knob, value) in set() {
            out.push_str(knob.mark.unwrap_or_default());
            out.push_str(&knob.domain.show(value));
        }
        return out;
    }
    let knobs: Vec<String> = set().map(|(knob, value)| format!("{}={}", knob.name, knob.domain.show(value))).collect();
    match knobs.is_empty() {
        true => block.kind.key().to_string(),
        false => format!("{}{{{}}}", block.kind.key(), knobs.join(",")),
    }
}

/// `count` times the `period` blocks from `start`.
#[derive(Clone, Copy)]
struct Piece {
    start: usize,
    period: usize,
    count: usize,
}

/// Cuts a stack into groups by dynamic programming from the right: fewest symbols first (a block counts
/// one, a group one more than its pattern), then the most blocks under long patterns, which is what makes
/// `(s)x6 (sf)x10 (f)x6` of a Sandwich rather than `(s)x7 (fs)x9 (f)x7`.
fn pieces(blocks: &[Block]) -> Vec<Piece> {
    let n = blocks.len();
    let mut numbers = HashMap::new();
    let ids: Vec<u32> = blocks
        .iter()
        .map(|block| {
            let next = numbers.len() as u32;
            *numbers.entry(block).or_insert(next)
        })
        .collect();

    #[derive(Clone, Copy)]
    struct Best {
        symbols: usize,
        weight: usize,
        period: usize,
        count: usize,
    }
    let mut best = vec![Best { symbols: 0, weight: 0, period: 0, count: 0 }; n + 1];
    // same[p]: for how many places from here on each block equals the one p further on.
    let mut same = [0usize; MAX_PERIOD + 1];
    for i in (0..n).rev() {
        best[i] = Best { symbols: best[i + 1].symbols + 1, weight: best[i + 1].weight, period: 1, count: 1 };
        for period in 1..=MAX_PERIOD.min(n - i) {
            same[period] = if i + period < n && ids[i] == ids[i + period] { same[period] + 1 } else { 0 };
            let most = same[period] / period + 1;
            // One repetition fewer may leave the rest a better start.
            for count in [most, most - 1] {
                if count < 2 || period * count < 3 {
                    continue;
                }
                let rest = best[i + period * count];
                let symbols = rest.symbols + period + 1;
                let weight = rest.weight + period * period * count;
                if symbols < best[i].symbols || (symbols == best[i].symbols && weight > best[i].weight) {
                    best[i] = Best { symbols, weight, period, count };
                }
            }
        }
    }

    let mut out = Vec::new();
    let mut start = 0;
    while start < n {
        let Best { period, count, .. } = best[start];
        out.push(Piece { start, period, count });
        start += period * count;
    }
    out
}
