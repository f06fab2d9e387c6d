//! A merchant's receiver: records every POST of JSON with an event id and a signature, and answers 400 to others.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use schemas::{Secret, UnixSeconds, verify_service};
use serde_json::Value;

use super::{MERCHANT_SECRET, eventually};

/// A received webhook.
#[derive(Debug, Clone)]
pub struct Received {
    /// `Webhook-Id`: the same whenever an event is sent again.
    pub id: String,
    /// `Service-Signature`.
    pub signature: String,
    /// The exact bytes.
    pub body: Vec<u8>,
    /// The same as JSON.
    pub event: Value,
    pub at: Instant,
}

impl Received {
    /// `true` if it was signed with the merchant's secret over exactly this body (spec 5.3).
    pub fn is_signed(&self) -> bool {
        let signed_at = self.signature.split('.').next().and_then(|time| time.parse().ok());
        let (secrets, now) = ([Secret::new(MERCHANT_SECRET)], UnixSeconds(signed_at.unwrap_or(0)));
        verify_service(&secrets, &self.signature, &self.body, now).is_ok()
    }
}

#[derive(Debug, Clone)]
pub struct Merchant {
    url: String,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Merchant {
    /// Starts on a free port; it ends with the test's runtime.
    pub async fn start() -> Self {
        let received = Arc::new(Mutex::new(Vec::new()));
        let keep = received.clone();
        let receive = move |headers: HeaderMap, body: Bytes| async move {
            let header = |name| Some(headers.get(name)?.to_str().ok()?.to_owned());
            let (Some(id), Some(signature), Ok(event)) =
                (header("Webhook-Id"), header("Service-Signature"), serde_json::from_slice(&body))
            else {
                return StatusCode::BAD_REQUEST;
            };
            let (body, at) = (body.to_vec(), Instant::now());
            let webhook = Received { id, signature, body, event, at };
            keep.lock().unwrap_or_else(PoisonError::into_inner).push(webhook);
            StatusCode::OK
        };
        let routes = Router::new().route("/webhooks", post(receive));
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("listen");
        let url = format!("http://{}/webhooks", listener.local_addr().expect("an address"));
        drop(tokio::spawn(async move { axum::serve(listener, routes).await }));
        Self { url, received }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn count(&self) -> usize {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Waits for a webhook whose field has this value; returns all such so far.
    pub async fn awaited(&self, field: &str, value: &Value) -> Vec<Received> {
        eventually(&format!("the webhook with {field} {value}"), || async {
            Some(self.with(field, value)).filter(|received| !received.is_empty())
        })
        .await
    }

    /// Everything so far whose field has this value.
    pub fn with(&self, field: &str, value: &Value) -> Vec<Received> {
        self.received().into_iter().filter(|webhook| &webhook.event[field] == value).collect()
    }
}
