//! State seen by readers: the end of each partition, its latest records, and the groups' offsets.
//!
//! **Invariant:** a transaction with records is published after its commit, and as a whole under
//! one lock: no reader sees a part of a step. Offsets of steps without records may be published
//! before their write. Live readers are served from here without a query.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use schemas::{Topic, UnixMicros};

use super::queue::Rewrite;
use super::signal::Signal;
use crate::metrics::LOG_LAG_RECORDS;
use crate::{Bounds, Committed, Offset, Record, Records, TopicPartition};

/// Maximum number, and maximum bytes, of the latest records kept in memory, over all partitions.
const RECENT_RECORDS_MAX: usize = 65_536;
const RECENT_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Approximate maximum bytes of the records in one page; at least one record.
pub(super) const PAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Id of a partition in the table of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Slot(pub(super) i64);

#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    pub(super) slot: Slot,
    pub(super) bounds: Bounds,
    /// Append time of the last record.
    pub(super) appended_at: UnixMicros,
    /// Offset before which each key occurs once.
    pub(super) compacted_to: Offset,
    /// Number of records before `compacted_to` when it was compacted.
    pub(super) compacted_records: i64,
}

impl Extent {
    pub(super) fn empty(slot: Slot) -> Self {
        Self {
            slot,
            bounds: Bounds { start: Offset(0), end: Offset(0) },
            appended_at: UnixMicros(0),
            compacted_to: Offset(0),
            compacted_records: 0,
        }
    }
}

#[derive(Debug)]
pub(super) struct Page {
    pub(super) records: Records,
    /// Offset after the records and following gaps.
    pub(super) next: Offset,
}

#[derive(Debug)]
pub(super) enum Found {
    Recent(Page),
    /// Only in the table: slot and end of the partition.
    Stored(Slot, Offset),
}

/// Changes made by one transaction.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Appended records, in the order of their offsets within each partition.
    pub(super) records: Records,
    pub(super) offsets: Vec<(&'static str, TopicPartition, Committed)>,
    /// Extents of the partitions that changed.
    pub(super) extents: Vec<(TopicPartition, Extent)>,
    pub(super) rewrites: Vec<Arc<Rewrite>>,
}

#[derive(Debug)]
pub(super) struct View {
    state: Mutex<State>,
    /// Raised after each change that readers wait for.
    pub(super) signal: Signal,
}

#[derive(Debug)]
struct State {
    partitions: HashMap<TopicPartition, Kept>,
    committed: HashMap<String, HashMap<TopicPartition, Committed>>,
    /// Every record in memory, oldest first, and some that were removed since.
    arrivals: VecDeque<(TopicPartition, Offset)>,
    bytes: usize,
}

#[derive(Debug)]
struct Kept {
    extent: Extent,
    /// Offset from which `recent` is complete.
    recent_from: Offset,
    recent: VecDeque<Arc<Record>>,
}

impl View {
    pub(super) fn new(
        partitions: HashMap<TopicPartition, Extent>,
        committed: HashMap<String, HashMap<TopicPartition, Committed>>,
    ) -> Self {
        let keep = |(of, extent): (TopicPartition, Extent)| {
            let recent_from = extent.bounds.end;
            (of, Kept { extent, recent_from, recent: VecDeque::new() })
        };
        let partitions = partitions.into_iter().map(keep).collect();
        let state = State { partitions, committed, arrivals: VecDeque::new(), bytes: 0 };
        Self { state: Mutex::new(state), signal: Signal::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// None if the log has no such partition.
    pub(super) fn extent(&self, of: TopicPartition) -> Option<Extent> {
        self.state().partitions.get(&of).map(|kept| kept.extent)
    }

    pub(super) fn committed(&self, group: &str, of: TopicPartition) -> Option<Committed> {
        self.state().committed.get(group)?.get(&of).cloned()
    }

    /// Lowest position in a partition of the groups that ever committed in its topic: 0 if one of them
    /// has none there. None if there is no such group.
    pub(super) fn unread_from(&self, of: TopicPartition) -> Option<Offset> {
        let state = self.state();
        let readers = state.committed.values();
        let readers = readers.filter(|group| group.keys().any(|other| other.topic == of.topic));
        let position = |group: &HashMap<TopicPartition, Committed>| {
            group.get(&of).map_or(Offset(0), |committed| committed.offset)
        };
        readers.map(position).min()
    }

    /// The `positions` before the end of their partition, in the given order.
    pub(super) fn ready(
        &self,
        positions: impl Iterator<Item = (TopicPartition, Offset)>,
    ) -> Vec<(TopicPartition, Offset)> {
        let state = self.state();
        let end = |of: &TopicPartition| state.partitions.get(of).map(|kept| kept.extent.bounds.end);
        positions.filter(|(of, next)| end(of).is_some_and(|end| *next < end)).collect()
    }

    /// None if there is no such partition.
    pub(super) fn find(&self, of: TopicPartition, from: Offset, max: usize) -> Option<Found> {
        let state = self.state();
        let kept = state.partitions.get(&of)?;
        let end = kept.extent.bounds.end;
        if from >= end {
            return Some(Found::Recent(Page { records: Vec::new(), next: from }));
        }
        if from < kept.recent_from {
            return Some(Found::Stored(kept.extent.slot, end));
        }
        let first = kept.recent.partition_point(|record| record.offset < from);
        let mut bytes = 0_usize;
        let mut records = Vec::new();
        for record in kept.recent.range(first..) {
            if records.len() == max || bytes >= PAGE_BYTES_MAX {
                let next = record.offset;
                return Some(Found::Recent(Page { records, next }));
            }
            bytes = bytes.saturating_add(size(record));
            records.push(record.clone());
        }
        Some(Found::Recent(Page { records, next: end }))
    }

    /// Makes a transaction visible, and wakes the readers of the topics that it appended to.
    pub(super) fn publish(&self, changes: Changes) {
        let mut state = self.state();
        for (of, extent) in changes.extents {
            state.change(of, extent);
        }
        for rewrite in changes.rewrites {
            state.remove(rewrite.of, &rewrite.removed);
        }
        let mut topics: Vec<Topic> = Vec::new();
        for record in changes.records {
            if !topics.contains(&record.from.topic) {
                topics.push(record.from.topic);
            }
            state.append(record);
        }
        for (group, of, committed) in changes.offsets {
            state.committed.entry(group.to_owned()).or_default().insert(of, committed);
        }
        state.forget_oldest();
        drop(state);
        self.signal.raise(&topics);
    }

    pub(super) fn measure_lag(&self) {
        let state = self.state();
        for (group, committed) in &state.committed {
            let mut lags: BTreeMap<Topic, i64> = BTreeMap::new();
            let topics: BTreeSet<Topic> = committed.keys().map(|of| of.topic).collect();
            for (of, kept) in state.partitions.iter().filter(|(of, _)| topics.contains(&of.topic)) {
                // A group without a position has read nothing.
                let next = committed.get(of).map_or(Offset(0), |at| at.offset);
                let bounds = kept.extent.bounds;
                let lag = bounds.end.0.saturating_sub(next.max(bounds.start).0).max(0);
                let sum = lags.entry(of.topic).or_default();
                *sum = sum.saturating_add(lag);
            }
            for (topic, lag) in lags {
                let labels = [("group", group.clone()), ("topic", topic.name().to_owned())];
                let lag = u32::try_from(lag).unwrap_or(u32::MAX);
                metrics::gauge!(LOG_LAG_RECORDS, &labels).set(f64::from(lag));
            }
        }
    }

    pub(super) fn extents(&self) -> BTreeMap<TopicPartition, Extent> {
        self.state().partitions.iter().map(|(of, kept)| (*of, kept.extent)).collect()
    }
}

impl State {
    fn append(&mut self, record: Arc<Record>) {
        let Some(kept) = self.partitions.get_mut(&record.from) else { return };
        self.bytes = self.bytes.saturating_add(size(&record));
        self.arrivals.push_back((record.from, record.offset));
        kept.recent.push_back(record);
    }

    fn change(&mut self, of: TopicPartition, extent: Extent) {
        let Some(kept) = self.partitions.get_mut(&of) else { return };
        kept.extent = extent;
        let start = extent.bounds.start;
        while let Some(first) = kept.recent.pop_front_if(|first| first.offset < start) {
            self.bytes = self.bytes.saturating_sub(size(&first));
        }
    }

    fn remove(&mut self, of: TopicPartition, offsets: &[Offset]) {
        let Some(kept) = self.partitions.get_mut(&of) else { return };
        let from = kept.recent_from;
        let gone: HashSet<Offset> = offsets.iter().copied().filter(|o| *o >= from).collect();
        if gone.is_empty() {
            return;
        }
        kept.recent.retain(|record| {
            let keep = !gone.contains(&record.offset);
            if !keep {
                self.bytes = self.bytes.saturating_sub(size(record));
            }
            keep
        });
    }

    fn forget_oldest(&mut self) {
        while self.bytes > RECENT_BYTES_MAX || self.arrivals.len() > RECENT_RECORDS_MAX {
            let Some((of, offset)) = self.arrivals.pop_front() else { return };
            let Some(kept) = self.partitions.get_mut(&of) else { continue };
            if let Some(first) = kept.recent.pop_front_if(|first| first.offset == offset) {
                self.bytes = self.bytes.saturating_sub(size(&first));
            }
            kept.recent_from = kept.recent_from.max(offset.next());
        }
    }
}

/// Approximate bytes of a record in memory.
pub(super) fn size(record: &Record) -> usize {
    let headers = record.headers.as_bytes().len();
    record.key.len() + record.value.as_ref().map_or(0, Vec::len) + headers + size_of::<Record>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemas::Partition;

    fn of(partition: u32) -> TopicPartition {
        TopicPartition { topic: Topic::Orders, partition: Partition(partition) }
    }

    fn record(partition: u32, offset: i64, value: Vec<u8>) -> Arc<Record> {
        Arc::new(Record { value: Some(value), ..Record::of(of(partition), offset) })
    }

    fn view(partitions: u32) -> View {
        let extent = |slot: u32| Extent::empty(Slot(slot.into()));
        View::new((0..partitions).map(|p| (of(p), extent(p))).collect(), HashMap::new())
    }

    fn append(view: &View, records: Records) {
        let extents = records.iter().map(|record| {
            let mut extent = view.extent(record.from).unwrap();
            extent.bounds.end = record.offset.next();
            (record.from, extent)
        });
        let extents = extents.collect();
        view.publish(Changes { records, extents, ..Changes::default() });
    }

    fn offsets(view: &View, from: i64, max: usize) -> (Vec<i64>, i64) {
        match view.find(of(0), Offset(from), max).unwrap() {
            Found::Recent(page) => (page.records.iter().map(|r| r.offset.0).collect(), page.next.0),
            Found::Stored(..) => panic!("not in memory"),
        }
    }

    #[test]
    fn pages_are_contiguous_and_skip_removed_records() {
        let view = view(1);
        append(&view, (0..6).map(|o| record(0, o, vec![])).collect());
        let removed = vec![Offset(1), Offset(5)];
        let rewrites = vec![Arc::new(Rewrite { removed, ..Rewrite::nothing(of(0)) })];
        view.publish(Changes { rewrites, ..Changes::default() });
        assert_eq!(offsets(&view, 0, 2), (vec![0, 2], 3));
        assert_eq!(offsets(&view, 3, 9), (vec![3, 4], 6));
        assert_eq!(offsets(&view, 5, 9), (vec![], 6));
        assert_eq!(offsets(&view, 9, 9), (vec![], 9));
        let mut extent = view.extent(of(0)).unwrap();
        extent.bounds.start = Offset(3);
        view.publish(Changes { extents: vec![(of(0), extent)], ..Changes::default() });
        assert_eq!(offsets(&view, 0, 9), (vec![3, 4], 6));
        let bounds = view.extent(of(0)).unwrap().bounds;
        assert_eq!((bounds.start, bounds.end), (Offset(3), Offset(6)));
    }

    #[test]
    fn oldest_records_leave_memory_first() {
        let view = view(2);
        append(&view, vec![record(0, 0, vec![0; RECENT_BYTES_MAX / 2])]);
        append(&view, vec![record(1, 0, vec![])]);
        append(&view, vec![record(0, 1, vec![0; RECENT_BYTES_MAX / 2])]);
        assert!(matches!(view.find(of(0), Offset(0), 9), Some(Found::Stored(Slot(0), Offset(2)))));
        assert!(matches!(view.find(of(0), Offset(1), 9), Some(Found::Recent(_))));
        assert!(matches!(view.find(of(1), Offset(0), 9), Some(Found::Recent(_))));
        for offset in 2..3 + i64::try_from(RECENT_RECORDS_MAX).unwrap() {
            append(&view, vec![record(0, offset, vec![])]);
        }
        assert!(matches!(view.find(of(1), Offset(0), 9), Some(Found::Stored(..))));
        assert!(view.state().bytes < RECENT_BYTES_MAX / 2);
    }

    #[test]
    fn answer_is_bounded_but_has_one_record() {
        let view = view(1);
        append(&view, (0..3).map(|o| record(0, o, vec![0; PAGE_BYTES_MAX])).collect());
        assert_eq!(offsets(&view, 0, 9), (vec![0], 1));
    }
}
