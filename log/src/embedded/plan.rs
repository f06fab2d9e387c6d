//! Changes that a transaction is going to make.

use std::collections::HashMap;
use std::collections::hash_map::Entry::{Occupied, Vacant};
use std::sync::Arc;

use rusqlite::Connection;
use schemas::UnixMicros;

use super::batch::{BATCH_BYTES_MAX, Batch, Entry};
use super::queue::{Request, Rewrite, Work};
use super::rows;
use super::view::{Changes, Extent, View};
use crate::{Committed, NewRecord, Offset, Record, Records, StepError, TopicPartition};

#[derive(Default)]
pub(super) struct Plan {
    partitions: HashMap<TopicPartition, Planned>,
    /// Appended, in the order of the requests.
    records: Records,
    pub(super) offsets: Vec<(&'static str, TopicPartition, Committed)>,
    rewrites: Vec<Arc<Rewrite>>,
}

/// A partition that the transaction may change.
struct Planned {
    /// State after the transaction.
    extent: Extent,
    is_changed: bool,
    is_trimmed: bool,
    /// Batches of the appended records.
    batches: Vec<Batch>,
}

impl Planned {
    /// Gives a record its offset. Append times of a partition do not decrease, even if the clock
    /// goes back.
    fn append(&mut self, record: NewRecord, now: UnixMicros) -> Record {
        let offset = self.extent.bounds.end;
        self.extent.bounds.end = offset.next();
        self.extent.appended_at = self.extent.appended_at.max(now);
        self.is_changed = true;
        let NewRecord { to, key, value, headers } = record;
        let appended_at = self.extent.appended_at;
        let record = Record { from: to, offset, appended_at, key, value, headers };
        let entry = Entry::of(&record);
        match self.batches.last_mut().filter(|batch| batch.blob.len() < BATCH_BYTES_MAX) {
            Some(batch) => batch.push(&entry),
            None => {
                let mut batch = Batch::new(offset, appended_at);
                batch.push(&entry);
                self.batches.push(batch);
            }
        }
        record
    }
}

impl Plan {
    /// Entry of a partition, added if it is missing.
    fn partition(&mut self, of: TopicPartition, view: &View) -> Result<&mut Planned, StepError> {
        match self.partitions.entry(of) {
            Occupied(entry) => Ok(entry.into_mut()),
            Vacant(entry) => {
                let none = || StepError::Fatal(format!("there is no partition {of}").into());
                let extent = view.extent(of).ok_or_else(none)?;
                let (is_changed, is_trimmed, batches) = (false, false, Vec::new());
                Ok(entry.insert(Planned { extent, is_changed, is_trimmed, batches }))
            }
        }
    }

    /// Adds records and offsets, all or none. On an error `records` is unchanged.
    pub(super) fn append(
        &mut self,
        records: &mut Vec<NewRecord>,
        offsets: Vec<(&'static str, TopicPartition, Committed)>,
        view: &View,
        now: UnixMicros,
    ) -> Result<(), StepError> {
        let count = i64::try_from(records.len()).unwrap_or(i64::MAX);
        for (_, of, _) in &offsets {
            self.partition(*of, view)?;
        }
        let mut last = None;
        for of in records.iter().map(|record| record.to) {
            if last.replace(of) == Some(of) {
                continue;
            }
            let end = self.partition(of, view)?.extent.bounds.end;
            if !rows::fits(Offset(end.0.saturating_add(count))) {
                return Err(StepError::Fatal(format!("partition {of} is full").into()));
            }
        }
        self.offsets.extend(offsets);
        self.records.reserve(records.len());
        for record in std::mem::take(records) {
            if let Some(planned) = self.partitions.get_mut(&record.to) {
                self.records.push(Arc::new(planned.append(record, now)));
            }
        }
        Ok(())
    }

    pub(super) fn trim(
        &mut self,
        of: TopicPartition,
        below: Offset,
        view: &View,
    ) -> Result<(), StepError> {
        let planned = self.partition(of, view)?;
        (planned.is_changed, planned.is_trimmed) = (true, true);
        planned.extent.bounds.start = planned.extent.bounds.start.max(below);
        Ok(())
    }

    pub(super) fn rewrite(&mut self, rewrite: Arc<Rewrite>, view: &View) -> Result<(), StepError> {
        let planned = self.partition(rewrite.of, view)?;
        if let Some((to, records)) = rewrite.compacted {
            planned.is_changed = true;
            (planned.extent.compacted_to, planned.extent.compacted_records) = (to, records);
        }
        self.rewrites.push(rewrite);
        Ok(())
    }

    /// Gives the planned records back to their requests.
    pub(super) fn give_back(self, requests: &mut [(Request, usize)]) {
        let mut appended = self.records.into_iter().map(Arc::unwrap_or_clone);
        for (request, count) in requests {
            if let Work::Append { records, .. } = &mut request.work {
                records.extend(appended.by_ref().take(*count).map(again));
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.offsets.is_empty() && !self.has_more_than_offsets()
    }

    pub(super) fn has_more_than_offsets(&self) -> bool {
        !self.rewrites.is_empty() || self.partitions.values().any(|planned| planned.is_changed)
    }

    /// Number of records that the plan appends.
    pub(super) fn count(&self) -> usize {
        self.records.len()
    }

    pub(super) fn write(&self, transaction: &Connection) -> rusqlite::Result<()> {
        for (of, planned) in self.partitions.iter().filter(|(_, planned)| planned.is_changed) {
            for batch in &planned.batches {
                rows::save_batch(transaction, planned.extent.slot, batch)?;
            }
            if planned.is_trimmed {
                rows::trim(transaction, &planned.extent)?;
            }
            rows::save_extent(transaction, *of, &planned.extent)?;
        }
        for rewrite in &self.rewrites {
            let Some(planned) = self.partitions.get(&rewrite.of) else { continue };
            for batch in &rewrite.batches {
                if batch.blob.is_empty() {
                    rows::delete_batch(transaction, planned.extent.slot, batch.first)?;
                } else {
                    rows::save_batch(transaction, planned.extent.slot, batch)?;
                }
            }
        }
        for (group, of, committed) in &self.offsets {
            rows::save_committed(transaction, group, *of, committed)?;
        }
        Ok(())
    }

    /// Changes for the readers to see once the plan is written.
    pub(super) fn into_changes(self) -> Changes {
        let changed = self.partitions.into_iter().filter(|(_, planned)| planned.is_changed);
        Changes {
            extents: changed.map(|(of, planned)| (of, planned.extent)).collect(),
            records: self.records,
            offsets: self.offsets,
            rewrites: self.rewrites,
        }
    }
}

fn again(record: Record) -> NewRecord {
    let Record { from, key, value, headers, .. } = record;
    NewRecord { to: from, key, value, headers }
}
