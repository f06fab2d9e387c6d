//! `tidemark webhook listen`: a receiver for developers. It verifies and prints webhooks, and returns the given status
//! for genuine ones, otherwise 401.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use clap::Args;
use runtime::{Clock, SystemClock};
use schemas::{Secret, SignatureError, verify_service};

use crate::output::print;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Address to listen on; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:9000")]
    address: SocketAddr,
    /// Status returned for genuine webhooks. Only 200 acknowledges; Tidemark retries any other.
    #[arg(long, default_value = "200")]
    answer: StatusCode,
}

struct Receiver {
    secrets: Vec<Secret>,
    answer: StatusCode,
}

/// Receives until the process ends.
pub(crate) async fn run(secrets: Vec<Secret>, options: Options) -> anyhow::Result<()> {
    anyhow::ensure!(
        secrets.iter().all(|secret| !secret.expose().is_empty()),
        "merchant.secret is missing: give --config, or TIDEMARK__MERCHANT__SECRET"
    );
    let receiver = Receiver { secrets, answer: options.answer };
    let routes = Router::new().fallback(receive).with_state(Arc::new(receiver));
    let listener = tokio::net::TcpListener::bind(options.address)
        .await
        .with_context(|| format!("cannot listen on {}", options.address))?;
    print(&format!("listening on http://{}/", listener.local_addr()?));
    Ok(axum::serve(listener, routes).await?)
}

/// Checks that one of the secrets signed a webhook's unchanged `body`, not long ago (spec 5.3).
///
/// # Errors
/// [`SignatureError`]; a header that is missing is malformed.
pub(crate) fn check(
    secrets: &[Secret],
    headers: &HeaderMap,
    body: &[u8],
) -> Result<(), SignatureError> {
    let header = text(headers, "Service-Signature").ok_or(SignatureError::Malformed)?;
    verify_service(secrets, header, body, SystemClock.now().seconds())
}

async fn receive(
    State(receiver): State<Arc<Receiver>>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    let checked = check(&receiver.secrets, &headers, &body);
    let status = if checked.is_ok() { receiver.answer } else { StatusCode::UNAUTHORIZED };
    // One line: a body with line ends could forge the line "signature verified".
    let shown = String::from_utf8_lossy(&body).replace(['\r', '\n'], " ");
    let verdict = match checked {
        Ok(()) => "signature verified".to_owned(),
        Err(error) => format!("REFUSED: {error}"),
    };
    print(&format!(
        "{} {uri} webhook {} attempt {}: {verdict}, answered {}\n  {shown}",
        SystemClock.now().to_rfc3339(),
        text(&headers, "Webhook-Id").unwrap_or("without id"),
        text(&headers, "Webhook-Attempt").unwrap_or("?"),
        status.as_u16(),
    ));
    status
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}
