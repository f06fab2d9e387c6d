//! The SQLite file: its tables, opening, writing and reading.
//!
//! One table holds all records, by `slot << 40 | offset`: a partition is a range of row ids, appending
//! is an insert at the end of a range, and nothing else is indexed.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, Params, params};
use schemas::{Headers, Layout, Partition, Topic, UnixMicros};

use super::view::{Extent, PAGE_BYTES_MAX, Page, Slot, size};
use crate::{Bounds, Cause, Committed, Error, Offset, Record, StepError, TopicPartition};

/// The database in the data folder.
pub(super) const FILE: &str = "log.sqlite";
/// Version of the tables.
pub(super) const FORMAT: i64 = 1;
/// Bits of a row id that are the offset.
const OFFSET_BITS: u32 = 40;
const READERS_IDLE_MAX: usize = 8;
/// How long to wait for a lock of another connection; in WAL mode that is rare and short.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// FULL makes each commit wait for the disk. A checkpoint after 16 MiB of log bounds the WAL, the limit
/// returns what a burst took.
const PRAGMAS: &str = "
    PRAGMA synchronous = FULL;
    PRAGMA wal_autocheckpoint = 4096;
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
        UNIQUE (topic, partition)
    );
    CREATE TABLE IF NOT EXISTS records (
        id INTEGER PRIMARY KEY,
        appended_at INTEGER NOT NULL,
        key BLOB NOT NULL,
        value BLOB,
        headers BLOB NOT NULL
    );
    CREATE TABLE IF NOT EXISTS offsets (
        grp TEXT NOT NULL,
        topic TEXT NOT NULL,
        partition INTEGER NOT NULL,
        next_offset INTEGER NOT NULL,
        metadata TEXT NOT NULL,
        PRIMARY KEY (grp, topic, partition)
    ) WITHOUT ROWID;
";

#[derive(Debug, thiserror::Error)]
pub(super) enum StorageError {
    #[error("{0}")]
    Sqlite(#[from] rusqlite::Error),
    /// The row id of a record that cannot be parsed.
    #[error("record {0} is damaged")]
    Damaged(i64),
}

impl StorageError {
    /// Whether a retry cannot succeed.
    fn is_fatal(&self) -> bool {
        match self {
            Self::Damaged(_) => true,
            Self::Sqlite(error) => matches!(
                error.sqlite_error_code(),
                None | Some(
                    ErrorCode::DatabaseCorrupt
                        | ErrorCode::NotADatabase
                        | ErrorCode::ConstraintViolation
                )
            ),
        }
    }
}

impl From<StorageError> for StepError {
    fn from(error: StorageError) -> Self {
        let is_fatal = error.is_fatal();
        let cause = Cause::new(error.to_string(), error);
        if is_fatal { Self::Fatal(cause) } else { Self::Aborted(cause) }
    }
}

impl From<StorageError> for Error {
    fn from(error: StorageError) -> Self {
        StepError::from(error).into()
    }
}

#[derive(Debug)]
pub(super) struct Loaded {
    /// The only connection that writes.
    pub(super) connection: Connection,
    pub(super) partitions: HashMap<TopicPartition, Extent>,
    /// By group.
    pub(super) committed: HashMap<String, HashMap<TopicPartition, Committed>>,
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
    add_partitions(&tx, layout).map_err(fatal)?;
    tx.commit().map_err(fatal)?;
    let partitions = load_partitions(&connection, layout).map_err(fatal)?;
    let committed = load_committed(&connection).map_err(fatal)?;
    Ok(Loaded { connection, partitions, committed })
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
        let stored: i64 = connection
            .execute("INSERT OR IGNORE INTO meta (key, value) VALUES (?1, ?2)", params![key, value])
            .and_then(|_| {
                connection.query_row("SELECT value FROM meta WHERE key = ?1", [key], |r| r.get(0))
            })
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
            insert.execute(params![topic.name(), partition.0])?;
        }
    }
    Ok(())
}

fn load_partitions(
    connection: &Connection,
    layout: &Layout,
) -> rusqlite::Result<HashMap<TopicPartition, Extent>> {
    let mut select = connection.prepare(
        "SELECT topic, partition, slot, start_offset, next_offset, appended_at FROM partitions",
    )?;
    let mut rows = select.query([])?;
    let mut partitions = HashMap::new();
    while let Some(row) = rows.next()? {
        let Some(topic) = Topic::named(row.get_ref(0)?.as_str()?) else { continue };
        let partition = Partition(row.get(1)?);
        if partition.0 >= topic.partitions(layout) {
            continue;
        }
        let extent = Extent {
            slot: Slot(row.get(2)?),
            bounds: Bounds { start: Offset(row.get(3)?), end: Offset(row.get(4)?) },
            appended_at: UnixMicros(row.get(5)?),
        };
        partitions.insert(TopicPartition { topic, partition }, extent);
    }
    Ok(partitions)
}

fn load_committed(
    connection: &Connection,
) -> rusqlite::Result<HashMap<String, HashMap<TopicPartition, Committed>>> {
    let mut select =
        connection.prepare("SELECT grp, topic, partition, next_offset, metadata FROM offsets")?;
    let mut rows = select.query([])?;
    let mut committed: HashMap<String, HashMap<_, _>> = HashMap::new();
    while let Some(row) = rows.next()? {
        let Some(topic) = Topic::named(row.get_ref(1)?.as_str()?) else { continue };
        let of = TopicPartition { topic, partition: Partition(row.get(2)?) };
        let at = Committed { offset: Offset(row.get(3)?), metadata: row.get(4)? };
        committed.entry(row.get(0)?).or_default().insert(of, at);
    }
    Ok(committed)
}

/// Whether a row id can hold this offset.
pub(super) fn fits(offset: Offset) -> bool {
    (0..1 << OFFSET_BITS).contains(&offset.0)
}

fn row_id(slot: Slot, offset: Offset) -> i64 {
    (slot.0 << OFFSET_BITS) | offset.0.clamp(0, (1 << OFFSET_BITS) - 1)
}

fn offset_of(row_id: i64) -> Offset {
    Offset(row_id & ((1 << OFFSET_BITS) - 1))
}

fn execute(connection: &Connection, sql: &str, params: impl Params) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute(params).map(drop)
}

pub(super) fn insert(connection: &Connection, slot: Slot, record: &Record) -> rusqlite::Result<()> {
    let Record { offset, appended_at, key, value, headers, .. } = record;
    execute(
        connection,
        "INSERT INTO records (id, appended_at, key, value, headers) VALUES (?1, ?2, ?3, ?4, ?5)",
        params![row_id(slot, *offset), appended_at.0, key, value, headers.as_bytes()],
    )
}

pub(super) fn save_end(
    connection: &Connection,
    slot: Slot,
    end: Offset,
    appended_at: UnixMicros,
) -> rusqlite::Result<()> {
    let update = "UPDATE partitions SET next_offset = ?2, appended_at = ?3 WHERE slot = ?1";
    execute(connection, update, params![slot.0, end.0, appended_at.0])
}

pub(super) fn save_committed(
    connection: &Connection,
    group: &str,
    of: TopicPartition,
    committed: &Committed,
) -> rusqlite::Result<()> {
    let Committed { offset, metadata } = committed;
    execute(
        connection,
        "INSERT OR REPLACE INTO offsets (grp, topic, partition, next_offset, metadata) \
         VALUES (?1, ?2, ?3, ?4, ?5)",
        params![group, of.topic.name(), of.partition.0, offset.0, metadata],
    )
}

/// Deletes a partition's records in `from..below` and stores its new start.
pub(super) fn trim(
    connection: &Connection,
    slot: Slot,
    from: Offset,
    below: Offset,
) -> rusqlite::Result<()> {
    let delete = "DELETE FROM records WHERE id >= ?1 AND id < ?2";
    execute(connection, delete, params![row_id(slot, from), row_id(slot, below)])?;
    let update = "UPDATE partitions SET start_offset = ?2 WHERE slot = ?1";
    execute(connection, update, params![slot.0, below.0])
}

pub(super) fn remove(connection: &Connection, slot: Slot, offset: Offset) -> rusqlite::Result<()> {
    execute(connection, "DELETE FROM records WHERE id = ?1", [row_id(slot, offset)])
}

/// Reads a partition's records in `from..end`, at most `max` and about [`PAGE_BYTES_MAX`].
pub(super) fn page(
    connection: &Connection,
    of: TopicPartition,
    slot: Slot,
    from: Offset,
    end: Offset,
    max: usize,
) -> Result<Page<Record>, StorageError> {
    let mut select = connection.prepare_cached(
        "SELECT id, appended_at, key, value, headers FROM records \
         WHERE id >= ?1 AND id < ?2 ORDER BY id LIMIT ?3",
    )?;
    let limit = i64::try_from(max).unwrap_or(i64::MAX);
    let mut rows = select.query(params![row_id(slot, from), row_id(slot, end), limit])?;
    let mut records: Vec<Record> = Vec::new();
    let mut bytes = 0_usize;
    while let Some(row) = rows.next()? {
        let id: i64 = row.get(0)?;
        let record = Record {
            from: of,
            offset: offset_of(id),
            appended_at: UnixMicros(row.get(1)?),
            key: row.get(2)?,
            value: row.get(3)?,
            headers: Headers::from_bytes(row.get(4)?).ok_or(StorageError::Damaged(id))?,
        };
        bytes = bytes.saturating_add(size(&record));
        let next = record.offset.next();
        records.push(record);
        if records.len() >= max || bytes >= PAGE_BYTES_MAX {
            return Ok(Page { records, next });
        }
    }
    Ok(Page { records, next: end })
}

/// Calls `apply` with every record of a partition, in one snapshot.
pub(super) fn scan(
    connection: &mut Connection,
    of: TopicPartition,
    slot: Slot,
    apply: &mut dyn FnMut(Record),
) -> Result<(), StorageError> {
    const PAGE_RECORDS: usize = 1000;
    // One read transaction: between two of them compaction could drop a tombstone whose older record
    // was already given to `apply`.
    let snapshot = connection.transaction()?;
    let end = snapshot
        .prepare_cached("SELECT next_offset FROM partitions WHERE slot = ?1")?
        .query_row([slot.0], |row| row.get(0).map(Offset))?;
    let mut next = Offset(0);
    while next < end {
        let page = page(&snapshot, of, slot, next, end, PAGE_RECORDS)?;
        next = page.next;
        page.records.into_iter().for_each(&mut *apply);
    }
    snapshot.finish()?;
    Ok(())
}

/// How many of a partition's first `max` records were appended before `time`, and the offset after them.
pub(super) fn front_before(
    connection: &Connection,
    slot: Slot,
    bounds: Bounds,
    time: UnixMicros,
    max: usize,
) -> Result<Option<(u64, Offset)>, StorageError> {
    let mut select = connection.prepare_cached(
        "SELECT count(*), max(id) FROM (SELECT id, appended_at FROM records \
         WHERE id >= ?1 AND id < ?2 ORDER BY id LIMIT ?3) WHERE appended_at < ?4",
    )?;
    let limit = i64::try_from(max).unwrap_or(i64::MAX);
    let range = params![row_id(slot, bounds.start), row_id(slot, bounds.end), limit, time.0];
    let (count, last) = select
        .query_row(range, |row| Ok((row.get::<_, u32>(0)?, row.get::<_, Option<i64>>(1)?)))?;
    Ok(last.map(|last| (u64::from(count), offset_of(last).next())))
}

/// The records of a partition that compaction removes: superseded ones first, then the tombstones that are
/// the last of their keys.
pub(super) fn superseded(
    connection: &Connection,
    slot: Slot,
    end: Offset,
) -> Result<Vec<Offset>, StorageError> {
    let mut select = connection.prepare_cached(
        "SELECT id FROM (SELECT id, value IS NULL AS tombstone, \
           LEAD(id) OVER (PARTITION BY key ORDER BY id) AS later \
           FROM records WHERE id >= ?1 AND id < ?2) \
         WHERE later IS NOT NULL OR tombstone ORDER BY later IS NULL",
    )?;
    let rows =
        select.query_map(params![row_id(slot, Offset(0)), row_id(slot, end)], |row| row.get(0))?;
    rows.map(|id| Ok(offset_of(id?))).collect()
}

/// Moves everything to the main file and empties the WAL, as far as readers allow.
pub(super) fn checkpoint(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
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
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        Ok(connection)
    }

    pub(super) fn close(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
