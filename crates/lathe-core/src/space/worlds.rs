//! The worlds of a space: each assignment of the global choices that the conditions allow, with the picks
//! that are valid in it.
//!
//! A condition that names a knob is asked of every pick, with the values that the knob has in its blocks. All
//! others are asked of the model before its frame is checked, so that they can exclude frames that would be
//! invalid; so is one on knobs that are global choices too.

use super::file::product;
use super::{Condition, Slot, World};
use crate::error::shorten;
use crate::fields::Field;
use crate::model::{Key, StackPlace, Value};
use crate::{Block, Error, Frame, Registry, Result, Spec, notation};
use num_bigint::BigUint;
use std::collections::HashMap;

/// The most assignments of the global choices.
const MAX_WORLDS: usize = 100_000;
/// The most steps that checking may take, which is about a second: a step is a block of a pick in a world, or a
/// combination of values that a condition is tried on.
const MAX_STEPS: usize = 10_000_000;
/// What making a world costs beyond its slots, and a slot or a pick of it beyond their contents, in steps.
const WORLD_STEPS: usize = 16;
const PICK_STEPS: usize = 3;

/// What a space file says, with the places that errors name.
pub(super) struct Draft<'d> {
    /// The baseline's keys, without its stack.
    pub base: Spec,
    pub globals: Vec<Global<'d>>,
    pub slots: Vec<Slot>,
    /// For each slot, its options.
    pub options: Vec<Vec<Field<'d>>>,
    pub conditions: Vec<(Condition, Field<'d>)>,
    /// The names in the conditions, by their index there.
    pub names: Vec<Name>,
}

/// A key of the model file that varies, with its values.
pub(super) struct Global<'d> {
    pub key: &'static Key,
    pub values: Vec<u32>,
    pub field: Field<'d>,
}

/// A name in a condition.
pub(super) struct Name {
    pub name: &'static str,
    /// Whether a kind of block has a knob of this name; otherwise it is a key of the model file.
    pub knob: bool,
    /// Whether it is a global choice.
    pub global: bool,
}

impl Draft<'_> {
    /// All worlds that hold at least one architecture, in lexicographic order.
    pub fn worlds(&self, registry: &Registry) -> Result<Vec<World>> {
        let combinations = self.globals.iter().fold(1usize, |n, global| n.saturating_mul(global.values.len()));
        if combinations > MAX_WORLDS {
            return Err(Error::value("choices", "too many combinations", format!("at most {MAX_WORLDS}")));
        }
        let names_knob = |i: &usize| self.conditions[*i].0.names().any(|name| self.names[name].knob);
        let of_picks: Vec<usize> = (0..self.conditions.len()).filter(names_knob).collect();
        let mut checker = Checker {
            draft: self,
            of_picks: &of_picks,
            steps: 0,
            applied: vec![false; self.conditions.len()],
            sizes: HashMap::new(),
            limbs: self.slots.iter().map(Slot::size_bits).sum::<usize>() / 64,
        };
        let mut spec = self.base.clone();
        let mut worlds = Vec::new();
        for genes in product(self.globals.iter().map(|global| global.values.as_slice()), combinations) {
            for (global, &value) in self.globals.iter().zip(&genes) {
                spec.set(global.key, Value::Int(value));
            }
            worlds.extend(checker.world(spec.frame_unchecked(registry)?, genes)?);
        }
        if worlds.is_empty() {
            return Err(Error::value("where", "conditions that no architecture meets", "at least one architecture"));
        }
        if let Some(i) = checker.applied.iter().position(|applied| !applied) {
            return Err(self.conditions[i].1.error("names that something in the space has a value for"));
        }
        Ok(worlds)
    }

    /// The choices of a world, for errors: ` with d_model 64, heads 4`.
    fn choices(&self, genes: &[u32]) -> String {
        let choices = self.globals.iter().zip(genes).map(|(global, value)| format!("{} {value}", global.key.name));
        let choices = choices.collect::<Vec<_>>().join(", ");
        if choices.is_empty() { choices } else { format!(" with {choices}") }
    }

    /// Gives every name of a knob the values that these blocks have of it, each once.
    fn knob_values(&self, blocks: &[Block], values: &mut [Vec<u32>]) {
        if self.names.is_empty() {
            return;
        }
        let knobs = || self.names.iter().enumerate().filter(|(_, name)| name.knob);
        for (i, _) in knobs() {
            values[i].clear();
        }
        for (_, knob, value) in blocks.iter().flat_map(Block::knobs) {
            if let Some((i, _)) = knobs().find(|(_, name)| name.name == knob.name) {
                values[i].extend(value);
            }
        }
        for (i, _) in knobs() {
            values[i].sort_unstable();
            values[i].dedup();
        }
    }
}

/// Checks worlds one by one.
struct Checker<'a, 'd> {
    draft: &'a Draft<'d>,
    /// The indices of the conditions that name a knob.
    of_picks: &'a [usize],
    /// How many have been taken.
    steps: usize,
    /// For each condition, whether it has ever had values for all its names.
    applied: Vec<bool>,
    /// How many ways there are to fill a slot from a number of valid picks.
    sizes: HashMap<(usize, usize), BigUint>,
    /// At most so many 64-bit words has the size of a world.
    limbs: usize,
}

impl Checker<'_, '_> {
    fn spend(&mut self, steps: usize) -> Result<()> {
        self.steps = self.steps.saturating_add(steps);
        match self.steps <= MAX_STEPS {
            true => Ok(()),
            false => Err(Error::value(
                "the space",
                "too many combinations",
                format!("global choices, picks of slots and conditions that take at most {MAX_STEPS} steps to check"),
            )),
        }
    }

    /// The world of a frame that is yet to be checked, unless conditions exclude it.
    fn world(&mut self, frame: Frame, genes: Vec<u32>) -> Result<Option<World>> {
        let draft = self.draft;
        let slots = draft.slots.len();
        self.spend(WORLD_STEPS + frame.cutoffs.len() + self.limbs + slots * (PICK_STEPS + self.limbs / 64))?;
        let of_world = |name: &Name| match name.knob && !name.global {
            true => Vec::new(),
            false => frame.int(name.name).into_iter().collect(),
        };
        let mut values: Vec<Vec<u32>> = draft.names.iter().map(of_world).collect();
        if !self.hold(0..draft.conditions.len(), &values)? {
            return Ok(None);
        }
        frame.check().map_err(|error| error.at(&format!("choices{}", draft.choices(&genes))))?;
        let mut picks = Vec::with_capacity(slots);
        let mut size = BigUint::from(1u32);
        let mut place = StackPlace::new(&frame);
        for slot in 0..slots {
            let valid = self.valid_picks(slot, &place, &genes, &mut values)?;
            size *= self.ways(slot, valid.len())?;
            self.climb(slot, &valid, &mut place)?;
            picks.push(valid);
        }
        if size == BigUint::ZERO {
            return Ok(None);
        }
        place.end().map_err(|error| error.at(&format!("slots{}", draft.choices(&genes))))?;
        drop(place);
        Ok(Some(World { genes, frame, picks, size }))
    }

    /// The indices of the picks of a slot that the conditions allow; those must fit the frame and differ.
    fn valid_picks(
        &mut self,
        s: usize,
        place: &StackPlace<'_>,
        genes: &[u32],
        values: &mut [Vec<u32>],
    ) -> Result<Vec<u32>> {
        let (draft, frame) = (self.draft, &*place.frame);
        let slot = &draft.slots[s];
        let mut valid = Vec::new();
        let mut seen: HashMap<Vec<Block>, usize> = HashMap::with_capacity(slot.picks.len());
        for (i, pick) in slot.picks.iter().enumerate() {
            self.spend(PICK_STEPS + pick.blocks.len())?;
            let blocks: Vec<Block> = pick.blocks.iter().map(|block| block.kind.resolve(block, frame)).collect();
            draft.knob_values(&blocks, values);
            if !self.hold(self.of_picks.iter().copied(), values)? {
                continue;
            }
            let at = || format!("{}{}", draft.options[s][pick.genes[0] as usize].place(), draft.choices(genes));
            let mut here = place.clone();
            for block in &blocks {
                here.check(block).and_then(|()| here.pass(block)).map_err(|error| error.at(&at()))?;
            }
            if let Some(earlier) = seen.insert(blocks, i) {
                let earlier = shorten(&notation::print(&slot.picks[earlier].blocks));
                let expected = format!("options that differ; here it is the same as `{earlier}`");
                return Err(Error::value(at(), format!("`{}`", notation::print(&pick.blocks)), expected));
            }
            valid.push(i as u32);
        }
        Ok(valid)
    }

    /// Goes on above a slot. Whichever of its picks is taken, blocks above have to find the same width and length.
    fn climb(&mut self, s: usize, valid: &[u32], place: &mut StackPlace<'_>) -> Result<()> {
        let slot = &self.draft.slots[s];
        let error = |found: &str, expected: &str| Err(Error::value(format!("slots, table {}", s + 1), found, expected));
        let mut left = slot.repeats.last().copied().unwrap_or(0);
        while left > 0 && !valid.is_empty() {
            self.spend(valid.len())?;
            let mut next: Option<StackPlace<'_>> = None;
            for &pick in valid {
                let mut here = place.clone();
                slot.picks[pick as usize].blocks.iter().try_for_each(|block| here.pass(block))?;
                if next.as_ref().is_some_and(|next| next.shape != here.shape) {
                    return error("options of unlike shape", "options that change width and length alike");
                }
                next = Some(here);
            }
            let next = next.expect("a valid pick");
            if next.shape == place.shape {
                return Ok(());
            }
            if slot.repeats.len() > 1 {
                return error("several repetitions", "one number of them, where blocks change width or length");
            }
            *place = next;
            left -= 1;
        }
        Ok(())
    }

    /// Whether these conditions hold.
    fn hold(&mut self, conditions: impl Iterator<Item = usize>, values: &[Vec<u32>]) -> Result<bool> {
        let mut hold = true;
        for i in conditions {
            let condition = &self.draft.conditions[i].0;
            let combinations = condition.combinations(values);
            self.spend(combinations.saturating_add(1))?;
            self.applied[i] |= combinations > 0;
            hold &= condition.holds(values);
        }
        Ok(hold)
    }

    /// How many ways there are to fill a slot from `valid` picks.
    fn ways(&mut self, slot: usize, valid: usize) -> Result<&BigUint> {
        if !self.sizes.contains_key(&(slot, valid)) {
            let slots = &self.draft.slots;
            self.spend(slots[slot].repeats.len() * (1 + self.limbs / 64))?;
            self.sizes.insert((slot, valid), slots[slot].size(valid));
        }
        Ok(&self.sizes[&(slot, valid)])
    }
}
