//! Conformance suites on the embedded log and tables.

use std::process::Command;

use oracle::history::history;
use testkit::log_suite::{
    self, Embedded, a_failed_disk_ends_the_log_and_loses_nothing,
    acknowledged_appends_survive_sigkill, embedded,
};
use testkit::store_suite::{
    self, acknowledged_rows_survive_sigkill, replays_change_nothing, versions_matter,
};
use testkit::tables::{EMBEDDED, Tables};

fn child() -> Command {
    Command::new(env!("CARGO_BIN_EXE_child"))
}

#[test]
fn the_embedded_log_passes_every_check() {
    log_suite::run(Embedded::default, 1);
}

#[test]
fn acknowledged_appends_survive() {
    let dir = tempfile::tempdir().unwrap();
    let start = || {
        let mut child = child();
        child.args(["log", "embedded"]).arg(dir.path());
        child
    };
    acknowledged_appends_survive_sigkill(|| embedded::open(dir.path()), start, 12);
}

/// A file may have 2 MiB: the write after that fails as on a broken disk, not as on a full one.
#[test]
fn a_failed_disk_ends_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let limited = "trap '' XFSZ; ulimit -f 4096; exec \"$0\" \"$@\"";
    let mut child = Command::new("sh");
    child.args(["-c", limited, env!("CARGO_BIN_EXE_child"), "full log"]).arg(dir.path());
    a_failed_disk_ends_the_log_and_loses_nothing(|| embedded::open(dir.path()), child);
}

#[test]
fn the_embedded_tables_pass_every_case() {
    store_suite::run(EMBEDDED, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_rows_survive() {
    acknowledged_rows_survive_sigkill(&Tables::new(EMBEDDED), |dir, round| {
        let mut child = child();
        child.args(["tables", "embedded"]).arg(dir).arg(round.to_string());
        child
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replays_change_no_embedded_table() {
    replays_change_nothing(EMBEDDED, &history(1), 20).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_matter_to_embedded_tables() {
    versions_matter(EMBEDDED, &history(1)).await;
}
