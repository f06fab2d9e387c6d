//! Logs to standard error, metrics at `/metrics`.

use std::future::Future;
use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tracing_subscriber::EnvFilter;

use crate::config::Reader;

/// `[telemetry]`.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where `/metrics` is served; none turns it off.
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
    /// The port is taken.
    #[error("cannot serve metrics: {0}")]
    Listen(#[from] std::io::Error),
}

/// Installs the log subscriber.
///
/// # Errors
/// [`Error::Installed`] on a second call.
pub fn init_log(config: &Config) -> Result<(), Error> {
    let filter = EnvFilter::new(&config.filter);
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
    crate::metrics::describe();
    Ok(handle)
}

/// Serves `/metrics` until `stop`.
///
/// # Errors
/// [`Error::Listen`] if the address cannot be bound.
pub async fn serve(
    listen: SocketAddr,
    handle: PrometheusHandle,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), Error> {
    let listener = tokio::net::TcpListener::bind(listen).await?;
    let routes = Router::new().route("/metrics", get(move || std::future::ready(handle.render())));
    axum::serve(listener, routes).with_graceful_shutdown(stop).await?;
    Ok(())
}
