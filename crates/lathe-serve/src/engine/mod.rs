//! One thread that computes for everybody (continuous batching, Yu et al., 2022, "Orca").
//!
//! Requests come in through a bounded queue. Between steps, sequences that wait take the rows that are free. A step is one
//! pass over the weights: the next token of every sequence that writes, and a piece of the prompts of those that have just
//! come, so that a long prompt holds nobody up for long. Who has gone away is dropped before the next step.

mod job;
mod prefix;
mod sequence;

pub use job::{Adjust, Event, Finish, Job, Order, Scored, Work};

use crate::{Metrics, Served, Settings};
use job::Embedding;
use lathe_model::{Input, State};
use lathe_ops::buffer::Buf;
use prefix::{Prefixes, WORTH, common};
use rayon::prelude::*;
use sequence::Sequence;
use std::collections::VecDeque;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TryRecvError;

/// Tokens of prompts in a step while others write.
const PIECE: usize = 64;
/// Tokens of prompts in a step while nobody else writes.
const PIECE_ALONE: usize = 512;
/// Rows that go through the output layer together: what they take is as many vocabularies.
const OUTPUT_ROWS: usize = 64;

/// What computes.
pub struct Engine {
    served: Arc<Served>,
    metrics: Arc<Metrics>,
    jobs: mpsc::Receiver<Job>,
    rows: usize,
    prefix_bytes: usize,
}

impl Engine {
    /// An engine, and where its jobs come in.
    pub fn new(served: Arc<Served>, settings: &Settings, metrics: Arc<Metrics>) -> (Self, mpsc::Sender<Job>) {
        let (send, jobs) = mpsc::channel(settings.queue.max(1));
        let (rows, prefix_bytes) = (settings.rows.max(1), settings.prefix_bytes);
        (Self { served, metrics, jobs, rows, prefix_bytes }, send)
    }

    /// Computes until nobody can send jobs any more.
    pub fn run(mut self) {
        let served = self.served.clone();
        let mut floor = Floor::new(&served, &self.metrics, self.prefix_bytes);
        loop {
            let idle = floor.is_idle();
            let room =
                floor.running.len() < self.rows && floor.waiting.len() < self.rows && floor.embeddings.is_empty();
            let next = match (idle, room) {
                (true, _) => self.jobs.blocking_recv().ok_or(TryRecvError::Disconnected),
                (false, true) => self.jobs.try_recv(),
                (false, false) => Err(TryRecvError::Empty),
            };
            match next {
                Ok(job) => {
                    self.metrics.requests_waiting.fetch_sub(1, Relaxed);
                    floor.accept(job);
                    continue; // there may be more, and all begin together
                }
                Err(TryRecvError::Disconnected) if idle => return,
                Err(_) => {}
            }
            floor.admit(self.rows);
            // A mistake in one step must not end the server: those who were part of it are told.
            if catch_unwind(AssertUnwindSafe(|| floor.step())).is_err() {
                floor.running.drain(..).for_each(|sequence| sequence.fail("the computation failed"));
                floor.embeddings.clear();
            }
            floor.report();
        }
    }
}

/// All that an engine has in its hands.
struct Floor<'a> {
    served: &'a Served,
    metrics: &'a Metrics,
    /// Of each job what has not begun; jobs take turns.
    waiting: VecDeque<VecDeque<Sequence<'a>>>,
    running: Vec<Sequence<'a>>,
    embeddings: VecDeque<Embedding>,
    prefixes: Prefixes,
    /// A state that can be cut back, before any token; none where states cannot.
    empty: Option<State>,
}

impl<'a> Floor<'a> {
    fn new(served: &'a Served, metrics: &'a Metrics, prefix_bytes: usize) -> Self {
        let empty = served.writes().then(|| fresh(served)).and_then(|state| state.prefix(0));
        let (waiting, running, embeddings) = Default::default();
        Self { served, metrics, waiting, running, embeddings, prefixes: Prefixes::new(prefix_bytes), empty }
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty() && self.embeddings.is_empty()
    }

    /// Takes a job apart.
    fn accept(&mut self, job: Job) {
        let Job { work, events, arrived } = job;
        match work {
            Work::Write(orders) => {
                let begin = |(index, order)| Sequence::new(self.served, order, index, (events.clone(), arrived));
                self.waiting.push_back(orders.into_iter().enumerate().map(begin).collect());
            }
            Work::Embed(texts) => {
                let one = |(index, ids)| Embedding { ids, index, events: events.clone() };
                self.embeddings.extend(texts.into_iter().enumerate().map(one));
            }
        }
    }

    /// Lets those who wait take free rows. Who begins as somebody does whose prompt is just being read waits for that.
    fn admit(&mut self, rows: usize) {
        while self.running.len() < rows
            && let Some(mut job) = self.waiting.pop_front()
        {
            let Some(mut next) = job.pop_front() else { continue };
            if next.is_cancelled() {
                self.metrics.sequences_cancelled_total.fetch_add(1 + job.len() as u64, Relaxed);
                continue;
            }
            let prompt = next.prompt();
            let alike = |other: &Sequence<'_>| {
                other.reads_prompt() && !other.scores_prompt() && common(other.prompt(), prompt) + 1 >= prompt.len()
            };
            let shares = !next.scores_prompt() && prompt.len() > WORTH && self.empty.is_some();
            if shares && self.running.iter().any(alike) {
                job.push_front(next);
                self.waiting.push_back(job);
                return;
            }
            let known = if shares { self.prefixes.find(prompt) } else { None };
            let begin = || self.empty.as_ref().and_then(|empty| empty.prefix(0)).unwrap_or_else(|| fresh(self.served));
            next.begin(known.unwrap_or_else(begin));
            self.metrics.sequences_total.fetch_add(1, Relaxed);
            self.metrics.prompt_tokens_total.fetch_add(next.prompt().len() as u64, Relaxed);
            self.metrics.cached_tokens_total.fetch_add(next.cached() as u64, Relaxed);
            self.running.push(next);
            if !job.is_empty() {
                self.waiting.push_back(job);
            }
        }
    }

    fn step(&mut self) {
        if let Some(embedding) = self.embeddings.pop_front() {
            self.embed(&embedding);
        }
        let before = self.running.len();
        self.running.retain(|sequence| !sequence.is_cancelled());
        self.metrics.sequences_cancelled_total.fetch_add((before - self.running.len()) as u64, Relaxed);
        if self.running.is_empty() {
            return;
        }
        let counts = self.plan();
        let mut parts = Vec::new();
        for (sequence, &count) in self.running.iter_mut().zip(&counts).filter(|(_, count)| **count > 0) {
            parts.push(sequence.part(count));
        }
        let hidden = self.served.network.hidden_ragged(&mut parts);
        drop(parts);
        self.metrics.steps_total.fetch_add(1, Relaxed);
        self.metrics.step_tokens_total.fetch_add(counts.iter().sum::<usize>() as u64, Relaxed);
        self.output(&hidden, &counts);
        self.finish();
    }

    /// How many tokens of each sequence the next step has.
    fn plan(&self) -> Vec<usize> {
        let frame = &self.served.network.model.frame;
        let somebody_writes = self.running.iter().any(|sequence| !sequence.reads_prompt());
        let mut budget = if somebody_writes { PIECE } else { PIECE_ALONE };
        let count = |sequence: &Sequence<'_>| {
            let pending = sequence.pending();
            if !sequence.reads_prompt() {
                return pending;
            }
            // Where a memory is carried on, what a piece sees depends on its length, which load must not change.
            let piece = if frame.has_memory() { pending.min(frame.window() as usize) } else { pending.min(budget) };
            budget = budget.saturating_sub(piece);
            piece
        };
        self.running.iter().map(count).collect()
    }

    /// Runs what is wanted of the hidden states [R, D] through the output layer, and hands it out.
    fn output(&mut self, hidden: &[f32], counts: &[usize]) {
        let network = &self.served.network;
        let (width, vocab) = (network.model.frame.d_model as usize, network.model.frame.vocab as usize);
        let mut wanted: Vec<(usize, usize)> = Vec::new(); // sequence, row of the hidden states
        let mut first = 0;
        for (s, (sequence, &count)) in self.running.iter().zip(counts).enumerate() {
            let rows: Range<usize> = sequence.wanted(count);
            wanted.extend(rows.map(|row| (s, first + row)));
            first += count;
        }
        for block in wanted.chunks(OUTPUT_ROWS) {
            let mut rows = Buf::any(block.len() * width);
            for (to, (_, row)) in rows.chunks_exact_mut(width).zip(block) {
                to.copy_from_slice(&hidden[row * width..][..width]);
            }
            let outputs = network.outputs(&rows);
            let of_block: Vec<(usize, &[f32])> =
                block.iter().zip(outputs.chunks_exact(vocab)).map(|((s, _), row)| (*s, row)).collect();
            let each = |(s, sequence): (usize, &mut Sequence<'a>)| {
                let own = of_block.iter().filter(|(of, _)| *of == s);
                own.for_each(|(_, row)| sequence.take(row, self.served));
            };
            self.running.par_iter_mut().enumerate().for_each(each);
        }
        self.metrics.generated_tokens_total.fetch_add(
            self.running.iter_mut().map(|sequence| u64::from(sequence.wrote(&self.metrics.first_token_seconds))).sum(),
            Relaxed,
        );
    }

    /// Keeps what may come again, and lets go of sequences that have ended.
    fn finish(&mut self) {
        let keeps = self.empty.is_some();
        for sequence in &mut self.running {
            if keeps && let Some((tokens, state)) = sequence.prompt_to_keep(|tokens| self.prefixes.known(tokens)) {
                self.prefixes.keep(tokens, state);
            }
        }
        for s in (0..self.running.len()).rev() {
            if self.running[s].has_ended() {
                let (tokens, state) = self.running.swap_remove(s).into_state();
                if keeps {
                    self.prefixes.keep(&tokens, state);
                }
            }
        }
    }

    /// The mean of the last hidden states of a text, of length 1, as sentence-transformers has it.
    fn embed(&self, Embedding { ids, index, events }: &Embedding) {
        if events.is_closed() {
            return;
        }
        let network = &self.served.network;
        let hidden = network.hidden(&Input::tokens(ids, 1), &mut network.init_memory(1));
        let mut mean = vec![0.0f32; network.model.frame.d_model as usize];
        for row in hidden.chunks_exact(mean.len()) {
            mean.iter_mut().zip(row).for_each(|(mean, x)| *mean += x);
        }
        let size = mean.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>().sqrt().max(1e-12);
        mean.iter_mut().for_each(|x| *x = (f64::from(*x) / size) as f32);
        self.metrics.embedded_tokens_total.fetch_add(ids.len() as u64, Relaxed);
        let _ = events.send((*index, Event::Embedded(mean)));
    }

    fn report(&self) {
        self.metrics.sequences_running.store(self.running.len() as u64, Relaxed);
        self.metrics.prefix_cache_bytes.store(self.prefixes.bytes() as u64, Relaxed);
        let bytes = self.running.iter().map(Sequence::state_bytes).sum::<usize>();
        self.metrics.state_bytes.store(bytes as u64, Relaxed);
    }
}

/// A state before any token.
fn fresh(served: &Served) -> State {
    let network = &served.network;
    network.init_cache(1, network.model.frame.window() as usize, &network.init_memory(1))
}
