//! The positions of a reader, and its next records: from memory, else from the file.

use std::collections::BTreeMap;

use super::view::{Found, PAGE_BYTES_MAX, Page, size};
use super::{Shared, rows};
use crate::{Error, Offset, Records, TopicPartition};

#[derive(Debug, Default)]
pub(super) struct Cursors {
    all: BTreeMap<TopicPartition, Cursor>,
    /// The partition that was served last: the next turn starts after it.
    served: Option<TopicPartition>,
}

#[derive(Debug)]
struct Cursor {
    next: Offset,
    paused: bool,
}

impl Cursors {
    pub(super) fn add(&mut self, of: TopicPartition, next: Offset) {
        self.all.insert(of, Cursor { next, paused: false });
    }

    pub(super) fn remove(&mut self, of: TopicPartition) {
        self.all.remove(&of);
    }

    /// Removes and returns all partitions.
    pub(super) fn clear(&mut self) -> Vec<TopicPartition> {
        std::mem::take(&mut self.all).into_keys().collect()
    }

    pub(super) fn set_paused(&mut self, of: TopicPartition, paused: bool) {
        if let Some(cursor) = self.all.get_mut(&of) {
            cursor.paused = paused;
        }
    }

    pub(super) fn seek(&mut self, to: impl Fn(TopicPartition) -> Offset) {
        for (of, cursor) in &mut self.all {
            cursor.next = to(*of);
        }
    }

    /// The next records, at most `max`. Unpaused partitions that have some get an equal share; those
    /// without room are served first by later calls. After an error no position has changed.
    pub(super) fn gather(&mut self, shared: &Shared, max: usize) -> Result<Records, Error> {
        let max = max.max(1);
        let active = self.all.iter().filter(|(_, cursor)| !cursor.paused);
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
            if let Some(cursor) = self.all.get_mut(&of) {
                cursor.next = next;
            }
        }
        Ok(records)
    }
}

pub(super) fn page(
    shared: &Shared,
    of: TopicPartition,
    from: Offset,
    max: usize,
) -> Result<Page, Error> {
    match shared.view.find(of, from, max) {
        Some(Found::Recent(page)) => Ok(page),
        Some(Found::Stored(slot, end)) => {
            shared.readers.with(|connection| rows::page(connection, of, slot, from, end, max))
        }
        None => Err(Error::fatal(format!("there is no partition {of}"))),
    }
}
