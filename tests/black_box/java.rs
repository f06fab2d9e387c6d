//! Programs in Java, each compiled once: a start from its source would compile it every time.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use testkit::process::text;

/// Sources that this process has compiled.
static COMPILED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Compiles a source file once. Returns the command that runs it with the jars that it needs.
pub(crate) fn java(source: &Path, jars: &str) -> Command {
    let class = source.file_stem().unwrap();
    let classes = Path::new(env!("CARGO_TARGET_TMPDIR")).join("java").join(class);
    let mut compiled = COMPILED.lock().unwrap();
    if compiled.insert(source.to_owned()) {
        let mut javac = Command::new("javac");
        javac.arg("-d").arg(&classes).args(["-cp", jars]).arg(source);
        let output = javac.output().expect("javac runs");
        assert!(output.status.success(), "{}", text(&output));
    }
    let mut java = Command::new("java");
    // Disables the optimizing JIT compiler, which pays off only in long runs.
    java.args(["-XX:TieredStopAtLevel=1", "-cp", &format!("{}:{jars}", classes.display())]);
    java.arg(class);
    java
}
