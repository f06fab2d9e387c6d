//! Logs to standard error; metrics at `/metrics`, readiness at `/ready`, and `/live`.

use std::future::Future;
use std::net::SocketAddr;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use serde::Serialize;
use tokio::net::TcpListener;
use tracing_subscriber::EnvFilter;

use crate::Readiness;
use crate::config::Reader;

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

/// Installs the metrics recorder.
///
/// # Errors
/// [`Error::Installed`] on a second call.
pub fn init_metrics() -> Result<PrometheusHandle, Error> {
    let handle =
        PrometheusBuilder::new().install_recorder().map_err(|e| Error::Installed(e.to_string()))?;
    Ok(handle)
}

/// What `/ready` answers.
#[derive(Debug, Serialize)]
struct ReadyView {
    ready: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    waiting_for: Vec<String>,
}

/// Serves `/metrics`, `/ready` and `/live` until `stop`. `/ready` answers 200 `{"ready":true}`, or 503
/// with what is waited for; `/live` answers 200 as long as the process runs.
///
/// # Errors
/// [`Error::Serve`] if nothing can be accepted any more.
pub async fn serve(
    listener: TcpListener,
    metrics: PrometheusHandle,
    readiness: Readiness,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), Error> {
    let routes = Router::new()
        .route("/metrics", get(move || std::future::ready(metrics.render())))
        .route("/ready", get(ready))
        .route("/live", get(|| async { "live" }))
        .with_state(readiness);
    axum::serve(listener, routes).with_graceful_shutdown(stop).await?;
    Ok(())
}

async fn ready(State(readiness): State<Readiness>) -> (StatusCode, Json<ReadyView>) {
    let waiting_for = readiness.waiting_for();
    let ready = waiting_for.is_empty();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(ReadyView { ready, waiting_for }))
}
