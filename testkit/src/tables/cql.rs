//! Tables in CQL, in a keyspace that no other test uses meanwhile. The servers are those that `cargo xtask test`
//! starts or is given, or that the test itself starts.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::{BackEnd, Dump};
use async_trait::async_trait;
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::errors::ExecutionError;
use scylla::policies::host_filter::AllowListHostFilter;
use scylla::response::{PagingState, PagingStateResponse};
use scylla::statement::Consistency;
use scylla::value::{CqlValue, Row};
use store::config::CqlConfig;
use store::cql::{CqlStore, migrate};

use store::{Change, Error, LayeredStore, Position, Store, StoreLayer, retry};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::process::given;
use crate::wait::eventually;

/// The tables in CQL; a file in the folder has the name of the keyspace.
pub const CQL: BackEnd = BackEnd {
    name: "cql",
    cases: 5,
    open: |dir| Box::pin(open(dir)),
    dump: |dir| Box::pin(async move { dump(&nodes(), &name(&dir).expect("they were made")).await }),
    renew,
    remove,
};

/// As [`CQL`], but the keyspace of an ended test is emptied for the next: that takes a tenth of the time of creating
/// tables. For tests that leave the schema as it is. [`drop_free`] removes the keyspaces.
pub const CQL_REUSED: BackEnd = BackEnd {
    open: |dir| Box::pin(open_reused(dir)),
    remove: |dir| FREE.lock().unwrap_or_else(PoisonError::into_inner).extend(name(dir)),
    ..CQL
};

/// Name of the file that has the keyspace's name.
const FILE: &str = "keyspace";

/// Maximum number of copies of each row; fewer nodes keep one copy each.
const COPIES_MAX: u16 = 3;

/// Nodes that this process started itself.
static OWN: OnceLock<Vec<String>> = OnceLock::new();
/// Keyspaces of [`CQL_REUSED`] that no test of this process uses at present.
static FREE: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Puts the tables of this process on these nodes from now on, `host:port` each.
pub fn use_nodes(nodes: Vec<String>) {
    OWN.set(nodes).expect("it is done once");
}

/// `host:port` of the servers.
pub fn nodes() -> Vec<String> {
    let shared = || given("TIDEMARK_TEST_CQL").split(',').map(str::to_owned).collect();
    OWN.get().cloned().unwrap_or_else(shared)
}

/// Configuration of a keyspace with a copy on each of these nodes, but on three at most.
pub fn config(nodes: Vec<String>, keyspace: String) -> CqlConfig {
    CqlConfig {
        replication: u16::try_from(nodes.len()).unwrap_or(COPIES_MAX).min(COPIES_MAX),
        nodes,
        keyspace,
        datacenter: None,
        username: None,
        password: None,
        ca_file: None,
    }
}

/// A session beside the store's own.
pub async fn session() -> Session {
    session_on(&nodes()).await
}

/// As [`session`], on the given nodes.
pub async fn session_on(nodes: &[String]) -> Session {
    SessionBuilder::new()
        .known_nodes(nodes)
        .fetch_schema_metadata(false)
        .build()
        .await
        .expect("the servers answer")
}

/// A session that sends requests only to this node, which reads from the number of copies that the consistency
/// requires. `None` if the node does not answer.
async fn session_with(node: &str, consistency: Consistency) -> Option<Session> {
    let profile = ExecutionProfile::builder().consistency(consistency).build();
    let only = AllowListHostFilter::new([node]).expect("an address");
    SessionBuilder::new()
        .known_node(node)
        .host_filter(Arc::new(only))
        .default_execution_profile_handle(profile.into_handle())
        .fetch_schema_metadata(false)
        .build()
        .await
        .ok()
}

/// `true` if this node reaches every node that has a copy.
pub async fn reaches_all(node: &str, keyspace: &str) -> bool {
    let Some(session) = session_with(node, Consistency::All).await else { return false };
    rows(&session, &format!("SELECT version FROM {keyspace}.migrations")).await.is_ok()
}

/// Dumps one copy that this node reaches, as [`dump`]: the node's own, while it reaches no other.
/// `None` if the node does not answer.
pub async fn dump_of_one(node: &str, keyspace: &str) -> Option<Dump> {
    let session = session_with(node, Consistency::One).await?;
    try_dump(&session, keyspace).await.ok()
}

/// The keyspace that belongs to a folder, if it was made.
pub fn name(dir: &Path) -> Option<String> {
    fs::read_to_string(dir.join(FILE)).ok()
}

async fn open(dir: PathBuf) -> Arc<dyn Store> {
    let keyspace = match name(&dir) {
        Some(keyspace) => keyspace,
        None => create(&dir).await,
    };
    let store = CqlStore::open(&config(nodes(), keyspace)).await.expect("the tables open");
    Arc::new(LayeredStore::new(Arc::new(store), Retrying))
}

async fn create(dir: &Path) -> String {
    let keyspace = format!("test_{}", Uuid::now_v7().simple());
    fs::write(dir.join(FILE), &keyspace).expect("the folder is ours");
    migrate(&config(nodes(), keyspace.clone())).await.expect("the tables are made");
    keyspace
}

async fn open_reused(dir: PathBuf) -> Arc<dyn Store> {
    let pop = || FREE.lock().unwrap_or_else(PoisonError::into_inner).pop();
    if name(&dir).is_none()
        && let Some(keyspace) = pop()
    {
        empty(&keyspace).await;
        fs::write(dir.join(FILE), keyspace).expect("the folder is ours");
    }
    open(dir).await
}

/// Retries transient errors, as all callers of the product do: a busy single server answers late.
struct Retrying;

#[async_trait]
impl StoreLayer for Retrying {
    async fn apply(&self, store: &dyn Store, changes: Vec<Change>) -> Result<(), Error> {
        retry(|| store.apply(changes.clone())).await
    }

    async fn flush(&self, store: &dyn Store) -> Result<(), Error> {
        retry(|| store.flush()).await
    }

    async fn positions(&self, store: &dyn Store) -> Result<Vec<Position>, Error> {
        retry(|| store.positions()).await
    }

    async fn set_positions(&self, store: &dyn Store, to: &[Position]) -> Result<(), Error> {
        retry(|| store.set_positions(to)).await
    }

    async fn read<T, F>(&self, read: impl Fn() -> F + Send + Sync) -> Result<T, Error>
    where
        T: Send,
        F: Future<Output = Result<T, Error>> + Send,
    {
        retry(read).await
    }
}

/// Every row of every table with its write times, without migrations, origin and positions. The directory of lists has
/// only the entries of partitions with rows: a sweep may or may not have removed the others.
pub async fn dump(nodes: &[String], keyspace: &str) -> Dump {
    try_dump(&session_on(nodes).await, keyspace).await.expect("the tables can be read")
}

async fn try_dump(session: &Session, keyspace: &str) -> Result<Dump, ExecutionError> {
    let mut tables = columns(session, keyspace).await?;
    let mut dump = Dump::new();
    tables.remove("migrations").expect("it was migrated");
    super::ABOUT_THE_LOG.iter().for_each(|table| drop(tables.remove(*table)));
    for (table, columns) in tables {
        let mut found = if table == DIRECTORY {
            directory(session, keyspace).await?
        } else {
            let query = format!("SELECT {} FROM {keyspace}.{table}", columns.join(", "));
            let found = rows(session, &query).await?.into_iter();
            found.map(|row| format!("{:?}", row.columns)).collect()
        };
        found.sort();
        dump.insert(table, found);
    }
    Ok(dump)
}

async fn rows(session: &Session, query: &str) -> Result<Vec<Row>, ExecutionError> {
    let answer = session.query_unpaged(query, ()).await?.into_rows_result().expect("rows");
    Ok(answer.rows().expect("any row").map(|row| row.expect("a row")).collect())
}

/// The columns of every table, and the write times of those that have one.
async fn columns(
    session: &Session,
    keyspace: &str,
) -> Result<BTreeMap<String, Vec<String>>, ExecutionError> {
    let columns = format!(
        "SELECT table_name, column_name, kind FROM system_schema.columns \
         WHERE keyspace_name = '{keyspace}'"
    );
    let mut tables: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for column in rows(session, &columns).await? {
        let [table, column, kind] = &texts(column)[..] else { panic!("three columns") };
        let selected = tables.entry(table.clone()).or_default();
        selected.push(column.clone());
        if kind == "regular" || kind == "static" {
            selected.push(format!("writetime({column})"));
        }
    }
    Ok(tables)
}

/// Number of pages in which the rows of two keyspaces differ, write times included. Migrations and the directory of
/// lists are left out: the directory may have entries without rows. For tables that do not fit into memory.
pub async fn differences(node: &str, keyspaces: [&str; 2]) -> usize {
    let session = session_on(&[node.to_owned()]).await;
    let mut different = 0;
    for (table, columns) in columns(&session, keyspaces[0]).await.expect("they can be read") {
        if table == DIRECTORY || table == "migrations" {
            continue;
        }
        let mut from = [PagingState::start(), PagingState::start()].map(Some);
        while from.iter().any(Option::is_some) {
            let mut pages = Vec::new();
            for (keyspace, from) in keyspaces.iter().zip(&mut from) {
                let Some(state) = from.take() else { continue };
                let query = format!("SELECT {} FROM {keyspace}.{table}", columns.join(", "));
                let (page, next) = session.query_single_page(query, (), state).await.unwrap();
                let rows = page.into_rows_result().unwrap();
                let rows: Vec<Row> = rows.rows().unwrap().map(|row| row.unwrap()).collect();
                pages.push(rows);
                if let PagingStateResponse::HasMorePages { state } = next {
                    *from = Some(state);
                }
            }
            different += usize::from(pages.len() < 2 || pages[0] != pages[1]);
        }
    }
    different
}

/// Table with the partitions of each list.
const DIRECTORY: &str = "list_partitions";

/// The directory's entries for references, and for partitions with rows. Write times come from the writer's clock, so
/// they are left out.
async fn directory(session: &Session, keyspace: &str) -> Result<Vec<String>, ExecutionError> {
    let mut full = BTreeSet::new();
    let columns = ["list", "stage", "bucket", "blockchain", "coin", "shard"];
    let mut add = async |list: &str, stage: &str, from: &str| {
        let (table, key) = from.split_once(": ").expect("a table and its key");
        let query = format!("SELECT DISTINCT {key} FROM {keyspace}.{table}");
        for row in rows(session, &query).await? {
            let row: BTreeMap<_, _> = key.split(", ").zip(texts(row)).collect();
            let value = |column: &str| match (column, row.get(column)) {
                (_, Some(value)) => value.clone(),
                ("list", None) if list.is_empty() => row["wallet"].clone(),
                ("list", None) => list.to_owned(),
                ("stage", None) if stage.is_empty() => row["status"].clone(),
                ("stage", None) => stage.to_owned(),
                (_, None) => String::new(),
            };
            full.insert(columns.map(value).to_vec());
        }
        Ok::<_, ExecutionError>(())
    };
    add("orders", "all", "orders_by_day: bucket, shard").await?;
    add("orders", "", "orders_ended: status, bucket, shard").await?;
    add("orders", "live", "orders_pending: bucket, shard").await?;
    add("deposits", "live", "deposits_open: bucket, shard").await?;
    add("", "all", "transfers_by_day: wallet, blockchain, coin, bucket, shard").await?;
    add("", "", "transfers_ended: wallet, status, blockchain, coin, bucket, shard").await?;
    add("", "live", "transfers_waiting: wallet, bucket, shard").await?;
    let all = format!("SELECT {} FROM {keyspace}.{DIRECTORY}", columns.join(", "));
    let all = rows(session, &all).await?.into_iter().map(texts);
    let leads = all.filter(|entry| entry[0] == "references" || full.contains(entry));
    Ok(leads.map(|entry| format!("{entry:?}")).collect())
}

fn texts(row: Row) -> Vec<String> {
    row.columns.into_iter().flatten().map(text).collect()
}

fn text(value: CqlValue) -> String {
    match value {
        CqlValue::Text(text) => text,
        CqlValue::Int(number) => number.to_string(),
        other => panic!("{other:?}"),
    }
}

fn renew(old: &Path, new: &Path) {
    let Some(keyspace) = name(old) else { return };
    fs::write(new.join(FILE), &keyspace).expect("the folder is ours");
    let emptied = blocking(async move { empty(&keyspace).await });
    assert!(emptied, "the tables of a test were not emptied");
}

async fn empty(keyspace: &str) {
    let session = session().await;
    let names = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = ?";
    let answer = session.query_unpaged(names, (keyspace,)).await.expect("it is known");
    let answer = answer.into_rows_result().expect("rows");
    let session = Arc::new(session);
    let mut running = JoinSet::new();
    for row in answer.rows::<(String,)>().expect("names") {
        let (table,) = row.expect("a name");
        if table != "migrations" {
            let (session, text) = (session.clone(), format!("TRUNCATE {keyspace}.{table}"));
            running.spawn(async move {
                let emptied = || async { session.query_unpaged(&*text, ()).await.ok() };
                eventually("the table to be emptied", emptied).await;
            });
        }
    }
    running.join_all().await;
}

fn remove(dir: &Path) {
    let Some(keyspace) = name(dir) else { return };
    let removed = blocking(async move { drop_keyspace(&keyspace).await });
    // A second panic, while a failed test unwinds, would abort the process.
    assert!(removed || std::thread::panicking(), "the keyspace of a test was not removed");
}

/// Drops the unused keyspaces of [`CQL_REUSED`].
pub async fn drop_free() {
    let free = std::mem::take(&mut *FREE.lock().unwrap_or_else(PoisonError::into_inner));
    for keyspace in free {
        drop_keyspace(&keyspace).await;
    }
}

async fn drop_keyspace(keyspace: &str) {
    let text = format!("DROP KEYSPACE IF EXISTS {keyspace}");
    session().await.query_unpaged(text, ()).await.expect("it is dropped");
}

/// Runs `work`; `true` if it succeeded. On its own thread: the caller may be inside a runtime.
fn blocking(work: impl Future<Output = ()> + Send + 'static) -> bool {
    let run = || Runtime::new().expect("a runtime starts").block_on(work);
    std::thread::spawn(run).join().is_ok()
}
