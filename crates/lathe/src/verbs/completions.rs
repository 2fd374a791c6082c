//! `lathe completions`: a completion script for a shell.

use super::Action;
use crate::output;
use anyhow::Result;
use clap::Parser;
use clap_complete::Shell;

/// Print a shell completion script
#[derive(Parser)]
#[command(
    name = "completions",
    after_help = "Example:\n  lathe completions bash > ~/.local/share/bash-completion/completions/lathe"
)]
pub struct Completions {
    /// The shell
    shell: Shell,
}

impl Action for Completions {
    fn run(self, json: bool) -> Result<()> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut crate::command(), "lathe", &mut script);
        output::document("script", &String::from_utf8_lossy(&script), json)
    }
}
