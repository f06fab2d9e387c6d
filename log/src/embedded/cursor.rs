//! Where a reader stands in its partitions, and its next records: from memory, else from the file.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::view::{Found, PAGE_BYTES_MAX, Page, size};
use super::{Shared, storage};
use crate::{Error, Offset, Record, TopicPartition};

/// The places of one reader.
#[derive(Debug, Default)]
pub(super) struct Cursors {
    places: BTreeMap<TopicPartition, Cursor>,
    /// The partition served last: the next turn starts after it.
    served: Option<TopicPartition>,
}

#[derive(Debug)]
struct Cursor {
    next: Offset,
    paused: bool,
}

impl Cursors {
    /// Starts reading a partition.
    pub(super) fn add(&mut self, of: TopicPartition, next: Offset) {
        self.places.insert(of, Cursor { next, paused: false });
    }

    /// Stops reading a partition.
    pub(super) fn remove(&mut self, of: TopicPartition) {
        self.places.remove(&of);
    }

    /// Stops reading all partitions, and tells which they were.
    pub(super) fn clear(&mut self) -> Vec<TopicPartition> {
        std::mem::take(&mut self.places).into_keys().collect()
    }

    /// Leaves a partition out, or no longer.
    pub(super) fn set_paused(&mut self, of: TopicPartition, paused: bool) {
        if let Some(cursor) = self.places.get_mut(&of) {
            cursor.paused = paused;
        }
    }

    /// Moves every partition to where `to` says.
    pub(super) fn seek(&mut self, to: impl Fn(TopicPartition) -> Offset) {
        for (of, cursor) in &mut self.places {
            cursor.next = to(*of);
        }
    }

    /// The next records, at most `max`. All partitions that have some get an equal share; when there are
    /// more of them than `max`, each gets its turn. On an error nothing has moved.
    pub(super) fn gather(
        &mut self,
        shared: &Shared,
        max: usize,
    ) -> Result<Vec<Arc<Record>>, Error> {
        let max = max.max(1);
        let active = self.places.iter().filter(|(_, cursor)| !cursor.paused);
        let mut ready = shared.view.ready(active.map(|(of, cursor)| (*of, cursor.next)));
        if ready.is_empty() {
            return Ok(Vec::new());
        }
        let first = ready.iter().position(|(of, _)| Some(*of) > self.served).unwrap_or(0);
        ready.rotate_left(first);
        let share = max.div_ceil(ready.len());
        let mut records = Vec::new();
        let mut moved = Vec::new();
        let mut bytes = 0_usize;
        for (of, next) in ready {
            let room = share.min(max - records.len());
            if room == 0 || bytes >= PAGE_BYTES_MAX {
                break;
            }
            let page = page(shared, of, next, room)?;
            moved.push((of, page.next));
            bytes =
                page.records.iter().map(|record| size(record)).fold(bytes, usize::saturating_add);
            records.extend(page.records);
        }
        for (of, next) in moved {
            self.served = Some(of);
            if let Some(cursor) = self.places.get_mut(&of) {
                cursor.next = next;
            }
        }
        Ok(records)
    }
}

/// Reads some records of one partition.
pub(super) fn page(
    shared: &Shared,
    of: TopicPartition,
    from: Offset,
    max: usize,
) -> Result<Page<Arc<Record>>, Error> {
    match shared.view.find(of, from, max) {
        Some(Found::Recent(page)) => Ok(page),
        Some(Found::Stored(slot, end)) => {
            let page = shared
                .readers
                .with(|connection| storage::page(connection, of, slot, from, end, max))?;
            let records = page.records.into_iter().map(Arc::new).collect();
            Ok(Page { records, next: page.next })
        }
        None => Err(Error::fatal(format!("there is no partition {of}"))),
    }
}
