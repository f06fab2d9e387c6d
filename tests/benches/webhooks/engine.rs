//! Dispatcher and deliverer on threads over a separate log, and their events.

use std::ops::Range;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use log::embedded::EmbeddedLog;
use log::{Log, NewRecord, StageContext, TopicPartition};
use runtime::config::Source;
use runtime::{Clock, SystemClock};
use schemas::record::{Order, example};
use schemas::{Layout, OrderCause, OrderId, OrderStatus, Secret, Stage, Topic, UnixMicros};
use tempfile::TempDir;
use testkit::harness::MERCHANT_SECRET;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// The default layout.
pub(crate) const LAYOUT: Layout = Layout { lanes: 16, orders: 4, webhooks: 2 };
/// Events that are written at once.
const CHUNK: usize = 1000;
/// Interval at which a paced load reads the clock.
const TICK: Duration = Duration::from_millis(5);

/// Both loops and their log.
pub(crate) struct Engine {
    log: Arc<dyn Log>,
    stop: CancellationToken,
    threads: Vec<JoinHandle<Result<(), webhooks::Error>>>,
    /// Time of each event.
    sent: Vec<UnixMicros>,
    _dir: Option<TempDir>,
}

impl Engine {
    /// Starts both loops on an embedded log.
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let log = EmbeddedLog::open(dir.path(), LAYOUT, Arc::new(SystemClock)).expect("a log");
        Self { _dir: Some(dir), ..Self::on(Arc::new(log)) }
    }

    pub(crate) fn on(log: Arc<dyn Log>) -> Self {
        let clock = Arc::new(SystemClock);
        let stop = CancellationToken::new();
        let context = StageContext {
            log: log.clone(),
            clock,
            member: "bench".to_owned(),
            handle: Handle::current(),
            stop: stop.clone(),
        };
        let (config, dispatched) = (config(), context.clone());
        let engine = webhooks::Engine::new(&config, context.clock.clone(), Handle::current());
        let engine = engine.expect("a client");
        let threads = vec![
            std::thread::spawn(move || webhooks::run_dispatcher(&config, &dispatched)),
            std::thread::spawn(move || webhooks::run_deliverer(&engine, &context)),
        ];
        Self { log, stop, threads, sent: Vec::new(), _dir: None }
    }

    /// Number of events.
    pub(crate) fn events(&self) -> usize {
        self.sent.len()
    }

    pub(crate) fn sent_at(&self, event: usize) -> UnixMicros {
        self.sent[event]
    }

    /// Writes a paid order for each of these receivers.
    pub(crate) async fn publish(&mut self, receivers: Vec<String>) {
        for chunk in receivers.chunks(CHUNK) {
            let (first, now) = (self.sent.len(), SystemClock.now());
            let records = chunk.iter().zip(first..).map(|(url, number)| paid(number, url, now));
            self.sent.extend(chunk.iter().map(|_| now));
            self.log.produce(records.collect()).await.expect("produced");
        }
    }

    /// Writes events at an even pace, to `url(number)`; returns them.
    pub(crate) async fn pace(
        &mut self,
        per_second: u32,
        duration: Duration,
        url: impl Fn(usize) -> String,
    ) -> Range<usize> {
        let (first, started) = (self.sent.len(), Instant::now());
        let mut ticks = tokio::time::interval(TICK);
        loop {
            ticks.tick().await;
            let elapsed = started.elapsed().min(duration);
            let wanted = usize::try_from(elapsed.as_micros() * u128::from(per_second) / 1_000_000);
            let range = self.sent.len() - first..wanted.expect("few");
            self.publish(range.map(&url).collect()).await;
            if elapsed == duration {
                return first..self.sent.len();
            }
        }
    }

    /// Number of records that the two loops have written.
    pub(crate) fn records(&self) -> i64 {
        let all = |topic: Topic| {
            topic.all_partitions(&LAYOUT).map(move |partition| TopicPartition { topic, partition })
        };
        let ends = Topic::written_by(Stage::Webhooks).flat_map(all);
        ends.map(|of| self.log.bounds(of).expect("bounds").end.0).sum()
    }

    /// Cancels the token of both loops and waits for their end: requests in flight may run until their time-out.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        let join = move || {
            self.threads.into_iter().for_each(|thread| {
                thread.join().expect("no panic").expect("an orderly end");
            });
        };
        tokio::task::spawn_blocking(join).await.expect("no panic");
    }
}

fn config() -> webhooks::Config {
    let text = "[webhooks]\nallow_private_addresses = true\n";
    let mut source = Source::parse(webhooks::Config::DEFAULTS, text, []);
    let section = source.section("webhooks");
    let config = webhooks::Config::read(section, Secret::new(MERCHANT_SECRET), None, None);
    source.finish().expect("no problem");
    config
}

fn paid(number: usize, url: &str, now: UnixMicros) -> NewRecord {
    let order = Order {
        order_id: OrderId(Uuid::from_u128(number as u128)),
        version: 3,
        cause: OrderCause::Paid,
        status: OrderStatus::Paid,
        status_changed: true,
        webhook_url: url.to_owned(),
        updated_at: now,
        ..example::order()
    };
    let key = order.order_id.to_string();
    NewRecord::encode(Topic::Orders, LAYOUT.order(&key), key, &order).expect("encodable")
}
