//! AMX: products of tiles of bytes, activations (16 rows of 64) by codes (16 lines, each four inputs of 16 outputs), summed
//! as whole numbers.

use crate::gemm::tiles::Tiles;
use std::arch::asm;

/// Inputs of a tile.
pub(super) const DEPTH: usize = 64;
/// Rows of a tile of activations.
pub(super) const ROWS: usize = 16;
/// Bytes of a tile.
const TILE: usize = 1024;

/// Sums of 32 rows by 32 outputs.
pub(super) type Sums = [[i32; 32]; 32];

/// The sums of 16 `row_tiles` (1 or 2) rows by two panels, over `steps` of 64 inputs.
///
/// # Safety
/// This thread must have [`Tiles`] that multiply bytes; `a` must have so many rows, `stride` bytes apart, of 64 `steps`
/// bytes, and the panels, which begin `panel` bytes apart, as many lines.
pub(super) unsafe fn product(
    row_tiles: usize,
    steps: usize,
    a: *const u8,
    stride: usize,
    b: *const u8,
    panel: usize,
    sums: &mut Sums,
) {
    let c = sums.as_mut_ptr();
    // SAFETY: the caller vouches for the memory; no other code touches the tiles in between, and the compiler has
    // none of its own.
    unsafe {
        if row_tiles == 1 {
            asm!(
                "tilezero tmm0",
                "tilezero tmm1",
                "2:",
                "tileloadd tmm4, [{a} + {stride}]",
                "tileloadd tmm6, [{b} + {line}]",
                "tileloadd tmm7, [{right} + {line}]",
                "tdpbsud tmm0, tmm4, tmm6",
                "tdpbsud tmm1, tmm4, tmm7",
                "add {a}, 64",
                "add {b}, 1024",
                "add {right}, 1024",
                "dec {steps}",
                "jnz 2b",
                "tilestored [{c} + 2 * {line}], tmm0",
                "tilestored [{c} + 2 * {line} + 64], tmm1",
                a = inout(reg) a => _, b = inout(reg) b => _, right = inout(reg) b.wrapping_add(panel) => _,
                steps = inout(reg) steps => _, line = in(reg) 64usize, c = in(reg) c, stride = in(reg) stride,
                options(nostack)
            );
        } else {
            asm!(
                "tilezero tmm0",
                "tilezero tmm1",
                "tilezero tmm2",
                "tilezero tmm3",
                "2:",
                "tileloadd tmm6, [{b} + {line}]",
                "tileloadd tmm4, [{a} + {stride}]",
                "tileloadd tmm7, [{right} + {line}]",
                "tileloadd tmm5, [{below} + {stride}]",
                "tdpbsud tmm0, tmm4, tmm6",
                "tdpbsud tmm1, tmm4, tmm7",
                "tdpbsud tmm2, tmm5, tmm6",
                "tdpbsud tmm3, tmm5, tmm7",
                "add {a}, 64",
                "add {below}, 64",
                "add {b}, 1024",
                "add {right}, 1024",
                "dec {steps}",
                "jnz 2b",
                "tilestored [{c} + 2 * {line}], tmm0",
                "tilestored [{c} + 2 * {line} + 64], tmm1",
                "tilestored [{c} + 2 * {line} + 2048], tmm2",
                "tilestored [{c} + 2 * {line} + 2112], tmm3",
                a = inout(reg) a => _, below = inout(reg) a.wrapping_add(ROWS * stride) => _,
                b = inout(reg) b => _, right = inout(reg) b.wrapping_add(panel) => _,
                steps = inout(reg) steps => _, line = in(reg) 64usize, c = in(reg) c, stride = in(reg) stride,
                options(nostack)
            );
        }
    }
}

/// Whether products of tiles of bytes are right here; without them this is a crash, so it is for a process of its own.
pub(crate) fn multiply_right() -> bool {
    let (a, b) = ([0xffu8; 2 * TILE], [0xfe; 2 * TILE]);
    let mut sums = [[0; 32]; 32];
    // SAFETY: one step of two tiles each; if there are none, this process ends, as said above.
    unsafe {
        let _tiles = Tiles::new();
        product(2, 1, a.as_ptr(), DEPTH, b.as_ptr(), TILE, &mut sums);
    }
    sums == [[-64 * 254; 32]; 32]
}
