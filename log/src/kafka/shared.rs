//! State shared by the handles, workers, writers and tails of one log.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use schemas::Layout;

use super::client::name::Names;
use super::client::watchdog::Watchdog;
use super::observer::StepObserver;
use super::read::query::Query;
use crate::config::KafkaConfig;
use crate::{Error, TopicPartition};

/// Extra time, beyond twice the time-out of a transaction, that a watched call may take before the
/// process aborts.
const STUCK_MARGIN: Duration = Duration::from_secs(30);

pub(super) struct Shared {
    pub(super) config: KafkaConfig,
    pub(super) layout: Layout,
    pub(super) names: Arc<Names>,
    pub(super) query: Query,
    pub(super) watchdog: Watchdog,
    /// Observer of all steps, if there is one.
    pub(super) observer: OnceLock<Arc<dyn StepObserver>>,
    /// For tests: the next step, or append, fails.
    pub(super) fail_next: AtomicBool,
}

impl Shared {
    pub(super) fn new(config: &KafkaConfig, layout: Layout) -> Result<Self, Error> {
        let names = Arc::new(Names::new(&config.prefix, &layout));
        let limit = config.transaction_timeout.saturating_mul(2).saturating_add(STUCK_MARGIN);
        Ok(Self {
            config: config.clone(),
            layout,
            query: Query::new(config, names.clone())?,
            names,
            watchdog: Watchdog::new(limit),
            observer: OnceLock::new(),
            fail_next: AtomicBool::new(false),
        })
    }

    /// Returns `true` once if the next step or append is to fail.
    pub(super) fn take_failure(&self) -> bool {
        self.fail_next.swap(false, Ordering::SeqCst)
    }

    /// Checks that these partitions exist, and that their topics on the broker have the partition
    /// counts of the layout. Queries the broker once a topic.
    pub(super) fn verify(&self, of: impl IntoIterator<Item = TopicPartition>) -> Result<(), Error> {
        for of in of {
            if !self.names.partition(of)?.is_verified() {
                self.query.verify(of.topic)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use rdkafka::mocking::MockCluster;
    use rdkafka::producer::DefaultProducerContext;
    use schemas::Topic;

    use super::*;
    use crate::config::KafkaSecurity;

    pub(crate) type Mock = MockCluster<'static, DefaultProducerContext>;

    /// A log with these topics, on a mock broker of librdkafka.
    pub(crate) fn mock(topics: &[Topic]) -> (Mock, Arc<Shared>) {
        let cluster = MockCluster::new(1).unwrap();
        for topic in topics {
            cluster.create_topic(topic.name(), 1, 1).unwrap();
        }
        let shared = on_mock(&cluster);
        (cluster, shared)
    }

    /// A log on librdkafka's mock cluster.
    pub(crate) fn on_mock(cluster: &Mock) -> Arc<Shared> {
        let config = KafkaConfig {
            brokers: cluster.bootstrap_servers(),
            prefix: String::new(),
            replication: 1,
            session_timeout: Duration::from_secs(10),
            transaction_timeout: Duration::from_secs(8),
            security: KafkaSecurity::default(),
            continues: None,
        };
        Arc::new(Shared::new(&config, Layout { lanes: 1, orders: 1, webhooks: 1 }).unwrap())
    }
}
