//! A bias of scores by the distance between query and key: a learned number for each bucket of distances and each head, of one
//! table for all layers (Raffel et al., 2020, "T5"; Song et al., 2020, "MPNet").
//!
//! Half of the buckets are for keys that come later. Of each half, one half is for a distance each, and in the other they grow with
//! its logarithm up to a distance from which on all are in the last.

use crate::params::{Builder, Init, ParamId};
use lathe_core::Frame;
use lathe_ops::buffer::Buf;

/// Which table, and how distances stand in it.
#[derive(Debug, Clone, Copy)]
pub struct Buckets {
    /// The name of the table, [buckets, H], with the frame's heads.
    pub table: &'static str,
    /// How many there are.
    pub count: u32,
    /// From which distance on all are in the last.
    pub max_distance: u32,
}

impl Buckets {
    /// The table, which stands outside of the blocks.
    pub fn param(&self, frame: &Frame, builder: &mut Builder) -> ParamId {
        let shape = [self.count as usize, frame.heads as usize];
        builder.find(self.table).unwrap_or_else(|| builder.param(self.table, &shape, Init::Normal(0.0, 0.02)))
    }

    /// The bucket of a key that stands so many places after the query.
    fn of(&self, later: isize) -> usize {
        let half = self.count as usize / 2;
        let (side, distance) = (if later > 0 { half } else { 0 }, later.unsigned_abs());
        let exact = half / 2;
        if distance < exact {
            return side + distance;
        }
        // In f32, as the reference has it.
        let (span, whole) = ((f64::from(self.max_distance) / exact as f64).ln() as f32, (half - exact) as f32);
        let far = (distance as f32 / exact as f32).ln() / span * whole;
        side + (exact + far as usize).min(half - 1)
    }

    /// The buckets of the distances between `len` tokens: of a key T - 1 places before the query first.
    pub fn of_text(&self, len: usize) -> Vec<usize> {
        (1..2 * len).map(|i| self.of(i as isize - len as isize)).collect()
    }

    /// [H, 2 T - 1] of a table [buckets, heads]: the biases of the first heads, again and again where there are more.
    pub fn by_distance(&self, table: &[f32], heads: usize, len: usize) -> Buf {
        let (columns, buckets) = (table.len() / self.count as usize, self.of_text(len));
        let mut out = Buf::any(heads * buckets.len());
        for (h, row) in out.chunks_exact_mut(buckets.len()).enumerate() {
            let biases = buckets.iter().map(|bucket| table[bucket * columns + h % columns]);
            row.iter_mut().zip(biases).for_each(|(to, bias)| *to = bias);
        }
        out
    }

    /// Adds the gradient of the table from that of [`Self::by_distance`].
    pub fn backward(&self, dbiases: &[f32], heads: usize, len: usize, dtable: &mut [f32]) {
        let (columns, buckets) = (dtable.len() / self.count as usize, self.of_text(len));
        for (h, row) in dbiases.chunks_exact(buckets.len()).enumerate().take(heads) {
            for (bucket, d) in buckets.iter().zip(row) {
                dtable[bucket * columns + h % columns] += d;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first distance of each bucket as PyTorch computes it, for both sides.
    #[test]
    fn buckets_begin_where_the_reference_has_them() {
        let buckets = Buckets { table: "", count: 32, max_distance: 128 };
        let firsts = [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91];
        for later in 0..1000usize {
            let expected = firsts.iter().rposition(|&first| later >= first).unwrap();
            assert_eq!(buckets.of(-(later as isize)), expected, "{later} before");
            assert_eq!(buckets.of(later as isize), expected + if later > 0 { 16 } else { 0 }, "{later} after");
        }
    }
}
