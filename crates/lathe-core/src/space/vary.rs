//! Sampling, mutation and crossover: three ways of wishing for genes, one way of choosing them.
//!
//! Genes are chosen one after the other, each among the values that leave a valid architecture given
//! those chosen before. A wish that is among them is granted; otherwise the choice is uniform. So
//! everything stays inside the space, and sampling with no wishes draws choice by choice, as LTS does.

use super::{Genome, Slot, SlotGenes, Space};
use num_bigint::BigUint;
use rand::{Rng, RngExt};
use std::collections::HashMap;

/// How [`Space::sample`] draws.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sampling {
    /// Each choice uniform, one after the other, as the authors of LTS do.
    Choices,
    /// Uniform over architectures, which favours the deepest, of which there are most.
    Architectures,
}

/// The values a gene would like to have, best first.
type Wish = [Option<u32>; 2];

impl Space {
    /// Draws an architecture.
    pub fn sample<R: Rng>(&self, sampling: Sampling, rng: &mut R) -> Genome {
        match sampling {
            Sampling::Choices => self.choose(&[], |_, _| [None, None], rng),
            Sampling::Architectures => {
                let index = below(&self.size, rng);
                self.nth(&index).expect("an index below the size of the space")
            }
        }
    }

    /// Chooses each gene anew with this probability.
    pub fn mutate<R: Rng>(&self, parent: &Genome, probability: f64, rng: &mut R) -> Genome {
        let keep = |old: [Option<u32>; 2], rng: &mut R| [old[0].filter(|_| !rng.random_bool(probability)), None];
        self.choose(&[parent], keep, rng)
    }

    /// Takes each gene from either parent.
    pub fn crossover<R: Rng>(&self, mother: &Genome, father: &Genome, rng: &mut R) -> Genome {
        let either = |[a, b]: [Option<u32>; 2], rng: &mut R| if rng.random_bool(0.5) { [a, b] } else { [b, a] };
        self.choose(&[mother, father], either, rng)
    }

    /// Chooses all genes; `wish` turns what the parents have at a gene into what is wished for.
    fn choose<R: Rng>(&self, parents: &[&Genome], wish: impl Fn(Wish, &mut R) -> Wish, rng: &mut R) -> Genome {
        // What the parents have at a gene, given how to look it up.
        let of = |gene: &dyn Fn(&Genome) -> Option<u32>| -> Wish {
            [parents.first().and_then(|p| gene(p)), parents.get(1).and_then(|p| gene(p))]
        };
        let worlds: Vec<u32> = (0..self.worlds.len() as u32).collect();
        let world = walk(
            &worlds,
            &mut Starts::new(),
            |world| &self.worlds[world as usize].genes,
            |level, rng| wish(of(&|p| self.worlds[p.world as usize].genes.get(level).copied()), rng),
            rng,
        );
        let mut slots = Vec::with_capacity(self.slots.len());
        for (s, slot) in self.slots.iter().enumerate() {
            let valid = &self.worlds[world as usize].picks[s];
            let repeats = slot.repeats(valid.len());
            let wish_repeat = wish(of(&|p| Some(p.slots[s].repeat)), rng);
            let repeat = repeats[choose_among(repeats.len(), |i| repeats[i], wish_repeat, rng)];
            let mut starts = Starts::new();
            let picks = (0..slot.choices(repeat) as usize).map(|i| {
                let old = |p: &Genome, level| gene_of(slot, &p.slots[s], i, level);
                walk(
                    valid,
                    &mut starts,
                    |pick| &slot.picks[pick as usize].genes,
                    |level, rng| wish(of(&|p| old(p, level)), rng),
                    rng,
                )
            });
            let picks = picks.collect();
            slots.push(SlotGenes { repeat, picks });
        }
        Genome { world, slots }
    }
}

/// The gene of a parent's i-th pick, if it has that many.
fn gene_of(slot: &Slot, genes: &SlotGenes, i: usize, level: usize) -> Option<u32> {
    let pick = *genes.picks.get(i)?;
    slot.picks[pick as usize].genes.get(level).copied()
}

/// Where each value of a gene begins, and where the last ends, among candidates that agree in the genes before:
/// by the first of the candidates and the gene's level. Kept, since each repetition asks anew.
type Starts = HashMap<(usize, usize), Vec<usize>>;

/// Walks down a list of candidates that is sorted by their genes, choosing gene by gene.
fn walk<'a, R: Rng>(
    candidates: &[u32],
    starts: &mut Starts,
    genes: impl Fn(u32) -> &'a Vec<u32>,
    wish: impl Fn(usize, &mut R) -> Wish,
    rng: &mut R,
) -> u32 {
    let (mut from, mut to) = (0, candidates.len());
    let mut level = 0;
    while to - from > 1 && genes(candidates[from]).len() > level {
        let gene = |at: usize| genes(candidates[at])[level];
        let starts = starts.entry((from, level)).or_insert_with(|| {
            let first = |&at: &usize| at == from || gene(at) != gene(at - 1);
            (from..to).filter(first).chain([to]).collect()
        });
        let chosen = choose_among(starts.len() - 1, |i| gene(starts[i]), wish(level, rng), rng);
        (from, to) = (starts[chosen], starts[chosen + 1]);
        level += 1;
    }
    candidates[from]
}

/// The index of the first wish that is among `count` increasing values, or any index.
fn choose_among<R: Rng>(count: usize, value: impl Fn(usize) -> u32, wishes: Wish, rng: &mut R) -> usize {
    let find = |wish: u32| {
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = low.midpoint(high);
            if value(middle) < wish { low = middle + 1 } else { high = middle }
        }
        (low < count && value(low) == wish).then_some(low)
    };
    wishes.into_iter().flatten().find_map(find).unwrap_or_else(|| rng.random_range(0..count))
}

/// A uniform number below `limit`, which is not 0: draws as many bits until one is below.
fn below<R: Rng>(limit: &BigUint, rng: &mut R) -> BigUint {
    let bits = limit.bits();
    let mut bytes = vec![0; bits.div_ceil(8) as usize];
    loop {
        rng.fill_bytes(&mut bytes);
        let number = BigUint::from_bytes_le(&bytes) >> (8 * bytes.len() as u64 - bits);
        if &number < limit {
            return number;
        }
    }
}
