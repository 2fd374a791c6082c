//! A second model that looks on while one is evaluated: it is given the same tokens in the same windows, and the
//! predictions of the two are compared place by place. Logits of a few hundred places exist at a time.

use crate::data::Tokenizer;
use crate::divergence::{Divergence, Passage, kl, probability, top};
use crate::evaluate::{Onlooker, Window};
use crate::{Error, Result};
use lathe_model::{Input, Network, State};
use lathe_ops::loss::IGNORE;
use rayon::prelude::*;
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;

/// Numbers of logits of a model at a time, and most places.
const LOGITS: usize = 1 << 22;
const PLACES: usize = 512;
/// Places that are remembered as those where two models are farthest apart, and tokens before each.
const WORST: usize = 8;
const BEFORE: usize = 24;

/// The tokens of one vocabulary that another has too, by what they stand for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shared {
    /// The other's id of each of the first's, where it has one; `None` where all ids are the same.
    ids: Option<Vec<Option<u32>>>,
}

impl Shared {
    /// Of two tokenizers, each with the number of outputs of its model; none where one has bytes and the other has not.
    pub fn of(first: (&Tokenizer, u32), second: (&Tokenizer, u32)) -> Option<Self> {
        let same = match (first.0, second.0) {
            (Tokenizer::Bytes, Tokenizer::Bytes) => true,
            (Tokenizer::Hf(_), Tokenizer::Hf(_)) => first.0.vocab() == second.0.vocab(),
            _ => return None,
        };
        if same && (0..first.0.vocab()).all(|id| first.0.token(id) == second.0.token(id)) {
            // Outputs beyond the tokenizer's stand for nothing, or for the same.
            let both = first.1.min(second.1);
            let ids = (first.1 != second.1).then(|| (0..first.1).map(|id| (id < both).then_some(id)).collect());
            return Some(Self { ids });
        }
        let tokens = (0..second.0.vocab().min(second.1)).filter_map(|id| Some((second.0.token(id)?, id)));
        let other: HashMap<String, u32> = tokens.collect();
        let id = |id: u32| first.0.token(id).and_then(|token| other.get(&token).copied());
        Some(Self { ids: Some((0..first.0.vocab().min(first.1)).map(id).collect()) })
    }

    /// How many tokens both have; `None` for all.
    pub fn count(&self) -> Option<usize> {
        self.ids.as_ref().map(|ids| ids.iter().flatten().count())
    }

    /// How many tokens only the first has, of those that its tokenizer gives.
    pub fn missing(&self, tokenizer: &Tokenizer) -> usize {
        let Some(ids) = &self.ids else { return 0 };
        let tokens = ids.iter().zip(0..tokenizer.vocab());
        tokens.filter(|&(other, id)| other.is_none() && tokenizer.token(id).is_some()).count()
    }

    /// The other's id of a token.
    fn other(&self, id: u32) -> Option<u32> {
        match &self.ids {
            None => Some(id),
            Some(ids) => ids.get(id as usize).copied().flatten(),
        }
    }

    /// Ids of both, of every token that both have; `None` where all ids are the same.
    fn columns(&self) -> Option<Vec<[u32; 2]>> {
        let ids = self.ids.as_ref()?;
        Some(ids.iter().zip(0..).filter_map(|(&other, id)| Some([id, other?])).collect())
    }
}

/// Which of the two models is the truth p in KL(p || q).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Truth {
    /// The one that looks on.
    Onlooker,
    /// The one that is evaluated.
    Evaluated,
}

/// A model that looks on while another is evaluated.
pub struct Against<'a> {
    evaluated: &'a Network,
    other: &'a Network,
    shared: &'a Shared,
    columns: Option<Vec<[u32; 2]>>,
    truth: Truth,
    seen: RefCell<Seen>,
}

/// What was seen so far.
#[derive(Default)]
struct Seen {
    state: Option<State>,
    nats: Vec<f64>,
    same: u64,
    worst: Vec<Passage>,
}

impl Seen {
    /// What a place has to exceed to be remembered.
    fn least(&self) -> f64 {
        match self.worst.len() < WORST {
            true => 0.0,
            false => self.worst[WORST - 1].kl,
        }
    }

    /// Keeps a passage, and of all the worst, the worst first; of equals the earlier.
    fn remember(&mut self, passage: Passage) {
        let at = self.worst.partition_point(|one| one.kl >= passage.kl);
        self.worst.insert(at, passage);
        self.worst.truncate(WORST);
    }
}

impl<'a> Against<'a> {
    /// The other model, beside the one that will be evaluated; of what they share, from the evaluated one's ids.
    pub fn new(evaluated: &'a Network, other: &'a Network, shared: &'a Shared, truth: Truth) -> Self {
        Self { evaluated, other, shared, columns: shared.columns(), truth, seen: RefCell::default() }
    }

    /// What was found; none where nothing was evaluated.
    pub fn finish(self) -> Option<Divergence> {
        let Seen { nats, same, worst, .. } = self.seen.into_inner();
        Divergence::of(nats, same, worst)
    }

    /// The hidden states of the other model for the same tokens.
    fn hidden(&self, window: &Window<'_>, state: &mut Option<State>) -> Result<Vec<f32>> {
        let frame = &self.other.model.frame;
        let (batch, len) = (window.batch, window.ids.len() / window.batch);
        if !frame.has_memory() && len > frame.max_len as usize {
            let expected = format!("at most {}, the max_len of the model to compare with", frame.max_len);
            return Err(Error::setting("window", len, expected));
        }
        let known = |&id: &u32| {
            self.shared.other(id).filter(|&id| id < frame.vocab).ok_or_else(|| {
                let found = format!("the token {id}, which only one of the models has");
                Error::data("text", found, "tokens of both")
            })
        };
        let ids: Vec<u32> = window.ids.iter().map(known).collect::<Result<_>>()?;
        let source: Vec<u32> = window.source.iter().map(known).collect::<Result<_>>()?;
        let mut input = Input::tokens(&ids, batch);
        if frame.source_len().is_some() {
            input = input.after(&source);
        }
        if window.begins || !frame.has_memory() {
            *state = None;
        }
        let state = state.get_or_insert_with(|| match self.other.init_memory(batch) {
            memory if frame.has_memory() => self.other.init_cache(batch, len, &memory),
            memory => memory,
        });
        Ok(self.other.hidden(&input, state).to_vec())
    }
}

impl Onlooker for Against<'_> {
    fn window(&self, window: &Window<'_>) -> Result<()> {
        let seen = &mut *self.seen.borrow_mut();
        let other = self.hidden(window, &mut seen.state)?;
        let networks = [self.evaluated, self.other];
        let vocab = networks.map(|network| network.model.frame.vocab as usize);
        let width = networks.map(|network| network.model.frame.d_model as usize);
        let places: Vec<usize> = (0..window.targets.len()).filter(|&at| window.targets[at] != IGNORE).collect();
        for places in places.chunks((LOGITS / vocab[0].max(vocab[1])).clamp(1, PLACES)) {
            let logits = |side: usize, hidden: &[f32]| {
                let rows = places.iter().flat_map(|&at| hidden[at * width[side]..][..width[side]].iter().copied());
                networks[side].outputs(&rows.collect::<Vec<f32>>())
            };
            let (own, others) = (logits(0, window.hidden), logits(1, &other));
            let (truth, columns) = (self.truth, self.columns.as_deref());
            let row = |i: usize| {
                let (own, other) = (&own[i * vocab[0]..][..vocab[0]], &others[i * vocab[1]..][..vocab[1]]);
                shared_columns(columns, own, other)
            };
            let compare = |i: usize| {
                let [own, other] = row(i);
                let nats = match truth {
                    Truth::Onlooker => kl(&other, &own),
                    Truth::Evaluated => kl(&own, &other),
                };
                (nats, [top(&own), top(&other)])
            };
            let found: Vec<_> = (0..places.len()).into_par_iter().map(compare).collect();
            for (i, (nats, tops)) in found.into_iter().enumerate() {
                seen.nats.push(nats);
                seen.same += u64::from(tops[0] == tops[1]);
                if nats > seen.least() {
                    let [own, other] = row(i);
                    let id = |column: usize| columns.map_or(column as u32, |columns| columns[column][0]);
                    seen.remember(Passage {
                        before: before(window, places[i]),
                        next: window.targets[places[i]],
                        tops: tops.map(id),
                        probabilities: [probability(&own, tops[0]), probability(&other, tops[1])],
                        kl: nats,
                    });
                }
            }
        }
        Ok(())
    }
}

/// The last tokens up to a place of a window.
fn before(window: &Window<'_>, at: usize) -> Vec<u32> {
    let len = window.ids.len() / window.batch;
    window.ids[(at / len * len).max((at + 1).saturating_sub(BEFORE))..=at].to_vec()
}

/// The columns of two rows of logits that both models have.
fn shared_columns<'a>(columns: Option<&[[u32; 2]]>, own: &'a [f32], other: &'a [f32]) -> [Cow<'a, [f32]>; 2] {
    match columns {
        None => [own.into(), other.into()],
        Some(columns) => {
            let take = |row: &[f32], side: usize| columns.iter().map(|ids| row[ids[side] as usize]).collect();
            [take(own, 0), take(other, 1)]
        }
    }
}
