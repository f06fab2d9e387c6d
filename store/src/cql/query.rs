//! Writes and queries of the tables: lists give ids, and the rows are read by id, side by side.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use schemas::record::{Attempt, Deposit, Order, Record, Transfer};
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
use crate::error::unless_unreadable;
use crate::{
    ChainRow, Change, DepositFilter, DepositRow, Error, OrderFilter, OrderRow, Page, Store,
    Subject, TransferFilter, TransferRow,
};

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
        let has_chain = changes.iter().any(|change| matches!(change, Change::Chain(_)));
        let inserted = self.tables.write_all(writes.inserts).await;
        if has_chain {
            self.tables.chains.written();
        }
        inserted?;
        self.tables.write_all(writes.deletes).await
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

    /// As they were at most a second ago, or after this process wrote one.
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
/// entry was read, and then the next entry is taken instead. So it is of a row that cannot be read: one row that a newer
/// program wrote, or that is damaged, is no reason to show none.
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
    let load = |tables: Arc<Tables>, entry: Entry| {
        let row = load(tables, entry);
        async move { unless_unreadable(row.await).map(Option::flatten) }
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
        found.extend(tables.each(entries, READS_MAX, &load).await?.into_iter().flatten());
    }
    Ok(found)
}

impl Tables {
    async fn order(&self, id: OrderId) -> Result<Option<OrderRow>, Error> {
        let values = [CqlValue::Uuid(id.0)];
        let order = self.record::<Order>(Statement::SelectOrder, &values);
        let (order, attempts) = tokio::try_join!(order, self.attempt_times(id))?;
        let Some(order) = order else { return Ok(None) };
        let mut row = OrderRow {
            order,
            webhook_retry_count: 0,
            webhook_success_at: None,
            webhook_last_tried_at: None,
        };
        for (at, delivered) in attempts {
            count(&mut row, at, delivered);
        }
        Ok(Some(row))
    }

    /// When the attempts began that made a request for an order, and whether each was delivered.
    async fn attempt_times(&self, id: OrderId) -> Result<Vec<(UnixSeconds, bool)>, Error> {
        let values = [CqlValue::Text(id.to_string())];
        let (mut all, mut from) = (Vec::new(), Some(PagingState::start()));
        while let Some(page) = from {
            let (rows, next) =
                self.page(Statement::SelectAttemptTimes, &values, ATTEMPT_ROWS, page).await?;
            for attempt in rows.rows::<(i64, bool, bool)>().map_err(bad_row)? {
                let (attempted_at, counted, delivered) = attempt.map_err(bad_row)?;
                if counted {
                    all.push((UnixMicros(attempted_at).seconds(), delivered));
                }
            }
            from = next;
        }
        Ok(all)
    }

    /// The records that a statement finds, but for those that cannot be read.
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
                all.extend(unless_unreadable(decode(bytes).map_err(Error::from))?);
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
