//! The SQLite file: its tables, its opening, and the connections that read it.
//!
//! One table holds all records, in batches by `slot << 40 | first offset`: a partition is a range
//! of row ids, appending is an insert at the end of a range, and nothing else is indexed. Every row
//! of records, partitions and offsets has a checksum: a corrupted row ends the process.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};
use schemas::{Incarnation, Layout, Partition, Topic, UnixMicros};
use uuid::Uuid;

use super::fault::StorageError;
use super::rows;
use super::view::{Extent, Slot};
use crate::{Bounds, Cause, Committed, Error, Offset, TopicPartition};

/// Name of the database file in the data folder.
pub const FILE: &str = "log.sqlite";
pub(super) const FORMAT: i64 = 2;
/// Keys of `meta`.
const INSTALLATION: &str = "installation";
pub(super) const INCARNATION: &str = "incarnation";
const READERS_IDLE_MAX: usize = 8;
/// Maximum wait for a lock of another connection; in WAL mode such waits are rare and short.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// `synchronous = FULL` makes each commit wait for the disk. The checkpoint at the start writes the
/// whole WAL to the main file: after a failed flush its pages may be only in the system's
/// cache. `journal_size_limit` shrinks the WAL file after a burst.
const PRAGMAS: &str = "
    PRAGMA synchronous = FULL;
    PRAGMA wal_checkpoint(TRUNCATE);
    PRAGMA wal_autocheckpoint = 0;
    PRAGMA journal_size_limit = 67108864;
    PRAGMA cache_size = -32768;
";

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS partitions (
        slot INTEGER PRIMARY KEY,
        topic TEXT NOT NULL,
        partition INTEGER NOT NULL,
        next_offset INTEGER NOT NULL DEFAULT 0,
        start_offset INTEGER NOT NULL DEFAULT 0,
        appended_at INTEGER NOT NULL DEFAULT 0,
        compacted_offset INTEGER NOT NULL DEFAULT 0,
        compacted_records INTEGER NOT NULL DEFAULT 0,
        checksum INTEGER NOT NULL DEFAULT 0,
        UNIQUE (topic, partition)
    );
    CREATE TABLE IF NOT EXISTS records (
        id INTEGER PRIMARY KEY,
        appended_at INTEGER NOT NULL,
        checksum INTEGER NOT NULL,
        batch BLOB NOT NULL
    );
    CREATE TABLE IF NOT EXISTS offsets (
        grp TEXT NOT NULL,
        topic TEXT NOT NULL,
        partition INTEGER NOT NULL,
        next_offset INTEGER NOT NULL,
        metadata TEXT NOT NULL,
        checksum INTEGER NOT NULL,
        PRIMARY KEY (grp, topic, partition)
    ) WITHOUT ROWID;
";

#[derive(Debug)]
pub(super) struct Loaded {
    /// The only connection that writes.
    pub(super) connection: Connection,
    pub(super) partitions: HashMap<TopicPartition, Extent>,
    /// Committed positions by group.
    pub(super) committed: HashMap<String, HashMap<TopicPartition, Committed>>,
    /// Name that [`Log::installation`](crate::Log::installation) returns.
    pub(super) installation: String,
    pub(super) incarnation: Incarnation,
}

/// Opens the file for writing, and creates it if there is none.
pub(super) fn open(dir: &Path, layout: &Layout) -> Result<Loaded, Error> {
    let path = dir.join(FILE);
    let fatal = |error: rusqlite::Error| {
        Error::Fatal(Cause::new(format!("{}: {error}", path.display()), error))
    };
    let mut connection = Connection::open(&path).map_err(fatal)?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(fatal)?;
    let mode: String = connection
        .pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))
        .map_err(fatal)?;
    if mode != "wal" {
        return Err(Error::fatal(format!(
            "{}: the file system does not support SQLite's WAL mode",
            path.display()
        )));
    }
    connection.execute_batch(PRAGMAS).map_err(fatal)?;
    connection.set_prepared_statement_cache_capacity(16);
    let tx = connection.transaction().map_err(fatal)?;
    tx.execute_batch(TABLES).map_err(fatal)?;
    check_meta(&tx, dir, layout)?;
    meta_or(&tx, INSTALLATION, random()).map_err(fatal)?;
    let installation = installation(&tx).map_err(fatal)?;
    let incarnation = meta_or(&tx, INCARNATION, 0).map(Incarnation).map_err(fatal)?;
    add_partitions(&tx, layout).map_err(fatal)?;
    tx.commit().map_err(fatal)?;
    let damaged = |error: StorageError| {
        Error::Fatal(Cause::new(format!("{}: {error}", path.display()), error))
    };
    let partitions = load_partitions(&connection, layout).map_err(damaged)?;
    let committed = load_committed(&connection).map_err(damaged)?;
    Ok(Loaded { connection, partitions, committed, installation, incarnation })
}

/// Name of the installation: the one that the file continues, or one from the random number drawn
/// when the file was created.
pub(super) fn installation(connection: &Connection) -> rusqlite::Result<String> {
    let is_there = "SELECT count(*) FROM sqlite_schema WHERE name = 'continued'";
    let tables: i64 = connection.query_row(is_there, [], |row| row.get(0))?;
    if tables > 0 {
        return connection.query_row("SELECT installation FROM continued", [], |row| row.get(0));
    }
    Ok(format!("embedded/{}", meta(connection, INSTALLATION)?.unwrap_or_default()))
}

/// Makes the file continue an installation, with this incarnation.
pub(super) fn continue_as(
    connection: &Connection,
    installation: &str,
    incarnation: Incarnation,
) -> rusqlite::Result<()> {
    connection.execute("CREATE TABLE continued (installation TEXT NOT NULL)", [])?;
    connection.execute("INSERT INTO continued VALUES (?1)", [installation])?;
    set_meta(connection, INCARNATION, incarnation.0)
}

/// Value of a key of `meta`; none if it is missing.
pub(super) fn meta(connection: &Connection, key: &str) -> rusqlite::Result<Option<i64>> {
    let select = "SELECT value FROM meta WHERE key = ?1";
    connection.query_row(select, [key], |row| row.get(0)).optional()
}

pub(super) fn set_meta(connection: &Connection, key: &str, value: i64) -> rusqlite::Result<()> {
    let insert = "INSERT OR REPLACE INTO meta (key, value) VALUES (?1, ?2)";
    connection.execute(insert, params![key, value]).map(drop)
}

/// Returns the value of a key, inserted as `new` if missing.
fn meta_or(connection: &Connection, key: &str, new: i64) -> rusqlite::Result<i64> {
    let insert = "INSERT OR IGNORE INTO meta (key, value) VALUES (?1, ?2)";
    connection.execute(insert, params![key, new])?;
    connection.query_row("SELECT value FROM meta WHERE key = ?1", [key], |row| row.get(0))
}

/// 62 random bits: the last ones of a UUIDv7.
fn random() -> i64 {
    let (_, bits) = Uuid::now_v7().as_u64_pair();
    (bits & (u64::MAX >> 2)).cast_signed()
}

/// Stores format and layout in a new file, and compares them in an old one.
fn check_meta(connection: &Connection, dir: &Path, layout: &Layout) -> Result<(), Error> {
    let dir = dir.display();
    let wanted = [
        ("format", FORMAT),
        ("lanes", i64::from(layout.lanes)),
        ("order_partitions", i64::from(layout.orders)),
        ("webhook_partitions", i64::from(layout.webhooks)),
    ];
    for (key, value) in wanted {
        let stored = meta_or(connection, key, value)
            .map_err(|error| Error::Fatal(Cause::new(format!("{dir}: {error}"), error)))?;
        if stored == value {
            continue;
        }
        return Err(Error::fatal(if key == "format" {
            format!("{dir} has log format {stored}, this program writes {value}")
        } else {
            format!(
                "{dir} was created with [log] {key} = {stored}, the configuration says {value}; \
                 partition counts never change in place"
            )
        }));
    }
    Ok(())
}

fn add_partitions(connection: &Connection, layout: &Layout) -> rusqlite::Result<()> {
    let mut insert = connection
        .prepare("INSERT OR IGNORE INTO partitions (topic, partition) VALUES (?1, ?2)")?;
    for topic in Topic::ALL {
        for partition in topic.all_partitions(layout) {
            if insert.execute(params![topic.name(), partition.0])? > 0 {
                let extent = Extent::empty(Slot(connection.last_insert_rowid()));
                rows::save_extent(connection, TopicPartition { topic, partition }, &extent)?;
            }
        }
    }
    Ok(())
}

fn load_partitions(
    connection: &Connection,
    layout: &Layout,
) -> Result<HashMap<TopicPartition, Extent>, StorageError> {
    let mut select = connection.prepare(
        "SELECT topic, partition, slot, start_offset, next_offset, appended_at, compacted_offset, compacted_records, checksum FROM partitions",
    )?;
    let mut found = select.query([])?;
    let mut partitions = HashMap::new();
    while let Some(row) = found.next()? {
        let Some(topic) = Topic::named(&row.get::<_, String>(0)?) else { continue };
        let partition = Partition(row.get(1)?);
        if partition.0 >= topic.partitions(layout) {
            continue;
        }
        let extent = Extent {
            slot: Slot(row.get(2)?),
            bounds: Bounds { start: Offset(row.get(3)?), end: Offset(row.get(4)?) },
            appended_at: UnixMicros(row.get(5)?),
            compacted_to: Offset(row.get(6)?),
            compacted_records: row.get(7)?,
        };
        let of = TopicPartition { topic, partition };
        if row.get::<_, u32>(8)? != rows::extent_checksum(of, &extent) {
            return Err(StorageError::Damaged(format!("the row of the partition {of}")));
        }
        partitions.insert(of, extent);
    }
    Ok(partitions)
}

fn load_committed(
    connection: &Connection,
) -> Result<HashMap<String, HashMap<TopicPartition, Committed>>, StorageError> {
    let mut select = connection
        .prepare("SELECT grp, topic, partition, next_offset, metadata, checksum FROM offsets")?;
    let mut found = select.query([])?;
    let mut committed: HashMap<String, HashMap<_, _>> = HashMap::new();
    while let Some(row) = found.next()? {
        let Some(topic) = Topic::named(&row.get::<_, String>(1)?) else { continue };
        let of = TopicPartition { topic, partition: Partition(row.get(2)?) };
        let at = Committed { offset: Offset(row.get(3)?), metadata: row.get(4)? };
        let group: String = row.get(0)?;
        if row.get::<_, u32>(5)? != rows::committed_checksum(&group, of, &at) {
            return Err(StorageError::Damaged(format!("the position of {group} in {of}")));
        }
        committed.entry(group).or_default().insert(of, at);
    }
    Ok(committed)
}

/// Read-only connections. Each is used by one reader at a time.
#[derive(Debug)]
pub(super) struct Readers {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
}

impl Readers {
    pub(super) fn new(dir: &Path) -> Self {
        Self { path: dir.join(FILE), idle: Mutex::default() }
    }

    pub(super) fn with<T>(
        &self,
        read: impl FnOnce(&mut Connection) -> Result<T, StorageError>,
    ) -> Result<T, Error> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut connection = idle.map_or_else(|| self.open(), Ok)?;
        // After an error the connection is dropped: a new one starts clean.
        let read = read(&mut connection)?;
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < READERS_IDLE_MAX {
            idle.push(connection);
        }
        Ok(read)
    }

    fn open(&self) -> Result<Connection, StorageError> {
        let connection = sqlite::open_read_only(&self.path)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        Ok(connection)
    }

    pub(super) fn close(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
