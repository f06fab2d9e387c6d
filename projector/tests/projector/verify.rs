//! Differences found between tables and log.

use std::ops::ControlFlow;

use log::{Offset, TopicPartition};
use schemas::record::Order;
use schemas::{OrderId, OrderStatus, Partition, Topic};
use store::embedded::EmbeddedStore;
use store::{Change, Defect, Store};
use tidemark_projector::{Difference, Verified, verify};
use uuid::Uuid;

use crate::shop::{Shop, history, order, wrap};

fn verified(shop: &Shop, store: &dyn Store) -> (Verified, Vec<Difference>) {
    let mut differences = Vec::new();
    let differs = &mut |difference| differences.push(difference);
    let report = &mut |_| ControlFlow::Continue(());
    let verified = verify(&shop.log, store, shop.runtime.handle(), report, differs);
    (verified.unwrap().unwrap(), differences)
}

#[test]
fn tables_made_from_the_log_do_not_differ() {
    let shop = Shop::new();
    shop.produce(history());
    let made = shop.rebuild(&shop.store).unwrap();
    let (found, differences) = verified(&shop, &shop.store);
    assert_eq!(differences, []);
    let expected = Verified { records: made.records, rows: made.rows, differences: 0 };
    assert_eq!(found, expected);
}

#[test]
fn a_row_of_another_version_differs() {
    let shop = Shop::new();
    let others = EmbeddedStore::open(&shop.dir.path().join("others")).unwrap();
    let at = |number, version| order(number, version, OrderStatus::Paid);
    let published = [1, 2, 3, 4].map(|number| wrap(Topic::Orders, 0, &at(number, 5)));
    shop.produce(published.to_vec());
    // The positions of the tables are those of complete ones, but the second row is missing.
    shop.rebuild(&others).unwrap();
    let positions = shop.runtime.block_on(others.positions()).unwrap();
    shop.runtime.block_on(shop.store.set_positions(&positions)).unwrap();
    let changed = order(4, 5, OrderStatus::Expired);
    let rows = [at(1, 5), at(3, 4), changed].map(Change::Order);
    shop.runtime.block_on(shop.store.apply(rows.to_vec())).unwrap();
    let newer = [Change::Order(at(1, 6))];
    shop.runtime.block_on(shop.store.apply(newer.to_vec())).unwrap();

    let (found, differences) = verified(&shop, &shop.store);
    assert_eq!((found.rows, found.differences), (4, 4));
    let from = TopicPartition { topic: Topic::Orders, partition: Partition(0) };
    for (number, defect) in
        (1..).zip([Defect::Newer, Defect::Missing, Defect::Older, Defect::Changed])
    {
        let (newest, offset) = (Change::Order(at(number, 5)), Offset(number as i64 - 1));
        let expected = Difference { newest, from, offset, defect, is_read: true };
        assert!(differences.contains(&expected), "{expected:?} is not in {differences:?}");
    }
}

/// Tables in use always lag the log a little.
#[test]
fn what_a_projector_has_not_read_is_waited_for() {
    let shop = Shop::new();
    shop.produce(history());
    std::thread::scope(|scope| {
        let compared = scope.spawn(|| verified(&shop, &shop.store));
        let projector = shop.project();
        let (found, differences) = compared.join().unwrap();
        assert_eq!((found.differences, differences), (0, Vec::new()));
        projector.stop().unwrap();
    });
    let late = OrderId(Uuid::from_u128(99));
    shop.produce(vec![wrap(Topic::Orders, 0, &order(99, 1, OrderStatus::Paid))]);
    let (found, differences) = verified(&shop, &shop.store);
    assert_eq!(found.differences, 1);
    let [Difference { newest: Change::Order(newest), is_read: false, .. }] = &differences[..]
    else {
        panic!("{differences:?}")
    };
    assert_eq!(newest.order_id, late);
}

/// Rows that were created before the day may have been removed, even if they became final later.
#[test]
fn what_was_removed_as_old_is_not_missing() {
    let shop = Shop::new();
    let day = schemas::UnixSeconds(1_790_000_000);
    let old =
        Order { created_at: schemas::UnixSeconds(day.0 - 1), ..order(1, 2, OrderStatus::Paid) };
    let late = Order { updated_at: schemas::UnixMicros((day.0 + 1) * 1_000_000), ..old.clone() };
    let pending = Order { status: OrderStatus::Pending, ..order(2, 2, OrderStatus::Paid) };
    let pending = Order { created_at: old.created_at, updated_at: late.updated_at, ..pending };
    shop.produce([late, pending.clone()].map(|order| wrap(Topic::Orders, 0, &order)).to_vec());
    let others = EmbeddedStore::open(&shop.dir.path().join("others")).unwrap();
    shop.rebuild(&others).unwrap();
    shop.runtime.block_on(async {
        shop.store.set_positions(&others.positions().await.unwrap()).await.unwrap();
        shop.store.set_pruned_before(day).await.unwrap();
    });
    let (found, differences) = verified(&shop, &shop.store);
    assert_eq!(found.differences, 1);
    assert_eq!(differences[0].newest, Change::Order(pending));
}
