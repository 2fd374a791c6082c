//! Scores that foretell how good an architecture will be, without training it or after little of it.
//!
//! LTS (Javaheripi et al., 2022, section 3.1) compares what a model is made of (parameters) with scores that Abdelfattah
//! et al. (2021, "Zero-cost proxies for lightweight NAS") took from pruning, which need a pass forward and backward at
//! the first weights. In all of them, higher is better.
//!
//! The pruning scores add up over weight matrices. The embedding is a lookup and is left out; the output layer is left
//! out too, as in the LTS authors' code, or taken in with `:output`, which is how the paper's text describes them.

pub(crate) mod bottleneck_params;
mod d_model;
mod decoder_params;
mod fisher;
mod fisher_blocks;
mod flops;
mod grad_norm;
mod grasp;
mod jacob_cov;
mod matrix;
mod partial_training;
mod probe;
mod relu_log_det;
mod snip;
mod synflow;
mod synflow_norm_free;
mod total_params;

pub use partial_training::Record;
pub use probe::Probe;

use crate::{Error, Result};
use lathe_core::{Model, Setting};
use lathe_model::{Counts, count};
use std::path::Path;

/// What a proxy needs beside the architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Nothing: it is computed from the architecture.
    Nothing,
    /// A batch of tokens, to run the model at its first weights.
    Data,
    /// Some of a training run.
    Training,
}

/// A proxy.
pub struct Proxy {
    /// Its name, as on the command line.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// What it needs.
    pub needs: Needs,
    /// Whether `:output` makes a difference.
    pub output: bool,
    /// Scores a candidate.
    pub score: fn(&Candidate<'_>) -> Result<Scored>,
}

/// Every proxy, in the order of reports.
pub const PROXIES: &[&Proxy] = &[
    &decoder_params::PROXY,
    &total_params::PROXY,
    &flops::PROXY,
    &d_model::PROXY,
    &bottleneck_params::PROXY,
    &grad_norm::PROXY,
    &snip::PROXY,
    &grasp::PROXY,
    &fisher::PROXY,
    &fisher_blocks::PROXY,
    &synflow::PROXY,
    &synflow_norm_free::PROXY,
    &jacob_cov::PROXY,
    &relu_log_det::PROXY,
    &partial_training::PROXY,
];

/// An architecture to be scored, with all that a proxy may ask for.
#[derive(Clone, Copy)]
pub struct Candidate<'a> {
    /// The architecture.
    pub model: &'a Model,
    /// Its total parameters, where a table of trained models says them.
    pub total_params: Option<u64>,
    /// For those that need data.
    pub probe: Option<&'a Probe>,
    /// A model folder whose weights to run the model at; without it the first weights of the probe's seed.
    pub weights: Option<&'a Path>,
    /// Whether the output layer counts.
    pub output: bool,
    /// For those that need training.
    pub record: Option<&'a Record>,
    /// The share of the training to look at.
    pub share: f64,
}

/// What a proxy found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scored {
    /// A score, higher is better, and the FLOPs that it took beside reading the architecture.
    Score {
        /// The score.
        value: f64,
        /// What it took, counted as [`lathe_model::count`] counts; a backward pass is two forward passes.
        flops: u128,
    },
    /// No score, and why.
    NotApplicable(&'static str),
}

impl<'a> Candidate<'a> {
    /// An architecture with nothing else known.
    pub fn new(model: &'a Model) -> Self {
        Self { model, total_params: None, probe: None, weights: None, output: false, record: None, share: 1.0 }
    }

    fn counts(&self) -> Counts {
        count(self.model, &Setting::of(self.model))
    }

    /// The tokens to run the model on.
    fn probe(&self, proxy: &Proxy) -> Result<&'a Probe> {
        self.probe.ok_or_else(|| Error::setting(proxy.name, "no tokens", "a batch of tokens to run the model on"))
    }
}

impl Scored {
    /// A score that comes from the architecture alone.
    fn free(value: f64) -> Result<Self> {
        Ok(Self::Score { value, flops: 0 })
    }
}

/// A proxy as somebody asked for it: `snip`, `snip:output`, `partial_training:12.5` (percent of the steps).
#[derive(Clone)]
pub struct Choice {
    /// Which.
    pub proxy: &'static Proxy,
    /// Whether the output layer counts.
    pub output: bool,
    /// The share of the training to look at; `None` for every share there is.
    pub share: Option<f64>,
}

impl Choice {
    /// A proxy without anything after its name.
    pub fn plain(proxy: &'static Proxy) -> Self {
        Self { proxy, output: false, share: None }
    }

    /// Reads a name.
    pub fn parse(text: &str) -> Result<Self> {
        let (name, rest) = text.split_once(':').map_or((text, None), |(name, rest)| (name, Some(rest)));
        let names = || PROXIES.iter().map(|proxy| proxy.name).collect::<Vec<_>>().join(", ");
        let proxy = PROXIES.iter().find(|proxy| proxy.name == name);
        let proxy = proxy.ok_or_else(|| Error::setting("proxies", format!("`{name}`"), format!("all, {}", names())))?;
        let mut choice = Self::plain(proxy);
        match (proxy.needs, rest) {
            (_, None) => {}
            (Needs::Training, Some(percent)) => {
                let share = percent.parse::<f64>().ok().filter(|percent| (0.0..=100.0).contains(percent));
                let expected = "a percentage of the steps, 0 to 100";
                choice.share = Some(share.ok_or_else(|| Error::setting(text, percent, expected))? / 100.0);
            }
            (_, Some("output")) if proxy.output => choice.output = true,
            (_, Some(rest)) => {
                let expected = if proxy.output { "`output`" } else { "nothing after the name" };
                return Err(Error::setting(text, format!("`{rest}`"), expected));
            }
        }
        Ok(choice)
    }

    /// The name that parses back to it.
    pub fn name(&self) -> String {
        match (self.output, self.share) {
            (true, _) => format!("{}:output", self.proxy.name),
            (_, Some(share)) => format!("{}:{}", self.proxy.name, (share * 1e6).round() / 1e4),
            _ => self.proxy.name.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back() {
        for name in ["decoder_params", "snip:output", "partial_training:12.5", "partial_training", "bottleneck_params"]
        {
            assert_eq!(Choice::parse(name).unwrap().name(), name);
        }
        for (text, part) in [
            ("snap", "found `snap`; expected all, decoder_params"),
            ("flops:output", "expected nothing after the name"),
            ("snip:in", "expected `output`"),
            ("partial_training:101", "0 to 100"),
            ("partial_training:x", "0 to 100"),
        ] {
            let error = Choice::parse(text).err().unwrap().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn names_differ() {
        let mut names: Vec<_> = PROXIES.iter().map(|proxy| proxy.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), PROXIES.len());
    }
}
