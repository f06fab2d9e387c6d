//! The embedded log: one SQLite file, one process, one thread that writes.
//!
//! Appends and steps queue up for the committer, which writes a batch of them in one transaction (they
//! share one fsync), then publishes them to the readers, then replies. Live readers are served from
//! memory, others by read-only connections. Groups exist in memory: all members are in this process.
//!
//! **Invariants:** acknowledged writes survive a crash, except the latest steps without records
//! (see [`Worker::commit`]); readers see whole transactions. A lock file excludes a second process.

mod assignment;
pub mod backup;
mod batch;
mod committer;
mod compaction;
mod cursor;
mod fault;
mod group;
mod maintenance;
mod plan;
mod queue;
mod read_only;
mod rows;
mod signal;
mod storage;
mod view;
mod worker;

use std::fs::{File, TryLockError};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::Connection;
use schemas::{Incarnation, Layout, Topic};

pub use self::read_only::ReadOnlyLog;
pub use self::storage::FILE;

use self::committer::Committer;
use self::group::Groups;
use self::queue::{Author, Queue, Work};
use self::storage::Readers;
use self::view::{Extent, View};
use self::worker::{EmbeddedTail, EmbeddedWorker, EmbeddedWriter};
use super::{
    Bounds, Error, Log, NewRecord, Offset, Records, Tail, TopicPartition, Worker, WorkerSpec,
    Writer,
};
use runtime::{Clock, Readiness};

/// File that is locked while a process has the folder open.
pub const LOCK_FILE: &str = "log.lock";
/// Default session time-out: a member of a group that does not poll for longer loses its partitions.
const SESSION_TIMEOUT: Duration = Duration::from_secs(10);

/// A log in a folder. Clones are the same log; it closes when the last of them, and of the workers,
/// writers and tails made by them, is dropped.
#[derive(Clone)]
pub struct EmbeddedLog {
    handle: Arc<Handle>,
}

/// Numbers of records that [`EmbeddedLog::maintain`] deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Maintained {
    pub expired: u64,
    pub compacted: u64,
}

/// State shared by all users of the log. Dropping the last reference closes the log.
struct Handle {
    shared: Arc<Shared>,
    running: Mutex<Option<Running>>,
}

struct Shared {
    layout: Layout,
    installation: String,
    incarnation: Incarnation,
    clock: Arc<dyn Clock>,
    view: View,
    queue: Queue,
    readers: Readers,
    groups: Mutex<Groups>,
    writer_epochs: AtomicU64,
    /// For tests: the next transaction is rolled back.
    fail_next: AtomicBool,
    /// Readiness of the process, if it has one.
    readiness: OnceLock<Readiness>,
    maintaining: Mutex<()>,
}

struct Running {
    committer: JoinHandle<()>,
    maintenance: JoinHandle<()>,
    /// Dropped to end the maintenance.
    stop: Sender<()>,
    /// Held until everything is closed.
    _lock: Lock,
}

impl std::fmt::Debug for EmbeddedLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbeddedLog").finish_non_exhaustive()
    }
}

impl EmbeddedLog {
    /// Opens the log in a folder, and creates both if needed. `clock` gives the append times.
    ///
    /// # Errors
    /// [`Error::Fatal`] if another process has it open, if it was made with another layout or in another
    /// format, or if the folder cannot be used.
    pub fn open(dir: &Path, layout: Layout, clock: Arc<dyn Clock>) -> Result<Self, Error> {
        let fatal = |error: std::io::Error| Error::fatal(format!("{}: {error}", dir.display()));
        std::fs::create_dir_all(dir).map_err(fatal)?;
        let lock = Lock::take(dir)?;
        let (shared, connection) = Shared::open(dir, layout, clock)?;
        let committer = Committer::new(shared.clone(), connection, dir).map_err(fatal)?;
        let handle = Arc::new(Handle { shared: shared.clone(), running: Mutex::new(None) });
        let named = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let committer = named("log-committer").spawn(move || committer.run()).map_err(fatal)?;
        let (stop, stopped) = channel();
        let maintenance = named("log-maintenance")
            .spawn(move || maintenance::run(&shared, &stopped))
            // Without this the committer would wait for ever.
            .inspect_err(|_| handle.shared.queue.close())
            .map_err(fatal)?;
        let running = Running { committer, maintenance, stop, _lock: lock };
        *handle.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(running);
        Ok(Self { handle })
    }

    /// Sets the session time-out: a member that is silent for longer loses its partitions (10 s by default).
    #[must_use]
    pub fn with_session_timeout(self, session_timeout: Duration) -> Self {
        self.handle.shared.groups().set_session_timeout(session_timeout);
        self
    }

    /// Makes the log a part of a process's readiness: not ready from a failed write until one
    /// succeeds.
    #[must_use]
    pub fn with_readiness(self, readiness: &Readiness) -> Self {
        self.handle.shared.readiness.get_or_init(|| readiness.clone());
        self
    }

    /// Deletes expired records and compacts now. Blocks.
    ///
    /// A reader that pages through a compacted topic with [`Log::read`] meanwhile may keep a key whose
    /// tombstone is deleted; [`Worker::restore`] reads one snapshot and does not.
    ///
    /// # Errors
    /// [`Error`] of the log: some records may have been deleted; a later run deletes the rest.
    pub fn maintain(&self) -> Result<Maintained, Error> {
        maintenance::maintain(&self.handle.shared, true, |_| true)
    }

    /// Finishes the queued requests and closes the file. Later reads and writes return
    /// [`Error::Fatal`]. Blocks.
    pub fn close(&self) {
        self.handle.close();
    }

    /// Makes the next transaction fail as it would on a full disk: written, then rolled back.
    #[doc(hidden)]
    pub fn fail_next_commit(&self) {
        self.handle.shared.fail_next.store(true, Ordering::SeqCst);
    }
}

/// Lock of the folder, held until dropped.
#[derive(Debug)]
pub struct Lock(File);

impl Lock {
    /// Locks a folder.
    ///
    /// # Errors
    /// [`Error::Fatal`] if another process has it, or it cannot be locked.
    pub fn take(dir: &Path) -> Result<Self, Error> {
        let path = dir.join(LOCK_FILE);
        let fatal = |error: std::io::Error| Error::fatal(format!("{}: {error}", path.display()));
        let file = File::create(&path).map_err(fatal)?;
        match file.try_lock() {
            Ok(()) => Ok(Self(file)),
            Err(TryLockError::WouldBlock) => {
                Err(Error::fatal(format!("{} is in use by another process", dir.display())))
            }
            Err(TryLockError::Error(error)) => Err(fatal(error)),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing the file is not enough: a child process that is being spawned has it open for a moment.
        if let Err(error) = self.0.unlock() {
            tracing::warn!(%error, "cannot unlock the folder of the log");
        }
    }
}

impl Handle {
    fn close(&self) {
        // A second caller waits here until the first one has closed the log.
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Running { committer, maintenance, stop, _lock }) = running.take() else { return };
        drop(stop);
        let maintained = maintenance.join();
        self.shared.queue.close();
        self.shared.view.signal.raise_for_all();
        self.shared.readers.close();
        if maintained.is_err() || committer.join().is_err() {
            tracing::error!("a thread of the log panicked; what it had answered is safe");
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    /// Opens the file, and returns its state and the connection that writes.
    fn open(
        dir: &Path,
        layout: Layout,
        clock: Arc<dyn Clock>,
    ) -> Result<(Arc<Self>, Connection), Error> {
        let loaded = storage::open(dir, &layout)?;
        let shared = Self {
            layout,
            installation: loaded.installation,
            incarnation: loaded.incarnation,
            clock,
            view: View::new(loaded.partitions, loaded.committed),
            queue: Queue::new(),
            readers: Readers::new(dir),
            groups: Mutex::new(Groups::new(layout, SESSION_TIMEOUT)),
            writer_epochs: AtomicU64::new(1),
            fail_next: AtomicBool::new(false),
            readiness: OnceLock::new(),
            maintaining: Mutex::default(),
        };
        Ok((Arc::new(shared), loaded.connection))
    }

    fn groups(&self) -> MutexGuard<'_, Groups> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn extent(&self, of: TopicPartition) -> Result<Extent, Error> {
        let none = || Error::fatal(format!("there is no partition {of}"));
        self.view.extent(of).ok_or_else(none)
    }
}

#[async_trait]
impl Log for EmbeddedLog {
    fn layout(&self) -> Layout {
        self.handle.shared.layout
    }

    fn installation(&self) -> Result<String, Error> {
        Ok(self.handle.shared.installation.clone())
    }

    fn incarnation(&self) -> Incarnation {
        self.handle.shared.incarnation
    }

    async fn produce(&self, records: Vec<NewRecord>) -> Result<(), Error> {
        if records.is_empty() {
            return Ok(());
        }
        let work = Work::Append { records, offsets: Vec::new(), author: Author::Producer };
        Ok(self.handle.shared.queue.submit(work).await?)
    }

    fn writer(&self, name: &str) -> Result<Box<dyn Writer>, Error> {
        let shared = &self.handle.shared;
        let epoch = shared.writer_epochs.fetch_add(1, Ordering::SeqCst);
        let name = name.to_owned();
        // Completes once all earlier queued steps have ended.
        shared.queue.submit_blocking(Work::Fence { name: name.clone(), epoch })?;
        Ok(Box::new(EmbeddedWriter { handle: self.handle.clone(), name, epoch }))
    }

    fn worker(&self, spec: WorkerSpec) -> Result<Box<dyn Worker>, Error> {
        self.handle.shared.queue.check_open()?;
        Ok(Box::new(EmbeddedWorker::join(self.handle.clone(), spec)))
    }

    fn tail(&self, topics: &[Topic]) -> Result<Box<dyn Tail>, Error> {
        self.handle.shared.queue.check_open()?;
        Ok(Box::new(EmbeddedTail::new(self.handle.clone(), topics)))
    }

    fn read(&self, of: TopicPartition, from: Offset, max: usize) -> Result<Records, Error> {
        self.handle.shared.queue.check_open()?;
        Ok(cursor::page(&self.handle.shared, of, from, max)?.records)
    }

    fn bounds(&self, of: TopicPartition) -> Result<Bounds, Error> {
        Ok(self.handle.shared.extent(of)?.bounds)
    }
}

#[cfg(test)]
mod tests;
