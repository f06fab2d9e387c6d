//! A keyspace of its own for each test that wants tables in CQL. The server is the one that
//! `cargo xtask test` starts.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{BackEnd, Dump};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::value::Row;
use store::config::CqlConfig;
use store::cql::{CqlStore, migrate};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use uuid::Uuid;

/// The tables in CQL; the folder has the name of the keyspace.
pub const CQL: BackEnd = BackEnd {
    name: "cql",
    cases: 5,
    open: |dir| Box::pin(open(dir)),
    dump: |dir| Box::pin(async move { dump(&node(), &name(&dir).expect("they were made")).await }),
    renew,
    remove,
};

/// Name of the file that has it.
const FILE: &str = "keyspace";

/// `host:port` of the server.
pub fn node() -> String {
    std::env::var_os("TIDEMARK_TEST_CQL")
        .and_then(|node| node.into_string().ok())
        .expect("TIDEMARK_TEST_CQL is not set: run the tests by `cargo xtask test`")
}

/// How to reach a keyspace.
pub fn config(node: String, keyspace: String) -> CqlConfig {
    CqlConfig {
        nodes: vec![node],
        keyspace,
        replication: 1,
        datacenter: None,
        username: None,
        password: None,
        ca_file: None,
    }
}

/// A session beside the store's own.
pub async fn session(node: &str) -> Session {
    SessionBuilder::new()
        .known_node(node)
        .fetch_schema_metadata(false)
        .build()
        .await
        .expect("the server answers")
}

/// The keyspace that belongs to a folder, if it was made.
pub fn name(dir: &Path) -> Option<String> {
    fs::read_to_string(dir.join(FILE)).ok()
}

async fn open(dir: PathBuf) -> Arc<dyn store::Store> {
    let is_new = name(&dir).is_none();
    let keyspace = name(&dir).unwrap_or_else(|| format!("test_{}", Uuid::now_v7().simple()));
    let config = config(node(), keyspace.clone());
    if is_new {
        fs::write(dir.join(FILE), &keyspace).expect("the folder is ours");
        migrate(&config).await.expect("the tables are made");
    }
    Arc::new(CqlStore::open(&config).await.expect("the tables open"))
}

/// Every row of every table with its write times, but not the migrations. Of the directory of lists only what
/// leads to rows: a partition that a row only passed through may be in it or not.
pub async fn dump(node: &str, keyspace: &str) -> Dump {
    let session = session(node).await;
    let columns = "SELECT table_name, column_name, kind FROM system_schema.columns \
                   WHERE keyspace_name = ?";
    let answer = session.query_unpaged(columns, (keyspace,)).await.unwrap();
    let answer = answer.into_rows_result().unwrap();
    let mut tables: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for column in answer.rows::<(String, String, String)>().unwrap() {
        let (table, column, kind) = column.unwrap();
        let selected = tables.entry(table).or_default();
        selected.push(column.clone());
        if kind == "regular" {
            selected.push(format!("writetime({column})"));
        }
    }
    let mut dump = Dump::new();
    tables.remove("migrations").expect("it was migrated");
    for (table, columns) in tables {
        let query = format!("SELECT {} FROM {keyspace}.{table}", columns.join(", "));
        let answer = session.query_unpaged(query, ()).await.unwrap().into_rows_result().unwrap();
        let row = |row: Row| format!("{:?}", row.columns);
        let mut rows: Vec<_> = answer.rows().unwrap().map(|found| row(found.unwrap())).collect();
        if table == DIRECTORY {
            rows = directory(&session, keyspace).await;
        }
        rows.sort();
        dump.insert(table, rows);
    }
    dump
}

/// Which partitions each list has.
const DIRECTORY: &str = "list_partitions";

/// The rows of the directory whose partitions have rows.
async fn directory(session: &Session, keyspace: &str) -> Vec<String> {
    type Entry = (String, i32, String, String, String, i32);
    let query = async |what: &str| {
        let answer = session.query_unpaged(what.replace("FROM ", &format!("FROM {keyspace}.")), ());
        answer.await.unwrap().into_rows_result().unwrap()
    };
    let orders = query("SELECT DISTINCT status, bucket, shard FROM orders_listed").await;
    let orders = orders.rows::<(String, i32, i32)>().unwrap().map(|row| {
        let (status, bucket, shard) = row.unwrap();
        ("orders".to_owned(), bucket, status, String::new(), String::new(), shard)
    });
    let transfers =
        "SELECT DISTINCT wallet, bucket, stage, blockchain, coin, shard FROM transfers_listed";
    let transfers = query(transfers).await;
    let transfers = transfers.rows::<Entry>().unwrap().map(Result::unwrap);
    let full: BTreeSet<Entry> = orders.chain(transfers).collect();
    let all = "SELECT list, bucket, stage, blockchain, coin, shard FROM list_partitions";
    let all = query(all).await;
    let all = all.rows::<Entry>().unwrap().map(Result::unwrap);
    let leads = all.filter(|entry| entry.0 == "references" || full.contains(entry));
    leads.map(|entry| format!("{entry:?}")).collect()
}

/// To empty tables takes a tenth of the time that it takes to make them.
fn renew(old: &Path, new: &Path) {
    let Some(keyspace) = name(old) else { return };
    fs::write(new.join(FILE), &keyspace).expect("the folder is ours");
    let emptied = blocking(async move {
        let session = session(&node()).await;
        let names = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = ?";
        let answer = session.query_unpaged(names, (&keyspace,)).await.expect("it is known");
        let answer = answer.into_rows_result().expect("rows");
        let session = Arc::new(session);
        let mut running = JoinSet::new();
        for row in answer.rows::<(String,)>().expect("names") {
            let (table,) = row.expect("a name");
            if table != "migrations" {
                let (session, text) = (session.clone(), format!("TRUNCATE {keyspace}.{table}"));
                running.spawn(async move { session.query_unpaged(text, ()).await });
            }
        }
        for emptied in running.join_all().await {
            emptied.expect("it is emptied");
        }
    });
    assert!(emptied, "the tables of a test were not emptied");
}

fn remove(dir: &Path) {
    let Some(keyspace) = name(dir) else { return };
    let removed = blocking(async move {
        let drop_all = format!("DROP KEYSPACE IF EXISTS {keyspace}");
        session(&node()).await.query_unpaged(drop_all, ()).await.expect("it is dropped");
    });
    // A test that failed already must not fail in another way.
    assert!(removed || std::thread::panicking(), "the keyspace of a test was not removed");
}

/// Whether it succeeded. On a thread of its own: the caller may be inside a runtime.
fn blocking(work: impl Future<Output = ()> + Send + 'static) -> bool {
    let run = || Runtime::new().expect("a runtime starts").block_on(work);
    std::thread::spawn(run).join().is_ok()
}
