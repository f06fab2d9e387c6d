//! What happens when no answer comes, under a clock that the test owns.

use std::sync::Mutex;

use async_trait::async_trait;
use log::{Bounds, Error, Offset, Record, Tail, TopicPartition};
use log::{Worker, WorkerSpec, Writer};
use runtime::ManualClock;
use runtime::config::Source;
use schemas::record::example;
use schemas::{Address, Layout};
use store::{ChainRow, DepositFilter, DepositRow, OrderFilter, Page, TransferFilter, TransferRow};

use super::*;
use crate::Config;

const NOW: UnixMicros = UnixMicros(1_790_000_000_123_456);

/// A log that takes everything and answers nothing.
struct Silent;

#[async_trait]
impl Log for Silent {
    fn layout(&self) -> Layout {
        Layout { lanes: 1, orders: 1, webhooks: 1 }
    }
    async fn produce(&self, _: Vec<NewRecord>) -> Result<(), Error> {
        Ok(())
    }
    fn writer(&self, _: &str) -> Result<Box<dyn Writer>, Error> {
        Err(Error::Fatal("silent".into()))
    }
    fn worker(&self, _: WorkerSpec) -> Result<Box<dyn Worker>, Error> {
        Err(Error::Fatal("silent".into()))
    }
    fn tail(&self, _: &[Topic]) -> Result<Box<dyn Tail>, Error> {
        Err(Error::Fatal("silent".into()))
    }
    fn read(&self, _: TopicPartition, _: Offset, _: usize) -> Result<Vec<Arc<Record>>, Error> {
        Ok(Vec::new())
    }
    fn bounds(&self, _: TopicPartition) -> Result<Bounds, Error> {
        Ok(Bounds { start: Offset(0), end: Offset(0) })
    }
}

/// A store whose only order is there from the n-th read on.
struct Later {
    order: Order,
    reads_left: Mutex<u32>,
}

#[async_trait]
impl Store for Later {
    async fn apply(&self, _: Vec<Change>) -> Result<(), store::Error> {
        Ok(())
    }
    async fn order(&self, _: OrderId) -> Result<Option<OrderRow>, store::Error> {
        let mut left = self.reads_left.lock().unwrap();
        *left = left.saturating_sub(1);
        let row = OrderRow {
            order: self.order.clone(),
            webhook_retry_count: 0,
            webhook_success_at: None,
            webhook_last_tried_at: None,
        };
        Ok((*left == 0).then_some(row))
    }
    async fn orders(&self, _: OrderFilter, _: Page) -> Result<Vec<OrderRow>, store::Error> {
        Ok(Vec::new())
    }
    async fn deposits(&self, _: DepositFilter, _: Page) -> Result<Vec<DepositRow>, store::Error> {
        Ok(Vec::new())
    }
    async fn transfer(&self, _: TransferId) -> Result<Option<TransferRow>, store::Error> {
        Ok(None)
    }
    async fn transfers(
        &self,
        _: Address,
        _: TransferFilter,
        _: Page,
    ) -> Result<Vec<TransferRow>, store::Error> {
        Ok(Vec::new())
    }
    async fn chains(&self) -> Result<Vec<ChainRow>, store::Error> {
        Ok(Vec::new())
    }
}

fn commands(reads: u32) -> Commands {
    let source = "[merchant]\nname = \"Shop\"";
    let config = Config::read(&mut Source::parse(Config::DEFAULTS, source, []));
    let store = Later { order: example::order(), reads_left: Mutex::new(reads) };
    let clock = Arc::new(ManualClock::new(NOW));
    let catalog = Arc::new(Catalog::new(&config, Vec::new()));
    let (log, store) = (Arc::new(Silent), Arc::new(store));
    Commands::new(log, store, clock, Feed::new(), catalog, &config.merchant)
}

/// The request that the example order was made from, but for the choice of chain and stablecoin.
const BODY: &[u8] =
    br#"{ "order_id": "A-1001", "amount": "10.50", "webhook_url": "https://shop.example/hooks" }"#;

#[tokio::test(start_paused = true)]
async fn a_command_without_an_answer_ends_as_busy() {
    let commands = commands(1);
    let order_id = example::order().order_id;
    let begun = Instant::now();
    assert_eq!(commands.cancel(order_id, &Trace::default()).await, Err(Refusal::Busy));
    assert_eq!(begun.elapsed(), ANSWER_TIMEOUT);
    assert_eq!(commands.mark_paid(order_id, &Trace::default()).await, Err(Refusal::Busy));
    // An orderly stop ends the feed, and with it the wait.
    let (begun, trace) = (Instant::now(), Trace::default());
    let stop = async {
        tokio::task::yield_now().await;
        commands.feed.close();
    };
    let (answer, ()) = tokio::join!(commands.cancel(order_id, &trace), stop);
    assert_eq!((answer, begun.elapsed()), (Err(Refusal::Busy), Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn a_create_with_a_key_and_without_an_answer_ends_as_busy() {
    let commands = commands(u32::MAX);
    let begun = Instant::now();
    assert_eq!(commands.create_once(BODY, "k", &Trace::default()).await, Err(Refusal::Busy));
    assert_eq!(begun.elapsed(), ANSWER_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn a_create_whose_record_was_missed_finds_the_order_in_the_store() {
    let begun = Instant::now();
    // Read at the third attempt: one before the command, two while waiting. Made from another body.
    assert_eq!(
        commands(3).create_once(BODY, "k", &Trace::default()).await,
        Err(Refusal::KeyReused)
    );
    assert_eq!(begun.elapsed(), 2 * STORE_POLL_INTERVAL);
}

#[test]
fn the_ids_of_keyed_orders_are_fixed_for_ever() {
    let id = |key: &str| Uuid::new_v5(&commands(1).key_space, key.as_bytes()).to_string();
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
