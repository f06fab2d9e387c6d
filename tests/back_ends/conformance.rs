//! Conformance suites on Kafka and CQL.

use std::process::Command;

use oracle::history::history;
use testkit::log_suite::{self, OnKafka, acknowledged_appends_survive_sigkill, on_kafka};
use testkit::store_suite::{
    self, acknowledged_rows_survive_sigkill, replays_change_nothing, versions_matter,
};
use testkit::tables::{CQL, CQL_REUSED, Tables, cql};
use tokio::runtime::Runtime;

fn child() -> Command {
    Command::new(env!("CARGO_BIN_EXE_child"))
}

#[test]
fn the_kafka_log_passes_every_check() {
    log_suite::run(OnKafka::default, 6);
}

#[test]
fn acknowledged_appends_survive() {
    let topics = OnKafka::default();
    let prefix = topics.config().prefix;
    let start = || {
        let mut child = child();
        child.args(["log", "kafka", &prefix]);
        child
    };
    acknowledged_appends_survive_sigkill(|| on_kafka::open(&prefix), start, 5);
}

#[test]
fn the_cql_tables_pass_every_case() {
    // Several nodes need seconds to agree about each other's changes of the schema. A node that
    // truncates tables of more cases at once may exceed the two-second write timeout.
    let at_a_time = if cql::nodes().len() > 1 { 1 } else { 2 };
    store_suite::run(CQL_REUSED, at_a_time);
    Runtime::new().unwrap().block_on(cql::drop_free());
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_rows_survive_on_cql() {
    acknowledged_rows_survive_sigkill(&Tables::new(CQL), |dir, round| {
        let mut child = child();
        child.args(["tables", "cql"]).arg(dir).arg(round.to_string());
        child
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replays_change_no_cql_table() {
    replays_change_nothing(CQL, &history(1), 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_matter_to_cql_tables() {
    versions_matter(CQL, &history(1)).await;
}
