//! The one loop under every stage that reads as a member of a group: poll, decide, commit one step.
//!
//! Stages differ in their [`Handler`]. The rest is here: the reaction to a rebalance, to an
//! unavailable log and to an aborted, fenced or failed step, the waits, and the logging. Ownership of a partition on
//! Kafka: decision 10, rows "two instances of one name" and "mark of a step".

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use runtime::task::{self, Backoff};
use schemas::Topic;
use schemas::record::DeadLetter;
use tokio_util::sync::CancellationToken;

use crate::dead_letter::{letters, report};
use crate::metrics::{
    ASSIGNED_PARTITIONS, GROUP_RECORDS_TOTAL, GROUP_STEP_SECONDS, GROUP_STEPS_TOTAL, METRICS,
};
use crate::{
    Assigned, Error, Event, NewRecord, Record, Records, StageContext, Step, StepError,
    TopicPartition, Worker, WorkerSpec, retry,
};

/// Default maximum wait of one poll, and so the usual maximum delay in noticing a due timer or a stop.
pub const POLL_TIMEOUT: Duration = Duration::from_millis(50);
/// Delay before a log that cannot be read is polled again.
const POLL_RETRY_DELAY: Duration = Duration::from_millis(500);
/// First delay after an aborted or fenced step or [`Plan::Retry`]. It doubles up to the maximum, which is
/// well below the default session time-out.
const STEP_RETRY_DELAY: Duration = Duration::from_millis(100);
const STEP_RETRY_DELAY_MAX: Duration = Duration::from_secs(3);

/// Work of a stage on the partitions of its group member.
pub trait Handler {
    /// Consumer group, also the name in logs and metrics.
    const GROUP: &'static str;
    /// Maximum number of records that one poll returns.
    const BATCH_MAX: usize = 500;
    /// Failure that the process must stop for. The loop retries transient ones instead.
    type Error: From<Error> + From<StepError>;

    /// Input topics. Partition i of those with equal partition counts goes to the same member.
    fn topics(&self) -> Vec<Topic>;

    /// Maximum wait of the next poll for records.
    fn poll_timeout(&self) -> Duration {
        POLL_TIMEOUT
    }

    /// Acquires partitions: the steps of earlier owners are final, so state can be restored.
    fn assigned(
        &mut self,
        _assigned: Vec<Assigned>,
        _member: &mut Member<'_>,
    ) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Drops the state of partitions that the member lost or, as the loop ends, gives up. Each assigned
    /// partition is passed once, whatever ended its ownership. Nothing more is committed for it.
    fn revoked(&mut self, _lost: &[TopicPartition]) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Decides on records and due timers. Called after every poll, also one without records.
    fn step(
        &mut self,
        records: &[Arc<Record>],
        member: &mut Member<'_>,
    ) -> Result<Plan, Self::Error>;

    /// Called after a transient failure of a poll: the member may have lost its partitions.
    /// [`Handler::step`] is called next, without records.
    fn poll_failed(&mut self) {}

    /// Called once the step of the last [`Plan::Commit`] is committed.
    fn committed(&mut self) {}

    /// Undoes the step of the last [`Plan::Commit`] in memory: it was aborted. Its records are read
    /// again.
    fn aborted(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }

    /// `true` if the loop may end. Called only while the process stops; the loop continues until it
    /// returns `true`.
    fn is_drained(&mut self) -> bool {
        true
    }
}

/// Result of [`Handler::step`].
#[derive(Debug)]
pub enum Plan {
    Nothing,
    /// This step, all of it or none.
    Commit(Step),
    /// A part of the step is done, and the rest may take too long for a member that must poll: no more records
    /// are read, and [`Handler::step`] is called again after a poll.
    Unfinished,
    /// A dependency of the step is unavailable: as [`Plan::Unfinished`], after a backoff.
    Retry,
}

impl Plan {
    /// The plan for a step: [`Plan::Nothing`] if the step is empty.
    #[must_use]
    pub fn commit(step: Step) -> Self {
        if step.is_empty() { Self::Nothing } else { Self::Commit(step) }
    }
}

/// Operations that a handler may request of its member of the group.
pub struct Member<'a> {
    group: &'static str,
    worker: &'a mut dyn Worker,
    stop: &'a CancellationToken,
    /// Dead letters that the log has written ahead.
    letters: &'a mut Vec<DeadLetter>,
}

impl Member<'_> {
    /// Builds a state from `new` and the entries of a changelog. Retries while the log is
    /// unavailable; returns none if the process stops first.
    ///
    /// # Errors
    /// A permanent [`Error`].
    pub fn restore<S>(
        &mut self,
        changelog: TopicPartition,
        new: impl Fn() -> S,
        mut apply: impl FnMut(&mut S, Record),
    ) -> Result<Option<S>, Error> {
        let Self { group, worker, stop, .. } = self;
        retry(stop, group, || {
            let mut state = new();
            worker.restore(changelog, &mut |record| apply(&mut state, record))?;
            Ok(state)
        })
    }

    /// Offers records of the step under way: see [`Worker::write_ahead`].
    pub fn write_ahead(&mut self, records: &mut Vec<NewRecord>) {
        let offered: Vec<_> = letters(records).collect();
        self.worker.write_ahead(records);
        if records.is_empty() {
            self.letters.extend(offered);
        }
    }

    /// Withholds records of a partition until [`Member::resume`].
    pub fn pause(&mut self, partition: TopicPartition) {
        self.worker.pause(partition);
    }

    /// Resumes a partition at the position where it was paused.
    pub fn resume(&mut self, partition: TopicPartition) {
        self.worker.resume(partition);
    }
}

/// Runs `handler` as a member of its group until the process stops. Blocks: belongs on a thread of its
/// own.
///
/// # Errors
/// A failure that the process must stop for. The next run reads uncommitted records again.
pub fn run<H: Handler>(context: &StageContext, handler: H) -> Result<(), H::Error> {
    let topics = handler.topics();
    let names: Vec<_> = topics.iter().map(|topic| topic.name()).collect();
    runtime::metrics::register(METRICS, &[("group", &[H::GROUP]), ("topic", &names)]);
    let spec = WorkerSpec {
        group: H::GROUP,
        member: context.member.clone(),
        topics,
        batch_max: H::BATCH_MAX,
    };
    match retry(&context.stop, H::GROUP, || context.log.worker(spec.clone()))? {
        Some(worker) => Consumer::new(worker, handler, context.stop.clone()).run(),
        None => Ok(()),
    }
}

/// Gauge of the number of this process's workers that own a partition. It is counted, not set: when a
/// partition moves between two workers of one process, its acquisition may come before its release.
fn measured<H: Handler>(of: TopicPartition) -> ::metrics::Gauge {
    let partition = of.partition.0.to_string();
    ::metrics::gauge!(
        ASSIGNED_PARTITIONS,
        "group" => H::GROUP, "topic" => of.topic.name(), "partition" => partition
    )
}

/// Loop of one group member.
pub struct Consumer<H: Handler> {
    worker: Box<dyn Worker>,
    handler: H,
    stop: CancellationToken,
    assigned: BTreeSet<TopicPartition>,
    /// After [`Plan::Unfinished`] or [`Plan::Retry`]: every partition is paused.
    is_paused: bool,
    /// Number of records polled since the last attempt to commit, for the metric.
    polled: usize,
    /// Dead letters that the log has written ahead of the step under way.
    letters: Vec<DeadLetter>,
    step_delay: Backoff,
}

impl<H: Handler> Consumer<H> {
    /// Makes a consumer, which has not polled yet. For tests; stages call [`run`].
    #[must_use]
    pub fn new(worker: Box<dyn Worker>, handler: H, stop: CancellationToken) -> Self {
        Self {
            worker,
            handler,
            stop,
            assigned: BTreeSet::new(),
            is_paused: false,
            polled: 0,
            letters: Vec::new(),
            step_delay: Backoff::new(STEP_RETRY_DELAY, STEP_RETRY_DELAY_MAX),
        }
    }

    /// Polls and commits until the process stops and the handler is drained, then releases all
    /// partitions.
    pub fn run(mut self) -> Result<(), H::Error> {
        let mut ended = Ok(());
        while ended.is_ok() && !(self.stop.is_cancelled() && self.handler.is_drained()) {
            ended = self.turn();
        }
        let left: Vec<_> = self.assigned.iter().copied().collect();
        // Of two errors the first one is the cause.
        ended.and(self.lose(&left))
    }

    /// Polls once, calls the handler, and commits its step if it has one.
    pub fn turn(&mut self) -> Result<(), H::Error> {
        // A poll aborts what was written ahead.
        self.letters.clear();
        let records = match self.worker.poll(self.handler.poll_timeout()) {
            Ok(event) => self.take(event)?,
            Err(Error::Transient(cause)) => {
                // Logged once, by the readiness of the process.
                tracing::debug!(%cause, "{} cannot read the log; will retry", H::GROUP);
                self.handler.poll_failed();
                self.wait(POLL_RETRY_DELAY);
                Vec::new()
            }
            Err(error) => return Err(error.into()),
        };
        self.polled += records.len();
        let begun = Instant::now();
        let mut member = Member {
            group: H::GROUP,
            worker: &mut *self.worker,
            stop: &self.stop,
            letters: &mut self.letters,
        };
        match self.handler.step(&records, &mut member)? {
            Plan::Nothing => self.resume(),
            Plan::Unfinished => self.pause(),
            Plan::Retry => {
                self.pause();
                self.wait_for_step();
            }
            Plan::Commit(step) => self.commit(step, begun)?,
        }
        Ok(())
    }

    fn take(&mut self, event: Event) -> Result<Records, H::Error> {
        match event {
            Event::Records(records) => return Ok(records),
            Event::Idle => {}
            Event::Assigned(assigned) => {
                for of in assigned.iter().map(|one| one.partition) {
                    if self.assigned.insert(of) {
                        measured::<H>(of).increment(1.0);
                    }
                }
                let mut member = Member {
                    group: H::GROUP,
                    worker: &mut *self.worker,
                    stop: &self.stop,
                    letters: &mut self.letters,
                };
                self.handler.assigned(assigned, &mut member)?;
                if self.is_paused {
                    self.pause();
                }
            }
            Event::Revoked(lost) => self.lose(&lost)?,
        }
        Ok(Vec::new())
    }

    fn lose(&mut self, lost: &[TopicPartition]) -> Result<(), H::Error> {
        for of in lost {
            if self.assigned.remove(of) {
                measured::<H>(*of).decrement(1.0);
            }
        }
        self.handler.revoked(lost)
    }

    fn commit(&mut self, step: Step, begun: Instant) -> Result<(), H::Error> {
        let records = std::mem::take(&mut self.polled);
        self.letters.extend(letters(&step.records));
        let committed = self.worker.commit(step);
        let outcome = match &committed {
            Ok(()) => "committed",
            Err(StepError::Aborted(_)) => "aborted",
            Err(StepError::Fenced(_)) => "fenced",
            Err(StepError::Fatal(_)) => "failed",
        };
        ::metrics::counter!(GROUP_STEPS_TOTAL, "group" => H::GROUP, "outcome" => outcome)
            .increment(1);
        match committed {
            Ok(()) => {
                self.letters.drain(..).for_each(report);
                self.handler.committed();
                self.resume();
                self.step_delay.reset();
                ::metrics::counter!(GROUP_RECORDS_TOTAL, "group" => H::GROUP)
                    .increment(records as u64);
                ::metrics::histogram!(GROUP_STEP_SECONDS, "group" => H::GROUP)
                    .record(begun.elapsed());
            }
            Err(StepError::Aborted(cause)) => {
                tracing::warn!(%cause, "a step of {} was aborted; will retry", H::GROUP);
                self.handler.aborted()?;
                self.resume();
                self.wait_for_step();
            }
            Err(StepError::Fenced(cause)) => {
                tracing::warn!(%cause, "{} lost its partitions; will join again", H::GROUP);
                self.is_paused = false;
                self.lose(&self.assigned.iter().copied().collect::<Vec<_>>())?;
                self.wait_for_step();
            }
            Err(error @ StepError::Fatal(_)) => return Err(error.into()),
        }
        Ok(())
    }

    /// Pauses all partitions; polling continues, so the member keeps them.
    fn pause(&mut self) {
        self.is_paused = true;
        for partition in &self.assigned {
            self.worker.pause(*partition);
        }
    }

    fn resume(&mut self) {
        if std::mem::take(&mut self.is_paused) {
            for partition in &self.assigned {
                self.worker.resume(*partition);
            }
        }
    }

    fn wait_for_step(&mut self) {
        let delay = self.step_delay.next_delay();
        self.wait(delay);
    }

    /// Waits for `delay`, or for [`POLL_TIMEOUT`] at most while a stop drains the handler.
    fn wait(&self, delay: Duration) {
        if self.stop.is_cancelled() {
            std::thread::park_timeout(POLL_TIMEOUT);
        } else {
            task::wait(&self.stop, delay);
        }
    }
}

#[cfg(test)]
mod tests;
