//! Sixteen numbers at a time, written once for every level of [`crate::cpu`]: what reads weights that are bf16 or integers
//! and multiplies them in f32.

// Each function is one instruction of a level that the caller of the kernel has looked for, as the trait demands.
#![allow(clippy::undocumented_unsafe_blocks)]

use crate::simd::fma;
use crate::storage::f16;

/// How many numbers there are.
pub(crate) const LANES: usize = 16;
/// Bytes of as many words.
const LINE: usize = 64;

/// Sixteen f32. Every function needs the instructions of its type, and pointers to as much as it reads or writes.
pub(crate) trait Wide: Copy {
    /// Rows whose sums, of two of these each, leave registers for the rest.
    const ROWS: usize;
    /// Sixteen words of 32 bits.
    type Words: Copy;

    unsafe fn set(x: f32) -> Self;
    unsafe fn load(from: *const f32) -> Self;
    /// From the bits of f16.
    unsafe fn load_f16(from: *const u16) -> Self;
    unsafe fn store(self, to: *mut f32);
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn mul(self, other: Self) -> Self;
    /// self * b + c, fused where there is an instruction for it.
    unsafe fn fma(self, b: Self, c: Self) -> Self;

    unsafe fn words(from: *const u8) -> Self::Words;
    /// The bf16 in the lower or the upper half of each word.
    unsafe fn half(words: Self::Words, upper: bool) -> Self;
    /// The byte at place `i` of each word, as a signed number.
    unsafe fn byte(words: Self::Words, i: usize) -> Self;
    /// A block of codes of `bits` (of [`crate::integers`]) less `middle`, four bytes a word.
    unsafe fn codes(bits: u32, from: *const u8, middle: u8) -> [Self::Words; 4];
}

/// Compiles a function of a [`Wide`] type once for each level of instructions and calls the best one.
macro_rules! wide {
    ($(#[$attribute:meta])* $visibility:vis fn $name:ident<$wide:ident>($($argument:ident: $type:ty),* $(,)?) $body:block) => {
        $(#[$attribute])*
        #[allow(clippy::too_many_arguments)]
        $visibility unsafe fn $name($($argument: $type),*) {
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            unsafe fn body<$wide: $crate::wide::Wide>($($argument: $type),*) $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
                #[allow(clippy::too_many_arguments)]
                unsafe fn avx512($($argument: $type),*) {
                    // SAFETY: the caller's.
                    unsafe { body::<std::arch::x86_64::__m512>($($argument),*) }
                }
                #[target_feature(enable = "avx2,fma,f16c")]
                #[allow(clippy::too_many_arguments)]
                unsafe fn avx2($($argument: $type),*) {
                    // SAFETY: the caller's.
                    unsafe { body::<[std::arch::x86_64::__m256; 2]>($($argument),*) }
                }
                match $crate::cpu::level() {
                    $crate::cpu::Level::Portable => {}
                    // SAFETY: the level says that the CPU has these features; the rest is the caller's.
                    $crate::cpu::Level::Avx2 => return unsafe { avx2($($argument),*) },
                    // SAFETY: as above.
                    _ => return unsafe { avx512($($argument),*) },
                }
            }
            // SAFETY: the caller's.
            unsafe { body::<[f32; 16]>($($argument),*) }
        }
    };
}
pub(crate) use wide;

/// Rows of sums that the kernels of this CPU hold.
pub(crate) fn rows() -> usize {
    #[cfg(target_arch = "x86_64")]
    match crate::cpu::level() {
        crate::cpu::Level::Portable => {}
        crate::cpu::Level::Avx2 => return <[std::arch::x86_64::__m256; 2]>::ROWS,
        _ => return std::arch::x86_64::__m512::ROWS,
    }
    <[f32; 16]>::ROWS
}

impl Wide for [f32; LANES] {
    const ROWS: usize = 2;
    type Words = [u32; LANES];

    #[inline(always)]
    unsafe fn set(x: f32) -> Self {
        [x; LANES]
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller's.
        unsafe { from.cast::<Self>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> Self {
        // SAFETY: the caller's.
        unsafe { from.cast::<[u16; LANES]>().read_unaligned() }.map(f16::from_bits)
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller's.
        unsafe { to.cast::<Self>().write_unaligned(self) }
    }

    #[inline(always)]
    unsafe fn add(mut self, other: Self) -> Self {
        (0..LANES).for_each(|i| self[i] += other[i]);
        self
    }

    #[inline(always)]
    unsafe fn mul(mut self, other: Self) -> Self {
        (0..LANES).for_each(|i| self[i] *= other[i]);
        self
    }

    #[inline(always)]
    unsafe fn fma(mut self, b: Self, c: Self) -> Self {
        (0..LANES).for_each(|i| self[i] = fma::<{ cfg!(target_arch = "aarch64") }>(self[i], b[i], c[i]));
        self
    }

    #[inline(always)]
    unsafe fn words(from: *const u8) -> Self::Words {
        // SAFETY: the caller's.
        unsafe { from.cast::<Self::Words>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn half(words: Self::Words, upper: bool) -> Self {
        words.map(|word| f32::from_bits(if upper { word & 0xffff_0000 } else { word << 16 }))
    }

    #[inline(always)]
    unsafe fn byte(words: Self::Words, i: usize) -> Self {
        words.map(|word| f32::from((word >> (8 * i)) as i8))
    }

    #[inline(always)]
    unsafe fn codes(bits: u32, from: *const u8, middle: u8) -> [Self::Words; 4] {
        // SAFETY: the caller's: a block.
        let block = unsafe { std::slice::from_raw_parts(from, crate::integers::block_bytes(bits)) };
        crate::integers::unpack(bits, block).map(|line| {
            let words = line.as_chunks::<4>().0;
            std::array::from_fn(|i| u32::from_le_bytes(words[i].map(|code| code.wrapping_sub(middle))))
        })
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{LINE, Wide};
    use std::arch::x86_64::*;

    // SAFETY of all: the instructions are those of the type, and pointers are the callers'.
    impl Wide for __m512 {
        const ROWS: usize = 8;
        type Words = __m512i;

        #[inline(always)]
        unsafe fn set(x: f32) -> Self {
            unsafe { _mm512_set1_ps(x) }
        }

        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self {
            unsafe { _mm512_loadu_ps(from) }
        }

        #[inline(always)]
        unsafe fn load_f16(from: *const u16) -> Self {
            unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())) }
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            unsafe { _mm512_storeu_ps(to, self) }
        }

        #[inline(always)]
        unsafe fn add(self, other: Self) -> Self {
            unsafe { _mm512_add_ps(self, other) }
        }

        #[inline(always)]
        unsafe fn mul(self, other: Self) -> Self {
            unsafe { _mm512_mul_ps(self, other) }
        }

        #[inline(always)]
        unsafe fn fma(self, b: Self, c: Self) -> Self {
            unsafe { _mm512_fmadd_ps(self, b, c) }
        }

        #[inline(always)]
        unsafe fn words(from: *const u8) -> Self::Words {
            unsafe { _mm512_loadu_si512(from.cast()) }
        }

        #[inline(always)]
        unsafe fn half(words: Self::Words, upper: bool) -> Self {
            unsafe {
                _mm512_castsi512_ps(match upper {
                    true => _mm512_and_si512(words, _mm512_set1_epi32(0xffff_0000_u32 as i32)),
                    false => _mm512_slli_epi32::<16>(words),
                })
            }
        }

        #[inline(always)]
        unsafe fn byte(words: Self::Words, i: usize) -> Self {
            unsafe {
                let top = match i {
                    0 => _mm512_slli_epi32::<24>(words),
                    1 => _mm512_slli_epi32::<16>(words),
                    2 => _mm512_slli_epi32::<8>(words),
                    _ => words,
                };
                _mm512_cvtepi32_ps(_mm512_srai_epi32::<24>(top))
            }
        }

        #[inline(always)]
        unsafe fn codes(bits: u32, from: *const u8, middle: u8) -> [Self::Words; 4] {
            unsafe {
                let line = |i: usize| _mm512_loadu_si512(from.add(i * LINE).cast());
                let middle = _mm512_set1_epi8(middle as i8);
                let (a, b, low) = (line(0), line(1), _mm512_set1_epi8(15));
                let mut lines = match bits {
                    8 => [a, b, line(2), line(3)],
                    _ => [
                        _mm512_and_si512(a, low),
                        _mm512_and_si512(_mm512_srli_epi16::<4>(a), low),
                        _mm512_and_si512(b, low),
                        _mm512_and_si512(_mm512_srli_epi16::<4>(b), low),
                    ],
                };
                if bits == 6 {
                    let (c, bits) = (line(2), _mm512_set1_epi8(0x30));
                    // lower | upper & bits
                    lines[0] = _mm512_ternarylogic_epi32::<0xf8>(lines[0], _mm512_slli_epi16::<4>(c), bits);
                    lines[1] = _mm512_ternarylogic_epi32::<0xf8>(lines[1], _mm512_slli_epi16::<2>(c), bits);
                    lines[2] = _mm512_ternarylogic_epi32::<0xf8>(lines[2], c, bits);
                    lines[3] = _mm512_ternarylogic_epi32::<0xf8>(lines[3], _mm512_srli_epi16::<2>(c), bits);
                }
                for i in 0..4 {
                    lines[i] = _mm512_sub_epi8(lines[i], middle);
                }
                lines
            }
        }
    }

    // SAFETY of all: as above.
    impl Wide for [__m256; 2] {
        const ROWS: usize = 2;
        type Words = [__m256i; 2];

        #[inline(always)]
        unsafe fn set(x: f32) -> Self {
            unsafe { [_mm256_set1_ps(x); 2] }
        }

        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self {
            unsafe { [_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))] }
        }

        #[inline(always)]
        unsafe fn load_f16(from: *const u16) -> Self {
            let half = |i: usize| unsafe { _mm256_cvtph_ps(_mm_loadu_si128(from.add(i).cast())) };
            [half(0), half(8)]
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            unsafe {
                _mm256_storeu_ps(to, self[0]);
                _mm256_storeu_ps(to.add(8), self[1]);
            }
        }

        #[inline(always)]
        unsafe fn add(self, other: Self) -> Self {
            unsafe { [_mm256_add_ps(self[0], other[0]), _mm256_add_ps(self[1], other[1])] }
        }

        #[inline(always)]
        unsafe fn mul(self, other: Self) -> Self {
            unsafe { [_mm256_mul_ps(self[0], other[0]), _mm256_mul_ps(self[1], other[1])] }
        }

        #[inline(always)]
        unsafe fn fma(self, b: Self, c: Self) -> Self {
            unsafe { [_mm256_fmadd_ps(self[0], b[0], c[0]), _mm256_fmadd_ps(self[1], b[1], c[1])] }
        }

        #[inline(always)]
        unsafe fn words(from: *const u8) -> Self::Words {
            unsafe { [_mm256_loadu_si256(from.cast()), _mm256_loadu_si256(from.add(LINE / 2).cast())] }
        }

        #[inline(always)]
        unsafe fn half(words: Self::Words, upper: bool) -> Self {
            let half = |words| unsafe {
                _mm256_castsi256_ps(match upper {
                    true => _mm256_and_si256(words, _mm256_set1_epi32(0xffff_0000_u32 as i32)),
                    false => _mm256_slli_epi32::<16>(words),
                })
            };
            [half(words[0]), half(words[1])]
        }

        #[inline(always)]
        unsafe fn byte(words: Self::Words, i: usize) -> Self {
            let byte = |words| unsafe {
                let top = match i {
                    0 => _mm256_slli_epi32::<24>(words),
                    1 => _mm256_slli_epi32::<16>(words),
                    2 => _mm256_slli_epi32::<8>(words),
                    _ => words,
                };
                _mm256_cvtepi32_ps(_mm256_srai_epi32::<24>(top))
            };
            [byte(words[0]), byte(words[1])]
        }

        #[inline(always)]
        unsafe fn codes(bits: u32, from: *const u8, middle: u8) -> [Self::Words; 4] {
            unsafe {
                let mut lines = [[_mm256_setzero_si256(); 2]; 4];
                let middle = _mm256_set1_epi8(middle as i8);
                for half in 0..2 {
                    let line = |i: usize| _mm256_loadu_si256(from.add(i * LINE + half * LINE / 2).cast());
                    let (a, b, low) = (line(0), line(1), _mm256_set1_epi8(15));
                    let mut four = match bits {
                        8 => [a, b, line(2), line(3)],
                        _ => [
                            _mm256_and_si256(a, low),
                            _mm256_and_si256(_mm256_srli_epi16::<4>(a), low),
                            _mm256_and_si256(b, low),
                            _mm256_and_si256(_mm256_srli_epi16::<4>(b), low),
                        ],
                    };
                    if bits == 6 {
                        let (c, bits) = (line(2), _mm256_set1_epi8(0x30));
                        let upper =
                            [_mm256_slli_epi16::<4>(c), _mm256_slli_epi16::<2>(c), c, _mm256_srli_epi16::<2>(c)];
                        for i in 0..4 {
                            four[i] = _mm256_or_si256(four[i], _mm256_and_si256(upper[i], bits));
                        }
                    }
                    for i in 0..4 {
                        lines[i][half] = _mm256_sub_epi8(four[i], middle);
                    }
                }
                lines
            }
        }
    }
}
