//! `tidemark replay` on Kafka, beside running processors: it changes nothing of the installation, and writes to
//! separate topics on request.

use std::path::Path;
use std::process::Output;
use std::sync::Arc;

use log::config::KafkaConfig;
use log::kafka::{KafkaLog, admin};
use log::{Committed, GroupMember, Log, Offset, Record, StageContext, TopicPartition};
use oracle::load::Shop;
use processor::{run_matching, run_orders};
use runtime::SystemClock;
use schemas::{Layout, Topic};
use serde_json::Value;
use testkit::harness::errand;
use testkit::log_suite::on_kafka::{CRASH_LAYOUT as LAYOUT, brokers, config};
use testkit::wait_until;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

const GROUPS: [(&str, &[Topic]); 2] = [
    ("processor.matching", &[Topic::TransfersRaw, Topic::DepositsCommands]),
    ("processor.orders", &[Topic::OrdersCommands]),
];

type Content = (Vec<u8>, Option<Vec<u8>>);
type Positions = Vec<(TopicPartition, Option<Committed>)>;

fn partitions(topic: Topic) -> Vec<TopicPartition> {
    topic.all_partitions(&LAYOUT).map(|partition| TopicPartition { topic, partition }).collect()
}

/// The positions and the members of the installation's groups.
fn groups(log: &KafkaLog) -> Vec<(Positions, Vec<GroupMember>)> {
    let group = |(name, topics): (&str, &[Topic])| {
        let of: Vec<_> = topics.iter().flat_map(|topic| partitions(*topic)).collect();
        (log.committed(name, &of).unwrap(), log.members(name).unwrap())
    };
    GROUPS.into_iter().map(group).collect()
}

fn is_taken(log: &KafkaLog) -> bool {
    let groups = groups(log);
    let all = groups.iter().flat_map(|(positions, _)| positions);
    let next = |at: &Option<Committed>| at.as_ref().map_or(Offset(0), |at| at.offset);
    all.into_iter().all(|(of, at)| log.read(*of, next(at), 1).unwrap().is_empty())
}

fn all(log: &KafkaLog, topic: Topic) -> Vec<Vec<Arc<Record>>> {
    let of = partitions(topic);
    of.into_iter().map(|of| log.read(of, Offset(0), 1_000_000).unwrap()).collect()
}

fn contents(log: &KafkaLog, topic: Topic) -> Vec<Vec<Content>> {
    let content = |record: &Arc<Record>| (record.key.clone(), record.value.clone());
    all(log, topic).iter().map(|all| all.iter().map(content).collect()).collect()
}

fn replay(dir: &Path, arguments: &[&str]) -> (Option<i32>, Value, String) {
    let Output { status, stdout, stderr } =
        errand(dir, &[&["replay", "--json"], arguments].concat());
    let last = String::from_utf8(stdout).unwrap().lines().last().unwrap_or("null").to_owned();
    (status.code(), serde_json::from_str(&last).unwrap(), String::from_utf8(stderr).unwrap())
}

fn write_config(dir: &Path, config: &KafkaConfig) {
    let Layout { lanes, orders, webhooks } = LAYOUT;
    let KafkaConfig { brokers, prefix, .. } = config;
    let text = format!(
        "[data]\ndir = {dir:?}\n[log]\nbackend = \"kafka\"\nbrokers = \"{brokers}\"\nprefix = \"{prefix}\"\n\
         replication = 1\nlanes = {lanes}\norder_partitions = {orders}\nwebhook_partitions = {webhooks}\n"
    );
    std::fs::write(dir.join("tidemark.toml"), text).unwrap();
}

#[test]
fn a_replay_beside_processors_changes_nothing() {
    let config = config(&brokers());
    admin::create_topics(&config, &LAYOUT).unwrap();
    let log = KafkaLog::open(&config, LAYOUT).unwrap();
    let (dir, runtime, stop) =
        (tempfile::tempdir().unwrap(), Runtime::new().unwrap(), CancellationToken::new());
    write_config(dir.path(), &config);
    let context = StageContext {
        log: Arc::new(log.clone()),
        clock: Arc::new(SystemClock),
        member: "a".to_owned(),
        handle: runtime.handle().clone(),
        stop: stop.clone(),
    };
    let machines = [run_matching, run_orders].map(|run| (run, context.clone()));
    let threads = machines.map(|(run, context)| std::thread::spawn(move || run(&context)));
    let mut shop = Shop::open(Arc::new(log.clone()), 7);
    (0..10).for_each(|_| shop.trade());
    wait_until("the processor to take all", || is_taken(&log));

    let state = dir.path().join("now");
    let state = state.to_str().unwrap();
    let (code, _, messages) = replay(dir.path(), &["--now", "--save-state", state]);
    assert_eq!(code, Some(0), "{messages}");
    (0..10).for_each(|_| shop.trade());
    // Beside processors that may still be at work.
    for arguments in [&[][..], &["--state", state]] {
        let (code, totals, messages) = replay(dir.path(), arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {totals} {messages}");
        assert!(totals["inputs"].as_i64().unwrap() > 0, "{totals}");
    }
    wait_until("the processor to take all", || is_taken(&log));
    stop.cancel();
    threads.into_iter().for_each(|thread| thread.join().unwrap().unwrap());

    let before = groups(&log);
    let prefix = format!("side-{}", config.prefix);
    let (code, totals, messages) = replay(dir.path(), &["--into", &prefix]);
    assert_eq!(code, Some(0), "{totals} {messages}");
    assert_eq!(groups(&log), before);
    let side = KafkaConfig { prefix: prefix.clone(), ..config.clone() };
    let copy = KafkaLog::open(&side, LAYOUT).unwrap();
    for topic in [Topic::Orders, Topic::Deposits, Topic::TransfersMatched] {
        assert_eq!(contents(&copy, topic), contents(&log, topic), "{topic}");
        assert!(all(&copy, topic).iter().any(|records| !records.is_empty()), "{topic}");
    }

    let (code, _, messages) = replay(dir.path(), &["--into", &prefix]);
    assert!(code == Some(1) && messages.contains("is in use"), "{code:?} {messages}");
    let (code, _, messages) = replay(dir.path(), &["--into", &config.prefix]);
    assert!(code == Some(64) && messages.contains("another prefix"), "{code:?} {messages}");
}
