//! Logs to standard error; metrics at `/metrics`, readiness at `/ready`, and `/live`.

use std::future::{Future, IntoFuture};
use std::net::SocketAddr;
use std::time::Duration;

use axum::extract::{RawQuery, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, Uri};
use axum::routing::get;
use axum::{Json, Router};
pub use metrics_exporter_prometheus::PrometheusHandle;
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder};
use serde::Serialize;
use serde_json::Value;
use tokio::net::TcpListener;
use tracing_subscriber::EnvFilter;

use crate::Readiness;
use crate::config::Reader;
use crate::process::Process;

/// Upper bounds of the buckets of a duration, in seconds. Buckets of several processes can be added up,
/// quantiles cannot.
const SECONDS: [f64; 15] =
    [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 120.0];

/// Upper bounds of the buckets of a count.
const COUNTS: [f64; 12] =
    [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 4096.0, 16384.0];

/// Interval at which samples are added to their buckets: until then each one takes memory.
const UPKEEP: Duration = Duration::from_secs(5);
/// The query of a request for details.
const VERBOSE: &str = "verbose=1";

/// `[telemetry]`.
#[derive(Debug, Clone)]
pub struct Config {
    /// Listen address of `/metrics`, `/ready` and `/live`; `None` turns them off.
    pub listen: Option<SocketAddr>,
    /// Filter of log lines, in `tracing`'s syntax.
    pub filter: String,
    /// One JSON object a line instead of text.
    pub json: bool,
    /// Destination of spans; `None` sends none.
    pub otlp: Option<Otlp>,
}

/// A collector of spans.
#[derive(Debug, Clone)]
pub struct Otlp {
    /// URL of the collector, with the path of traces.
    pub url: String,
    /// Header of each request; a secret.
    pub header: Option<(HeaderName, HeaderValue)>,
}

impl Otlp {
    fn read(section: &mut Reader) -> Option<Self> {
        let endpoint = section.text("otlp_endpoint");
        let header = section.secret("otlp_header");
        if endpoint.is_empty() {
            if header.is_some() {
                section.problem("otlp_header", "has no effect without telemetry.otlp_endpoint");
            }
            return None;
        }
        let uri = endpoint.parse::<Uri>().ok();
        let is_http = |uri: Uri| matches!(uri.scheme_str(), Some("http" | "https"));
        if !uri.is_some_and(is_http) {
            section.problem("otlp_endpoint", "must be an http or https URL, or \"\" for none");
        }
        let header = header.and_then(|text| {
            let header = parse_header(text.expose());
            if header.is_none() {
                section
                    .problem("otlp_header", "must be a header such as \"Authorization: Bearer …\"");
            }
            header
        });
        Some(Self { url: format!("{}/v1/traces", endpoint.trim_end_matches('/')), header })
    }
}

fn parse_header(text: &[u8]) -> Option<(HeaderName, HeaderValue)> {
    let (name, value) = std::str::from_utf8(text).ok()?.split_once(':')?;
    let mut value = HeaderValue::try_from(value.trim()).ok()?;
    value.set_sensitive(true);
    Some((HeaderName::try_from(name.trim()).ok()?, value))
}

impl Config {
    /// Reads the section.
    #[must_use]
    pub fn read(mut section: Reader) -> Self {
        let format: Option<String> = section.parsed("format");
        let config = Self {
            listen: section.given("listen"),
            filter: section.text("filter"),
            json: format.as_deref() == Some("json"),
            otlp: Otlp::read(&mut section),
        };
        if format.is_some_and(|format| !matches!(&*format, "text" | "json")) {
            section.problem("format", "must be \"text\" or \"json\"");
        }
        if EnvFilter::builder().parse(&config.filter).is_err() {
            section.problem("filter", "is not a log filter such as \"info,ingest=debug\"");
        }
        section.finish();
        config
    }
}

/// Reason why telemetry could not start, or ended.
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
    // The CQL driver's own lines are off: its caller logs failures, once for each reason.
    let filter = EnvFilter::new(format!("scylla=off,{}", config.filter));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()));
    let result = if config.json { builder.json().try_init() } else { builder.compact().try_init() };
    result.map_err(|e| Error::Installed(e.to_string()))
}

/// Installs the metrics recorder. [`serve`] bounds its memory.
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

/// Metrics of the recorder in Prometheus' text format: every series that has a value.
#[must_use]
pub fn exposition(metrics: &PrometheusHandle) -> String {
    let mut text = metrics.render();
    let is_help = |line: &str| line.starts_with('#');
    if text.contains(" NaN\n") {
        let lines = text.split_inclusive('\n');
        text = lines.filter(|line| is_help(line) || !line.ends_with(" NaN\n")).collect();
    }
    text
}

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

/// Adds samples to their buckets for ever, at an interval: a sample takes memory until it is added.
pub async fn upkeep(metrics: PrometheusHandle) {
    loop {
        tokio::time::sleep(UPKEEP).await;
        metrics.run_upkeep();
    }
}

/// Serves `/metrics`, `/ready` and `/live` until `stop`. `/ready` answers 200 `{"ready":true}`, or
/// 503 with the parts that are not ready, and in both cases any alarms; `/ready?verbose=1` adds the
/// details of [`Readiness::details`]. `/live` answers 200 as long as the process runs.
///
/// # Errors
/// [`Error::Serve`] if nothing can be accepted any more.
pub async fn serve(
    listener: TcpListener,
    metrics: PrometheusHandle,
    process: Process,
    readiness: Readiness,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), Error> {
    let upkeep = upkeep(metrics.clone());
    let routes = Router::new()
        .route(
            "/metrics",
            get(move || std::future::ready(exposition(&metrics) + &process.exposition())),
        )
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
    use crate::metrics::NO_VALUE;

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

    #[test]
    fn a_gauge_without_a_value_is_not_exported() {
        let recorder = builder().unwrap().build_recorder();
        let set = |value: f64| {
            metrics::with_local_recorder(&recorder, || {
                metrics::describe_gauge!("height", "1 or NaN");
                metrics::gauge!("height", "chain" => "a").set(value);
                metrics::gauge!("height", "chain" => "b").set(1.0);
            });
            exposition(&recorder.handle())
        };
        assert!(set(7.0).contains("height{chain=\"a\"} 7\n"));
        let text = set(NO_VALUE);
        assert!(!text.contains("chain=\"a\""), "{text}");
        for line in ["# HELP height 1 or NaN\n", "height{chain=\"b\"} 1\n"] {
            assert!(text.contains(line), "{line} in {text}");
        }
        assert!(set(7.0).contains("height{chain=\"a\"} 7\n"), "it has one again");
    }

    /// A sample may not take memory for ever if nobody scrapes.
    #[tokio::test(start_paused = true)]
    async fn samples_reach_their_buckets_without_a_scrape() {
        let recorder = builder().unwrap().build_recorder();
        let record = || metrics::histogram!("step_seconds").record(0.004);
        metrics::with_local_recorder(&recorder, record);
        let metrics = recorder.handle();
        // Rendering would add the samples to the buckets, too.
        let has_buckets = || format!("{metrics:?}").contains("Histogram(");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        assert!(!has_buckets(), "{metrics:?}");
        let stop = tokio::time::sleep_until(tokio::time::Instant::now() + 2 * UPKEEP);
        serve(
            listener,
            metrics.clone(),
            Process::starting("1.2.3", None),
            Readiness::default(),
            stop,
        )
        .await
        .unwrap();
        assert!(has_buckets(), "{metrics:?}");
    }
}
