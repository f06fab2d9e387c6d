//! What only the tables in CQL have: a schema that may be another program's, servers that go away,
//! and lists apart from what they list.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use schemas::record::{Deposit, Order, Transfer, example};
use schemas::{Blockchain, DepositId, OrderStatus, TransferId, UnixMicros, UnixSeconds};
use store::cql::{CqlStore, migrate};
use store::{Change, DepositFilter, Error, OrderFilter, Page, Store, TransferFilter};
use testkit::harness::eventually;
use testkit::tables::{CQL, Tables, cql};
use uuid::Uuid;
use xtask::cassandra;

const PAGE: Page = Page { limit: 10, offset: 0 };

#[tokio::test(flavor = "multi_thread")]
async fn tables_of_another_version_are_refused() {
    // Keeps the keyspace's name, and removes it at the end.
    let tables = Tables::new(CQL);
    let name = format!("test_{}", Uuid::now_v7().simple());
    std::fs::write(tables.dir().join("keyspace"), &name).unwrap();
    let config = cql::config(cql::node(), name.clone());
    let refused = async |expected: &str| match CqlStore::open(&config).await {
        Err(error) if error.to_string().contains(expected) => error,
        other => panic!("{expected:?} was expected, not {other:?}"),
    };
    let missing = refused("run `tidemark schema migrate`").await;
    assert!(matches!(missing, Error::SchemaMissing { .. }), "{missing:?}");
    assert_eq!(migrate(&config).await.unwrap(), ["0001_tables"]);
    assert_eq!(migrate(&config).await.unwrap(), [""; 0]);
    CqlStore::open(&config).await.unwrap();

    let session = cql::session(&cql::node()).await;
    let run = async |statement: &str| {
        let statement = statement.replace("KS", &name);
        session.query_unpaged(statement, ()).await.unwrap();
    };
    run("INSERT INTO KS.migrations (component, version, name) VALUES ('tables', 2, 'x')").await;
    refused("have version 2, this program knows versions up to 1").await;
    assert!(matches!(migrate(&config).await, Err(Error::SchemaNewer { .. })));
    run("DELETE FROM KS.migrations WHERE component = 'tables' AND version = 2").await;

    // Copies that are configured and were never made would be missed when a machine is lost.
    let more = store::config::CqlConfig { replication: 3, ..config.clone() };
    let difference = "keeps 1 copies of each row in datacenter1, store.replication says 3";
    for refusal in [CqlStore::open(&more).await.map(drop), migrate(&more).await.map(drop)] {
        let refusal = refusal.unwrap_err();
        assert!(matches!(refusal, Error::Replication(_)), "{refusal:?}");
        let text = refusal.to_string();
        assert!(text.contains(difference) && text.contains("ALTER KEYSPACE"), "{text}");
    }

    // A migration that was interrupted is completed.
    run("DELETE FROM KS.migrations WHERE component = 'tables'").await;
    run("DROP TABLE KS.attempts").await;
    refused("run `tidemark schema migrate`").await;
    // Two at once do no harm.
    let both = tokio::join!(migrate(&config), migrate(&config));
    assert!(both.0.is_ok() && both.1.is_ok(), "{both:?}");
    let store = CqlStore::open(&config).await.unwrap();
    store.apply(vec![Change::Attempt(example::attempt())]).await.unwrap();
}

/// A row of a list may be left behind, by a server that missed its deletion for one. Lists go by
/// the records themselves.
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
    let session = cql::session(&cql::node()).await;
    // The expired one comes back among the pending ones, and with it one that never was.
    for number in [2_u8, 4] {
        let statement = format!(
            "INSERT INTO {name}.orders_listed (status, bucket, shard, created_at, order_id) \
             VALUES ('pending', 2147483647, 1, {}, 0x{:032x})",
            example::order().created_at,
            number
        );
        session.query_unpaged(statement, ()).await.unwrap();
    }
    let list = async |status, page| -> Vec<u128> {
        let filter = OrderFilter { status, ..OrderFilter::default() };
        let rows = store.orders(filter, page).await.unwrap();
        rows.iter().map(|row| row.order.order_id.0.as_u128()).collect()
    };
    assert_eq!(list(Some(OrderStatus::Pending), PAGE).await, [3, 1]);
    assert_eq!(list(Some(OrderStatus::Expired), PAGE).await, [2]);
    assert_eq!(list(None, PAGE).await, [3, 2, 1]);
    // A page is filled up from behind.
    assert_eq!(list(Some(OrderStatus::Pending), Page { limit: 2, offset: 0 }).await, [3, 1]);
}

/// In a rolling update an older program meets rows that it cannot read.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_cannot_be_read_is_left_out_of_lists_alone() {
    let tables = Tables::new(CQL);
    let store = tables.open().await;
    let id = |number| schemas::OrderId(Uuid::from_u128(number));
    let order = |number| Change::Order(Order { order_id: id(number), ..example::order() });
    store.apply([1, 2, 3].map(order).to_vec()).await.unwrap();
    let name = cql::name(tables.dir()).unwrap();
    let damage = format!("UPDATE {name}.orders SET record = 0xff WHERE order_id = {}", id(2));
    cql::session(&cql::node()).await.query_unpaged(damage, ()).await.unwrap();
    let list = |limit| store.orders(OrderFilter::default(), Page { limit, offset: 0 });
    let ids = async |limit| -> Vec<_> {
        list(limit).await.unwrap().iter().map(|row| row.order.order_id).collect()
    };
    assert_eq!(ids(10).await, [id(3), id(1)]);
    assert_eq!(ids(2).await, [id(3), id(1)], "a page is filled up from behind");
    assert!(matches!(store.order(id(2)).await, Err(Error::Fatal(_))));
}

/// Partitions do not go by the chain of a deposit: among thousands of one chain there are a few of another.
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

/// While no server answers, calls fail as what may pass, and soon; when it is back, so are they,
/// through the same store. What was acknowledged before is there.
#[tokio::test(flavor = "multi_thread")]
async fn an_absent_server_is_waited_for() {
    let lib = std::env::var_os("TIDEMARK_TEST_CASSANDRA_LIB")
        .map(PathBuf::from)
        .expect("TIDEMARK_TEST_CASSANDRA_LIB is not set: run the tests by `cargo xtask test`");
    let dir = tempfile::tempdir().unwrap();
    let mut server = cassandra::start_durable(&lib, dir.path()).unwrap();
    let config = cql::config(server.address(), "outage".into());
    migrate(&config).await.unwrap();
    let store = CqlStore::open(&config).await.unwrap();
    let transfer = |number: i64| {
        let transfer_id = TransferId(number);
        Change::Transfer(Transfer { transfer_id, ..example::transfer() })
    };
    let is_away = |result: Result<(), Error>| match result {
        Ok(()) => false,
        Err(Error::Transient(_)) => true,
        Err(error) => panic!("{error}"),
    };

    store.apply((0..50).map(transfer).collect()).await.unwrap();
    server.kill();
    for number in 50..52 {
        let begun = Instant::now();
        assert!(is_away(store.apply(vec![transfer(number)]).await), "it is not durable");
        assert!(is_away(store.transfer(TransferId(1)).await.map(drop)));
        assert!(begun.elapsed() < Duration::from_secs(60), "it took {:?}", begun.elapsed());
    }
    assert!(matches!(CqlStore::open(&config).await, Err(Error::Transient(_))));

    tokio::task::block_in_place(|| server.restart()).unwrap();
    eventually("the same store to write again", || async {
        (!is_away(store.apply(vec![transfer(60)]).await)).then_some(())
    })
    .await;
    let wallet = example::transfer().observation.to_address;
    let page = Page { limit: 200, offset: 0 };
    let rows = store.transfers(wallet, TransferFilter::default(), page).await.unwrap();
    let mut ids: Vec<i64> = rows.iter().map(|row| row.transfer_id.0).collect();
    ids.reverse();
    assert!(ids.starts_with(&(0..50).collect::<Vec<_>>()), "{ids:?}");
    assert_eq!(ids.last(), Some(&60));
}
