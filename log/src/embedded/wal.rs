//! The connection that writes. What it appends to the WAL another thread moves into the main file, so that
//! no commit waits for that.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use rusqlite::Connection;
use rusqlite::wal::CheckpointMode;

use super::fault::StorageError;
use super::queue::Queue;
use super::storage;
use crate::{Cause, Error};

/// After how many more pages of 4 KiB a checkpoint is worth its flushes.
const CHECKPOINT_PAGES: i32 = 4096;
/// From here on the writer itself makes the checkpoints: only without writes beside it does one reach the
/// end, and the next transaction begins at the front of the file again.
const WAL_PAGES_MAX: i32 = 16_384;

pub(super) struct Writing {
    pub(super) connection: Connection,
    /// Pages in the WAL since it last began at its front.
    pages: Arc<AtomicI32>,
    /// How many there were when the last checkpoint was due.
    checkpointed_at: i32,
    /// Dropped to end the other thread.
    requests: Option<SyncSender<()>>,
    checkpointer: Option<JoinHandle<()>>,
}

impl Writing {
    pub(super) fn new(
        mut connection: Connection,
        dir: &Path,
        queue: Arc<Queue>,
    ) -> Result<Self, Error> {
        let fatal = |error: rusqlite::Error| Error::Fatal(Cause::new(error.to_string(), error));
        let pages = Arc::new(AtomicI32::new(0));
        let seen = pages.clone();
        let hook = move |_: &mut rusqlite::hooks::Wal, pages| {
            seen.store(pages, Ordering::SeqCst);
            Ok(())
        };
        connection.wal_hook(Some(hook)).map_err(fatal)?;
        let other = Connection::open(dir.join(storage::FILE)).map_err(fatal)?;
        let (requests, requested) = sync_channel(1);
        let checkpointer = std::thread::Builder::new()
            .name("log-checkpoints".to_owned())
            .spawn(move || make_checkpoints(&other, &requested, &queue))
            .map_err(|error| Error::fatal(error.to_string()))?;
        let (requests, checkpointer) = (Some(requests), Some(checkpointer));
        Ok(Self { connection, pages, checkpointed_at: 0, requests, checkpointer })
    }

    /// Called when a commit is answered.
    ///
    /// # Errors
    /// The disk failed.
    pub(super) fn checkpoint_if_due(&mut self) -> Result<(), StorageError> {
        let pages = self.pages.load(Ordering::SeqCst);
        if pages < self.checkpointed_at {
            self.checkpointed_at = 0;
        }
        if pages - self.checkpointed_at < CHECKPOINT_PAGES {
            return Ok(());
        }
        self.checkpointed_at = pages;
        if pages >= WAL_PAGES_MAX {
            return checkpoint(&self.connection, CheckpointMode::PASSIVE);
        }
        if let Some(requests) = &self.requests {
            // Full: one is about to begin.
            requests.try_send(()).ok();
        }
        Ok(())
    }

    /// Moves everything to the main file and empties the WAL, as far as readers allow.
    pub(super) fn close(&mut self) -> Result<(), StorageError> {
        drop(self.requests.take());
        if let Some(Err(_)) = self.checkpointer.take().map(JoinHandle::join) {
            tracing::error!("the thread that makes the checkpoints of the log panicked");
        }
        checkpoint(&self.connection, CheckpointMode::TRUNCATE)
    }
}

fn make_checkpoints(connection: &Connection, requested: &Receiver<()>, queue: &Queue) {
    while requested.recv().is_ok() {
        if let Err(error) = checkpoint(connection, CheckpointMode::PASSIVE) {
            queue.fail(error.of_the_disk());
            return;
        }
    }
}

/// Whatever else than the disk is in the way, the next one may get further.
fn checkpoint(connection: &Connection, mode: CheckpointMode) -> Result<(), StorageError> {
    match connection.wal_checkpoint_v2(Some(rusqlite::MAIN_DB), mode) {
        Ok(_) => Ok(()),
        Err(error) => {
            let error = StorageError::from(error);
            if error.is_of_the_disk() {
                return Err(error);
            }
            tracing::debug!(%error, "a checkpoint of the log did not reach the end");
            Ok(())
        }
    }
}
