//! Calls into the tokenizers library that return an error where the library panics.
//!
//! The library checks little of what a `tokenizer.json` says: a decoder without its fields, a prefix that ends inside a
//! character and a split of length zero all panic, some when the file is loaded and some when a text is encoded. What
//! it would refuse cannot be told beforehand, so the panic is caught, and its message is not printed.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// Guarded calls that this thread is in.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Leaves the guarded call, also where it panics.
struct Inside;

impl Inside {
    fn new() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        Self
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// Calls the library; its error, or the message of its panic, is returned as text.
///
/// After a panic, what the call worked on may be half done: callers drop it or have only read from it.
pub(crate) fn guarded<T>(work: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, String> {
    quiet_inside();
    let inside = Inside::new();
    let result = catch_unwind(AssertUnwindSafe(work));
    drop(inside);
    match result {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(payload) => Err(format!("what the tokenizers library fails on: {}", message(&*payload))),
    }
}

/// Panics inside a guarded call print nothing; all others go where they went before.
fn quiet_inside() {
    static HOOK: Once = Once::new();
    // A thread that panics cannot change the hook; it prints one message more.
    if std::thread::panicking() {
        return;
    }
    HOOK.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |info| {
            if DEPTH.get() == 0 {
                before(info);
            }
        }));
    });
}

fn message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_errors_and_panics_come_back() {
        assert_eq!(guarded(|| Ok(1)), Ok(1));
        assert_eq!(guarded::<()>(|| Err("refused".into())), Err("refused".into()));
        let number = 7;
        for _ in 0..3 {
            let error = guarded::<()>(|| panic!("number {number}")).expect_err("caught");
            assert_eq!(error, "what the tokenizers library fails on: number 7");
        }
        let error = guarded(|| Ok(guarded::<()>(|| panic!("within")).is_err()));
        assert_eq!((error, DEPTH.get()), (Ok(true), 0));
    }
}
