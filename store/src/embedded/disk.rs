//! Durability of the tables on the disk.

use std::error::Error as StdError;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::OnceLock;

use crate::Error;
use crate::error::Cause;

/// The WAL as a file to flush, beside the thread that writes it.
#[derive(Debug)]
pub(super) struct Disk {
    wal: File,
    /// Cause of the first failure. After it nobody knows which earlier commits are on the disk, and
    /// a later flush would report success for them: nothing is written or flushed any more.
    failed: OnceLock<Cause>,
}

impl Disk {
    /// Opens the WAL of tables that a connection has open and has written to: SQLite keeps that
    /// file as long as a connection is open.
    pub(super) fn of(tables: &Path) -> io::Result<Self> {
        let mut wal = tables.as_os_str().to_owned();
        wal.push("-wal");
        Ok(Self { wal: File::options().append(true).open(wal)?, failed: OnceLock::new() })
    }

    /// Opens tables that are only read.
    pub(super) fn read_only(tables: &Path) -> io::Result<Self> {
        let refusal = Cause::from("the tables are open to be read".to_owned());
        Ok(Self { wal: File::open(tables)?, failed: OnceLock::from(refusal) })
    }

    /// Checks that writes are allowed.
    ///
    /// # Errors
    /// The disk failed before, or the tables are only read.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.failed.get().map_or(Ok(()), |cause| Err(Error::Fatal(cause.clone())))
    }

    /// Waits until the disk has everything committed before. Frames no longer in the WAL are in the
    /// main file, which their checkpoint flushed.
    pub(super) fn flush(&self) -> Result<(), Error> {
        self.check()?;
        self.wal.sync_data().map_err(|cause| self.fail(cause))
    }

    /// Makes all later writes and flushes fail with the first cause.
    pub(super) fn fail(&self, cause: impl StdError + Send + Sync + 'static) -> Error {
        let cause = Cause::of(cause).context("the disk failed; a restart recovers the tables");
        Error::Fatal(self.failed.get_or_init(|| cause).clone())
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    use schemas::record::example;

    use super::*;
    use crate::embedded::{EmbeddedStore, FILE};
    use crate::{Change, Store};

    /// A power cut cannot be simulated here: the test checks that a flush is of the file that has
    /// the commits.
    #[tokio::test]
    async fn what_is_flushed_is_the_wal_also_after_a_checkpoint() {
        let dir = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(dir.path()).unwrap();
        let path = dir.path().join(format!("{FILE}-wal"));
        let of_path = || std::fs::metadata(&path).unwrap().ino();
        let flushed = || store.disk.wal.metadata().unwrap().ino();
        assert_eq!(flushed(), of_path());
        let other = rusqlite::Connection::open(dir.path().join(FILE)).unwrap();
        other.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        drop(other);
        store.apply(vec![Change::Transfer(example::transfer())]).await.unwrap();
        assert!(std::fs::metadata(&path).unwrap().len() > 0);
        assert_eq!(flushed(), of_path());
        store.flush().await.unwrap();
    }

    #[tokio::test]
    async fn after_a_failed_flush_nothing_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = EmbeddedStore::open(dir.path()).unwrap();
        // A socket cannot be flushed.
        let (socket, _other) = UnixStream::pair().unwrap();
        let wal = File::from(OwnedFd::from(socket));
        store.disk = Arc::new(Disk { wal, failed: OnceLock::new() });
        let change = || vec![Change::Transfer(example::transfer())];
        store.apply(change()).await.unwrap();
        for outcome in [store.flush().await, store.apply(change()).await, store.flush().await] {
            let Err(Error::Fatal(cause)) = outcome else { panic!("{outcome:?}") };
            assert!(cause.driver().unwrap().is::<io::Error>(), "{cause}");
        }
    }
}
