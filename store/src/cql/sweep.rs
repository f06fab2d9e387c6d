//! Removes empty one-minute partitions of lists that rows leave (such as pending orders) from the directory
//! (`list_partitions`), so that no reader opens their tombstones again. Days that `prune.rs` emptied leave it in the
//! same way.
//!
//! A minute is only removed if its directory row was not written for [`QUIET`]. The deletion has the timestamp of the
//! last write to the directory row that was read: a later write has a later one and enters the directory again. Entries
//! are written within [`super::known_partitions::KNOWN_FOR`] of their directory row, or the row is written again after
//! them. So the clock of a writer may be behind that of a sweeper by the rest of [`QUIET`], 50 s.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use schemas::UnixMicros;
use scylla::response::PagingState;
use scylla::value::CqlValue;

use super::Tables;
use super::fault::bad_row;
use super::list_partition::{self, ListPartition, Span};
use super::statement::Statement;
use super::write::Write;
use crate::Error;

/// Minimum time since the last write of a directory row before a sweep removes it.
const QUIET: Duration = Duration::from_secs(60);
/// Half the age in minutes up to which a minute is checked by every sweep; the older it is, the
/// fewer sweeps check it.
const OFTEN_MINUTES: i64 = 10;
/// Interval of the projector's sweeps, in seconds. [`number`] counts these intervals, to spread old minutes over them.
const SWEEP_SECONDS: i64 = 30;
/// Number of rows in one page of the directory.
const PAGE_ROWS: i32 = 1_000;
/// Maximum number of partitions for which empty slices are remembered.
const EMPTIED_MAX: usize = 10_000;
/// Number of partitions that are checked concurrently. Low, because a sweep is not urgent.
const AT_ONCE: usize = 8;

/// A partition as in the directory, and the last write time of its directory row.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Listed {
    pub(super) partition: ListPartition,
    pub(super) written_at: UnixMicros,
}

impl Listed {
    /// `true` if the last write was more than [`QUIET`] ago.
    pub(super) fn is_quiet(&self, now: UnixMicros) -> bool {
        self.written_at.0 < now.0.saturating_sub(QUIET.as_micros() as i64)
    }
}

/// `true` if a sweep checks a minute of this age. The interval between checks is a power of two: it
/// changes only when the age has doubled, which takes longer than an interval. So no minute is missed.
fn is_due(age_minutes: i64, shard: i32, sweep: u64) -> bool {
    let every = u64::try_from(age_minutes / OFTEN_MINUTES).unwrap_or(0).max(1).next_power_of_two();
    (sweep + u64::from(shard.unsigned_abs())).is_multiple_of(every)
}

/// Number of a sweep, derived from the clock, so that restarts do not reset it.
fn number(now: UnixMicros) -> u64 {
    u64::try_from(now.seconds().0 / SWEEP_SECONDS).unwrap_or(0)
}

/// Sweeps every list that rows leave. Returns the number of partitions that left the directory.
pub(super) async fn sweep(tables: &Arc<Tables>, now: UnixMicros) -> Result<usize, Error> {
    let mut lists = vec![list_partition::ORDERS.to_owned(), list_partition::DEPOSITS.to_owned()];
    lists.extend(tables.wallets().await?);
    let mut swept = 0;
    for list in lists {
        let due = due(tables, &list, now).await?;
        let emptied = tables.each(due, AT_ONCE, take_out).await?;
        swept += emptied.into_iter().filter(|emptied| *emptied).count();
    }
    Ok(swept)
}

/// The minutes of a list to check.
async fn due(tables: &Tables, list: &str, now: UnixMicros) -> Result<Vec<Listed>, Error> {
    let minute = i64::from(Span::Minute.bucket(now.seconds()));
    let mut due = listed(tables, list, list_partition::LIVE, i32::MIN..=i32::MAX).await?;
    due.retain(|listed| {
        let age = minute - i64::from(listed.partition.bucket);
        listed.is_quiet(now) && is_due(age, listed.partition.shard, number(now))
    });
    Ok(due)
}

/// Returns the directory rows of a list in some buckets.
pub(super) async fn listed(
    tables: &Tables,
    list: &str,
    stage: &str,
    buckets: RangeInclusive<i32>,
) -> Result<Vec<Listed>, Error> {
    let (mut all, mut from) = (Vec::new(), Some(PagingState::start()));
    while let Some(page) = from {
        let (rows, next) = listed_page(tables, list, stage, &buckets, (PAGE_ROWS, page)).await?;
        all.extend(rows);
        from = next;
    }
    Ok(all)
}

/// As [`listed`], page by page, newest bucket first: this many rows from a position on.
pub(super) async fn listed_page(
    tables: &Tables,
    list: &str,
    stage: &str,
    buckets: &RangeInclusive<i32>,
    (rows, from): (i32, PagingState),
) -> Result<(Vec<Listed>, Option<PagingState>), Error> {
    let [list, stage] = [list, stage].map(str::to_owned);
    let [first, last] = [buckets.start(), buckets.end()].map(|bucket| CqlValue::Int(*bucket));
    let values = [CqlValue::Text(list.clone()), CqlValue::Text(stage.clone()), first, last];
    let (rows, next) = tables.page(Statement::SelectListPartitions, &values, rows, from).await?;
    let rows = rows.rows::<(i32, String, String, i32, i64)>().map_err(bad_row)?.map(|row| {
        let (bucket, blockchain, stablecoin, shard, written_at) = row.map_err(bad_row)?;
        let (list, stage) = (list.clone(), stage.clone());
        let partition = ListPartition { list, stage, bucket, blockchain, stablecoin, shard };
        Ok(Listed { partition, written_at: UnixMicros(written_at) })
    });
    Ok((rows.collect::<Result<_, Error>>()?, next))
}

/// Removes a partition from the directory if it is empty. Returns `true` if it was.
pub(super) async fn take_out(tables: Arc<Tables>, listed: Listed) -> Result<bool, Error> {
    let known = tables.emptied.slices(&listed);
    for (number, (statement, values)) in
        slices(&listed.partition).into_iter().enumerate().skip(known)
    {
        let mut from = Some(PagingState::start());
        while let Some(page) = from {
            let (rows, next) = tables.page(statement, &values, 1, page).await?;
            if rows.rows_num() > 0 {
                tables.emptied.keep(listed, number);
                return Ok(false);
            }
            from = next;
        }
    }
    tables.emptied.drop(&listed);
    forget(&tables, listed).await?;
    Ok(true)
}

/// Returns the reads that find a row in a partition. A partition whose rows leave one by one is
/// read slice by slice, the newest first: each read steps over the tombstones of one second alone.
fn slices(partition: &ListPartition) -> Vec<(Statement, Vec<CqlValue>)> {
    let (table, key) = (partition.table(), partition.key());
    // The first and the last bucket hold times beyond any calendar, and are unbounded.
    let has_times = ![i32::MIN, i32::MAX].contains(&partition.bucket);
    let Some(within) = table.within.filter(|_| has_times) else {
        return vec![(table.select, key)];
    };
    let seconds = Span::Minute.start(partition.bucket)..Span::Minute.start(partition.bucket + 1);
    let slice = |second: i64| {
        let times = [second, second + 1].map(CqlValue::BigInt);
        (within, key.iter().cloned().chain(times).collect())
    };
    seconds.rev().map(slice).collect()
}

/// Number of leading empty slices of partitions that had a row when last checked. A partition that
/// was written since has another time in the directory, and no entry here.
#[derive(Debug, Default)]
pub(super) struct Emptied(Mutex<HashMap<Listed, usize>>);

impl Emptied {
    fn slices(&self, of: &Listed) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(of).copied().unwrap_or(0)
    }

    fn keep(&self, of: Listed, slices: usize) {
        if slices == 0 {
            return;
        }
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= EMPTIED_MAX {
            known.clear();
        }
        known.insert(of, slices);
    }

    fn drop(&self, of: &Listed) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(of);
    }
}

/// Removes a partition from the directory, unless its directory row was written again since it was
/// read.
pub(super) async fn forget(tables: &Tables, listed: Listed) -> Result<(), Error> {
    let Listed { partition, written_at } = listed;
    let ListPartition { list, stage, bucket, blockchain, stablecoin, shard } = partition;
    let [list, stage, blockchain, stablecoin] =
        [list, stage, blockchain, stablecoin].map(CqlValue::Text);
    let (at, bucket) = (CqlValue::BigInt(written_at.0), CqlValue::Int(bucket));
    let row = vec![at, list, stage, bucket, blockchain, stablecoin, CqlValue::Int(shard)];
    tables.write(&Write { statement: Statement::DeleteListPartition, rows: vec![row] }).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_second_of_a_minute_is_in_one_slice() {
        for (list, bucket) in
            [(list_partition::ORDERS, 0), (list_partition::DEPOSITS, -1), ("0xab", 29_833_333)]
        {
            let (list, stage) = (list.to_owned(), list_partition::LIVE.to_owned());
            let partition = ListPartition { list, stage, bucket, ..ListPartition::default() };
            let slices = slices(&partition).into_iter().map(|(statement, values)| {
                assert_eq!(statement.values(), values.len());
                let (start, end) =
                    (values[values.len() - 2].clone(), values[values.len() - 1].clone());
                (start.as_bigint().unwrap(), end.as_bigint().unwrap())
            });
            let mut seconds: Vec<i64> = slices.flat_map(|(start, end)| start..end).collect();
            seconds.sort_unstable();
            let start = Span::Minute.start(bucket);
            assert_eq!(seconds, (start..start + 60).collect::<Vec<_>>());
        }
    }

    #[test]
    fn empty_slices_are_remembered_until_written() {
        let emptied = Emptied::default();
        let listed = |written_at| Listed { partition: ListPartition::default(), written_at };
        emptied.keep(listed(UnixMicros(1)), 7);
        assert_eq!(emptied.slices(&listed(UnixMicros(1))), 7);
        assert_eq!(emptied.slices(&listed(UnixMicros(2))), 0, "it was written again");
        emptied.drop(&listed(UnixMicros(1)));
        assert_eq!(emptied.slices(&listed(UnixMicros(1))), 0);
    }

    #[test]
    fn what_has_no_end_is_read_at_once() {
        let partition = |stage: &str, bucket| ListPartition {
            list: list_partition::ORDERS.to_owned(),
            stage: stage.to_owned(),
            bucket,
            ..ListPartition::default()
        };
        for partition in [
            partition(list_partition::LIVE, i32::MIN),
            partition(list_partition::LIVE, i32::MAX),
            partition(list_partition::ALL, 7),
        ] {
            assert_eq!(slices(&partition).len(), 1, "{partition:?}");
        }
    }

    #[test]
    fn old_minutes_are_checked_seldom_but_again() {
        for start in [0, 1, 7, 1_000, 59_000_001] {
            for shard in 0..4 {
                let mut last = 0;
                // Two weeks.
                for sweep in 0..40_320 {
                    let age = sweep / 2;
                    let number = start + u64::try_from(sweep).unwrap();
                    let most = (age / OFTEN_MINUTES).max(1) * 4;
                    if is_due(age, shard, number) {
                        last = sweep;
                    }
                    assert!(sweep - last <= most, "{start} {shard} {age} minutes");
                }
            }
        }
        let checks = (0..40_320).filter(|sweep| is_due(sweep / 2, 0, sweep.unsigned_abs()));
        assert!(checks.count() < 400, "seldom");
    }
}
