//! Which parts of a student learn from which parts of a teacher, and when.
//!
//! Layers are those of the reference implementations: a block that mixes tokens and what follows it per token. Layer 0
//! is the embedding. Hidden states are named by the slot that they enter, as [`lathe_model::taps`] has it.

use super::layers::{layer_ends, layer_pairs, maps, segments};
use super::settings::{Distill, Transfer};
use crate::optimizer::Pace;
use crate::{Error, Result};
use lathe_core::Role;
use lathe_model::Network;
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

impl Plan {
    /// What of a student learns from what of a teacher in passes of `len` tokens, over so many steps.
    pub fn new(distill: &Distill, student: &Network, teacher: &Network, len: usize, steps: u32) -> Result<Self> {
        let (own, theirs) = (layer_ends(student), layer_ends(teacher));
        let (n, m) = (own.len() - 1, theirs.len() - 1);
        if n == 0 || m == 0 {
            return Err(Error::setting("student, teacher", "no layer", "at least one layer in each"));
        }
        let layers = layer_pairs(distill, n, m)?;
        let inside = distill.hidden > 0.0 || distill.attention_maps > 0.0 || distill.transfer()? == Transfer::Blocks;
        let mut models = [&student.model, &teacher.model].into_iter();
        if let Some(model) = models.find(|model| inside && !model.keeps_shape()) {
            let found = format!("blocks that change width or length ({})", lathe_core::shorten(&model.layers()));
            let expected = "terms of outputs alone: no hidden states, no attention maps, no blocks by themselves";
            return Err(Error::setting("student, teacher", found, expected));
        }
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
            if distill.attention_maps > 0.0 {
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
        let mut paces = vec![self.pace(stem, |stage| stage.slots.start == 0, stage, step)];
        paces.extend(
            (0..stage.slots.end)
                .map(|slot| self.pace(self.slots[slot].clone(), |stage| stage.slots.contains(&slot), stage, step)),
        );
        if stage.logits {
            paces.push(Some(Pace { params: top, step: step - stage.first, rate: 1.0 }));
        }
        vec![paces.into_iter().flatten().filter(|pace| !pace.params.is_empty()).collect()]
    }

    /// How parameters that are taught in some stages move in a step of one, if they do.
    fn pace(&self, params: Range<usize>, taught: impl Fn(&Stage) -> bool, stage: &Stage, step: u32) -> Option<Pace> {
        let rate = if taught(stage) { 1.0 } else { self.earlier };
        let began = self.stages.iter().position(&taught)?;
        // Steps in which they moved before.
        let before = self.stages[began..].iter().take_while(|before| before.first < stage.first);
        let before: u32 = before.filter(|s| taught(s) || self.earlier > 0.0).map(|before| before.steps).sum();
        (rate > 0.0).then_some(Pace { params, step: before + step - stage.first, rate })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A plan of three layers of two slots with one parameter each, after two of the embedding and before one of the
    /// top.
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
