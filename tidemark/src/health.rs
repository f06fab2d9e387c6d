//! `tidemark health`: queries the readiness of the process with the same configuration. For container health checks,
//! since the image has no other HTTP client.

pub(crate) mod admin_api;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::Context;
use runtime::{Clock, SystemClock, telemetry};
use serde_json::Value;

use crate::setup::Outcome;

/// Maximum wait for an answer: it comes from the same machine.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Returns the alarms of a ready process, then a line for each configured chain.
///
/// # Errors
/// Readiness is not served, the process does not answer, or it is not ready: the error has what it waits for.
pub(crate) async fn ask(config: &telemetry::Config) -> anyhow::Result<Outcome> {
    let listen = config.listen.context(
        "telemetry.listen is \"\", so readiness is not served: set it, or check another way",
    )?;
    // The provider is process-wide; another part may have installed it already.
    drop(rustls::crypto::ring::default_provider().install_default());
    let http = reqwest::Client::builder().no_proxy().timeout(TIMEOUT).build()?;
    let url = format!("http://{}/ready?verbose=1", reachable(listen));
    let response = http.get(&url).send().await.with_context(|| format!("{url} does not answer"))?;
    let status = response.status();
    let body: Value = response.json().await.with_context(|| format!("{url} answers {status}"))?;
    let lines = |key| -> Vec<String> {
        let lines = body[key].as_array().into_iter().flatten().filter_map(Value::as_str);
        lines.map(str::to_owned).collect()
    };
    let (waiting_for, mut lines) = (lines("waiting_for"), lines("alarms"));
    let details = body["details"].as_array().into_iter().flatten();
    lines.extend(details.filter_map(|detail| chain_line(detail, SystemClock.now().seconds().0)));
    anyhow::ensure!(status.is_success(), "not ready\n{}", [waiting_for, lines].concat().join("\n"));
    Ok(Outcome { lines, is_success: true })
}

/// Returns the state of a chain in a line; `None` for a detail without a chain.
fn chain_line(detail: &Value, now: i64) -> Option<String> {
    let name = detail["blockchain"].as_str()?;
    if detail["followed"] == false {
        return Some(format!("{name}: not followed by this process"));
    }
    let number = |key: &str| detail[key].as_i64().map_or("-".to_owned(), |n| n.to_string());
    let age = detail["timestamp"].as_i64().map_or("-".to_owned(), |time| (now - time).to_string());
    let mut parts = vec![format!(
        "{name}: scanned to {}, {age} s and {} blocks behind; checked {}, confirmed {}, finalized {}, epoch {}",
        number("scanned"),
        number("lag_blocks"),
        number("checked"),
        number("confirmed"),
        number("finalized"),
        number("epoch"),
    )];
    for endpoint in detail["endpoints"].as_array().into_iter().flatten() {
        let mut words = vec![endpoint["endpoint"].as_str().unwrap_or_default().to_owned()];
        for (key, word) in [("in_use", "in use"), ("aside", "put aside")] {
            words.extend((endpoint[key] == true).then(|| word.to_owned()));
        }
        let errors = endpoint["errors"].as_object().into_iter().flatten();
        words.extend(errors.map(|(class, count)| format!("{class} {count}")));
        parts.push(words.join(", "));
    }
    Some(parts.join("; "))
}

/// An address to connect to: the loopback address if the process listens on all addresses.
pub(crate) fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    (ip, listen.port()).into()
}
