//! What a block costs, counted. Measured costs (latency, peak memory) come from the profiler.

use crate::Model;

/// The setting a cost refers to: one forward pass over `batch` sequences of `tgt_len` tokens, each
/// after a memory of `mem_len` tokens where the backbone has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// B: sequences.
    pub batch: u64,
    /// T: tokens of each.
    pub tgt_len: u64,
    /// M: tokens remembered before them.
    pub mem_len: u64,
}

impl Setting {
    /// One sequence of the model's own lengths.
    pub fn of(model: &Model) -> Self {
        Self { batch: 1, tgt_len: model.frame.tgt_len.into(), mem_len: model.frame.mem_len.into() }
    }

    /// B * T.
    pub fn tokens(&self) -> u128 {
        u128::from(self.batch) * u128::from(self.tgt_len)
    }
}

/// The counted cost of one block, or a sum of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// Parameters, without those of the norm.
    pub params: u64,
    /// Parameters of the norm.
    pub norm_params: u64,
    /// Floating-point operations of one forward pass; a multiply-add is 2.
    pub flops: u128,
    /// f32 bytes of the tensors that one forward pass writes when nothing is fused or recomputed.
    pub activation_bytes: u128,
    /// f32 bytes that decoding keeps from token to token, per sequence.
    pub state_bytes: u128,
}

impl std::ops::AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        self.params += other.params;
        self.norm_params += other.norm_params;
        self.flops += other.flops;
        self.activation_bytes += other.activation_bytes;
        self.state_bytes += other.state_bytes;
    }
}
