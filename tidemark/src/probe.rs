//! `tidemark webhook test`: sends a test webhook to a receiver, and reports the response.

use std::sync::Arc;

use runtime::SystemClock;
use schemas::{AttemptOutcome, receiver_url};
use webhooks::Answer;

use crate::setup::Outcome;

/// Sends one webhook to `url`, and reports the result. Succeeds if it is acknowledged.
pub(crate) async fn run(config: &webhooks::Config, url: &str) -> anyhow::Result<Outcome> {
    anyhow::ensure!(
        !config.secret.expose().is_empty(),
        "merchant.secret is missing: give --config, or TIDEMARK__MERCHANT__SECRET"
    );
    let mut lines = vec![format!("POST {url}")];
    lines.extend(addresses(config, url).await);
    let Answer { outcome, http_status, took, cause, answer, .. } =
        webhooks::probe(config, Arc::new(SystemClock), url).await?;
    let is_success = outcome == AttemptOutcome::Delivered;
    let took = took.as_millis();
    lines.push(match (http_status, cause) {
        (Some(status), _) if is_success => format!("acknowledged with {status} after {took} ms"),
        (Some(status), _) => {
            format!("answered with {status} after {took} ms: only 200 acknowledges")
        }
        (None, cause) => format!("{outcome} after {took} ms: {}", cause.unwrap_or_default()),
    });
    lines.extend(Some(answer).filter(|text| !text.is_empty()).map(|text| format!("  {text}")));
    Ok(Outcome { lines, is_success })
}

/// Addresses of the receiver, only for display: the call resolves the name again. `None` if there is no name or it does
/// not resolve, and with a proxy, which resolves it instead.
async fn addresses(config: &webhooks::Config, url: &str) -> Option<String> {
    let url = receiver_url(url).ok().filter(|_| config.proxy.is_none())?;
    let target = (url.domain()?, url.port_or_known_default()?);
    let found = tokio::net::lookup_host(target).await.ok()?;
    let mut addresses: Vec<_> = found.map(|address| address.ip().to_string()).collect();
    addresses.dedup();
    Some(format!("{} is {}", target.0, addresses.join(", ")))
}
