//! Webhooks in flight, and their attempts.

use serde::{Deserialize, Serialize};

use crate::{AttemptOutcome, DeliveryKind, OrderId, TransferId, UnixMicros};

/// A record of `webhooks.dispatch`, `.retry.*`, `.defer.*` and `.dead`: one event for one receiver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// Names the event: the same on every attempt.
    pub event_id: String,
    pub kind: DeliveryKind,
    pub order_id: Option<OrderId>,
    pub transfer_id: Option<TransferId>,
    pub url: String,
    pub body: String,
    /// The number of the next attempt, from 1.
    pub attempt: i32,
    /// Requested by an operator.
    pub manual: bool,
    pub emitted_at: UnixMicros,
    /// Time when it is to be sent, by the clock of the process that wrote it. Zero: after the delay
    /// of its topic, counted from when it is read.
    #[serde(default)]
    pub due_at: UnixMicros,
    /// The version of the order that it announces.
    #[serde(default)]
    pub version: Option<i64>,
    /// `true` if an earlier event of the order may still be in flight.
    #[serde(default)]
    pub follows: bool,
    /// Number of deferrals since its last attempt. The first one for a failure on this side restarts
    /// the count; those that are not the receiver's fault do not raise it above a cap.
    #[serde(default)]
    pub deferrals: i32,
    /// Number of POSTs made for it.
    #[serde(default)]
    pub requests: i32,
    /// Outcome of its last attempt; `local` after a deferral for a failure on this side.
    #[serde(default)]
    pub last_outcome: Option<AttemptOutcome>,
    #[serde(default)]
    pub last_status: Option<i32>,
}

impl Delivery {
    /// The first attempt at an event, due at once. The caller sets the order or the transfer.
    #[must_use]
    pub fn first(
        kind: DeliveryKind,
        event_id: String,
        url: String,
        body: String,
        emitted_at: UnixMicros,
    ) -> Self {
        Self {
            event_id,
            kind,
            order_id: None,
            transfer_id: None,
            url,
            body,
            attempt: 1,
            manual: false,
            emitted_at,
            due_at: UnixMicros(0),
            version: None,
            follows: false,
            deferrals: 0,
            requests: 0,
            last_outcome: None,
            last_status: None,
        }
    }

    /// The key of its records.
    #[must_use]
    pub fn key(&self) -> String {
        match (self.order_id, self.transfer_id) {
            (Some(order), _) => order.to_string(),
            (None, Some(transfer)) => transfer.to_string(),
            (None, None) => self.event_id.clone(),
        }
    }
}

/// A record of `webhooks.attempts`: how one attempt ended, with a POST or without
/// ([`AttemptOutcome::is_request`]).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    pub event_id: String,
    pub kind: DeliveryKind,
    pub order_id: Option<OrderId>,
    pub transfer_id: Option<TransferId>,
    pub attempt: i32,
    pub manual: bool,
    pub attempted_at: UnixMicros,
    pub outcome: AttemptOutcome,
    pub http_status: Option<i32>,
    pub duration_ms: i64,
    /// Reason for a missing response, for a person.
    #[serde(default)]
    pub cause: String,
    /// Beginning of the response body.
    #[serde(default)]
    pub answer: String,
}

/// A record of `webhooks.changelog`: the newest event of an order that had an earlier one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookEntry {
    pub order_id: OrderId,
    pub version: i64,
    pub dispatched_at: UnixMicros,
}
