//! Text from a model, one token at a time.
//!
//! As in transformers, in this order: the repetition penalty (Keskar et al., 2019), the temperature, the `top_k` most
//! likely tokens, and of these the fewest that together have the probability `top_p` (Holtzman et al., 2020).

use lathe_model::{Input, Network, State};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::cmp::Ordering;

/// How the next token is chosen.
#[derive(Debug, Clone, Copy)]
pub struct Sampling {
    /// What logits are divided by; 0 takes the most likely token.
    pub temperature: f64,
    /// Only so many tokens; 0 for all.
    pub top_k: usize,
    /// Only the most likely tokens of this probability together; 1 for all.
    pub top_p: f64,
    /// Tokens that were there before lose this factor; 1 for none.
    pub repetition_penalty: f64,
    /// Of the generator.
    pub seed: u64,
}

/// A text that goes on.
pub struct Generator<'a> {
    network: &'a Network,
    sampling: Sampling,
    rng: ChaCha8Rng,
    /// The whole text so far.
    tokens: Vec<u32>,
    /// How many of the tokens the state has seen.
    seen: usize,
    state: State,
    /// Tokens at which the state began.
    began: usize,
}

impl<'a> Generator<'a> {
    /// Begins with a prompt of at least one token.
    pub fn new(network: &'a Network, prompt: &[u32], sampling: Sampling) -> Self {
        assert!(!prompt.is_empty(), "a prompt of at least one token");
        let rng = ChaCha8Rng::seed_from_u64(sampling.seed);
        let state = Self::fresh(network);
        Self { network, sampling, rng, tokens: prompt.to_vec(), seen: 0, state, began: 0 }
    }

    /// Tokens computed in one pass.
    fn segment(network: &Network) -> usize {
        network.model.frame.window() as usize
    }

    fn fresh(network: &Network) -> State {
        network.init_cache(1, Self::segment(network), &network.init_memory(1))
    }

    /// The next token.
    pub fn next_token(&mut self) -> u32 {
        let frame = &self.network.model.frame;
        let segment = Self::segment(self.network);
        let source = frame.source_len().map(|len| len as usize);
        let mut reads = self.seen == 0;
        if !frame.has_memory() && self.tokens.len() - self.began > segment {
            // Positions end here: the text goes on with what half a window remembers.
            self.state = Self::fresh(self.network);
            self.began = self.tokens.len() - segment.div_ceil(2);
            self.seen = self.began;
            reads = true;
        }
        if let Some(source) = source.filter(|_| reads) {
            // The encoder reads the text so far, and the decoder begins with its last token.
            let end = self.tokens.len();
            (self.began, self.seen) = (end - 1, end);
            let input = Input::tokens(&self.tokens[end - 1..], 1).after(&self.tokens[end.saturating_sub(source)..]);
            let logits = self.network.last_logits(&input, &mut self.state);
            return self.choose(&logits);
        }
        // A prompt goes through the stack in as few passes as it can, and only its last token through the output layer.
        while self.tokens.len() - self.seen > segment {
            let part = &self.tokens[self.seen..self.seen + segment];
            self.network.hidden(&Input::tokens(part, 1), &mut self.state);
            self.seen += segment;
        }
        let logits = self.network.last_logits(&Input::tokens(&self.tokens[self.seen..], 1), &mut self.state);
        self.seen = self.tokens.len();
        self.choose(&logits)
    }

    fn choose(&mut self, logits: &[f32]) -> u32 {
        let next = self.sampling.choose(logits, &self.tokens, &mut self.rng);
        self.tokens.push(next);
        next
    }
}

impl Sampling {
    /// A token, given the logits and the text before.
    pub fn choose(&self, logits: &[f32], before: &[u32], rng: &mut ChaCha8Rng) -> u32 {
        if self.temperature == 0.0 && self.repetition_penalty == 1.0 {
            let first =
                logits.iter().copied().enumerate().reduce(|best, next| if next.1 > best.1 { next } else { best });
            return first.map_or(0, |(id, _)| id as u32);
        }
        let mut scores: Vec<(f64, u32)> = logits.iter().zip(0..).map(|(&logit, id)| (f64::from(logit), id)).collect();
        if self.repetition_penalty != 1.0 {
            let mut repeated = before.to_vec();
            repeated.sort_unstable();
            repeated.dedup();
            for id in repeated {
                let score = &mut scores[id as usize].0;
                *score *= if *score > 0.0 { self.repetition_penalty.recip() } else { self.repetition_penalty };
            }
        }
        if self.temperature == 0.0 {
            return scores.into_iter().min_by(order).map_or(0, |(_, id)| id);
        }
        if self.top_k > 0 && self.top_k < scores.len() {
            scores.select_nth_unstable_by(self.top_k - 1, order);
            scores.truncate(self.top_k);
        }
        let highest = scores.iter().fold(f64::NEG_INFINITY, |most, (score, _)| most.max(*score));
        let weight = |score: f64| ((score - highest) / self.temperature).exp();
        let mut total: f64 = scores.iter().map(|(score, _)| weight(*score)).sum();
        let mut scores = Descending { scores, sorted: 0 };
        let mut count = usize::MAX;
        if self.top_p < 1.0 {
            let (mut sum, mut i) = (0.0, 0);
            while let Some((score, _)) = scores.get(i)
                && sum < self.top_p * total
            {
                sum += weight(score);
                i += 1;
            }
            (total, count) = (sum, i);
        }
        let (mut draw, mut last) = (rng.random::<f64>() * total, 0);
        for i in 0..count {
            let Some((score, id)) = scores.get(i) else { break };
            last = id;
            draw -= weight(score);
            if draw < 0.0 {
                break;
            }
        }
        last
    }
}

/// Scores with their tokens, the highest first and of equals the lower id, sorted as far as somebody looks: of a large
/// vocabulary that is seldom far.
struct Descending {
    scores: Vec<(f64, u32)>,
    sorted: usize,
}

/// The most likely first; of equals, the lower id.
fn order(a: &(f64, u32), b: &(f64, u32)) -> Ordering {
    b.0.total_cmp(&a.0).then(a.1.cmp(&b.1))
}

impl Descending {
    fn get(&mut self, i: usize) -> Option<(f64, u32)> {
        while i >= self.sorted && self.sorted < self.scores.len() {
            let rest = &mut self.scores[self.sorted..];
            let more = rest.len().min(64.max(3 * self.sorted));
            if more < rest.len() {
                rest.select_nth_unstable_by(more - 1, order);
            }
            rest[..more].sort_unstable_by(order);
            self.sorted += more;
        }
        self.scores.get(i).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Sampling = Sampling { temperature: 1.0, top_k: 0, top_p: 1.0, repetition_penalty: 1.0, seed: 0 };

    /// How often each of the tokens is chosen.
    fn shares(sampling: Sampling, logits: &[f32], before: &[u32]) -> Vec<f64> {
        const DRAWS: usize = 20_000;
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut counts = vec![0.0; logits.len()];
        (0..DRAWS).for_each(|_| counts[sampling.choose(logits, before, &mut rng) as usize] += 1.0 / DRAWS as f64);
        counts
    }

    fn assert_near(found: &[f64], expected: &[f64]) {
        // Four deviations of a share.
        let near = found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 4.0 * 0.5 / 20_000f64.sqrt());
        assert!(near, "{found:?} is not {expected:?}");
    }

    #[test]
    fn tokens_come_as_often_as_they_should() {
        let logits: Vec<f32> = [0.1f32, 0.2, 0.3, 0.4].iter().map(|p| p.ln()).collect();
        assert_near(&shares(PLAIN, &logits, &[]), &[0.1, 0.2, 0.3, 0.4]);
        assert_near(&shares(Sampling { top_k: 2, ..PLAIN }, &logits, &[]), &[0.0, 0.0, 3.0 / 7.0, 4.0 / 7.0]);
        // 0.4 + 0.3 is not yet 0.75, so the third comes in.
        assert_near(&shares(Sampling { top_p: 0.75, ..PLAIN }, &logits, &[]), &[0.0, 2.0 / 9.0, 3.0 / 9.0, 4.0 / 9.0]);
        let hot = Sampling { temperature: 0.5, ..PLAIN }; // squares of the probabilities
        assert_near(&shares(hot, &logits, &[]), &[1.0 / 30.0, 4.0 / 30.0, 9.0 / 30.0, 16.0 / 30.0]);
        let penalty = Sampling { repetition_penalty: 2.0, ..PLAIN }; // log 0.4 counts twice: 0.16
        assert_near(&shares(penalty, &logits, &[3, 3]), &[0.1 / 0.76, 0.2 / 0.76, 0.3 / 0.76, 0.16 / 0.76]);
        assert_eq!(
            shares(Sampling { temperature: 0.0, ..PLAIN }, &[1.0, 3.0, 3.0], &[]),
            [0.0, 1.0, 0.0].map(|x| {
                // 20,000 times 1/20,000 is not quite 1.
                if x == 1.0 { (0..20_000).map(|_| 1.0 / 20_000.0).sum() } else { 0.0 }
            })
        );
    }
}
