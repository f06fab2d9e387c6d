//! Metrics of the API, and the only functions that write them.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use axum::http::StatusCode;
use metrics::{Counter, Histogram, counter, gauge, histogram};
use schemas::UnixSeconds;
use store::ChainRow;

/// Steps in which a silent client is timed out.
const AWAITED: &[&str] = &["header", "idle", "body", "answer"];
/// Commands whose answer is awaited: `create`, and the results of `Awaited::name`.
const AWAITED_COMMANDS: &[&str] = &[
    "create",
    "choose_payment",
    "cancel",
    "admin_cancel",
    "mark_paid",
    "resend_webhook",
    "attach_transfer",
];
const OUTCOMES: &[&str] = &["answered", "missed"];
/// Kinds of refusals, each with its causes.
const REFUSED: &[(&str, &[&str])] = &[
    ("signature", &["missing", "malformed", "expired", "mismatch", "webhook"]),
    ("secret", &["missing", "malformed", "mismatch", "scope"]),
    ("link", &["invalid"]),
    ("address", &["limit", "authority"]),
    ("origin", &["foreign"]),
];

runtime::metrics! {
    /// Requests by route (the pattern, not the path) and class of status.
    Counter REQUESTS = "tidemark_api_requests_total" [route, status];
    /// Time from the head of a request to its answer.
    Histogram REQUEST_DURATION = "tidemark_api_request_duration_seconds" [route];
    /// Refused requests by kind of check: `signature` (service API), `secret` (admin API; cause `scope`: a read-only
    /// secret), `link` (checkout), `address` (rate limit; cause `authority`: too many refused secrets or signatures)
    /// and `origin` (a web page of an origin that is not allowed). Attacks and misconfigured clients raise it.
    Counter REFUSALS = "tidemark_api_refusals_total" [kind, cause];
    /// Connections that are open now.
    Gauge CONNECTIONS_OPEN = "tidemark_api_connections_open" [];
    /// Connections that were closed at once, because `server.max_connections` were open.
    Counter CONNECTIONS_REFUSED = "tidemark_api_connections_refused_total" [];
    /// Connections closed because the client was silent, by what was awaited: `header`, `idle` (the next request),
    /// `body`, `answer` (the client did not read it).
    Counter CONNECTIONS_TIMED_OUT = "tidemark_api_connections_timed_out_total" [awaited in AWAITED];
    /// Commands whose result a request awaited, by outcome: `answered`, `missed` (timed out).
    Counter COMMANDS = "tidemark_api_commands_total" [command in AWAITED_COMMANDS, outcome in OUTCOMES];
    /// Times that a listener fell behind the feed of orders and missed records.
    Counter LISTENERS_LAGGED = "tidemark_api_feed_listeners_lagged_total" [];
    /// Number of the last block that a lane of the processor has read, according to the tables.
    Gauge LANE_HEAD_BLOCK = "tidemark_api_lane_head_block" [blockchain, lane];
    /// Age of that block. It keeps growing while ingest, the processor, the projector or the tables are down.
    Gauge LANE_HEAD_AGE = "tidemark_api_lane_head_age_seconds" [blockchain, lane];
    /// Age of the block of the oldest unconfirmed transfer, according to the tables; 0 if there is none.
    Gauge LANE_UNCONFIRMED_AGE = "tidemark_api_lane_unconfirmed_age_seconds" [blockchain, lane];
}

/// Registers counters of known labels at 0, so that the first event is an increase.
pub(crate) fn register() {
    runtime::metrics::register(METRICS, &[]);
    for (kind, causes) in REFUSED {
        for cause in *causes {
            counter!(REFUSALS, "kind" => *kind, "cause" => *cause).increment(0);
        }
    }
}

/// Sets the positions of the lanes at this time, from the rows of the tables.
#[expect(clippy::cast_precision_loss, reason = "a gauge is a float; 2^52 seconds are enough")]
pub(crate) fn lanes(rows: &[ChainRow], now: UnixSeconds) {
    let age = |time: UnixSeconds| now.0.saturating_sub(time.0).max(0) as f64;
    for (row, lane) in rows.iter().filter_map(|row| Some((row, row.lane?))) {
        let labels = [("blockchain", row.blockchain.to_string()), ("lane", lane.to_string())];
        gauge!(LANE_HEAD_BLOCK, &labels).set(row.head.number as f64);
        gauge!(LANE_HEAD_AGE, &labels).set(age(row.head.timestamp));
        gauge!(LANE_UNCONFIRMED_AGE, &labels).set(row.oldest_unconfirmed.map_or(0.0, age));
    }
}

/// Metrics of requests, by route. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Requests(Arc<RwLock<HashMap<Box<str>, Arc<OfRoute>>>>);

/// Metrics of a route, cached: a search by name and labels costs more than counting.
pub(crate) struct OfRoute {
    route: Arc<str>,
    duration: Histogram,
    /// By the first digit of the status.
    answers: [OnceLock<Counter>; CLASSES.len()],
}

const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

impl Requests {
    pub(crate) fn of_route(&self, route: &str) -> Arc<OfRoute> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner).get(route).cloned();
        known.unwrap_or_else(|| {
            let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
            all.entry(route.into()).or_insert_with(|| Arc::new(OfRoute::new(route))).clone()
        })
    }
}

impl OfRoute {
    fn new(route: &str) -> Self {
        let duration = histogram!(REQUEST_DURATION, "route" => route.to_owned());
        Self { route: route.into(), duration, answers: Default::default() }
    }

    pub(crate) fn answered(&self, status: StatusCode, took: Duration) {
        let class = usize::from(status.as_u16() / 100).clamp(1, CLASSES.len()) - 1;
        self.duration.record(took);
        let count = || {
            let labels = [("route", self.route.to_string()), ("status", CLASSES[class].to_owned())];
            counter!(REQUESTS, &labels)
        };
        self.answers[class].get_or_init(count).increment(1);
    }
}

/// Counts a request that was not authorized, or whose address sent too many.
pub(crate) fn refusal(kind: &'static str, cause: &'static str) {
    counter!(REFUSALS, "kind" => kind, "cause" => cause).increment(1);
}

/// A connection that is counted until it is dropped.
pub(crate) struct ConnectionOpen;

impl ConnectionOpen {
    pub(crate) fn new() -> Self {
        gauge!(CONNECTIONS_OPEN).increment(1.0);
        Self
    }
}

impl Drop for ConnectionOpen {
    fn drop(&mut self) {
        gauge!(CONNECTIONS_OPEN).decrement(1.0);
    }
}

pub(crate) fn connection_refused() {
    counter!(CONNECTIONS_REFUSED).increment(1);
}

pub(crate) fn connection_timed_out(awaited: &'static str) {
    counter!(CONNECTIONS_TIMED_OUT, "awaited" => awaited).increment(1);
}

pub(crate) fn command(command: &'static str, answered: bool) {
    let outcome = if answered { "answered" } else { "missed" };
    counter!(COMMANDS, "command" => command, "outcome" => outcome).increment(1);
}

pub(crate) fn listener_lagged() {
    counter!(LISTENERS_LAGGED).increment(1);
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;
    use schemas::record::example;

    use super::*;

    /// Rows of a stopped processor do not change, but their age grows.
    #[test]
    fn what_has_stopped_ages() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let rows = [example::chain_progress(), example::lane_progress()];
        let head = rows[1].head;
        for seconds in [3, 7] {
            metrics::with_local_recorder(&recorder, || lanes(&rows, head.timestamp.plus(seconds)));
            let text = recorder.handle().render();
            for (name, value) in [
                (LANE_HEAD_BLOCK, head.number),
                (LANE_HEAD_AGE, seconds),
                (LANE_UNCONFIRMED_AGE, 24 + seconds),
            ] {
                let line = format!("{name}{{blockchain=\"eth\",lane=\"0\"}} {value}");
                assert!(text.lines().any(|found| found == line), "{line} in {text}");
            }
        }
    }
}
