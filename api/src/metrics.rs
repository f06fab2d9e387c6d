//! The metrics of this crate, each declared and described once.

use std::time::Duration;

use axum::http::StatusCode;
use metrics::{Unit, counter, describe_counter, describe_histogram, histogram};

/// Requests by `route` (the pattern, not the path) and `status` class.
const REQUESTS: &str = "tidemark_api_requests_total";
/// Time from the request's head to the answer, by `route`.
const REQUEST_DURATION: &str = "tidemark_api_request_duration_seconds";
/// Commands whose answer was waited for, by `command` and whether it was `answered` or `missed`.
const COMMANDS: &str = "tidemark_api_commands_total";
/// Listeners that fell behind the feed of orders and were cut off.
const LISTENERS_CUT: &str = "tidemark_api_feed_listeners_cut_total";

/// Registers the descriptions with the installed recorder.
pub(crate) fn describe() {
    describe_counter!(REQUESTS, "Requests by route and status class");
    describe_histogram!(REQUEST_DURATION, Unit::Seconds, "Time to answer a request, by route");
    describe_counter!(COMMANDS, "Commands by kind and whether an answer came in time");
    describe_counter!(LISTENERS_CUT, "Listeners that fell behind the feed of orders");
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

/// A listener was cut off.
pub(crate) fn listener_cut() {
    counter!(LISTENERS_CUT).increment(1);
}
