//! Which instructions this CPU has, found at run time; `LATHE_CPU` caps them (`portable`, `avx2`, `avx512`).

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
}

const NAMES: &[(&str, Level)] = &[("portable", Level::Portable), ("avx2", Level::Avx2), ("avx512", Level::Avx512)];

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
        detect().min(cap.unwrap_or(Level::Avx512))
    })
}

#[cfg(target_arch = "x86_64")]
fn detect() -> Level {
    let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    let avx512 = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl");
    match (avx2, avx512) {
        (true, true) => Level::Avx512,
        (true, false) => Level::Avx2,
        _ => Level::Portable,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> Level {
    Level::Portable
}
