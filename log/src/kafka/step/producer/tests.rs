//! A producer whose brokers answer as they do while a coordinator is not available.

use std::sync::mpsc::channel;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use schemas::Topic;

use super::*;
use crate::config::KafkaConfig;
use crate::kafka::shared::tests::{Mock, mock};

/// Deadline of a call: far longer than any takes that returns.
const PATIENCE: Duration = Duration::from_secs(60);

const INPUT: &str = Topic::Orders.name();

/// Makes a step with offsets and no records, on a thread: the call may not return.
fn commit_offsets(mut producer: StepProducer, config: &KafkaConfig) -> Result<(), StepFailure> {
    let (done, is_done) = channel();
    let config = config.clone();
    std::thread::spawn(move || {
        let consumer: BaseConsumer = settings::claim(&config, "group").create().unwrap();
        let member = Arc::new(consumer.group_metadata().unwrap());
        let mut list = TopicPartitionList::new();
        list.add_partition(INPUT, 0).set_offset(rdkafka::Offset::Offset(7)).unwrap();
        done.send(producer.run(&[], Some(Offsets { list, member }))).unwrap();
    });
    is_done.recv_timeout(PATIENCE).unwrap()
}

fn start() -> (Mock, Arc<Shared>, StepProducer) {
    let (cluster, shared) = mock(&[Topic::Orders]);
    let producer = StepProducer::open(&shared, "a", Reports::All).unwrap();
    (cluster, shared, producer)
}

/// The library queries a group's coordinator three times within some 30 ms, and then waits, without a
/// time-out, until any of its connections changes.
#[test]
fn offsets_wait_for_the_groups_coordinator() {
    let (cluster, shared, producer) = start();
    let unavailable = RDKafkaRespErr::RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE;
    cluster.request_errors(RDKafkaApiKey::FindCoordinator, &[unavailable; 4]);
    commit_offsets(producer, &shared.config).unwrap();
}

/// Without any broker the library's call waits for one, for as long as it takes.
#[test]
fn a_step_without_a_broker_ends_in_time() {
    let (cluster, shared, producer) = start();
    cluster.broker_down(1).unwrap();
    let failure = commit_offsets(producer, &shared.config).unwrap_err();
    assert_eq!((failure.outcome, failure.producer_usable), (Outcome::Aborted, false));
    // A successor commits once the broker is back, whatever the abandoned call did.
    cluster.broker_up(1).unwrap();
    let started = Instant::now();
    let successor = loop {
        match StepProducer::open(&shared, "a", Reports::All) {
            Ok(successor) => break successor,
            Err(error) => assert!(started.elapsed() < PATIENCE, "{error}"),
        }
    };
    commit_offsets(successor, &shared.config).unwrap();
}

/// Writes a record of a step that has no commit yet.
fn write(producer: &mut StepProducer) {
    let record = NewRecord {
        to: crate::TopicPartition { topic: Topic::Orders, partition: schemas::Partition(0) },
        key: Vec::new(),
        value: None,
        headers: schemas::Headers::default(),
    };
    producer.write_ahead(&[record]);
    producer.drain(Instant::now() + PATIENCE).unwrap();
}

/// Without a broker the commit ends in time, too; its outcome is then unknown.
#[test]
fn a_commit_without_a_broker_ends_in_time() {
    let (cluster, shared, mut producer) = start();
    write(&mut producer);
    cluster.broker_down(1).unwrap();
    let (done, is_done) = channel();
    std::thread::spawn(move || done.send(producer.run(&[], None)).unwrap());
    let failure = is_done.recv_timeout(PATIENCE).unwrap().unwrap_err();
    assert_eq!((failure.outcome, failure.producer_usable), (Outcome::Unknown, false));
    drop(shared);
}

#[test]
fn a_slow_commit_is_the_last_of_its_producer() {
    let (cluster, _shared, mut producer) = start();
    write(&mut producer);
    cluster.broker_round_trip_time(1, Duration::from_millis(1100)).unwrap();
    producer.run(&[], None).unwrap();
    assert!(!producer.is_usable());
}
