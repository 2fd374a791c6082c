//! Errors in the words of the command line: libraries name settings, a user knows flags.

use clap::{ArgMatches, Command};

/// What helps beside an error: how its message ends, and what to add.
const HINTS: &[(&str, &str)] = &[
    ("found another run; expected a new or empty folder", "`lathe train --resume` goes on with it"),
    ("found another search; expected a new or empty folder", "--resume goes on with it"),
    ("expected the record of a training run", "--space, --data and --train-k train models"),
    ("expected a table of this machine", "`lathe profile` measures one"),
    ("expected a table that a profile wrote", "`lathe profile --out` writes one"),
];

/// The verb that was called, the innermost.
pub fn leaf<'a>(command: &'a Command, matches: &ArgMatches) -> &'a Command {
    match matches.subcommand() {
        Some((name, inner)) => command.find_subcommand(name).map_or(command, |verb| leaf(verb, inner)),
        None => command,
    }
}

/// An error with all its causes, its settings as flags of the verb.
pub fn describe(error: &anyhow::Error, verb: &Command) -> String {
    let text = |cause: &(dyn std::error::Error + 'static)| {
        let text = cause.to_string();
        match lathe_job::setting(cause) {
            Some(place) => text.replacen(place, &flags(place, verb), 1),
            None => text,
        }
    };
    let text = error.chain().map(text).collect::<Vec<_>>().join(": ");
    match HINTS.iter().find(|(end, _)| text.ends_with(end)) {
        Some((_, hint)) => format!("{text}; {hint}"),
        None => text,
    }
}

/// Settings, with commas between, each as the flag of the verb that sets it; whatever has none stays.
fn flags(place: &str, verb: &Command) -> String {
    let flag = |setting: &str| {
        let end = setting.find([' ', ':']).unwrap_or(setting.len());
        let name = setting[..end].replace('_', "-");
        match verb.get_arguments().any(|arg| arg.get_long() == Some(&name)) {
            true => format!("--{name}{}", &setting[end..]),
            false => setting.to_string(),
        }
    };
    place.split(", ").map(flag).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_told_as_flags() {
        let command = crate::command();
        let verb = command.find_subcommand("optimize").expect("a verb");
        let told = |error: lathe_job::Error| describe(&error.into(), verb);
        let setting = |place: &str| told(lathe_job::Error::setting(place, 0, "more"));
        assert_eq!(setting("target_latency_ms"), "--target-latency-ms: found 0; expected more");
        assert_eq!(setting("out a/b"), "--out a/b: found 0; expected more");
        assert_eq!(setting("out/b.json"), "out/b.json: found 0; expected more");
        assert_eq!(setting("seed, seq, sky"), "--seed, --seq, sky: found 0; expected more");
        assert_eq!(told(lathe_job::Error::missing("out", "a folder")), "--out is missing: a folder");
        let below = lathe_search::Error::from(lathe_train::Error::setting("steps", 0, "more"));
        assert_eq!(describe(&below.into(), verb), "--steps: found 0; expected more");
        let table = lathe_job::Error::data("t.json", "another", "a table of this machine");
        assert!(told(table).ends_with("; `lathe profile` measures one"));
    }
}
