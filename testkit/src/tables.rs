//! Tables to test with, on each back end, and dumps of them.

pub mod cql;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

pub use cql::{CQL, CQL_REUSED};
use rusqlite::types::Value;
use store::Store;
use store::embedded::EmbeddedStore;
use tempfile::TempDir;

/// A future of a [`BackEnd`].
pub type Pending<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Tables with the log's identity and positions in it, which a [`Dump`] leaves out.
const ABOUT_THE_LOG: [&str; 2] = ["origin", "positions"];

/// Every row of every table but those about the log, each as a text.
pub type Dump = BTreeMap<String, Vec<String>>;

#[derive(Debug, Clone, Copy)]
pub struct BackEnd {
    pub name: &'static str,
    /// Number of random cases: few where tables take seconds to make.
    pub cases: u32,
    /// Opens the tables of a folder, creating them if missing; can be called again after they were closed.
    pub open: fn(PathBuf) -> Pending<Arc<dyn Store>>,
    pub dump: fn(PathBuf) -> Pending<Dump>,
    /// Empties the tables of the first folder for use by the second, where that is faster than creating others. Blocks.
    pub renew: fn(&Path, &Path),
    /// Removes data outside the folder, or frees it for another test. Blocks.
    pub remove: fn(&Path),
}

/// The tables in SQLite, in the folder itself.
pub const EMBEDDED: BackEnd = BackEnd {
    name: "embedded",
    cases: 40,
    open: |dir| {
        Box::pin(async move {
            let store: Arc<dyn Store> = Arc::new(EmbeddedStore::open(&dir).unwrap());
            store
        })
    },
    dump: |dir| Box::pin(async move { dump_embedded(&dir) }),
    renew: |_, _| {},
    remove: |_| {},
};

/// The back end of the tests of this process: SQLite unless `TIDEMARK_TEST_TABLES` is `cql`.
pub fn chosen() -> BackEnd {
    let Some(name) = std::env::var_os("TIDEMARK_TEST_TABLES") else { return EMBEDDED };
    assert_eq!(name, CQL.name, "TIDEMARK_TEST_TABLES");
    CQL_REUSED
}

/// Tables of a back end in a temporary folder, removed on drop.
#[derive(Debug)]
pub struct Tables {
    back_end: BackEnd,
    dir: TempDir,
}

impl Tables {
    pub fn new(back_end: BackEnd) -> Self {
        Self { back_end, dir: tempfile::tempdir().unwrap() }
    }

    pub fn back_end(&self) -> BackEnd {
        self.back_end
    }

    /// Folder of the tables, or of the file that names them.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub async fn open(&self) -> Arc<dyn Store> {
        (self.back_end.open)(self.dir.path().to_owned()).await
    }

    pub async fn dump(&self) -> Dump {
        (self.back_end.dump)(self.dir.path().to_owned()).await
    }

    /// Empties them. They must not be open.
    pub fn renew(&mut self) {
        let dir = tempfile::tempdir().unwrap();
        (self.back_end.renew)(self.dir.path(), dir.path());
        self.dir = dir;
    }

    /// Other tables of the same back end, empty.
    pub fn others(&self) -> Self {
        Self::new(self.back_end)
    }
}

impl Drop for Tables {
    fn drop(&mut self) {
        (self.back_end.remove)(self.dir.path());
    }
}

/// Changes one row of the SQLite tables in a folder by SQL, as an operator would.
pub fn change_by_hand(dir: &Path, sql: &str) {
    let connection = rusqlite::Connection::open(dir.join("tables.sqlite")).unwrap();
    let changed = connection.execute(sql, []).unwrap();
    assert_eq!(changed, 1, "{sql}");
}

fn dump_embedded(dir: &Path) -> Dump {
    let connection = rusqlite::Connection::open(dir.join("tables.sqlite")).unwrap();
    let names = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name";
    let mut names = connection.prepare(names).unwrap();
    let names = names.query_map([], |row| row.get(0)).unwrap();
    let dump_table = |name: rusqlite::Result<String>| {
        let name = name.unwrap();
        let mut statement = connection.prepare(&format!("SELECT * FROM {name}")).unwrap();
        let columns = statement.column_count();
        let row = |row: &rusqlite::Row<'_>| -> rusqlite::Result<String> {
            let values: Vec<Value> = (0..columns).map(|n| row.get(n)).collect::<Result<_, _>>()?;
            Ok(format!("{values:?}"))
        };
        let rows = statement.query_map([], row).unwrap();
        let mut rows: Vec<_> = rows.collect::<Result<_, _>>().unwrap();
        rows.sort();
        (name, rows)
    };
    let mut dump: Dump = names.map(dump_table).collect();
    ABOUT_THE_LOG.iter().for_each(|table| drop(dump.remove(*table)));
    dump
}

/// Maximum number of rows shown of those that only one of two dumps has, per table and dump.
const SHOWN_MAX: usize = 5;

pub fn assert_same(before: &Dump, after: &Dump, what: &str) {
    assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>(), "{what}");
    let mut found = String::new();
    for (table, rows) in before {
        let after = &after[table];
        for (side, rows, others) in [("before", rows, after), ("after", after, rows)] {
            let others: BTreeSet<_> = others.iter().collect();
            let lacking: Vec<_> = rows.iter().filter(|row| !others.contains(row)).collect();
            if !lacking.is_empty() {
                let shown = &lacking[..lacking.len().min(SHOWN_MAX)];
                found += &format!("{table} has {} rows only {side}: {shown:#?}\n", lacking.len());
            }
        }
        if rows.len() != after.len() {
            found +=
                &format!("{table} has {} rows before, and {} after\n", rows.len(), after.len());
        }
    }
    assert!(found.is_empty(), "{what}: {found}");
}
