//! Sequence of an order's events: examples, random crashes.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;
use uuid::Uuid;

use super::*;

const NOW: UnixMicros = UnixMicros(1_790_000_000_000_000);
const DAY_MICROS: i64 = 24 * HOUR_MICROS;

fn turn(order: u128, version: i64, follows: bool) -> Turn {
    Turn { order: OrderId(Uuid::from_u128(order)), version, follows }
}

/// Admits a delivery, represented by its version.
fn admit(sequence: &mut Sequence<i64>, turn: Turn) -> Admitted<i64> {
    sequence.admit(turn, turn.version, NOW)
}

fn entry(turn: Turn, dispatched_at: UnixMicros) -> WebhookEntry {
    WebhookEntry { order_id: turn.order, version: turn.version, dispatched_at }
}

#[test]
fn first_event_needs_no_entry_and_orders_are_apart() {
    let mut sequence = Sequence::new(NOW);
    for order in 0..3 {
        let first = turn(order, 5, false);
        assert_eq!(admit(&mut sequence, first), Admitted::Start(5));
        sequence.ended(first);
        assert_eq!(sequence.committed(), [0; 0]);
        assert_eq!(admit(&mut sequence, first), Admitted::Start(5), "its retry");
    }
}

#[test]
fn next_event_waits_for_entry_and_end_of_the_older() {
    let mut sequence = Sequence::new(NOW);
    let (older, newer) = (turn(1, 5, false), turn(1, 6, true));
    assert_eq!(admit(&mut sequence, older), Admitted::Start(5));
    assert!(!sequence.is_overtaken(older));
    let wait = Admitted::Wait { entry: Some(entry(newer, NOW)), overtaken: None };
    assert_eq!(admit(&mut sequence, newer), wait);
    assert!(sequence.is_overtaken(older) && !sequence.is_overtaken(newer));
    assert!(sequence.is_awaited());
    assert_eq!(sequence.committed(), [0; 0], "the older one is under way");
    assert!(!sequence.is_awaited());
    sequence.ended(older);
    assert!(sequence.is_awaited());
    assert_eq!(sequence.committed(), [6]);
    assert_eq!(admit(&mut sequence, older), Admitted::Overtaken(5));
    sequence.ended(newer);
    assert_eq!(sequence.committed(), [0; 0]);
    assert_eq!(admit(&mut sequence, older), Admitted::Overtaken(5));
    assert_eq!(admit(&mut sequence, newer), Admitted::Start(6), "its retry has an entry");
}

#[test]
fn the_newest_of_those_that_wait_is_sent() {
    let mut sequence = Sequence::new(NOW);
    let [first, second, third] = [5, 6, 7].map(|version| turn(1, version, version > 5));
    assert_eq!(admit(&mut sequence, first), Admitted::Start(5));
    assert!(matches!(admit(&mut sequence, second), Admitted::Wait { overtaken: None, .. }));
    assert!(matches!(admit(&mut sequence, third), Admitted::Wait { overtaken: Some(6), .. }));
    assert_eq!(admit(&mut sequence, second), Admitted::Overtaken(6));
    sequence.ended(first);
    assert_eq!(sequence.committed(), [7]);
}

/// A replayed dead letter repeats an event.
#[test]
fn the_same_event_twice_is_sent_one_after_the_other() {
    let mut sequence = Sequence::new(NOW);
    let event = turn(1, 5, false);
    assert_eq!(admit(&mut sequence, event), Admitted::Start(5));
    assert_eq!(admit(&mut sequence, event), Admitted::Wait { entry: None, overtaken: None });
    assert_eq!(admit(&mut sequence, event), Admitted::Repeated(5), "one copy is enough");
    assert!(!sequence.is_overtaken(event), "its retry is wanted");
    sequence.ended(event);
    assert_eq!(sequence.committed(), [5]);
}

#[test]
fn entries_leave_after_ten_days() {
    let at = |micros: i64| UnixMicros(NOW.0 + micros);
    let mut sequence: Sequence<i64> = Sequence::new(NOW);
    let orders = [1, 2, 3].map(|order| turn(order, 6, true));
    sequence.restore(entry(orders[0], at(-20 * DAY_MICROS)));
    sequence.restore(entry(orders[1], at(-10 * DAY_MICROS)));
    sequence.restore(entry(orders[2], at(0)));
    assert_eq!(sequence.expire(at(HOUR_MICROS - 1), 100), []);
    assert_eq!(sequence.expire(at(HOUR_MICROS), 1), [orders[0].order]);
    assert_eq!(sequence.expire(at(HOUR_MICROS), 100), [orders[1].order]);
    assert_eq!(sequence.expire(at(10 * DAY_MICROS), 100), []);
    assert!(matches!(sequence.admit(orders[2], 6, at(0)), Admitted::Start(6)));
    assert_eq!(sequence.expire(at(11 * DAY_MICROS), 100), [], "it is under work");
    sequence.ended(orders[2]);
    sequence.committed();
    assert_eq!(sequence.expire(at(11 * DAY_MICROS), 100), [orders[2].order]);
}

/// Changes that are not on the log yet.
#[derive(Default)]
struct Step {
    complete: Vec<usize>,
    again: Vec<Turn>,
    overtaken: Vec<Turn>,
    entries: Vec<WebhookEntry>,
}

/// A log, a worker on it, and a receiver.
struct World {
    /// Records, each with `true` once it is complete.
    log: Vec<(Turn, bool)>,
    entries: BTreeMap<OrderId, WebhookEntry>,
    overtaken: Vec<Turn>,
    sequence: Sequence<(usize, Turn)>,
    received: usize,
    under_way: VecDeque<(usize, Turn)>,
    step: Step,
    posts: Vec<Turn>,
    delivered: Vec<Turn>,
}

impl World {
    fn new() -> Self {
        Self {
            log: Vec::new(),
            entries: BTreeMap::new(),
            overtaken: Vec::new(),
            sequence: Sequence::new(NOW),
            received: 0,
            under_way: VecDeque::new(),
            step: Step::default(),
            posts: Vec::new(),
            delivered: Vec::new(),
        }
    }

    fn post(&mut self, job: (usize, Turn)) {
        self.posts.push(job.1);
        self.under_way.push_back(job);
    }

    fn overtake(&mut self, (place, turn): (usize, Turn)) {
        self.step.complete.push(place);
        self.step.overtaken.push(turn);
    }

    fn receive(&mut self) {
        let Some((turn, is_complete)) = self.log.get(self.received).copied() else { return };
        let job = (self.received, turn);
        self.received += 1;
        if is_complete {
            return;
        }
        match self.sequence.admit(turn, job, NOW) {
            Admitted::Start(job) => self.post(job),
            Admitted::Overtaken(job) => self.overtake(job),
            Admitted::Repeated(job) => panic!("{job:?} was received twice"),
            Admitted::Wait { entry, overtaken } => {
                self.step.entries.extend(entry);
                overtaken.into_iter().for_each(|job| self.overtake(job));
            }
        }
    }

    fn end(&mut self, which: usize, is_acknowledged: bool) {
        if self.under_way.is_empty() {
            return;
        }
        self.under_way.rotate_left(which % self.under_way.len());
        let (place, turn) = self.under_way.pop_front().unwrap();
        if is_acknowledged {
            self.delivered.push(turn);
        } else if self.sequence.is_overtaken(turn) {
            self.step.overtaken.push(turn);
        } else {
            self.step.again.push(turn);
        }
        self.step.complete.push(place);
        self.sequence.ended(turn);
    }

    fn commit(&mut self) {
        let step = std::mem::take(&mut self.step);
        for place in step.complete {
            self.log[place].1 = true;
        }
        self.log.extend(step.again.into_iter().map(|turn| (turn, false)));
        self.overtaken.extend(step.overtaken);
        self.entries.extend(step.entries.into_iter().map(|entry| (entry.order_id, entry)));
        for job in self.sequence.committed() {
            self.post(job);
        }
    }

    fn crash(&mut self) {
        self.sequence = Sequence::new(NOW);
        self.entries.values().for_each(|entry| self.sequence.restore(entry.clone()));
        self.received = 0;
        self.under_way.clear();
        self.step = Step::default();
    }

    fn is_idle(&self) -> bool {
        self.received == self.log.len() && self.under_way.is_empty()
    }
}

#[derive(Debug, Clone)]
enum Act {
    /// The next event of an order is dispatched.
    Dispatch(u128),
    Receive,
    End(usize, bool),
    Commit,
    Crash,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        2 => (0..3_u128).prop_map(Act::Dispatch),
        4 => Just(Act::Receive),
        3 => (0..9_usize, any::<bool>()).prop_map(|(which, ok)| Act::End(which, ok)),
        3 => Just(Act::Commit),
        1 => Just(Act::Crash),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn invariant_12_no_crash_reorders_events(
        acts in prop::collection::vec(act(), 0..80)
    ) {
        let mut world = World::new();
        let mut versions = [0_i64; 3];
        for act in acts {
            match act {
                Act::Dispatch(order) => {
                    let version = &mut versions[usize::try_from(order).unwrap()];
                    if *version < 5 {
                        *version += 1;
                        world.log.push((turn(order, *version, *version > 1), false));
                    }
                }
                Act::Receive => world.receive(),
                Act::End(which, is_acknowledged) => world.end(which, is_acknowledged),
                Act::Commit => world.commit(),
                Act::Crash => world.crash(),
            }
        }
        let mut left = 1000;
        while !world.is_idle() || world.log.iter().any(|(_, is_complete)| !is_complete) {
            world.receive();
            world.end(0, true);
            world.commit();
            left -= 1;
            prop_assert!(left > 0, "a delivery waits for ever");
        }
        for (order, dispatched) in (0..3).zip(versions) {
            let of = |list: &[Turn]| -> Vec<i64> {
                let id = turn(order, 0, false).order;
                list.iter().filter(|t| t.order == id).map(|t| t.version).collect()
            };
            let posts = of(&world.posts);
            prop_assert!(posts.is_sorted(), "{posts:?}");
            for version in 1..=dispatched {
                let is_over = [&world.delivered, &world.overtaken].map(|l| of(l).contains(&version));
                prop_assert!(is_over.contains(&true), "{version} is neither delivered nor overtaken");
            }
            prop_assert!(dispatched == 0 || posts.last() == Some(&dispatched), "{posts:?}");
        }
    }
}
