//! A few connections that only read. In WAL mode they neither block the writer nor wait for it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, Row};
use tokio::sync::Semaphore;

use super::query::Select;
use crate::Error;
use crate::error::Cause;

/// Queries that run at once; the others wait.
const READERS_MAX: usize = 4;
/// How long a query waits when the file is being recovered.
pub(super) const BUSY_MAX: Duration = Duration::from_secs(5);
pub(super) const STATEMENTS_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct Readers {
    path: PathBuf,
    permits: Arc<Semaphore>,
    idle: Mutex<Vec<Connection>>,
}

impl Readers {
    pub(super) fn new(path: PathBuf) -> Arc<Self> {
        let permits = Arc::new(Semaphore::new(READERS_MAX));
        Arc::new(Self { path, permits, idle: Mutex::default() })
    }

    /// Runs a query on a thread that may block.
    pub(super) async fn rows<T: Send + 'static>(
        self: &Arc<Self>,
        select: Select,
        read: fn(&Row<'_>) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        let permit = self.permits.clone().acquire_owned().await.map_err(stopped)?;
        let readers = self.clone();
        let work = move || {
            let connection = readers.take()?;
            let rows = select.rows(&connection, read)?;
            // After a failure the connection is dropped instead: the next query opens a fresh one.
            readers.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            drop(permit);
            Ok(rows)
        };
        tokio::task::spawn_blocking(work).await.map_err(stopped)?
    }

    fn take(&self) -> Result<Connection, Error> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.map_or_else(|| Ok(self.open()?), Ok)
    }

    fn open(&self) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags)?;
        connection.busy_timeout(BUSY_MAX)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
        Ok(connection)
    }
}

fn stopped(cause: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Fatal(Cause::of(cause).context("a reader stopped"))
}
