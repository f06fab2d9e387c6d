//! Two holders that claim one name while the broker of their transactions is away.

use std::thread;

use rdkafka::consumer::Consumer;
use rdkafka::mocking::{MockCluster, MockCoordinator};

use super::*;
use crate::config::KafkaConfig;
use crate::kafka::client::context::PlainContext;
use crate::kafka::client::{PlainConsumer, open, settings};
use crate::kafka::shared::tests::{Mock, on_mock};

/// Deadline of a request: far longer than a broker takes to be found again.
const PATIENCE: Duration = Duration::from_secs(60);
const NAME: &str = "steps";
/// The broker of the transactions. The other one has the claims.
const SECOND: i32 = 2;

fn start() -> (Mock, Arc<Shared>) {
    let cluster = MockCluster::new(2).unwrap();
    let claims = MockCoordinator::Group(format!("{NAME}.claim"));
    cluster.coordinator(claims, 1).unwrap();
    cluster.coordinator(MockCoordinator::Transaction(NAME.to_owned()), SECOND).unwrap();
    let shared = on_mock(&cluster);
    let config = KafkaConfig { transaction_timeout: PATIENCE, ..shared.config.clone() };
    let shared = Arc::new(Shared::new(&config, shared.layout).unwrap());
    let partitions = CLAIMS.topic.partitions(&shared.layout);
    cluster.create_topic(CLAIMS.topic.name(), partitions.try_into().unwrap(), 1).unwrap();
    shared.verify([CLAIMS]).unwrap();
    (cluster, shared)
}

/// The mark of the name's holder; empty if it has none.
fn mark(shared: &Shared) -> String {
    let settings = settings::claim(&shared.config, &format!("{NAME}.claim"));
    let client: PlainConsumer = open(&settings, PlainContext::default()).unwrap();
    let list = shared.names.list([(CLAIMS, rdkafka::Offset::Invalid)]).unwrap();
    let found = client.committed_offsets(list, PATIENCE).unwrap();
    found.elements()[0].metadata().to_owned()
}

/// Has another holder claim the name after `older`, before the producer of `older` starts.
fn claim_between<T: Send>(
    (cluster, shared): &(Mock, Arc<Shared>),
    older: impl FnOnce() -> T + Send,
) -> T {
    let before = mark(shared);
    cluster.broker_down(SECOND).unwrap();
    thread::scope(|scope| {
        let older = scope.spawn(older);
        let started = Instant::now();
        while mark(shared) == before {
            assert!(started.elapsed() < PATIENCE, "the older one did not claim the name");
        }
        Claim::new(NAME, CLAIMS).hold(shared).unwrap();
        cluster.broker_up(SECOND).unwrap();
        older.join().unwrap()
    })
}

#[test]
fn of_two_writers_that_open_the_older_gives_way() {
    let world = start();
    let opened = claim_between(&world, || KafkaWriter::open(world.1.clone(), NAME).map(drop));
    assert!(matches!(opened, Err(Error::Fenced(_))), "{opened:?}");
}

#[test]
fn a_name_lost_while_a_producer_starts_is_lost() {
    let world = start();
    let mut writer = KafkaWriter::open(world.1.clone(), NAME).unwrap();
    writer.producer.close();
    // An expired claim: it is taken anew.
    writer.claim = Claim::new(NAME, CLAIMS);
    let renewed = claim_between(&world, || writer.renew());
    assert!(matches!(renewed, Err(Error::Fenced(_))), "{renewed:?}");
    assert!(!writer.producer.is_usable());
}
