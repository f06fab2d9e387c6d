//! Two workers of one name, a group that fences a member, and connections that the broker closes.

use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use schemas::Topic;

use super::*;
use crate::kafka::shared::tests::on_mock;
use crate::{Committed, Offset};

/// Far longer than any rebalance takes.
const TIMEOUT: Duration = Duration::from_secs(60);
const INPUT: TopicPartition = TopicPartition { topic: Topic::Orders, partition: Partition(0) };

type Mock = MockCluster<'static, DefaultProducerContext>;

fn worker(shared: &Arc<Shared>) -> KafkaWorker {
    let (member, topics) = ("a".to_owned(), vec![INPUT.topic]);
    let spec = WorkerSpec { group: "g", member, topics, batch_max: 1 };
    KafkaWorker::new(shared.clone(), None, spec).unwrap()
}

/// Polls until an event or an error satisfies `is_it`, and returns all events before.
fn poll_until(
    worker: &mut KafkaWorker,
    mut is_it: impl FnMut(&KafkaWorker, &Result<Event, Error>) -> bool,
) -> Vec<Event> {
    let started = Instant::now();
    let mut events = Vec::new();
    loop {
        let polled = worker.poll(Duration::from_millis(20));
        if is_it(worker, &polled) {
            return events;
        }
        match polled {
            Ok(Event::Idle) | Err(Error::Transient(_)) => {}
            Ok(event) => events.push(event),
            Err(error) => panic!("{error}"),
        }
        assert!(started.elapsed() < TIMEOUT, "{events:?}");
    }
}

fn start() -> (Mock, Arc<Shared>, KafkaWorker) {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic(INPUT.topic.name(), 1, 1).unwrap();
    let shared = on_mock(&cluster);
    let mut worker = worker(&shared);
    poll_until(&mut worker, |_, polled| matches!(polled, Ok(Event::Assigned(_))));
    (cluster, shared, worker)
}

fn commit(worker: &mut KafkaWorker, n: i64) -> Result<(), StepError> {
    let committed = Committed { offset: Offset(n), metadata: n.to_string() };
    let headers = schemas::Headers::default();
    let record = NewRecord { to: INPUT, key: Vec::new(), value: None, headers };
    worker.commit(Step { records: vec![record], offsets: vec![(INPUT, committed)] })
}

fn fence(cluster: &Mock) {
    let fenced = RDKafkaRespErr::RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID;
    cluster.request_errors(RDKafkaApiKey::Heartbeat, &[fenced]);
}

/// A broker that is restarted may have an older member id under the member's name than the member has.
#[test]
fn a_member_that_the_group_takes_for_its_own_predecessor_joins_again() {
    let (cluster, _shared, mut worker) = start();
    commit(&mut worker, 1).unwrap();
    fence(&cluster);
    let mut was_fenced = false;
    let events = poll_until(&mut worker, |worker, _| {
        was_fenced |= worker.membership.owner().is_none();
        was_fenced && worker.membership.owner().is_some()
    });
    // No other member worked on its partition: the state that it has is still true.
    assert_eq!(events, []);
    commit(&mut worker, 2).unwrap();
}

#[test]
fn a_fenced_member_gives_way_to_an_instance_that_claimed_its_name() {
    let (cluster, shared, mut old) = start();
    let mut new = worker(&shared);
    new.join().unwrap();
    fence(&cluster);
    poll_until(&mut old, |_, polled| matches!(polled, Err(Error::Fenced(_))));
    assert!(matches!(commit(&mut old, 1), Err(StepError::Fenced(_))));
    assert!(matches!(old.poll(Duration::ZERO), Err(Error::Fenced(_))));
}

/// The broker may have read the request before, and act on it once the next step has begun: only a new
/// producer, which has another epoch, is safe from that.
#[test]
fn a_connection_that_the_broker_closes_in_a_step_ends_its_producer() {
    let (cluster, _shared, mut worker) = start();
    let closed = RDKafkaRespErr::RD_KAFKA_RESP_ERR__TRANSPORT;
    for call in [
        RDKafkaApiKey::AddPartitionsToTxn,
        RDKafkaApiKey::AddOffsetsToTxn,
        RDKafkaApiKey::TxnOffsetCommit,
        RDKafkaApiKey::EndTxn,
    ] {
        cluster.request_errors(call, &[closed]);
        commit(&mut worker, 1).unwrap();
        assert!(!worker.producer.is_usable(), "{call:?}");
        let started = Instant::now();
        while !worker.producer.is_usable() {
            commit(&mut worker, 2).unwrap();
            assert!(started.elapsed() < TIMEOUT, "no other producer was opened");
        }
    }
}
