//! The cases.

use std::cell::RefCell;
use std::future::Future;
use std::sync::Arc;

use proptest::prelude::{Just, Strategy};
use proptest::test_runner::{Config, TestRunner};
use schemas::record::{Attempt, ChainProgress, Deposit, Order, Transfer, example};
use schemas::{
    AttemptOutcome, Blockchain, DepositId, DepositState, Incarnation, OrderStatus, Partition,
    Stablecoin, Topic, TransferId, TransferStatus, UnixMicros, UnixSeconds,
};
use store::{
    Change, Cursor, DepositFilter, Error, OrderFilter, Origin, Page, Position, Store, Subject,
    TransferFilter, Within, transfer_cursor,
};
use tokio::runtime::Runtime;

use super::reference::{Reference, Snapshot};
use super::sample::{self, Filters};
use crate::tables::Tables;

const ALL: Page = Page { limit: 200, offset: 0 };

/// Runs `check` for random values, each time with empty tables.
pub(super) fn for_random<S: Strategy>(
    (tables, runtime): (&Tables, &Runtime),
    strategy: &S,
    check: impl AsyncFn(&Tables, S::Value),
) {
    let cases = tables.back_end().cases;
    let config = Config { cases, source_file: Some(file!()), ..Config::default() };
    let emptied = RefCell::new(tables.others());
    let result = TestRunner::new(config).run(strategy, |value| {
        let mut tables = emptied.borrow_mut();
        tables.renew();
        runtime.block_on(check(&tables, value));
        Ok(())
    });
    result.unwrap();
}

/// Reads a list page by page until there is no more.
pub(super) async fn read_pages<T, F: Future<Output = Result<Vec<T>, Error>>>(
    limit: u32,
    list: impl Fn(Page) -> F,
) -> Vec<T> {
    let mut rows = Vec::new();
    loop {
        let offset = u32::try_from(rows.len()).unwrap();
        let page = list(Page { limit, offset }).await.unwrap();
        assert!(page.len() <= limit as usize, "a page of {} rows", page.len());
        if page.is_empty() {
            return rows;
        }
        rows.extend(page);
    }
}

/// Checks that each list, page by page, has the reference's rows in the reference's order.
pub(super) async fn lists_agree(
    store: &dyn Store,
    reference: &Reference,
    (orders, deposits, wallet, transfers): &Filters,
    limit: u32,
) {
    let rows = read_pages(limit, |page| store.orders(orders.clone(), page)).await;
    assert_eq!(rows, reference.orders(orders), "{orders:?}");
    let rows = read_pages(limit, |page| store.deposits(*deposits, page)).await;
    assert_eq!(rows, reference.deposits(deposits), "{deposits:?}");
    let rows = read_pages(limit, |page| store.transfers(*wallet, *transfers, page)).await;
    assert_eq!(rows, reference.transfers(*wallet, transfers), "{transfers:?}");
}

/// Random rows, random filters, random page sizes: each list has the reference's rows in the
/// reference's order, and its pages have no gaps and no repeats, after each of several calls.
pub(super) fn lists_are_those_of_the_reference(tables: &Tables, runtime: &Runtime) {
    let filters = proptest::collection::vec(sample::filters(), 8);
    let strategy = (sample::calls(), filters, 1..9_u32);
    for_random((tables, runtime), &strategy, async |tables, (calls, filters, limit)| {
        let (store, mut reference) = (tables.open().await, Reference::default());
        for changes in calls {
            changes.iter().for_each(|change| reference.apply(change));
            store.apply(changes).await.unwrap();
            assert_eq!(Snapshot::of(&*store).await, reference.snapshot());
            for filters in &filters {
                lists_agree(&*store, &reference, filters, limit).await;
            }
        }
    });
}

/// Each change twice, shuffled, and in many calls: the same rows as in order and once.
pub(super) fn the_order_of_changes_does_not_matter(tables: &Tables, runtime: &Runtime) {
    let strategy = sample::calls().prop_flat_map(|calls| {
        let changes = calls.concat();
        let twice = [changes.clone(), changes.clone()].concat();
        (Just(changes), Just(twice).prop_shuffle(), 1..20_usize)
    });
    for_random((tables, runtime), &strategy, async |tables, (changes, shuffled, size)| {
        let (store, mut reference) = (tables.open().await, Reference::default());
        changes.iter().for_each(|change| reference.apply(change));
        for part in shuffled.chunks(size) {
            store.apply(part.to_vec()).await.unwrap();
        }
        assert_eq!(Snapshot::of(&*store).await, reference.snapshot());
    });
}

/// Rows are read exactly as written, to the last byte of any text.
pub(super) async fn rows_read_back_exactly(tables: &Tables) {
    let store = tables.open().await;
    let texts = ["", "A-1001", "a\0b", "'; DROP TABLE orders; --", "ключ 鍵 🔑", "%_\\"];
    for (number, text) in texts.iter().enumerate() {
        let order = Order {
            order_id: sample::order_id(number as u64),
            merchant_order_id: (*text).to_owned(),
            ..example::order()
        };
        store.apply(vec![Change::Order(order.clone())]).await.unwrap();
        let row = store.order(order.order_id).await.unwrap().unwrap();
        assert_eq!((&row.order, row.webhook_retry_count), (&order, 0));
        assert_eq!(store.order_record(order.order_id).await.unwrap(), Some(order));
        assert_eq!((row.webhook_success_at, row.webhook_last_tried_at), (None, None));
        let filter =
            OrderFilter { merchant_order_id: Some((*text).to_owned()), ..OrderFilter::default() };
        assert_eq!(store.orders(filter, ALL).await.unwrap(), [row], "{text:?}");
    }
    let largest = TransferId((1 << 53) - 1);
    let transfer = Transfer { transfer_id: largest, ..example::transfer() };
    let chain = example::chain_progress();
    let changes = vec![Change::Transfer(transfer.clone()), Change::Chain(chain.clone())];
    store.apply(changes).await.unwrap();
    assert_eq!(store.transfer(largest).await.unwrap(), Some(transfer));
    assert_eq!(store.chains().await.unwrap(), [chain]);
    assert_eq!(store.transfer(TransferId(1)).await.unwrap(), None);
    assert_eq!(store.order_record(sample::order_id(99)).await.unwrap(), None);
    store.apply(Vec::new()).await.unwrap();
}

/// Each filter of spec 4.2, on rows that differ in that field.
pub(super) async fn each_filter_gives_its_rows(tables: &Tables) {
    let store = tables.open().await;
    let mut changes = Vec::new();
    for (number, status) in OrderStatus::ALL.iter().enumerate() {
        changes.push(Change::Order(Order {
            order_id: sample::order_id(number as u64),
            status: *status,
            created_at: UnixSeconds(1),
            merchant_order_id: if number < 2 { "first" } else { "second" }.into(),
            ..example::order()
        }));
    }
    for (number, stablecoin) in (0_i64..).zip(Stablecoin::ALL) {
        let mut transfer = example::transfer();
        transfer.transfer_id = TransferId(number);
        transfer.observation.stablecoin = *stablecoin;
        transfer.blockchain = if number == 0 { Blockchain::Op } else { Blockchain::Eth };
        changes.push(Change::Transfer(transfer.clone()));
        changes.push(Change::Deposit(Deposit {
            deposit_id: DepositId(number),
            order_id: sample::order_id(number.cast_unsigned()),
            stablecoin: *stablecoin,
            blockchain: transfer.blockchain,
            ..example::deposit()
        }));
    }
    store.apply(changes).await.unwrap();
    for (status, reference, expected) in [
        (None, None, vec![3, 2, 1, 0]),
        (Some(OrderStatus::Expired), None, vec![2]),
        (None, Some("first"), vec![1, 0]),
        (Some(OrderStatus::Pending), Some("first"), vec![0]),
        (Some(OrderStatus::Pending), Some("second"), vec![]),
        (None, Some("First"), vec![]),
    ] {
        let merchant_order_id = reference.map(str::to_owned);
        let filter = OrderFilter { status, merchant_order_id, within: Within::default() };
        let rows = store.orders(filter, ALL).await.unwrap();
        let ids: Vec<_> = rows.iter().map(|row| row.order.order_id).collect();
        let expected: Vec<_> = expected.into_iter().map(sample::order_id).collect();
        assert_eq!(ids, expected, "{status:?} {reference:?}");
    }
    let coins = Stablecoin::ALL.len() as i64;
    for (blockchain, stablecoin, expected) in [
        (None, None, (0..coins).rev().collect()),
        (Some(Blockchain::Eth), None, (1..coins).rev().collect()),
        (None, Some(Stablecoin::Usdc), vec![1]),
        (Some(Blockchain::Op), Some(Stablecoin::Usdc), vec![]),
    ] {
        let within = Within::default();
        let filter = TransferFilter { status: None, blockchain, stablecoin, within };
        let wallet = example::transfer().observation.to_address;
        let rows = store.transfers(wallet, filter, ALL).await.unwrap();
        let ids: Vec<_> = rows.iter().map(|row| row.transfer_id.0).collect();
        assert_eq!(ids, expected, "{filter:?}");
        let filter = TransferFilter { status: Some(TransferStatus::FailedToConfirm), ..filter };
        assert_eq!(store.transfers(wallet, filter, ALL).await.unwrap(), [], "{filter:?}");
        let filter = DepositFilter { order_id: None, blockchain, stablecoin, within };
        let rows = store.deposits(filter, ALL).await.unwrap();
        let ids: Vec<_> = rows.iter().map(|row| row.deposit.deposit_id.0).collect();
        assert_eq!(ids, expected, "{filter:?}");
        let filter = DepositFilter { order_id: Some(sample::order_id(1)), ..filter };
        let rows = store.deposits(filter, ALL).await.unwrap();
        assert_eq!(rows.len(), expected.iter().filter(|id| **id == 1).count(), "{filter:?}");
    }
}

/// Lists are ordered by time alone, whatever partition a store has for a status or a day: some rows that can change are
/// older than final ones, and some newer.
pub(super) async fn lists_go_by_time_across_statuses_and_days(tables: &Tables) {
    const DAY_SECONDS: i64 = 86_400;
    let store = tables.open().await;
    let mut changes = Vec::new();
    // Each status has the oldest row of some day, and no two consecutive rows have the same status.
    for number in 0..24_u8 {
        let created_at = UnixSeconds(1_790_000_000 + i64::from(number) * DAY_SECONDS / 3);
        let status = OrderStatus::ALL[usize::from(number) % OrderStatus::ALL.len()];
        let order_id = sample::order_id(u64::from(number));
        changes.push(Change::Order(Order { order_id, status, created_at, ..example::order() }));
        let status = TransferStatus::ALL[usize::from(number) % TransferStatus::ALL.len()];
        let transfer_id = TransferId(i64::from(number));
        let transfer = Transfer { transfer_id, status, created_at, ..example::transfer() };
        changes.push(Change::Transfer(transfer));
    }
    store.apply(changes).await.unwrap();
    let wallet = example::transfer().observation.to_address;
    for limit in [1, 7, 200] {
        let statuses = std::iter::once(None).chain(OrderStatus::ALL.iter().copied().map(Some));
        for (every, status) in statuses.enumerate() {
            let filter = OrderFilter { status, ..OrderFilter::default() };
            let rows = read_pages(limit, |page| store.orders(filter.clone(), page)).await;
            let ids: Vec<_> = rows.iter().map(|row| row.order.order_id).collect();
            let count = OrderStatus::ALL.len();
            let is_listed = |number: &usize| every == 0 || number % count == every - 1;
            let expected = (0..24_usize).rev().filter(is_listed);
            let expected: Vec<_> = expected.map(|n| sample::order_id(n as u64)).collect();
            assert_eq!(ids, expected, "{status:?} in pages of {limit}");
        }
        let list = |page| store.transfers(wallet, TransferFilter::default(), page);
        let rows = read_pages(limit, list).await;
        let ids: Vec<_> = rows.iter().map(|row| row.transfer_id.0).collect();
        assert_eq!(ids, (0..24).rev().collect::<Vec<_>>(), "in pages of {limit}");
    }
}

/// Reads a list by pages, each behind the last row of the one before.
pub(super) async fn read_on<T, F: Future<Output = Result<Vec<T>, Error>>>(
    limit: u32,
    cursor: impl Fn(&T) -> Cursor,
    list: impl Fn(Within, Page) -> F,
) -> Vec<T> {
    let (mut rows, mut within) = (Vec::new(), Within::default());
    loop {
        let page = list(within, Page { limit, offset: 0 }).await.unwrap();
        let Some(last) = page.last() else { return rows };
        within.before = Some(cursor(last));
        rows.extend(page);
    }
}

/// The cursor of a page's last row gives the next page: rows of one second, of one day and of others.
pub(super) async fn a_list_continues_behind_a_row(tables: &Tables) {
    let store = tables.open().await;
    let mut changes = Vec::new();
    for number in 0..24_i64 {
        let second = UnixSeconds(1_790_000_000 + number / 3 * 50_000);
        let status = OrderStatus::ALL[number.unsigned_abs() as usize % OrderStatus::ALL.len()];
        let order_id = sample::order_id(number.unsigned_abs());
        changes.push(Change::Order(Order {
            order_id,
            status,
            created_at: second,
            ..example::order()
        }));
        changes.push(Change::Deposit(Deposit {
            deposit_id: DepositId(number),
            started_at: second,
            ..example::deposit()
        }));
        let status = TransferStatus::ALL[number.unsigned_abs() as usize % 5];
        let transfer_id = TransferId(number);
        let transfer = Transfer { transfer_id, status, created_at: second, ..example::transfer() };
        changes.push(Change::Transfer(transfer));
    }
    store.apply(changes).await.unwrap();
    let wallet = example::transfer().observation.to_address;
    let (orders, deposits) = (OrderFilter::default(), DepositFilter::default());
    let of_order = DepositFilter { order_id: Some(example::deposit().order_id), ..deposits };
    let reference = Some(example::order().merchant_order_id);
    let of_reference = OrderFilter { merchant_order_id: reference, ..orders.clone() };
    let transfers = TransferFilter::default();
    for limit in [1, 7] {
        for filter in [&orders, &of_reference] {
            let list = |within, page| store.orders(OrderFilter { within, ..filter.clone() }, page);
            let rows = read_on(limit, store::OrderRow::cursor, list).await;
            assert_eq!(rows, store.orders(filter.clone(), ALL).await.unwrap(), "{filter:?}");
            assert_eq!(rows.len(), 24);
        }
        for filter in [deposits, of_order] {
            let list = |within, page| store.deposits(DepositFilter { within, ..filter }, page);
            let rows = read_on(limit, store::DepositRow::cursor, list).await;
            assert_eq!(rows, store.deposits(filter, ALL).await.unwrap(), "{filter:?}");
            assert_eq!(rows.len(), 24);
        }
        let list =
            |within, page| store.transfers(wallet, TransferFilter { within, ..transfers }, page);
        let rows = read_on(limit, transfer_cursor, list).await;
        assert_eq!(rows, store.transfers(wallet, transfers, ALL).await.unwrap());
        assert_eq!(rows.len(), 24);
    }
}

/// Older versions never overwrite newer ones, in any order of arrival; a deposit closed before its opening arrives is
/// never listed.
pub(super) async fn newer_versions_win_in_any_order(tables: &Tables) {
    let store = tables.open().await;
    let order = |version: i64, status| {
        let updated_at = UnixMicros(version);
        Change::Order(Order { version, updated_at, status, paid_by: None, ..example::order() })
    };
    let deposit = |version: i64, state| {
        let updated_at = UnixMicros(version);
        Change::Deposit(Deposit { updated_at, state, ..example::deposit() })
    };
    let id = example::order().order_id;
    let changes = [
        order(5, OrderStatus::Expired),
        order(4, OrderStatus::Pending),
        deposit(7, DepositState::Closed),
        deposit(6, DepositState::Open),
    ];
    // One by one, then all in one call.
    for part in [&changes[..1], &changes[1..2], &changes[2..3], &changes[3..], &changes] {
        store.apply(part.to_vec()).await.unwrap();
        let row = store.order(id).await.unwrap().unwrap();
        assert_eq!((row.order.version, row.order.status), (5, OrderStatus::Expired));
        assert_eq!(store.deposits(DepositFilter::default(), ALL).await.unwrap(), []);
    }
    store.apply(vec![order(6, OrderStatus::Paid)]).await.unwrap();
    assert_eq!(store.order(id).await.unwrap().unwrap().order.status, OrderStatus::Paid);
    for status in OrderStatus::ALL {
        let filter = OrderFilter { status: Some(*status), ..OrderFilter::default() };
        let listed = store.orders(filter, ALL).await.unwrap().len();
        assert_eq!(listed, usize::from(*status == OrderStatus::Paid), "in the list of {status}");
    }
}

/// An attempt about transfer 7.
fn about_a_transfer() -> Attempt {
    Attempt {
        event_id: "1.unknown".into(),
        order_id: None,
        transfer_id: Some(TransferId(7)),
        ..example::attempt()
    }
}

/// The counters of spec 2.3, whether the order or its attempts arrive first.
pub(super) async fn attempts_are_counted_once(tables: &Tables) {
    let store = tables.open().await;
    let attempt = |number: i32, manual, second: i64, outcome| {
        Change::Attempt(Attempt {
            attempt: number,
            manual,
            attempted_at: UnixMicros(second * 1_000_000 + 999_999),
            outcome,
            ..example::attempt()
        })
    };
    let id = example::order().order_id;
    let third = attempt(3, false, 40, AttemptOutcome::Delivered);
    let first = attempt(1, false, 10, AttemptOutcome::Status);
    let second = attempt(2, false, 20, AttemptOutcome::Timeout);
    let by_hand = attempt(1, true, 90, AttemptOutcome::Delivered);
    let overtaken = attempt(4, false, 95, AttemptOutcome::Superseded);
    let forbidden = attempt(5, false, 99, AttemptOutcome::Forbidden);
    store.apply(vec![third.clone(), Change::Attempt(about_a_transfer())]).await.unwrap();
    assert_eq!(store.order(id).await.unwrap(), None);
    for (changes, count, success, last) in [
        (vec![Change::Order(example::order())], 1, Some(40), 40),
        (vec![first.clone(), first], 2, Some(40), 40),
        (vec![second, third], 3, Some(40), 40),
        (vec![by_hand], 4, Some(40), 90),
        (vec![overtaken, forbidden], 4, Some(40), 90),
    ] {
        store.apply(changes).await.unwrap();
        let row = store.order(id).await.unwrap().unwrap();
        assert_eq!(row.webhook_retry_count, count);
        assert_eq!(row.webhook_success_at, success.map(UnixSeconds));
        assert_eq!(row.webhook_last_tried_at, Some(UnixSeconds(last)));
        assert_eq!(store.orders(OrderFilter::default(), ALL).await.unwrap(), [row]);
    }
}

pub(super) async fn attempts_are_listed_by_page(tables: &Tables) {
    let store = tables.open().await;
    let id = example::order().order_id;
    let attempt = |number: i32, second: i64, outcome| Attempt {
        attempt: number,
        attempted_at: UnixMicros(second * 1_000_000),
        outcome,
        ..example::attempt()
    };
    let rows = [
        attempt(4, 95, AttemptOutcome::Superseded),
        attempt(3, 40, AttemptOutcome::Delivered),
        attempt(2, 10, AttemptOutcome::Status),
        attempt(1, 10, AttemptOutcome::Timeout),
    ];
    let [superseded, third, second, first] = rows.clone();
    let changes = [first, third, about_a_transfer(), superseded, second];
    store.apply(changes.map(Change::Attempt).to_vec()).await.unwrap();
    for limit in [1, 3, 200] {
        let list = |page| store.attempts(Subject::Order(id), page);
        assert_eq!(read_pages(limit, list).await, rows);
    }
    let of_transfer = store.attempts(Subject::Transfer(TransferId(7)), ALL).await;
    assert_eq!(of_transfer.unwrap(), [about_a_transfer()]);
    assert_eq!(store.attempts(Subject::Transfer(TransferId(8)), ALL).await.unwrap(), []);
}

/// `last_scanned_at` (spec 2.4) is the time of the chain's progress, in whole seconds.
pub(super) async fn deposits_show_the_last_scan_of_their_chain(tables: &Tables) {
    let store = tables.open().await;
    let scanned = |blockchain, micros| {
        let updated_at = UnixMicros(micros);
        Change::Chain(ChainProgress { blockchain, updated_at, ..example::chain_progress() })
    };
    store.apply(vec![Change::Deposit(example::deposit())]).await.unwrap();
    for (change, expected) in [
        (scanned(Blockchain::Base, 9_000_000), None),
        (scanned(Blockchain::Eth, 5_999_999), Some(UnixSeconds(5))),
        (scanned(Blockchain::Eth, 4_000_000), Some(UnixSeconds(5))),
        (scanned(Blockchain::Eth, 7_000_001), Some(UnixSeconds(7))),
    ] {
        store.apply(vec![change]).await.unwrap();
        let rows = store.deposits(DepositFilter::default(), ALL).await.unwrap();
        assert_eq!(rows.iter().map(|row| row.last_scanned_at).collect::<Vec<_>>(), [expected]);
    }
    let later = ChainProgress { updated_at: UnixMicros(9_000_000), ..example::lane_progress() };
    let lanes = [later.clone(), ChainProgress { lane: Some(1), ..later }];
    store.apply(lanes.into_iter().rev().map(Change::Chain).collect()).await.unwrap();
    let rows = store.deposits(DepositFilter::default(), ALL).await.unwrap();
    assert_eq!(rows[0].last_scanned_at, Some(UnixSeconds(7)), "the processor scans nothing");
    let chains = store.chains().await.unwrap();
    let names: Vec<_> = chains.iter().map(|chain| (chain.blockchain, chain.lane)).collect();
    use Blockchain::{Base, Eth};
    let expected = [(Eth, None), (Eth, Some(0)), (Eth, Some(1)), (Base, None)];
    assert_eq!(names, expected, "in the order of spec 2.1");
}

/// Applied rows survive closing and reopening the store, twice.
pub(super) async fn rows_survive_a_restart(tables: &Tables) {
    let changes: Vec<_> = (0..5_u8)
        .flat_map(|table| {
            // The last table gets only nine rows, so that no lane has two.
            let rows = if table == 4 { 9 } else { 12 };
            (0..rows).map(move |row| sample::change(7, table, row, 1))
        })
        .collect();
    let mut reference = Reference::default();
    changes.iter().for_each(|change| reference.apply(change));
    tables.open().await.apply(changes).await.unwrap();
    for _ in 0..2 {
        assert_eq!(Snapshot::of(&*tables.open().await).await, reference.snapshot());
    }
}

/// Concurrent callers, on separate and on shared rows: no write is lost, the newest version wins.
pub(super) async fn concurrent_calls_all_count(tables: &Tables) {
    const CALLERS: u64 = 16;
    const CALLS: u64 = 12;
    let store = tables.open().await;
    let mut callers = tokio::task::JoinSet::new();
    let mut reference = Reference::default();
    for caller in 0..CALLERS {
        let calls: Vec<Vec<Change>> = (0..CALLS)
            .map(|call| {
                let own = sample::change(1, 2, 100 + caller * CALLS + call, 1);
                // Odd callers go from the newest version to the oldest.
                let version = if caller % 2 == 0 { call } else { CALLS - call };
                vec![own, sample::change(1, 0, call % 3, version)]
            })
            .collect();
        calls.iter().flatten().for_each(|change| reference.apply(change));
        let store: Arc<dyn Store> = store.clone();
        callers.spawn(async move {
            for changes in calls {
                store.apply(changes).await.unwrap();
            }
        });
    }
    while let Some(ended) = callers.join_next().await {
        ended.unwrap();
    }
    assert_eq!(Snapshot::of(&*store).await, reference.snapshot());
}

/// Origin of the tables: the log they are made from, and their positions in it.
pub(super) async fn tables_know_their_log(tables: &Tables) {
    let store = tables.open().await;
    assert_eq!((store.origin().await.unwrap(), store.positions().await.unwrap()), (None, vec![]));
    let origin = |second| Origin {
        installation: "kafka/a-cluster/shop.".to_owned(),
        incarnation: Incarnation(second),
    };
    for second in [0, 1_795_309_568] {
        store.set_origin(&origin(second)).await.unwrap();
    }
    let at = |topic, partition, next| Position { topic, partition: Partition(partition), next };
    let first = [at(Topic::Orders, 0, 3), at(Topic::Orders, 1, 5), at(Topic::Chains, 0, 1 << 39)];
    store.set_positions(&first).await.unwrap();
    store.set_positions(&[]).await.unwrap();
    store.set_positions(&[at(Topic::Orders, 1, 7), at(Topic::Deposits, 255, 1)]).await.unwrap();
    let mut found = store.positions().await.unwrap();
    found.sort_by_key(|at| (at.topic, at.partition));
    let mut expected =
        vec![first[0], at(Topic::Orders, 1, 7), first[2], at(Topic::Deposits, 255, 1)];
    expected.sort_by_key(|at| (at.topic, at.partition));
    assert_eq!(found, expected);
    assert_eq!(store.origin().await.unwrap(), Some(origin(1_795_309_568)));
}
