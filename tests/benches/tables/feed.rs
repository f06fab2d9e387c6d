//! The projector at work on the shop's stream, over a log that has nothing but it: neither a disk nor a broker is
//! part of what is measured.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use log::{
    Assigned, Bounds, Error, Event, Log, NewRecord, Offset, Record, StageContext, Step, StepError,
    Tail, TopicPartition, Worker, WorkerSpec, Writer,
};
use runtime::SystemClock;
use schemas::Layout;
use store::{Change, LayeredStore, Store, StoreLayer};
use tokio_util::sync::CancellationToken;

use crate::shop::{LAYOUT, Shop};

/// Batches that are made ahead.
const AHEAD: usize = 4;
/// Maximum number of records in a batch of the projector.
const BATCH: usize = 4096;

/// Work done so far; readers follow it.
#[derive(Debug)]
pub(crate) struct Progress {
    begun: Instant,
    records: AtomicU64,
    /// Rows handed to the store: the newest version of each one in a batch.
    rows: AtomicU64,
    /// Time of the last applied row, in nanoseconds since the beginning.
    applied: AtomicU64,
    /// Orders that the tables have.
    orders: AtomicUsize,
}

impl Progress {
    pub(crate) fn begin() -> Arc<Self> {
        Arc::new(Self {
            begun: Instant::now(),
            records: AtomicU64::new(0),
            rows: AtomicU64::new(0),
            applied: AtomicU64::new(0),
            orders: AtomicUsize::new(0),
        })
    }

    pub(crate) fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    pub(crate) fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }

    pub(crate) fn orders(&self) -> usize {
        self.orders.load(Ordering::Relaxed)
    }

    /// Time from the beginning until the last row was applied.
    pub(crate) fn time(&self) -> Duration {
        Duration::from_nanos(self.applied.load(Ordering::Relaxed))
    }
}

/// Lets the projector apply what happens until the shop has `orders` orders.
pub(crate) async fn project(
    store: Arc<dyn Store>,
    shop: Shop,
    orders: usize,
    progress: Arc<Progress>,
) -> Shop {
    let (send, batches) = sync_channel(AHEAD);
    let maker = std::thread::spawn(move || make(shop, orders, |batch| send.send(batch).is_ok()));
    let stop = CancellationToken::new();
    let log = Arc::new(Feed {
        batches: Mutex::new(Some(batches)),
        progress: progress.clone(),
        stop: stop.clone(),
    });
    let store = Arc::new(LayeredStore::new(store, Counted(progress.clone())));
    let handle = tokio::runtime::Handle::current();
    let context =
        StageContext { log, clock: Arc::new(SystemClock), member: "bench".into(), handle, stop };
    let run = move || projector::run(store, None, projector::Level::DEBUG, &context);
    tokio::task::spawn_blocking(run).await.expect("the projector").expect("ends well");
    let shop = maker.join().expect("the shop");
    assert_eq!(progress.orders(), shop.orders(), "the tables did not take the last records");
    shop
}

/// Records, and the orders that are there once they are applied.
type Batch = (Vec<Arc<Record>>, usize);

fn make(mut shop: Shop, orders: usize, send: impl Fn(Batch) -> bool) -> Shop {
    let mut records = Vec::with_capacity(2 * BATCH);
    while shop.orders() < orders {
        // Orders whose records are all among those that are sent next.
        let whole = shop.orders();
        shop.advance(&mut records);
        let is_last = shop.orders() == orders;
        while records.len() >= BATCH || (is_last && !records.is_empty()) {
            let batch = records.drain(..BATCH.min(records.len())).collect();
            let applied = if is_last && records.is_empty() { orders } else { whole };
            if !send((batch, applied)) {
                return shop;
            }
        }
    }
    shop
}

/// Counts rows.
struct Counted(Arc<Progress>);

#[async_trait]
impl StoreLayer for Counted {
    async fn apply(&self, store: &dyn Store, changes: Vec<Change>) -> Result<(), store::Error> {
        let rows = changes.len() as u64;
        store.apply(changes).await?;
        self.0.rows.fetch_add(rows, Ordering::Relaxed);
        let time = u64::try_from(self.0.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.0.applied.store(time, Ordering::Relaxed);
        Ok(())
    }
}

/// A log of one reader.
struct Feed {
    batches: Mutex<Option<Receiver<Batch>>>,
    progress: Arc<Progress>,
    stop: CancellationToken,
}

fn unused<T>() -> Result<T, Error> {
    Err(Error::Fatal("this log has one reader and nothing else".into()))
}

#[async_trait]
impl Log for Feed {
    fn layout(&self) -> Layout {
        LAYOUT
    }

    fn installation(&self) -> Result<String, Error> {
        unused()
    }

    async fn produce(&self, _records: Vec<NewRecord>) -> Result<(), Error> {
        unused()
    }

    fn writer(&self, _name: &str) -> Result<Box<dyn Writer>, Error> {
        unused()
    }

    fn worker(&self, spec: WorkerSpec) -> Result<Box<dyn Worker>, Error> {
        assert_eq!(spec.batch_max, BATCH);
        let batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(batches) = batches else { return unused() };
        let partitions = |topic: &schemas::Topic| {
            let topic = *topic;
            topic.all_partitions(&LAYOUT).map(move |partition| TopicPartition { topic, partition })
        };
        let assigned = spec.topics.iter().flat_map(partitions);
        let assigned = assigned.map(|partition| Assigned { partition, committed: None }).collect();
        Ok(Box::new(Reader {
            events: VecDeque::from([Event::Assigned(assigned)]),
            batches,
            progress: self.progress.clone(),
            stop: self.stop.clone(),
            last: 0,
            open: 0,
            is_paused: false,
        }))
    }

    fn tail(&self, _topics: &[schemas::Topic]) -> Result<Box<dyn Tail>, Error> {
        unused()
    }

    fn read(
        &self,
        _of: TopicPartition,
        _from: Offset,
        _max: usize,
    ) -> Result<Vec<Arc<Record>>, Error> {
        unused()
    }

    fn bounds(&self, _of: TopicPartition) -> Result<Bounds, Error> {
        unused()
    }
}

struct Reader {
    events: VecDeque<Event>,
    batches: Receiver<Batch>,
    progress: Arc<Progress>,
    stop: CancellationToken,
    /// Orders that are there when the batch polled last is applied.
    last: usize,
    /// Records polled and not committed.
    open: u64,
    is_paused: bool,
}

impl Worker for Reader {
    fn poll(&mut self, timeout: Duration) -> Result<Event, Error> {
        if let Some(event) = self.events.pop_front() {
            return Ok(event);
        }
        if self.is_paused {
            return Ok(Event::Idle);
        }
        // More is only asked for when all that there was is applied.
        self.progress.orders.store(self.last, Ordering::Relaxed);
        match self.batches.recv_timeout(timeout) {
            Ok((records, orders)) => {
                self.open += records.len() as u64;
                self.last = orders;
                Ok(Event::Records(records))
            }
            Err(RecvTimeoutError::Timeout) => Ok(Event::Idle),
            Err(RecvTimeoutError::Disconnected) => {
                // The projector commits at once, and ends.
                self.stop.cancel();
                Ok(Event::Idle)
            }
        }
    }

    fn write_ahead(&mut self, _records: &mut Vec<NewRecord>) {}

    fn commit(&mut self, step: Step) -> Result<(), StepError> {
        assert!(step.records.is_empty(), "every record makes a row");
        self.progress.records.fetch_add(std::mem::take(&mut self.open), Ordering::Relaxed);
        self.progress.orders.store(self.last, Ordering::Relaxed);
        Ok(())
    }

    fn restore(
        &mut self,
        _changelog: TopicPartition,
        _apply: &mut dyn FnMut(Record),
    ) -> Result<(), Error> {
        unused()
    }

    fn pause(&mut self, _partition: TopicPartition) {
        self.is_paused = true;
    }

    fn resume(&mut self, _partition: TopicPartition) {
        self.is_paused = false;
    }
}
