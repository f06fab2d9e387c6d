//! Test webhook on demand, to check a receiver and its response.

use std::sync::Arc;

use runtime::Clock;
use schemas::DeliveryKind;
use schemas::record::Delivery;

use crate::config::Config;
use crate::error::Error;
use crate::machine::schedule::Answer;
use crate::sender::Sender;

/// Sends an event of the type `test` as every webhook is sent. It is recorded nowhere.
///
/// # Errors
/// The client cannot be made. A receiver that fails is no error.
pub async fn probe(config: &Config, clock: Arc<dyn Clock>, url: &str) -> Result<Answer, Error> {
    let now = clock.now();
    let body = format!("{{\"event_type\":\"test\",\"timestamp\":{}}}", now.seconds().0);
    let (kind, event_id) = (DeliveryKind::OrderStatusChanged, format!("test.{}", now.0));
    let first = Delivery::first(kind, event_id, url.to_owned(), body, now);
    Ok(Sender::new(config, clock)?.send(&Delivery { manual: true, ..first }).await)
}
