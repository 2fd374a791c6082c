//! Tokens that a text never uses: the model and its tokenizer without them.

use super::Job;
use super::outcome::{Found, Share, Vocabulary};
use crate::event::steps;
use crate::input::write_text;
use crate::{Error, Event, Result, Watch};
use lathe_model::prune::vocabulary;
use lathe_model::{Input, Network};
use lathe_train::data::{Pruned, Tokenizer, renumber_ids};
use serde_json::{Map, Value};
use std::collections::{BTreeSet, HashMap};
use std::path::Path;

impl Job<'_> {
    pub(super) fn vocabulary(&self, watch: Watch<'_>) -> Result<Found> {
        let mut used = self.text.used(&self.tokenizer, &mut *watch)?;
        watch(Event::Done);
        let count = used.len();
        if let Some(share) = self.asked.expected {
            self.add_expected(share, &mut used, watch)?;
        }
        let before = self.network.model.frame.vocab;
        // Tokens that a task has beyond the tokenizer's are the model's last.
        let extra = self.task.map_or(0, |task| task.extra_tokens(self.tokenizer.specials()));
        let (smaller, tokenizer, new) = shrink_with(&self.network, &self.tokenizer, used, extra)?;
        self.save(&smaller, &tokenizer)?;
        carry_token_ids(&self.before, self.out, Some(&new))?;
        let after = smaller.model.frame.vocab;
        let reached = 1.0 - f64::from(after) / f64::from(before);
        let vocab = Vocabulary { before, after, used: count as u32 };
        let asked = 1.0 - count as f64 / f64::from(before);
        Ok(Found { vocab: Some(vocab), ..Found::new(&self.before, Share::new("tokens", asked, reached)) })
    }
}

/// A model and its tokenizer with some tokens and what their texts need alone, and the new id of each token that is left.
pub(crate) fn shrink(
    network: &Network,
    tokenizer: &Tokenizer,
    used: BTreeSet<u32>,
) -> Result<(Network, Tokenizer, HashMap<u32, u32>)> {
    shrink_with(network, tokenizer, used, 0)
}

/// The same, where the last tokens of the model are `extra` ones that its tokenizer does not have.
fn shrink_with(
    network: &Network,
    tokenizer: &Tokenizer,
    used: BTreeSet<u32>,
    extra: u32,
) -> Result<(Network, Tokenizer, HashMap<u32, u32>)> {
    let before = network.model.frame.vocab;
    let extra = extra.min(before.saturating_sub(tokenizer.vocab()));
    let Pruned { tokenizer, mut tokens } = tokenizer.keep(used)?;
    tokens.extend(before - extra..before);
    let smaller = vocabulary::keep(network, &tokens)?;
    Ok((smaller, tokenizer, tokens.into_iter().zip(0..).collect()))
}

impl Job<'_> {
    /// Adds the unused tokens that the model expects most, until all others have at most a share of its predictions for
    /// sequences of the text.
    fn add_expected(&self, share: f64, used: &mut BTreeSet<u32>, watch: Watch<'_>) -> Result<()> {
        let (network, known) = (&self.network, self.tokenizer.vocab());
        if !network.model.frame.backbone.causal() {
            let found = "a share for a model that does not predict the next token";
            return Err(Error::setting("expected", found, "no share"));
        }
        let samples = self.samples(&mut *watch)?;
        let vocab = network.model.frame.vocab as usize;
        let (mut masses, mut rows) = (vec![0.0f64; vocab], 0u32);
        for (done, batch) in samples.iter().enumerate() {
            let hidden = network.hidden(&Input::tokens(&batch.ids, 1), &mut network.init_memory(1));
            for logits in network.outputs(&hidden).chunks_exact(vocab) {
                let most = logits.iter().copied().fold(f32::MIN, f32::max);
                let sum: f64 = logits.iter().map(|logit| f64::from((logit - most).exp())).sum();
                let each = masses.iter_mut().zip(logits);
                each.for_each(|(mass, logit)| *mass += f64::from((logit - most).exp()) / sum);
                rows += 1;
            }
            watch(steps("asking the model", done + 1, samples.len()));
        }
        watch(Event::Done);
        let mut unused: Vec<u32> = (0..known).filter(|token| !used.contains(token)).collect();
        unused.sort_by(|&a, &b| masses[a as usize].total_cmp(&masses[b as usize]).then(a.cmp(&b)));
        let mut gone = 0.0;
        let stay = unused.iter().position(|&token| {
            gone += masses[token as usize] / f64::from(rows);
            gone > share
        });
        used.extend(&unused[stay.unwrap_or(unused.len())..]);
        Ok(())
    }
}

/// Names special tokens in a saved `config.json` as that of another folder does, by their new ids where they have any.
pub(crate) fn carry_token_ids(from: &Path, to: &Path, new: Option<&HashMap<u32, u32>>) -> Result<()> {
    let (from, to) = (from.join("config.json"), to.join("config.json"));
    if !from.exists() {
        return Ok(());
    }
    let read = |path: &Path| -> Result<Map<String, Value>> {
        let text = std::fs::read(path).map_err(Error::io(path))?;
        serde_json::from_slice(&text).map_err(|error| Error::data(path.display(), error, "a JSON object"))
    };
    let mut ids: Map<String, Value> = read(&from)?.into_iter().filter(|(key, _)| key.ends_with("_token_id")).collect();
    if ids.is_empty() {
        return Ok(());
    }
    if let Some(new) = new {
        renumber_ids(&mut ids, new);
    }
    let mut config = read(&to)?;
    config.extend(ids);
    let text = serde_json::to_string_pretty(&config).expect("names and numbers can be written");
    write_text(&to, &(text + "\n"))
}
