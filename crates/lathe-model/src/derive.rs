//! A network out of the weights of another that is trained: a copy, fewer heads, a narrower inner width, or whatever else a
//! block knows to make of another ([`BuildBlock::derive`](crate::build::BuildBlock::derive)). Searches and pruning are
//! written once, over [`Units`].

use crate::build::{self, Trained};
use crate::layer::Units;
use crate::network::Network;
use crate::params::Param;
use lathe_core::{Block, Frame, Model, Result};

/// Where the weights of a slot came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// All of another block's.
    Copied,
    /// Some units of another block, or what the block itself made of it.
    Derived,
    /// Nowhere: it has fresh weights, or none.
    Fresh,
}

/// Which units of a slot to keep: the slot of the trained network, its units, and how many. The indices increase.
pub type Keep<'a> = &'a mut dyn FnMut(usize, &Units, usize) -> Vec<usize>;

/// Hidden states that enter a slot of the trained network, [N, D], where somebody looked ([`Trained::hidden`]).
pub type Hidden<'a> = &'a dyn Fn(usize) -> Option<&'a [f32]>;

/// A network of a model with the weights of another, where there are any to take. `slots` has for each of its blocks the
/// slot of the other that it takes the place of, if any.
pub fn derive(
    from: &Network,
    model: Model,
    slots: &[Option<usize>],
    seed: u64,
    keep: Keep<'_>,
) -> Result<(Network, Vec<Origin>)> {
    derive_seen(from, &|_| None, model, slots, seed, keep)
}

/// As [`derive()`], with blocks of other kinds made to fit what enters the trained ones.
pub fn derive_seen(
    from: &Network,
    hidden: Hidden<'_>,
    model: Model,
    slots: &[Option<usize>],
    seed: u64,
    keep: Keep<'_>,
) -> Result<(Network, Vec<Origin>)> {
    assert_eq!(slots.len(), model.blocks.len(), "a slot for each block");
    let mut network = Network::new(model, seed)?;
    let old: Vec<&Param> = from.params().iter().collect();
    let mut values: Vec<Option<Vec<f32>>> = network.params().iter().map(|param| outside(from, param)).collect();
    let mut origins = Vec::new();
    for (slot, source) in slots.iter().enumerate() {
        let to = network.slot(slot);
        let weights = source.and_then(|source| {
            let of = from.slot(source);
            let weights: Vec<&Param> = old[of.params.clone()].to_vec();
            let shapes: Vec<&[usize]> = network.params().iter().skip(to.params.start).map(|p| &*p.shape).collect();
            let fits = |made: &Vec<Vec<f32>>| {
                let sizes = shapes.iter().take(to.params.len()).map(|shape| shape.iter().product::<usize>());
                made.len() == to.params.len() && made.iter().zip(sizes).all(|(made, size)| made.len() == size)
            };
            let resolve = |block: &Block, network: &Network| block.kind.resolve(block, &network.model.frame);
            if resolve(to.block, &network) == resolve(of.block, from) {
                let copy: Vec<Vec<f32>> = weights.iter().map(|param| param.read().into_owned()).collect();
                return Some(copy).filter(fits).map(|copy| (Origin::Copied, copy));
            }
            let made = match to.block.kind.key() == of.block.kind.key() {
                true => select(&weights, of.params.start, &of.units, &to.units, source, keep),
                false => {
                    let trained = Trained { block: of.block, weights: &weights, hidden: hidden(source) };
                    build::of_block(to.block.kind).derive(to.block, &trained, &network.model.frame)
                }
            };
            made.filter(fits).map(|made| (Origin::Derived, made))
        });
        origins.push(weights.as_ref().map_or(Origin::Fresh, |(origin, _)| *origin));
        let weights = weights.map(|(_, weights)| weights).unwrap_or_default();
        let places = to.params.clone();
        for (at, made) in places.zip(weights) {
            values[at] = Some(made);
        }
    }
    for (param, values) in network.params_mut().zip(values) {
        if let Some(values) = values {
            param.set_data(values);
        }
    }
    Ok((network, origins))
}

/// A block with so many units: each of its knobs written out, so that nothing else of it changes.
pub fn with_units(block: &Block, frame: &Frame, units: &Units, count: usize) -> Block {
    let resolved = block.kind.resolve(block, frame);
    let mut fewer = resolved;
    for (at, knob, value) in resolved.knobs() {
        let each = units.knobs.iter().find(|(name, _)| *name == knob.name);
        if let (Some(_), Some((_, each))) = (value, each) {
            fewer.set(at, each * count as u32);
        }
    }
    fewer
}

/// The weights of a parameter that no block has: those of the same name and shape.
fn outside(from: &Network, param: &Param) -> Option<Vec<f32>> {
    let blocks = from.blocks_params();
    let outside = from.params().iter().enumerate().filter(|(at, _)| !blocks.contains(at));
    let same = outside.map(|(_, old)| old).find(|old| old.name == param.name && old.shape == param.shape)?;
    Some(same.read().into_owned())
}

/// The weights of fewer units, where the blocks differ in nothing else.
fn select(
    weights: &[&Param],
    first: usize,
    from: &[Units],
    to: &[Units],
    slot: usize,
    keep: Keep<'_>,
) -> Option<Vec<Vec<f32>>> {
    let values = weights.iter().map(|param| (param.shape.clone(), param.read().into_owned())).collect();
    fewer(values, first, (from, to), &mut |units, count| keep(slot, units, count))
}

/// What the parameters of a block with units hold, each with its shape, of fewer units, where the blocks differ in nothing
/// else: their weights, or anything of which there is one for each.
pub(crate) fn fewer<T: Copy>(
    mut values: Vec<(Vec<usize>, Vec<T>)>,
    first: usize,
    (from, to): (&[Units], &[Units]),
    keep: &mut dyn FnMut(&Units, usize) -> Vec<usize>,
) -> Option<Vec<Vec<T>>> {
    for (from, to) in from.iter().zip(to).filter(|(from, to)| from.count != to.count) {
        if from.knobs != to.knobs || to.count > from.count {
            return None;
        }
        let kept = keep(from, to.count);
        assert!(kept.len() == to.count && kept.is_sorted(), "{} units in order", to.count);
        for slice in &from.slices {
            let (shape, values) = &mut values[slice.param.0 - first];
            *values = take(values, shape, slice.axis, (slice.repeats, from.count, slice.width), &kept);
            shape[slice.axis] = slice.repeats * to.count * slice.width;
        }
    }
    Some(values.into_iter().map(|(_, values)| values).collect())
}

/// Some units along an axis that is `repeats` x `units` x `width` long.
fn take<T: Copy>(
    values: &[T],
    shape: &[usize],
    axis: usize,
    (repeats, units, width): (usize, usize, usize),
    kept: &[usize],
) -> Vec<T> {
    let inner: usize = shape[axis + 1..].iter().product::<usize>() * width;
    let mut out = Vec::with_capacity(values.len() / units * kept.len());
    for block in values.chunks_exact(units * inner) {
        kept.iter().for_each(|&unit| out.extend_from_slice(&block[unit * inner..][..inner]));
    }
    debug_assert_eq!(values.len() % (repeats * units * inner), 0);
    out
}

/// Keeps the units whose weights are largest: the sum of squares over all that is theirs.
pub fn largest(network: &Network) -> impl FnMut(usize, &Units, usize) -> Vec<usize> + '_ {
    |_, units, count| {
        let params: Vec<&Param> = network.params().iter().collect();
        let mut sizes = vec![0.0f64; units.count];
        for slice in &units.slices {
            let param = params[slice.param.0];
            let inner: usize = param.shape[slice.axis + 1..].iter().product::<usize>() * slice.width;
            for (i, unit) in param.read().chunks_exact(inner).enumerate() {
                sizes[i % units.count] += unit.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>();
            }
        }
        let mut order: Vec<usize> = (0..units.count).collect();
        order.sort_by(|&a, &b| sizes[b].total_cmp(&sizes[a]).then(a.cmp(&b)));
        order.truncate(count);
        order.sort_unstable();
        order
    }
}
