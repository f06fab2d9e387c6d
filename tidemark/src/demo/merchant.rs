//! A sample merchant: accepts only webhooks whose signature verifies.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use schemas::Secret;
use serde_json::Value;
use tokio::sync::{Mutex, mpsc};

use crate::listen::check;

/// Maximum number of queued webhooks.
const INBOX_MAX: usize = 1024;
/// Path of its webhook URL.
const PATH: &str = "/webhooks";

/// The merchant and what it received.
pub(super) struct Merchant {
    url: String,
    /// Maximum wait of the script for a webhook.
    patience: Duration,
    inbox: Mutex<Inbox>,
}

struct Inbox {
    incoming: mpsc::Receiver<Value>,
    /// Webhooks received while the script waited for another one.
    kept: Vec<Value>,
}

#[derive(Clone)]
struct Receiver {
    secret: Secret,
    inbox: mpsc::Sender<Value>,
}

impl Merchant {
    /// Starts the merchant's server. `url` is its webhook URL as the installation reaches it;
    /// default: the address on which it listens.
    pub(super) async fn start(
        secret: Secret,
        listen: SocketAddr,
        url: Option<String>,
        patience: Duration,
    ) -> anyhow::Result<Self> {
        let (sender, incoming) = mpsc::channel(INBOX_MAX);
        let receiver = Arc::new(Receiver { secret, inbox: sender });
        let routes = Router::new().route(PATH, post(receive)).with_state(receiver);
        let listener = tokio::net::TcpListener::bind(listen)
            .await
            .with_context(|| format!("the merchant cannot listen on {listen}"))?;
        let here = listener.local_addr()?;
        let url = url.unwrap_or_else(|| format!("http://{here}{PATH}"));
        // The server ends with the process, without a shutdown.
        drop(tokio::spawn(async move { axum::serve(listener, routes).await }));
        Ok(Self { url, patience, inbox: Mutex::new(Inbox { incoming, kept: Vec::new() }) })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Waits for a verified webhook whose `field` is `value`; fails if `patience` ends first.
    pub(super) async fn wait_for(&self, field: &str, value: &Value) -> anyhow::Result<Value> {
        let mut inbox = self.inbox.lock().await;
        if let Some(found) = inbox.kept.iter().position(|event| &event[field] == value) {
            return Ok(inbox.kept.remove(found));
        }
        let search = async {
            while let Some(event) = inbox.incoming.recv().await {
                if &event[field] == value {
                    return Some(event);
                }
                inbox.kept.push(event);
            }
            None
        };
        tokio::time::timeout(self.patience, search)
            .await
            .ok()
            .flatten()
            .with_context(|| format!("no webhook with {field} {value} came"))
    }

    /// The next verified webhook; `None` once the server has ended.
    pub(super) async fn next(&self) -> Option<Value> {
        self.inbox.lock().await.incoming.recv().await
    }

    /// Number of webhooks for an order that have come, without those that `wait_for` returned.
    pub(super) async fn further(&self, order_id: &str) -> usize {
        let mut inbox = self.inbox.lock().await;
        while let Ok(event) = inbox.incoming.try_recv() {
            inbox.kept.push(event);
        }
        inbox.kept.iter().filter(|event| event["order_id"] == order_id).count()
    }
}

async fn receive(
    State(receiver): State<Arc<Receiver>>,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    if check(std::slice::from_ref(&receiver.secret), &headers, &body).is_err() {
        return StatusCode::UNAUTHORIZED;
    }
    let Ok(event) = serde_json::from_slice(&body) else { return StatusCode::BAD_REQUEST };
    match receiver.inbox.try_send(event) {
        Ok(()) => StatusCode::OK,
        Err(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}
