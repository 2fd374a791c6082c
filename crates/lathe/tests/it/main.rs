//! Drives the real binary.

mod against;
mod before;
mod choices;
mod compare;
mod data;
mod differentiable;
mod distill;
mod encoders;
mod export;
mod families;
mod forward;
mod from_scratch;
mod gguf;
mod onnx;
mod optimize;
mod papers;
mod proxies;
mod prune;
mod quantize;
mod readme;
mod search;
mod serve;
mod train;
mod trained;
mod verbs;

use std::process::{Command, Output};

/// `lathe` with arguments.
fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lathe"));
    command.args(args);
    command
}

/// Runs `lathe` with arguments.
fn lathe(args: &[&str]) -> Output {
    command(args).output().expect("the binary runs")
}

/// Runs it with `--json` and parses what it prints.
fn json(args: &[&str]) -> serde_json::Value {
    let out = lathe(&[args, &["--json"]].concat());
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap_or_else(|error| panic!("{args:?}: {error}"))
}

/// What it prints for people.
fn text(args: &[&str]) -> String {
    let out = lathe(args);
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("UTF-8")
}

/// Runs it expecting an error: its exit code, and what it says. Nothing may be on stdout.
fn fails(args: &[&str]) -> (i32, String) {
    let out = lathe(args);
    assert!(out.stdout.is_empty(), "{args:?} printed on stdout");
    let error = String::from_utf8(out.stderr).expect("UTF-8");
    assert!(!error.contains("panicked"), "{args:?}: {error}");
    (out.status.code().expect("no signal"), error)
}
