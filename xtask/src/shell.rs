//! Runs other programs and logs them.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The folder of the workspace.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The cargo that runs this program. With `CI` set, it writes no data for incremental builds: the
/// first build then takes a quarter less time, and no second build follows there.
pub(crate) fn cargo() -> Command {
    prepared(Command::new(program()))
}

/// As [`cargo`], at the lowest priority.
pub(crate) fn idle_cargo() -> Command {
    let mut command = Command::new("nice");
    command.args(["-n", "19"]).arg(program());
    prepared(command)
}

fn program() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

fn prepared(mut command: Command) -> Command {
    if std::env::var_os("CI").is_some() {
        command.env("CARGO_INCREMENTAL", "0");
    }
    command.current_dir(root());
    command
}

/// Runs a program to its end.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    announce(command);
    let status = command.status().with_context(|| format!("cannot run {}", text(command)))?;
    ensure!(status.success(), "{} ended with {status}", text(command));
    Ok(())
}

/// Runs a program and returns its output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {}", text(command)))?;
    ensure!(output.status.success(), "{} ended with {}", text(command), output.status);
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Logs the command that is about to run.
pub(crate) fn announce(command: &Command) {
    say(&format!("$ {}", text(command)));
}

fn text(command: &Command) -> String {
    let program = PathBuf::from(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str());
    let words = std::iter::once(name).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

#[expect(clippy::print_stdout, reason = "a command line tool")]
pub(crate) fn print(line: &str) {
    println!("{line}");
}

#[expect(clippy::print_stderr, reason = "a command line tool")]
pub(crate) fn say(line: &str) {
    eprintln!("{line}");
}
