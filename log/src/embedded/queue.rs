//! The queue in front of the committer: bounded, drained in batches so that one fsync serves many requests.

use std::collections::VecDeque;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::batch::Batch;
use crate::{Cause, Committed, Error, NewRecord, Offset, StepError, TopicPartition};

/// Maximum number of queued calls of `produce`. Each worker and each writer, and the maintenance,
/// queue one more request at most.
const PRODUCERS_MAX: usize = 1024;

#[derive(Debug)]
pub(super) enum Work {
    /// Appends records and commits offsets, all or none.
    Append {
        records: Vec<NewRecord>,
        offsets: Vec<(TopicPartition, Committed)>,
        author: Author,
    },
    /// From now on only writers of this epoch, or a later one, write under this name.
    Fence {
        name: String,
        epoch: u64,
    },
    /// Deletes all records of a partition before an offset, which is its new start.
    Trim {
        of: TopicPartition,
        below: Offset,
    },
    Rewrite(Arc<Rewrite>),
}

/// One part of a compaction.
#[derive(Debug)]
pub(super) struct Rewrite {
    pub(super) of: TopicPartition,
    /// Batches with their remaining records; the row of one without records is deleted.
    pub(super) batches: Vec<Batch>,
    pub(super) removed: Vec<Offset>,
    /// End of the compacted range, and the number of records in it.
    pub(super) compacted: Option<(Offset, i64)>,
}

impl Rewrite {
    pub(super) fn nothing(of: TopicPartition) -> Self {
        Self { of, batches: Vec::new(), removed: Vec::new(), compacted: None }
    }
}

#[derive(Debug)]
pub(super) enum Author {
    /// Never fenced.
    Producer,
    /// A member of this group, which keeps its partitions until the reply.
    Group(&'static str),
    Writer {
        name: String,
        epoch: u64,
    },
}

impl Work {
    /// Number of rows that the work counts as in a transaction.
    fn rows(&self) -> usize {
        match self {
            Self::Append { records, .. } => records.len(),
            Self::Rewrite(rewrite) => rewrite.removed.len(),
            Self::Fence { .. } | Self::Trim { .. } => 1,
        }
    }
}

#[derive(Debug)]
enum Answer {
    Async(oneshot::Sender<Result<(), StepError>>),
    Blocking(SyncSender<Result<(), StepError>>),
}

/// Work and its waiting caller.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) work: Work,
    answer: Answer,
    /// Released once the request is answered.
    _permit: Option<OwnedSemaphorePermit>,
}

impl Request {
    /// Sends the outcome to the caller; ignored if the caller has stopped waiting.
    pub(super) fn answer(self, outcome: Result<(), StepError>) {
        match self.answer {
            Answer::Async(sender) => drop(sender.send(outcome)),
            Answer::Blocking(sender) => drop(sender.try_send(outcome)),
        }
    }
}

#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    arrived: Condvar,
    permits: Arc<Semaphore>,
}

impl State {
    fn refusal(&self) -> StepError {
        let closed = || "it is closed".into();
        StepError::Fatal(self.failure.clone().unwrap_or_else(closed))
    }
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Request>,
    closed: bool,
    /// Cause, if nothing can be written any more.
    failure: Option<Cause>,
}

impl Queue {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::default(),
            arrived: Condvar::new(),
            permits: Arc::new(Semaphore::new(PRODUCERS_MAX)),
        }
    }

    pub(super) async fn submit(&self, work: Work) -> Result<(), StepError> {
        let permit = self.permits.clone().acquire_owned().await;
        let permit = permit.map_err(|_closed| self.lock().refusal())?;
        let (answer, outcome) = oneshot::channel();
        self.push(Request { work, answer: Answer::Async(answer), _permit: Some(permit) })?;
        outcome.await.unwrap_or_else(|_dropped| Err(lost()))
    }

    pub(super) fn submit_blocking(&self, work: Work) -> Result<(), StepError> {
        let (answer, outcome) = std::sync::mpsc::sync_channel(1);
        self.push(Request { work, answer: Answer::Blocking(answer), _permit: None })?;
        outcome.recv().unwrap_or_else(|_dropped| Err(lost()))
    }

    fn push(&self, request: Request) -> Result<(), StepError> {
        let mut state = self.lock();
        if state.closed {
            return Err(state.refusal());
        }
        state.waiting.push_back(request);
        drop(state);
        self.arrived.notify_one();
        Ok(())
    }

    /// Waits for requests, at most for `timeout`, and takes them in order: up to `rows_max` rows, or one
    /// larger request. Also returns the number left. None once the queue is closed and empty.
    pub(super) fn take(
        &self,
        rows_max: usize,
        timeout: Option<Duration>,
    ) -> Option<(Vec<Request>, usize)> {
        let state = self.lock();
        let is_idle = |state: &mut State| state.waiting.is_empty() && !state.closed;
        let mut state = match timeout {
            None => self.arrived.wait_while(state, is_idle).unwrap_or_else(PoisonError::into_inner),
            Some(timeout) => {
                let waited = self.arrived.wait_timeout_while(state, timeout, is_idle);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        let mut batch = Vec::new();
        let mut rows = 0_usize;
        while let Some(next) = state.waiting.front() {
            rows = rows.saturating_add(next.work.rows());
            if rows > rows_max && !batch.is_empty() {
                break;
            }
            batch.extend(state.waiting.pop_front());
        }
        let has_ended = batch.is_empty() && state.closed;
        if has_ended { None } else { Some((batch, state.waiting.len())) }
    }

    /// Accepts no more requests. Queued ones are still executed.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.permits.close();
        self.arrived.notify_all();
    }

    /// Refuses later requests for this reason, and drops the queued ones.
    pub(super) fn fail(&self, cause: Cause) {
        self.lock().failure.get_or_insert(cause);
        self.abandon();
    }

    pub(super) fn has_failed(&self) -> bool {
        self.lock().failure.is_some()
    }

    /// Closes the queue and drops its requests: their callers get an unknown outcome.
    pub(super) fn abandon(&self) {
        self.close();
        self.lock().waiting.clear();
    }

    pub(super) fn check_open(&self) -> Result<(), Error> {
        let state = self.lock();
        if state.closed { Err(state.refusal().into()) } else { Ok(()) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lost() -> StepError {
    StepError::Fatal("its committer ended; whether the last request was written is unknown".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemas::{Headers, Partition, Topic};

    fn append(count: usize) -> Work {
        let to = TopicPartition { topic: Topic::Alerts, partition: Partition(0) };
        let record = NewRecord { to, key: vec![], value: None, headers: Headers::default() };
        Work::Append { records: vec![record; count], offsets: vec![], author: Author::Producer }
    }

    fn push(queue: &Queue, work: Work) {
        let (answer, _) = std::sync::mpsc::sync_channel(1);
        queue.push(Request { work, answer: Answer::Blocking(answer), _permit: None }).unwrap();
    }

    #[test]
    fn batch_is_bounded_but_has_one_whole_request() {
        let queue = Queue::new();
        for count in [50, 4, 5, 2] {
            push(&queue, append(count));
        }
        let mut sizes = Vec::new();
        queue.close();
        while let Some((batch, _)) = queue.take(10, None) {
            sizes.push(batch.iter().map(|r| r.work.rows()).collect::<Vec<_>>());
        }
        assert_eq!(sizes, [vec![50], vec![4, 5], vec![2]]);
    }

    #[test]
    fn after_the_time_the_answer_is_empty() {
        let queue = Queue::new();
        assert!(
            matches!(queue.take(10, Some(Duration::ZERO)), Some((batch, 0)) if batch.is_empty())
        );
    }

    #[tokio::test]
    async fn closed_queue_refuses_and_abandoned_one_answers() {
        let queue = Arc::new(Queue::new());
        let waiting = queue.submit(append(1));
        tokio::pin!(waiting);
        tokio::select! {
            biased;
            _ = &mut waiting => panic!("there is no committer"),
            () = std::future::ready(()) => {}
        }
        queue.abandon();
        assert!(
            matches!(waiting.await, Err(StepError::Fatal(cause)) if cause.to_string().contains("unknown"))
        );
        queue.fail("the disk".into());
        assert!(
            matches!(queue.submit(append(1)).await, Err(StepError::Fatal(cause)) if cause.to_string() == "the disk")
        );
        assert!(matches!(queue.submit_blocking(append(1)), Err(StepError::Fatal(_))));
    }
}
