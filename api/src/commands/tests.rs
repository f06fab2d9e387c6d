//! Commands without an answer, a log or tables, under a paused clock; and the ids of orders.

use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use async_trait::async_trait;
use log::embedded::EmbeddedLog;
use log::{LayeredLog, LogLayer};
use runtime::ManualClock;
use runtime::config::Source;
use schemas::Layout;
use schemas::record::example;
use store::embedded::EmbeddedStore;
use store::{LayeredStore, StoreLayer};
use tempfile::TempDir;

use super::*;
use crate::Config;
use crate::auth::Operator;

const NOW: UnixMicros = UnixMicros(1_790_000_000_123_456);

/// A log that writes no record.
enum Scripted {
    /// Only writes a row to the tables.
    Projecting(Arc<dyn Store>, Option<Box<Order>>),
    /// Never completes.
    Silent,
    /// Refuses every record.
    Away,
}

#[async_trait]
impl LogLayer for Scripted {
    async fn produce(&self, _: &dyn Log, _: Vec<NewRecord>) -> Result<(), log::Error> {
        match self {
            Self::Projecting(store, Some(order)) => {
                // Tokio does not advance its paused clock while blocking work runs.
                let (store, order) = (store.clone(), Change::Order((**order).clone()));
                let handle = tokio::runtime::Handle::current();
                let apply = move || handle.block_on(store.apply(vec![order])).unwrap();
                tokio::task::spawn_blocking(apply).await.unwrap();
                Ok(())
            }
            Self::Projecting(_, None) => Ok(()),
            Self::Silent => pending().await,
            Self::Away => Err(log::Error::Transient("no broker".into())),
        }
    }
}

/// Duration of each write.
const SLOW: Duration = Duration::from_secs(3);

/// Tables that count their reads, and whose writes are slow.
#[derive(Clone, Default)]
struct Counting {
    reads: Arc<AtomicU32>,
    are_away: Arc<AtomicBool>,
}

#[async_trait]
impl StoreLayer for Counting {
    async fn apply(&self, store: &dyn Store, changes: Vec<Change>) -> Result<(), store::Error> {
        sleep_until(Instant::now() + SLOW).await;
        store.apply(changes).await
    }

    async fn read<T, F>(&self, read: impl Fn() -> F + Send + Sync) -> Result<T, store::Error>
    where
        T: Send,
        F: Future<Output = Result<T, store::Error>> + Send,
    {
        self.reads.fetch_add(1, Ordering::SeqCst);
        if self.are_away.load(Ordering::SeqCst) {
            return Err(store::Error::Transient("no node".into()));
        }
        read().await
    }
}

struct World {
    commands: Commands,
    store: Arc<dyn Store>,
    reads: Counting,
    /// Temporary directory of log and tables; removed on drop.
    _dir: TempDir,
}

/// Commands without a processor; sending one writes the row of `projected`.
fn world(projected: Option<Order>) -> World {
    scripted(|store| Scripted::Projecting(store, projected.map(Box::new)))
}

fn scripted(log_layer: impl FnOnce(Arc<dyn Store>) -> Scripted) -> World {
    let config =
        Config::read(&mut Source::parse(Config::DEFAULTS, "[merchant]\nname = \"Shop\"", []));
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(NOW));
    let layout = Layout { lanes: 1, orders: 1, webhooks: 1 };
    let log = Arc::new(EmbeddedLog::open(dir.path(), layout, clock.clone()).unwrap());
    let store: Arc<dyn Store> = Arc::new(EmbeddedStore::open(dir.path()).unwrap());
    let reads = Counting::default();
    let log = Arc::new(LayeredLog::new(log, log_layer(store.clone())));
    let counted = Arc::new(LayeredStore::new(store.clone(), reads.clone()));
    let catalog = Arc::new(Catalog::new(&config, Vec::new(), Vec::new()));
    let (feed, merchant) = (Feed::default(), &config.merchant);
    let commands = Commands::new(log, counted, clock, feed, catalog, merchant, "Shop");
    World { commands, store, reads, _dir: dir }
}

const BODY: &[u8] =
    br#"{ "order_id": "A-1001", "amount": "10.50", "webhook_url": "https://shop.example/hooks" }"#;

#[tokio::test(start_paused = true)]
async fn a_command_without_an_answer_ends_as_busy() {
    let World { commands, store, _dir, .. } = world(None);
    let order = Order { candidates: Vec::new(), ..example::order() };
    let order_id = order.order_id;
    store.apply(vec![Change::Order(order)]).await.unwrap();
    let begun = Instant::now();
    assert_eq!(commands.cancel(order_id).await, Err(Refusal::Busy));
    assert_eq!(begun.elapsed(), ANSWER_TIMEOUT);
    assert_eq!(commands.mark_paid(&Operator::first(), order_id).await, Err(Refusal::Busy));
    // An orderly stop ends the feed, and with it the wait. The paused clock advances once both futures wait.
    let begun = Instant::now();
    let stop = async {
        sleep_until(begun + STORE_POLL_INTERVAL).await;
        commands.feed.close();
    };
    let (answer, ()) = tokio::join!(commands.cancel(order_id), stop);
    assert_eq!((answer, begun.elapsed()), (Err(Refusal::Busy), STORE_POLL_INTERVAL));
}

#[tokio::test(start_paused = true)]
async fn a_create_without_an_answer_may_have_made_an_order() {
    let World { commands, _dir, .. } = scripted(|_| Scripted::Silent);
    for key in [None, Some("k")] {
        let begun = Instant::now();
        assert_eq!(commands.create(BODY, key).await, Err(Refusal::MaybeCreated));
        assert_eq!(begun.elapsed(), ANSWER_TIMEOUT);
    }
    let World { commands, reads, _dir, .. } = world(None);
    let begun = Instant::now();
    assert_eq!(commands.create(BODY, Some("k")).await, Err(Refusal::MaybeCreated));
    assert_eq!(begun.elapsed(), ANSWER_TIMEOUT);
    // One read before the command, the others during the wait, perhaps one at the very end.
    let count = reads.reads.load(Ordering::SeqCst);
    assert!((50..=51).contains(&count), "{count} reads");
}

/// Refusal of a command; `None` if it succeeds. Panics if it does not end within ten answer timeouts.
async fn refusal<T>(answer: impl Future<Output = Answer<T>>) -> Option<Refusal> {
    timeout(10 * ANSWER_TIMEOUT, answer).await.expect("an answer").err()
}

#[tokio::test(start_paused = true)]
async fn commands_without_a_log_are_refused_in_time() {
    let (operator, id) = (Operator::first(), example::order().order_id);
    for (script, expected, wait) in [
        (Scripted::Silent, Some(Refusal::Internal), ANSWER_TIMEOUT),
        (Scripted::Away, Some(Refusal::Internal), Duration::ZERO),
    ] {
        let World { commands, store, _dir, .. } = scripted(|_| script);
        let order = Order { candidates: Vec::new(), ..example::order() };
        store.apply(vec![Change::Order(order)]).await.unwrap();
        let begun = Instant::now();
        assert_eq!(refusal(commands.cancel(id)).await, expected);
        assert_eq!(refusal(commands.cancel_by(&operator, id)).await, expected);
        assert_eq!(refusal(commands.mark_paid(&operator, id)).await, expected);
        assert_eq!(refusal(commands.resend_order(&operator, id)).await, expected);
        assert_eq!(begun.elapsed(), 4 * wait);
        assert_eq!(refusal(commands.create(BODY, None)).await, Some(Refusal::MaybeCreated));
        assert_eq!(begun.elapsed(), 5 * wait);
    }
}

#[tokio::test(start_paused = true)]
async fn commands_without_tables_are_refused_at_once() {
    let World { commands, reads, _dir, .. } = world(None);
    reads.are_away.store(true, Ordering::SeqCst);
    let (begun, id, expected) =
        (Instant::now(), example::order().order_id, Some(Refusal::Internal));
    assert_eq!(refusal(commands.cancel(id)).await, expected);
    assert_eq!(refusal(commands.mark_paid(&Operator::first(), id)).await, expected);
    assert_eq!(refusal(commands.create(BODY, Some("k"))).await, expected);
    assert_eq!(begun.elapsed(), Duration::ZERO);
    // Without a key, no tables are read.
    assert_eq!(refusal(commands.create(BODY, None)).await, None);
}

#[tokio::test(start_paused = true)]
async fn create_on_the_log_hardly_waits_for_the_tables() {
    let World { commands, store, _dir, .. } = world(None);
    let begun = Instant::now();
    let created = commands.create(BODY, None).await.unwrap();
    assert_eq!(begun.elapsed(), Duration::from_millis(250));
    // The write outlives the request.
    let mut polls = interval_at(begun, STORE_POLL_INTERVAL);
    while store.order(created.order.order_id).await.unwrap().is_none() {
        polls.tick().await;
    }
    assert!(begun.elapsed() >= SLOW);
}

#[tokio::test(start_paused = true)]
async fn create_with_a_missed_record_reads_the_store() {
    let order_id = OrderId("86cb70d3-d8d8-54d6-8be4-40128cfafa9a".parse().unwrap());
    // The order was created from another body.
    let World { commands, _dir, .. } = world(Some(Order { order_id, ..example::order() }));
    let begun = Instant::now();
    assert_eq!(commands.create(BODY, Some("k")).await, Err(Refusal::KeyReused));
    assert_eq!(begun.elapsed(), STORE_POLL_INTERVAL);
}

#[test]
fn the_ids_of_keyed_orders_never_change() {
    let key_space = world(None).commands.key_space;
    let id = |key: &str| Uuid::new_v5(&key_space, key.as_bytes()).to_string();
    // uuid.uuid5(uuid.uuid5(KEY_SPACE, "Shop"), "k") in Python.
    assert_eq!(id("k"), "86cb70d3-d8d8-54d6-8be4-40128cfafa9a");
    assert_ne!(id("l"), id("k"));
}

#[test]
fn ids_carry_their_moment() {
    let id = fresh_id(NOW);
    assert_ne!(id, fresh_id(NOW));
    let (seconds, nanos) = id.get_timestamp().unwrap().to_unix();
    assert_eq!((seconds, nanos / 1_000_000), (1_790_000_000, 123));
}
