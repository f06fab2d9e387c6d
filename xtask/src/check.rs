//! The quick gate: format, lints, documents, tidiness.

use anyhow::Result;

use crate::shell::{self, cargo};

/// Format, clippy and docs; the first that fails ends it.
pub(crate) fn lints() -> Result<()> {
    shell::run(cargo().args(["fmt", "--all", "--check"]))?;
    shell::run(cargo().args([
        "clippy",
        "--workspace",
        "--all-targets",
        "--quiet",
        "--",
        "--deny",
        "warnings",
    ]))?;
    shell::run(
        cargo()
            .args(["doc", "--workspace", "--no-deps", "--quiet"])
            .env("RUSTDOCFLAGS", "--deny warnings"),
    )
}

/// The lints and the tidy test.
pub(crate) fn run() -> Result<()> {
    lints()?;
    shell::run(cargo().args(["test", "--package", "tidemark-tests", "--test", "tidy"]))
}
