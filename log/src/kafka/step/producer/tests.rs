//! A producer whose brokers answer as they do while a coordinator is not available.

use std::sync::mpsc::channel;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::mocking::MockCluster;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use schemas::Topic;

use super::*;
use crate::kafka::shared::tests::on_mock;

/// Far longer than a call takes that returns at all.
const PATIENCE: Duration = Duration::from_secs(60);

/// The library queries a group's coordinator three times within some 30 ms, and then waits, without a
/// time-out, until any of its connections changes.
#[test]
fn offsets_are_sent_once_their_group_has_a_coordinator() {
    let cluster = MockCluster::new(1).unwrap();
    let input = Topic::Orders.name();
    cluster.create_topic(input, 1, 1).unwrap();
    let shared = on_mock(&cluster);
    let config = shared.config.clone();
    let mut producer = StepProducer::open(&shared, None, "a", Reports::All).unwrap();
    let unavailable = RDKafkaRespErr::RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE;
    cluster.request_errors(RDKafkaApiKey::FindCoordinator, &[unavailable; 4]);

    let (done, is_done) = channel();
    std::thread::spawn(move || {
        let consumer: BaseConsumer = settings::claim(&config, "group").create().unwrap();
        let member = consumer.group_metadata().unwrap();
        let mut list = TopicPartitionList::new();
        list.add_partition(input, 0).set_offset(rdkafka::Offset::Offset(7)).unwrap();
        done.send(producer.run(&[], Some(&Offsets { list: &list, member: &member }))).unwrap();
    });
    is_done.recv_timeout(PATIENCE).unwrap().unwrap();
}
