//! A member's position in each partition, and the records that wait to be taken.
//!
//! The library delivers the records of all partitions in one queue, in runs of one partition. They are
//! sorted here and taken from all partitions in turn, so that a busy partition starves none.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use rdkafka::Offset as KafkaOffset;

use super::position::{GroupPosition, Positions};
use crate::{Offset, Record, Records, TopicPartition};

/// The partitions of a member.
#[derive(Debug, Default)]
pub(super) struct Cursors {
    all: BTreeMap<TopicPartition, Cursor>,
    /// The partition that was served last: the next turn starts after it.
    served: Option<TopicPartition>,
}

#[derive(Debug)]
struct Cursor {
    /// Offset that the caller takes next; none: the oldest record there is.
    next: Option<Offset>,
    position: Option<GroupPosition>,
    waiting: VecDeque<Arc<Record>>,
    is_paused: bool,
}

impl Cursor {
    fn new(position: Option<GroupPosition>) -> Self {
        let next = position.as_ref().and_then(GroupPosition::committed).map(|at| at.offset);
        Self { next, position, waiting: VecDeque::new(), is_paused: false }
    }

    fn ready(&self) -> usize {
        if self.is_paused { 0 } else { self.waiting.len() }
    }
}

impl Cursors {
    pub(super) fn add(&mut self, of: TopicPartition, position: Option<GroupPosition>) {
        self.all.insert(of, Cursor::new(position));
    }

    pub(super) fn remove(&mut self, gone: &[TopicPartition]) {
        self.all.retain(|of, _| !gone.contains(of));
    }

    pub(super) fn clear(&mut self) {
        self.all.clear();
    }

    pub(super) fn has(&self, of: TopicPartition) -> bool {
        self.all.contains_key(&of)
    }

    pub(super) fn partitions(&self) -> Vec<TopicPartition> {
        self.all.keys().copied().collect()
    }

    /// The group's positions, as far as this member knows.
    pub(super) fn positions(&self) -> Positions {
        self.all.iter().map(|(of, cursor)| (*of, cursor.position.clone())).collect()
    }

    /// The group's offsets, as far as this member knows.
    pub(super) fn offsets(&self) -> impl Iterator<Item = (TopicPartition, Offset)> {
        let offset = |cursor: &Cursor| cursor.position.as_ref().map(|position| position.offset);
        self.all.iter().filter_map(move |(of, cursor)| Some((*of, offset(cursor)?)))
    }

    /// `true` if every delivered record is committed.
    pub(super) fn are_at_rest(&self) -> bool {
        self.all.values().all(|cursor| {
            let position = cursor.position.as_ref().map(|position| position.offset);
            cursor.waiting.is_empty() && cursor.next <= position
        })
    }

    pub(super) fn position(&self, of: TopicPartition) -> Option<&GroupPosition> {
        self.all.get(&of)?.position.as_ref()
    }

    pub(super) fn set_position(&mut self, of: TopicPartition, position: GroupPosition) {
        if let Some(cursor) = self.all.get_mut(&of) {
            cursor.position = Some(position);
        }
    }

    /// Offsets at which reading continues.
    pub(super) fn starts(&self) -> Vec<(TopicPartition, KafkaOffset)> {
        let start = |next: Offset| KafkaOffset::Offset(next.0);
        let cursors = self.all.iter();
        cursors.map(|(of, c)| (*of, c.next.map_or(KafkaOffset::Beginning, start))).collect()
    }

    pub(super) fn next(&self, of: TopicPartition) -> Option<Offset> {
        self.all.get(&of)?.next
    }

    /// Skips expired records before `next`.
    pub(super) fn skip_to(&mut self, of: TopicPartition, next: Offset) {
        if let Some(cursor) = self.all.get_mut(&of) {
            cursor.next = Some(next);
        }
    }

    /// Returns all cursors to the group's positions.
    pub(super) fn rewind(&mut self) {
        for cursor in self.all.values_mut() {
            let is_paused = cursor.is_paused;
            *cursor = Cursor { is_paused, ..Cursor::new(cursor.position.take()) };
        }
    }

    /// Drops the waiting records: they are to be read again.
    pub(super) fn forget_waiting(&mut self) {
        self.all.values_mut().for_each(|cursor| cursor.waiting.clear());
    }

    pub(super) fn set_paused(&mut self, of: TopicPartition, is_paused: bool) {
        if let Some(cursor) = self.all.get_mut(&of) {
            cursor.is_paused = is_paused;
        }
    }

    pub(super) fn unpaused(&self) -> Vec<TopicPartition> {
        self.all.iter().filter(|(_, cursor)| !cursor.is_paused).map(|(of, _)| *of).collect()
    }

    /// Number of records that can be taken.
    pub(super) fn ready(&self) -> usize {
        self.all.values().map(Cursor::ready).sum()
    }

    /// Queues a record, unless it is not of these partitions or was delivered before.
    pub(super) fn push(&mut self, record: Record) {
        let Some(cursor) = self.all.get_mut(&record.from) else { return };
        let last = cursor.waiting.back().map(|record| record.offset.next());
        if last.or(cursor.next).is_none_or(|next| record.offset >= next) {
            cursor.waiting.push_back(Arc::new(record));
        }
    }

    /// Takes at most `max` records, in round robin.
    pub(super) fn take(&mut self, max: usize) -> Records {
        let mut taken = Vec::with_capacity(max.min(self.ready()));
        loop {
            let ready = self.all.iter().filter(|(_, cursor)| cursor.ready() > 0);
            let mut turns: Vec<_> = ready.map(|(of, _)| *of).collect();
            if turns.is_empty() || taken.len() == max {
                return taken;
            }
            let first = turns.partition_point(|of| Some(*of) <= self.served) % turns.len();
            turns.rotate_left(first);
            let share = ((max - taken.len()) / turns.len()).max(1);
            for of in turns {
                let Some(cursor) = self.all.get_mut(&of) else { continue };
                let count = share.min(cursor.waiting.len()).min(max - taken.len());
                if count == 0 {
                    break;
                }
                taken.extend(cursor.waiting.drain(..count));
                cursor.next = taken.last().map(|last| last.offset.next());
                self.served = Some(of);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Committed;
    use proptest::prelude::*;
    use schemas::{Partition, Topic};

    fn of(partition: u32) -> TopicPartition {
        TopicPartition { topic: Topic::Orders, partition: Partition(partition) }
    }

    fn record(partition: u32, offset: i64) -> Record {
        Record::of(of(partition), offset)
    }

    fn cursors(counts: &[i64]) -> Cursors {
        let mut cursors = Cursors::default();
        for (partition, count) in (0..).zip(counts) {
            cursors.add(of(partition), None);
            (0..*count).for_each(|offset| cursors.push(record(partition, offset)));
        }
        cursors
    }

    fn taken(cursors: &mut Cursors, max: usize) -> Vec<(u32, i64)> {
        cursors.take(max).iter().map(|r| (r.from.partition.0, r.offset.0)).collect()
    }

    #[test]
    fn partitions_are_taken_in_turn() {
        let mut cursors = cursors(&[500, 1, 200, 1]);
        let first: Vec<u32> = taken(&mut cursors, 4).into_iter().map(|(p, _)| p).collect();
        assert_eq!(first, [0, 1, 2, 3]);
        assert_eq!(taken(&mut cursors, 2), [(0, 1), (2, 1)]);
        assert_eq!(taken(&mut cursors, 1), [(0, 2)]);
        assert_eq!(taken(&mut cursors, 1), [(2, 2)]);
        assert_eq!(cursors.ready(), 500 + 200 - 6);
    }

    #[test]
    fn a_paused_partition_keeps_what_waits() {
        let mut cursors = cursors(&[3, 3]);
        cursors.set_paused(of(0), true);
        assert_eq!(taken(&mut cursors, 10), [(1, 0), (1, 1), (1, 2)]);
        assert_eq!((cursors.ready(), cursors.unpaused()), (0, vec![of(1)]));
        cursors.set_paused(of(0), false);
        assert_eq!(taken(&mut cursors, 2), [(0, 0), (0, 1)]);
    }

    #[test]
    fn a_rewind_returns_to_the_last_step() {
        let mut cursors = cursors(&[5]);
        taken(&mut cursors, 4);
        let committed = Committed { offset: Offset(2), metadata: String::new() };
        cursors.set_position(of(0), GroupPosition::new(&committed, "mark"));
        cursors.rewind();
        assert_eq!(cursors.starts(), [(of(0), KafkaOffset::Offset(2))]);
        // The library still delivers older records.
        cursors.push(record(0, 1));
        cursors.push(record(0, 2));
        cursors.push(record(0, 2));
        assert_eq!(taken(&mut cursors, 4), [(0, 2)]);
    }

    #[test]
    fn cursors_rest_once_all_is_committed() {
        let mut cursors = cursors(&[2, 0]);
        assert!(!cursors.are_at_rest(), "two wait");
        taken(&mut cursors, 2);
        assert!(!cursors.are_at_rest(), "two are in no step yet");
        for (next, is_at_rest) in [(1, false), (2, true)] {
            let committed = Committed { offset: Offset(next), metadata: String::new() };
            cursors.set_position(of(0), GroupPosition::new(&committed, "mark"));
            assert_eq!(cursors.are_at_rest(), is_at_rest);
        }
    }

    proptest! {
        /// Every record comes once and in order, for any page size.
        #[test]
        fn everything_comes_once_and_in_order(
            counts in prop::collection::vec(0..40_i64, 1..6),
            asks in prop::collection::vec(1..9_usize, 1..200),
        ) {
            let mut cursors = cursors(&counts);
            let mut next = vec![0; counts.len()];
            for max in asks.into_iter().cycle().take(400) {
                let ready = cursors.ready();
                let batch = taken(&mut cursors, max);
                prop_assert_eq!(batch.len(), max.min(ready));
                for (partition, offset) in batch {
                    prop_assert_eq!(next[partition as usize], offset);
                    next[partition as usize] += 1;
                }
            }
            prop_assert_eq!(next, counts);
        }
    }
}
