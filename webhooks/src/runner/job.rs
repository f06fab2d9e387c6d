//! A delivery in work, and its return to the inbox of its worker.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use log::Record;
use runtime::traces::{self, Context, Kind, Running};
use schemas::record::Delivery;
use schemas::{AttemptOutcome, UnixMicros};
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;

use crate::machine::partitions::Position;
use crate::machine::schedule::{Answer, Reason};

/// Time after a worker's turn in which its jobs may start: well below the time after which a worker that does not poll
/// loses its partitions without being notified.
const OPEN_FOR: Duration = Duration::from_secs(1);

/// A delivery on its way to its receiver.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) position: Position,
    pub(super) record: Arc<Record>,
    pub(super) delivery: Delivery,
    /// Host and port of its URL: the key of its receiver.
    pub(super) host: Arc<str>,
    pub(super) inbox: Arc<Inbox>,
    /// Cancelled when its partition is lost.
    pub(super) lost: CancellationToken,
}

impl Job {
    /// The span of its attempt, if it belongs to a trace.
    pub(super) fn span(&self) -> Option<Running> {
        let context = self.record.traceparent().and_then(Context::parse)?;
        let mut span = traces::begin("webhook", Kind::Client, context)?;
        span.set("webhook.id", &self.delivery.event_id);
        span.set("webhook.attempt", self.delivery.attempt);
        span.set("webhook.host", &self.host);
        Some(span)
    }
}

/// Ends the span of an attempt; without an answer the attempt was cancelled.
pub(super) fn end(mut span: Running, answer: Option<&Answer>) {
    if let Some(answer) = answer {
        span.set("webhook.outcome", answer.outcome.as_str());
        answer.http_status.into_iter().for_each(|status| span.set("http.status", status));
    }
    if answer.is_none_or(|answer| answer.outcome != AttemptOutcome::Delivered) {
        span.fail();
    }
}

/// A job returned to its worker.
#[derive(Debug)]
pub(super) enum Back {
    /// Its request has ended: without an answer if it was cancelled.
    Ended(Result<(Job, Option<Answer>), JoinError>),
    /// It cannot be sent soon.
    Spilled(Job, Reason),
    /// It could have started, but its inbox was closed.
    Unsent(Job),
}

#[derive(Debug, Default)]
struct State {
    back: Vec<Back>,
    under_way: usize,
    /// Jobs may start until then.
    open_until: Option<Instant>,
    next_due: Option<UnixMicros>,
}

/// The inbox of one worker, which empties it each turn.
#[derive(Debug, Default)]
pub(super) struct Inbox(Mutex<State>);

impl Inbox {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets jobs start for [`OPEN_FOR`] after a turn of the worker.
    pub(super) fn open(&self, now: Instant) {
        self.state().open_until = Some(now + OPEN_FOR);
    }

    /// Lets no more jobs start.
    pub(super) fn close(&self) {
        self.state().open_until = None;
    }

    /// Counts a job as under way if the inbox is open; returns `true` if so.
    pub(super) fn begin(&self, now: Instant) -> bool {
        let mut state = self.state();
        let may_start = state.open_until.is_some_and(|until| now < until);
        state.under_way += usize::from(may_start);
        may_start
    }

    /// Ends a job that began, and puts its result into the inbox.
    pub(super) fn ended(&self, back: Back) {
        let mut state = self.state();
        state.under_way -= 1;
        state.back.push(back);
    }

    pub(super) fn put(&self, back: Back) {
        self.state().back.push(back);
    }

    pub(super) fn take(&self) -> Vec<Back> {
        std::mem::take(&mut self.state().back)
    }

    /// `true` if no job is under way and the inbox is empty.
    pub(super) fn is_empty(&self) -> bool {
        let state = self.state();
        state.under_way == 0 && state.back.is_empty()
    }

    pub(super) fn under_way(&self) -> usize {
        self.state().under_way
    }

    /// Sets the due time of the first of the worker's records.
    pub(super) fn set_next_due(&self, due: Option<UnixMicros>) {
        self.state().next_due = due;
    }

    pub(super) fn next_due(&self) -> Option<UnixMicros> {
        self.state().next_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_start_for_a_second_after_a_turn() {
        let (inbox, now) = (Inbox::default(), Instant::now());
        assert!(!inbox.begin(now), "it had no turn");
        inbox.open(now);
        assert!(inbox.begin(now) && !inbox.begin(now + OPEN_FOR));
        inbox.close();
        assert!(!inbox.begin(now));
        assert_eq!(inbox.under_way(), 1);
    }
}
