//! The only thread that writes: takes all queued requests, writes them in one transaction, publishes the
//! result to the readers, then replies. Steps of offsets alone get the reply before the write.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rusqlite::TransactionBehavior;
use schemas::UnixMicros;

use super::fault::StorageError;
use super::plan::Plan;
use super::queue::{Author, Queue, Request, Work};
use super::rows;
use super::view::View;
use crate::metrics as names;
use crate::{Committed, NewRecord, StepError, TopicPartition};
use runtime::readiness::Part;
use runtime::{Clock, Readiness};
use sqlite::Writing;

/// Approximate maximum of rows per transaction; a larger request gets its own transaction.
const BATCH_ROWS_MAX: usize = 10_000;
/// Maximum delay of the write of offsets without records.
const LATE_MAX: Duration = Duration::from_millis(50);
/// Minimum interval of reports while writes fail: they are tried twenty times a second.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum bytes of a record's key, value and headers together. A larger record is a defect of its
/// producer.
pub(super) const RECORD_BYTES_MAX: usize = 64 * 1024 * 1024;

pub(super) struct Committer {
    pub(super) file: Writing,
    pub(super) queue: Arc<Queue>,
    pub(super) view: Arc<View>,
    pub(super) clock: Arc<dyn Clock>,
    /// For tests: the next transaction is rolled back.
    pub(super) fail_next: Arc<AtomicBool>,
    /// The newest epoch of each writer's name.
    pub(super) epochs: HashMap<String, u64>,
    pub(super) late: LateOffsets,
    /// Time of the last report of a failed write; none since one succeeded.
    pub(super) reported_at: Option<Instant>,
    pub(super) readiness: Arc<OnceLock<Readiness>>,
    /// Part of the readiness after a failed write; none since one succeeded.
    pub(super) waiting: Option<Part>,
}

/// Offsets of steps without records: visible to readers, not yet in the file. They wait for the
/// next transaction, at most [`LATE_MAX`].
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

    /// Remaining wait of the offsets, if there are any.
    fn left(&self) -> Option<Duration> {
        self.since.map(|since| LATE_MAX.saturating_sub(since.elapsed()))
    }
}

/// Guard that makes the queue refuse all requests once the committer has ended or panicked.
struct Abandon(Arc<Queue>);

impl Drop for Abandon {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

enum Failure {
    Storage(StorageError),
    /// Requested by a test.
    Wanted,
}

impl<E: Into<StorageError>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Storage(error.into())
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
        if self.queue.has_failed() {
            return;
        }
        if self.transact(&Plan::default()).is_err() {
            tracing::warn!(
                "the last steps without records are not on the disk; their inputs will be read again"
            );
        }
        if let Err(error) = self.file.close() {
            tracing::warn!(%error, "the log could not be checkpointed while closing");
        }
    }

    pub(super) fn commit(&mut self, batch: Vec<Request>) {
        let now = self.clock.now();
        let mut plan = Plan::default();
        let mut accepted = Vec::with_capacity(batch.len());
        for mut request in batch {
            let before = plan.count();
            match self.accept(&mut request.work, &mut plan, now) {
                Ok(()) => accepted.push((request, plan.count() - before)),
                Err(failure) => request.answer(Err(failure)),
            }
        }
        let outcome = match self.write(&plan) {
            Ok(()) => {
                self.view.publish(plan.into_changes());
                Ok(())
            }
            Err(Failure::Wanted) => Err(StepError::Aborted("made to fail by a test".into())),
            Err(Failure::Storage(error)) if error.is_of_the_disk() => Err(self.give_up(error)),
            Err(Failure::Storage(_)) if accepted.len() > 1 => {
                // One of them may be the cause: each is now written in a transaction of its own.
                plan.give_back(&mut accepted);
                for (request, _) in accepted {
                    // After a disk failure the others are dropped: nothing is acknowledged any
                    // more.
                    if !self.queue.has_failed() {
                        self.commit(vec![request]);
                    }
                }
                return;
            }
            Err(Failure::Storage(error)) => {
                if self.waiting.is_none() {
                    let part = |readiness: &Readiness| {
                        readiness.part("log", format!("it cannot write: {error}"))
                    };
                    self.waiting = self.readiness.get().map(part);
                }
                if self.reported_at.is_none_or(|at| at.elapsed() >= REPORT_INTERVAL) {
                    self.reported_at = Some(Instant::now());
                    tracing::error!(%error, "the log could not write; nothing is lost, will retry");
                }
                Err(error.into())
            }
        };
        for (request, _) in accepted {
            // A fence holds also if the transaction failed. It is answered here because a new writer must
            // not continue before the steps of its predecessor have ended.
            let fence = matches!(request.work, Work::Fence { .. });
            request.answer(if fence { Ok(()) } else { outcome.clone() });
        }
        if let Err(error) = self.file.checkpoint_if_due() {
            self.give_up(error.into());
        }
    }

    fn give_up(&self, error: StorageError) -> StepError {
        let cause = error.of_the_disk();
        self.queue.fail(cause.clone());
        StepError::Fatal(cause)
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
                Ok(())
            }
            Work::Append { records, offsets, author } => {
                self.check(records, author)?;
                let offsets = match author {
                    Author::Group(group) => {
                        offsets.iter().map(|(of, at)| (*group, *of, at.clone())).collect()
                    }
                    Author::Producer | Author::Writer { .. } => Vec::new(),
                };
                plan.append(records, offsets, &self.view, now)
            }
            Work::Trim { of, below } => plan.trim(*of, *below, &self.view),
            Work::Rewrite(rewrite) => plan.rewrite(rewrite.clone(), &self.view),
        }
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

    /// Writes the plan. A plan of offsets alone is deferred: if a crash loses it, inputs that had
    /// no output are read again, which changes nothing.
    fn write(&mut self, plan: &Plan) -> Result<(), Failure> {
        let is_due = self.late.left().is_some_and(|left| left.is_zero());
        if plan.has_more_than_offsets() || is_due {
            return self.transact(plan);
        }
        if !plan.is_empty() {
            fail_if_wanted(&self.fail_next)?;
            self.late.add(&plan.offsets);
        }
        Ok(())
    }

    /// Writes the plan and deferred offsets in one transaction. On an error nothing of them is
    /// written.
    fn transact(&mut self, plan: &Plan) -> Result<(), Failure> {
        if plan.is_empty() && self.late.offsets.is_empty() {
            return Ok(());
        }
        // Delays the next attempt if this one fails.
        self.late.since = self.late.since.map(|_| Instant::now());
        let started = Instant::now();
        let connection = &mut self.file.connection;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for ((group, of), at) in &self.late.offsets {
            rows::save_committed(&transaction, group, *of, at)?;
        }
        plan.write(&transaction)?;
        if !plan.is_empty() {
            fail_if_wanted(&self.fail_next)?;
        }
        transaction.commit()?;
        self.late = LateOffsets::default();
        (self.reported_at, self.waiting) = (None, None);
        let records = count(plan.count());
        metrics::histogram!(names::LOG_COMMIT_SECONDS).record(started.elapsed());
        metrics::histogram!(names::LOG_COMMIT_RECORDS).record(f64::from(records));
        metrics::counter!(names::LOG_RECORDS_TOTAL).increment(u64::from(records));
        Ok(())
    }
}

fn fail_if_wanted(fail_next: &AtomicBool) -> Result<(), Failure> {
    if fail_next.swap(false, Ordering::SeqCst) { Err(Failure::Wanted) } else { Ok(()) }
}

fn count(of: usize) -> u32 {
    u32::try_from(of).unwrap_or(u32::MAX)
}
