//! A text that is being continued: its tokens, its state, and what its client has got so far.

use super::job::{Event, Finish, Order, Scored};
use super::prefix::WORTH;
use crate::Served;
use crate::metrics::Histogram;
use lathe_model::{Part, State};
use lathe_text::Decoder;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::collections::HashMap;
use std::ops::Range;
use std::time::Instant;
use tokio::sync::mpsc::UnboundedSender;

/// Tokens before an answer that its text may depend on: spaces, and characters of several tokens.
const CONTEXT: usize = 16;

pub(super) struct Sequence<'a> {
    order: Order,
    index: usize,
    events: UnboundedSender<(usize, Event)>,
    arrived: Instant,
    /// The prompt, and what was written.
    tokens: Vec<u32>,
    /// How many of them the state has seen.
    seen: usize,
    /// None before it begins.
    state: Option<State>,
    cached: usize,
    /// Whether the state of its prompt was looked at to be kept.
    kept: bool,
    /// How many of the tokens have been counted.
    counted: usize,
    /// The position whose outputs come next.
    next_row: usize,
    scores: Vec<Scored>,
    /// How often tokens were written, where that counts.
    uses: HashMap<u32, u32>,
    rng: ChaCha8Rng,
    decoder: Decoder<'a>,
    /// Text that may yet turn out to be a stop text.
    held: String,
    ended: bool,
}

impl<'a> Sequence<'a> {
    pub fn new(
        served: &'a Served,
        order: Order,
        index: usize,
        (events, arrived): (UnboundedSender<(usize, Event)>, Instant),
    ) -> Self {
        Self {
            index,
            events,
            arrived,
            tokens: Vec::new(),
            seen: 0,
            state: None,
            cached: 0,
            kept: false,
            counted: 0,
            next_row: 0,
            scores: Vec::new(),
            uses: HashMap::new(),
            rng: ChaCha8Rng::seed_from_u64(order.sampling.seed),
            decoder: served.tokenizer.decoder(),
            held: String::new(),
            ended: false,
            order,
        }
    }

    /// Takes a row, with a state that has seen the first tokens of the prompt.
    pub fn begin(&mut self, state: State) {
        self.cached = state.position();
        (self.seen, self.next_row) = (self.cached, self.cached);
        self.state = Some(state);
        self.tokens = self.order.prompt.ids.clone();
        // What comes may depend on what stands right before it.
        let text = &self.order.prompt.ids[self.order.prompt.begin..];
        text[text.len().saturating_sub(CONTEXT)..].iter().for_each(|&id| drop(self.decoder.push(id)));
        if self.order.score_prompt {
            self.scores.push(Scored { id: self.tokens[0], logprob: None, top: Vec::new() });
        }
    }

    pub fn prompt(&self) -> &[u32] {
        &self.order.prompt.ids
    }

    pub fn cached(&self) -> usize {
        self.cached
    }

    pub fn state_bytes(&self) -> usize {
        self.state.as_ref().map_or(0, State::bytes)
    }

    pub fn scores_prompt(&self) -> bool {
        self.order.score_prompt
    }

    /// Whether nobody waits for it any more.
    pub fn is_cancelled(&self) -> bool {
        self.events.is_closed()
    }

    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether its prompt has not been read to the end.
    pub fn reads_prompt(&self) -> bool {
        self.seen < self.order.prompt.ids.len()
    }

    /// Tokens that its state has yet to see.
    pub fn pending(&self) -> usize {
        self.tokens.len() - self.seen
    }

    /// Its next tokens, for a step.
    pub fn part(&mut self, count: usize) -> Part<'_> {
        let ids = &self.tokens[self.seen..self.seen + count];
        self.seen += count;
        Part { ids, state: self.state.as_mut().expect("a sequence that runs has begun") }
    }

    /// Which rows of a step over so many tokens, which was just taken, have to go through the output layer.
    pub fn wanted(&self, count: usize) -> Range<usize> {
        match count {
            0 => 0..0,
            count if self.order.score_prompt && self.seen <= self.order.prompt.ids.len() => 0..count,
            count if self.seen == self.tokens.len() => count - 1..count,
            _ => 0..0,
        }
    }

    /// Takes the outputs of the next row that was wanted.
    pub fn take(&mut self, row: &[f32], served: &'a Served) {
        if self.ended {
            return;
        }
        let prompt = self.order.prompt.ids.len();
        let norm = match self.order.logprobs {
            Some(_) if !served.network.log_probabilities() => log_sum_exp(row),
            _ => 0.0,
        };
        if self.order.score_prompt && self.next_row + 1 < prompt {
            self.next_row += 1;
            let scored = self.score(row, norm, self.tokens[self.next_row]);
            self.scores.push(scored);
            return;
        }
        self.next_row = self.tokens.len();
        if self.order.score_prompt && self.tokens.len() == prompt {
            let scores = std::mem::take(&mut self.scores);
            self.send(Event::Prompt(scores));
        }
        if self.order.max_tokens == 0 {
            return self.end(Finish::Length);
        }
        let id = self.choose(row);
        let scored = self.order.logprobs.map(|_| self.score(row, norm, id));
        self.tokens.push(id);
        if !self.order.ignore_end && served.tokenizer.specials().stop.contains(&id) {
            let text = std::mem::take(&mut self.held);
            self.send(Event::Token { text, scored });
            return self.end(Finish::Stop);
        }
        let last = self.tokens.len() - prompt == self.order.max_tokens;
        self.held += &self.decoder.push(id).unwrap_or_default();
        if last {
            let decoder = std::mem::replace(&mut self.decoder, served.tokenizer.decoder());
            self.held += &decoder.finish().unwrap_or_default();
        }
        let stops = self.order.stop.iter().filter_map(|stop| self.held.find(stop.as_str()));
        if let Some(at) = stops.min() {
            self.held.truncate(at);
            let text = std::mem::take(&mut self.held);
            self.send(Event::Token { text, scored });
            return self.end(Finish::Stop);
        }
        let sure = if last { self.held.len() } else { self.held.len() - may_begin(&self.held, &self.order.stop) };
        let rest = self.held.split_off(sure);
        let text = std::mem::replace(&mut self.held, rest);
        self.send(Event::Token { text, scored });
        if last {
            self.end(Finish::Length);
        }
    }

    fn choose(&mut self, row: &[f32]) -> u32 {
        let adjust = &self.order.adjust;
        if adjust.is_nothing() {
            return self.order.sampling.choose(row, &self.tokens, &mut self.rng);
        }
        let mut logits = row.to_vec();
        for (&id, &uses) in &self.uses {
            logits[id as usize] -= adjust.presence + adjust.frequency * uses as f32;
        }
        adjust.bias.iter().for_each(|&(id, add)| logits[id as usize] += add);
        let id = self.order.sampling.choose(&logits, &self.tokens, &mut self.rng);
        *self.uses.entry(id).or_default() += 1;
        id
    }

    fn score(&self, row: &[f32], norm: f32, id: u32) -> Scored {
        let mut top: Vec<(u32, f32)> = Vec::new();
        let count = self.order.logprobs.unwrap_or(0);
        for (&logit, id) in row.iter().zip(0..) {
            if top.len() < count || top.last().is_some_and(|(_, least)| logit > *least) {
                let at = top.partition_point(|(_, other)| *other >= logit);
                top.insert(at, (id, logit));
                top.truncate(count);
            }
        }
        top.iter_mut().for_each(|(_, logit)| *logit -= norm);
        Scored { id, logprob: Some(row[id as usize] - norm), top }
    }

    /// How many tokens it wrote since this was asked last.
    pub fn wrote(&mut self, first: &Histogram) -> u32 {
        let written = self.tokens.len() - self.order.prompt.ids.len();
        let new = written - self.counted;
        if self.counted == 0 && new > 0 {
            first.add(self.arrived.elapsed());
        }
        self.counted = written;
        new as u32
    }

    /// The prompt and a copy of its state, once, when it has just been read and is worth it; `known` tells how much of
    /// it is kept already.
    pub fn prompt_to_keep(&mut self, known: impl Fn(&[u32]) -> usize) -> Option<(&[u32], State)> {
        let prompt = &self.order.prompt.ids;
        if self.kept || self.seen < prompt.len() || self.order.score_prompt {
            return None;
        }
        self.kept = true;
        if known(prompt) + WORTH > prompt.len() {
            return None;
        }
        let state = self.state.as_ref()?.prefix(prompt.len())?;
        Some((prompt, state))
    }

    /// What its state has seen, and the state: worth keeping where prompts are not scored.
    pub fn into_state(self) -> (Vec<u32>, State) {
        let Self { mut tokens, seen, state, order, .. } = self;
        tokens.truncate(if order.score_prompt { 0 } else { seen });
        (tokens, state.expect("a sequence that ends has begun"))
    }

    fn send(&self, event: Event) {
        let _ = self.events.send((self.index, event)); // who has gone away is noticed before the next step
    }

    fn end(&mut self, finish: Finish) {
        let written = self.tokens.len() - self.order.prompt.ids.len();
        self.send(Event::End { finish, cached: self.cached, written });
        self.ended = true;
    }

    pub fn fail(&self, why: &'static str) {
        self.send(Event::Failed(why));
    }
}

/// log sum exp of a row, so that logit - it is the log-probability.
fn log_sum_exp(row: &[f32]) -> f32 {
    let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = row.iter().map(|x| f64::from((x - most).exp())).sum();
    (f64::from(most) + sum.ln()) as f32
}

/// The length of the longest end of a text that one of the stop texts may begin with.
fn may_begin(text: &str, stops: &[String]) -> usize {
    let begins = |stop: &String| {
        let most = text.len().min(stop.len().saturating_sub(1));
        (1..=most).rev().find(|&len| stop.is_char_boundary(len) && text.ends_with(&stop[..len])).unwrap_or(0)
    };
    stops.iter().map(begins).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_held_back_as_long_as_it_may_be_a_stop_text() {
        let stops = ["\n\n".to_string(), "END".to_string(), "é!".to_string()];
        let held = ["a", "a\n", "aE", "aEN", "END", "é", ""].map(|text| may_begin(text, &stops));
        assert_eq!(held, [0, 1, 1, 2, 0, 2, 0]);
    }

    #[test]
    fn log_probabilities_sum_to_one() {
        let row = [1.0f32, -200.0, 88.0, 87.5];
        let norm = log_sum_exp(&row);
        let sum: f64 = row.iter().map(|x| f64::from(x - norm).exp()).sum();
        assert!((sum - 1.0).abs() < 1e-5, "{sum}");
    }
}
