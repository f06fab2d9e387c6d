//! Several members of a group: assignments, and the right to commit.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use log::{Error, Event, Log, Offset, StepError, TopicPartition, Worker, WorkerSpec};
use schemas::Topic;

use super::member::{assigned, joined, records, up_to};
use super::{
    Fixture, LAYOUT, POLL, at, numbers, produce_numbers, read_all, record, text, texts, worker,
};
use crate::wait_until;

const PAIR: [Topic; 2] = [Topic::TransfersRaw, Topic::DepositsCommands];
const ONLY: [Topic; 1] = [Topic::Orders];

/// A member with recorded events.
struct Noted {
    worker: Box<dyn Worker>,
    owned: BTreeSet<TopicPartition>,
    gained_at: Instant,
    events: Vec<Event>,
}

impl Noted {
    fn join(log: &Arc<dyn Log>, name: &str, topics: &[Topic]) -> Self {
        let worker = worker(log, name, topics);
        let owned = BTreeSet::new();
        Self { worker, owned, gained_at: Instant::now(), events: Vec::new() }
    }

    fn poll(&mut self) {
        let event = self.worker.poll(POLL).unwrap();
        match &event {
            Event::Assigned(gained) => {
                self.gained_at = Instant::now();
                for assigned in gained {
                    assert!(self.owned.insert(assigned.partition), "assigned twice");
                }
            }
            Event::Revoked(lost) => {
                for partition in lost {
                    assert!(self.owned.remove(partition), "revoked what was not assigned");
                }
            }
            Event::Records(_) | Event::Idle => return,
        }
        self.events.push(event);
    }

    fn partitions(&self, topic: Topic) -> Vec<u32> {
        self.owned.iter().filter(|p| p.topic == topic).map(|p| p.partition.0).collect()
    }
}

fn all_of(topics: &[Topic]) -> usize {
    topics.iter().map(|topic| topic.partitions(&LAYOUT) as usize).sum()
}

/// Polls all members until each has its share, checking that no partition has two owners that may commit.
fn share_out(members: &mut [&mut Noted], topics: &[Topic]) {
    let share = all_of(topics) / members.len();
    wait_until("the partitions are shared", || {
        members.iter_mut().for_each(|member| member.poll());
        // The member with the newest assignment is up to date; events of the others may be pending.
        members.sort_by_key(|member| std::cmp::Reverse(member.gained_at));
        let mut owned = HashSet::new();
        for member in members.iter_mut() {
            let double = member.owned.iter().find(|of| owned.contains(*of)).copied();
            if let Some(of) = double {
                let outcome = member.worker.commit(up_to(of, Offset(0), "by two"));
                assert!(outcome.is_err(), "{of} has two owners that may commit");
                return false;
            }
            owned.extend(member.owned.iter().copied());
        }
        let even = members.iter().all(|member| member.owned.len().abs_diff(share) <= topics.len());
        owned.len() == all_of(topics) && even
    });
}

pub(super) fn members_share_partitions_alike(fixture: &dyn Fixture) {
    let log = fixture.open();
    let mut members: Vec<_> = ["a", "b", "c"].map(|n| Noted::join(&log, n, &PAIR)).into();
    let mut all: Vec<&mut Noted> = members.iter_mut().collect();
    share_out(&mut all, &PAIR);
    for member in &members {
        assert!(!member.owned.is_empty());
        let lanes = member.partitions(Topic::TransfersRaw);
        assert_eq!(lanes, member.partitions(Topic::DepositsCommands));
    }
}

pub(super) fn partitions_move_without_a_gap(fixture: &dyn Fixture) {
    let log = fixture.open();
    let mut a = Noted::join(&log, "a", &PAIR);
    share_out(&mut [&mut a], &PAIR);
    let mut b = Noted::join(&log, "b", &PAIR);
    for _ in 0..3 {
        b.poll();
    }
    assert!(b.owned.is_empty(), "assigned before it was revoked from the old owner");
    share_out(&mut [&mut a, &mut b], &PAIR);
    assert_eq!(a.owned.len(), b.owned.len());
    drop(a);
    share_out(&mut [&mut b], &PAIR);
    let mut c = Noted::join(&log, "c", &PAIR);
    share_out(&mut [&mut b, &mut c], &PAIR);
    drop(b);
    share_out(&mut [&mut c], &PAIR);
}

pub(super) fn kept_partitions_give_no_events(fixture: &dyn Fixture) {
    let log = fixture.open();
    let mut a = Noted::join(&log, "a", &ONLY);
    let mut b = Noted::join(&log, "b", &ONLY);
    share_out(&mut [&mut a, &mut b], &ONLY);
    a.events.clear();
    b.events.clear();
    let kept = (a.owned.clone(), b.owned.clone());
    // A third member takes over some; kept partitions cause no event.
    let mut c = Noted::join(&log, "c", &ONLY);
    share_out(&mut [&mut a, &mut b, &mut c], &ONLY);
    for (member, before) in [(&a, &kept.0), (&b, &kept.1)] {
        let reported: BTreeSet<TopicPartition> =
            member.events.iter().flat_map(partitions_of).collect();
        let changed: BTreeSet<_> = before.symmetric_difference(&member.owned).copied().collect();
        assert_eq!(reported, changed);
    }
    assert!(kept.0.intersection(&a.owned).count() + kept.1.intersection(&b.owned).count() > 0);
}

fn partitions_of(event: &Event) -> Vec<TopicPartition> {
    match event {
        Event::Assigned(gained) => gained.iter().map(|assigned| assigned.partition).collect(),
        Event::Revoked(lost) => lost.clone(),
        Event::Records(_) | Event::Idle => Vec::new(),
    }
}

pub(super) fn a_successor_waits_for_the_last_one(fixture: &dyn Fixture) {
    let log = fixture.open();
    let of = at(Topic::Orders, 3);
    produce_numbers(&log, of, 0..5);
    let mut a = joined(&log);
    let mut b = worker(&log, "b", &ONLY);
    for n in 1..=2 {
        assert_eq!(b.poll(POLL).unwrap(), Event::Idle);
        a.commit(up_to(of, Offset(n), "by a")).unwrap();
    }
    // Members detect each other at different times: on Kafka a detects b at its next heartbeat.
    let (mut lost, mut gained, mut seen) = (Vec::new(), Vec::new(), Vec::new());
    wait_until("the partition moved", || {
        match a.poll(POLL).unwrap() {
            Event::Revoked(partitions) => lost.extend(partitions),
            other => assert!(lost.is_empty() || other == Event::Idle, "{other:?}"),
        }
        match b.poll(POLL).unwrap() {
            Event::Assigned(assigned) => gained.extend(assigned),
            // By then a is fenced, even before its Revoked event.
            Event::Records(records) if !gained.is_empty() => seen.extend(records),
            other => assert_eq!(other, Event::Idle),
        }
        lost.contains(&of) && !gained.is_empty()
    });
    let place = gained.into_iter().find(|a| a.partition == of).unwrap().committed.unwrap();
    assert_eq!((place.offset, place.metadata.as_str()), (Offset(2), "by a"));
    wait_until("b continues", || {
        if seen.len() < 3
            && let Event::Records(records) = b.poll(POLL).unwrap()
        {
            seen.extend(records);
        }
        seen.len() >= 3
    });
    assert_eq!(texts(&seen), numbers(2..5));
}

pub(super) fn a_silent_member_is_fenced(fixture: &dyn Fixture) {
    fixture.set_session_timeout(Duration::from_secs(3));
    let log = fixture.open();
    let (of, output) = (at(Topic::Orders, 0), at(Topic::OrdersChangelog, 0));
    let mut silent = joined(&log);
    let mut other = Noted::join(&log, "b", &ONLY);
    wait_until("everything moved", || {
        other.poll();
        other.owned.len() == 4
    });
    other.worker.commit(up_to(of, Offset(0), "new")).unwrap();
    let mut late = up_to(of, Offset(0), "late");
    late.records = vec![record(output, "late")];
    let outcome = silent.commit(late);
    assert!(matches!(outcome, Err(StepError::Fenced(_))), "{outcome:?}");
    assert_eq!(read_all(&log, output), []);
    // Polling joins again.
    let again = std::thread::scope(|scope| {
        let rejoined = scope.spawn(|| assigned(silent.as_mut()));
        wait_until("the partitions come back", || {
            other.poll();
            rejoined.is_finished()
        });
        rejoined.join().unwrap()
    });
    let place = again.into_iter().find(|a| a.partition == of).unwrap().committed.unwrap();
    assert_eq!(place.metadata, "new");
    silent.commit(up_to(of, Offset(0), "again")).unwrap();
}

pub(super) fn waiting_is_not_silence(fixture: &dyn Fixture) {
    let session = Duration::from_secs(3);
    fixture.set_session_timeout(session);
    let log = fixture.open();
    let (mut a, mut b) = (Noted::join(&log, "a", &ONLY), Noted::join(&log, "b", &ONLY));
    share_out(&mut [&mut a, &mut b], &ONLY);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| a.worker.poll(session * 2).unwrap());
        wait_until("the poll ends", || {
            b.poll();
            waits.is_finished()
        });
        assert_eq!(waits.join().unwrap(), Event::Idle);
    });
    wait_until("it commits", || {
        a.poll();
        a.worker.commit(up_to(*a.owned.first().unwrap(), Offset(0), "")).is_ok()
    });
    assert_eq!(b.owned.len(), 2);
}

pub(super) fn a_name_has_one_member(fixture: &dyn Fixture) {
    let log = fixture.open();
    let of = at(Topic::Orders, 0);
    let mut old = joined(&log);
    old.commit(up_to(of, Offset(0), "old")).unwrap();
    let mut new = worker(&log, "a", &ONLY);
    assert_eq!(assigned(new.as_mut()).len(), 4);
    let outcome = old.commit(up_to(of, Offset(0), "late"));
    assert!(matches!(outcome, Err(StepError::Fenced(_))), "{outcome:?}");
    assert!(matches!(old.poll(POLL), Err(Error::Fenced(_))));
    drop(old);
    new.commit(up_to(of, Offset(0), "new")).unwrap();
    assert_eq!(new.poll(POLL).unwrap(), Event::Idle);
}

pub(super) fn a_lost_partition_cannot_be_committed(fixture: &dyn Fixture) {
    let log = fixture.open();
    let output = at(Topic::OrdersChangelog, 0);
    let mut a = Noted::join(&log, "a", &ONLY);
    share_out(&mut [&mut a], &ONLY);
    let mut b = Noted::join(&log, "b", &ONLY);
    share_out(&mut [&mut a, &mut b], &ONLY);
    let (own, foreign) = (*a.owned.first().unwrap(), *b.owned.first().unwrap());
    let step = || {
        let mut step = up_to(own, Offset(0), "");
        step.offsets.extend(up_to(foreign, Offset(0), "").offsets);
        step.records = vec![record(output, "late")];
        step
    };
    // On a busy machine another rebalance may abort the step, which is not a refusal.
    let mut outcome = a.worker.commit(step());
    wait_until("it is refused or done", || {
        let is_rebalancing = matches!(outcome, Err(StepError::Aborted(_)));
        if is_rebalancing {
            a.poll();
            b.poll();
            outcome = a.worker.commit(step());
        }
        !is_rebalancing
    });
    assert!(matches!(outcome, Err(StepError::Fenced(_))), "{outcome:?}");
    assert_eq!(read_all(&log, output), []);
    // The fenced member has lost all partitions, and polls to regain them.
    a.owned.clear();
    share_out(&mut [&mut a, &mut b], &ONLY);
    wait_until("the other one commits", || {
        b.poll();
        b.worker.commit(up_to(*b.owned.first().unwrap(), Offset(0), "")).is_ok()
    });
}

pub(super) fn groups_do_not_disturb_each_other(fixture: &dyn Fixture) {
    let log = fixture.open();
    let of = at(Topic::Orders, 0);
    produce_numbers(&log, of, 0..3);
    let join = |group| {
        let (member, topics) = ("a".to_owned(), ONLY.to_vec());
        let mut worker = log.worker(WorkerSpec { group, member, topics, batch_max: 10 }).unwrap();
        let places = assigned(worker.as_mut());
        assert_eq!(places.len(), 4);
        (worker, places)
    };
    let ((mut one, _), (mut two, _)) = (join("one"), join("two"));
    one.commit(up_to(of, Offset(3), "")).unwrap();
    for worker in [&mut one, &mut two] {
        assert_eq!(texts(&records(worker.as_mut(), 3)), numbers(0..3));
    }
    drop((one, two));
    assert!(join("two").1.iter().all(|a| a.committed.is_none()));
}

/// Members join and leave while records are copied by steps: exactly once.
pub(super) fn a_crowd_reads_everything_once(fixture: &dyn Fixture) {
    const COUNT: u32 = 300;
    let log = fixture.open();
    for partition in 0..4 {
        produce_numbers(&log, at(Topic::Orders, partition), 0..COUNT);
    }
    let copied = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for (name, steps) in [("a", 20), ("b", 9), ("c", usize::MAX), ("d", 31)] {
            let (log, copied) = (log.clone(), &copied);
            scope.spawn(move || {
                let mut worker = worker(&log, name, &ONLY);
                let mut left = steps;
                wait_until("all is copied", || {
                    if let Event::Records(records) = worker.poll(POLL).unwrap() {
                        copy(worker.as_mut(), &records);
                        copied.fetch_add(records.len(), Ordering::SeqCst);
                        left -= 1;
                    }
                    left == 0 || copied.load(Ordering::SeqCst) >= 4 * COUNT as usize
                });
            });
        }
    });
    for partition in 0..4 {
        let copies = read_all(&log, at(Topic::OrdersChangelog, partition));
        assert_eq!(texts(&copies), numbers(0..COUNT));
    }
}

fn copy(worker: &mut dyn Worker, records: &[Arc<log::Record>]) {
    let mut places = BTreeMap::new();
    let mut step = log::Step::default();
    for read in records {
        let to = TopicPartition { topic: Topic::OrdersChangelog, ..read.from };
        step.records.push(record(to, text(read)));
        places.insert(read.from, read.offset.next());
    }
    let places = places.into_iter().flat_map(|(of, next)| up_to(of, next, "").offsets);
    step.offsets.extend(places);
    worker.commit(step).unwrap();
}
