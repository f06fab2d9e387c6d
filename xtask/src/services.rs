//! What the tests need from outside: fetched once from package registries, kept outside the repository.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::shell;

/// A real EVM node, as an npm package with a prebuilt binary.
const ANVIL: &str = "@foundry-rs/anvil@1.7.1";

/// The folder for downloads.
fn cache() -> Result<PathBuf> {
    let base = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")));
    Ok(base.context("neither XDG_CACHE_HOME nor HOME is set")?.join("tidemark"))
}

/// The path of anvil, which is fetched if it is not there.
pub(crate) fn anvil() -> Result<PathBuf> {
    let folder = cache()?.join(ANVIL.replace(['@', '/'], "-"));
    if binary(&folder).is_none() {
        std::fs::create_dir_all(&folder)?;
        shell::run(
            Command::new("npm")
                .args(["install", "--no-audit", "--no-fund", "--prefix"])
                .arg(&folder)
                .arg(ANVIL),
        )
        .context("anvil comes from npm: is Node.js installed?")?;
    }
    let program = binary(&folder).context("the npm package has no binary for this machine")?;
    let version = shell::output(Command::new(&program).arg("--version"))?;
    ensure!(version.contains("anvil"), "{} is not anvil: {version}", program.display());
    Ok(program)
}

/// The program itself, from the package of this machine's kind. The launcher that npm puts into `.bin`
/// starts it as a child, which would outlive a launcher that is killed.
fn binary(folder: &Path) -> Option<PathBuf> {
    let packages = std::fs::read_dir(folder.join("node_modules").join("@foundry-rs")).ok()?;
    let programs = packages.flatten().map(|package| package.path().join("bin").join("anvil"));
    programs.into_iter().find(|program| {
        let is_launcher =
            program.parent().and_then(Path::parent).is_some_and(|p| p.ends_with("anvil"));
        !is_launcher && program.is_file()
    })
}

/// Fetches everything and says where it is.
pub(crate) fn show() -> Result<()> {
    shell::say(&format!("anvil: {}", anvil()?.display()));
    Ok(())
}
