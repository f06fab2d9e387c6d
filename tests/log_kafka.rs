//! Tests of the Kafka log alone: creation of topics, broker restarts, passwords.

#![expect(clippy::unwrap_used, reason = "this file is tests from end to end")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use log::config::{KafkaConfig, KafkaSecurity, SecurityProtocol};
use log::kafka::admin::{self, Difference};
use log::kafka::{KafkaLog, StepObserver, StepPoint};
use log::{
    Error, Event, LayeredLog, Log, LogLayer, NewRecord, Offset, Step, StepError, TopicPartition,
    WorkerSpec,
};
use schemas::{Blockchain, Layout, Partition, Secret, Topic};
use testkit::harness::free_port;
use testkit::log_suite::{LAYOUT, on_kafka};
use testkit::process::given_path;
use testkit::restarts::{self, numbers, record};
use testkit::wait_until;
use xtask::kafka;

const POLL: Duration = Duration::from_millis(50);

struct Unchanged;

impl LogLayer for Unchanged {}

const fn at(topic: Topic, partition: u32) -> TopicPartition {
    TopicPartition { topic, partition: Partition(partition) }
}

fn produce(log: &dyn Log, records: Vec<NewRecord>) -> Result<(), Error> {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(log.produce(records))
}

fn kafka_lib() -> PathBuf {
    given_path("TIDEMARK_TEST_KAFKA_LIB")
}

#[test]
fn topics_are_made_corrected_and_checked() {
    let config = on_kafka::config(&on_kafka::brokers());
    let missing = admin::check_topics(&config, &LAYOUT).unwrap();
    assert_eq!(missing.len(), Topic::ALL.len());
    assert!(missing.iter().all(|found| matches!(found, Difference::Missing { .. })), "{missing:?}");
    let made = admin::create_topics(&config, &LAYOUT).unwrap();
    assert_eq!(made.len(), Topic::ALL.len());
    let name = format!("{}orders", config.prefix);
    assert!(made.contains(&format!("created {name} with 4 partitions")));
    assert_eq!(admin::check_topics(&config, &LAYOUT).unwrap(), []);
    assert_eq!(admin::create_topics(&config, &LAYOUT).unwrap(), [""; 0]);

    // One of our settings was changed, and another one added.
    let changes = [("retention.ms", "1000".to_owned()), ("flush.messages", "7".to_owned())];
    admin::alter_topic(&config, &LAYOUT, Topic::Orders, &changes).unwrap();
    let line = format!("retention.ms of {name} is 1000 instead of 7862400000");
    let [changed] = admin::check_topics(&config, &LAYOUT).unwrap().try_into().unwrap();
    assert_eq!(changed.to_string(), line);
    let corrected = admin::create_topics(&config, &LAYOUT).unwrap();
    assert_eq!(corrected, [format!("set retention.ms of {name} to 7862400000")]);
    assert_eq!(admin::check_topics(&config, &LAYOUT).unwrap(), []);

    // Another layout than the topics': writes are refused, as ids depend on it.
    let other = Layout { orders: 8, ..LAYOUT };
    let found = admin::check_topics(&config, &other).unwrap();
    let partitions = Difference::Partitions { topic: name, actual: 4, wanted: 8 };
    assert!(found.contains(&partitions), "{found:?}");
    for other in [other, Layout { lanes: LAYOUT.lanes + 1, ..LAYOUT }] {
        let refusal = admin::create_topics(&config, &other).unwrap_err().to_string();
        assert!(refusal.contains("nothing was changed"), "{refusal}");
    }
    assert_eq!(admin::check_topics(&config, &LAYOUT).unwrap(), []);
    let log = KafkaLog::open(&config, other).unwrap();
    let outcome = produce(&log, vec![record(at(Topic::Orders, 7), 0)]);
    assert!(
        matches!(&outcome, Err(Error::Fatal(cause)) if cause.to_string().contains("partitions"))
    );
    let mut worker = log.worker(member("a", vec![Topic::Orders])).unwrap();
    wait_until("the worker fails for good", || match worker.poll(POLL) {
        Ok(_) => false,
        Err(error) => matches!(error, Error::Fatal(_)) || panic!("{error}"),
    });
    drop(worker);
    admin::delete_topics(&config, &LAYOUT, &Topic::ALL).unwrap();
}

/// The topics are those of an old version with one chain less. With one lane less, this version has the same number of
/// lane partitions, so it can open them. Records keep their partitions, and groups their positions.
#[test]
fn chains_are_added_at_the_end() {
    let config = on_kafka::config(&on_kafka::brokers());
    let chains = Blockchain::ALL.len() as u32;
    let (now, before) =
        (Layout { lanes: chains, ..LAYOUT }, Layout { lanes: chains - 1, ..LAYOUT });
    admin::create_for_chains(&config, &now, chains - 1).unwrap();
    let (old_end, end) = (chains * (chains - 1), chains * chains);
    let inputs = vec![Topic::TransfersRaw, Topic::DepositsCommands];
    let (first, last) = (at(Topic::TransfersRaw, 0), at(Topic::TransfersRaw, old_end - 1));
    let output = at(Topic::Deposits, old_end - 1);
    let log = KafkaLog::open(&config, before).unwrap();
    produce(&log, vec![record(first, 1), record(last, 2)]).unwrap();
    let mut worker = log.worker(member("a", inputs.clone())).unwrap();
    let mut taken = Vec::new();
    wait_until("both records are taken", || {
        if let Event::Records(records) = worker.poll(POLL).unwrap() {
            let output = |input: &Arc<log::Record>| record(output, input.from.partition.0 as usize);
            let outputs = records.iter().map(output).collect();
            let mut step = Step { records: outputs, offsets: Vec::new() };
            records.iter().for_each(|input| step.take(input));
            worker.commit(step).unwrap();
            taken.extend(records.iter().map(|input| input.from));
        }
        taken.len() == 2
    });
    drop(worker);

    // With another number of lanes most records are in wrong partitions.
    let found = admin::check_topics(&config, &Layout { lanes: chains + 1, ..LAYOUT }).unwrap();
    let is_wrong = |found: &Difference| matches!(found, Difference::Partitions { .. });
    assert!(found.iter().any(is_wrong), "{found:?}");

    let found = admin::check_topics(&config, &now).unwrap();
    let is_lacking = |found: &Difference| matches!(found, Difference::Chains { .. });
    assert!(found.iter().all(is_lacking), "{found:?}");
    let by_chain = |topic: &&Topic| topic.partitions(&now) > topic.partitions_for(chains - 1, &now);
    let count = Topic::ALL.iter().filter(by_chain).count();
    assert_eq!(found.len(), count, "{found:?}");
    let changes = admin::create_topics(&config, &now).unwrap();
    assert_eq!(changes.len(), count);
    for (topic, now, before) in [("transfers.raw", end, old_end), ("chains", chains, chains - 1)] {
        let prefix = &config.prefix;
        let line = format!("added partitions to {prefix}{topic}: {now} instead of {before}");
        assert!(changes.contains(&line), "{changes:?}");
    }
    assert_eq!(admin::check_topics(&config, &now).unwrap(), []);
    assert_eq!(admin::create_topics(&config, &now).unwrap(), [""; 0]);

    let log = KafkaLog::open(&config, now).unwrap();
    let new = at(Topic::TransfersRaw, end - 1);
    produce(&log, vec![record(first, 3), record(new, 4)]).unwrap();
    assert_eq!((numbers(&log, first), numbers(&log, last)), (vec![1, 3], vec![2]));
    assert_eq!(numbers(&log, output).len(), 2);
    let mut worker = log.worker(member("a", inputs)).unwrap();
    let (mut assigned, mut read) = (Vec::new(), Vec::new());
    wait_until("the new records are read", || {
        match worker.poll(POLL).unwrap() {
            Event::Assigned(more) => assigned.extend(more),
            Event::Records(records) => read.extend(records.iter().map(|input| input.from)),
            Event::Revoked(_) | Event::Idle => {}
        }
        read.len() == 2
    });
    read.sort_unstable();
    assert_eq!(read, [first, new], "and none again");
    assert_eq!(assigned.len(), 128);
    let known = assigned.iter().filter(|one| one.committed.is_some()).map(|one| one.partition);
    assert_eq!(known.collect::<std::collections::BTreeSet<_>>(), [first, last].into());
    drop(worker);
    admin::delete_topics(&config, &now, &Topic::ALL).unwrap();
}

/// A permanent failure that is retried would block its partition for ever.
#[test]
fn a_record_too_large_fails_for_good() {
    let config = on_kafka::config(&on_kafka::brokers());
    let topics = [Topic::OrdersCommands, Topic::Orders, Topic::TransfersRaw];
    admin::create_some(&config, &LAYOUT, &topics).unwrap();
    let log = KafkaLog::open(&config, LAYOUT).unwrap();
    let (input, output) = (at(Topic::OrdersCommands, 0), at(Topic::Orders, 0));
    let huge = NewRecord { value: Some(vec![7; 8 * 1024 * 1024]), ..record(output, 0) };
    let is_fatal = |outcome: Result<(), StepError>| {
        let text = outcome.unwrap_err().to_string();
        assert!(text.contains("failed") && text.contains("too large"), "{text}");
    };
    assert!(matches!(produce(&log, vec![huge.clone()]), Err(Error::Fatal(_))));
    is_fatal(log.writer("steps").unwrap().commit(vec![record(output, 0), huge.clone()]));
    let mut worker = log.worker(member("a", vec![input.topic])).unwrap();
    wait_until("partitions are assigned", || matches!(worker.poll(POLL), Ok(Event::Assigned(_))));
    is_fatal(worker.commit(Step { records: vec![record(output, 0), huge], offsets: vec![] }));
    assert_eq!(numbers(&log, output), [0; 0]);
    drop(worker);
    admin::delete_topics(&config, &LAYOUT, &topics).unwrap();
}

/// A replay takes the ends of several partitions: a record past one would lack its counterpart in another.
#[test]
fn no_record_is_read_past_a_known_end() {
    let config = on_kafka::config(&on_kafka::brokers());
    let topics = [Topic::Orders, Topic::TransfersRaw];
    admin::create_some(&config, &LAYOUT, &topics).unwrap();
    let log = KafkaLog::open(&config, LAYOUT).unwrap();
    let output = at(Topic::Orders, 0);
    let mut writer = log.writer("steps").unwrap();
    writer.commit(vec![record(output, 0), record(output, 1)]).unwrap();
    let end = log.stable_end(output).unwrap();
    writer.commit(vec![record(output, 2)]).unwrap();
    assert_eq!(numbers(&log, output), [0, 1, 2]);
    let offsets = |from: Offset| {
        let page = log.read_before(output, from..end, 10).unwrap();
        page.iter().map(|record| record.offset).collect::<Vec<_>>()
    };
    assert_eq!(offsets(Offset(0)), [Offset(0), Offset(1)]);
    // Only the marker of a transaction is left.
    assert_eq!(offsets(Offset(2)), []);
    let (mut fetched, mut next) = (Vec::new(), Offset(0));
    while next < end {
        let page = log.fetch_before(output, next..end).unwrap();
        next = page.last().map_or(end, |last| last.offset.next());
        fetched.extend(page.iter().map(|record| record.offset));
    }
    assert_eq!(fetched, [Offset(0), Offset(1)]);
    admin::delete_topics(&config, &LAYOUT, &topics).unwrap();
}

/// The broker expires the claim of a writer without steps for a week. The writer is not fenced: it continues with a new
/// producer, as its transactional id has expired too.
#[test]
fn a_writer_whose_claim_expired_continues() {
    let config = on_kafka::config(&on_kafka::brokers());
    let topics = [Topic::Orders, Topic::TransfersRaw];
    admin::create_some(&config, &LAYOUT, &topics).unwrap();
    let log = KafkaLog::open(&config, LAYOUT).unwrap();
    let output = at(Topic::Orders, 0);
    let mut writer = log.writer("steps").unwrap();
    writer.commit(vec![record(output, 0)]).unwrap();
    // The start of a second writer makes the first one's producer unusable.
    drop(log.writer("steps").unwrap());
    admin::delete_group(&config, &LAYOUT, "steps.claim").unwrap();
    let outcome = writer.commit(vec![record(output, 1)]);
    assert!(matches!(outcome, Err(StepError::Aborted(_))), "{outcome:?}");
    writer.commit(vec![record(output, 2)]).unwrap();
    assert_eq!(numbers(&log, output), [0, 2]);

    // The claim exists again: a second writer that takes it fences the first.
    let mut second = log.writer("steps").unwrap();
    let outcome = writer.commit(vec![record(output, 3)]);
    assert!(matches!(outcome, Err(StepError::Fenced(_))), "{outcome:?}");
    second.commit(vec![record(output, 4)]).unwrap();
    assert_eq!(numbers(&log, output), [0, 2, 4]);
    admin::delete_topics(&config, &LAYOUT, &topics).unwrap();
}

/// Records points that steps pass.
#[derive(Debug, Default)]
struct Course(Mutex<Vec<StepPoint>>);

impl StepObserver for Course {
    fn reached(&self, point: StepPoint) {
        self.0.lock().unwrap().push(point);
    }
}

impl Course {
    fn take(&self) -> Vec<StepPoint> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

#[test]
fn long_steps_are_written_ahead() {
    use StepPoint::{AfterAbort, AfterBegin, AfterSend, BeforeAbort, BeforeBegin, BeforeSend};
    let config = on_kafka::config(&on_kafka::brokers());
    let topics = [Topic::OrdersCommands, Topic::Orders, Topic::TransfersRaw];
    admin::create_some(&config, &LAYOUT, &topics).unwrap();
    let course = Arc::new(Course::default());
    let log = KafkaLog::open(&config, LAYOUT).unwrap().with_observer(course.clone());
    let output = at(Topic::Orders, 0);
    let mut worker = log.worker(member("a", vec![Topic::OrdersCommands])).unwrap();
    wait_until("partitions are assigned", || {
        matches!(worker.poll(POLL).unwrap(), Event::Assigned(_))
    });
    course.take();
    let mut ahead = vec![record(output, 0)];
    worker.write_ahead(&mut ahead);
    assert_eq!(ahead, []);
    assert_eq!(course.take(), [BeforeBegin, AfterBegin, BeforeSend, AfterSend]);
    ahead.push(record(output, 1));
    worker.write_ahead(&mut ahead);
    assert_eq!(ahead, []);
    assert_eq!(course.take(), [BeforeSend, AfterSend]);
    worker.commit(Step { records: vec![record(output, 2)], offsets: Vec::new() }).unwrap();
    assert!(!course.take().contains(&BeforeBegin), "the step is one transaction");
    assert_eq!(numbers(&log, output), [0, 1, 2]);

    worker.write_ahead(&mut vec![record(output, 3)]);
    // Through a layer, too, `read_ended` must not wait for the open transaction as `read` does.
    let layered = LayeredLog::new(Arc::new(log.clone()), Unchanged);
    assert_eq!(layered.read_ended(output, Offset(0), 10).unwrap().len(), 3);
    // An unfinished step is aborted at once: otherwise `read_committed` readers would wait for it.
    drop(worker);
    assert!(course.take().ends_with(&[BeforeAbort, AfterAbort]));
    produce(&log, vec![record(output, 4)]).unwrap();
    assert_eq!(numbers(&log, output), [0, 1, 2, 4]);
    admin::delete_topics(&config, &LAYOUT, &topics).unwrap();
}

fn member(name: &str, topics: Vec<Topic>) -> WorkerSpec {
    WorkerSpec { group: "checks", member: name.to_owned(), topics, batch_max: 20 }
}

/// A broker is killed and restarted during steps. Each step is on the log exactly once.
#[test]
fn restarted_brokers_have_every_step() {
    let outcome = restarts::run(&kafka_lib(), 4, |_, _| {});
    assert_eq!(outcome.failures, Vec::<String>::new(), "{outcome:?}");
    assert_eq!(outcome.fenced, 0, "nobody else claimed the name: {outcome:?}");
}

/// The user of the broker in the next test.
const USER: &str = "tidemark";
const PASSWORD: &str = "correct-horse";

/// A self-signed certificate for 127.0.0.1: the keystore of the broker, and PEM for its clients.
fn certificate(dir: &Path) -> (PathBuf, PathBuf) {
    let (store, pem) = (dir.join("broker.p12"), dir.join("ca.pem"));
    let keytool = |arguments: &[&str]| {
        let output = Command::new("keytool")
            .args(arguments)
            .args(["-alias", "broker", "-storetype", "PKCS12", "-storepass", "changeit"])
            .arg("-keystore")
            .arg(&store)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        output.stdout
    };
    let subject = ["-dname", "CN=127.0.0.1", "-ext", "san=ip:127.0.0.1", "-validity", "30"];
    keytool(&[&["-genkeypair", "-keyalg", "RSA", "-keysize", "2048"], &subject[..]].concat());
    std::fs::write(&pem, keytool(&["-exportcert", "-rfc"])).unwrap();
    (store, pem)
}

#[test]
fn tls_and_passwords_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    let (store, ca_file) = certificate(dir.path());
    let port = free_port();
    let properties = format!(
        "listeners=PLAINTEXT://127.0.0.1:{{port}},CONTROLLER://127.0.0.1:{{controller}},\
         SASL_SSL://127.0.0.1:{port}\n\
         advertised.listeners=PLAINTEXT://127.0.0.1:{{port}},SASL_SSL://127.0.0.1:{port}\n\
         ssl.keystore.location={}\nssl.keystore.type=PKCS12\nssl.keystore.password=changeit\n\
         sasl.enabled.mechanisms=SCRAM-SHA-256\n\
         listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config=\
         org.apache.kafka.common.security.scram.ScramLoginModule required;\n",
        store.display()
    );
    let user = format!("SCRAM-SHA-256=[name={USER},password={PASSWORD}]");
    let arguments = ["--add-scram", user.as_str()];
    let started = kafka::start_formatted(&kafka_lib(), dir.path(), &properties, &arguments);
    let _broker = started.unwrap();
    let with_password = |password: &str| KafkaConfig {
        security: KafkaSecurity {
            protocol: SecurityProtocol::SaslSsl,
            mechanism: Some("SCRAM-SHA-256".to_owned()),
            username: Some(USER.to_owned()),
            password: Some(Secret::new(password)),
            ca_file: Some(ca_file.clone()),
            ..KafkaSecurity::default()
        },
        ..on_kafka::config(&format!("127.0.0.1:{port}"))
    };
    let config = with_password(PASSWORD);
    admin::create_some(&config, &LAYOUT, &[Topic::Orders, Topic::TransfersRaw]).unwrap();
    let log = KafkaLog::open(&config, LAYOUT).unwrap();
    let of = at(Topic::Orders, 0);
    produce(&log, vec![record(of, 0)]).unwrap();
    log.writer("steps").unwrap().commit(vec![record(of, 1)]).unwrap();
    assert_eq!(numbers(&log, of), [0, 1]);

    let wrong = "battery-staple";
    let log =
        KafkaLog::open(&KafkaConfig { prefix: config.prefix, ..with_password(wrong) }, LAYOUT);
    let error = produce(&log.unwrap(), vec![record(of, 2)]).unwrap_err();
    assert!(matches!(error, Error::Transient(_)), "{error}");
    let text = error.to_string();
    assert!(text.to_lowercase().contains("authentication"), "{text}");
    assert!(!text.contains(wrong), "{text}");

    let security = KafkaSecurity {
        ca_file: Some(dir.path().join("missing.pem")),
        ..with_password(PASSWORD).security
    };
    let outcome = KafkaLog::open(&KafkaConfig { security, ..with_password(PASSWORD) }, LAYOUT);
    assert!(matches!(outcome, Err(Error::Fatal(_))), "{outcome:?}");
}
