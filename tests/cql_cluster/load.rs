//! A projector that writes, an api that creates, and readers, each at a rate that two cores can sustain.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use runtime::clock::{Clock as _, SystemClock};
use schemas::record::{Order, Transfer, example};
use schemas::{OrderId, OrderStatus, TransferId, TransferStatus, UnixMicros};
use store::cql::CqlStore;
use store::{Change, Error, OrderFilter, Page, Store, TransferFilter};
use testkit::Dice;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::figures::{Call, Sample};

/// Interval between two calls of each kind.
const APPLY_EVERY: Duration = Duration::from_millis(250);
const CREATE_EVERY: Duration = Duration::from_millis(200);
const STATUS_EVERY: Duration = Duration::from_millis(100);
const LIST_EVERY: Duration = Duration::from_millis(250);
/// Number of the call after which lists have a full page of rows.
const FULL_AFTER: u64 = 40;
/// Orders and transfers that each call of the projector begins; it ends the same number of earlier ones.
const BEGUN: u64 = 5;
/// Number of calls from the beginning of an order or transfer to its end.
const ENDED_AFTER: u64 = 25;
/// The api's wait for the row of a create: `ROW_TIMEOUT` in `api/src/commands.rs`.
const ROW_TIMEOUT: Duration = Duration::from_millis(250);
/// Rows read concurrently at the end.
const READS: usize = 32;
const PAGE: Page = Page { limit: 20, offset: 0 };

/// The newest version of each row that was acknowledged.
pub(crate) type Acknowledged = BTreeMap<Row, UnixMicros>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Row {
    Order(OrderId),
    Transfer(TransferId),
}

impl Row {
    /// ID as lists have it, in the text form of a dump.
    pub(crate) fn key(self) -> String {
        match self {
            Self::Order(OrderId(id)) => format!("Blob({:?})", id.as_u128().to_be_bytes()),
            Self::Transfer(TransferId(id)) => format!("BigInt({id})"),
        }
    }
}

/// Load that runs until it is stopped.
pub(crate) struct Load {
    shared: Arc<Shared>,
    stop_writer: CancellationToken,
    stop_api: CancellationToken,
    running: JoinSet<()>,
}

struct Shared {
    /// Store of the projector.
    writer: CqlStore,
    /// Store of the api.
    api: CqlStore,
    samples: Mutex<Vec<Sample>>,
    acknowledged: Mutex<Acknowledged>,
    failures: Mutex<Vec<String>>,
}

impl Load {
    pub(crate) fn start(writer: CqlStore, api: CqlStore) -> Self {
        let shared = Arc::new(Shared {
            writer,
            api,
            samples: Mutex::default(),
            acknowledged: Mutex::default(),
            failures: Mutex::default(),
        });
        let (stop_writer, stop_api) = (CancellationToken::new(), CancellationToken::new());
        let mut running = JoinSet::new();
        running.spawn(project(shared.clone(), stop_writer.clone()));
        let mut offer = |every, call: fn(Arc<Shared>, u64) -> JoinHandle<()>| {
            running.spawn(offer(shared.clone(), stop_api.clone(), every, call));
        };
        offer(CREATE_EVERY, |shared, _| tokio::spawn(create(shared)));
        offer(STATUS_EVERY, |shared, number| tokio::spawn(status(shared, number)));
        offer(LIST_EVERY, |shared, number| tokio::spawn(list(shared, number)));
        Self { shared, stop_writer, stop_api, running }
    }

    pub(crate) fn samples(&self) -> Vec<Sample> {
        self.shared.samples.lock().unwrap().clone()
    }

    /// Stops creates and reads: only the projector writes.
    pub(crate) fn stop_api(&self) {
        self.stop_api.cancel();
    }

    /// Waits for calls in flight; returns acknowledged rows, and failures.
    pub(crate) async fn stop(self) -> (Acknowledged, Vec<String>) {
        self.stop_api.cancel();
        self.stop_writer.cancel();
        self.running.join_all().await;
        let acknowledged = self.shared.acknowledged.lock().unwrap().clone();
        let failures = self.shared.failures.lock().unwrap().clone();
        (acknowledged, failures)
    }
}

/// Begins a call at each tick, without waiting for earlier ones.
async fn offer(
    shared: Arc<Shared>,
    stop: CancellationToken,
    every: Duration,
    call: fn(Arc<Shared>, u64) -> JoinHandle<()>,
) {
    let mut ticks = tokio::time::interval(every);
    // No burst after a pause of the machine.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut running = Vec::new();
    for number in 0.. {
        tokio::select! {
            _ = ticks.tick() => running.push(call(shared.clone(), number)),
            () = stop.cancelled() => break,
        }
    }
    for call in running {
        call.await.unwrap();
    }
}

impl Shared {
    /// Records a call's duration or failure.
    async fn note<T>(
        &self,
        call: Call,
        rows: usize,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Option<T> {
        let begun = Instant::now();
        let answer = work.await;
        let took = begun.elapsed();
        match answer {
            Ok(answer) => {
                self.samples.lock().unwrap().push(Sample { call, begun, took, rows });
                Some(answer)
            }
            Err(error) => {
                let failure = format!("{call:?} after {took:?}: {error}");
                self.failures.lock().unwrap().push(failure);
                None
            }
        }
    }

    fn some_order(&self, seed: u64) -> Option<OrderId> {
        let acknowledged = self.acknowledged.lock().unwrap();
        let orders = acknowledged.keys().filter_map(|row| match row {
            Row::Order(id) => Some(*id),
            Row::Transfer(_) => None,
        });
        let orders: Vec<_> = orders.collect();
        (!orders.is_empty()).then(|| orders[Dice(seed).below(orders.len())])
    }

    async fn write(&self, store: &CqlStore, call: Call, changes: Vec<Change>) {
        let rows: Vec<_> = changes.iter().filter_map(row).collect();
        if self.note(call, rows.len(), store.apply(changes)).await.is_some() {
            let mut acknowledged = self.acknowledged.lock().unwrap();
            for (row, version) in rows {
                let newest = acknowledged.entry(row).or_insert(version);
                *newest = (*newest).max(version);
            }
        }
    }
}

fn row(change: &Change) -> Option<(Row, UnixMicros)> {
    match change {
        Change::Order(order) => Some((Row::Order(order.order_id), order.updated_at)),
        Change::Transfer(row) => Some((Row::Transfer(row.transfer_id), row.updated_at)),
        Change::Deposit(_) | Change::Attempt(_) | Change::Chain(_) => None,
    }
}

/// One call after another, as the projector makes them.
async fn project(shared: Arc<Shared>, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(APPLY_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut begun: Vec<Vec<Change>> = Vec::new();
    for call in 0_u64.. {
        tokio::select! {
            _ = ticks.tick() => {}
            () = stop.cancelled() => return,
        }
        let numbers = call * BEGUN..(call + 1) * BEGUN;
        let new: Vec<_> = numbers.flat_map(|number| [order(number), transfer(number)]).collect();
        let ended = call.checked_sub(ENDED_AFTER).and_then(|call| usize::try_from(call).ok());
        let ended = ended.map(|call| begun[call].iter().cloned().map(end).collect());
        begun.push(new.clone());
        let changes = [new, ended.unwrap_or_default()].concat();
        shared.write(&shared.writer, Call::Apply, changes).await;
    }
}

fn order(number: u64) -> Change {
    new_order(OrderId(Uuid::from_u128(u128::from(number))))
}

fn new_order(order_id: OrderId) -> Change {
    let now = SystemClock.now();
    let order = Order { order_id, updated_at: now, created_at: now.seconds(), ..example::order() };
    Change::Order(order)
}

fn transfer(number: u64) -> Change {
    let (transfer_id, now) = (TransferId(number.cast_signed()), SystemClock.now());
    let (updated_at, created_at) = (now, now.seconds());
    let status = TransferStatus::WaitingForConfirmation;
    Change::Transfer(Transfer {
        transfer_id,
        updated_at,
        created_at,
        status,
        ..example::transfer()
    })
}

/// The version of an order or transfer that has ended, which moves it to the lists of ended ones.
fn end(change: Change) -> Change {
    let updated_at = SystemClock.now();
    match change {
        Change::Order(order) => {
            Change::Order(Order { updated_at, status: OrderStatus::Expired, ..order })
        }
        Change::Transfer(row) => {
            Change::Transfer(Transfer { updated_at, status: TransferStatus::Matched, ..row })
        }
        other => other,
    }
}

async fn create(shared: Arc<Shared>) {
    let written = tokio::spawn({
        let (shared, order) = (shared.clone(), new_order(OrderId(Uuid::now_v7())));
        async move { shared.write(&shared.api, Call::CreatedRow, vec![order]).await }
    });
    let waited = async {
        // No condition: as in the api, the wait ends with the written row or with the time-out.
        drop(tokio::time::timeout(ROW_TIMEOUT, written).await);
        Ok(())
    };
    shared.note(Call::Create, 0, waited).await;
}

async fn status(shared: Arc<Shared>, number: u64) {
    let Some(id) = shared.some_order(number) else { return };
    let found = shared.note(Call::Status, 0, shared.api.order(id)).await;
    if found.is_some_and(|row| row.is_none()) {
        shared.failures.lock().unwrap().push(format!("{id} was acknowledged and is not found"));
    }
}

async fn list(shared: Arc<Shared>, number: u64) {
    let api = &shared.api;
    let rows = async {
        Ok(match number % 3 {
            0 => api.orders(OrderFilter::default(), PAGE).await?.len(),
            1 => {
                let status = Some(OrderStatus::Pending);
                api.orders(OrderFilter { status, ..OrderFilter::default() }, PAGE).await?.len()
            }
            _ => {
                let wallet = example::transfer().observation.to_address;
                api.transfers(wallet, TransferFilter::default(), PAGE).await?.len()
            }
        })
    };
    let rows = shared.note(Call::List, 0, rows).await;
    if rows.is_some_and(|rows| rows != PAGE.limit as usize) && number > FULL_AFTER {
        shared.failures.lock().unwrap().push(format!("list {number} has {rows:?} rows"));
    }
}

/// Acknowledged rows that are missing, or are found only in an older version.
pub(crate) async fn lost(store: &CqlStore, acknowledged: &Acknowledged) -> Vec<Row> {
    let mut lost = Vec::new();
    let mut rows = acknowledged.iter();
    loop {
        let mut reading = JoinSet::new();
        for (row, version) in rows.by_ref().take(READS) {
            let (store, row, version) = (store.clone(), *row, *version);
            reading.spawn(async move {
                let found = match row {
                    Row::Order(id) => {
                        store.order(id).await.unwrap().map(|row| row.order.updated_at)
                    }
                    Row::Transfer(id) => {
                        store.transfer(id).await.unwrap().map(|row| row.updated_at)
                    }
                };
                found.is_none_or(|found| found < version).then_some(row)
            });
        }
        if reading.is_empty() {
            return lost;
        }
        lost.extend(reading.join_all().await.into_iter().flatten());
    }
}
