//! The metrics of this stage: names, meaning, and the only places that write them.

use std::time::Duration;

use metrics::{counter, gauge, histogram};
use runtime::metrics::NO_VALUE;
use schemas::{AlertKind, AttemptOutcome, Stablecoin};

use crate::machine::schedule::Reason;

/// Reasons for a deferral.
const REASONS: &[&str] = &["down", "busy", "local"];
/// Outcomes of a message to a sink.
const MESSAGE_OUTCOMES: &[&str] = &["delivered", "failed", "dropped"];

runtime::metrics! {
    /// Delivery attempts.
    Counter ATTEMPTS = "tidemark_webhooks_attempts_total" [outcome in AttemptOutcome::WORDS];
    /// Duration of an attempt.
    Histogram ATTEMPT_DURATION = "tidemark_webhooks_attempt_duration_seconds" [];
    /// Time from the event to the receiver's 200.
    Histogram DELIVERY_LAG = "tidemark_webhooks_delivery_lag_seconds" [];
    /// Requests in flight.
    Gauge IN_FLIGHT = "tidemark_webhooks_in_flight" [];
    /// Events in memory that wait for a request to their receiver; at most 8192.
    Gauge WAITING = "tidemark_webhooks_waiting" [];
    /// Receivers that did not answer five times in a row. They get only an occasional probe.
    Gauge BREAKERS_OPEN = "tidemark_webhooks_breakers_open" [];
    /// Events deferred without an attempt, because their receiver does not answer (`down`) or has too many requests
    /// in flight (`busy`), or because of a failure on this side (`local`).
    Counter DEFERRED = "tidemark_webhooks_deferred_total" [reason in REASONS];
    /// Attempts that a failure on this side prevented, such as a silent resolver or the limit of open files. They are
    /// deferred and do not count as attempts.
    Counter LOCAL_FAILURES = "tidemark_webhooks_local_failures_total" [];
    /// Events not sent because a newer event of their order replaced them.
    Counter SUPERSEDED = "tidemark_webhooks_superseded_total" [];
    /// Events given up: no attempt is left, the URL is refused, or its host was down for a day.
    Counter DEAD = "tidemark_webhooks_dead_total" [];
    /// Unknown transfers below `webhooks.dust_threshold`: recorded, but not announced.
    Counter DUST = "tidemark_webhooks_dust_total" [stablecoin in Stablecoin::WORDS];
    /// Time for which an endpoint has acknowledged nothing, as of its last report (after `webhooks.failing_after`,
    /// then daily); 0 once it acknowledges again.
    Gauge ENDPOINT_FAILING = "tidemark_webhooks_endpoint_failing_seconds" [host];
    /// Overdue time of the oldest event that could be attempted now.
    Gauge OLDEST_DUE = "tidemark_webhooks_oldest_due_seconds" [];
    /// Open alerts, exported by the one process that is assigned the topic `alerts`.
    Gauge ALERTS_OPEN = "tidemark_webhooks_alerts_open" [kind in AlertKind::WORDS];
    /// Alert messages to `[[alerts.sinks]]`: `delivered`, `failed` attempts, and `dropped` because they were too old or
    /// too many newer ones waited.
    Counter ALERT_MESSAGES = "tidemark_webhooks_alert_messages_total" [outcome in MESSAGE_OUTCOMES];
    /// Alerts waiting for a sink.
    Gauge ALERTS_WAITING = "tidemark_webhooks_alerts_waiting" [sink];
    /// Age of the oldest undelivered event, waiting in memory or for a retry; 0 if there is none.
    Gauge OLDEST_UNDELIVERED = "tidemark_webhooks_oldest_undelivered_seconds" [];
}

pub(crate) fn attempted(outcome: AttemptOutcome, took: Duration) {
    counter!(ATTEMPTS, "outcome" => outcome.as_str()).increment(1);
    histogram!(ATTEMPT_DURATION).record(took);
}

pub(crate) fn delivered(lag: Duration) {
    histogram!(DELIVERY_LAG).record(lag);
}

pub(crate) fn deferred(reason: Reason) {
    let reason = match reason {
        Reason::Down => "down",
        Reason::Busy => "busy",
        Reason::Local | Reason::Unreachable => "local",
    };
    counter!(DEFERRED, "reason" => reason).increment(1);
}

pub(crate) fn local_failure() {
    counter!(LOCAL_FAILURES).increment(1);
}

pub(crate) fn superseded() {
    counter!(SUPERSEDED).increment(1);
}

pub(crate) fn dust(stablecoin: Stablecoin) {
    counter!(DUST, "stablecoin" => stablecoin.as_str()).increment(1);
}

pub(crate) fn dead() {
    counter!(DEAD).increment(1);
}

pub(crate) fn endpoint_failing(host: &str, for_long: Duration) {
    gauge!(ENDPOINT_FAILING, "host" => host.to_owned()).set(for_long.as_secs_f64());
}

fn count(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

pub(crate) fn load(in_flight: usize, waiting: usize, oldest_due: Duration) {
    gauge!(IN_FLIGHT).set(count(in_flight));
    gauge!(WAITING).set(count(waiting));
    gauge!(OLDEST_DUE).set(oldest_due.as_secs_f64());
}

/// Sets the number of open alerts of each kind.
pub(crate) fn alerts_open(open: impl Fn(AlertKind) -> usize) {
    for kind in AlertKind::ALL {
        gauge!(ALERTS_OPEN, "kind" => kind.as_str()).set(count(open(*kind)));
    }
}

pub(crate) fn alerts_waiting(sink: &str, waiting: usize) {
    gauge!(ALERTS_WAITING, "sink" => sink.to_owned()).set(count(waiting));
}

/// Withdraws the gauges of alerts: another process has the topic now.
pub(crate) fn no_alerts<'a>(sinks: impl Iterator<Item = &'a str>) {
    for kind in AlertKind::ALL {
        gauge!(ALERTS_OPEN, "kind" => kind.as_str()).set(NO_VALUE);
    }
    for sink in sinks {
        gauge!(ALERTS_WAITING, "sink" => sink.to_owned()).set(NO_VALUE);
    }
}

pub(crate) fn alert_message(outcome: &'static str, count: u64) {
    counter!(ALERT_MESSAGES, "outcome" => outcome).increment(count);
}

pub(crate) fn undelivered(breakers_open: usize, oldest: Duration) {
    gauge!(BREAKERS_OPEN).set(count(breakers_open));
    gauge!(OLDEST_UNDELIVERED).set(oldest.as_secs_f64());
}
