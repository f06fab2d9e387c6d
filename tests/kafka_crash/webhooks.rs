//! A process that delivers webhooks is suspended in an attempt, or loses its broker between the receiver's response and
//! its record.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use log::config::KafkaConfig;
use log::kafka::KafkaLog;
use log::{Log, NewRecord, Offset, TopicPartition};
use runtime::{Clock, SystemClock};
use schemas::record::{Attempt, Delivery, Order, Record, example};
use schemas::{AttemptOutcome, OrderCause, OrderId, OrderStatus, RetryLevel, Topic};
use tempfile::TempDir;
use testkit::harness::{Installation, LAYOUT, Receiver, Reply, eventually};
use testkit::log_suite::on_kafka;
use testkit::process::given_path;
use tokio::task::block_in_place;
use uuid::Uuid;
use xtask::{Server, kafka};

/// Settings of section `[log]` with which a successor takes over soon.
const SESSION: &str = "session_timeout = \"6s\"\ntransaction_timeout = \"4s\"\n";
/// Settings with a session that outlasts the broker's restart: otherwise the member would lose its partitions and
/// cancel their attempts.
const SESSION_LONG: &str = "session_timeout = \"60s\"\ntransaction_timeout = \"30s\"\n";

/// A separate broker, and receivers.
struct Fixture {
    broker: Server,
    installation: Installation,
    log: Arc<dyn Log>,
    receiver: Receiver,
    _dir: TempDir,
}

impl Fixture {
    async fn start(receiver: Receiver, session: &str) -> Self {
        let lib = given_path("TIDEMARK_TEST_KAFKA_LIB");
        let dir = tempfile::tempdir().unwrap();
        let broker = kafka::start(&lib, &dir.path().join("kafka"), "").unwrap();
        // These processes need no tables.
        let servers = (broker.address(), "127.0.0.1:1");
        let installation = Installation::on((&servers.0, servers.1), dir.path(), &[], "", session);
        installation.exits(&["topics", "create"], 0);
        let config = on_kafka::config(&broker.address());
        let config = KafkaConfig { prefix: installation.prefix(), ..config };
        let log = Arc::new(KafkaLog::open(&config, LAYOUT).unwrap());
        Self { broker, installation, log, receiver, _dir: dir }
    }

    /// Publishes paid orders.
    fn publish(&self, numbers: impl Iterator<Item = u128>) {
        let paid = |number| {
            let order = Order {
                order_id: OrderId(Uuid::from_u128(number)),
                cause: OrderCause::Paid,
                status: OrderStatus::Paid,
                status_changed: true,
                webhook_url: self.receiver.url(1),
                updated_at: SystemClock.now(),
                ..example::order()
            };
            let key = order.order_id.to_string();
            let partition = self.log.layout().order(&key);
            NewRecord::encode(Topic::Orders, partition, key, &order).unwrap()
        };
        let records = numbers.map(paid).collect();
        block_in_place(|| self.log.writer("orders").unwrap().commit(records)).unwrap();
    }

    fn read<R: Record>(&self, topic: Topic) -> Vec<R> {
        let read = |partition| {
            let records = self.log.read(TopicPartition { topic, partition }, Offset(0), 10_000);
            let decode = |record: &Arc<log::Record>| {
                schemas::decode(record.value.as_deref().unwrap()).unwrap()
            };
            records.unwrap().iter().map(decode).collect::<Vec<R>>()
        };
        block_in_place(|| topic.all_partitions(&self.log.layout()).flat_map(read).collect())
    }

    /// The number and the outcome of each recorded attempt for the order with this number.
    fn attempts(&self, number: u128) -> Vec<(i32, AttemptOutcome)> {
        let order = Some(OrderId(Uuid::from_u128(number)));
        let attempts: Vec<Attempt> = self.read(Topic::WebhooksAttempts);
        let ours = attempts.iter().filter(|attempt| attempt.order_id == order);
        ours.map(|attempt| (attempt.attempt, attempt.outcome)).collect()
    }

    /// The numbers of the attempts that the receiver saw for this order.
    fn calls(&self, number: u128) -> Vec<i32> {
        let order = Uuid::from_u128(number).to_string();
        let calls = self.receiver.calls();
        calls.iter().filter(|c| c.event_id.starts_with(&order)).map(|c| c.attempt).collect()
    }

    async fn called(&self, number: u128, attempts: &[i32]) {
        eventually(&format!("{attempts:?} to be made"), || async {
            (self.calls(number) == attempts).then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn suspended_process_records_nothing_delivered_since() {
    let calls = AtomicUsize::new(0);
    let script = move |_: &str, _| match calls.fetch_add(1, Ordering::SeqCst) {
        0 => Reply::Hold,
        _ => Reply::Status(200),
    };
    let fixture = Fixture::start(Receiver::start(script).await, SESSION).await;
    let mut first = fixture.installation.start("webhooks-1", "webhooks");
    first.ready().await;
    fixture.publish(1..=1);
    fixture.called(1, &[1]).await;

    first.process.signal("STOP");
    let mut second = fixture.installation.start("webhooks-2", "webhooks");
    second.ready().await;
    fixture.called(1, &[1, 1]).await;
    let delivered = [(1, AttemptOutcome::Delivered)];
    eventually("the record of the successor", || async {
        (fixture.attempts(1) == delivered).then_some(())
    })
    .await;

    fixture.receiver.release(500);
    first.process.signal("CONT");
    // In all partitions, so that both take part again.
    fixture.publish(2..=40);
    eventually("all to be delivered", || async {
        (2..=40).all(|number| fixture.attempts(number) == delivered).then_some(())
    })
    .await;
    for member in [first, second] {
        let log = member.process.log();
        let status = member.process.stop().await;
        assert!(status.success(), "{status}:\n{log}");
    }
    assert_eq!(fixture.attempts(1), delivered);
    assert_eq!(fixture.calls(1), [1, 1]);
    let retries: Vec<Delivery> = fixture.read(Topic::WebhooksRetry(RetryLevel::after(1).unwrap()));
    assert_eq!(retries, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn broker_lost_before_a_retry_repeats_no_attempt() {
    let script = |_: &str, attempt| match attempt {
        1 => Reply::Hold,
        _ => Reply::Status(200),
    };
    let mut fixture = Fixture::start(Receiver::start(script).await, SESSION_LONG).await;
    let mut member = fixture.installation.start("webhooks-1", "webhooks");
    member.ready().await;
    fixture.publish(1..=1);
    fixture.called(1, &[1]).await;

    fixture.broker.kill();
    fixture.receiver.release(500);
    eventually("the answer to be seen", || async {
        member.process.log().contains("attempt 1 of a webhook failed: status").then_some(())
    })
    .await;
    fixture.broker.restart().unwrap();
    let recorded = [(1, AttemptOutcome::Status), (2, AttemptOutcome::Delivered)];
    eventually("both attempts to be recorded", || async {
        (fixture.attempts(1) == recorded).then_some(())
    })
    .await;
    assert!(member.process.stop().await.success());
    assert_eq!(fixture.calls(1), [1, 2]);
    let retries: Vec<Delivery> = fixture.read(Topic::WebhooksRetry(RetryLevel::after(1).unwrap()));
    assert_eq!(retries.len(), 1);
}
