//! Sends an alert to one sink.

use std::sync::Arc;

use runtime::Clock;
use schemas::record::{Alert, Delivery};
use schemas::{AlertEvent, AlertKind, AttemptOutcome, DeliveryKind, Secret};

use super::config::{AlertsConfig, Sink, Target};
use super::mail::Mailer;
use super::template::Template;
use crate::config::Config;
use crate::error::Error;
use crate::machine::schedule::Answer;
use crate::sender::{Call, Mask, Sender, shown};

/// Result of sending a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SinkReport {
    pub is_delivered: bool,
    /// The response, or the cause of a missing one, for a person. Secrets of the request are masked.
    pub text: String,
}

pub(crate) struct Courier {
    pub(crate) name: String,
    kinds: Option<Vec<AlertKind>>,
    way: Way,
    clock: Arc<dyn Clock>,
}

enum Way {
    Webhook { sender: Box<Sender>, url: String },
    Http { sender: Box<Sender>, call: Call, body: Template },
    Mail(Box<Mailer>),
}

impl Courier {
    pub(crate) fn new(sink: &Sink, config: &Config, clock: Arc<dyn Clock>) -> Result<Self, Error> {
        let sender = |secret: &Secret| {
            let config = Config { secret: secret.clone(), previous_secret: None, ..config.clone() };
            Sender::new(&config, clock.clone()).map(Box::new)
        };
        let text = |url: &Secret| String::from_utf8_lossy(url.expose()).into_owned();
        let way = match &sink.target {
            Target::Webhook { url, secret } => {
                Way::Webhook { sender: sender(secret)?, url: text(url) }
            }
            Target::Http { method, url, headers, body } => {
                let values = headers.values().filter(|value| value.is_sensitive());
                let secrets = values.map(|value| Secret::new(value.as_bytes()));
                let call = Call {
                    method: method.clone(),
                    url: text(url),
                    headers: headers.clone(),
                    secrets: secrets.chain(body.secrets()).collect(),
                };
                Way::Http { sender: sender(&config.secret)?, call, body: body.clone() }
            }
            Target::Mail(mail) => Way::Mail(Box::new(Mailer::new(mail)?)),
        };
        Ok(Self { name: sink.name.clone(), kinds: sink.kinds.clone(), way, clock })
    }

    /// `true` if the sink is sent alerts of this kind.
    pub(crate) fn wants(&self, kind: AlertKind) -> bool {
        self.kinds.as_ref().is_none_or(|kinds| kinds.contains(&kind))
    }

    /// Sends an alert once, without retries.
    pub(crate) async fn deliver(&self, alert: &Alert) -> SinkReport {
        // Receivers detect duplicates by this id: equal for all attempts, new for each state and raise of the alert.
        let event_id = format!("{}.{}.{}", alert.alert_id, alert.state, alert.raised_at.0);
        match &self.way {
            Way::Webhook { sender, url } => {
                let now = self.clock.now();
                let kind = DeliveryKind::OrderStatusChanged;
                let first = Delivery::first(kind, event_id, url.clone(), body_of(alert), now);
                let answer = sender.send(&Delivery { manual: true, ..first }).await;
                let is_delivered = answer.outcome == AttemptOutcome::Delivered;
                report(answer, is_delivered)
            }
            Way::Http { sender, call, body } => {
                let answer = sender.call(call, body.render(alert)).await;
                let is_delivered =
                    answer.http_status.is_some_and(|status| (200..300).contains(&status));
                report(answer, is_delivered)
            }
            Way::Mail(mailer) => {
                let sent = mailer.send(alert, &event_id).await;
                let is_delivered = sent.is_ok();
                let text = sent.unwrap_or_else(|cause| cause);
                let mask = Mask::default().secrets(mailer.secrets());
                SinkReport { is_delivered, text: shown(&mask.apply(text.as_bytes())) }
            }
        }
    }
}

fn body_of(alert: &Alert) -> String {
    let Alert { alert_id, kind, state, blockchain, transfer_id, order_id, message, raised_at } =
        alert;
    AlertEvent {
        alert_id,
        kind: *kind,
        state: *state,
        blockchain: *blockchain,
        transfer_id: *transfer_id,
        order_id: *order_id,
        message,
        timestamp: raised_at.seconds(),
    }
    .body()
}

fn report(answer: Answer, is_delivered: bool) -> SinkReport {
    let Answer { outcome, http_status, took, cause, answer, .. } = answer;
    let after = took.as_millis();
    let text = match http_status {
        Some(status) => format!("answered with {status} after {after} ms: {answer}"),
        None => format!("{outcome} after {after} ms: {}", cause.unwrap_or_default()),
    };
    SinkReport { is_delivered, text }
}

/// Sends a test message to a configured sink; `None` if there is no such sink. The test is not recorded.
///
/// # Errors
/// The client cannot be made. A failure of the sink is in the report, not an error.
pub async fn test_sink(
    alerts: &AlertsConfig,
    config: &Config,
    clock: Arc<dyn Clock>,
    name: &str,
) -> Result<Option<SinkReport>, Error> {
    let Some(sink) = alerts.sinks.iter().find(|sink| sink.name == name) else { return Ok(None) };
    let message = "a test: `tidemark alerts test` has sent it, and nothing is wrong".to_owned();
    let kind = sink.kinds.iter().flatten().next().copied().unwrap_or(AlertKind::ChainHalted);
    let alert = Alert::raise(kind, None, &"test", message, clock.now());
    Ok(Some(Courier::new(sink, config, clock)?.deliver(&alert).await))
}
