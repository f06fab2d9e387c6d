//! The queue in front of the committer: bounded, drained as a whole so that one fsync serves all.

use std::collections::VecDeque;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::{Committed, NewRecord, Offset, StepError, TopicPartition};

/// Calls of `produce` under way at once. Workers, writers and maintenance each add one more at most.
const PRODUCERS_MAX: usize = 1024;

/// Something to be committed.
#[derive(Debug)]
pub(super) enum Work {
    /// Records and offsets, all or none.
    Append {
        /// What to append.
        records: Vec<NewRecord>,
        /// Where the author's group goes on.
        offsets: Vec<(TopicPartition, Committed)>,
        /// On whose behalf.
        author: Author,
    },
    /// From now on only writers of this epoch, or a later one, write under this name.
    Fence {
        /// The writer's name.
        name: String,
        /// Its epoch.
        epoch: u64,
    },
    /// Forgets all records of a partition before a place.
    Trim {
        /// The partition.
        of: TopicPartition,
        /// Its new start.
        below: Offset,
    },
    /// Forgets single records of a partition.
    Remove {
        /// The partition.
        of: TopicPartition,
        /// Their places.
        offsets: Vec<Offset>,
    },
}

/// Who appends.
#[derive(Debug)]
pub(super) enum Author {
    /// Anyone: no fencing.
    Producer,
    /// A member of a group. Its right was checked, and is held until the answer.
    Group(&'static str),
    /// A named writer.
    Writer {
        /// Its name.
        name: String,
        /// Its epoch.
        epoch: u64,
    },
}

impl Work {
    /// How many rows it touches.
    fn weight(&self) -> usize {
        match self {
            Self::Append { records, .. } => records.len(),
            Self::Remove { offsets, .. } => offsets.len(),
            Self::Fence { .. } | Self::Trim { .. } => 1,
        }
    }
}

/// Where the outcome goes.
#[derive(Debug)]
enum Answer {
    Async(oneshot::Sender<Result<(), StepError>>),
    Blocking(SyncSender<Result<(), StepError>>),
}

/// Work with someone who waits for it.
#[derive(Debug)]
pub(super) struct Request {
    /// What to do.
    pub(super) work: Work,
    answer: Answer,
    /// Gives the place in the queue back once the request is answered.
    _place: Option<OwnedSemaphorePermit>,
}

impl Request {
    /// Tells the outcome. Whoever has stopped waiting does not need it.
    pub(super) fn answer(self, outcome: Result<(), StepError>) {
        match self.answer {
            Answer::Async(sender) => drop(sender.send(outcome)),
            Answer::Blocking(sender) => drop(sender.try_send(outcome)),
        }
    }
}

/// Requests that wait for the committer.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    arrived: Condvar,
    places: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Request>,
    closed: bool,
}

impl Queue {
    /// An empty, open queue.
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::default(),
            arrived: Condvar::new(),
            places: Arc::new(Semaphore::new(PRODUCERS_MAX)),
        }
    }

    /// Has work done on behalf of a task, which waits for a place first.
    pub(super) async fn submit(&self, work: Work) -> Result<(), StepError> {
        let place = self.places.clone().acquire_owned().await.map_err(|_closed| closed())?;
        let (answer, outcome) = oneshot::channel();
        self.push(Request { work, answer: Answer::Async(answer), _place: Some(place) })?;
        outcome.await.unwrap_or_else(|_dropped| Err(lost()))
    }

    /// Has work done on behalf of a thread.
    pub(super) fn submit_blocking(&self, work: Work) -> Result<(), StepError> {
        let (answer, outcome) = std::sync::mpsc::sync_channel(1);
        self.push(Request { work, answer: Answer::Blocking(answer), _place: None })?;
        outcome.recv().unwrap_or_else(|_dropped| Err(lost()))
    }

    fn push(&self, request: Request) -> Result<(), StepError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.closed {
            return Err(closed());
        }
        state.waiting.push_back(request);
        drop(state);
        self.arrived.notify_one();
        Ok(())
    }

    /// Waits for requests and takes as many as weigh `weight_max` together, but at least one, in order.
    /// None once the queue is closed and empty. Also tells how many are still waiting.
    pub(super) fn take(&self, weight_max: usize) -> Option<(Vec<Request>, usize)> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self
            .arrived
            .wait_while(state, |state| state.waiting.is_empty() && !state.closed)
            .unwrap_or_else(PoisonError::into_inner);
        let mut batch = Vec::new();
        let mut weight = 0_usize;
        while let Some(next) = state.waiting.front() {
            weight = weight.saturating_add(next.work.weight());
            if weight > weight_max && !batch.is_empty() {
                break;
            }
            batch.extend(state.waiting.pop_front());
        }
        if batch.is_empty() { None } else { Some((batch, state.waiting.len())) }
    }

    /// Takes no more requests. Those that wait are still done.
    pub(super) fn close(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.places.close();
        self.arrived.notify_all();
    }

    /// Drops requests that nobody will do any more: their authors learn that the outcome is unknown.
    pub(super) fn abandon(&self) {
        self.close();
        self.state.lock().unwrap_or_else(PoisonError::into_inner).waiting.clear();
    }

    /// Whether it takes requests.
    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).closed
    }
}

/// What everyone is told after the end.
pub(super) fn closed() -> StepError {
    StepError::Fatal("it is closed".into())
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
        queue.push(Request { work, answer: Answer::Blocking(answer), _place: None }).unwrap();
    }

    #[test]
    fn takes_whole_requests_up_to_a_weight_and_always_one() {
        let queue = Queue::new();
        for count in [50, 4, 5, 2] {
            push(&queue, append(count));
        }
        let mut sizes = Vec::new();
        queue.close();
        while let Some((batch, _)) = queue.take(10) {
            sizes.push(batch.iter().map(|r| r.work.weight()).collect::<Vec<_>>());
        }
        assert_eq!(sizes, [vec![50], vec![4, 5], vec![2]]);
    }

    #[tokio::test]
    async fn a_closed_queue_refuses_and_an_abandoned_one_answers() {
        let queue = Arc::new(Queue::new());
        let waiting = queue.submit(append(1));
        tokio::pin!(waiting);
        tokio::select! {
            biased;
            _ = &mut waiting => panic!("nobody answered"),
            () = std::future::ready(()) => {}
        }
        queue.abandon();
        assert!(
            matches!(waiting.await, Err(StepError::Fatal(cause)) if cause.to_string().contains("unknown"))
        );
        assert!(matches!(queue.submit(append(1)).await, Err(StepError::Fatal(_))));
        assert!(matches!(queue.submit_blocking(append(1)), Err(StepError::Fatal(_))));
    }
}
