//! The quick gate: format, lints, documents, dependencies, tidiness.

use std::process::Command;

use anyhow::{Context, Result};

use crate::fetch;
use crate::shell::{self, cargo};
use crate::tools::{self, Kit};

/// Checks the format of the code.
pub(crate) fn format() -> Result<()> {
    shell::run(cargo().args(["fmt", "--all", "--check"]))
}

/// Runs clippy and docs with the given cargo, and stops at the first failure.
pub(crate) fn lints(cargo: fn() -> Command) -> Result<()> {
    let clippy = ["clippy", "--workspace", "--all-targets", "--quiet", "--", "--deny", "warnings"];
    shell::run(cargo().args(clippy))?;
    let doc = ["doc", "--workspace", "--no-deps", "--quiet"];
    shell::run(cargo().args(doc).env("RUSTDOCFLAGS", "--deny warnings"))
}

/// Checks the rules of `deny.toml`. Advisories are not among them: they need a database from the network, and
/// a new one would fail a change that has nothing to do with it.
pub(crate) fn dependencies() -> Result<()> {
    let mut command = Command::new(fetch::cargo_deny()?);
    command.args(["--locked", "check", "--deny", "warnings", "bans", "licenses", "sources"]);
    shell::run(command.current_dir(shell::root()))
}

/// Checks for known defects of dependencies. The database changes daily, so this is not part of the check of a change.
///
/// # Errors
/// There is an advisory, or the database cannot be fetched.
pub(crate) fn advisories() -> Result<()> {
    tools::check(Kit::Check)?;
    let deny = fetch::cargo_deny()?;
    let command = || {
        let mut command = Command::new(&deny);
        command.current_dir(shell::root());
        command
    };
    shell::run(command().args(["--locked", "fetch", "db"])).context(
        "the advisory database (github.com/rustsec/advisory-db) cannot be fetched: nothing was checked",
    )?;
    let check = ["--locked", "check", "--deny", "warnings", "advisories"];
    shell::run(command().args(check))
}

/// Checks the format, the lints, the dependencies and the tidy rules.
pub(crate) fn run() -> Result<()> {
    tools::check(Kit::Check)?;
    format()?;
    lints(cargo)?;
    dependencies()?;
    shell::run(cargo().args(["test", "--package", "tidemark-tests", "--test", "tidy"]))
}
