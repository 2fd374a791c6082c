//! A stack in one line: each block its letter, in the colour of its kind, with a bar for its cost.

use anstyle::{AnsiColor, Style};
use lathe_core::{Block, BlockKind, Model, Setting};
use lathe_model::blocks::BLOCKS;
use lathe_model::of_blocks;

const COLOURS: &[AnsiColor] = &[
    AnsiColor::Blue,
    AnsiColor::Green,
    AnsiColor::Magenta,
    AnsiColor::BrightBlack,
    AnsiColor::Yellow,
    AnsiColor::Cyan,
];
const BARS: &[char] = &['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The most blocks that are drawn; the middle of a longer stack is left out.
const MAX_DRAWN: usize = 48;

/// The colour of a kind of block.
pub fn style(kind: &dyn BlockKind) -> Style {
    let index = BLOCKS.iter().position(|known| known.key() == kind.key()).unwrap_or(0);
    COLOURS[index % COLOURS.len()].on_default()
}

/// `s█f▂s█f▂`: bars are shares of the dearest block's FLOPs.
pub fn line(model: &Model, setting: &Setting) -> String {
    let costs: Vec<u128> = of_blocks(model, setting).iter().map(|cost| cost.flops).collect();
    let most = costs.iter().copied().max().unwrap_or(0).max(1);
    let draw = |(block, &cost): (&Block, &u128)| {
        let style = style(block.kind);
        let letter = block.kind.letter().unwrap_or('?');
        let bar = match cost {
            0 => String::new(),
            _ => BARS[((cost * BARS.len() as u128).div_ceil(most) as usize).clamp(1, BARS.len()) - 1].to_string(),
        };
        format!("{style}{letter}{bar}{style:#}")
    };
    let drawn: Vec<String> = model.blocks.iter().zip(&costs).map(draw).collect();
    if drawn.len() <= MAX_DRAWN {
        return drawn.concat();
    }
    let half = MAX_DRAWN / 2;
    let left_out = drawn.len() - 2 * half;
    format!("{} …{left_out}… {}", drawn[..half].concat(), drawn[drawn.len() - half..].concat())
}
