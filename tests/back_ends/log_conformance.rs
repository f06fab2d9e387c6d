//! Every log passes the same checks. Another back end is one more fixture and one more test.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "this file is tests from end to end"
)]

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader, Write};
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use log::config::KafkaConfig;
use log::embedded::EmbeddedLog;
use log::kafka::KafkaLog;
use log::{Committed, Event, Log, NewRecord, Offset, Step, TopicPartition, Worker, WorkerSpec};
use runtime::{ManualClock, SystemClock};
use schemas::{Partition, Topic, UnixMicros};
use tempfile::TempDir;
use testkit::log_suite::{CHECKS, Fixture, LAYOUT, OnKafka, on_kafka};

/// An embedded log in a folder of its own.
struct Embedded {
    dir: TempDir,
    clock: Arc<ManualClock>,
    session_timeout: Mutex<Duration>,
    log: Mutex<Option<EmbeddedLog>>,
}

impl Embedded {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            clock: Arc::new(ManualClock::new(UnixMicros(1_700_000_000_000_000))),
            session_timeout: Mutex::new(Duration::from_secs(10)),
            log: Mutex::new(None),
        }
    }

    fn log(&self) -> EmbeddedLog {
        self.log.lock().unwrap().clone().expect("the check opened the log")
    }
}

impl Fixture for Embedded {
    fn open(&self) -> Arc<dyn Log> {
        let mut current = self.log.lock().unwrap();
        // Closes the last one: the check has dropped whatever it had of it.
        *current = None;
        let log = EmbeddedLog::open(self.dir.path(), LAYOUT, self.clock.clone()).unwrap();
        let log = log.with_session_timeout(*self.session_timeout.lock().unwrap());
        *current = Some(log.clone());
        Arc::new(log)
    }

    fn set_session_timeout(&self, timeout: Duration) {
        *self.session_timeout.lock().unwrap() = timeout;
    }

    fn fail_next_commit(&self) {
        self.log().fail_next_commit();
    }

    fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    fn maintain(&self) {
        self.log().maintain().unwrap();
    }
}

/// Runs every check on storage of its own, some at a time.
fn run_checks<F: Fixture>(fixture: impl Fn() -> F + Sync, at_a_time: usize) {
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..at_a_time {
            scope.spawn(|| {
                while let Some((name, check)) = CHECKS.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let started = Instant::now();
                    let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| check(&fixture())));
                    let told = if outcome.is_ok() { "ok" } else { "FAILED" };
                    println!("{name}: {told} in {:?}", started.elapsed());
                    if outcome.is_err() {
                        failed.lock().unwrap().push(*name);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "failed: {failed:?}");
}

#[test]
fn the_embedded_log_passes_every_check() {
    run_checks(Embedded::new, 1);
}

#[test]
fn the_kafka_log_passes_every_check() {
    run_checks(OnKafka::new, 6);
}

#[test]
fn checks_have_names_of_their_own() {
    let names: HashSet<_> = CHECKS.iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), CHECKS.len());
}

/// Tells the child process where its log is: a folder, or a prefix on Kafka. In a process without either
/// the child's test does nothing.
const CHILD_DIR: &str = "TIDEMARK_TEST_LOG_DIR";
const CHILD_PREFIX: &str = "TIDEMARK_TEST_LOG_PREFIX";

const NUMBERED: TopicPartition = at(Topic::Alerts, 0);
const FIRST: TopicPartition = at(Topic::Orders, 0);
const SECOND: TopicPartition = at(Topic::TransfersRaw, 7);
const INPUT: TopicPartition = at(Topic::OrdersCommands, 2);
const OUTPUT: TopicPartition = at(Topic::OrdersChangelog, 2);

const fn at(topic: Topic, partition: u32) -> TopicPartition {
    TopicPartition { topic, partition: Partition(partition) }
}

/// Where a log is that a process is killed on.
enum Site {
    Dir(PathBuf),
    Kafka(String),
}

impl Site {
    fn of_child() -> Option<Self> {
        let dir = std::env::var_os(CHILD_DIR).map(|dir| Self::Dir(dir.into()));
        let prefix = std::env::var_os(CHILD_PREFIX);
        dir.or_else(|| Some(Self::Kafka(prefix?.into_string().unwrap())))
    }

    fn tell(&self, child: &mut Command) {
        match self {
            Self::Dir(dir) => child.env(CHILD_DIR, dir),
            Self::Kafka(prefix) => child.env(CHILD_PREFIX, prefix),
        };
    }

    fn open(&self) -> Box<dyn Log> {
        match self {
            Self::Dir(dir) => {
                Box::new(EmbeddedLog::open(dir, LAYOUT, Arc::new(SystemClock)).unwrap())
            }
            Self::Kafka(prefix) => {
                let config = KafkaConfig {
                    prefix: prefix.clone(),
                    // What the killed process left open holds readers up for this long.
                    transaction_timeout: Duration::from_secs(2),
                    ..on_kafka::config(&on_kafka::brokers())
                };
                Box::new(KafkaLog::open(&config, LAYOUT).unwrap())
            }
        }
    }
}

fn number(to: TopicPartition, n: usize) -> NewRecord {
    // Some records are longer than a page of the file.
    let value = format!("{n} {}", "x".repeat(n % 13 * 1000)).into_bytes();
    NewRecord {
        to,
        key: n.to_string().into_bytes(),
        value: Some(value),
        headers: schemas::Headers::default(),
    }
}

/// All numbers of a partition; each must be whole and follow its predecessor.
fn numbers(log: &dyn Log, of: TopicPartition) -> usize {
    let mut count = 0;
    let mut next = log.bounds(of).unwrap().start;
    loop {
        let page = log.read(of, next, 500).unwrap();
        let Some(last) = page.last() else { return count };
        next = last.offset.next();
        for record in page {
            let expected = number(of, count);
            assert_eq!((&record.key, &record.value), (&expected.key, &expected.value), "in {of}");
            count += 1;
        }
    }
}

fn acknowledge(what: &str, n: usize) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\nack {what} {n}").unwrap();
    out.flush().unwrap();
}

/// The child of the next test: appends without end and tells what is safe.
#[test]
fn child_appends_until_killed() {
    let Some(site) = Site::of_child() else { return };
    let log = site.open();
    std::thread::scope(|scope| {
        scope.spawn(|| produce_forever(&*log));
        scope.spawn(|| write_steps_forever(&*log));
        scope.spawn(|| copy_forever(&*log));
    });
}

fn produce_forever(log: &dyn Log) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    // One record at a time: what one call appends is no atomic step.
    for (n, input) in (numbers(log, NUMBERED)..).zip(numbers(log, INPUT)..) {
        runtime.block_on(log.produce(vec![number(NUMBERED, n)])).unwrap();
        acknowledge("produced", n);
        runtime.block_on(log.produce(vec![number(INPUT, input)])).unwrap();
    }
}

fn write_steps_forever(log: &dyn Log) {
    let mut writer = log.writer("steps").unwrap();
    for n in numbers(log, FIRST).. {
        writer.commit(vec![number(FIRST, n), number(SECOND, n)]).unwrap();
        acknowledge("step", n);
    }
}

/// Copies the input one by one: the offset says how many copies there are.
fn copy_forever(log: &dyn Log) {
    let mut worker = join(log);
    loop {
        let Event::Records(records) = worker.poll(Duration::from_millis(50)).unwrap() else {
            continue;
        };
        for record in records {
            let committed = Committed { offset: record.offset.next(), metadata: String::new() };
            let copy = NewRecord {
                to: OUTPUT,
                key: record.key.clone(),
                value: record.value.clone(),
                headers: schemas::Headers::default(),
            };
            let copied = usize::try_from(record.offset.0).unwrap();
            worker.commit(Step { records: vec![copy], offsets: vec![(INPUT, committed)] }).unwrap();
            acknowledge("copied", copied);
        }
    }
}

fn join(log: &dyn Log) -> Box<dyn Worker> {
    let topics = vec![Topic::OrdersCommands];
    let spec = WorkerSpec { group: "copies", member: "a".into(), topics, batch_max: 100 };
    log.worker(spec).unwrap()
}

#[test]
fn what_was_acknowledged_survives_sigkill() {
    let dir = tempfile::tempdir().unwrap();
    kill_again_and_again(&Site::Dir(dir.path().to_owned()), 12);
}

#[test]
fn what_kafka_acknowledged_survives_sigkill() {
    let topics = OnKafka::new();
    kill_again_and_again(&Site::Kafka(topics.config().prefix), 5);
}

fn kill_again_and_again(site: &Site, kills: u32) {
    let mut acknowledged = [0; 3];
    for kill in 0..kills {
        let mut child = Command::new(std::env::current_exe().unwrap());
        site.tell(&mut child);
        let mut child = child
            .args([
                "--exact",
                "log_conformance::child_appends_until_killed",
                "--nocapture",
                "--test-threads=1",
            ])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = lines_of(child.stdout.take().unwrap());
        // After so many acknowledgements, and then at any point of whatever is under way.
        let wanted = 20 + usize::from(RandomState::new().hash_one(kill) as u8);
        let mut seen = 0;
        while seen < wanted {
            let line = lines.recv_timeout(Duration::from_secs(60)).expect("the child goes on");
            seen += usize::from(note(&line, &mut acknowledged));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        while let Ok(line) = lines.recv() {
            note(&line, &mut acknowledged);
        }
        check_after_kill(site, acknowledged, kill);
    }
    assert!(acknowledged.iter().all(|count| *count > 0), "{acknowledged:?}");
}

fn lines_of(stdout: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// Notes an acknowledgement: how many of each kind there are. False for any other line.
fn note(line: &str, acknowledged: &mut [usize; 3]) -> bool {
    let Some((what, n)) = line.strip_prefix("ack ").and_then(|ack| ack.split_once(' ')) else {
        return false;
    };
    // The last line may have been cut by the kill; a cut number is smaller, and not a new maximum.
    let Ok(n) = n.parse::<usize>() else { return false };
    let kind = ["produced", "step", "copied"].iter().position(|kind| *kind == what).unwrap();
    acknowledged[kind] = acknowledged[kind].max(n + 1);
    true
}

fn check_after_kill(site: &Site, [produced, steps, copied]: [usize; 3], kill: u32) {
    let log = site.open();
    let log = &*log;
    let found = numbers(log, NUMBERED);
    assert!(found >= produced, "kill {kill}: {produced} acknowledged, {found} there");
    let found = numbers(log, FIRST);
    assert!(found >= steps, "kill {kill}: {steps} steps acknowledged, {found} there");
    assert_eq!(found, numbers(log, SECOND), "kill {kill}: half a step");
    let found = numbers(log, OUTPUT);
    assert!(found >= copied, "kill {kill}: {copied} copies acknowledged, {found} there");
    let mut worker = join(log);
    let Event::Assigned(assigned) = worker.poll(Duration::from_secs(60)).unwrap() else {
        panic!("kill {kill}: no partitions")
    };
    let committed = assigned.into_iter().find(|a| a.partition == INPUT).unwrap().committed;
    let committed = committed.map_or(Offset(0), |committed| committed.offset);
    assert_eq!(committed.0, i64::try_from(found).unwrap(), "kill {kill}: half a step");
}
