//! Child processes, and test variables.

use std::path::PathBuf;
use std::process::{Child, Output};

/// Value of a variable that `cargo xtask test` sets.
pub fn given(name: &str) -> String {
    let value = std::env::var_os(name).and_then(|value| value.into_string().ok());
    value.unwrap_or_else(|| panic!("{name} is not set: run the tests by `cargo xtask test`"))
}

/// File or folder in a variable that `cargo xtask test` sets.
pub fn given_path(name: &str) -> PathBuf {
    given(name).into()
}

/// Output of an ended process on both streams.
pub fn text(output: &Output) -> String {
    String::from_utf8([&output.stdout[..], &output.stderr].concat()).expect("UTF-8")
}

/// A child process that is killed on drop.
#[derive(Debug)]
pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have exited.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
