//! Networks that share weights: small ones whose weights are part of a large one's (weight sharing as in HAT, Wang et al.,
//! 2020; LTS, Javaheripi et al., 2022, appendix B).
//!
//! [`whole`] is the stack that holds several others: the blocks of the deepest, each as wide as the widest that stands in its
//! place. The blocks of a shallower one stand in the lowest places of their kind, and a narrower block has the first heads or
//! neurons of the wider. Blocks with equally many weights share them all, even where heads cut them otherwise.

use crate::derive;
use crate::network::{Network, Slot};
use crate::params::{Grads, Param, ParamId};
use lathe_core::{Block, Error, Model, Result, Role, Setting, notation};

/// The stack that holds all of these, which stand in one frame.
pub fn whole(models: &[Model]) -> Result<Vec<Block>> {
    let real = |model: &&Model| model.blocks.iter().filter(|block| block.kind.role() != Role::Identity).count();
    let deepest = models.iter().rev().max_by_key(real);
    let mut blocks = deepest.map(|model| model.blocks.clone()).unwrap_or_default();
    for model in models {
        let params = |block: &Block| block.kind.cost(block, &model.frame, &Setting::of(model)).params;
        for (block, place) in model.blocks.iter().zip(places(&blocks, &model.blocks)?) {
            if let Some(place) = place.filter(|&place| params(block) > params(&blocks[place])) {
                blocks[place] = *block;
            }
        }
    }
    Ok(blocks)
}

/// Where each block of a stack stands in one that holds it; a skip stands nowhere.
fn places(whole: &[Block], part: &[Block]) -> Result<Vec<Option<usize>>> {
    let mut next = 0;
    let place = |block: &Block| {
        if block.kind.role() == Role::Identity {
            return Ok(None);
        }
        let found = whole[next..].iter().position(|other| other.kind.key() == block.kind.key());
        let found = found.ok_or_else(|| {
            let expected = format!("the kinds of its blocks in the order of the deepest, {}", notation::print(whole));
            Error::value("fuse", notation::print(part), expected)
        })?;
        next += found + 1;
        Ok(Some(next - 1))
    };
    part.iter().map(place).collect()
}

/// Where the weights of a network stand among those of one that holds it.
pub struct Share {
    /// Of each parameter: which of the whole's it is part of, and the places of its numbers there; `None`: all, in order.
    params: Vec<(usize, Option<Vec<u32>>)>,
}

impl Share {
    /// Of a network whose stack is one of those that [`whole`] held together.
    pub fn of(part: &Network, whole: &Network) -> Result<Self> {
        let mut params = Vec::with_capacity(part.params().iter().len());
        let all: Vec<&Param> = whole.params().iter().collect();
        let blocks = part.blocks_params();
        let outside = whole.params().iter().enumerate().filter(|(at, _)| !whole.blocks_params().contains(at));
        let mut outside = outside.map(|(at, _)| at);
        let mut inside = part_slots(part, whole, &all)?.into_iter();
        for (at, param) in part.params().iter().enumerate() {
            let place = if blocks.contains(&at) { inside.next() } else { outside.next().map(|place| (place, None)) };
            let fits = |(place, numbers): &(usize, Option<Vec<u32>>)| {
                numbers.as_ref().map_or(all[*place].count(), Vec::len) == param.count()
            };
            params.push(place.filter(fits).expect("one frame, and blocks that were checked"));
        }
        Ok(Self { params })
    }

    /// Gives the part the weights that the whole has.
    pub fn read(&self, whole: &Network, part: &mut Network) {
        let all: Vec<&Param> = whole.params().iter().collect();
        for ((place, numbers), param) in self.params.iter().zip(part.params_mut()) {
            let values = &all[*place].data;
            match numbers {
                None => param.data.copy_from_slice(values),
                Some(numbers) => param.data.iter_mut().zip(numbers).for_each(|(to, &at)| *to = values[at as usize]),
            }
        }
    }

    /// Adds the gradients of the part to those of the whole.
    pub fn add(&self, part: &mut Grads, whole: &mut Grads) {
        for ((place, numbers), grad) in self.params.iter().zip(part.finish()) {
            let to = whole.add(ParamId(*place));
            match numbers {
                None => to.iter_mut().zip(&*grad).for_each(|(to, grad)| *to += grad),
                Some(numbers) => numbers.iter().zip(&*grad).for_each(|(&at, grad)| to[at as usize] += grad),
            }
        }
    }
}

/// Of each parameter of the part's blocks, where it stands.
fn part_slots(part: &Network, whole: &Network, all: &[&Param]) -> Result<Vec<(usize, Option<Vec<u32>>)>> {
    let counts: Vec<usize> = part.params().iter().map(Param::count).collect();
    let mut params = Vec::new();
    for (slot, place) in places(&whole.model.blocks, &part.model.blocks)?.into_iter().enumerate() {
        let Some(place) = place else { continue };
        let (own, theirs) = (part.slot(slot), whole.slot(place));
        let numbers = numbers(&own, &theirs, &counts, all).ok_or_else(|| {
            let print = |block: &Block| notation::print(&[*block]);
            let expected =
                format!("a block that is part of {}, which takes its place in the others", print(theirs.block));
            Error::value(format!("fuse: {}, block {}", part.model.layers(), slot + 1), print(own.block), expected)
        })?;
        params.extend(theirs.params.clone().zip(numbers));
    }
    Ok(params)
}

/// The places of a block's numbers in each parameter of a wider one, where it is part of that.
fn numbers(own: &Slot<'_>, wide: &Slot<'_>, counts: &[usize], all: &[&Param]) -> Option<Vec<Option<Vec<u32>>>> {
    let wanted = &counts[own.params.clone()];
    let wider: Vec<&&Param> = all[wide.params.clone()].iter().collect();
    if wider.len() != wanted.len() {
        return None;
    }
    if wider.iter().zip(wanted).all(|(param, &count)| param.count() == count) {
        return Some(vec![None; wanted.len()]);
    }
    let every = wider.iter().map(|param| (param.shape.clone(), (0..param.count() as u32).collect())).collect();
    let first = &mut |_: &_, count| (0..count).collect();
    let numbers = derive::fewer::<u32>(every, wide.params.start, (&wide.units, &own.units), first)?;
    let fit = numbers.iter().zip(wanted).all(|(numbers, &count)| numbers.len() == count);
    fit.then(|| numbers.into_iter().map(Some).collect())
}
