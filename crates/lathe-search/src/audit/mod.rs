//! How well each proxy ranks models whose quality after training is known: those of a table ([`table`]), or a sample of a
//! space that is trained for the purpose ([`trained`]).

mod judge;
pub mod table;
pub mod trained;

pub use judge::{Bin, ProxyReport, SHARES, TableReport, Width};

use crate::proxies::{Candidate, Choice, Probe, Record, Scored};
use crate::{Error, Result};
use lathe_core::{Model, Setting};
use lathe_model::count;
use std::time::Instant;

/// A model whose quality is known.
#[derive(Debug, Clone)]
pub struct Subject {
    /// How it is called.
    pub name: String,
    /// The architecture.
    pub model: Model,
    /// Higher is better: minus the validation perplexity.
    pub quality: f64,
    /// As the table says, or counted.
    pub total_params: u64,
    /// Parameters of blocks and norms.
    pub decoder_params: u64,
    /// Of its training, where it was trained here.
    pub record: Option<Record>,
    /// A device and milliseconds on it, where a table says them.
    pub measured: Option<(String, f64)>,
}

/// What a proxy gave for all models of a table.
#[derive(Debug, Clone)]
pub struct Scores {
    /// Which proxy.
    pub name: String,
    /// A score per model, or why there is none.
    pub values: Result<Vec<f64>, String>,
    /// Seconds of one model, the mean.
    pub seconds: f64,
    /// FLOPs of one model, the mean.
    pub flops: u128,
}

/// Where tokens for a model come from.
pub enum Tokens {
    /// A text.
    Text(trained::Text),
    /// Nowhere: they are random, for tables that bring no text.
    Random {
        /// Sequences.
        batch: usize,
        /// Of tokens and weights.
        seed: u64,
    },
}

impl Tokens {
    /// A batch for a model.
    fn probe(&self, model: &Model) -> Result<Probe> {
        match self {
            Self::Text(text) => text.probe(model),
            Self::Random { batch, seed } => random_tokens(model, *batch, *seed),
        }
    }
}

impl Subject {
    /// A model with its quality; parameters are counted.
    pub fn new(name: String, model: Model, quality: f64) -> Self {
        let counts = count(&model, &Setting::of(&model));
        let (total_params, decoder_params) = (counts.total_params(), counts.decoder_params());
        Self { name, model, quality, total_params, decoder_params, record: None, measured: None }
    }
}

/// Scores all models by a proxy; `watch` is told how many are done. A proxy that means nothing for one of them has no scores.
pub fn score(choice: &Choice, subjects: &[Subject], tokens: &Tokens, watch: &mut dyn FnMut(usize)) -> Result<Scores> {
    let needs = choice.proxy.needs;
    let mut scores = Scores { name: choice.name(), values: Err("no models".into()), seconds: 0.0, flops: 0 };
    let mut values = Vec::new();
    for (done, subject) in subjects.iter().enumerate() {
        watch(done);
        let probe = (needs == crate::proxies::Needs::Data).then(|| tokens.probe(&subject.model)).transpose()?;
        let candidate = Candidate {
            model: &subject.model,
            total_params: Some(subject.total_params),
            probe: probe.as_ref(),
            weights: None,
            output: choice.output,
            record: subject.record.as_ref(),
            share: choice.share.unwrap_or(1.0),
        };
        let start = Instant::now();
        let scored = (choice.proxy.score)(&candidate)?;
        scores.seconds += match &subject.record {
            Some(record) if needs == crate::proxies::Needs::Training => record.seconds_until(candidate.share),
            _ => start.elapsed().as_secs_f64(),
        };
        match scored {
            Scored::Score { value, flops } if value.is_finite() => {
                values.push(value);
                scores.flops += flops;
            }
            Scored::Score { value, .. } => {
                return Ok(Scores { values: Err(format!("{}: a score of {value}", subject.name)), ..scores });
            }
            Scored::NotApplicable(why) => {
                return Ok(Scores { values: Err(format!("{}: {why}", subject.name)), ..scores });
            }
        }
    }
    if !subjects.is_empty() {
        scores.seconds /= subjects.len() as f64;
        scores.flops /= subjects.len() as u128;
        scores.values = Ok(values);
    }
    Ok(scores)
}

/// Random tokens.
pub fn random_tokens(model: &Model, batch: usize, seed: u64) -> Result<Probe> {
    use rand::{RngExt, SeedableRng};
    if batch == 0 {
        return Err(Error::setting("batch", 0, "at least 1"));
    }
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
    let (len, vocab) = (model.frame.tgt_len as usize, model.frame.vocab);
    let mut draw = || (0..batch * len).map(|_| rng.random_range(0..vocab)).collect();
    Ok(Probe { ids: draw(), targets: draw(), batch, seed })
}
