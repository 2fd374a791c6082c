//! How far long work has come: a bar on a terminal, and without one a line now and then. All of it on stderr.

use crate::output;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Without a terminal, the shortest time between two lines.
const BETWEEN: Duration = Duration::from_secs(15);

/// Shows how far one thing after the other has come.
pub struct Progress {
    terminal: bool,
    /// What is under way, and its bar.
    now: Option<(String, ProgressBar)>,
    last_line: Instant,
}

impl Default for Progress {
    fn default() -> Self {
        Self { terminal: std::io::stderr().is_terminal(), now: None, last_line: Instant::now() }
    }
}

impl Progress {
    /// Bytes of `what` that are done, of all; of all is 0 where nobody knows.
    pub fn bytes(&mut self, what: &str, done: u64, total: u64) {
        self.update(what, "", done, total, "{msg} {wide_bar} {bytes}/{total_bytes} {eta}");
    }

    /// Steps of `what` that are done, of all.
    pub fn steps(&mut self, what: &str, note: &str, done: u64, total: u64) {
        self.update(what, note, done, total, "{msg} {wide_bar} {pos}/{len} {eta}");
    }

    fn update(&mut self, what: &str, note: &str, done: u64, total: u64, style: &str) {
        let message = if note.is_empty() { what.to_string() } else { format!("{what}  {note}") };
        if !self.terminal {
            if self.last_line.elapsed() >= BETWEEN {
                self.last_line = Instant::now();
                let of = if total > 0 { format!(" of {total}") } else { String::new() };
                output::tell(format_args!("{message}  {done}{of}"));
            }
            return;
        }
        if self.now.as_ref().is_none_or(|(now, _)| now != what) {
            self.finish();
            let bar = ProgressBar::new(total);
            bar.set_style(ProgressStyle::with_template(style).expect("a template that is always the same"));
            self.now = Some((what.to_string(), bar));
        }
        if let Some((_, bar)) = &self.now {
            bar.set_length(total);
            bar.set_message(message);
            bar.set_position(done);
        }
    }

    /// A word beside the bar.
    pub fn note(&mut self, note: &str) {
        if let Some((what, bar)) = &self.now {
            bar.set_message(format!("{what}  {note}"));
        }
    }

    /// A line that stays.
    pub fn say(&mut self, line: &str) {
        match &self.now {
            Some((_, bar)) => bar.suspend(|| output::tell(format_args!("{line}"))),
            None => output::tell(format_args!("{line}")),
        }
    }

    /// Takes the bar away.
    pub fn finish(&mut self) {
        if let Some((_, bar)) = self.now.take() {
            bar.finish_and_clear();
        }
    }
}
