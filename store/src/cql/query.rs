//! Writes and queries of the tables: lists give ids, and the rows are read by id, side by side.

use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use schemas::record::{Attempt, ChainProgress, Deposit, Order, Record, Transfer};
use schemas::{
    Address, Blockchain, DepositId, OrderId, TransferId, UnixMicros, UnixSeconds, decode,
};
use scylla::response::PagingState;
use scylla::value::CqlValue;
use uuid::Uuid;

use super::fault::bad_row;
use super::merge::Entry;
use super::place;
use super::statement::Statement;
use super::walk::{List, Walk};
use super::write::{Writes, word};
use super::{CqlStore, Tables};
use crate::row::lane_key;
use crate::{
    ChainRow, Change, DepositFilter, DepositRow, Error, OrderFilter, OrderRow, Page, Store,
    Subject, TransferFilter, TransferRow,
};

/// Writes of one call that are under way at once.
const WRITES_MAX: usize = 256;
/// Rows that are read by id side by side.
const READS_MAX: usize = 64;
/// Rows in one page of an order's attempts.
const ATTEMPT_ROWS: i32 = 1_000;
/// Records that one page has.
const RECORD_ROWS: i32 = 100;

#[async_trait]
impl Store for CqlStore {
    async fn apply(&self, changes: Vec<Change>) -> Result<(), Error> {
        let writes = Writes::of(&changes)?;
        let write = |tables: Arc<Tables>, write| async move { tables.write(write).await };
        self.tables.each(writes.inserts, WRITES_MAX, write).await?;
        self.tables.each(writes.deletes, WRITES_MAX, write).await?;
        Ok(())
    }

    /// Nothing to do: what the replicas have acknowledged is durable.
    async fn flush(&self) -> Result<(), Error> {
        Ok(())
    }

    async fn order(&self, id: OrderId) -> Result<Option<OrderRow>, Error> {
        self.tables.order(id).await
    }

    async fn orders(&self, filter: OrderFilter, page: Page) -> Result<Vec<OrderRow>, Error> {
        let status = filter.status;
        rows(&self.tables, List::Orders(filter), page, move |tables, entry| async move {
            let row = tables.order(OrderId(Uuid::from_u128(entry.id))).await?;
            Ok(row.filter(|row| status.is_none_or(|status| row.order.status == status)))
        })
        .await
    }

    async fn deposits(&self, filter: DepositFilter, page: Page) -> Result<Vec<DepositRow>, Error> {
        let load = |tables: Arc<Tables>, entry: Entry| async move {
            let id = entry.integer();
            let shard = CqlValue::Int(place::deposit_shard(DepositId(id)));
            let values = [shard, CqlValue::BigInt(entry.at), CqlValue::BigInt(id)];
            tables.record::<Deposit>(Statement::SelectDeposit, &values).await
        };
        let deposits = rows(&self.tables, List::Deposits(filter), page, load).await?;
        let chains: BTreeSet<Blockchain> = deposits.iter().map(|d| d.blockchain).collect();
        let read = |tables: Arc<Tables>, chain: Blockchain| async move {
            let values = [word(chain.as_str()), CqlValue::Int(lane_key(None))];
            tables.record::<ChainProgress>(Statement::SelectScan, &values).await
        };
        let scans = self.tables.each(chains.into_iter().collect(), READS_MAX, read).await?;
        let scans = scans.into_iter().flatten();
        let scanned: HashMap<Blockchain, UnixSeconds> =
            scans.map(|chain| (chain.blockchain, chain.updated_at.seconds())).collect();
        let row = |deposit: Deposit| DepositRow {
            last_scanned_at: scanned.get(&deposit.blockchain).copied(),
            deposit,
        };
        Ok(deposits.into_iter().map(row).collect())
    }

    async fn transfer(&self, id: TransferId) -> Result<Option<TransferRow>, Error> {
        self.tables.record(Statement::SelectTransfer, &[CqlValue::BigInt(id.0)]).await
    }

    async fn transfers(
        &self,
        wallet: Address,
        filter: TransferFilter,
        page: Page,
    ) -> Result<Vec<TransferRow>, Error> {
        let status = filter.status;
        rows(&self.tables, List::Transfers(wallet, filter), page, move |tables, entry| async move {
            let id = CqlValue::BigInt(entry.integer());
            let row: Option<Transfer> = tables.record(Statement::SelectTransfer, &[id]).await?;
            Ok(row.filter(|row| status.is_none_or(|status| row.status == status)))
        })
        .await
    }

    /// Reads all of them: there are few, and their key has another order.
    async fn attempts(&self, subject: Subject, page: Page) -> Result<Vec<Attempt>, Error> {
        let subject = match subject {
            Subject::Order(id) => id.to_string(),
            Subject::Transfer(id) => id.to_string(),
        };
        let values = [CqlValue::Text(subject)];
        let mut all: Vec<Attempt> = self.tables.records(Statement::SelectAttempts, &values).await?;
        all.sort_by(|a, b| {
            (b.attempted_at, &b.event_id, b.attempt).cmp(&(a.attempted_at, &a.event_id, a.attempt))
        });
        let size = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        Ok(all.into_iter().skip(size(page.offset)).take(size(page.limit)).collect())
    }

    async fn chains(&self) -> Result<Vec<ChainRow>, Error> {
        let read = |tables: Arc<Tables>, chain: Blockchain| async move {
            tables.records(Statement::SelectChain, &[word(chain.as_str())]).await
        };
        let found = self.tables.each(Blockchain::ALL.to_vec(), READS_MAX, read).await?;
        Ok(found.into_iter().flatten().collect())
    }
}

/// spec 2.3
fn count(row: &mut OrderRow, at: UnixSeconds, delivered: bool) {
    row.webhook_retry_count = row.webhook_retry_count.saturating_add(1);
    row.webhook_last_tried_at = row.webhook_last_tried_at.max(Some(at));
    if delivered {
        row.webhook_success_at = Some(row.webhook_success_at.map_or(at, |first| first.min(at)));
    }
}

/// A page of a list. `load` reads the row of an entry; none if the row has changed its list since the
/// entry was read, and then the next entry is taken instead.
async fn rows<T, L, F>(
    tables: &Arc<Tables>,
    list: List,
    page: Page,
    load: L,
) -> Result<Vec<T>, Error>
where
    T: Send + 'static,
    L: Fn(Arc<Tables>, Entry) -> F,
    F: Future<Output = Result<Option<T>, Error>> + Send + 'static,
{
    let mut walk =
        Walk::start(tables.clone(), list, page.offset.saturating_add(page.limit)).await?;
    for _ in 0..page.offset {
        if walk.next().await?.is_none() {
            return Ok(Vec::new());
        }
    }
    let limit = usize::try_from(page.limit).unwrap_or(usize::MAX);
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
        found.extend(tables.each(entries, READS_MAX, &load).await?.into_iter().flatten());
    }
    Ok(found)
}

impl Tables {
    async fn order(&self, id: OrderId) -> Result<Option<OrderRow>, Error> {
        let values = [CqlValue::Uuid(id.0)];
        let Some(order) = self.record::<Order>(Statement::SelectOrder, &values).await? else {
            return Ok(None);
        };
        let mut row = OrderRow {
            order,
            webhook_retry_count: 0,
            webhook_success_at: None,
            webhook_last_tried_at: None,
        };
        let values = [CqlValue::Text(id.to_string())];
        let mut from = Some(PagingState::start());
        while let Some(page) = from {
            let (rows, next) =
                self.page(Statement::SelectAttemptTimes, &values, ATTEMPT_ROWS, page).await?;
            for attempt in rows.rows::<(i64, bool, bool)>().map_err(bad_row)? {
                let (attempted_at, counted, delivered) = attempt.map_err(bad_row)?;
                if counted {
                    count(&mut row, UnixMicros(attempted_at).seconds(), delivered);
                }
            }
            from = next;
        }
        Ok(Some(row))
    }

    /// The records that a statement finds.
    async fn records<R: Record>(
        &self,
        statement: Statement,
        values: &[CqlValue],
    ) -> Result<Vec<R>, Error> {
        let (mut all, mut from) = (Vec::new(), Some(PagingState::start()));
        while let Some(page) = from {
            let (rows, next) = self.page(statement, values, RECORD_ROWS, page).await?;
            for row in rows.rows::<(&[u8],)>().map_err(bad_row)? {
                let (bytes,) = row.map_err(bad_row)?;
                all.push(decode(bytes)?);
            }
            from = next;
        }
        Ok(all)
    }

    /// The record that a statement finds.
    async fn record<R: Record>(
        &self,
        statement: Statement,
        values: &[CqlValue],
    ) -> Result<Option<R>, Error> {
        let (rows, _) = self.page(statement, values, 1, PagingState::start()).await?;
        let found = rows.maybe_first_row::<(&[u8],)>().map_err(bad_row)?;
        Ok(found.map(|(bytes,)| decode(bytes)).transpose()?)
    }
}
