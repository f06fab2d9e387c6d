//! Programs that are not ours, in other languages and with other people's libraries, read every topic
//! and write `transfers.raw`: `tests/clients`.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use log::config::KafkaConfig;
use log::kafka::KafkaLog;
use log::{Log, NewRecord, Offset, TopicPartition};
use runtime::config::Source;
use runtime::{Clock, SystemClock};
use schemas::record::{Transfer, example};
use schemas::{Address, Amount, Blockchain, CloudEvent, Partition, Topic, decode_json, lane};
use serde_json::{Value, json};
use testkit::harness::{Installation, eventually};
use tokio_util::sync::CancellationToken;

/// Records as clients print them, by place.
type Read = BTreeMap<(String, u64, u64), Value>;

fn variable(name: &str) -> String {
    std::env::var_os(name)
        .and_then(|value| value.into_string().ok())
        .unwrap_or_else(|| panic!("{name} is not set: run the tests by `cargo xtask test`"))
}

fn client(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients").join(path)
}

fn python() -> Command {
    let mut command = Command::new(variable("TIDEMARK_TEST_PYTHON"));
    command.arg(client("python/client.py")).env("PYTHONWARNINGS", "ignore");
    command
}

fn node() -> Command {
    let mut command = Command::new("node");
    command.arg(client("node/client.js"));
    command.env("NODE_PATH", variable("TIDEMARK_TEST_NODE_MODULES"));
    command
}

fn java() -> Command {
    let lib = |name| format!("{}/*", variable(name));
    let path = format!("{}:{}", lib("TIDEMARK_TEST_AVRO_LIB"), lib("TIDEMARK_TEST_KAFKA_LIB"));
    let mut command = Command::new("java");
    command.args(["-cp", &path]).arg(client("java/Client.java"));
    command
}

/// Runs a client to its end and gives the lines it printed.
fn run(mut command: Command, arguments: &[String], input: &str) -> Vec<String> {
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    let writing = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} {arguments:?}: {told}");
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
        let place = (topic, number("partition"), number("offset"));
        let seen = read.insert(place, json!({ "key": record["key"], "value": value }));
        assert_eq!(seen, None, "read twice: {line}");
    }
    read
}

/// The topics of an installation, its API with the registry, and the log as our own code has it.
struct Site {
    config: KafkaConfig,
    registry: String,
    log: Arc<dyn Log>,
    kafka: KafkaLog,
    installation: Installation,
    _dir: tempfile::TempDir,
    _api: testkit::harness::Member,
}

impl Site {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let installation = Installation::new(dir.path(), &[], "", "");
        installation.provide();
        let mut api = installation.start("api-1", "api");
        api.ready().await;
        let mut source = Source::load(Some(installation.file()));
        let log::Config { back_end, layout } = log::Config::read(source.section("log"));
        let log::config::BackEnd::Kafka(config) = back_end else { panic!("{back_end:?}") };
        let kafka = KafkaLog::open(&config, layout).unwrap();
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

    fn partitions(&self) -> usize {
        let layout = self.log.layout();
        Topic::ALL.iter().map(|topic| topic.partitions(&layout) as usize).sum()
    }

    /// Every example of each topic's record.
    fn examples(&self) -> Vec<NewRecord> {
        let mut records = Vec::new();
        for topic in Topic::ALL {
            let to = TopicPartition { topic, partition: Partition(0) };
            let event =
                CloudEvent { id: "example/1", time: "2026-09-21T14:13:32Z", traceparent: None };
            let schema = topic.spec().schema;
            for (_, value) in example::values().unwrap().into_iter().filter(|(s, _)| *s == schema) {
                let headers = event.headers(topic);
                let key = b"example".to_vec();
                records.push(NewRecord { to, key, value: Some(value), headers });
            }
        }
        records
    }

    /// What our own code reads of everything: each topic's records as JSON.
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
                    let place = (name, u64::from(partition.0), offset);
                    read.insert(place, json!({ "key": key, "value": value }));
                }
            }
        }
        (read, lines)
    }

    fn check_readers(&self) {
        let mut writer = self.log.writer("examples").unwrap();
        // The first attempt is taken back: readers must not see it, though it is in the topics.
        self.kafka.fail_next_commit();
        writer.commit(self.examples()).unwrap_err();
        writer.commit(self.examples()).unwrap();
        let (expected, lines) = self.expected();
        assert_eq!(expected.len(), self.examples().len());

        let brokers = &self.config.brokers;
        let group = format!("{}reader", self.config.prefix);
        let ends = self.partitions().to_string();
        let mut arguments = strings(["read", brokers, &self.registry, &group, &ends]);
        arguments.extend(self.topics());
        assert_same("Python", &expected, &read(run(python(), &arguments, "")));

        let mut arguments = strings(["read", brokers, &self.registry]);
        arguments.extend(self.topics());
        assert_same("Java", &expected, &read(run(java(), &arguments, "")));

        let input = lines.join("\n") + "\n";
        let printed = run(node(), &strings(["read", &self.registry]), &input);
        assert_same("Node", &expected, &read(printed));

        for topic in
            [Topic::TransfersRaw, Topic::Orders, Topic::OrdersChangelog, Topic::DeadLetters]
        {
            let output = self.installation.errand(&["tail", topic.name(), "--until-end"]);
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let lines = String::from_utf8(output.stdout).unwrap();
            let printed = read(lines.lines().map(str::to_owned).collect());
            let here = |((name, ..), _): &(&(String, u64, u64), &Value)| *name == self.topic(topic);
            let expected = expected.iter().filter(here).map(|((_, partition, offset), record)| {
                ((topic.to_string(), *partition, *offset), record.clone())
            });
            assert_same("tail", &expected.collect(), &printed);
        }
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
            let (log, stop) = (self.log.clone(), stop.clone());
            let clock: Arc<dyn Clock> = Arc::new(SystemClock);
            std::thread::spawn(move || processor::run_matching(&log, &clock, "reader", &stop))
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
                let found = eventually(&what, Duration::from_secs(60), || async move {
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

fn assert_same(language: &str, expected: &Read, read: &Read) {
    for (place, record) in expected {
        assert_eq!(read.get(place), Some(record), "{language} at {place:?}");
    }
    let more: Vec<_> = read.keys().filter(|place| !expected.contains_key(*place)).collect();
    assert!(more.is_empty(), "{language} read what is not committed: {more:?}");
}

/// A record of `transfers.raw` as the client for Node prints it.
fn printed_record(line: &str) -> NewRecord {
    let [partition, key, hex] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    let value = (0..hex.len()).step_by(2).map(byte).collect();
    let partition = Partition(partition.parse().unwrap());
    let to = TopicPartition { topic: Topic::TransfersRaw, partition };
    let event = CloudEvent { id: "node/1", time: "2026-09-21T14:13:32Z", traceparent: None };
    let headers = event.headers(Topic::TransfersRaw);
    NewRecord { to, key: key.as_bytes().to_vec(), value: Some(value), headers }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_languages_read_every_topic() {
    let site = Site::start().await;
    tokio::task::block_in_place(|| site.check_readers());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_other_languages_write_is_taken_by_matching() {
    Site::start().await.check_writers().await;
}

#[test]
fn other_languages_find_the_lane_of_a_wallet() {
    for (blockchain, byte, lanes) in
        [(Blockchain::Eth, 0x01, 1), (Blockchain::Polygon, 0x80, 7), (Blockchain::Tron, 0xfe, 64)]
    {
        let mut wallet = [byte; 20];
        wallet[19] = 0x9c;
        let hex: String = wallet.iter().map(|byte| format!("{byte:02x}")).collect();
        let address = Address::new(blockchain.address_family(), wallet);
        let expected = lane(blockchain, &address, lanes).to_string();
        let arguments = strings(["lane", blockchain.as_str(), &hex, &lanes.to_string()]);
        for command in [python(), node(), java()] {
            assert_eq!(run(command, &arguments, ""), [expected.as_str()], "{arguments:?}");
        }
    }
}
