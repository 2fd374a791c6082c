//! Allocators around another one. [`Counting`] counts how many bytes of large blocks are in use now, and how many were
//! at the most: the peak of a piece of work can so be read without a process of its own. [`Mapped`] takes large blocks
//! from the system and gives them back to it, so that what the process has is what is counted.

#[cfg(target_os = "linux")]
mod mapped;
#[cfg(target_os = "linux")]
pub use mapped::Mapped;

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Smaller blocks are not counted, so that work with many small ones pays nothing.
const SMALLEST: usize = 1024;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// An allocator around another one, to be made the global one of a program.
#[derive(Debug, Default)]
pub struct Counting<A>(pub A);

/// Bytes in use now; 0 where the program's allocator is not [`Counting`].
pub fn in_use() -> usize {
    IN_USE.load(Relaxed)
}

/// The most bytes that were in use since [`restart_peak`].
pub fn peak() -> usize {
    PEAK.load(Relaxed).max(in_use())
}

/// The peak begins anew, at what is in use now.
pub fn restart_peak() {
    PEAK.store(in_use(), Relaxed);
}

fn take(size: usize) {
    if size >= SMALLEST {
        let now = IN_USE.fetch_add(size, Relaxed) + size;
        PEAK.fetch_max(now, Relaxed);
    }
}

fn give(size: usize) {
    if size >= SMALLEST {
        IN_USE.fetch_sub(size, Relaxed);
    }
}

// SAFETY: every call goes to the inner allocator unchanged, which keeps its promises; counting touches only atomics.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counting<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are those of the inner allocator.
        let place = unsafe { self.0.alloc(layout) };
        if !place.is_null() {
            take(layout.size());
        }
        place
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        let place = unsafe { self.0.alloc_zeroed(layout) };
        if !place.is_null() {
            take(layout.size());
        }
        place
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        give(layout.size());
        // SAFETY: as above.
        unsafe { self.0.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        let new = unsafe { self.0.realloc(place, layout, size) };
        if !new.is_null() {
            give(layout.size());
            take(size);
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::alloc::System;

    /// The counters are shared by the process, so all is told in one test, with an allocator that nobody else uses.
    #[test]
    fn counts_large_blocks() {
        let allocator = Counting(System);
        let layout = Layout::from_size_align(1 << 20, 64).expect("a power of two");
        let small = Layout::from_size_align(16, 8).expect("a power of two");
        restart_peak();
        // SAFETY: layouts are not of size 0, and each block is given back once with the layout it has.
        unsafe {
            let a = allocator.alloc(layout);
            let b = allocator.alloc_zeroed(layout);
            let c = allocator.alloc(small);
            assert_eq!((in_use(), peak()), (2 << 20, 2 << 20));
            let a = allocator.realloc(a, layout, 3 << 20);
            allocator.dealloc(b, layout);
            assert_eq!(in_use(), 3 << 20);
            assert!(peak() >= 4 << 20);
            allocator.dealloc(a, Layout::from_size_align(3 << 20, 64).expect("a power of two"));
            allocator.dealloc(c, small);
        }
        assert_eq!(in_use(), 0);
        restart_peak();
        assert_eq!(peak(), 0);
    }
}
