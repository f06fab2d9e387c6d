//! One invocation of cargo builds all test binaries and the executable that some of them start.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::shell::{self, cargo};

/// Results of the build.
#[derive(Debug, Default)]
pub(super) struct Built {
    /// `tidemark`.
    pub(super) executable: PathBuf,
    pub(super) binaries: Vec<Binary>,
}

/// A binary with tests.
#[derive(Debug)]
pub(super) struct Binary {
    /// The package's folder and the target: `api/http`; for unit tests `api/lib` or `tidemark/bin`.
    pub(super) name: String,
    /// The folder of the package, in which cargo would run it.
    pub(super) folder: PathBuf,
    pub(super) program: PathBuf,
}

impl Binary {
    /// The names of its tests.
    pub(super) fn tests(&self) -> Result<Vec<String>> {
        let listed =
            shell::output(Command::new(&self.program).args(["--list", "--format", "terse"]))?;
        let names = listed.lines().filter_map(|line| line.strip_suffix(": test"));
        Ok(names.map(str::to_owned).collect())
    }
}

/// Builds all test binaries, `tidemark` and the examples beside it.
pub(super) fn all() -> Result<Built> {
    let built = run(&["--workspace", "--bins", "--examples", "--tests"])?;
    ensure!(!built.binaries.is_empty(), "cargo built no test binary");
    Ok(built)
}

/// Builds `tidemark` as it is released, and returns its path.
pub(crate) fn release() -> Result<PathBuf> {
    Ok(run(&["--release", "--locked", "--package", "tidemark", "--bins"])?.executable)
}

fn run(arguments: &[&str]) -> Result<Built> {
    let mut command = cargo();
    command.arg("build").args(arguments).arg("--message-format=json-render-diagnostics");
    shell::announce(&command);
    let mut child = command.stdout(Stdio::piped()).spawn().context("cannot run cargo")?;
    let mut built = Built::default();
    for line in BufReader::new(child.stdout.take().context("no output")?).lines() {
        built.add(&serde_json::from_str(&line?).context("cargo writes JSON")?);
    }
    let status = child.wait()?;
    ensure!(status.success(), "cargo build ended with {status}");
    ensure!(built.executable.is_file(), "cargo built no executable `tidemark`");
    Ok(built)
}

impl Built {
    /// Adds the executable of a message of cargo, if any.
    fn add(&mut self, message: &Value) {
        let (Some(program), Some(manifest)) =
            (message["executable"].as_str(), message["manifest_path"].as_str())
        else {
            return;
        };
        let (target, program) = (&message["target"], PathBuf::from(program));
        let (name, kind) = (&target["name"], &target["kind"][0]);
        let (name, kind) = (name.as_str().unwrap_or_default(), kind.as_str().unwrap_or_default());
        if message["profile"]["test"] == true {
            let folder = Path::new(manifest).parent().unwrap_or(Path::new("."));
            let package = folder.file_name().unwrap_or_default().to_string_lossy();
            let name = format!("{package}/{}", if kind == "test" { name } else { kind });
            self.binaries.push(Binary { name, folder: folder.to_owned(), program });
        } else if name == "tidemark" {
            self.executable = program;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executables_are_found_in_the_messages_of_cargo() {
        let mut built = Built::default();
        for line in [
            r#"{"reason":"compiler-artifact","manifest_path":"/w/api/Cargo.toml","target":{"kind":["lib"],"name":"api"},"profile":{"test":false},"executable":null}"#,
            r#"{"reason":"compiler-artifact","manifest_path":"/w/api/Cargo.toml","target":{"kind":["lib"],"name":"api"},"profile":{"test":true},"executable":"/t/api-1"}"#,
            r#"{"reason":"compiler-artifact","manifest_path":"/w/api/Cargo.toml","target":{"kind":["test"],"name":"http"},"profile":{"test":true},"executable":"/t/http-2"}"#,
            r#"{"reason":"compiler-artifact","manifest_path":"/w/tidemark/Cargo.toml","target":{"kind":["bin"],"name":"tidemark"},"profile":{"test":false},"executable":"/t/tidemark"}"#,
            r#"{"reason":"build-finished","success":true}"#,
        ] {
            built.add(&serde_json::from_str(line).unwrap());
        }
        assert_eq!(built.executable, Path::new("/t/tidemark"));
        let names: Vec<_> = built.binaries.iter().map(|binary| binary.name.as_str()).collect();
        assert_eq!(names, ["api/lib", "api/http"]);
        assert_eq!(built.binaries[1].folder, Path::new("/w/api"));
        assert_eq!(built.binaries[1].program, Path::new("/t/http-2"));
    }
}
