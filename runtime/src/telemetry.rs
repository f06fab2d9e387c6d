//! Logs to standard error; metrics at `/metrics`, readiness at `/ready`, and `/live`.

use std::future::{Future, IntoFuture};
use std::net::SocketAddr;
use std::time::Duration;

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use serde::Serialize;
use serde_json::Value;
use tokio::net::TcpListener;
use tracing_subscriber::EnvFilter;

use crate::Readiness;
use crate::config::Reader;

/// Upper bounds of the buckets of a time. Buckets of several processes can be added up, quantiles cannot.
const SECONDS: [f64; 15] =
    [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 120.0];

/// Upper bounds of the buckets of a number of things.
const COUNTS: [f64; 12] =
    [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 4096.0, 16384.0];

/// How often samples are added to their buckets: until then each one takes memory.
const UPKEEP: Duration = Duration::from_secs(5);
/// The query of a request for details.
const VERBOSE: &str = "verbose=1";

/// `[telemetry]`.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where `/metrics`, `/ready` and `/live` are served; none turns them off.
    pub listen: Option<SocketAddr>,
    /// Which log lines are written, in `tracing`'s filter syntax.
    pub filter: String,
    /// One JSON object a line instead of text.
    pub json: bool,
}

impl Config {
    /// Reads the section.
    #[must_use]
    pub fn read(mut section: Reader) -> Self {
        let listen = section.text("listen");
        let config = Self {
            listen: if listen.is_empty() { None } else { section.parsed("listen") },
            filter: section.text("filter"),
            json: section.text("format") == "json",
        };
        if section.parsed::<String>("format").is_some_and(|f| !matches!(&*f, "text" | "json")) {
            section.problem("format", "must be \"text\" or \"json\"");
        }
        if EnvFilter::builder().parse(&config.filter).is_err() {
            section.problem("filter", "is not a log filter such as \"info,ingest=debug\"");
        }
        section.finish();
        config
    }
}

/// Why telemetry could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something else in the process took the global recorder or subscriber.
    #[error("telemetry is already installed: {0}")]
    Installed(String),
    /// The server could not accept connections any more.
    #[error("cannot serve metrics: {0}")]
    Serve(#[from] std::io::Error),
}

/// Installs the log subscriber.
///
/// # Errors
/// [`Error::Installed`] on a second call.
pub fn init_log(config: &Config) -> Result<(), Error> {
    // The caller of the driver logs its failures, once for each reason.
    let filter = EnvFilter::new(format!("scylla=off,{}", config.filter));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()));
    let result = if config.json { builder.json().try_init() } else { builder.compact().try_init() };
    result.map_err(|e| Error::Installed(e.to_string()))
}

/// Installs the metrics recorder. [`serve`] keeps it small.
///
/// # Errors
/// [`Error::Installed`] on a second call.
pub fn init_metrics() -> Result<PrometheusHandle, Error> {
    let handle = builder().and_then(PrometheusBuilder::install_recorder);
    handle.map_err(|error| Error::Installed(error.to_string()))
}

fn builder() -> Result<PrometheusBuilder, BuildError> {
    let is_time = Matcher::Suffix("_seconds".to_owned());
    PrometheusBuilder::new().set_buckets(&COUNTS)?.set_buckets_for_metric(is_time, &SECONDS)
}

/// What `/ready` answers.
#[derive(Debug, Serialize)]
struct ReadyView {
    ready: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    waiting_for: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    alarms: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    details: Vec<Value>,
}

/// Serves `/metrics`, `/ready` and `/live` until `stop`. `/ready` answers 200 `{"ready":true}`, or 503
/// with what is waited for, and either way what needs a person; `/ready?verbose=1` adds the details of
/// [`Readiness::details`]. `/live` answers 200 as long as the process runs.
///
/// # Errors
/// [`Error::Serve`] if nothing can be accepted any more.
pub async fn serve(
    listener: TcpListener,
    metrics: PrometheusHandle,
    readiness: Readiness,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), Error> {
    let recorder = metrics.clone();
    let upkeep = async move {
        loop {
            tokio::time::sleep(UPKEEP).await;
            recorder.run_upkeep();
        }
    };
    let routes = Router::new()
        .route("/metrics", get(move || std::future::ready(metrics.render())))
        .route("/ready", get(ready))
        .route("/live", get(|| async { "live" }))
        .with_state(readiness);
    let served = axum::serve(listener, routes).with_graceful_shutdown(stop);
    tokio::select! {
        ended = served.into_future() => Ok(ended?),
        () = upkeep => Ok(()),
    }
}

async fn ready(
    State(readiness): State<Readiness>,
    RawQuery(query): RawQuery,
) -> (StatusCode, Json<ReadyView>) {
    let waiting_for = readiness.waiting_for();
    let ready = waiting_for.is_empty();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let is_verbose = query.as_deref() == Some(VERBOSE);
    let details = if is_verbose { readiness.details() } else { Vec::new() };
    (status, Json(ReadyView { ready, waiting_for, alarms: readiness.alarms(), details }))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn histograms_are_buckets_that_add_up() {
        let recorder = builder().unwrap().build_recorder();
        metrics::with_local_recorder(&recorder, || {
            metrics::histogram!("step_seconds", "group" => "a").record(0.004);
            metrics::histogram!("step_seconds", "group" => "a").record(0.04);
            metrics::histogram!("step_records").record(150.0);
        });
        let text = recorder.handle().render();
        for line in [
            r#"step_seconds_bucket{group="a",le="0.002"} 0"#,
            r#"step_seconds_bucket{group="a",le="0.005"} 1"#,
            r#"step_seconds_bucket{group="a",le="0.05"} 2"#,
            r#"step_seconds_count{group="a"} 2"#,
            r#"step_records_bucket{le="100"} 0"#,
            r#"step_records_bucket{le="200"} 1"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
    }

    /// Where nobody scrapes, a sample may not take memory for ever.
    #[tokio::test(start_paused = true)]
    async fn samples_reach_their_buckets_without_a_scrape() {
        let recorder = builder().unwrap().build_recorder();
        let record = || metrics::histogram!("step_seconds").record(0.004);
        metrics::with_local_recorder(&recorder, record);
        let metrics = recorder.handle();
        // To render would add them, too.
        let has_buckets = || format!("{metrics:?}").contains("Histogram(");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        assert!(!has_buckets(), "{metrics:?}");
        let stop = tokio::time::sleep_until(tokio::time::Instant::now() + 2 * UPKEEP);
        serve(listener, metrics.clone(), Readiness::default(), stop).await.unwrap();
        assert!(has_buckets(), "{metrics:?}");
    }
}
