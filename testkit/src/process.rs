//! Child processes, and test variables.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output};
use std::sync::mpsc::{Receiver, channel};

/// Value of a variable that `cargo xtask test` and `cargo xtask bench` set.
pub fn given(name: &str) -> String {
    let value = std::env::var_os(name).and_then(|value| value.into_string().ok());
    value.unwrap_or_else(|| {
        panic!(
            "{name} is not set: run the tests by `cargo xtask test`, measure by `cargo xtask bench`"
        )
    })
}

/// File or folder in a variable that `cargo xtask test` sets.
pub fn given_path(name: &str) -> PathBuf {
    given(name).into()
}

/// Output of an ended process on both streams.
pub fn text(output: &Output) -> String {
    String::from_utf8([&output.stdout[..], &output.stderr].concat()).expect("UTF-8")
}

/// The lines that a child prints to its piped output, until its end.
pub(crate) fn lines_of(child: &mut Child) -> Receiver<String> {
    let (sender, lines) = channel();
    let printed = BufReader::new(child.stdout.take().expect("its output")).lines();
    std::thread::spawn(move || {
        printed.map_while(Result::ok).try_for_each(|line| sender.send(line))
    });
    lines
}

/// Sends a signal, as `kill` names it.
pub fn signal(pid: u32, name: &str) {
    let status = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status();
    assert!(status.expect("kill runs").success(), "kill -{name}");
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
