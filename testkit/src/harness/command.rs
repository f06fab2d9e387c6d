//! Commands of the executable, run to their end.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use super::{Installation, executable};
use crate::process::text;

/// The executable with these arguments, and the configuration in a folder.
pub fn command(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(executable());
    command.args(arguments).arg("--config").arg(dir.join("tidemark.toml"));
    command
}

/// Runs [`command`] to its end.
pub fn errand(dir: &Path, arguments: &[&str]) -> Output {
    command(dir, arguments).output().expect("tidemark runs")
}

/// Runs [`command`], which must exit with this code; returns what it printed on both streams.
#[track_caller]
pub fn exits(dir: &Path, arguments: &[&str], code: i32) -> String {
    checked(&errand(dir, arguments), arguments, code)
}

impl Installation {
    /// As [`exits`], with the configuration of this installation.
    #[track_caller]
    pub fn exits(&self, arguments: &[&str], code: i32) -> String {
        checked(&self.errand(arguments), arguments, code)
    }
}

/// Number of received transfers in the statement of a reconciliation.
pub fn received(report: &Value) -> u64 {
    let days = report["statement"].as_array().into_iter().flatten();
    let parts = ["matched", "unknown", "other"];
    days.flat_map(|day| parts.map(|part| day[part]["count"].as_u64().expect("a count"))).sum()
}

#[track_caller]
fn checked(output: &Output, arguments: &[&str], code: i32) -> String {
    let printed = text(output);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {printed}");
    printed
}
