//! Search spaces: a model with choices in it.
//!
//! A space has *global choices* (values for keys of the model file, such as `d_model`), and *slots*: one
//! or a range of repetitions, each of which picks one of the slot's options and a value for every knob
//! that the options leave open. *Conditions* cut combinations away. Every architecture of the space is
//! one [`Genome`]; genomes can be counted exactly, enumerated by index, sampled, mutated and crossed, and
//! never leave the space.
//!
//! A *world* is one valid assignment of the global choices, with the picks that are valid in it. Worlds
//! and picks are listed in lexicographic order of their genes, so that choosing gene by gene is a walk
//! down a sorted list.

mod condition;
mod file;
mod vary;

use crate::model::Key;
use crate::{Block, Frame, Model};
use condition::Condition;
use num_bigint::BigUint;
use std::collections::BTreeSet;

pub use vary::Sampling;

/// A search space.
#[derive(Debug)]
pub struct Space {
    /// The model that targets refer to; it need not be inside.
    pub baseline: Model,
    /// The keys of the model file that vary.
    globals: Vec<&'static Key>,
    slots: Vec<Slot>,
    conditions: Vec<Condition>,
    worlds: Vec<World>,
}

/// A run of places in the stack that choose from the same picks.
#[derive(Debug)]
struct Slot {
    /// How often it may be repeated, increasing.
    repeats: Vec<u32>,
    /// Whether all repetitions take the same pick.
    same: bool,
    /// Everything one repetition can be, in lexicographic order of genes.
    picks: Vec<Pick>,
}

/// One thing that a slot can be: its genes (option, then a value per open knob) and the blocks they make.
#[derive(Debug)]
struct Pick {
    genes: Vec<u32>,
    blocks: Vec<Block>,
}

/// A valid assignment of the global choices.
#[derive(Debug)]
struct World {
    genes: Vec<u32>,
    frame: Frame,
    /// For each slot, the indices of its valid picks, increasing.
    picks: Vec<Vec<u32>>,
    /// How many architectures it holds.
    size: BigUint,
}

/// One architecture of a space, as choices.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Genome {
    world: u32,
    slots: Vec<SlotGenes>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct SlotGenes {
    repeat: u32,
    /// One pick per repetition, or a single one where all are the same.
    picks: Vec<u32>,
}

impl Slot {
    /// How many picks are chosen for a number of repetitions.
    fn choices(&self, repeat: u32) -> u32 {
        if self.same { repeat.min(1) } else { repeat }
    }

    /// How many ways there are to fill the slot from `valid` picks.
    fn size(&self, valid: usize) -> BigUint {
        self.repeats.iter().map(|&repeat| BigUint::from(valid).pow(self.choices(repeat))).sum()
    }
}

impl Space {
    /// How many architectures there are, exactly.
    pub fn size(&self) -> BigUint {
        self.worlds.iter().map(|world| &world.size).sum()
    }

    /// The keys of the model file that vary from architecture to architecture.
    pub fn global_keys(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.globals.iter().map(|key| key.name)
    }

    /// The fewest and the most blocks an architecture has.
    pub fn blocks(&self) -> (usize, usize) {
        let ends = |slot: &Slot| {
            let lengths = || slot.picks.iter().map(|pick| pick.blocks.len());
            let (first, last) = (slot.repeats.first(), slot.repeats.last());
            let low = first.map_or(0, |&r| r as usize) * lengths().min().unwrap_or(0);
            (low, last.map_or(0, |&r| r as usize) * lengths().max().unwrap_or(0))
        };
        self.slots.iter().map(ends).fold((0, 0), |sum, x| (sum.0 + x.0, sum.1 + x.1))
    }

    /// All distinct blocks that an architecture can contain, in the space's order: what a profiler measures.
    pub fn options(&self) -> Vec<Block> {
        let mut seen = std::collections::HashSet::new();
        let all = self.slots.iter().flat_map(|slot| &slot.picks).flat_map(|pick| &pick.blocks);
        all.filter(|&&block| seen.insert(block)).copied().collect()
    }

    /// The model of a genome of this space.
    pub fn model(&self, genome: &Genome) -> Model {
        let mut blocks = Vec::new();
        for (slot, genes) in self.slots.iter().zip(&genome.slots) {
            for i in 0..genes.repeat as usize {
                let pick = genes.picks[if slot.same { 0 } else { i }];
                blocks.extend_from_slice(&slot.picks[pick as usize].blocks);
            }
        }
        // Every pick was checked in every world when the space was read.
        Model { frame: self.worlds[genome.world as usize].frame.clone(), blocks }
    }

    /// The architecture with this index, from 0 to below [`Self::size`]; `None` beyond.
    pub fn nth(&self, index: &BigUint) -> Option<Genome> {
        let mut rest = index.clone();
        let world = self.worlds.iter().position(|world| take(&mut rest, &world.size))?;
        let mut slots = Vec::with_capacity(self.slots.len());
        for (slot, valid) in self.slots.iter().zip(&self.worlds[world].picks) {
            let ways = slot.size(valid.len());
            let mut within = &rest % &ways;
            rest /= ways;
            let base = BigUint::from(valid.len());
            let fits = |&&repeat: &&u32| take(&mut within, &base.pow(slot.choices(repeat)));
            let repeat = *slot.repeats.iter().find(fits).expect("an index below the size of the slot");
            let picks = (0..slot.choices(repeat)).map(|_| {
                let digit = usize::try_from(&within % &base).expect("a digit below its base");
                within /= &base;
                valid[digit]
            });
            slots.push(SlotGenes { repeat, picks: picks.collect() });
        }
        Some(Genome { world: world as u32, slots })
    }

    /// All architectures, where there are at most `limit`.
    pub fn enumerate(&self, limit: u64) -> Option<impl Iterator<Item = Genome> + '_> {
        let size = u64::try_from(self.size()).ok().filter(|&size| size <= limit)?;
        Some((0..size).filter_map(|index| self.nth(&index.into())))
    }

    /// Whether a model is an architecture of this space.
    pub fn contains(&self, model: &Model) -> bool {
        let worlds = self.worlds.iter().filter(|world| same_frame(&world.frame, &model.frame));
        let blocks: Vec<Block> = model.blocks.iter().map(|block| block.explicit(&model.frame)).collect();
        worlds.into_iter().any(|world| self.fills(world, &blocks))
    }

    /// Whether the slots can produce exactly these blocks: follows all ways at once, slot by slot.
    fn fills(&self, world: &World, blocks: &[Block]) -> bool {
        let mut ends = BTreeSet::from([0]);
        for (slot, valid) in self.slots.iter().zip(&world.picks) {
            let picks = || {
                valid.iter().map(|&i| {
                    let blocks = &slot.picks[i as usize].blocks;
                    blocks.iter().map(|block| block.explicit(&world.frame)).collect::<Vec<_>>()
                })
            };
            // One round per pick where all repetitions are the same, else one round of all picks.
            let rounds: Vec<Vec<Vec<Block>>> =
                if slot.same { picks().map(|pick| vec![pick]).collect() } else { vec![picks().collect()] };
            let mut next = BTreeSet::new();
            for round in rounds {
                let mut here = ends.clone();
                for repeat in 0..=*slot.repeats.last().unwrap_or(&0) {
                    if slot.repeats.contains(&repeat) {
                        next.extend(&here);
                    }
                    here = here
                        .iter()
                        .flat_map(|&at| round.iter().map(move |pick| (at, pick)))
                        .filter(|(at, pick)| blocks[*at..].starts_with(pick))
                        .map(|(at, pick)| at + pick.len())
                        .collect();
                }
            }
            ends = next;
        }
        ends.contains(&blocks.len())
    }
}

/// Whether `index` falls into the next `size` numbers; if not, they are taken off it.
fn take(index: &mut BigUint, size: &BigUint) -> bool {
    if &*index < size {
        return true;
    }
    *index -= size;
    false
}

/// Equal frames, whatever their defaults for knobs, which every block is given explicitly.
fn same_frame(a: &Frame, b: &Frame) -> bool {
    let b = Frame { heads: a.heads, d_head: a.d_head, inner: a.inner, ..b.clone() };
    *a == b
}
