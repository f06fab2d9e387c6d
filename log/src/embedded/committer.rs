//! The only thread that writes: takes all waiting requests, writes them in one transaction, publishes the
//! result to the readers, then answers. Steps of offsets alone are answered before they are written.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rusqlite::{Connection, Transaction, TransactionBehavior};
use schemas::UnixMicros;

use super::queue::{Author, Queue, Request, Work};
use super::storage::{self, StorageError};
use super::view::{Changes, Extent, View};
use crate::metrics as names;
use crate::{Committed, NewRecord, Offset, Record, StepError, TopicPartition};
use runtime::Clock;

/// About how many rows one transaction writes; a larger request gets one for itself.
const BATCH_ROWS_MAX: usize = 10_000;
/// How long offsets alone wait for a transaction.
const LATE_MAX: Duration = Duration::from_millis(50);
/// A larger record is a defect of its producer.
const RECORD_BYTES_MAX: usize = 64 * 1024 * 1024;

pub(super) struct Committer {
    pub(super) connection: Connection,
    pub(super) queue: Arc<Queue>,
    pub(super) view: Arc<View>,
    pub(super) clock: Arc<dyn Clock>,
    /// For tests: the next transaction is rolled back.
    pub(super) fail_next: Arc<AtomicBool>,
    /// The newest epoch of each writer's name.
    pub(super) epochs: HashMap<String, u64>,
    pub(super) late: LateOffsets,
}

/// Offsets that readers see and the file has not: those of steps without records. They wait for the next
/// transaction, at most [`LATE_MAX`].
#[derive(Debug, Default)]
pub(super) struct LateOffsets {
    offsets: HashMap<(&'static str, TopicPartition), Committed>,
    since: Option<Instant>,
}

impl LateOffsets {
    fn add(&mut self, offsets: &[(&'static str, TopicPartition, Committed)]) {
        self.since.get_or_insert_with(Instant::now);
        let offsets = offsets.iter().map(|(group, of, at)| ((*group, *of), at.clone()));
        self.offsets.extend(offsets);
    }

    /// How long they may still wait, if there are any.
    fn left(&self) -> Option<Duration> {
        self.since.map(|since| LATE_MAX.saturating_sub(since.elapsed()))
    }
}

/// What a transaction is going to change.
#[derive(Default)]
struct Plan {
    /// Of the partitions in question, afterwards.
    extents: HashMap<TopicPartition, Extent>,
    changes: Changes,
}

/// Refuses everything once the committer has ended or panicked.
struct Abandon(Arc<Queue>);

impl Drop for Abandon {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

impl Committer {
    /// Commits until the queue is closed and empty.
    pub(super) fn run(mut self) {
        let _abandon = Abandon(self.queue.clone());
        while let Some((batch, waiting)) = self.queue.take(BATCH_ROWS_MAX, self.late.left()) {
            metrics::gauge!(names::LOG_QUEUE_REQUESTS).set(f64::from(count(waiting)));
            self.commit(batch);
        }
        if let Err(failure) = self.transact(&Plan::default()) {
            tracing::warn!(%failure, "the last offsets of steps without records are lost; their inputs are read again");
        }
        if let Err(error) = storage::checkpoint(&self.connection) {
            tracing::warn!(%error, "the log could not be checkpointed while closing");
        }
    }

    pub(super) fn commit(&mut self, batch: Vec<Request>) {
        let now = self.clock.now();
        let mut plan = Plan::default();
        let mut accepted = Vec::new();
        for mut request in batch {
            match self.accept(&mut request.work, &mut plan, now) {
                Ok(()) => accepted.push(request),
                Err(failure) => request.answer(Err(failure)),
            }
        }
        let outcome = self.write(&plan);
        match &outcome {
            Ok(()) => self.view.publish(plan.changes),
            Err(failure) => tracing::error!(%failure, "the log could not write; nothing is lost"),
        }
        for request in accepted {
            // A fence holds also if the transaction failed. It is answered here because a new writer must
            // not continue before the steps of its predecessor have ended.
            let fence = matches!(request.work, Work::Fence { .. });
            request.answer(if fence { Ok(()) } else { outcome.clone() });
        }
    }

    /// Checks a request and adds it to the plan, whole or not at all.
    fn accept(
        &mut self,
        work: &mut Work,
        plan: &mut Plan,
        now: UnixMicros,
    ) -> Result<(), StepError> {
        match work {
            Work::Fence { name, epoch } => {
                let newest = self.epochs.entry(name.clone()).or_default();
                *newest = (*newest).max(*epoch);
            }
            Work::Append { records, offsets, author } => {
                self.check(records, author)?;
                for of in records.iter().map(|r| r.to).chain(offsets.iter().map(|(of, _)| *of)) {
                    plan.add(of, &self.view, records.len())?;
                }
                for record in std::mem::take(records) {
                    plan.append(record, now);
                }
                if let Author::Group(group) = author {
                    let offsets = std::mem::take(offsets).into_iter();
                    plan.changes.offsets.extend(offsets.map(|(of, at)| (*group, of, at)));
                }
            }
            Work::Trim { of, below } => {
                plan.add(*of, &self.view, 0)?;
                plan.changes.trimmed.push((*of, *below));
            }
            Work::Remove { of, offsets } => {
                plan.add(*of, &self.view, 0)?;
                plan.changes.removed.push((*of, std::mem::take(offsets)));
            }
        }
        Ok(())
    }

    fn check(&self, records: &[NewRecord], author: &Author) -> Result<(), StepError> {
        if let Author::Writer { name, epoch } = author
            && self.epochs.get(name).is_none_or(|newest| newest != epoch)
        {
            return Err(StepError::Fenced(format!("another writer took the name {name}").into()));
        }
        for record in records {
            let headers = record.headers.as_bytes().len();
            let value = record.value.as_ref().map_or(0, Vec::len);
            if record.key.len() + value + headers > RECORD_BYTES_MAX {
                return Err(StepError::Fatal(
                    format!("a record for {} is too large", record.to).into(),
                ));
            }
        }
        Ok(())
    }

    /// Writes the plan, but puts offsets alone off: without an output, reading their inputs again after
    /// a crash changes nothing.
    fn write(&mut self, plan: &Plan) -> Result<(), StepError> {
        let is_due = self.late.left().is_some_and(|left| left.is_zero());
        if plan.has_more_than_offsets() || is_due {
            return self.transact(plan);
        }
        if !plan.is_empty() {
            fail_if_asked(&self.fail_next)?;
            self.late.add(&plan.changes.offsets);
        }
        Ok(())
    }

    /// Writes the plan and what was put off in one transaction. On an error nothing of it remains: even
    /// frames that reached the WAL before a failed fsync are overwritten by the next transaction. Only a
    /// crash before that one could make them count, whole, and then only the dead process has acted on the
    /// error.
    fn transact(&mut self, plan: &Plan) -> Result<(), StepError> {
        if plan.is_empty() && self.late.offsets.is_empty() {
            return Ok(());
        }
        // If it fails, the next attempt is not at once.
        self.late.since = self.late.since.map(|_| Instant::now());
        let started = Instant::now();
        let begun = self.connection.transaction_with_behavior(TransactionBehavior::Immediate);
        let transaction = begun.map_err(StorageError::from)?;
        for ((group, of), at) in &self.late.offsets {
            storage::save_committed(&transaction, group, *of, at).map_err(StorageError::from)?;
        }
        plan.write(&transaction).map_err(StorageError::from)?;
        if !plan.is_empty() {
            fail_if_asked(&self.fail_next)?;
        }
        transaction.commit().map_err(StorageError::from)?;
        self.late = LateOffsets::default();
        let records = count(plan.changes.records.len());
        metrics::histogram!(names::LOG_COMMIT_SECONDS).record(started.elapsed());
        metrics::histogram!(names::LOG_COMMIT_RECORDS).record(f64::from(records));
        metrics::counter!(names::LOG_RECORDS_TOTAL).increment(u64::from(records));
        Ok(())
    }
}

fn fail_if_asked(fail_next: &AtomicBool) -> Result<(), StepError> {
    if fail_next.swap(false, Ordering::SeqCst) {
        return Err(StepError::Aborted("made to fail by a test".into()));
    }
    Ok(())
}

impl Plan {
    /// Adds a partition to the plan, if it has room for `more` records.
    fn add(&mut self, of: TopicPartition, view: &View, more: usize) -> Result<(), StepError> {
        let known = self.extents.get(&of).copied();
        let extent = known
            .or_else(|| view.extent(of))
            .ok_or_else(|| StepError::Fatal(format!("there is no partition {of}").into()))?;
        let more = i64::try_from(more).unwrap_or(i64::MAX);
        if !storage::fits(Offset(extent.bounds.end.0.saturating_add(more))) {
            return Err(StepError::Fatal(format!("partition {of} is full").into()));
        }
        self.extents.insert(of, extent);
        Ok(())
    }

    /// Gives a record its offset. The clock may go back; the append times of a partition may not.
    fn append(&mut self, record: NewRecord, now: UnixMicros) {
        let Some(extent) = self.extents.get_mut(&record.to) else { return };
        let offset = extent.bounds.end;
        extent.bounds.end = offset.next();
        extent.appended_at = extent.appended_at.max(now);
        let NewRecord { to, key, value, headers } = record;
        let appended_at = extent.appended_at;
        let record = Record { from: to, offset, appended_at, key, value, headers };
        self.changes.records.push(Arc::new(record));
    }

    fn is_empty(&self) -> bool {
        self.changes.offsets.is_empty() && !self.has_more_than_offsets()
    }

    fn has_more_than_offsets(&self) -> bool {
        let Changes { records, offsets: _, trimmed, removed } = &self.changes;
        !(records.is_empty() && trimmed.is_empty() && removed.is_empty())
    }

    fn write(&self, transaction: &Transaction<'_>) -> rusqlite::Result<()> {
        let slot = |of| self.extents.get(of).map(|extent| extent.slot);
        let mut grown = HashSet::new();
        for record in &self.changes.records {
            if let Some(slot) = slot(&record.from) {
                storage::insert(transaction, slot, record)?;
                grown.insert(record.from);
            }
        }
        for extent in grown.iter().filter_map(|of| self.extents.get(of)) {
            let end = extent.bounds.end;
            storage::save_end(transaction, extent.slot, end, extent.appended_at)?;
        }
        for (group, of, committed) in &self.changes.offsets {
            storage::save_committed(transaction, group, *of, committed)?;
        }
        for (of, below) in &self.changes.trimmed {
            if let Some(extent) = self.extents.get(of) {
                storage::trim(transaction, extent.slot, extent.bounds.start, *below)?;
            }
        }
        for (of, offsets) in &self.changes.removed {
            for offset in offsets {
                if let Some(slot) = slot(of) {
                    storage::remove(transaction, slot, *offset)?;
                }
            }
        }
        Ok(())
    }
}

fn count(of: usize) -> u32 {
    u32::try_from(of).unwrap_or(u32::MAX)
}
