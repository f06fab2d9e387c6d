//! The peer: `tests/peer/Join.java`, compiled here, as a separate process.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde::Deserialize;
use testkit::process::given_path;

/// The compiled peer.
#[derive(Debug)]
pub(crate) struct Peer {
    classes: PathBuf,
    brokers: String,
    prefix: &'static str,
    sizes: Sizes,
}

/// Bytes of the records that it writes, so that they are as large as ours.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) transfer: u64,
    pub(crate) command: u64,
    pub(crate) entry: u64,
}

/// Report that the peer prints once it has consumed all available input.
#[derive(Debug, Deserialize)]
pub(crate) struct PeerReport {
    pub(crate) inputs: u64,
    pub(crate) nanos: u64,
    pub(crate) cpu_nanos: u64,
    pub(crate) restored: u64,
    pub(crate) restore_nanos: u64,
    pub(crate) restored_resident_bytes: u64,
}

impl Peer {
    /// Compiles it into a folder.
    pub(crate) fn compile(dir: &Path, brokers: &str, prefix: &'static str, sizes: Sizes) -> Self {
        let classes = dir.join("peer");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("peer").join("Join.java");
        let mut command = Command::new("javac");
        command.arg("-d").arg(&classes).arg("-cp").arg(jars()).arg(source);
        let status = command.status().expect("javac runs: is a JDK 17 installed?");
        assert!(status.success(), "the peer does not compile");
        Self { classes, brokers: brokers.to_owned(), prefix, sizes }
    }

    /// Reads all available input.
    pub(crate) fn drain(&self, threads: usize, commit_ms: u64) -> PeerReport {
        self.start("drain", threads, commit_ms).report()
    }

    /// Runs until it is stopped.
    pub(crate) fn live(&self, threads: usize, commit_ms: u64) -> Running {
        self.start("live", threads, commit_ms)
    }

    fn start(&self, mode: &str, threads: usize, commit_ms: u64) -> Running {
        let Sizes { transfer, command: answer, entry } = self.sizes;
        let mut command = Command::new("java");
        command.args(["-Xmx3g", "-XX:+UseParallelGC", "-cp"]);
        command.arg(format!("{}:{}", self.classes.display(), jars()));
        command.args(["Join", mode, &self.brokers, self.prefix]);
        command.args([threads as u64, commit_ms, transfer, answer, entry].map(|n| n.to_string()));
        // The clients log their whole configuration at each start.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("java runs");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        Running { child, output }
    }
}

/// A running peer.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Running {
    /// Waits until it has read all available input.
    pub(crate) fn report(&mut self) -> PeerReport {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("readable");
        let report = serde_json::from_str(&line);
        report.unwrap_or_else(|error| panic!("the peer printed {line:?}: {error}"))
    }

    /// Stops it and waits for its end.
    pub(crate) fn stop(mut self) {
        drop(self.child.stdin.take());
        drop(self.child.wait());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn jars() -> String {
    given_path("TIDEMARK_TEST_KAFKA_LIB").join("*").display().to_string()
}
