//! How far a member was read, partition by partition, and the records that wait to be taken.
//!
//! The library brings the records of all partitions in one queue, one partition's in a row. They are
//! sorted here, and taken from all partitions in turn: a busy partition starves none.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use rdkafka::topic_partition_list::Offset as Start;

use super::assignment::Places;
use super::mark::Place;
use crate::{Offset, Record, TopicPartition};

/// The partitions of a member.
#[derive(Debug, Default)]
pub(super) struct Cursors {
    all: Vec<Cursor>,
    by_partition: HashMap<TopicPartition, usize>,
    /// Who is first in turn.
    turn: usize,
}

#[derive(Debug)]
struct Cursor {
    of: TopicPartition,
    /// What the caller takes next; none: the oldest there is.
    next: Option<Offset>,
    place: Option<Place>,
    waiting: VecDeque<Arc<Record>>,
    paused: bool,
}

impl Cursor {
    fn rewind(&mut self) {
        self.waiting.clear();
        self.next = self.place.as_ref().and_then(Place::committed).map(|c| c.offset);
    }
}

impl Cursors {
    /// Adds a partition that stands at `place`.
    pub(super) fn add(&mut self, of: TopicPartition, place: Option<Place>) {
        let mut cursor = Cursor { of, next: None, place, waiting: VecDeque::new(), paused: false };
        cursor.rewind();
        self.all.push(cursor);
        self.index();
    }

    /// Takes some away.
    pub(super) fn remove(&mut self, gone: &[TopicPartition]) {
        self.all.retain(|cursor| !gone.contains(&cursor.of));
        self.index();
    }

    /// Takes all away.
    pub(super) fn clear(&mut self) {
        self.all.clear();
        self.index();
    }

    fn index(&mut self) {
        self.turn = 0;
        self.by_partition = self.all.iter().enumerate().map(|(at, c)| (c.of, at)).collect();
    }

    fn get(&self, of: TopicPartition) -> Option<&Cursor> {
        self.all.get(*self.by_partition.get(&of)?)
    }

    fn get_mut(&mut self, of: TopicPartition) -> Option<&mut Cursor> {
        self.all.get_mut(*self.by_partition.get(&of)?)
    }

    /// Whether the partition is one of them.
    pub(super) fn has(&self, of: TopicPartition) -> bool {
        self.by_partition.contains_key(&of)
    }

    /// All partitions.
    pub(super) fn partitions(&self) -> Vec<TopicPartition> {
        self.all.iter().map(|cursor| cursor.of).collect()
    }

    /// Where the group stands, as far as this member knows.
    pub(super) fn places(&self) -> Places {
        self.all.iter().map(|cursor| (cursor.of, cursor.place.clone())).collect()
    }

    /// Where the group stands in one of them.
    pub(super) fn place(&self, of: TopicPartition) -> Option<&Place> {
        self.get(of)?.place.as_ref()
    }

    /// A step was committed.
    pub(super) fn set_place(&mut self, of: TopicPartition, place: Place) {
        if let Some(cursor) = self.get_mut(of) {
            cursor.place = Some(place);
        }
    }

    /// Where reading goes on.
    pub(super) fn starts(&self) -> Vec<(TopicPartition, Start)> {
        let start = |cursor: &Cursor| {
            (cursor.of, cursor.next.map_or(Start::Beginning, |next| Start::Offset(next.0)))
        };
        self.all.iter().map(start).collect()
    }

    /// What the caller takes next, where it is known.
    pub(super) fn next(&self, of: TopicPartition) -> Option<Offset> {
        self.get(of)?.next
    }

    /// What lies before is not there any more.
    pub(super) fn skip_to(&mut self, of: TopicPartition, next: Offset) {
        if let Some(cursor) = self.get_mut(of) {
            cursor.next = Some(next);
        }
    }

    /// Everything is read again from where the group stands.
    pub(super) fn rewind(&mut self) {
        self.all.iter_mut().for_each(Cursor::rewind);
    }

    /// What waits is read again.
    pub(super) fn forget_waiting(&mut self) {
        self.all.iter_mut().for_each(|cursor| cursor.waiting.clear());
    }

    /// Takes note that the caller wants no records of a partition, or wants them again.
    pub(super) fn set_paused(&mut self, of: TopicPartition, paused: bool) {
        if let Some(cursor) = self.get_mut(of) {
            cursor.paused = paused;
        }
    }

    /// Those that the caller wants records of.
    pub(super) fn wanted(&self) -> Vec<TopicPartition> {
        self.all.iter().filter(|cursor| !cursor.paused).map(|cursor| cursor.of).collect()
    }

    /// How many records can be taken.
    pub(super) fn ready(&self) -> usize {
        self.all.iter().filter(|cursor| !cursor.paused).map(|cursor| cursor.waiting.len()).sum()
    }

    /// A record came. What is not of these partitions, or was there before, is dropped.
    pub(super) fn push(&mut self, record: Record) {
        let Some(cursor) = self.get_mut(record.from) else { return };
        let last = cursor.waiting.back().map(|record| record.offset.next());
        if last.or(cursor.next).is_some_and(|next| record.offset < next) {
            return;
        }
        cursor.waiting.push_back(Arc::new(record));
    }

    /// At most `max` records, from all partitions alike.
    pub(super) fn take(&mut self, max: usize) -> Vec<Arc<Record>> {
        let mut taken = Vec::with_capacity(max.min(self.ready()));
        loop {
            let active = self.all.iter().filter(|c| !c.paused && !c.waiting.is_empty()).count();
            let left = max - taken.len();
            if active == 0 || left == 0 {
                return taken;
            }
            let share = (left / active).max(1);
            for _ in 0..self.all.len() {
                let at = self.turn % self.all.len();
                let Some(cursor) = self.all.get_mut(at).filter(|c| !c.paused) else {
                    self.turn = at + 1;
                    continue;
                };
                let count = share.min(cursor.waiting.len()).min(max - taken.len());
                taken.extend(cursor.waiting.drain(..count));
                if let Some(last) = taken.last().filter(|_| count > 0) {
                    cursor.next = Some(last.offset.next());
                }
                if taken.len() == max {
                    self.turn = at + 1;
                    return taken;
                }
                self.turn = at + 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Committed;
    use proptest::prelude::*;
    use schemas::{Headers, Partition, Topic, UnixMicros};

    fn of(partition: u32) -> TopicPartition {
        TopicPartition { topic: Topic::Orders, partition: Partition(partition) }
    }

    fn record(partition: u32, offset: i64) -> Record {
        Record {
            from: of(partition),
            offset: Offset(offset),
            appended_at: UnixMicros(offset),
            key: vec![],
            value: None,
            headers: Headers::default(),
        }
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
    fn all_partitions_come_in_turn() {
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
        assert_eq!((cursors.ready(), cursors.wanted()), (0, vec![of(1)]));
        cursors.set_paused(of(0), false);
        assert_eq!(taken(&mut cursors, 2), [(0, 0), (0, 1)]);
    }

    #[test]
    fn a_rewind_goes_back_to_the_last_step() {
        let mut cursors = cursors(&[5]);
        taken(&mut cursors, 4);
        let committed = Committed { offset: Offset(2), metadata: String::new() };
        cursors.set_place(of(0), Place::new(&committed, "mark"));
        cursors.rewind();
        assert_eq!(cursors.starts(), [(of(0), Start::Offset(2))]);
        // Something older is still on its way.
        cursors.push(record(0, 1));
        cursors.push(record(0, 2));
        cursors.push(record(0, 2));
        assert_eq!(taken(&mut cursors, 4), [(0, 2)]);
    }

    proptest! {
        /// Everything comes once and in order, whatever is asked for at a time.
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
