//! Counts the floating-point operations of matrix products, to hold formulas of cost against: 2 m n k for C [m, n] =
//! A [m, k] B [k, n], that is a multiplication and an addition for each term.
//!
//! Each product counts once, where it is called. Attention counts its products as if nothing were masked, 2 T S K for
//! each, head and sequence, and not what its blocks compute: scores, values, and positions where scores are relative.
//! Its backward counts twice as much, since each product has a gradient for either side.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

static COUNTING: AtomicBool = AtomicBool::new(false);
static TOTAL: AtomicU64 = AtomicU64::new(0);
/// Who holds it counts.
static COUNTER: Mutex<()> = Mutex::new(());

/// The operations of all products that run while `work` does, on any thread of the process: nothing else should compute
/// meanwhile. Calls wait for each other, and must not stand inside each other.
pub fn count(work: impl FnOnce()) -> u128 {
    /// Ends the counting also where `work` panics.
    struct Counting;
    impl Drop for Counting {
        fn drop(&mut self) {
            COUNTING.store(false, Relaxed);
        }
    }
    // Work that panicked left nothing behind that a new count would not set.
    let _alone = COUNTER.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    TOTAL.store(0, Relaxed);
    let counting = Counting;
    COUNTING.store(true, Relaxed);
    work();
    drop(counting);
    u128::from(TOTAL.load(Relaxed))
}

/// Counts `times` products of [m, k] and [k, n], if anybody counts.
#[inline]
pub fn add(times: usize, [m, n, k]: [usize; 3]) {
    if COUNTING.load(Relaxed) {
        TOTAL.fetch_add(2 * [times, m, n, k].map(|x| x as u64).iter().product::<u64>(), Relaxed);
    }
}
