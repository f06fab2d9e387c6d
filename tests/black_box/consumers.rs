//! Clients in other languages with third-party libraries (`tests/clients`) read every topic, book payments while they
//! are killed, and write `transfers.raw`.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use log::config::KafkaConfig;
use log::kafka::KafkaLog;
use log::{Log, NewRecord, Offset, StageContext, TopicPartition};
use runtime::SystemClock;
use schemas::record::{Transfer, example};
use schemas::{
    Address, Amount, Blockchain, Headers, Layout, Partition, Topic, TransferId, decode_json,
};
use serde_json::{Value, json};
use testkit::harness::{Installation, LAYOUT, eventually};
use testkit::log_suite::on_kafka;
use testkit::process::{Killed, given, text};
use testkit::repository;
use tokio_util::sync::CancellationToken;

/// Records as clients print them, by topic, partition and offset.
type Read = BTreeMap<(String, u64, u64), Value>;

fn client(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients").join(path)
}

fn python() -> Command {
    let mut command = Command::new(given("TIDEMARK_TEST_PYTHON"));
    command.arg(client("python/client.py")).env("PYTHONWARNINGS", "ignore");
    command
}

fn node() -> Command {
    let mut command = Command::new("node");
    command.arg(client("node/client.js"));
    command.env("NODE_PATH", given("TIDEMARK_TEST_NODE_MODULES"));
    command
}

fn java() -> Command {
    let lib = |name| format!("{}/*", given(name));
    let jars = format!("{}:{}", lib("TIDEMARK_TEST_AVRO_LIB"), lib("TIDEMARK_TEST_KAFKA_LIB"));
    crate::java::java(&client("java/Client.java"), &jars)
}

/// Runs a client to its end and returns the lines that it printed.
fn run(mut command: Command, arguments: &[String], input: &str) -> Vec<String> {
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    let writing = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{command:?} {arguments:?}: {}", text(&output));
    writing.join().unwrap().unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

fn strings<const N: usize>(arguments: [&str; N]) -> Vec<String> {
    arguments.map(str::to_owned).into()
}

fn read(lines: Vec<String>) -> Read {
    let mut read = Read::new();
    for line in lines {
        let mut record: Value = serde_json::from_str(&line).unwrap();
        let value = record["value"].take();
        let number = |name: &str| record[name].as_u64().unwrap();
        let topic = record["topic"].as_str().unwrap().to_owned();
        let position = (topic, number("partition"), number("offset"));
        let seen = read.insert(position, json!({ "key": record["key"], "value": value }));
        assert_eq!(seen, None, "read twice: {line}");
    }
    read
}

/// The topics of an installation, its API with the registry, and the log by our own code.
struct Fixture {
    config: KafkaConfig,
    registry: String,
    log: Arc<dyn Log>,
    kafka: KafkaLog,
    installation: Installation,
    _dir: tempfile::TempDir,
    _api: testkit::harness::Member,
}

impl Fixture {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let installation = Installation::new(dir.path(), &[], "", "");
        installation.provide();
        let mut api = installation.start("api-1", "api");
        api.ready().await;
        let config = on_kafka::config(&on_kafka::brokers());
        let config = KafkaConfig { prefix: installation.prefix(), ..config };
        let kafka = KafkaLog::open(&config, LAYOUT).unwrap();
        let registry = format!("{}/registry", installation.api());
        let log = Arc::new(kafka.clone());
        Self { config, registry, log, kafka, installation, _dir: dir, _api: api }
    }

    fn topic(&self, topic: Topic) -> String {
        format!("{}{topic}", self.config.prefix)
    }

    fn topics(&self) -> Vec<String> {
        Topic::ALL.iter().map(|topic| self.topic(*topic)).collect()
    }

    /// Every example of each topic's record.
    fn examples(&self) -> Vec<NewRecord> {
        let mut records = Vec::new();
        for topic in Topic::ALL {
            let to = TopicPartition { topic, partition: Partition(0) };
            let schema = topic.spec().schema;
            for (_, value) in example::values().unwrap().into_iter().filter(|(s, _)| *s == schema) {
                let headers = Headers::default();
                let key = b"example".to_vec();
                records.push(NewRecord { to, key, value: Some(value), headers });
            }
        }
        records
    }

    /// Reads all topics with our own code: the records of each as JSON.
    fn expected(&self) -> (Read, Vec<String>) {
        let (mut read, mut lines) = (Read::new(), Vec::new());
        for topic in Topic::ALL {
            for partition in topic.all_partitions(&self.log.layout()) {
                let of = TopicPartition { topic, partition };
                for record in self.log.read(of, Offset(0), 1000).unwrap() {
                    let bytes = record.value.as_deref().unwrap();
                    let value = decode_json(topic.spec().schema, bytes).unwrap();
                    let key = String::from_utf8(record.key.clone()).unwrap();
                    let (name, offset) = (self.topic(topic), record.offset.0 as u64);
                    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                    lines.push(format!("{name} {partition} {offset} {key} {hex}"));
                    let position = (name, u64::from(partition.0), offset);
                    read.insert(position, json!({ "key": key, "value": value }));
                }
            }
        }
        (read, lines)
    }

    fn check_readers(&self) {
        let mut writer = self.log.writer("examples").unwrap();
        // The first attempt is aborted: readers must not see it, though it is in the topics.
        self.kafka.fail_next_commit();
        writer.commit(self.examples()).unwrap_err();
        writer.commit(self.examples()).unwrap();
        let (expected, lines) = self.expected();
        assert_eq!(expected.len(), self.examples().len());

        let (brokers, count) = (&self.config.brokers, expected.len().to_string());
        for (language, command) in [("Python", python()), ("Java", java())] {
            let group = format!("{}{language}", self.config.prefix);
            let mut arguments = strings(["read", brokers, &self.registry, &group, &count]);
            arguments.extend(self.topics());
            assert_same(language, &expected, &read(run(command, &arguments, "")));
        }

        let input = lines.join("\n") + "\n";
        let printed = run(node(), &strings(["read", &self.registry]), &input);
        assert_same("Node", &expected, &read(printed));

        for topic in
            [Topic::TransfersRaw, Topic::Orders, Topic::OrdersChangelog, Topic::DeadLetters]
        {
            let output = self.installation.errand(&["tail", topic.name(), "--until-end"]);
            assert!(output.status.success(), "{}", text(&output));
            let lines = String::from_utf8(output.stdout).unwrap();
            let printed = read(lines.lines().map(str::to_owned).collect());
            let here = |((name, ..), _): &(&(String, u64, u64), &Value)| *name == self.topic(topic);
            let expected = expected.iter().filter(here).map(|((_, partition, offset), record)| {
                ((topic.to_string(), *partition, *offset), record.clone())
            });
            assert_same("tail", &expected.collect(), &printed);
        }
    }

    /// Payments with these ids on `transfers.matched`, in one partition, each followed by a non-payment.
    fn publish_payments(&self, ids: std::ops::RangeInclusive<i64>) {
        let to = TopicPartition { topic: Topic::TransfersMatched, partition: Partition(0) };
        let record = |value| NewRecord {
            to,
            key: b"wallet".to_vec(),
            value: Some(value),
            headers: [].into_iter().collect(),
        };
        let payment = |id| {
            let transfer = Transfer { transfer_id: TransferId(id), ..example::transfer() };
            [record(schemas::encode(&transfer).unwrap()), record(b"none".to_vec())]
        };
        self.log.writer("payments").unwrap().commit(ids.flat_map(payment).collect()).unwrap();
    }

    /// Each client writes a block with a transfer; matching must take them.
    async fn check_writers(&self) {
        let topic = self.topic(Topic::TransfersRaw);
        let (brokers, registry) = (&self.config.brokers, &self.registry);
        let lanes = self.log.layout().lanes.to_string();
        let id = |language: &str| format!("{}ingest-{language}", self.config.prefix);
        let arguments =
            |language| strings(["write", brokers, registry, &topic, &id(language), &lanes]);
        run(python(), &arguments("python"), "");
        run(java(), &arguments("java"), "");
        let subject = format!("{topic}-value");
        let lines = run(node(), &strings(["write", registry, &subject, &lanes]), "");
        let records: Vec<_> = lines.iter().map(|line| printed_record(line)).collect();
        self.log.writer("node").unwrap().commit(records).unwrap();

        let stop = CancellationToken::new();
        let matching = {
            let context = StageContext {
                log: self.log.clone(),
                clock: Arc::new(SystemClock),
                member: "reader".to_owned(),
                handle: tokio::runtime::Handle::current(),
                stop: stop.clone(),
            };
            std::thread::spawn(move || processor::run_matching(&context))
        };
        for (blockchain, wallet, value, token) in [
            (Blockchain::Polygon, 0x11, "12.34", "USDT"),
            (Blockchain::Arb, 0x33, "0.000000000000000003", "DAI"),
            (Blockchain::Base, 0x22, "200.000001", "USDC"),
        ] {
            let wallet = Address::new(blockchain.address_family(), [wallet; 20]);
            for topic in [Topic::TransfersDetected, Topic::TransfersConfirmed] {
                let partition = self.log.layout().lane(blockchain, &wallet);
                let of = TopicPartition { topic, partition };
                let what = format!("{topic} of {blockchain}");
                let found = eventually(&what, || async move {
                    let records = self.log.read(of, Offset(0), 1000).unwrap();
                    let value = |record: &Arc<log::Record>| {
                        schemas::decode::<Transfer>(record.value.as_deref()?).ok()
                    };
                    records.iter().filter_map(value).find(|t| t.blockchain == blockchain)
                })
                .await;
                assert_eq!(found.observation.to_address, wallet);
                assert_eq!(found.observation.value, Amount::parse(value).unwrap());
                assert_eq!(found.observation.stablecoin.as_str(), token);
                assert_eq!(found.blockchain_confirmed, topic == Topic::TransfersConfirmed);
            }
        }
        stop.cancel();
        matching.join().unwrap().unwrap();
    }
}

/// The recipe that books payments, paused between the read and the booking of each record, and killed on drop.
struct Booking {
    _child: Killed,
    stdin: ChildStdin,
    lines: mpsc::Receiver<String>,
}

impl Booking {
    /// Runs the Python code of `docs/consume/reading.md` as the page has it. With `"lossy"` the client commits by its
    /// own timer.
    fn start(fixture: &Fixture, dir: &Path, mode: Option<&str>) -> Self {
        let page = repository::read("docs/consume/reading.md");
        let code =
            page.split("```python\n").skip(1).map(|part| part.split("```\n").next().unwrap());
        let recipe = dir.join("recipe.py");
        std::fs::write(&recipe, code.collect::<String>()).unwrap();
        let mut command = Command::new(given("TIDEMARK_TEST_PYTHON"));
        command.arg(client("python/booking.py")).arg(recipe).env("PYTHONWARNINGS", "ignore");
        command.args([&fixture.config.brokers, &fixture.registry]);
        command.arg(fixture.topic(Topic::TransfersMatched));
        command.arg(format!("{}booking", fixture.config.prefix)).arg(dir.join("payments.sqlite"));
        let mut child = command
            .args(mode)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let (sender, lines) = mpsc::channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            stdout.lines().map_while(Result::ok).try_for_each(|l| sender.send(l))
        });
        Self { stdin: child.stdin.take().unwrap(), _child: Killed(child), lines }
    }

    /// The payment that it reads next.
    fn read(&self) -> i64 {
        loop {
            let line = self.lines.recv_timeout(Duration::from_secs(120)).unwrap();
            if let Some(id) = line.strip_prefix("read ") {
                return id.parse().unwrap();
            }
        }
    }

    /// Lets it book the payment read.
    fn book(&mut self) {
        self.stdin.write_all(b"\n").unwrap();
        while !self.lines.recv_timeout(Duration::from_secs(120)).unwrap().starts_with("booked ") {}
    }
}

/// The ids that are booked.
fn booked(dir: &Path) -> Vec<i64> {
    let database = rusqlite::Connection::open(dir.join("payments.sqlite")).unwrap();
    let mut query = database.prepare("SELECT transfer_id FROM payment ORDER BY 1").unwrap();
    query.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

fn assert_same(language: &str, expected: &Read, read: &Read) {
    for (position, record) in expected {
        assert_eq!(read.get(position), Some(record), "{language} at {position:?}");
    }
    let more: Vec<_> = read.keys().filter(|position| !expected.contains_key(*position)).collect();
    assert!(more.is_empty(), "{language} read what is not committed: {more:?}");
}

/// A record of `transfers.raw` as the client for Node prints it.
fn printed_record(line: &str) -> NewRecord {
    let [partition, key, hex] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    let value = (0..hex.len()).step_by(2).map(byte).collect();
    let partition = Partition(partition.parse().unwrap());
    let to = TopicPartition { topic: Topic::TransfersRaw, partition };
    let headers = Headers::default();
    NewRecord { to, key: key.as_bytes().to_vec(), value: Some(value), headers }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_languages_read_every_topic() {
    let fixture = Fixture::start().await;
    tokio::task::block_in_place(|| fixture.check_readers());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_reader_loses_no_payment() {
    let (fixture, dir) = (Fixture::start().await, tempfile::tempdir().unwrap());
    tokio::task::block_in_place(|| {
        fixture.publish_payments(1..=6);
        for reads in [vec![1, 2, 3], vec![3], vec![3, 4], vec![4, 5, 6]] {
            let mut booking = Booking::start(&fixture, dir.path(), None);
            assert_eq!(booking.read(), reads[0]);
            for read in &reads[1..] {
                booking.book();
                assert_eq!(booking.read(), *read);
            }
        }
        assert_eq!(booked(dir.path()), [1, 2, 3, 4, 5]);
        let mut booking = Booking::start(&fixture, dir.path(), None);
        assert_eq!(booking.read(), 6);
        booking.book();
        assert_eq!(booked(dir.path()), [1, 2, 3, 4, 5, 6]);
    });
}

/// Control of the test above: with automatic commits the same kill loses a payment.
#[tokio::test(flavor = "multi_thread")]
async fn automatic_commits_lose_a_payment() {
    let (fixture, dir) = (Fixture::start().await, tempfile::tempdir().unwrap());
    tokio::task::block_in_place(|| {
        fixture.publish_payments(1..=3);
        assert_eq!(Booking::start(&fixture, dir.path(), Some("lossy")).read(), 1);
        assert_eq!(Booking::start(&fixture, dir.path(), None).read(), 2);
        assert_eq!(booked(dir.path()), [0; 0]);
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn matching_reads_other_languages() {
    Fixture::start().await.check_writers().await;
}

#[test]
fn other_languages_compute_lanes() {
    for (blockchain, byte, lanes) in
        [(Blockchain::Eth, 0x01, 1), (Blockchain::Polygon, 0x80, 7), (Blockchain::Tron, 0xfe, 64)]
    {
        let mut wallet = [byte; 20];
        wallet[19] = 0x9c;
        let hex: String = wallet.iter().map(|byte| format!("{byte:02x}")).collect();
        let address = Address::new(blockchain.address_family(), wallet);
        let layout = Layout { lanes, orders: 1, webhooks: 1 };
        let expected = layout.lane(blockchain, &address).to_string();
        let arguments = strings(["lane", blockchain.as_str(), &hex, &lanes.to_string()]);
        for command in [python(), node(), java()] {
            assert_eq!(run(command, &arguments, ""), [expected.as_str()], "{arguments:?}");
        }
    }
}
