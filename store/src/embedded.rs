//! The tables in one SQLite file: `tables.sqlite`, in WAL mode, flushed on request.
//!
//! A commit reaches the page cache, not the disk: it survives a crash of the process. A power cut
//! reverts the file to an earlier commit, and rows since [`Store::flush`] are rebuilt from the log.
//!
//! One thread writes and commits in groups, and waits for the disk only to shorten a long WAL; a few connections read.
//! Rows keep the whole record next to the columns that queries need, so that what is read is exactly what was written.

mod anchor;
mod disk;
mod fault;
mod migration;
mod origin;
mod prune;
mod query;
mod read_only;
mod reader;
mod replacement;
mod upsert;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use async_trait::async_trait;
use rusqlite::Connection;
use schemas::record::{Attempt, Order};
use schemas::{Address, OrderId, OrderStatus, TransferId, UnixMicros, UnixSeconds};
use sqlite::Writing;
use tokio::sync::{mpsc, oneshot};

use self::disk::Disk;
pub use self::read_only::ReadOnlyTables;
use self::reader::Readers;
pub use self::replacement::{Kept, Replacement};
use self::upsert::Upsert;
use self::writer::Job;
use crate::error::Cause;
use crate::prune::{Day, Export, Pruned};
use crate::{
    ChainRow, Change, DepositFilter, DepositRow, Error, OrderFilter, OrderRow, Origin, Page,
    Position, Store, Subject, TransferFilter, TransferRow,
};

/// Name of the database file in the data folder.
pub const FILE: &str = "tables.sqlite";

/// NORMAL: only checkpoints and [`Store::flush`] wait for the disk. The checkpoint at the start
/// rewrites pages that a failed flush of the last process may have lost.
const PRAGMAS: &str = "
    PRAGMA wal_checkpoint(TRUNCATE);
    PRAGMA synchronous = NORMAL;
    PRAGMA journal_size_limit = 67108864;
    PRAGMA cache_size = -65536;
";

/// The tables in a folder of this machine. Clones are the same store; dropping the last one writes
/// queued changes and closes the file.
#[derive(Debug, Clone)]
pub struct EmbeddedStore {
    readers: Arc<Readers>,
    writer: Arc<Writer>,
    disk: Arc<Disk>,
}

#[derive(Debug)]
struct Writer {
    /// Taken when the store closes: the thread ends when there is no sender any more.
    queue: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    async fn write(&self, upserts: Vec<Upsert>) -> Result<(), Error> {
        let (done, outcome) = oneshot::channel();
        let stopped = || Error::Fatal("the thread that writes the tables has stopped".into());
        let queue = self.queue.as_ref().ok_or_else(stopped)?;
        queue.send(Job { upserts, done }).await.map_err(|_| stopped())?;
        outcome.await.map_err(|_| stopped())?
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(Err(_)) = self.thread.take().map(JoinHandle::join) {
            tracing::error!("the thread that writes the tables panicked");
        }
    }
}

/// `true` if a folder has tables.
#[must_use]
pub fn are_in(dir: &Path) -> bool {
    dir.join(FILE).exists()
}

/// Checks that this program can use the tables in a folder; a process may have them open. Blocks,
/// and changes nothing.
///
/// # Errors
/// [`Error::SchemaNewer`]; [`Error::Dropped`]; another error if the file cannot be read or is not SQLite.
pub fn check(dir: &Path) -> Result<(), Error> {
    ReadOnlyTables::open(dir).map(drop)
}

/// Creates dropped tables again, empty; returns their names. No process may have them open. Blocks.
///
/// # Errors
/// The file cannot be read or written, or a newer program made the tables.
pub fn create_dropped(dir: &Path) -> Result<Vec<String>, Error> {
    let path = dir.join(FILE);
    let create = || {
        let connection = open_writer(&path)?;
        let dropped = migration::dropped(&connection)?;
        dropped.iter().try_for_each(|table| table.create(&connection))?;
        Ok(dropped.into_iter().map(|one| one.table).collect())
    };
    create().map_err(|error: Error| error.context(path.display()))
}

/// Number of pending orders in the tables of a folder. Blocks.
pub fn pending(dir: &Path) -> Result<u64, Error> {
    let connection = reader::open(&dir.join(FILE), reader::BUSY_MAX)?;
    let sql = "SELECT count(*) FROM orders WHERE status = ?";
    let count: i64 =
        connection.query_row(sql, [OrderStatus::Pending.as_str()], |row| row.get(0))?;
    Ok(count.unsigned_abs())
}

/// Reads the origin and the positions of the tables in a folder; a process may have them open.
/// Blocks, and changes nothing.
///
/// # Errors
/// As of [`check`].
pub fn made_from(dir: &Path) -> Result<(Option<Origin>, Vec<Position>), Error> {
    let path = dir.join(FILE);
    let read = || {
        let tables = reader::open(&path, reader::BUSY_MAX)?;
        migration::check(&tables)?;
        Ok((origin::origin(&tables)?, origin::positions(&tables)?))
    };
    read().map_err(|error: Error| error.context(path.display()))
}

/// Checks all tables in a folder for damage. Blocks.
///
/// # Errors
/// [`Error::Fatal`]: they are damaged, or cannot be read.
pub fn check_whole(dir: &Path) -> Result<(), Error> {
    let path = dir.join(FILE);
    sqlite::check(&path).map_err(|cause| Error::Fatal(Cause::of(cause).context(path.display())))
}

/// Copies the tables of a folder, which a process may have open, to another folder, and checks the copy. Blocks.
///
/// # Errors
/// [`Error::Fatal`]: there are no tables, or the copy failed or is damaged.
pub fn copy(dir: &Path, into: &Path) -> Result<(), Error> {
    let from = dir.join(FILE);
    let failed = |cause| Error::Fatal(Cause::of(cause).context(from.display()));
    sqlite::copy(&from, &into.join(FILE)).map_err(failed)
}

impl EmbeddedStore {
    /// Opens the tables in `dir`, creating both if needed, and brings them to this program's form.
    /// Blocks.
    ///
    /// # Errors
    /// [`Error::Transient`] if the file cannot be opened now; [`Error::Fatal`] if it is damaged or not SQLite,
    /// or its file system has no WAL mode; [`Error::SchemaNewer`]; [`Error::Dropped`].
    pub fn open(dir: &Path) -> Result<Self, Error> {
        std::fs::create_dir_all(dir).map_err(|cause| cannot_open(dir, cause))?;
        Self::open_file(dir.join(FILE))
    }

    /// Opens the tables in `dir`, which a process may have open, read-only: writes fail. Blocks.
    ///
    /// # Errors
    /// As of [`check`].
    pub fn read_only(dir: &Path) -> Result<Self, Error> {
        check(dir)?;
        let path = dir.join(FILE);
        let disk = Disk::read_only(&path).map_err(|cause| cannot_open(&path, cause))?;
        let writer = Writer { queue: None, thread: None };
        let (writer, disk) = (Arc::new(writer), Arc::new(disk));
        Ok(Self { readers: Readers::new(path)?, writer, disk })
    }

    fn open_file(path: PathBuf) -> Result<Self, Error> {
        let failed = |cause| cannot_open(&path, cause);
        let connection = open_writer(&path).map_err(|error| error.context(path.display()))?;
        migration::refuse_dropped(&connection)?;
        let disk = Arc::new(Disk::of(&path).map_err(failed)?);
        let of_checkpoint = disk.clone();
        let file = Writing::new(connection, &path, move |error| drop(of_checkpoint.fail(error)));
        let (file, of_writer) = (file.map_err(failed)?, disk.clone());
        let (queue, jobs) = mpsc::channel(writer::QUEUE_MAX);
        let thread = std::thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || writer::run(file, &of_writer, jobs))
            .map_err(failed)?;
        let writer = Arc::new(Writer { queue: Some(queue), thread: Some(thread) });
        Ok(Self { readers: Readers::new(path)?, writer, disk })
    }
}

fn cannot_open(path: &Path, cause: std::io::Error) -> Error {
    Error::Transient(
        Cause::of(cause).context(format!("cannot open the tables in {}", path.display())),
    )
}

/// The connection of the writer, with the tables ready.
fn open_writer(path: &Path) -> Result<Connection, Error> {
    let mut connection = Connection::open(path)?;
    connection.busy_timeout(reader::BUSY_MAX)?;
    let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if mode != "wal" {
        return Err(Error::Fatal("the file system cannot hold a write-ahead log".into()));
    }
    connection.execute_batch(PRAGMAS)?;
    migration::migrate(&mut connection)?;
    Ok(connection)
}

#[async_trait]
impl Store for EmbeddedStore {
    async fn apply(&self, changes: Vec<Change>) -> Result<(), Error> {
        if changes.is_empty() {
            return Ok(());
        }
        let upserts = changes.iter().map(Upsert::of).collect::<Result<_, _>>()?;
        self.disk.check()?;
        self.writer.write(upserts).await
    }

    async fn flush(&self) -> Result<(), Error> {
        let disk = self.disk.clone();
        let flushed = tokio::task::spawn_blocking(move || disk.flush()).await;
        flushed.map_err(|error| Error::Fatal(Cause::of(error)))?
    }

    async fn order(&self, id: OrderId) -> Result<Option<OrderRow>, Error> {
        self.readers.row(query::order(id), query::order_row).await
    }

    async fn order_record(&self, id: OrderId) -> Result<Option<Order>, Error> {
        self.readers.row(query::order_record(id), query::record).await
    }

    async fn orders(&self, filter: OrderFilter, page: Page) -> Result<Vec<OrderRow>, Error> {
        self.readers.rows(query::orders(filter, page), query::order_row).await
    }

    async fn deposits(&self, filter: DepositFilter, page: Page) -> Result<Vec<DepositRow>, Error> {
        self.readers.rows(query::deposits(filter, page), query::deposit_row).await
    }

    async fn transfer(&self, id: TransferId) -> Result<Option<TransferRow>, Error> {
        self.readers.row(query::transfer(id), query::record).await
    }

    async fn transfers(
        &self,
        wallet: Address,
        filter: TransferFilter,
        page: Page,
    ) -> Result<Vec<TransferRow>, Error> {
        self.readers.rows(query::transfers(wallet, filter, page), query::record).await
    }

    async fn attempts(&self, subject: Subject, page: Page) -> Result<Vec<Attempt>, Error> {
        self.readers.rows(query::attempts(subject, page), query::record).await
    }

    async fn chains(&self) -> Result<Vec<ChainRow>, Error> {
        let mut rows: Vec<ChainRow> = self.readers.rows(query::chains(), query::record).await?;
        rows.sort_by_key(|chain| (chain.blockchain, chain.lane));
        Ok(rows)
    }

    async fn old_days(&self, before: Day) -> Result<Vec<Day>, Error> {
        self.readers.with(move |connection| prune::days(connection, before)).await
    }

    async fn prune_day(
        &self,
        day: Day,
        _now: UnixMicros,
        export: &dyn Export,
    ) -> Result<Pruned, Error> {
        prune::prune_day(self, day, export).await
    }

    async fn origin(&self) -> Result<Option<Origin>, Error> {
        self.readers.with(origin::origin).await
    }

    async fn set_origin(&self, origin: &Origin) -> Result<(), Error> {
        self.disk.check()?;
        self.writer.write(vec![origin::set_origin(origin)]).await
    }

    async fn positions(&self) -> Result<Vec<Position>, Error> {
        self.readers.with(origin::positions).await
    }

    async fn set_positions(&self, positions: &[Position]) -> Result<(), Error> {
        self.disk.check()?;
        self.writer.write(positions.iter().map(origin::set_position).collect()).await
    }

    async fn pruned_before(&self) -> Result<Option<UnixSeconds>, Error> {
        self.readers.with(prune::pruned_before).await
    }

    async fn set_pruned_before(&self, second: UnixSeconds) -> Result<(), Error> {
        self.disk.check()?;
        self.writer.write(vec![prune::set_pruned_before(second)]).await
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Just, Strategy};
    use proptest::test_runner::{Config, TestRunner};
    use rusqlite::types::Value;
    use schemas::record::example;

    use super::*;
    use crate::sample;

    /// Every row of every table, tombstones too, byte for byte.
    fn dump(dir: &Path) -> Vec<(&'static str, Vec<Value>)> {
        let connection = Connection::open(dir.join(FILE)).unwrap();
        let mut all = Vec::new();
        for table in ["orders", "deposits", "transfers", "attempts", "chains"] {
            let sql = format!("SELECT * FROM {table} ORDER BY 1, 2, 3");
            let mut statement = connection.prepare(&sql).unwrap();
            let columns = statement.column_count();
            let mut rows = statement.query([]).unwrap();
            while let Some(row) = rows.next().unwrap() {
                all.push((table, (0..columns).map(|column| row.get(column).unwrap()).collect()));
            }
        }
        all
    }

    #[test]
    fn the_same_changes_in_any_order_leave_the_same_bytes() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let strategy = sample::changes().prop_flat_map(|changes| {
            let twice = [changes.clone(), changes.clone()].concat();
            (Just(changes), Just(twice).prop_shuffle())
        });
        let config = Config { cases: 24, source_file: Some(file!()), ..Config::default() };
        let result = TestRunner::new(config).run(&strategy, |(once, twice)| {
            let [first, second] = [once, twice].map(|changes| {
                let dir = tempfile::tempdir().unwrap();
                let store = EmbeddedStore::open(dir.path()).unwrap();
                runtime.block_on(async {
                    for part in changes.chunks(7) {
                        store.apply(part.to_vec()).await.unwrap();
                    }
                });
                dump(dir.path())
            });
            assert_eq!(first, second);
            Ok(())
        });
        result.unwrap();
    }

    #[tokio::test]
    async fn tables_that_are_only_read_take_no_writes() {
        let dir = tempfile::tempdir().unwrap();
        assert!(EmbeddedStore::read_only(dir.path()).is_err(), "none are made");
        let written = EmbeddedStore::open(dir.path()).unwrap();
        let read = EmbeddedStore::read_only(dir.path()).unwrap();
        let change = || vec![Change::Order(example::order())];
        let refused = read.apply(change()).await.unwrap_err().to_string();
        assert!(refused.contains("the tables are open to be read"), "{refused}");
        let id = example::order().order_id;
        assert_eq!(read.order_record(id).await.unwrap(), None);
        written.apply(change()).await.unwrap();
        assert_eq!(read.order_record(id).await.unwrap(), Some(example::order()));
    }

    #[test]
    fn a_commit_does_not_wait_for_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        let connection = open_writer(&dir.path().join(FILE)).unwrap();
        let setting = |name: &str| -> Value {
            connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get(0)).unwrap()
        };
        assert_eq!(setting("journal_mode"), Value::Text("wal".into()));
        assert_eq!(setting("synchronous"), Value::Integer(1), "NORMAL");
    }

    /// In a rolling update an older program reads rows that it cannot decode.
    #[tokio::test]
    async fn unreadable_row_is_left_out_of_lists() {
        let dir = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(dir.path()).unwrap();
        let id = |number: u128| OrderId(uuid::Uuid::from_u128(number));
        let order = |number| Order { order_id: id(number), ..example::order() };
        store.apply([1, 2, 3].map(order).map(Change::Order).to_vec()).await.unwrap();
        let connection = Connection::open(dir.path().join(FILE)).unwrap();
        let damage = "UPDATE orders SET record = x'ff' WHERE order_id = ?";
        connection.execute(damage, [upsert::order_key(id(2))]).unwrap();
        let page = Page { limit: 20, offset: 0 };
        let listed = store.orders(OrderFilter::default(), page).await.unwrap();
        let listed: Vec<_> = listed.iter().map(|row| row.order.order_id).collect();
        assert_eq!(listed, [id(3), id(1)]);
        assert!(matches!(store.order(id(2)).await, Err(Error::Fatal(_))));
    }

    #[test]
    fn a_file_that_is_not_ours_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE), [7; 8192]).unwrap();
        assert!(matches!(EmbeddedStore::open(dir.path()), Err(Error::Fatal(_))));
    }
}
