//! Checkpoints of a SQLite file in WAL mode, beside the thread that writes it: another thread moves
//! the pages of the WAL into the main file, so that commits wait for that only once the WAL is too
//! large.
//!
//! Also copies a file that is in use, and checks a file for damage.
//!
//! Deliberately not here: what a file holds, and what its owner does when the disk fails.

#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, ErrorCode, OpenFlags};

const BOUNDS: Bounds = Bounds {
    checkpoint: 4096,
    wal_max: 16_384,
    retry: 256,
    readers_awaited: Duration::from_millis(100),
};
/// Maximum wait of a copy while the file is being recovered.
const COPY_AWAITED: Duration = Duration::from_secs(5);

/// Limits of checkpoints: pages of 4 KiB, and waits.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    /// Minimum number of new pages for which a checkpoint is worth its flushes.
    checkpoint: i32,
    /// Number of pages in the WAL from which the writer itself makes the checkpoint. Without concurrent
    /// writes it completes, so that the next transaction restarts the WAL, unless a query blocks it.
    wal_max: i32,
    /// Number of new pages after which such a checkpoint is tried again if it did not complete.
    retry: i32,
    /// Maximum wait of such a checkpoint for queries; it waits twice at most. A query by an id
    /// takes microseconds, a page of a list some milliseconds, and more on a busy machine.
    readers_awaited: Duration,
}

/// `true` if reading or writing failed below SQLite. After a failed write the system may drop the
/// data and still report success, so a later transaction could build on data that a power cut
/// loses.
#[must_use]
pub fn is_of_the_disk(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure)
}

/// A connection that writes, and the thread that makes its checkpoints.
#[derive(Debug)]
pub struct Writing {
    pub connection: Connection,
    /// Pages in the WAL since its last restart.
    pages: Arc<AtomicI32>,
    /// Number of pages when the last checkpoint was due; lower after one by the writer, so that the next comes sooner.
    checkpointed_at: i32,
    bounds: Bounds,
    /// Dropped to end the other thread.
    requests: SyncSender<()>,
    checkpointer: JoinHandle<()>,
}

impl Writing {
    /// Takes over the checkpoints of `connection`, which has `path` open. `failed` is called if the
    /// disk fails in a checkpoint on the other thread, which then makes no more.
    ///
    /// # Errors
    /// The file cannot be opened again, or the thread cannot be started.
    pub fn new(
        mut connection: Connection,
        path: &Path,
        failed: impl FnOnce(rusqlite::Error) + Send + 'static,
    ) -> io::Result<Self> {
        let pages = Arc::new(AtomicI32::new(0));
        let seen = pages.clone();
        let hook = move |_: &mut rusqlite::hooks::Wal, pages| {
            seen.store(pages, Ordering::SeqCst);
            Ok(())
        };
        // The hook replaces SQLite's own checkpoints.
        connection.wal_hook(Some(hook)).map_err(io::Error::other)?;
        let other = open_again(path).map_err(io::Error::other)?;
        let (requests, requested) = sync_channel(1);
        let checkpointer = std::thread::Builder::new()
            .name("checkpoints".to_owned())
            .spawn(move || make_checkpoints(&other, &requested).unwrap_or_else(failed))?;
        let (checkpointed_at, bounds) = (0, BOUNDS);
        Ok(Self { connection, pages, checkpointed_at, bounds, requests, checkpointer })
    }

    /// Requests or makes a checkpoint if one is due. To be called after a commit, best after its
    /// replies.
    ///
    /// # Errors
    /// The disk failed.
    pub fn checkpoint_if_due(&mut self) -> rusqlite::Result<()> {
        let pages = self.pages.load(Ordering::SeqCst);
        if pages < self.checkpointed_at {
            self.checkpointed_at = 0;
        }
        let Bounds { checkpoint, wal_max, retry, .. } = self.bounds;
        if pages - self.checkpointed_at < checkpoint {
            return Ok(());
        }
        if pages >= wal_max {
            // Retries soon if queries blocked the checkpoint until its time-out.
            self.checkpointed_at = pages - checkpoint + retry;
            return self.begin_again();
        }
        self.checkpointed_at = pages;
        // If the channel is full, a checkpoint is requested already.
        self.requests.try_send(()).ok();
        Ok(())
    }

    /// Moves everything to the main file, and waits a moment for queries that still read the WAL:
    /// then the next transaction restarts the WAL. Under continuous queries the checkpoints of the
    /// other thread would never complete.
    fn begin_again(&self) -> rusqlite::Result<()> {
        let busy_max: u32 =
            self.connection.pragma_query_value(None, "busy_timeout", |row| row.get(0))?;
        self.connection.busy_timeout(self.bounds.readers_awaited)?;
        checkpoint(&self.connection, CheckpointMode::RESTART)?;
        self.connection.busy_timeout(Duration::from_millis(busy_max.into()))
    }

    /// Moves everything to the main file and empties the WAL, as far as readers allow.
    ///
    /// # Errors
    /// The disk failed.
    pub fn close(self) -> rusqlite::Result<()> {
        drop(self.requests);
        if self.checkpointer.join().is_err() {
            tracing::error!("the thread that makes checkpoints panicked");
        }
        checkpoint(&self.connection, CheckpointMode::TRUNCATE)
    }
}

/// Opens the file again, and reads from it: a connection that has never read assumes that there is
/// no WAL, and its checkpoints do nothing.
fn open_again(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
    Ok(connection)
}

fn make_checkpoints(connection: &Connection, requested: &Receiver<()>) -> rusqlite::Result<()> {
    while requested.recv().is_ok() {
        checkpoint(connection, CheckpointMode::PASSIVE)?;
    }
    Ok(())
}

/// Makes a checkpoint. Only a failure of the disk is an error: after any other the next checkpoint
/// may get further.
fn checkpoint(connection: &Connection, mode: CheckpointMode) -> rusqlite::Result<()> {
    match connection.wal_checkpoint_v2(Some(rusqlite::MAIN_DB), mode) {
        Ok(_) => Ok(()),
        Err(error) if is_of_the_disk(&error) => Err(error),
        Err(error) => {
            tracing::debug!(%error, "a checkpoint did not reach the end");
            Ok(())
        }
    }
}

/// Opens a file for reading, by one thread at a time.
///
/// # Errors
/// The file is missing, or cannot be opened.
pub fn open_read_only(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(path, flags)
}

/// Writes a snapshot of a file, also while another process writes it, waits for the disk, and checks the copy.
///
/// # Errors
/// The file cannot be read or is damaged; the copy is there already, cannot be written, or is damaged.
pub fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let source = open_read_only(from).map_err(io::Error::other)?;
    source.busy_timeout(COPY_AWAITED).map_err(io::Error::other)?;
    let path = to.to_str().ok_or_else(|| io::Error::other("the path is no UTF-8"))?;
    source.execute("VACUUM INTO ?1", [path]).map_err(io::Error::other)?;
    File::open(to)?.sync_all()?;
    check(to)
}

/// Reads a whole file and compares its rows with its indexes. Changes nothing.
///
/// # Errors
/// It cannot be read, or is damaged.
pub fn check(path: &Path) -> io::Result<()> {
    let file = open_read_only(path).map_err(io::Error::other)?;
    let first = file.query_row("PRAGMA integrity_check(1)", [], |row| row.get::<_, String>(0));
    match first.map_err(io::Error::other)?.as_str() {
        "ok" => Ok(()),
        damage => Err(io::Error::other(format!("it is damaged: {damage}"))),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::Instant;

    use super::*;

    /// Makes a file in WAL mode.
    fn create(path: &Path) -> Connection {
        let connection = Connection::open(path).unwrap();
        connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())).unwrap();
        connection
    }

    #[test]
    fn the_other_thread_moves_pages_without_the_writer() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file.sqlite");
        let connection = create(&path);
        connection.execute_batch("CREATE TABLE blobs (blob BLOB)").unwrap();
        let size = |suffix: &str| {
            let path = dir.path().join(format!("file.sqlite{suffix}"));
            std::fs::metadata(path).map_or(0, |file| file.len())
        };
        let mut writing = Writing::new(connection, &path, |error| panic!("{error}")).unwrap();
        let megabyte = vec![7_u8; 1 << 20];
        // The writer stops when a checkpoint is due: like a reader, a concurrent transaction may
        // limit it.
        while writing.checkpointed_at == 0 {
            writing.connection.execute("INSERT INTO blobs VALUES (?)", [&megabyte]).unwrap();
            writing.checkpoint_if_due().unwrap();
        }
        let deadline = Instant::now() + Duration::from_secs(60);
        while size("") < 16 << 20 {
            assert!(Instant::now() < deadline, "the file has {} bytes", size(""));
            std::thread::yield_now();
        }
        // `close` moves the rest.
        for _ in 0..5 {
            writing.connection.execute("INSERT INTO blobs VALUES (?)", [&megabyte]).unwrap();
        }
        writing.close().unwrap();
        assert_eq!(size("-wal"), 0);
        assert!(size("") > 20 << 20);
    }

    /// The salts in the header of the WAL, which change when it restarts.
    fn salts(path: &Path) -> [u8; 8] {
        std::fs::read(path).unwrap()[16..24].try_into().unwrap()
    }

    /// Adds a page to the WAL. Returns its number of pages, and `true` if a checkpoint was tried.
    fn write(writing: &mut Writing) -> (i32, bool) {
        let before = writing.checkpointed_at;
        writing.connection.execute("UPDATE one SET n = n + 1", []).unwrap();
        writing.checkpoint_if_due().unwrap();
        (writing.pages.load(Ordering::SeqCst), writing.checkpointed_at != before)
    }

    #[test]
    fn the_wal_begins_again_once_no_query_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        let [path, wal] = ["file.sqlite", "file.sqlite-wal"].map(|name| dir.path().join(name));
        let connection = create(&path);
        connection.execute_batch("CREATE TABLE one (n); INSERT INTO one VALUES (0)").unwrap();
        let mut writing = Writing::new(connection, &path, |error| panic!("{error}")).unwrap();
        // Every checkpoint is one of the writer's own.
        let (retry, readers_awaited) = (4, Duration::from_millis(1));
        writing.bounds = Bounds { checkpoint: 16, wal_max: 16, retry, readers_awaited };
        let [reader, other] = [(); 2].map(|()| Connection::open(&path).unwrap());
        other.busy_timeout(Duration::ZERO).unwrap();
        reader.execute_batch("BEGIN; SELECT n FROM one").unwrap();
        let first = salts(&wal);
        let (mut tried, mut at) = (Vec::new(), 0);
        while at < 28 {
            let (pages, is_tried) = write(&mut writing);
            tried.extend(is_tried.then_some(pages));
            at = pages;
        }
        assert_eq!(tried, [16, 20, 24, 28]);
        assert_eq!(salts(&wal), first);

        // A query begins before the next checkpoint, and ends while the checkpoint waits for it.
        reader.execute_batch("COMMIT; BEGIN; SELECT n FROM one").unwrap();
        assert_eq!([(); 3].map(|()| write(&mut writing).0), [29, 30, 31]);
        writing.bounds.readers_awaited = Duration::from_secs(60);
        writing.connection.execute("UPDATE one SET n = n + 1", []).unwrap();
        let is_over = &AtomicBool::new(false);
        let next = std::thread::scope(|scope| {
            scope.spawn(move || {
                // The waiting checkpoint blocks other writers.
                let waits = || other.execute_batch("BEGIN IMMEDIATE; ROLLBACK").is_err();
                while !waits() && !is_over.load(Ordering::SeqCst) {}
                reader.execute_batch("COMMIT").unwrap();
            });
            writing.checkpoint_if_due().unwrap();
            let (next, _) = write(&mut writing);
            is_over.store(true, Ordering::SeqCst);
            next
        });
        assert_eq!(next, 1);
        assert_ne!(salts(&wal), first);
    }

    #[test]
    fn a_copy_is_whole_beside_a_writer() {
        let dir = tempfile::tempdir().unwrap();
        let [path, copied] = ["file.sqlite", "copy.sqlite"].map(|name| dir.path().join(name));
        let writer = create(&path);
        writer.execute_batch("CREATE TABLE numbers (number INTEGER)").unwrap();
        writer.execute_batch("INSERT INTO numbers VALUES (1), (2)").unwrap();
        writer.execute_batch("BEGIN; INSERT INTO numbers VALUES (3)").unwrap();
        copy(&path, &copied).unwrap();
        let count = |path: &Path| {
            let connection = Connection::open(path).unwrap();
            connection.query_row("SELECT count(*) FROM numbers", [], |row| row.get::<_, i64>(0))
        };
        assert_eq!(count(&copied), Ok(2), "what is committed, from the WAL as well");
        assert!(copy(&path, &copied).is_err(), "no file is written over");
        assert!(copy(&dir.path().join("none.sqlite"), &dir.path().join("new.sqlite")).is_err());
    }

    #[test]
    fn damage_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file.sqlite");
        let connection = Connection::open(&path).unwrap();
        connection.execute_batch("CREATE TABLE blobs (blob BLOB)").unwrap();
        connection.execute("INSERT INTO blobs VALUES (?)", [vec![7_u8; 1 << 16]]).unwrap();
        drop(connection);
        check(&path).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[4096..4200].fill(0xff);
        std::fs::write(&path, bytes).unwrap();
        assert!(check(&path).is_err());
    }
}
