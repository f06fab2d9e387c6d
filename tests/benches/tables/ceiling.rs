//! Ceiling of the back ends: the rate at which the same servers take plain single rows.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use rusqlite::Connection;
use testkit::measure::rate;
use testkit::tables::cql;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::shop::{Shop, Volume};

/// Rows in one transaction of SQLite.
const TRANSACTION: usize = 4096;
/// Values of the mix that are written again and again.
const VALUES: usize = 8 * TRANSACTION;

/// Record bytes of the mix.
fn values() -> Vec<Vec<u8>> {
    let mut shop = Shop::new(Volume { orders: VALUES, transfers: VALUES, pending: 1000 });
    let mut records = Vec::new();
    while records.len() < VALUES {
        shop.advance(&mut records);
    }
    records.truncate(VALUES);
    records.iter().map(|record| record.value.clone().unwrap_or_default()).collect()
}

/// Rows a second of a table of a key and the record, in transactions.
pub(crate) fn sqlite(dir: &Path, rows: usize) -> u64 {
    let mut connection = Connection::open(dir.join("ceiling.sqlite")).expect("a file");
    // As the tables have it.
    let pragmas = "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; \
                   PRAGMA cache_size = -65536; \
                   CREATE TABLE plain (id BLOB NOT NULL PRIMARY KEY, record BLOB NOT NULL) STRICT";
    connection.execute_batch(pragmas).expect("a table");
    let values = values();
    let numbers: Vec<usize> = (0..rows).collect();
    let begun = Instant::now();
    for part in numbers.chunks(TRANSACTION) {
        let transaction = connection.transaction().expect("a transaction");
        {
            let insert = transaction.prepare_cached("INSERT INTO plain VALUES (?, ?)");
            let mut insert = insert.expect("prepared");
            for number in part {
                let id = (*number as u128).to_be_bytes();
                insert.execute((&id[..], &values[number % VALUES])).expect("inserted");
            }
        }
        transaction.commit().expect("committed");
    }
    rate(rows, begun.elapsed())
}

/// Inserts a second of prepared statements into a keyspace, `at_once` of them under way, each a request and a row.
pub(crate) async fn cassandra(node: &str, name: &str, rows: usize, at_once: usize) -> u64 {
    let session = cql::session_on(&[node.to_owned()]).await;
    let run = async |text: String| {
        session.query_unpaged(text, ()).await.expect("done");
    };
    let keyspace = format!(
        "CREATE KEYSPACE {name} WITH replication = \
         {{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}}"
    );
    run(keyspace).await;
    let table = format!(
        "CREATE TABLE {name}.plain (id uuid PRIMARY KEY, record blob) \
         WITH compaction = {{'class': 'LeveledCompactionStrategy'}}"
    );
    run(table).await;
    let insert = format!("INSERT INTO {name}.plain (id, record) VALUES (?, ?) USING TIMESTAMP ?");
    let insert = Arc::new(session.prepare(insert).await.expect("prepared"));
    let (session, values) = (Arc::new(session), Arc::new(values()));
    let next = Arc::new(AtomicUsize::new(0));
    let begun = Instant::now();
    let mut running = JoinSet::new();
    for _ in 0..at_once {
        let (session, insert) = (session.clone(), insert.clone());
        let (values, next) = (values.clone(), next.clone());
        running.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= rows {
                    return;
                }
                // Anywhere on the ring, as ids are.
                let id =
                    (number as u128 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
                let row = (Uuid::from_u128(id), &values[number % VALUES], number as i64 + 1);
                session.execute_unpaged(&insert, row).await.expect("inserted");
            }
        });
    }
    running.join_all().await;
    rate(rows, begun.elapsed())
}
