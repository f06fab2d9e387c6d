//! The projector on the embedded log and tables: from records to rows.

#![expect(clippy::unwrap_used, reason = "this file is tests from end to end")]

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
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

const LAYOUT: Layout = Layout { lanes: 2, orders: 3, webhooks: 2 };
const ALL: Page = Page { limit: 200, offset: 0 };

/// A log, tables and the runtime that serves them.
struct Shop {
    runtime: Runtime,
    dir: tempfile::TempDir,
    log: EmbeddedLog,
    store: EmbeddedStore,
}

impl Shop {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let log = EmbeddedLog::open(&dir.path().join("log"), LAYOUT, Arc::new(SystemClock));
        let store = EmbeddedStore::open(&dir.path().join("tables")).unwrap();
        Self { runtime: Runtime::new().unwrap(), dir, log: log.unwrap(), store }
    }

    fn produce(&self, records: Vec<NewRecord>) {
        self.runtime.block_on(self.log.produce(records)).unwrap();
    }

    fn project(&self) -> Projector {
        self.project_into(Arc::new(self.store.clone()))
    }

    fn project_noted(&self, noted: &Arc<Noted>) -> Projector {
        let store = Arc::new(self.store.clone());
        self.project_into(Arc::new(LayeredStore::new(store, Noting(noted.clone()))))
    }

    fn project_into(&self, store: Arc<dyn Store>) -> Projector {
        let stop = CancellationToken::new();
        let context = StageContext {
            log: Arc::new(self.log.clone()),
            clock: Arc::new(SystemClock),
            member: "test".to_owned(),
            handle: self.runtime.handle().clone(),
            stop: stop.clone(),
        };
        let thread = std::thread::spawn(move || tidemark_projector::run(store, &context));
        Projector { stop, thread }
    }

    /// Waits until the tables or the log are as they should be.
    fn until(&self, what: &str, mut reached: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        let _context = self.runtime.enter();
        let mut polls = tokio::time::interval(Duration::from_millis(5));
        while !reached() {
            assert!(Instant::now() < deadline, "waited too long until {what}");
            self.runtime.block_on(polls.tick());
        }
    }

    fn order(&self) -> Option<OrderRow> {
        self.runtime.block_on(self.store.order(example::order().order_id)).unwrap()
    }

    fn letters(&self) -> Vec<Arc<Record>> {
        let of = TopicPartition { topic: Topic::DeadLetters, partition: Partition(0) };
        self.log.read(of, Offset(0), 100).unwrap()
    }

    /// All rows, as the queries give them.
    fn rows(&self, store: &EmbeddedStore) -> impl PartialEq + std::fmt::Debug + use<> {
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

/// A running projector.
struct Projector {
    stop: CancellationToken,
    thread: JoinHandle<Result<(), tidemark_projector::Error>>,
}

impl Projector {
    fn stop(self) -> Result<(), tidemark_projector::Error> {
        self.stop.cancel();
        self.thread.join().unwrap()
    }
}

fn wrap<R: record::Record>(topic: Topic, partition: u32, record: &R) -> NewRecord {
    NewRecord::encode(topic, Partition(partition), "key", record).unwrap()
}

fn order(number: u128, version: i64, status: OrderStatus) -> Order {
    Order {
        order_id: OrderId(uuid::Uuid::from_u128(number)),
        version,
        updated_at: UnixMicros(version),
        status,
        ..example::order()
    }
}

/// A history over all topics: some rows in several versions.
fn history() -> Vec<NewRecord> {
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

#[test]
fn records_become_rows() {
    let shop = Shop::new();
    let projector = shop.project();
    shop.produce(history());
    let count = |list: &OrderFilter| {
        shop.runtime.block_on(shop.store.orders(list.clone(), ALL)).unwrap().len()
    };
    let paid = OrderFilter { status: Some(OrderStatus::Paid), ..OrderFilter::default() };
    shop.until("all orders are there", || count(&OrderFilter::default()) == 41);
    shop.until("half of them are paid", || count(&paid) == 20);
    let wallet = example::transfer().observation.to_address;
    let filter = TransferFilter { status: Some(TransferStatus::Matched), ..Default::default() };
    let transfers = || shop.runtime.block_on(shop.store.transfers(wallet, filter, ALL)).unwrap();
    shop.until("all transfers are matched", || transfers().len() == 40);
    shop.until("the attempt is counted", || shop.order().unwrap().webhook_retry_count == 1);
    let deposits =
        || shop.runtime.block_on(shop.store.deposits(DepositFilter::default(), ALL)).unwrap();
    shop.until("closed deposits are gone", || deposits().len() == 20);
    let scanned = Some(example::chain_progress().updated_at.seconds());
    shop.until("the chain is there", || deposits()[0].last_scanned_at == scanned);
    projector.stop().unwrap();
    assert_eq!(shop.letters(), []);
}

#[test]
fn what_cannot_be_read_becomes_a_dead_letter_and_the_rest_goes_on() {
    let shop = Shop::new();
    let mut garbage = wrap(Topic::Orders, 1, &example::order());
    garbage.value = Some(b"garbage".to_vec());
    let mut empty = wrap(Topic::Deposits, 1, &example::deposit());
    empty.value = None;
    let good = wrap(Topic::Orders, 1, &example::order());
    shop.produce(vec![garbage, empty, good]);
    let projector = shop.project();
    shop.until("the order behind it is there", || shop.order().is_some());
    shop.until("both letters are there", || shop.letters().len() == 2);
    projector.stop().unwrap();
    let mut letters: Vec<record::DeadLetter> = shop
        .letters()
        .iter()
        .map(|letter| schemas::decode(letter.value.as_deref().unwrap()).unwrap())
        .collect();
    letters.sort_by(|a, b| a.topic.cmp(&b.topic));
    assert_eq!(letters[0].topic, "deposits");
    assert_eq!(letters[0].reason, "the record has no value");
    assert_eq!((letters[1].topic.as_str(), letters[1].partition, letters[1].offset), {
        ("orders", 1, 0)
    });
    assert_eq!(letters[1].value, b"garbage");
    assert_eq!(letters[1].group, tidemark_projector::GROUP);
    // Their offsets were committed with them: a restart does not write them again.
    let next = Order { order_id: OrderId(uuid::Uuid::from_u128(9)), ..example::order() };
    shop.produce(vec![wrap(Topic::Orders, 1, &next)]);
    let projector = shop.project();
    let found = || shop.runtime.block_on(shop.store.order(next.order_id)).unwrap();
    shop.until("the next order is there", || found().is_some());
    projector.stop().unwrap();
    assert_eq!(shop.letters().len(), 2);
}

/// A row that is missing later would show nowhere.
#[test]
fn a_record_of_a_newer_version_stops_it() {
    let shop = Shop::new();
    let mut newer = wrap(Topic::Orders, 1, &example::order());
    newer.value.as_mut().unwrap()[4] ^= 0xff; // the last byte of the schema's id
    shop.produce(vec![newer, wrap(Topic::Orders, 1, &example::order())]);
    let ends = [
        shop.project().thread.join().unwrap(),
        tidemark_projector::rebuild(&shop.log, &shop.store, shop.runtime.handle()).map(drop),
    ];
    for end in ends {
        let Err(tidemark_projector::Error::Newer(newer)) = end else { panic!("{end:?}") };
        assert_eq!(newer.at, "orders/1@0");
    }
    assert_eq!((shop.letters().len(), shop.order()), (0, None));
}

/// What [`Noted`] tables do with changes.
enum Mood {
    Works,
    Unavailable,
    Broken,
}

/// Tables that note what they are given, and fail when asked to.
struct Noted {
    mood: Mutex<Mood>,
    refused: AtomicUsize,
    applied: Mutex<Vec<Change>>,
    flushed: AtomicUsize,
    /// A flush only counts as refused.
    is_disk_away: AtomicBool,
}

impl Noted {
    fn new(mood: Mood) -> Arc<Self> {
        Arc::new(Self {
            mood: Mutex::new(mood),
            refused: AtomicUsize::new(0),
            applied: Mutex::default(),
            flushed: AtomicUsize::new(0),
            is_disk_away: AtomicBool::new(false),
        })
    }

    fn applied(&self) -> usize {
        self.applied.lock().unwrap().len()
    }
}

struct Noting(Arc<Noted>);

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

#[test]
fn a_restart_goes_on_where_the_last_run_stopped() {
    let shop = Shop::new();
    shop.produce((0..5).map(|n| wrap(Topic::Orders, 0, &order(n, 1, OrderStatus::Paid))).collect());
    let first = Noted::new(Mood::Works);
    let projector = shop.project_noted(&first);
    shop.until("five orders are written", || first.applied() == 5);
    projector.stop().unwrap();
    shop.produce(vec![wrap(Topic::Orders, 0, &order(5, 1, OrderStatus::Paid))]);
    let second = Noted::new(Mood::Works);
    let projector = shop.project_noted(&second);
    shop.until("the sixth is written", || second.applied() > 0);
    projector.stop().unwrap();
    let expected = [Change::Order(order(5, 1, OrderStatus::Paid))];
    assert_eq!(*second.applied.lock().unwrap(), expected);
}

#[test]
fn while_the_tables_are_away_nothing_is_committed_and_stop_is_answered() {
    let shop = Shop::new();
    shop.produce(vec![wrap(Topic::Orders, 0, &example::order())]);
    let away = Noted::new(Mood::Unavailable);
    let projector = shop.project_noted(&away);
    shop.until("it was tried three times", || away.refused.load(Ordering::SeqCst) >= 3);
    let begun = Instant::now();
    projector.stop().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(30), "stop took {:?}", begun.elapsed());
    let projector = shop.project();
    shop.until("another run writes the order", || shop.order().is_some());
    projector.stop().unwrap();
}

#[test]
fn when_the_tables_come_back_nothing_is_missing() {
    let shop = Shop::new();
    shop.produce(vec![wrap(Topic::Orders, 0, &example::order())]);
    let store = Noted::new(Mood::Unavailable);
    let projector = shop.project_noted(&store);
    shop.until("it was refused", || store.refused.load(Ordering::SeqCst) > 0);
    shop.produce(history());
    *store.mood.lock().unwrap() = Mood::Works;
    let count = || shop.runtime.block_on(shop.store.orders(OrderFilter::default(), ALL)).unwrap();
    shop.until("all orders are there", || count().len() == 41);
    projector.stop().unwrap();
}

/// The tables are taken back to what they were after a flush, as by a power cut: the rows that were only
/// applied since then come again.
#[test]
fn rows_that_a_power_cut_takes_back_are_written_again() {
    let mut shop = Shop::new();
    let noted = Noted::new(Mood::Works);
    let projector = shop.project_noted(&noted);
    let rest = {
        let mut first = history();
        let rest = first.split_off(100);
        shop.produce(first);
        rest
    };
    shop.until("the first are flushed", || noted.flushed.load(Ordering::SeqCst) > 0);
    projector.stop().unwrap();
    let cut = shop.dir.path().join("cut");
    std::fs::create_dir(&cut).unwrap();
    for file in ["tables.sqlite", "tables.sqlite-wal"] {
        std::fs::copy(shop.dir.path().join("tables").join(file), cut.join(file)).unwrap();
    }

    noted.is_disk_away.store(true, Ordering::SeqCst);
    let projector = shop.project_noted(&noted);
    shop.produce(rest);
    shop.until("a flush of the rest was refused", || noted.refused.load(Ordering::SeqCst) > 0);
    let again = EmbeddedStore::open(&shop.dir.path().join("again")).unwrap();
    tidemark_projector::rebuild(&shop.log, &again, shop.runtime.handle()).unwrap();
    let made = shop.rows(&again);
    shop.until("all rows are there", || shop.rows(&shop.store) == made);
    projector.stop().unwrap();

    shop.store = EmbeddedStore::open(&cut).unwrap();
    assert_ne!(shop.rows(&shop.store), made);
    let projector = shop.project();
    shop.until("all rows are there again", || shop.rows(&shop.store) == made);
    projector.stop().unwrap();
}

#[test]
fn tables_that_broke_stop_the_projector() {
    let shop = Shop::new();
    shop.produce(vec![wrap(Topic::Orders, 0, &example::order())]);
    let projector = shop.project_noted(&Noted::new(Mood::Broken));
    let error = projector.thread.join().unwrap().unwrap_err();
    assert_eq!(error.to_string(), "the tables failed, a retry would too: gone");
}

#[test]
fn tables_made_again_from_the_log_are_the_same() {
    let shop = Shop::new();
    let watched = Noted::new(Mood::Works);
    let projector = shop.project_noted(&watched);
    for part in history().chunks(10) {
        shop.produce(part.to_vec());
    }
    let mut garbage = wrap(Topic::Orders, 1, &example::order());
    garbage.value = Some(b"garbage".to_vec());
    shop.produce(vec![garbage]);
    shop.until("everything is read", || shop.letters().len() == 1);
    let again = EmbeddedStore::open(&shop.dir.path().join("again")).unwrap();
    let rebuild = || tidemark_projector::rebuild(&shop.log, &again, shop.runtime.handle()).unwrap();
    rebuild();
    let made = shop.rows(&again);
    shop.until("the projector is done", || shop.rows(&shop.store) == made);
    rebuild();
    assert_eq!(shop.rows(&again), made, "and once more");
    projector.stop().unwrap();
}

/// A long rebuild does not begin again because the tables were away for a moment.
#[test]
fn a_rebuild_waits_for_tables_that_are_away() {
    let shop = Shop::new();
    shop.produce(history());
    let noted = Noted::new(Mood::Unavailable);
    let made = EmbeddedStore::open(&shop.dir.path().join("made")).unwrap();
    let away = LayeredStore::new(Arc::new(made.clone()), Noting(noted.clone()));
    std::thread::scope(|scope| {
        let rebuild = || tidemark_projector::rebuild(&shop.log, &away, shop.runtime.handle());
        let rebuild = scope.spawn(rebuild);
        shop.until("it is refused", || noted.refused.load(Ordering::SeqCst) > 0);
        *noted.mood.lock().unwrap() = Mood::Works;
        assert_eq!(rebuild.join().unwrap().unwrap(), history().len() as u64);
    });
    let projector = shop.project();
    let rows = shop.rows(&made);
    shop.until("the projector is done", || shop.rows(&shop.store) == rows);
    projector.stop().unwrap();
    *noted.mood.lock().unwrap() = Mood::Broken;
    tidemark_projector::rebuild(&shop.log, &away, shop.runtime.handle()).unwrap_err();
}
