//! Two workers of one name, a group that fences a member or loses its positions, and connections that the
//! broker closes.

use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use runtime::{Clock, SystemClock};
use schemas::Topic;

use super::*;
use crate::kafka::client::settings;
use crate::kafka::shared::tests::{Mock, mock};
use crate::{Assigned, Committed, Offset};

/// Deadline of a wait: far longer than any rebalance takes.
const TIMEOUT: Duration = Duration::from_secs(60);
const INPUT: TopicPartition = TopicPartition { topic: Topic::Orders, partition: Partition(0) };
const OUTPUT: TopicPartition = TopicPartition { topic: Topic::Alerts, partition: Partition(0) };
const TOPICS: [Topic; 2] = [INPUT.topic, OUTPUT.topic];

fn worker(shared: &Arc<Shared>) -> KafkaWorker {
    let (member, topics) = ("a".to_owned(), vec![INPUT.topic]);
    let spec = WorkerSpec { group: "g", member, topics, batch_max: 1 };
    KafkaWorker::new(shared.clone(), spec).unwrap()
}

/// Polls until an event or an error satisfies `is_it`, and returns all events before but [`Event::Idle`].
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
    let (cluster, shared) = mock(&TOPICS);
    let mut worker = worker(&shared);
    poll_until(&mut worker, |_, polled| matches!(polled, Ok(Event::Assigned(_))));
    (cluster, shared, worker)
}

fn commit(worker: &mut KafkaWorker, n: i64) -> Result<(), StepError> {
    let committed = Committed { offset: Offset(n), metadata: n.to_string() };
    let headers = schemas::Headers::default();
    let record = NewRecord { to: OUTPUT, key: Vec::new(), value: None, headers };
    worker.commit(Step { records: vec![record], offsets: vec![(INPUT, committed)] })
}

fn fence(cluster: &Mock) {
    let fenced = RDKafkaRespErr::RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID;
    cluster.request_errors(RDKafkaApiKey::Heartbeat, &[fenced]);
}

/// A broker that was restarted may know the member's name with an older member id than the member has.
#[test]
fn member_taken_for_its_predecessor_joins_again() {
    let (cluster, _shared, mut worker) = start();
    commit(&mut worker, 1).unwrap();
    fence(&cluster);
    let mut was_fenced = false;
    let events = poll_until(&mut worker, |worker, _| {
        was_fenced |= worker.membership.owner().is_none();
        was_fenced && worker.membership.owner().is_some()
    });
    // No other member worked on its partition: its state is still valid.
    assert_eq!(events, []);
    commit(&mut worker, 2).unwrap();
}

#[test]
fn fenced_member_gives_way_to_its_names_claimant() {
    let (cluster, shared, mut old) = start();
    let mut new = worker(&shared);
    new.join().unwrap();
    fence(&cluster);
    poll_until(&mut old, |_, polled| matches!(polled, Err(Error::Fenced(_))));
    assert!(matches!(commit(&mut old, 1), Err(StepError::Fenced(_))));
    assert!(matches!(old.poll(Duration::ZERO), Err(Error::Fenced(_))));
}

/// The broker may have received the request before the connection closed, and may execute it once the
/// next step has begun. Only a new producer, with another epoch, prevents that.
#[test]
fn connection_closed_in_a_step_ends_its_producer() {
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

/// Appends a record of two days ago.
fn append_old(shared: &Shared) {
    let producer: BaseProducer = settings::producer(&shared.config).create().unwrap();
    let millis = SystemClock.now().0 / 1000 - 2 * 24 * 3600 * 1000;
    let record = BaseRecord::<(), [u8]>::to(INPUT.topic.name()).partition(0).payload(b"old");
    producer.send(record.timestamp(millis)).unwrap();
    producer.flush(TIMEOUT).unwrap();
}

/// Polls until the worker returns a transient error with this reason.
fn poll_until_reported(worker: &mut KafkaWorker, reason: &str) {
    let waits = |_: &KafkaWorker, polled: &Result<Event, Error>| matches!(polled, Err(Error::Transient(cause)) if cause.to_string().contains(reason));
    assert_eq!(poll_until(worker, waits), []);
}

/// Ages the assignment by `waited`.
fn wait_since_assignment(worker: &mut KafkaWorker, waited: Duration) {
    let Membership::Joined(_, Ownership::Assigned { since, .. }) = &mut worker.membership else {
        panic!("nothing is assigned");
    };
    *since = Instant::now().checked_sub(waited).unwrap();
}

#[test]
fn vanished_position_ends_the_worker() {
    let (cluster, _shared, mut worker) = start();
    commit(&mut worker, 1).unwrap();
    // A group unknown to the broker, as after its offsets were deleted.
    worker.spec.group = "forgotten";
    fence(&cluster);
    poll_until_reported(&mut worker, "has no position in orders/0 any more");
    wait_since_assignment(&mut worker, adoption::MISSING_POSITION_TIMEOUT);
    poll_until(&mut worker, |_, polled| matches!(polled, Err(Error::Fatal(_))));
}

#[test]
fn group_without_a_position_skips_old_records() {
    let (_cluster, shared) = mock(&TOPICS);
    append_old(&shared);
    poll_until_reported(&mut worker(&shared), "has no position in orders/0 any more");
}

#[test]
fn old_records_of_a_once_owned_partition_are_read() {
    let (_cluster, shared, first) = start();
    drop(first);
    append_old(&shared);
    let mut second = worker(&shared);
    let is_read = |_: &KafkaWorker, polled: &Result<Event, Error>| matches!(polled, Ok(Event::Records(records)) if records[0].offset == Offset(0));
    let assigned = Assigned { partition: INPUT, committed: None };
    assert_eq!(poll_until(&mut second, is_read), [Event::Assigned(vec![assigned])]);
}

/// Another member may work on lost partitions while this one waits for the broker's response.
#[test]
fn lost_partitions_are_reported_before_adoption() {
    let (cluster, _shared, mut worker) = start();
    let unstable = RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNSTABLE_OFFSET_COMMIT;
    cluster.request_errors(RDKafkaApiKey::OffsetFetch, &[unstable; 1000]);
    worker.assign(vec![OUTPUT]);
    assert_eq!(worker.poll(Duration::ZERO).unwrap(), Event::Revoked(vec![INPUT]));
    poll_until_reported(&mut worker, "a transaction with offsets may be open");
}

#[test]
fn an_open_transaction_is_waited_for_and_reported() {
    let (cluster, _shared, mut worker) = start();
    let unstable = RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNSTABLE_OFFSET_COMMIT;
    cluster.request_errors(RDKafkaApiKey::OffsetFetch, &[unstable; 1000]);
    let partitions = vec![INPUT];
    worker.membership.set_ownership(Ownership::Assigned { partitions, since: Instant::now() });
    poll_until_reported(&mut worker, "a transaction with offsets may be open");
    cluster.clear_request_errors(RDKafkaApiKey::OffsetFetch);
    poll_until(&mut worker, |worker, _| worker.membership.owner().is_some());
}
