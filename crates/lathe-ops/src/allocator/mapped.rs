//! Large blocks are mapped by the system, each by itself.

use std::alloc::{GlobalAlloc, Layout};

/// An allocator around another one that maps large blocks each by itself, in huge pages.
///
/// Weights are packed one layer after the other, each packed copy a little larger than the original that is then freed:
/// an allocator that keeps the gaps for later ends with 5 to 13 % more (one GPT-2 in inference and decoding), and how much
/// more depends on the order of sizes. Activations come from [`crate::buffer`], which keeps them, so large blocks are rare
/// while a model computes. Without huge pages decoding was 2 to 9 % slower.
#[derive(Debug, Default)]
pub struct Mapped<A>(pub A);

/// A huge page, and the smallest block that is mapped by itself.
const HUGE: usize = 1 << 21;
/// The smallest and the largest page of any system.
const PAGES: [usize; 2] = [1 << 12, 1 << 16];

fn mapped(layout: Layout) -> bool {
    layout.size() >= HUGE && layout.align() <= PAGES[0]
}

/// A size in whole pages. The last ones may never be touched, and then are only a number.
fn whole(size: usize) -> usize {
    size.next_multiple_of(PAGES[1])
}

/// Zeros from the system, at the begin of a huge page; null where it has none left.
fn map(size: usize) -> *mut u8 {
    let size = whole(size);
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping of memory alone, at a place of the system's choice, touches nothing that exists.
    let place = unsafe { libc::mmap(std::ptr::null_mut(), size + HUGE, access, kind, -1, 0) };
    if place == libc::MAP_FAILED {
        return std::ptr::null_mut();
    }
    let before = place.addr().next_multiple_of(HUGE) - place.addr();
    let after = HUGE - before;
    // SAFETY: `before`, the block and `after` are the mapping, whole pages each; what is unmapped was never used. Where the
    // advice is not taken, pages are small.
    unsafe {
        let block = place.byte_add(before);
        if before > 0 {
            libc::munmap(place, before);
        }
        libc::munmap(block.byte_add(size), after);
        libc::madvise(block, size, libc::MADV_HUGEPAGE);
        block.cast()
    }
}

// SAFETY: whether a block is mapped follows from its layout alone, so it is given back to where it came from. Mapped ones
// are zeros, whole pages, and nobody else's; all others are the inner allocator's.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Mapped<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if mapped(layout) {
            return map(layout.size());
        }
        // SAFETY: the caller's promises are those of the inner allocator.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if mapped(layout) {
            return map(layout.size());
        }
        // SAFETY: as above.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        if mapped(layout) {
            // SAFETY: the block was mapped with this size, and the caller no longer uses it.
            unsafe { libc::munmap(place.cast(), whole(layout.size())) };
            return;
        }
        // SAFETY: as above.
        unsafe { self.0.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises that `size`, rounded up to the alignment, is no more than an isize holds.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        match (mapped(layout), mapped(new)) {
            // SAFETY: as above.
            (false, false) => unsafe { self.0.realloc(place, layout, size) },
            (true, true) => {
                let (old, new) = (whole(layout.size()), whole(size));
                // SAFETY: the block was mapped with the old size; pages move, bytes need not.
                let moved = unsafe { libc::mremap(place.cast(), old, new, libc::MREMAP_MAYMOVE) };
                if moved == libc::MAP_FAILED { std::ptr::null_mut() } else { moved.cast() }
            }
            // SAFETY: two blocks of their own, and no more bytes than the smaller has.
            _ => unsafe {
                let moved = self.alloc(new);
                if !moved.is_null() {
                    std::ptr::copy_nonoverlapping(place, moved, size.min(layout.size()));
                    self.dealloc(place, layout);
                }
                moved
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::alloc::System;

    #[test]
    fn mapped_blocks_keep_their_bytes_across_sizes() {
        let allocator = Mapped(System);
        let layout = |size| Layout::from_size_align(size, 64).expect("a power of two");
        let sizes = [1000, HUGE - 1, HUGE, 5 * HUGE + 7, 40 * HUGE, 3 * HUGE, HUGE, 999];
        // SAFETY: each block is given back once with the layout it has, and only its own bytes are touched.
        unsafe {
            let mut size = sizes[0];
            let mut place = allocator.alloc(layout(size));
            place.write_bytes(7, size);
            for next in sizes {
                place = allocator.realloc(place, layout(size), next);
                let kept = std::slice::from_raw_parts(place, next.min(size));
                assert!(kept.iter().all(|&byte| byte == 7), "from {size} to {next}");
                size = next;
                place.write_bytes(7, size);
            }
            allocator.dealloc(place, layout(size));
            let zeros = allocator.alloc_zeroed(layout(3 * HUGE));
            assert!(std::slice::from_raw_parts(zeros, 3 * HUGE).iter().all(|&byte| byte == 0));
            assert_eq!(zeros.align_offset(64), 0);
            allocator.dealloc(zeros, layout(3 * HUGE));
            let aligned = Layout::from_size_align(HUGE, 1 << 16).expect("a power of two");
            let place = allocator.alloc(aligned);
            assert_eq!(place.align_offset(1 << 16), 0);
            allocator.dealloc(place, aligned);
        }
    }
}
