//! Pruning removes old and final rows, with a copy of each, and nothing else.

use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Mutex;
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use proptest::prelude::Strategy;
use runtime::{Clock, ManualClock, SystemClock};
use schemas::record::{Attempt, Deposit, Order, Record, Transfer, example};
use schemas::{
    DepositId, DepositState, OrderStatus, TransferId, TransferStatus, UnixMicros, UnixSeconds,
    decode_json, encode,
};
use serde_json::{Value, json};
use store::prune::{Day, Export, FileExport, Kept, Pruned, Removed, WithoutExport, prune};
use store::{
    Change, DepositFilter, Error, OrderFilter, Page, Store, Subject, TransferFilter, Within,
    transfer_cursor,
};
use tokio::runtime::Runtime;

use super::case::{for_random, lists_agree, read_on, read_pages};
use super::reference::{Reference, Snapshot};
use super::sample::{self, WALLETS};
use crate::tables::Tables;

const HOUR: Duration = Duration::from_secs(3_600);
const DAY_SECONDS: i64 = 86_400;

/// Number of rows of each kind in the story: more than one batch removes.
fn rows(tables: &Tables) -> i64 {
    if tables.back_end().name == "embedded" { 620 } else { 160 }
}

/// A clock one hour ahead: on CQL, lists that were written in the last minute and rows that changed in the last hour
/// are not pruned.
fn later() -> ManualClock {
    ManualClock::new(UnixMicros(SystemClock.now().0 + HOUR.as_micros() as i64))
}

/// Exported rows, and the point of a planned failure.
#[derive(Debug, Default)]
struct Copies {
    rows: Mutex<Vec<Change>>,
    /// Number of rows after which an export fails.
    rows_max: Option<usize>,
}

impl Copies {
    fn rows(&self) -> BTreeSet<String> {
        texts(&self.rows.lock().unwrap())
    }
}

#[async_trait]
impl Export for Copies {
    async fn keep(&self, rows: &[Change]) -> Result<(), Error> {
        let mut kept = self.rows.lock().unwrap();
        if self.rows_max.is_some_and(|max| kept.len() + rows.len() > max) {
            return Err(Error::Fatal("the disk of the export is full".into()));
        }
        kept.extend_from_slice(rows);
        Ok(())
    }
}

fn texts(rows: &[Change]) -> BTreeSet<String> {
    rows.iter().map(|row| format!("{row:?}")).collect()
}

/// Pruned rows that the back end had: on CQL a closed deposit is deleted earlier.
fn kept_by(tables: &Tables, rows: Vec<Change>) -> Vec<Change> {
    let keeps_closed = tables.back_end().name == "embedded";
    rows.into_iter().filter(|row| keeps_closed || !matches!(row, Change::Deposit(_))).collect()
}

async fn prune_all(store: &dyn Store, before: Day, export: &dyn Export) -> Result<Pruned, Error> {
    prune(store, before, &later(), export, |_, _| {}).await
}

/// Random rows and days: removed rows and all lists afterwards equal the reference; a second run removes nothing.
pub(super) fn what_goes_is_what_the_reference_says(tables: &Tables, runtime: &Runtime) {
    let filters = proptest::collection::vec(sample::filters(), 6);
    let day = proptest::sample::select(&["1970-01-02", "1970-01-03", "1970-01-05", "1970-04-12"]);
    let strategy = (sample::calls(), filters, 1..9_u32, day.prop_map(|day| day.parse().unwrap()));
    for_random((tables, runtime), &strategy, async |tables, (calls, filters, limit, day)| {
        let (store, mut reference) = (tables.open().await, Reference::default());
        for changes in calls {
            changes.iter().for_each(|change| reference.apply(change));
            store.apply(changes).await.unwrap();
        }
        let expected = texts(&kept_by(tables, reference.prune(day)));
        let copies = Copies::default();
        prune_all(&*store, day, &copies).await.unwrap();
        assert_eq!(copies.rows(), expected);
        assert_eq!(copies.rows.lock().unwrap().len(), expected.len(), "each row once");
        assert_eq!(Snapshot::of(&*store).await, reference.snapshot());
        for filters in &filters {
            lists_agree(&*store, &reference, filters, limit).await;
        }
        let again = Copies::default();
        let second = prune_all(&*store, day, &again).await.unwrap();
        assert_eq!((second.removed, again.rows().len()), (Removed::default(), 0));
        assert_eq!(Snapshot::of(&*store).await, reference.snapshot());
        // The day is not stored while ended orders with open deposits stay.
        let is_noted = store.pruned_before().await.unwrap() == Some(day.start());
        assert!(is_noted || second.kept.open > 0, "{:?}", second.kept);
    });
}

/// The first kept day.
fn before() -> Day {
    "2026-03-04".parse().unwrap()
}

/// A day with more rows than one batch removes, a day a month before, and the first kept day. One row in twenty is
/// kept: an order is pending or has an open deposit, a transfer waits.
fn story(rows: i64) -> Vec<Change> {
    let mut changes = Vec::new();
    for number in 0..rows {
        let days = if number < rows - 40 { 2 } else { 40 };
        let days = if number % 31 == 0 { 0 } else { days };
        let created_at = UnixSeconds(before().start().0 - days * DAY_SECONDS + number);
        let order_id = sample::order_id(number.unsigned_abs());
        let status = OrderStatus::ALL[usize::from(number % 40 > 0)];
        let state = if number % 40 == 20 { DepositState::Open } else { DepositState::Closed };
        let merchant_order_id = format!("R-{}", number % 3);
        changes.push(Change::Order(Order {
            order_id,
            status,
            created_at,
            merchant_order_id,
            ..example::order()
        }));
        changes.push(Change::Deposit(Deposit {
            deposit_id: DepositId(number),
            order_id,
            state,
            started_at: created_at,
            ..example::deposit()
        }));
        let status = match number % 20 {
            0 => TransferStatus::WaitingForMatch,
            1 => TransferStatus::FailedToConfirm,
            2 => TransferStatus::NoMatchedDeposit,
            _ => TransferStatus::Matched,
        };
        let transfer_id = TransferId(number);
        let mut transfer = Transfer { transfer_id, status, created_at, ..example::transfer() };
        transfer.observation.to_address = WALLETS[usize::from(number % 7 == 0)];
        changes.push(Change::Transfer(transfer));
        let of_order = number % 2 == 0;
        changes.push(Change::Attempt(Attempt {
            event_id: format!("event-{number}"),
            order_id: of_order.then_some(order_id),
            transfer_id: (!of_order).then_some(transfer_id),
            ..example::attempt()
        }));
    }
    changes
}

async fn written(tables: &Tables) -> (std::sync::Arc<dyn Store>, Reference) {
    let (store, mut reference) = (tables.open().await, Reference::default());
    let changes = story(rows(tables));
    changes.iter().for_each(|change| reference.apply(change));
    for part in changes.chunks(400) {
        store.apply(part.to_vec()).await.unwrap();
    }
    (store, reference)
}

/// Lists all rows of the story, page by page.
async fn list_all(store: &dyn Store) -> [Vec<String>; 3] {
    let cursor = |row: &store::OrderRow| row.cursor();
    let orders = read_on(90, cursor, |within, page| {
        store.orders(OrderFilter { within, ..OrderFilter::default() }, page)
    });
    let orders = orders.await.iter().map(|row| format!("{row:?}")).collect();
    let list = |page| store.deposits(DepositFilter::default(), page);
    let deposits = read_pages(90, list).await.iter().map(|row| format!("{row:?}")).collect();
    let mut transfers = Vec::new();
    for wallet in WALLETS {
        let rows = read_on(90, transfer_cursor, |within: Within, page: Page| {
            store.transfers(wallet, TransferFilter { within, ..TransferFilter::default() }, page)
        });
        transfers.extend(rows.await.iter().map(|row| format!("{row:?}")));
    }
    [orders, deposits, transfers]
}

/// All rows of the reference.
fn all_of(reference: &Reference) -> [Vec<String>; 3] {
    let orders = reference.orders(&OrderFilter::default());
    let deposits = reference.deposits(&DepositFilter::default());
    let list = |wallet| reference.transfers(wallet, &TransferFilter::default());
    [
        orders.iter().map(|row| format!("{row:?}")).collect(),
        deposits.iter().map(|row| format!("{row:?}")).collect(),
        WALLETS.into_iter().flat_map(list).map(|row| format!("{row:?}")).collect(),
    ]
}

fn json<R: Record>(table: &str, record: &R) -> Value {
    let record = decode_json(R::SCHEMA, &encode(record).unwrap()).unwrap();
    json!({ "table": table, "record": record })
}

fn lines(rows: &[Change]) -> BTreeSet<String> {
    let line = |row: &Change| match row {
        Change::Order(order) => json("orders", order),
        Change::Deposit(deposit) => json("deposits", deposit),
        Change::Transfer(transfer) => json("transfers", transfer),
        Change::Attempt(attempt) => json("attempts", attempt),
        Change::Chain(chain) => json("chains", chain),
    };
    rows.iter().map(|row| line(row).to_string()).collect()
}

/// Kept rows keep their dependent rows; the file has exactly the removed rows.
pub(super) async fn what_waits_stays_with_all_of_its_own(tables: &Tables) {
    let (store, mut reference) = written(tables).await;
    assert_eq!(list_all(&*store).await, all_of(&reference));
    assert_eq!(store.pruned_before().await.unwrap(), None);
    let path = tables.dir().join("old.jsonl");
    let export = FileExport::to(path.clone());
    let mut days = Vec::new();
    let pruned = prune(&*store, before(), &later(), &export, |day, _| days.push(day)).await;
    let pruned = pruned.unwrap();
    assert_eq!(days, [before().back(40), before().back(2)]);
    let gone = kept_by(tables, reference.prune(before()));
    let text = std::fs::read_to_string(&path).unwrap();
    let read = |line: &str| serde_json::from_str::<Value>(line).unwrap().to_string();
    assert_eq!(text.lines().map(read).collect::<BTreeSet<_>>(), lines(&gone));
    assert_eq!(text.lines().count(), gone.len(), "each once");
    let count = |table: &str| gone.iter().filter(|row| row.table() == table).count() as u64;
    assert_eq!(pruned.removed.by_table().map(|(table, _)| count(table)), {
        pruned.removed.by_table().map(|(_, rows)| rows)
    });
    let old = || (0..rows(tables)).filter(|number| number % 31 > 0);
    let every = |of: i64, rest: i64| old().filter(|number| number % of == rest).count() as u64;
    let (pending, open, waiting) = (every(40, 0), every(40, 20), every(20, 0));
    assert_eq!(pruned.kept, Kept { pending, open, waiting, ..Kept::default() });
    assert_eq!(list_all(&*store).await, all_of(&reference));
    for reference_text in ["R-0", "R-1", "R-2"] {
        let merchant_order_id = Some(reference_text.to_owned());
        let filter = OrderFilter { merchant_order_id, ..OrderFilter::default() };
        let rows = read_pages(7, |page| store.orders(filter.clone(), page)).await;
        assert_eq!(rows, reference.orders(&filter), "{reference_text}");
    }
    for status in OrderStatus::ALL {
        let filter = OrderFilter { status: Some(*status), ..OrderFilter::default() };
        let rows = read_pages(7, |page| store.orders(filter.clone(), page)).await;
        assert_eq!(rows, reference.orders(&filter), "{status}");
    }
    for number in 0..rows(tables) {
        let (order, transfer) = (sample::order_id(number.unsigned_abs()), TransferId(number));
        let row = store.order(order).await.unwrap();
        assert_eq!(row, reference.order(order), "{order}");
        let row = store.transfer(transfer).await.unwrap();
        assert_eq!(row, reference.transfer(transfer), "{transfer}");
        for subject in [Subject::Order(order), Subject::Transfer(transfer)] {
            let page = Page { limit: 9, offset: 0 };
            let rows = store.attempts(subject, page).await.unwrap();
            assert_eq!(rows, reference.attempts(subject), "{subject:?}");
        }
    }
}

/// Reads the lists before every fourth removal: no list fails, has an unknown row, or lacks a kept row.
struct Reading<'a> {
    store: &'a dyn Store,
    before: [BTreeSet<String>; 3],
    after: [BTreeSet<String>; 3],
    calls: Mutex<usize>,
}

#[async_trait]
impl Export for Reading<'_> {
    async fn keep(&self, _rows: &[Change]) -> Result<(), Error> {
        let call = {
            let mut calls = self.calls.lock().unwrap();
            *calls += 1;
            *calls
        };
        // Reading before every removal would take minutes on CQL.
        let lists = if call % 4 == 2 { Some(list_all(self.store).await) } else { None };
        for (number, list) in lists.into_iter().flatten().enumerate() {
            let found: BTreeSet<String> = list.iter().cloned().collect();
            assert_eq!(found.len(), list.len(), "a row twice");
            assert!(found.is_subset(&self.before[number]));
            assert!(self.after[number].is_subset(&found));
        }
        Ok(())
    }
}

pub(super) async fn lists_are_read_while_rows_go(tables: &Tables) {
    let (store, mut reference) = written(tables).await;
    let sets = |lists: [Vec<String>; 3]| lists.map(|list| list.into_iter().collect());
    let before_it = sets(all_of(&reference));
    reference.prune(before());
    let after = sets(all_of(&reference));
    let reading = Reading { store: &*store, before: before_it, after, calls: Mutex::default() };
    prune_all(&*store, before(), &reading).await.unwrap();
    assert!(*reading.calls.lock().unwrap() > 3, "it went in parts");
    assert_eq!(list_all(&*store).await, all_of(&reference));
}

/// Drops a future after this number of polls; `None` if it was not done.
async fn cut_off<T>(polls: usize, work: impl Future<Output = T>) -> Option<T> {
    let (mut work, mut left) = (pin!(work), polls);
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        work.as_mut().poll(context).map(Some)
    })
    .await
}

/// A full disk under the export, and cancellation at any point: no row is lost without a copy, and a rerun continues.
pub(super) async fn a_prune_that_was_cut_off_is_repeated(tables: &Tables) {
    let (store, mut reference) = written(tables).await;
    let gone = kept_by(tables, reference.prune(before()));
    let mut exported = BTreeSet::new();
    let full = Copies { rows_max: Some(rows(tables) as usize), ..Copies::default() };
    let failed = prune_all(&*store, before(), &full).await;
    assert!(matches!(&failed, Err(Error::Fatal(_))), "{failed:?}");
    // The first day has an order with an open deposit.
    assert_eq!(store.pruned_before().await.unwrap(), None);
    exported.extend(full.rows());
    for polls in (1..).map(|round| 1_usize << round) {
        let copies = Copies::default();
        let ended = cut_off(polls, prune_all(&*store, before(), &copies)).await;
        exported.extend(copies.rows());
        for row in gone.iter().filter(|row| !exported.contains(&format!("{row:?}"))) {
            let is_there = match row {
                Change::Order(row) => store.order(row.order_id).await.unwrap().is_some(),
                Change::Transfer(row) => store.transfer(row.transfer_id).await.unwrap().is_some(),
                Change::Deposit(_) | Change::Attempt(_) | Change::Chain(_) => true,
            };
            assert!(is_there, "it went without a copy: {row:?}");
        }
        if let Some(pruned) = ended {
            pruned.unwrap();
            break;
        }
    }
    assert_eq!(exported, texts(&gone));
    assert_eq!(list_all(&*store).await, all_of(&reference));
    let last = prune_all(&*store, before(), &WithoutExport).await.unwrap();
    assert_eq!(last.removed, Removed::default());
}

/// Kept rows are removed completely once they are final.
pub(super) async fn what_waited_goes_when_it_has_ended(tables: &Tables) {
    let (store, _) = written(tables).await;
    prune_all(&*store, before().next(), &WithoutExport).await.unwrap();
    // A new store: on CQL the old one caches its directory writes for seconds.
    drop(store);
    let store = tables.open().await;
    let version = UnixMicros(later().now().0 + HOUR.as_micros() as i64);
    let ended = story(rows(tables)).into_iter().map(|change| match change {
        Change::Order(row) => {
            Change::Order(Order { updated_at: version, status: OrderStatus::Expired, ..row })
        }
        Change::Deposit(row) => {
            Change::Deposit(Deposit { updated_at: version, state: DepositState::Closed, ..row })
        }
        Change::Transfer(row) => {
            let status = TransferStatus::Matched;
            Change::Transfer(Transfer { updated_at: version, status, ..row })
        }
        other @ (Change::Attempt(_) | Change::Chain(_)) => other,
    });
    let ended: Vec<_> = ended.filter(|row| !matches!(row, Change::Attempt(_))).collect();
    for part in ended.chunks(400) {
        store.apply(part.to_vec()).await.unwrap();
    }
    assert_eq!(list_all(&*store).await[0].len(), rows(tables) as usize);
    let clock = ManualClock::new(UnixMicros(version.0 + HOUR.as_micros() as i64));
    let day = before().next();
    let pruned = prune(&*store, day, &clock, &WithoutExport, |_, _| {}).await.unwrap();
    assert_eq!(pruned.removed.orders, rows(tables) as u64);
    assert_eq!(pruned.kept, Kept::default());
    for (table, rows) in tables.dump().await {
        let is_kept = ["meta", "pruned", "wallets"].contains(&table.as_str());
        assert!(is_kept || rows.is_empty(), "{table} has {} rows, one is {}", rows.len(), rows[0]);
    }
    // Storing an earlier time changes nothing.
    store.set_pruned_before(UnixSeconds(7)).await.unwrap();
    assert_eq!(store.pruned_before().await.unwrap(), Some(day.start()));
}
