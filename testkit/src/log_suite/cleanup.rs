//! Retention and compaction.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use log::{Event, Log, NewRecord, Record, TopicPartition};
use schemas::{Cleanup, Topic};

use super::member::assigned;
use super::{
    FILLER, Fixture, LAYOUT, POLL, at, numbers, produce, produce_numbers, read_all, read_from,
    record, texts, worker,
};
use crate::wait_until;

/// Longer than any topic keeps its records.
const AGE: Duration = Duration::from_secs(400 * 24 * 3600);

fn keyed(partition: u32, key: u32, value: Option<u32>) -> NewRecord {
    NewRecord {
        key: key.to_string().into_bytes(),
        value: value.map(|value| value.to_string().into_bytes()),
        ..record(at(Topic::OrdersChangelog, partition), "")
    }
}

/// Records of a changelog besides fillers.
fn kept(log: &Arc<dyn Log>, of: TopicPartition) -> Vec<Arc<Record>> {
    read_all(log, of).into_iter().filter(|record| record.key != FILLER).collect()
}

/// State that results from applying all of a changelog.
fn state(records: Vec<Arc<Record>>) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut state = BTreeMap::new();
    for record in records {
        let Record { key, value, .. } = Arc::unwrap_or_clone(record);
        match value {
            _ if key == FILLER => None,
            Some(value) => state.insert(key, value),
            None => state.remove(&key),
        };
    }
    state
}

pub(super) fn compaction_keeps_the_last_of_each_key(fixture: &dyn Fixture) {
    const COUNT: u32 = 3000;
    let log = fixture.open();
    let of = at(Topic::OrdersChangelog, 1);
    // Keys of a small generator, so that they come unevenly; each seventh record is a tombstone.
    let mut seed = 1_u32;
    let mut changes = Vec::new();
    for n in 0..COUNT {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let value = (n % 7 != 0).then_some(n);
        changes.push(keyed(1, (seed >> 16) % 50, value));
    }
    let neighbour = vec![keyed(2, 0, Some(1)), keyed(2, 0, Some(2))];
    for part in changes.chunks(500) {
        produce(&log, part.to_vec()).unwrap();
    }
    produce(&log, neighbour).unwrap();
    let expected = state(read_all(&log, of));
    let end = log.bounds(of).unwrap().end;
    fixture.maintain();
    let check = |log: Arc<dyn Log>| {
        let left = kept(&log, of);
        assert_eq!(left.len(), expected.len());
        assert_eq!(state(left), expected);
        let mut restored = Vec::new();
        let mut worker = worker(&log, "a", &[Topic::OrdersCommands]);
        worker.restore(of, &mut |record| restored.push(Arc::new(record))).unwrap();
        assert_eq!(state(restored), expected);
        assert!(log.bounds(of).unwrap().end >= end, "it counts anew");
        assert_eq!(texts(&kept(&log, at(Topic::OrdersChangelog, 2))), ["2"]);
    };
    check(log);
    let log = fixture.open();
    check(log.clone());
    // A second run changes nothing; later records supersede the remaining ones.
    fixture.maintain();
    check(log.clone());
    let removals = (0..50).map(|key| keyed(1, key, None)).collect();
    produce(&log, removals).unwrap();
    fixture.maintain();
    assert_eq!(kept(&log, of), []);
    assert!(log.bounds(of).unwrap().end.0 >= end.0 + 50, "it counts anew");
}

pub(super) fn a_restore_reads_one_moment(fixture: &dyn Fixture) {
    let log = fixture.open();
    let of = at(Topic::OrdersChangelog, 0);
    let first: Vec<_> = (0..3000).map(|n| keyed(0, n, Some(n))).collect();
    produce(&log, first).unwrap();
    produce(&log, (0..3000).step_by(2).map(|n| keyed(0, n, None)).collect()).unwrap();
    let expected = state(read_all(&log, of));
    let mut worker = worker(&log, "a", &[Topic::OrdersCommands]);
    let mut restored = Vec::new();
    // Compaction removes the tombstones during the restore.
    worker
        .restore(of, &mut |record| {
            if restored.is_empty() {
                fixture.maintain();
            }
            restored.push(Arc::new(record));
        })
        .unwrap();
    assert_eq!(expected.len(), 1500);
    assert_eq!(state(restored), expected);
    assert_eq!(state(read_all(&log, of)), expected);
}

pub(super) fn expired_records_go(fixture: &dyn Fixture) {
    let log = fixture.open();
    let (orders, changelog) = (at(Topic::Orders, 0), at(Topic::OrdersChangelog, 0));
    assert!(matches!(Topic::Orders.spec().cleanup, Cleanup::Delete { .. }));
    produce_numbers(&log, orders, 0..2500);
    produce_numbers(&log, changelog, 0..1);
    fixture.maintain();
    assert_eq!(read_all(&log, orders).len(), 2500);
    fixture.advance(AGE);
    produce_numbers(&log, orders, 2500..2510);
    let before = log.bounds(orders).unwrap();
    let young = read_all(&log, orders).split_off(2500);
    fixture.maintain();
    let check = |log: Arc<dyn Log>| {
        assert_eq!(read_all(&log, orders), young);
        let bounds = log.bounds(orders).unwrap();
        assert_eq!(bounds.end, before.end);
        assert_eq!(bounds.start, young[0].offset);
        assert_eq!(read_from(&log, orders, bounds.start), young);
        assert_eq!(texts(&kept(&log, changelog)), numbers(0..1));
        // A new group starts at the first kept record.
        let mut worker = worker(&log, "a", &[Topic::Orders]);
        assigned(worker.as_mut());
        let mut seen = Vec::new();
        wait_until("the rest is read", || {
            if let Event::Records(records) = worker.poll(POLL).unwrap() {
                seen.extend(records);
            }
            seen.len() >= young.len()
        });
        assert_eq!(seen, young);
    };
    check(log);
    check(fixture.open());
}

pub(super) fn an_emptied_partition_keeps_counting(fixture: &dyn Fixture) {
    let log = fixture.open();
    let of = at(Topic::WebhooksDispatch, 1);
    assert!(of.partition.0 < Topic::WebhooksDispatch.partitions(&LAYOUT));
    produce_numbers(&log, of, 0..10);
    let end = log.bounds(of).unwrap().end;
    fixture.advance(AGE);
    fixture.maintain();
    assert_eq!(read_all(&log, of), []);
    drop(log);
    let log = fixture.open();
    let bounds = log.bounds(of).unwrap();
    assert_eq!((bounds.start, bounds.end), (end, end));
    produce(&log, vec![record(of, "10")]).unwrap();
    let left = read_all(&log, of);
    assert_eq!((texts(&left), left[0].offset), (numbers(10..11), end));
}
