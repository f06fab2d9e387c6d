//! Two interleaved processes: one makes a whole call between two requests of the other, at every position.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use runtime::clock::{Clock as _, SystemClock};
use schemas::record::{Order, example};
use schemas::{OrderId, OrderStatus, UnixMicros, UnixSeconds};
use store::cql::{CqlStore, Turns};
use store::prune::{Day, Export, Removed};
use store::{Change, Error, OrderFilter, Page, Store};
use testkit::tables::{CQL, Tables, cql};
use tokio::sync::{Mutex, Notify};
use uuid::Uuid;

const PAGE: Page = Page { limit: 10, offset: 0 };
const PENDING: Option<OrderStatus> = Some(OrderStatus::Pending);

/// Longer than an idle partition stays in the directory, and than a store caches its presence.
const LONG: Duration = Duration::from_secs(90);

/// Serialized requests; one may wait for the other process.
#[derive(Debug, Default)]
struct Place {
    /// Requests before the one that waits.
    left: Arc<Mutex<Option<usize>>>,
    is_reached: Notify,
    is_over: Notify,
    /// Seconds by which the clock is advanced.
    passed: AtomicU64,
}

#[async_trait]
impl Turns for Place {
    async fn next(&self) -> Box<dyn Send> {
        let mut left = self.left.clone().lock_owned().await;
        if *left == Some(0) {
            self.is_reached.notify_one();
            self.is_over.notified().await;
        }
        *left = left.and_then(|left| left.checked_sub(1));
        Box::new(left)
    }

    fn instant(&self) -> Instant {
        Instant::now() + Duration::from_secs(self.passed.load(Ordering::SeqCst))
    }
}

impl Place {
    fn pass(&self, time: Duration) {
        self.passed.fetch_add(time.as_secs(), Ordering::SeqCst);
    }

    /// Makes `call`, and `other` before the call's request of this number. `false` if the call has fewer requests.
    async fn run(
        &self,
        number: usize,
        call: impl Future<Output = Result<(), Error>>,
        other: impl Future<Output = ()>,
    ) -> bool {
        *self.left.lock().await = Some(number);
        let mut call = pin!(call);
        let is_reached = tokio::select! {
            ended = &mut call => {
                ended.unwrap();
                false
            }
            () = self.is_reached.notified() => {
                other.await;
                self.is_over.notify_one();
                call.await.unwrap();
                true
            }
        };
        *self.left.lock().await = None;
        is_reached
    }
}

struct Process {
    store: CqlStore,
    place: Arc<Place>,
}

impl Process {
    async fn start(tables: &Tables) -> Self {
        let config = cql::config(cql::nodes(), cql::name(tables.dir()).unwrap());
        let (store, place) = (CqlStore::open(&config).await.unwrap(), Arc::new(Place::default()));
        store.take_turns(place.clone());
        Self { store, place }
    }
}

/// A keyspace, and two processes.
async fn two_processes() -> (Tables, Process, Process) {
    let tables = Tables::new(CQL);
    drop(tables.open().await);
    let processes = (Process::start(&tables).await, Process::start(&tables).await);
    (tables, processes.0, processes.1)
}

async fn is_listed(
    Process { store, .. }: &Process,
    number: u128,
    status: Option<OrderStatus>,
) -> bool {
    let filter = OrderFilter { status, ..OrderFilter::default() };
    let rows = store.orders(filter, PAGE).await.unwrap();
    rows.iter().any(|row| row.order.order_id == id(number))
}

/// Ids of one shard.
fn id(number: u128) -> OrderId {
    OrderId(Uuid::from_u128(number * 4))
}

/// The last second of the minute that a sweep reads first.
fn a_moment_ago() -> UnixSeconds {
    UnixSeconds(SystemClock.now().seconds().0 / 60 * 60 - 121)
}

/// A pending order, and how it ended.
fn order(number: u128, created_at: UnixSeconds) -> [Vec<Change>; 2] {
    let of = |status, version| Order {
        order_id: id(number),
        status,
        created_at,
        updated_at: UnixMicros(version),
        ..example::order()
    };
    [of(OrderStatus::Pending, 1), of(OrderStatus::Expired, 2)]
        .map(|order| vec![Change::Order(order)])
}

/// A time at which present writes count as idle.
fn later() -> UnixMicros {
    UnixMicros(SystemClock.now().0 + LONG.as_micros() as i64)
}

/// The other process sweeps during a long call, whose listed partitions are still empty.
#[tokio::test]
async fn sweeps_between_requests_of_a_write_lose_nothing() {
    let (_tables, writer, sweeper) = two_processes().await;
    let (created_at, mut number, mut is_reached) = (a_moment_ago(), 0, true);
    while is_reached {
        let [pending, expired] = order(number, created_at);
        writer.place.pass(LONG);
        let sweep = async {
            writer.place.pass(LONG);
            sweeper.store.sweep_at(later()).await.unwrap();
        };
        is_reached = writer.place.run(number as usize, writer.store.apply(pending), sweep).await;
        assert!(is_listed(&sweeper, number, PENDING).await, "swept before request {number}");
        writer.store.apply(expired).await.unwrap();
        number += 1;
    }
}

#[tokio::test]
async fn writes_between_requests_of_a_sweep_stay() {
    let (_tables, sweeper, writer) = two_processes().await;
    let (created_at, mut number, mut is_reached) = (a_moment_ago(), 0, true);
    while is_reached {
        // The minute is listed and empty.
        writer.place.pass(LONG);
        for change in order(2 * number, created_at) {
            writer.store.apply(change).await.unwrap();
        }
        let late = 2 * number + 1;
        let [pending, expired] = order(late, created_at);
        let write = async {
            writer.place.pass(LONG);
            writer.store.apply(pending).await.unwrap();
        };
        let sweep = sweeper.store.sweep_at(later());
        is_reached = sweeper.place.run(number as usize, sweep, write).await;
        if is_reached {
            assert!(is_listed(&writer, late, PENDING).await, "written before request {number}");
            writer.store.apply(expired).await.unwrap();
        }
        // The sixty reads of a minute are equivalent, so every fifth is enough.
        number += 5;
    }
}

/// Writes an order while the rows of its day are exported.
struct Beside(CqlStore, Order);

#[async_trait]
impl Export for Beside {
    async fn keep(&self, _rows: &[Change]) -> Result<(), Error> {
        self.0.apply(vec![Change::Order(self.1.clone())]).await
    }
}

/// The order's change has an old write time, as in a lagging pipeline: a later deletion of its partition would hide it.
#[tokio::test]
async fn an_order_written_beside_a_removal_stays_listed() {
    let (_tables, pruner, writer) = two_processes().await;
    let order = |number, status| Order { order_id: id(number), status, ..example::order() };
    let expired = order(1, OrderStatus::Expired);
    let day = Day::of(expired.created_at);
    pruner.store.apply(vec![Change::Order(expired)]).await.unwrap();
    let export = Beside(writer.store.clone(), order(2, OrderStatus::Pending));
    let pruned = pruner.store.prune_day(day, later(), &export).await.unwrap();
    assert_eq!(pruned.removed, Removed { orders: 1, ..Removed::default() });
    assert!(is_listed(&writer, 2, None).await);
}
