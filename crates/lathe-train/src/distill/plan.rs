//! Which parts of a student learn from which parts of a teacher, and when.
//!
//! Layers are those of the reference implementations: a block that mixes tokens and what follows it per token. Layer 0 is
//! the embedding. Hidden states are named by the slot that they enter, as [`lathe_model::taps`] has it.

use super::settings::{Distill, Transfer};
use crate::optimizer::Pace;
use crate::{Error, Result};
use lathe_core::Role;
use lathe_model::{Input, Network, Taps};
use std::ops::Range;

/// A place in a student and the place in its teacher that it learns from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    /// Of the student.
    pub student: usize,
    /// Of the teacher.
    pub teacher: usize,
}

/// Slots of a student that learn by themselves what some slots of a teacher do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Slots of the student.
    pub slots: Range<usize>,
    /// The teacher's hidden states that enter, and those that are wanted.
    pub teacher: (usize, usize),
}

/// Some steps in which the same things are learnt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    /// Steps before it.
    pub first: u32,
    /// Its own.
    pub steps: u32,
    /// Which pairs of hidden states, and which of attention maps.
    pub hidden: Range<usize>,
    pub maps: Range<usize>,
    /// Whether logits are learnt.
    pub logits: bool,
    /// Slots of the student that learn, or that others learn above.
    pub slots: Range<usize>,
}

/// All of it.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Pairs of hidden states, from the bottom.
    pub hidden: Vec<Pair>,
    /// Pairs of slots with attention maps.
    pub maps: Vec<Pair>,
    /// Parts that learn by themselves, where they do.
    pub segments: Vec<Segment>,
    /// From the first step to the last.
    pub stages: Vec<Stage>,
    /// Where the parameters of each slot of the student stand, and how many there are in all.
    slots: Vec<Range<usize>>,
    params: usize,
    earlier: f64,
}

/// Where layers end: what the slot after each is, from layer 0 on.
pub fn layer_ends(network: &Network) -> Vec<usize> {
    let layers = network.layers();
    let last = |slot: usize| layers.get(slot + 1) != Some(&layers[slot]);
    std::iter::once(0).chain((0..layers.len()).filter(|&slot| last(slot)).map(|slot| slot + 1)).collect()
}

/// Which layer of m each of n layers learns from: evenly spaced, the last from the last.
fn even(n: usize, m: usize) -> Vec<(usize, usize)> {
    (1..=n).map(|layer| (layer, ((2 * layer * m + n) / (2 * n)).max(1).min(m))).collect()
}

/// The pairs of layers: those of the map, or evenly spaced.
fn layer_pairs(distill: &Distill, n: usize, m: usize) -> Result<Vec<(usize, usize)>> {
    let named = distill.pairs()?;
    if named.is_empty() {
        return Ok(even(n, m));
    }
    match named.iter().find(|(student, teacher)| *student > n || *teacher > m) {
        Some((student, teacher)) => {
            let expected = format!("layers of the student from 0 to {n}, of the teacher from 0 to {m}");
            Err(Error::setting("map", format_args!("{student}:{teacher}"), expected))
        }
        None => Ok(named),
    }
}

/// The slots of a network that have attention maps, with the number of their keys for so many tokens.
fn mapped(network: &Network, len: usize) -> Vec<(usize, usize)> {
    let slots = network.layers().len();
    let taps = Taps { maps: (0..slots).collect(), until: Some(slots), ..Taps::NONE };
    let (_, seen) = network.look(&Input::tokens(&vec![0; len], 1), &mut network.init_memory(1), &taps);
    let maps = seen.maps.into_iter().enumerate();
    maps.filter_map(|(slot, map)| map.map(|map| (slot, map.probabilities.len() / map.heads / len))).collect()
}

/// For each slot of a student the slot of its teacher whose weights it may begin with: the same place where the stacks are
/// equally long, else that of the same role in the layer that its layer learns from.
pub fn inherited(student: &Network, teacher: &Network, distill: &Distill) -> Result<Vec<Option<usize>>> {
    let (own, theirs) = (student.layers(), teacher.layers());
    if own.len() == theirs.len() && distill.map.is_empty() {
        return Ok((0..own.len()).map(Some).collect());
    }
    let pairs = layer_pairs(distill, layer_ends(student).len() - 1, layer_ends(teacher).len() - 1)?;
    let role = |network: &Network, slot: usize| network.slot(slot).block.kind.role();
    let of = |slot: usize| {
        let (_, layer) = *pairs.iter().find(|(layer, _)| *layer == own[slot] + 1)?;
        let alike = |network: &Network, numbers: &[usize], layer: usize, role_of: Role| -> Vec<usize> {
            (0..numbers.len()).filter(|&s| numbers[s] + 1 == layer && role(network, s) == role_of).collect()
        };
        let place = alike(student, own, own[slot] + 1, role(student, slot)).iter().position(|&s| s == slot)?;
        alike(teacher, theirs, layer, role(student, slot)).get(place).copied()
    };
    Ok((0..own.len()).map(of).collect())
}

impl Plan {
    /// What of a student learns from what of a teacher in passes of `len` tokens, over so many steps.
    pub fn new(distill: &Distill, student: &Network, teacher: &Network, len: usize, steps: u32) -> Result<Self> {
        let (own, theirs) = (layer_ends(student), layer_ends(teacher));
        let (n, m) = (own.len() - 1, theirs.len() - 1);
        if n == 0 || m == 0 {
            return Err(Error::setting("student, teacher", "no layer", "at least one layer in each"));
        }
        let layers = layer_pairs(distill, n, m)?;
        let slots: Vec<_> = (0..student.layers().len()).map(|slot| student.slot(slot).params).collect();
        let mut plan = Self {
            hidden: Vec::new(),
            maps: Vec::new(),
            segments: Vec::new(),
            stages: Vec::new(),
            params: student.params().iter().len(),
            earlier: distill.earlier,
            slots,
        };
        let transfer = distill.transfer()?;
        if transfer == Transfer::Blocks {
            plan.segments = segments(distill, student, teacher, &layers, (&own, &theirs))?;
        } else {
            if distill.hidden > 0.0 {
                plan.hidden = layers.iter().map(|&(s, t)| Pair { student: own[s], teacher: theirs[t] }).collect();
            }
            if distill.attention > 0.0 {
                plan.maps = maps(student, teacher, &layers, (&own, &theirs), len)?;
            }
        }
        plan.stages = match transfer {
            Transfer::Progressive => plan.layer_stages(distill, student, &layers, &own, steps)?,
            _ => vec![plan.whole(0, steps, transfer != Transfer::Blocks && distill.has_output_terms())],
        };
        Ok(plan)
    }

    /// A stage in which everything is learnt.
    fn whole(&self, first: u32, steps: u32, logits: bool) -> Stage {
        let highest = self.hidden.iter().map(|pair| pair.student).chain(self.maps.iter().map(|pair| pair.student + 1));
        let slots = 0..if logits { self.slots.len() } else { highest.max().unwrap_or(self.slots.len()) };
        Stage { first, steps, hidden: 0..self.hidden.len(), maps: 0..self.maps.len(), logits, slots }
    }

    /// One stage for each pair of layers, and one for the logits.
    fn layer_stages(
        &self,
        distill: &Distill,
        student: &Network,
        layers: &[(usize, usize)],
        own: &[usize],
        steps: u32,
    ) -> Result<Vec<Stage>> {
        let shared =
            |slot: usize| student.slot(slot).block.kind.role() != Role::Identity && self.slots[slot].is_empty();
        if (0..self.slots.len()).any(shared) {
            return Err(Error::setting(
                "transfer",
                "progressive",
                "joint, for the layers of the student share weights",
            ));
        }
        let for_layers = (f64::from(steps) * distill.layer_share).round() as u64;
        let count = layers.len() as u64;
        let mut stages = Vec::new();
        let mut below = 0;
        for (i, &(layer, _)) in (0u64..).zip(layers) {
            let (first, end) = (for_layers * i / count, for_layers * (i + 1) / count);
            let slots = below..own[layer];
            let within = |list: &[Pair], place: &dyn Fn(&Pair) -> bool| -> Range<usize> {
                let first = list.iter().position(place).unwrap_or(0);
                first..first + list.iter().filter(|pair| place(pair)).count()
            };
            let hidden = within(&self.hidden, &|pair| pair.student == own[layer]);
            let maps = within(&self.maps, &|pair| slots.contains(&pair.student));
            below = own[layer];
            if !hidden.is_empty() || !maps.is_empty() {
                stages.push(Stage {
                    first: first as u32,
                    steps: (end - first) as u32,
                    hidden,
                    maps,
                    logits: false,
                    slots,
                });
            }
        }
        let first = stages.last().map_or(0, |stage: &Stage| stage.first + stage.steps);
        if distill.has_output_terms() {
            let last = self.whole(first, steps - first, true);
            stages.push(Stage { hidden: 0..0, maps: 0..0, ..last });
        } else if let Some(last) = stages.last_mut() {
            last.steps = steps - last.first; // nothing comes after it
        }
        stages.retain(|stage| stage.steps > 0);
        Ok(stages)
    }

    /// The stage of a step, which is counted from 1.
    pub fn stage(&self, step: u32) -> &Stage {
        let reached = self.stages.iter().rev().find(|stage| step > stage.first);
        reached.unwrap_or(&self.stages[0])
    }

    /// Which slot nothing learns below in a stage.
    pub fn from(&self, stage: &Stage) -> usize {
        if self.earlier > 0.0 { 0 } else { stage.slots.start }
    }

    /// Which parameters move in a step, in groups whose gradients are clipped together.
    pub fn paces(&self, step: u32) -> Vec<Vec<Pace>> {
        let stage = self.stage(step);
        if !self.segments.is_empty() {
            let group = |segment: &Segment| {
                let slots = self.slots[segment.slots.clone()].iter().filter(|params| !params.is_empty());
                slots.map(|params| Pace { params: params.clone(), step, rate: 1.0 }).collect::<Vec<Pace>>()
            };
            return self.segments.iter().map(group).filter(|group| !group.is_empty()).collect();
        }
        let stem = 0..self.slots.first().map_or(0, |first| first.start);
        let top = self.slots.last().map_or(stem.end, |last| last.end)..self.params;
        // The embedding learns with the first layer, what stands above the blocks with the logits.
        let mut paces = vec![self.pace(stem, 0, stage, step)];
        paces.extend((0..stage.slots.end).map(|slot| self.pace(self.slots[slot].clone(), slot, stage, step)));
        if stage.logits {
            paces.push(Some(Pace { params: top, step: step - stage.first, rate: 1.0 }));
        }
        vec![paces.into_iter().flatten().filter(|pace| !pace.params.is_empty()).collect()]
    }

    /// How parameters that begin to learn with a slot move in a step, if they do.
    fn pace(&self, params: Range<usize>, slot: usize, stage: &Stage, step: u32) -> Option<Pace> {
        let rate = if stage.logits || stage.slots.contains(&slot) { 1.0 } else { self.earlier };
        let learnt = |stage: &&Stage| stage.logits || stage.slots.contains(&slot) || self.earlier > 0.0;
        let began = self.stages.iter().position(|stage| stage.slots.contains(&slot))?;
        // Steps in which they moved, this one included.
        let before = self.stages[began..].iter().take_while(|before| before.first < stage.first).filter(learnt);
        let before: u32 = before.map(|before| before.steps).sum();
        (rate > 0.0).then_some(Pace { params, step: before + step - stage.first, rate })
    }
}

/// The slots of attention maps in pairs of layers that both have some.
fn maps(
    student: &Network,
    teacher: &Network,
    layers: &[(usize, usize)],
    (own, theirs): (&[usize], &[usize]),
    len: usize,
) -> Result<Vec<Pair>> {
    let (of_student, of_teacher) = (mapped(student, len), mapped(teacher, len));
    let first = |maps: &[(usize, usize)], ends: &[usize], layer: usize| {
        let slots = ends[layer.saturating_sub(1)]..ends[layer];
        maps.iter().find(|(slot, _)| slots.contains(slot)).copied()
    };
    let both = layers.iter().filter_map(|&(s, t)| first(&of_student, own, s).zip(first(&of_teacher, theirs, t)));
    let mut pairs = Vec::new();
    for ((student, keys), (teacher, of_teacher)) in both {
        if keys != of_teacher {
            let found = format!("maps over {keys} keys in the student and {of_teacher} in the teacher");
            return Err(Error::setting("attention", found, "as many keys in both: the same mem_len"));
        }
        pairs.push(Pair { student, teacher });
    }
    if pairs.is_empty() {
        let expected = "at least one pair of layers that both have attention";
        return Err(Error::setting("attention", "none", expected));
    }
    Ok(pairs)
}

/// The parts that learn by themselves: slot by slot where the stacks are equally long, else layer by layer.
fn segments(
    distill: &Distill,
    student: &Network,
    teacher: &Network,
    layers: &[(usize, usize)],
    (own, theirs): (&[usize], &[usize]),
) -> Result<Vec<Segment>> {
    let (width, expected) = (student.model.frame.d_model, teacher.model.frame.d_model);
    if width != expected {
        let expected = format!("{expected}, the teacher's, for blocks learn from its hidden states");
        return Err(Error::setting("d_model", width, expected));
    }
    let slots = student.layers().len();
    if distill.map.is_empty() && slots == teacher.layers().len() {
        return Ok((0..slots).map(|slot| Segment { slots: slot..slot + 1, teacher: (slot, slot + 1) }).collect());
    }
    let mut before = (0, 0);
    let mut segments = Vec::new();
    for &(s, t) in layers.iter().filter(|(s, _)| *s > 0) {
        if t < before.1 {
            let expected = "layers of the teacher in order, where transfer is blocks";
            return Err(Error::setting("map", format_args!("{s}:{t}"), expected));
        }
        segments.push(Segment { slots: own[before.0]..own[s], teacher: (theirs[before.1], theirs[t]) });
        before = (s, t);
    }
    Ok(segments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_evenly_spaced_and_the_last_learns_from_the_last() {
        assert_eq!(even(4, 8), [(1, 2), (2, 4), (3, 6), (4, 8)]);
        assert_eq!(even(5, 12), [(1, 2), (2, 5), (3, 7), (4, 10), (5, 12)]);
        assert_eq!(even(3, 3), [(1, 1), (2, 2), (3, 3)]);
        assert_eq!(even(4, 2), [(1, 1), (2, 1), (3, 2), (4, 2)]);
        assert_eq!(even(1, 7), [(1, 7)]);
    }

    /// A plan of three layers of two slots with one parameter each, after two of the embedding and before one of the top.
    fn plan(earlier: f64) -> Plan {
        let stage = |first, steps, layer: usize| Stage {
            first,
            steps,
            hidden: layer..layer + 1,
            maps: 0..0,
            logits: false,
            slots: 2 * layer..2 * layer + 2,
        };
        let last = Stage { first: 12, steps: 8, hidden: 0..0, maps: 0..0, logits: true, slots: 0..6 };
        Plan {
            hidden: (1..=3).map(|layer| Pair { student: 2 * layer, teacher: 4 * layer }).collect(),
            maps: Vec::new(),
            segments: Vec::new(),
            stages: vec![stage(0, 4, 0), stage(4, 4, 1), stage(8, 4, 2), last],
            slots: (2..8).map(|param| param..param + 1).collect(),
            params: 9,
            earlier,
        }
    }

    /// The step and the rate of each parameter that moves.
    fn moving(plan: &Plan, step: u32) -> Vec<(usize, u32, f64)> {
        let groups = plan.paces(step);
        assert_eq!(groups.len(), 1);
        let each = groups[0].iter().flat_map(|pace| pace.params.clone().map(|at| (at, pace.step, pace.rate)));
        each.collect()
    }

    #[test]
    fn frozen_layers_stay_and_come_back_for_the_logits() {
        let plan = plan(0.0);
        assert_eq!(moving(&plan, 1), [(0, 1, 1.0), (1, 1, 1.0), (2, 1, 1.0), (3, 1, 1.0)]);
        assert_eq!(moving(&plan, 6), [(4, 2, 1.0), (5, 2, 1.0)]);
        assert_eq!(plan.from(plan.stage(6)), 2);
        let steps: Vec<u32> = moving(&plan, 13).into_iter().map(|(_, step, _)| step).collect();
        assert_eq!(steps, [5, 5, 5, 5, 5, 5, 5, 5, 1]);
    }

    #[test]
    fn layers_below_go_on_at_a_share() {
        let plan = plan(0.25);
        let expected = [(0, 6, 0.25), (1, 6, 0.25), (2, 6, 0.25), (3, 6, 0.25), (4, 2, 1.0), (5, 2, 1.0)];
        assert_eq!(moving(&plan, 6), expected);
        assert_eq!(plan.from(plan.stage(6)), 0);
        let steps: Vec<u32> = moving(&plan, 13).into_iter().map(|(_, step, _)| step).collect();
        assert_eq!(steps, [13, 13, 13, 13, 9, 9, 5, 5, 1]);
    }
}
