//! Applying every output again, twice and shuffled, leaves every table as it was, byte for byte and with
//! the same write times.

use schemas::{OrderStatus, TransferStatus, UnixMicros};
use store::{Change, DepositFilter, DepositRow, OrderFilter, OrderRow, Page, Store};

use crate::Dice;
use crate::tables::{BackEnd, Dump, EMBEDDED, Tables, assert_same};

/// Tables whose rows would revert to older states without versions, on either back end.
const VERSIONED: [&str; 6] =
    ["orders", "orders_pending", "transfers", "transfers_waiting", "deposits", "deposits_open"];
/// Number of records applied by one call.
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

/// All changes twice, in an order that depends on the seed.
fn twice_shuffled(changes: &[Change], seed: u64) -> Vec<Change> {
    let mut all = [changes, changes].concat();
    shuffle(&mut all, &mut Dice(seed));
    all
}

/// Checks for sufficient test data.
fn assert_rich(changes: &[Change], dump: &Dump) {
    // `pruned` has a row only after a prune, and nothing is pruned here.
    let empty = dump.iter().filter(|(table, rows)| rows.is_empty() && *table != "pruned");
    let empty: Vec<_> = empty.collect();
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

/// Applies `changes`, then all of them again, twice and shuffled, some times over.
pub async fn replays_change_nothing(back_end: BackEnd, changes: &[Change], replays: u64) {
    let tables = Tables::new(back_end);
    let store = tables.open().await;
    apply(&*store, changes).await;
    let before = tables.dump().await;
    assert_rich(changes, &before);
    for seed in 0..replays {
        apply(&*store, &twice_shuffled(changes, seed)).await;
        assert_same(&before, &tables.dump().await, &format!("after replay {seed}"));
    }
    // The order of the first writes does not matter either.
    let others = tables.others();
    apply(&*others.open().await, &twice_shuffled(changes, 99)).await;
    assert_same(&before, &others.dump().await, "when shuffled from the start");
}

/// The changes, renumbered so that the last write wins.
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

/// The lists of orders and open deposits, without versions.
async fn lists(store: &dyn Store) -> [Vec<String>; 2] {
    let page = Page { limit: 10_000, offset: 0 };
    let orders = store.orders(OrderFilter::default(), page).await.unwrap();
    let deposits = store.deposits(DepositFilter::default(), page).await.unwrap();
    let order = |row: &OrderRow| format!("{} {}", row.order.order_id, row.order.status);
    let deposit = |row: &DepositRow| row.deposit.deposit_id.to_string();
    [orders.iter().map(order).collect(), deposits.iter().map(deposit).collect()]
}

/// Checks that the comparison can fail: without versions, rows revert to older states.
pub async fn versions_matter(back_end: BackEnd, changes: &[Change]) {
    let mut clock = UnixMicros(0);
    let in_order = forget_versions(changes, &mut clock);
    let replayed = forget_versions(&twice_shuffled(changes, 0), &mut clock);
    let embedded = Tables::new(EMBEDDED);
    apply(&*embedded.open().await, &in_order).await;
    let listed = lists(&*embedded.open().await).await;

    let tables = Tables::new(back_end);
    let store = tables.open().await;
    apply(&*store, &in_order).await;
    let dumped = tables.dump().await;
    assert_eq!(lists(&*store).await, listed);
    apply(&*store, &replayed).await;
    assert_ne!(lists(&*store).await, listed);
    let after = tables.dump().await;
    for (table, rows) in dumped.iter().filter(|(table, _)| VERSIONED.contains(&table.as_str())) {
        assert_ne!(*rows, after[table], "{table}");
    }
}
