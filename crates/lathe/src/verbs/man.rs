//! `lathe man`: the man page.

use super::Action;
use crate::input::Usage;
use crate::output;
use anyhow::Result;
use clap::{Command, Parser};
use lathe_core::shorten;

/// Print the man page of lathe, or of one verb
#[derive(Parser)]
#[command(name = "man", after_help = "Examples:\n  lathe man | man -l -\n  lathe man design-par | man -l -")]
pub struct Man {
    /// A verb, as the pages name it: count, design-par
    verb: Option<String>,
}

impl Action for Man {
    fn run(self, json: bool) -> Result<()> {
        let mut root = crate::command();
        root.build(); // gives every verb the flags that all have, and its page's name
        let command = match &self.verb {
            None => root,
            Some(verb) => page(&root, &format!("lathe-{verb}"))
                .cloned()
                .ok_or_else(|| Usage(format!("no verb `{}`; `lathe help` lists them", shorten(verb))))?,
        };
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page)?;
        output::document("man", &String::from_utf8_lossy(&page), json)
    }
}

/// The command whose page has this name.
fn page<'a>(command: &'a Command, name: &str) -> Option<&'a Command> {
    match command.get_display_name() == Some(name) {
        true => Some(command),
        false => command.get_subcommands().find_map(|verb| page(verb, name)),
    }
}
