//! Padded batches without their padding: the real tokens of all sequences, one after the other, as one matrix [R, D], so that
//! no matrix, norm or activation computes what nobody reads.
//!
//! The stem gathers the real tokens, and what leaves the last slot goes back to its places. In between, what works per token
//! sees R sequences of one token, and what mixes tokens is told the sequences' lengths ([`crate::layer::Pass::unpadded`]). A pass
//! is unpadded where its stem and every block of its stack say that they know of this
//! ([`crate::layer::Layer::takes_unpadded`]); else padding is computed, too. At the places of padding hidden states are 0 either
//! way, and have no gradient.

use lathe_ops::buffer::Buf;

/// Which rows of a batch are real tokens.
#[derive(Debug, Clone)]
pub struct Unpadded {
    /// Tokens of each sequence.
    lengths: Vec<usize>,
    /// The rows `[R]` of real tokens among all.
    places: Vec<usize>,
    /// B * T
    all: usize,
}

impl Unpadded {
    /// Of a mask [B, T]; `None` where nothing is padding or nothing else, or where padding stands between tokens, whose
    /// distances would be others without it.
    pub fn of(mask: &[bool], batch: usize) -> Option<Self> {
        let len = mask.len() / batch.max(1);
        let places: Vec<usize> = (0..mask.len()).filter(|&row| mask[row]).collect();
        if places.is_empty() || places.len() == mask.len() {
            return None;
        }
        let lengths: Vec<usize> = mask.chunks_exact(len).map(|row| row.iter().filter(|&&real| real).count()).collect();
        let runs = mask.chunks_exact(len).all(|row| row.chunk_by(|a, b| a == b).filter(|run| run[0]).count() < 2);
        runs.then_some(Self { lengths, places, all: mask.len() })
    }

    /// Tokens of each sequence.
    pub fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// Tokens of the longest sequence.
    pub fn longest(&self) -> usize {
        self.lengths.iter().copied().max().unwrap_or(0)
    }

    /// The rows `[R]` of real tokens among all.
    pub fn places(&self) -> &[usize] {
        &self.places
    }

    /// R
    pub fn rows(&self) -> usize {
        self.places.len()
    }

    /// For each real token how many stand before it in its sequence.
    pub fn positions(&self) -> Vec<usize> {
        self.lengths.iter().flat_map(|&len| 0..len).collect()
    }

    /// What stands at real tokens, `[R]`, of [B, T].
    pub fn pick<T: Copy>(&self, x: &[T]) -> Vec<T> {
        self.places.iter().map(|&place| x[place]).collect()
    }

    /// The rows [R, D] of real tokens of [B * T, D].
    pub fn take(&self, x: &[f32]) -> Buf {
        let width = x.len() / self.all;
        let mut out = Buf::any(self.rows() * width);
        for (to, &place) in out.chunks_exact_mut(width.max(1)).zip(&self.places) {
            to.copy_from_slice(&x[place * width..][..width]);
        }
        out
    }

    /// The way back of [`Self::take`], with zeros for padding.
    pub fn put(&self, x: &[f32]) -> Buf {
        let width = x.len() / self.rows();
        let mut out = Buf::zeros(self.all * width);
        for (from, &place) in x.chunks_exact(width.max(1)).zip(&self.places) {
            out[place * width..][..width].copy_from_slice(from);
        }
        out
    }
}

/// Zeros at the padding of rows that were computed with it.
pub(crate) fn clear(mask: &[bool], x: &mut [f32]) {
    let width = x.len() / mask.len().max(1);
    let rows = x.chunks_exact_mut(width.max(1)).zip(mask);
    rows.filter(|(_, real)| !**real).for_each(|(row, _)| row.fill(0.0));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_go_and_come_back() {
        let mask = [true, true, false, false, true, false, false, false, false];
        let unpadded = Unpadded::of(&mask, 3).unwrap();
        assert_eq!((unpadded.lengths(), unpadded.places()), (&[2, 1, 0][..], &[0, 1, 4][..]));
        assert_eq!((unpadded.longest(), unpadded.positions()), (2, vec![0, 1, 0]));
        let x: Vec<f32> = (1..=18).map(|i| i as f32).collect();
        let taken = unpadded.take(&x);
        assert_eq!(*taken, [1.0, 2.0, 3.0, 4.0, 9.0, 10.0]);
        let mut cleared = x.clone();
        clear(&mask, &mut cleared);
        assert_eq!(*unpadded.put(&taken), cleared);
    }

    #[test]
    fn padding_that_stays() {
        assert!(Unpadded::of(&[true; 4], 2).is_none(), "there is none");
        assert!(Unpadded::of(&[false; 4], 2).is_none(), "there is nothing else");
        assert!(Unpadded::of(&[true, false, true, true], 1).is_none(), "it stands between tokens");
    }
}
