//! What the api measures, and the only functions that write it.

use std::time::Duration;

use axum::http::StatusCode;
use metrics::{counter, histogram};

runtime::metrics! {
    /// Requests by route (the pattern, not the path) and class of status.
    Counter REQUESTS = "tidemark_api_requests_total" [route, status];
    /// Time from the head of a request to its answer.
    Histogram REQUEST_DURATION = "tidemark_api_request_duration_seconds" [route];
    /// Commands that were awaited, by outcome: answered, missed.
    Counter COMMANDS = "tidemark_api_commands_total" [command, outcome];
    /// Times that a listener fell behind the feed of orders and missed records.
    Counter LISTENERS_LAGGED = "tidemark_api_feed_listeners_lagged_total" [];
}

/// A request was answered.
pub(crate) fn request(route: String, status: StatusCode, took: Duration) {
    let class = match status.as_u16() / 100 {
        1 => "1xx",
        2 => "2xx",
        3 => "3xx",
        4 => "4xx",
        _ => "5xx",
    };
    histogram!(REQUEST_DURATION, "route" => route.clone()).record(took);
    counter!(REQUESTS, "route" => route, "status" => class).increment(1);
}

/// The wait for a command's answer ended.
pub(crate) fn command(command: &'static str, answered: bool) {
    let outcome = if answered { "answered" } else { "missed" };
    counter!(COMMANDS, "command" => command, "outcome" => outcome).increment(1);
}

/// A listener missed records.
pub(crate) fn listener_lagged() {
    counter!(LISTENERS_LAGGED).increment(1);
}
