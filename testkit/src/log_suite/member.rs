//! One member of a group: reads, commits and repeated reads.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use log::{
    Assigned, Committed, Event, Log, NewRecord, Offset, Record, Step, StepError, TopicPartition,
    Worker, WorkerSpec,
};
use schemas::Topic;

use super::{
    Fixture, POLL, at, numbers, produce, produce_numbers, read_all, record, text, texts, worker,
};
use crate::{DEADLINE, wait_until};

const ONLY: [Topic; 1] = [Topic::Orders];

/// Polls until the member owns partitions, and returns the position of the group in them.
pub(super) fn assigned(worker: &mut dyn Worker) -> Vec<Assigned> {
    let mut all = Vec::new();
    wait_until("partitions are assigned", || {
        if let Event::Assigned(assigned) = worker.poll(POLL).unwrap() {
            all.extend(assigned);
        }
        !all.is_empty()
    });
    all
}

/// The member `a` of the topic `orders`, with all its partitions.
pub(super) fn joined(log: &Arc<dyn Log>) -> Box<dyn Worker> {
    let mut member = worker(log, "a", &ONLY);
    assigned(member.as_mut());
    member
}

/// Polls until `count` records arrived; fails if partitions are assigned or revoked meanwhile.
pub(super) fn records(worker: &mut dyn Worker, count: usize) -> Vec<Arc<Record>> {
    let mut all = Vec::new();
    wait_until("the records are there", || {
        match worker.poll(POLL).unwrap() {
            Event::Records(records) => all.extend(records),
            Event::Idle => {}
            other => panic!("{other:?} came instead of records"),
        }
        all.len() >= count
    });
    assert_eq!(all.len(), count);
    all
}

/// A step that commits the position of the group.
pub(super) fn up_to(of: TopicPartition, offset: Offset, metadata: &str) -> Step {
    let committed = Committed { offset, metadata: metadata.to_owned() };
    Step { records: vec![], offsets: vec![(of, committed)] }
}

fn of_partition(records: &[Arc<Record>], of: TopicPartition) -> Vec<String> {
    records.iter().filter(|record| record.from == of).map(|r| text(r)).collect()
}

pub(super) fn the_first_read_starts_at_the_beginning(fixture: &dyn Fixture) {
    let log = fixture.open();
    let (first, second) = (at(Topic::Orders, 0), at(Topic::Orders, 1));
    produce_numbers(&log, first, 0..25);
    produce_numbers(&log, second, 50..53);
    let mut worker = worker(&log, "a", &ONLY);
    let assigned = assigned(worker.as_mut());
    assert_eq!(assigned.len(), 4);
    assert!(assigned.iter().all(|a| a.committed.is_none()));
    let seen = records(worker.as_mut(), 28);
    assert_eq!(of_partition(&seen, first), numbers(0..25));
    assert_eq!(of_partition(&seen, second), numbers(50..53));
    assert_eq!(worker.poll(POLL).unwrap(), Event::Idle);
}

pub(super) fn a_group_resumes_where_it_committed(fixture: &dyn Fixture) {
    let log = fixture.open();
    let (first, second) = (at(Topic::Orders, 0), at(Topic::Orders, 1));
    produce_numbers(&log, first, 0..10);
    produce_numbers(&log, second, 50..53);
    let mut member = joined(&log);
    let seen = records(member.as_mut(), 13);
    let fourth = seen.iter().filter(|r| r.from == first).nth(3).unwrap();
    let place = fourth.offset.next();
    member.commit(up_to(first, place, "{\"done\":[7]} ä")).unwrap();
    drop(member);
    let check = |log: Arc<dyn Log>| {
        let mut member = worker(&log, "b", &ONLY);
        for Assigned { partition, committed } in assigned(member.as_mut()) {
            let metadata = "{\"done\":[7]} ä".to_owned();
            let expected = Committed { offset: place, metadata };
            assert_eq!(committed, (partition == first).then_some(expected));
        }
        let seen = records(member.as_mut(), 9);
        assert_eq!(of_partition(&seen, first), numbers(4..10));
        assert_eq!(of_partition(&seen, second), numbers(50..53));
    };
    check(log);
    check(fixture.open());
}

pub(super) fn a_step_is_outputs_and_offsets(fixture: &dyn Fixture) {
    let log = fixture.open();
    let (input, output) = (at(Topic::Orders, 0), at(Topic::OrdersChangelog, 0));
    produce_numbers(&log, input, 0..3);
    let mut member = joined(&log);
    for input_record in records(member.as_mut(), 3) {
        let mut step = up_to(input, input_record.offset.next(), "");
        step.records = vec![record(output, format!("out {}", text(&input_record)))];
        member.commit(step).unwrap();
    }
    drop((member, log));
    let log = fixture.open();
    assert_eq!(texts(&read_all(&log, output)), ["out 0", "out 1", "out 2"]);
    let mut member = worker(&log, "a", &ONLY);
    let committed = assigned(member.as_mut()).into_iter().find_map(|a| a.committed).unwrap();
    assert_eq!(committed.offset, log.bounds(input).unwrap().end);
    assert_eq!(member.poll(POLL).unwrap(), Event::Idle);
    let mut restored = Vec::new();
    member.restore(output, &mut |record| restored.push(text(&record))).unwrap();
    assert_eq!(restored, ["out 0", "out 1", "out 2"]);
}

pub(super) fn an_aborted_step_is_read_again(fixture: &dyn Fixture) {
    let log = fixture.open();
    let (first, second) = (at(Topic::Orders, 0), at(Topic::Orders, 1));
    let output = at(Topic::OrdersChangelog, 0);
    for n in 0..4 {
        produce_numbers(&log, first, n..n + 1);
        produce_numbers(&log, second, 50 + n..51 + n);
        // Each pair of records has a distinct time.
        fixture.advance(Duration::from_millis(2));
    }
    let mut member = joined(&log);
    let seen = records(member.as_mut(), 8);
    let place = seen.iter().find(|r| r.from == first).unwrap().offset.next();
    member.commit(up_to(first, place, "kept")).unwrap();
    let end = log.bounds(second).unwrap().end;
    let step = Step { records: vec![record(output, "out")], ..up_to(second, end, "") };
    fixture.fail_next_commit();
    let outcome = member.commit(step.clone());
    assert!(matches!(outcome, Err(StepError::Aborted(_))), "{outcome:?}");
    assert_eq!(read_all(&log, output), []);
    let again = records(member.as_mut(), 7);
    assert_eq!(of_partition(&again, first), numbers(1..4));
    assert_eq!(of_partition(&again, second), numbers(50..54));
    assert!(again.iter().all(|record| seen.contains(record)), "{again:?} is not in {seen:?}");
    member.commit(step).unwrap();
    assert_eq!(texts(&read_all(&log, output)), ["out"]);
    assert_eq!(member.poll(POLL).unwrap(), Event::Idle);
}

pub(super) fn what_is_written_ahead_is_part_of_a_step(fixture: &dyn Fixture) {
    let log = fixture.open();
    let (input, output) = (at(Topic::Orders, 0), at(Topic::Deposits, 0));
    let (state, other_state) = (at(Topic::OrdersChangelog, 0), at(Topic::OrdersChangelog, 1));
    produce_numbers(&log, input, 0..3);
    let mut member = joined(&log);
    records(member.as_mut(), 3);
    let outputs = |texts: &[&str]| -> Vec<NewRecord> {
        texts.iter().map(|text| record(output, *text)).collect()
    };
    // Records that the log does not take ahead are written with the step.
    let ahead = |member: &mut dyn Worker, left: &mut Vec<NewRecord>, more: Vec<NewRecord>| {
        left.extend(more);
        member.write_ahead(left);
    };
    let step = |mut records: Vec<NewRecord>, more: Vec<NewRecord>, next: i64| {
        records.extend(more);
        Step { records, ..up_to(input, Offset(next), "") }
    };
    let mut left = Vec::new();
    ahead(member.as_mut(), &mut left, outputs(&["1", "2"]));
    ahead(member.as_mut(), &mut left, vec![record(state, "s"), record(other_state, "t")]);
    ahead(member.as_mut(), &mut left, outputs(&["3"]));
    // The end shows that nothing is readable: a read would block until the end of the step.
    assert_eq!(log.bounds(output).unwrap().end, Offset(0));
    member.commit(step(left, outputs(&["4"]), 1)).unwrap();
    assert_eq!(texts(&read_all(&log, output)), ["1", "2", "3", "4"]);
    assert_eq!(texts(&read_all(&log, other_state)), ["t"]);

    // Records written ahead fail with the step.
    let mut left = Vec::new();
    ahead(member.as_mut(), &mut left, outputs(&["failed"]));
    fixture.fail_next_commit();
    let outcome = member.commit(step(left, outputs(&["too"]), 2));
    assert!(matches!(outcome, Err(StepError::Aborted(_))), "{outcome:?}");
    let again = records(member.as_mut(), 2);
    assert_eq!(texts(&again), ["1", "2"]);

    // Without a step they are discarded.
    ahead(member.as_mut(), &mut Vec::new(), outputs(&["never"]));
    assert_eq!(member.poll(POLL).unwrap(), Event::Idle);
    member.commit(step(outputs(&["5"]), vec![record(state, "u")], 3)).unwrap();
    assert_eq!(texts(&read_all(&log, output)), ["1", "2", "3", "4", "5"]);
    assert_eq!(texts(&read_all(&log, state)), ["s", "u"]);

    // A step may consist only of records written ahead.
    let mut left = Vec::new();
    ahead(member.as_mut(), &mut left, outputs(&["6"]));
    member.commit(Step { records: left, offsets: Vec::new() }).unwrap();
    assert_eq!(texts(&read_all(&log, output)).last().map(String::as_str), Some("6"));
    ahead(member.as_mut(), &mut Vec::new(), outputs(&["never"]));
    drop(member);
    let mut next = worker(&log, "b", &ONLY);
    let place = assigned(next.as_mut());
    let place = place.iter().find(|assigned| assigned.partition == input).unwrap();
    assert_eq!(place.committed.as_ref().map(|committed| committed.offset), Some(Offset(3)));
    assert_eq!(read_all(&log, output).len(), 6);
}

pub(super) fn a_paused_partition_stays_paused(fixture: &dyn Fixture) {
    let log = fixture.open();
    let (first, second) = (at(Topic::Orders, 0), at(Topic::Orders, 1));
    produce_numbers(&log, first, 0..3);
    produce_numbers(&log, second, 50..53);
    let mut member = joined(&log);
    records(member.as_mut(), 6);
    member.pause(first);
    fixture.fail_next_commit();
    member.commit(up_to(second, Offset(2), "")).unwrap_err();
    let again = records(member.as_mut(), 3);
    assert_eq!(of_partition(&again, second), numbers(50..53));
    assert_eq!(member.poll(POLL).unwrap(), Event::Idle);
    member.resume(first);
    assert_eq!(texts(&records(member.as_mut(), 3)), numbers(0..3));
}

pub(super) fn pausing_loses_nothing(fixture: &dyn Fixture) {
    let log = fixture.open();
    let (first, second) = (at(Topic::Orders, 0), at(Topic::Orders, 1));
    produce_numbers(&log, first, 0..25);
    produce_numbers(&log, second, 50..75);
    let mut member = joined(&log);
    let mut seen = match member.poll(DEADLINE).unwrap() {
        Event::Records(records) => records,
        other => panic!("{other:?} came instead of records"),
    };
    assert!(seen.len() <= 10, "more than the batch");
    member.pause(first);
    let had = of_partition(&seen, first).len();
    seen.extend(records(member.as_mut(), 25 - of_partition(&seen, second).len()));
    assert_eq!(of_partition(&seen, first).len(), had);
    assert_eq!(member.poll(POLL).unwrap(), Event::Idle);
    produce_numbers(&log, first, 25..30);
    member.resume(first);
    seen.extend(records(member.as_mut(), 30 - had));
    assert_eq!(of_partition(&seen, first), numbers(0..30));
    assert_eq!(of_partition(&seen, second), numbers(50..75));
}

pub(super) fn a_busy_partition_starves_none(fixture: &dyn Fixture) {
    const BUSY: usize = 20_000;
    let log = fixture.open();
    // Random values, which cannot be compressed: a log may deliver a partition in chunks of bytes, and
    // the busy one must have many.
    let mut seed = 1_u64;
    let mut noise = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        seed.to_le_bytes()
    };
    let mut large = || NewRecord {
        value: Some((0..128).flat_map(|_| noise()).collect()),
        ..record(at(Topic::Orders, 0), "")
    };
    produce(&log, (0..BUSY).map(|_| large()).collect()).unwrap();
    for (partition, count) in [(1, 1), (2, 200), (3, 1)] {
        produce_numbers(&log, at(Topic::Orders, partition), 0..count);
    }
    // A batch of more records than there are partitions, then one of fewer.
    for batch_max in [10, 2] {
        let spec = WorkerSpec {
            group: "checks",
            member: "a".to_owned(),
            topics: ONLY.to_vec(),
            batch_max,
        };
        let mut member = log.worker(spec).unwrap();
        assigned(member.as_mut());
        let (mut seen, mut of_the_busy_one) = (HashSet::new(), 0);
        while seen.len() < 4 {
            let Event::Records(records) = member.poll(DEADLINE).unwrap() else {
                panic!("no records")
            };
            assert!(records.len() <= batch_max);
            let partitions = records.into_iter().map(|record| record.from.partition.0);
            let partitions: Vec<u32> = partitions.collect();
            of_the_busy_one += partitions.iter().filter(|p| **p == 0).count();
            seen.extend(partitions);
        }
        assert!(of_the_busy_one < BUSY / 2, "{of_the_busy_one} came before one of each other");
    }
}

pub(super) fn an_idle_poll_wakes_for_a_record(fixture: &dyn Fixture) {
    let log = fixture.open();
    let mut member = joined(&log);
    let started = Instant::now();
    assert_eq!(member.poll(Duration::from_millis(50)).unwrap(), Event::Idle);
    assert!(started.elapsed() >= Duration::from_millis(50), "came back too early");
    let waiting = std::thread::spawn(move || member.poll(DEADLINE * 2).unwrap());
    produce(&log, vec![record(at(Topic::Orders, 2), "0")]).unwrap();
    let Event::Records(seen) = waiting.join().unwrap() else { panic!("no records") };
    assert_eq!(texts(&seen), ["0"]);
    assert!(started.elapsed() < DEADLINE, "woke up too late");
}

pub(super) fn metadata_has_a_bound(fixture: &dyn Fixture) {
    let log = fixture.open();
    let of = at(Topic::Orders, 0);
    let mut member = joined(&log);
    // One byte more than `log::METADATA_BYTES_MAX`.
    let outcome = member.commit(up_to(of, Offset(0), &"x".repeat(4001)));
    assert!(matches!(outcome, Err(StepError::Fatal(_))), "{outcome:?}");
    member.commit(up_to(of, Offset(0), &"x".repeat(4000))).unwrap();
    drop(member);
    let mut member = worker(&log, "a", &ONLY);
    let committed = assigned(member.as_mut()).into_iter().find_map(|a| a.committed).unwrap();
    assert_eq!(committed.metadata.len(), 4000);
}

pub(super) fn an_empty_step_is_nothing(fixture: &dyn Fixture) {
    let log = fixture.open();
    let mut member = joined(&log);
    // The planted failure would hit an empty step if it were written.
    fixture.fail_next_commit();
    member.commit(Step::default()).unwrap();
    log.writer("steps").unwrap().commit(vec![]).unwrap();
    produce(&log, vec![]).unwrap();
    produce(&log, vec![record(at(Topic::Orders, 0), "0")]).unwrap_err();
}
