//! The only thread that writes: takes a batch of queued requests, writes it in one transaction, publishes the
//! result to the readers, then replies. A batch of offsets alone may get the replies before its write.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rusqlite::{Connection, TransactionBehavior};
use schemas::UnixMicros;

use super::fault::StorageError;
use super::plan::Plan;
use super::queue::{Author, Queue, Request, Work};
use super::storage::FILE;
use super::{Shared, rows};
use crate::metrics as names;
use crate::{Committed, NewRecord, StepError, TopicPartition};
use runtime::Readiness;
use runtime::readiness::Part;
use sqlite::Writing;

/// Approximate maximum of rows per transaction; a larger request gets its own transaction.
const BATCH_ROWS_MAX: usize = 10_000;
/// Maximum delay of the write of offsets without records.
const LATE_MAX: Duration = Duration::from_millis(50);
/// Minimum interval of reports while writes fail: deferred offsets are retried every [`LATE_MAX`].
const REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum bytes of a record's key, value and headers together. A larger record is a defect of its
/// producer.
pub(super) const RECORD_BYTES_MAX: usize = 64 * 1024 * 1024;

pub(super) struct Committer {
    file: Writing,
    shared: Arc<Shared>,
    /// The newest epoch of each writer's name.
    epochs: HashMap<String, u64>,
    late: LateOffsets,
    /// Time of the last report of a failed write; none after a successful write.
    reported_at: Option<Instant>,
    /// Part of the readiness after a failed write; none after a successful write.
    waiting: Option<Part>,
}

/// Offsets of steps without records: visible to readers, not yet in the file. They wait for the
/// next transaction, at most [`LATE_MAX`].
#[derive(Debug, Default)]
struct LateOffsets {
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
struct Abandon<'a>(&'a Queue);

impl Drop for Abandon<'_> {
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
    /// Takes the connection that writes. If the disk fails in a checkpoint, the log refuses all
    /// later requests.
    pub(super) fn new(
        shared: Arc<Shared>,
        connection: Connection,
        dir: &Path,
    ) -> std::io::Result<Self> {
        let of_checkpoint = shared.clone();
        let failed = move |error: rusqlite::Error| {
            of_checkpoint.queue.fail(StorageError::from(error).of_the_disk());
        };
        let file = Writing::new(connection, &dir.join(FILE), failed)?;
        let (epochs, late) = (HashMap::new(), LateOffsets::default());
        Ok(Self { file, shared, epochs, late, reported_at: None, waiting: None })
    }

    /// Commits until the queue is closed and empty.
    pub(super) fn run(mut self) {
        let shared = self.shared.clone();
        let _abandon = Abandon(&shared.queue);
        while let Some((batch, waiting)) = shared.queue.take(BATCH_ROWS_MAX, self.late.left()) {
            metrics::gauge!(names::LOG_QUEUE_REQUESTS).set(f64::from(count(waiting)));
            self.commit(batch);
        }
        if shared.queue.has_failed() {
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
        let now = self.shared.clock.now();
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
                self.shared.view.publish(plan.into_changes());
                Ok(())
            }
            Err(Failure::Wanted) => Err(StepError::Aborted("made to fail by a test".into())),
            Err(Failure::Storage(error)) if error.is_of_the_disk() => Err(self.give_up(error)),
            Err(Failure::Storage(_)) if accepted.len() > 1 => {
                // One request may be the cause: each is now written in a transaction of its own.
                plan.give_back(&mut accepted);
                for (request, _) in accepted {
                    // After a disk failure the others are dropped: nothing is acknowledged any
                    // more.
                    if !self.shared.queue.has_failed() {
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
                    self.waiting = self.shared.readiness.get().map(part);
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
        self.shared.queue.fail(cause.clone());
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
                plan.append(records, offsets, &self.shared.view, now)
            }
            Work::Trim { of, below } => plan.trim(*of, *below, &self.shared.view),
            Work::Rewrite(rewrite) => plan.rewrite(rewrite.clone(), &self.shared.view),
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

    /// Writes the plan. Offsets alone are deferred for [`LATE_MAX`] at most: if a crash loses them,
    /// inputs that had no output are read again, which changes nothing.
    fn write(&mut self, plan: &Plan) -> Result<(), Failure> {
        let is_due = self.late.left().is_some_and(|left| left.is_zero());
        if plan.has_more_than_offsets() || is_due {
            return self.transact(plan);
        }
        if !plan.is_empty() {
            fail_if_wanted(&self.shared.fail_next)?;
            self.late.add(&plan.offsets);
        }
        Ok(())
    }

    /// Writes the plan and deferred offsets in one transaction. On an error neither is written.
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
            fail_if_wanted(&self.shared.fail_next)?;
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
