//! A keyspace of its own for each test that wants tables in CQL. The server is the one that
//! `cargo xtask test` starts.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use runtime::config::CqlConfig;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use store::cql::{CqlStore, migrate};
use tests::store_suite::{BackEnd, Opening};
use tokio::runtime::Runtime;
use uuid::Uuid;

/// The tables in CQL; the folder has the name of the keyspace.
pub const CQL: BackEnd =
    BackEnd { name: "cql", cases: 5, open: |dir| -> Opening { Box::pin(open(dir)) }, remove };

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

/// On a thread of its own: whoever lets go of tables may be inside a runtime.
fn remove(dir: &Path) {
    let Some(keyspace) = name(dir) else { return };
    let removal = std::thread::spawn(move || {
        Runtime::new().expect("a runtime starts").block_on(async {
            let drop_all = format!("DROP KEYSPACE IF EXISTS {keyspace}");
            session(&node()).await.query_unpaged(drop_all, ()).await.expect("it is dropped");
        });
    });
    // A test that failed already must not fail in another way.
    if removal.join().is_err() && !std::thread::panicking() {
        panic!("the keyspace of a test was not removed");
    }
}
