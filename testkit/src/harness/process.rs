//! A child process of the built executable, killed when it is dropped or the test ends.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::OnceLock;

use xtask::Guard;

use super::eventually;
use crate::process::{Killed, given_path, signal};

/// The executable, built together with the tests.
pub fn executable() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| given_path("TIDEMARK_TEST_EXECUTABLE"))
}

/// Log output of a process so far.
pub(super) fn read(log: &Path) -> String {
    std::fs::read_to_string(log).unwrap_or_default()
}

#[derive(Debug)]
pub struct Process {
    name: String,
    child: Killed,
    /// Declared after the child, so that it is dropped once the child has ended.
    _guard: Guard,
    log: PathBuf,
}

impl Process {
    /// Starts the executable with some arguments and variables. What it logs is added to
    /// `dir/<name>.log`.
    pub fn start(name: &str, dir: &Path, arguments: &[&str], variables: &[(&str, String)]) -> Self {
        let log = dir.join(format!("{name}.log"));
        let file = File::options().create(true).append(true).open(&log).expect("log file");
        let child = Command::new(executable())
            .args(arguments)
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file)
            .spawn()
            .expect("tidemark starts");
        let guard = Guard::of(child.id()).expect("a guard");
        Self { name: name.to_owned(), child: Killed(child), _guard: guard, log }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn pid(&self) -> u32 {
        self.child.0.id()
    }

    pub fn log(&self) -> String {
        read(&self.log)
    }

    pub(super) fn log_file(&self) -> &Path {
        &self.log
    }

    /// Exit status; `None` while it runs.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.0.try_wait().expect("its state")
    }

    pub fn assert_running(&mut self) {
        if let Some(status) = self.ended() {
            panic!("{} ended with {status}:\n{}", self.name, self.log());
        }
    }

    /// SIGKILL, without cleanup.
    pub fn kill(mut self) {
        assert!(self.ended().is_none(), "{} ended before the kill:\n{}", self.name, self.log());
        self.child.0.kill().expect("kill");
        self.child.0.wait().expect("its end");
    }

    /// A signal, as `kill` names it.
    pub fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    pub async fn end(mut self) -> ExitStatus {
        let what = format!("{} to stop", self.name);
        eventually(&what, || {
            let ended = self.ended();
            async move { ended }
        })
        .await
    }

    /// Waits for its end with exit code 1; returns its log.
    pub async fn refused(self) -> String {
        let file = self.log.clone();
        let (status, log) = (self.end().await, read(&file));
        assert_eq!(status.code(), Some(1), "{log}");
        log
    }

    /// SIGTERM, and waits for the orderly end.
    pub async fn stop(self) -> ExitStatus {
        self.signal("TERM");
        self.end().await
    }
}
