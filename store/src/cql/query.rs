//! The queries: lists give ids, and what they stand for is read by id, side by side.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use schemas::record::{ChainProgress, Deposit, Order, Record, Transfer};
use schemas::{
    Address, Blockchain, DepositId, OrderId, TransferId, UnixMicros, UnixSeconds, decode,
};
use scylla::response::PagingState;
use scylla::value::CqlValue;
use uuid::Uuid;

use super::Tables;
use super::merge::Entry;
use super::place;
use super::statement::Statement;
use super::walk::{List, Walk, bad_row};
use super::write::word;
use crate::{
    ChainRow, DepositFilter, DepositRow, Error, OrderFilter, OrderRow, Page, TransferFilter,
    TransferRow,
};

/// Rows that are read by id side by side.
const READS_MAX: usize = 64;
/// Rows in one page of an order's attempts.
const ATTEMPT_ROWS: u32 = 1_000;

pub(super) async fn order(tables: &Tables, id: OrderId) -> Result<Option<OrderRow>, Error> {
    let values = [CqlValue::Uuid(id.0)];
    let Some(order) = tables.record::<Order>(Statement::SelectOrder, &values).await? else {
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
            tables.page(Statement::SelectAttempts, &values, ATTEMPT_ROWS, page).await?;
        for attempt in rows.rows::<(i64, bool)>().map_err(|cause| bad_row(&cause))? {
            let (attempted_at, delivered) = attempt.map_err(|cause| bad_row(&cause))?;
            count(&mut row, UnixMicros(attempted_at).seconds(), delivered);
        }
        from = next;
    }
    Ok(Some(row))
}

/// Spec 2.3.
fn count(row: &mut OrderRow, at: UnixSeconds, delivered: bool) {
    row.webhook_retry_count = row.webhook_retry_count.saturating_add(1);
    row.webhook_last_tried_at = row.webhook_last_tried_at.max(Some(at));
    if delivered {
        row.webhook_success_at = Some(row.webhook_success_at.map_or(at, |first| first.min(at)));
    }
}

pub(super) async fn orders(
    tables: &Arc<Tables>,
    filter: OrderFilter,
    page: Page,
) -> Result<Vec<OrderRow>, Error> {
    let status = filter.status;
    rows(tables, List::Orders(filter), page, move |tables, entry| async move {
        let row = order(&tables, OrderId(Uuid::from_u128(entry.id))).await?;
        Ok(row.filter(|row| status.is_none_or(|status| row.order.status == status)))
    })
    .await
}

pub(super) async fn deposits(
    tables: &Arc<Tables>,
    filter: DepositFilter,
    page: Page,
) -> Result<Vec<DepositRow>, Error> {
    let deposits = rows(tables, List::Deposits(filter), page, |tables, entry| async move {
        let id = integer(entry);
        let shard = CqlValue::Int(place::deposit_shard(DepositId(id)));
        let values = [shard, CqlValue::BigInt(entry.at), CqlValue::BigInt(id)];
        tables.record::<Deposit>(Statement::SelectDeposit, &values).await
    })
    .await?;
    let mut blockchains: Vec<Blockchain> = deposits.iter().map(|d| d.blockchain).collect();
    blockchains.sort_unstable();
    blockchains.dedup();
    let scanned: HashMap<Blockchain, UnixSeconds> = progress(tables, blockchains)
        .await?
        .into_iter()
        .map(|chain| (chain.blockchain, chain.updated_at.seconds()))
        .collect();
    let row = |deposit: Deposit| DepositRow {
        last_scanned_at: scanned.get(&deposit.blockchain).copied(),
        deposit,
    };
    Ok(deposits.into_iter().map(row).collect())
}

pub(super) async fn transfer(
    tables: &Tables,
    id: TransferId,
) -> Result<Option<TransferRow>, Error> {
    tables.record(Statement::SelectTransfer, &[CqlValue::BigInt(id.0)]).await
}

pub(super) async fn transfers(
    tables: &Arc<Tables>,
    wallet: Address,
    filter: TransferFilter,
    page: Page,
) -> Result<Vec<TransferRow>, Error> {
    let status = filter.status;
    rows(tables, List::Transfers(wallet, filter), page, move |tables, entry| async move {
        let row: Option<Transfer> = transfer(&tables, TransferId(integer(entry))).await?;
        Ok(row.filter(|row| status.is_none_or(|status| row.status == status)))
    })
    .await
}

pub(super) async fn chains(tables: &Arc<Tables>) -> Result<Vec<ChainRow>, Error> {
    let mut rows = progress(tables, Blockchain::ALL.to_vec()).await?;
    rows.sort_by_key(|chain| chain.blockchain.index());
    Ok(rows)
}

async fn progress(
    tables: &Arc<Tables>,
    blockchains: Vec<Blockchain>,
) -> Result<Vec<ChainProgress>, Error> {
    let read = |tables: Arc<Tables>, chain: Blockchain| async move {
        tables.record::<ChainProgress>(Statement::SelectChain, &[word(chain.as_str())]).await
    };
    Ok(tables.each(blockchains, READS_MAX, read).await?.into_iter().flatten().collect())
}

/// A page of a list. `load` reads what an entry stands for; none if that has moved on since the
/// entry was read, and then the next entry takes its place.
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

/// The id of a deposit or transfer.
fn integer(entry: Entry) -> i64 {
    i64::try_from(entry.id).unwrap_or_default()
}

impl Tables {
    /// The record that a statement finds.
    async fn record<R: Record>(
        &self,
        statement: Statement,
        values: &[CqlValue],
    ) -> Result<Option<R>, Error> {
        let (rows, _) = self.page(statement, values, 1, PagingState::start()).await?;
        let found = rows.maybe_first_row::<(&[u8],)>().map_err(|cause| bad_row(&cause))?;
        let bad = |cause| Error::Fatal(format!("a row does not decode: {cause}"));
        found.map(|(bytes,)| decode(bytes).map_err(bad)).transpose()
    }
}
