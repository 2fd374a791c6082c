//! Which machine this is, and who else is at work on it.

use serde::{Deserialize, Serialize};

/// What measurements are valid for: they are reused only where all of this is the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Name of the CPU.
    pub cpu: String,
    /// Cores this process may use.
    pub cores: usize,
    /// Threads that compute.
    pub threads: usize,
    /// Instructions that the kernels use.
    pub instructions: String,
    /// Version of lathe and of its kernels.
    pub version: String,
}

impl Machine {
    /// This one.
    pub fn here() -> Self {
        Self {
            cpu: cpu(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            threads: rayon::current_num_threads(),
            instructions: lathe_ops::cpu::level().name().into(),
            version: format!("{} kernels {}", env!("CARGO_PKG_VERSION"), lathe_ops::KERNELS),
        }
    }

    /// The first thing in which another machine differs, in words.
    pub fn difference(&self, other: &Self) -> Option<String> {
        let pairs = [
            ("CPU", self.cpu.clone(), other.cpu.clone()),
            ("cores", self.cores.to_string(), other.cores.to_string()),
            ("threads", self.threads.to_string(), other.threads.to_string()),
            ("instructions", self.instructions.clone(), other.instructions.clone()),
            ("version", self.version.clone(), other.version.clone()),
        ];
        let differs = pairs.into_iter().find(|(_, a, b)| a != b);
        differs.map(|(what, here, there)| format!("{what} {there}, here {here}"))
    }
}

/// The name of the CPU, if the system tells.
pub fn cpu() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    name.map_or_else(|| std::env::consts::ARCH.to_string(), |(_, name)| name.trim().to_string())
}

/// Processor time so far, in the system's ticks: of all cores busy, of all cores, and of this process.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    busy: u64,
    all: u64,
    own: u64,
}

impl Load {
    /// Where the counters stand now; `None` where the system does not tell.
    pub fn now() -> Option<Self> {
        let read = |path: &str| std::fs::read_to_string(path).ok();
        Self::parse(&read("/proc/stat")?, &read("/proc/self/stat")?)
    }

    /// The counters in the words of the system, of all and of this process.
    fn parse(stat: &str, own: &str) -> Option<Self> {
        let ticks: Vec<u64> =
            stat.lines().next()?.split_whitespace().skip(1).filter_map(|n| n.parse().ok()).take(8).collect();
        let all = ticks.iter().sum();
        let idle = ticks.get(3)? + ticks.get(4)?; // idle, waiting for disks
        // Fields after the name, which may contain spaces: user and system time are the 12th and 13th of them.
        let fields: Vec<&str> = own.rsplit_once(')')?.1.split_whitespace().collect();
        let own = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
        Some(Self { busy: all - idle, all, own })
    }

    /// The share of all cores that others took since then, from 0 to 1.
    pub fn others_since(self) -> Option<f64> {
        self.others_until(Self::now()?)
    }

    fn others_until(self, now: Self) -> Option<f64> {
        let (busy, all, own) = (now.busy - self.busy, now.all - self.all, now.own - self.own);
        (all > 0).then(|| (busy.saturating_sub(own) as f64 / all as f64).clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_machine_is_told_apart() {
        let here = Machine::here();
        assert_eq!(here.difference(&here), None);
        let there = Machine { cpu: "abacus".into(), ..here.clone() };
        assert!(here.difference(&there).unwrap().starts_with("CPU abacus, here "));
        let there = Machine { threads: here.threads + 1, ..here.clone() };
        assert!(here.difference(&there).unwrap().starts_with("threads "));
    }

    #[test]
    fn load_is_a_share() {
        let own = |user: u64| format!("7 (a name) x) R 1 2 3 4 5 6 7 8 9 10 {user} 5 0 0");
        // User, nice, system, idle, waiting, two kinds of interrupts, stolen; what follows is in the first already.
        let begin = Load::parse("cpu  100 10 20 800 50 3 2 15 9 9\ncpu0 1 2", &own(40)).unwrap();
        assert_eq!((begin.busy, begin.all, begin.own), (150, 1000, 45));
        let end = Load::parse("cpu  160 10 30 850 70 3 2 15 9 9\ncpu0 1 2", &own(70)).unwrap();
        // 70 of 140 ticks were busy, 30 of them ours.
        assert_eq!(begin.others_until(end), Some(40.0 / 140.0));
        assert_eq!(begin.others_until(begin), None);
        assert!(Load::parse("cpu  1 2", &own(1)).is_none());
    }
}
