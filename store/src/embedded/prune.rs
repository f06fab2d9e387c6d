//! Removes the rows of a day, some at a time: a call of the writer deletes exactly what was exported before it.
//!
//! The file does not get smaller: later rows take the pages that are free.

use std::collections::BTreeSet;
use std::time::Instant;

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, params};
use schemas::record::{Attempt, Deposit, Order, Record, Transfer};
use schemas::{OrderStatus, UnixSeconds, decode};

use super::EmbeddedStore;
use super::upsert::{Upsert, order_key};
use crate::error::unless_unreadable;
use crate::prune::{Day, Export, Kept, Pruned};
use crate::row::is_waiting;
use crate::{Change, Error};

/// Maximum number of orders or transfers that one transaction removes, with their dependent rows: other writers
/// wait for it.
const PART_ROWS: u32 = 250;

const WALLETS: &str = "WITH RECURSIVE w (wallet) AS ( \
        SELECT min(wallet) FROM transfers \
        UNION ALL SELECT (SELECT min(t.wallet) FROM transfers t WHERE t.wallet > w.wallet) FROM w \
        WHERE w.wallet IS NOT NULL \
    ) SELECT wallet FROM w WHERE wallet IS NOT NULL";
const FIRST_ORDER: &str = "SELECT min(created_at) FROM orders INDEXED BY orders_by_time \
    WHERE created_at >= ?1 AND created_at < ?2";
const FIRST_TRANSFER: &str = "SELECT min(created_at) FROM transfers INDEXED BY transfers_by_wallet \
    WHERE created_at >= ?1 AND created_at < ?2 AND wallet = ?3";
const ORDERS: &str = "SELECT record, created_at, order_id FROM orders INDEXED BY orders_by_time \
    WHERE (created_at, order_id) > (?1, ?2) AND created_at < ?3 \
    ORDER BY created_at, order_id LIMIT ?4";
const TRANSFERS: &str = "SELECT record, created_at, transfer_id FROM transfers \
    INDEXED BY transfers_by_wallet \
    WHERE (created_at, transfer_id) > (?1, ?2) AND created_at < ?3 AND wallet = ?5 \
    ORDER BY created_at, transfer_id LIMIT ?4";
const IS_OPEN: &str = "SELECT 1 FROM deposits INDEXED BY deposits_open_by_order \
    WHERE order_id = ? AND state = 'open' LIMIT 1";
const DEPOSITS: &str = "SELECT record FROM deposits INDEXED BY deposits_closed_by_order \
    WHERE order_id = ? AND state <> 'open'";
const ORDER_ATTEMPTS: &str =
    "SELECT record FROM attempts INDEXED BY attempts_by_order WHERE order_id = ?";
const TRANSFER_ATTEMPTS: &str =
    "SELECT record FROM attempts INDEXED BY attempts_by_transfer WHERE transfer_id = ?";

// Deletes no row that changed since its export; dependent rows follow, if the row was deleted.
const DELETE_ORDER: &str = "DELETE FROM orders WHERE order_id = ?1 AND updated_at = ?2 \
    AND (SELECT count(*) FROM attempts a WHERE a.order_id = ?1) = ?3 \
    AND NOT EXISTS (SELECT 1 FROM deposits d WHERE d.order_id = ?1 AND d.state = 'open')";
const DELETE_DEPOSIT: &str = "DELETE FROM deposits WHERE deposit_id = ?1 AND updated_at = ?2 \
    AND NOT EXISTS (SELECT 1 FROM orders o WHERE o.order_id = ?3)";
const DELETE_ORDER_ATTEMPT: &str = "DELETE FROM attempts \
    WHERE event_id = ?1 AND attempt = ?2 AND manual = ?3 \
    AND NOT EXISTS (SELECT 1 FROM orders o WHERE o.order_id = ?4)";
const DELETE_TRANSFER: &str = "DELETE FROM transfers WHERE transfer_id = ?1 AND updated_at = ?2 \
    AND (SELECT count(*) FROM attempts a WHERE a.transfer_id = ?1) = ?3";
const DELETE_TRANSFER_ATTEMPT: &str = "DELETE FROM attempts \
    WHERE event_id = ?1 AND attempt = ?2 AND manual = ?3 \
    AND NOT EXISTS (SELECT 1 FROM transfers t WHERE t.transfer_id = ?4)";
const HAS_ORDER: &str = "SELECT 1 FROM orders WHERE order_id = ?";
const HAS_TRANSFER: &str = "SELECT 1 FROM transfers WHERE transfer_id = ?";
const SET_PRUNED: &str = "INSERT INTO pruned (part, created_before) VALUES (0, ?) \
    ON CONFLICT (part) DO UPDATE SET created_before = max(created_before, excluded.created_before)";

/// A list of a day, read in parts.
#[derive(Debug, Clone)]
enum List {
    Orders,
    /// Transfers to this wallet.
    Transfers(String),
}

/// Some rows of a list.
#[derive(Debug, Default)]
struct Part {
    /// An order or a transfer, then its dependent rows.
    old: Vec<Vec<Change>>,
    kept: Kept,
    /// The position of the last row; none if the list ends.
    last: Option<(i64, Value)>,
}

/// The days earlier than `before` that have orders or transfers: reads one row of each.
pub(super) fn days(connection: &Connection, before: Day) -> Result<Vec<Day>, Error> {
    let mut days = BTreeSet::new();
    let mut find = |sql: &str, wallet: Option<&str>| -> Result<(), Error> {
        let mut statement = connection.prepare_cached(sql)?;
        let mut from = i64::MIN;
        loop {
            let to = before.start().0;
            let first: Option<i64> = match wallet {
                None => statement.query_row(params![from, to], |row| row.get(0))?,
                Some(wallet) => statement.query_row(params![from, to, wallet], |row| row.get(0))?,
            };
            let Some(first) = first else { return Ok(()) };
            let day = Day::of(UnixSeconds(first));
            days.insert(day);
            from = day.next().start().0;
        }
    };
    find(FIRST_ORDER, None)?;
    for wallet in wallets(connection)? {
        find(FIRST_TRANSFER, Some(&wallet))?;
    }
    Ok(days.into_iter().collect())
}

fn wallets(connection: &Connection) -> Result<Vec<String>, Error> {
    let mut statement = connection.prepare_cached(WALLETS)?;
    let wallets = statement.query_map([], |row| row.get(0))?;
    Ok(wallets.collect::<Result<_, _>>()?)
}

pub(super) async fn prune_day(
    store: &EmbeddedStore,
    day: Day,
    export: &dyn Export,
) -> Result<Pruned, Error> {
    let mut pruned = Pruned::default();
    let mut lists = vec![List::Orders];
    lists.extend(store.readers.with(wallets).await?.into_iter().map(List::Transfers));
    for list in lists {
        let mut after = Some(list.start(day));
        while let Some(from) = after {
            let list = list.clone();
            // One snapshot of an order, its deposits and its attempts.
            let part = store.readers.with(move |connection| {
                let moment = connection.unchecked_transaction()?;
                list.read(&moment, day, from)
            });
            let Part { old, kept, last } = part.await?;
            pruned += Pruned { kept, ..Pruned::default() };
            after = last;
            if old.is_empty() {
                continue;
            }
            let deletions = old.iter().flat_map(|rows| deletions(rows)).collect();
            let rows = old.concat();
            export.keep(&rows).await?;
            store.disk.check()?;
            let begun = Instant::now();
            store.writer.write(deletions).await?;
            let exported = old.len();
            let gone =
                store.readers.with(move |connection| without_changed(connection, old)).await?;
            pruned.kept.busy += (exported - gone.len()) as u64;
            gone.iter().for_each(|rows| pruned.removed.count(rows));
            // Other processes poll for the write lock: half of the time is left to them.
            tokio::time::sleep(begun.elapsed()).await;
        }
    }
    Ok(pruned)
}

impl List {
    /// The position before the first row of a day.
    fn start(&self, day: Day) -> (i64, Value) {
        let before_all = match self {
            Self::Orders => Value::Blob(Vec::new()),
            Self::Transfers(_) => Value::Integer(i64::MIN),
        };
        (day.start().0, before_all)
    }

    fn read(&self, connection: &Connection, day: Day, from: (i64, Value)) -> Result<Part, Error> {
        let (sql, wallet) = match self {
            Self::Orders => (ORDERS, None),
            Self::Transfers(wallet) => (TRANSFERS, Some(wallet.clone())),
        };
        let end = day.next().start().0;
        let mut values = vec![from.0.into(), from.1, end.into(), i64::from(PART_ROWS).into()];
        values.extend(wallet.map(Value::Text));
        let mut statement = connection.prepare_cached(sql)?;
        let mut rows = statement.query(rusqlite::params_from_iter(values))?;
        let (mut part, mut count) = (Part::default(), 0);
        while let Some(row) = rows.next()? {
            let bytes = row.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)?;
            let read = match self {
                Self::Orders => order(connection, bytes, &mut part.kept),
                Self::Transfers(_) => transfer(connection, bytes, &mut part.kept),
            };
            match unless_unreadable(read)? {
                Some(old) => part.old.extend(old),
                None => part.kept.unreadable += 1,
            }
            part.last = Some((row.get(1)?, row.get(2)?));
            count += 1;
        }
        if count < PART_ROWS {
            part.last = None;
        }
        Ok(part)
    }
}

/// An order with its dependent rows; none if it is kept.
fn order(
    connection: &Connection,
    bytes: &[u8],
    kept: &mut Kept,
) -> Result<Option<Vec<Change>>, Error> {
    let order: Order = decode(bytes)?;
    if order.status == OrderStatus::Pending {
        kept.pending += 1;
        return Ok(None);
    }
    let key = order_key(order.order_id);
    let mut is_open = connection.prepare_cached(IS_OPEN)?;
    if is_open.query_row([&key], |_| Ok(())).optional()?.is_some() {
        kept.open += 1;
        return Ok(None);
    }
    let deposits = records::<Deposit>(connection, DEPOSITS, &key)?;
    let attempts = records::<Attempt>(connection, ORDER_ATTEMPTS, &key)?;
    let mut rows = vec![Change::Order(order)];
    rows.extend(deposits.into_iter().map(Change::Deposit));
    rows.extend(attempts.into_iter().map(Change::Attempt));
    Ok(Some(rows))
}

/// As [`order`].
fn transfer(
    connection: &Connection,
    bytes: &[u8],
    kept: &mut Kept,
) -> Result<Option<Vec<Change>>, Error> {
    let transfer: Transfer = decode(bytes)?;
    if is_waiting(transfer.status) {
        kept.waiting += 1;
        return Ok(None);
    }
    let key = transfer.transfer_id.0.into();
    let attempts = records::<Attempt>(connection, TRANSFER_ATTEMPTS, &key)?;
    let mut rows = vec![Change::Transfer(transfer)];
    rows.extend(attempts.into_iter().map(Change::Attempt));
    Ok(Some(rows))
}

fn records<R: Record>(connection: &Connection, sql: &str, key: &Value) -> Result<Vec<R>, Error> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([key])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(super::query::record(row)?);
    }
    Ok(found)
}

/// The deletions of an order or a transfer, and then of its dependent rows.
fn deletions(rows: &[Change]) -> Vec<Upsert> {
    let attempts = rows.iter().filter(|row| matches!(row, Change::Attempt(_))).count();
    let attempts = i64::try_from(attempts).unwrap_or(i64::MAX);
    let delete = |row: &Change| -> Option<Upsert> {
        let (sql, values) = match row {
            Change::Order(order) => {
                let key = order_key(order.order_id);
                (DELETE_ORDER, vec![key, order.updated_at.0.into(), attempts.into()])
            }
            Change::Transfer(transfer) => {
                let (id, version) = (transfer.transfer_id.0, transfer.updated_at.0);
                (DELETE_TRANSFER, vec![id.into(), version.into(), attempts.into()])
            }
            Change::Deposit(deposit) => {
                let (id, version) = (deposit.deposit_id.0, deposit.updated_at.0);
                let of = order_key(deposit.order_id);
                (DELETE_DEPOSIT, vec![id.into(), version.into(), of])
            }
            Change::Attempt(attempt) => {
                let (sql, of) = match (attempt.order_id, attempt.transfer_id) {
                    (Some(order), _) => (DELETE_ORDER_ATTEMPT, order_key(order)),
                    (None, Some(transfer)) => (DELETE_TRANSFER_ATTEMPT, transfer.0.into()),
                    (None, None) => return None,
                };
                let event = attempt.event_id.clone().into();
                (sql, vec![event, attempt.attempt.into(), attempt.manual.into(), of])
            }
            Change::Chain(_) => return None,
        };
        Some(Upsert { sql, values })
    };
    rows.iter().filter_map(delete).collect()
}

/// Leaves out the orders and transfers that were not deleted, because they changed since their export.
fn without_changed(
    connection: &Connection,
    mut old: Vec<Vec<Change>>,
) -> Result<Vec<Vec<Change>>, Error> {
    let mut order = connection.prepare_cached(HAS_ORDER)?;
    let mut transfer = connection.prepare_cached(HAS_TRANSFER)?;
    let mut is_gone = Vec::new();
    for rows in &old {
        is_gone.push(!match rows.first() {
            Some(Change::Order(of)) => order.exists([order_key(of.order_id)])?,
            Some(Change::Transfer(of)) => transfer.exists([of.transfer_id.0])?,
            _ => false,
        });
    }
    let mut is_gone = is_gone.into_iter();
    old.retain(|_| is_gone.next().unwrap_or(true));
    Ok(old)
}

pub(super) fn pruned_before(connection: &Connection) -> Result<Option<UnixSeconds>, Error> {
    let mut statement = connection.prepare_cached("SELECT created_before FROM pruned")?;
    Ok(statement.query_row([], |row| row.get(0)).optional()?.map(UnixSeconds))
}

pub(super) fn set_pruned_before(second: UnixSeconds) -> Upsert {
    Upsert { sql: SET_PRUNED, values: vec![second.0.into()] }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use runtime::clock::ManualClock;
    use schemas::record::example;
    use schemas::{TransferId, TransferStatus, UnixMicros};

    use super::*;
    use crate::Store;
    use crate::embedded::{FILE, open_writer};
    use crate::prune::{Removed, prune};

    /// Export during which a row changes: the next removal leaves that row out.
    struct Changing<'a>(&'a EmbeddedStore, Change);

    #[async_trait]
    impl Export for Changing<'_> {
        async fn keep(&self, _rows: &[Change]) -> Result<(), Error> {
            self.0.apply(vec![self.1.clone()]).await
        }
    }

    #[tokio::test]
    async fn changed_row_is_not_counted_as_removed() {
        let dir = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(dir.path()).unwrap();
        let status = TransferStatus::NoMatchedDeposit;
        let transfer =
            |number| Transfer { transfer_id: TransferId(number), status, ..example::transfer() };
        let attempt =
            Attempt { order_id: None, transfer_id: Some(TransferId(1)), ..example::attempt() };
        store.apply([1, 2].map(transfer).map(Change::Transfer).to_vec()).await.unwrap();
        let day = Day::of(example::transfer().created_at);
        let clock = ManualClock::new(UnixMicros(0));
        let changing = Changing(&store, Change::Attempt(attempt));
        let pruned = prune(&store, day.next(), &clock, &changing, |_, _| {}).await.unwrap();
        assert_eq!(pruned.removed, Removed { transfers: 1, ..Removed::default() });
        assert_eq!(pruned.kept, Kept { busy: 1, ..Kept::default() });
        assert_eq!(store.pruned_before().await.unwrap(), None);
        assert!(store.transfer(TransferId(1)).await.unwrap().is_some());
    }

    /// With years of rows in the tables, only those of the day are read.
    #[test]
    fn every_read_is_by_an_index() {
        let dir = tempfile::tempdir().unwrap();
        let connection = open_writer(&dir.path().join(FILE)).unwrap();
        for sql in [
            FIRST_ORDER,
            FIRST_TRANSFER,
            ORDERS,
            TRANSFERS,
            IS_OPEN,
            DEPOSITS,
            ORDER_ATTEMPTS,
            TRANSFER_ATTEMPTS,
            DELETE_ORDER,
            DELETE_DEPOSIT,
            DELETE_ORDER_ATTEMPT,
            DELETE_TRANSFER,
            DELETE_TRANSFER_ATTEMPT,
            HAS_ORDER,
            HAS_TRANSFER,
        ] {
            let mut plan = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let values = vec![1; plan.parameter_count()];
            let plan: Vec<String> = plan
                .query_map(rusqlite::params_from_iter(values), |row| row.get(3))
                .unwrap()
                .collect::<Result<_, _>>()
                .unwrap();
            let is_bad = |line: &String| line.starts_with("SCAN ") && !line.contains("CONSTANT");
            assert!(
                !plan.iter().any(|line| is_bad(line) || line.contains("TEMP B-TREE")),
                "{sql}: {plan:?}"
            );
        }
    }
}
