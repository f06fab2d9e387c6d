//! Appending and reading without a group.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use log::{Bounds, Error, Log, NewRecord, Offset, StepError};
use schemas::Topic;

use super::{
    Fixture, POLL, at, numbers, produce, produce_numbers, read_all, read_from, record, text, texts,
};
use crate::{DEADLINE, wait_until};

pub(super) fn records_keep_their_order(fixture: &dyn Fixture) {
    let log = fixture.open();
    let (first, second) = (at(Topic::Orders, 0), at(Topic::Orders, 1));
    for n in 0..20 {
        let both = [record(first, n.to_string()), record(second, (100 + n).to_string())];
        produce(&log, both.to_vec()).unwrap();
    }
    for (of, expected) in [(first, numbers(0..20)), (second, numbers(100..120))] {
        let records = read_all(&log, of);
        assert_eq!(texts(&records), expected);
        assert!(records.windows(2).all(|pair| pair[0].offset < pair[1].offset));
        assert!(records.iter().all(|r| r.from == of && r.key == b"key"));
        assert!(records.iter().all(|r| r.header("traceparent") == Some(b"1".as_slice())));
    }
}

pub(super) fn append_times_never_decrease(fixture: &dyn Fixture) {
    let of = at(Topic::Orders, 2);
    for _ in 0..3 {
        let log = fixture.open();
        for n in 0..5 {
            produce(&log, vec![record(of, n.to_string())]).unwrap();
            fixture.advance(Duration::from_millis(n));
        }
    }
    let records = read_all(&fixture.open(), of);
    assert_eq!(records.len(), 15);
    assert!(records.windows(2).all(|pair| pair[0].appended_at <= pair[1].appended_at));
    assert!(records.first().unwrap().appended_at < records.last().unwrap().appended_at);
}

pub(super) fn an_installation_keeps_its_name(fixture: &dyn Fixture) {
    let name = fixture.open().installation().unwrap();
    assert_eq!(fixture.open().installation().unwrap(), name);
    assert_ne!(fixture.stranger(), name);
}

pub(super) fn what_was_produced_survives_a_restart(fixture: &dyn Fixture) {
    let of = at(Topic::Orders, 0);
    let log = fixture.open();
    let tombstone = NewRecord { value: None, ..record(of, "") };
    let empty = NewRecord { key: vec![], headers: schemas::Headers::default(), ..record(of, "") };
    produce(&log, vec![record(of, "one"), tombstone, empty]).unwrap();
    let before = read_all(&log, of);
    assert_eq!(before[1].value, None);
    assert_eq!(before[2].value, Some(vec![]));
    let bounds = log.bounds(of).unwrap();
    drop(log);
    let log = fixture.open();
    assert_eq!(read_all(&log, of), before);
    assert_eq!(log.bounds(of).unwrap(), bounds);
    produce(&log, vec![record(of, "next")]).unwrap();
    assert_eq!(texts(&read_from(&log, of, bounds.end)), ["next"]);
}

pub(super) fn bounds_and_reads_agree(fixture: &dyn Fixture) {
    let log = fixture.open();
    let of = at(Topic::TransfersRaw, 3);
    let empty = Bounds { start: Offset(0), end: Offset(0) };
    assert_eq!(log.bounds(of).unwrap(), empty);
    assert_eq!(log.read(of, Offset(0), 10).unwrap(), []);
    produce_numbers(&log, of, 0..30);
    let Bounds { start, end } = log.bounds(of).unwrap();
    assert_eq!(texts(&log.read(of, start, 100).unwrap()), numbers(0..30));
    assert_eq!(log.read(of, start, 4).unwrap().len(), 4);
    assert_eq!(log.read(of, start, 0).unwrap(), []);
    assert_eq!(log.read(of, end, 10).unwrap(), []);
    let tenth = log.read(of, start, 10).unwrap().pop().unwrap();
    assert_eq!(log.read(of, tenth.offset, 1).unwrap(), [tenth]);
    assert_eq!(log.bounds(at(Topic::TransfersRaw, 4)).unwrap(), empty);
}

pub(super) fn readers_see_whole_steps(fixture: &dyn Fixture) {
    const STEPS: u32 = 150;
    let log = fixture.open();
    let (first, second) = (at(Topic::Orders, 0), at(Topic::TransfersRaw, 5));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Each step appends to both partitions: the count read later must not be lower.
        for (earlier, later) in [(first, second), (second, first)] {
            let (log, done) = (log.clone(), &done);
            scope.spawn(move || {
                let mut last = 0;
                while last < STEPS as usize {
                    let finished = done.load(Ordering::SeqCst);
                    last = read_from(&log, earlier, Offset(0)).len();
                    let seen = read_from(&log, later, Offset(0)).len();
                    assert!(seen >= last, "{last} steps in {earlier}, {seen} in {later}");
                    assert!(!finished || last == STEPS as usize);
                }
            });
        }
        let mut writer = log.writer("steps").unwrap();
        for n in 0..STEPS {
            let step = [record(first, n.to_string()), record(second, n.to_string())];
            writer.commit(step.to_vec()).unwrap();
        }
        done.store(true, Ordering::SeqCst);
    });
    assert_eq!(texts(&read_all(&log, first)), numbers(0..STEPS));
    assert_eq!(texts(&read_all(&log, second)), numbers(0..STEPS));
}

pub(super) fn a_failed_step_leaves_nothing(fixture: &dyn Fixture) {
    let log = fixture.open();
    let (first, second) = (at(Topic::Orders, 0), at(Topic::Orders, 1));
    let step = || vec![record(first, "one"), record(second, "one")];
    let mut writer = log.writer("steps").unwrap();
    fixture.fail_next_commit();
    let outcome = writer.commit(step());
    assert!(matches!(outcome, Err(StepError::Aborted(_))), "{outcome:?}");
    assert_eq!(read_all(&log, first), []);
    drop((writer, log));
    let log = fixture.open();
    assert_eq!((read_all(&log, first), read_all(&log, second)), (vec![], vec![]));
    let mut writer = log.writer("steps").unwrap();
    fixture.fail_next_commit();
    writer.commit(step()).unwrap_err();
    writer.commit(step()).unwrap();
    assert_eq!(texts(&read_all(&log, first)), ["one"]);
    assert_eq!(texts(&read_all(&log, second)), ["one"]);
}

pub(super) fn a_failed_produce_can_be_tried_again(fixture: &dyn Fixture) {
    let log = fixture.open();
    let of = at(Topic::Orders, 0);
    fixture.fail_next_commit();
    let outcome = produce(&log, vec![record(of, "one")]);
    assert!(matches!(outcome, Err(Error::Transient(_))), "{outcome:?}");
    produce(&log, vec![record(of, "one")]).unwrap();
    assert_eq!(text(read_all(&log, of).last().unwrap()), "one");
}

pub(super) fn a_fenced_writer_cannot_commit(fixture: &dyn Fixture) {
    let log = fixture.open();
    let of = at(Topic::TransfersRaw, 0);
    let mut old = log.writer("ingest-eth").unwrap();
    let mut other = log.writer("ingest-base").unwrap();
    old.commit(vec![record(of, "0")]).unwrap();
    let mut new = log.writer("ingest-eth").unwrap();
    let outcome = old.commit(vec![record(of, "late")]);
    assert!(matches!(outcome, Err(StepError::Fenced(_))), "{outcome:?}");
    new.commit(vec![record(of, "1")]).unwrap();
    let outcome = old.commit(vec![record(of, "late")]);
    assert!(matches!(outcome, Err(StepError::Fenced(_))), "{outcome:?}");
    other.commit(vec![record(of, "2")]).unwrap();
    assert_eq!(texts(&read_all(&log, of)), numbers(0..3));
}

pub(super) fn concurrent_producers_keep_their_order(fixture: &dyn Fixture) {
    const PRODUCERS: usize = 64;
    const EACH: usize = 20;
    let log = fixture.open();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let tasks: Vec<_> = (0..PRODUCERS)
        .map(|producer| {
            let log = log.clone();
            runtime.spawn(async move {
                let of = at(Topic::Orders, u32::try_from(producer % 4).unwrap());
                for n in 0..EACH {
                    let record = NewRecord {
                        key: producer.to_string().into_bytes(),
                        ..record(of, n.to_string())
                    };
                    log.produce(vec![record]).await.unwrap();
                }
            })
        })
        .collect();
    tasks.into_iter().for_each(|task| runtime.block_on(task).unwrap());
    drop(runtime);
    drop(log);
    let log = fixture.open();
    let mut by_producer: HashMap<Vec<u8>, Vec<String>> = HashMap::new();
    for partition in 0..4 {
        for record in read_all(&log, at(Topic::Orders, partition)) {
            by_producer.entry(record.key.clone()).or_default().push(text(&record));
        }
    }
    assert_eq!(by_producer.len(), PRODUCERS);
    let expected = numbers(0..u32::try_from(EACH).unwrap());
    assert!(by_producer.values().all(|texts| *texts == expected));
}

pub(super) fn a_large_record_comes_back(fixture: &dyn Fixture) {
    let log = fixture.open();
    let of = at(Topic::Orders, 0);
    let value: Vec<u8> = (0..1_048_576_u32).map(|n| n.to_le_bytes()[n as usize % 3]).collect();
    let large = NewRecord { value: Some(value.clone()), ..record(of, "") };
    produce(&log, vec![record(of, "before"), large, record(of, "after")]).unwrap();
    let check = |log: Arc<dyn Log>| {
        let records = read_all(&log, of);
        assert_eq!(records.len(), 3);
        assert!(records[1].value.as_ref() == Some(&value), "the value is another");
    };
    check(log);
    check(fixture.open());
}

pub(super) fn a_tail_sees_only_what_is_new(fixture: &dyn Fixture) {
    let log = fixture.open();
    let (orders, deposits) = (at(Topic::Orders, 3), at(Topic::Deposits, 7));
    produce_numbers(&log, orders, 0..5);
    let mut tail = log.tail(&[Topic::Orders, Topic::Deposits]).unwrap();
    assert_eq!(tail.poll(POLL).unwrap(), []);
    produce(&log, vec![record(orders, "5"), record(at(Topic::Alerts, 0), "other")]).unwrap();
    produce(&log, vec![record(deposits, "6"), record(orders, "7")]).unwrap();
    let mut seen = Vec::new();
    wait_until("the tail has three records", || {
        seen.extend(tail.poll(POLL).unwrap());
        seen.len() >= 3
    });
    assert_eq!(tail.poll(POLL).unwrap(), []);
    let of = |place| seen.iter().filter(|r| r.from == place).map(|r| text(r)).collect::<Vec<_>>();
    assert_eq!(of(orders), ["5", "7"]);
    assert_eq!(of(deposits), ["6"]);
    assert_eq!(seen.len(), 3);

    let waiting = std::thread::spawn(move || tail.poll(DEADLINE).unwrap());
    produce(&log, vec![record(orders, "8")]).unwrap();
    assert_eq!(texts(&waiting.join().unwrap()), ["8"]);
}

pub(super) fn an_unknown_partition_is_refused(fixture: &dyn Fixture) {
    let log = fixture.open();
    let nowhere = at(Topic::Orders, 4);
    let outcome = produce(&log, vec![record(at(Topic::Orders, 0), "0"), record(nowhere, "0")]);
    assert!(matches!(outcome, Err(Error::Fatal(_))), "{outcome:?}");
    assert!(matches!(log.bounds(nowhere), Err(Error::Fatal(_))));
    assert!(matches!(log.read(nowhere, Offset(0), 1), Err(Error::Fatal(_))));
    let step = log.writer("steps").unwrap().commit(vec![record(nowhere, "0")]);
    assert!(matches!(step, Err(StepError::Fatal(_))), "{step:?}");
    produce(&log, vec![record(at(Topic::Orders, 0), "1")]).unwrap();
    assert_eq!(text(read_all(&log, at(Topic::Orders, 0)).last().unwrap()), "1");
}
