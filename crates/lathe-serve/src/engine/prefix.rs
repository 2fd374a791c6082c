//! What is kept of texts that may come again: states after their tokens. A request that begins with the same tokens goes
//! on from a copy of as much of such a state as fits.

use lathe_model::State;

/// Fewer tokens are computed as soon as they are looked up.
pub(super) const WORTH: usize = 16;

/// States of tokens, at most so many bytes; those that were used longest ago go first.
pub(super) struct Prefixes {
    entries: Vec<Entry>,
    limit: usize,
    clock: u64,
}

struct Entry {
    /// What the state has seen.
    tokens: Vec<u32>,
    state: State,
    used: u64,
}

/// How many tokens two texts have in common at their beginning.
pub(super) fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl Prefixes {
    pub fn new(limit: usize) -> Self {
        Self { entries: Vec::new(), limit, clock: 0 }
    }

    /// How many tokens at the beginning of a text are known.
    pub fn known(&self, tokens: &[u32]) -> usize {
        self.entries.iter().map(|entry| common(&entry.tokens, tokens)).max().unwrap_or(0)
    }

    /// A state of as many tokens of a prompt as are known, all but its last at most, for that has yet to be looked at.
    pub fn find(&mut self, prompt: &[u32]) -> Option<State> {
        let most = prompt.len().saturating_sub(1);
        let len = |entry: &Entry| common(&entry.tokens, &prompt[..most]);
        let best = self.entries.iter_mut().max_by_key(|entry| len(entry))?;
        let len = len(best);
        if len < WORTH {
            return None;
        }
        self.clock += 1;
        best.used = self.clock;
        best.state.prefix(len)
    }

    /// Keeps a state of tokens, in place of those that it goes on from.
    pub fn keep(&mut self, tokens: &[u32], state: State) {
        if tokens.len() < WORTH || state.bytes() > self.limit || self.known(tokens) == tokens.len() {
            return;
        }
        self.clock += 1;
        self.entries.retain(|entry| !tokens.starts_with(&entry.tokens));
        self.entries.push(Entry { tokens: tokens.to_vec(), state, used: self.clock });
        while self.bytes() > self.limit {
            let oldest = self.entries.iter().enumerate().min_by_key(|(_, entry)| entry.used).map(|(at, _)| at);
            self.entries.swap_remove(oldest.expect("what is more than nothing has an entry"));
        }
    }

    /// Bytes of all states.
    pub fn bytes(&self) -> usize {
        self.entries.iter().map(|entry| entry.state.bytes() + size_of_val(&*entry.tokens)).sum()
    }
}
