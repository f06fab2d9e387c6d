//! Writes and queries of the tables: lists give ids, and the rows are read by id, concurrently.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use async_trait::async_trait;
use runtime::clock::{Clock as _, SystemClock};
use schemas::record::{Attempt, Deposit, Order, Record, Transfer};
use schemas::{
    Address, Blockchain, Incarnation, OrderId, Partition, Topic, TransferId, UnixMicros,
    UnixSeconds, decode,
};
use scylla::response::PagingState;
use scylla::response::query_result::QueryRowsResult;
use scylla::value::CqlValue::{self, BigInt, Int, Text};
use uuid::Uuid;

use super::fault::bad_row;
use super::list_partition::{self, Span};
use super::merge::Entry;
use super::statement::Statement;
use super::walk::{List, Walk};
use super::write::{Write, Writes, word};
use super::{CqlStore, Tables, migration, prune, read_rows, sweep};
use crate::error::unless_unreadable;
use crate::prune::{Day, Export, Pruned};
use crate::{
    ChainRow, Change, DepositFilter, DepositRow, Error, OrderFilter, OrderRow, Origin, Page,
    Position, Store, Subject, TransferFilter, TransferRow,
};

/// An order's record, and one attempt's start, whether it made a request, and whether it was delivered.
type AttemptOfOrder<'a> = (Option<&'a [u8]>, Option<i64>, Option<bool>, Option<bool>);

/// Maximum number of rows that are read by id concurrently.
const READS_MAX: usize = 64;
/// Number of rows in one page of an order's attempts.
const ATTEMPT_ROWS: i32 = 1_000;
const RECORD_ROWS: i32 = 100;
const POSITION_ROWS: i32 = 1_000;

#[async_trait]
impl Store for CqlStore {
    async fn apply(&self, changes: Vec<Change>) -> Result<(), Error> {
        let writes = Writes::of(&changes)?;
        let has_chain = changes.iter().any(|change| matches!(change, Change::Chain(_)));
        let Writes { partitions, wallets, inserts, deletes, .. } = writes;
        let (directory, inserted) = tokio::join!(
            self.tables.write_directory(&partitions, &wallets),
            self.tables.write_all(inserts),
        );
        if has_chain {
            self.tables.chains.written();
        }
        directory.and(inserted)?;
        // If the call took long, a sweep may have removed its partitions from the directory while
        // they were still empty: their directory rows are written again.
        self.tables.write_directory(&partitions, &wallets).await?;
        self.tables.write_all(deletes).await
    }

    async fn sweep(&self) -> Result<(), Error> {
        let swept = sweep::sweep(&self.tables, SystemClock.now()).await?;
        tracing::debug!(swept, "partitions without rows were taken out of the lists");
        Ok(())
    }

    /// Nothing to do: what the replicas have acknowledged is durable.
    async fn flush(&self) -> Result<(), Error> {
        Ok(())
    }

    async fn check(&self) -> Result<(), Error> {
        migration::check_tables(&self.tables.session, &self.tables.keyspace).await
    }

    async fn order(&self, id: OrderId) -> Result<Option<OrderRow>, Error> {
        self.tables.order(id).await
    }

    async fn orders(&self, filter: OrderFilter, page: Page) -> Result<Vec<OrderRow>, Error> {
        let status = filter.status;
        rows(&self.tables, List::Orders(filter), page, move |tables, entry| async move {
            let row = tables.order(OrderId(Uuid::from_u128(entry.id))).await?;
            Ok(Loaded::of(row, |row| {
                let is_of = status.is_none_or(|status| row.order.status == status);
                (is_of, row.order.updated_at)
            }))
        })
        .await
    }

    async fn deposits(&self, filter: DepositFilter, page: Page) -> Result<Vec<DepositRow>, Error> {
        let load = |tables: Arc<Tables>, entry: Entry| async move {
            let id = entry.integer();
            let bucket = Span::Minute.bucket(UnixSeconds(entry.at));
            let values =
                [Int(bucket), Int(list_partition::live_shard(id)), BigInt(entry.at), BigInt(id)];
            let row: Option<Deposit> = tables.record(Statement::SelectDeposit, &values).await?;
            Ok(Loaded::of(row, |row| (true, row.updated_at)))
        };
        let deposits = rows(&self.tables, List::Deposits(filter), page, load);
        let (deposits, chains) = tokio::try_join!(deposits, self.chains())?;
        let scans = chains.into_iter().filter(|chain| chain.lane.is_none());
        let scanned: HashMap<Blockchain, UnixSeconds> =
            scans.map(|chain| (chain.blockchain, chain.updated_at.seconds())).collect();
        let row = |deposit: Deposit| DepositRow {
            last_scanned_at: scanned.get(&deposit.blockchain).copied(),
            deposit,
        };
        Ok(deposits.into_iter().map(row).collect())
    }

    async fn transfer(&self, id: TransferId) -> Result<Option<TransferRow>, Error> {
        self.tables.record(Statement::SelectTransfer, &[BigInt(id.0)]).await
    }

    async fn transfers(
        &self,
        wallet: Address,
        filter: TransferFilter,
        page: Page,
    ) -> Result<Vec<TransferRow>, Error> {
        let status = filter.status;
        rows(&self.tables, List::Transfers(wallet, filter), page, move |tables, entry| async move {
            let id = BigInt(entry.integer());
            let row: Option<Transfer> = tables.record(Statement::SelectTransfer, &[id]).await?;
            // If the transfer now waits for something else, its new entry has the key of this one and
            // overwrites it. A repair would have the version of the new entry and delete that too, so
            // the entry is only skipped.
            let both_wait = |row: &Transfer| {
                list_partition::is_waiting(row.status)
                    && status.is_some_and(list_partition::is_waiting)
            };
            let is_of = |row: &Transfer| status.is_none_or(|status| row.status == status);
            let row = row.filter(|row| is_of(row) || !both_wait(row));
            Ok(Loaded::of(row, |row| (is_of(row), row.updated_at)))
        })
        .await
    }

    /// Reads all of them: there are few, and their key has another order.
    async fn attempts(&self, subject: Subject, page: Page) -> Result<Vec<Attempt>, Error> {
        let (statement, id) = match subject {
            Subject::Order(id) => (Statement::SelectOrderAttempts, CqlValue::Uuid(id.0)),
            Subject::Transfer(id) => (Statement::SelectTransferAttempts, BigInt(id.0)),
        };
        let mut all: Vec<Attempt> = self.tables.records(statement, &[id]).await?;
        all.sort_by(|a, b| {
            (b.attempted_at, &b.event_id, b.attempt).cmp(&(a.attempted_at, &a.event_id, a.attempt))
        });
        let size = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        Ok(all.into_iter().skip(size(page.offset)).take(size(page.limit)).collect())
    }

    /// Cached for a second at most, or until this process writes one.
    async fn chains(&self) -> Result<Vec<ChainRow>, Error> {
        let begun = match self.tables.chains.get() {
            Ok(chains) => return Ok(chains),
            Err(begun) => begun,
        };
        let at = Instant::now();
        let read = |tables: Arc<Tables>, chain: Blockchain| async move {
            tables.records(Statement::SelectChain, &[word(chain.as_str())]).await
        };
        let found = self.tables.each(Blockchain::ALL.to_vec(), READS_MAX, read).await?;
        let found: Vec<ChainRow> = found.into_iter().flatten().collect();
        self.tables.chains.keep(begun, at, &found);
        Ok(found)
    }

    async fn old_days(&self, before: Day) -> Result<Vec<Day>, Error> {
        prune::days(&self.tables, before).await
    }

    async fn prune_day(
        &self,
        day: Day,
        now: UnixMicros,
        export: &dyn Export,
    ) -> Result<Pruned, Error> {
        prune::prune_day(&self.tables, day, now, export).await
    }

    async fn origin(&self) -> Result<Option<Origin>, Error> {
        let start = PagingState::start();
        let (rows, _) = self.tables.page(Statement::SelectOrigin, &[Int(0)], 1, start).await?;
        let found = rows.maybe_first_row::<(String, i64, i64)>().map_err(bad_row)?;
        Ok(found.map(|(installation, number, at)| {
            self.tables.noted_at.fetch_max(at, Ordering::Relaxed);
            Origin { installation, incarnation: Incarnation(number) }
        }))
    }

    async fn set_origin(&self, origin: &Origin) -> Result<(), Error> {
        let installation = Text(origin.installation.clone());
        let at = BigInt(self.tables.note_now());
        let rows = vec![vec![Int(0), installation, BigInt(origin.incarnation.0), at]];
        self.tables.write(&Write { statement: Statement::InsertOrigin, rows }).await
    }

    async fn positions(&self) -> Result<Vec<Position>, Error> {
        let read = |rows: &QueryRowsResult| {
            read_rows(rows, |(topic, partition, next, at): (String, i32, i64, i64)| {
                self.tables.noted_at.fetch_max(at, Ordering::Relaxed);
                let partition = Partition(partition.cast_unsigned());
                Ok(Topic::named(&topic).map(|topic| Position { topic, partition, next }))
            })
        };
        self.tables.all(Statement::SelectPositions, &[Int(0)], POSITION_ROWS, read).await
    }

    async fn set_positions(&self, positions: &[Position]) -> Result<(), Error> {
        if positions.is_empty() {
            return Ok(());
        }
        let at = self.tables.note_now();
        let row = |position: &Position| {
            let Position { topic, partition, next } = position;
            let (topic, partition) = (topic.name().to_owned(), partition.0.cast_signed());
            vec![Int(0), Text(topic), Int(partition), BigInt(*next), BigInt(at)]
        };
        let rows = positions.iter().map(row).collect();
        self.tables.write(&Write { statement: Statement::InsertPosition, rows }).await
    }

    async fn pruned_before(&self) -> Result<Option<UnixSeconds>, Error> {
        let start = PagingState::start();
        let (rows, _) = self.tables.page(Statement::SelectPruned, &[Int(0)], 1, start).await?;
        let found = rows.maybe_first_row::<(i64,)>().map_err(bad_row)?;
        Ok(found.map(|(second,)| UnixSeconds(second)))
    }

    async fn set_pruned_before(&self, second: UnixSeconds) -> Result<(), Error> {
        let rows = vec![vec![Int(0), BigInt(second.0), BigInt(second.micros().0)]];
        self.tables.write(&Write { statement: Statement::InsertPruned, rows }).await
    }
}

/// Counts an attempt in the order's delivery state (spec 2.3).
fn count(row: &mut OrderRow, at: UnixSeconds, delivered: bool) {
    row.webhook_retry_count = row.webhook_retry_count.saturating_add(1);
    row.webhook_last_tried_at = row.webhook_last_tried_at.max(Some(at));
    if delivered {
        row.webhook_success_at = Some(row.webhook_success_at.map_or(at, |first| first.min(at)));
    }
}

/// The row of an entry of a list.
enum Loaded<T> {
    Row(T),
    /// The row is in another list by now; its version.
    Elsewhere(UnixMicros),
    /// No row to show: it is not written yet or was removed, or the entry is about to change.
    Nothing,
}

impl<T> Loaded<T> {
    /// `check` returns `true` if a row is of the list, and its version.
    fn of(row: Option<T>, check: impl Fn(&T) -> (bool, UnixMicros)) -> Self {
        let Some(row) = row else { return Self::Nothing };
        match check(&row) {
            (true, _) => Self::Row(row),
            (false, version) => Self::Elsewhere(version),
        }
    }
}

/// A page of a list. `load` reads the row of an entry. If the row is in another list by now, the
/// next entry is taken instead, and this one is deleted: usually its deletion is under way, but a
/// deletion that a node missed would shift the list's pages for ever. The next entry also replaces an
/// unreadable row, of a newer program or damaged, so that the page has the others.
async fn rows<T, L, F>(
    tables: &Arc<Tables>,
    list: List,
    page: Page,
    load: L,
) -> Result<Vec<T>, Error>
where
    T: Send + 'static,
    L: Fn(Arc<Tables>, Entry) -> F,
    F: Future<Output = Result<Loaded<T>, Error>> + Send + 'static,
{
    let mut walk =
        Walk::start(tables.clone(), list, page.offset.saturating_add(page.limit)).await?;
    for _ in 0..page.offset {
        if walk.next().await?.is_none() {
            return Ok(Vec::new());
        }
    }
    let limit = usize::try_from(page.limit).unwrap_or(usize::MAX);
    let load = |tables: Arc<Tables>, (entry, _): (Entry, usize)| {
        let row = load(tables, entry);
        async move { unless_unreadable(row.await) }
    };
    let mut found = Vec::new();
    let mut ended = false;
    while found.len() < limit && !ended {
        let mut entries = Vec::new();
        while found.len() + entries.len() < limit && !ended {
            match walk.next().await? {
                Some(entry) => entries.push(entry),
                None => ended = true,
            }
        }
        let loaded = tables.each(entries.clone(), READS_MAX, &load).await?;
        let mut repairs = Vec::new();
        for (entry, row) in entries.into_iter().zip(loaded) {
            match row {
                Some(Loaded::Row(row)) => found.push(row),
                Some(Loaded::Elsewhere(version)) => repairs.extend(walk.repair(entry, version)),
                Some(Loaded::Nothing) | None => {}
            }
        }
        if let Err(cause) = tables.write_all(repairs).await {
            tracing::debug!(%cause, "entries of a list are left for the next reader to delete");
        }
    }
    Ok(found)
}

impl Tables {
    /// Write time of an origin or of positions: later than that of the present ones, which the servers would keep if
    /// the clock of their writer was ahead of this one.
    fn note_now(&self) -> i64 {
        let after = self.noted_at.load(Ordering::Relaxed).saturating_add(1);
        let at = SystemClock.now().0.max(after);
        self.noted_at.fetch_max(at, Ordering::Relaxed);
        at
    }

    async fn order(&self, id: OrderId) -> Result<Option<OrderRow>, Error> {
        let values = [CqlValue::Uuid(id.0)];
        let (mut found, mut from) = (None, Some(PagingState::start()));
        while let Some(page) = from {
            let (rows, next) =
                self.page(Statement::SelectOrder, &values, ATTEMPT_ROWS, page).await?;
            // Each row has an attempt, and the order's record in a static column; an order without
            // attempts has a single row.
            for row in rows.rows::<AttemptOfOrder<'_>>().map_err(bad_row)? {
                let (record, attempted_at, counted, delivered) = row.map_err(bad_row)?;
                // Attempts may be written before their order.
                let Some(record) = record else { return Ok(None) };
                if found.is_none() {
                    found = Some(OrderRow {
                        order: decode::<Order>(record)?,
                        webhook_retry_count: 0,
                        webhook_success_at: None,
                        webhook_last_tried_at: None,
                    });
                }
                if let (Some(row), Some(at), Some(true)) = (&mut found, attempted_at, counted) {
                    count(row, UnixMicros(at).seconds(), delivered == Some(true));
                }
            }
            from = next;
        }
        Ok(found)
    }

    /// The records that a statement finds, except those that cannot be read.
    async fn records<R: Record>(
        &self,
        statement: Statement,
        values: &[CqlValue],
    ) -> Result<Vec<R>, Error> {
        let read = |rows: &QueryRowsResult| {
            read_rows(rows, |(bytes,): (Option<&[u8]>,)| {
                // An order or transfer without an attempt has a row with an empty column.
                let Some(bytes) = bytes else { return Ok(None) };
                unless_unreadable(decode(bytes).map_err(Error::from))
            })
        };
        self.all(statement, values, RECORD_ROWS, read).await
    }

    async fn record<R: Record>(
        &self,
        statement: Statement,
        values: &[CqlValue],
    ) -> Result<Option<R>, Error> {
        let (rows, _) = self.page(statement, values, 1, PagingState::start()).await?;
        let found = rows.maybe_first_row::<(Option<&[u8]>,)>().map_err(bad_row)?;
        Ok(found.and_then(|(bytes,)| bytes).map(decode).transpose()?)
    }
}
