//! Rebuild of tables in CQL from the log: in place, and in another keyspace.

use std::io::{BufRead, BufReader};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use log::embedded::EmbeddedLog;
use log::{Log, NewRecord};
use oracle::history::history;
use runtime::SystemClock;
use schemas::record::{Order, example};
use schemas::{OrderId, Partition, Topic, TransferStatus};
use store::{Change, Store};
use testkit::harness::{LAYOUT, command, exits};
use testkit::process::signal;
use testkit::tables::{CQL, Tables, assert_same, cql};
use uuid::Uuid;
use xtask::Guard;

/// The record of a change, in the partition of its row's versions.
pub(super) fn record(change: &Change) -> NewRecord {
    let encoded = |topic: Topic, id: u128| {
        let of = topic.partitions(&LAYOUT);
        let partition = Partition(u32::try_from(id % u128::from(of)).unwrap());
        match change {
            Change::Order(row) => NewRecord::encode(topic, partition, "key", row),
            Change::Deposit(row) => NewRecord::encode(topic, partition, "key", row),
            Change::Transfer(row) => NewRecord::encode(topic, partition, "key", row),
            Change::Attempt(row) => NewRecord::encode(topic, partition, "key", row),
            Change::Chain(row) => {
                let key = format!("{}/{:?}", row.blockchain, row.lane);
                NewRecord::encode(topic, partition, key.as_str(), row)
            }
        }
    };
    let record = match change {
        Change::Order(row) => encoded(Topic::Orders, row.order_id.0.as_u128()),
        Change::Deposit(row) => encoded(Topic::Deposits, row.deposit_id.0.unsigned_abs().into()),
        Change::Transfer(row) => {
            let topic = match row.status {
                TransferStatus::WaitingForConfirmation => Topic::TransfersDetected,
                TransferStatus::WaitingForMatch => Topic::TransfersConfirmed,
                TransferStatus::Matched => Topic::TransfersMatched,
                TransferStatus::NoMatchedDeposit => Topic::TransfersUnknown,
                TransferStatus::FailedToConfirm => Topic::TransfersFailed,
            };
            encoded(topic, row.transfer_id.0.unsigned_abs().into())
        }
        Change::Attempt(_) => encoded(Topic::WebhooksAttempts, 0),
        Change::Chain(_) => encoded(Topic::Chains, 0),
    };
    record.unwrap()
}

async fn write_log(dir: &Path, changes: &[Change]) -> EmbeddedLog {
    let log = EmbeddedLog::open(dir, LAYOUT, Arc::new(SystemClock)).unwrap();
    for part in changes.chunks(500) {
        log.produce(part.iter().map(record).collect()).await.unwrap();
    }
    log
}

async fn live(changes: &[Change]) -> (Tables, Arc<dyn Store>) {
    let tables = Tables::new(CQL);
    let store = tables.open().await;
    for part in changes.chunks(100) {
        store.apply(part.to_vec()).await.unwrap();
    }
    (tables, store)
}

async fn rebuild(log: &EmbeddedLog, store: &Arc<dyn Store>) {
    let (log, store, handle) = (log.clone(), store.clone(), tokio::runtime::Handle::current());
    let work = move || {
        let report = &mut |_| ControlFlow::Continue(());
        projector::rebuild(&log, &*store, &handle, report).unwrap().unwrap()
    };
    let rebuilt = tokio::task::spawn_blocking(work).await.unwrap();
    assert!(rebuilt.rows > 0 && rebuilt.rows < rebuilt.records, "{rebuilt:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn cql_tables_made_again_are_the_live_ones() {
    let changes = history(2);
    let dir = tempfile::tempdir().unwrap();
    let log = write_log(dir.path(), &changes).await;
    let (tables, store) = live(&changes).await;
    let before = tables.dump().await;
    // In place: existing rows are unchanged.
    rebuild(&log, &store).await;
    assert_same(&before, &tables.dump().await, "in place");
    // All rows were lost.
    let lost = tables.others();
    rebuild(&log, &lost.open().await).await;
    assert_same(&before, &lost.dump().await, "out of nothing");
}

/// Rows that the log no longer has come from the old keyspace.
#[tokio::test(flavor = "multi_thread")]
async fn another_keyspace_has_the_rows_of_both() {
    let changes = history(3);
    let dir = tempfile::tempdir().unwrap();
    drop(write_log(dir.path(), &changes).await);
    let (tables, store) = live(&changes).await;
    let old = Order { order_id: OrderId(Uuid::from_u128(u128::MAX)), ..example::order() };
    store.apply(vec![Change::Order(old)]).await.unwrap();

    // The folder of `new` holds the name of the new keyspace, by which its drop removes the keyspace.
    let new = tables.others();
    let into = format!("test_{}", Uuid::now_v7().simple());
    std::fs::write(new.dir().join("keyspace"), &into).unwrap();
    let (node, keyspace) = (cql::nodes().join("\", \""), cql::name(tables.dir()).unwrap());
    let data = dir.path().display();
    let text = format!(
        "[data]\ndir = \"{data}\"\n[store]\nbackend = \"cql\"\nnodes = [\"{node}\"]\nkeyspace = \"{keyspace}\"\n"
    );
    std::fs::write(dir.path().join("tidemark.toml"), text).unwrap();
    // Both names are the keyspace in use.
    for same in [keyspace.clone(), keyspace.to_uppercase()] {
        exits(dir.path(), &["tables", "rebuild", "--into", &same], 64);
    }

    let mut command = command(dir.path(), &["tables", "rebuild", "--into", &into]);
    let mut process = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let _guard = Guard::of(process.id()).expect("a guard");
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let ready = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("has everything")));
    assert!(ready.is_some(), "it ended: {:?}", process.wait());
    assert_same(&tables.dump().await, &new.dump().await, "in another keyspace");
    signal(process.id(), "TERM");
    assert!(process.wait().unwrap().success());
}
