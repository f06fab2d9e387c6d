//! The embedded log: one SQLite file, one process, one thread that writes.
//!
//! Appends and steps queue up for the committer, which writes all that wait in one transaction (so that
//! they share one fsync), then shows them to the readers, then answers. Live readers are served from
//! memory, others by read-only connections. Groups exist in memory: all members are in this process.
//!
//! **Invariants:** what was answered survives a crash; offsets advance only with a committed
//! transaction; readers see whole transactions. A lock file keeps a second process out.

mod assignment;
mod committer;
mod cursor;
mod group;
mod maintenance;
mod onlooker;
mod queue;
mod signal;
mod storage;
mod view;
mod worker;

use std::collections::HashMap;
use std::fs::{File, TryLockError};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use async_trait::async_trait;
use schemas::{Layout, Topic};

pub use self::onlooker::Onlooker;

use self::committer::Committer;
use self::group::Groups;
use self::maintenance::Stop;
use self::queue::{Author, Queue, Work, closed};
use self::storage::Readers;
use self::view::{Standing, View};
use self::worker::{EmbeddedTail, EmbeddedWorker, EmbeddedWriter};
use super::{
    Bounds, Error, Log, NewRecord, Offset, Record, Tail, TopicPartition, Worker, WorkerSpec, Writer,
};
use runtime::Clock;

/// Locked as long as a process has the folder open.
const LOCK_FILE: &str = "log.lock";
/// How long a member of a group may be silent before it loses its partitions.
const SESSION_TIMEOUT: Duration = Duration::from_secs(10);

/// A log in a folder. Clones are the same log; it closes when the last of them, and of the workers,
/// writers and tails made by them, is dropped.
#[derive(Clone)]
pub struct EmbeddedLog {
    site: Arc<Site>,
}

/// How many records [`EmbeddedLog::maintain`] forgot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Maintained {
    /// Older than their topic keeps them.
    pub expired: u64,
    /// Superseded by a later record of their key, or tombstones.
    pub compacted: u64,
}

/// The open log and its threads.
struct Site {
    shared: Arc<Shared>,
    running: Mutex<Option<Running>>,
}

/// What the threads and the handles use together.
struct Shared {
    layout: Layout,
    clock: Arc<dyn Clock>,
    view: Arc<View>,
    queue: Arc<Queue>,
    readers: Readers,
    groups: Mutex<Groups>,
    writer_epochs: AtomicU64,
    fail_next: Arc<AtomicBool>,
    maintaining: Mutex<()>,
}

struct Running {
    committer: JoinHandle<()>,
    maintenance: JoinHandle<()>,
    stop: Arc<Stop>,
    /// Held until everything is closed.
    _lock: Lock,
}

impl std::fmt::Debug for EmbeddedLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbeddedLog").finish_non_exhaustive()
    }
}

impl EmbeddedLog {
    /// Opens the log in a folder, making both if they are not there. `clock` gives the append times.
    ///
    /// # Errors
    /// [`Error::Fatal`] if another process has it open, if it was made with another layout or by another
    /// version, or if the folder cannot be used.
    pub fn open(dir: &Path, layout: Layout, clock: Arc<dyn Clock>) -> Result<Self, Error> {
        let fatal = |error: std::io::Error| Error::fatal(format!("{}: {error}", dir.display()));
        std::fs::create_dir_all(dir).map_err(fatal)?;
        let lock = Lock::take(dir)?;
        let loaded = storage::open(dir, &layout)?;
        let shared = Arc::new(Shared {
            layout,
            clock: clock.clone(),
            view: Arc::new(View::new(loaded.partitions, loaded.committed)),
            queue: Arc::new(Queue::new()),
            readers: Readers::new(dir),
            groups: Mutex::new(Groups::new(layout, SESSION_TIMEOUT)),
            writer_epochs: AtomicU64::new(1),
            fail_next: Arc::default(),
            maintaining: Mutex::default(),
        });
        let committer = Committer {
            connection: loaded.connection,
            queue: shared.queue.clone(),
            view: shared.view.clone(),
            clock,
            fail_next: shared.fail_next.clone(),
            epochs: HashMap::new(),
        };
        let site = Arc::new(Site { shared: shared.clone(), running: Mutex::new(None) });
        let named = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let committer = named("log-committer").spawn(move || committer.run()).map_err(fatal)?;
        let stop = Arc::new(Stop::default());
        let told = stop.clone();
        let queue = shared.queue.clone();
        let maintenance = named("log-maintenance")
            .spawn(move || maintenance::run(&shared, &told))
            // Without this the committer would wait for ever.
            .inspect_err(|_| queue.close())
            .map_err(fatal)?;
        let running = Running { committer, maintenance, stop, _lock: lock };
        *site.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(running);
        Ok(Self { site })
    }

    /// Changes how long a member of a group may be silent before it loses its partitions (10 s).
    #[must_use]
    pub fn with_session_timeout(self, session_timeout: Duration) -> Self {
        self.site.shared.groups().set_session_timeout(session_timeout);
        self
    }

    /// Deletes expired records and compacts, whether or not it is time for it. Blocks.
    ///
    /// Someone who pages through a compacted topic with [`Log::read`] meanwhile may keep a key whose
    /// tombstone is gone; [`Worker::restore`] reads one moment and does not.
    ///
    /// # Errors
    /// [`Error::Transient`]: some may have been deleted; what is left is deleted next time.
    pub fn maintain(&self) -> Result<Maintained, Error> {
        maintenance::maintain(&self.site.shared, true, true)
    }

    /// Finishes what is queued and closes the file. Everything else answers [`Error::Fatal`] from now
    /// on. Blocks.
    pub fn close(&self) {
        self.site.close();
    }

    /// Makes the next transaction fail as it would on a full disk: written, then rolled back.
    #[doc(hidden)]
    pub fn fail_next_commit(&self) {
        self.site.shared.fail_next.store(true, Ordering::SeqCst);
    }
}

/// The folder is ours until this is dropped.
struct Lock(File);

impl Lock {
    fn take(dir: &Path) -> Result<Self, Error> {
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
        // Closing the file is not enough: a child process that is being started has it open for a moment.
        if let Err(error) = self.0.unlock() {
            tracing::warn!(%error, "the log's folder could not be unlocked");
        }
    }
}

impl Site {
    fn close(&self) {
        // Whoever comes second waits here until the first one has closed it.
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Running { committer, maintenance, stop, _lock }) = running.take() else { return };
        stop.stop();
        let maintained = maintenance.join();
        self.shared.queue.close();
        self.shared.view.signal.raise();
        self.shared.readers.close();
        if maintained.is_err() || committer.join().is_err() {
            tracing::error!("a thread of the log panicked; what it had answered is safe");
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn groups(&self) -> MutexGuard<'_, Groups> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn standing(&self, of: TopicPartition) -> Result<Standing, Error> {
        let none = || Error::fatal(format!("there is no partition {of}"));
        self.view.standing(of).ok_or_else(none)
    }

    fn check_open(&self) -> Result<(), Error> {
        if self.queue.is_closed() { Err(closed().into()) } else { Ok(()) }
    }
}

#[async_trait]
impl Log for EmbeddedLog {
    fn layout(&self) -> Layout {
        self.site.shared.layout
    }

    async fn produce(&self, records: Vec<NewRecord>) -> Result<(), Error> {
        if records.is_empty() {
            return Ok(());
        }
        let work = Work::Append { records, offsets: Vec::new(), author: Author::Producer };
        Ok(self.site.shared.queue.submit(work).await?)
    }

    fn writer(&self, name: &str) -> Result<Box<dyn Writer>, Error> {
        let shared = &self.site.shared;
        let epoch = shared.writer_epochs.fetch_add(1, Ordering::SeqCst);
        let name = name.to_owned();
        // Answered once every step that was queued before it is settled.
        shared.queue.submit_blocking(Work::Fence { name: name.clone(), epoch })?;
        Ok(Box::new(EmbeddedWriter { site: self.site.clone(), name, epoch }))
    }

    fn worker(&self, spec: WorkerSpec) -> Result<Box<dyn Worker>, Error> {
        self.site.shared.check_open()?;
        Ok(Box::new(EmbeddedWorker::join(self.site.clone(), spec)))
    }

    fn tail(&self, topics: &[Topic]) -> Result<Box<dyn Tail>, Error> {
        self.site.shared.check_open()?;
        Ok(Box::new(EmbeddedTail::new(self.site.clone(), topics)))
    }

    fn read(
        &self,
        of: TopicPartition,
        from: Offset,
        max: usize,
    ) -> Result<Vec<Arc<Record>>, Error> {
        self.site.shared.check_open()?;
        Ok(cursor::page(&self.site.shared, of, from, max)?.records)
    }

    fn bounds(&self, of: TopicPartition) -> Result<Bounds, Error> {
        Ok(self.site.shared.standing(of)?.bounds)
    }
}

#[cfg(test)]
mod tests;
