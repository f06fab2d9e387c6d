//! A delivery in work, and its return to its worker.

use std::sync::Arc;

use log::{NewRecord, Record};
use runtime::traces::{self, Context, Kind, Running};
use schemas::AttemptOutcome;
use schemas::record::Delivery;
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;

use super::inbox::Inbox;
use crate::machine::partitions::Position;
use crate::machine::schedule::{Answer, Reason};
use crate::machine::sequence::Turn;

/// A delivery on its way to its receiver.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) position: Position,
    pub(super) record: Arc<Record>,
    pub(super) delivery: Delivery,
    /// Host and port of its URL: the key of its receiver.
    pub(super) host: Arc<str>,
    /// None if it is about no order.
    pub(super) turn: Option<Turn>,
    pub(super) inbox: Arc<Inbox<Back>>,
    /// Cancelled when its partition is lost.
    pub(super) lost: CancellationToken,
}

impl Job {
    pub(super) fn new(
        position: Position,
        record: Arc<Record>,
        delivery: Delivery,
        host: String,
        inbox: Arc<Inbox<Back>>,
        lost: CancellationToken,
    ) -> Self {
        let (host, turn) = (host.into(), Turn::of(&delivery));
        Self { position, record, delivery, host, turn, inbox, lost }
    }

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

/// A record that is complete, and what must be written with its offset.
pub(super) struct Finished {
    pub(super) position: Position,
    pub(super) records: Vec<NewRecord>,
}
