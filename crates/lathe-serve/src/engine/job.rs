//! What an engine is asked for, and what it answers.

use crate::served::Prompt;
use lathe_train::generate::Sampling;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::mpsc::UnboundedSender;

/// A request. Who drops the other end of `events` is not computed for any more.
pub struct Job {
    /// What to do.
    pub work: Work,
    /// Where answers go, each with the number of its text.
    pub events: UnboundedSender<(usize, Event)>,
    /// When the request came.
    pub arrived: Instant,
}

/// What to do.
pub enum Work {
    /// Continue texts.
    Write(Vec<Order>),
    /// Embed texts of at least one token each.
    Embed(Vec<Vec<u32>>),
}

/// A text to continue.
#[derive(Debug, Clone)]
pub struct Order {
    /// What to continue: at least one token, all of the vocabulary.
    pub prompt: Arc<Prompt>,
    /// The most tokens to write, so that they fit the model's window.
    pub max_tokens: usize,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// What is done to their logits before.
    pub adjust: Adjust,
    /// Texts that end the answer; they are no part of it.
    pub stop: Vec<String>,
    /// Whether to go on after the token that ends a text.
    pub ignore_end: bool,
    /// Log-probabilities of the tokens, and of so many of the most likely ones.
    pub logprobs: Option<usize>,
    /// Whether the tokens of the prompt get theirs too.
    pub score_prompt: bool,
}

/// What is done to logits before a token is chosen.
#[derive(Debug, Clone, Default)]
pub struct Adjust {
    /// Taken off tokens that were written before.
    pub presence: f32,
    /// The same for each time.
    pub frequency: f32,
    /// Added to single tokens.
    pub bias: Vec<(u32, f32)>,
}

impl Adjust {
    /// Whether nothing is done.
    pub fn is_nothing(&self) -> bool {
        self.presence == 0.0 && self.frequency == 0.0 && self.bias.is_empty()
    }
}

/// A token and how likely it was.
#[derive(Debug, Clone, PartialEq)]
pub struct Scored {
    /// The token.
    pub id: u32,
    /// In nats; none for the first token of all.
    pub logprob: Option<f32>,
    /// The most likely ones, the likeliest first.
    pub top: Vec<(u32, f32)>,
}

/// Why a text ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// The model ended it, or a stop text came.
    Stop,
    /// It has as many tokens as it may have.
    Length,
}

/// What comes of a text.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The tokens of the prompt, where they were to be scored.
    Prompt(Vec<Scored>),
    /// A token, and the text that is whole by now.
    Token {
        /// May be empty.
        text: String,
        /// Where log-probabilities were asked for.
        scored: Option<Scored>,
    },
    /// The end.
    End {
        /// Why.
        finish: Finish,
        /// Tokens of the prompt that were known from before.
        cached: usize,
        /// Tokens that were written.
        written: usize,
    },
    /// The vector of a text.
    Embedded(Vec<f32>),
    /// The engine failed.
    Failed(&'static str),
}

/// A text to embed.
pub(super) struct Embedding {
    pub ids: Vec<u32>,
    pub index: usize,
    pub events: UnboundedSender<(usize, Event)>,
}
