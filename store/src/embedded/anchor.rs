//! An idle transaction that stays open briefly, so that concurrent queries need no file lock.
//!
//! SQLite locks the file by a system call when a query begins, and unlocks it by another: a tenth of the cost of a
//! request for one order. Queries of one process that read the same commit share one lock: only the first of those that
//! overlap locks, and only the last unlocks. The anchor is such a query. Each other query still begins with the newest
//! commit; a query of a later commit than the anchor's does not share its lock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use rusqlite::Connection;

/// Duration for which the transaction stays open. Meanwhile checkpoints stop at the commit it began
/// with.
const HELD: Duration = Duration::from_millis(2);

#[derive(Debug)]
pub(super) struct Anchor {
    connection: Mutex<Connection>,
    is_held: AtomicBool,
}

/// Releases the anchor when dropped.
struct Held(Weak<Anchor>);

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(anchor) = self.0.upgrade() {
            anchor.transact(end);
            anchor.is_held.store(false, Ordering::Release);
        }
    }
}

impl Anchor {
    /// Takes a dedicated connection.
    pub(super) fn new(connection: Connection) -> Arc<Self> {
        Arc::new(Self { connection: Mutex::new(connection), is_held: AtomicBool::new(false) })
    }

    /// Holds the anchor for a moment, if it is not held. Called in a runtime, before a query.
    pub(super) fn hold(self: &Arc<Self>) {
        // It is usually held: a swap without this read would take the cache line from other threads.
        if self.is_held.load(Ordering::Relaxed) || self.is_held.swap(true, Ordering::AcqRel) {
            return;
        }
        self.transact(begin);
        let held = Held(Arc::downgrade(self));
        tokio::spawn(async move {
            tokio::time::sleep(HELD).await;
            drop(held);
        });
    }

    /// Begins or ends the transaction. A failure is only logged: without the anchor queries are
    /// slower, but correct.
    fn transact(&self, run: fn(&Connection) -> rusqlite::Result<()>) {
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = run(&connection) {
            tracing::debug!(%error, "queries of the tables lock the file each for itself");
        }
    }
}

/// Begins the transaction, which SQLite does only at its first read.
fn begin(connection: &Connection) -> rusqlite::Result<()> {
    connection.prepare_cached("BEGIN")?.execute([])?;
    connection.prepare_cached("SELECT 1 FROM sqlite_schema")?.exists([]).map(drop)
}

fn end(connection: &Connection) -> rusqlite::Result<()> {
    if connection.is_autocommit() {
        return Ok(()); // It did not begin.
    }
    connection.prepare_cached("ROLLBACK")?.execute([]).map(drop)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Instant;

    use super::*;

    fn open(path: &Path) -> Connection {
        let connection = Connection::open(path).unwrap();
        connection.busy_timeout(Duration::ZERO).unwrap();
        connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())).unwrap();
        connection
    }

    /// Writer and anchor of new tables.
    fn tables(path: &Path) -> (Connection, Arc<Anchor>) {
        let writer = open(path);
        writer.execute_batch("CREATE TABLE numbers (number INTEGER)").unwrap();
        (writer, Anchor::new(open(path)))
    }

    /// `true` if the WAL begins at its front again: no transaction is open on an earlier commit.
    fn is_free(writer: &Connection) -> bool {
        let is_busy = |row: &rusqlite::Row<'_>| row.get::<_, bool>(0);
        !writer.query_row("PRAGMA wal_checkpoint(RESTART)", [], is_busy).unwrap()
    }

    fn wait_until_free(writer: &Connection) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !is_free(writer) {
            assert!(Instant::now() < deadline, "the anchor is still held");
            std::thread::yield_now();
        }
    }

    /// A runtime in which no time passes, so that an anchor stays held.
    fn stopped_clock() -> tokio::runtime::Runtime {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().start_paused(true).build().unwrap()
    }

    #[test]
    fn a_query_beside_it_sees_what_was_committed_since() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file.sqlite");
        let (writer, anchor) = tables(&path);
        let reader = open(&path);
        let runtime = stopped_clock();
        let _entered = runtime.enter();
        anchor.hold();
        for number in 1..=3 {
            writer.execute("INSERT INTO numbers VALUES (?)", [number]).unwrap();
            assert!(!is_free(&writer), "the anchor is held");
            let max = |row: &rusqlite::Row<'_>| row.get::<_, i32>(0);
            let newest = reader.query_row("SELECT max(number) FROM numbers", [], max);
            assert_eq!(newest.unwrap(), number);
            anchor.hold();
        }
    }

    #[test]
    fn it_is_let_go_after_a_moment_and_held_again() {
        let dir = tempfile::tempdir().unwrap();
        let (writer, anchor) = tables(&dir.path().join("file.sqlite"));
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build().unwrap();
        for number in 1..=3 {
            runtime.block_on(async { anchor.hold() });
            writer.execute("INSERT INTO numbers VALUES (?)", [number]).unwrap();
            wait_until_free(&writer);
        }
    }

    #[test]
    fn a_runtime_that_ends_lets_it_go() {
        let dir = tempfile::tempdir().unwrap();
        let (writer, anchor) = tables(&dir.path().join("file.sqlite"));
        for number in 1..=2 {
            let runtime = stopped_clock();
            runtime.block_on(async { anchor.hold() });
            writer.execute("INSERT INTO numbers VALUES (?)", [number]).unwrap();
            assert!(!is_free(&writer), "the anchor is held");
            drop(runtime);
            assert!(is_free(&writer));
        }
    }
}
