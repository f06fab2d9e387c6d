//! Copies the rows of one keyspace to another. Derived rows are not read: the copied records make
//! them again.

use std::ops::{ControlFlow, RangeInclusive};

use schemas::decode;
use schemas::record::Record;
use scylla::response::PagingState;
use scylla::response::query_result::QueryRowsResult;

use super::fault::bad_row;
use super::list_partition;
use super::statement::Statement;
use super::sweep::{self, Listed};
use super::{CqlStore, read_rows};
use crate::error::unless_unreadable;
use crate::{Change, Error, Store, retry};

/// Every bucket.
const ALL: RangeInclusive<i32> = i32::MIN..=i32::MAX;
const PAGE_ROWS: i32 = 2_000;

/// Reads the changes that made the rows of a page.
type Read = fn(&QueryRowsResult) -> Result<Vec<Change>, Error>;

/// Tables from which others are derived.
const TABLES: [(Statement, Read); 3] = [
    (Statement::ScanOrders, |rows| {
        with_attempts::<uuid::Uuid, _>(rows, |record| read(record, Change::Order))
    }),
    (Statement::ScanTransfers, |rows| {
        with_attempts::<i64, _>(rows, |record| read(record, Change::Transfer))
    }),
    (Statement::ScanChains, |rows| records(rows, Change::Chain)),
];

impl CqlStore {
    /// Writes every row to other tables, with its version, and returns the number of changes; none if `report`
    /// ended it. Concurrent writes may be missing there. Rows that no version can read are left out, and logged.
    ///
    /// # Errors
    /// As of reads and writes, if they fail for a minute, and a row that a newer program wrote.
    pub async fn copy_to(
        &self,
        other: &Self,
        mut report: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Option<u64>, Error> {
        let mut count = 0;
        if let Some(second) = self.pruned_before().await? {
            other.set_pruned_before(second).await?;
        }
        self.walk_rows(async |changes| {
            retry(|| other.apply(changes.clone())).await?;
            count += changes.len() as u64;
            Ok(report(count))
        })
        .await
    }

    /// Passes every row's changes to `take`, a page at a time, and returns their number; none if
    /// `take` ended it. Rows that no version can read are left out, and logged.
    ///
    /// # Errors
    /// As of reads, if they fail for a minute; those of `take`; and a row that a newer program wrote.
    pub async fn walk_rows(
        &self,
        mut take: impl AsyncFnMut(Vec<Change>) -> Result<ControlFlow<()>, Error>,
    ) -> Result<Option<u64>, Error> {
        let whole = TABLES.map(|(statement, read)| (statement, Vec::new(), read));
        // A scan of `deposits_open` would read the tombstones of all deposits closed in the last day.
        let deposits =
            sweep::listed(&self.tables, list_partition::DEPOSITS, list_partition::LIVE, ALL)
                .await?;
        let deposits = deposits.into_iter().map(|Listed { partition, .. }| {
            let read: Read = |rows| records(rows, Change::Deposit);
            (Statement::SelectDepositRecords, partition.key(), read)
        });
        let mut count = 0;
        for (statement, values, read) in whole.into_iter().chain(deposits) {
            let mut from = Some(PagingState::start());
            while let Some(page) = from {
                let read_page = || self.tables.page(statement, &values, PAGE_ROWS, page.clone());
                let (rows, next) = retry(read_page).await?;
                let changes = read(&rows)?;
                count += changes.len() as u64;
                if take(changes).await?.is_break() {
                    return Ok(None);
                }
                from = next;
            }
        }
        Ok(Some(count))
    }
}

fn read<R: Record>(record: &[u8], change: impl Fn(R) -> Change) -> Result<Option<Change>, Error> {
    match decode(record) {
        Err(cause) if cause.is_newer() => {
            let what = "a newer version wrote a row that the copy would lose: run that version";
            Err(Error::from(cause).context(what))
        }
        read => unless_unreadable(read.map(change).map_err(Error::from)),
    }
}

fn records<R: Record>(
    rows: &QueryRowsResult,
    change: impl Fn(R) -> Change + Copy,
) -> Result<Vec<Change>, Error> {
    read_rows(rows, |(record,): (&[u8],)| read(record, change))
}

/// Each row has an attempt, and its subject's record in a static column; a subject without attempts
/// has a single row.
fn with_attempts<'a, Id, F>(rows: &'a QueryRowsResult, subject: F) -> Result<Vec<Change>, Error>
where
    Id: scylla::deserialize::value::DeserializeValue<'a, 'a> + PartialEq,
    F: Fn(&[u8]) -> Result<Option<Change>, Error>,
{
    let (mut changes, mut last) = (Vec::new(), None);
    type Row<'a, Id> = (Id, Option<&'a [u8]>, Option<&'a [u8]>);
    for row in rows.rows::<Row<'a, Id>>().map_err(bad_row)? {
        let (id, record, attempt) = row.map_err(bad_row)?;
        if let Some(record) = record.filter(|_| last.as_ref() != Some(&id)) {
            changes.extend(subject(record)?);
        }
        if let Some(attempt) = attempt {
            changes.extend(read(attempt, Change::Attempt)?);
        }
        last = Some(id);
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use schemas::record::example;

    use super::*;

    #[test]
    fn a_copy_loses_no_row_of_a_newer_program() {
        let row = schemas::encode(&example::order()).unwrap();
        let copied = |row: &[u8]| read(row, Change::Order);
        assert!(matches!(copied(&row), Ok(Some(Change::Order(_)))));
        assert!(matches!(copied(&[9; 9]), Ok(None)));
        let mut newer = row;
        newer[1] ^= 1;
        let refused = copied(&newer).unwrap_err().to_string();
        assert!(refused.contains("run that version"), "{refused}");
    }
}
