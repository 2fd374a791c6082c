//! Log-probabilities of the last tokens of texts. Texts of a group begin alike, and what they have in common is computed
//! once: a pass over the beginnings of all groups, then one over what is left of all texts, each after a copy of the state
//! of its beginning.

use lathe_model::{Network, Part, State};
use lathe_ops::buffer::Buf;
use lathe_ops::loss;

/// Hidden states that go through the output layer together: what they take is as many vocabularies.
const OUTPUT_ROWS: usize = 64;

/// Tokens, of which those at the end are scored: fewer than all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Text {
    pub ids: Vec<u32>,
    pub scored: usize,
    /// Whether it lost tokens at its beginning.
    pub truncated: bool,
}

/// What a model makes of a text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Scored {
    /// The sum over the tokens that are scored, in nats.
    pub log_probability: f64,
    /// Whether each of them is the most probable one.
    pub greedy: bool,
}

/// Scores groups of texts.
pub(super) fn score(network: &Network, groups: &[Vec<Text>]) -> Vec<Vec<Scored>> {
    let window = network.model.frame.window() as usize;
    let fresh = network.init_cache(1, window, &network.init_memory(1));
    let empty = fresh.prefix(0); // none where states know no way back
    let begin = || empty.as_ref().and_then(|empty| empty.prefix(0)).unwrap_or_else(|| fresh.clone());
    let common: Vec<usize> = groups.iter().map(|texts| if empty.is_some() { common(texts) } else { 0 }).collect();
    let mut states: Vec<State> = common.iter().map(|_| begin()).collect();
    let beginnings: Vec<&[u32]> = groups
        .iter()
        .zip(&common)
        .map(|(texts, &len)| texts.first().map_or(&[][..], |text| &text.ids[..len]))
        .collect();
    advance(network, &beginnings, &mut states);
    let mut rest: Vec<&[u32]> = Vec::new();
    let mut own: Vec<State> = Vec::new();
    for ((texts, &len), state) in groups.iter().zip(&common).zip(&states) {
        for text in texts {
            rest.push(&text.ids[len..text.ids.len() - 1]);
            own.push(state.prefix(len).unwrap_or_else(begin));
        }
    }
    drop(states);
    let hidden = advance(network, &rest, &mut own);
    drop(own);
    let texts: Vec<&Text> = groups.iter().flatten().collect();
    let mut scored = last_tokens(network, &texts, &hidden).into_iter();
    groups.iter().map(|texts| scored.by_ref().take(texts.len()).collect()).collect()
}

/// How many tokens texts have in common before the last that is not scored in any.
fn common(texts: &[Text]) -> usize {
    let [first, others @ ..] = texts else { return 0 };
    if others.is_empty() {
        return 0;
    }
    let alike = |other: &Text| first.ids.iter().zip(&other.ids).take_while(|(a, b)| a == b).count();
    let unscored = texts.iter().map(|text| text.ids.len() - text.scored - 1);
    others.iter().map(alike).chain(unscored).min().unwrap_or(0)
}

/// The hidden states [T, D] of texts, each after a state of its own. A memory is carried from window to window.
fn advance(network: &Network, texts: &[&[u32]], states: &mut [State]) -> Vec<Vec<f32>> {
    let frame = &network.model.frame;
    let (width, longest) = (frame.d_model as usize, texts.iter().map(|text| text.len()).max().unwrap_or(0));
    let piece = if frame.has_memory() { frame.window() as usize } else { longest.max(1) };
    let mut hidden = vec![Vec::new(); texts.len()];
    for first in (0..longest).step_by(piece) {
        let of_text = |text: &&[u32]| first.min(text.len())..(first + piece).min(text.len());
        let pieces: Vec<_> = texts.iter().map(of_text).collect();
        let mut parts: Vec<Part<'_>> = Vec::new();
        for ((text, range), state) in texts.iter().zip(&pieces).zip(states.iter_mut()) {
            if !range.is_empty() {
                parts.push(Part { ids: &text[range.clone()], state });
            }
        }
        let all = network.hidden_ragged(&mut parts);
        let mut rows = &all[..];
        for (hidden, range) in hidden.iter_mut().zip(&pieces) {
            let (own, after) = rows.split_at(range.len() * width);
            hidden.extend_from_slice(own);
            rows = after;
        }
    }
    hidden
}

/// Scores the last tokens of texts by the hidden states of the tokens before each.
fn last_tokens(network: &Network, texts: &[&Text], hidden: &[Vec<f32>]) -> Vec<Scored> {
    let frame = &network.model.frame;
    let (width, vocab) = (frame.d_model as usize, frame.vocab as usize);
    let mut wanted: Vec<(usize, &[f32], u32)> = Vec::new(); // text, hidden state, token
    for (t, (text, hidden)) in texts.iter().zip(hidden).enumerate() {
        let rows = hidden.chunks_exact(width);
        let skip = rows.len() - text.scored;
        let targets = &text.ids[text.ids.len() - text.scored..];
        wanted.extend(rows.skip(skip).zip(targets).map(|(row, &token)| (t, row, token)));
    }
    let mut scored = vec![Scored { log_probability: 0.0, greedy: true }; texts.len()];
    for block in wanted.chunks(OUTPUT_ROWS) {
        let mut rows = Buf::any(block.len() * width);
        rows.chunks_exact_mut(width).zip(block).for_each(|(to, (_, row, _))| to.copy_from_slice(row));
        let mut outputs = network.outputs(&rows);
        let targets: Vec<u32> = block.iter().map(|(_, _, token)| *token).collect();
        for ((t, _, token), row) in block.iter().zip(outputs.chunks_exact(vocab)) {
            let target = row[*token as usize];
            scored[*t].greedy &= row.iter().all(|other| *other <= target);
        }
        let mut losses = vec![0.0; targets.len()];
        loss::negative_log_likelihood(&mut outputs, vocab, &targets, &mut losses);
        block.iter().zip(losses).for_each(|((t, ..), loss)| scored[*t].log_probability -= f64::from(loss));
    }
    scored
}
