//! Which instructions this CPU has, found at run time; `LATHE_CPU` caps them (`portable`, `avx2`, `avx512`,
//! `avx512vnni`, `avx512bf16`, `amx`).

use std::sync::OnceLock;

/// What the kernels may use, each level with all before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Whatever the compiler's target has.
    Portable,
    /// AVX2, FMA and F16C.
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    Avx512,
    /// Dot products of bf16 pairs.
    Avx512Bf16,
    /// Tiles of bf16, which the kernel of the system permits.
    Amx,
}

const NAMES: &[(&str, Level)] = &[
    ("portable", Level::Portable),
    ("avx2", Level::Avx2),
    ("avx512", Level::Avx512),
    ("avx512bf16", Level::Avx512Bf16),
    ("amx", Level::Amx),
];

impl Level {
    /// Its name in `LATHE_CPU`.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(_, level)| *level == self).map_or("", |(name, _)| name)
    }
}

/// What there is, up to the cap.
#[derive(Clone, Copy)]
struct Found {
    level: Level,
    vnni: bool,
}

fn found() -> Found {
    static FOUND: OnceLock<Found> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let word = std::env::var("LATHE_CPU").ok();
        // AVX-512 with dot products of bytes has a word of its own, but no level: nothing but integer weights asks for them.
        let cap = match word.as_deref() {
            Some("avx512vnni") => Some(Level::Avx512),
            word => NAMES.iter().find(|(name, _)| Some(*name) == word).map(|(_, level)| *level),
        };
        let level = detect(cap.unwrap_or(Level::Amx));
        let capped = level < Level::Avx512 || cap == Some(Level::Avx512) && word.as_deref() == Some("avx512");
        Found { level, vnni: !capped && has_vnni() }
    })
}

/// The best level of this machine, or the cap where that is lower.
pub fn level() -> Level {
    found().level
}

/// Whether there are dot products of bytes (AVX512-VNNI) beside AVX-512, of which `LATHE_CPU=avx512` permits none.
pub fn vnni() -> bool {
    found().vnni
}

/// Whether there are tiles of bytes beside those of bf16.
pub fn byte_tiles() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| level() == Level::Amx && amx::multiplies_bytes())
}

/// The best level up to a cap. Beyond the cap nothing is tried.
#[cfg(target_arch = "x86_64")]
fn detect(cap: Level) -> Level {
    let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
    let avx512 = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl");
    let has = |level: Level| match level {
        Level::Portable => true,
        Level::Avx2 => avx2,
        Level::Avx512 => avx512,
        Level::Avx512Bf16 => is_x86_feature_detected!("avx512bf16"),
        Level::Amx => amx::works(),
    };
    let levels = NAMES.iter().map(|(_, level)| *level);
    levels.take_while(|&level| level <= cap && has(level)).last().unwrap_or(Level::Portable)
}

#[cfg(target_arch = "x86_64")]
fn has_vnni() -> bool {
    is_x86_feature_detected!("avx512vnni")
}

#[cfg(not(target_arch = "x86_64"))]
fn detect(_: Level) -> Level {
    Level::Portable
}

#[cfg(not(target_arch = "x86_64"))]
fn has_vnni() -> bool {
    false
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod amx {
    use crate::gemm::tiles;
    use crate::integers::tiles as byte_tiles;
    use std::arch::x86_64::{__cpuid, __cpuid_count};

    /// Whether the CPU says that it has tiles, the kernel permits them, and a process that uses them survives: machines
    /// exist whose hypervisor hides a part, where a wrong guess is a crash.
    pub fn works() -> bool {
        advertised(BF16 | TILE) && permitted() && proven(tiles::multiply_right)
    }

    /// Whether the same holds of tiles of bytes, where those of bf16 work.
    pub fn multiplies_bytes() -> bool {
        advertised(INT8) && proven(byte_tiles::multiply_right)
    }

    const BF16: u32 = 1 << 22;
    const TILE: u32 = 1 << 24;
    const INT8: u32 = 1 << 25;

    fn advertised(bits: u32) -> bool {
        __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx & bits == bits
    }

    /// Asks for the tiles' registers to be kept for all threads of this process; once is enough.
    fn permitted() -> bool {
        const REQUEST: libc::c_long = 0x1023; // ARCH_REQ_XCOMP_PERM
        const TILE_DATA: libc::c_long = 18;
        // SAFETY: the call changes nothing but what the kernel keeps of this process.
        unsafe { libc::syscall(libc::SYS_arch_prctl, REQUEST, TILE_DATA) == 0 }
    }

    /// Multiplies two tiles in a child process and believes only its success.
    fn proven(multiply_right: fn() -> bool) -> bool {
        // SAFETY: between fork and _exit the child calls nothing but setrlimit, and computes on its own stack: it
        // takes no lock and does not allocate, so it does not matter what other threads held.
        unsafe {
            match libc::fork() {
                -1 => false,
                0 => {
                    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
                    libc::setrlimit(libc::RLIMIT_CORE, &none); // a crash leaves no file
                    libc::_exit(if multiply_right() { 0 } else { 1 })
                }
                child => {
                    let mut status = 0;
                    while libc::waitpid(child, &mut status, 0) == -1 {
                        if std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
                            return false;
                        }
                    }
                    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
                }
            }
        }
    }
}

#[cfg(all(target_arch = "x86_64", not(target_os = "linux")))]
mod amx {
    pub fn works() -> bool {
        false
    }

    pub fn multiplies_bytes() -> bool {
        false
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod amx {
    pub fn multiplies_bytes() -> bool {
        false
    }
}
