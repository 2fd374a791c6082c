//! Which instructions this CPU has, found at run time; `LATHE_CPU` caps them (`portable`, `avx2`, `avx512`,
//! `avx512bf16`, `amx`).

use std::sync::OnceLock;

/// What the kernels may use, each level with all before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Whatever the compiler's target has.
    Portable,
    /// AVX2 and FMA.
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

/// The best level of this machine, or the cap where that is lower.
pub fn level() -> Level {
    static LEVEL: OnceLock<Level> = OnceLock::new();
    *LEVEL.get_or_init(|| {
        let cap = std::env::var("LATHE_CPU").ok();
        let cap = cap.and_then(|cap| NAMES.iter().find(|(name, _)| *name == cap)).map(|(_, level)| *level);
        detect(cap.unwrap_or(Level::Amx))
    })
}

/// The best level up to a cap. Beyond the cap nothing is tried.
#[cfg(target_arch = "x86_64")]
fn detect(cap: Level) -> Level {
    let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
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

#[cfg(not(target_arch = "x86_64"))]
fn detect(_: Level) -> Level {
    Level::Portable
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod amx {
    use crate::gemm::tiles;
    use std::arch::x86_64::{__cpuid, __cpuid_count};

    /// Whether the CPU says that it has tiles, the kernel permits them, and a process that uses them survives: machines
    /// exist whose hypervisor hides a part, where a wrong guess is a crash.
    pub fn works() -> bool {
        advertised() && permitted() && proven()
    }

    fn advertised() -> bool {
        const BF16: u32 = 1 << 22;
        const TILE: u32 = 1 << 24;
        __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx & (BF16 | TILE) == BF16 | TILE
    }

    /// Asks for the tiles' registers to be kept for all threads of this process; once is enough.
    fn permitted() -> bool {
        const REQUEST: libc::c_long = 0x1023; // ARCH_REQ_XCOMP_PERM
        const TILE_DATA: libc::c_long = 18;
        // SAFETY: the call changes nothing but what the kernel keeps of this process.
        unsafe { libc::syscall(libc::SYS_arch_prctl, REQUEST, TILE_DATA) == 0 }
    }

    /// Multiplies two tiles in a child process and believes only its success.
    fn proven() -> bool {
        // SAFETY: between fork and _exit the child calls nothing but setrlimit, and computes on its own stack: it
        // takes no lock and does not allocate, so it does not matter what other threads held.
        unsafe {
            match libc::fork() {
                -1 => false,
                0 => {
                    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
                    libc::setrlimit(libc::RLIMIT_CORE, &none); // a crash leaves no file
                    libc::_exit(if tiles::multiply_right() { 0 } else { 1 })
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
}
