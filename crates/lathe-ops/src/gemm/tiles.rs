//! AMX: the tile registers, of 16 rows of 64 bytes, and products of them.
//!
//! tmm0 to tmm3 sum, tmm4 and tmm5 hold A (16 rows of 32 numbers), tmm6 and tmm7 B (16 pairs of rows by 16 columns).

use super::pairs::TILE;
use std::arch::asm;
use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
use std::marker::PhantomData;

/// Palette 1: eight tiles of 16 rows of 64 bytes.
#[repr(C, align(64))]
struct Config {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

static CONFIG: Config = Config {
    palette: 1,
    start_row: 0,
    reserved: [0; 14],
    row_bytes: [64, 64, 64, 64, 64, 64, 64, 64, 0, 0, 0, 0, 0, 0, 0, 0],
    rows: [16, 16, 16, 16, 16, 16, 16, 16, 0, 0, 0, 0, 0, 0, 0, 0],
};

/// The tile registers of this thread, set up; dropping it releases them.
pub(crate) struct Tiles {
    /// Registers belong to a thread.
    thread: PhantomData<*const ()>,
}

impl Tiles {
    /// Sets the tiles of this thread up.
    ///
    /// # Safety
    /// The CPU must have AMX, and the kernel must permit it.
    pub unsafe fn new() -> Self {
        // SAFETY: the configuration is 64 bytes long and valid for every palette 1.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &CONFIG, options(nostack, readonly, preserves_flags)) };
        Self { thread: PhantomData }
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: there is AMX, since there is a `Tiles`.
        unsafe { asm!("tilerelease", options(nostack, nomem, preserves_flags)) };
    }
}

/// Sets the sums to what C holds where `accumulate`, or to 0.
///
/// # Safety
/// As for [`product`].
#[inline]
unsafe fn begin(row_tiles: usize, c: *mut f32, stride: usize, accumulate: bool) {
    // C is wanted at the end, when waiting for it would stop everything.
    for row in 0..16 * row_tiles {
        for half in 0..2 {
            let line = c.wrapping_add(row * stride + 16 * half);
            // SAFETY: a hint, which may point anywhere.
            unsafe { _mm_prefetch::<_MM_HINT_ET0>(line.cast()) };
        }
    }
    let below = c.wrapping_add(16 * stride);
    let stride = 4 * stride;
    // SAFETY: the caller vouches for the memory; no other code touches the tiles in between, and the compiler has
    // none of its own.
    unsafe {
        match (accumulate, row_tiles) {
            (false, _) => asm!(
                "tilezero tmm0",
                "tilezero tmm1",
                "tilezero tmm2",
                "tilezero tmm3",
                options(nostack, nomem, preserves_flags)
            ),
            (true, 1) => asm!(
                "tileloadd tmm0, [{c} + {stride}]",
                "tileloadd tmm1, [{c} + {stride} + 64]",
                c = in(reg) c, stride = in(reg) stride,
                options(nostack, readonly, preserves_flags)
            ),
            (true, _) => asm!(
                "tileloadd tmm0, [{c} + {stride}]",
                "tileloadd tmm1, [{c} + {stride} + 64]",
                "tileloadd tmm2, [{below} + {stride}]",
                "tileloadd tmm3, [{below} + {stride} + 64]",
                c = in(reg) c, below = in(reg) below, stride = in(reg) stride,
                options(nostack, readonly, preserves_flags)
            ),
        }
    }
}

/// C (16 `row_tiles` by 32) = or += A B over `steps` of 32: `a` has `row_tiles` (1 or 2) tiles for each step, `b` two.
///
/// # Safety
/// This thread must have [`Tiles`]; A, B and C, whose rows begin `stride` floats apart, must hold that much.
#[inline]
pub(super) unsafe fn product(
    row_tiles: usize,
    steps: usize,
    a: *const u32,
    b: *const u32,
    c: *mut f32,
    stride: usize,
    accumulate: bool,
) {
    // SAFETY: the caller's.
    unsafe { begin(row_tiles, c, stride, accumulate) };
    let below = c.wrapping_add(16 * stride);
    let stride = 4 * stride;
    // SAFETY: the caller vouches for the memory; no other code touches the tiles in between, and the compiler has
    // none of its own.
    unsafe {
        if row_tiles == 1 {
            asm!(
                "2:",
                "tileloadd tmm4, [{a} + {line}]",
                "tileloadd tmm6, [{b} + {line}]",
                "tileloadd tmm7, [{b} + {line} + 1024]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "add {a}, 1024",
                "add {b}, 2048",
                "dec {steps}",
                "jnz 2b",
                "tilestored [{c} + {stride}], tmm0",
                "tilestored [{c} + {stride} + 64], tmm1",
                a = inout(reg) a => _, b = inout(reg) b => _, steps = inout(reg) steps => _,
                line = in(reg) 64usize, c = in(reg) c, stride = in(reg) stride,
                options(nostack)
            );
        } else {
            asm!(
                "2:",
                "tileloadd tmm6, [{b} + {line}]",
                "tileloadd tmm4, [{a} + {line}]",
                "tileloadd tmm7, [{b} + {line} + 1024]",
                "tileloadd tmm5, [{a} + {line} + 1024]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "add {a}, 2048",
                "add {b}, 2048",
                "dec {steps}",
                "jnz 2b",
                "tilestored [{c} + {stride}], tmm0",
                "tilestored [{c} + {stride} + 64], tmm1",
                "tilestored [{below} + {stride}], tmm2",
                "tilestored [{below} + {stride} + 64], tmm3",
                a = inout(reg) a => _, b = inout(reg) b => _, steps = inout(reg) steps => _,
                line = in(reg) 64usize, c = in(reg) c, below = in(reg) below, stride = in(reg) stride,
                options(nostack)
            );
        }
    }
}

/// As [`product`], of numbers in three parts: `a` has three times `row_tiles` tiles for each step, `b` six. The products of
/// the first part with all three, of the second with two, and of the third with the first are summed: what is left
/// out is less than the last bit of an f32 product.
///
/// # Safety
/// As there.
#[inline]
pub(super) unsafe fn product_of_parts(
    row_tiles: usize,
    steps: usize,
    a: *const u32,
    b: *const u32,
    c: *mut f32,
    stride: usize,
    accumulate: bool,
) {
    // SAFETY: the caller's.
    unsafe { begin(row_tiles, c, stride, accumulate) };
    let below = c.wrapping_add(16 * stride);
    let stride = 4 * stride;
    // SAFETY: the caller vouches for the memory; no other code touches the tiles in between, and the compiler has
    // none of its own.
    unsafe {
        if row_tiles == 1 {
            asm!(
                "2:",
                "tileloadd tmm4, [{a} + {line}]",
                "tileloadd tmm6, [{b} + {line} + 4096]",
                "tileloadd tmm7, [{b} + {line} + 5120]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tileloadd tmm6, [{b} + {line} + 2048]",
                "tileloadd tmm7, [{b} + {line} + 3072]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tileloadd tmm5, [{a} + {line} + 1024]",
                "tdpbf16ps tmm0, tmm5, tmm6",
                "tdpbf16ps tmm1, tmm5, tmm7",
                "tileloadd tmm6, [{b} + {line}]",
                "tileloadd tmm7, [{b} + {line} + 1024]",
                "tdpbf16ps tmm0, tmm5, tmm6",
                "tdpbf16ps tmm1, tmm5, tmm7",
                "tileloadd tmm5, [{a} + {line} + 2048]",
                "tdpbf16ps tmm0, tmm5, tmm6",
                "tdpbf16ps tmm1, tmm5, tmm7",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "add {a}, 3072",
                "add {b}, 6144",
                "dec {steps}",
                "jnz 2b",
                "tilestored [{c} + {stride}], tmm0",
                "tilestored [{c} + {stride} + 64], tmm1",
                a = inout(reg) a => _, b = inout(reg) b => _, steps = inout(reg) steps => _,
                line = in(reg) 64usize, c = in(reg) c, stride = in(reg) stride,
                options(nostack)
            );
        } else {
            asm!(
                "2:",
                // first by third
                "tileloadd tmm6, [{b} + {line} + 4096]",
                "tileloadd tmm4, [{a} + {line}]",
                "tileloadd tmm7, [{b} + {line} + 5120]",
                "tileloadd tmm5, [{a} + {line} + 1024]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tdpbf16ps tmm3, tmm5, tmm7",
                // first by second
                "tileloadd tmm6, [{b} + {line} + 2048]",
                "tileloadd tmm7, [{b} + {line} + 3072]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tdpbf16ps tmm3, tmm5, tmm7",
                // second by second
                "tileloadd tmm4, [{a} + {line} + 2048]",
                "tileloadd tmm5, [{a} + {line} + 3072]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tdpbf16ps tmm3, tmm5, tmm7",
                // second by first
                "tileloadd tmm6, [{b} + {line}]",
                "tileloadd tmm7, [{b} + {line} + 1024]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tdpbf16ps tmm3, tmm5, tmm7",
                // third by first
                "tileloadd tmm4, [{a} + {line} + 4096]",
                "tileloadd tmm5, [{a} + {line} + 5120]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tdpbf16ps tmm3, tmm5, tmm7",
                // first by first
                "tileloadd tmm4, [{a} + {line}]",
                "tileloadd tmm5, [{a} + {line} + 1024]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "add {a}, 6144",
                "add {b}, 6144",
                "dec {steps}",
                "jnz 2b",
                "tilestored [{c} + {stride}], tmm0",
                "tilestored [{c} + {stride} + 64], tmm1",
                "tilestored [{below} + {stride}], tmm2",
                "tilestored [{below} + {stride} + 64], tmm3",
                a = inout(reg) a => _, b = inout(reg) b => _, steps = inout(reg) steps => _,
                line = in(reg) 64usize, c = in(reg) c, below = in(reg) below, stride = in(reg) stride,
                options(nostack)
            );
        }
    }
}

/// Whether products of tiles are right here; without AMX this is a crash, so it is for a process of its own.
pub(crate) fn multiply_right() -> bool {
    const ONE_AND_TWO: u32 = 0x4000_3f80; // in bf16
    let (a, b) = ([ONE_AND_TWO; 2 * TILE], [ONE_AND_TWO; 2 * TILE]);
    let mut c = [1.0f32; 32 * 32];
    // SAFETY: one step of two tiles each, and 32 by 32 floats; if there is no AMX, this process ends, as said above.
    unsafe {
        let _tiles = Tiles::new();
        product(2, 1, a.as_ptr(), b.as_ptr(), c.as_mut_ptr(), 32, true);
    }
    c == [1.0 + 16.0 * (1.0 + 4.0); 32 * 32]
}
