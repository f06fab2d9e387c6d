//! Acknowledged rows survive SIGKILL.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use schemas::TransferId;
use schemas::record::{Transfer, example};
use store::{Change, Store};

use crate::process::Killed;
use crate::tables::Tables;

/// Number of times a process is killed.
const KILLS: usize = 6;
/// Minimum number of rows reported as durable before the kill.
const DURABLE_MIN: usize = 40;

/// Writes transfers from several callers and prints the id of each row that is durable, until it is
/// killed or its output is closed.
pub async fn write_until_killed(store: Arc<dyn Store>, round: i64) {
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..4_i64 {
        let store = store.clone();
        callers.spawn(async move {
            for number in 0..i64::from(u16::MAX) {
                let id = TransferId((round << 32) | (caller << 16) | number);
                let transfer = Transfer { transfer_id: id, ..example::transfer() };
                store.apply(vec![Change::Transfer(transfer)]).await.unwrap();
                let mut out = std::io::stdout().lock();
                if writeln!(out, "durable {id}").and_then(|()| out.flush()).is_err() {
                    return;
                }
            }
        });
    }
    while callers.join_next().await.is_some() {}
}

/// Starts a process by `child` for a folder and a round, kills it and checks the tables, repeatedly. The process must
/// call [`write_until_killed`].
pub async fn acknowledged_rows_survive_sigkill(
    tables: &Tables,
    child: impl Fn(&Path, usize) -> Command,
) {
    let mut durable = Vec::new();
    for round in 0..KILLS {
        let child = child(tables.dir(), round).stdout(Stdio::piped()).spawn();
        let mut child = Killed(child.expect("the child starts"));
        let lines = BufReader::new(child.0.stdout.take().expect("its output is ours")).lines();
        let before = durable.len();
        for line in lines {
            if let Some(id) = line.expect("its output is text").strip_prefix("durable ") {
                durable.push(TransferId(id.parse().expect("an id")));
            }
            if durable.len() == before + DURABLE_MIN + round * 7 {
                child.0.kill().expect("it was alive");
            }
        }
        assert!(durable.len() >= before + DURABLE_MIN, "it ended by itself");
        drop(child);
        let store = tables.open().await;
        for id in &durable {
            let row = store.transfer(*id).await.expect("the tables can be read");
            assert!(row.is_some(), "{id} was durable in round {round} and is gone");
        }
    }
}
