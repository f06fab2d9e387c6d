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

/// Counts the times partitions were taken over, so that what began under an earlier ownership of a
/// partition is told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Tenure(u64);

/// A record under work: where its completion belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) from: TopicPartition,
    pub(crate) offset: Offset,
    pub(crate) tenure: Tenure,
}

#[derive(Debug)]
struct Lane {
    tenure: Tenure,
    tracker: Tracker,
    held: VecDeque<Arc<Record>>,
    paused: bool,
}

/// All partitions of this worker.
#[derive(Debug)]
pub(crate) struct Lanes {
    first_delay: Duration,
    tenure: Tenure,
    lanes: HashMap<TopicPartition, Lane>,
    /// For each lane that holds records, when the first of them is due.
    agenda: BTreeSet<(UnixMicros, TopicPartition)>,
}

impl Lanes {
    pub(crate) fn new(first_delay: Duration) -> Self {
        Self {
            first_delay,
            tenure: Tenure::default(),
            lanes: HashMap::new(),
            agenda: BTreeSet::new(),
        }
    }

    /// Takes a partition over.
    pub(crate) fn assign(&mut self, assigned: &Assigned) {
        self.revoke(assigned.partition);
        self.tenure = Tenure(self.tenure.0.saturating_add(1));
        let lane = Lane {
            tenure: self.tenure,
            tracker: Tracker::restore(assigned.committed.as_ref()),
            held: VecDeque::new(),
            paused: false,
        };
        self.lanes.insert(assigned.partition, lane);
    }

    /// Forgets a partition.
    pub(crate) fn revoke(&mut self, partition: TopicPartition) {
        self.lanes.remove(&partition);
        self.agenda.retain(|(_, of)| *of != partition);
    }

    /// Forgets all partitions.
    pub(crate) fn clear(&mut self) {
        self.lanes.clear();
        self.agenda.clear();
    }

    /// Holds a record, unless it is known already or its partition is not ours.
    pub(crate) fn receive(&mut self, record: Arc<Record>) {
        let Some(lane) = self.lanes.get_mut(&record.from) else { return };
        if !lane.tracker.receive(record.offset) {
            return;
        }
        if lane.held.is_empty() {
            self.agenda.insert((
                due_at(record.from.topic, record.appended_at, self.first_delay),
                record.from,
            ));
        }
        lane.held.push_back(record);
    }

    /// The longest-due record that may be started at `now`.
    pub(crate) fn take_due(&mut self, now: UnixMicros) -> Option<(Place, Arc<Record>)> {
        let lanes = &mut self.lanes;
        let fits = |partition: &TopicPartition| {
            let lane = lanes.get(partition)?;
            Some(lane.tracker.fits(lane.held.front()?.offset))
        };
        let entry = *self
            .agenda
            .iter()
            .take_while(|(due, _)| *due <= now)
            .find(|(_, partition)| fits(partition).unwrap_or_default())?;
        self.agenda.remove(&entry);
        let lane = lanes.get_mut(&entry.1)?;
        let record = lane.held.pop_front()?;
        if let Some(head) = lane.held.front() {
            let due = due_at(head.from.topic, head.appended_at, self.first_delay);
            self.agenda.insert((due, entry.1));
        }
        let place = Place { from: record.from, offset: record.offset, tenure: lane.tenure };
        Some((place, record))
    }

    /// When the first held record is due; it may be past.
    pub(crate) fn next_due(&self) -> Option<UnixMicros> {
        self.agenda.first().map(|(due, _)| *due)
    }

    /// Whether what began at `place` still counts.
    pub(crate) fn owns(&self, place: &Place) -> bool {
        self.lanes.get(&place.from).is_some_and(|lane| lane.tenure == place.tenure)
    }

    /// Marks a record as complete. False if its partition was lost meanwhile: then nothing that
    /// came of it may be written.
    pub(crate) fn complete(&mut self, place: &Place) -> bool {
        match self.lanes.get_mut(&place.from) {
            Some(lane) if lane.tenure == place.tenure => {
                lane.tracker.complete(place.offset);
                true
            }
            _ => false,
        }
    }

    /// What to commit for a partition.
    pub(crate) fn committed(&self, partition: &TopicPartition) -> Option<Committed> {
        self.lanes.get(partition).map(|lane| lane.tracker.committed())
    }

    /// The partitions that are ours.
    pub(crate) fn partitions(&self) -> Vec<TopicPartition> {
        self.lanes.keys().copied().collect()
    }

    /// The partitions whose reading is to stop (true) or to go on (false): one that holds a record
    /// is not read further, so no more than one batch of it is ever in memory.
    pub(crate) fn pause_changes(&mut self) -> Vec<(TopicPartition, bool)> {
        let mut changes = Vec::new();
        for (partition, lane) in &mut self.lanes {
            let wanted = !lane.held.is_empty();
            if lane.paused != wanted {
                lane.paused = wanted;
                changes.push((*partition, wanted));
            }
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemas::{Partition, Topic};

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

    fn owning(topics: &[Topic]) -> Lanes {
        let mut lanes = Lanes::new(Duration::from_secs(1));
        for topic in topics {
            lanes.assign(&Assigned { partition: of(*topic), committed: None });
        }
        lanes
    }

    fn take(lanes: &mut Lanes, seconds: i64) -> Option<(Topic, i64)> {
        let (place, _) = lanes.take_due(UnixMicros(seconds * 1_000_000))?;
        Some((place.from.topic, place.offset.0))
    }

    #[test]
    fn nothing_is_given_out_before_it_is_due_and_the_longest_due_first() {
        let (long, short) = (Topic::WebhooksRetry(3), Topic::WebhooksRetry(0));
        let mut lanes = owning(&[long, short]);
        lanes.receive(record(long, 0, 100));
        lanes.receive(record(short, 0, 104));
        lanes.receive(record(short, 1, 106));
        assert_eq!(lanes.next_due(), Some(UnixMicros(105_000_000)));
        assert_eq!(take(&mut lanes, 104), None);
        assert_eq!(take(&mut lanes, 105), Some((short, 0)));
        assert_eq!(take(&mut lanes, 106), None);
        assert_eq!(take(&mut lanes, 108), Some((short, 1)));
        assert_eq!(take(&mut lanes, 108), Some((long, 0)));
        assert_eq!(lanes.next_due(), None);
    }

    #[test]
    fn a_partition_that_holds_records_is_paused_until_they_are_given_out() {
        let topic = Topic::WebhooksRetry(0);
        let mut lanes = owning(&[topic]);
        assert_eq!(lanes.pause_changes(), []);
        lanes.receive(record(topic, 0, 100));
        assert_eq!(lanes.pause_changes(), [(of(topic), true)]);
        assert_eq!(lanes.pause_changes(), []);
        assert!(take(&mut lanes, 101).is_some());
        assert_eq!(lanes.pause_changes(), [(of(topic), false)]);
    }

    #[test]
    fn what_began_under_an_earlier_ownership_does_not_count() {
        let topic = Topic::WebhooksDispatch;
        let mut lanes = owning(&[topic]);
        lanes.receive(record(topic, 0, 0));
        let (old, _) = lanes.take_due(UnixMicros(0)).unwrap();
        lanes.revoke(of(topic));
        assert!(!lanes.owns(&old) && !lanes.complete(&old));
        lanes.assign(&Assigned { partition: of(topic), committed: None });
        lanes.receive(record(topic, 0, 0));
        let (new, _) = lanes.take_due(UnixMicros(0)).unwrap();
        assert!(!lanes.owns(&old) && !lanes.complete(&old));
        assert_eq!(lanes.committed(&of(topic)).unwrap().offset, Offset(0));
        assert!(lanes.complete(&new));
        assert_eq!(lanes.committed(&of(topic)).unwrap().offset, Offset(1));
    }

    #[test]
    fn records_of_partitions_that_are_not_ours_and_known_ones_are_not_held() {
        let topic = Topic::WebhooksDispatch;
        let mut lanes = owning(&[topic]);
        lanes.receive(record(Topic::WebhooksDefer(0), 0, 0));
        assert_eq!(lanes.next_due(), None);
        lanes.receive(record(topic, 0, 0));
        lanes.receive(record(topic, 0, 0));
        assert_eq!(take(&mut lanes, 0), Some((topic, 0)));
        assert_eq!(take(&mut lanes, 0), None);
    }

    #[test]
    fn a_full_window_holds_its_own_lane_back_alone() {
        let (hot, other) = (Topic::WebhooksDispatch, Topic::WebhooksDefer(0));
        let mut lanes = owning(&[hot, other]);
        for offset in 0..=super::super::tracker::WINDOW {
            lanes.receive(record(hot, offset, 0));
        }
        let (first, _) = lanes.take_due(UnixMicros(0)).unwrap();
        for _ in 1..super::super::tracker::WINDOW {
            assert!(take(&mut lanes, 0).is_some());
        }
        assert_eq!(take(&mut lanes, 100), None);
        lanes.receive(record(other, 0, 50));
        assert_eq!(take(&mut lanes, 100), Some((other, 0)));
        assert!(lanes.complete(&first));
        assert!(take(&mut lanes, 100).is_some());
    }
}
