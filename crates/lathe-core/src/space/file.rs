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

use super::worlds::{Draft, Global, Name};
use super::{Condition, Pick, Slot, Space};
use crate::fields::{Field, Fields, TomlDocument};
use crate::model::{self, KeyKind};
use crate::{Domain, Error, MAX_BLOCKS, Registry, Result, Spec, notation};
use num_bigint::BigUint;

/// The most tables `[[slots]]`, and the most conditions.
const MAX_TABLES: usize = 1000;
/// The most values of one choice.
const MAX_VALUES: usize = 100_000;
/// The most blocks in everything that the slots can pick, taken together.
const MAX_PICKED: usize = 100_000;

impl Space {
    /// Reads a space file.
    pub fn from_toml(text: &str, registry: &Registry) -> Result<Self> {
        let document = TomlDocument::parse(text, "the space file")?;
        let fields = document.fields();
        fields.only(&["where", "baseline", "choices", "slots"])?;
        let required = |key: &'static str, expected: &str| {
            let place = "the space".to_string();
            fields.get(key).ok_or_else(|| Error::Missing { place, key, expected: expected.into() })
        };

        let baseline = required("baseline", "a table [baseline] with the keys of a model file")?;
        let mut base = Spec::from_fields(&baseline.table()?, registry)?;
        let baseline = base.model(registry).map_err(|error| error.at("baseline"))?;
        base.remove("layers");
        let globals = match fields.get("choices") {
            Some(field) => read_globals(&field.table()?, registry)?,
            None => Vec::new(),
        };
        if let Some(global) = globals.iter().find(|global| baseline.frame.ignores(global.key.name)) {
            let expected = format!("a key that has an effect with backbone {}", baseline.frame.backbone.key());
            return Err(global.field.error(expected));
        }
        let slots_field = required("slots", "at least one [[slots]]")?;
        let (slots, options) = read_slots(&slots_field, registry)?;
        let (conditions, names) = match fields.get("where") {
            Some(field) => read_conditions(&field, &globals, registry)?,
            None => Default::default(),
        };

        let draft = Draft { base, globals, slots, options, conditions, names };
        let worlds = draft.worlds(registry)?;
        let size: BigUint = worlds.iter().map(|world| &world.size).sum();
        Ok(Self {
            baseline,
            globals: draft.globals.iter().map(|global| global.key).collect(),
            slots: draft.slots,
            worlds,
            size,
        })
    }
}

fn read_globals<'d>(fields: &Fields<'d>, registry: &Registry) -> Result<Vec<Global<'d>>> {
    let known: Vec<&str> = integer_keys(registry).map(|(key, _)| key.name).collect();
    fields.only(&known)?;
    // In the order of the keys, so that the order of the file does not change what a seed gives.
    integer_keys(registry)
        .filter_map(|(key, domain)| Some((key, domain, fields.get(key.name)?)))
        .map(|(key, domain, field)| Ok(Global { key, values: read_values(&field, domain)?, field }))
        .collect()
}

fn integer_keys(registry: &Registry) -> impl Iterator<Item = (&'static model::Key, Domain)> {
    registry.keys().filter_map(|key| match key.kind {
        KeyKind::Int(min, max) => Some((key, Domain::Int { min, max })),
        _ => None,
    })
}

type Conditions<'d> = (Vec<(Condition, Field<'d>)>, Vec<Name>);

fn read_conditions<'d>(field: &Field<'d>, globals: &[Global<'_>], registry: &Registry) -> Result<Conditions<'d>> {
    let knobs: Vec<&str> = registry.blocks.iter().flat_map(|kind| kind.knobs()).map(|knob| knob.name).collect();
    let mut known: Vec<&str> = integer_keys(registry).map(|(key, _)| key.name).chain(knobs.iter().copied()).collect();
    known.sort_unstable();
    known.dedup();
    let list = field.list("a list of conditions")?;
    if list.len() > MAX_TABLES {
        return Err(Error::value(field.place(), list.len(), format!("at most {MAX_TABLES} conditions")));
    }
    let mut names = Vec::new();
    let mut conditions = Vec::with_capacity(list.len());
    for field in list {
        let condition = Condition::parse(field.text()?, &known, &mut names);
        conditions.push((condition.map_err(|expected| field.error(expected))?, field));
    }
    let name = |name: &'static str| Name {
        name,
        knob: knobs.contains(&name),
        global: globals.iter().any(|global| global.key.name == name),
    };
    Ok((conditions, names.into_iter().map(name).collect()))
}

/// The slots, and for each the places of its options.
fn read_slots<'d>(field: &Field<'d>, registry: &Registry) -> Result<(Vec<Slot>, Vec<Vec<Field<'d>>>)> {
    let tables = field.list("[[slots]]")?;
    if !(1..=MAX_TABLES).contains(&tables.len()) {
        return Err(Error::value(field.place(), tables.len(), format!("1 to {MAX_TABLES} [[slots]]")));
    }
    let (mut slots, mut options) = (Vec::new(), Vec::new());
    let mut room = MAX_PICKED;
    for table in &tables {
        let (slot, places) = read_slot(&table.table()?, registry, &mut room)?;
        slots.push(slot);
        options.push(places);
    }
    let most: usize = slots.iter().map(|slot| slot.blocks(0..slot.picks.len()).1).sum();
    if most > MAX_BLOCKS {
        return Err(Error::value(field.place(), format!("up to {most} blocks"), format!("at most {MAX_BLOCKS}")));
    }
    if slots.iter().all(|slot| slot.repeats[0] == 0) {
        return Err(Error::value(field.place(), "repeat 0 everywhere", "a slot that is always repeated"));
    }
    Ok((slots, options))
}

/// One slot, whose picks have at most `room` blocks, and the places of its options.
fn read_slot<'d>(fields: &Fields<'d>, registry: &Registry, room: &mut usize) -> Result<(Slot, Vec<Field<'d>>)> {
    fields.only(&["options", "repeat", "same", "knobs"])?;
    let field = fields
        .get("options")
        .ok_or_else(|| fields.missing("options", "a list of options, e.g. [\"s\", \"f\", \"-\"]"))?;
    let options = field.list("a list of options in the notation")?;
    if options.is_empty() {
        return Err(field.error("at least one option"));
    }
    let knobs = fields.get("knobs").map(|field| field.table()).transpose()?;
    let mut unused: Vec<&str> = knobs.iter().flat_map(|knobs| knobs.iter()).map(|(name, _)| name).collect();

    let mut picks = Vec::new();
    for (i, option) in options.iter().enumerate() {
        let blocks = notation::parse(option.text()?, registry).map_err(|error| error.at(&option.place()))?;
        // The knobs that are open here and have choices: (block, knob, values).
        let mut open = Vec::new();
        let mut combinations = 1usize;
        for (b, block) in blocks.iter().enumerate() {
            for (k, knob, _) in block.knobs().filter(|(_, _, value)| value.is_none()) {
                if combinations.saturating_mul(blocks.len()) > *room {
                    break;
                }
                let Some(field) = knobs.as_ref().and_then(|knobs| knobs.get(knob.name)) else { continue };
                let values = read_values(&field, knob.domain)?;
                combinations = combinations.saturating_mul(values.len());
                open.push((b, k, values));
                unused.retain(|name| *name != knob.name);
            }
        }
        let left = room.checked_sub(combinations.saturating_mul(blocks.len()));
        *room = left.ok_or_else(|| option.error(format!("at most {MAX_PICKED} blocks in all picks of all slots")))?;
        for values in product(open.iter().map(|(_, _, values)| values.as_slice()), combinations) {
            let mut blocks = blocks.clone();
            for ((b, k, _), &value) in open.iter().zip(&values) {
                blocks[*b].set(*k, value);
            }
            let genes = std::iter::once(i as u32).chain(values).collect();
            picks.push(Pick { genes, blocks });
        }
    }
    if let Some(field) = unused.first().and_then(|name| knobs.as_ref()?.get(name)) {
        return Err(field.error("a knob that an option leaves open"));
    }
    let repeats = match fields.get("repeat") {
        Some(field) => read_values(&field, Domain::Int { min: 0, max: MAX_BLOCKS as u32 })?,
        None => vec![1],
    };
    let same = fields.get("same").map(|field| field.flag()).transpose()?.unwrap_or(false);
    Ok((Slot { repeats, same, picks }, options))
}

/// A value, a list of values, or `{ min, max, step }`; increasing, each once.
fn read_values(field: &Field<'_>, domain: Domain) -> Result<Vec<u32>> {
    let one = |field: &Field<'_>| match domain {
        Domain::Int { min, max } => field.int(min, max),
        Domain::Flag => field.flag().map(u32::from),
        Domain::Word(words) => {
            let index = words.iter().position(|word| field.text().is_ok_and(|text| text == *word));
            index.map(|index| index as u32).ok_or_else(|| field.error(domain.expected()))
        }
    };
    let mut values = match domain {
        Domain::Int { min, max } if field.value.is_table() => read_range(field, min, max)?,
        _ if field.value.is_array() => field.list("a list")?.iter().map(one).collect::<Result<Vec<_>>>()?,
        _ => vec![one(field)?],
    };
    let given = values.len();
    values.sort_unstable();
    values.dedup();
    if values.is_empty() || values.len() < given {
        return Err(field.error("at least one value, each once"));
    }
    Ok(values)
}

/// `{ min = 128, max = 1024, step = 64 }`
fn read_range(field: &Field<'_>, min: u32, max: u32) -> Result<Vec<u32>> {
    let range = field.table()?;
    range.only(&["min", "max", "step"])?;
    let end = |key| match range.get(key) {
        Some(field) => field.int(min, max),
        None => Err(range.missing(key, "{ min = 128, max = 1024, step = 64 }")),
    };
    let (low, high) = (end("min")?, end("max")?);
    let step = range.get("step").map_or(Ok(1), |field| field.int(1, max))?;
    if low > high || (high - low) / step >= MAX_VALUES as u32 {
        return Err(field.error(format!("min at most max, and at most {MAX_VALUES} values")));
    }
    Ok((low..=high).step_by(step as usize).collect())
}

/// All combinations of one value from each list, in lexicographic order.
pub(super) fn product<'a>(
    lists: impl Iterator<Item = &'a [u32]>,
    combinations: usize,
) -> impl Iterator<Item = Vec<u32>> {
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
