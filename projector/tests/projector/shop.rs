//! A log and tables to project to.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use log::embedded::EmbeddedLog;
use log::{Log, NewRecord, Offset, Record, StageContext, TopicPartition};
use runtime::SystemClock;
use schemas::record::{self, Deposit, Order, Transfer, example};
use schemas::{
    DepositId, DepositState, Layout, OrderId, OrderStatus, Partition, Topic, TransferId,
    TransferStatus, UnixMicros,
};
use store::embedded::EmbeddedStore;
use store::{
    Change, DepositFilter, Error, LayeredStore, OrderFilter, OrderRow, Page, Store, StoreLayer,
    TransferFilter,
};
use tidemark_projector::Rebuilt;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

pub(crate) const LAYOUT: Layout = Layout { lanes: 2, orders: 3, webhooks: 2 };
pub(crate) const ALL: Page = Page { limit: 200, offset: 0 };

/// A log, tables and the runtime that serves them.
pub(crate) struct Shop {
    pub(crate) runtime: Runtime,
    pub(crate) dir: tempfile::TempDir,
    pub(crate) log: EmbeddedLog,
    pub(crate) store: EmbeddedStore,
}

impl Shop {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let log = EmbeddedLog::open(&dir.path().join("log"), LAYOUT, Arc::new(SystemClock));
        let store = EmbeddedStore::open(&dir.path().join("tables")).unwrap();
        Self { runtime: Runtime::new().unwrap(), dir, log: log.unwrap(), store }
    }

    pub(crate) fn produce(&self, records: Vec<NewRecord>) {
        self.runtime.block_on(self.log.produce(records)).unwrap();
    }

    pub(crate) fn project(&self) -> Projector {
        self.project_into(Arc::new(self.store.clone()))
    }

    pub(crate) fn project_noted(&self, noted: &Arc<Noted>) -> Projector {
        let store = Arc::new(self.store.clone());
        self.project_into(Arc::new(LayeredStore::new(store, Noting(noted.clone()))))
    }

    pub(crate) fn project_into(&self, store: Arc<dyn Store>) -> Projector {
        let stop = CancellationToken::new();
        let context = StageContext {
            log: Arc::new(self.log.clone()),
            clock: Arc::new(SystemClock),
            member: "test".to_owned(),
            handle: self.runtime.handle().clone(),
            stop: stop.clone(),
        };
        let thread = std::thread::spawn(move || {
            tidemark_projector::run(store, None, tidemark_projector::Level::DEBUG, &context)
        });
        Projector { stop, thread }
    }

    /// Waits until the tables or the log are as they should be.
    pub(crate) fn until(&self, what: &str, mut reached: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(120);
        let _context = self.runtime.enter();
        let mut polls = tokio::time::interval(Duration::from_millis(5));
        while !reached() {
            assert!(Instant::now() < deadline, "waited too long until {what}");
            self.runtime.block_on(polls.tick());
        }
    }

    pub(crate) fn rebuild(&self, store: &dyn Store) -> Result<Rebuilt, tidemark_projector::Error> {
        let report = &mut |_| ControlFlow::Continue(());
        let made = tidemark_projector::rebuild(&self.log, store, self.runtime.handle(), report)?;
        Ok(made.unwrap())
    }

    pub(crate) fn order(&self) -> Option<OrderRow> {
        self.runtime.block_on(self.store.order(example::order().order_id)).unwrap()
    }

    pub(crate) fn letters(&self) -> Vec<Arc<Record>> {
        let of = TopicPartition { topic: Topic::DeadLetters, partition: Partition(0) };
        self.log.read(of, Offset(0), 100).unwrap()
    }

    /// All orders, deposits and chains, and the transfers of the example's wallet, by the queries of the store.
    pub(crate) fn rows(&self, store: &EmbeddedStore) -> impl PartialEq + std::fmt::Debug + use<> {
        let wallet = example::transfer().observation.to_address;
        self.runtime.block_on(async {
            (
                store.orders(OrderFilter::default(), ALL).await.unwrap(),
                store.deposits(DepositFilter::default(), ALL).await.unwrap(),
                store.transfers(wallet, TransferFilter::default(), ALL).await.unwrap(),
                store.chains().await.unwrap(),
            )
        })
    }
}

pub(crate) struct Projector {
    pub(crate) stop: CancellationToken,
    pub(crate) thread: JoinHandle<Result<(), tidemark_projector::Error>>,
}

impl Projector {
    pub(crate) fn stop(self) -> Result<(), tidemark_projector::Error> {
        self.stop.cancel();
        self.thread.join().unwrap()
    }
}

pub(crate) fn wrap<R: record::Record>(topic: Topic, partition: u32, record: &R) -> NewRecord {
    NewRecord::encode(topic, Partition(partition), "key", record).unwrap()
}

pub(crate) fn order(number: u128, version: i64, status: OrderStatus) -> Order {
    Order {
        order_id: OrderId(uuid::Uuid::from_u128(number)),
        version,
        updated_at: UnixMicros(version),
        status,
        ..example::order()
    }
}

/// A history with rows of every table, some in several versions.
pub(crate) fn history() -> Vec<NewRecord> {
    let mut all = vec![
        wrap(Topic::Orders, 0, &example::order()),
        wrap(Topic::WebhooksAttempts, 1, &example::attempt()),
        wrap(Topic::Chains, 0, &example::chain_progress()),
    ];
    for number in 0..40_u32 {
        let partition = number % 3;
        let id = u128::from(number);
        all.push(wrap(Topic::Orders, partition, &order(id, 1, OrderStatus::Pending)));
        let deposit = Deposit {
            deposit_id: DepositId(number.into()),
            updated_at: UnixMicros(1),
            ..example::deposit()
        };
        all.push(wrap(Topic::Deposits, partition, &deposit));
        for (version, topic, status) in [
            (1, Topic::TransfersDetected, TransferStatus::WaitingForConfirmation),
            (2, Topic::TransfersConfirmed, TransferStatus::WaitingForMatch),
            (3, Topic::TransfersMatched, TransferStatus::Matched),
        ] {
            let transfer = Transfer {
                transfer_id: TransferId(number.into()),
                updated_at: UnixMicros(version),
                status,
                ..example::transfer()
            };
            all.push(wrap(topic, partition, &transfer));
        }
        if number % 2 == 0 {
            all.push(wrap(Topic::Orders, partition, &order(id, 2, OrderStatus::Paid)));
            let (updated_at, state) = (UnixMicros(2), DepositState::Closed);
            all.push(wrap(Topic::Deposits, partition, &Deposit { updated_at, state, ..deposit }));
        }
    }
    all
}

/// Change by a record of the history.
pub(crate) fn change(record: &NewRecord) -> Change {
    let value = record.value.as_deref().unwrap();
    match record.to.topic {
        Topic::Orders => Change::Order(schemas::decode(value).unwrap()),
        Topic::Deposits => Change::Deposit(schemas::decode(value).unwrap()),
        Topic::WebhooksAttempts => Change::Attempt(schemas::decode(value).unwrap()),
        Topic::Chains => Change::Chain(schemas::decode(value).unwrap()),
        _ => Change::Transfer(schemas::decode(value).unwrap()),
    }
}

/// Behaviour of [`Noted`] tables at a write.
pub(crate) enum Mood {
    Works,
    Unavailable,
    Broken,
}

/// Record of the writes to tables, which fail on demand.
pub(crate) struct Noted {
    pub(crate) mood: Mutex<Mood>,
    pub(crate) refused: AtomicUsize,
    pub(crate) applied: Mutex<Vec<Change>>,
    pub(crate) flushed: AtomicUsize,
    /// `true` if flushes fail. They count as refused.
    pub(crate) is_disk_away: AtomicBool,
}

impl Noted {
    pub(crate) fn new(mood: Mood) -> Arc<Self> {
        Arc::new(Self {
            mood: Mutex::new(mood),
            refused: AtomicUsize::new(0),
            applied: Mutex::default(),
            flushed: AtomicUsize::new(0),
            is_disk_away: AtomicBool::new(false),
        })
    }

    pub(crate) fn applied(&self) -> usize {
        self.applied.lock().unwrap().len()
    }
}

pub(crate) struct Noting(pub(crate) Arc<Noted>);

#[async_trait]
impl StoreLayer for Noting {
    async fn apply(&self, store: &dyn Store, changes: Vec<Change>) -> Result<(), Error> {
        match *self.0.mood.lock().unwrap() {
            Mood::Works => {}
            Mood::Unavailable => {
                self.0.refused.fetch_add(1, Ordering::SeqCst);
                return Err(Error::Transient("away".into()));
            }
            Mood::Broken => return Err(Error::Fatal("gone".into())),
        }
        store.apply(changes.clone()).await?;
        self.0.applied.lock().unwrap().extend(changes);
        Ok(())
    }

    async fn flush(&self, store: &dyn Store) -> Result<(), Error> {
        if self.0.is_disk_away.load(Ordering::SeqCst) {
            self.0.refused.fetch_add(1, Ordering::SeqCst);
            return Err(Error::Transient("the disk is away".into()));
        }
        store.flush().await?;
        self.0.flushed.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}
