//! The metrics of this stage: names, meaning, and the only places that write them.

use std::time::Duration;

use metrics::{
    Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};
use schemas::AttemptOutcome;

/// Attempts made, by `outcome` (the words of `AttemptOutcome`).
pub const ATTEMPTS: &str = "tidemark_webhooks_attempts_total";
/// How long attempts took.
pub const ATTEMPT_DURATION: &str = "tidemark_webhooks_attempt_duration_seconds";
/// From the event to the receiver's 200.
pub const DELIVERY_LAG: &str = "tidemark_webhooks_delivery_lag_seconds";
/// Requests under way.
pub const IN_FLIGHT: &str = "tidemark_webhooks_in_flight";
/// Events deferred because their receiver was busy; not attempts.
pub const DEFERRED: &str = "tidemark_webhooks_deferred_total";
/// Events whose automatic attempts are used up.
pub const DEAD: &str = "tidemark_webhooks_dead_total";
/// How long the longest-waiting event that could be attempted now has been due.
pub const OLDEST_DUE: &str = "tidemark_webhooks_oldest_due_seconds";

/// Describes the metrics.
pub fn describe() {
    describe_counter!(ATTEMPTS, "Webhook attempts made, by outcome.");
    describe_histogram!(ATTEMPT_DURATION, Unit::Seconds, "How long webhook attempts took.");
    describe_histogram!(DELIVERY_LAG, Unit::Seconds, "From the event to the receiver's 200.");
    describe_gauge!(IN_FLIGHT, "Webhook requests under way.");
    describe_counter!(DEFERRED, "Events deferred because their receiver was busy; not attempts.");
    describe_counter!(DEAD, "Events whose automatic attempts are used up.");
    describe_gauge!(
        OLDEST_DUE,
        Unit::Seconds,
        "How long the longest-waiting event that could be attempted now has been due."
    );
}

pub(crate) fn attempted(outcome: AttemptOutcome, took: Duration) {
    counter!(ATTEMPTS, "outcome" => outcome.as_str()).increment(1);
    histogram!(ATTEMPT_DURATION).record(took);
}

pub(crate) fn delivered(lag: Duration) {
    histogram!(DELIVERY_LAG).record(lag);
}

pub(crate) fn deferred() {
    counter!(DEFERRED).increment(1);
}

pub(crate) fn dead() {
    counter!(DEAD).increment(1);
}

pub(crate) fn load(in_flight: usize, oldest_due: Duration) {
    gauge!(IN_FLIGHT).set(f64::from(u32::try_from(in_flight).unwrap_or(u32::MAX)));
    gauge!(OLDEST_DUE).set(oldest_due.as_secs_f64());
}
