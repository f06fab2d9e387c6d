//! A producer whose brokers answer as they do while a coordinator is not available.

use std::sync::mpsc::channel;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::mocking::MockCluster;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use schemas::{Layout, Topic};

use super::{Offsets, Transaction};
use crate::config::{KafkaConfig, KafkaSecurity};
use crate::kafka::KafkaLog;
use crate::kafka::settings::{self, Reports};

const LAYOUT: Layout = Layout { lanes: 1, orders: 1, webhooks: 1 };
/// Far longer than a call takes that comes back at all.
const PATIENCE: Duration = Duration::from_secs(60);

/// The library asks three times within some 30 ms which broker coordinates a group, and then waits,
/// without a time-out, until any of its connections changes.
#[test]
fn offsets_are_sent_once_their_group_has_a_coordinator() {
    let cluster = MockCluster::new(1).unwrap();
    let config = KafkaConfig {
        brokers: cluster.bootstrap_servers(),
        prefix: String::new(),
        replication: 1,
        session_timeout: Duration::from_secs(10),
        transaction_timeout: Duration::from_secs(8),
        security: KafkaSecurity::default(),
    };
    let input = Topic::Orders.name();
    cluster.create_topic(input, 1, 1).unwrap();
    let log = KafkaLog::open(&config, LAYOUT).unwrap();
    let mut producer = Transaction::open(&log.site, None, "a", Reports::All).unwrap();
    let unavailable = RDKafkaRespErr::RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE;
    cluster.request_errors(RDKafkaApiKey::FindCoordinator, &[unavailable; 4]);

    let (done, is_done) = channel();
    std::thread::spawn(move || {
        let keeper: BaseConsumer = settings::keeper(&config, "group").create().unwrap();
        let member = keeper.group_metadata().unwrap();
        let mut places = TopicPartitionList::new();
        places.add_partition(input, 0).set_offset(Offset::Offset(7)).unwrap();
        done.send(producer.mark(&Offsets { places: &places, member: &member })).unwrap();
    });
    assert_eq!(is_done.recv_timeout(PATIENCE), Ok(Ok(())));
}
