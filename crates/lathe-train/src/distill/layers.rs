//! Which layers and slots of a student learn from which of a teacher.

use super::plan::{Pair, Segment};
use super::settings::Distill;
use crate::{Error, Result};
use lathe_core::Role;
use lathe_model::{Input, Network, Taps};

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
pub fn layer_pairs(distill: &Distill, n: usize, m: usize) -> Result<Vec<(usize, usize)>> {
    let named = distill.pairs()?;
    if named.is_empty() {
        return Ok(even(n, m));
    }
    match named.iter().find(|(student, teacher)| *student > n || *teacher > m) {
        Some((student, teacher)) => {
            let expected = format!("layers of the student from 0 to {n}, of the teacher from 0 to {m}");
            Err(Error::setting("layer_map", format_args!("{student}:{teacher}"), expected))
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
    if own.len() == theirs.len() && distill.layer_map.is_empty() {
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

/// The slots of attention maps in pairs of layers that both have some.
pub fn maps(
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
            return Err(Error::setting("attention_maps", found, "as many keys in both: the same mem_len"));
        }
        pairs.push(Pair { student, teacher });
    }
    if pairs.is_empty() {
        let expected = "at least one pair of layers that both have attention";
        return Err(Error::setting("attention_maps", "none", expected));
    }
    Ok(pairs)
}

/// The parts that learn by themselves: slot by slot where the stacks are equally long, else layer by layer.
pub fn segments(
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
    if distill.layer_map.is_empty() && slots == teacher.layers().len() {
        return Ok((0..slots).map(|slot| Segment { slots: slot..slot + 1, teacher: (slot, slot + 1) }).collect());
    }
    let mut before = (0, 0);
    let mut segments = Vec::new();
    for &(s, t) in layers.iter().filter(|(s, _)| *s > 0) {
        if t < before.1 {
            let expected = "layers of the teacher in order, where transfer is blocks";
            return Err(Error::setting("layer_map", format_args!("{s}:{t}"), expected));
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
}
