//! Sends spans to a collector, by OTLP over HTTP in JSON. Spans are dropped while the collector is unavailable.

use std::time::Duration;

use anyhow::Context as _;
use reqwest::header::HeaderMap;
use runtime::telemetry::Otlp;
use runtime::traces::{self, Span};
use serde_json::{Value, json};
use tokio::sync::mpsc::Receiver;
use tokio_util::sync::CancellationToken;

/// Maximum number of spans in one request.
const BATCH_MAX: usize = 512;
/// Maximum time that the first span of a request waits for others.
const LINGER: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(5);

/// Exports the spans of this process.
pub(super) struct Exporter {
    http: reqwest::Client,
    url: String,
    /// Resource attributes of the process.
    resource: Value,
    /// `true` if the last request to the collector failed.
    is_away: bool,
}

fn attributes<'a>(all: impl IntoIterator<Item = (&'a str, &'a str)>) -> Value {
    let attribute = |(key, value)| json!({ "key": key, "value": { "stringValue": value } });
    all.into_iter().map(attribute).collect()
}

fn span_json(span: &Span) -> Value {
    let id = |id: u64| format!("{id:016x}");
    let nanos = |at: schemas::UnixMicros| format!("{}000", at.0);
    let mut json = json!({
        "traceId": format!("{:032x}", span.context.trace),
        "spanId": id(span.id),
        "name": span.name,
        "kind": span.kind as u8,
        "startTimeUnixNano": nanos(span.start),
        "endTimeUnixNano": nanos(span.end),
        "attributes": attributes(span.attributes.iter().map(|(key, value)| (*key, &**value))),
        "status": if span.is_failed { json!({ "code": 2 }) } else { json!({}) },
    });
    if span.context.parent != 0 {
        json["parentSpanId"] = id(span.context.parent).into();
    }
    json
}

impl Exporter {
    /// Makes an exporter; fails without an HTTP client, for example because the system has no trusted certificates.
    pub(super) fn new(otlp: &Otlp, member: &str) -> anyhow::Result<Self> {
        // The provider is process-wide; another part may have installed it already.
        drop(rustls::crypto::ring::default_provider().install_default());
        let headers: HeaderMap = otlp.header.clone().into_iter().collect();
        let redirects = reqwest::redirect::Policy::none();
        let http = reqwest::Client::builder().timeout(TIMEOUT).redirect(redirects);
        let http = http.default_headers(headers).build();
        let resource = attributes([
            ("service.name", "tidemark"),
            ("service.version", env!("CARGO_PKG_VERSION")),
            ("service.instance.id", member),
        ]);
        let http = http.context("spans cannot be sent: there is no HTTP client")?;
        Ok(Self { http, url: otlp.url.clone(), resource, is_away: false })
    }

    /// Sends spans until `stop`, then the queued ones, which are dropped if the collector is unavailable.
    pub(super) async fn run(mut self, mut spans: Receiver<Span>, stop: CancellationToken) {
        while let Some(first) = next(&mut spans, &stop).await {
            let mut batch = vec![first];
            if spans.len() < BATCH_MAX {
                stop.run_until_cancelled(tokio::time::sleep(LINGER)).await;
            }
            while batch.len() < BATCH_MAX
                && let Ok(span) = spans.try_recv()
            {
                batch.push(span);
            }
            let sent = self.send(&batch).await;
            traces::count(sent.is_ok(), batch.len());
            self.report(sent);
            if self.is_away && stop.is_cancelled() {
                break;
            }
        }
        traces::stop();
    }

    async fn send(&self, batch: &[Span]) -> reqwest::Result<()> {
        let spans: Vec<_> = batch.iter().map(span_json).collect();
        let scope = json!({ "scope": { "name": "tidemark" }, "spans": spans });
        let resource = json!({ "attributes": self.resource });
        let body = json!({ "resourceSpans": [{ "resource": resource, "scopeSpans": [scope] }] });
        let answer = self.http.post(&self.url).json(&body).send().await;
        answer.and_then(reqwest::Response::error_for_status).map(drop)
    }

    /// Logs a line when the collector fails and when it recovers.
    fn report(&mut self, sent: reqwest::Result<()>) {
        let was_away = std::mem::replace(&mut self.is_away, sent.is_err());
        match sent {
            Err(error) if !was_away => {
                // A URL may have a key in it.
                let cause = format!("{:#}", anyhow::Error::from(error.without_url()));
                tracing::warn!(
                    cause,
                    "telemetry.otlp_endpoint takes no spans: they are dropped until it does"
                );
            }
            Ok(()) if was_away => tracing::info!("telemetry.otlp_endpoint takes spans again"),
            Ok(()) | Err(_) => {}
        }
    }
}

/// Returns the next span; `None` if there is none after a stop.
async fn next(spans: &mut Receiver<Span>, stop: &CancellationToken) -> Option<Span> {
    match stop.run_until_cancelled(spans.recv()).await {
        Some(span) => span,
        None => spans.try_recv().ok(),
    }
}

#[cfg(test)]
mod tests {
    use runtime::traces::{Context, Kind};
    use schemas::UnixMicros;

    use super::*;

    #[test]
    fn a_span_is_what_a_collector_reads() {
        let context = Context { trace: 0xab, parent: 7, is_sampled: true };
        let span = Span {
            context,
            id: 9,
            name: "POST /x".to_owned(),
            kind: Kind::Server,
            start: UnixMicros(1_790_000_000_000_001),
            end: UnixMicros(1_790_000_000_000_002),
            attributes: vec![("http.status", "201".to_owned())],
            is_failed: false,
        };
        let expected = json!({
            "traceId": "000000000000000000000000000000ab",
            "spanId": "0000000000000009",
            "parentSpanId": "0000000000000007",
            "name": "POST /x",
            "kind": 2,
            "startTimeUnixNano": "1790000000000001000",
            "endTimeUnixNano": "1790000000000002000",
            "attributes": [{ "key": "http.status", "value": { "stringValue": "201" } }],
            "status": {},
        });
        assert_eq!(span_json(&span), expected);
        let root = Span { context: Context::new(0xab), is_failed: true, ..span };
        let json = span_json(&root);
        assert_eq!((&json["parentSpanId"], &json["status"]["code"]), (&Value::Null, &json!(2)));
    }
}
