//! The queries. Each list names its index, so that its plan never depends on statistics, and reads
//! rows only from its offset on.

use rusqlite::types::Value;
use rusqlite::{Connection, Row, params_from_iter};
use schemas::record::Record;
use schemas::{Address, OrderId, TransferId, UnixMicros, decode};

use super::fault::classify;
use super::upsert::{order_key, word};
use crate::{
    ChainRow, DepositFilter, DepositRow, Error, OrderFilter, OrderRow, Page, TransferFilter,
    TransferRow,
};

/// Delivery state comes from the attempts (spec 2.3), each part from one range of an index.
const ORDER: &str = "SELECT o.record, \
    (SELECT count(*) FROM attempts a WHERE a.order_id = o.order_id), \
    (SELECT min(a.attempted_at) FROM attempts a \
        WHERE a.order_id = o.order_id AND a.delivered = 1), \
    (SELECT max(a.attempted_at) FROM attempts a WHERE a.order_id = o.order_id) \
    FROM orders o";
const DEPOSIT: &str = "SELECT d.record, \
    (SELECT c.updated_at FROM chains c WHERE c.blockchain = d.blockchain) FROM deposits d";
const TRANSFER: &str = "SELECT t.record FROM transfers t";

/// One query with its values.
#[derive(Debug)]
struct Select {
    sql: String,
    values: Vec<Value>,
}

impl Select {
    /// Reads `columns` by `index`.
    fn by(columns: &str, index: &str) -> Self {
        Self { sql: format!("{columns} INDEXED BY {index}"), values: Vec::new() }
    }

    /// Adds a condition on a value.
    fn only(&mut self, column: &str, value: Value) {
        let joint = if self.values.is_empty() { "WHERE" } else { "AND" };
        self.sql.push_str(&format!(" {joint} {column} = ?"));
        self.values.push(value);
    }

    /// Newest first, then the page.
    fn page(mut self, order: &str, page: Page) -> Self {
        self.sql.push_str(&format!(" ORDER BY {order} LIMIT ? OFFSET ?"));
        self.values.extend([Value::from(page.limit), Value::from(page.offset)]);
        self
    }

    fn rows<T>(
        &self,
        connection: &Connection,
        read: impl Fn(&Row<'_>) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        let fail = |cause: rusqlite::Error| classify(&cause);
        let mut statement = connection.prepare_cached(&self.sql).map_err(fail)?;
        let mut rows = statement.query(params_from_iter(&self.values)).map_err(fail)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next().map_err(fail)? {
            found.push(read(row)?);
        }
        Ok(found)
    }
}

pub(super) fn order(connection: &Connection, id: OrderId) -> Result<Option<OrderRow>, Error> {
    let sql = format!("{ORDER} WHERE o.order_id = ?");
    let select = Select { sql, values: vec![order_key(id)] };
    select.rows(connection, order_row).map(|rows| rows.into_iter().next())
}

pub(super) fn orders(
    connection: &Connection,
    filter: OrderFilter,
    page: Page,
) -> Result<Vec<OrderRow>, Error> {
    select_orders(filter, page).rows(connection, order_row)
}

pub(super) fn deposits(
    connection: &Connection,
    filter: DepositFilter,
    page: Page,
) -> Result<Vec<DepositRow>, Error> {
    select_deposits(filter, page).rows(connection, |row| {
        Ok(DepositRow {
            deposit: record(row)?,
            last_scanned_at: time(row, 1)?.map(UnixMicros::seconds),
        })
    })
}

pub(super) fn transfer(
    connection: &Connection,
    id: TransferId,
) -> Result<Option<TransferRow>, Error> {
    let sql = format!("{TRANSFER} WHERE t.transfer_id = ?");
    let select = Select { sql, values: vec![id.0.into()] };
    select.rows(connection, record).map(|rows| rows.into_iter().next())
}

pub(super) fn transfers(
    connection: &Connection,
    wallet: Address,
    filter: TransferFilter,
    page: Page,
) -> Result<Vec<TransferRow>, Error> {
    select_transfers(wallet, filter, page).rows(connection, record)
}

pub(super) fn chains(connection: &Connection) -> Result<Vec<ChainRow>, Error> {
    let select = Select { sql: "SELECT record FROM chains".into(), values: Vec::new() };
    let mut rows: Vec<ChainRow> = select.rows(connection, record)?;
    rows.sort_by_key(|chain| chain.blockchain.index());
    Ok(rows)
}

fn select_orders(filter: OrderFilter, page: Page) -> Select {
    let index = match (&filter.merchant_order_id, filter.status) {
        (Some(_), _) => "orders_by_reference",
        (None, Some(_)) => "orders_by_status",
        (None, None) => "orders_by_time",
    };
    let mut select = Select::by(ORDER, index);
    if let Some(reference) = filter.merchant_order_id {
        select.only("o.merchant_order_id", reference.into());
    }
    if let Some(status) = filter.status {
        select.only("o.status", word(status.as_str()));
    }
    select.page("o.created_at DESC, o.order_id DESC", page)
}

fn select_deposits(filter: DepositFilter, page: Page) -> Select {
    let index = match (filter.order_id, filter.blockchain, filter.stablecoin) {
        (Some(_), _, _) => "deposits_open_by_order",
        (None, Some(_), _) => "deposits_open_by_chain",
        (None, None, Some(_)) => "deposits_open_by_token",
        (None, None, None) => "deposits_open_by_time",
    };
    let mut select = Select::by(DEPOSIT, index);
    if let Some(order) = filter.order_id {
        select.only("d.order_id", order_key(order));
    }
    if let Some(blockchain) = filter.blockchain {
        select.only("d.blockchain", word(blockchain.as_str()));
    }
    if let Some(stablecoin) = filter.stablecoin {
        select.only("d.token", word(stablecoin.as_str()));
    }
    // Not a bound value: SQLite must see that the indexes of open deposits hold every row asked
    // for.
    let joint = if select.values.is_empty() { "WHERE" } else { "AND" };
    select.sql.push_str(&format!(" {joint} d.state = 'open'"));
    select.page("d.started_at DESC, d.deposit_id DESC", page)
}

fn select_transfers(wallet: Address, filter: TransferFilter, page: Page) -> Select {
    let index = match (filter.status, filter.blockchain, filter.stablecoin) {
        (Some(_), _, _) => "transfers_by_status",
        (None, Some(_), _) => "transfers_by_chain",
        (None, None, Some(_)) => "transfers_by_token",
        (None, None, None) => "transfers_by_wallet",
    };
    let mut select = Select::by(TRANSFER, index);
    select.only("t.wallet", wallet.to_string().into());
    if let Some(status) = filter.status {
        select.only("t.status", word(status.as_str()));
    }
    if let Some(blockchain) = filter.blockchain {
        select.only("t.blockchain", word(blockchain.as_str()));
    }
    if let Some(stablecoin) = filter.stablecoin {
        select.only("t.token", word(stablecoin.as_str()));
    }
    select.page("t.created_at DESC, t.transfer_id DESC", page)
}

fn order_row(row: &Row<'_>) -> Result<OrderRow, Error> {
    Ok(OrderRow {
        order: record(row)?,
        webhook_retry_count: row.get(1).map_err(|cause| classify(&cause))?,
        webhook_success_at: time(row, 2)?.map(UnixMicros::seconds),
        webhook_last_tried_at: time(row, 3)?.map(UnixMicros::seconds),
    })
}

/// The record in a row: always its first column.
fn record<R: Record>(row: &Row<'_>) -> Result<R, Error> {
    let bytes = row.get_ref(0).and_then(|value| Ok(value.as_blob()?));
    let bytes = bytes.map_err(|cause| classify(&cause))?;
    decode(bytes).map_err(|cause| Error::Fatal(format!("a row does not decode: {cause}")))
}

fn time(row: &Row<'_>, column: usize) -> Result<Option<UnixMicros>, Error> {
    let micros: Option<i64> = row.get(column).map_err(|cause| classify(&cause))?;
    Ok(micros.map(UnixMicros))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use schemas::record::example;
    use schemas::{Blockchain, OrderStatus, Stablecoin, TransferStatus};

    use super::*;
    use crate::embedded::open_writer;

    const PAGE: Page = Page { limit: 20, offset: 0 };

    fn some_or_none<T: Copy>(value: T) -> [Option<T>; 2] {
        [None, Some(value)]
    }

    fn every_select() -> Vec<Select> {
        let mut all = Vec::new();
        let order = example::order().order_id;
        for status in some_or_none(OrderStatus::Paid) {
            for reference in some_or_none("A-1") {
                let merchant_order_id = reference.map(str::to_owned);
                all.push(select_orders(OrderFilter { status, merchant_order_id }, PAGE));
            }
        }
        for blockchain in some_or_none(Blockchain::Eth) {
            for stablecoin in some_or_none(Stablecoin::Dai) {
                for order_id in some_or_none(order) {
                    all.push(select_deposits(
                        DepositFilter { order_id, blockchain, stablecoin },
                        PAGE,
                    ));
                }
                for status in some_or_none(TransferStatus::Matched) {
                    let filter = TransferFilter { status, blockchain, stablecoin };
                    let wallet = example::transfer().observation.to_address;
                    all.push(select_transfers(wallet, filter, PAGE));
                }
            }
        }
        all
    }

    /// No list reads a table from end to end, and none sorts.
    #[test]
    fn every_list_is_read_from_an_index_in_its_order() {
        let dir = tempfile::tempdir().unwrap();
        let connection = open_writer(&dir.path().join("tables.sqlite")).unwrap();
        let selects = every_select();
        assert_eq!(selects.len(), 4 + 8 + 8);
        for select in selects {
            let explain = format!("EXPLAIN QUERY PLAN {}", select.sql);
            let mut statement = connection.prepare(&explain).unwrap();
            let plan: Vec<String> = statement
                .query_map(params_from_iter(&select.values), |row| row.get(3))
                .unwrap()
                .collect::<Result<_, _>>()
                .unwrap();
            // Only a list without a filter may walk an index; it does so in order and stops early.
            let filtered = select.sql.contains(" = ? ");
            let first = plan.first().unwrap();
            let expected = if filtered { "SEARCH" } else { "SCAN" };
            assert!(first.starts_with(expected) && first.contains("INDEX"), "{select:?}: {plan:?}");
            for line in &plan {
                assert!(!line.contains("TEMP B-TREE"), "{select:?} sorts: {plan:?}");
                let whole_table = line.starts_with("SCAN") && !line.contains("INDEX");
                assert!(!whole_table, "{select:?} reads everything: {plan:?}");
            }
        }
    }

    /// spec 8: the greatest offset is 100,000.
    #[test]
    fn the_deepest_page_is_quick() {
        let dir = tempfile::tempdir().unwrap();
        let connection = open_writer(&dir.path().join("tables.sqlite")).unwrap();
        let bytes = schemas::encode(&example::order()).unwrap();
        connection
            .execute(
                "WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 100499) \
                 INSERT INTO orders SELECT cast(printf('%016d', i) AS BLOB), i, i, 'paid', 'A', ? \
                 FROM n",
                [bytes],
            )
            .unwrap();
        let page = Page { limit: 200, offset: 100_000 };
        for status in some_or_none(OrderStatus::Paid) {
            for reference in some_or_none("A") {
                let merchant_order_id = reference.map(str::to_owned);
                let begun = Instant::now();
                let filter = OrderFilter { status, merchant_order_id };
                assert_eq!(orders(&connection, filter.clone(), page).unwrap().len(), 200);
                let took = begun.elapsed();
                assert!(took < Duration::from_secs(10), "{filter:?} took {took:?}");
            }
        }
    }
}
