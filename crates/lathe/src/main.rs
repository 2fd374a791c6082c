//! The `lathe` program: one file per verb, listed in [`verbs::VERBS`].

mod hints;
mod input;
mod output;
mod picture;
mod progress;
mod screen;
mod verbs;
mod workload;

use clap::{Arg, ArgAction, ArgMatches, Command};
use lathe_ops::allocator::Counting;
#[cfg(target_os = "linux")]
use lathe_ops::allocator::Mapped;
use mimalloc::MiMalloc;
use output::ERROR;
use std::process::ExitCode;

/// Gives large blocks back to the system at once, and counts them, for the profiler.
#[cfg(target_os = "linux")]
#[global_allocator]
static ALLOCATOR: Counting<Mapped<MiMalloc>> = Counting(Mapped(MiMalloc));
#[cfg(not(target_os = "linux"))]
#[global_allocator]
static ALLOCATOR: Counting<MiMalloc> = Counting(MiMalloc);

/// The whole command line; help, completions and the man page derive from it.
pub(crate) fn command() -> Command {
    Command::new("lathe")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Makes a Transformer fit a latency and memory budget on your hardware")
        .after_help("Exit codes: 0 done; 1 the run failed (data, weights, disk); 2 wrong usage or a wrong model, space or run file.")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .arg(
            Arg::new("json")
                .long("json")
                .global(true)
                .action(ArgAction::SetTrue)
                .help("Print one JSON document on stdout and nothing else there"),
        )
        .arg(
            Arg::new("threads")
                .long("threads")
                .global(true)
                .value_name("N")
                .value_parser(clap::value_parser!(u32).range(1..=1024))
                .help("Threads to compute with [default: the cores this process may use]"),
        )
        .subcommands(verbs::VERBS.iter().map(|verb| (verb.command)()))
}

fn main() -> ExitCode {
    lathe_job::measurer::serve_child(&lathe_model::REGISTRY);
    let mut command = command();
    let matches = command.try_get_matches_from_mut(std::env::args_os()).unwrap_or_else(|error| error.exit());
    let Some((name, args)) = matches.subcommand() else { return ExitCode::from(2) };
    // The subcommands stand in the order of the verbs.
    let index = command.get_subcommands().position(|verb| verb.get_name() == name);
    let Some(verb) = index.and_then(|index| verbs::VERBS.get(index)) else { return ExitCode::from(2) };
    match run(verb, args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if output::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let text = hints::describe(&error, hints::leaf(&command, &matches));
            output::tell(format_args!("{ERROR}error:{ERROR:#} {text}"));
            ExitCode::from(if input::is_usage(&error) { 2 } else { 1 })
        }
    }
}

/// Runs a verb on a pool of as many threads as were asked for.
fn run(verb: &verbs::Verb, args: &ArgMatches) -> anyhow::Result<()> {
    let threads = args.get_one::<u32>("threads").map_or(0, |&threads| threads as usize); // 0: the cores of the process
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
    pool.install(|| (verb.run)(args))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_consistent() {
        super::command().debug_assert();
    }
}
