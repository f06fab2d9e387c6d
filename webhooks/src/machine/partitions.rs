//! Partitions that this worker owns: records held until due, and completions.
//!
//! Within a topic all waits are equal, and one process at a time writes a partition of a delayed topic. So the first
//! record of a partition is the first that is due, and no due record waits behind a later one.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use log::{Assigned, Committed, Offset, Record, TopicPartition, Unreadable};
use schemas::record::Delivery;
use schemas::{Topic, UnixMicros};

use super::schedule::due_after;
use super::tracker::Tracker;

/// Number of an assignment, to recognize completions of records from earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Ownership(u64);

/// Position of a record in work, for its completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) from: TopicPartition,
    pub(crate) offset: Offset,
    pub(crate) ownership: Ownership,
}

#[derive(Debug)]
struct OwnedPartition {
    ownership: Ownership,
    tracker: Tracker,
    held: VecDeque<Held>,
    paused: bool,
}

#[derive(Debug)]
struct Held {
    record: Arc<Record>,
    delivery: Result<Delivery, Unreadable>,
    due: UnixMicros,
}

/// All partitions of this worker.
#[derive(Debug, Default)]
pub(crate) struct Partitions {
    /// Time of the last call of [`Partitions::take_due`].
    latest: UnixMicros,
    ownership: Ownership,
    partitions: HashMap<TopicPartition, OwnedPartition>,
}

impl Partitions {
    pub(crate) fn assign(&mut self, assigned: &Assigned) {
        self.revoke(assigned.partition);
        self.ownership = Ownership(self.ownership.0.saturating_add(1));
        let owned = OwnedPartition {
            ownership: self.ownership,
            tracker: Tracker::restore(assigned.committed.as_ref()),
            held: VecDeque::new(),
            paused: false,
        };
        self.partitions.insert(assigned.partition, owned);
    }

    pub(crate) fn revoke(&mut self, partition: TopicPartition) {
        self.partitions.remove(&partition);
    }

    /// Holds a record, unless it is known already or its partition is not ours. An unreadable one is due as if written
    /// now.
    pub(crate) fn receive(
        &mut self,
        record: Arc<Record>,
        delivery: Result<Delivery, Unreadable>,
        now: UnixMicros,
    ) {
        let Some(owned) = self.partitions.get_mut(&record.from) else { return };
        if !owned.tracker.receive(record.offset) {
            return;
        }
        let written = delivery.as_ref().map_or(UnixMicros(0), |delivery| delivery.due_at);
        let due = due_after(record.from.topic, written, now);
        owned.held.push_back(Held { record, delivery, due });
    }

    /// Caps each wait at its topic's delay, after the clock was set back.
    fn bound_waits(&mut self, now: UnixMicros) {
        for (of, owned) in &mut self.partitions {
            for held in &mut owned.held {
                held.due = due_after(of.topic, held.due, now);
            }
        }
    }

    /// Takes a due record and its delivery: of `webhooks.dispatch` first, then, with `with_delayed`, the longest-due of
    /// the delayed topics.
    pub(crate) fn take_due(
        &mut self,
        now: UnixMicros,
        with_delayed: bool,
    ) -> Option<(Position, Arc<Record>, Result<Delivery, Unreadable>)> {
        if now < self.latest {
            self.bound_waits(now);
        }
        self.latest = now;
        let may_start = |(of, owned): (&TopicPartition, &OwnedPartition)| {
            let first = owned.held.front()?;
            let is_delayed = of.topic.spec().delay_seconds > 0;
            let is_due = first.due <= now && (with_delayed || !is_delayed);
            let fits = owned.tracker.fits(first.record.offset);
            // Fresh events first, whatever else has been due for longer.
            (is_due && fits).then_some((is_delayed, first.due, *of))
        };
        let (.., of) = self.partitions.iter().filter_map(may_start).min()?;
        let (position, Held { record, delivery, .. }) = self.take_first(of)?;
        Some((position, record, delivery))
    }

    fn take_first(&mut self, of: TopicPartition) -> Option<(Position, Held)> {
        let owned = self.partitions.get_mut(&of)?;
        let held = owned.held.pop_front()?;
        let position =
            Position { from: of, offset: held.record.offset, ownership: owned.ownership };
        Some((position, held))
    }

    /// Takes a wanted deferred delivery before it is due. Only the first record of a partition is eligible.
    pub(crate) fn take_early(
        &mut self,
        wanted: impl Fn(&Delivery) -> bool,
    ) -> Option<(Position, Arc<Record>, Delivery)> {
        let is_wanted = |of: &TopicPartition, owned: &OwnedPartition| {
            let first = owned.held.front().filter(|_| matches!(of.topic, Topic::WebhooksDefer(_)));
            first.is_some_and(|held| {
                owned.tracker.fits(held.record.offset) && held.delivery.as_ref().is_ok_and(&wanted)
            })
        };
        let mut all = self.partitions.iter();
        let of = all.find_map(|(of, owned)| is_wanted(of, owned).then_some(*of))?;
        let (position, Held { record, delivery, .. }) = self.take_first(of)?;
        Some((position, record, delivery.ok()?))
    }

    /// Earliest due time of a held record; it may be past.
    pub(crate) fn next_due(&self) -> Option<UnixMicros> {
        let first = |owned: &OwnedPartition| Some(owned.held.front()?.due);
        self.partitions.values().filter_map(first).min()
    }

    /// `true` if `position` is of the current assignment.
    pub(crate) fn owns(&self, position: &Position) -> bool {
        self.partitions
            .get(&position.from)
            .is_some_and(|owned| owned.ownership == position.ownership)
    }

    /// Marks a record as complete. `false` if its partition was lost meanwhile: then its results must not be written.
    pub(crate) fn complete(&mut self, position: &Position) -> bool {
        match self.partitions.get_mut(&position.from) {
            Some(owned) if owned.ownership == position.ownership => {
                owned.tracker.complete(position.offset);
                true
            }
            _ => false,
        }
    }

    /// Offset and completions to commit for a partition.
    pub(crate) fn committed(&self, partition: &TopicPartition) -> Option<Committed> {
        self.partitions.get(partition).map(|owned| owned.tracker.committed())
    }

    /// Partitions whose reading is to be paused (`true`) or resumed (`false`). A partition with a held record is
    /// paused, so that at most one batch of it is in memory.
    pub(crate) fn pause_changes(&mut self) -> Vec<(TopicPartition, bool)> {
        let mut changes = Vec::new();
        for (partition, owned) in &mut self.partitions {
            let wanted = !owned.held.is_empty();
            if owned.paused != wanted {
                owned.paused = wanted;
                changes.push((*partition, wanted));
            }
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemas::record::example;
    use schemas::{DeferLevel, Partition, RetryLevel};

    fn of(topic: Topic) -> TopicPartition {
        TopicPartition { topic, partition: Partition(0) }
    }

    fn record(topic: Topic, offset: i64) -> Arc<Record> {
        Arc::new(Record {
            from: of(topic),
            offset: Offset(offset),
            appended_at: UnixMicros(0),
            key: Vec::new(),
            value: None,
            headers: schemas::Headers::default(),
        })
    }

    /// Receives a record that is written now.
    fn receive(partitions: &mut Partitions, topic: Topic, offset: i64, seconds: i64) {
        let nobody_says_when = Err(Unreadable::Garbage(String::new()));
        let now = UnixMicros(seconds * 1_000_000);
        partitions.receive(record(topic, offset), nobody_says_when, now);
    }

    fn owning(topics: &[Topic]) -> Partitions {
        let mut partitions = Partitions::default();
        for topic in topics {
            partitions.assign(&Assigned { partition: of(*topic), committed: None });
        }
        partitions
    }

    fn take(partitions: &mut Partitions, seconds: i64) -> Option<(Topic, i64)> {
        let (position, ..) = partitions.take_due(UnixMicros(seconds * 1_000_000), true)?;
        Some((position.from.topic, position.offset.0))
    }

    #[test]
    fn the_longest_due_first_and_never_early() {
        let (long, short) =
            (Topic::WebhooksRetry(RetryLevel::ALL[3]), Topic::WebhooksRetry(RetryLevel::ALL[0]));
        let mut partitions = owning(&[long, short]);
        receive(&mut partitions, long, 0, 100);
        receive(&mut partitions, short, 0, 104);
        receive(&mut partitions, short, 1, 106);
        assert_eq!(partitions.next_due(), Some(UnixMicros(105_000_000)));
        assert_eq!(take(&mut partitions, 104), None);
        assert_eq!(take(&mut partitions, 105), Some((short, 0)));
        assert_eq!(take(&mut partitions, 106), None);
        assert_eq!(take(&mut partitions, 108), Some((short, 1)));
        assert_eq!(take(&mut partitions, 108), Some((long, 0)));
        assert_eq!(partitions.next_due(), None);
    }

    #[test]
    fn deferred_can_be_taken_early_and_a_retry_cannot() {
        let (retry, defer) =
            (Topic::WebhooksRetry(RetryLevel::ALL[0]), Topic::WebhooksDefer(DeferLevel::Second));
        let mut partitions = owning(&[retry, defer]);
        for (topic, offset) in [(retry, 0), (defer, 0), (defer, 1)] {
            partitions.receive(record(topic, offset), Ok(example::delivery()), UnixMicros(0));
        }
        assert!(partitions.take_early(|_| false).is_none());
        for offset in 0..2 {
            let (position, ..) = partitions.take_early(|_| true).unwrap();
            assert_eq!((position.from.topic, position.offset.0), (defer, offset));
            assert!(partitions.complete(&position));
        }
        assert!(partitions.take_early(|_| true).is_none());
        assert_eq!(take(&mut partitions, 100), Some((retry, 0)));
        assert_eq!(take(&mut partitions, 100), None);
    }

    #[test]
    fn clock_set_back_holds_nothing_beyond_its_delay() {
        let (retry, dispatch) = (Topic::WebhooksRetry(RetryLevel::ALL[3]), Topic::WebhooksDispatch);
        let mut partitions = owning(&[retry, dispatch]);
        receive(&mut partitions, retry, 0, 1000);
        receive(&mut partitions, retry, 1, 1002);
        receive(&mut partitions, dispatch, 0, 1002);
        receive(&mut partitions, dispatch, 1, 1002);
        assert_eq!(take(&mut partitions, 1003), Some((dispatch, 0)));
        assert_eq!(take(&mut partitions, 400), Some((dispatch, 1)));
        assert_eq!(take(&mut partitions, 407), None);
        assert_eq!(take(&mut partitions, 408), Some((retry, 0)));
        assert_eq!(take(&mut partitions, 408), Some((retry, 1)));
    }

    #[test]
    fn a_partition_is_paused_while_it_holds_records() {
        let topic = Topic::WebhooksRetry(RetryLevel::ALL[0]);
        let mut partitions = owning(&[topic]);
        assert_eq!(partitions.pause_changes(), []);
        receive(&mut partitions, topic, 0, 100);
        assert_eq!(partitions.pause_changes(), [(of(topic), true)]);
        assert_eq!(partitions.pause_changes(), []);
        assert!(take(&mut partitions, 101).is_some());
        assert_eq!(partitions.pause_changes(), [(of(topic), false)]);
    }

    #[test]
    fn an_earlier_ownership_does_not_count() {
        let topic = Topic::WebhooksDispatch;
        let mut partitions = owning(&[topic]);
        receive(&mut partitions, topic, 0, 0);
        let (old, ..) = partitions.take_due(UnixMicros(0), true).unwrap();
        partitions.revoke(of(topic));
        assert!(!partitions.owns(&old) && !partitions.complete(&old));
        partitions.assign(&Assigned { partition: of(topic), committed: None });
        receive(&mut partitions, topic, 0, 0);
        let (new, ..) = partitions.take_due(UnixMicros(0), true).unwrap();
        assert!(!partitions.owns(&old) && !partitions.complete(&old));
        assert_eq!(partitions.committed(&of(topic)).unwrap().offset, Offset(0));
        assert!(partitions.complete(&new));
        assert_eq!(partitions.committed(&of(topic)).unwrap().offset, Offset(1));
    }

    #[test]
    fn lost_partitions_and_known_records_are_ignored() {
        let topic = Topic::WebhooksDispatch;
        let mut partitions = owning(&[topic]);
        receive(&mut partitions, Topic::WebhooksDefer(DeferLevel::First), 0, 0);
        assert_eq!(partitions.next_due(), None);
        receive(&mut partitions, topic, 0, 0);
        receive(&mut partitions, topic, 0, 0);
        assert_eq!(take(&mut partitions, 0), Some((topic, 0)));
        assert_eq!(take(&mut partitions, 0), None);
    }

    #[test]
    fn a_full_window_holds_back_only_its_own_partition() {
        let (hot, other) = (Topic::WebhooksDispatch, Topic::WebhooksDefer(DeferLevel::First));
        let mut partitions = owning(&[hot, other]);
        for offset in 0..=super::super::tracker::WINDOW {
            receive(&mut partitions, hot, offset, 0);
        }
        let (first, ..) = partitions.take_due(UnixMicros(0), true).unwrap();
        for _ in 1..super::super::tracker::WINDOW {
            assert!(take(&mut partitions, 0).is_some());
        }
        assert_eq!(take(&mut partitions, 100), None);
        receive(&mut partitions, other, 0, 50);
        assert_eq!(take(&mut partitions, 100), Some((other, 0)));
        assert!(partitions.complete(&first));
        assert!(take(&mut partitions, 100).is_some());
    }
}
