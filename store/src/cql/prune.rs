//! Removes the rows of a day: each order and each transfer by its id, once its copy is exported, and at the end the
//! partitions of the lists that the day had, as a whole.
//!
//! In between, lists have entries without a row, which readers skip. An interrupted call leaves
//! such entries: the next one finds them.
//!
//! A change has the time of its request, and is written later, by the pipeline's lag. So a row is
//! deleted with the timestamp of its newest version, and a partition with a timestamp [`LAG_MAX`]
//! ago: later changes survive, and rows changed since then are kept for now.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use schemas::record::{Attempt, Order, Record, Transfer};
use schemas::{OrderId, OrderStatus, TransferStatus, UnixMicros, UnixSeconds, decode};
use scylla::response::PagingState;
use scylla::response::query_result::QueryRowsResult;
use scylla::value::CqlValue::{self, BigInt, Int, Text};
use uuid::Uuid;

use super::fault::bad_row;
use super::list_partition::{self, ListPartition, Span};
use super::statement::Statement;
use super::sweep::{self, Listed, listed};
use super::write::{Write, entering, leaving, order_key};
use super::{Tables, read_rows};
use crate::error::unless_unreadable;
use crate::prune::{Day, Export, Pruned};
use crate::{Change, Error, retry};

/// Maximum number of orders or transfers that are read, exported and removed together.
const PART_ROWS: i32 = 500;
/// Number of rows in one page of an order or transfer and its attempts.
const WHOLE_ROWS: i32 = 500;
/// Number of rows that are read concurrently. Low, because removal is not urgent.
const AT_ONCE: usize = 16;

/// Minimum age of the newest version of a removed row, and assumed maximum delay of writing a change.
const LAG_MAX: Duration = Duration::from_secs(3_600);

/// Row that an entry of a day refers to.
#[derive(Debug)]
enum Found {
    /// An order or a transfer to remove, then its attempts.
    Old(Vec<Change>),
    Pending(Order),
    /// An order that has ended, with a deposit that is open.
    Open(Order),
    Waiting(Transfer),
    Unreadable,
    /// No row: an interrupted call removed it, or its write is under way.
    Gone,
}

/// A list of a day while it is removed.
#[derive(Debug)]
struct DayList {
    list: String,
    day: Day,
    /// Directory rows of the list at the beginning.
    listed: Vec<Listed>,
    /// Write timestamp of the deletions of partitions.
    at: UnixMicros,
    /// `true` if a final row changed after `at`.
    is_changing: bool,
    /// Rows whose entries stay.
    staying: Vec<Found>,
    pruned: Pruned,
}

/// The days earlier than `before` that have orders or transfers.
pub(super) async fn days(tables: &Arc<Tables>, before: Day) -> Result<Vec<Day>, Error> {
    let mut days = BTreeSet::new();
    for list in lists(tables).await? {
        let listed =
            listed(tables, &list, list_partition::ALL, i32::MIN..=before.0.saturating_sub(1));
        days.extend(listed.await?.into_iter().map(|listed| Day(listed.partition.bucket)));
    }
    Ok(days.into_iter().collect())
}

async fn lists(tables: &Tables) -> Result<Vec<String>, Error> {
    let mut lists = vec![list_partition::ORDERS.to_owned()];
    lists.extend(tables.wallets().await?);
    Ok(lists)
}

pub(super) async fn prune_day(
    tables: &Arc<Tables>,
    day: Day,
    now: UnixMicros,
    export: &dyn Export,
) -> Result<Pruned, Error> {
    let mut pruned = Pruned::default();
    for list in lists(tables).await? {
        let listed = listed(tables, &list, list_partition::ALL, day.0..=day.0).await?;
        if listed.is_empty() {
            continue;
        }
        // A recent writer may add rows without another write to the directory.
        if !listed.iter().all(|listed| listed.is_quiet(now)) {
            pruned.kept.busy += 1;
            continue;
        }
        let at = UnixMicros(now.0.saturating_sub(LAG_MAX.as_micros() as i64));
        let (is_changing, staying) = (false, Vec::new());
        let mut list =
            DayList { list, day, listed, at, is_changing, staying, pruned: Pruned::default() };
        list.remove_rows(tables, export).await?;
        list.remove_entries(tables, now).await?;
        pruned += list.pruned;
    }
    forget_references(tables, day, now).await?;
    Ok(pruned)
}

async fn write_all(tables: &Arc<Tables>, writes: Vec<Write>) -> Result<(), Error> {
    retry(|| tables.write_all(writes.clone())).await
}

/// The rows of one page of a partition's entries, and the start of the next page.
async fn part(
    tables: &Arc<Tables>,
    partition: &ListPartition,
    from: PagingState,
) -> Result<(Vec<Found>, Option<PagingState>), Error> {
    let (rows, next) =
        tables.page(partition.table().select, &partition.key(), PART_ROWS, from).await?;
    let found = if partition.list == list_partition::ORDERS {
        tables.each(order_ids(&rows)?, AT_ONCE, order).await?
    } else {
        tables.each(transfer_ids(&rows)?, AT_ONCE, transfer).await?
    };
    Ok((found, next))
}

impl DayList {
    fn has_orders(&self) -> bool {
        self.list == list_partition::ORDERS
    }

    /// Removes final rows, part by part.
    async fn remove_rows(
        &mut self,
        tables: &Arc<Tables>,
        export: &dyn Export,
    ) -> Result<(), Error> {
        for partition in
            self.listed.iter().map(|listed| listed.partition.clone()).collect::<Vec<_>>()
        {
            let mut from = Some(PagingState::start());
            while let Some(page) = from {
                let (found, next) = retry(|| part(tables, &partition, page.clone())).await?;
                let old = self.sort(found);
                let rows = old.concat();
                export.keep(&rows).await?;
                // Entries that lead to a row are deleted first: without the row they would not be
                // found again.
                let (leading, last): (Vec<_>, Vec<_>) =
                    old.iter().map(|rows| deletions(rows)).unzip();
                write_all(tables, leading.into_iter().flatten().collect()).await?;
                write_all(tables, last.into_iter().flatten().collect()).await?;
                self.pruned.removed.count(&rows);
                from = next;
            }
        }
        Ok(())
    }

    /// Returns the rows to remove. Counts and notes those that stay. A row that changed lately sets `is_changing`.
    fn sort(&mut self, found: Vec<Found>) -> Vec<Vec<Change>> {
        let (mut old, kept) = (Vec::new(), &mut self.pruned.kept);
        for found in found {
            match &found {
                Found::Old(_) | Found::Gone => {}
                Found::Pending(_) => kept.pending += 1,
                Found::Open(_) => kept.open += 1,
                Found::Waiting(_) => kept.waiting += 1,
                Found::Unreadable => kept.unreadable += 1,
            }
            match found {
                Found::Old(rows) if newest(&rows) > self.at => self.is_changing = true,
                Found::Old(rows) => old.push(rows),
                Found::Gone => {}
                stays @ (Found::Pending(_)
                | Found::Open(_)
                | Found::Waiting(_)
                | Found::Unreadable) => self.staying.push(stays),
            }
        }
        old
    }

    /// Deletes the day's partitions, and writes the entries of kept rows again. If that is
    /// impossible now, leaves them, with entries of removed rows.
    async fn remove_entries(&mut self, tables: &Arc<Tables>, now: UnixMicros) -> Result<(), Error> {
        // The entries of an unreadable row cannot be located: only its record shows where they are.
        if self.pruned.kept.unreadable > 0 {
            return Ok(());
        }
        if self.is_changing {
            self.pruned.kept.busy += 1;
            return Ok(());
        }
        let bucket = self.day.0;
        let mut ended = Vec::new();
        for stage in self.ends() {
            ended.extend(listed(tables, &self.list, stage, bucket..=bucket).await?);
        }
        let all = listed(tables, &self.list, list_partition::ALL, bucket..=bucket).await?;
        if all != self.listed || !ended.iter().all(|listed| listed.is_quiet(now)) {
            return Ok(());
        }
        let staying = self.staying.iter().flat_map(|row| entries(row, UnixMicros(self.at.0 + 1)));
        write_all(tables, staying.collect()).await?;
        // The directory rows of the stage `all` show which days have rows: they are deleted last.
        for part in [ended, all] {
            let writes =
                part.iter().filter_map(|listed| delete_partition(&listed.partition, self.at));
            write_all(tables, writes.collect()).await?;
            tables.each(part, AT_ONCE, sweep::take_out).await?;
        }
        Ok(())
    }

    fn ends(&self) -> Vec<&'static str> {
        if self.has_orders() {
            let ended = OrderStatus::ALL.iter().filter(|status| **status != OrderStatus::Pending);
            return ended.map(|status| status.as_str()).collect();
        }
        let ended =
            TransferStatus::ALL.iter().filter(|status| !list_partition::is_waiting(**status));
        ended.map(|status| status.as_str()).collect()
    }
}

fn order_ids(rows: &QueryRowsResult) -> Result<Vec<OrderId>, Error> {
    read_rows(rows, |(_, id): (i64, &[u8])| {
        Ok(Some(OrderId(Uuid::from_bytes(id.try_into().map_err(bad_row)?))))
    })
}

fn transfer_ids(rows: &QueryRowsResult) -> Result<Vec<i64>, Error> {
    read_rows(rows, |(_, id): (i64, i64)| Ok(Some(id)))
}

async fn order(tables: Arc<Tables>, id: OrderId) -> Result<Found, Error> {
    let id = CqlValue::Uuid(id.0);
    let read = whole::<Order>(&tables, Statement::SelectWholeOrder, id.clone()).await;
    let (order, attempts) = match unless_unreadable(read)? {
        None => return Ok(Found::Unreadable),
        Some(None) => return Ok(Found::Gone),
        Some(Some(whole)) => whole,
    };
    if order.status == OrderStatus::Pending {
        return Ok(Found::Pending(order));
    }
    let mut from = Some(PagingState::start());
    while let Some(page) = from {
        let values = [id.clone()];
        let (rows, next) = tables.page(Statement::SelectDepositsByOrder, &values, 1, page).await?;
        if rows.rows_num() > 0 {
            return Ok(Found::Open(order));
        }
        from = next;
    }
    let attempts = attempts.into_iter().map(Change::Attempt);
    Ok(Found::Old(std::iter::once(Change::Order(order)).chain(attempts).collect()))
}

async fn transfer(tables: Arc<Tables>, id: i64) -> Result<Found, Error> {
    let read = whole::<Transfer>(&tables, Statement::SelectWholeTransfer, BigInt(id)).await;
    let (transfer, attempts) = match unless_unreadable(read)? {
        None => return Ok(Found::Unreadable),
        Some(None) => return Ok(Found::Gone),
        Some(Some(whole)) => whole,
    };
    if list_partition::is_waiting(transfer.status) {
        return Ok(Found::Waiting(transfer));
    }
    let attempts = attempts.into_iter().map(Change::Attempt);
    Ok(Found::Old(std::iter::once(Change::Transfer(transfer)).chain(attempts).collect()))
}

/// A row with its attempts.
async fn whole<R: Record>(
    tables: &Tables,
    statement: Statement,
    id: CqlValue,
) -> Result<Option<(R, Vec<Attempt>)>, Error> {
    let (mut record, mut attempts) = (None, Vec::new());
    let mut from = Some(PagingState::start());
    while let Some(page) = from {
        let (rows, next) =
            tables.page(statement, std::slice::from_ref(&id), WHOLE_ROWS, page).await?;
        for row in rows.rows::<(Option<&[u8]>, Option<&[u8]>)>().map_err(bad_row)? {
            let (bytes, attempt) = row.map_err(bad_row)?;
            // Attempts may be written before their subject.
            let Some(bytes) = bytes else { return Ok(None) };
            if record.is_none() {
                record = Some(decode(bytes)?);
            }
            attempts.extend(attempt.map(decode).transpose()?);
        }
        from = next;
    }
    Ok(record.map(|record| (record, attempts)))
}

/// The newest version of an order or a transfer and its attempts.
fn newest(rows: &[Change]) -> UnixMicros {
    rows.iter().map(Change::written_at).max().unwrap_or_default()
}

/// Returns the deletions of a row: the entries that lead to it, then the row with its attempts.
fn deletions(rows: &[Change]) -> (Vec<Write>, Option<Write>) {
    let at = newest(rows);
    let write = |statement, key: Vec<CqlValue>| Write {
        statement,
        rows: vec![[vec![BigInt(at.0)], key].concat()],
    };
    match rows.first() {
        Some(Change::Order(order)) => {
            let row = [BigInt(order.created_at.0), order_key(order.order_id)];
            let bucket = ListPartition::of_reference(order).bucket;
            let reference = [Text(order.merchant_order_id.clone()), Int(bucket)];
            let reference =
                write(Statement::DeleteOrderByReference, [&reference[..], &row].concat());
            // Usually deleted already. If a node missed that deletion, readers could not repair it
            // once the row is gone.
            let pending = leaving(&ListPartition::of_status(order, OrderStatus::Pending), at, &row);
            let pending = pending.map(|(statement, row)| Write { statement, rows: vec![row] });
            let leading = pending.into_iter().chain([reference]).collect();
            let order = write(Statement::DeleteOrder, vec![CqlValue::Uuid(order.order_id.0)]);
            (leading, Some(order))
        }
        Some(Change::Transfer(transfer)) => {
            let row = [BigInt(transfer.created_at.0), BigInt(transfer.transfer_id.0)];
            let waiting = leaving(&ListPartition::of_waiting(transfer), at, &row);
            let waiting = waiting.map(|(statement, row)| Write { statement, rows: vec![row] });
            let transfer = write(Statement::DeleteTransfer, vec![BigInt(transfer.transfer_id.0)]);
            (waiting.into_iter().collect(), Some(transfer))
        }
        Some(Change::Deposit(_) | Change::Attempt(_) | Change::Chain(_)) | None => {
            (Vec::new(), None)
        }
    }
}

/// Entries of a kept row in the deleted partitions.
fn entries(row: &Found, version: UnixMicros) -> Vec<Write> {
    let write = |partition: ListPartition, row: &[CqlValue]| {
        let rows = vec![entering(&partition, version, row)];
        Write { statement: partition.table().insert, rows }
    };
    match row {
        Found::Pending(order) | Found::Open(order) => {
            let row = [BigInt(order.created_at.0), order_key(order.order_id)];
            let mut all = vec![write(ListPartition::of_order(order), &row)];
            if order.status != OrderStatus::Pending {
                all.push(write(ListPartition::of_status(order, order.status), &row));
            }
            all
        }
        Found::Waiting(transfer) => {
            let row = [BigInt(transfer.created_at.0), BigInt(transfer.transfer_id.0)];
            vec![write(ListPartition::of_transfer(transfer), &row)]
        }
        Found::Old(_) | Found::Unreadable | Found::Gone => Vec::new(),
    }
}

fn delete_partition(partition: &ListPartition, UnixMicros(at): UnixMicros) -> Option<Write> {
    let row = [vec![BigInt(at)], partition.key()].concat();
    partition.table().delete_partition.map(|statement| Write { statement, rows: vec![row] })
}

/// Removes a day's thirty-day bucket of references from the directory, if it is quiet and no order of it is left.
async fn forget_references(tables: &Arc<Tables>, day: Day, now: UnixMicros) -> Result<(), Error> {
    let bucket = Span::ThirtyDays.bucket(day.start());
    let first = Day::of(UnixSeconds(Span::ThirtyDays.start(bucket)));
    let last = Day::of(UnixSeconds(Span::ThirtyDays.start(bucket.saturating_add(1)))).back(1);
    let found =
        listed(tables, list_partition::REFERENCES, list_partition::ALL, bucket..=bucket).await?;
    let quiet: Vec<_> = found.into_iter().filter(|listed| listed.is_quiet(now)).collect();
    if quiet.is_empty()
        || !listed(tables, list_partition::ORDERS, list_partition::ALL, first.0..=last.0)
            .await?
            .is_empty()
    {
        return Ok(());
    }
    for listed in quiet {
        sweep::forget(tables, listed).await?;
    }
    Ok(())
}
