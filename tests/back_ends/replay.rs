//! Applying the whole of every output topic again, twice and shuffled, leaves every table as it
//! was, byte for byte and with the same write times, on every back end.
//!
//! Rows come from histories of the real machines. Beside it: what the lists of the tables rely on
//! is true of those histories.

#![expect(clippy::expect_used, clippy::unwrap_used, reason = "this file is tests from end to end")]

use std::collections::BTreeMap;
use std::path::Path;

use oracle::history::history;
use oracle::machine_model::pipeline::Dice;
use schemas::record::{Attempt, Deposit, Order, Transfer};
use schemas::{OrderStatus, TransferStatus, UnixMicros};
use store::embedded::EmbeddedStore;
use store::{Change, DepositFilter, DepositRow, OrderFilter, OrderRow, Page, Store};
use testkit::dump::{self, Dump, assert_same};
use testkit::keyspace;
use testkit::store_suite::Tables;

/// Enough for every kind of row, in each status.
const HAPPENINGS: usize = 250;
/// How many records one call applies.
const CALL: usize = 100;

async fn apply(store: &dyn Store, changes: &[Change]) {
    for part in changes.chunks(CALL) {
        store.apply(part.to_vec()).await.expect("they are applied");
    }
}

fn shuffle(changes: &mut [Change], dice: &mut Dice) {
    for last in (1..changes.len()).rev() {
        changes.swap(last, dice.below(last + 1));
    }
}

/// All of them twice, in an order of its own for each seed.
fn twice_shuffled(changes: &[Change], seed: u64) -> Vec<Change> {
    let mut all = [changes, changes].concat();
    shuffle(&mut all, &mut Dice(seed));
    all
}

fn dump_embedded(dir: &Path) -> Dump {
    let connection = rusqlite::Connection::open(dir.join("tables.sqlite")).unwrap();
    let names = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name";
    let mut names = connection.prepare(names).unwrap();
    let tables: Vec<String> =
        names.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap();
    let mut dump = Dump::new();
    for table in tables {
        let mut statement = connection.prepare(&format!("SELECT * FROM {table}")).unwrap();
        let columns = statement.column_count();
        let row = |row: &rusqlite::Row<'_>| -> rusqlite::Result<String> {
            let values: Vec<rusqlite::types::Value> =
                (0..columns).map(|column| row.get(column)).collect::<Result<_, _>>()?;
            Ok(format!("{values:?}"))
        };
        let mut rows: Vec<_> =
            statement.query_map([], row).unwrap().collect::<Result<_, _>>().unwrap();
        rows.sort();
        dump.insert(table, rows);
    }
    dump
}

async fn dump_cql(keyspace: &str) -> Dump {
    dump::dump(&keyspace::node(), keyspace).await
}

/// A test of nothing proves nothing.
fn assert_rich(changes: &[Change], dump: &Dump) {
    let empty: Vec<_> = dump.iter().filter(|(_, rows)| rows.is_empty()).collect();
    assert!(empty.is_empty(), "{empty:?}");
    assert!(changes.len() > 300, "only {} records", changes.len());
    for status in OrderStatus::ALL {
        let is = |change: &Change| matches!(change, Change::Order(o) if o.status == *status);
        assert!(changes.iter().any(is), "no order is {status}");
    }
    for status in TransferStatus::ALL {
        let is = |change: &Change| matches!(change, Change::Transfer(t) if t.status == *status);
        assert!(changes.iter().any(is), "no transfer is {status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replays_leave_the_embedded_tables_as_they_were() {
    let changes = history(1, HAPPENINGS);
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path()).unwrap();
    apply(&store, &changes).await;
    let before = dump_embedded(dir.path());
    assert_rich(&changes, &before);
    for seed in 0..20 {
        apply(&store, &twice_shuffled(&changes, seed)).await;
        assert_same(&before, &dump_embedded(dir.path()), &format!("after replay {seed}"));
    }
    // The order in which rows come first does not matter either.
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path()).unwrap();
    apply(&store, &twice_shuffled(&changes, 99)).await;
    assert_same(&before, &dump_embedded(dir.path()), "when shuffled from the start");
}

#[tokio::test(flavor = "multi_thread")]
async fn replays_leave_the_cql_tables_as_they_were() {
    let changes = history(1, HAPPENINGS);
    let tables = Tables::new(keyspace::CQL);
    let store = tables.open().await;
    apply(&*store, &changes).await;
    let name = keyspace::name(tables.dir()).unwrap();
    let before = dump_cql(&name).await;
    assert_rich(&changes, &before);
    for seed in 0..3 {
        apply(&*store, &twice_shuffled(&changes, seed)).await;
        assert_same(&before, &dump_cql(&name).await, &format!("after replay {seed}"));
    }
    let others = Tables::new(keyspace::CQL);
    apply(&*others.open().await, &twice_shuffled(&changes, 99)).await;
    let shuffled = dump_cql(&keyspace::name(others.dir()).unwrap()).await;
    assert_same(&before, &shuffled, "when shuffled from the start");
}

/// What a store is told that takes what comes last for what is newest.
fn forget_versions(changes: &[Change], clock: &mut UnixMicros) -> Vec<Change> {
    let mut forget = |change: &Change| {
        *clock = clock.next(UnixMicros(0));
        let mut change = change.clone();
        match &mut change {
            Change::Order(order) => order.updated_at = *clock,
            Change::Deposit(deposit) => deposit.updated_at = *clock,
            Change::Transfer(transfer) => transfer.updated_at = *clock,
            Change::Chain(chain) => chain.updated_at = *clock,
            Change::Attempt(_) => {}
        }
        change
    };
    changes.iter().map(&mut forget).collect()
}

/// The lists without their versions.
async fn lists(store: &dyn Store) -> [Vec<String>; 2] {
    let page = Page { limit: 10_000, offset: 0 };
    let orders = store.orders(OrderFilter::default(), page).await.unwrap();
    let deposits = store.deposits(DepositFilter::default(), page).await.unwrap();
    let order = |row: &OrderRow| format!("{} {}", row.order.order_id, row.order.status);
    let deposit = |row: &DepositRow| row.deposit.deposit_id.to_string();
    [orders.iter().map(order).collect(), deposits.iter().map(deposit).collect()]
}

/// The comparison is no formality: without versions, rows go back to older states.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_ignores_versions_is_caught() {
    let changes = history(1, HAPPENINGS);
    let mut clock = UnixMicros(0);
    let in_order = forget_versions(&changes, &mut clock);
    let replayed = forget_versions(&twice_shuffled(&changes, 0), &mut clock);

    let dir = tempfile::tempdir().unwrap();
    let embedded = EmbeddedStore::open(dir.path()).unwrap();
    apply(&embedded, &in_order).await;
    let (dumped, listed) = (dump_embedded(dir.path()), lists(&embedded).await);
    apply(&embedded, &replayed).await;
    let replayed_lists = lists(&embedded).await;
    assert_ne!(listed, replayed_lists);
    assert_ne!(dumped, dump_embedded(dir.path()));

    let tables = Tables::new(keyspace::CQL);
    let store = tables.open().await;
    let name = keyspace::name(tables.dir()).unwrap();
    apply(&*store, &in_order).await;
    let dumped = dump_cql(&name).await;
    assert_eq!(lists(&*store).await, listed);
    apply(&*store, &replayed).await;
    assert_ne!(lists(&*store).await, listed);
    let after = dump_cql(&name).await;
    for table in ["orders", "orders_listed", "transfers", "transfers_listed", "deposits_open"] {
        assert_ne!(dumped[table], after[table], "{table}");
    }
}

/// The newest version of each row, and what of it may never change.
#[derive(Default)]
struct Promises {
    fixed: BTreeMap<String, String>,
    versions: BTreeMap<String, UnixMicros>,
    orders: BTreeMap<String, (OrderStatus, bool)>,
    transfers: BTreeMap<String, TransferStatus>,
}

impl Promises {
    fn take(&mut self, change: &Change) {
        match change {
            Change::Order(order) => self.order(order),
            Change::Deposit(deposit) => self.deposit(deposit),
            Change::Transfer(transfer) => self.transfer(transfer),
            Change::Attempt(attempt) => self.attempt(attempt),
            Change::Chain(chain) => self.version(chain.blockchain.to_string(), chain.updated_at),
        }
    }

    fn version(&mut self, row: String, version: UnixMicros) {
        let last = self.versions.insert(row.clone(), version);
        assert!(last.is_none_or(|last| last < version), "the version of {row} stands still");
    }

    fn fixed(&mut self, row: &str, value: String) {
        let known = self.fixed.entry(row.to_owned()).or_insert_with(|| value.clone());
        assert_eq!(*known, value, "of {row} something changed that lists go by");
    }

    fn order(&mut self, order: &Order) {
        let row = format!("order {}", order.order_id);
        self.version(row.clone(), order.updated_at);
        self.fixed(&row, format!("{:?} {}", order.created_at, order.merchant_order_id));
        let now = (order.status, order.paid_by.is_some());
        let before = self.orders.insert(row.clone(), now).unwrap_or((OrderStatus::Pending, false));
        let allowed =
            before == now || before.0 == OrderStatus::Pending || now == (OrderStatus::Paid, false);
        assert!(allowed, "{row} went from {before:?} to {now:?}");
    }

    fn deposit(&mut self, deposit: &Deposit) {
        let row = format!("deposit {}", deposit.deposit_id);
        self.version(row.clone(), deposit.updated_at);
        let Deposit { started_at, order_id, blockchain, stablecoin, .. } = deposit;
        self.fixed(&row, format!("{started_at:?} {order_id} {blockchain} {stablecoin}"));
    }

    fn transfer(&mut self, transfer: &Transfer) {
        let row = format!("transfer {}", transfer.transfer_id);
        self.version(row.clone(), transfer.updated_at);
        let seen = &transfer.observation;
        let place = (transfer.created_at, seen.to_address, transfer.blockchain, seen.stablecoin);
        self.fixed(&row, format!("{place:?}"));
        let before = self.transfers.insert(row.clone(), transfer.status);
        let is_final = |status: &TransferStatus| {
            matches!(status, TransferStatus::Matched | TransferStatus::NoMatchedDeposit)
        };
        if let Some(before) = before.filter(is_final) {
            assert_eq!(before, transfer.status, "{row}");
        }
    }

    fn attempt(&mut self, attempt: &Attempt) {
        let row = format!("{} {} {}", attempt.event_id, attempt.attempt, attempt.manual);
        self.fixed(&row, format!("{attempt:?}"));
    }
}

/// Tables in CQL never look for the old place of a row: they know it from these promises.
#[test]
fn the_machines_keep_what_lists_rely_on() {
    for seed in 0..40 {
        let mut promises = Promises::default();
        history(seed, HAPPENINGS).iter().for_each(|change| promises.take(change));
    }
}
