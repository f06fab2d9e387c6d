//! The same requests by wrk, a third-party tool, if installed.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use testkit::measure::rate;
use tokio::process::Command;

use crate::duration;
use crate::load::Load;

/// Requests signed before a run: valid for five minutes, and sent repeatedly.
const PREPARED: usize = 20_000;

/// Paths of the files that wrk reads.
pub(crate) struct Wrk {
    script: PathBuf,
    requests: PathBuf,
}

impl Wrk {
    /// Returns `None`, and prints so, if there is no wrk on the PATH.
    pub(crate) async fn find(dir: &Path) -> Option<Self> {
        if let Err(error) = Command::new("wrk").arg("--version").output().await {
            println!(
                "  wrk was not found on PATH ({error}): what it would measure is missing here"
            );
            return None;
        }
        let script = dir.join("wrk.lua");
        std::fs::write(&script, include_str!("wrk.lua")).expect("a script");
        Some(Self { script, requests: dir.join("wrk.requests") })
    }

    /// Sends a load over some connections and prints the result; one thread of wrk saturates a server on two cores.
    /// Checks every response.
    pub(crate) async fn run(
        &self,
        address: SocketAddr,
        (what, load): (&str, &Load),
        clients: usize,
        note: &str,
    ) {
        let prepared = (0..PREPARED).map(|number| load.request("wrk", number) + "\0");
        std::fs::write(&self.requests, prepared.collect::<String>()).expect("requests");
        let mut command = Command::new("wrk");
        command.args(["--threads", "1", "--latency", "--timeout", "10s"]);
        command.args(["--connections", &clients.to_string()]);
        command.args(["--duration", &format!("{}s", duration().as_secs()), "--script"]);
        command.arg(&self.script).arg(format!("http://{address}")).arg("--").arg(&self.requests);
        let output = command.output().await.expect("wrk runs");
        let text = String::from_utf8_lossy(&output.stdout);
        let figures = text.lines().find_map(|line| line.strip_prefix("figures "));
        let figures = figures.unwrap_or_else(|| panic!("{text}{output:?}"));
        let figures: Vec<u64> = figures.split(' ').map(|n| n.parse().expect("a number")).collect();
        let [count, micros, failed, p50, p99] = figures[..] else { panic!("{figures:?}") };
        assert_eq!(failed, 0, "{text}");
        let count = usize::try_from(count).expect("a number");
        println!(
            "  {clients:>3} connections: {} {what} a second, p50 {p50} us, p99 {p99} us   (wrk; {note})",
            rate(count, std::time::Duration::from_micros(micros))
        );
    }
}
