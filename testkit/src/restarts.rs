//! A broker that is killed and started again while a worker copies records and a writer writes steps.
//!
//! Every step must be on the log exactly once afterwards.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use log::kafka::{KafkaLog, StepObserver, StepPoint, admin};
use log::{
    Committed, Error, Event, Log, NewRecord, Offset, Record, Step, StepError, TopicPartition,
    WorkerSpec,
};
use schemas::{Headers, Partition, Topic};
use xtask::kafka;

use crate::DEADLINE;
use crate::log_suite::{LAYOUT, on_kafka};

const INPUT: TopicPartition = at(Topic::Orders);
const OUTPUT: TopicPartition = at(Topic::OrdersChangelog);
/// Partitions that both receive a record of every step of the writer.
const WRITTEN: [TopicPartition; 2] = [at(Topic::TransfersRaw), at(Topic::Alerts)];
/// Number of input records produced before the copying worker needs them.
const INPUT_AHEAD: usize = 5_000;
/// Minimum number of the writer's steps, and of copied records, between two restarts.
const STEPS_BETWEEN: usize = 50;
const POLL: Duration = Duration::from_millis(50);
const PAUSE: Duration = Duration::from_millis(20);

const fn at(topic: Topic) -> TopicPartition {
    TopicPartition { topic, partition: Partition(0) }
}

/// Points of a step at which the broker is killed, in turn.
const POINTS: [StepPoint; 6] = [
    StepPoint::BeforeOffsets,
    StepPoint::AfterSend,
    StepPoint::BeforeOffsets,
    StepPoint::BeforeCommit,
    StepPoint::BeforeBegin,
    StepPoint::AfterOffsets,
];

/// Sends a message when a step reaches the awaited point.
struct Trap {
    awaited: Mutex<Option<(StepPoint, Sender<()>)>>,
}

impl StepObserver for Trap {
    fn reached(&self, point: StepPoint) {
        let mut awaited = self.awaited.lock().expect("not poisoned");
        if let Some((_, reached)) = awaited.take_if(|(awaited, _)| *awaited == point) {
            reached.send(()).ok();
        }
    }
}

impl Trap {
    fn set(&self, point: StepPoint) -> Receiver<()> {
        let (reached, is_reached) = channel();
        *self.awaited.lock().expect("not poisoned") = Some((point, reached));
        is_reached
    }
}

#[derive(Debug, Default)]
pub struct Outcome {
    pub written: usize,
    pub copied: usize,
    /// Number of times the worker ended because another instance has its name. Always 0 here: no other instance claims
    /// it, and a worker that a restarted broker fences finds its own claim and rejoins.
    pub fenced: usize,
    /// Other errors after which a process has to end.
    pub failures: Vec<String>,
    /// The longest time from a restart until worker and writer have made steps.
    pub slowest_recovery: Duration,
}

struct Load {
    log: KafkaLog,
    written: AtomicUsize,
    copied: AtomicUsize,
    fenced: AtomicUsize,
    failures: Mutex<Vec<String>>,
    stop: AtomicBool,
}

/// Kills and restarts a broker `restarts` times under load, and checks the records of the log. `report` gets the number
/// of each restart and the time until worker and writer have made steps again.
pub fn run(lib: &Path, restarts: usize, mut report: impl FnMut(usize, Duration)) -> Outcome {
    let dir = tempfile::tempdir().expect("a folder");
    let mut broker = kafka::start(lib, dir.path(), "").expect("a broker");
    let config = on_kafka::config(&broker.address());
    let topics = [INPUT, OUTPUT, WRITTEN[0], WRITTEN[1]].map(|of| of.topic);
    admin::create_some(&config, &LAYOUT, &topics).expect("topics");
    let trap = Arc::new(Trap { awaited: Mutex::default() });
    let log = KafkaLog::open(&config, LAYOUT).expect("a log").with_observer(trap.clone());
    let load = Load {
        log,
        written: AtomicUsize::new(0),
        copied: AtomicUsize::new(0),
        fenced: AtomicUsize::new(0),
        failures: Mutex::default(),
        stop: AtomicBool::new(false),
    };
    let mut slowest_recovery = Duration::ZERO;
    std::thread::scope(|scope| {
        // Stops the threads after a failure, too: the scope waits for them.
        let _stopped = StopAtEnd(&load.stop);
        scope.spawn(|| load.produce());
        scope.spawn(|| load.write());
        scope.spawn(|| load.copy());
        load.wait_for_steps();
        for (restart, point) in POINTS.into_iter().cycle().take(restarts).enumerate() {
            trap.set(point).recv_timeout(DEADLINE).expect("a step");
            broker.kill();
            broker.restart().expect("the broker starts again");
            let recovery = load.wait_for_steps();
            slowest_recovery = slowest_recovery.max(recovery);
            report(restart + 1, recovery);
        }
    });
    let failures = std::mem::take(&mut *load.failures.lock().expect("not poisoned"));
    Outcome {
        written: load.check_written(),
        copied: load.check_copied(),
        fenced: load.fenced.load(Ordering::SeqCst),
        failures,
        slowest_recovery,
    }
}

struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Load {
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Waits until worker and writer have made steps, and returns how long that took.
    fn wait_for_steps(&self) -> Duration {
        let counts = || [&self.written, &self.copied].map(|count| count.load(Ordering::SeqCst));
        let (before, started) = (counts(), Instant::now());
        while counts().iter().zip(before).any(|(count, before)| *count < before + STEPS_BETWEEN) {
            assert!(started.elapsed() < DEADLINE, "no steps for {DEADLINE:?}: {before:?}");
            std::thread::park_timeout(PAUSE);
        }
        started.elapsed()
    }

    fn fail(&self, role: &str, error: &dyn std::fmt::Display) {
        self.failures.lock().expect("not poisoned").push(format!("{role}: {error}"));
    }

    /// Keeps input ahead of the worker. Uncertain appends are retried: duplicates do no harm, as copies are compared
    /// with the input on the log.
    fn produce(&self) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let mut n = 0;
        while !self.is_stopped() {
            if n > self.copied.load(Ordering::SeqCst) + INPUT_AHEAD {
                std::thread::park_timeout(PAUSE);
                continue;
            }
            let records = (n..n + INPUT_AHEAD).map(|n| record(INPUT, n)).collect();
            match runtime.block_on(self.log.produce(records)) {
                Ok(()) => n += INPUT_AHEAD,
                Err(Error::Transient(_)) => std::thread::park_timeout(PAUSE),
                Err(error) => return self.fail("producer", &error),
            }
        }
    }

    fn write(&self) {
        let mut n = 0;
        while !self.is_stopped() {
            let mut writer = match self.log.writer("steps") {
                Ok(writer) => writer,
                Err(Error::Transient(_)) => {
                    std::thread::park_timeout(PAUSE);
                    continue;
                }
                Err(error) => return self.fail("writer", &error),
            };
            while !self.is_stopped() {
                match writer.commit(WRITTEN.iter().map(|to| record(*to, n)).collect()) {
                    Ok(()) => {
                        n += 1;
                        self.written.store(n, Ordering::SeqCst);
                    }
                    Err(StepError::Aborted(_)) => std::thread::park_timeout(PAUSE),
                    Err(error) => {
                        self.fail("writer", &error);
                        break;
                    }
                }
            }
        }
    }

    fn copy(&self) {
        while !self.is_stopped() {
            if let Err(error) = self.copy_until_end() {
                self.fail("worker", &error);
            }
        }
    }

    fn copy_until_end(&self) -> Result<(), Box<dyn std::error::Error>> {
        let spec = WorkerSpec {
            group: "checks",
            member: "a".to_owned(),
            topics: vec![INPUT.topic],
            batch_max: 20,
        };
        let mut worker = self.log.worker(spec)?;
        while !self.is_stopped() {
            let records = match worker.poll(POLL) {
                Ok(Event::Records(records)) => records,
                Ok(_) => continue,
                Err(Error::Transient(_)) => {
                    std::thread::park_timeout(PAUSE);
                    continue;
                }
                Err(Error::Fenced(_)) => {
                    self.fenced.fetch_add(1, Ordering::SeqCst);
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            };
            let Some(last) = records.last() else { continue };
            let committed = Committed { offset: last.offset.next(), metadata: String::new() };
            let step = Step {
                records: records.iter().map(|read| record(OUTPUT, number(read))).collect(),
                offsets: vec![(INPUT, committed)],
            };
            match worker.commit(step) {
                Ok(()) => drop(self.copied.fetch_add(records.len(), Ordering::SeqCst)),
                Err(StepError::Aborted(_) | StepError::Fenced(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn check_written(&self) -> usize {
        let written = self.written.load(Ordering::SeqCst);
        for of in WRITTEN {
            assert!(numbers(&self.log, of).into_iter().eq(0..written), "{of} is not 0..{written}");
        }
        written
    }

    fn check_copied(&self) -> usize {
        let (inputs, copies) = (numbers(&self.log, INPUT), numbers(&self.log, OUTPUT));
        assert_eq!(copies.len(), self.copied.load(Ordering::SeqCst), "copies");
        assert!(inputs.starts_with(&copies), "copies are missing, doubled or in another order");
        copies.len()
    }
}

/// A record of this number.
pub fn record(to: TopicPartition, n: usize) -> NewRecord {
    let text = n.to_string().into_bytes();
    NewRecord { to, key: text.clone(), value: Some(text), headers: Headers::default() }
}

fn number(record: &Record) -> usize {
    let text = std::str::from_utf8(record.value.as_deref().expect("a value")).expect("text");
    text.parse().expect("a number")
}

/// The numbers of all records of a partition.
pub fn numbers(log: &dyn Log, of: TopicPartition) -> Vec<usize> {
    let mut all = Vec::new();
    let mut next = Offset(0);
    loop {
        let page = log.read(of, next, 10_000).expect("readable");
        let Some(last) = page.last() else { return all };
        next = last.offset.next();
        all.extend(page.iter().map(|record| number(record)));
    }
}
