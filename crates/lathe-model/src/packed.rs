//! Weights packed once for all products of a training step, or of many passes: until the parameters change.

use lathe_ops::Precision;
use lathe_ops::gemm::{Mat, Packed};
use std::borrow::Cow;
use std::sync::{Arc, Mutex};

/// Matrices packed for one version of the parameters.
#[derive(Default)]
pub(crate) struct PackedOnce {
    slot: Mutex<Option<(u64, Arc<Vec<Packed>>)>>,
}

impl PackedOnce {
    /// The matrices of a version of the parameters, packed the first time that they are asked for: those that
    /// `matrices` makes of what `read` returns.
    pub fn get<'a>(
        &self,
        version: u64,
        precision: Precision,
        read: impl FnOnce() -> Cow<'a, [f32]>,
        matrices: impl for<'v> FnOnce(&'v [f32]) -> Vec<Mat<'v>>,
    ) -> Arc<Vec<Packed>> {
        let mut slot = self.slot.lock().expect("nothing panics while it holds the slot");
        match &*slot {
            Some((packed, matrices)) if *packed == version => return matrices.clone(),
            _ => {}
        }
        let old = slot.take().and_then(|(_, old)| Arc::try_unwrap(old).ok()).unwrap_or_default();
        // Packing runs on all threads, and one that waits may turn to work that comes here too: not under the lock.
        drop(slot);
        let mut old = old.into_iter();
        let pack = |matrix: Mat<'_>| match old.next() {
            Some(mut packed) if packed.precision() == precision => {
                packed.refill(matrix);
                packed
            }
            _ => Packed::with_precision(matrix, precision),
        };
        let packed = Arc::new(matrices(&read()).into_iter().map(pack).collect::<Vec<_>>());
        *self.slot.lock().expect("nothing panics while it holds the slot") = Some((version, packed.clone()));
        packed
    }
}
