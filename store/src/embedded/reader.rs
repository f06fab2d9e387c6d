//! A few connections that only read. In WAL mode they neither block the writer nor wait for it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;
use std::time::Duration;

use rusqlite::{Connection, Row};
use tokio::sync::Semaphore;

use super::anchor::Anchor;
use super::query::Select;
use crate::Error;
use crate::error::Cause;

/// Maximum number of queries that run at once on threads that may block; the others wait.
const READERS_MAX: usize = 4;
/// Maximum wait of a query while the file is being recovered.
pub(super) const BUSY_MAX: Duration = Duration::from_secs(5);
/// Page cache of a connection. A page deep in a list is found by reading some MB of an index.
const CACHE_KIB: i32 = 8192;
pub(super) const STATEMENTS_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct Readers {
    path: PathBuf,
    permits: Arc<Semaphore>,
    idle: Mutex<Vec<Connection>>,
    /// Connections for queries on the callers' threads. A query never waits for one.
    at_once: Vec<Mutex<Connection>>,
    anchor: Arc<Anchor>,
}

impl Readers {
    /// Opens tables that exist.
    pub(super) fn new(path: PathBuf) -> rusqlite::Result<Arc<Self>> {
        let permits = Arc::new(Semaphore::new(READERS_MAX));
        let threads = available_parallelism().map_or(1, usize::from).min(READERS_MAX);
        let connection = |_| open(&path, Duration::ZERO).map(Mutex::new);
        let at_once = (0..threads).map(connection).collect::<Result<_, _>>()?;
        let anchor = Anchor::new(open(&path, Duration::ZERO)?);
        Ok(Arc::new(Self { path, permits, idle: Mutex::default(), at_once, anchor }))
    }

    /// Reads one object by its id, on the caller's thread if a connection is free: a switch to
    /// another thread takes longer than the query. Pages that are not in memory block the caller's
    /// thread. If the file is being recovered, or if anything fails, the query runs on a thread that
    /// may block.
    pub(super) async fn row<T: Send + 'static>(
        self: &Arc<Self>,
        select: Select,
        read: fn(&Row<'_>) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        let mut rows = match self.rows_at_once(&select, read) {
            Some(rows) => rows,
            None => self.rows(select, read).await?,
        };
        Ok(rows.pop())
    }

    /// Returns the rows of a query; none if it would have to wait, or fails.
    fn rows_at_once<T>(
        &self,
        select: &Select,
        read: fn(&Row<'_>) -> Result<T, Error>,
    ) -> Option<Vec<T>> {
        self.anchor.hold();
        let connection = self.at_once.iter().find_map(|connection| connection.try_lock().ok())?;
        select.rows(&connection, read).ok()
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a query on a thread that may block.
    pub(super) async fn rows<T: Send + 'static>(
        self: &Arc<Self>,
        select: Select,
        read: fn(&Row<'_>) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        self.with(move |connection| select.rows(connection, read)).await
    }

    /// Runs queries on a thread that may block.
    pub(super) async fn with<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let permit = self.permits.clone().acquire_owned().await.map_err(stopped)?;
        let readers = self.clone();
        let work = move || {
            let connection = readers.take()?;
            let found = read(&connection)?;
            // After a failure the connection is dropped instead: the next query opens a fresh one.
            readers.idle().push(connection);
            drop(permit);
            Ok(found)
        };
        tokio::task::spawn_blocking(work).await.map_err(stopped)?
    }

    fn take(&self) -> Result<Connection, Error> {
        let idle = self.idle().pop();
        idle.map_or_else(|| Ok(open(&self.path, BUSY_MAX)?), Ok)
    }
}

pub(super) fn open(path: &Path, busy_max: Duration) -> rusqlite::Result<Connection> {
    let connection = sqlite::open_read_only(path)?;
    connection.busy_timeout(busy_max)?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    Ok(connection)
}

fn stopped(cause: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Fatal(Cause::of(cause).context("a reader stopped"))
}
