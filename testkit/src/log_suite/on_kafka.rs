//! Topics of one check on a real broker, and retention and compaction by Kafka's tools.

use std::collections::HashSet;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use log::config::KafkaConfig;
use log::kafka::{KafkaLog, admin};
use log::{Log, NewRecord, Record, TopicPartition};
use runtime::telemetry::{Config as Telemetry, init_log};
use runtime::{Clock, SystemClock};
use schemas::{Cleanup, Layout, Topic};

use super::{FILLER, Fixture, LAYOUT, produce, read_all};
use crate::measure::kafka_config;
use crate::process::given;
use crate::wait_until;

/// The topics that the checks use.
const TOPICS: [Topic; 8] = [
    Topic::TransfersRaw,
    Topic::DepositsCommands,
    Topic::Deposits,
    Topic::Orders,
    Topic::OrdersCommands,
    Topic::OrdersChangelog,
    Topic::WebhooksDispatch,
    Topic::Alerts,
];
/// [`Fixture::advance`] by this or more makes records old. Also the retention once these are deleted.
const OLD: Duration = Duration::from_secs(24 * 3600);
/// Age difference between old records and the next ones: a broker on a busy machine has to delete the former before the
/// latter expire.
const GAP: Duration = Duration::from_secs(20);
/// Time from the beginning of the gap to the retention cut: records before the cut are old.
const CUT: Duration = Duration::from_millis(500);

/// Topics with a unique prefix, on the broker of the test run. Deleted when dropped.
pub struct OnKafka {
    config: Mutex<KafkaConfig>,
    log: Mutex<Option<KafkaLog>>,
    /// Records before this time are old, in Unix milliseconds.
    old_before: AtomicI64,
}

impl OnKafka {
    pub fn config(&self) -> KafkaConfig {
        self.config.lock().unwrap().clone()
    }

    fn log(&self) -> Arc<dyn Log> {
        Arc::new(KafkaLog::open(&self.config(), LAYOUT).unwrap())
    }

    fn alter(&self, topic: Topic, settings: &[(&'static str, &str)]) {
        let settings: Vec<_> = settings.iter().map(|(k, v)| (*k, (*v).to_owned())).collect();
        admin::alter_topic(&self.config(), &LAYOUT, topic, &settings).unwrap();
    }

    /// Lets retention delete old records only.
    fn expire(&self) {
        let old_before = self.old_before.load(Ordering::SeqCst);
        if old_before == i64::MIN {
            return;
        }
        let log = self.log();
        for topic in forgetting(|cleanup| matches!(cleanup, Cleanup::Delete { .. })) {
            let has_old = || {
                partitions(topic).any(|of| {
                    let start = log.bounds(of).unwrap().start;
                    let first = log.read(of, start, 1).unwrap();
                    first.first().is_some_and(|r| r.appended_at.0 / 1000 < old_before)
                })
            };
            if !has_old() {
                continue;
            }
            wait_until("the old records are gone", || {
                // Set repeatedly, so that a late broker does not expire newer records.
                let age = now_millis() - old_before;
                self.alter(topic, &[("retention.ms", &age.to_string())]);
                !has_old()
            });
            self.alter(topic, &[("retention.ms", &OLD.as_millis().to_string())]);
        }
    }

    /// Waits until the cleaner has compacted all.
    fn compact(&self) {
        let log = self.log();
        for topic in forgetting(|cleanup| cleanup == Cleanup::Compact) {
            self.alter(
                topic,
                &[
                    ("segment.ms", "1"),
                    ("min.cleanable.dirty.ratio", "0.0"),
                    ("min.compaction.lag.ms", "0"),
                    ("delete.retention.ms", "0"),
                ],
            );
            wait_until("everything is compacted", || {
                let dirty: Vec<_> =
                    partitions(topic).filter(|of| !is_compact(&read_all(&log, *of))).collect();
                if dirty.is_empty() {
                    return true;
                }
                // A new segment closes the previous one for compaction.
                let filler = |of: &TopicPartition| NewRecord {
                    to: *of,
                    key: FILLER.to_vec(),
                    value: Some(vec![]),
                    headers: schemas::Headers::default(),
                };
                produce(&log, dirty.iter().map(filler).collect()).unwrap();
                std::thread::park_timeout(Duration::from_millis(200));
                false
            });
        }
    }
}

impl Default for OnKafka {
    fn default() -> Self {
        let config = config(&brokers());
        admin::create_some(&config, &LAYOUT, &TOPICS).unwrap();
        let old_before = AtomicI64::new(i64::MIN);
        Self { config: Mutex::new(config), log: Mutex::default(), old_before }
    }
}

impl Fixture for OnKafka {
    fn open(&self) -> Arc<dyn Log> {
        let log = KafkaLog::open(&self.config(), LAYOUT).unwrap();
        *self.log.lock().unwrap() = Some(log.clone());
        Arc::new(log)
    }

    fn stranger(&self) -> String {
        let config = KafkaConfig { prefix: "stranger.".to_owned(), ..self.config() };
        KafkaLog::open(&config, LAYOUT).unwrap().installation().unwrap()
    }

    fn set_session_timeout(&self, timeout: Duration) {
        let mut config = self.config.lock().unwrap();
        config.session_timeout = timeout;
        // The client library allows no time-out below a second.
        config.transaction_timeout = (timeout * 2 / 3).max(Duration::from_secs(1));
    }

    fn fail_next_commit(&self) {
        self.log.lock().unwrap().as_ref().unwrap().fail_next_commit();
    }

    fn advance(&self, by: Duration) {
        if by < OLD {
            return;
        }
        for topic in forgetting(|cleanup| matches!(cleanup, Cleanup::Delete { .. })) {
            self.alter(topic, &[("segment.ms", "100")]);
        }
        let cut = i64::try_from(CUT.as_millis()).unwrap();
        self.old_before.store(now_millis() + cut, Ordering::SeqCst);
        let started = Instant::now();
        // Records age by time alone: there is no other condition to wait for.
        while let Some(left) = GAP.checked_sub(started.elapsed()) {
            std::thread::park_timeout(left);
        }
    }

    fn maintain(&self) {
        self.expire();
        self.compact();
    }
}

impl Drop for OnKafka {
    fn drop(&mut self) {
        // A failure is ignored: the broker ends with the tests, and a failure of the check matters more.
        drop(admin::delete_topics(&self.config(), &LAYOUT, &TOPICS));
    }
}

/// The broker that the test run started.
pub fn brokers() -> String {
    given("TIDEMARK_TEST_KAFKA")
}

/// A configuration with a unique prefix. Enables logging of warnings.
pub fn config(brokers: &str) -> KafkaConfig {
    let telemetry = Telemetry { listen: None, filter: "warn".to_owned(), json: false, otlp: None };
    // Another test may have initialized it.
    drop(init_log(&telemetry));
    KafkaConfig {
        // Longer than a busy broker's delays. Tests of the timeouts set their own values.
        session_timeout: Duration::from_secs(30),
        transaction_timeout: Duration::from_secs(25),
        ..kafka_config(brokers, &format!("check-{}.", uuid::Uuid::now_v7().simple()))
    }
}

/// Opens the log of a prefix, for tests that kill its processes.
pub fn open(prefix: &str) -> Arc<dyn Log> {
    // A killed process's open transaction blocks readers until its timeout.
    let config = KafkaConfig {
        prefix: prefix.to_owned(),
        session_timeout: Duration::from_secs(10),
        transaction_timeout: Duration::from_secs(8),
        ..config(&brokers())
    };
    Arc::new(KafkaLog::open(&config, LAYOUT).unwrap())
}

/// Layout of the processors that are killed: two lanes a chain and four partitions of orders.
pub const CRASH_LAYOUT: Layout = Layout { lanes: 2, orders: 4, webhooks: 1 };

/// A configuration for processors that are killed. Sessions are short: a test waits for them to end.
pub fn crash_config(brokers: &str, prefix: &str, session_seconds: u64) -> KafkaConfig {
    KafkaConfig {
        prefix: prefix.to_owned(),
        session_timeout: Duration::from_secs(session_seconds),
        transaction_timeout: Duration::from_secs(session_seconds - 1),
        ..config(brokers)
    }
}

fn forgetting(how: impl Fn(Cleanup) -> bool) -> impl Iterator<Item = Topic> {
    TOPICS.into_iter().filter(move |topic| how(topic.spec().cleanup))
}

fn partitions(topic: Topic) -> impl Iterator<Item = TopicPartition> {
    topic.all_partitions(&LAYOUT).map(move |partition| TopicPartition { topic, partition })
}

/// `true` if, fillers aside, no key occurs twice and no tombstone is left.
fn is_compact(records: &[Arc<Record>]) -> bool {
    let mut keys = HashSet::new();
    let others = records.iter().filter(|record| record.key != FILLER);
    others.into_iter().all(|record| record.value.is_some() && keys.insert(&record.key))
}

fn now_millis() -> i64 {
    SystemClock.now().0 / 1000
}
