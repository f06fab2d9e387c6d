//! Durability: acknowledged records survive SIGKILL, and steps stay whole.

use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use log::{Committed, Error, Event, Log, NewRecord, Step, TopicPartition, Worker, WorkerSpec};
use schemas::{Partition, Topic};

use crate::DEADLINE;
use crate::process::{Killed, lines_of};

const NUMBERED: TopicPartition = at(Topic::Alerts, 0);
const FIRST: TopicPartition = at(Topic::Orders, 0);
const SECOND: TopicPartition = at(Topic::TransfersRaw, 7);
const INPUT: TopicPartition = at(Topic::OrdersCommands, 2);
const OUTPUT: TopicPartition = at(Topic::OrdersChangelog, 2);
const HALVES: TopicPartition = at(Topic::OrdersChangelog, 3);

const fn at(topic: Topic, partition: u32) -> TopicPartition {
    TopicPartition { topic, partition: Partition(partition) }
}

/// Appends in four ways until killed, and reports acknowledgements.
pub fn append_until_killed(log: &dyn Log) {
    std::thread::scope(|scope| {
        scope.spawn(|| produce_forever(log));
        scope.spawn(|| write_steps_forever(log));
        scope.spawn(|| copy_forever(log));
        scope.spawn(|| halve_forever(log));
    });
}

fn produce_forever(log: &dyn Log) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    // One record at a time: a call of `produce` is not atomic.
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

/// Copies the input one by one: the offset is the number of copies.
fn copy_forever(log: &dyn Log) {
    step_forever(log, "copies", |n| {
        (vec![number(OUTPUT, n)], Box::new(move || acknowledge("copied", n)))
    });
}

/// Writes a number for every second input: other steps commit only offsets.
fn halve_forever(log: &dyn Log) {
    step_forever(log, "halves", |n| {
        let outputs = if n % 2 == 0 { vec![number(HALVES, n / 2)] } else { vec![] };
        (outputs, Box::new(move || acknowledge("halved", n / 2)))
    });
}

type Planned = (Vec<NewRecord>, Box<dyn FnOnce()>);

/// Commits a step for each number of the input, then calls the step's callback.
fn step_forever(log: &dyn Log, group: &'static str, plan: impl Fn(usize) -> Planned) {
    let mut worker = join(log, group);
    loop {
        let Event::Records(inputs) = worker.poll(Duration::from_millis(50)).unwrap() else {
            continue;
        };
        for input in inputs {
            let committed = Committed { offset: input.offset.next(), metadata: String::new() };
            let (records, then) = plan(usize::try_from(input.offset.0).unwrap());
            worker.commit(Step { records, offsets: vec![(INPUT, committed)] }).unwrap();
            then();
        }
    }
}

fn join(log: &dyn Log, group: &'static str) -> Box<dyn Worker> {
    let topics = vec![Topic::OrdersCommands];
    log.worker(WorkerSpec { group, member: "a".into(), topics, batch_max: 100 }).unwrap()
}

fn number(to: TopicPartition, n: usize) -> NewRecord {
    // Some records are longer than a page of the embedded log's file, so that a kill can fall between their pages.
    let value = format!("{n} {}", "x".repeat(n % 13 * 1000)).into_bytes();
    NewRecord {
        to,
        key: n.to_string().into_bytes(),
        value: Some(value),
        headers: schemas::Headers::default(),
    }
}

/// Appends until the disk refuses a write, and reports acknowledgements. Checks that later writes are refused too.
pub fn append_until_refused(log: &dyn Log) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let first = numbers(log, NUMBERED);
    for n in first.. {
        match runtime.block_on(log.produce(vec![number(NUMBERED, n)])) {
            Ok(()) => acknowledge("produced", n),
            Err(error) => {
                assert!(matches!(error, Error::Fatal(_)), "{error}");
                break;
            }
        }
    }
    let again = runtime.block_on(log.produce(vec![number(FIRST, 0)]));
    assert!(matches!(again, Err(Error::Fatal(_))), "{again:?}");
    assert!(log.writer("late").is_err());
}

/// Checks the log after `child`, a process that calls [`append_until_refused`] on a failing disk.
pub fn a_failed_disk_ends_the_log_and_loses_nothing(
    open: impl Fn() -> Arc<dyn Log>,
    mut child: Command,
) {
    let mut child = child.stdout(Stdio::piped()).spawn().expect("the child starts");
    let lines = lines_of(&mut child);
    let mut acknowledged = [0; 4];
    while let Ok(line) = lines.recv_timeout(DEADLINE) {
        note(&line, &mut acknowledged);
    }
    assert!(child.wait().unwrap().success());
    let log = open();
    let found = numbers(&*log, NUMBERED);
    let produced = acknowledged[0];
    assert!(produced > 0 && found >= produced, "{produced} acknowledged, {found} there");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(log.produce(vec![number(NUMBERED, found)])).unwrap();
}

/// Count of numbers in a partition; each must follow its predecessor.
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

/// Starts a process by `child`, kills it, and compares the log with the acknowledgements: `kills` times. The process
/// must call [`append_until_killed`] on the same log.
pub fn acknowledged_appends_survive_sigkill(
    open: impl Fn() -> Arc<dyn Log>,
    child: impl Fn() -> Command,
    kills: u32,
) {
    let mut acknowledged = [0; 4];
    for kill in 0..kills {
        let mut child = Killed(child().stdout(Stdio::piped()).spawn().expect("the child starts"));
        let lines = lines_of(&mut child.0);
        // The kill follows this many acknowledgements, at any point of a write.
        let wanted = 20 + usize::from(RandomState::new().hash_one(kill) as u8);
        let mut seen = 0;
        while seen < wanted {
            let line = lines.recv_timeout(DEADLINE).expect("the child continues");
            seen += usize::from(note(&line, &mut acknowledged));
        }
        drop(child);
        while let Ok(line) = lines.recv() {
            note(&line, &mut acknowledged);
        }
        check_after_kill(&*open(), acknowledged, kill);
    }
    assert!(acknowledged.iter().all(|count| *count > 0), "{acknowledged:?}");
}

/// Counts an acknowledgement by kind. `false` for any other line.
fn note(line: &str, acknowledged: &mut [usize; 4]) -> bool {
    let Some((what, n)) = line.strip_prefix("ack ").and_then(|ack| ack.split_once(' ')) else {
        return false;
    };
    // The last line may have been cut by the kill; a cut number is smaller, and not a new maximum.
    let Ok(n) = n.parse::<usize>() else { return false };
    let kind =
        ["produced", "step", "copied", "halved"].iter().position(|kind| *kind == what).unwrap();
    acknowledged[kind] = acknowledged[kind].max(n + 1);
    true
}

fn check_after_kill(log: &dyn Log, [produced, steps, copied, halved]: [usize; 4], kill: u32) {
    let found = numbers(log, NUMBERED);
    assert!(found >= produced, "kill {kill}: {produced} acknowledged, {found} there");
    let found = numbers(log, FIRST);
    assert!(found >= steps, "kill {kill}: {steps} steps acknowledged, {found} there");
    assert_eq!(found, numbers(log, SECOND), "kill {kill}: half a step");
    let found = numbers(log, OUTPUT);
    assert!(found >= copied, "kill {kill}: {copied} copies acknowledged, {found} there");
    assert_eq!(position(log, "copies"), found, "kill {kill}: half a step");
    let found = numbers(log, HALVES);
    assert!(found >= halved, "kill {kill}: {halved} halves acknowledged, {found} there");
    // The group's position is after the input of the last output, or after the next input, which has no output.
    let possible = (2 * found).saturating_sub(1)..=2 * found;
    let position = position(log, "halves");
    assert!(possible.contains(&position), "kill {kill}: {found} halves, position {position}");
}

/// Number of inputs that a group has committed.
fn position(log: &dyn Log, group: &'static str) -> usize {
    let mut worker = join(log, group);
    let Event::Assigned(assigned) = worker.poll(DEADLINE).unwrap() else {
        panic!("{group} has no partitions")
    };
    let committed = assigned.into_iter().find(|a| a.partition == INPUT).unwrap().committed;
    committed.map_or(0, |committed| usize::try_from(committed.offset.0).unwrap())
}
