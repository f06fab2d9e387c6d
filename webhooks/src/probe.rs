//! Test webhook on demand, to check a receiver and its response.

use std::sync::Arc;
use std::time::Duration;

use runtime::Clock;
use schemas::record::Delivery;
use schemas::{AttemptOutcome, DeliveryKind};

use crate::config::Config;
use crate::error::Error;
use crate::sender::Sender;

/// Result of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub outcome: AttemptOutcome,
    pub http_status: Option<u16>,
    /// Time to the status.
    pub took: Duration,
    /// Reason why there was no status, for a person.
    pub cause: Option<String>,
    /// Beginning of the answer's body.
    pub answer: String,
}

/// Sends an event of the type `test` as every webhook is sent. It is recorded nowhere.
///
/// # Errors
/// The client cannot be made. A receiver that fails is no error.
pub async fn probe(config: &Config, clock: Arc<dyn Clock>, url: &str) -> Result<Report, Error> {
    let now = clock.now();
    let body = format!("{{\"event_type\":\"test\",\"timestamp\":{}}}", now.seconds().0);
    let (kind, event_id) = (DeliveryKind::OrderStatusChanged, format!("test.{}", now.0));
    let first = Delivery::first(kind, event_id, url.to_owned(), body, now);
    let delivery = Delivery { manual: true, ..first };
    let answer = Sender::new(config, clock)?.send(&delivery).await;
    Ok(Report {
        outcome: answer.outcome,
        http_status: answer.http_status,
        took: answer.took,
        cause: answer.cause,
        answer: answer.answer,
    })
}
