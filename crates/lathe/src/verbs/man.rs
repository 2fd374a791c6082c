//! `lathe man`: the man page.

use super::Action;
use crate::output;
use anyhow::Result;
use clap::Parser;

/// Print the man page of lathe, or of one verb
#[derive(Parser)]
#[command(name = "man", after_help = "Example:\n  lathe man | man -l -")]
pub struct Man {
    /// A verb
    verb: Option<String>,
}

impl Action for Man {
    fn run(self, json: bool) -> Result<()> {
        let root = crate::command();
        let command = match &self.verb {
            None => root,
            Some(verb) => root
                .find_subcommand(verb)
                .cloned()
                .ok_or_else(|| crate::input::Usage(format!("no verb `{verb}`; `lathe help` lists them")))?
                .display_name(format!("lathe-{verb}")),
        };
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page)?;
        output::document("man", &String::from_utf8_lossy(&page), json)
    }
}
