//! The queries. Each list names its index, so that its plan never depends on statistics, and reads
//! rows only from its offset on.

use std::borrow::Cow;

use rusqlite::types::Value;
use rusqlite::{Connection, Row, params_from_iter};
use schemas::record::Record;
use schemas::{Address, OrderId, TransferId, UnixMicros, UnixSeconds, decode};
use uuid::Uuid;

use super::upsert::{order_key, word};
use crate::error::unless_unreadable;
use crate::{
    Cursor, DepositFilter, DepositRow, Error, OrderFilter, OrderRow, Page, Subject, TransferFilter,
    Within,
};

/// Delivery state comes from the attempts (spec 2.3), each part from one range of an index.
const ORDER: &str = "SELECT o.record, \
    (SELECT count(*) FROM attempts a WHERE a.order_id = o.order_id AND a.counted = 1), \
    (SELECT min(a.attempted_at) FROM attempts a \
        WHERE a.order_id = o.order_id AND a.delivered = 1), \
    (SELECT max(a.attempted_at) FROM attempts a \
        WHERE a.order_id = o.order_id AND a.counted = 1) \
    FROM orders o";
/// Query of an order without its delivery state.
const ORDER_RECORD: &str = "SELECT record FROM orders WHERE order_id = ?";
const DEPOSIT: &str = "SELECT d.record, \
    (SELECT c.updated_at FROM chains c WHERE c.blockchain = d.blockchain AND c.lane = -1) \
    FROM deposits d";
const ATTEMPT: &str = "SELECT a.record FROM attempts a";
const TRANSFER: &str = "SELECT t.record FROM transfers t";

#[derive(Debug)]
pub(super) struct Select {
    sql: Cow<'static, str>,
    values: Vec<Value>,
    /// `true` for a list, `false` for one row by its id.
    is_list: bool,
    rows_max: usize,
}

impl Select {
    /// Reads `columns` by `index`.
    fn by(columns: &str, index: &str) -> Self {
        let sql = format!("{columns} INDEXED BY {index}").into();
        Self { sql, values: Vec::new(), is_list: true, rows_max: usize::MAX }
    }

    /// Adds a condition on a value, if there is one.
    fn only(&mut self, column: &str, value: Option<Value>) {
        if let Some(value) = value {
            self.and(&format!("{column} = ?"));
            self.values.push(value);
        }
    }

    /// Adds the conditions on time. `time` and `id` are the columns by which the list is sorted.
    fn within(&mut self, within: Within, (time, id): (&str, &str), key: fn(u128) -> Value) {
        if let Some(UnixSeconds(from)) = within.from {
            self.and(&format!("{time} >= ?"));
            self.values.push(from.into());
        }
        if let Some(Cursor { at, id: number }) = within.before {
            self.and(&format!("({time}, {id}) < (?, ?)"));
            self.values.extend([at.0.into(), key(number)]);
        }
    }

    fn and(&mut self, condition: &str) {
        let joint = if self.values.is_empty() { "WHERE" } else { "AND" };
        self.sql.to_mut().push_str(&format!(" {joint} {condition}"));
    }

    /// Adds the order, and the page's offset. The SQL has no limit: the reader stops at the page's limit, because
    /// unreadable rows do not count.
    fn page(mut self, order: &str, page: Page) -> Self {
        self.sql.to_mut().push_str(&format!(" ORDER BY {order} LIMIT -1 OFFSET ?"));
        self.values.push(Value::from(page.offset));
        self.rows_max = usize::try_from(page.limit).unwrap_or(usize::MAX);
        self
    }

    /// Returns the rows. A list skips unreadable records and takes the next row instead, since
    /// clients take a short page for the last one of its list.
    pub(super) fn rows<T>(
        &self,
        connection: &Connection,
        read: fn(&Row<'_>) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        let mut statement = connection.prepare_cached(&self.sql)?;
        let mut rows = statement.query(params_from_iter(&self.values))?;
        let mut found = Vec::new();
        while found.len() < self.rows_max
            && let Some(row) = rows.next()?
        {
            match read(row) {
                row if self.is_list => found.extend(unless_unreadable(row)?),
                row => found.push(row?),
            }
        }
        Ok(found)
    }
}

pub(super) fn order(id: OrderId) -> Select {
    let sql = format!("{ORDER} WHERE o.order_id = ?").into();
    Select { sql, values: vec![order_key(id)], is_list: false, rows_max: 1 }
}

pub(super) fn order_record(id: OrderId) -> Select {
    Select { sql: ORDER_RECORD.into(), values: vec![order_key(id)], is_list: false, rows_max: 1 }
}

pub(super) fn transfer(id: TransferId) -> Select {
    let sql = format!("{TRANSFER} WHERE t.transfer_id = ?").into();
    Select { sql, values: vec![id.0.into()], is_list: false, rows_max: 1 }
}

pub(super) fn chains() -> Select {
    let sql = "SELECT record FROM chains".into();
    Select { sql, values: Vec::new(), is_list: true, rows_max: usize::MAX }
}

pub(super) fn orders(filter: OrderFilter, page: Page) -> Select {
    let index = match (&filter.merchant_order_id, filter.status) {
        (Some(_), _) => "orders_by_reference",
        (None, Some(_)) => "orders_by_status",
        (None, None) => "orders_by_time",
    };
    let mut select = Select::by(ORDER, index);
    select.only("o.merchant_order_id", filter.merchant_order_id.map(Value::Text));
    select.only("o.status", filter.status.map(|status| word(status.as_str())));
    let key = |number| order_key(OrderId(Uuid::from_u128(number)));
    select.within(filter.within, ("o.created_at", "o.order_id"), key);
    select.page("o.created_at DESC, o.order_id DESC", page)
}

pub(super) fn deposits(filter: DepositFilter, page: Page) -> Select {
    let index = match (filter.order_id, filter.blockchain, filter.stablecoin) {
        (Some(_), _, _) => "deposits_open_by_order",
        (None, Some(_), _) => "deposits_open_by_chain",
        (None, None, Some(_)) => "deposits_open_by_token",
        (None, None, None) => "deposits_open_by_time",
    };
    let mut select = Select::by(DEPOSIT, index);
    select.only("d.order_id", filter.order_id.map(order_key));
    select.only("d.blockchain", filter.blockchain.map(|chain| word(chain.as_str())));
    select.only("d.token", filter.stablecoin.map(|stablecoin| word(stablecoin.as_str())));
    select.within(filter.within, ("d.started_at", "d.deposit_id"), integer);
    // Not a bound value: SQLite must see that the indexes of open deposits hold every row asked
    // for.
    select.and("d.state = 'open'");
    select.page("d.started_at DESC, d.deposit_id DESC", page)
}

pub(super) fn transfers(wallet: Address, filter: TransferFilter, page: Page) -> Select {
    let index = match (filter.status, filter.blockchain, filter.stablecoin) {
        (Some(_), _, _) => "transfers_by_status",
        (None, Some(_), _) => "transfers_by_chain",
        (None, None, Some(_)) => "transfers_by_token",
        (None, None, None) => "transfers_by_wallet",
    };
    let mut select = Select::by(TRANSFER, index);
    select.only("t.wallet", Some(wallet.to_string().into()));
    select.only("t.status", filter.status.map(|status| word(status.as_str())));
    select.only("t.blockchain", filter.blockchain.map(|chain| word(chain.as_str())));
    select.only("t.token", filter.stablecoin.map(|stablecoin| word(stablecoin.as_str())));
    select.within(filter.within, ("t.created_at", "t.transfer_id"), integer);
    select.page("t.created_at DESC, t.transfer_id DESC", page)
}

pub(super) fn attempts(subject: Subject, page: Page) -> Select {
    let (index, column, value) = match subject {
        Subject::Order(id) => ("attempts_by_order", "a.order_id", order_key(id)),
        Subject::Transfer(id) => ("attempts_by_transfer", "a.transfer_id", id.0.into()),
    };
    let mut select = Select::by(ATTEMPT, index);
    select.only(column, Some(value));
    select.page("a.attempted_at DESC, a.event_id DESC, a.attempt DESC", page)
}

/// The id of a deposit or a transfer in a cursor. One beyond all rows becomes the maximum.
fn integer(number: u128) -> Value {
    i64::try_from(number).unwrap_or(i64::MAX).into()
}

pub(super) fn order_row(row: &Row<'_>) -> Result<OrderRow, Error> {
    Ok(OrderRow {
        order: record(row)?,
        webhook_retry_count: row.get(1)?,
        webhook_success_at: second(row, 2)?,
        webhook_last_tried_at: second(row, 3)?,
    })
}

pub(super) fn deposit_row(row: &Row<'_>) -> Result<DepositRow, Error> {
    Ok(DepositRow { deposit: record(row)?, last_scanned_at: second(row, 1)? })
}

/// The record in a row: always its first column.
pub(super) fn record<R: Record>(row: &Row<'_>) -> Result<R, Error> {
    let bytes = row.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)?;
    Ok(decode(bytes)?)
}

fn second(row: &Row<'_>, column: usize) -> Result<Option<UnixSeconds>, Error> {
    let micros: Option<i64> = row.get(column)?;
    Ok(micros.map(|micros| UnixMicros(micros).seconds()))
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
        let transfer = example::transfer().transfer_id;
        for subject in [Subject::Order(order), Subject::Transfer(transfer)] {
            all.push(attempts(subject, PAGE));
        }
        for within in withins() {
            for status in some_or_none(OrderStatus::Paid) {
                for reference in some_or_none("A-1") {
                    let merchant_order_id = reference.map(str::to_owned);
                    all.push(orders(OrderFilter { status, merchant_order_id, within }, PAGE));
                }
            }
            for blockchain in some_or_none(Blockchain::Eth) {
                for stablecoin in some_or_none(Stablecoin::Dai) {
                    for order_id in some_or_none(order) {
                        let filter = DepositFilter { order_id, blockchain, stablecoin, within };
                        all.push(deposits(filter, PAGE));
                    }
                    for status in some_or_none(TransferStatus::Matched) {
                        let filter = TransferFilter { status, blockchain, stablecoin, within };
                        let wallet = example::transfer().observation.to_address;
                        all.push(transfers(wallet, filter, PAGE));
                    }
                }
            }
        }
        all
    }

    /// Without bounds, from a time on, before a cursor, and between both.
    fn withins() -> [Within; 4] {
        let from = Some(UnixSeconds(5));
        let before = Some(Cursor { at: UnixSeconds(9), id: 7 });
        [
            Within::default(),
            Within { from, before: None },
            Within { from: None, before },
            Within { from, before },
        ]
    }

    /// No list reads a table from end to end, and none sorts.
    #[test]
    fn every_list_is_read_from_an_index_in_its_order() {
        let dir = tempfile::tempdir().unwrap();
        let connection = open_writer(&dir.path().join("tables.sqlite")).unwrap();
        let selects = every_select();
        assert_eq!(selects.len(), 2 + 4 * (4 + 8 + 8));
        for select in selects {
            let explain = format!("EXPLAIN QUERY PLAN {}", select.sql);
            let mut statement = connection.prepare(&explain).unwrap();
            let plan: Vec<String> = statement
                .query_map(params_from_iter(&select.values), |row| row.get(3))
                .unwrap()
                .collect::<Result<_, _>>()
                .unwrap();
            // Only a list without a filter may walk an index; it does so in order and stops early.
            let filtered = select.values.len() > 1;
            let first = plan.first().unwrap();
            // Rows that a cursor skips are not read.
            let skips = select.sql.contains(") < (?, ?)");
            assert!(!skips || first.contains("<"), "{select:?} reads what it skips: {plan:?}");
            let expected = if filtered { "SEARCH" } else { "SCAN" };
            assert!(first.starts_with(expected) && first.contains("INDEX"), "{select:?}: {plan:?}");
            for line in &plan {
                assert!(!line.contains("TEMP B-TREE"), "{select:?} sorts: {plan:?}");
                let whole_table = line.starts_with("SCAN") && !line.contains("INDEX");
                assert!(!whole_table, "{select:?} reads everything: {plan:?}");
            }
        }
    }

    /// In a rolling update a newer program writes rows that this one cannot read, and a client reads
    /// until a page is short.
    #[test]
    fn a_row_that_cannot_be_read_makes_no_page_short() {
        let dir = tempfile::tempdir().unwrap();
        let connection = open_writer(&dir.path().join("tables.sqlite")).unwrap();
        let bytes = schemas::encode(&example::order()).unwrap();
        let insert = "INSERT INTO orders VALUES (cast(printf('%016d', ?1) AS BLOB), ?1, ?1, 'paid', 'A', ?2)";
        for number in 0..8 {
            let unreadable = vec![0xff; 3];
            let record = if matches!(number, 2 | 6) { &unreadable } else { &bytes };
            connection.execute(insert, rusqlite::params![number, record]).unwrap();
        }
        let read = |offset| {
            let page = Page { limit: 3, offset };
            orders(OrderFilter::default(), page).rows(&connection, order_row).unwrap().len()
        };
        assert_eq!([0, 3, 6, 8].map(read), [3, 3, 2, 0]);
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
                let within = Within::default();
                let filter = OrderFilter { status, merchant_order_id, within };
                let rows = orders(filter.clone(), page).rows(&connection, order_row).unwrap();
                assert_eq!(rows.len(), 200);
                let took = begun.elapsed();
                assert!(took < Duration::from_secs(10), "{filter:?} took {took:?}");
            }
        }
    }
}
