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
mod worlds;

use crate::model::Key;
use crate::{Block, Error, Frame, Model, Result};
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
    worlds: Vec<World>,
    size: BigUint,
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

    /// How often it may be repeated where there are so many valid picks: not at all where there is none.
    fn repeats(&self, valid: usize) -> &[u32] {
        let end = if valid == 0 { usize::from(self.repeats[0] == 0) } else { self.repeats.len() };
        &self.repeats[..end]
    }

    /// Each number of repetitions, with the number of ways to fill them from `valid` picks.
    fn ways(&self, valid: usize) -> impl Iterator<Item = (u32, BigUint)> + '_ {
        let base = BigUint::from(valid);
        let (mut power, mut exponent) = (BigUint::from(1u32), 0);
        self.repeats(valid).iter().map(move |&repeat| {
            let choices = self.choices(repeat);
            power *= base.pow(choices - exponent);
            exponent = choices;
            (repeat, power.clone())
        })
    }

    /// How many ways there are to fill the slot from `valid` picks.
    fn size(&self, valid: usize) -> BigUint {
        self.ways(valid).map(|(_, ways)| ways).sum()
    }

    /// At most so many bits has the size of the slot, about.
    fn size_bits(&self) -> usize {
        let choices = self.repeats.last().map_or(0, |&repeat| self.choices(repeat));
        (choices as usize + 1) * (usize::BITS - self.picks.len().leading_zeros()) as usize
    }

    /// The fewest and the most blocks it fills with these picks.
    fn blocks(&self, valid: impl ExactSizeIterator<Item = usize>) -> (usize, usize) {
        let repeats = self.repeats(valid.len());
        let (mut shortest, mut longest) = (usize::MAX, 0);
        for length in valid.map(|pick| self.picks[pick].blocks.len()) {
            (shortest, longest) = (shortest.min(length), longest.max(length));
        }
        let times = |repeat: Option<&u32>, length: usize| repeat.map_or(0, |&repeat| repeat as usize * length);
        (times(repeats.first(), shortest), times(repeats.last(), longest))
    }
}

impl Space {
    /// How many architectures there are, exactly. Different choices count as different architectures, even
    /// where slots of varying repetition or options of different lengths make the same stack of them.
    pub fn size(&self) -> BigUint {
        self.size.clone()
    }

    /// The keys of the model file that vary from architecture to architecture.
    pub fn global_keys(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.globals.iter().map(|key| key.name)
    }

    /// The fewest and the most blocks an architecture has.
    pub fn blocks(&self) -> (usize, usize) {
        let ends = |world: &World| {
            let slots = self.slots.iter().zip(&world.picks);
            let ends = slots.map(|(slot, valid)| slot.blocks(valid.iter().map(|&pick| pick as usize)));
            ends.fold((0, 0), |sum, slot| (sum.0 + slot.0, sum.1 + slot.1))
        };
        self.worlds.iter().map(ends).fold((usize::MAX, 0), |all, world| (all.0.min(world.0), all.1.max(world.1)))
    }

    /// All distinct blocks that an architecture can contain, in the space's order: what a profiler measures.
    pub fn options(&self) -> Vec<Block> {
        let mut seen = std::collections::HashSet::new();
        let mut options = Vec::new();
        for (s, slot) in self.slots.iter().enumerate().filter(|(_, slot)| slot.repeats != [0]) {
            let mut possible = vec![false; slot.picks.len()];
            for &pick in self.worlds.iter().flat_map(|world| &world.picks[s]) {
                possible[pick as usize] = true;
            }
            let picks = slot.picks.iter().zip(possible).filter(|(_, possible)| *possible);
            options.extend(picks.flat_map(|(pick, _)| &pick.blocks).filter(|&&block| seen.insert(block)));
        }
        options
    }

    /// Models of the space that have between them every block at every place where it can stand.
    pub fn covering(&self) -> impl Iterator<Item = Model> + '_ {
        self.worlds.iter().enumerate().flat_map(move |(world, of)| {
            let most = of.picks.iter().map(Vec::len).max().unwrap_or(0).max(1);
            (0..most).map(move |i| {
                let genes = |(slot, valid): (&Slot, &Vec<u32>)| {
                    let repeat = slot.repeats(valid.len()).iter().copied().find(|&repeat| repeat > 0).unwrap_or(0);
                    let picks = (0..slot.choices(repeat)).map(|_| valid[i % valid.len()]).collect();
                    SlotGenes { repeat, picks }
                };
                let slots = self.slots.iter().zip(&of.picks).map(genes).collect();
                self.model(&Genome { world: world as u32, slots })
            })
        })
    }

    /// For a space of one frame in which every place of the stack chooses one block, the options of each place, from
    /// the bottom; an error that says what else the space leaves open. A frame goes with them.
    pub fn block_choices(&self) -> Result<(&Frame, Vec<Vec<Block>>)> {
        let expected = "one frame, and slots that are repeated a fixed number of times and choose one block each";
        let wrong = |place: String, found: String| Err(Error::Value { place, found, expected: expected.into() });
        if self.worlds.len() > 1 {
            let keys: Vec<&str> = self.global_keys().collect();
            return wrong("choices".into(), format!("models that differ in {}", keys.join(", ")));
        }
        let world = &self.worlds[0];
        let mut places = Vec::new();
        for (s, (slot, valid)) in self.slots.iter().zip(&world.picks).enumerate() {
            let place = || format!("slots, table {}", s + 1);
            let &[repeat] = slot.repeats(valid.len()) else {
                let (low, high) = (slot.repeats[0], slot.repeats[slot.repeats.len() - 1]);
                return wrong(place(), format!("{low} to {high} repetitions"));
            };
            if slot.same && repeat > 1 {
                return wrong(place(), format!("{repeat} repetitions that are all the same"));
            }
            let mut options = Vec::new();
            for &pick in valid {
                let &[block] = slot.picks[pick as usize].blocks.as_slice() else {
                    let blocks = crate::notation::print(&slot.picks[pick as usize].blocks);
                    return wrong(place(), format!("the option `{}`", crate::shorten(&blocks)));
                };
                options.push(block);
            }
            places.extend(std::iter::repeat_n(options, repeat as usize));
        }
        Ok((&world.frame, places))
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
            let size = slot.size(valid.len());
            let mut within = &rest % &size;
            rest /= size;
            let base = BigUint::from(valid.len());
            let repeat = slot.ways(valid.len()).find_map(|(repeat, ways)| take(&mut within, &ways).then_some(repeat));
            let repeat = repeat.expect("an index below the size of the slot");
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
        let resolve = |block: &Block| block.kind.resolve(block, &model.frame);
        let blocks: Vec<Block> = model.blocks.iter().map(resolve).collect();
        worlds.into_iter().any(|world| self.fills(world, &blocks))
    }

    /// Whether the slots can produce exactly these blocks: follows all ways at once, slot by slot.
    fn fills(&self, world: &World, blocks: &[Block]) -> bool {
        let mut ends = BTreeSet::from([0]);
        for (slot, valid) in self.slots.iter().zip(&world.picks) {
            let picks = || {
                valid.iter().map(|&i| {
                    let blocks = &slot.picks[i as usize].blocks;
                    blocks.iter().map(|block| block.kind.resolve(block, &world.frame)).collect::<Vec<_>>()
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

/// Equal frames, whatever their defaults for knobs, which are compared block by block.
fn same_frame(a: &Frame, b: &Frame) -> bool {
    let b = Frame { heads: a.heads, d_head: a.d_head, inner: a.inner, ..b.clone() };
    *a == b
}
