//! Tests of the tables in CQL alone: a schema of another version, servers that fail, and lists stored apart from their
//! rows.

mod between;

use runtime::clock::{Clock as _, SystemClock};
use schemas::record::{Attempt, Deposit, Order, Transfer, example};
use schemas::{
    Blockchain, DepositId, Incarnation, OrderStatus, Partition, Topic, TransferId, TransferStatus,
    UnixMicros, UnixSeconds,
};
use store::cql::{CqlStore, Migrated, Pending, migrate, pending};
use store::prune::{Day, Kept, Removed, WithoutExport};
use store::{
    Change, DepositFilter, Error, OrderFilter, Origin, Page, Position, Store, TransferFilter,
};
use testkit::tables::{CQL, Tables, cql};
use uuid::Uuid;

const PAGE: Page = Page { limit: 10, offset: 0 };
/// Maximum number of requests for a page of twenty adjacent rows.
const REQUESTS_MAX: u64 = 35;

#[tokio::test(flavor = "multi_thread")]
async fn tables_of_another_version_are_refused() {
    // The folder of `tables` holds the keyspace's name, by which its drop removes the keyspace.
    let tables = Tables::new(CQL);
    let name = format!("test_{}", Uuid::now_v7().simple());
    std::fs::write(tables.dir().join("keyspace"), &name).unwrap();
    let config = cql::config(cql::nodes(), name.clone());
    let refused = async |expected: &str| match CqlStore::open(&config).await {
        Err(error) if error.to_string().contains(expected) => error,
        other => panic!("{expected:?} was expected, not {other:?}"),
    };
    let missing = refused("run `tidemark schema migrate`").await;
    assert!(matches!(missing, Error::SchemaMissing { .. }), "{missing:?}");
    assert_eq!(pending(&config).await.unwrap().migrations, ["0001_tables"]);
    assert_eq!(migrate(&config).await.unwrap().applied, ["0001_tables"]);
    for _ in 0..2 {
        assert_eq!(migrate(&config).await.unwrap(), Migrated::default());
        let done = Pending { found: 1, readable_from: 1, ..Pending::default() };
        assert_eq!(pending(&config).await.unwrap(), done);
    }
    CqlStore::open(&config).await.unwrap();

    let session = cql::session().await;
    let run = async |statement: &str| {
        let statement = statement.replace("KS", &name);
        session.query_unpaged(statement, ()).await.unwrap();
    };
    run("INSERT INTO KS.migrations (component, version, name) VALUES ('tables', 2, 'x')").await;
    refused("have version 2, this program knows versions up to 1").await;
    assert!(matches!(migrate(&config).await, Err(Error::SchemaNewer { .. })));
    // After additions by a newer program, an older one can still run.
    run("UPDATE KS.migrations SET readable_from = 1 WHERE component = 'tables' AND version = 2")
        .await;
    CqlStore::open(&config).await.unwrap();
    assert_eq!(migrate(&config).await.unwrap(), Migrated::default());
    run("DELETE FROM KS.migrations WHERE component = 'tables' AND version = 2").await;

    // Replicas that are configured but absent would be missed when a node is lost.
    let more = store::config::CqlConfig { replication: 3, ..config.clone() };
    let difference = "keeps 1 copies of each row in datacenter1, store.replication says 3";
    for refusal in [CqlStore::open(&more).await.map(drop), migrate(&more).await.map(drop)] {
        let refusal = refusal.unwrap_err();
        assert!(matches!(refusal, Error::Replication { .. }), "{refusal:?}");
        let text = refusal.to_string();
        assert!(text.contains(difference) && text.contains("ALTER KEYSPACE"), "{text}");
    }

    // Dropped tables are created again.
    run("DROP TABLE KS.orders_by_day").await;
    run("DROP TABLE KS.wallets").await;
    let missing = refused("lacks orders_by_day, wallets").await;
    assert!(matches!(missing, Error::TablesMissing { .. }), "{missing:?}");
    assert_eq!(pending(&config).await.unwrap().missing, ["orders_by_day", "wallets"]);
    assert_eq!(migrate(&config).await.unwrap().created, ["orders_by_day", "wallets"]);
    CqlStore::open(&config).await.unwrap();

    // A migration that was interrupted is completed.
    run("DELETE FROM KS.migrations WHERE component = 'tables'").await;
    run("DROP TABLE KS.chains").await;
    refused("run `tidemark schema migrate`").await;
    // Concurrent migrations are safe.
    let both = tokio::join!(migrate(&config), migrate(&config));
    assert!(both.0.is_ok() && both.1.is_ok(), "{both:?}");
    let store = CqlStore::open(&config).await.unwrap();
    store.apply(vec![Change::Chain(example::chain_progress())]).await.unwrap();
}

/// The process that wrote before may have a clock that is ahead: the servers would keep what it wrote.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_behind_sets_positions() {
    let tables = Tables::new(CQL);
    let store = tables.open().await;
    let (name, session) = (cql::name(tables.dir()).unwrap(), cql::session().await);
    let ahead = SystemClock.now().0 + 3_600_000_000;
    for row in [
        "positions (part, topic, partition, next) VALUES (0, 'orders', 0, 5)",
        "origin (part, installation, incarnation) VALUES (0, 'kafka/a', 1)",
    ] {
        let statement = format!("INSERT INTO {name}.{row} USING TIMESTAMP {ahead}");
        session.query_unpaged(statement, ()).await.unwrap();
    }
    let at = |next| Position { topic: Topic::Orders, partition: Partition(0), next };
    let origin =
        |second| Origin { installation: "kafka/a".to_owned(), incarnation: Incarnation(second) };
    assert_eq!(store.positions().await.unwrap(), [at(5)]);
    assert_eq!(store.origin().await.unwrap(), Some(origin(1)));
    for number in [6, 7] {
        store.set_positions(&[at(number)]).await.unwrap();
        store.set_origin(&origin(number)).await.unwrap();
        assert_eq!(store.positions().await.unwrap(), [at(number)]);
        assert_eq!(store.origin().await.unwrap(), Some(origin(number)));
    }
}

/// A list entry may be stale, for example by a missed deletion. Lists check the records themselves.
#[tokio::test(flavor = "multi_thread")]
async fn list_entries_are_checked() {
    let tables = Tables::new(CQL);
    let store = tables.open().await;
    let name = cql::name(tables.dir()).unwrap();
    let order = |number: u128, status, version| {
        let order_id = schemas::OrderId(Uuid::from_u128(number));
        let updated_at = UnixMicros(version);
        Change::Order(Order { order_id, status, updated_at, ..example::order() })
    };
    let changes = [(1, OrderStatus::Pending), (2, OrderStatus::Expired), (3, OrderStatus::Pending)];
    store.apply(changes.map(|(number, status)| order(number, status, 5)).to_vec()).await.unwrap();
    let session = cql::session().await;
    // The expired order reappears among the pending ones, and one that never existed.
    for number in [2_u8, 4] {
        let created_at = example::order().created_at;
        let statement = format!(
            "INSERT INTO {name}.orders_pending (bucket, shard, created_at, order_id) \
             VALUES ({}, 1, {created_at}, 0x{number:032x}) USING TIMESTAMP 1",
            created_at.0.div_euclid(60),
        );
        session.query_unpaged(statement, ()).await.unwrap();
    }
    let entries = async || {
        let all = format!("SELECT order_id FROM {name}.orders_pending");
        let all = session.query_unpaged(all, ()).await.unwrap().into_rows_result().unwrap();
        all.rows_num()
    };
    assert_eq!(entries().await, 4);
    let list = async |status, page| -> Vec<u128> {
        let filter = OrderFilter { status, ..OrderFilter::default() };
        let rows = store.orders(filter, page).await.unwrap();
        rows.iter().map(|row| row.order.order_id.0.as_u128()).collect()
    };
    assert_eq!(list(Some(OrderStatus::Pending), PAGE).await, [3, 1]);
    assert_eq!(list(Some(OrderStatus::Expired), PAGE).await, [2]);
    assert_eq!(list(None, PAGE).await, [3, 2, 1]);
    // The first reader deleted the entry that contradicts its record, as it would shift every page
    // for ever. It kept the entry that may be of an order about to be written.
    assert_eq!(entries().await, 3);
    // Later entries fill the page.
    assert_eq!(list(Some(OrderStatus::Pending), Page { limit: 2, offset: 0 }).await, [3, 1]);
}

/// A day with recent writes is not pruned: its writer may add more rows.
#[tokio::test(flavor = "multi_thread")]
async fn a_day_that_is_being_written_is_not_pruned() {
    let tables = Tables::new(CQL);
    let store = tables.open().await;
    let order = Order { status: OrderStatus::Expired, ..example::order() };
    let (id, day) = (order.order_id, Day::of(order.created_at));
    store.apply(vec![Change::Order(order)]).await.unwrap();
    let prune = async |now: UnixMicros| {
        assert_eq!(store.old_days(day.next()).await.unwrap(), [day]);
        store.prune_day(day, now, &WithoutExport).await.unwrap()
    };
    let pruned = prune(SystemClock.now()).await;
    assert_eq!(pruned.kept, Kept { busy: 1, ..Kept::default() });
    assert_eq!(pruned.removed, Removed::default());
    assert!(store.order(id).await.unwrap().is_some());
    let pruned = prune(UnixMicros(SystemClock.now().0 + 90_000_000)).await;
    assert_eq!(pruned.removed, Removed { orders: 1, ..Removed::default() });
    assert_eq!(store.old_days(day.next()).await.unwrap(), []);
    assert_eq!(store.order(id).await.unwrap(), None);
}

/// Changes are written with a lag. One in flight while its order was removed stays, and a row changed in the last hour
/// is not pruned.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_on_its_way_outlives_a_removal() {
    let tables = Tables::new(CQL);
    let store = tables.open().await;
    let expired = Order { status: OrderStatus::Expired, ..example::order() };
    let (id, day) = (expired.order_id, Day::of(expired.created_at));
    let later = |seconds: i64| UnixMicros(SystemClock.now().0 + seconds * 1_000_000);
    store.apply(vec![Change::Order(expired.clone())]).await.unwrap();
    let pruned = store.prune_day(day, later(90), &WithoutExport).await.unwrap();
    assert_eq!(pruned.removed, Removed { orders: 1, ..Removed::default() });

    // A new store, because the old one caches for seconds that the day is listed.
    let store = tables.open().await;
    let updated_at = later(-60);
    let paid = Order { status: OrderStatus::Paid, updated_at, ..expired };
    store.apply(vec![Change::Order(paid)]).await.unwrap();
    let shown = async || {
        let filter = OrderFilter { status: Some(OrderStatus::Paid), ..OrderFilter::default() };
        let listed = store.orders(filter, PAGE).await.unwrap();
        (store.order(id).await.unwrap().map(|row| row.order.status), listed.len())
    };
    assert_eq!(shown().await, (Some(OrderStatus::Paid), 1));
    // The row is kept until LAG_MAX, an hour, after its change, to the microsecond.
    let hour = UnixMicros(updated_at.0 + 3_600_000_000);
    let pruned = store.prune_day(day, UnixMicros(hour.0 - 1), &WithoutExport).await.unwrap();
    assert_eq!(
        (pruned.removed, pruned.kept),
        (Removed::default(), Kept { busy: 1, ..Kept::default() })
    );
    assert_eq!(shown().await, (Some(OrderStatus::Paid), 1));
    let pruned = store.prune_day(day, hour, &WithoutExport).await.unwrap();
    assert_eq!(pruned.removed, Removed { orders: 1, ..Removed::default() });
    assert_eq!(shown().await, (None, 0));
}

/// A minute of pending orders leaves `list_partitions` when all have ended, so that readers skip its tombstones; a late
/// order adds it again.
#[tokio::test(flavor = "multi_thread")]
async fn minutes_that_are_empty_are_swept() {
    let tables = Tables::new(CQL);
    let store = tables.open().await;
    let name = cql::name(tables.dir()).unwrap();
    let session = cql::session().await;
    let order = |number: u128, minute: i64, status, version| {
        let order_id = schemas::OrderId(Uuid::from_u128(number * 4));
        let (updated_at, created_at) = (UnixMicros(version), UnixSeconds(minute * 60));
        Change::Order(Order { order_id, status, updated_at, created_at, ..example::order() })
    };
    let (pending, expired) = (OrderStatus::Pending, OrderStatus::Expired);
    let now = SystemClock.now();
    let second = now.seconds().0 / 60 - 3;
    let first = second - 1;
    let changes = vec![
        order(1, first, pending, 1),
        order(1, first, expired, 2),
        order(2, second, pending, 1),
        order(3, second, expired, 2),
    ];
    store.apply(changes).await.unwrap();
    let minutes = async || -> Vec<i64> {
        let all = format!(
            "SELECT bucket FROM {name}.list_partitions WHERE list = 'orders' AND stage = 'live'"
        );
        let all = session.query_unpaged(all, ()).await.unwrap().into_rows_result().unwrap();
        all.rows::<(i32,)>().unwrap().map(|row| row.unwrap().0.into()).collect()
    };
    let listed = async |store: &dyn Store| -> Vec<u128> {
        let filter = OrderFilter { status: Some(pending), ..OrderFilter::default() };
        let rows = store.orders(filter, PAGE).await.unwrap();
        rows.iter().map(|row| row.order.order_id.0.as_u128() / 4).collect()
    };
    store.sweep().await.unwrap();
    assert_eq!(minutes().await, [second, first], "something was put there a moment ago");

    // As if without writes for two minutes.
    let quiet = now.0 - 120_000_000;
    session.query_unpaged(format!("TRUNCATE {name}.list_partitions"), ()).await.unwrap();
    for minute in [first, second] {
        let row = format!(
            "INSERT INTO {name}.list_partitions (list, stage, bucket, blockchain, coin, shard, written_at) \
             VALUES ('orders', 'live', {minute}, '', '', 0, {0}) USING TIMESTAMP {0}",
            quiet
        );
        session.query_unpaged(row, ()).await.unwrap();
    }
    assert_eq!(listed(&*store).await, [2]);
    store.sweep().await.unwrap();
    assert_eq!(minutes().await, [second], "an order of it is pending");
    assert_eq!(listed(&*store).await, [2]);
    store.apply(vec![order(2, second, expired, 3)]).await.unwrap();
    store.sweep().await.unwrap();
    assert!(minutes().await.is_empty());

    // Another process, which lags in a partition of the topic, writes an older order.
    let late = tables.open().await;
    late.apply(vec![order(4, first, pending, 1)]).await.unwrap();
    assert_eq!(minutes().await, [first]);
    assert_eq!(listed(&*store).await, [4]);
}

/// In a rolling update an older program finds unreadable rows.
#[tokio::test(flavor = "multi_thread")]
async fn unreadable_row_is_left_out_of_lists() {
    let tables = Tables::new(CQL);
    let store = tables.open().await;
    let id = |number| schemas::OrderId(Uuid::from_u128(number));
    let order = |number| Change::Order(Order { order_id: id(number), ..example::order() });
    store.apply([1, 2, 3].map(order).to_vec()).await.unwrap();
    let name = cql::name(tables.dir()).unwrap();
    let damage = format!("UPDATE {name}.orders SET record = 0xff WHERE order_id = {}", id(2));
    cql::session().await.query_unpaged(damage, ()).await.unwrap();
    let list = |limit| store.orders(OrderFilter::default(), Page { limit, offset: 0 });
    let ids = async |limit| -> Vec<_> {
        list(limit).await.unwrap().iter().map(|row| row.order.order_id).collect()
    };
    assert_eq!(ids(10).await, [id(3), id(1)]);
    assert_eq!(ids(2).await, [id(3), id(1)], "a page is filled up from behind");
    assert!(matches!(store.order(id(2)).await, Err(Error::Fatal(_))));
}

/// A list is not partitioned by chain: thousands of deposits of one chain surround a few of another.
#[tokio::test(flavor = "multi_thread")]
async fn a_filter_finds_few_among_many() {
    let tables = Tables::new(CQL);
    let store = tables.open().await;
    let deposit = |number: i64| {
        let blockchain = if number % 1_500 == 7 { Blockchain::Tron } else { Blockchain::Op };
        let (deposit_id, started_at) = (DepositId(number), UnixSeconds(1_790_000_000 + number / 3));
        Change::Deposit(Deposit { deposit_id, started_at, blockchain, ..example::deposit() })
    };
    store.apply((0..6_000).map(deposit).collect()).await.unwrap();
    let filter = DepositFilter { blockchain: Some(Blockchain::Tron), ..DepositFilter::default() };
    let ids = async |filter, limit, offset| -> Vec<i64> {
        let rows = store.deposits(filter, Page { limit, offset }).await.unwrap();
        rows.iter().map(|row| row.deposit.deposit_id.0).collect()
    };
    assert_eq!(ids(filter, 10, 0).await, [4_507, 3_007, 1_507, 7]);
    assert_eq!(ids(filter, 1, 2).await, [1_507]);
    assert_eq!(ids(DepositFilter::default(), 3, 5_900).await, [99, 98, 97]);
}

/// Requests determine the latency of a page: those for the directory, for the newest bucket's partitions and for the
/// rows, independent of the table size.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_takes_few_requests_and_a_status_one() {
    let tables = Tables::new(CQL);
    let id = |number| schemas::OrderId(Uuid::from_u128(number));
    let at = |number: i64| UnixSeconds(1_790_000_000 - number / 10);
    let order = |number: u16| {
        let (order_id, status) = (id(number.into()), OrderStatus::ALL[usize::from(number % 4)]);
        let created_at = at(number.into());
        Change::Order(Order { order_id, status, created_at, ..example::order() })
    };
    let deposit = |number: i64| {
        let (deposit_id, started_at) = (DepositId(number), at(number));
        Change::Deposit(Deposit { deposit_id, started_at, ..example::deposit() })
    };
    let transfer = |number: u16| {
        let status = TransferStatus::ALL[usize::from(number % 5)];
        let (transfer_id, created_at) = (TransferId(number.into()), at(number.into()));
        Change::Transfer(Transfer { transfer_id, status, created_at, ..example::transfer() })
    };
    let attempt = Change::Attempt(Attempt { order_id: Some(id(3)), ..example::attempt() });
    let changes = (0..600).map(order).chain((0..600).map(deposit)).chain((0..600).map(transfer));
    tables.open().await.apply(changes.chain([attempt]).collect()).await.unwrap();
    let config = cql::config(cql::nodes(), cql::name(tables.dir()).unwrap());
    let store = CqlStore::open(&config).await.unwrap();
    let (page, last) = (Page { limit: 20, offset: 0 }, std::cell::Cell::new(store.requests()));
    let requests = |rows: usize| {
        assert_eq!(rows, 20);
        store.requests() - last.replace(store.requests())
    };

    let row = store.order(id(3)).await.unwrap().unwrap();
    assert_eq!((row.webhook_retry_count, store.requests() - last.get()), (1, 1));
    last.set(store.requests());
    for status in [None].into_iter().chain(OrderStatus::ALL.iter().copied().map(Some)) {
        let filter = OrderFilter { status, ..OrderFilter::default() };
        let made = requests(store.orders(filter, page).await.unwrap().len());
        assert!(made <= REQUESTS_MAX, "{made} requests for orders {status:?}");
    }
    let filter = OrderFilter { merchant_order_id: Some("A-1001".into()), ..OrderFilter::default() };
    let made = requests(store.orders(filter, page).await.unwrap().len());
    assert!(made <= REQUESTS_MAX, "{made} requests for orders of a reference");
    let made = requests(store.deposits(DepositFilter::default(), page).await.unwrap().len());
    assert!(made <= REQUESTS_MAX, "{made} requests for deposits");
    let wallet = example::transfer().observation.to_address;
    for status in [None].into_iter().chain(TransferStatus::ALL.iter().copied().map(Some)) {
        let filter = TransferFilter { status, ..TransferFilter::default() };
        let made = requests(store.transfers(wallet, filter, page).await.unwrap().len());
        assert!(made <= REQUESTS_MAX, "{made} requests for transfers {status:?}");
    }
}
