//! New tables beside the old ones, which they replace when complete.

use std::fs::File;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags, params_from_iter};

use super::upsert::Upsert;
use super::{EmbeddedStore, FILE, open_writer, prune};
use crate::Error;
use crate::error::Cause;

/// Name of the file of the new tables.
const NEW_FILE: &str = "tables.new.sqlite";
/// Flags to open the old tables: replaying the WAL of a killed process is a write.
const READ_WRITE: OpenFlags = OpenFlags::SQLITE_OPEN_READ_WRITE;
/// Tables whose rows are kept; their columns are the same in both files.
const TABLES: [&str; 5] = ["orders", "deposits", "transfers", "attempts", "chains"];

/// New tables under construction. Dropping this removes them; the old ones remain unchanged.
#[derive(Debug)]
pub struct Replacement {
    dir: PathBuf,
    store: Option<EmbeddedStore>,
}

/// Numbers of rows of the old tables that the new ones did not have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Kept {
    pub orders: u64,
    pub deposits: u64,
    pub transfers: u64,
    pub attempts: u64,
    pub chains: u64,
}

impl Replacement {
    /// Creates empty tables in `dir`. No process may have the old ones open until
    /// [`Replacement::finish`] returns. Blocks.
    ///
    /// # Errors
    /// As [`EmbeddedStore::open`]; [`Error::Fatal`] if the old file was moved away without the one beside it.
    pub fn begin(dir: &Path) -> Result<Self, Error> {
        // A killed process may have left new tables.
        remove(dir).map_err(|cause| failed(dir, cause))?;
        let (old, new) = (dir.join(FILE), dir.join(NEW_FILE));
        refuse_left(&old)?;
        keep_pruned(&old, &new)?;
        let store = EmbeddedStore::open_file(new)?;
        Ok(Self { dir: dir.to_owned(), store: Some(store) })
    }

    /// The new tables.
    ///
    /// # Errors
    /// None before [`Replacement::finish`].
    pub fn store(&self) -> Result<&EmbeddedStore, Error> {
        self.store.as_ref().ok_or_else(|| Error::Fatal("the new tables are closed".into()))
    }

    /// Adds rows that only the old tables have to the new ones, then replaces the old file by the new
    /// one: a crash leaves either the old or the new tables, complete. Blocks.
    ///
    /// # Errors
    /// The old tables are open elsewhere, or damaged; the disk failed. The old tables are still in place,
    /// unless only the last step failed, the flush of the folder.
    pub fn finish(mut self) -> Result<Kept, Error> {
        drop(self.store.take());
        let (old, new) = (self.dir.join(FILE), self.dir.join(NEW_FILE));
        let kept = if old.exists() { keep_rows(&old, &new)? } else { Kept::default() };
        close_log(&open_writer(&new).map_err(|error| error.context(new.display()))?, &new)?;
        let switched = File::open(&new).and_then(|file| file.sync_all());
        let switched = switched.and_then(|()| std::fs::rename(&new, &old));
        let switched = switched.and_then(|()| File::open(&self.dir)?.sync_all());
        switched.map_err(|cause| failed(&self.dir, cause))?;
        Ok(kept)
    }
}

/// Removes the new tables, if there are any.
fn remove(dir: &Path) -> std::io::Result<()> {
    for name in ["", "-wal", "-shm", "-journal"].map(|end| format!("{NEW_FILE}{end}")) {
        match std::fs::remove_file(dir.join(name)) {
            Err(cause) if cause.kind() != std::io::ErrorKind::NotFound => return Err(cause),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

impl Drop for Replacement {
    fn drop(&mut self) {
        drop(self.store.take());
        if let Err(error) = remove(&self.dir) {
            tracing::warn!(%error, "the file {NEW_FILE} could not be removed");
        }
    }
}

fn failed(dir: &Path, cause: std::io::Error) -> Error {
    let what = format!("cannot replace the tables in {}", dir.display());
    Error::Fatal(Cause::of(cause).context(what))
}

/// Refuses a log of old tables that are not there: SQLite would read it into the new ones.
fn refuse_left(old: &Path) -> Result<(), Error> {
    if old.exists() {
        return Ok(());
    }
    for left in ["-wal", "-journal"].map(|end| old.with_file_name(format!("{FILE}{end}"))) {
        if left.metadata().is_ok_and(|file| file.len() > 0) {
            let what = format!(
                "{} is a part of tables that were moved away, and would overwrite the new ones: move it to them",
                left.display()
            );
            return Err(Error::Fatal(what.into()));
        }
    }
    Ok(())
}

/// Creates the new file with the old one's `pruned_before`, if the old one has it. An unreadable old file
/// has none: [`Replacement::finish`] refuses it.
fn keep_pruned(old: &Path, new: &Path) -> Result<(), Error> {
    let read = || prune::pruned_before(&Connection::open_with_flags(old, READ_WRITE)?);
    let Ok(Some(second)) = read() else { return Ok(()) };
    let new = open_writer(new).map_err(|error| error.context(new.display()))?;
    let Upsert { sql, values } = prune::set_pruned_before(second);
    new.execute(sql, params_from_iter(values))?;
    Ok(())
}

/// Copies the rows of the old file that the new one does not have.
fn keep_rows(old: &Path, new: &Path) -> Result<Kept, Error> {
    const ADVICE: &str =
        "move it away, and its -wal, to do without the rows that the log no longer has";
    let damaged = |error: Error| error.context(format!("{} ({ADVICE})", old.display()));
    // Brings the old file to this program's form, and removes its WAL: SQLite would take it for
    // that of the new file.
    close_log(&open_writer(old).map_err(damaged)?, old)?;
    let mut connection = open_writer(new).map_err(|error| error.context(new.display()))?;
    let path = old.to_str().ok_or_else(|| Error::Fatal("its path is no UTF-8".into()))?;
    connection.execute("ATTACH DATABASE ? AS old", [path])?;
    let copy = connection.transaction()?;
    let mut counts = [0; TABLES.len()];
    for (count, table) in counts.iter_mut().zip(TABLES) {
        let insert = format!("INSERT OR IGNORE INTO main.{table} SELECT * FROM old.{table}");
        *count = copy.execute(&insert, []).map_err(|cause| damaged(cause.into()))? as u64;
    }
    copy.commit()?;
    let [orders, deposits, transfers, attempts, chains] = counts;
    Ok(Kept { orders, deposits, transfers, attempts, chains })
}

/// Moves the WAL into the file. SQLite does that only for a sole connection.
fn close_log(connection: &Connection, path: &Path) -> Result<(), Error> {
    let mode = connection.query_row("PRAGMA journal_mode = DELETE", [], |row| row.get(0));
    let mode: String = mode.map_err(|cause| Error::from(cause).context(path.display()))?;
    if mode == "delete" {
        return Ok(());
    }
    Err(Error::Transient(format!("{} is open elsewhere", path.display()).into()))
}

#[cfg(test)]
mod tests {
    use schemas::record::{Order, Transfer, example};
    use schemas::{OrderId, OrderStatus, TransferId, UnixMicros, UnixSeconds};
    use uuid::Uuid;

    use super::*;
    use crate::{Change, OrderFilter, Page, Store};

    const PAGE: Page = Page { limit: 10, offset: 0 };

    fn order(number: u128, status: OrderStatus, version: i64) -> Change {
        let order_id = OrderId(Uuid::from_u128(number));
        let updated_at = UnixMicros(version);
        Change::Order(Order { order_id, status, updated_at, ..example::order() })
    }

    fn old_tables(dir: &Path, rows: Vec<Change>) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let store = EmbeddedStore::open(dir).unwrap();
        runtime.block_on(store.apply(rows)).unwrap();
    }

    fn statuses(dir: &Path) -> Vec<OrderStatus> {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let store = EmbeddedStore::open(dir).unwrap();
        let rows = runtime.block_on(store.orders(OrderFilter::default(), PAGE)).unwrap();
        rows.into_iter().map(|row| row.order.status).collect()
    }

    fn files(dir: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(dir).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn replacement_keeps_only_what_the_log_lacks() {
        let dir = tempfile::tempdir().unwrap();
        let transfer = Transfer { transfer_id: TransferId(7), ..example::transfer() };
        let old = vec![
            order(1, OrderStatus::Paid, 1),
            order(2, OrderStatus::Pending, 9),
            Change::Transfer(transfer),
        ];
        old_tables(dir.path(), old);
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let second = UnixSeconds(86_400);
        let tables = EmbeddedStore::open(dir.path()).unwrap();
        runtime.block_on(tables.set_pruned_before(second)).unwrap();
        drop(tables);
        let replacement = Replacement::begin(dir.path()).unwrap();
        let pruned = runtime.block_on(replacement.store().unwrap().pruned_before());
        assert_eq!(pruned.unwrap(), Some(second));
        // The log wins, even where the old version is later.
        let rows = vec![order(2, OrderStatus::Expired, 5), order(3, OrderStatus::Cancelled, 1)];
        runtime.block_on(replacement.store().unwrap().apply(rows)).unwrap();
        let kept = replacement.finish().unwrap();
        assert_eq!(kept, Kept { orders: 1, transfers: 1, ..Kept::default() });
        assert_eq!(files(dir.path()), [FILE], "no log is left that could be taken for its own");
        let expected = [OrderStatus::Cancelled, OrderStatus::Expired, OrderStatus::Paid];
        assert_eq!(statuses(dir.path()), expected);
    }

    #[test]
    fn every_table_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        drop(EmbeddedStore::open(dir.path()).unwrap());
        let connection = Connection::open(dir.path().join(FILE)).unwrap();
        let text = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name";
        let mut statement = connection.prepare(text).unwrap();
        let names = statement.query_map([], |row| row.get(0)).unwrap();
        let mut names: Vec<String> = names.collect::<Result<_, _>>().unwrap();
        // Kept by `keep_pruned`, or specific to each file.
        let own = ["meta", "pruned", "origin", "positions"];
        names.retain(|name| !own.contains(&name.as_str()));
        let mut kept = TABLES.to_vec();
        kept.sort();
        assert_eq!(names, kept);
    }

    #[test]
    fn one_that_is_not_finished_leaves_the_old_tables() {
        let dir = tempfile::tempdir().unwrap();
        old_tables(dir.path(), vec![order(1, OrderStatus::Paid, 1)]);
        // As a killed process leaves it.
        std::fs::write(dir.path().join(NEW_FILE), "garbage").unwrap();
        let replacement = Replacement::begin(dir.path()).unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let rows = vec![order(1, OrderStatus::Expired, 2)];
        runtime.block_on(replacement.store().unwrap().apply(rows)).unwrap();
        drop(replacement);
        assert_eq!(files(dir.path()), [FILE]);
        assert_eq!(statuses(dir.path()), [OrderStatus::Paid]);
    }

    #[test]
    fn tables_that_are_open_elsewhere_are_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(dir.path()).unwrap();
        let replacement = Replacement::begin(dir.path()).unwrap();
        let refused = replacement.finish().unwrap_err();
        assert!(matches!(&refused, Error::Transient(_)), "{refused}");
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(store.apply(vec![order(1, OrderStatus::Paid, 1)])).unwrap();
        drop(store);
        assert_eq!(statuses(dir.path()), [OrderStatus::Paid]);
    }

    /// SQLite would read it into the new tables, which would then have the rows of the old ones.
    #[test]
    fn the_log_of_moved_tables_is_refused() {
        let [old, dir] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let store = EmbeddedStore::open(old.path()).unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(store.apply(vec![order(1, OrderStatus::Pending, 1)])).unwrap();
        // As a killed process leaves it, and an operator who moves the tables alone.
        let left = format!("{FILE}-wal");
        std::fs::copy(old.path().join(&left), dir.path().join(&left)).unwrap();
        let refused = Replacement::begin(dir.path()).unwrap_err();
        assert!(refused.to_string().contains("move it to them"), "{refused}");
        assert_eq!(files(dir.path()), [left.as_str()]);

        std::fs::write(dir.path().join(&left), "").unwrap();
        let replacement = Replacement::begin(dir.path()).unwrap();
        let rows = vec![order(1, OrderStatus::Paid, 2)];
        runtime.block_on(replacement.store().unwrap().apply(rows)).unwrap();
        replacement.finish().unwrap();
        assert_eq!(statuses(dir.path()), [OrderStatus::Paid]);
    }

    #[test]
    fn tables_that_are_damaged_are_not_replaced_unasked() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE), [7; 8192]).unwrap();
        let replacement = Replacement::begin(dir.path()).unwrap();
        let refused = replacement.finish().unwrap_err();
        assert!(refused.to_string().contains("move it away"), "{refused}");
        assert_eq!(files(dir.path()), [FILE]);
    }
}
