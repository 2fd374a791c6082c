//! The space file (TOML).
//!
//! ```toml
//! where = ["inner >= 2 * d_model"]         # conditions
//!
//! [baseline]                               # a model file: the frame, and what targets refer to
//! backbone = "transformer_xl"
//! layers = "(sf)x16"
//! d_model = 512
//! vocab = 267735
//!
//! [choices]                                # global: keys of the model file
//! d_model = { min = 128, max = 1024, step = 64 }
//!
//! [[slots]]                                # one or several, in the order of the stack
//! options = ["sf"]                         # each repetition takes one of these,
//! repeat = { min = 2, max = 16 }           # a number, a list or a range; 1 if absent
//! same = false                             # true: all repetitions take the same
//! knobs = { heads = [2, 4, 8], inner = { min = 256, max = 4096, step = 64 } }  # for knobs left open
//! ```

use super::{Condition, Pick, Slot, Space, World};
use crate::fields::{Document, Field, Fields};
use crate::model::{self, KeyKind, Value};
use crate::{Block, Domain, Error, Frame, MAX_BLOCKS, Model, Registry, Result, Spec, notation};
use num_bigint::BigUint;
use std::collections::HashSet;

/// The most worlds, the most picks of a slot, and the most of both together.
const MAX_LIST: usize = 100_000;
const MAX_PRODUCT: usize = 10_000_000;

impl Space {
    /// Reads a space file.
    pub fn from_toml(text: &str, registry: &Registry) -> Result<Self> {
        let document = Document::parse(text, "the space file")?;
        let fields = document.fields();
        fields.only(&["where", "baseline", "choices", "slots"])?;
        let required = |key: &'static str, expected: &str| {
            let place = "the space".to_string();
            fields.get(key).ok_or_else(|| Error::Missing { place, key, expected: expected.into() })
        };

        let base = Spec::from_fields(
            &required("baseline", "a table [baseline] with the keys of a model file")?.table("baseline")?,
        )?;
        let globals = match fields.get("choices") {
            Some(field) => read_globals(&field.table("choices")?)?,
            None => Vec::new(),
        };
        let slots = required("slots", "at least one [[slots]]")?.list("[[slots]]")?;
        let slots =
            slots.iter().map(|field| read_slot(&field.table("slots")?, registry)).collect::<Result<Vec<_>>>()?;
        if slots.is_empty() {
            return Err(Error::value("slots", "none", "at least one [[slots]]"));
        }

        let known: Vec<&str> = known_names(registry);
        let conditions = match fields.get("where") {
            Some(field) => field
                .list("a list of conditions")?
                .iter()
                .map(|field| Condition::parse(field.text()?, &field.place, &known))
                .collect::<Result<Vec<_>>>()?,
            None => Vec::new(),
        };

        let mut space = Self {
            baseline: base.model(registry)?,
            globals: globals.iter().map(|(key, _)| *key).collect(),
            slots,
            conditions,
            worlds: Vec::new(),
        };
        if space.blocks().1 > MAX_BLOCKS {
            return Err(Error::value(
                "slots",
                format!("up to {} blocks", space.blocks().1),
                format!("at most {MAX_BLOCKS}"),
            ));
        }
        space.worlds = space.read_worlds(&base, &globals, registry)?;
        if space.size() == BigUint::ZERO {
            return Err(Error::value("where", "conditions that no architecture meets", "at least one architecture"));
        }
        Ok(space)
    }

    /// All assignments of the globals that leave at least one architecture, in lexicographic order.
    fn read_worlds(&self, base: &Spec, globals: &[Global], registry: &Registry) -> Result<Vec<World>> {
        let combinations = globals.iter().try_fold(1usize, |n, (_, values)| n.checked_mul(values.len()));
        let picks: usize = self.slots.iter().map(|slot| slot.picks.len()).sum();
        let combinations =
            combinations.filter(|&n| n <= MAX_LIST && n.saturating_mul(picks) <= MAX_PRODUCT).ok_or_else(|| {
                Error::value(
                    "choices",
                    "too many combinations",
                    format!(
                        "at most {MAX_LIST} of global choices, and at most {MAX_PRODUCT} with the picks of the slots"
                    ),
                )
            })?;
        let mut worlds = Vec::new();
        for genes in product(globals.iter().map(|(_, values)| values.as_slice()), combinations) {
            let mut spec = base.clone();
            for ((key, _), &value) in globals.iter().zip(&genes) {
                spec.set(key, Value::Int(value));
            }
            let frame = spec.frame(registry)?;
            let keys = Model { frame: frame.clone(), blocks: Vec::new() }.spec();
            if !self.allows(&frame, &keys, &[]) {
                continue;
            }
            let mut valid = Vec::with_capacity(self.slots.len());
            for slot in &self.slots {
                let mut indices = Vec::new();
                for (i, pick) in slot.picks.iter().enumerate() {
                    if self.allows(&frame, &keys, &pick.blocks) {
                        for block in &pick.blocks {
                            block.kind.check(block, &frame)?;
                        }
                        indices.push(i as u32);
                    }
                }
                valid.push(indices);
            }
            let size: BigUint = self.slots.iter().zip(&valid).map(|(slot, valid)| slot.size(valid.len())).product();
            if size != BigUint::ZERO {
                worlds.push(World { genes, frame, picks: valid, size });
            }
        }
        Ok(worlds)
    }

    /// Whether every condition holds for these blocks in this frame, whose keys are given too. A name is a
    /// knob of the blocks, or else a key of the frame that no block overrides.
    fn allows(&self, frame: &Frame, keys: &Spec, blocks: &[Block]) -> bool {
        let values = |name: &str| -> Vec<u32> {
            let knobs = blocks.iter().flat_map(|block| block.knobs()).filter(|(_, knob, _)| knob.name == name);
            let mut values: Vec<u32> = knobs.filter_map(|(_, _, value)| value.or(frame.default_knob(name))).collect();
            if let (None, Some(&Value::Int(value))) = (frame.default_knob(name), keys.get(name)) {
                values.push(value);
            }
            values
        };
        self.conditions.iter().all(|condition| condition.holds(&values))
    }
}

/// A key of the model file that varies, with its values.
type Global = (&'static model::Key, Vec<u32>);

fn read_globals(fields: &Fields<'_>) -> Result<Vec<Global>> {
    let known: Vec<&str> = integer_keys().map(|key| key.name).collect();
    fields.only(&known)?;
    // In the order of KEYS, so that the order of the file does not change what a seed gives.
    integer_keys()
        .filter_map(|key| Some((key, fields.get(key.name)?)))
        .map(|(key, field)| match key.kind {
            KeyKind::Int(min, max) => Ok((key, read_values(&field, min, max)?)),
            _ => unreachable!("integer_keys gives only integers"),
        })
        .collect()
}

fn integer_keys() -> impl Iterator<Item = &'static model::Key> {
    model::KEYS.iter().filter(|key| matches!(key.kind, KeyKind::Int(..)))
}

fn known_names(registry: &Registry) -> Vec<&'static str> {
    let knobs = registry.blocks.iter().flat_map(|kind| kind.knobs()).map(|knob| knob.name);
    let mut names: Vec<&str> = integer_keys().map(|key| key.name).chain(knobs).collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn read_slot(fields: &Fields<'_>, registry: &Registry) -> Result<Slot> {
    fields.only(&["options", "repeat", "same", "knobs"])?;
    let options = fields.get("options").ok_or_else(|| Error::Missing {
        place: "[[slots]]".into(),
        key: "options",
        expected: "a list of options, e.g. [\"s\", \"f\", \"-\"]".into(),
    })?;
    let knobs = fields.get("knobs").map(|field| field.table("slots.knobs")).transpose()?;
    let names = knobs.iter().flat_map(|knobs| knobs.iter().map(|(name, _)| name).collect::<Vec<_>>());
    let mut unused: Vec<&str> = names.collect();

    let mut picks = Vec::new();
    let mut seen = HashSet::new();
    for (i, option) in options.list("a list of options in the notation")?.iter().enumerate() {
        let blocks = notation::parse(option.text()?, registry)?;
        // The knobs that are open here and have choices: (block, knob, values).
        let mut open = Vec::new();
        for (b, block) in blocks.iter().enumerate() {
            for (k, knob, value) in block.knobs() {
                let Some(field) = knobs.as_ref().and_then(|knobs| knobs.get(knob.name)) else { continue };
                if value.is_none() {
                    let (min, max) = match knob.domain {
                        Domain::Int { min, max } => (min, max),
                        Domain::Flag => (0, 1),
                    };
                    open.push((b, k, read_values(&field, min, max)?));
                    unused.retain(|name| *name != knob.name);
                }
            }
        }
        let combinations = open.iter().try_fold(1usize, |n, (_, _, values)| n.checked_mul(values.len()));
        let combinations = combinations
            .filter(|&n| n.saturating_mul(blocks.len()).saturating_add(picks.len()) <= MAX_LIST)
            .ok_or_else(|| option.error(format!("at most {MAX_LIST} combinations of knobs")))?;
        for values in product(open.iter().map(|(_, _, values)| values.as_slice()), combinations) {
            let mut blocks = blocks.clone();
            for ((b, k, _), &value) in open.iter().zip(&values) {
                blocks[*b].set(*k, value);
            }
            if !seen.insert(blocks.clone()) {
                return Err(option.error("options that differ from each other"));
            }
            let genes = std::iter::once(i as u32).chain(values).collect();
            picks.push(Pick { genes, blocks });
        }
    }
    if let Some(name) = unused.first() {
        return Err(Error::value(format!("slots.knobs.{name}"), "choices for it", "a knob that an option leaves open"));
    }
    let repeats = match fields.get("repeat") {
        Some(field) => read_values(&field, 0, MAX_BLOCKS as u32)?,
        None => vec![1],
    };
    let same = fields.get("same").map(|field| field.flag()).transpose()?.unwrap_or(false);
    if picks.is_empty() {
        return Err(options.error("at least one option"));
    }
    Ok(Slot { repeats, same, picks })
}

/// A number, a list of numbers, or `{ min, max, step }`; increasing, each once.
fn read_values(field: &Field<'_>, min: u32, max: u32) -> Result<Vec<u32>> {
    let mut values = if field.value.is_array() {
        field.list("a list")?.iter().map(|field| field.int(min, max)).collect::<Result<Vec<_>>>()?
    } else if field.value.is_table() {
        let range = field.table(&field.place)?;
        range.only(&["min", "max", "step"])?;
        let get = |key: &'static str, low| match range.get(key) {
            Some(field) => field.int(low, max),
            None => Err(Error::Missing {
                place: field.place.clone(),
                key,
                expected: "{ min = 128, max = 1024, step = 64 }".into(),
            }),
        };
        let (low, high) = (get("min", min)?, get("max", min)?);
        let step = if range.get("step").is_some() { get("step", 1)? } else { 1 };
        if low > high || (high - low) / step >= MAX_LIST as u32 {
            return Err(field.error(format!("min at most max, and at most {MAX_LIST} values")));
        }
        (low..=high).step_by(step as usize).collect()
    } else {
        vec![field.int(min, max)?]
    };
    let given = values.len();
    values.sort_unstable();
    values.dedup();
    if values.is_empty() || values.len() < given {
        return Err(field.error("at least one value, each once"));
    }
    Ok(values)
}

/// All combinations of one value from each list, in lexicographic order.
fn product<'a>(lists: impl Iterator<Item = &'a [u32]>, combinations: usize) -> impl Iterator<Item = Vec<u32>> {
    let lists: Vec<Vec<u32>> = lists.map(<[u32]>::to_vec).collect();
    (0..combinations).map(move |mut index| {
        let mut values = vec![0; lists.len()];
        for (value, list) in values.iter_mut().zip(&lists).rev() {
            *value = list[index % list.len()];
            index /= list.len();
        }
        values
    })
}
