//! Threads that stay awake between loops. A training step has hundreds of parallel loops, a decoded token as many of a
//! few microseconds each; a thread that sleeps in between takes longer to wake than such a loop lasts.
//!
//! The caller of a loop works too. It offers the loop to the helpers, which take it when they are there; pieces are
//! handed out one by one, and whoever has not come by the end is not waited for. While one loop runs, others run on
//! their caller's thread alone: loops inside loops, and those of other threads.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex};
use std::thread::{self, Thread};

/// How often a helper looks for work before it sleeps: some milliseconds.
const LOOKS: usize = 50_000;
/// How often the caller looks whether a helper is done before it lets others have its core.
const PATIENCE: usize = 2_000;

/// A loop, on the stack of its caller.
struct Loop<'a> {
    work: &'a (dyn Fn(usize) + Sync),
    pieces: usize,
    next: AtomicUsize,
    panicked: AtomicBool,
}

impl Loop<'_> {
    /// Takes pieces until none is left.
    fn work(&self) {
        loop {
            let piece = self.next.fetch_add(1, Relaxed);
            if piece >= self.pieces {
                return;
            }
            (self.work)(piece);
        }
    }
}

/// Where a helper finds its work: null, a loop that is offered, or [`taken`].
#[derive(Default)]
struct Mailbox {
    offer: AtomicPtr<Loop<'static>>,
    asleep: AtomicBool,
}

/// Stands in the mailbox of a helper at work.
fn taken() -> *mut Loop<'static> {
    NonNull::dangling().as_ptr()
}

struct Helper {
    mailbox: Arc<Mailbox>,
    thread: Thread,
}

/// All helpers there are; who holds the lock may offer work.
static HELPERS: Mutex<Vec<Helper>> = Mutex::new(Vec::new());

thread_local! {
    /// Whether this thread is a helper, which has no helpers itself.
    static HELPING: Cell<bool> = const { Cell::new(false) };
}

/// How many threads a loop may have: those of the pool that this runs in, and 1 inside a loop's helper.
pub(crate) fn threads() -> usize {
    if HELPING.get() { 1 } else { rayon::current_num_threads() }
}

/// Calls `work` once for every number below `pieces`, on all threads.
pub(crate) fn run(pieces: usize, work: impl Fn(usize) + Sync) {
    let threads = if pieces < 2 { 1 } else { threads().min(pieces) };
    let alone = || (0..pieces).for_each(&work);
    if threads == 1 {
        return alone();
    }
    let Ok(mut helpers) = HELPERS.try_lock() else { return alone() };
    while helpers.len() < threads - 1 {
        match enlist() {
            Some(helper) => helpers.push(helper),
            None => return alone(),
        }
    }
    let job = Loop { work: &work, pieces, next: AtomicUsize::new(0), panicked: AtomicBool::new(false) };
    let offer = ptr::from_ref(&job).cast_mut().cast::<Loop<'static>>();
    let helpers = &helpers[..threads - 1];
    for helper in helpers {
        helper.mailbox.offer.store(offer, SeqCst);
        if helper.mailbox.asleep.load(SeqCst) {
            helper.thread.unpark();
        }
    }
    let own = catch_unwind(AssertUnwindSafe(|| job.work()));
    // `job` must outlive its last reader: take back what nobody took, and wait for the others.
    for Helper { mailbox, .. } in helpers {
        if mailbox.offer.compare_exchange(offer, ptr::null_mut(), SeqCst, SeqCst).is_ok() {
            continue;
        }
        let mut looks = 0;
        while !mailbox.offer.load(Acquire).is_null() {
            looks += 1;
            if looks < PATIENCE { std::hint::spin_loop() } else { thread::yield_now() }
        }
    }
    if let Err(panic) = own {
        resume_unwind(panic);
    }
    assert!(!job.panicked.load(Relaxed), "a helper of a parallel loop panicked");
}

/// Starts a helper, if the system lets us.
fn enlist() -> Option<Helper> {
    let mailbox = Arc::new(Mailbox::default());
    let own = mailbox.clone();
    let thread = thread::Builder::new().name("lathe-helper".into()).spawn(move || help(&own)).ok()?;
    Some(Helper { mailbox, thread: thread.thread().clone() })
}

/// A helper's life.
fn help(mailbox: &Mailbox) {
    HELPING.set(true);
    let mut looks = 0;
    loop {
        let offer = mailbox.offer.load(Relaxed);
        if offer.is_null() {
            looks += 1;
            if looks < LOOKS {
                std::hint::spin_loop();
                continue;
            }
            mailbox.asleep.store(true, SeqCst);
            // Whoever offers work either sees that we sleep or is seen here.
            if mailbox.offer.load(SeqCst).is_null() {
                thread::park();
            }
            mailbox.asleep.store(false, SeqCst);
            looks = 0;
        } else if mailbox.offer.compare_exchange(offer, taken(), SeqCst, Relaxed).is_ok() {
            // SAFETY: the loop was on the mailbox, and its caller waits until the mailbox is empty before it lets go of it.
            let job = unsafe { &*offer };
            if catch_unwind(AssertUnwindSafe(|| job.work())).is_err() {
                job.panicked.store(true, Relaxed);
            }
            mailbox.offer.store(ptr::null_mut(), Release);
            looks = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_once_also_inside_loops() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(4).build().expect("threads");
        pool.install(|| {
            for pieces in [0, 1, 2, 3, 100] {
                let counts: Vec<AtomicUsize> = (0..pieces * 7).map(|_| AtomicUsize::new(0)).collect();
                run(pieces, |i| {
                    run(7, |j| {
                        counts[7 * i + j].fetch_add(1, Relaxed);
                    });
                });
                assert!(counts.iter().all(|count| count.load(Relaxed) == 1));
            }
        });
    }

    /// Whoever panics, the caller or a helper, the loop ends with a panic, and the next one works.
    #[test]
    fn panics_reach_the_caller() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(4).build().expect("threads");
        pool.install(|| {
            for bad in 0..8 {
                let result = catch_unwind(|| run(8, |i| assert!(i != bad, "no {i}")));
                assert!(result.is_err());
            }
            let sum = AtomicUsize::new(0);
            run(100, |i| {
                sum.fetch_add(i, Relaxed);
            });
            assert_eq!(sum.into_inner(), 4950);
        });
    }

    /// Loops of many threads at the same time, after the helpers had time to fall asleep.
    #[test]
    fn loops_of_several_threads() {
        let sum = AtomicUsize::new(0);
        for _ in 0..20 {
            (0..3 * LOOKS).for_each(|_| std::hint::spin_loop());
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        run(50, |i| {
                            sum.fetch_add(i, Relaxed);
                        })
                    });
                }
            });
        }
        assert_eq!(sum.into_inner(), 20 * 4 * 1225);
    }
}
