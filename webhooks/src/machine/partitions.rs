//! The partitions that this worker owns: what is held back until it is due, and what is complete.
//!
//! Within a topic all waits are equal and append times do not decrease, so the first record of a
//! partition is the first that is due: nothing due ever waits behind something later.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use log::{Assigned, Committed, Offset, Record, TopicPartition};
use schemas::UnixMicros;

use super::schedule::due_at;
use super::tracker::Tracker;

/// Numbers the assignments, so that a completion of an earlier one is recognized.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Ownership(u64);

/// A record under work: where its completion belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) from: TopicPartition,
    pub(crate) offset: Offset,
    pub(crate) ownership: Ownership,
}

#[derive(Debug)]
struct OwnedPartition {
    ownership: Ownership,
    tracker: Tracker,
    held: VecDeque<Arc<Record>>,
    paused: bool,
}

/// All partitions of this worker.
#[derive(Debug)]
pub(crate) struct Partitions {
    first_delay: Duration,
    ownership: Ownership,
    partitions: HashMap<TopicPartition, OwnedPartition>,
    /// For each owned that holds records, when the first of them is due.
    agenda: BTreeSet<(UnixMicros, TopicPartition)>,
}

impl Partitions {
    pub(crate) fn new(first_delay: Duration) -> Self {
        Self {
            first_delay,
            ownership: Ownership::default(),
            partitions: HashMap::new(),
            agenda: BTreeSet::new(),
        }
    }

    /// Takes a partition over.
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

    /// Forgets a partition.
    pub(crate) fn revoke(&mut self, partition: TopicPartition) {
        self.partitions.remove(&partition);
        self.agenda.retain(|(_, of)| *of != partition);
    }

    /// Holds a record, unless it is known already or its partition is not ours.
    pub(crate) fn receive(&mut self, record: Arc<Record>) {
        let Some(owned) = self.partitions.get_mut(&record.from) else { return };
        if !owned.tracker.receive(record.offset) {
            return;
        }
        if owned.held.is_empty() {
            self.agenda.insert((
                due_at(record.from.topic, record.appended_at, self.first_delay),
                record.from,
            ));
        }
        owned.held.push_back(record);
    }

    /// The longest-due record that may be started at `now`.
    pub(crate) fn take_due(&mut self, now: UnixMicros) -> Option<(Place, Arc<Record>)> {
        let partitions = &mut self.partitions;
        let fits = |partition: &TopicPartition| {
            let owned = partitions.get(partition)?;
            Some(owned.tracker.fits(owned.held.front()?.offset))
        };
        let entry = *self
            .agenda
            .iter()
            .take_while(|(due, _)| *due <= now)
            .find(|(_, partition)| fits(partition).unwrap_or_default())?;
        self.agenda.remove(&entry);
        let owned = partitions.get_mut(&entry.1)?;
        let record = owned.held.pop_front()?;
        if let Some(head) = owned.held.front() {
            let due = due_at(head.from.topic, head.appended_at, self.first_delay);
            self.agenda.insert((due, entry.1));
        }
        let place = Place { from: record.from, offset: record.offset, ownership: owned.ownership };
        Some((place, record))
    }

    /// When the first held record is due; it may be past.
    pub(crate) fn next_due(&self) -> Option<UnixMicros> {
        self.agenda.first().map(|(due, _)| *due)
    }

    /// Whether what began at `place` still counts.
    pub(crate) fn owns(&self, place: &Place) -> bool {
        self.partitions.get(&place.from).is_some_and(|owned| owned.ownership == place.ownership)
    }

    /// Marks a record as complete. False if its partition was lost meanwhile: then nothing that
    /// came of it may be written.
    pub(crate) fn complete(&mut self, place: &Place) -> bool {
        match self.partitions.get_mut(&place.from) {
            Some(owned) if owned.ownership == place.ownership => {
                owned.tracker.complete(place.offset);
                true
            }
            _ => false,
        }
    }

    /// What to commit for a partition.
    pub(crate) fn committed(&self, partition: &TopicPartition) -> Option<Committed> {
        self.partitions.get(partition).map(|owned| owned.tracker.committed())
    }

    /// The partitions whose reading is to be paused (true) or resumed (false): one that holds a record
    /// is not read further, so no more than one batch of it is ever in memory.
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
    use schemas::{DeferLevel, Partition, RetryLevel, Topic};

    fn of(topic: Topic) -> TopicPartition {
        TopicPartition { topic, partition: Partition(0) }
    }

    fn record(topic: Topic, offset: i64, seconds: i64) -> Arc<Record> {
        Arc::new(Record {
            from: of(topic),
            offset: Offset(offset),
            appended_at: UnixMicros(seconds * 1_000_000),
            key: Vec::new(),
            value: None,
            headers: schemas::Headers::default(),
        })
    }

    fn owning(topics: &[Topic]) -> Partitions {
        let mut partitions = Partitions::new(Duration::from_secs(1));
        for topic in topics {
            partitions.assign(&Assigned { partition: of(*topic), committed: None });
        }
        partitions
    }

    fn take(partitions: &mut Partitions, seconds: i64) -> Option<(Topic, i64)> {
        let (place, _) = partitions.take_due(UnixMicros(seconds * 1_000_000))?;
        Some((place.from.topic, place.offset.0))
    }

    #[test]
    fn the_longest_due_first_and_never_early() {
        let (long, short) =
            (Topic::WebhooksRetry(RetryLevel::ALL[3]), Topic::WebhooksRetry(RetryLevel::ALL[0]));
        let mut partitions = owning(&[long, short]);
        partitions.receive(record(long, 0, 100));
        partitions.receive(record(short, 0, 104));
        partitions.receive(record(short, 1, 106));
        assert_eq!(partitions.next_due(), Some(UnixMicros(105_000_000)));
        assert_eq!(take(&mut partitions, 104), None);
        assert_eq!(take(&mut partitions, 105), Some((short, 0)));
        assert_eq!(take(&mut partitions, 106), None);
        assert_eq!(take(&mut partitions, 108), Some((short, 1)));
        assert_eq!(take(&mut partitions, 108), Some((long, 0)));
        assert_eq!(partitions.next_due(), None);
    }

    #[test]
    fn a_partition_is_paused_while_it_holds_records() {
        let topic = Topic::WebhooksRetry(RetryLevel::ALL[0]);
        let mut partitions = owning(&[topic]);
        assert_eq!(partitions.pause_changes(), []);
        partitions.receive(record(topic, 0, 100));
        assert_eq!(partitions.pause_changes(), [(of(topic), true)]);
        assert_eq!(partitions.pause_changes(), []);
        assert!(take(&mut partitions, 101).is_some());
        assert_eq!(partitions.pause_changes(), [(of(topic), false)]);
    }

    #[test]
    fn an_earlier_ownership_does_not_count() {
        let topic = Topic::WebhooksDispatch;
        let mut partitions = owning(&[topic]);
        partitions.receive(record(topic, 0, 0));
        let (old, _) = partitions.take_due(UnixMicros(0)).unwrap();
        partitions.revoke(of(topic));
        assert!(!partitions.owns(&old) && !partitions.complete(&old));
        partitions.assign(&Assigned { partition: of(topic), committed: None });
        partitions.receive(record(topic, 0, 0));
        let (new, _) = partitions.take_due(UnixMicros(0)).unwrap();
        assert!(!partitions.owns(&old) && !partitions.complete(&old));
        assert_eq!(partitions.committed(&of(topic)).unwrap().offset, Offset(0));
        assert!(partitions.complete(&new));
        assert_eq!(partitions.committed(&of(topic)).unwrap().offset, Offset(1));
    }

    #[test]
    fn lost_partitions_and_known_records_are_ignored() {
        let topic = Topic::WebhooksDispatch;
        let mut partitions = owning(&[topic]);
        partitions.receive(record(Topic::WebhooksDefer(DeferLevel::First), 0, 0));
        assert_eq!(partitions.next_due(), None);
        partitions.receive(record(topic, 0, 0));
        partitions.receive(record(topic, 0, 0));
        assert_eq!(take(&mut partitions, 0), Some((topic, 0)));
        assert_eq!(take(&mut partitions, 0), None);
    }

    #[test]
    fn a_full_window_holds_back_only_its_own_partition() {
        let (hot, other) = (Topic::WebhooksDispatch, Topic::WebhooksDefer(DeferLevel::First));
        let mut partitions = owning(&[hot, other]);
        for offset in 0..=super::super::tracker::WINDOW {
            partitions.receive(record(hot, offset, 0));
        }
        let (first, _) = partitions.take_due(UnixMicros(0)).unwrap();
        for _ in 1..super::super::tracker::WINDOW {
            assert!(take(&mut partitions, 0).is_some());
        }
        assert_eq!(take(&mut partitions, 100), None);
        partitions.receive(record(other, 0, 50));
        assert_eq!(take(&mut partitions, 100), Some((other, 0)));
        assert!(partitions.complete(&first));
        assert!(take(&mut partitions, 100).is_some());
    }
}
