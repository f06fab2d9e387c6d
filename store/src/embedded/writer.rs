//! The one thread that writes. Calls that wait while it is busy share its next transaction.

use rusqlite::{Connection, Transaction, TransactionBehavior, params_from_iter};
use sqlite::Writing;
use tokio::sync::{mpsc, oneshot};

use super::disk::Disk;
use super::upsert::Upsert;
use crate::Error;

/// Maximum number of calls in the queue; a further one waits for room.
pub(super) const QUEUE_MAX: usize = 256;
/// Number of rows from which a group takes no more calls, so that no call waits long for its
/// transaction.
const GROUP_ROWS_MAX: usize = 4_096;

/// One call of [`crate::Store`] that writes.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) upserts: Vec<Upsert>,
    pub(super) done: oneshot::Sender<Result<(), Error>>,
}

/// Writes until every sender is gone, or the disk has failed.
pub(super) fn run(mut file: Writing, disk: &Disk, mut queue: mpsc::Receiver<Job>) {
    while let Some(first) = queue.blocking_recv() {
        let mut rows = first.upserts.len();
        let mut group = vec![first];
        while rows < GROUP_ROWS_MAX
            && let Ok(job) = queue.try_recv()
        {
            rows = rows.saturating_add(job.upserts.len());
            group.push(job);
        }
        let calls = group.iter().map(|job| job.upserts.as_slice());
        let results = commit(&mut file.connection, calls).unwrap_or_else(|cause| {
            let is_of_the_disk = sqlite::is_of_the_disk(&cause);
            let error = if is_of_the_disk { disk.fail(cause) } else { cause.into() };
            vec![Err(error); group.len()]
        });
        for (job, result) in group.into_iter().zip(results) {
            // A caller that stopped waiting needs no result.
            drop(job.done.send(result));
        }
        if let Err(cause) = file.checkpoint_if_due() {
            disk.fail(cause);
        }
        if disk.check().is_err() {
            return;
        }
    }
    if let Err(error) = file.close() {
        tracing::warn!(%error, "the tables could not be checkpointed while closing");
    }
}

/// Writes the rows of all calls in one transaction, with one result per call. A call that fails is
/// undone alone; if the transaction itself fails, so do all of them.
fn commit<'a>(
    connection: &mut Connection,
    calls: impl Iterator<Item = &'a [Upsert]>,
) -> rusqlite::Result<Vec<Result<(), Error>>> {
    let mut group = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut results = Vec::new();
    for upserts in calls {
        match write(&mut group, upserts) {
            // SQLite ends the whole transaction on some failures, such as a full disk: what earlier
            // calls wrote is gone too, and the next write would be outside of a transaction.
            Err(cause) if group.is_autocommit() || sqlite::is_of_the_disk(&cause) => {
                return Err(cause);
            }
            result => results.push(result.map_err(Error::from)),
        }
    }
    group.commit()?;
    Ok(results)
}

fn write(group: &mut Transaction<'_>, upserts: &[Upsert]) -> rusqlite::Result<()> {
    let call = group.savepoint()?;
    for upsert in upserts {
        call.prepare_cached(upsert.sql)?.execute(params_from_iter(&upsert.values))?;
    }
    call.commit()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use schemas::record::{Transfer, example};
    use schemas::{TransferId, UnixMicros};

    use super::*;
    use crate::Change;
    use crate::embedded::open_writer;

    fn transfers(numbers: std::ops::Range<i64>) -> Vec<Upsert> {
        let transfer = |number| {
            let (transfer_id, updated_at) = (TransferId(number), UnixMicros(number));
            Transfer { transfer_id, updated_at, ..example::transfer() }
        };
        numbers.map(|n| Upsert::of(&Change::Transfer(transfer(n))).unwrap()).collect()
    }

    fn count(connection: &Connection) -> i64 {
        connection.query_row("SELECT count(*) FROM transfers", [], |row| row.get(0)).unwrap()
    }

    fn write_all(
        connection: &mut Connection,
        calls: &[Vec<Upsert>],
    ) -> rusqlite::Result<Vec<Result<(), Error>>> {
        commit(connection, calls.iter().map(Vec::as_slice))
    }

    fn open(dir: &Path) -> Connection {
        open_writer(&dir.join("tables.sqlite")).unwrap()
    }

    #[test]
    fn a_call_that_fails_is_undone_alone() {
        let dir = tempfile::tempdir().unwrap();
        let mut connection = open(dir.path());
        let mut broken = transfers(10..12);
        broken.push(Upsert {
            sql: "INSERT INTO chains (blockchain, updated_at, record) VALUES (?, NULL, NULL)",
            values: vec![rusqlite::types::Value::Text("eth".into())],
        });
        let calls = [transfers(0..2), broken, transfers(2..4)];
        let results = write_all(&mut connection, &calls).unwrap();
        let [Ok(()), Err(Error::Fatal(cause)), Ok(())] = &results[..] else {
            panic!("{results:?}")
        };
        assert!(cause.to_string().contains("NOT NULL"), "{cause}");
        let driver = cause.driver().unwrap().downcast_ref::<rusqlite::Error>();
        assert!(driver.unwrap().sqlite_error().is_some(), "{driver:?}");
        assert_eq!(count(&connection), 4);
    }

    #[test]
    fn tables_continue_after_a_full_disk() {
        let dir = tempfile::tempdir().unwrap();
        let mut connection = open(dir.path());
        write_all(&mut connection, &[transfers(0..10)]).unwrap();
        // No page more than there are now: SQLite reports this limit exactly as a full disk.
        let pages: i64 = connection.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
        let limit = |connection: &Connection, pages: i64| {
            connection
                .query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))
                .unwrap();
        };
        limit(&connection, pages);
        let calls = [transfers(10..2000), transfers(10..2000)];
        let error = Error::from(write_all(&mut connection, &calls).unwrap_err());
        assert!(matches!(error, Error::Transient(_)), "{error:?}");
        assert_eq!(count(&connection), 10, "nothing is half written");
        limit(&connection, 1_000_000);
        write_all(&mut connection, &[transfers(10..2000)]).unwrap();
        assert_eq!(count(&connection), 2000);
    }
}
